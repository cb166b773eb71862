//! DER, as far as OCSP needs it: elements with one-byte tags, read in place.

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BITS: u8 = 0x03;
pub(super) const OCTETS: u8 = 0x04;
pub(super) const NULL: u8 = 0x05;
pub(super) const OBJECT: u8 = 0x06;
pub(super) const ENUMERATED: u8 = 0x0a;
pub(super) const SEQUENCE: u8 = 0x30;

/// The tag of a context-specific element with content of its own.
pub(super) const fn context(number: u8) -> u8 {
    0x80 | number
}

/// The tag of a context-specific element that contains other elements.
pub(super) const fn explicit(number: u8) -> u8 {
    0xa0 | number
}

/// One element.
#[derive(Debug, Clone, Copy)]
pub(super) struct DerElement<'d> {
    pub(super) tag: u8,
    /// Its tag, its length and its content.
    pub(super) whole: &'d [u8],
    pub(super) content: &'d [u8],
}

/// Reads elements one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct DerReader<'d> {
    rest: &'d [u8],
}

impl<'d> DerReader<'d> {
    pub(super) fn new(bytes: &'d [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next element. `None` at the end, or if it is cut off or malformed.
    pub(super) fn next(&mut self) -> Option<DerElement<'d>> {
        let (&tag, after) = self.rest.split_first()?;
        let (&first, after) = after.split_first()?;
        let (length, after) = match first {
            0..=0x7f => (usize::from(first), after),
            // At most 65,535 bytes: nothing that is read here is longer.
            0x81 => after.split_first().map(|(&length, after)| (usize::from(length), after))?,
            0x82 => {
                let (length, after) = after.split_first_chunk::<2>()?;
                (usize::from(u16::from_be_bytes(*length)), after)
            }
            _ => return None,
        };
        let (content, rest) = after.split_at_checked(length)?;
        let whole = self.rest.get(..self.rest.len() - rest.len())?;
        self.rest = rest;
        Some(DerElement { tag, whole, content })
    }

    /// The next element if it has this tag.
    pub(super) fn expect(&mut self, tag: u8) -> Option<DerElement<'d>> {
        self.next().filter(|element| element.tag == tag)
    }

    /// The next element if it has this tag; otherwise, nothing is read.
    pub(super) fn optional(&mut self, tag: u8) -> Option<DerElement<'d>> {
        if self.rest.first() == Some(&tag) { self.next() } else { None }
    }
}

/// The bytes of a bit string without unused bits.
pub(super) fn bits(element: DerElement<'_>) -> Option<&[u8]> {
    element.content.split_first().filter(|(unused, _)| **unused == 0).map(|(_, bytes)| bytes)
}

/// Writes an element of at most 65,535 bytes.
pub(super) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    match content.len() {
        length @ 0..=0x7f => bytes.push(length as u8),
        length @ 0x80..=0xff => bytes.extend([0x81, length as u8]),
        length => bytes.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    bytes.extend_from_slice(content);
    bytes
}

pub(super) fn sequence(elements: &[&[u8]]) -> Vec<u8> {
    element(SEQUENCE, &elements.concat())
}

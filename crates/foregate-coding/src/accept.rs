//! `Accept-Encoding` (RFC 9110, section 12.5.3), and the quality values of other fields.

use alloc::vec::Vec;

use foregate_module::Fields;

use crate::ContentCoding;

/// The content codings that a client accepts.
#[derive(Debug, Default)]
pub struct AcceptEncoding {
    /// The quality of each known coding, in the order of [`ContentCoding::ALL`].
    codings: [Option<Quality>; ContentCoding::ALL.len()],
    /// The quality of all other codings (`*`).
    others: Option<Quality>,
    /// The quality of the plain body.
    identity: Option<Quality>,
}

impl AcceptEncoding {
    /// Reads the fields of a request, in one pass: a client may send very many elements. Of several elements for
    /// one coding, the first counts.
    pub fn new(fields: &dyn Fields) -> Self {
        Self::of(fields.all("accept-encoding"))
    }

    /// Like [`new`](Self::new), for the values of the fields.
    pub fn of<'v>(values: impl Iterator<Item = &'v [u8]>) -> Self {
        let mut accepted = Self::default();
        let elements = values.flat_map(|value| value.split(|byte| *byte == b','));
        for element in elements.filter(|element| !element.is_empty()) {
            let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            if let Some(said) = accepted.said_of(name) {
                said.get_or_insert_with(|| parts.find_map(quality).unwrap_or(FULL));
            }
        }
        accepted
    }

    /// The field of this struct that holds the quality of an element with this name.
    fn said_of(&mut self, name: &[u8]) -> Option<&mut Option<Quality>> {
        match name {
            b"*" => Some(&mut self.others),
            name if name.eq_ignore_ascii_case(b"identity") => Some(&mut self.identity),
            name => self.codings.get_mut(place(ContentCoding::from_token(name)?)?),
        }
    }

    /// The client's quality for a coding. If the request has no `accept-encoding`, it is 0: RFC 9110 would permit
    /// any coding, but such clients seldom support them.
    pub fn quality(&self, coding: ContentCoding) -> Quality {
        let named = place(coding).and_then(|place| *self.codings.get(place)?);
        named.or(self.others).unwrap_or(0)
    }

    /// The coding with the highest quality. If several codings have it, the first of them. `None` if the plain body
    /// is to be sent.
    pub fn choose<T: Copy>(&self, codings: &[(ContentCoding, T)]) -> Option<(ContentCoding, T)> {
        let mut best = None;
        // The plain body wins against a coding only if the quality of the plain body is higher. Even with quality 0,
        // the plain body may be sent if no coding is acceptable.
        let mut least = self.identity.unwrap_or(0).max(1);
        for &(coding, with) in codings {
            let quality = self.quality(coding);
            if quality >= least {
                best = Some((coding, with));
                least = quality + 1;
            }
        }
        best
    }

    /// The codings with at least the quality of the plain body, sorted by quality, the highest first. Codings
    /// with the same quality keep their order.
    pub fn order(&self, codings: &[ContentCoding]) -> Vec<ContentCoding> {
        let least = self.identity.unwrap_or(0).max(1);
        let mut liked: Vec<_> =
            codings.iter().copied().filter(|coding| self.quality(*coding) >= least).collect();
        liked.sort_by_key(|coding| core::cmp::Reverse(self.quality(*coding)));
        liked
    }
}

/// How much a client prefers something, in thousandths. 0 means that it is not acceptable.
pub type Quality = u16;

/// The quality of a coding without a stated quality.
pub const FULL: Quality = 1000;

/// Reads the quality in a parameter of an element, such as `q=0.5` (RFC 9110, section 12.4.2). A malformed
/// quality counts as 0, since the client meant less than full quality. `None` for other parameters.
pub fn quality(parameter: &[u8]) -> Option<Quality> {
    let (name, value) = parameter.split_at_checked(2)?;
    if !name.eq_ignore_ascii_case(b"q=") {
        return None;
    }
    let (whole, fraction) = match value {
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        [whole] => (whole, &b""[..]),
        _ => return Some(0),
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return Some(0);
    }
    let digit = |number: usize| fraction.get(number).map_or(0, |digit| Quality::from(digit - b'0'));
    match whole {
        b'0' => Some(digit(0) * 100 + digit(1) * 10 + digit(2)),
        b'1' if fraction.iter().all(|digit| *digit == b'0') => Some(FULL),
        _ => Some(0),
    }
}

fn place(coding: ContentCoding) -> Option<usize> {
    ContentCoding::ALL.iter().position(|one| *one == coding)
}

#[cfg(test)]
mod tests {
    use foregate_module::FieldsMut;
    use foregate_module::testing::List;

    use alloc::vec;

    use super::ContentCoding::{Brotli, Gzip, Zstd};
    use super::*;

    fn chosen(values: &[&str]) -> Option<ContentCoding> {
        let mut fields = List::default();
        for value in values {
            fields.append(b"Accept-Encoding", value.as_bytes());
        }
        let codings = [(Zstd, ()), (Brotli, ()), (Gzip, ())];
        AcceptEncoding::new(&fields).choose(&codings).map(|(coding, ())| coding)
    }

    #[test]
    fn the_most_liked_coding_is_chosen_and_among_equals_the_first() {
        assert_eq!(chosen(&["gzip, deflate, br, zstd"]), Some(Zstd));
        assert_eq!(chosen(&["gzip, deflate, br"]), Some(Brotli));
        assert_eq!(chosen(&["gzip;q=1.0, br;q=0.5"]), Some(Gzip));
        assert_eq!(chosen(&["gzip;q=0.999", "br; Q=0.998"]), Some(Gzip));
        assert_eq!(chosen(&["X-GZIP"]), Some(Gzip));
        assert_eq!(chosen(&["*"]), Some(Zstd));
        assert_eq!(chosen(&["zstd;q=0, *;q=0.1"]), Some(Brotli));
        assert_eq!(chosen(&["gzip;level=9;q=0.2"]), Some(Gzip));
        assert_eq!(chosen(&["*;q=0.1, gzip;q=0.2"]), Some(Gzip));
        // If a coding appears several times, the first counts, whatever stands in between.
        assert_eq!(chosen(&["br;q=0, x-gzip;q=0.5", "gzip;q=0, ,br"]), Some(Gzip));
        assert_eq!(chosen(&["*;q=0, *", ";q=1,zstd;q=0,br", "zstd"]), Some(Brotli));
        assert_eq!(chosen(&["identity;q=0.4, identity, gzip;q=0.5"]), Some(Gzip));
    }

    #[test]
    fn codings_come_in_the_order_of_the_client() {
        let order =
            |value: &str| AcceptEncoding::of([value.as_bytes()].into_iter()).order(&[Brotli, Zstd, Gzip]);
        assert_eq!(order("gzip, br, zstd"), [Brotli, Zstd, Gzip]);
        assert_eq!(order("gzip, br;q=0.5"), [Gzip, Brotli]);
        assert_eq!(order("gzip;q=0.4, identity;q=0.5, br"), [Brotli]);
        assert_eq!(order(""), vec![]);
    }

    #[test]
    fn the_plain_body_is_sent_where_nothing_else_is_liked_more() {
        for values in [
            &[][..],
            &[""],
            &["identity"],
            &["identity, gzip;q=0.5"],
            &["gzip;q=0"],
            &["gzip;q=0.000, *;q=0"],
            &["compress, sdch"],
            &["gzip;q=abc"],
            &["gzip;q=2"],
            &["gzip;q=1.001"],
            &["gzip;q=0.0001"],
            &["gzip;q="],
        ] {
            assert_eq!(chosen(values), None, "{values:?}");
        }
        assert_eq!(chosen(&["identity;q=0.5, gzip;q=0.5"]), Some(Gzip));
        assert_eq!(chosen(&["identity;q=0, gzip;q=0.001"]), Some(Gzip));
    }
}

//! The place of an object on the disk, in 64 bits.

/// Records begin at multiples of this many bytes.
pub(crate) const ALIGN: u64 = 64;
/// The most hits that are counted for an object. It survives as many rounds of the main log.
const MAX_HITS: u64 = 3;

const BIG: u64 = 1;
/// The flag of a list of selecting fields.
const LIST: u64 = 2;
const HITS: u64 = 0b11 << 6;

/// The place of an object, and how often it was hit. The bits are `slot 16 | offset 24 | length 16 | hits 2 | flags 6`
/// for a record in a segment, with offset and length in units of [`ALIGN`], and `number 56 | hits 2 | flags 6` for a
/// file of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

impl Place {
    /// The place of a record in a segment. `None` for an offset above 1 GiB or a record above 4 MiB.
    pub(crate) fn record(slot: u16, offset: u64, length: usize, list: bool) -> Option<Self> {
        let (offset, length) = (offset / ALIGN, (length as u64).div_ceil(ALIGN));
        let fits = offset < 1 << 24 && length < 1 << 16;
        let flags = if list { LIST } else { 0 };
        fits.then_some(Self(u64::from(slot) << 48 | offset << 24 | length << 8 | flags))
    }

    /// The place of an object in a file of its own.
    pub(crate) fn big(number: u64) -> Self {
        Self(number << 8 | BIG)
    }

    /// The number of the file, if the object has a file of its own.
    pub(crate) fn as_big(self) -> Option<u64> {
        (self.0 & BIG != 0).then_some(self.0 >> 8)
    }

    pub(crate) fn is_list(self) -> bool {
        self.0 & LIST != 0
    }

    /// The slot of the segment, if the object is in one.
    pub(crate) fn slot(self) -> Option<u16> {
        (self.0 & BIG == 0).then_some((self.0 >> 48) as u16)
    }

    /// The offset in bytes.
    pub(crate) fn offset(self) -> u64 {
        (self.0 >> 24 & 0xff_ffff) * ALIGN
    }

    /// The length in bytes, padding included.
    pub(crate) fn length(self) -> usize {
        ((self.0 >> 8 & 0xffff) * ALIGN) as usize
    }

    pub(crate) fn hits(self) -> u64 {
        (self.0 & HITS) >> 6
    }

    #[must_use]
    pub(crate) fn with_hits(self, hits: u64) -> Self {
        Self(self.0 & !HITS | hits.min(MAX_HITS) << 6)
    }

    /// Returns true if both places are the same, regardless of their hits.
    pub(crate) fn is(self, other: Self) -> bool {
        self.with_hits(0) == other.with_hits(0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at what they do not expect")]
    use super::*;

    #[test]
    fn a_place_keeps_all_its_parts() {
        let place = Place::record(65_535, (1 << 30) - 64, (4 << 20) - 64, false).unwrap();
        assert_eq!(
            (place.slot(), place.offset(), place.length()),
            (Some(65_535), (1 << 30) - 64, (4 << 20) - 64)
        );
        assert!(place.with_hits(2).is(place));
        assert_eq!(place.with_hits(9).hits(), 3);
        assert_eq!((place.as_big(), place.is_list()), (None, false));
        assert!(Place::record(0, 64, 65, true).unwrap().is_list());
        assert_eq!(Place::record(0, 64, 65, true).unwrap().length(), 128);
        assert_eq!(Place::record(0, 1 << 30, 1, false), None);
        assert_eq!(Place::record(0, 0, 4 << 20, false), None);
        let big = Place::big(77).with_hits(3);
        assert_eq!((big.as_big(), big.slot(), big.hits()), (Some(77), None, 3));
    }
}

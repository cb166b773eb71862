//! Checksums that are seeded with the place of their bytes: intact bytes at a wrong place are refused.

use twox_hash::XxHash3_64;

/// The bytes of content that share a checksum.
pub(crate) const BLOCK: usize = 32 * 1024;

/// The seed of a segment, a big file or another file of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seed(u64);

impl Seed {
    pub(crate) fn new(store: &[u8; 16], kind: u8, number: u64) -> Self {
        let mut text = [kind; 25];
        let (id, rest) = text.split_at_mut(16);
        id.copy_from_slice(store);
        if let Some(place) = rest.first_chunk_mut() {
            *place = number.to_le_bytes();
        }
        Self(XxHash3_64::oneshot(&text))
    }

    /// The sum of the bytes at an offset. `part` distinguishes several sums at one offset.
    pub(crate) fn sum(self, offset: u64, part: u64, bytes: &[u8]) -> u64 {
        let seed = self.0.wrapping_add(offset.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(part);
        XxHash3_64::oneshot_with_seed(seed, bytes)
    }
}

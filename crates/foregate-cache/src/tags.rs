//! Tags of responses, by which they are purged.

use foregate_wire::{HeaderList, NameId};

use crate::secret::Secret;
use crate::text::trim;

/// The most tags of one response. A response with more is not stored, since a purge by a tag that was not kept
/// would miss it.
const MAX_TAGS: usize = 1000;

const CACHE_TAG: &[u8] = b"cache-tag";

/// The secret of the hash of tags. It is the same in all stores and processes, so that a purge means the same
/// in each. It need not be hidden: tags come from origins, and two tags with the same hash are only purged
/// together.
const KNOWN: Secret = Secret::new(*b"tags of Foregate");

/// A tag, hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub(crate) u64);

impl Tag {
    /// The tag with this text. Upper and lower case differ.
    pub fn new(text: &[u8]) -> Self {
        Self(KNOWN.hash64(text))
    }

    /// The hash, which is the same in all processes.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The tag with this hash, from [`to_bits`](Self::to_bits).
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// The tags of a response, sorted: `Cache-Tag` separates them by commas, `Surrogate-Key` by blanks. `None` if there are more than
/// [`MAX_TAGS`].
pub(crate) fn read(headers: &HeaderList) -> Option<Vec<Tag>> {
    let by_comma = headers.get_all_name(CACHE_TAG).flat_map(|line| line.split(|&byte| byte == b','));
    let by_blank =
        headers.get_all(NameId::SurrogateKey).flat_map(|line| line.split(|byte| b" \t".contains(byte)));
    let all = by_comma.chain(by_blank).map(trim).filter(|tag| !tag.is_empty());
    let mut tags: Vec<_> = all.take(MAX_TAGS + 1).map(Tag::new).collect();
    if tags.len() > MAX_TAGS {
        return None;
    }
    tags.sort_unstable();
    tags.dedup();
    Some(tags)
}

/// Removes the fields that hold tags: they are meant for the cache, not for clients.
pub fn remove(headers: &mut HeaderList) {
    headers.remove(NameId::SurrogateKey);
    headers.remove_name(CACHE_TAG);
}

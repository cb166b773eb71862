//! Records in the bucket: their names, and their bytes, which are verified before use.
//!
//! A record is `magic 4 | digest 32 | kind 1 | stamp 8 | written 8 | head length 4 | head | body`; the numbers are
//! bytes. The digest (SHA-256) also covers the name of the object, so that an intact record under a wrong name is
//! refused.

use aws_lc_rs::digest::{Context, SHA256};
use bytes::{BufMut, Bytes, BytesMut};

const MAGIC: &[u8; 4] = b"FGR1";
const DIGEST: usize = 32;
/// The number of bytes before the head.
const FRONT: usize = 4 + DIGEST + 1 + 8 + 8 + 4;
/// The most lists of selecting fields of one address. A list has the names in a `Vary`.
const MAX_LISTS: usize = 4;

/// The contents of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReserveRecord {
    /// A response, or the selecting fields of an address.
    pub kind: EnvelopeKind,
    /// The record is subject to purges from this moment on, in milliseconds since 1970.
    pub stamp: u64,
    /// The time of writing, in milliseconds since 1970.
    pub written: u64,
    /// The head of the response, or the lists.
    pub head: Bytes,
    /// The body of the response.
    pub body: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EnvelopeKind {
    Response = 1,
    Lists = 2,
}

/// The name of the record for an address.
pub(super) fn name(prefix: &str, text: &[u8]) -> String {
    hex(&format!("{prefix}objects/"), digest(&[b"address", text]))
}

/// The name of the record for a variant.
pub(super) fn variant_name(prefix: &str, text: &[u8], selecting: &[u8]) -> String {
    hex(&format!("{prefix}objects/"), digest(&[b"variant", text, selecting]))
}

fn hex(front: &str, digest: [u8; DIGEST]) -> String {
    digest.iter().fold(front.to_owned(), |mut name, byte| {
        name.push_str(&format!("{byte:02x}"));
        name
    })
}

/// The digest of several parts, with the length of each part before the part.
fn digest(parts: &[&[u8]]) -> [u8; DIGEST] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    let mut digest = [0; DIGEST];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

impl ReserveRecord {
    /// The record as bytes, for this name.
    pub fn encode<'a>(&self, name: &str, body: impl Iterator<Item = &'a Bytes>) -> Bytes {
        let mut out = BytesMut::with_capacity(FRONT + self.head.len());
        out.put_slice(MAGIC);
        out.put_slice(&[0; DIGEST]);
        out.put_u8(self.kind as u8);
        out.put_u64_le(self.stamp);
        out.put_u64_le(self.written);
        // A head is far shorter than 4 GiB.
        out.put_u32_le(self.head.len() as u32);
        out.put_slice(&self.head);
        for piece in body {
            out.put_slice(piece);
        }
        let (front, rest) = out.split_at_mut(4 + DIGEST);
        if let Some(place) = front.get_mut(4..) {
            place.copy_from_slice(&digest(&[name.as_bytes(), rest]));
        }
        out.freeze()
    }

    /// Verifies and parses bytes that were stored under a name. `None` if they are damaged.
    pub fn decode(name: &str, mut bytes: Bytes) -> Option<Self> {
        let rest = bytes.get(4 + DIGEST..)?;
        let is_whole =
            bytes.starts_with(MAGIC) && bytes.get(4..4 + DIGEST)? == digest(&[name.as_bytes(), rest]);
        let front = bytes.get(..FRONT).filter(|_| is_whole)?;
        let fields = front.get(4 + DIGEST..)?;
        let (kind, numbers) = fields.split_first()?;
        let kind = match kind {
            1 => EnvelopeKind::Response,
            2 => EnvelopeKind::Lists,
            _ => return None,
        };
        let (stamp, numbers) = numbers.split_first_chunk()?;
        let (written, numbers) = numbers.split_first_chunk()?;
        let length = u32::from_le_bytes(*numbers.first_chunk()?) as usize;
        let (stamp, written) = (u64::from_le_bytes(*stamp), u64::from_le_bytes(*written));
        let mut rest = bytes.split_off(FRONT);
        if rest.len() < length {
            return None;
        }
        let body = rest.split_off(length);
        Some(Self { kind, stamp, written, head: rest, body })
    }

    /// The lists of selecting fields, the latest first.
    pub fn lists(&self) -> Vec<&[u8]> {
        let mut lists = Vec::new();
        let mut rest = &*self.head;
        while let Some((length, behind)) = rest.split_first_chunk() {
            let Some((list, behind)) = behind.split_at_checked(u32::from_le_bytes(*length) as usize) else {
                break;
            };
            lists.push(list);
            rest = behind;
        }
        lists
    }

    /// The lists with `names` as the first list; `None` if it already is the first.
    pub fn with_list(before: Option<&Self>, names: &[u8], now: u64) -> Option<Self> {
        let known =
            before.filter(|record| record.kind == EnvelopeKind::Lists).map_or_else(Vec::new, Self::lists);
        if known.first() == Some(&names) {
            return None;
        }
        let others = known.into_iter().filter(|list| *list != names).take(MAX_LISTS - 1);
        let mut head = Vec::new();
        for list in [names].into_iter().chain(others) {
            head.extend_from_slice(&(list.len() as u32).to_le_bytes());
            head.extend_from_slice(list);
        }
        Some(Self {
            kind: EnvelopeKind::Lists,
            stamp: now,
            written: now,
            head: head.into(),
            body: Bytes::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at what they do not expect")]

    use super::*;

    fn record() -> ReserveRecord {
        let (head, body) = (Bytes::from_static(b"head"), Bytes::from_static(b"the body"));
        ReserveRecord { kind: EnvelopeKind::Response, stamp: 5, written: 7, head, body }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let record = record();
        let bytes = record.encode("a", [&record.body].into_iter());
        assert_eq!(ReserveRecord::decode("a", bytes.clone()), Some(record));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ReserveRecord::decode("a", flipped.into()), None, "{bit}");
        }
        for end in 0..bytes.len() {
            assert_eq!(ReserveRecord::decode("a", bytes.slice(..end)), None, "{end}");
        }
    }

    #[test]
    fn a_record_is_refused_under_another_name() {
        let record = record();
        assert_eq!(ReserveRecord::decode("b", record.encode("a", [&record.body].into_iter())), None);
    }

    #[test]
    fn lists_are_kept_in_the_order_of_their_use() {
        let lists = |record: &ReserveRecord| {
            record
                .lists()
                .into_iter()
                .map(|list| String::from_utf8(list.to_vec()).unwrap())
                .collect::<Vec<_>>()
        };
        let mut record = ReserveRecord::with_list(None, b"a", 1).unwrap();
        assert!(ReserveRecord::with_list(Some(&record), b"a", 2).is_none());
        for name in ["b", "c", "d", "e"] {
            record = ReserveRecord::with_list(Some(&record), name.as_bytes(), 2).unwrap();
        }
        assert_eq!(lists(&record), ["e", "d", "c", "b"]);
        assert_eq!(lists(&ReserveRecord::with_list(Some(&record), b"c", 3).unwrap()), ["c", "e", "d", "b"]);
        assert_eq!(lists(&ReserveRecord::with_list(Some(&self::record()), b"c", 3).unwrap()), ["c"]);
    }
}

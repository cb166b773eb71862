//! Checks everything that is stored, a part at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::big::Damage;
use crate::index::Fingerprint;
use crate::inner::{Inner, PlaceEntry};
use crate::place::Place;
use crate::tier::Disk;

/// The position from which a check continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyCursor {
    /// The number of the directory.
    pub directory: usize,
    /// The number of the part of the directory's index.
    pub part: usize,
    /// Everything in this part up to this fingerprint has been checked.
    pub after: Option<u64>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Responses and lists of selecting fields that passed the check.
    pub whole: u64,
    /// Bytes of these responses and lists.
    pub bytes: u64,
    /// Damaged responses and lists. They have been removed.
    pub damaged: u64,
    /// Responses and lists that could not be read, since the disk is too slow or off.
    pub unread: u64,
    /// The position from which to continue. `None` at the end.
    pub next: Option<VerifyCursor>,
}

/// The result for one entry.
enum Checked {
    Whole(u64),
    /// The entry was replaced or removed in the meantime.
    Gone,
    Damaged,
    Unread,
}

impl Disk {
    /// Checks checksums, keys and heads, from a position on and for about `most`. Damaged objects are removed, as
    /// by a lookup.
    pub async fn verify(&self, from: VerifyCursor, most: Duration) -> Verified {
        let (begin, mut at, mut sum) = (Instant::now(), from, Verified::default());
        while let Some(inner) = self.inner(at.directory) {
            let Some(mut entries) = inner.index.part(at.part) else {
                at = VerifyCursor { directory: at.directory + 1, ..VerifyCursor::default() };
                continue;
            };
            entries.retain(|(fingerprint, _)| at.after.is_none_or(|after| fingerprint.number() > after));
            entries.sort_unstable_by_key(|(fingerprint, _)| fingerprint.number());
            for (fingerprint, place) in entries {
                if begin.elapsed() >= most {
                    sum.next = Some(at);
                    return sum;
                }
                match check(inner, fingerprint, place).await {
                    Checked::Whole(bytes) => (sum.whole, sum.bytes) = (sum.whole + 1, sum.bytes + bytes),
                    Checked::Gone => {}
                    Checked::Damaged => sum.damaged += 1,
                    Checked::Unread => sum.unread += 1,
                }
                at.after = Some(fingerprint.number());
            }
            at = VerifyCursor { part: at.part + 1, after: None, ..at };
        }
        sum
    }
}

async fn check(inner: &Arc<Inner>, fingerprint: Fingerprint, place: Place) -> Checked {
    let is_there = || inner.index.get(fingerprint).is_some_and(|now| now.is(place));
    let body = match inner.entry_at(fingerprint, place).await {
        Err(_) => return Checked::Unread,
        Ok(None) if is_there() => {
            // The record has another key, so no request can use it.
            inner.corrupt(fingerprint, place);
            return Checked::Damaged;
        }
        // The object was removed, either because it is damaged, or to make room.
        Ok(None) => {
            return if inner.index.get(fingerprint).is_none() { Checked::Damaged } else { Checked::Gone };
        }
        Ok(Some(PlaceEntry::List(_))) => return Checked::Whole(place.length() as u64),
        Ok(Some(PlaceEntry::Object(object))) => return Checked::Whole(object.body.len()),
        Ok(Some(PlaceEntry::File(_, body))) => body,
    };
    let mut offset = 0;
    while offset < body.len() {
        match body.read(offset).await {
            Ok(bytes) if bytes.is_empty() => return Checked::Damaged,
            Ok(bytes) => offset += bytes.len() as u64,
            Err(Damage::Corrupt) => return Checked::Damaged,
            Err(Damage::Busy | Damage::Error) => return Checked::Unread,
        }
    }
    Checked::Whole(offset)
}

//! Stored responses as bytes for a store that several processes read. Each of them may have its own secret, its
//! own numbers of purges, and its own clock.
//!
//! The format has no checksum and no version: both belong to the store that keeps the bytes.

use foregate_wire::HeaderList;

use crate::body::Body;
use crate::key::Key;
use crate::moment::CacheTime;
use crate::object::Object;
use crate::purge::Sequence;
use crate::record::{Reader, optional, part, tags_and_fields};
use crate::secret::Secret;
use crate::stored::{Life, StoredHead};
use crate::vary::{Vary, VaryNames};

/// The state of the process that reads a response again.
#[derive(Clone, Copy, Debug)]
pub struct Restore<'a> {
    /// The secret of the process that reads.
    pub secret: &'a Secret,
    /// The fields of the request that selects the response.
    pub request: &'a HeaderList,
    /// The response has been compared with all purges up to this number.
    pub sequence: Sequence,
    /// The time of reading.
    pub now: CacheTime,
    /// Milliseconds since the response was written.
    pub elapsed: u64,
    /// `true` if a soft purge has made it stale.
    pub outdated: bool,
}

impl Object {
    /// Appends the response without its body to `out`.
    pub fn write_portable(&self, now: CacheTime, out: &mut Vec<u8>) {
        let (head, life) = (&self.head, &self.head.life);
        part(out, self.text());
        out.extend_from_slice(&head.status.to_le_bytes());
        for time in [life.age_ms(now), life.lifetime, life.stale_while_revalidate, life.stale_if_error] {
            out.extend_from_slice(&time.to_le_bytes());
        }
        for flag in [life.always_validate, life.never_stale, head.vary.is_some()] {
            out.push(u8::from(flag));
        }
        optional(out, head.last_modified);
        out.extend_from_slice(&head.date.to_le_bytes());
        part(out, head.vary.as_ref().map_or(&[], |vary| vary.names.as_bytes()));
        tags_and_fields(out, head);
    }

    /// Reads what [`write_portable`](Self::write_portable) wrote. `None` for bytes that it cannot have written, and for a response that
    /// must not be shared.
    pub fn read_portable(head: &[u8], body: Body, restore: &Restore<'_>) -> Option<Self> {
        let mut from = Reader(head);
        let text = from.part()?;
        let status = from.u16()?;
        let life = Life {
            received: restore.now,
            initial_age: from.u64()?.saturating_add(restore.elapsed),
            lifetime: from.u64()?,
            stale_while_revalidate: from.u64()?,
            stale_if_error: from.u64()?,
            always_validate: from.flag()?,
            never_stale: from.flag()?,
            demanded: false,
        };
        let varies = from.flag()?;
        let last_modified = from.optional()?;
        let date = from.u64()?;
        let names = from.part()?;
        let vary = varies.then(|| {
            let names = VaryNames::from_bytes(names);
            let variant = names.variant(restore.request, restore.secret);
            Vary { names, variant }
        });
        let tags = from.tags()?;
        let headers = from.headers()?;
        let key = Key(restore.secret.hash128(text));
        let head = StoredHead { status, headers, life, vary, tags, last_modified, date };
        from.0.is_empty().then(|| Self::restored(head, body, key, text, restore.sequence, restore.outdated))
    }
}

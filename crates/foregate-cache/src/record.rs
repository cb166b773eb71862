//! Stored responses and purges as bytes, for tiers that outlive the process.
//!
//! The formats have no checksum and no version: both belong to the store that keeps the bytes.

use std::sync::atomic::AtomicU64;

use foregate_wire::HeaderList;

use crate::body::Body;
use crate::key::Key;
use crate::moment::CacheTime;
use crate::object::Object;
use crate::purge::Sequence;
use crate::secret::Secret;
use crate::stored::{Life, StoredHead};
use crate::tags::Tag;
use crate::vary::{Variant, Vary, VaryNames};

/// The version of the format of heads. Each change of the format raises this version, and also the version of
/// the disk tier.
pub const RECORD_FORMAT: u32 = 1;
/// The most fields of a head: more than any parser lets through.
const MAX_FIELDS: u32 = 4096;

impl Object {
    /// Appends the response without its body to `out`.
    pub fn write_head(&self, out: &mut Vec<u8>) {
        let head = &self.head;
        out.extend_from_slice(&self.sequence.0.to_le_bytes());
        out.extend_from_slice(&self.key().0.to_le_bytes());
        out.push(u8::from(self.is_outdated()));
        part(out, self.text());
        out.extend_from_slice(&head.status.to_le_bytes());
        head.life.write(out);
        optional(out, head.last_modified);
        out.extend_from_slice(&head.date.to_le_bytes());
        out.push(u8::from(head.vary.is_some()));
        if let Some(vary) = &head.vary {
            part(out, vary.names.as_bytes());
            out.extend_from_slice(&vary.variant.0.to_le_bytes());
        }
        tags_and_fields(out, head);
    }

    /// Reads what [`write_head`](Self::write_head) wrote. `None` for bytes that it cannot have written.
    pub fn read(head: &[u8], body: Body) -> Option<Self> {
        let mut from = Reader(head);
        let sequence = Sequence(from.u64()?);
        let key = Key(from.u128()?);
        let outdated = from.flag()?;
        let text = from.part()?;
        let status = from.u16()?;
        let life = Life::read(&mut from)?;
        let last_modified = from.optional()?;
        let date = from.u64()?;
        let vary = if from.flag()? {
            let names = VaryNames::from_bytes(from.part()?);
            Some(Vary { names, variant: Variant(from.u128()?) })
        } else {
            None
        };
        let tags = from.tags()?;
        let headers = from.headers()?;
        let head = StoredHead { status, headers, life, vary, tags, last_modified, date };
        from.0.is_empty().then(|| Self::restored(head, body, key, text, sequence, outdated))
    }

    /// Gives a response of another process the number of a purge of this process. The caller must have compared the
    /// response with all purges of this process up to that number.
    #[must_use]
    pub fn current_from(mut self, sequence: Sequence) -> Self {
        self.sequence = sequence;
        self.checked = AtomicU64::new(sequence.0);
        self
    }

    /// Returns true if the key was made with this secret.
    pub fn is_of(&self, secret: &Secret) -> bool {
        self.key() == Key(secret.hash128(self.text()))
    }

    /// Replaces the body of this response.
    #[must_use]
    pub fn into_body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// A copy of this response with another body.
    #[must_use]
    pub fn with_body(&self, body: Body) -> Self {
        let (key, outdated) = (self.key(), self.is_outdated());
        Self::restored(self.head.clone(), body, key, self.text(), self.sequence, outdated)
    }
}

impl Life {
    fn write(&self, out: &mut Vec<u8>) {
        let times = [
            self.received.0,
            self.initial_age,
            self.lifetime,
            self.stale_while_revalidate,
            self.stale_if_error,
        ];
        for time in times {
            out.extend_from_slice(&time.to_le_bytes());
        }
        for flag in [self.always_validate, self.demanded, self.never_stale] {
            out.push(u8::from(flag));
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            received: CacheTime(from.u64()?),
            initial_age: from.u64()?,
            lifetime: from.u64()?,
            stale_while_revalidate: from.u64()?,
            stale_if_error: from.u64()?,
            always_validate: from.flag()?,
            demanded: from.flag()?,
            never_stale: from.flag()?,
        })
    }
}

/// Appends the tags and the fields.
pub(crate) fn tags_and_fields(out: &mut Vec<u8>, head: &StoredHead) {
    number(out, head.tags.len());
    for tag in &head.tags {
        out.extend_from_slice(&tag.0.to_le_bytes());
    }
    number(out, head.headers.len());
    for field in &head.headers {
        part(out, field.name);
        part(out, field.value);
    }
}

pub(crate) fn number(out: &mut Vec<u8>, number: usize) {
    // Heads and keys are far shorter than 4 GiB.
    out.extend_from_slice(&(number as u32).to_le_bytes());
}

pub(crate) fn part(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len());
    out.extend_from_slice(bytes);
}

pub(crate) fn optional(out: &mut Vec<u8>, value: Option<u64>) {
    out.push(u8::from(value.is_some()));
    out.extend_from_slice(&value.unwrap_or(0).to_le_bytes());
}

/// Reads values off the front of bytes.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.array()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    pub(crate) fn part(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    pub(crate) fn tags(&mut self) -> Option<Box<[Tag]>> {
        let tags = self.u32()? as usize;
        let tags = self.take(tags.checked_mul(size_of::<u64>())?)?;
        Some(tags.as_chunks().0.iter().map(|bytes| Tag(u64::from_le_bytes(*bytes))).collect())
    }

    pub(crate) fn optional(&mut self) -> Option<Option<u64>> {
        let (has, value) = (self.flag()?, self.u64()?);
        Some(has.then_some(value))
    }

    pub(crate) fn headers(&mut self) -> Option<HeaderList> {
        let fields = self.u32()?;
        if fields > MAX_FIELDS {
            return None;
        }
        let mut headers = HeaderList::new();
        headers.reserve(self.0.len(), fields as usize);
        for _ in 0..fields {
            let (name, value) = (self.part()?, self.part()?);
            headers.try_push(name, value).ok()?;
        }
        Some(headers)
    }
}

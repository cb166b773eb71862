//! The head of a response for the client.

use std::ops::{Deref, DerefMut};

use foregate_module::{Fields, FieldsMut};
use foregate_wire::{BodyLength, HeaderList, NameId, ResponseHead};

use crate::limits::pressure::Charge;

/// Fields with digests of a body (RFC 9530; RFC 1864).
const DIGESTS: [&[u8]; 4] = [b"content-digest", b"repr-digest", b"digest", b"content-md5"];

/// The head of a response. Its memory is used again for the next response of a connection.
#[derive(Debug, Default)]
pub struct Response {
    head: ResponseHead,
    charge: Charge,
}

impl Response {
    /// A head of which nothing is known yet.
    pub fn new() -> Self {
        Self { head: ResponseHead::new(), charge: Charge::new() }
    }

    /// Counts the memory of the head, which is held until the client has read the response.
    #[inline]
    pub fn count(&mut self) {
        self.charge.set(self.head.memory());
    }

    /// Clears the response for reuse by another connection. It keeps the memory of an ordinary response,
    /// which counts for no client in the meantime.
    pub fn put_away(&mut self) {
        const KEPT: usize = 4096;
        self.head.clear();
        self.head.shrink_to(KEPT, 64);
        self.charge.set(0);
    }

    /// Adapts the head to a body that differs from the origin's: length, validators and ranges do not
    /// apply any more (RFC 9110, sections 8.6, 8.8.1 and 14.3; RFC 9530). Returns the new framing of the
    /// body.
    pub fn body_changes(&mut self, length: BodyLength) -> BodyLength {
        let headers = &mut self.head.headers;
        headers.remove(NameId::ContentLength);
        headers.remove(NameId::AcceptRanges);
        clean_rewritten(headers);
        if length.is_empty() { length } else { BodyLength::Chunked }
    }
}

/// Corrects the fields of a head or of trailers for a changed body: removes digests, and makes
/// validators weak (RFC 9110, section 8.8.1).
pub fn clean_rewritten(fields: &mut HeaderList) {
    for digest in DIGESTS {
        fields.remove_name(digest);
    }
    if let Some(tag) = fields.get_name(b"etag").filter(|tag| !tag.starts_with(b"W/")) {
        let weak = [b"W/", tag].concat();
        fields.set_name(b"ETag", &weak);
    }
}

impl Deref for Response {
    type Target = ResponseHead;

    fn deref(&self) -> &ResponseHead {
        &self.head
    }
}

impl DerefMut for Response {
    fn deref_mut(&mut self) -> &mut ResponseHead {
        &mut self.head
    }
}

impl From<ResponseHead> for Response {
    fn from(head: ResponseHead) -> Self {
        Self { head, charge: Charge::new() }
    }
}

impl Fields for Response {
    fn count(&self) -> usize {
        self.head.headers.len()
    }

    fn field(&self, number: usize) -> Option<(&[u8], &[u8])> {
        self.head.headers.at(number).map(|field| (field.name, field.value))
    }

    fn find(&self, name: &[u8], from: usize) -> Option<(usize, &[u8])> {
        self.head.headers.find_name(name, from)
    }

    fn find_again(&self, number: usize) -> Option<(usize, &[u8])> {
        self.head.headers.find_again(number)
    }
}

impl FieldsMut for Response {
    fn append(&mut self, name: &[u8], value: &[u8]) {
        self.head.headers.push(name, value);
    }

    fn set(&mut self, name: &[u8], value: &[u8]) {
        self.head.headers.set_name(name, value);
    }

    fn remove(&mut self, name: &[u8]) {
        self.head.headers.remove_name(name);
    }

    fn retain(&mut self, keep: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        self.head.headers.retain(|field| keep(field.name, field.value));
    }
}

/// No fields: a placeholder where there is no head. It stays empty, whatever is set.
#[derive(Debug, Default)]
pub(crate) struct Nothing;

impl Fields for Nothing {
    fn count(&self) -> usize {
        0
    }

    fn field(&self, _: usize) -> Option<(&[u8], &[u8])> {
        None
    }
}

impl FieldsMut for Nothing {
    fn append(&mut self, _: &[u8], _: &[u8]) {}

    fn set(&mut self, _: &[u8], _: &[u8]) {}

    fn remove(&mut self, _: &[u8]) {}

    fn retain(&mut self, _: &mut dyn FnMut(&[u8], &[u8]) -> bool) {}
}

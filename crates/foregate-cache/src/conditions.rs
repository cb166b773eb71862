//! Conditions of requests, evaluated against a response at hand (RFC 9110, section 13).

use foregate_wire::date::parse_date;
use foregate_wire::{HeaderList, NameId};

use crate::text::members;

/// The validators of a stored response or a file.
#[derive(Clone, Copy, Debug)]
pub struct Representation<'a> {
    /// The value of ETag.
    pub etag: Option<&'a [u8]>,
    /// Last-Modified in seconds since 1970.
    pub last_modified: Option<u64>,
    /// Date in seconds since 1970. It replaces a missing Last-Modified (RFC 9111, section 4.3.2).
    pub date: u64,
}

impl<'a> Representation<'a> {
    /// Reads the validators of a response that arrived at this second. A response that is not stored needs them,
    /// too: [`ask_for_whole`](crate::ask_for_whole) has removed the client's conditions from the request to the
    /// origin, so they have to be evaluated here.
    pub fn read(headers: &'a HeaderList, received: u64) -> Self {
        let date = |id| headers.get(id).and_then(|text| parse_date(text, received));
        Self {
            etag: headers.get(NameId::Etag),
            last_modified: date(NameId::LastModified),
            date: date(NameId::Date).unwrap_or(received),
        }
    }
}

/// The outcome of the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditions {
    /// The response is sent as for a request without conditions.
    Met,
    /// The answer is 304.
    NotModified,
    /// The answer is 412.
    Failed,
}

/// Evaluates the conditions of a GET or HEAD in the order of RFC 9110, section 13.2.2. A condition with a date
/// that cannot be parsed is ignored.
pub fn evaluate(request: &HeaderList, of: &Representation<'_>, now: u64) -> Conditions {
    let date = |id| {
        let mut lines = request.get_all(id);
        let date = lines.next().and_then(|line| parse_date(line, now));
        date.filter(|_| lines.next().is_none())
    };
    if request.contains(NameId::IfMatch) {
        if !lists(request, NameId::IfMatch, of.etag, strong) {
            return Conditions::Failed;
        }
    } else if let (Some(since), Some(modified)) = (date(NameId::IfUnmodifiedSince), of.last_modified)
        && modified > since
    {
        return Conditions::Failed;
    }
    let unchanged = if request.contains(NameId::IfNoneMatch) {
        lists(request, NameId::IfNoneMatch, of.etag, weak)
    } else {
        date(NameId::IfModifiedSince).is_some_and(|since| of.last_modified.unwrap_or(of.date) <= since)
    };
    if unchanged { Conditions::NotModified } else { Conditions::Met }
}

/// Returns whether a condition is `*`, or lists this entity tag.
fn lists(request: &HeaderList, id: NameId, etag: Option<&[u8]>, same: impl Fn(&[u8], &[u8]) -> bool) -> bool {
    let mut listed = request.get_all(id).flat_map(members);
    listed.any(|listed| listed == b"*" || etag.is_some_and(|etag| same(listed, etag)))
}

/// The strong comparison of two entity tags (RFC 9110, section 8.8.3.2).
pub(crate) fn strong(one: &[u8], other: &[u8]) -> bool {
    one == other && !one.starts_with(b"W/")
}

/// The weak comparison of two entity tags.
pub(crate) fn weak(one: &[u8], other: &[u8]) -> bool {
    let opaque = |etag| -> &[u8] { <[u8]>::strip_prefix(etag, b"W/").unwrap_or(etag) };
    opaque(one) == opaque(other)
}

/// Returns whether a part may be sent (RFC 9110, section 13.1.5): If-Range is missing, or its validator matches
/// this representation.
pub(crate) fn permits_range(request: &HeaderList, of: &Representation<'_>, now: u64) -> bool {
    let mut lines = request.get_all(NameId::IfRange);
    let Some(condition) = lines.next() else { return true };
    if lines.next().is_some() {
        return false;
    }
    if condition.contains(&b'"') {
        return of.etag.is_some_and(|etag| strong(condition, etag));
    }
    // Last-Modified is a strong validator if the response was made after the second of the last change (RFC 9110,
    // section 8.8.2.2).
    let strong_date = |modified: &u64| of.date > *modified;
    let modified = of.last_modified.filter(strong_date);
    modified.is_some() && parse_date(condition, now) == modified
}

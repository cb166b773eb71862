//! Validation of stored responses, and their update (RFC 9111, sections 3.2, 4.3.4 and 4.3.5).

use foregate_wire::date::parse_date;
use foregate_wire::{HeaderList, NameId, connection};

use crate::conditions::{strong, weak};
use crate::directives::ResponseControl;
use crate::policy::{Policy, SetCookie};
use crate::request::{Demands, ask_for_whole};
use crate::secret::Secret;
use crate::store::{
    AnsweredRequest, Dates, NotStored, Response, compact, initial_age, keep_stored_fields, store,
};
use crate::stored::{Life, StoredHead};

/// Turns a request into a validation of a stored response: the validators of the stored response replace the
/// client's conditions (RFC 9111, section 4.3.1).
pub fn ask_to_validate(headers: &mut HeaderList, stored: &StoredHead) {
    ask_for_whole(headers);
    if let Some(etag) = stored.headers.get(NameId::Etag) {
        headers.push_id(NameId::IfNoneMatch, etag);
    }
    if stored.last_modified.is_some()
        && let Some(date) = stored.headers.get(NameId::LastModified)
    {
        headers.push_id(NameId::IfModifiedSince, date);
    }
}

/// A stored response that the origin has confirmed.
#[derive(Clone, Debug)]
pub struct RefreshedResponse {
    /// The response with the new fields and a new age. It answers the requests that have waited for the validation.
    pub stored: StoredHead,
    /// `Ok` if the response may replace the stored one. Otherwise the stored response is removed.
    pub storable: Result<(), NotStored>,
}

/// Updates a stored response by a 304 to its validation. `None` if the 304 is about another representation: the
/// caller then removes the stored response and repeats the request without validators.
pub fn refresh(
    asked: &AnsweredRequest<'_>,
    stored: &StoredHead,
    response: &Response<'_>,
    policy: &Policy,
    secret: &Secret,
) -> Option<RefreshedResponse> {
    is_same(stored, response).then(|| update(asked, stored, response, policy, secret))
}

/// Updates a stored response, with a body of this length, by a 200 to a HEAD. `None` if the resource has
/// changed: the stored response is stale from now on.
pub fn refresh_by_head(
    asked: &AnsweredRequest<'_>,
    stored: &StoredHead,
    length: u64,
    response: &Response<'_>,
    policy: &Policy,
    secret: &Secret,
) -> Option<RefreshedResponse> {
    let lengths = response.headers.get(NameId::ContentLength);
    let same_length = lengths.is_none_or(|text| text == length.to_string().as_bytes());
    // Without a length or a validator there is nothing to compare, and any response would count as the same.
    let is_described = lengths.is_some() || stored.can_validate();
    let same = response.status == 200 && stored.status == 200 && same_length && is_same(stored, response);
    (same && is_described).then(|| update(asked, stored, response, policy, secret))
}

/// Returns whether the validators of the response are those of the stored one, as far as both have them (RFC 9111, section 4.3.4).
fn is_same(stored: &StoredHead, response: &Response<'_>) -> bool {
    if let (Some(new), Some(old)) = (response.headers.get(NameId::Etag), stored.headers.get(NameId::Etag)) {
        let one_is_weak = new.starts_with(b"W/") || old.starts_with(b"W/");
        return if one_is_weak { weak(new, old) } else { strong(new, old) };
    }
    let modified = response.headers.get(NameId::LastModified);
    let modified = modified.and_then(|date| parse_date(date, response.received.wall));
    modified.is_none() || stored.last_modified.is_none() || modified == stored.last_modified
}

fn update(
    asked: &AnsweredRequest<'_>,
    stored: &StoredHead,
    response: &Response<'_>,
    policy: &Policy,
    secret: &Secret,
) -> RefreshedResponse {
    let merged = merge(&stored.headers, response.headers);
    let response = Response { status: stored.status, headers: &merged, ..*response };
    let demands = Demands { head: false, ..*asked.demands };
    let asked = AnsweredRequest { demands: &demands, ..*asked };
    match store(&asked, &response, policy, secret) {
        // Keep the old tags if the 304 has none: the stored fields have no tags, unless the settings keep them there.
        Ok(mut new) => {
            if new.tags.is_empty() {
                new.tags.clone_from(&stored.tags);
            }
            RefreshedResponse { stored: new, storable: Ok(()) }
        }
        Err(reason) => {
            let control = ResponseControl::read(&merged, &policy.targeted);
            let (mut headers, dates) = (merged.clone(), Dates::read(&merged, response.received.wall));
            let policy = Policy { set_cookie: SetCookie::Store, ..policy.clone() };
            keep_stored_fields(&mut headers, &control, &policy);
            let initial_age = initial_age(&response, &dates);
            let life = Life {
                received: response.received.cache,
                initial_age,
                always_validate: true,
                ..Life::default()
            };
            let headers = compact(&headers);
            let Dates { date, last_modified } = dates;
            let stored = StoredHead { headers, life, date, last_modified, ..stored.clone() };
            RefreshedResponse { stored, storable: Err(reason) }
        }
    }
}

/// The fields that a response to a validation does not change: those that say how to read the stored body, and
/// its entity tag.
const KEPT: [NameId; 5] = [
    NameId::ContentLength,
    NameId::ContentEncoding,
    NameId::ContentRange,
    NameId::TransferEncoding,
    NameId::Etag,
];

/// The stored fields, in which new fields replace stored fields of the same name (RFC 9111, section 3.2).
fn merge(stored: &HeaderList, new: &HeaderList) -> HeaderList {
    let mut new = new.clone();
    connection::strip_hop_by_hop(&mut new, false);
    new.retain(|field| {
        !KEPT.contains(&field.id) || field.id == NameId::Etag && !stored.contains(NameId::Etag)
    });
    let mut names: Vec<_> = new.iter().map(|field| field.name.to_ascii_lowercase()).collect();
    // The old Date goes even if the 304 has none: a missing Date counts as the moment of receipt.
    names.push(b"date".to_vec());
    names.sort_unstable();
    let mut merged = stored.clone();
    merged.retain(|field| names.binary_search(&field.name.to_ascii_lowercase()).is_err());
    merged.append(&new);
    merged
}

//! A stored response without its body, and its age.

use foregate_wire::{HeaderList, NameId};

use crate::directives::ResponseControl;
use crate::moment::CacheTime;
use crate::policy::Policy;
use crate::tags::Tag;
use crate::vary::Vary;

/// The head of a stored response, with all values that later decisions need, so that serving it needs no
/// parsing.
#[derive(Clone, Debug)]
pub struct StoredHead {
    /// The status.
    pub status: u16,
    /// The fields to serve, without Age and without fields of the connection.
    pub headers: HeaderList,
    /// Freshness.
    pub life: Life,
    /// The fields of the request that select this response among others of the same key. `None` if it is for all
    /// requests.
    pub vary: Option<Vary>,
    /// The tags by which the response can be purged, sorted.
    pub tags: Box<[Tag]>,
    /// Last-Modified in seconds since 1970.
    pub(crate) last_modified: Option<u64>,
    /// Date, or the moment of receipt, in seconds since 1970.
    pub(crate) date: u64,
}

impl StoredHead {
    /// Returns whether the origin can be asked if the response is still current.
    pub fn can_validate(&self) -> bool {
        self.last_modified.is_some() || self.headers.contains(NameId::Etag)
    }

    /// The head for the client that caused the response, if this client gets fields that other clients do not get:
    /// cookies, and the fields that `private` and `no-cache` list. `None` if all clients get the same head.
    pub fn for_first_client(&self, response: &HeaderList, policy: &Policy) -> Option<Self> {
        let control = ResponseControl::read(response, &policy.targeted);
        let is_withheld = |name: &[u8]| name.eq_ignore_ascii_case(b"set-cookie") || control.lists(name);
        let mut own = None;
        for field in response.iter().filter(|field| is_withheld(field.name)) {
            if self.headers.get_all_name(field.name).any(|value| value == field.value) {
                continue;
            }
            own.get_or_insert_with(|| self.clone()).headers.push(field.name, field.value);
        }
        own
    }

    /// Bytes of memory on the heap, without the value itself.
    pub fn memory(&self) -> usize {
        let vary = self.vary.as_ref().map_or(0, Vary::memory);
        self.headers.memory() + vary + self.tags.len() * size_of::<Tag>()
    }
}

/// How old a response is and how long it may be used, on the cache's clock, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// When the response arrived.
    pub(crate) received: CacheTime,
    /// The age of the response at that moment (RFC 9111, section 4.2.3).
    pub(crate) initial_age: u64,
    /// The lifetime: how long the response is fresh (RFC 9111, section 4.2.1).
    pub(crate) lifetime: u64,
    /// How long after its lifetime the response may be served while it is validated. `stale_if_error` is the time
    /// for responses with a failed validation.
    pub(crate) stale_while_revalidate: u64,
    pub(crate) stale_if_error: u64,
    /// `no-cache`: never used without validation.
    pub(crate) always_validate: bool,
    /// `true` if this response was fetched because a client did not accept the stored one.
    pub(crate) demanded: bool,
    /// `must-revalidate` and similar directives: not even a client's `max-stale` makes a stale response usable.
    pub(crate) never_stale: bool,
}

impl Life {
    /// The age in milliseconds (RFC 9111, section 4.2.3).
    pub(crate) fn age_ms(&self, now: CacheTime) -> u64 {
        self.initial_age.saturating_add(now.since(self.received))
    }

    /// The value of Age, in seconds.
    pub fn age(&self, now: CacheTime) -> u64 {
        self.age_ms(now) / 1000
    }

    /// How long the response stays fresh, in seconds; negative once it is stale.
    pub fn remaining(&self, now: CacheTime) -> i64 {
        let (lifetime, age) = (signed(self.lifetime), signed(self.age_ms(now)));
        (lifetime - age).div_euclid(1000)
    }

    /// Milliseconds since the end of the lifetime. `None` while the response is fresh.
    pub(crate) fn staleness(&self, now: CacheTime) -> Option<u64> {
        self.age_ms(now).checked_sub(self.lifetime)
    }

    /// Returns whether requests that wait while the response is fetched may be answered with it: it may be used
    /// without validation.
    pub fn is_shareable(&self) -> bool {
        !self.always_validate && self.initial_age < self.lifetime
    }

    /// The time from which the response is of no use without validation, not even as a stale response.
    pub fn end(&self) -> CacheTime {
        let grace = self.stale_while_revalidate.max(self.stale_if_error);
        let left = self.lifetime.saturating_sub(self.initial_age);
        CacheTime(self.received.0.saturating_add(left).saturating_add(grace))
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

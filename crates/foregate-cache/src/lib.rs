//! The cache without I/O. It has the decisions of RFC 9111 as functions of heads and the time, the keys, the
//! RAM tier, and the table of shared fetches.
//!
//! A request passes these stages, in which the caller moves the bytes:
//!
//! 1. [`lookup`] reads the client's [`Demands`], or says that the cache is not asked.
//! 2. A stored response is judged by [`reuse()`], and [`StoredHead::answer`] writes the head of the answer.
//! 3. A miss goes to the origin after [`ask_for_whole`], a stale response after [`ask_to_validate`].
//! 4. [`store()`] decides about the response, [`refresh`] updates the stored one by a 304, and
//!    [`StoredHead::covers_failure`] says whether a stale response replaces an error of the origin.
//! 5. Misses and validations of the same object share one fetch ([`Flights`]). At its end, an [`Object`] is stored
//!    in the [`Memory`].
//! 6. After a request that changes something ([`invalidates`]), the stored responses for its address and for the
//!    [`related`] addresses are invalid.
//!
//! Nothing here reads a clock: callers pass a [`Moment`]. No head can make a function panic or take more than linear time.
//!
//! ```
//! use std::sync::Arc;
//!
//! use bytes::Bytes;
//! use foregate_cache::{
//!     AnsweredRequest, CacheTime, Content, Floors, FlightLimits, Flights, MemoryLookup, FlightPart, KeyParts, KeyText, Lookup, Memory,
//!     Moment, Object, Policy, Request, Response, Reuse, Secret, Uri, lookup, reuse, store,
//! };
//! use foregate_wire::{HeaderList, Method, NameId, Scheme};
//!
//! let secret = Secret::new(*b"16 random bytes!");
//! let memory = Memory::new(256 << 20, secret, Arc::new(Floors::default()));
//! let (flights, policy) = (Flights::new(FlightLimits::default()), Policy::default());
//! let now = Moment { wall: 1_795_867_200, cache: CacheTime(0) };
//!
//! // The request, and its key.
//! let (path, fields) = (b"/style.css", HeaderList::new());
//! let request =
//!     Request { method: &Method::Get, headers: &fields, path, has_query: false, has_body: false };
//! let Lookup::Cache(demands) = lookup(&request, &policy) else { return Err("not for the cache".into()) };
//! let uri = Uri { scheme: Scheme::Https, host: "example.com", port: None, path, query: None };
//! let mut text = KeyText::new();
//! text.write(&uri, &KeyParts::default());
//! let key = text.key(&secret);
//!
//! // A miss: this request leads the fetch.
//! let MemoryLookup::Nothing { variant } = memory.get(key, &text, &fields) else { return Err("a hit".into()) };
//! let FlightPart::Lead(mut lead) = flights.join(variant.unwrap_or(key), key, now.cache, || None) else {
//!     return Err("another request fetches".into());
//! };
//! let sequence = memory.floors().begin();
//!
//! // The response arrives.
//! let mut headers = HeaderList::new();
//! headers.push(b"Cache-Control", b"max-age=60");
//! let response = Response { status: 200, headers: &headers, sent: now, received: now };
//! let head = match store(&AnsweredRequest { demands: &demands, headers: &fields, path }, &response, &policy, &secret) {
//!     Ok(head) => Arc::new(head),
//!     Err(reason) => {
//!         lead.uncacheable(now.cache, None);
//!         return Err(reason.as_str().into());
//!     }
//! };
//! let variant = head.vary.as_ref().map(|vary| key.variant(vary.variant, &secret));
//! lead.head(Arc::clone(&head), Some(5), variant, now.cache);
//! lead.push(Bytes::copy_from_slice(b"body!"));
//! lead.complete(|body| {
//!     let object = Arc::new(Object::new((*head).clone(), body, key, &text, sequence));
//!     memory.insert(Arc::clone(&object), now.cache).then_some(object)
//! });
//!
//! // A second later it answers the next request.
//! let later = Moment { wall: now.wall + 1, cache: CacheTime(1000) };
//! let MemoryLookup::Object { object, outdated } = memory.get(key, &text, &fields) else { return Err("a miss".into()) };
//! assert_eq!(reuse(&object.head, &demands, outdated, later.cache), Reuse::Fresh);
//! let mut out = HeaderList::new();
//! let answer = object.head.answer(&demands, &fields, Some(object.body.len()), later, 0, &mut out);
//! assert_eq!((answer.status, answer.content), (200, Content::Whole));
//! assert_eq!(out.get(NameId::Age), Some(&b"1"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]

mod answer;
mod armor;
mod body;
mod cache_status;
mod conditions;
mod directives;
mod flights;
mod key;
mod memory;
mod moment;
mod object;
mod policy;
mod portable;
mod purge;
mod ranges;
mod record;
mod request;
mod reuse;
mod secret;
mod shield;
mod store;
mod stored;
mod structured;
mod tags;
mod text;
mod uri;
mod validate;
mod vary;

pub use answer::{Answer, Content};
pub use armor::ExtensionRule;
pub use body::Body;
pub use cache_status::{CacheStatus, Forward};
pub use conditions::{Conditions, Representation, evaluate};
pub use flights::{
    FetchFailure, FlightLimits, FlightPart, FlightWatch, Flights, Follow, FollowedHead, Lead, Piece,
    other_variant,
};
pub use foregate_wire::date::{format_date, parse_date};
pub use key::{Key, KeyParts, KeyText, Parameters, QueryRule};
pub use memory::{Adoption, Counted, Memory, MemoryLookup, MemoryStat, Sweep, Usefulness};
pub use moment::{CacheTime, Moment};
pub use object::{Object, Outage};
pub use policy::{Heuristics, Policy, SetCookie, StatusLifetime};
pub use portable::Restore;
pub use purge::{Effect, FetchUnderWay, Floors, Purge, Selected, Sequence, Strength};
pub use ranges::{Multipart, Ranges, content_range, ranges};
pub use record::RECORD_FORMAT;
pub use request::{Bypass, Demands, Lookup, Request, ask_for_whole, lookup};
pub use reuse::{Failure, Reuse, Validate, reuse};
pub use secret::Secret;
pub use shield::{PurgeLog, PurgesSince, owner};
pub use store::{AnsweredRequest, NotStored, Response, is_never_stored, store};
pub use stored::{Life, StoredHead};
pub use tags::{Tag, remove as remove_tags};
pub use uri::{RelatedAddress, Uri, invalidates, related};
pub use validate::{RefreshedResponse, ask_to_validate, refresh, refresh_by_head};
pub use vary::{Variant, Vary, VaryNames};

//! The cache without I/O: decisions of RFC 9111 as functions of heads and the time, keys, the RAM tier, and the table of fetches that several
//! requests share.
//!
//! A request passes these stages; the caller moves the bytes:
//!
//! 1. [`lookup`] reads the client's [`Demands`], or says that the cache is not asked.
//! 2. A stored response is judged by [`reuse`], and [`Stored::answer`] writes the head of the answer.
//! 3. A miss goes to the origin after [`ask_for_whole`], a stale response after [`ask_to_validate`].
//! 4. [`store()`] decides about the response, [`refresh`] updates the stored one by a 304, and [`Stored::covers_failure`] says whether a
//!    failure is hidden.
//! 5. Misses and validations of the same object share one fetch ([`Flights`]), and its end stores an [`Object`] in the [`Memory`].
//! 6. After a request that changes something ([`invalidates`]), the address and the [`related`] ones are invalid.
//!
//! Nothing here reads a clock: callers pass a [`Moment`]. No head can make a function panic or take more than linear time.

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]

mod answer;
mod armor;
mod body;
mod cache_status;
mod conditions;
mod date;
mod directives;
mod flights;
mod key;
mod memory;
mod moment;
mod object;
mod policy;
mod purge;
mod ranges;
mod request;
mod reuse;
mod secret;
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
pub use date::{format_date, parse_date};
pub use flights::{Failed, FlightLimits, Flights, Follow, FollowedHead, Joined, Lead, Piece, other_variant};
pub use key::{Key, KeyParts, KeyText, Parameters, QueryRule};
pub use memory::{Found, Memory, MemoryStat, Sweep};
pub use moment::{CacheTime, Moment};
pub use object::Object;
pub use policy::{Heuristics, Policy, SetCookie, StatusLifetime};
pub use purge::{Floors, Purge, Sequence, Strength};
pub use ranges::{Multipart, Ranges, content_range, ranges};
pub use request::{Bypass, Demands, Lookup, Request, ask_for_whole, lookup};
pub use reuse::{Failure, Reuse, Validate, reuse};
pub use secret::Secret;
pub use store::{Asked, NotStored, Response, store};
pub use stored::{Life, Stored};
pub use tags::{Tag, remove as remove_tags};
pub use uri::{Related, Uri, invalidates, related};
pub use validate::{Refreshed, ask_to_validate, refresh, refresh_by_head};
pub use vary::{Variant, Vary, VaryNames};

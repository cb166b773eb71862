//! Decisions about static files, without I/O: the names of the files that a request may mean, their media types and
//! validators, conditions, ranges, precompressed variants and listings of folders.
//!
//! A request passes these stages; the caller opens the files:
//!
//! 1. [`Name::read`] decodes the path of the request, or finds that no file can have this path.
//! 2. [`Rules::candidates`] gives the names to try, in order.
//! 3. For the file that was found, [`Rules::variants`] gives the codings of variants to look for in the same folder, with their
//!    [`suffix`].
//! 4. [`Rules::answer`] writes the fields of the answer and says which bytes of the file belong to it.
//! 5. For a folder without an index, [`listing::html`] or [`listing::json`] writes its listing.

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]

mod answer;
mod kind;
pub mod listing;
mod name;
mod pattern;
mod rules;
mod template;

pub use answer::{Answer, Document, FileRequest, Stat};
pub use kind::content_type;
pub use name::{Name, encode, relative};
pub use pattern::{Pattern, PatternError};
pub use rules::{Candidate, Expires, Rules, suffix};
pub use template::{Template, TemplateError};

//! Comparing two systems that should answer alike, without I/O.
//!
//! [`Answer`] is a response in a form that can be compared, and [`compare`] finds the [differences](Difference)
//! of two answers. A [`Tally`] counts the differences by route, learns the noise of the old system from pairs
//! of its own answers, and makes the [`Report`]. [`Redaction`] hides secret values in samples. [`case`] reads
//! requests with their expected answers; [`har`] and [`access_log`] read recordings.

#![forbid(unsafe_code)]

pub mod access_log;
mod answer;
mod assertion;
pub mod case;
mod difference;
pub mod har;
mod histogram;
mod json;
mod page;
mod path;
mod redaction;
mod report;
mod request;
mod rules;
pub mod sample;
mod tally;
mod template;
#[cfg(test)]
mod tests;
mod write;

pub use self::answer::{Answer, Body, BodyReader, Fields, Outcome};
pub use self::assertion::{Judged, Variables, judge};
pub use self::difference::{Class, Difference, are_equal, compare};
pub use self::page::page;
pub use self::path::{JsonPath, JsonPathError};
pub use self::redaction::{Key, Redaction, hide_query};
pub use self::report::{FieldReport, Report, RouteReport, Verdict};
pub use self::request::{AskedRequest, compare_requests};
pub use self::rules::{Name, Rules};
pub use self::tally::{Comparison, Tally};
pub use self::template::template;
pub use self::write::write_case;

//! Splits bodies into names and values.
//!
//! Each function reads a body in one pass, emits each value as soon as it is found, and returns the errors.
//! Values before an error are emitted. Values after it are emitted too if there is a position at which to
//! resume. A pass keeps only the path to its position, so its memory does not grow with the body.

mod boundary;
pub(crate) mod charset;
mod disposition;
mod encoded;
mod json;
mod kind;
mod multipart;
mod part;
mod sink;
mod texts;
mod transfer;
mod typed;
mod urlencoded;
mod wide;
mod xml;

pub use json::{Documents, json};
pub(crate) use kind::{BodyFormat, kind, media_type};
pub use multipart::{Multipart, multipart};
pub use sink::{BodyError, BodyLimits, File, Sink};
pub(crate) use sink::{SECRET_LEAST, is_token};
pub(crate) use texts::{is_text, texts};
pub use urlencoded::{UrlEncoded, urlencoded};
pub(crate) use wide::{MARK, narrowed};
pub use xml::xml;

/// Returns true if a parser that ignores the media type could read the body as JSON.
pub(crate) fn begins_like_json(body: &[u8]) -> bool {
    json::begins_like(body)
}

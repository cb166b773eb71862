//! Reads a part of a multipart body in the format that its `Content-Type` declares.

use super::json::json_under;
use super::kind::BodyFormat;
use super::sink::{BodyError, BodyLimits, Sink};
use super::{urlencoded, xml};

/// A part to be read by its type.
pub(super) struct TypedPart<'a> {
    pub(super) kind: BodyFormat,
    /// The name under which the values of the part are emitted.
    pub(super) root: &'a [u8],
    /// Set if the content is complete.
    pub(super) whole: bool,
    /// Limits on the values.
    pub(super) limits: BodyLimits,
}

impl TypedPart<'_> {
    /// Reads a text, emits its values, and returns their number.
    pub(super) fn read(&self, text: &[u8], sink: &mut dyn Sink) -> (usize, Result<(), BodyError>) {
        let Self { kind, root, whole, limits } = self;
        let mut counted = CountedSink { sink, values: 0 };
        let outcome = match kind {
            _ if text.trim_ascii().is_empty() => Ok(()),
            BodyFormat::Json(documents) => json_under(root, text, *documents, *whole, limits, &mut counted),
            BodyFormat::Xml => xml(text, *whole, false, limits, &mut counted),
            BodyFormat::UrlEncoded => match urlencoded(text, b'&', limits, &mut counted).over_limit {
                true => Err(BodyError::limit("URLENCODED", "there are too many arguments")),
                false => Ok(()),
            },
            BodyFormat::Multipart | BodyFormat::Other => Ok(()),
        };
        (counted.values, outcome)
    }
}

/// Passes values on to another sink and counts them.
struct CountedSink<'s> {
    sink: &'s mut dyn Sink,
    values: usize,
}

impl Sink for CountedSink<'_> {
    fn argument(&mut self, name: &[u8], value: &[u8]) {
        self.values += 1;
        self.sink.argument(name, value);
    }

    fn value(&mut self, name: &[u8], value: &[u8]) {
        self.values += 1;
        self.sink.value(name, value);
    }

    fn attribute(&mut self, value: &[u8]) {
        self.values += 1;
        self.sink.attribute(value);
    }

    fn text(&mut self, text: &[u8]) {
        self.sink.text(text);
    }

    fn is_secret(&self, name: &[u8]) -> bool {
        self.sink.is_secret(name)
    }

    fn secret(&mut self, text: &[u8]) {
        self.sink.secret(text);
    }
}

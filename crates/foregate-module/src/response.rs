//! Responses that steps make.

use alloc::vec::Vec;

use crate::fields::Field;
use crate::text::Text;

/// A response that a step makes. The platform adds the length, the date and the connection fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status, 200 to 999.
    pub status: u16,
    /// The fields in order.
    pub fields: Vec<Field>,
    /// The whole body. It is not sent if the status or the method forbids a body.
    pub body: Text,
    /// True if the body is meant for the client, so that no error page replaces it; see [`meant`](Self::meant).
    pub meant: bool,
    /// True if this replaces a response of the origin that exceeds a limit; see [`too_long`](Self::too_long).
    pub too_long: bool,
}

impl Response {
    /// A response without fields and body. A status out of range is replaced by 500.
    pub fn new(status: u16) -> Self {
        let status = if (200..1000).contains(&status) { status } else { 500 };
        Self { status, fields: Vec::new(), body: Text::EMPTY, meant: false, too_long: false }
    }

    /// A 502 in place of an origin's response that is too long. The platform reports an error of the origin, as it does
    /// when a body turns out to be too long while it is being sent.
    pub fn too_long() -> Self {
        let body = "502: the response of the origin is too long\n";
        Self { too_long: true, ..Self::new(502).body("text/plain; charset=utf-8", body) }
    }

    /// Sets the body and its type, such as `text/plain; charset=utf-8`.
    #[must_use]
    pub fn body(mut self, content_type: impl Into<Text>, body: impl Into<Text>) -> Self {
        self.body = body.into();
        self.field("content-type", content_type)
    }

    /// Sets a body that is meant for the client, such as a text of the configuration or a page with its own purpose. No
    /// error page replaces it, as it may replace a body that only describes the status.
    #[must_use]
    pub fn meant(self) -> Self {
        Self { meant: true, ..self }
    }

    /// Adds a field. An invalid field is dropped.
    #[must_use]
    pub fn field(mut self, name: impl Into<Text>, value: impl Into<Text>) -> Self {
        self.fields.extend(Field::new(name, value));
        self
    }
}

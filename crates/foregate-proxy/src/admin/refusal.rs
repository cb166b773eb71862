//! Answers that refuse a request.

use http::StatusCode;

/// An answer that is not 200: the status, and the reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ApiError(pub(super) StatusCode, pub(super) String);

//! The types at the border to the C half, in terms of Rust: see [`ffi`](crate::ffi).

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use foregate_module::{FetchError, Field};

/// Steps and filters that have panicked in this process.
pub(crate) static PANICS: AtomicU64 = AtomicU64::new(0);

/// The result of a run of phases; the numbers are the header's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    GoOn = 0,
    Answer = 1,
    Abort = 2,
    Failed = 3,
    ReadBody = 4,
    Hold = 5,
    Fetch = 6,
    Offload = 7,
    FilterBody = 8,
    Full = 9,
}

/// The head of the request, or of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Request = 0,
    Response = 1,
}

/// The source of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maker {
    Origin,
    Step,
    Error,
}

/// The treatment of a response's body before its filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyOf {
    Sent,
    /// There is a body, but the client does not get it (HEAD, 304).
    Unsent,
    Empty,
}

/// The treatment of a response's body by its filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BodyTreatment {
    pub filters: bool,
    pub changes: bool,
    /// With [`Outcome::Hold`]: the length of the body's start that steps want to read, bytes.
    pub hold: usize,
}

/// The level of a line in the error log; the numbers are the header's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Info = 1,
    Warn = 2,
    Error = 3,
}

impl Maker {
    pub(crate) fn of(number: i32) -> Self {
        match number {
            0 => Self::Origin,
            1 => Self::Step,
            _ => Self::Error,
        }
    }
}

impl BodyOf {
    pub(crate) fn of(number: i32) -> Self {
        match number {
            0 => Self::Sent,
            1 => Self::Unsent,
            _ => Self::Empty,
        }
    }
}

/// The facts about a request other than its fields.
pub(crate) struct FactsOf<T> {
    pub client: Option<SocketAddr>,
    pub https: bool,
    pub raw_is_valid: bool,
    pub chunked: bool,
    pub version: u32,
    pub content_length: i64,
    pub method: T,
    pub server: T,
    pub host: T,
    pub uri: T,
    pub args: T,
    pub raw: T,
    pub site: T,
    pub route: T,
}

/// The facts about a request, lent by NGINX.
pub(crate) type Facts<'r> = FactsOf<&'r [u8]>;

impl<T> FactsOf<T> {
    /// Converts each text by a function.
    pub(crate) fn each<'t, U>(&'t self, text: impl Fn(&'t T) -> U) -> FactsOf<U> {
        FactsOf {
            client: self.client,
            https: self.https,
            raw_is_valid: self.raw_is_valid,
            chunked: self.chunked,
            version: self.version,
            content_length: self.content_length,
            method: text(&self.method),
            server: text(&self.server),
            host: text(&self.host),
            uri: text(&self.uri),
            args: text(&self.args),
            raw: text(&self.raw),
            site: text(&self.site),
            route: text(&self.route),
        }
    }
}

/// The facts about a TLS handshake.
pub(crate) struct TlsOf<T> {
    pub client_verified: bool,
    pub version: T,
    pub server_name: T,
    pub client_subject: T,
}

/// The facts about a TLS handshake, lent by NGINX.
pub(crate) type Tls<'r> = TlsOf<&'r [u8]>;

impl<T> TlsOf<T> {
    /// Converts each text by a function.
    pub(crate) fn each<'t, U>(&'t self, text: impl Fn(&'t T) -> U) -> TlsOf<U> {
        TlsOf {
            client_verified: self.client_verified,
            version: text(&self.version),
            server_name: text(&self.server_name),
            client_subject: text(&self.client_subject),
        }
    }
}

/// The result of a fetch, without the body, which has already been received.
pub(crate) fn answer(how: i32, status: u32, fields: Vec<Field>) -> Result<(u16, Vec<Field>), FetchError> {
    match how {
        // NGINX treats a response that is not HTTP as the body of a response without a status.
        0 => match u16::try_from(status) {
            Ok(status @ 200..=999) => Ok((status, fields)),
            _ => Err(FetchError::Malformed),
        },
        1 => Err(FetchError::Connection),
        2 => Err(FetchError::Timeout),
        3 => Err(FetchError::TooLarge),
        _ => Err(FetchError::BadRequest),
    }
}

/// Runs a call from C; returns `failed` if it panics. The request then ends, so the state that the call may have left
/// half changed is not used any more.
pub(crate) fn guard<T>(failed: T, run: impl FnOnce() -> Option<T>) -> T {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.unwrap_or(failed),
        Err(panic) => {
            PANICS.fetch_add(1, Ordering::Relaxed);
            // Dropping the payload may panic again; that panic is ignored.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
            failed
        }
    }
}

/// Runs optional work of a request; returns false if it panicked.
pub(crate) fn unharmed(run: &mut dyn FnMut()) -> bool {
    guard(false, || {
        run();
        Some(true)
    })
}

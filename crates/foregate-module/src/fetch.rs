//! Fetches: requests of steps to servers, which the platform performs.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

use crate::fields::Field;
use crate::ids::UpstreamId;
use crate::response::Response;
use crate::text::Text;
use crate::value::Value;

/// The name of a fetch, as a type. The type has no other purpose.
///
/// A step that needs an answer emits `Emit<Fetch<Name>>`; a step of a later phase reads `Read<'r, Fetched<Name>>`.
pub trait FetchKey: 'static {
    /// The name of the fetch, such as `forward-auth.request`.
    const NAME: &'static str;
    /// The name of the answer, such as `forward-auth.answer`.
    const ANSWER: &'static str;
}

/// The value with which a step requests a fetch: see [`FetchKey`].
#[derive(Debug)]
pub struct Fetch<K: FetchKey>(PhantomData<K>);

impl<K: FetchKey> Value for Fetch<K> {
    type Data = FetchRequest;
    const NAME: &'static str = K::NAME;
    const ABOUT: &'static str = "A request that the platform is to make.";
    const ANSWER: Option<&'static str> = Some(K::ANSWER);
}

/// The value with the answer to a fetch: see [`FetchKey`]. The platform writes it at the end of the phase in which a
/// step requested the fetch.
#[derive(Debug)]
pub struct Fetched<K: FetchKey>(PhantomData<K>);

impl<K: FetchKey> Value for Fetched<K> {
    type Data = FetchResult;
    const NAME: &'static str = K::ANSWER;
    const ABOUT: &'static str = "The answer to a request that the platform has made.";
}

/// The answer to a fetch.
pub type FetchResult = Result<FetchResponse, FetchError>;

/// A request of a step, with its target.
#[derive(Clone, PartialEq, Eq)]
pub struct FetchRequest {
    /// The upstream to ask.
    pub target: FetchTarget,
    /// The method, a token.
    pub method: Text,
    /// Path and query. They must start with `/`.
    pub path: Text,
    /// The host of the request. `None` means the host of the client's request or, if the answer is kept, the address of the
    /// upstream's first server.
    pub authority: Option<Text>,
    /// Fields other than `host`.
    pub fields: Vec<Field>,
    /// The body.
    pub body: Text,
    /// The time limit of the whole fetch, after which it fails with [`FetchError::Timeout`].
    pub timeout: Duration,
    /// The largest body of the answer, bytes. With a larger body the fetch fails with [`FetchError::TooLarge`].
    pub limit: usize,
    /// The time for which an answer with status 200 is used for equal fetches of any request; zero means that the answer
    /// is not kept. For the same time after that, the answer is still used if a new fetch fails.
    pub keep: Duration,
    /// The age from which the platform tries to replace a kept answer, for a step that needs data which only a newer answer
    /// may have. If the new fetch fails, the old answer is used, and the next attempt is made only after this time.
    /// Default: `None`.
    pub renew_after: Option<Duration>,
    /// Checks the body of an answer with status 200. An unusable answer counts as a failed fetch: it is kept only briefly,
    /// and an older kept answer is used instead. By default all bodies are usable.
    pub usable: Usable,
}

impl fmt::Debug for FetchRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Clients' credentials may be among the fields and in the body.
        let names = self.fields.iter().map(|field| String::from_utf8_lossy(field.name())).collect::<Vec<_>>();
        f.debug_struct("FetchRequest")
            .field("target", &self.target)
            .field("method", &self.method)
            .field("path", &self.path)
            .field("authority", &self.authority)
            .field("fields", &names)
            .field("body", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl FetchRequest {
    /// Returns true if a response is kept as long as [`keep`](Self::keep) says.
    pub fn is_good(&self, answer: &FetchResponse) -> bool {
        answer.status == 200 && (self.usable.0)(&answer.body)
    }

    /// Returns true if the fetch failed, so that an older answer is used instead: there is no response, or one that reports
    /// a problem of the server.
    pub fn has_failed(&self, result: &FetchResult) -> bool {
        let serves =
            |answer: &FetchResponse| answer.status < 500 && (answer.status != 200 || self.is_good(answer));
        !result.as_ref().is_ok_and(serves)
    }

    /// A GET request for `path` to an upstream, with a time limit of 5 seconds and at most 64 KiB. The answer is not kept.
    pub fn get(upstream: UpstreamId, path: impl Into<Text>) -> Self {
        Self {
            target: FetchTarget::Upstream(upstream),
            method: Text::Static(b"GET"),
            path: path.into(),
            authority: None,
            fields: Vec::new(),
            body: Text::EMPTY,
            timeout: Duration::from_secs(5),
            limit: 64 * 1024,
            keep: Duration::ZERO,
            renew_after: None,
            usable: Usable(|_| true),
        }
    }
}

/// A check whether the body of an answer can be used. It does not distinguish fetches: two fetches that differ only in
/// this check are equal.
#[derive(Clone, Copy)]
pub struct Usable(pub fn(&[u8]) -> bool);

impl PartialEq for Usable {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Usable {}

/// The target of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FetchTarget {
    /// A server of this upstream.
    Upstream(UpstreamId),
    /// The route of the same site that matches the path; for filters of bodies. The request steps run as if the client had
    /// made the request. The response steps do not run.
    Site,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchResponse {
    /// Its status, 200 to 999.
    pub status: u16,
    /// Its fields, without those of the connection and the framing.
    pub fields: Vec<Field>,
    /// Its body.
    pub body: Text,
}

impl FetchResponse {
    /// The value of the first field of this name.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|field| field.name().eq_ignore_ascii_case(name.as_bytes())).map(Field::value)
    }

    /// Converts it to a response for the client.
    pub fn into_response(self) -> Response {
        Response { fields: self.fields, body: self.body, ..Response::new(self.status) }
    }
}

/// The reason why a fetch has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchError {
    /// No connection could be made, or the connection failed.
    Connection,
    /// The time limit was exceeded.
    Timeout,
    /// The body was larger than the limit.
    TooLarge,
    /// The response is not HTTP.
    Malformed,
    /// The request cannot be made: its path, method or host is invalid, or no route matches.
    BadRequest,
    /// Too many fetches from this upstream are running.
    Busy,
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection => "no connection, or one that failed",
            Self::Timeout => "no answer in time",
            Self::TooLarge => "the answer is too large",
            Self::Malformed => "the answer is not HTTP",
            Self::BadRequest => "the request cannot be made",
            Self::Busy => "too many requests of this kind at a time",
        })
    }
}

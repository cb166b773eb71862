//! Cases: requests with their expected answers, in a subset of Hurl's syntax.
//!
//! An entry is a request, and optionally an answer:
//!
//! ```text
//! POST http://example.com/login
//! Content-Type: application/json
//! {"user": "anna"}
//! HTTP 200
//! Content-Type: application/json
//! [Captures]
//! token: jsonpath "$.token"
//! [Asserts]
//! header "Cache-Control" contains "no-store"
//! ```

mod line;
mod predicate;
mod reader;

use regex::Regex;
use serde_json::Value;

use crate::path::JsonPath;

pub use self::reader::read;

/// The most bytes of a file of cases.
pub const FILE_MOST: u64 = 16 << 20;

/// A request with its expected answer.
#[derive(Debug, Clone)]
pub struct Case {
    /// The line of the request in the file, counted from 1.
    pub line: usize,
    /// The method.
    pub method: String,
    /// The URL, or a target that begins with `/`. It may have templates such as `{{name}}`.
    pub url: String,
    /// The fields.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// `true` if templates are replaced in the body.
    pub body_is_text: bool,
    /// The expected status.
    pub status: Option<u16>,
    /// The expectations on the answer.
    pub asserts: Vec<Assert>,
    /// Values that later entries of the file use.
    pub captures: Vec<Capture>,
}

impl Case {
    /// A case for a request without fields and body, and without expectations.
    pub fn line(method: &str, url: &str) -> Self {
        Self {
            line: 1,
            method: method.to_owned(),
            url: url.to_owned(),
            fields: Vec::new(),
            body: Vec::new(),
            body_is_text: false,
            status: None,
            asserts: Vec::new(),
            captures: Vec::new(),
        }
    }
}

/// One expectation.
#[derive(Debug, Clone)]
pub struct Assert {
    /// The line, counted from 1.
    pub line: usize,
    /// The value to which the predicate applies.
    pub query: Query,
    /// Set if the predicate looks at the number of values instead of the values.
    pub count: bool,
    /// Set if the predicate must be false.
    pub not: bool,
    /// The predicate.
    pub predicate: Predicate,
}

/// A value that is kept under a name.
#[derive(Debug, Clone)]
pub struct Capture {
    /// The line, counted from 1.
    pub line: usize,
    /// The name.
    pub name: String,
    /// The value.
    pub query: Query,
}

/// A part of an answer.
#[derive(Debug, Clone)]
pub enum Query {
    /// The status.
    Status,
    /// All values of a field.
    Header(String),
    /// The value of a cookie that the answer sets, or one of its attributes.
    Cookie(String, Option<String>),
    /// The body as text, without its content coding.
    Body,
    /// The body as bytes.
    Bytes,
    /// A value in a JSON body.
    JsonPath(JsonPath),
    /// The first group of a regular expression that is searched in the body.
    Regex(Regex),
    /// Milliseconds until the end of the answer.
    Duration,
}

/// A predicate on a value.
#[derive(Debug, Clone)]
pub enum Predicate {
    /// `==`
    Equal(Value),
    /// `!=`
    NotEqual(Value),
    /// `>`
    Greater(f64),
    /// `>=`
    GreaterOrEqual(f64),
    /// `<`
    Less(f64),
    /// `<=`
    LessOrEqual(f64),
    /// `contains`
    Contains(Value),
    /// `startsWith`
    StartsWith(String),
    /// `endsWith`
    EndsWith(String),
    /// `matches`
    Matches(Regex),
    /// `exists`
    Exists,
    /// `isEmpty`
    IsEmpty,
    /// `isInteger`, `isNumber`, `isString`, `isBoolean`, `isList`, `isObject`
    IsKind(&'static str),
}

/// An error in a file of cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1 in characters.
    pub column: usize,
    /// The description of the mistake.
    pub message: String,
    /// A suggestion, if there is one.
    pub help: Option<String>,
}

impl CaseError {
    fn new(line: usize, column: usize, message: impl Into<String>) -> Self {
        Self { line, column, message: message.into(), help: None }
    }

    fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// The nearest known word, as advice.
fn nearest(word: &str, known: &[&str]) -> String {
    let near = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(&word.to_lowercase(), &name.to_lowercase()), *name))
        .min();
    match near {
        Some((distance, name)) if distance <= 2.max(word.len() / 3) => format!("did you mean `{name}`?"),
        _ => format!("known are: {}", known.join(", ")),
    }
}

impl Case {
    /// Returns true if the request changes nothing at its server (RFC 9110, section 9.2.1).
    pub fn is_safe(&self) -> bool {
        matches!(&*self.method, "GET" | "HEAD" | "OPTIONS" | "TRACE")
    }

    /// Returns true if the case uses values of earlier cases of its file, or keeps values for later ones.
    pub fn is_linked(&self) -> bool {
        let has = |text: &str| text.contains("{{");
        !self.captures.is_empty()
            || has(&self.url)
            || self.fields.iter().any(|(name, value)| has(name) || has(value))
            || self.body_is_text && String::from_utf8_lossy(&self.body).contains("{{")
    }
}

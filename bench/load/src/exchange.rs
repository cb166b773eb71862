//! Requests and the expected responses.

use std::error::Error;
use std::path::Path;

use serde_json::Value;

use crate::pattern;

/// A request with its expected response.
pub struct Exchange {
    /// The whole request, as it goes over HTTP/1.1.
    pub request: Vec<u8>,
    /// The expected response.
    pub expected: Expected,
    /// The class under which it is counted.
    pub class: String,
}

/// The expectations for a response.
pub struct Expected {
    /// The status.
    pub status: u16,
    /// Fields that it must have, with these values.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Body,
}

/// The expected body.
pub enum Body {
    /// So many bytes of the pattern.
    Pattern(usize),
    /// These bytes.
    Text(Vec<u8>),
    /// Whatever the server likes to send.
    Any,
}

impl Body {
    /// The number of bytes, where it is known.
    pub fn length(&self) -> Option<usize> {
        match self {
            Self::Pattern(length) => Some(*length),
            Self::Text(text) => Some(text.len()),
            Self::Any => None,
        }
    }

    /// Compares `bytes` with the body from `offset` on. They must not go beyond its end.
    pub fn matches(&self, offset: usize, bytes: &[u8]) -> bool {
        match self {
            Self::Pattern(_) => pattern::matches(offset, bytes),
            Self::Text(text) => text.get(offset..).is_some_and(|rest| rest.starts_with(bytes)),
            Self::Any => true,
        }
    }
}

impl Expected {
    /// Status 200 with so many bytes of the pattern.
    pub fn pattern(length: usize) -> Self {
        Self { status: 200, fields: Vec::new(), body: Body::Pattern(length) }
    }
}

impl Exchange {
    /// A GET for a body of `answer` bytes, or a POST of `upload` bytes that is answered with `answer` bytes, at `host`.
    /// `fields` are more of the head, lines with their ends. `close` asks for the connection's end.
    pub fn pattern(host: &str, fields: &str, answer: usize, upload: usize, close: bool) -> Self {
        let (method, folder) = if upload > 0 { ("POST", "u") } else { ("GET", "b") };
        let mut head = format!(
            "{method} /{folder}/{answer} HTTP/1.1\r\nHost: {host}\r\n\
             User-Agent: bench-load/1\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n{fields}"
        );
        if upload > 0 {
            head.push_str(&format!("Content-Type: application/octet-stream\r\nContent-Length: {upload}\r\n"));
        }
        if close {
            head.push_str("Connection: close\r\n");
        }
        head.push_str("\r\n");
        let mut request = head.into_bytes();
        request.extend(pattern::body(upload));
        Self { request, expected: Expected::pattern(answer), class: String::new() }
    }

    /// The exchanges of a file: an array of objects with `request` (a text), `status`, `fields` (an object), perhaps a `class`, and either
    /// `pattern` (a number of bytes), `text`, or neither for a body that is not compared.
    pub fn read(path: &Path) -> Result<Vec<Self>, Box<dyn Error>> {
        let list: Vec<Value> = serde_json::from_slice(&std::fs::read(path)?)?;
        if list.is_empty() {
            return Err("a file without exchanges".into());
        }
        list.iter().map(Self::from_json).collect()
    }

    fn from_json(value: &Value) -> Result<Self, Box<dyn Error>> {
        let wrong = |what: &str| format!("an exchange has no {what}: {value}");
        let request = value["request"].as_str().ok_or_else(|| wrong("request"))?;
        let status = value["status"].as_u64().ok_or_else(|| wrong("status"))?;
        let fields = value["fields"].as_object().ok_or_else(|| wrong("fields"))?.iter();
        let fields = fields
            .map(|(name, field)| Some((name.clone(), field.as_str()?.to_owned())))
            .collect::<Option<_>>()
            .ok_or_else(|| wrong("texts in fields"))?;
        let body = match (&value["pattern"], &value["text"]) {
            (Value::Null, Value::Null) => Body::Any,
            (Value::Null, text) => {
                Body::Text(text.as_str().ok_or_else(|| wrong("text"))?.as_bytes().to_vec())
            }
            (length, _) => Body::Pattern(usize::try_from(length.as_u64().ok_or_else(|| wrong("length"))?)?),
        };
        let expected = Expected { status: u16::try_from(status)?, fields, body };
        let class = value["class"].as_str().unwrap_or_default().to_owned();
        Ok(Self { request: request.as_bytes().to_vec(), expected, class })
    }
}

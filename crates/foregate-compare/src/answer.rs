//! A response in the form that is compared.

use std::hash::Hasher as _;
use std::time::Duration;

use foregate_coding::{coding_of, start};
use twox_hash::XxHash3_64;

/// The most fields that are compared.
const FIELDS_MOST: usize = 256;

/// The result of sending one request to one system.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// A whole response.
    Answered(Box<Answer>),
    /// The system did not answer, for this reason.
    Failed(String),
}

/// A response.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The fields in their order.
    pub fields: Fields,
    /// The body.
    pub body: Body,
    /// From the start of the request to the end of the response.
    pub time: Duration,
}

impl Answer {
    /// A response with these fields. At most 256 of them are kept.
    pub fn new<'f>(status: u16, fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Self {
        Self { status, fields: fields.take(FIELDS_MOST).collect(), ..Self::default() }
    }

    /// The first value of a field.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Decodes the body, up to `limit` bytes of output.
    pub fn decoded(&self, limit: usize) -> Decoded {
        let (bytes, whole) = (&self.body.bytes, self.body.is_whole());
        let Some(name) = self.field("content-encoding").filter(|_| !bytes.is_empty()) else {
            return Decoded { bytes: bytes.clone(), whole, broken: false };
        };
        if name.eq_ignore_ascii_case(b"identity") {
            return Decoded { bytes: bytes.clone(), whole, broken: false };
        }
        match coding_of(name) {
            Some(coding) => {
                let decoded = start(coding, bytes, whole, limit);
                Decoded { bytes: decoded.bytes, whole: decoded.whole, broken: decoded.broken }
            }
            None => Decoded { bytes: bytes.clone(), whole, broken: false },
        }
    }
}

/// Fields in one piece of memory, in their order, with names in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {
    bytes: Vec<u8>,
    /// The end of each name and of each value.
    ends: Vec<(usize, usize)>,
}

impl Fields {
    /// Adds a field.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        match std::str::from_utf8(name) {
            Ok(name) => self.bytes.extend_from_slice(name.as_bytes()),
            Err(_) => self.bytes.extend_from_slice(String::from_utf8_lossy(name).as_bytes()),
        }
        if let Some(name) = self.bytes.get_mut(start..) {
            name.make_ascii_lowercase();
        }
        let end_of_name = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((end_of_name, self.bytes.len()));
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        // `push` has made the names valid UTF-8.
        self.iter_bytes().map(|(name, value)| (std::str::from_utf8(name).unwrap_or_default(), value))
    }

    /// Names and values as bytes.
    pub(crate) fn iter_bytes(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(middle, end)| {
            let name = self.bytes.get(start..middle).unwrap_or_default();
            start = end;
            (name, self.bytes.get(middle..end).unwrap_or_default())
        })
    }
}

impl<'f> FromIterator<(&'f [u8], &'f [u8])> for Fields {
    fn from_iter<I: IntoIterator<Item = (&'f [u8], &'f [u8])>>(fields: I) -> Self {
        let mut made = Self { bytes: Vec::with_capacity(512), ends: Vec::with_capacity(16) };
        for (name, value) in fields {
            made.push(name, value);
        }
        made
    }
}

/// A body without its content coding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// The bytes of the body, or of its start.
    pub bytes: Vec<u8>,
    /// Set if `bytes` is the whole body.
    pub whole: bool,
    /// Set if the body is not in the coding that its head states.
    pub broken: bool,
}

/// The body of a response as it was sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Body {
    /// The start of the body.
    pub bytes: Vec<u8>,
    /// The length of the whole body.
    pub length: u64,
    /// A hash of the whole body.
    pub hash: u64,
}

impl Body {
    /// Returns true if the bytes are the whole body.
    pub fn is_whole(&self) -> bool {
        self.length == self.bytes.len() as u64
    }
}

/// Receives a body piece by piece. It keeps the start of the body, and hashes the whole body.
pub struct BodyReader {
    kept: Vec<u8>,
    limit: usize,
    length: u64,
    hash: XxHash3_64,
}

impl std::fmt::Debug for BodyReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BodyReader({} bytes)", self.length)
    }
}

impl BodyReader {
    /// Keeps at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { kept: Vec::new(), limit, length: 0, hash: XxHash3_64::with_seed(0) }
    }

    /// Adds a piece.
    pub fn take(&mut self, piece: &[u8]) {
        let room = self.limit - self.kept.len();
        self.kept.extend_from_slice(piece.get(..room).unwrap_or(piece));
        self.length += piece.len() as u64;
        self.hash.write(piece);
    }

    /// The number of bytes that are kept once this piece has been added.
    pub fn wants(&self, piece: &[u8]) -> usize {
        self.limit.min(self.kept.len() + piece.len())
    }

    /// Keeps no further bytes of the body. They are only counted and hashed.
    pub fn keep_no_more(&mut self) {
        self.limit = self.kept.len();
    }

    /// The body.
    pub fn end(self) -> Body {
        Body { bytes: self.kept, length: self.length, hash: self.hash.finish() }
    }
}

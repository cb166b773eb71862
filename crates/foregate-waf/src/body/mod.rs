//! Bodies to names and values.
//!
//! Each function takes a body apart in one pass over all of it, hands on what it finds at once, and says what was wrong
//! with it. What was found before an error, and behind it where there is a place to go on from, has been handed on: rules
//! look at it all the same. Nothing is kept but the path to where the pass is, so memory does not grow with the body.

mod boundary;
pub(crate) mod charset;
mod disposition;
mod encoded;
mod json;
mod kind;
mod multipart;
mod part;
mod texts;
mod transfer;
mod typed;
mod urlencoded;
mod wide;
mod xml;

pub use json::{Documents, json};
pub(crate) use kind::{Kind, kind, media_type};
pub use multipart::{Multipart, multipart};
pub(crate) use texts::{is_text, texts};
pub use urlencoded::{UrlEncoded, urlencoded};
pub(crate) use wide::{MARK, narrowed};
pub use xml::xml;

/// Whether a byte belongs to a token (RFC 9110 section 5.6.2).
pub(crate) fn is_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

/// Whether a body of a type that says nothing, or something else, may be one of JSON to those who do not look at the type.
pub(crate) fn begins_like_json(body: &[u8]) -> bool {
    json::begins_like(body)
}

/// Bytes from which on a secret of XML is told: shorter ones nobody looks for.
pub(crate) const SECRET_LEAST: usize = 4;

/// Takes what a body holds. What is not overridden is thrown away.
pub trait Sink {
    /// A name and its value, decoded.
    fn argument(&mut self, name: &[u8], value: &[u8]) {
        let _ = (name, value);
    }

    /// Another value that some read for the argument that was handed on last. Default: an argument like others.
    fn value(&mut self, name: &[u8], value: &[u8]) {
        self.argument(name, value);
    }

    /// A file of a form.
    fn file(&mut self, file: &File<'_>) {
        let _ = file;
    }

    /// A `name` parameter of a form's part, as written there.
    fn multipart_name(&mut self, name: &[u8]) {
        let _ = name;
    }

    /// A `filename` parameter of a form's part, as written there.
    fn multipart_filename(&mut self, filename: &[u8]) {
        let _ = filename;
    }

    /// A header line of a form's part without its end, unfolded. The part's name is empty if it has none.
    fn part_header(&mut self, part: &[u8], line: &[u8]) {
        let _ = (part, line);
    }

    /// A piece of the text of an XML document: what `XML:/*` is, once all pieces are put together.
    fn text(&mut self, text: &[u8]) {
        let _ = text;
    }

    /// Whether what an element or attribute of an XML document of this name has in it is a secret.
    fn is_secret(&self, name: &[u8]) -> bool {
        let _ = name;
        false
    }

    /// A text or value that is a secret; it is told as what it is as well.
    fn secret(&mut self, text: &[u8]) {
        let _ = text;
    }

    /// The value of an attribute of an XML document: what `XML://@*` is made of.
    fn attribute(&mut self, value: &[u8]) {
        let _ = value;
    }
}

/// A file of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File<'a> {
    /// The form's field.
    pub name: &'a [u8],
    /// What the client calls it; not empty.
    pub filename: &'a [u8],
    /// What others may take for that: what `filename*` says where it is something else, and what comes of an encoded word.
    pub other_filenames: &'a [Vec<u8>],
    /// What is in it, as it came.
    pub content: &'a [u8],
    /// What is in it to those who decode its `Content-Transfer-Encoding`, where that is something else.
    pub decoded: Option<&'a [u8]>,
}

/// How much is taken from a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many arguments, or attributes of XML. Of a form, those beyond are left out; elsewhere it is an error. Default:
    /// 1,000, as `SecArgumentsLimit` has it.
    pub arguments: usize,
    /// How many levels of JSON or XML; more are an error. Default: 512, as `SecRequestBodyJsonDepthLimit` has it.
    pub depth: usize,
    /// How many files of a form; those beyond are left out. Default: 100, as `SecUploadFileLimit` has it.
    pub files: usize,
    /// Whether parts of a form that have a file name, but not behind a space and in double quotes, or that have no `Content-Type`,
    /// are arguments as well: to some programs they are texts. Default: no, since libraries of clients send files so.
    pub unclear_files: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { arguments: 1000, depth: 512, files: 100, unclear_files: false }
    }
}

/// What is wrong with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyError {
    what: String,
    limit: bool,
}

impl BodyError {
    fn new(kind: &str, what: impl std::fmt::Display) -> Self {
        Self { what: format!("{kind} parsing error: {what}"), limit: false }
    }

    /// A limit is reached.
    fn limit(kind: &str, what: impl std::fmt::Display) -> Self {
        Self { limit: true, ..Self::new(kind, what) }
    }

    /// Whether nothing is wrong with the body but that it has more of something than is looked at: what follows may be
    /// fine for others, and has not been handed on.
    pub fn is_limit(&self) -> bool {
        self.limit
    }
}

impl std::fmt::Display for BodyError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.what)
    }
}

impl std::error::Error for BodyError {}

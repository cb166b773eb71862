//! The receiver of the contents of a body, its limits, and its errors.

/// The least length of a secret in XML that is recorded. Logs are not searched for shorter texts.
pub(crate) const SECRET_LEAST: usize = 4;

/// Receives the contents of a body. Values are dropped unless the method is overridden.
pub trait Sink {
    /// Receives a name and its value, both decoded.
    fn argument(&mut self, name: &[u8], value: &[u8]) {
        let _ = (name, value);
    }

    /// Receives another value that some parsers read for the last argument. Default: it is passed to
    /// [`argument`](Self::argument).
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

    /// Receives a header line of a form's part, unfolded and without its line end. `part` is the name of the part, or
    /// empty.
    fn part_header(&mut self, part: &[u8], line: &[u8]) {
        let _ = (part, line);
    }

    /// A piece of the text of an XML document; all pieces together are `XML:/*`.
    fn text(&mut self, text: &[u8]) {
        let _ = text;
    }

    /// Returns true if the content of an XML element or attribute with this name is a secret to be reported to
    /// [`secret`](Self::secret).
    fn is_secret(&self, name: &[u8]) -> bool {
        let _ = name;
        false
    }

    /// Receives a text or value that is a secret. It is also emitted as a text or value.
    fn secret(&mut self, text: &[u8]) {
        let _ = text;
    }

    /// The value of an attribute of an XML document; all of them are `XML://@*`.
    fn attribute(&mut self, value: &[u8]) {
        let _ = value;
    }
}

/// A file of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File<'a> {
    /// The form's field.
    pub name: &'a [u8],
    /// The file name that the client sent; not empty.
    pub filename: &'a [u8],
    /// Alternative file names for other parsers: a different `filename*`, and decoded encoded words.
    pub other_filenames: &'a [Vec<u8>],
    /// The content as the client sent it.
    pub content: &'a [u8],
    /// The content with its `Content-Transfer-Encoding` removed, if that changes it.
    pub decoded: Option<&'a [u8]>,
}

/// The limits on the values of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// The most arguments, or attributes of XML. Further arguments of a form are left out; in other bodies they
    /// are an error. Default: 1,000, as for `SecArgumentsLimit`.
    pub arguments: usize,
    /// The deepest nesting of JSON or XML; a deeper one is an error. Default: 512, as for
    /// `SecRequestBodyJsonDepthLimit`.
    pub depth: usize,
    /// The most files of a form; further files are left out. Default: 100, as for `SecUploadFileLimit`.
    pub files: usize,
    /// If true, some files are emitted as arguments too, because some programs read them as texts: files with a name
    /// that is unquoted or follows no space, and files without a `Content-Type`. Default: false, since client
    /// libraries send such files.
    pub unclear_files: bool,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self { arguments: 1000, depth: 512, files: 100, unclear_files: false }
    }
}

/// An error in a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyError {
    what: String,
    limit: bool,
}

impl BodyError {
    pub(super) fn new(kind: &str, what: impl std::fmt::Display) -> Self {
        Self { what: format!("{kind} parsing error: {what}"), limit: false }
    }

    /// The error for an exceeded limit.
    pub(super) fn limit(kind: &str, what: impl std::fmt::Display) -> Self {
        Self { limit: true, ..Self::new(kind, what) }
    }

    /// Returns true if the error is an exceeded limit. The origin may accept the values beyond it, which were not
    /// emitted.
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

/// Returns true if a byte belongs to a token (RFC 9110 section 5.6.2).
pub(crate) fn is_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

//! JSON (RFC 8259) and the extensions that lenient parsers accept.
//!
//! A document that violates the standard is an error, but the pass goes on like the most lenient parsers: it
//! accepts comments, other quotes, names and texts without quotes, superfluous commas, and several documents
//! in a row. Rules therefore see the values that such a parser behind the firewall would see, whatever
//! happens to the request. The pass ends where all parsers give up.

mod text;
mod white;

use super::wide;
use super::{BodyError, BodyLimits, Sink};

/// The name of the document itself.
const ROOT: &[u8] = b"json";
/// The longest path to a value, bytes; a longer one is an error. Each value is handed on with its path.
const MAX_PATH: usize = 8192;
/// The name of a member with an empty name.
const NO_NAME: &[u8] = b"empty-key";
/// Prefixes that some parsers skip. Servers write them before a document so that it is no valid script.
const PREFIXES: &[&[u8]] = &[b")]}',", b")]}'", b")]}", b"while(1);", b"for(;;);", b"&&&START&&&"];

/// The number of documents that a JSON body may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Documents {
    /// One.
    One,
    /// Any number, one after the other: JSON lines, or text sequences (RFC 7464).
    Many,
}

/// Emits each number, text, truth value, null, and empty object or array (as an empty text) under its path,
/// which is named as in ModSecurity 3: the value in `{"a": {"b": [1]}}` is `json.a.b.array_0`. Numbers are
/// passed on as written, and texts with their escapes decoded. Of several members with the same name, all are
/// emitted. If `whole` is false, an early end is no error.
///
/// # Errors
///
/// The first violation of RFC 8259, or an exceeded limit. A UTF-8 byte order mark is allowed; encodings other
/// than UTF-8 are not.
pub fn json(
    body: &[u8],
    documents: Documents,
    whole: bool,
    limits: &BodyLimits,
    sink: &mut dyn Sink,
) -> Result<(), BodyError> {
    json_under(ROOT, body, documents, whole, limits, sink)
}

/// Like [`json`], with `root` as the name of the document.
pub(super) fn json_under(
    root: &[u8],
    body: &[u8],
    documents: Documents,
    whole: bool,
    limits: &BodyLimits,
    sink: &mut dyn Sink,
) -> Result<(), BodyError> {
    if let Some(text) = wide::narrowed(body) {
        read(root, &text, documents, whole, limits, sink)?;
        return Err(BodyError::new("JSON", "the document is in UTF-16 or UTF-32"));
    }
    read(root, body, documents, whole, limits, sink)
}

/// Returns true if a body begins in a way that a lenient parser could accept as JSON.
pub(super) fn begins_like(body: &[u8]) -> bool {
    let start = body.get(white::length(body)..).unwrap_or_default();
    PREFIXES.iter().any(|prefix| start.starts_with(prefix)) || white::begins_document(start)
}

fn read(
    root: &[u8],
    body: &[u8],
    documents: Documents,
    whole: bool,
    limits: &BodyLimits,
    sink: &mut dyn Sink,
) -> Result<(), BodyError> {
    let utf8 = std::str::from_utf8(body).err();
    let mut reader = JsonReader {
        body,
        at: if body.starts_with(wide::MARK) { wide::MARK.len() } else { 0 },
        path: root.to_vec(),
        root: root.len(),
        containers: Vec::new(),
        scratch: Vec::new(),
        count: 0,
        new_line: false,
        documents,
        is_utf8: utf8.is_none(),
        wrong: None,
        limits,
        sink,
    };
    let outcome = reader.documents();
    let wrong = reader.wrong;
    let cut = !whole && utf8.is_none_or(|error| error.error_len().is_none());
    let invalid =
        utf8.map(|error| error.valid_up_to()).filter(|at| !cut && wrong.is_none_or(|wrong| *at <= wrong.at));
    match (outcome, invalid, wrong) {
        (Err(JsonFault::Limit(limit)), ..) => Err(limit.explain(limits)),
        (_, Some(at), _) => {
            Err(BodyError::new("JSON", format_args!("what starts at byte {at} is not UTF-8")))
        }
        (_, None, Some(wrong)) => Err(wrong.explain(body)),
        (Err(JsonFault::End | JsonFault::Stop), None, None) if whole => {
            Err(BodyError::new("JSON", "the document ends too early"))
        }
        _ => Ok(()),
    }
}

/// A deviation from the standard.
#[derive(Clone, Copy)]
struct Wrong {
    at: usize,
    instead_of: &'static str,
}

impl Wrong {
    fn explain(self, body: &[u8]) -> BodyError {
        let Self { at, instead_of } = self;
        let found = body.get(at).copied().unwrap_or_default().escape_ascii();
        BodyError::new("JSON", format_args!("`{found}` at byte {at} instead of {instead_of}"))
    }
}

/// The reason why the pass ends.
enum JsonFault {
    /// The body has ended.
    End,
    /// No parser accepts the text from here on; [`JsonReader::wrong`] holds the error.
    Stop,
    Limit(Limit),
}

#[derive(Clone, Copy)]
enum Limit {
    Depth,
    Values,
    Path,
}

impl Limit {
    fn explain(self, limits: &BodyLimits) -> BodyError {
        match self {
            Self::Depth => BodyError::limit(
                "JSON",
                format_args!("more than {} levels: depth limit exceeded", limits.depth),
            ),
            Self::Values => BodyError::limit("JSON", format_args!("more than {} values", limits.arguments)),
            Self::Path => {
                BodyError::limit("JSON", format_args!("the path to a value is longer than {MAX_PATH} bytes"))
            }
        }
    }
}

struct Container {
    array: bool,
    /// The number of elements or members that have begun.
    begun: usize,
    /// The length of the path to the container.
    path: usize,
}

struct JsonReader<'a> {
    body: &'a [u8],
    at: usize,
    /// The path to the present value.
    path: Vec<u8>,
    /// The length of the document's name, with which `path` begins.
    root: usize,
    containers: Vec<Container>,
    /// The text that is being decoded.
    scratch: Vec<u8>,
    count: usize,
    /// Set if the white space that was skipped last contained a line end.
    new_line: bool,
    documents: Documents,
    is_utf8: bool,
    /// The first violation of the standard.
    wrong: Option<Wrong>,
    limits: &'a BodyLimits,
    sink: &'a mut dyn Sink,
}

impl<'a> JsonReader<'a> {
    /// Records a violation of the standard at the present position, where the standard requires `instead_of`.
    fn odd(&mut self, instead_of: &'static str) {
        self.odd_at(self.at, instead_of);
    }

    fn odd_at(&mut self, at: usize, instead_of: &'static str) {
        self.wrong.get_or_insert(Wrong { at, instead_of });
    }

    /// Records an error after which no parser continues.
    fn stop(&mut self, instead_of: &'static str) -> JsonFault {
        self.odd(instead_of);
        JsonFault::Stop
    }

    fn rest(&self) -> &'a [u8] {
        self.body.get(self.at..).unwrap_or_default()
    }

    fn documents(&mut self) -> Result<(), JsonFault> {
        self.prefix();
        let many = self.documents == Documents::Many;
        if many && matches!(self.white(), Err(JsonFault::End)) {
            return Ok(());
        }
        loop {
            self.path.truncate(self.root);
            self.document()?;
            let Ok(mut next) = self.white() else { return Ok(()) };
            if !many {
                self.odd("the end of the document");
            }
            if next == b',' {
                self.odd("the end of the document");
                self.at += 1;
                next = self.white()?;
            }
            // A body with more text after its first value may be no JSON at all, such as a table. Lenient parsers go on
            // only at an object or array, unless several documents are expected.
            if !matches!(next, b'{' | b'[') && !many {
                return Err(JsonFault::Stop);
            }
        }
    }

    /// Skips one of [`PREFIXES`].
    fn prefix(&mut self) {
        let after_white = self.at + white::length(self.rest());
        let rest = self.body.get(after_white..).unwrap_or_default();
        if let Some(prefix) = PREFIXES.iter().find(|prefix| rest.starts_with(prefix)) {
            self.odd("a value");
            self.at = after_white + prefix.len();
        }
    }

    fn document(&mut self) -> Result<(), JsonFault> {
        self.value()?;
        while let Some(container) = self.containers.last_mut() {
            self.path.truncate(container.path);
            let begun = container.begun;
            container.begun += 1;
            if container.array {
                self.element(begun)?;
            } else {
                self.member(begun)?;
            }
        }
        Ok(())
    }

    /// Reads a value, or the beginning of a container.
    fn value(&mut self) -> Result<(), JsonFault> {
        match self.white()? {
            b'{' => self.open(false),
            b'[' => self.open(true),
            quote @ (b'"' | b'\'') => {
                let text = self.text(quote, "a value")?;
                self.hand_on(text)
            }
            // The value is missing. The comma or the end of the container is read next.
            b',' | b';' | b']' | b'}' if !self.containers.is_empty() => {
                self.odd("a value");
                Ok(())
            }
            _ => self.plain(),
        }
    }

    /// Counts a value. Returns an error beyond the limit.
    fn count(&mut self) -> Result<(), JsonFault> {
        if self.count >= self.limits.arguments {
            return Err(JsonFault::Limit(Limit::Values));
        }
        self.count += 1;
        Ok(())
    }

    fn open(&mut self, array: bool) -> Result<(), JsonFault> {
        if self.containers.len() >= self.limits.depth {
            return Err(JsonFault::Limit(Limit::Depth));
        }
        self.at += 1;
        self.containers.push(Container { array, begun: 0, path: self.path.len() });
        Ok(())
    }

    /// Ends an array or object in which this many elements or members have begun. An empty one is emitted as an
    /// empty text, so that rules see the names in its path. An empty document is not emitted: it has no names.
    fn close(&mut self, begun: usize) -> Result<(), JsonFault> {
        self.at += 1;
        self.containers.pop();
        if begun == 0 && !self.containers.is_empty() {
            self.count()?;
            self.sink.argument(&self.path, b"");
        }
        Ok(())
    }

    /// Reads the next element of an array, or its end.
    fn element(&mut self, begun: usize) -> Result<(), JsonFault> {
        match (self.white()?, begun) {
            (b']', _) => return self.close(begun),
            (b',', 1..) => self.at += 1,
            (_, 0) => {}
            (byte, _) => self.divide(byte, "`,` or `]`")?,
        }
        self.path.extend_from_slice(b".array_");
        push_number(&mut self.path, begun);
        self.check_path()?;
        self.value()
    }

    /// Accepts the characters that some parsers read as the comma between elements or members.
    fn divide(&mut self, byte: u8, expected: &'static str) -> Result<(), JsonFault> {
        self.odd(expected);
        match byte {
            b';' => self.at += 1,
            b'"' | b'\'' => {}
            b']' | b'}' | b':' | b'=' => return Err(JsonFault::Stop),
            _ if self.new_line => {}
            _ => return Err(JsonFault::Stop),
        }
        Ok(())
    }

    /// Reads the next member of an object, or its end.
    fn member(&mut self, begun: usize) -> Result<(), JsonFault> {
        let first = begun == 0;
        let mut byte = self.white()?;
        match byte {
            b'}' => return self.close(begun),
            b'"' if first => {}
            b',' if !first => {
                self.at += 1;
                byte = self.white()?;
                if byte != b'"' {
                    self.odd("a name");
                }
            }
            _ if first => self.odd("a name or `}`"),
            _ => {
                self.divide(byte, "`,` or `}`")?;
                byte = self.white()?;
            }
        }
        while byte == b',' {
            self.at += 1;
            byte = self.white()?;
        }
        if byte == b'}' {
            return self.close(begun);
        }
        self.path.push(b'.');
        self.name(byte)?;
        self.check_path()?;
        self.colon()
    }

    /// Reads the name of a member and appends it to the path.
    fn name(&mut self, byte: u8) -> Result<(), JsonFault> {
        if !matches!(byte, b'"' | b'\'') {
            return self.plain_name(byte);
        }
        let text = self.text(byte, "a name")?;
        let name = match text.plain {
            true => self.body.get(text.start..text.end).unwrap_or_default(),
            false => &self.scratch,
        };
        self.path.extend_from_slice(if name.is_empty() { NO_NAME } else { name });
        Ok(())
    }

    /// Reads the colon of a member and its value. Some parsers accept a member without these.
    fn colon(&mut self) -> Result<(), JsonFault> {
        match self.white()? {
            b':' => self.at += 1,
            b'=' => {
                self.odd("`:`");
                self.at += 1;
                self.at += usize::from(self.rest().first() == Some(&b'>'));
            }
            b',' | b'}' => {
                self.odd("`:`");
                self.count()?;
                self.sink.argument(&self.path, b"");
                return Ok(());
            }
            _ => return Err(self.stop("`:`")),
        }
        self.value()
    }

    fn check_path(&self) -> Result<(), JsonFault> {
        if self.path.len() > MAX_PATH { Err(JsonFault::Limit(Limit::Path)) } else { Ok(()) }
    }
}

/// Appends a number in decimal digits.
fn push_number(path: &mut Vec<u8>, number: usize) {
    let start = path.len();
    let mut left = number;
    loop {
        path.push(b'0' + (left % 10) as u8);
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if let Some(digits) = path.get_mut(start..) {
        digits.reverse();
    }
}

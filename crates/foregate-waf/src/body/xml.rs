//! Reads XML 1.0 without document types, which could instruct the parser to load or expand other content.

use memchr::{memchr, memchr2, memmem};

use super::sink::{BodyError, BodyLimits, SECRET_LEAST, Sink};

/// Emits the texts and attributes of a document. Character references and the five predefined entities are
/// decoded. A document type is skipped, and every other entity is an error. If `whole` is false, an early end
/// is no error.
///
/// With `arguments`, each element without child elements is emitted as an argument. Its name is its path,
/// such as `xml.a.b`.
pub fn xml(
    body: &[u8],
    whole: bool,
    arguments: bool,
    limits: &BodyLimits,
    sink: &mut dyn Sink,
) -> Result<(), BodyError> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let mut reader = XmlReader {
        body,
        at: 0,
        path: b"xml".to_vec(),
        open: Vec::new(),
        root: false,
        leaf: arguments.then(Vec::new),
        is_leaf: false,
        secret: None,
        decoded: Vec::new(),
        count: 0,
        limits,
        sink,
    };
    match reader.document() {
        Ok(()) => Ok(()),
        Err(XmlFault::End) if !whole => Ok(()),
        Err(XmlFault::End) => Err(BodyError::new("XML", "the document ends too early")),
        Err(XmlFault::At(what)) => {
            Err(BodyError::new("XML", format_args!("{what} at byte {}", reader.at.min(body.len()))))
        }
        Err(XmlFault::TooDeep) => Err(BodyError::limit(
            "XML",
            format_args!("more than {} levels: depth limit exceeded", limits.depth),
        )),
        Err(XmlFault::TooMany) => Err(BodyError::limit(
            "XML",
            format_args!("more than {} attributes or elements", limits.arguments),
        )),
        Err(XmlFault::TooLong) => Err(BodyError::limit(
            "XML",
            format_args!("the path to an element is longer than {MAX_PATH} bytes"),
        )),
    }
}

/// The longest path to an element, bytes; a longer one is an error.
const MAX_PATH: usize = 8192;

/// Prefixes, in small letters, of encodings in which every byte below 0x80 is the ASCII character. Shift_JIS, GBK, GB
/// 18030, Big5 and their Windows code pages are missing, because the second byte of a character may be `]` or a letter.
/// The EUC encodings are listed, because both bytes of a character are above 0x80. Two of their relatives are missing:
/// the Korean Windows code page, in which a second byte may be a letter, and `euc-cn`, which means GBK to some parsers.
const LIKE_ASCII: &[&[u8]] = &[
    b"utf-8",
    b"utf8",
    b"us-ascii",
    b"ascii",
    b"iso-8859-",
    b"iso8859-",
    b"windows-125",
    b"windows-874",
    b"cp125",
    b"koi8",
    b"macintosh",
    b"tis-620",
    b"euc-jp",
    b"euc-kr",
    b"euc-tw",
];

enum XmlFault {
    End,
    At(&'static str),
    TooDeep,
    TooMany,
    TooLong,
}

/// An element that has begun.
struct OpenElement {
    /// The start and end of its name in the body.
    name: (usize, usize),
    /// The length of the path to the element, without its own name.
    path: usize,
}

struct XmlReader<'a> {
    body: &'a [u8],
    at: usize,
    /// The names of the open elements, joined by dots.
    path: Vec<u8>,
    open: Vec<OpenElement>,
    /// Set once the outermost element has begun.
    root: bool,
    /// The text of the innermost element so far. `None` if elements are not emitted as arguments.
    leaf: Option<Vec<u8>>,
    /// Set while the innermost element has no child.
    is_leaf: bool,
    /// If an open element contains a secret: the number of elements that were open when it began.
    secret: Option<usize>,
    /// Buffer for decoded text.
    decoded: Vec<u8>,
    count: usize,
    limits: &'a BodyLimits,
    sink: &'a mut dyn Sink,
}

fn is_white(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'-' | b'.' | 0x80..)
}

/// The quoted text after a `=`.
fn quoted(text: &[u8]) -> Option<&[u8]> {
    let text = text.trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    let quote = *text.first().filter(|byte| matches!(byte, b'"' | b'\''))?;
    let text = &text[1..];
    memchr(quote, text).map(|len| &text[..len])
}

impl<'a> XmlReader<'a> {
    fn rest(&self) -> &'a [u8] {
        self.body.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Result<u8, XmlFault> {
        self.body.get(self.at).copied().ok_or(XmlFault::End)
    }

    fn white(&mut self) -> bool {
        let count = self.rest().iter().take_while(|byte| is_white(**byte)).count();
        self.at += count;
        count > 0
    }

    /// Moves past the next `end` and returns the text before it.
    fn up_to(&mut self, end: &[u8]) -> Result<&'a [u8], XmlFault> {
        let rest = self.rest();
        let len = memmem::find(rest, end).ok_or(XmlFault::End)?;
        self.at += len + end.len();
        Ok(&rest[..len])
    }

    fn document(&mut self) -> Result<(), XmlFault> {
        if self.is_in_other_letters() {
            return Err(XmlFault::At("an encoding that is not known here"));
        }
        loop {
            let rest = self.rest();
            let len = memchr(b'<', rest).unwrap_or(rest.len());
            self.characters(&rest[..len])?;
            if len == rest.len() {
                return if self.open.is_empty() && self.root { Ok(()) } else { Err(XmlFault::End) };
            }
            self.markup()?;
        }
    }

    /// Reads the markup at a `<`.
    fn markup(&mut self) -> Result<(), XmlFault> {
        let rest = self.rest();
        if rest.starts_with(b"<!--") {
            self.at += 4;
            self.up_to(b"-->").map(|_| ())
        } else if rest.starts_with(b"<![CDATA[") {
            if self.open.is_empty() {
                return Err(XmlFault::At("text outside of the document's element"));
            }
            self.at += 9;
            let text = self.up_to(b"]]>")?;
            self.give(text);
            Ok(())
        } else if rest.starts_with(b"<?") {
            self.at += 2;
            self.up_to(b"?>").map(|_| ())
        } else if rest.starts_with(b"<!DOCTYPE") && !self.root {
            self.document_type()
        } else if rest.starts_with(b"<!") && rest.len() > 8 {
            Err(XmlFault::At("a declaration that is not known here"))
        } else if rest.starts_with(b"<!") {
            Err(XmlFault::End)
        } else if rest.starts_with(b"</") {
            self.end()
        } else {
            self.start()
        }
    }

    /// Skips a document type with internal declarations only. External subsets and parameter entities are errors: rules would
    /// not see their content.
    fn document_type(&mut self) -> Result<(), XmlFault> {
        self.at += b"<!DOCTYPE".len();
        let (mut inner, mut closed) = (false, false);
        loop {
            let rest = self.rest();
            match self.peek()? {
                byte if is_white(byte) => self.at += 1,
                b'>' if !inner => {
                    self.at += 1;
                    return Ok(());
                }
                b'[' if !inner && !closed => {
                    self.at += 1;
                    inner = true;
                }
                b']' if inner => {
                    self.at += 1;
                    (inner, closed) = (false, true);
                }
                b'<' if inner && rest.starts_with(b"<!--") => {
                    self.at += 4;
                    self.up_to(b"-->")?;
                }
                b'<' if inner && rest.starts_with(b"<?") => {
                    self.at += 2;
                    self.up_to(b"?>")?;
                }
                b'<' if inner => self.declaration()?,
                byte if !inner && is_name(byte) => self.word()?,
                b'%' => return Err(XmlFault::At("a parameter entity")),
                _ => return Err(XmlFault::At("something in a document type that is not known here")),
            }
        }
    }

    /// Reads a declaration in a document type.
    fn declaration(&mut self) -> Result<(), XmlFault> {
        const UNKNOWN: XmlFault = XmlFault::At("a declaration that is not known here");
        self.at += 1;
        if self.peek()? != b'!' {
            return Err(UNKNOWN);
        }
        self.at += 1;
        let name = self.name()?;
        if !matches!(&self.body[name.0..name.1], b"ELEMENT" | b"ATTLIST" | b"ENTITY" | b"NOTATION") {
            return Err(UNKNOWN);
        }
        loop {
            match self.peek()? {
                b'>' => {
                    self.at += 1;
                    return Ok(());
                }
                quote @ (b'"' | b'\'') => {
                    self.at += 1;
                    let len = memchr(quote, self.rest()).ok_or(XmlFault::End)?;
                    self.declared(self.at + len)?;
                    self.at += 1;
                }
                byte if is_white(byte) || b"()|,?*+#".contains(&byte) => self.at += 1,
                byte if is_name(byte) => self.word()?,
                b'%' => return Err(XmlFault::At("a parameter entity")),
                _ => return Err(XmlFault::At("something in a declaration that is not known here")),
            }
        }
    }

    /// Moves past a word of a document type.
    fn word(&mut self) -> Result<(), XmlFault> {
        let rest = self.rest();
        let len = rest.iter().take_while(|byte| is_name(**byte)).count();
        if len == rest.len() {
            return Err(XmlFault::End);
        }
        match &rest[..len] {
            b"SYSTEM" | b"PUBLIC" => Err(XmlFault::At("something that stands elsewhere")),
            // Some parsers read a comment from here.
            [b'-', ..] => Err(XmlFault::At("no name")),
            _ => {
                self.at += len;
                Ok(())
            }
        }
    }

    /// Emits a quoted text in a document type, up to `end`, as an attribute and as a text. The text may be an entity,
    /// or the default value of an attribute.
    fn declared(&mut self, end: usize) -> Result<(), XmlFault> {
        self.one_more()?;
        let text = &self.body[self.at..end];
        let decoded = self.decode(end)?;
        let text = if decoded { &self.decoded } else { text };
        self.sink.attribute(text);
        if !text.is_empty() {
            self.sink.text(text);
        }
        self.at = end;
        Ok(())
    }

    /// Returns true if rules might see other text than the origin: the document declares an encoding in which
    /// bytes that look like ASCII may be other characters, or it declares the encoding in a way that parsers read
    /// differently.
    fn is_in_other_letters(&self) -> bool {
        let rest = self.rest();
        if !rest.starts_with(b"<?xml") || !rest.get(5).is_some_and(|byte| is_white(*byte)) {
            return false;
        }
        let end = memmem::find(rest, b"?>").unwrap_or(rest.len());
        let Some(at) = memmem::find(&rest[..end], b"encoding") else { return false };
        let behind = &rest[at + 8..end];
        // The word `encoding` has no effect in the value of another pseudo attribute, but some parsers may find it
        // there.
        let plain = is_white(rest[at - 1]) && memmem::find(behind, b"encoding").is_none();
        let Some(name) = plain.then(|| quoted(behind)).flatten() else { return true };
        let name = name.to_ascii_lowercase();
        // `latin-greek-1` must not be accepted: its bytes below 128 are not ASCII.
        let latin = name.strip_prefix(b"latin").map(|rest| rest.strip_prefix(b"-").unwrap_or(rest));
        let is_latin = latin.is_some_and(|number| number.first().is_some_and(u8::is_ascii_digit));
        !is_latin && !LIKE_ASCII.iter().any(|known| name.starts_with(known))
    }

    /// Reads the text between two pieces of markup.
    fn characters(&mut self, text: &'a [u8]) -> Result<(), XmlFault> {
        if self.open.is_empty() {
            if let Some(wrong) = text.iter().position(|byte| !is_white(*byte)) {
                self.at += wrong;
                return Err(XmlFault::At("text outside of the document's element"));
            }
            self.at += text.len();
            return Ok(());
        }
        let end = self.at + text.len();
        if self.decode(end)? {
            let decoded = std::mem::take(&mut self.decoded);
            self.give(&decoded);
            self.decoded = decoded;
        } else {
            self.give(text);
        }
        self.at = end;
        Ok(())
    }

    fn give(&mut self, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        if self.secret.is_some() {
            self.sink.secret(text);
        }
        self.sink.text(text);
        if let Some(leaf) = &mut self.leaf {
            leaf.extend_from_slice(text);
        }
    }

    /// Decodes the text before `end`. Returns true if `decoded` holds the result, and false if the text has no
    /// references. On an error, the reader stops at the position of the error.
    fn decode(&mut self, end: usize) -> Result<bool, XmlFault> {
        let text = &self.body[self.at..end];
        if let Some(wrong) = text.iter().position(|byte| *byte < b' ' && !is_white(*byte)) {
            self.at += wrong;
            return Err(XmlFault::At("a character that XML does not allow"));
        }
        if memchr(b'&', text).is_none() {
            self.at = end;
            return Ok(false);
        }
        self.decoded.clear();
        while self.at < end {
            let text = &self.body[self.at..end];
            let len = memchr(b'&', text).unwrap_or(text.len());
            self.decoded.extend_from_slice(&text[..len]);
            self.at += len;
            if self.at < end {
                self.reference(end)?;
            }
        }
        Ok(true)
    }

    /// Decodes the reference at an `&`.
    fn reference(&mut self, end: usize) -> Result<(), XmlFault> {
        let text = &self.body[self.at + 1..end];
        let Some(len) = memchr(b';', &text[..text.len().min(12)]) else {
            let cut = end == self.body.len() && text.len() < 12;
            return Err(if cut { XmlFault::End } else { XmlFault::At("a reference without end") });
        };
        let code = match &text[..len] {
            b"lt" => u32::from(b'<'),
            b"gt" => u32::from(b'>'),
            b"amp" => u32::from(b'&'),
            b"quot" => u32::from(b'"'),
            b"apos" => u32::from(b'\''),
            [b'#', b'x', digits @ ..] => number(digits, 16),
            [b'#', digits @ ..] => number(digits, 10),
            _ => return Err(XmlFault::At("an entity that is not known here")),
        };
        let allowed = |character: &char| *character >= ' ' || matches!(character, '\t' | '\n' | '\r');
        let Some(character) = char::from_u32(code).filter(allowed) else {
            return Err(XmlFault::At("a reference to no character"));
        };
        let mut buffer = [0; 4];
        self.decoded.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
        self.at += len + 2;
        Ok(())
    }

    fn name(&mut self) -> Result<(usize, usize), XmlFault> {
        let start = self.at;
        let rest = self.rest();
        let len = rest.iter().take_while(|byte| is_name(**byte)).count();
        if len == rest.len() {
            return Err(XmlFault::End);
        }
        if len == 0 || matches!(rest[0], b'-' | b'.' | b'0'..=b'9') {
            return Err(XmlFault::At("no name"));
        }
        self.at += len;
        Ok((start, self.at))
    }

    fn one_more(&mut self) -> Result<(), XmlFault> {
        if self.count == self.limits.arguments {
            return Err(XmlFault::TooMany);
        }
        self.count += 1;
        Ok(())
    }

    fn start(&mut self) -> Result<(), XmlFault> {
        if self.root && self.open.is_empty() {
            return Err(XmlFault::At("a second element beside that of the document"));
        }
        if self.open.len() == self.limits.depth {
            return Err(XmlFault::TooDeep);
        }
        self.at += 1;
        let name = self.name()?;
        self.root = true;
        if self.secret.is_none() && self.sink.is_secret(&self.body[name.0..name.1]) {
            self.secret = Some(self.open.len());
        }
        self.open.push(OpenElement { name, path: self.path.len() });
        self.path.push(b'.');
        self.path.extend_from_slice(&self.body[name.0..name.1]);
        if self.path.len() > MAX_PATH {
            return Err(XmlFault::TooLong);
        }
        self.is_leaf = true;
        if let Some(leaf) = &mut self.leaf {
            leaf.clear();
        }
        loop {
            let white = self.white();
            match self.peek()? {
                b'>' => {
                    self.at += 1;
                    return Ok(());
                }
                b'/' => {
                    self.at += 1;
                    if self.peek()? != b'>' {
                        return Err(XmlFault::At("`/` within a tag"));
                    }
                    self.at += 1;
                    return self.leave();
                }
                _ if white => self.attribute()?,
                _ => return Err(XmlFault::At("no white space before an attribute")),
            }
        }
    }

    fn attribute(&mut self) -> Result<(), XmlFault> {
        let name = self.name()?;
        self.white();
        if self.peek()? != b'=' {
            return Err(XmlFault::At("an attribute without value"));
        }
        self.at += 1;
        self.white();
        let quote = self.peek()?;
        if !matches!(quote, b'"' | b'\'') {
            return Err(XmlFault::At("a value without quotes"));
        }
        self.at += 1;
        let rest = self.rest();
        let len = memchr2(quote, b'<', rest).ok_or(XmlFault::End)?;
        if rest[len] == b'<' {
            self.at += len;
            return Err(XmlFault::At("`<` in the value of an attribute"));
        }
        self.one_more()?;
        let end = self.at + len;
        let plain = !self.decode(end)?;
        let value = if plain { &rest[..len] } else { &self.decoded };
        if value.len() >= SECRET_LEAST
            && (self.secret.is_some() || self.sink.is_secret(&self.body[name.0..name.1]))
        {
            self.sink.secret(value);
        }
        self.sink.attribute(value);
        self.at = end + 1;
        Ok(())
    }

    fn end(&mut self) -> Result<(), XmlFault> {
        let start = self.at;
        self.at += 2;
        let name = self.name()?;
        let Some(open) = self.open.last() else { return Err(XmlFault::At("an end without beginning")) };
        if self.body[open.name.0..open.name.1] != self.body[name.0..name.1] {
            self.at = start;
            return Err(XmlFault::At("the end of another element"));
        }
        self.white();
        if self.peek()? != b'>' {
            return Err(XmlFault::At("something in an end tag"));
        }
        self.at += 1;
        self.leave()
    }

    /// Handles the end of the innermost element.
    fn leave(&mut self) -> Result<(), XmlFault> {
        if self.is_leaf && self.leaf.is_some() {
            self.one_more()?;
        }
        if let (Some(leaf), true) = (&self.leaf, self.is_leaf) {
            self.sink.argument(&self.path, leaf);
        }
        self.is_leaf = false;
        if let Some(open) = self.open.pop() {
            self.path.truncate(open.path);
        }
        if self.secret == Some(self.open.len()) {
            self.secret = None;
        }
        Ok(())
    }
}

/// The character code that the digits denote. Returns an invalid code if the digits are malformed or too many.
fn number(digits: &[u8], radix: u32) -> u32 {
    let text = std::str::from_utf8(digits).unwrap_or_default();
    let is_digits = !text.is_empty() && text.chars().all(|digit| digit.is_digit(radix));
    if is_digits { u32::from_str_radix(text, radix).unwrap_or(u32::MAX) } else { u32::MAX }
}

//! JSON (RFC 8259).

use super::{BodyError, Limits, Sink};

/// What the document itself is called.
const ROOT: &str = "json";
/// The longest path to a value, bytes; a longer one is an error. Each value is handed on with its path.
const MAX_PATH: usize = 8192;
/// What a member without a name is called.
const NO_NAME: &[u8] = b"empty-key";

/// Each number, text, truth value, null and empty object or array (as an empty text) under its path, as ModSecurity 3 names it:
/// `{"a": {"b": [1]}}` is `json.a.b.array_0`. Numbers are as written, of texts the escapes are decoded, and members of the
/// same name are all there. If not the whole body is given, it is no error that it ends too early.
pub fn json(body: &[u8], whole: bool, limits: &Limits, sink: &mut dyn Sink) -> Result<(), BodyError> {
    let (valid, wrong) = match std::str::from_utf8(body) {
        Ok(_) => (body, None),
        Err(error) => (&body[..error.valid_up_to()], Some(error)),
    };
    let mut reader = Reader {
        body: valid,
        at: 0,
        path: ROOT.as_bytes().to_vec(),
        containers: Vec::new(),
        scratch: Vec::new(),
        count: 0,
        limits,
        sink,
    };
    let cut = !whole && wrong.is_none_or(|error| error.error_len().is_none());
    match (reader.document(), wrong) {
        (Ok(()), None) => Ok(()),
        (Err(Fault::End), _) if cut => Ok(()),
        (Ok(()) | Err(Fault::End), Some(_)) => {
            Err(BodyError::new("JSON", format_args!("what starts at byte {} is not UTF-8", valid.len())))
        }
        (Err(fault), _) => Err(explain(&fault, valid, reader.at, limits)),
    }
}

fn explain(fault: &Fault, body: &[u8], at: usize, limits: &Limits) -> BodyError {
    match fault {
        Fault::End => BodyError::new("JSON", "the document ends too early"),
        Fault::Unexpected(what) => {
            let found = body.get(at).copied().unwrap_or_default().escape_ascii();
            BodyError::new("JSON", format_args!("`{found}` at byte {at} instead of {what}"))
        }
        Fault::TooDeep => {
            BodyError::limit("JSON", format_args!("more than {} levels: depth limit exceeded", limits.depth))
        }
        Fault::TooMany => BodyError::limit("JSON", format_args!("more than {} values", limits.arguments)),
        Fault::TooLong => {
            BodyError::limit("JSON", format_args!("the path to a value is longer than {MAX_PATH} bytes"))
        }
    }
}

enum Fault {
    End,
    /// Something else than this stands at the place of the reader.
    Unexpected(&'static str),
    TooDeep,
    TooMany,
    TooLong,
}

struct Container {
    array: bool,
    /// How many elements or members have begun.
    begun: usize,
    /// How long the path to it is.
    path: usize,
}

struct Reader<'a> {
    body: &'a [u8],
    at: usize,
    /// Where in the document it is.
    path: Vec<u8>,
    containers: Vec<Container>,
    /// The text that is being decoded.
    scratch: Vec<u8>,
    count: usize,
    limits: &'a Limits,
    sink: &'a mut dyn Sink,
}

impl Reader<'_> {
    fn document(&mut self) -> Result<(), Fault> {
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
        match self.white() {
            Ok(_) => Err(Fault::Unexpected("the end of the document")),
            Err(_) => Ok(()),
        }
    }

    /// The next byte that is no white space.
    fn white(&mut self) -> Result<u8, Fault> {
        while let Some(&byte) = self.body.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Ok(byte);
            }
            self.at += 1;
        }
        Err(Fault::End)
    }

    /// A value, or the beginning of a container.
    fn value(&mut self) -> Result<(), Fault> {
        match self.white()? {
            b'{' => self.open(false),
            b'[' => self.open(true),
            b'"' => {
                let plain = self.text()?;
                self.count()?;
                let value = match plain {
                    Some((start, end)) => &self.body[start..end],
                    None => &self.scratch,
                };
                self.sink.argument(&self.path, value);
                Ok(())
            }
            b't' => self.word(b"true", b"true"),
            b'f' => self.word(b"false", b"false"),
            b'n' => self.word(b"null", b""),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(Fault::Unexpected("a value")),
        }
    }

    fn count(&mut self) -> Result<(), Fault> {
        if self.count == self.limits.arguments {
            return Err(Fault::TooMany);
        }
        self.count += 1;
        Ok(())
    }

    fn open(&mut self, array: bool) -> Result<(), Fault> {
        if self.containers.len() == self.limits.depth {
            return Err(Fault::TooDeep);
        }
        self.at += 1;
        self.containers.push(Container { array, begun: 0, path: self.path.len() });
        Ok(())
    }

    /// Ends a container in which `begun` elements or members have begun. One that is empty is an empty text, so that rules
    /// see the names that lead to it; of a document that is empty there are none.
    fn close(&mut self, begun: usize) -> Result<(), Fault> {
        self.at += 1;
        self.containers.pop();
        if begun == 0 && !self.containers.is_empty() {
            self.count()?;
            self.sink.argument(&self.path, b"");
        }
        Ok(())
    }

    /// The next element of an array, or its end.
    fn element(&mut self, begun: usize) -> Result<(), Fault> {
        match (self.white()?, begun) {
            (b']', _) => return self.close(begun),
            (b',', 1..) => self.at += 1,
            (_, 0) => {}
            _ => return Err(Fault::Unexpected("`,` or `]`")),
        }
        self.path.extend_from_slice(b".array_");
        push_number(&mut self.path, begun);
        self.check_path()?;
        self.value()
    }

    /// The next member of an object, or its end.
    fn member(&mut self, begun: usize) -> Result<(), Fault> {
        let first = begun == 0;
        match self.white()? {
            b'}' => return self.close(begun),
            b',' if !first => {
                self.at += 1;
                self.white()?;
            }
            b'"' if first => {}
            _ if first => return Err(Fault::Unexpected("a name or `}`")),
            _ => return Err(Fault::Unexpected("`,` or `}`")),
        }
        if self.body.get(self.at) != Some(&b'"') {
            return Err(Fault::Unexpected("a name"));
        }
        let plain = self.text()?;
        let name = match plain {
            Some((start, end)) => &self.body[start..end],
            None => &self.scratch,
        };
        self.path.push(b'.');
        self.path.extend_from_slice(if name.is_empty() { NO_NAME } else { name });
        self.check_path()?;
        if self.white()? != b':' {
            return Err(Fault::Unexpected("`:`"));
        }
        self.at += 1;
        self.value()
    }

    fn check_path(&self) -> Result<(), Fault> {
        if self.path.len() > MAX_PATH { Err(Fault::TooLong) } else { Ok(()) }
    }

    fn word(&mut self, word: &'static [u8], value: &[u8]) -> Result<(), Fault> {
        for expected in word {
            match self.body.get(self.at) {
                Some(byte) if byte == expected => self.at += 1,
                Some(_) => return Err(Fault::Unexpected("`true`, `false` or `null`")),
                None => return Err(Fault::End),
            }
        }
        self.count()?;
        self.sink.argument(&self.path, value);
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let count = self.body[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return Err(if self.at == self.body.len() { Fault::End } else { Fault::Unexpected("a digit") });
        }
        self.at += count;
        Ok(())
    }

    fn number(&mut self) -> Result<(), Fault> {
        let start = self.at;
        self.at += usize::from(self.body[self.at] == b'-');
        if self.body.get(self.at) == Some(&b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.body.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.body.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.body.get(self.at), Some(b'+' | b'-')));
            self.digits()?;
        }
        self.count()?;
        self.sink.argument(&self.path, &self.body[start..self.at]);
        Ok(())
    }

    /// A text at its opening quote: where it is, if it stands for itself; otherwise it has been decoded.
    fn text(&mut self) -> Result<Option<(usize, usize)>, Fault> {
        self.at += 1;
        let start = self.at;
        let mut decoded = false;
        let mut copied = start;
        loop {
            let rest = &self.body[self.at..];
            let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
            let Some(len) = rest.iter().position(ends) else {
                self.at = self.body.len();
                return Err(Fault::End);
            };
            self.at += len;
            match rest[len] {
                b'"' => {
                    let end = self.at;
                    self.at += 1;
                    if !decoded {
                        return Ok(Some((start, end)));
                    }
                    self.scratch.extend_from_slice(&self.body[copied..end]);
                    return Ok(None);
                }
                b'\\' => {
                    if !decoded {
                        decoded = true;
                        self.scratch.clear();
                    }
                    self.scratch.extend_from_slice(&self.body[copied..self.at]);
                    self.at += 1;
                    self.escape()?;
                    copied = self.at;
                }
                _ => return Err(Fault::Unexpected("a character that may stand in a text")),
            }
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<(), Fault> {
        let byte = match self.body.get(self.at).ok_or(Fault::End)? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 0x08,
            b'f' => 0x0c,
            other @ (b'"' | b'\\' | b'/') => *other,
            b'u' => {
                self.at += 1;
                let code = self.character()?;
                let mut buffer = [0; 4];
                self.scratch.extend_from_slice(code.encode_utf8(&mut buffer).as_bytes());
                return Ok(());
            }
            _ => return Err(Fault::Unexpected("an escape")),
        };
        self.at += 1;
        self.scratch.push(byte);
        Ok(())
    }

    /// The character of `\uHHHH`, or of two such that are one; half of one is U+FFFD.
    fn character(&mut self) -> Result<char, Fault> {
        let high = self.code()?;
        let mut code = u32::from(high);
        if (0xd800..0xdc00).contains(&high) && self.body[self.at..].starts_with(b"\\u") {
            let after = self.at;
            self.at += 2;
            let low = self.code()?;
            if (0xdc00..0xe000).contains(&low) {
                code = 0x10000 + ((u32::from(high) - 0xd800) << 10) + (u32::from(low) - 0xdc00);
            } else {
                self.at = after;
            }
        }
        Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn code(&mut self) -> Result<u16, Fault> {
        let mut code = 0;
        for _ in 0..4 {
            let byte = *self.body.get(self.at).ok_or(Fault::End)?;
            let digit = char::from(byte).to_digit(16).ok_or(Fault::Unexpected("a hexadecimal digit"))?;
            code = code << 4 | digit as u16;
            self.at += 1;
        }
        Ok(code)
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
    path[start..].reverse();
}

//! The texts, names, numbers and words of JSON.

use super::{JsonFault, JsonReader};

/// A quoted text in its original form.
#[derive(Clone, Copy)]
pub(super) struct JsonText {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Set if the text has no escapes. Otherwise the decoded text is in the scratch buffer.
    pub(super) plain: bool,
    /// Set if parsers disagree about one of its escapes.
    odd: bool,
}

/// A decoded escape.
struct JsonEscape {
    /// The number of bytes after the backslash that belong to the escape.
    length: usize,
    /// If the escape violates the standard: the position of the error, in bytes after the backslash, and the form
    /// that the standard requires.
    wrong: Option<(usize, &'static str)>,
}

impl JsonReader<'_> {
    /// Reads a text at its opening quote. A text with escapes is decoded into the scratch buffer.
    pub(super) fn text(&mut self, quote: u8, instead_of: &'static str) -> Result<JsonText, JsonFault> {
        if quote != b'"' {
            self.odd(instead_of);
        }
        self.at += 1;
        let mut text = JsonText { start: self.at, end: self.at, plain: true, odd: false };
        let mut copied = self.at;
        let ends = |byte: &u8| *byte == quote || matches!(byte, b'\\' | 0..=0x1f);
        loop {
            let rest = self.rest();
            let Some(len) = rest.iter().position(ends) else {
                self.at = self.body.len();
                return Err(JsonFault::End);
            };
            self.at += len;
            match rest.get(len..).unwrap_or_default() {
                [b'\\', behind @ ..] => {
                    if std::mem::replace(&mut text.plain, false) {
                        self.scratch.clear();
                    }
                    self.scratch.extend_from_slice(self.body.get(copied..self.at).unwrap_or_default());
                    self.at += 1;
                    let escape = escape(behind, &mut self.scratch)?;
                    if let Some((offset, instead_of)) = escape.wrong {
                        text.odd = true;
                        self.odd_at(self.at + offset, instead_of);
                    }
                    self.at += escape.length;
                    copied = self.at;
                }
                [byte, ..] if *byte == quote => {
                    text.end = self.at;
                    if !text.plain {
                        self.scratch.extend_from_slice(self.body.get(copied..text.end).unwrap_or_default());
                    }
                    self.at += 1;
                    return Ok(text);
                }
                _ => {
                    self.odd("a character that may stand in a text");
                    self.at += 1;
                }
            }
        }
    }

    /// Emits a text as the value of the path, in all readings that parsers differ about.
    pub(super) fn hand_on(&mut self, text: JsonText) -> Result<(), JsonFault> {
        self.count()?;
        let raw = self.body.get(text.start..text.end).unwrap_or_default();
        let value = if text.plain { raw } else { &self.scratch };
        self.sink.argument(&self.path, value);
        // Some parsers drop bytes that are not valid UTF-8.
        let valid = (!self.is_utf8 && std::str::from_utf8(value).is_err())
            .then(|| value.utf8_chunks().flat_map(|chunk| chunk.valid().bytes()).collect::<Vec<u8>>());
        let others = text.odd.then(|| [without_backslashes(raw), raw.to_vec()]);
        for other in valid.into_iter().chain(others.into_iter().flatten()) {
            self.count()?;
            self.sink.value(&self.path, &other);
        }
        Ok(())
    }

    /// Reads a number, a word, or an unquoted text, which lenient parsers accept.
    pub(super) fn plain(&mut self) -> Result<(), JsonFault> {
        let start = self.at;
        if self.standard()? {
            let value = self.body.get(start..self.at).unwrap_or_default();
            self.count()?;
            self.sink.argument(&self.path, if value == b"null" { b"" } else { value });
            return Ok(());
        }
        let rest = self.body.get(start..).unwrap_or_default();
        let value = rest.get(..plain_length(rest)).unwrap_or_default();
        if value.is_empty() {
            return Err(self.stop("a value"));
        }
        self.at = start + value.len();
        let value = value.trim_ascii_end();
        self.count()?;
        self.sink.argument(&self.path, value);
        if value.contains(&b'\\') {
            self.count()?;
            self.sink.value(&self.path, &unescaped(value));
        }
        Ok(())
    }

    /// Reads a number, `true`, `false` or `null` in the spelling of the standard. Returns false if there is no such
    /// value.
    fn standard(&mut self) -> Result<bool, JsonFault> {
        let is_one = match self.rest() {
            [b't', ..] => self.word(b"true")?,
            [b'f', ..] => self.word(b"false")?,
            [b'n', ..] => self.word(b"null")?,
            [b'-' | b'0'..=b'9', ..] => self.number()?,
            _ => {
                self.odd("a value");
                false
            }
        };
        let ends = |byte: &u8| byte.is_ascii_whitespace() || b",;:]}[{\"'/#".contains(byte);
        if is_one && !self.rest().first().is_none_or(ends) {
            self.odd("the end of the value");
            return Ok(false);
        }
        Ok(is_one)
    }

    fn word(&mut self, word: &'static [u8]) -> Result<bool, JsonFault> {
        for expected in word {
            match self.body.get(self.at) {
                Some(byte) if byte == expected => self.at += 1,
                Some(_) => {
                    self.odd("`true`, `false` or `null`");
                    return Ok(false);
                }
                None => return Err(JsonFault::End),
            }
        }
        Ok(true)
    }

    fn digits(&mut self) -> Result<bool, JsonFault> {
        let rest = self.rest();
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        match (count, rest.is_empty()) {
            (0, true) => Err(JsonFault::End),
            (0, false) => {
                self.odd("a digit");
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    fn number(&mut self) -> Result<bool, JsonFault> {
        self.at += usize::from(self.rest().first() == Some(&b'-'));
        if self.rest().first() == Some(&b'0') {
            self.at += 1;
        } else if !self.digits()? {
            return Ok(false);
        }
        if self.rest().first() == Some(&b'.') {
            self.at += 1;
            if !self.digits()? {
                return Ok(false);
            }
        }
        if matches!(self.rest().first(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.rest().first(), Some(b'+' | b'-')));
            return self.digits();
        }
        Ok(true)
    }

    /// Reads a name without quotes.
    pub(super) fn plain_name(&mut self, first: u8) -> Result<(), JsonFault> {
        let rest = self.rest();
        let begins = first.is_ascii_alphanumeric() || b"_$-+.@*".contains(&first) || first >= 0x80;
        if !begins && !rest.starts_with(b"\\u") {
            return Err(self.stop("a name"));
        }
        let ends = |byte: &u8| byte.is_ascii_control() && *byte != b'\t' || b":=,{}[]\"".contains(byte);
        let length = rest.iter().position(ends).unwrap_or(rest.len());
        self.at += length;
        let name = rest.get(..length).unwrap_or_default().trim_ascii_end();
        self.path.extend_from_slice(&unescaped(name));
        Ok(())
    }
}

/// The length of the value without quotes at the start of a text.
fn plain_length(text: &[u8]) -> usize {
    let mut before = b' ';
    let ends = |(at, byte): (usize, &u8)| {
        let is_comment = || match text.get(at..at + 2) {
            Some(b"/*") => true,
            Some([b'/', b'/'] | [b'#', _]) => matches!(before, b' ' | b'\t'),
            _ => false,
        };
        let ends = b",;]}".contains(byte) || byte.is_ascii_control() && *byte != b'\t' || is_comment();
        before = *byte;
        ends
    };
    text.iter().enumerate().position(ends).unwrap_or(text.len())
}

/// Decodes the escape after a backslash by the rules of JavaScript.
fn escape(behind: &[u8], out: &mut Vec<u8>) -> Result<JsonEscape, JsonFault> {
    const NONE: &str = "an escape";
    let byte = *behind.first().ok_or(JsonFault::End)?;
    if let Some(byte) = simple(byte) {
        out.push(byte);
        return Ok(JsonEscape { length: 1, wrong: None });
    }
    let mut wrong = (0, NONE);
    if byte == b'u' {
        let digits = behind.iter().skip(1).take(4).take_while(|byte| byte.is_ascii_hexdigit()).count();
        match behind.get(1 + digits) {
            _ if digits == 4 => {
                let (code, length) = character(behind);
                push(code, out);
                return Ok(JsonEscape { length, wrong: None });
            }
            None => return Err(JsonFault::End),
            Some(_) => wrong = (1 + digits, "a hexadecimal digit"),
        }
    }
    let length = match behind {
        [b'x', ..] if hexadecimal(behind, 1, 2).is_some() => {
            push(hexadecimal(behind, 1, 2), out);
            3
        }
        [b'U', ..] if hexadecimal(behind, 1, 8).is_some() => {
            push(hexadecimal(behind, 1, 8), out);
            9
        }
        [b'u', b'{', inner @ ..] if memchr::memchr(b'}', inner).is_some_and(|end| end <= 8) => {
            let digits = memchr::memchr(b'}', inner).unwrap_or_default();
            push(hexadecimal(inner, 0, digits), out);
            digits + 3
        }
        [b'u', inner @ ..] if general_integer(inner).is_some() => {
            push(general_integer(inner), out);
            5
        }
        [b'0'..=b'7', ..] => {
            let digits = behind.iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            let octal = |code: u32, byte: &u8| code * 8 + u32::from(byte - b'0');
            push(Some(behind.iter().take(digits).fold(0, octal)), out);
            digits
        }
        [b'v', ..] => {
            out.push(0x0b);
            1
        }
        // A line end after a backslash stands for nothing.
        [b'\r', b'\n', ..] => 2,
        [b'\r' | b'\n', ..] => 1,
        [0xe2, 0x80, 0xa8 | 0xa9, ..] => 3,
        _ => {
            out.push(byte);
            1
        }
    };
    Ok(JsonEscape { length, wrong: Some(wrong) })
}

/// The character of a single-letter escape.
fn simple(byte: u8) -> Option<u8> {
    Some(match byte {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 0x08,
        b'f' => 0x0c,
        b'"' | b'\\' | b'/' => byte,
        _ => return None,
    })
}

/// The number that four characters denote for parsers that use a general integer function: such functions
/// allow a sign, blanks, and underscores among the digits.
fn general_integer(text: &[u8]) -> Option<u32> {
    let digits: Vec<u8> =
        text.get(..4)?.iter().copied().filter(|byte| !matches!(byte, b'+' | b' ' | b'_')).collect();
    hexadecimal(&digits, 0, digits.len()).filter(|_| !digits.is_empty())
}

/// The number that this many hexadecimal digits at a position denote.
fn hexadecimal(text: &[u8], at: usize, digits: usize) -> Option<u32> {
    let digits = text.get(at..at + digits).filter(|digits| !digits.is_empty())?;
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    digits.iter().try_fold(0_u32, |code, byte| Some(code.checked_mul(16)? + digit(byte)?))
}

/// The character that `uHHHH`, or a pair of these (surrogates), denotes, and the length of the escape.
fn character(behind: &[u8]) -> (Option<u32>, usize) {
    let code = hexadecimal(behind, 1, 4);
    let Some(high) = code.filter(|code| (0xd800..0xdc00).contains(code)) else { return (code, 5) };
    let second = behind.get(5..).filter(|rest| rest.starts_with(b"\\u"));
    let low = second.and_then(|rest| hexadecimal(rest, 2, 4)).filter(|low| (0xdc00..0xe000).contains(low));
    match low {
        Some(low) => (Some(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)), 11),
        None => (code, 5),
    }
}

/// Appends a character; an invalid code becomes U+FFFD.
fn push(code: Option<u32>, out: &mut Vec<u8>) {
    let character = code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

/// A text with its escapes decoded.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    loop {
        let plain = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
        let (before, behind) = rest.split_at(plain);
        out.extend_from_slice(before);
        let Some(behind) = behind.get(1..) else { return out };
        let length = escape(behind, &mut out).map_or(behind.len(), |escape| escape.length);
        rest = behind.get(length..).unwrap_or_default();
    }
}

/// The text for parsers that drop the backslash of an unknown escape.
fn without_backslashes(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    loop {
        let plain = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
        let (before, behind) = rest.split_at(plain);
        out.extend_from_slice(before);
        rest = match behind {
            [b'\\', b'u', ..] if hexadecimal(behind, 2, 4).is_some() => {
                push(hexadecimal(behind, 2, 4), &mut out);
                behind.get(6..).unwrap_or_default()
            }
            [b'\\', byte, after @ ..] => {
                out.push(simple(*byte).unwrap_or(*byte));
                after
            }
            _ => return out,
        };
    }
}

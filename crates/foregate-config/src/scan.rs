//! The tokens of KDL 2 (<https://kdl.dev/spec/>).
//!
//! One scanner serves the reader and the formatter. It finds the start and end of tokens; [`super::string`] decodes
//! strings with escapes on demand.

use super::document::{Span, SyntaxError};

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// A run of spaces and tabs.
    Space,
    /// One line break.
    Newline,
    /// `//` up to the line break.
    LineComment,
    /// `/* */`. Block comments may be nested.
    BlockComment,
    /// `\` outside of strings: the node goes on in the next line.
    LineContinuation,
    /// `/-`: the next element does not count.
    Slashdash,
    /// `{`.
    Open,
    /// `}`.
    Close,
    /// `;`.
    Semicolon,
    /// `=`.
    Equals,
    /// A bare word.
    Word,
    /// `"..."`.
    Quoted {
        /// Set if the text contains a backslash.
        escapes: bool,
    },
    /// `"""..."""`.
    MultiLine,
    /// `#"..."#`.
    Raw {
        /// The number of `#` on either side.
        hashes: u32,
    },
    /// `#"""..."""#`.
    RawMultiLine {
        /// The number of `#` on either side.
        hashes: u32,
    },
    /// A number.
    Number,
    /// `#true` or `#false`.
    Bool(bool),
    /// `#null`.
    Null,
    /// The end of the file.
    End,
}

impl Token {
    /// Returns true if the token is a string of any form.
    pub(super) fn is_string(self) -> bool {
        matches!(
            self,
            Self::Word | Self::Quoted { .. } | Self::MultiLine | Self::Raw { .. } | Self::RawMultiLine { .. }
        )
    }

    /// Returns true if the token is a value.
    pub(super) fn is_value(self) -> bool {
        self.is_string() || matches!(self, Self::Number | Self::Bool(_) | Self::Null)
    }
}

/// Finds tokens in a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scanner<'s> {
    source: &'s str,
    at: usize,
}

impl<'s> Scanner<'s> {
    /// Starts at the beginning of `source`, after a byte order mark if there is one.
    pub(super) fn new(source: &'s str) -> Self {
        Self { source, at: if source.starts_with('\u{feff}') { 3 } else { 0 } }
    }

    /// Starts at byte `at` of `source`.
    pub(super) fn from(source: &'s str, at: usize) -> Self {
        if at == 0 { Self::new(source) } else { Self { source, at } }
    }

    /// The text that is scanned.
    pub(super) fn source(&self) -> &'s str {
        self.source
    }

    /// The next token and its place.
    pub(super) fn next(&mut self) -> Result<(Token, Span), SyntaxError> {
        let start = self.at;
        let token = self.token()?;
        Ok((token, Span::new(start, self.at)))
    }

    fn token(&mut self) -> Result<Token, SyntaxError> {
        let start = self.at;
        let Some(byte) = self.byte(0) else { return Ok(Token::End) };
        self.check_quote_before()?;
        let single = match byte {
            b'{' => Token::Open,
            b'}' => Token::Close,
            b';' => Token::Semicolon,
            b'=' => Token::Equals,
            b'\\' => Token::LineContinuation,
            b'\n' => Token::Newline,
            b' ' | b'\t' => return Ok(self.spaces()),
            b'"' => return self.quoted(),
            b'#' => return self.hash(),
            b'/' => return self.slash(),
            b'(' => return self.annotation(),
            b')' | b'[' | b']' => {
                let message = format!("`{}` has no meaning here", char::from(byte));
                return Err(SyntaxError::new(Span::new(start, start + 1), message)
                    .help("put a text that contains it in quotes"));
            }
            _ => return self.word_or_number(),
        };
        self.at += 1;
        Ok(single)
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.source.as_bytes().get(self.at + ahead).copied()
    }

    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    /// Refuses a value right after a closing quote. Most often, a `"` within a text has ended the text too early.
    fn check_quote_before(&self) -> Result<(), SyntaxError> {
        if !self.source[..self.at].ends_with('"') {
            return Ok(());
        }
        let rest = self.rest();
        let may_follow = |c: char| {
            matches!(c, '{' | '}' | ';' | '=' | '\\' | ')' | '[' | ']') || is_space(c) || is_newline(c)
        };
        if rest.starts_with(may_follow) || ["//", "/*", "/-"].iter().any(|open| rest.starts_with(open)) {
            return Ok(());
        }
        if rest.starts_with(',') {
            let span = Span::new(self.at, self.at + 1);
            return Err(SyntaxError::new(span, "a comma separates nothing here")
                .help("write a space between values, and `;` or a line break between nodes"));
        }
        // The error marks the value up to the next quote at the latest.
        let len = rest.find(|c| may_follow(c) || c == '"').map_or(rest.len(), |len| len.max(1));
        let message =
            "the text before this has ended: a space is missing, or a `\"` within the text ended it";
        Err(SyntaxError::new(Span::new(self.at, self.at + len), message).help(
            "write `\\\"` for a quote within a text, or `#\"` before and `\"#` behind it all: `rule #\"http.host eq \"a.example\"\"# { ... }`",
        ))
    }

    fn spaces(&mut self) -> Token {
        self.at += self.rest().find(|c| !is_space(c)).unwrap_or(self.rest().len());
        Token::Space
    }

    fn slash(&mut self) -> Result<Token, SyntaxError> {
        match self.byte(1) {
            Some(b'-') => {
                self.at += 2;
                Ok(Token::Slashdash)
            }
            Some(b'/') => {
                let text = &self.rest()[2..];
                let len = text.find(is_newline).unwrap_or(text.len());
                self.check_allowed(self.at + 2, self.at + 2 + len)?;
                self.at += 2 + len;
                Ok(Token::LineComment)
            }
            Some(b'*') => self.block_comment(),
            _ => Err(SyntaxError::new(Span::new(self.at, self.at + 1), "a bare word cannot contain `/`")
                .help("put paths in quotes")),
        }
    }

    fn block_comment(&mut self) -> Result<Token, SyntaxError> {
        let start = self.at;
        let mut depth = 0_usize;
        let mut at = start;
        loop {
            let Some(next) = memchr_two(&self.source.as_bytes()[at..]) else {
                let span = Span::new(start, start + 2);
                return Err(SyntaxError::new(span, "this comment has no end: `*/` is missing")
                    .help("`/*` begins a comment; put a path in quotes, such as `\"/*\"` or `\"/**\"`"));
            };
            at += next;
            match &self.source.as_bytes()[at..at + 2] {
                b"/*" => depth += 1,
                b"*/" => depth -= 1,
                _ => {
                    at += 1;
                    continue;
                }
            }
            at += 2;
            if depth == 0 {
                self.check_allowed(start, at)?;
                self.at = at;
                return Ok(Token::BlockComment);
            }
        }
    }

    fn annotation(&self) -> Result<Token, SyntaxError> {
        let len = self.rest().find([')', '\n']).map_or(1, |len| len + 1);
        Err(SyntaxError::new(Span::new(self.at, self.at + len), "type annotations have no meaning here")
            .help("leave it out; every value has the type that its key asks for"))
    }

    fn hash(&mut self) -> Result<Token, SyntaxError> {
        let start = self.at;
        let hashes = self.rest().bytes().take_while(|byte| *byte == b'#').count();
        if self.byte(hashes) == Some(b'"') {
            return self.raw(hashes);
        }
        let text = &self.rest()[1..];
        let len = text.find(|c| !is_word(c)).unwrap_or(text.len());
        self.at += 1 + len;
        match &text[..len] {
            "true" => Ok(Token::Bool(true)),
            "false" => Ok(Token::Bool(false)),
            "null" => Ok(Token::Null),
            "inf" | "-inf" | "nan" => Ok(Token::Number),
            _ => Err(SyntaxError::new(
                Span::new(start, self.at),
                "expected `#true`, `#false` or `#null` after `#`",
            )
            .help("comments start with `//`; put a text that starts with `#` in quotes")),
        }
    }

    fn quoted(&mut self) -> Result<Token, SyntaxError> {
        let start = self.at;
        if self.rest().starts_with("\"\"\"") {
            self.at += 3;
            self.multi_line_start(start)?;
            return self.multi_line_end(start, "\"\"\"", true).map(|()| Token::MultiLine);
        }
        let bytes = self.source.as_bytes();
        let mut at = start + 1;
        let mut escapes = false;
        loop {
            match bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escapes = true;
                    at += 1;
                    // An escaped line break removes all space around it.
                    let text = self.source.get(at..).unwrap_or_default();
                    let space = text.find(|c| !is_space(c) && !is_newline(c)).unwrap_or(text.len());
                    at += if space > 0 { space } else { text.chars().next().map_or(0, char::len_utf8) };
                }
                Some(byte) if *byte >= 0x20 && byte.is_ascii() && *byte != 0x7f => at += 1,
                Some(_) => {
                    let c = self.source[at..].chars().next().unwrap_or_default();
                    if is_newline(c) {
                        return Err(unclosed(start).help("write a text of several lines between `\"\"\"`"));
                    }
                    self.check_allowed(at, at + c.len_utf8())?;
                    at += c.len_utf8();
                }
                None => return Err(unclosed(start)),
            }
        }
        self.at = at + 1;
        Ok(Token::Quoted { escapes })
    }

    fn raw(&mut self, hashes: usize) -> Result<Token, SyntaxError> {
        let start = self.at;
        let end = format!("\"{}", "#".repeat(hashes));
        self.at += hashes;
        let count = hashes as u32;
        if self.rest().starts_with("\"\"\"") {
            self.at += 3;
            self.multi_line_start(start)?;
            let end = format!("\"\"{end}");
            return self.multi_line_end(start, &end, false).map(|()| Token::RawMultiLine { hashes: count });
        }
        self.at += 1;
        let Some(len) = self.rest().find(&end) else { return Err(unclosed(start)) };
        if self.rest()[..len].contains(is_newline) {
            return Err(unclosed(start).help("write a text of several lines between `#\"\"\"` and `\"\"\"#`"));
        }
        self.check_allowed(self.at, self.at + len)?;
        self.at += len + end.len();
        Ok(Token::Raw { hashes: count })
    }

    fn multi_line_start(&self, start: usize) -> Result<(), SyntaxError> {
        match self.rest().chars().next() {
            Some(c) if is_newline(c) => Ok(()),
            _ => {
                Err(SyntaxError::new(Span::new(start, self.at), "the text begins on the line after `\"\"\"`"))
            }
        }
    }

    fn multi_line_end(&mut self, start: usize, end: &str, escapes: bool) -> Result<(), SyntaxError> {
        let mut at = self.at;
        loop {
            let text = &self.source[at..];
            let Some(next) = text.find(['"', '\\']) else {
                return Err(SyntaxError::new(
                    Span::new(start, self.at),
                    "this text has no end: `\"\"\"` is missing",
                ));
            };
            at += next;
            if self.source[at..].starts_with(end) {
                break;
            }
            at += 1;
            if escapes && self.source.as_bytes()[at - 1] == b'\\' {
                at += self.source[at..].chars().next().map_or(0, char::len_utf8);
            }
        }
        self.check_allowed(self.at, at)?;
        self.at = at + end.len();
        Ok(())
    }

    fn word_or_number(&mut self) -> Result<Token, SyntaxError> {
        let start = self.at;
        let first = self.rest().chars().next().unwrap_or_default();
        if is_newline(first) {
            self.at += if self.rest().starts_with("\r\n") { 2 } else { first.len_utf8() };
            return Ok(Token::Newline);
        }
        if is_space(first) {
            return Ok(self.spaces());
        }
        let bytes = &self.source.as_bytes()[start..];
        let ascii = bytes.iter().take_while(|byte| is_ascii_word(**byte)).count();
        let end = match bytes.get(ascii) {
            Some(byte) if !byte.is_ascii() => {
                let text = self.rest();
                start + text.find(|c| !is_word(c)).unwrap_or(text.len())
            }
            _ => start + ascii,
        };
        if end == start {
            self.check_allowed(start, start + first.len_utf8())?;
        }
        let word = &self.source[start..end];
        check_word(word, start, &self.source[end..])?;
        self.at = end;
        let unsigned = word.strip_prefix(['+', '-']).unwrap_or(word);
        if unsigned.starts_with(|c: char| c.is_ascii_digit()) {
            return if is_number(unsigned) {
                Ok(Token::Number)
            } else {
                Err(SyntaxError::new(Span::new(start, end), format!("`{word}` is not a number")).help(
                    "put values with a unit, addresses and other texts that start with a digit in quotes",
                ))
            };
        }
        if unsigned.strip_prefix('.').is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit())) {
            return Err(SyntaxError::new(Span::new(start, end), "a number starts with a digit"));
        }
        if matches!(word, "true" | "false" | "null" | "inf" | "-inf" | "nan") {
            return Err(SyntaxError::new(Span::new(start, end), format!("`{word}` is not a bare word"))
                .help(format!("write `#{word}`, or `\"{word}\"` for the text")));
        }
        Ok(Token::Word)
    }

    /// Refuses code points that KDL does not allow in a file, such as those that change the direction of text.
    fn check_allowed(&self, start: usize, end: usize) -> Result<(), SyntaxError> {
        let text = &self.source[start..end];
        match text.char_indices().find(|(_, c)| is_disallowed(*c)) {
            None => Ok(()),
            Some((at, c)) => {
                let span = Span::new(start + at, start + at + c.len_utf8());
                let message = format!("the character U+{:04X} may not stand in the file", u32::from(c));
                Err(SyntaxError::new(span, message)
                    .help(format!("write \\u{{{:X}}} in a quoted text", u32::from(c))))
            }
        }
    }
}

/// Refuses bare words that are valid in KDL but always a mistake: words in other quotes, and URLs without
/// quotes, in which KDL takes `//` for the start of a comment.
fn check_word(word: &str, start: usize, rest: &str) -> Result<(), SyntaxError> {
    let span = Span::new(start, start + word.len());
    if word.starts_with('\'') {
        return Err(
            SyntaxError::new(span, "`'` does not begin a text").help("put texts in double quotes: `\"`")
        );
    }
    if word.ends_with(':') && rest.starts_with("//") {
        let message = format!("`{word}` ends here: `//` begins a comment");
        return Err(SyntaxError::new(span, message).help("put URLs in quotes"));
    }
    Ok(())
}

fn unclosed(start: usize) -> SyntaxError {
    SyntaxError::new(Span::new(start, start + 1), "this text has no end: the closing quote is missing")
}

/// The next position at which a block comment may start or end.
fn memchr_two(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|pair| matches!(pair, b"/*" | b"*/"))
}

/// Returns true if `text`, which starts with a digit, is a number of KDL.
fn is_number(text: &str) -> bool {
    let digits = |text: &str, radix: u32| {
        text.starts_with(|c: char| c.is_digit(radix)) && text.chars().all(|c| c == '_' || c.is_digit(radix))
    };
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(rest) = text.strip_prefix(prefix) {
            return digits(rest, radix);
        }
    }
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    digits(whole, 10)
        && fraction.is_none_or(|text| digits(text, 10))
        && exponent.is_none_or(|text| digits(text.strip_prefix(['+', '-']).unwrap_or(text), 10))
}

/// Returns true for white space that does not end a line.
pub(super) fn is_space(c: char) -> bool {
    matches!(
        c,
        '\t' | ' ' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}'
    )
}

/// Returns true for a character that ends a line. CR and LF together are one line break.
pub(super) fn is_newline(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{b}' | '\u{c}' | '\u{2028}' | '\u{2029}')
}

fn is_disallowed(c: char) -> bool {
    matches!(
        c,
        '\0'..='\u{8}'
            | '\u{e}'..='\u{1f}'
            | '\u{7f}'
            | '\u{200e}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
    )
}

fn is_ascii_word(byte: u8) -> bool {
    byte > 0x20
        && byte < 0x7f
        && !matches!(byte, b'\\' | b'/' | b'(' | b')' | b'{' | b'}' | b';' | b'[' | b']' | b'"' | b'#' | b'=')
}

fn is_word(c: char) -> bool {
    if c.is_ascii() { is_ascii_word(c as u8) } else { !is_space(c) && !is_newline(c) && !is_disallowed(c) }
}

//! Splits text into tokens of SQL, for the dialects of several databases at once.

use memchr::{memchr, memmem};

use super::token::{InjectionToken, MAX_TEXT, TokenKind};
use super::words::kind_of;

/// Bytes that end a word.
const WORD_ENDS: &[u8] = b" []{}<>:\\?=@!#~+-*/&|^%(),';\t\n\x0b\x0c\r\"\xa0\0";
/// Bytes that end the name of a variable.
const VARIABLE_ENDS: &[u8] = b" <>:\\?=@!#~+-*/&|^%(),';\t\n\x0b\x0c\r'`\"\0";

/// The assumptions under which an input is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// The quote that is assumed to stand before the input, if any.
    pub(super) quote: Option<u8>,
    /// Set to read by MySQL's rules instead of those of the SQL standard.
    pub(super) mysql: bool,
}

/// Reads tokens one after the other.
pub(super) struct Tokenizer<'a> {
    input: &'a [u8],
    at: usize,
    reading: Reading,
    /// The number of tokens that have been read.
    pub(super) count: usize,
    /// Set if the input has text that MySQL reads differently: `--` without white space, or `#`.
    pub(super) ambiguous: bool,
}

/// A token, or `None` for white space, and the position at which the next token starts.
type ReadToken = (Option<InjectionToken>, usize);

fn token(kind: TokenKind, text: &[u8], next: usize) -> ReadToken {
    (Some(InjectionToken::new(kind, text)), next)
}

fn is_white(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0xa0 | 0)
}

impl<'a> Tokenizer<'a> {
    pub(super) fn new(input: &'a [u8], reading: Reading) -> Self {
        Self { input, at: 0, reading, count: 0, ambiguous: false }
    }

    pub(super) fn next(&mut self) -> Option<InjectionToken> {
        if self.input.is_empty() {
            return None;
        }
        if self.at == 0
            && let Some(quote) = self.reading.quote
        {
            let (token, next) = self.quoted(0, quote, 0);
            self.at = next;
            self.count += 1;
            return token;
        }
        while let Some(&byte) = self.input.get(self.at) {
            let (token, next) = self.read(byte, self.at);
            self.at = next;
            if token.is_some() {
                self.count += 1;
                return token;
            }
        }
        None
    }

    fn read(&mut self, byte: u8, at: usize) -> ReadToken {
        match byte {
            0..=b' ' | 0x7f | 0xa0 => (None, at + 1),
            b'!' | b'&' | b'*' | b':' | b'<'..=b'>' | b'|' => self.operator(at),
            b'"' | b'\'' => self.quoted(at, byte, 1),
            b'#' => self.hash(at),
            b'$' => self.money(at),
            b'%' | b'+' | b'^' | b'~' => self.one(TokenKind::Operator, at),
            b'(' | b')' | b',' | b';' | b'{' | b'}' => self.one(TokenKind::of_letter(byte), at),
            b'-' => self.dash(at),
            b'.' | b'0'..=b'9' => self.number(at),
            b'/' => self.slash(at),
            b'?' | b']' => self.one(TokenKind::Unknown, at),
            b'@' => self.variable(at),
            b'[' => self.bracketed(at),
            b'\\' => self.backslash(at),
            b'`' => self.tick(at),
            b'B' | b'b' => self.digits(at, |byte| matches!(byte, b'0' | b'1')),
            b'X' | b'x' => self.digits(at, |byte| byte.is_ascii_hexdigit()),
            b'E' | b'e' => self.escaped(at),
            b'N' | b'n' => match self.input.get(at + 1) {
                Some(b'\'') if at + 2 < self.input.len() => self.escaped(at),
                _ => self.chosen(at, at + 1),
            },
            b'Q' | b'q' => self.chosen(at, at),
            b'U' | b'u' => self.unicode(at),
            _ => self.word(at),
        }
    }

    fn from(&self, at: usize) -> &'a [u8] {
        self.input.get(at..).unwrap_or_default()
    }

    fn one(&self, kind: TokenKind, at: usize) -> ReadToken {
        token(kind, &self.input[at..=at], at + 1)
    }

    /// Reads a comment up to the end of the line.
    fn line_comment(&self, at: usize) -> ReadToken {
        let rest = self.from(at);
        match memchr(b'\n', rest) {
            Some(len) => token(TokenKind::Comment, &rest[..len], at + len + 1),
            None => token(TokenKind::Comment, rest, self.input.len()),
        }
    }

    fn hash(&mut self, at: usize) -> ReadToken {
        self.ambiguous = true;
        if self.reading.mysql { self.line_comment(at) } else { self.one(TokenKind::Operator, at) }
    }

    fn dash(&mut self, at: usize) -> ReadToken {
        match *self.from(at + 1) {
            [b'-'] => self.line_comment(at),
            [b'-', next, ..] if is_white(next) => self.line_comment(at),
            [b'-', ..] if !self.reading.mysql => {
                self.ambiguous = true;
                self.line_comment(at)
            }
            _ => self.one(TokenKind::Operator, at),
        }
    }

    fn slash(&self, at: usize) -> ReadToken {
        let rest = self.from(at);
        if rest.get(1) != Some(&b'*') {
            return self.one(TokenKind::Operator, at);
        }
        let inner = &rest[2..];
        let (len, nested) = match memmem::find(inner, b"*/") {
            // Databases differ about comments within comments, so these count as malicious.
            Some(end) => (2 + end + 2, memmem::find(&inner[..=end], b"/*").is_some()),
            None => (rest.len(), false),
        };
        // MySQL executes the content of `/*! */`.
        let evil = nested || inner.first() == Some(&b'!');
        token(if evil { TokenKind::Evil } else { TokenKind::Comment }, &rest[..len], at + len)
    }

    fn backslash(&self, at: usize) -> ReadToken {
        match self.from(at) {
            // MySQL reads `\N` as `NULL`.
            [b'\\', b'N', ..] => token(TokenKind::Number, &self.input[at..at + 2], at + 2),
            _ => self.one(TokenKind::Backslash, at),
        }
    }

    fn operator(&self, at: usize) -> ReadToken {
        let rest = self.from(at);
        if rest.len() < 2 {
            return self.one(TokenKind::Operator, at);
        }
        if rest.starts_with(b"<=>") {
            return token(TokenKind::Operator, &rest[..3], at + 3);
        }
        match kind_of(&rest[..2]) {
            TokenKind::None if rest[0] == b':' => self.one(TokenKind::Colon, at),
            TokenKind::None => self.one(TokenKind::Operator, at),
            kind => token(kind, &rest[..2], at + 2),
        }
    }

    /// Reads a quoted text. Its opening quote takes `skip` bytes; 0 if the quote comes before the input. Quotes
    /// within the text are doubled or follow a backslash.
    fn quoted(&self, at: usize, quote: u8, skip: usize) -> ReadToken {
        let text = self.from(at + skip);
        let mut from = 0;
        let (len, close, next) = loop {
            let Some(found) = text.get(from..).and_then(|rest| memchr(quote, rest)) else {
                break (text.len(), 0, self.input.len());
            };
            let end = from + found;
            let backslashes = text[..end].iter().rev().take_while(|byte| **byte == b'\\').count();
            if backslashes % 2 == 1 {
                from = end + 1;
            } else if text.get(end + 1) == Some(&quote) {
                from = end + 2;
            } else {
                break (end, quote, at + skip + end + 1);
            }
        };
        let open = if skip > 0 { quote } else { 0 };
        let token = InjectionToken { open, close, ..InjectionToken::new(TokenKind::Text, &text[..len]) };
        (Some(token), next)
    }

    /// Reads `E'...'` and `N'...'`.
    fn escaped(&self, at: usize) -> ReadToken {
        match self.from(at) {
            [_, b'\'', _, ..] => self.quoted(at, b'\'', 2),
            _ => self.word(at),
        }
    }

    /// Reads `U&'...'`.
    fn unicode(&self, at: usize) -> ReadToken {
        let [_, b'&', b'\'', ..] = self.from(at) else { return self.word(at) };
        let (token, next) = self.quoted(at + 2, b'\'', 1);
        let marked = |token: InjectionToken| InjectionToken {
            open: b'u',
            close: if token.close == 0 { 0 } else { b'u' },
            ..token
        };
        (token.map(marked), next)
    }

    /// Reads Oracle's texts with freely chosen delimiters, such as `q'(...)'`. The `q` is at `letter`.
    fn chosen(&self, at: usize, letter: usize) -> ReadToken {
        let [b'q' | b'Q', b'\'', open, ..] = *self.from(letter) else { return self.word(at) };
        let end = match open {
            0..33 | 0x80.. => return self.word(at),
            b'(' => b')',
            b'[' => b']',
            b'{' => b'}',
            b'<' => b'>',
            other => other,
        };
        let text = self.from(letter + 3);
        let found = memmem::find(text, &[end, b'\'']);
        let close = if found.is_some() { b'q' } else { 0 };
        let len = found.unwrap_or(text.len());
        let next = found.map_or(self.input.len(), |len| letter + 3 + len + 2);
        (
            Some(InjectionToken { open: b'q', close, ..InjectionToken::new(TokenKind::Text, &text[..len]) }),
            next,
        )
    }

    /// Reads `B'...'` and `X'...'`.
    fn digits(&self, at: usize, is_digit: fn(u8) -> bool) -> ReadToken {
        let rest = self.from(at);
        if rest.len() < 3 || rest[1] != b'\'' {
            return self.word(at);
        }
        let len = rest[2..].iter().take_while(|byte| is_digit(**byte) || **byte == 0).count();
        if rest.get(2 + len) != Some(&b'\'') {
            return self.word(at);
        }
        token(TokenKind::Number, &rest[..len + 3], at + len + 3)
    }

    fn bracketed(&self, at: usize) -> ReadToken {
        let rest = self.from(at);
        let len = memchr(b']', rest).map_or(rest.len(), |end| end + 1);
        token(TokenKind::Bareword, &rest[..len], at + len)
    }

    fn word(&self, at: usize) -> ReadToken {
        let rest = self.from(at);
        let is_part = |byte: &&u8| !WORD_ENDS.contains(byte);
        // If a dot or tick follows a known word, the token ends there. This is checked before the end of the whole
        // word is searched, which keeps the time linear for long chains of such words.
        let head = rest.iter().take(MAX_TEXT).take_while(is_part).count();
        for split in (0..head).filter(|split| matches!(rest[*split], b'.' | b'`')) {
            let kind = kind_of(&rest[..split]);
            if !matches!(kind, TokenKind::None | TokenKind::Bareword) {
                return token(kind, &rest[..split], at + split);
            }
        }
        let len = head + rest[head..].iter().take_while(is_part).count();
        let kind = match kind_of(&rest[..len]) {
            TokenKind::None => TokenKind::Bareword,
            kind => kind,
        };
        token(kind, &rest[..len], at + len)
    }

    /// Reads a name in ticks.
    fn tick(&self, at: usize) -> ReadToken {
        let (token, next) = self.quoted(at, b'`', 1);
        let named = |token: InjectionToken| {
            let is_function = kind_of(token.text()) == TokenKind::Function;
            InjectionToken {
                kind: if is_function { TokenKind::Function } else { TokenKind::Bareword },
                ..token
            }
        };
        (token.map(named), next)
    }

    fn variable(&self, at: usize) -> ReadToken {
        let at = at + 1 + usize::from(self.input.get(at + 1) == Some(&b'@'));
        let (token, next) = match self.input.get(at) {
            Some(b'`') => self.tick(at),
            Some(quote @ (b'\'' | b'"')) => self.quoted(at, *quote, 1),
            _ => {
                let rest = self.from(at);
                let len = rest.iter().take_while(|byte| !VARIABLE_ENDS.contains(byte)).count();
                token(TokenKind::Variable, &rest[..len], at + len)
            }
        };
        (token.map(|token| InjectionToken { kind: TokenKind::Variable, ..token }), next)
    }

    fn money(&self, at: usize) -> ReadToken {
        let rest = self.from(at);
        let count = |is: fn(&u8) -> bool| rest[1..].iter().take_while(|byte| is(byte) || **byte == 0).count();
        let digits = count(|byte| matches!(byte, b'0'..=b'9' | b'.' | b','));
        match (digits, rest.get(1)) {
            (_, None) => self.one(TokenKind::Bareword, at),
            (1, Some(b'.')) => self.word(at),
            (1.., _) => token(TokenKind::Number, &rest[..=digits], at + 1 + digits),
            (_, Some(b'$')) => self.dollars(at, 2),
            _ => {
                let name = count(u8::is_ascii_alphabetic);
                match rest.get(name + 1) {
                    Some(b'$') if name > 0 => self.dollars(at, name + 2),
                    _ => self.one(TokenKind::Bareword, at),
                }
            }
        }
    }

    /// Reads a text between two marks of the form `$...$`.
    fn dollars(&self, at: usize, mark: usize) -> ReadToken {
        let (mark, text) = self.from(at).split_at(mark);
        let found = memmem::find(text, mark);
        let len = found.unwrap_or(text.len());
        let close = if found.is_some() { b'$' } else { 0 };
        let next = found.map_or(self.input.len(), |len| at + 2 * mark.len() + len);
        (
            Some(InjectionToken { open: b'$', close, ..InjectionToken::new(TokenKind::Text, &text[..len]) }),
            next,
        )
    }

    fn number(&self, at: usize) -> ReadToken {
        let rest = self.from(at);
        let is_digit: Option<fn(&u8) -> bool> = match rest {
            [b'0', b'x' | b'X', ..] => Some(u8::is_ascii_hexdigit),
            [b'0', b'b' | b'B', ..] => Some(|byte| matches!(byte, b'0' | b'1')),
            _ => None,
        };
        if let Some(is_digit) = is_digit {
            let digits = rest[2..].iter().take_while(|byte| is_digit(byte) || **byte == 0).count();
            let kind = if digits == 0 { TokenKind::Bareword } else { TokenKind::Number };
            return token(kind, &rest[..2 + digits], at + 2 + digits);
        }
        let digits = |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let mut len = digits(0);
        if rest.get(len) == Some(&b'.') {
            len += 1;
            len += digits(len);
            if len == 1 {
                return self.one(TokenKind::Dot, at);
            }
        }
        let mut kind = TokenKind::Number;
        if matches!(rest.get(len), Some(b'e' | b'E')) {
            len += 1;
            len += usize::from(matches!(rest.get(len), Some(b'+' | b'-')));
            let exponent = digits(len);
            len += exponent;
            if exponent == 0 {
                kind = TokenKind::Bareword;
            }
        }
        // Oracle's suffixes `d` and `f` belong to the number before the end of the input, white space, `;` or `u`.
        // Before any other character, they begin a word. In `1fUNION`, `f` is a suffix and `UNION` is the next word.
        if let [b'd' | b'D' | b'f' | b'F', after @ ..] = &rest[len..]
            && after.first().is_none_or(|next| is_white(*next) || matches!(next, b';' | b'u' | b'U'))
        {
            len += 1;
        }
        token(kind, &rest[..len], at + len)
    }
}

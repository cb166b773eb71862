//! Translates patterns from PCRE's syntax, in which rules are written, to that of the `regex` crate.

use super::class::{self, ClassBytes, named_escape};
use super::pattern::PatternError;

/// Translates a pattern to the syntax of the `regex` crate without Unicode. Syntax that both have is kept.
/// Classes and bytes beyond ASCII are written as numbers. Constructs that only PCRE has are errors.
pub(super) fn translate(pattern: &[u8]) -> Result<String, PatternError> {
    let mut cursor = Cursor { pattern, at: 0 };
    let mut out = String::with_capacity(pattern.len() + 16);
    while let Some(byte) = cursor.next() {
        match byte {
            b'\\' => escape(&mut cursor, &mut out)?,
            b'[' => {
                let (set, negated) = class::read(&mut cursor)?;
                set.write(negated, &mut out);
            }
            b'(' => group(&mut cursor, &mut out)?,
            b'*' | b'+' | b'?' => {
                out.push(char::from(byte));
                greed(&mut cursor, &mut out)?;
            }
            b'{' => match counted(cursor.rest()) {
                Some(len) => {
                    out.push('{');
                    out.extend(cursor.rest()[..len].iter().map(|byte| char::from(*byte)));
                    cursor.skip(len);
                    greed(&mut cursor, &mut out)?;
                }
                None => out.push_str("\\{"),
            },
            b'}' | b']' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            0x80.. => literal(byte, &mut out),
            byte => out.push(char::from(byte)),
        }
    }
    Ok(out)
}

/// Writes a byte that matches itself.
fn literal(byte: u8, out: &mut String) {
    if byte.is_ascii_alphanumeric() || byte == b'_' {
        out.push(char::from(byte));
    } else {
        let [high, low] = crate::transform::hex_digits(byte);
        out.extend(['\\', 'x', char::from(high), char::from(low)]);
    }
}

/// Translates the suffix of a quantifier.
fn greed(cursor: &mut Cursor<'_>, out: &mut String) -> Result<(), PatternError> {
    match cursor.peek() {
        Some(b'?') => {
            cursor.next();
            out.push('?');
            Ok(())
        }
        Some(b'+') => Err(PatternError::new(cursor.at(), "possessive quantifiers are not supported")),
        _ => Ok(()),
    }
}

/// The length of `N}`, `N,}` or `N,M}` after an opening brace; `None` if the brace stands for itself.
fn counted(rest: &[u8]) -> Option<usize> {
    let digits = |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut len = digits(0);
    if len == 0 {
        return None;
    }
    if rest.get(len) == Some(&b',') {
        len += 1;
        len += digits(len);
    }
    (rest.get(len) == Some(&b'}')).then_some(len + 1)
}

fn escape(cursor: &mut Cursor<'_>, out: &mut String) -> Result<(), PatternError> {
    match cursor.escape()? {
        EscapeMeaning::Byte(byte) => literal(byte, out),
        EscapeMeaning::Set(set) => set.write(false, out),
        EscapeMeaning::Syntax(syntax) => out.push_str(syntax),
        EscapeMeaning::Quoted(text) => text.iter().for_each(|byte| literal(*byte, out)),
        EscapeMeaning::Nothing => {}
    }
    Ok(())
}

/// Translates the start of a group.
fn group(cursor: &mut Cursor<'_>, out: &mut String) -> Result<(), PatternError> {
    let at = cursor.at() - 1;
    let unsupported = |what: &str| Err(PatternError::new(at, format!("{what} are not supported")));
    if cursor.peek() == Some(b'*') {
        return unsupported("verbs such as `(*UTF8)`");
    }
    if !cursor.eat(b"?") {
        out.push('(');
        return Ok(());
    }
    let rest = cursor.rest();
    match rest {
        [b'#', ..] => {
            let len = rest.iter().position(|byte| *byte == b')');
            let Some(len) = len else { return Err(PatternError::new(at, "this comment has no end")) };
            cursor.skip(len + 1);
            Ok(())
        }
        [b'=' | b'!', ..] => unsupported("look-aheads"),
        [b'<', b'=' | b'!', ..] => unsupported("look-behinds"),
        [b'>', ..] => unsupported("atomic groups"),
        [b'|', ..] => unsupported("groups that share numbers"),
        [b'(', ..] => unsupported("conditions"),
        [b'P', b'=', ..] => unsupported("references back"),
        [b'R' | b'&' | b'+' | b'0'..=b'9', ..] | [b'P', b'>', ..] | [b'-', b'0'..=b'9', ..] => {
            unsupported("recursive patterns")
        }
        [b'C', ..] => unsupported("callouts"),
        [b'P', b'<', ..] => {
            cursor.skip(2);
            name(cursor, b'>', out)
        }
        [b'<', ..] => {
            cursor.skip(1);
            name(cursor, b'>', out)
        }
        [b'\'', ..] => {
            cursor.skip(1);
            name(cursor, b'\'', out)
        }
        _ => flags(cursor, out),
    }
}

fn name(cursor: &mut Cursor<'_>, end: u8, out: &mut String) -> Result<(), PatternError> {
    let at = cursor.at();
    let len = cursor.rest().iter().position(|byte| *byte == end).unwrap_or(0);
    let name = &cursor.rest()[..len];
    if len == 0 || !name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
        return Err(PatternError::new(at, "a group's name consists of letters, digits and `_`"));
    }
    out.push_str("(?P<");
    out.extend(name.iter().map(|byte| char::from(*byte)));
    out.push('>');
    cursor.skip(len + 1);
    Ok(())
}

/// Translates flags, such as `(?i)` and `(?i-s:`, after their question mark.
fn flags(cursor: &mut Cursor<'_>, out: &mut String) -> Result<(), PatternError> {
    let at = cursor.at();
    let len = cursor.rest().iter().take_while(|byte| !matches!(byte, b')' | b':')).count();
    let flags = &cursor.rest()[..len];
    if let Some(other) =
        flags.iter().position(|flag| !matches!(flag, b'i' | b'm' | b's' | b'x' | b'U' | b'-'))
    {
        let flag = flags[other].escape_ascii();
        return Err(PatternError::new(at + other, format!("the flag `{flag}` is not supported")));
    }
    out.push_str("(?");
    out.extend(flags.iter().map(|byte| char::from(*byte)));
    cursor.skip(len);
    match cursor.next() {
        Some(end) => out.push(char::from(end)),
        None => return Err(PatternError::new(at, "this group has no closing parenthesis")),
    }
    Ok(())
}

/// The meaning of an escape.
pub(super) enum EscapeMeaning<'a> {
    Byte(u8),
    Set(ClassBytes),
    /// A position between bytes or a sequence of bytes, in the syntax of the `regex` crate.
    Syntax(&'static str),
    /// `\Q...\E`.
    Quoted(&'a [u8]),
    Nothing,
}

/// A place in a pattern.
pub(super) struct Cursor<'a> {
    pattern: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        &self.pattern[self.at..]
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.pattern.get(self.at + ahead).copied()
    }

    pub(super) fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    pub(super) fn skip(&mut self, len: usize) {
        self.at += len;
    }

    pub(super) fn eat(&mut self, text: &[u8]) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    /// Reads an escape, after its backslash.
    pub(super) fn escape(&mut self) -> Result<EscapeMeaning<'a>, PatternError> {
        let at = self.at - 1;
        let Some(letter) = self.next() else {
            return Err(PatternError::new(at, "the pattern ends after a backslash"));
        };
        if let Some(set) = named_escape(letter) {
            return Ok(EscapeMeaning::Set(set));
        }
        let unsupported = |what: &str| Err(PatternError::new(at, format!("{what} are not supported")));
        Ok(match letter {
            b'A' => EscapeMeaning::Syntax("\\A"),
            b'z' => EscapeMeaning::Syntax("\\z"),
            b'Z' => EscapeMeaning::Syntax("(?:\\n?\\z)"),
            b'b' => EscapeMeaning::Syntax("\\b"),
            b'B' => EscapeMeaning::Syntax("\\B"),
            b'R' => EscapeMeaning::Syntax("(?:\\r\\n|[\\n-\\r\\x85])"),
            b'a' => EscapeMeaning::Byte(0x07),
            b'e' => EscapeMeaning::Byte(0x1b),
            b'f' => EscapeMeaning::Byte(0x0c),
            b'n' => EscapeMeaning::Byte(b'\n'),
            b'r' => EscapeMeaning::Byte(b'\r'),
            b't' => EscapeMeaning::Byte(b'\t'),
            b'x' => EscapeMeaning::Byte(self.hexadecimal(at)?),
            b'0' => EscapeMeaning::Byte(self.octal(at, 2)?),
            b'c' => match self.next() {
                Some(byte) if byte.is_ascii() => EscapeMeaning::Byte(byte.to_ascii_uppercase() ^ 0x40),
                _ => return Err(PatternError::new(at, "`\\c` needs a character of ASCII")),
            },
            b'Q' => {
                let rest = self.rest();
                let len = memchr::memmem::find(rest, b"\\E");
                self.at += len.map_or(rest.len(), |len| len + 2);
                EscapeMeaning::Quoted(&rest[..len.unwrap_or(rest.len())])
            }
            b'E' => EscapeMeaning::Nothing,
            b'1'..=b'9' | b'g' | b'k' => return unsupported("references back"),
            b'p' | b'P' | b'X' => return unsupported("properties of Unicode"),
            b'K' | b'G' => return unsupported("`\\K` and `\\G`"),
            letter if letter.is_ascii_alphanumeric() => {
                let letter = char::from(letter);
                return Err(PatternError::new(at, format!("there is no escape `\\{letter}`")));
            }
            byte => EscapeMeaning::Byte(byte),
        })
    }

    /// Reads `\xHH` with up to two digits, or `\x{HH}`.
    fn hexadecimal(&mut self, at: usize) -> Result<u8, PatternError> {
        let braced = self.eat(b"{");
        let most = if braced { usize::MAX } else { 2 };
        let digits = self.rest().iter().take(most).take_while(|byte| byte.is_ascii_hexdigit());
        let len = digits.count();
        let value = number(&self.rest()[..len], 16);
        self.at += len;
        if braced && (len == 0 || !self.eat(b"}")) {
            return Err(PatternError::new(at, "hexadecimal digits and a brace are missing here"));
        }
        value.ok_or_else(|| PatternError::new(at, "patterns are about bytes, and this is beyond `\\xff`"))
    }

    fn octal(&mut self, at: usize, most: usize) -> Result<u8, PatternError> {
        let len = self.rest().iter().take(most).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
        let value = number(&self.rest()[..len], 8);
        self.at += len;
        value.ok_or_else(|| PatternError::new(at, "patterns are about bytes, and this is beyond `\\377`"))
    }
}

/// Parses digits as a byte; `None` if the number is too large.
fn number(digits: &[u8], radix: u32) -> Option<u8> {
    let digits = digits.iter().filter_map(|byte| char::from(*byte).to_digit(radix));
    let value = digits.fold(0, |value: u32, digit| value.saturating_mul(radix).saturating_add(digit));
    u8::try_from(value).ok()
}

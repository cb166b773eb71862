//! Classes of bytes in the syntax of PCRE.

use std::fmt::Write as _;

use super::pattern::PatternError;
use super::translate::{Cursor, EscapeMeaning};

/// A set of bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ClassBytes([u64; 4]);

impl ClassBytes {
    pub(super) fn of(test: impl Fn(u8) -> bool) -> Self {
        let mut set = Self::default();
        (0..=255).filter(|byte| test(*byte)).for_each(|byte| set.insert(byte));
        set
    }

    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    pub(super) fn has(self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    pub(super) fn complement(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    fn add(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
    }

    /// Writes the class in the syntax of the `regex` crate. All bytes are written as numbers, so that none has a
    /// special meaning.
    pub(super) fn write(self, negated: bool, out: &mut String) {
        out.push_str(if negated { "[^" } else { "[" });
        let mut byte = 0u16;
        while byte < 256 {
            let first = byte;
            while byte < 256 && self.has(byte as u8) {
                byte += 1;
            }
            if byte > first {
                // Writing to a string does not fail.
                let _ = write!(out, "\\x{first:02x}-\\x{:02x}", byte - 1);
            }
            byte += 1;
        }
        out.push(']');
    }
}

/// The set of bytes for a class escape (`\d`, `\s`, ...). A capital letter stands for the complement.
pub(super) fn named_escape(letter: u8) -> Option<ClassBytes> {
    let set = match letter.to_ascii_lowercase() {
        b'd' => ClassBytes::of(|byte| byte.is_ascii_digit()),
        b'w' => ClassBytes::of(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
        b's' => ClassBytes::of(|byte| matches!(byte, b' ' | b'\t'..=b'\r')),
        b'h' => ClassBytes::of(|byte| matches!(byte, b' ' | b'\t' | 0xa0)),
        b'v' => ClassBytes::of(|byte| matches!(byte, b'\n'..=b'\r' | 0x85)),
        b'n' if letter == b'N' => ClassBytes::of(|byte| byte == b'\n'),
        _ => return None,
    };
    Some(if letter.is_ascii_uppercase() { set.complement() } else { set })
}

fn posix(name: &[u8]) -> Option<ClassBytes> {
    let test: fn(&u8) -> bool = match name {
        b"alpha" => u8::is_ascii_alphabetic,
        b"lower" => u8::is_ascii_lowercase,
        b"upper" => u8::is_ascii_uppercase,
        b"alnum" => u8::is_ascii_alphanumeric,
        b"ascii" => u8::is_ascii,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"word" => |byte| byte.is_ascii_alphanumeric() || *byte == b'_',
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    };
    Some(ClassBytes::of(|byte| test(&byte)))
}

/// An element of a class.
enum Member {
    Byte(u8),
    Set(ClassBytes),
}

/// Reads a class after its opening bracket; returns its bytes, and true if it is negated.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<(ClassBytes, bool), PatternError> {
    let open = cursor.at() - 1;
    let negated = cursor.eat(b"^");
    let mut set = ClassBytes::default();
    let mut first = true;
    loop {
        let Some(byte) = cursor.next() else {
            return Err(PatternError::new(open, "this class has no closing bracket"));
        };
        if byte == b']' && !first {
            return Ok((set, negated));
        }
        first = false;
        let low = match member(byte, cursor)? {
            None => continue,
            Some(Member::Set(members)) => {
                set.add(members);
                continue;
            }
            Some(Member::Byte(low)) => low,
        };
        // A hyphen before the closing bracket stands for itself.
        let is_range = cursor.peek() == Some(b'-') && !matches!(cursor.peek_at(1), None | Some(b']'));
        if !is_range {
            set.insert(low);
            continue;
        }
        let at = cursor.at();
        cursor.next();
        let Some(end) = cursor.next() else { continue };
        match member(end, cursor)? {
            Some(Member::Byte(high)) if high < low => {
                return Err(PatternError::new(at, "this range ends before it begins"));
            }
            Some(Member::Byte(high)) => set.add(ClassBytes::of(|byte| (low..=high).contains(&byte))),
            other => {
                set.insert(low);
                set.insert(b'-');
                if let Some(Member::Set(members)) = other {
                    set.add(members);
                }
            }
        }
    }
}

/// Reads one element of a class. `None` if it is an escape that matches nothing (`\E`).
fn member(byte: u8, cursor: &mut Cursor<'_>) -> Result<Option<Member>, PatternError> {
    if byte == b'[' && cursor.peek() == Some(b':') {
        return named(cursor).map(|set| Some(set.map_or(Member::Byte(byte), Member::Set)));
    }
    if byte != b'\\' {
        return Ok(Some(Member::Byte(byte)));
    }
    let at = cursor.at() - 1;
    if cursor.peek() == Some(b'b') {
        cursor.next();
        return Ok(Some(Member::Byte(0x08)));
    }
    Ok(match cursor.escape()? {
        EscapeMeaning::Byte(byte) => Some(Member::Byte(byte)),
        EscapeMeaning::Set(set) => Some(Member::Set(set)),
        EscapeMeaning::Quoted(text) => {
            let mut set = ClassBytes::default();
            text.iter().for_each(|byte| set.insert(*byte));
            Some(Member::Set(set))
        }
        EscapeMeaning::Nothing => None,
        EscapeMeaning::Syntax(_) => {
            return Err(PatternError::new(at, "this escape means nothing in a class"));
        }
    })
}

/// Reads `[:name:]` after its first bracket. `None` if the text is something else.
fn named(cursor: &mut Cursor<'_>) -> Result<Option<ClassBytes>, PatternError> {
    let at = cursor.at() - 1;
    let rest = &cursor.rest()[1..];
    let negated = rest.first() == Some(&b'^');
    let name = &rest[usize::from(negated)..];
    let len = name.iter().take_while(|byte| byte.is_ascii_lowercase()).count();
    if !name[len..].starts_with(b":]") {
        return Ok(None);
    }
    let Some(set) = posix(&name[..len]) else {
        return Err(PatternError::new(at, "there is no class of this name"));
    };
    cursor.skip(1 + usize::from(negated) + len + 2);
    Ok(Some(if negated { set.complement() } else { set }))
}

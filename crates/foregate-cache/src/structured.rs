//! Dictionaries of structured fields (RFC 9651, section 4.2.2), as far as targeted cache control needs them.
//! The whole syntax is checked, but the values of types that no directive uses are dropped.

/// A value without its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Integer(i64),
    Boolean(bool),
    /// The text between the quotes, with its escapes unresolved.
    String(&'a [u8]),
    Token(&'a [u8]),
    List(Vec<Value<'a>>),
    /// A decimal, a byte sequence, a date or a display string.
    Other,
}

/// Reads a dictionary and passes its members to `member` in order. A key that comes again replaces the earlier
/// one. `None` for text that is no dictionary: members that were passed before must be ignored then.
pub(crate) fn dictionary<'a>(text: &'a [u8], mut member: impl FnMut(&'a [u8], Value<'a>)) -> Option<()> {
    let mut parser = Parser { rest: text };
    parser.skip(b" ");
    if parser.rest.is_empty() {
        return Some(());
    }
    loop {
        let key = parser.key()?;
        let value = if parser.take(b'=') { parser.value()? } else { Value::Boolean(true) };
        parser.parameters()?;
        member(key, value);
        parser.skip(b" \t");
        if parser.rest.is_empty() {
            return Some(());
        }
        if !parser.take(b',') {
            return None;
        }
        parser.skip(b" \t");
    }
}

struct Parser<'a> {
    rest: &'a [u8],
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn skip(&mut self, blanks: &[u8]) {
        self.take_while(|byte| blanks.contains(&byte));
    }

    fn take_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|&byte| !belongs(byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, b""));
        self.rest = rest;
        taken
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        let begins = self.peek().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'*');
        begins.then(|| {
            self.take_while(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)
            })
        })
    }

    fn value(&mut self) -> Option<Value<'a>> {
        if !self.take(b'(') {
            return self.item();
        }
        let mut list = Vec::new();
        loop {
            self.skip(b" ");
            if self.take(b')') {
                return Some(Value::List(list));
            }
            list.push(self.item()?);
            self.parameters()?;
            if !matches!(self.peek()?, b' ' | b')') {
                return None;
            }
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.skip(b" ");
            self.key()?;
            if self.take(b'=') {
                self.item()?;
            }
        }
        Some(())
    }

    fn item(&mut self) -> Option<Value<'a>> {
        match self.peek()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                let belongs = |byte| crate::text::is_token_byte(byte) || b":/".contains(&byte);
                Some(Value::Token(self.take_while(belongs)))
            }
            b'?' => {
                self.take(b'?');
                let value = self.take(b'1');
                (value || self.take(b'0')).then_some(Value::Boolean(value))
            }
            b':' => {
                self.take(b':');
                self.take_while(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte));
                self.take_while(|byte| byte == b'=');
                self.take(b':').then_some(Value::Other)
            }
            b'@' => {
                self.take(b'@');
                matches!(self.number()?, Value::Integer(_)).then_some(Value::Other)
            }
            b'%' => {
                self.take(b'%');
                self.display_string()
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Value<'a>> {
        let sign = if self.take(b'-') { -1 } else { 1 };
        let whole = self.take_while(|byte| byte.is_ascii_digit());
        if self.take(b'.') {
            let fraction = self.take_while(|byte| byte.is_ascii_digit());
            let valid = (1..=12).contains(&whole.len()) && (1..=3).contains(&fraction.len());
            return valid.then_some(Value::Other);
        }
        if !(1..=15).contains(&whole.len()) {
            return None;
        }
        let number = whole.iter().fold(0, |number: i64, byte| number * 10 + i64::from(byte - b'0'));
        Some(Value::Integer(sign * number))
    }

    fn string(&mut self) -> Option<Value<'a>> {
        self.take(b'"');
        let length = crate::text::string_length(self.rest)?;
        let (text, rest) = self.rest.split_at_checked(length)?;
        let (_, text) = text.split_last()?;
        self.rest = rest;
        let mut escaped = false;
        let valid = text.iter().all(|&byte| {
            let valid = if escaped { b"\"\\".contains(&byte) } else { (b' '..=b'~').contains(&byte) };
            escaped = byte == b'\\' && !escaped;
            valid
        });
        valid.then_some(Value::String(text))
    }

    fn display_string(&mut self) -> Option<Value<'a>> {
        if !self.take(b'"') {
            return None;
        }
        let mut text = Vec::new();
        loop {
            match self.rest {
                [b'"', rest @ ..] => {
                    self.rest = rest;
                    return std::str::from_utf8(&text).is_ok().then_some(Value::Other);
                }
                [b'%', high, low, rest @ ..] => {
                    text.push(lower_hex(*high)? << 4 | lower_hex(*low)?);
                    self.rest = rest;
                }
                [byte @ b' '..=b'~', rest @ ..] if *byte != b'%' => {
                    text.push(*byte);
                    self.rest = rest;
                }
                _ => return None,
            }
        }
    }
}

fn lower_hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<(String, Value<'_>)>> {
        let mut members = Vec::new();
        let member = |key: &[u8], value| members.push((String::from_utf8_lossy(key).into_owned(), value));
        dictionary(text.as_bytes(), member)?;
        Some(members)
    }

    #[test]
    fn dictionaries_are_read() {
        let one = |key: &str, value| Some(vec![(key.to_owned(), value)]);
        assert_eq!(read(""), Some(vec![]));
        assert_eq!(read("  "), Some(vec![]));
        assert_eq!(read("a"), one("a", Value::Boolean(true)));
        assert_eq!(read("a;x;y=1"), one("a", Value::Boolean(true)));
        assert_eq!(read("a=?0"), one("a", Value::Boolean(false)));
        assert_eq!(read("a=-15"), one("a", Value::Integer(-15)));
        assert_eq!(read("a=999999999999999"), one("a", Value::Integer(999_999_999_999_999)));
        assert_eq!(read("a=1.5"), one("a", Value::Other));
        assert_eq!(read("a=\"x \\\" y\""), one("a", Value::String(b"x \\\" y")));
        assert_eq!(read("a=*b/c:d"), one("a", Value::Token(b"*b/c:d")));
        assert_eq!(read("a=:aGk=:"), one("a", Value::Other));
        assert_eq!(read("a=@1659578233"), one("a", Value::Other));
        assert_eq!(read("a=%\"f%c3%bc\""), one("a", Value::Other));
        let list = Value::List(vec![Value::Token(b"b"), Value::String(b"c")]);
        assert_eq!(read("a=( b;q=1  \"c\" )"), one("a", list));
        let two = vec![("a".to_owned(), Value::Boolean(true)), ("b".to_owned(), Value::Integer(1))];
        assert_eq!(read("a\t,  b=1"), Some(two));
    }

    #[test]
    fn text_that_is_no_dictionary_is_refused() {
        for text in [
            "A=1",
            "a=",
            "a =1",
            "a= 1",
            "a,",
            ",a",
            "a b",
            "a=1 b",
            "&&&&&",
            "a, &&",
            "a=1.",
            "a=1.0000",
            "a=-",
            "a=1234567890123456",
            "a=\"x",
            "a=\"\\x\"",
            "a=\"\u{1}\"",
            "a=?2",
            "a=:x",
            "a=(b",
            "a=(b\"c\")",
            "a;",
            "a;X",
            "a=@1.5",
            "a=%x",
            "a=\u{fc}",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}

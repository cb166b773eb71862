//! Pieces of field values.

/// Returns whether a byte may stand in a token (RFC 9110, section 5.6.2).
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns whether these bytes are a token.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token_byte(byte))
}

/// Removes spaces and tabs at both ends.
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Reads a number of seconds, at most `MAX_SECONDS` (RFC 9111, section 1.2.2). `None` for anything but digits.
pub(crate) fn seconds(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    let mut number = 0_u32;
    for &byte in digits {
        let digit = byte.is_ascii_digit().then(|| byte - b'0')?;
        number = number.saturating_mul(10).saturating_add(u32::from(digit)).min(MAX_SECONDS);
    }
    Some(number)
}

/// The largest number of seconds that a field can state. A larger number counts as this one.
pub(crate) const MAX_SECONDS: u32 = 1 << 31;

/// The members of a comma-separated list (RFC 9110, section 5.6.1) without blanks around them; empty ones are left out.
///
/// A comma within a quoted string does not separate members. A quote that is not closed is an ordinary byte.
pub(crate) fn members(value: &[u8]) -> Members<'_> {
    Members { rest: Some(value), quotes: true }
}

pub(crate) struct Members<'a> {
    rest: Option<&'a [u8]>,
    /// False after a quoted string without a closing quote. Closing quotes are then no longer searched for, so that
    /// each byte is looked at twice at most.
    quotes: bool,
}

impl<'a> Iterator for Members<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while let Some(rest) = self.rest {
            let end = self.end(rest);
            let (member, behind) = rest.split_at_checked(end).unwrap_or((rest, b""));
            self.rest = behind.split_first().map(|(_, behind)| behind);
            let member = trim(member);
            if !member.is_empty() {
                return Some(member);
            }
        }
        None
    }
}

impl Members<'_> {
    /// The length of the first member.
    fn end(&mut self, list: &[u8]) -> usize {
        let mut at = 0;
        while let Some(&byte) = list.get(at) {
            at += 1;
            match byte {
                b',' => return at - 1,
                b'"' if self.quotes => match list.get(at..).and_then(string_length) {
                    Some(length) => at += length,
                    None => self.quotes = false,
                },
                _ => {}
            }
        }
        list.len()
    }
}

/// The length of a quoted string after its opening quote, including the closing quote (RFC 9110, section
/// 5.6.4). `None` if it is not closed.
pub(crate) fn string_length(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    let end = text.iter().position(|&byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    });
    end.map(|end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_at_commas_outside_of_strings() {
        let rows: &[(&str, &[&str])] = &[
            ("", &[]),
            (" , ,", &[]),
            ("a, b\t,c", &["a", "b", "c"]),
            ("a=\"x, y\", b", &["a=\"x, y\"", "b"]),
            ("a=\"x\\\", y\", b", &["a=\"x\\\", y\"", "b"]),
            ("a=\"x, y, b", &["a=\"x", "y", "b"]),
            ("\"a\"b\", c\", d", &["\"a\"b\", c\"", "d"]),
        ];
        for (value, expected) in rows {
            let found: Vec<_> = members(value.as_bytes()).collect();
            let expected: Vec<_> = expected.iter().map(|member| member.as_bytes()).collect();
            assert_eq!(found, expected, "{value}");
        }
    }

    #[test]
    fn seconds_are_digits_and_stop_at_the_limit() {
        assert_eq!(seconds(b"0"), Some(0));
        assert_eq!(seconds(b"003600"), Some(3600));
        assert_eq!(seconds(b"2147483647"), Some(2_147_483_647));
        for large in ["2147483648", "2147483649", "99999999999", "18446744073709551617"] {
            assert_eq!(seconds(large.as_bytes()), Some(MAX_SECONDS));
        }
        for bad in ["", "-1", "+1", "1.0", "a1", "1a", " 1", "'1'"] {
            assert_eq!(seconds(bad.as_bytes()), None, "{bad}");
        }
    }
}

//! The `Content-Disposition` of a form's part (RFC 7578 section 4.2, RFC 8187 for `filename*`).

/// What it says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Disposition {
    pub(super) name: Vec<u8>,
    pub(super) filename: Vec<u8>,
    /// Quotes where none belong, or single ones.
    pub(super) invalid_quoting: bool,
    /// What is wrong with it, as far as it was read.
    pub(super) error: Option<&'static str>,
}

/// Reads the value of the field.
pub(super) fn parse(value: &[u8]) -> Disposition {
    let mut disposition = Disposition::default();
    disposition.error = disposition.read(value).err();
    disposition
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&byte)
}

fn skip_white(text: &[u8]) -> &[u8] {
    let count = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &text[count..]
}

fn split(text: &[u8], is_part: impl Fn(&u8) -> bool) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| is_part(byte)).count())
}

impl Disposition {
    fn read(&mut self, value: &[u8]) -> Result<(), &'static str> {
        let mut rest = skip_white(value.strip_prefix(b"form-data").ok_or("is not form-data")?);
        let mut extended = false;
        while !rest.is_empty() {
            rest = skip_white(rest.strip_prefix(b";").ok_or_else(|| self.no_semicolon(rest))?);
            if rest.is_empty() {
                return Err("ends after a semicolon");
            }
            let (name, after) = split(rest, |byte| !matches!(byte, b'=' | b' ' | b'\t' | b';'));
            let after = skip_white(after).strip_prefix(b"=").ok_or("has a parameter without value")?;
            let after = skip_white(after);
            rest = match name {
                b"name" | b"filename" => {
                    let (text, after) = self.value(after)?;
                    let place = if name == b"name" { &mut self.name } else { &mut self.filename };
                    if !place.is_empty() {
                        return Err("has a parameter twice");
                    }
                    *place = text;
                    after
                }
                b"filename*" if extended => return Err("has a parameter twice"),
                b"filename*" => {
                    extended = true;
                    extended_value(after)?
                }
                _ => return Err("has a parameter that is not known"),
            };
            rest = skip_white(rest);
        }
        if extended && self.filename.is_empty() {
            return Err("has a filename* without filename");
        }
        Ok(())
    }

    fn no_semicolon(&mut self, rest: &[u8]) -> &'static str {
        self.invalid_quoting |= matches!(rest.first(), Some(b'"' | b'\''));
        "has something behind a value"
    }

    /// A value in double quotes, in single ones, or a token.
    fn value<'a>(&mut self, text: &'a [u8]) -> Result<(Vec<u8>, &'a [u8]), &'static str> {
        let quote = match text.first() {
            None => return Err("has a parameter without value"),
            Some(quote @ (b'"' | b'\'')) => *quote,
            Some(_) => {
                let (token, rest) = split(text, |byte| is_token(*byte));
                self.invalid_quoting |= token.contains(&b'\'');
                // Where the token ends early, so does the header for most; here what follows is an error.
                self.invalid_quoting |= matches!(rest.first(), Some(b'"'));
                return Ok((token.to_vec(), rest));
            }
        };
        // Single quotes are none to the standard, and some take them for some.
        self.invalid_quoting |= quote == b'\'';
        let mut value = Vec::new();
        let mut bytes = text[1..].iter().enumerate();
        while let Some((at, &byte)) = bytes.next() {
            match (byte, text.get(at + 2)) {
                (b'\\', None) => return Err("ends within an escape"),
                (b'\\', Some(&next)) if next == quote || next == b'\\' => {
                    value.push(next);
                    bytes.next();
                }
                (byte, _) if byte == quote => {
                    // Some take the backslash before the quote to escape that, also where another escapes the backslash.
                    self.invalid_quoting |= text[..=at].ends_with(b"\\\\");
                    return Ok((value, &text[at + 2..]));
                }
                (byte, _) => value.push(byte),
            }
        }
        Err("has a quote without end")
    }
}

/// Goes over `charset'language'text`.
fn extended_value(text: &[u8]) -> Result<&[u8], &'static str> {
    let (charset, rest) = split(text, |byte| byte.is_ascii_alphanumeric() || b"!#$%&+-^_`{}~".contains(byte));
    let rest =
        rest.strip_prefix(b"'").filter(|_| !charset.is_empty()).ok_or("has a filename* without charset")?;
    let (_, rest) = split(rest, |byte| *byte != b'\'');
    let mut rest = rest.strip_prefix(b"'").ok_or("has a filename* without language")?;
    loop {
        rest = match rest {
            [] | [b';', ..] => return Ok(rest),
            [b'%', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => after,
            [byte, after @ ..] if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`~".contains(byte) => after,
            _ => return Err("has a filename* with a character that does not belong there"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read() {
        #[rustfmt::skip]
        let cases: &[(&str, &str, &str, bool, Option<&str>)] = &[
            ("form-data", "", "", false, None),
            ("form-data; name=\"a b\"", "a b", "", false, None),
            ("form-data ;\tname = a ; filename=\"x\\\"\\\\y\\z.txt\"", "a", "x\"\\y\\z.txt", false, None),
            ("form-data; name='a'", "a", "", true, None),
            ("form-data; name=\"it's\"", "it's", "", false, None),
            ("form-data; name=it's", "it's", "", true, None),
            ("form-data; name=\"a\"; filename=\"x\"; filename*=UTF-8''%e2%82x", "a", "x", false, None),
            ("attachment; name=a", "", "", false, Some("is not form-data")),
            ("form-data name=a", "", "", false, Some("behind a value")),
            ("form-data; name=\"a\"\"b\"", "a", "", true, Some("behind a value")),
            ("form-data; name=\"a\" b", "a", "", false, Some("behind a value")),
            ("form-data; name=a; name=b", "a", "", false, Some("twice")),
            ("form-data; filename=a; filename=b", "", "a", false, Some("twice")),
            ("form-data; name=\"a", "", "", false, Some("without end")),
            ("form-data; name=\"a\\", "", "", false, Some("within an escape")),
            ("form-data; name", "", "", false, Some("without value")),
            ("form-data; name=", "", "", false, Some("without value")),
            ("form-data; name=a;", "a", "", false, Some("after a semicolon")),
            ("form-data; size=1", "", "", false, Some("not known")),
            ("form-data; name=a; filename*=UTF-8''x", "a", "", false, Some("without filename")),
            ("form-data; filename=x; filename*=''x", "", "x", false, Some("without charset")),
            ("form-data; filename=x; filename*=a'b", "", "x", false, Some("without language")),
            ("form-data; filename=x; filename*=a''%4", "", "x", false, Some("does not belong")),
            ("form-data; filename=x; filename*=a''b; filename*=a''b", "", "x", false, Some("twice")),
        ];
        for (text, name, filename, quoting, error) in cases {
            let read = parse(text.as_bytes());
            assert_eq!(
                (&read.name[..], &read.filename[..]),
                (name.as_bytes(), filename.as_bytes()),
                "{text}"
            );
            assert_eq!(read.invalid_quoting, *quoting, "{text}");
            let matches = match (read.error, error) {
                (Some(read), Some(error)) => read.contains(error),
                (read, error) => read == *error,
            };
            assert!(matches, "{text}: {:?}", read.error);
        }
    }
}

//! The `Content-Disposition` of a form's part (RFC 7578 section 4.2, RFC 8187 for `filename*`, RFC 2047 for encoded words).
//!
//! The firewall and the origin both decide from this field if a part is a file or a text. Spellings that no
//! browser or client library sends, or that parsers read differently, are therefore errors: blanks around
//! `=`, repeated parameters, names that only some parsers decode.

use super::encoded::{encoded_word, extended_value};

/// The parameters of the field.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Disposition {
    pub(super) name: Vec<u8>,
    /// The name with its encoded words decoded, as some parsers see it.
    pub(super) decoded_name: Option<Vec<u8>>,
    pub(super) filename: Vec<u8>,
    /// Alternative file names that some parsers prefer: the value of `filename*`, and the file name with its
    /// encoded words decoded.
    pub(super) other_filenames: Vec<Vec<u8>>,
    /// Set if the `filename` parameter follows a space and its value is in double quotes. Otherwise some parsers
    /// do not find it.
    pub(super) filename_clear: bool,
    /// Set if the field has quotes in a wrong place, or single quotes.
    pub(super) invalid_quoting: bool,
    /// The error at which reading the field ended, if there is one.
    pub(super) error: Option<&'static str>,
}

/// Reads the value of the field.
pub(super) fn parse(value: &[u8]) -> Disposition {
    let mut disposition = Disposition::default();
    disposition.error = disposition.read(value).err();
    disposition
}

/// Reads the value of the field in a multipart body that is no form. There it may begin with any word, such as
/// `attachment`.
pub(super) fn parse_any(value: &[u8]) -> Disposition {
    let word = value.iter().take_while(|byte| is_token(**byte)).count();
    parse(&[FORM, value.get(word..).unwrap_or_default()].concat())
}

/// The type at the start of the field in a form.
const FORM: &[u8] = b"form-data";

/// The parameters that have been read.
#[derive(Default)]
struct SeenParameters {
    name: bool,
    /// Set once `name*` was read, in which `reqwest` sends names that are not plain.
    extended_name: bool,
    filename: bool,
    extended: bool,
    /// Set if a semicolon is followed by white space other than one space.
    odd_blanks: bool,
    /// Set if the name has a backslash that some parsers drop.
    odd_escape: bool,
}

const BLANK: &str = "has a blank where none belongs";
const TWICE: &str = "has a parameter twice";

fn is_token(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&byte)
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn split(text: &[u8], is_part: impl Fn(&u8) -> bool) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| is_part(byte)).count())
}

impl Disposition {
    fn read(&mut self, value: &[u8]) -> Result<(), &'static str> {
        let mut rest = value.strip_prefix(FORM).ok_or("is not form-data")?;
        let mut seen = SeenParameters::default();
        while !rest.is_empty() {
            if rest.first().is_some_and(is_blank) {
                return Err(BLANK);
            }
            let (blanks, after) =
                split(rest.strip_prefix(b";").ok_or_else(|| self.no_semicolon(rest))?, is_blank);
            seen.odd_blanks |= !matches!(blanks, b"" | b" ");
            rest = self.parameter(after, !blanks.is_empty(), &mut seen)?;
        }
        self.check(&seen)
    }

    /// Reads a parameter and returns the rest of the text. `apart` is true if a blank follows the semicolon
    /// before the parameter.
    fn parameter<'a>(
        &mut self,
        text: &'a [u8],
        apart: bool,
        seen: &mut SeenParameters,
    ) -> Result<&'a [u8], &'static str> {
        if text.is_empty() {
            return Err("ends after a semicolon");
        }
        let (name, after) = split(text, |byte| !matches!(byte, b'=' | b';') && !is_blank(byte));
        // PHP and others read the blank as a part of the name.
        if after.first().is_some_and(is_blank) {
            return Err(BLANK);
        }
        let after = after.strip_prefix(b"=").ok_or("has a parameter without value")?;
        if after.first().is_some_and(is_blank) {
            return Err(BLANK);
        }
        // A parameter with an empty value counts as present.
        let twice = match name {
            b"name" => std::mem::replace(&mut seen.name, true),
            b"name*" => std::mem::replace(&mut seen.extended_name, true),
            b"filename" => std::mem::replace(&mut seen.filename, true),
            b"filename*" => std::mem::replace(&mut seen.extended, true),
            _ => return Err("has a parameter that is not known"),
        };
        if twice {
            return Err(TWICE);
        }
        if name == b"name*" {
            let (text, after) = extended_value(after)?;
            self.name = text;
            return Ok(after);
        }
        if name == b"filename*" {
            let (text, after) = extended_value(after)?;
            self.other_filenames.push(text);
            return Ok(after);
        }
        let raw = after;
        let (text, after) = self.value(raw)?;
        let raw = &raw[..raw.len() - after.len()];
        if name == b"name" {
            self.name = text;
            seen.odd_escape = raw.contains(&b'\\') && has_odd_escape(raw);
        } else {
            self.filename = text;
            self.filename_clear = apart && raw.starts_with(b"\"");
        }
        Ok(after)
    }

    /// Checks the combination of parameters.
    fn check(&mut self, seen: &SeenParameters) -> Result<(), &'static str> {
        // Parsers that do not know `name*` see a part without a name and skip it.
        if seen.name && seen.extended_name {
            return Err("has a name and a name*");
        }
        if seen.odd_escape {
            return Err("has an escape in the name that not all read");
        }
        self.decoded_name = encoded_word(&self.name)?;
        if self.filename.is_empty() {
            return if seen.extended { Err("has a filename* without filename") } else { Ok(()) };
        }
        // Some parsers find a parameter only after a space.
        if seen.odd_blanks {
            return Err("has other blanks between a file's parameters than one space");
        }
        let word = encoded_word(&self.filename)?;
        self.other_filenames.extend(word);
        self.other_filenames.dedup();
        self.other_filenames.retain(|other| *other != self.filename);
        let all = std::iter::once(&self.filename).chain(&self.other_filenames);
        if all.into_iter().any(|name| is_nameless(name)) {
            return Err("has a file name that is none to some");
        }
        Ok(())
    }

    fn no_semicolon(&mut self, rest: &[u8]) -> &'static str {
        self.invalid_quoting |= matches!(rest.first(), Some(b'"' | b'\''));
        "has something behind a value"
    }

    /// Reads a value: in double quotes, in single quotes, or a token.
    fn value<'a>(&mut self, text: &'a [u8]) -> Result<(Vec<u8>, &'a [u8]), &'static str> {
        let quote = match text.first() {
            None => return Err("has a parameter without value"),
            Some(quote @ (b'"' | b'\'')) => *quote,
            Some(_) => {
                let (token, rest) = split(text, |byte| is_token(*byte));
                if token.is_empty() {
                    return Err("has a parameter without value");
                }
                self.invalid_quoting |= token.contains(&b'\'');
                // If a quote ends the token early, most parsers ignore the rest of the header. Here, the text after it is an
                // error.
                self.invalid_quoting |= matches!(rest.first(), Some(b'"'));
                return Ok((token.to_vec(), rest));
            }
        };
        // Single quotes are not quotes in the standard, but some parsers read them as quotes.
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
                    // Some parsers take a backslash before the closing quote for an escape of the quote, even if
                    // another backslash escapes that backslash.
                    self.invalid_quoting |= text[..=at].ends_with(b"\\\\");
                    return Ok((value, &text[at + 2..]));
                }
                (byte, _) => value.push(byte),
            }
        }
        Err("has a quote without end")
    }
}

/// Returns true if a quoted text has a backslash before a character other than a quote or a backslash. Some
/// parsers drop such a backslash.
fn has_odd_escape(raw: &[u8]) -> bool {
    let mut bytes = raw.iter();
    while let Some(byte) = bytes.next() {
        if *byte == b'\\' && !matches!(bytes.next(), Some(b'"' | b'\'' | b'\\')) {
            return true;
        }
    }
    false
}

/// Returns true if a file name is empty for some parsers: those that keep only the text after the last slash,
/// or strip blanks and quotes. Some of them then treat the part as text.
fn is_nameless(name: &[u8]) -> bool {
    let last = name.rsplit(|byte| matches!(byte, b'/' | b'\\')).next().unwrap_or_default();
    let is_nothing = |letter: char| letter.is_whitespace() || matches!(letter, '.' | '"' | '\'');
    String::from_utf8_lossy(last).chars().all(is_nothing)
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
            ("form-data; name=\"a\\\"\\\\b\"; filename=\"x\\\"\\\\y\\z.txt\"", "a\"\\b", "x\"\\y\\z.txt", false, None),
            ("form-data;name=a", "a", "", false, None),
            ("form-data; name='a'", "a", "", true, None),
            ("form-data; name=\"it's\"", "it's", "", false, None),
            ("form-data; name=it's", "it's", "", true, None),
            ("form-data; name=\"a\"; filename=\"x\"; filename*=UTF-8''%e2%82%acx", "a", "x", false, None),
            ("attachment; name=a", "", "", false, Some("is not form-data")),
            ("form-data name=a", "", "", false, Some("a blank")),
            ("form-data; name=\"a\"\"b\"", "a", "", true, Some("behind a value")),
            ("form-data; name=\"a\" b", "a", "", false, Some("a blank")),
            ("form-data; name=a; name=b", "a", "", false, Some("twice")),
            ("form-data; filename=a; filename=b", "", "a", false, Some("twice")),
            ("form-data; name=\"a", "", "", false, Some("without end")),
            ("form-data; name=\"a\\", "", "", false, Some("within an escape")),
            ("form-data; name", "", "", false, Some("without value")),
            ("form-data; name=", "", "", false, Some("without value")),
            ("form-data; name=; filename=x", "", "", false, Some("without value")),
            ("form-data; Name=a", "", "", false, Some("not known")),
            ("form-data; name*=utf-8''a%20b", "a b", "", false, None),
            ("form-data; name*=utf-8''a; name=\"b\"", "b", "", false, Some("name and a name*")),
            ("form-data; name*=latin1''a", "", "", false, Some("not in UTF-8")),
            ("form-data; name=a;", "a", "", false, Some("after a semicolon")),
            ("form-data; size=1", "", "", false, Some("not known")),
            ("form-data; name=a; filename*=UTF-8''x", "a", "", false, Some("without filename")),
            ("form-data; filename=x; filename*=''x", "", "x", false, Some("not in UTF-8")),
            ("form-data; filename=x; filename*=latin1''x", "", "x", false, Some("not in UTF-8")),
            ("form-data; filename=x; filename*=utf-8'b", "", "x", false, Some("without language")),
            ("form-data; filename=x; filename*=UTF-8''%4", "", "x", false, Some("does not belong")),
            ("form-data; filename=x; filename*=utf-8''b; filename*=utf-8''b", "", "x", false, Some("twice")),
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
    /// Values that origins read differently: a part that is a file here and a text there.
    #[test]
    fn what_others_read_otherwise_is_an_error() {
        #[rustfmt::skip]
        let cases: &[(&str, &str)] = &[
            // PHP and multiparty see no file name.
            ("form-data; name=\"a\"; filename =\"x\"", "a blank"),
            ("form-data; name=\"a\"; filename= \"x\"", "a blank"),
            ("form-data; name=\"a\"; filename\t=\"x\"", "a blank"),
            ("form-data; name =\"a\"; filename=\"x\"", "a blank"),
            ("form-data; name=\"a\" ; filename=\"x\"", "a blank"),
            ("form-data; name=\"a\"; filename=\"x\" ", "a blank"),
            ("form-data ; name=\"a\"", "a blank"),
            // Parsers with regular expressions for a space find none.
            ("form-data; name=\"a\";\tfilename=\"x\"", "other blanks"),
            ("form-data;  name=\"a\"; filename=\"x\"", "other blanks"),
            // For Django and Go, it replaces the other name.
            ("form-data; name=\"a\"; filename=\"x\"; filename*=UTF-8''", "empty or no text"),
            ("form-data; name=\"a\"; filename*=UTF-8''; filename=\"x\"", "empty or no text"),
            ("form-data; name=\"a\"; filename=\"x\"; filename*=UTF-8''%00", "empty or no text"),
            ("form-data; name=\"a\"; filename=\"x\"; filename*=UTF-8''%ff", "empty or no text"),
            ("form-data; name=\"a\"; filename=\"x\"; filename*=utf-8\"\"x", "not in UTF-8"),
            ("form-data; name=\"a\"; filename=\"\"; filename*=UTF-8''x", "without filename"),
            // The first counts for some, the last for others.
            ("form-data; name=\"a\"; filename=\"\"; filename=\"x\"", "twice"),
            ("form-data; name=\"\"; name=\"a\"", "twice"),
            // ASP.NET and Tomcat decode the name.
            ("form-data; name=\"a\"; filename=\"=?utf-8?B??=\"", "encoded word"),
            ("form-data; name=\"a\"; filename=\"=?utf-7?B?eA==?=\"", "encoded word"),
            ("form-data; name=\"a\"; filename=\"x =?utf-8?Q?y?=\"", "encoded word"),
            ("form-data; name=\"=?utf-8?B?aWQ?=\"", "encoded word"),
            ("form-data; name=\"=?utf-8?Q?i?= =?utf-8?Q?d?=\"", "encoded word"),
            // aiohttp removes slashes; other parsers remove the text before them.
            ("form-data; name=\"a\"; filename=\"/\"", "none to some"),
            ("form-data; name=\"a\"; filename=\"x/\"", "none to some"),
            ("form-data; name=\"a\"; filename=\" \"", "none to some"),
            ("form-data; name=\"a\"; filename=\"..\"", "none to some"),
            ("form-data; name=\"a\"; filename=\"\\\"\"", "none to some"),
            ("form-data; name=\"a\"; filename=\"x\"; filename*=UTF-8''%2f", "none to some"),
            ("form-data; name=\"i\\d\"", "an escape"),
        ];
        for (text, error) in cases {
            let read = parse(text.as_bytes());
            assert!(read.error.is_some_and(|read| read.contains(error)), "{text}: {:?}", read.error);
        }
    }

    #[test]
    fn other_readings_of_names_are_there() {
        let read =
            parse(b"form-data; name=\"=?utf-8?B?aWQ=?=\"; filename=\"x.txt\"; filename*=utf-8'en'x%2ephp");
        assert_eq!((read.error, read.decoded_name.as_deref()), (None, Some(&b"id"[..])));
        assert_eq!(read.other_filenames, [b"x.php".to_vec()]);
        // The form of HttpClient of .NET.
        let read =
            parse(b"form-data; name=f; filename=\"=?utf-8?B?w7wudHh0?=\"; filename*=utf-8''%C3%BC.txt");
        assert_eq!((read.error, read.other_filenames), (None, vec!["\u{fc}.txt".as_bytes().to_vec()]));
        let read = parse(b"form-data; name=f; filename=x.txt; filename*=utf-8''x.txt");
        assert_eq!((read.error, read.other_filenames.len(), read.filename_clear), (None, 0, false));
        let read = parse(b"form-data; name=\"f\"; filename=\"=?utf-8?q?a_=C3=BC=3f?=\"");
        assert_eq!((read.error, read.filename_clear), (None, true));
        assert_eq!(read.other_filenames, ["a \u{fc}?".as_bytes().to_vec()]);
        // The form of a much copied program for Android.
        let read = parse(b"form-data; name=\"a\";filename=\"x\"");
        assert_eq!((read.error, &read.filename[..], read.filename_clear), (None, &b"x"[..], false));
        // No encoded words.
        for name in ["a=?b", "?=", "=?=", "what?=yes"] {
            let read = parse(format!("form-data; name=\"{name}\"").as_bytes());
            assert_eq!((read.error, read.decoded_name), (None, None), "{name}");
        }
    }
}

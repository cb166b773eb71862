//! Charsets of bodies and of parts of forms.
//!
//! Rules read bytes below 128 as ASCII. This is right for all charsets that are listed here. With other
//! charsets, such as UTF-7, UTF-16 and the EBCDIC family, the application sees a text that rules have not
//! seen.

use memchr::memmem;

use super::sink::is_token;

/// Charsets that are accepted even if the parameter's name `charset` is not in small letters.
const USUAL: &[&[u8]] = &[b"utf-8", b"us-ascii", b"iso-8859-1", b"iso-8859-15", b"windows-1252"];

/// Further charsets in which a byte below 128 is an ASCII character, unless it is the second byte of a
/// character.
const ASCII: &[&[u8]] = &[
    b"utf8",
    b"ascii",
    b"latin1",
    b"latin-1",
    b"l1",
    b"koi8-r",
    b"koi8-u",
    b"macintosh",
    b"tis-620",
    b"gbk",
    b"gb2312",
    b"gb18030",
    b"big5",
    b"big5-hkscs",
    b"euc-jp",
    b"euc-kr",
    b"euc-tw",
    b"euc-cn",
    b"shift_jis",
    b"shift-jis",
    b"sjis",
    b"windows-31j",
    b"windows-874",
    b"ks_c_5601-1987",
];

/// Prefixes of charset families. The rest of the name must be digits.
const FAMILIES: &[&[u8]] = &[b"iso-8859-", b"iso8859-", b"iso_8859-", b"windows-125", b"cp125"];

/// Returns true if bytes below 128 are ASCII in the named charset, as far as rules depend on it.
pub(crate) fn is_ascii_based(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_member = |family: &&[u8]| {
        let number = lower.strip_prefix(*family).unwrap_or_default();
        matches!(number.len(), 1 | 2) && number.iter().all(u8::is_ascii_digit)
    };
    USUAL.contains(&&lower[..]) || ASCII.contains(&&lower[..]) || FAMILIES.iter().any(is_member)
}

/// The reason why the charset of a `Content-Type` hides a body from rules; `None` if it hides nothing, or if
/// the field names no charset.
pub(crate) fn unclear(field: &[u8]) -> Option<&'static str> {
    const NAME: &[u8] = b"charset";
    const UNCLEAR: &str = "the field Content-Type has a charset that some read otherwise, or several";
    let lower = field.to_ascii_lowercase();
    let begins = |at: &usize| at.checked_sub(1).is_none_or(|before| !is_token(&lower[before]));
    let mut known = false;
    for at in memmem::find_iter(&lower, NAME).filter(begins) {
        let rest = &lower[at + NAME.len()..];
        // `charset*` and `charset*0` name the same parameter (RFC 8187, RFC 2231).
        if rest.first() == Some(&b'*') {
            return Some(UNCLEAR);
        }
        let Some(value) = rest.trim_ascii_start().strip_prefix(b"=") else { continue };
        // A second `charset` is unclear even inside a quoted value, because some parsers ignore the quotes.
        if std::mem::replace(&mut known, true) {
            return Some(UNCLEAR);
        }
        let Some(value) = value_of(value.trim_ascii_start()) else { return Some(UNCLEAR) };
        // Rules search for the parameter's name in small letters only.
        if !field[at..].starts_with(NAME) && !USUAL.contains(&value) {
            return Some(UNCLEAR);
        }
        if !is_ascii_based(value) {
            return Some("the field Content-Type has a charset in which rules cannot read the body");
        }
    }
    None
}

/// The charset at the start of a text: a token, in quotes or not, before a semicolon or the end of the text. `None` for
/// any other text.
fn value_of(text: &[u8]) -> Option<&[u8]> {
    let quote = text.first().copied().filter(|byte| matches!(byte, b'"' | b'\''));
    let text = if quote.is_some() { &text[1..] } else { text };
    let len = text.iter().take_while(|byte| is_token(byte) && **byte != b'\'').count();
    let (value, rest) = text.split_at(len);
    let rest = match quote {
        Some(quote) => rest.strip_prefix(&[quote])?,
        None => rest,
    };
    let ends = matches!(rest.trim_ascii_start().first(), None | Some(b';'));
    (ends && !value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charsets_are_clear() {
        for clear in [
            "application/json",
            "application/json; charset=utf-8",
            "application/json;Charset=UTF-8",
            "application/json; CHARSET = \"iso-8859-1\"",
            "application/json; charset=utf-8; boundary=x",
            "application/json; charset='utf-8'",
            "application/json; charset = gbk ; x=y",
            "text/plain; charset=ISO-8859-8",
            "text/plain; charset=windows-1251",
            "text/plain; charset=Shift_JIS",
            "application/json; accept-charset=x",
            "application/json; charset",
        ] {
            assert_eq!(unclear(clear.as_bytes()), None, "{clear}");
        }
        for unsure in [
            "application/json; Charset=gbk",
            "application/json; charset=''utf-8",
            "application/json; charset=\"\"utf-8\"\"",
            "application/json; charset*=utf-8''utf-8",
            "application/json; charset*0=utf-8",
            "application/json; charset=utf-8; charset=utf-8",
            "application/json; charset=utf-8; x=\"charset=utf-7\"",
            "application/json; x=\"y;CHARSET=utf-7\"",
            "application/json; charset=utf-8,utf-7",
            "application/json; charset=\"utf\\-8\"",
            "application/json; charset=\"utf-8\" utf-7",
            "application/json; charset=",
            "application/json, charset=utf-8; Charset=utf-7",
        ] {
            assert!(unclear(unsure.as_bytes()).is_some(), "{unsure}");
        }
    }

    /// In these charsets, ASCII letters have other codes, or stand for other characters after an escape.
    #[test]
    fn charsets_that_hide_ascii_are_told() {
        for name in [
            "utf-7",
            "UTF-16",
            "utf-16le",
            "utf-16be",
            "utf-32",
            "ucs-2",
            "unicode",
            "ibm037",
            "cp037",
            "IBM1047",
            "ibm-500",
            "ebcdic-us",
            "iso-2022-jp",
            "iso-2022-kr",
            "hz-gb-2312",
            "unicode-1-1-utf-7",
            "scsu",
            "x-user-defined",
            "rot13",
            "base64",
            "iso-8859-",
            "windows-1252x",
            "iso-8859-123",
        ] {
            let field = format!("application/x-www-form-urlencoded; charset={name}");
            assert!(unclear(field.as_bytes()).is_some_and(|why| why.contains("cannot read")), "{name}");
        }
    }
}

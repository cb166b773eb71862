//! Hides the values that follow the names of secrets in a text: in forms, JSON, XML, heads and addresses.

use std::borrow::Cow;
use std::ops::Range;

use super::names::{
    HIDDEN, NAME, NAMING, VALUES, is_among, is_known_field, is_secret_key, is_secret_named, last_word,
};
use crate::transform::Transformation;

/// The number of bytes before and after a value that are searched for its name.
const BESIDE: usize = 1024;
/// The number of times that a text is decoded in search of names. Names that are encoded more times than that are not
/// recognised.
const LAYERS: usize = 4;

/// Names beside those of secrets whose values are hidden.
pub(crate) trait MaskedNames {
    /// The length of such a name at the start of a text, if it has a character that [`is_name`] rejects.
    fn odd_name(&self, text: &[u8]) -> Option<usize>;

    /// Returns true if an argument or a cookie of this name is hidden.
    fn has_key(&self, name: &[u8]) -> bool;

    /// Returns true if a header field of this name is hidden.
    fn has_field(&self, name: &[u8]) -> bool;
}

/// Hides the values of secret arguments (`password=...`, `"token":"..."`) and fields (`Cookie: ...`, up to
/// the end of the line) in a text, and those that `masks` names. If name and value are encoded together, both are
/// hidden.
pub(crate) fn hide_pairs_and(text: &[u8], masks: &impl MaskedNames) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let len = masks.odd_name(rest);
        let len = len.unwrap_or_else(|| rest.iter().take_while(|byte| is_name(**byte)).count());
        let name = &rest[..len];
        at += len.max(1);
        if len == 0 {
            match password(rest) {
                Some(password) => {
                    out.extend_from_slice(&rest[..password.start]);
                    out.extend_from_slice(HIDDEN);
                    at += password.end - 1;
                }
                None => out.push(rest[0]),
            }
            continue;
        }
        let plain = decoded(name);
        let is_key = |key: &[u8]| is_secret_key(key) || masks.has_key(key) || masks.has_key(name);
        // An encoded `NAME:PASSWORD@`.
        if plain.len() < len && text[..at - len].ends_with(b"//") && userinfo(&plain).is_some() {
            out.extend_from_slice(HIDDEN);
            continue;
        }
        let may_open = matches!(text.get((at - len).wrapping_sub(1)), Some(b'<' | b':'));
        if may_open
            && is_key(&plain)
            && let Some(end) = element_end(text, at - len, at)
        {
            out.extend_from_slice(name);
            out.extend_from_slice(HIDDEN);
            at = end;
            continue;
        }
        // After a quoted name, as in JSON, there may be line breaks before the value.
        let lines = text.get(at) == Some(&b'"');
        let signs = text[at..].iter().take_while(|byte| match byte {
            b'"' | b'\'' | b'\\' | b':' | b'=' | b' ' | b'\t' => true,
            b'\r' | b'\n' => lines,
            _ => false,
        });
        let signs = &text[at..at + signs.count()];
        let divides = signs.iter().any(|byte| matches!(byte, b':' | b'='));
        // Most words in a text are not followed by a value.
        if !divides && plain.len() == len {
            out.extend_from_slice(name);
            continue;
        }
        let is_field = is_known_field(&plain) || masks.has_field(&plain);
        if !is_field && !is_key(&plain) && !is_named_beside(text, at - len, &plain) {
            out.extend_from_slice(name);
            continue;
        }
        let divides = |byte: &u8| *byte == b':' || (*byte == b'=' && !is_field);
        if !signs.iter().any(divides) {
            // The pair may be encoded as a whole, such as `%70assword%3dx`, also within the value of another pair.
            let is_pair = plain.len() < len && plain.iter().any(|byte| matches!(byte, b'=' | b':'));
            if is_pair {
                out.extend_from_slice(HIDDEN);
                at += value_length(&text[at..], b"");
            } else {
                out.extend_from_slice(name);
            }
            continue;
        }
        out.extend_from_slice(name);
        out.extend_from_slice(signs);
        at += signs.len();
        let is_line = is_field && !matches!(signs.last(), Some(b'"' | b'\''));
        let is_member = signs.contains(&b':') && matches!(text.get(at), Some(b'[' | b'{'));
        let len = match () {
            () if is_line => line_length(&text[at..]),
            () if is_member => member_length(&text[at..]),
            () => value_length(&text[at..], signs),
        };
        if len > 0 {
            out.extend_from_slice(HIDDEN);
        }
        at += len;
    }
    out
}

/// The position of the password in a text that begins with `://NAME:PASSWORD@`.
fn password(text: &[u8]) -> Option<Range<usize>> {
    let rest = text.strip_prefix(b"://")?;
    let found = userinfo(rest)?;
    Some(found.start + 3..found.end + 3)
}

/// The position of the password in a text that begins with `NAME:PASSWORD@`. The `@` must be within the first 2 *
/// [`NAME`] bytes.
fn userinfo(text: &[u8]) -> Option<Range<usize>> {
    let text = text.get(..2 * NAME).unwrap_or(text);
    let ends = |byte: &u8| {
        matches!(byte, b'/' | b'?' | b'#' | b'"' | b'\'' | b'<' | b'>') || byte.is_ascii_whitespace()
    };
    let authority = &text[..text.iter().position(ends).unwrap_or(text.len())];
    // The last `@` counts: a password may contain one, a host may not.
    let end = memchr::memrchr(b'@', authority)?;
    let colon = memchr::memchr(b':', &authority[..end])?;
    (colon + 1 < end).then_some(colon + 1..end)
}

/// The length of the JSON array or object at the start of a text; the whole length if it does not end.
fn member_length(text: &[u8]) -> usize {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    let ends = |byte: &u8| {
        match byte {
            _ if std::mem::take(&mut escaped) => {}
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => depth += 1,
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    };
    text.iter().position(ends).map_or(text.len(), |end| end + 1)
}

/// The longest namespace prefix of an element's name, bytes.
const PREFIX: usize = 32;

/// The end of the content of an XML element: the next end tag. The element's name, without its prefix, is at `start` to `end`.
/// `None` if there is no content.
fn element_end(text: &[u8], start: usize, end: usize) -> Option<usize> {
    let before = &text[..start];
    let before = match before.strip_suffix(b":") {
        Some(before) => {
            let prefix = before.iter().rev().take(PREFIX).take_while(|byte| is_name(**byte)).count();
            &before[..before.len() - prefix]
        }
        None => before,
    };
    if !before.ends_with(b"<") {
        return None;
    }
    let rest = &text[end..];
    let Some(close) = memchr::memchr(b'>', rest) else { return Some(text.len()) };
    let is_empty = rest[..close].ends_with(b"/");
    let content = || memchr::memmem::find(rest, b"</").map_or(text.len(), |len| end + len);
    (!is_empty).then(content)
}

/// Returns true if the value whose name (`"value": "x"`, `fields[0][value]=x`) is at `start` is a secret according to its
/// sibling (`"name": "password"`, `fields[0][name]=password`).
fn is_named_beside(text: &[u8], start: usize, name: &[u8]) -> bool {
    let (path, last) = last_word(name);
    if !is_among(last, VALUES) {
        return false;
    }
    let near = &text[start.saturating_sub(BESIDE)..text.len().min(start + BESIDE)];
    if !path.is_empty() {
        return pairs(near).any(|(other, value)| {
            let (other, naming) = last_word(other);
            other.eq_ignore_ascii_case(path) && is_among(naming, NAMING) && is_secret_named(value)
        });
    }
    // In JSON, only members of the same object count.
    let at = start - start.saturating_sub(BESIDE);
    let from = near[..at].iter().rposition(|byte| matches!(byte, b'{' | b'}')).map_or(0, |brace| brace + 1);
    let to =
        near[at..].iter().position(|byte| matches!(byte, b'{' | b'}')).map_or(near.len(), |brace| at + brace);
    pairs(&near[from..to]).any(|(name, value)| is_among(name, NAMING) && is_secret_named(value))
}

/// All parts of a text that look like a name and its value, as in JSON or in a form.
fn pairs(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
            let len = rest.iter().take_while(|byte| is_name(**byte)).count();
            at += len.max(1);
            let behind = &rest[len..];
            let signs = behind.iter().take_while(|byte| {
                matches!(byte, b'"' | b'\'' | b'\\' | b':' | b'=' | b' ' | b'\t' | b'\r' | b'\n')
            });
            let signs = signs.count();
            if len == 0 || !behind[..signs].iter().any(|byte| matches!(byte, b':' | b'=')) {
                continue;
            }
            let value = &behind[signs..];
            let length = value.iter().take_while(|byte| is_name(**byte)).count();
            return Some((&rest[..len], &value[..length]));
        }
    })
}

/// Texts that end a value if they follow a blank: the protocol of a request line, and the Core Rule Set's
/// note on the place of a match.
const BEHIND: &[&[u8]] = &[b"HTTP/", b"found within "];

/// The length of the value at the start of `text`. `signs` are the characters before the value; the last of them may be
/// its opening quote. The value ends at the closing quote or, without a quote, at the next separator of arguments,
/// cookies, members or lines, or at one of [`BEHIND`]. Other blanks belong to the value.
fn value_length(text: &[u8], signs: &[u8]) -> usize {
    let quote = signs.last().filter(|byte| matches!(byte, b'"' | b'\''));
    let mut escaped = false;
    let ends = |(at, byte): (usize, &u8)| {
        let ends = match (quote, byte) {
            _ if escaped => false,
            (_, b'\r' | b'\n') => true,
            (Some(quote), byte) => byte == quote,
            (None, b'&' | b'"') => true,
            (None, b';' | b',') => matches!(text.get(at + 1), None | Some(b' ' | b'"')),
            (None, b' ') => BEHIND.iter().any(|behind| text[at + 1..].starts_with(behind)),
            (None, b'}' | b']') => true,
            (None, _) => false,
        };
        escaped = !escaped && *byte == b'\\';
        ends
    };
    text.iter().enumerate().position(ends).unwrap_or(text.len())
}

/// The length of a text up to the end of its line.
fn line_length(text: &[u8]) -> usize {
    memchr::memchr2(b'\r', b'\n', text).unwrap_or(text.len())
}

pub(crate) fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'[' | b']' | b'%' | b'\\')
}

/// Decodes percent-encoding and JSON escapes in a name, up to [`LAYERS`] times.
fn decoded(name: &[u8]) -> Cow<'_, [u8]> {
    let mut plain = Cow::Borrowed(name);
    for _ in 0..LAYERS {
        let before = plain.len();
        if plain.contains(&b'%') {
            plain = Cow::Owned(Transformation::UrlDecode.apply(&plain).into_owned());
        }
        if plain.contains(&b'\\') {
            plain = Cow::Owned(Transformation::JsDecode.apply(&plain).into_owned());
        }
        if plain.len() == before {
            break;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::masks::Masks;

    #[test]
    fn pairs_with_secret_names_are_hidden() {
        for (text, shown) in [
            ("a=1&password=hunter2&b=3", "a=1&password=***&b=3"),
            (r#"{"user":"x","api_key": "abc"}"#, r#"{"user":"x","api_key": "***"}"#),
            ("GET /?token=abc HTTP/1.1", "GET /?token=*** HTTP/1.1"),
            ("the password is here", "the password is here"),
            ("user[passwd]=x", "user[passwd]=***"),
            ("password=", "password="),
            ("password=two words;and more&a=b", "password=***&a=b"),
            ("GET /?a=1&token=two words HTTP/1.1", "GET /?a=1&token=*** HTTP/1.1"),
            (r#"{"password":"two \" words","a":"b"}"#, r#"{"password":"***","a":"b"}"#),
            ("{\"password\":\t\"x y\",\"a\":\"b\"}", "{\"password\":\t\"***\",\"a\":\"b\"}"),
            ("{\"password\"\t:\r\n \"x y\",\"a\":\"b\"}", "{\"password\"\t:\r\n \"***\",\"a\":\"b\"}"),
            ("password=\r\nb: c", "password=\r\nb: c"),
            (r#"{"pin":1,"password":1234,"a":2}"#, r#"{"pin":***,"password":***,"a":2}"#),
            ("otp=123456&a=b&pin=1&spin=2&sig=x&design=3", "otp=***&a=b&pin=***&spin=2&sig=***&design=3"),
            (
                "X-Amz-Signature=ab&X-Amz-Date=1&X-Amz-Credential=c",
                "X-Amz-Signature=***&X-Amz-Date=1&X-Amz-Credential=***",
            ),
            (
                r#"{"userPin":1,"otpCode":"2","shipping":3,"accessKey":4}"#,
                r#"{"userPin":***,"otpCode":"***","shipping":3,"accessKey":***}"#,
            ),
            (
                r#"[{"name":"password","value":"x"},{"name":"q","value":"y"}]"#,
                r#"[{"name":"password","value":"***"},{"name":"q","value":"y"}]"#,
            ),
            (
                r#"[{"value":"x","name":"otp"},{"value":5,"key":"pin"}]"#,
                r#"[{"value":"***","name":"otp"},{"value":***,"key":"pin"}]"#,
            ),
            (
                r#"{"headers":[{"name":"Cookie","value":"x"}]}"#,
                r#"{"headers":[{"name":"Cookie","value":"***"}]}"#,
            ),
            (
                "f[0][name]=password&f[0][value]=x&f[1][name]=q&f[1][value]=y",
                "f[0][name]=password&f[0][value]=***&f[1][name]=q&f[1][value]=y",
            ),
            (r#"{"\u0070assword":"x y","a":"b"}"#, r#"{"\u0070assword":"***","a":"b"}"#),
            ("Data: token=two words found within ARGS:q", "Data: token=*** found within ARGS:q"),
            ("session.name=abc&json.session.0=abc", "session.name=abc&json.session.0=***"),
            ("session=abc; theme=dark", "session=***; theme=dark"),
            ("/?p%2561ssword=hunter2&a=b", "/?p%2561ssword=***&a=b"),
            ("q=%70assword%3Dhunter2%26a&b=c", "q=***&b=c"),
            ("q=password%253dhunter2 too&b=c", "q=***&b=c"),
            ("/?p%61ssword=hunter2&a=%2fb", "/?p%61ssword=***&a=%2fb"),
            ("a=b%26password=x", "a=b%26password=***"),
            (
                "GET / HTTP/1.1\r\nAuthorization: Basic a; b\r\nHost: h\r\ncookie:a=1; b=2\r\n\r\nauthor: x",
                "GET / HTTP/1.1\r\nAuthorization: ***\r\nHost: h\r\ncookie:***\r\n\r\nauthor: x",
            ),
            ("<a><password>hunter2</password><b>c</b></a>", "<a><password***</password><b>c</b></a>"),
            (
                "<wsse:Password Type=\"x\"><![CDATA[hunter2]]></wsse:Password><token/><b>c</b>",
                "<wsse:Password***</wsse:Password><token/><b>c</b>",
            ),
            ("<a><b>password</b>c <token>cut off", "<a><b>password</b>c <token***"),
            ("the cookie of authorization", "the cookie of authorization"),
            (r#"{"password": ["x", {"y":"]"}], "a":"b"}"#, r#"{"password": ***, "a":"b"}"#),
            (r#"{"password":{"old":"x\"}","new":["y"]},"a":"b"}"#, r#"{"password":***,"a":"b"}"#),
            (r#"{"token":[]} {"password":{"old":"cut o"#, r#"{"token":***} {"password":***"#),
            (r#"{"a":["b"],"c":{"pin":["d"]}}"#, r#"{"a":["b"],"c":{"pin":***}}"#),
            (r#"{"a":["b"],"c":{"pine":["d"]}}"#, r#"{"a":["b"],"c":{"pine":["d"]}}"#),
            ("ftp://ada:hunter2@10.0.0.1/x?a=b", "ftp://ada:***@10.0.0.1/x?a=b"),
            ("r=ftp%3A//ada%3Ahunter2%4010.0.0.1/x&a=b", "r=ftp%3A//***/x&a=b"),
            ("http://h:80/@a http://ada@h/ http://:p@q@h", "http://h:80/@a http://ada@h/ http://:***@h"),
            ("/x;password=hunter2/<script>", "/x;password=***"),
            ("cookie=crumbs", "cookie=crumbs"),
            (r#"{"authorization":"Basic x","a":"b"}"#, r#"{"authorization":"***","a":"b"}"#),
            (
                "pw=a&user.jwt=b&auth=c&author=d&session[1]=e&session.check=f",
                "pw=***&user.jwt=***&auth=***&author=d&session[1]=***&session.check=f",
            ),
        ] {
            assert_eq!(String::from_utf8_lossy(&hide_pairs_and(text.as_bytes(), &Masks::default())), shown);
        }
    }
}

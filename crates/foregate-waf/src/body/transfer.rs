//! `Content-Transfer-Encoding` of a form's part. RFC 7578 section 4.7 deprecates it. Some programs decode it,
//! such as Django (base64) and Go (quoted-printable); others do not.

use std::borrow::Cow;

use crate::transform::Transformation;

/// The content of a part for parsers that remove its transfer encoding.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TransferContent<'a> {
    /// The transfer encoding changes nothing.
    Same,
    /// The decoded content.
    Other(Cow<'a, [u8]>),
    /// The decoded content is unknown, for this reason.
    Unknown(&'static str),
}

/// Decodes a content by the value of the field.
pub(super) fn decode<'a>(encoding: &[u8], content: &'a [u8]) -> TransferContent<'a> {
    let encoding = encoding.trim_ascii();
    let is = |name: &str| encoding.eq_ignore_ascii_case(name.as_bytes());
    if encoding.is_empty() || ["7bit", "8bit", "binary"].into_iter().any(is) {
        return TransferContent::Same;
    }
    let decoded = if is("base64") {
        base64(content)
    } else if is("quoted-printable") {
        quoted_printable(content)
    } else {
        return TransferContent::Unknown("a part with a Content-Transfer-Encoding that is not known");
    };
    match decoded {
        Some(decoded) if decoded == content => TransferContent::Same,
        Some(decoded) => TransferContent::Other(decoded.into()),
        None => TransferContent::Unknown("a part that is not in its Content-Transfer-Encoding"),
    }
}

/// Decodes base64 if the text has only letters of base64, white space, and padding at the end: all decoders read such a
/// text alike.
fn base64(content: &[u8]) -> Option<Vec<u8>> {
    let letters: Vec<u8> =
        content.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n' | b' ' | b'\t')).collect();
    let end = letters.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let is_whole = letters.len().is_multiple_of(4) && letters.len() - end <= 2;
    let is_one = is_whole && letters[..end].iter().all(is_letter);
    is_one.then(|| Transformation::Base64Decode.apply(&letters).into_owned())
}

/// Decodes quoted-printable (RFC 2045 section 6.7): `=` and two hexadecimal digits are a byte, and `=` at the
/// end of a line joins the line to the next.
fn quoted_printable(content: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(content.len());
    let mut rest = content;
    loop {
        let plain = memchr::memchr(b'=', rest).unwrap_or(rest.len());
        decoded.extend_from_slice(&rest[..plain]);
        rest = match &rest[plain..] {
            [] => return Some(decoded),
            [b'=', b'\r', b'\n', after @ ..] | [b'=', b'\n', after @ ..] => after,
            [b'=', high, low, after @ ..] => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                decoded.push(u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()?);
                after
            }
            [b'='] => return Some(decoded),
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_decoded() {
        for same in ["", "7bit", "8BIT", " binary "] {
            assert_eq!(decode(same.as_bytes(), b"ZXZpbA=="), TransferContent::Same, "{same}");
        }
        for (encoding, content, decoded) in [
            ("base64", "ZXZpbA==", Some("evil")),
            ("BASE64", "ZXZ\r\np bA==\r\n", Some("evil")),
            ("base64", "", None),
            ("quoted-printable", "e=76i=\r\nl=3d", Some("evil=")),
            ("Quoted-Printable", "e=76=\nil=", Some("evil")),
            ("quoted-printable", "evil", None),
        ] {
            let expected =
                decoded.map_or(TransferContent::Same, |text| TransferContent::Other(text.as_bytes().into()));
            assert_eq!(decode(encoding.as_bytes(), content.as_bytes()), expected, "{encoding} {content}");
        }
        for (encoding, content) in [
            ("base64", "ZXZpbA"),
            ("base64", "ZXZp*bA="),
            ("base64", "ZX=ZpbA="),
            ("base64", "ZXZpbA==ZXZpbA=="),
            ("base64", "===="),
            ("base64 x", "ZXZpbA=="),
            ("quoted-printable", "=zz"),
            ("quoted-printable", "=4"),
            ("x-uuencode", "x"),
            ("base64, binary", "ZXZpbA=="),
        ] {
            let outcome = decode(encoding.as_bytes(), content.as_bytes());
            assert!(matches!(outcome, TransferContent::Unknown(_)), "{encoding} {content}");
        }
    }
}

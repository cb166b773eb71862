//! Distinguished names as text.

use std::fmt::Write as _;

use x509_parser::asn1_rs::{Any, BmpString, Tag, ToDer as _};
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::x509::X509Name;

/// The text of a name in the form of RFC 4514, but in the certificate's order, and with a space after
/// each comma and around each plus: `O=Example, CN=alice`. Different names have different texts.
pub(super) fn text(name: &X509Name<'_>) -> String {
    let mut out = String::new();
    for part in name.iter() {
        for (at, attribute) in part.iter().enumerate() {
            if at > 0 {
                out.push_str(" + ");
            } else if !out.is_empty() {
                out.push_str(", ");
            }
            match oid2abbrev(attribute.attr_type(), oid_registry()) {
                Ok(kind) => out.push_str(kind),
                Err(_) => out.push_str(&attribute.attr_type().to_id_string()),
            }
            out.push('=');
            push_value(&mut out, attribute.attr_value());
        }
    }
    out
}

/// Appends a value. A value that is not text is written as `#` and its encoding in hexadecimal digits
/// (RFC 4514, section 2.4).
fn push_value(out: &mut String, value: &Any<'_>) {
    let text = match value.tag() {
        Tag::NumericString
        | Tag::VisibleString
        | Tag::PrintableString
        | Tag::GeneralString
        | Tag::ObjectDescriptor
        | Tag::GraphicString
        | Tag::T61String
        | Tag::VideotexString
        | Tag::Utf8String
        | Tag::Ia5String => std::str::from_utf8(value.data).ok().map(str::to_owned),
        Tag::BmpString => BmpString::try_from(value.clone()).ok().map(|text| text.string()),
        _ => None,
    };
    if let Some(text) = text {
        push_escaped(out, &text);
        return;
    }
    out.push('#');
    for byte in value.to_der_vec().unwrap_or_default() {
        let _ = write!(out, "{byte:02X}");
    }
}

fn push_escaped(out: &mut String, value: &str) {
    let last = value.len().saturating_sub(1);
    for (at, letter) in value.char_indices() {
        match letter {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => out.push('\\'),
            '#' if at == 0 => out.push('\\'),
            ' ' if at == 0 || at == last => out.push('\\'),
            _ if letter.is_ascii_control() => {
                let _ = write!(out, "\\{:02X}", u32::from(letter));
                continue;
            }
            _ => {}
        }
        out.push(letter);
    }
}

/// The attributes in a name as [`text`] has written it: `O=Example` and `CN=alice`.
fn attributes(subject: &str) -> Vec<&str> {
    let (mut found, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, letter) in subject.char_indices() {
        if escaped {
            escaped = false;
            continue;
        }
        // Within values, commas and pluses are escaped by a backslash.
        let around = match letter {
            ',' => (0, 2),
            '+' => (1, 2),
            _ => {
                escaped = letter == '\\';
                continue;
            }
        };
        found.push(subject.get(start..at - around.0).unwrap_or_default());
        start = at + around.1;
    }
    found.extend(subject.get(start..).filter(|last| !last.is_empty()));
    found
}

/// The name in the form that OpenSSL and NGINX call RFC 2253: `CN=alice,O=Example`, the last
/// attribute first, and nothing but printable ASCII.
pub fn reversed_subject(subject: &str) -> String {
    let mut out = String::with_capacity(subject.len());
    let parts = attributes(subject);
    for (at, part) in parts.iter().enumerate().rev() {
        for byte in part.bytes() {
            match byte {
                0x20..0x7f => out.push(char::from(byte)),
                _ => {
                    let _ = write!(out, "\\{byte:02X}");
                }
            }
        }
        if let Some(before) = at.checked_sub(1).and_then(|before| parts.get(before)) {
            let behind = before.as_ptr().addr() - subject.as_ptr().addr() + before.len();
            out.push(if subject.as_bytes().get(behind) == Some(&b',') { ',' } else { '+' });
        }
    }
    out
}

/// The common name in a name that [`text`] has formatted, if there is exactly one and it is text
/// without control characters.
pub fn common_name(subject: &str) -> Option<String> {
    let mut names = attributes(subject).into_iter().filter_map(|part| part.strip_prefix("CN="));
    let (Some(name), None) = (names.next(), names.next()) else { return None };
    let (mut plain, mut letters) = (String::with_capacity(name.len()), name.chars());
    if name.starts_with('#') {
        return None;
    }
    while let Some(letter) = letters.next() {
        match letter {
            // A backslash before hexadecimal digits encodes a control character.
            '\\' => plain.push(letters.next().filter(|next| !next.is_ascii_hexdigit())?),
            _ => plain.push(letter),
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use x509_parser::prelude::FromDer as _;

    use super::*;

    /// A sequence of sets, each with one attribute of the last arc of `2.5.4`, its tag and its
    /// bytes.
    fn name(parts: &[(u8, u8, &[u8])]) -> Vec<u8> {
        let der = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
        let part = |&(kind, tag, value): &(u8, u8, &[u8])| {
            let attribute = [der(6, &[0x55, 4, kind]), der(tag, value)].concat();
            der(0x31, &der(0x30, &attribute))
        };
        der(0x30, &parts.iter().flat_map(part).collect::<Vec<_>>())
    }

    #[test]
    fn no_two_names_are_the_same_text() {
        const ORGANISATION: u8 = 10;
        const COMMON_NAME: u8 = 3;
        const UTF8: u8 = 12;
        for (parts, expected) in [
            (
                &[(ORGANISATION, UTF8, &b"Example"[..]), (COMMON_NAME, UTF8, b"a b=c")][..],
                "O=Example, CN=a b=c",
            ),
            (&[(ORGANISATION, UTF8, b"Example, CN=admin")], r"O=Example\, CN=admin"),
            (&[(COMMON_NAME, UTF8, br#"a+b"c\d<e>f;g"#)], r#"CN=a\+b\"c\\d\<e\>f\;g"#),
            (&[(COMMON_NAME, UTF8, b" # ")], r"CN=\ #\ "),
            (&[(COMMON_NAME, UTF8, b"#1")], r"CN=\#1"),
            (&[(COMMON_NAME, UTF8, b" ")], r"CN=\ "),
            (&[(COMMON_NAME, UTF8, b"a\0b\r\n")], r"CN=a\00b\0D\0A"),
            (&[(COMMON_NAME, UTF8, "ä".as_bytes())], "CN=ä"),
            (&[(COMMON_NAME, 30, b"\0a\0,")], r"CN=a\,"),
            (&[(COMMON_NAME, 20, b"\xe4")], "CN=#1401E4"),
            (&[(COMMON_NAME, 4, b"\x01\x02")], "CN=#04020102"),
            (&[], ""),
        ] {
            let encoded = name(parts);
            assert_eq!(text(&X509Name::from_der(&encoded).unwrap().1), expected);
        }
    }

    #[test]
    fn a_name_is_written_as_openssl_does() {
        for (subject, expected) in [
            ("O=Example, CN=alice", "CN=alice,O=Example"),
            (r"O=a\, CN=admin, CN=b + UID=1", r"UID=1+CN=b,O=a\, CN=admin"),
            (r"O=a\\, CN=b \+ c", r"CN=b \+ c,O=a\\"),
            ("CN=ä", r"CN=\C3\A4"),
            ("", ""),
        ] {
            assert_eq!(reversed_subject(subject), expected);
        }
    }

    #[test]
    fn no_other_part_of_a_subject_is_taken_for_the_common_name() {
        assert_eq!(common_name("O=Example, CN=alice").as_deref(), Some("alice"));
        assert_eq!(common_name(r"O=a\, CN=admin, CN=alice\+1").as_deref(), Some("alice+1"));
        for subject in ["CN=a, CN=b", r"O=a\, CN=admin", r"CN=a\0Ab", "CN=#0401", "O=Example", ""] {
            assert_eq!(common_name(subject), None, "{subject}");
        }
    }
}

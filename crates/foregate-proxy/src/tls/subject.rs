//! Distinguished names as text.

use std::fmt::Write as _;

use x509_parser::asn1_rs::{Any, BmpString, Tag, ToDer as _};
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::x509::X509Name;

/// Writes a name in the form of RFC 4514, but in the certificate's own order, with a space after
/// each comma and around each plus, as it has been shown ever since: `O=Example, CN=alice`. No two
/// names are the same text.
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

/// A value that is no text appears as its encoding in hexadecimal digits (RFC 4514, section 2.4).
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
}

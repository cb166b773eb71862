//! Documents in UTF-16 and UTF-32. Parsers of JSON and XML recognise these encodings by the first bytes,
//! whatever the `Content-Type` declares.

/// The byte order mark in UTF-8.
pub(crate) const MARK: &[u8] = b"\xef\xbb\xbf";

/// The number of characters at the start of a body in which a document has to begin.
const START: usize = 64;

#[derive(Clone, Copy)]
enum Wide {
    Utf16(fn([u8; 2]) -> u16),
    Utf32(fn([u8; 4]) -> u32),
}

/// Converts a body to UTF-8 if it is in one of these encodings and begins like a JSON or XML document; `None`
/// for all other bodies. Incomplete characters become U+FFFD.
pub(crate) fn narrowed(body: &[u8]) -> Option<Vec<u8>> {
    let wide = encoding(body)?;
    let mut start = characters(wide, body).take(START).filter(|character| *character != '\u{feff}');
    let first = start.find(|character| !character.is_whitespace() && !character.is_control())?;
    if !matches!(first, '{' | '[' | '"' | '\'' | '<' | '/' | ')') {
        return None;
    }
    let text: String = characters(wide, body).collect();
    Some(text.strip_prefix('\u{feff}').unwrap_or(&text).as_bytes().to_vec())
}

/// Recognises the encoding by its byte order mark, or by the zero bytes of the first character, which is
/// always an ASCII character (RFC 4627 section 3).
fn encoding(body: &[u8]) -> Option<Wide> {
    Some(match body {
        [0xff, 0xfe, 0, 0, ..] | [1..=0xff, 0, 0, 0, ..] => Wide::Utf32(u32::from_le_bytes),
        [0, 0, 0xfe, 0xff, ..] | [0, 0, 0, 1..=0xff, ..] => Wide::Utf32(u32::from_be_bytes),
        [0xff, 0xfe, ..] | [1..=0xff, 0, ..] => Wide::Utf16(u16::from_le_bytes),
        [0xfe, 0xff, ..] | [0, 1..=0xff, ..] => Wide::Utf16(u16::from_be_bytes),
        _ => return None,
    })
}

fn characters(wide: Wide, body: &[u8]) -> impl Iterator<Item = char> {
    let (two, four) = match wide {
        Wide::Utf16(read) => (Some(read), None),
        Wide::Utf32(read) => (None, Some(read)),
    };
    let units =
        two.into_iter().flat_map(move |read| body.as_chunks::<2>().0.iter().map(move |unit| read(*unit)));
    let halves = char::decode_utf16(units).map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER));
    let whole =
        four.into_iter().flat_map(move |read| body.as_chunks::<4>().0.iter().map(move |unit| read(*unit)));
    halves.chain(whole.map(|code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(text: &str, unit: impl Fn(char) -> Vec<u8>) -> Vec<u8> {
        text.chars().flat_map(unit).collect()
    }

    #[test]
    fn documents_are_told_by_their_first_bytes() {
        let little = |character: char| (character as u16).to_le_bytes().to_vec();
        let big = |character: char| (character as u16).to_be_bytes().to_vec();
        let little4 = |character: char| (character as u32).to_le_bytes().to_vec();
        let big4 = |character: char| (character as u32).to_be_bytes().to_vec();
        for text in ["{\"a\":\"\u{e9}\u{2603}\"}", " \n[1]", "\u{feff}{}", "<?xml?><a/>", "\"\u{2603}\""] {
            let expected = text.trim_start_matches('\u{feff}').as_bytes().to_vec();
            for body in [wide(text, little), wide(text, big), wide(text, little4), wide(text, big4)] {
                assert_eq!(narrowed(&body).as_ref(), Some(&expected), "{text}");
            }
        }
        for other in [&b"{\"a\":1}"[..], b"a\0b\0", b"\xff\xfea\0", b"", b"{", b"\xef\xbb\xbf{}", b"\0\0\0\0"]
        {
            assert_eq!(narrowed(other), None);
        }
        // A half of a character.
        assert_eq!(narrowed(b"[\0\x00\xd8").as_deref(), Some("[\u{fffd}".as_bytes()));
    }
}

//! A reversible mapping between the bytes of a document and the characters that the rewriter handles.
//!
//! The rewriter decodes bytes to characters for handlers, and encodes them again. Both ways must be lossless for any input,
//! including invalid bytes and characters that are split between pieces.
//!
//! A document in UTF-8 is passed to the rewriter as UTF-8, in pieces of whole characters. Each invalid byte becomes a
//! [stand-in](STAND_INS) before the rewriter, and is restored after it. If the document itself contains a stand-in,
//! each byte of this character becomes a stand-in, so that restoring is unambiguous.
//!
//! Documents in other encodings are declared to the rewriter as windows-1252. The decoder of windows-1252 maps each of
//! the 256 bytes to a character, and the encoder maps the character back.
//!
//! Text in this form is called *transparent* here.

use std::borrow::Cow;

use encoding_rs::WINDOWS_1252;

/// The first of 256 private-use characters, one for each byte. Those of the bytes below 0x80 are never used as
/// stand-ins.
const STAND_INS: u32 = 0x10_fe00;
/// Two characters that no text for the rewriter contains. They belong to bytes that need no stand-in.
pub(crate) const UNUSED: [char; 2] = ['\u{10fe00}', '\u{10fe01}'];
/// The first byte of every stand-in in UTF-8. Few other characters begin with this byte.
const FIRST: u8 = 0xf4;
/// The length of a stand-in in UTF-8, bytes.
const LENGTH: usize = 4;

/// The byte that a stand-in represents; `None` for any other character.
fn byte_of(character: char) -> Option<u8> {
    u8::try_from(u32::from(character).checked_sub(STAND_INS)?).ok()
}

/// Returns true if a text may contain stand-ins.
fn may_stand_in(bytes: &[u8]) -> bool {
    memchr::memchr(FIRST, bytes).is_some()
}

/// Returns true if a text of a document in UTF-8, in the form for the rewriter, contains stand-ins.
pub(crate) fn stands_in(text: &str) -> bool {
    may_stand_in(text.as_bytes()) && text.chars().any(|character| byte_of(character).is_some())
}

/// Converts input of a document in UTF-8 for the rewriter: invalid bytes and characters that look like stand-ins are
/// replaced by stand-ins. Also returns the number of converted bytes. An incomplete character at the end is left for
/// the next call, unless `last` is true: then no more input follows.
pub(crate) fn load(bytes: &[u8], last: bool) -> (Cow<'_, [u8]>, usize) {
    if bytes.is_ascii() {
        return (Cow::Borrowed(bytes), bytes.len());
    }
    let whole = match simdutf8::compat::from_utf8(bytes) {
        Ok(_) => bytes,
        Err(error) if error.error_len().is_none() && !last => {
            bytes.get(..error.valid_up_to()).unwrap_or_default()
        }
        Err(_) => return replaced(bytes, last),
    };
    if may_stand_in(whole) { replaced(whole, true) } else { (Cow::Borrowed(whole), whole.len()) }
}

fn replaced(bytes: &[u8], last: bool) -> (Cow<'_, [u8]>, usize) {
    let (mut loaded, mut taken) = (String::with_capacity(bytes.len()), 0);
    for chunk in bytes.utf8_chunks() {
        replace(chunk.valid(), &mut loaded);
        taken += chunk.valid().len();
        let others = chunk.invalid();
        // An incomplete character: its remaining bytes may come with the next piece.
        let begun = taken + others.len() == bytes.len()
            && std::str::from_utf8(others).is_err_and(|error| error.error_len().is_none());
        if begun && !last {
            break;
        }
        others.iter().for_each(|byte| add_stand_in(*byte, &mut loaded));
        taken += others.len();
    }
    (Cow::Owned(loaded.into_bytes()), taken)
}

/// Adds a text. Each byte of a character that looks like a stand-in is replaced by the stand-in of the byte.
fn replace(text: &str, loaded: &mut String) {
    for character in text.chars() {
        match byte_of(character) {
            None => loaded.push(character),
            Some(_) => {
                let mut bytes = [0; LENGTH];
                character.encode_utf8(&mut bytes).bytes().for_each(|byte| add_stand_in(byte, loaded));
            }
        }
    }
}

fn add_stand_in(byte: u8, loaded: &mut String) {
    loaded.extend(char::from_u32(STAND_INS + u32::from(byte)));
}

/// A text in the form of the rewriter's input and output.
pub(crate) fn load_text(text: &str) -> Cow<'_, str> {
    if !may_stand_in(text.as_bytes()) {
        return Cow::Borrowed(text);
    }
    let mut loaded = String::with_capacity(text.len());
    replace(text, &mut loaded);
    Cow::Owned(loaded)
}

/// Appends output of the rewriter and turns stand-ins into their bytes. The output has to consist of whole characters.
#[cold]
pub(crate) fn unload(mut bytes: &[u8], out: &mut Vec<u8>) {
    while let Some(at) = memchr::memchr(FIRST, bytes) {
        let (before, rest) = bytes.split_at(at);
        out.extend_from_slice(before);
        let (character, rest) = rest.split_at(rest.len().min(LENGTH));
        let found = std::str::from_utf8(character).ok().and_then(|text| text.chars().next());
        match found.and_then(byte_of) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(character),
        }
        bytes = rest;
    }
    out.extend_from_slice(bytes);
}

/// Converts text back to the bytes from which [`text_of`] made it, for a document that is not in UTF-8.
pub(crate) fn bytes_of(text: &str) -> Cow<'_, [u8]> {
    WINDOWS_1252.encode(text).0
}

/// Converts bytes to text, one character for each byte, for a document that is not in UTF-8.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    WINDOWS_1252.decode_without_bom_handling(bytes).0.into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The inner form and the output of a document in these pieces.
    fn carried(bytes: &[u8], pieces: &[usize]) -> (Vec<u8>, Vec<u8>) {
        let (mut inside, mut out) = (Vec::new(), Vec::new());
        let (mut at, mut end) = (0, 0);
        let mut lengths = pieces.iter().cycle();
        while at < bytes.len() {
            end = (end + lengths.next().unwrap()).min(bytes.len());
            let (loaded, taken) = load(&bytes[at..end], end == bytes.len());
            assert!(std::str::from_utf8(&loaded).is_ok() && end - at - taken <= 3);
            unload(&loaded, &mut out);
            inside.extend_from_slice(&loaded);
            at += taken;
        }
        (inside, out)
    }

    #[test]
    fn every_byte_passes_through_windows_1252() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(&*bytes_of(&text_of(&bytes)), bytes);
    }

    #[test]
    fn only_what_is_no_text_or_a_stand_in_is_replaced() {
        let (loaded, taken) = load("grün \u{10fffd}€".as_bytes(), true);
        assert_eq!((&*loaded, taken), ("grün \u{10fffd}€".as_bytes(), 13));
        let (loaded, taken) = load(b"a\xfcb\xe2\x82", false);
        assert_eq!((&*loaded, taken), ("a\u{10fefc}b".as_bytes(), 3));
        let (loaded, taken) = load(b"\xe2\x82", true);
        assert_eq!((&*loaded, taken), ("\u{10fee2}\u{10fe82}".as_bytes(), 2));
        assert_eq!(load_text("\u{10fe80}x"), "\u{10fef4}\u{10fe8f}\u{10feba}\u{10fe80}x");
        assert!(matches!(load_text("€"), Cow::Borrowed("€")));
    }

    proptest! {
        #[test]
        fn all_bytes_come_back_however_they_are_split(
            parts in proptest::collection::vec(
                prop_oneof![
                    any::<char>().prop_map(|character| character.to_string().into_bytes()),
                    proptest::char::range('\u{10fdf0}', '\u{10ff10}').prop_map(|c| c.to_string().into_bytes()),
                    proptest::collection::vec(any::<u8>(), 1..4),
                    Just(b"ab".to_vec()),
                ],
                0..20,
            ),
            pieces in proptest::collection::vec(1_usize..9, 1..5),
        ) {
            let bytes = parts.concat();
            let (whole, out) = carried(&bytes, &[usize::MAX / 2]);
            prop_assert_eq!(&out, &bytes);
            prop_assert!(UNUSED.iter().all(|unused| !String::from_utf8_lossy(&whole).contains(*unused)));
            prop_assert_eq!(carried(&bytes, &pieces), (whole, bytes));
        }
    }
}

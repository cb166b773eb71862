//! The character encoding of a document, and the encoding of inserted text.
//!
//! Inserted text is encoded in the document's encoding, and then converted to the [transparent form](crate::carry) of
//! the rewriter: see [`Charset::transparent`]. If a document is not in UTF-8, this form has a character for each byte.
//! It can only be used for encodings in which the bytes of markup always mean ASCII. These are all single-byte
//! encodings, and Shift_JIS, EUC-JP, EUC-KR, Big5, GBK and gb18030, because the second byte of a character is never
//! `<`, `>`, `&`, a quote, a blank or a slash there. It may be a letter or `@`, though: [`Charset::mask`] hides such
//! bytes from features that read text. Documents in UTF-16, ISO-2022-JP and the replacement encodings of the standard
//! are not rewritten.

use std::borrow::Cow;

use encoding_rs::{
    BIG5, EUC_KR, Encoding, GB18030, GBK, ISO_2022_JP, REPLACEMENT, SHIFT_JIS, UTF_8, UTF_16BE, UTF_16LE,
    WINDOWS_1252, X_USER_DEFINED,
};
use lol_html::AsciiCompatibleEncoding;

use crate::carry;

/// The length of a document's start that is searched for a `meta` with its encoding, bytes (HTML, "prescan a byte stream").
pub const PRESCAN: usize = 1024;

/// The byte-order marks of UTF-8, UTF-16BE and UTF-16LE.
pub(crate) const MARKS: [&[u8]; 3] = [b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe"];

/// The first of the characters that [`Charset::mask`] writes in place of second bytes below 0x80.
const MASK: u32 = 0xe000;

/// The encoding of a document. The rewriter supports all encodings that this type can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charset(&'static Encoding, EncodingSource);

/// How the encoding was determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EncodingSource {
    /// The document or the head of the response declares the encoding.
    Told,
    /// Nothing declares the encoding. Browsers may choose another one because of a later `meta`, or by guessing.
    Assumed,
}

/// The result of sniffing the start of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SniffResult {
    /// The encoding of the document.
    Known(Charset),
    /// The encoding is not supported.
    Unsupported,
    /// More input is needed.
    More,
}

impl Charset {
    /// The encoding of most documents.
    pub const UTF_8: Self = Self(UTF_8, EncodingSource::Told);
    /// The encoding assumed for documents without a declaration: the default of browsers in most countries.
    const ASSUMED: Self = Self(WINDOWS_1252, EncodingSource::Assumed);

    /// The encoding with this label (Encoding Standard, section 4.2); `None` if the label is unknown, or if documents in
    /// the encoding cannot be rewritten.
    pub fn of_label(label: &[u8]) -> Option<Self> {
        Self::of(Encoding::for_label(label)?)
    }

    fn of(encoding: &'static Encoding) -> Option<Self> {
        let unsupported = [UTF_16BE, UTF_16LE, ISO_2022_JP, REPLACEMENT].contains(&encoding);
        (!unsupported).then_some(Self(encoding, EncodingSource::Told))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Returns true if the document or the head of the response declares the encoding.
    pub(crate) fn is_told(self) -> bool {
        self.1 == EncodingSource::Told
    }

    /// The text in a form that means the same in every encoding that a browser may choose: if nothing declares the
    /// encoding, characters outside of ASCII become references.
    pub(crate) fn plain(self, text: &str) -> Cow<'_, str> {
        if self.1 == EncodingSource::Told || text.is_ascii() {
            return Cow::Borrowed(text);
        }
        let mut plain = String::with_capacity(text.len() + 8);
        for character in text.chars() {
            match character.is_ascii() {
                true => plain.push(character),
                false => plain.push_str(&format!("&#{};", u32::from(character))),
            }
        }
        Cow::Owned(plain)
    }

    /// The transparent form of a text in this encoding, for the rewriter. Characters that the encoding lacks become
    /// references.
    pub fn transparent(self, text: &str) -> Cow<'_, str> {
        if text.is_ascii() {
            return Cow::Borrowed(text);
        }
        match self.is_utf8() {
            true => carry::load_text(text),
            false => Cow::Owned(carry::text_of(&self.encode(text))),
        }
    }

    /// The text as bytes of the document.
    pub(crate) fn encode(self, text: &str) -> Cow<'_, [u8]> {
        self.0.encode(text).0
    }

    /// Converts a transparent text to the bytes that it represents.
    pub(crate) fn bytes_of(self, text: &str) -> Cow<'_, [u8]> {
        if !self.is_utf8() {
            return carry::bytes_of(text);
        }
        let mut bytes = Vec::with_capacity(text.len());
        carry::unload(text.as_bytes(), &mut bytes);
        Cow::Owned(bytes)
    }

    pub(crate) fn is_utf8(self) -> bool {
        self == Self::UTF_8
    }

    /// Converts input for the rewriter, and also returns the number of converted bytes: see [`carry::load`].
    pub(crate) fn load(self, bytes: &[u8], last: bool) -> (Cow<'_, [u8]>, usize) {
        if self.is_utf8() { carry::load(bytes, last) } else { (Cow::Borrowed(bytes), bytes.len()) }
    }

    /// The encoding that the rewriter is told: UTF-8 or windows-1252 (see [`carry`]).
    pub(crate) fn carrier(self) -> AsciiCompatibleEncoding {
        let carrier = if self.is_utf8() { UTF_8 } else { WINDOWS_1252 };
        AsciiCompatibleEncoding::new(carrier).expect("both are compatible with ASCII")
    }

    /// Returns true if the second byte of a character may look like ASCII.
    pub(crate) fn needs_mask(self) -> bool {
        [BIG5, EUC_KR, GB18030, GBK, SHIFT_JIS].contains(&self.0)
    }

    /// Replaces second bytes of characters that look like ASCII in a text in the [transparent form](crate::carry), so that
    /// features do not take them for ASCII. `lead` is set if a piece ends in the middle of a character; the caller passes
    /// `lead` again with the next piece.
    pub(crate) fn mask(self, text: &str, lead: &mut bool, masked: &mut String) {
        masked.clear();
        for character in text.chars() {
            if std::mem::take(lead) {
                let code = u32::from(character);
                match char::from_u32(MASK + code) {
                    // A byte that cannot be a second byte starts a new character (Encoding Standard, section 4.1).
                    Some(hidden) if self.is_second(code) => masked.push(hidden),
                    _ => masked.push(character),
                }
                continue;
            }
            *lead = self.is_lead(character);
            masked.push(character);
        }
    }

    /// Reverts [`mask`](Self::mask).
    pub(crate) fn unmask(text: &mut String) {
        let plain = |character: char| match u32::from(character).checked_sub(MASK) {
            Some(code @ 0..=0x7f) => char::from_u32(code).unwrap_or(character),
            _ => character,
        };
        *text = text.chars().map(plain).collect();
    }

    fn is_lead(self, character: char) -> bool {
        if character.is_ascii() {
            return false;
        }
        let mut bytes = [0; 4];
        let text: &str = character.encode_utf8(&mut bytes);
        let (bytes, _, _) = WINDOWS_1252.encode(text);
        match bytes.first() {
            Some(byte) if self.0 == SHIFT_JIS => matches!(byte, 0x81..=0x9f | 0xe0..=0xfc),
            Some(byte) => matches!(byte, 0x81..=0xfe),
            None => false,
        }
    }

    fn is_second(self, code: u32) -> bool {
        matches!(code, 0x40..=0x7e) || self.0 == GB18030 && matches!(code, 0x30..=0x39)
    }
}

/// Determines the encoding from the first bytes of a document and its `content-type`. `whole` is true if `start` is the
/// whole document.
pub(crate) fn sniff(content_type: Option<&[u8]>, start: &[u8], whole: bool) -> SniffResult {
    if start.starts_with(MARKS[0]) {
        return SniffResult::Known(Charset::UTF_8);
    }
    if start.starts_with(MARKS[1]) || start.starts_with(MARKS[2]) {
        return SniffResult::Unsupported;
    }
    if !whole && MARKS.iter().any(|mark| mark.starts_with(start)) {
        return SniffResult::More;
    }
    let named = content_type.and_then(charset_of).and_then(Encoding::for_label);
    if let Some(encoding) = named {
        return Charset::of(encoding).map_or(SniffResult::Unsupported, SniffResult::Known);
    }
    let window = start.get(..PRESCAN).unwrap_or(start);
    match prescan(window) {
        Prescan::Found(encoding, _) => {
            Charset::of(encoding).map_or(SniffResult::Unsupported, SniffResult::Known)
        }
        Prescan::RanOut if !whole && start.len() < PRESCAN => SniffResult::More,
        Prescan::RanOut | Prescan::Nothing => SniffResult::Known(Charset::ASSUMED),
    }
}

/// The end of the `meta` that is the only declaration of the document's encoding. `None` if something else declares the
/// encoding, or nothing does.
pub(crate) fn declaring_meta(content_type: Option<&[u8]>, start: &[u8]) -> Option<usize> {
    let told = start.starts_with(MARKS[0])
        || content_type.and_then(charset_of).and_then(Encoding::for_label).is_some();
    match prescan(start.get(..PRESCAN).unwrap_or(start)) {
        Prescan::Found(_, end) if !told => Some(end),
        _ => None,
    }
}

/// Returns true if the first bytes of the output still declare this encoding.
pub(crate) fn is_declared(charset: Charset, start: &[u8]) -> bool {
    let found = prescan(start.get(..PRESCAN).unwrap_or(start));
    matches!(found, Prescan::Found(encoding, _) if encoding == charset.0)
}

/// The value of the parameter `charset` of a media type.
fn charset_of(content_type: &[u8]) -> Option<&[u8]> {
    let parameters = content_type.split(|byte| *byte == b';').skip(1);
    let value = parameters.map(<[u8]>::trim_ascii).find_map(|parameter| {
        let (name, value) = parameter.split_at_checked(8)?;
        name.eq_ignore_ascii_case(b"charset=").then_some(value)
    })?;
    // A quoted value without a closing quote ends with the field (MIME Sniffing, section 4.4).
    let bare =
        value.strip_prefix(b"\"").map(|value| value.split(|byte| *byte == b'"').next().unwrap_or(value));
    Some(bare.unwrap_or(value))
}

/// The result of scanning the start of a document.
enum Prescan {
    /// The encoding that a `meta` declares, and the position after the `meta`.
    Found(&'static Encoding, usize),
    /// The head has ended without declaring an encoding.
    Nothing,
    /// The input ended before the head did.
    RanOut,
}

/// Looks for `<meta charset>` or its older form (HTML, section 13.2.3.2). Unlike in the standard, the search stops at
/// the end of the head: waiting for a kilobyte would delay pages that stream.
fn prescan(bytes: &[u8]) -> Prescan {
    let mut rest = bytes;
    while let Some(at) = memchr::memchr(b'<', rest) {
        rest = rest.get(at..).unwrap_or_default();
        if rest.starts_with(b"<!--") {
            // `<!-->` is a whole comment.
            let Some(end) = find(rest.get(2..).unwrap_or_default(), b"-->") else { return Prescan::RanOut };
            rest = rest.get(2 + end + 3..).unwrap_or_default();
            continue;
        }
        let Some(tag) = tag(rest) else { return Prescan::RanOut };
        match tag {
            PrescanTag::None => rest = rest.get(1..).unwrap_or_default(),
            PrescanTag::HeadEnds => return Prescan::Nothing,
            PrescanTag::Other(length) => rest = rest.get(length..).unwrap_or_default(),
            PrescanTag::Meta(attributes, length) => {
                if let Some(encoding) = named_by(&attributes) {
                    return Prescan::Found(encoding, bytes.len() - rest.len() + length);
                }
                rest = rest.get(length..).unwrap_or_default();
            }
        }
    }
    Prescan::RanOut
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}

/// The kind of construct after a `<`.
enum PrescanTag {
    /// No tag.
    None,
    /// The end of the head, or the start of the body.
    HeadEnds,
    /// A `meta`, with its attributes and length.
    Meta(Vec<(Vec<u8>, Vec<u8>)>, usize),
    /// Another construct of this length, to be skipped.
    Other(usize),
}

/// Reads the tag at the start of `bytes`; `None` if the end of the tag is missing.
fn tag(bytes: &[u8]) -> Option<PrescanTag> {
    let (closing, name_at) = match bytes.get(1)? {
        b'/' => (true, 2),
        b'!' | b'?' => return Some(PrescanTag::Other(memchr::memchr(b'>', bytes)? + 1)),
        _ => (false, 1),
    };
    if !bytes.get(name_at)?.is_ascii_alphabetic() {
        return Some(if closing {
            PrescanTag::Other(memchr::memchr(b'>', bytes)? + 1)
        } else {
            PrescanTag::None
        });
    }
    let name_end = bytes.iter().skip(name_at).position(|byte| is_blank(*byte) || b"/>".contains(byte))?;
    let mut at = name_at + name_end;
    let name = bytes.get(name_at..at)?;
    if name.eq_ignore_ascii_case(b"body") || closing && name.eq_ignore_ascii_case(b"head") {
        return Some(PrescanTag::HeadEnds);
    }
    let mut attributes = Vec::new();
    while let Some(attribute) = attribute(bytes, &mut at)? {
        attributes.push(attribute);
    }
    let is_meta = !closing && name.eq_ignore_ascii_case(b"meta");
    Some(if is_meta { PrescanTag::Meta(attributes, at) } else { PrescanTag::Other(at) })
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\x0c' | b'\r' | b' ')
}

/// Reads the next attribute from `at` on, in lower case. Returns `Some(None)` at the end of the tag, and sets `at`
/// after the tag; returns `None` if the end of the tag is missing.
#[allow(
    clippy::type_complexity,
    reason = "it says in turn whether there are bytes, and whether there is an attribute"
)]
fn attribute(bytes: &[u8], at: &mut usize) -> Option<Option<(Vec<u8>, Vec<u8>)>> {
    while is_blank(*bytes.get(*at)?) || bytes.get(*at) == Some(&b'/') {
        *at += 1;
    }
    if bytes.get(*at)? == &b'>' {
        *at += 1;
        return Some(None);
    }
    let (mut name, mut value) = (Vec::new(), Vec::new());
    loop {
        match *bytes.get(*at)? {
            b'=' if !name.is_empty() => break,
            b'/' | b'>' => return Some(Some((name, value))),
            byte if is_blank(byte) => break,
            byte => name.push(byte.to_ascii_lowercase()),
        }
        *at += 1;
    }
    while is_blank(*bytes.get(*at)?) {
        *at += 1;
    }
    if bytes.get(*at)? != &b'=' {
        return Some(Some((name, value)));
    }
    *at += 1;
    while is_blank(*bytes.get(*at)?) {
        *at += 1;
    }
    match *bytes.get(*at)? {
        quote @ (b'"' | b'\'') => {
            *at += 1;
            loop {
                let byte = *bytes.get(*at)?;
                *at += 1;
                if byte == quote {
                    return Some(Some((name, value)));
                }
                value.push(byte.to_ascii_lowercase());
            }
        }
        _ => loop {
            let byte = *bytes.get(*at)?;
            if is_blank(byte) || byte == b'>' {
                return Some(Some((name, value)));
            }
            value.push(byte.to_ascii_lowercase());
            *at += 1;
        },
    }
}

/// The encoding that the attributes of a `meta` name.
fn named_by(attributes: &[(Vec<u8>, Vec<u8>)]) -> Option<&'static Encoding> {
    let value = |name: &[u8]| attributes.iter().find(|(found, _)| found == name).map(|(_, value)| &**value);
    let label = match value(b"charset") {
        Some(label) => label,
        None => {
            let content = value(b"content").filter(|_| value(b"http-equiv") == Some(b"content-type"))?;
            let at = find(content, b"charset")?;
            let label = content.get(at + 7..)?.trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
            let quotes = |byte: &u8| *byte == b'"' || *byte == b'\'';
            let label = if label.first().is_some_and(quotes) { label.get(1..)? } else { label };
            label.split(|byte| quotes(byte) || *byte == b';' || is_blank(*byte)).next()?
        }
    };
    match Encoding::for_label(label)? {
        // A document in UTF-16 has no `meta` that can be read byte by byte, so this declaration is wrong.
        encoding if encoding == UTF_16BE || encoding == UTF_16LE => Some(UTF_8),
        encoding if encoding == X_USER_DEFINED => Some(WINDOWS_1252),
        encoding => Some(encoding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(sniffed: SniffResult) -> &'static str {
        match sniffed {
            SniffResult::Known(charset) => charset.name(),
            SniffResult::Unsupported => "-",
            SniffResult::More => "?",
        }
    }

    #[test]
    fn what_is_inserted_is_in_the_encoding_of_the_document() {
        let bytes = |charset: Charset, text: &str| {
            let transparent = charset.transparent(text);
            let bytes = charset.bytes_of(&transparent);
            assert_eq!(bytes, charset.encode(text));
            bytes.into_owned()
        };
        assert_eq!(bytes(Charset::UTF_8, "grün €\u{10fe80}"), "grün €\u{10fe80}".as_bytes());
        assert_eq!(bytes(Charset::of_label(b"iso-8859-15").unwrap(), "grün €"), b"gr\xfcn \xa4");
        assert_eq!(bytes(Charset::of_label(b"shift_jis").unwrap(), "\u{30bd}"), b"\x83\x5c");
        assert_eq!(bytes(Charset::of_label(b"koi8-r").unwrap(), "ü"), b"&#252;");
    }

    #[test]
    fn the_mark_counts_before_the_field_and_the_field_before_the_meta() {
        let meta = b"<head><meta charset=koi8-r>";
        let sniffed = |content_type: Option<&[u8]>, start: &[u8]| name(sniff(content_type, start, true));
        assert_eq!(sniffed(Some(b"text/html; charset=big5"), b"\xef\xbb\xbf<meta charset=koi8-r>"), "UTF-8");
        assert_eq!(sniffed(Some(b"text/html; Charset=\"BIG5\""), meta), "Big5");
        assert_eq!(sniffed(Some(b"text/html; charset=\"big5"), meta), "Big5");
        assert_eq!(sniffed(Some(b"text/html; charset=\"big5\" ; x=\"y"), meta), "Big5");
        assert_eq!(sniffed(Some(b"text/html"), meta), "KOI8-R");
        assert_eq!(sniffed(Some(b"text/html; charset=nothing"), meta), "KOI8-R");
        assert_eq!(sniffed(None, b"\xff\xfe<\0"), "-");
        assert_eq!(sniffed(Some(b"text/html; charset=utf-16"), b"<"), "-");
        assert_eq!(sniffed(Some(b"text/html;charset=iso-2022-jp"), b"<"), "-");
        assert_eq!(sniffed(None, b"<p>"), "windows-1252");
        assert_eq!(name(sniff(None, b"\xef\xbb", false)), "?");
        assert_eq!(name(sniff(None, b"", false)), "?");
    }

    #[test]
    fn metas_are_found_as_browsers_find_them() {
        for (html, expected) in [
            ("<!-- <meta charset=koi8-r> --><meta charset='utf-8'>", "UTF-8"),
            ("<!--><meta charset=utf-8>", "UTF-8"),
            ("<meta http-equiv=\"Content-Type\" content=\"text/html; charset=ISO-8859-2\">", "ISO-8859-2"),
            ("<meta content='text/html;charset=\"koi8-r\"' http-equiv=content-type>", "KOI8-R"),
            ("<meta name=description content='charset=koi8-r'>", "windows-1252"),
            ("<title a='<meta charset=koi8-r>'></title><META CHARSET = UTF-8 >", "UTF-8"),
            ("<meta/charset=utf-8/>", "windows-1252"),
            ("<meta/charset=utf-8 />", "UTF-8"),
            ("<metacharset=utf-8><meta charset=utf-16le>", "UTF-8"),
            ("<meta charset=iso-2022-jp>", "-"),
            ("<body><meta charset=utf-8>", "windows-1252"),
            ("</head><meta charset=utf-8>", "windows-1252"),
            ("< meta charset=utf-8><meta charset=utf-8>", "UTF-8"),
        ] {
            assert_eq!(name(sniff(None, html.as_bytes(), true)), expected, "{html}");
        }
    }

    #[test]
    fn what_comes_later_never_changes_what_was_said() {
        let padded = format!("{}<meta charset=utf-8><p>{}", "<link rel=x>".repeat(30), "x".repeat(2000));
        for html in ["<meta charset=utf-8>", "<p><!-- a --><meta charset='koi8-r'><body>", &padded] {
            let whole = sniff(None, html.as_bytes(), true);
            for at in 0..html.len() {
                let part = sniff(None, &html.as_bytes()[..at], false);
                assert!(part == SniffResult::More || part == whole, "{at} of {html}");
            }
        }
    }

    #[test]
    fn second_bytes_that_look_like_ascii_are_hidden_and_come_back() {
        let charset = Charset::of_label(b"shift_jis").unwrap();
        // Two characters with `@` and a backslash as second bytes, then a katakana of one byte and an `@`.
        let text = WINDOWS_1252.decode_without_bom_handling(b"\x83\x40a\x83\x5c\xb1@x").0.into_owned();
        let whole: Vec<char> = text.chars().collect();
        for at in 0..=whole.len() {
            let (mut lead, mut masked, mut all) = (false, String::new(), String::new());
            for part in [&whole[..at], &whole[at..]] {
                charset.mask(&part.iter().collect::<String>(), &mut lead, &mut masked);
                all.push_str(&masked);
            }
            assert_eq!(all.matches('@').count(), 1, "split at {at}");
            Charset::unmask(&mut all);
            assert_eq!(all, text);
        }
    }
}

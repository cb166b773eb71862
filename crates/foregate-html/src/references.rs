//! Character references in attributes and text (HTML, section 13.2.5.72).

/// The longest recognised reference, bytes. Only a number with many leading zeros makes a reference longer; such a
/// reference counts as text.
pub(crate) const LONGEST: usize = 64;
/// The longest name of a reference, bytes.
const NAME: usize = 31;

/// Names that need no semicolon in text.
const OLD: [(&str, char); 10] = [
    ("amp", '&'),
    ("AMP", '&'),
    ("lt", '<'),
    ("LT", '<'),
    ("gt", '>'),
    ("GT", '>'),
    ("quot", '"'),
    ("QUOT", '"'),
    ("COPY", '\u{a9}'),
    ("REG", '\u{ae}'),
];
/// The names of the characters of ISO 8859-1, from U+00A0 on.
const LATIN: &str = "nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 \
    acute micro para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde Auml Aring AElig \
    Ccedil Egrave Eacute Ecirc Euml Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave \
    Uacute Ucirc Uuml Yacute THORN szlig agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml igrave \
    iacute icirc iuml eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute thorn yuml";
/// Names that need a semicolon: those of all other ASCII characters.
const ASCII: [(&str, char); 37] = [
    ("apos", '\''),
    ("Tab", '\t'),
    ("NewLine", '\n'),
    ("excl", '!'),
    ("num", '#'),
    ("dollar", '$'),
    ("percnt", '%'),
    ("lpar", '('),
    ("rpar", ')'),
    ("ast", '*'),
    ("midast", '*'),
    ("plus", '+'),
    ("comma", ','),
    ("period", '.'),
    ("sol", '/'),
    ("colon", ':'),
    ("semi", ';'),
    ("equals", '='),
    ("quest", '?'),
    ("commat", '@'),
    ("lsqb", '['),
    ("lbrack", '['),
    ("bsol", '\\'),
    ("rsqb", ']'),
    ("rbrack", ']'),
    ("Hat", '^'),
    ("lowbar", '_'),
    ("UnderBar", '_'),
    ("grave", '`'),
    ("DiacriticalGrave", '`'),
    ("lcub", '{'),
    ("lbrace", '{'),
    ("verbar", '|'),
    ("vert", '|'),
    ("VerticalLine", '|'),
    ("rcub", '}'),
    ("rbrace", '}'),
];

/// The construct after an ampersand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReferenceStart {
    /// No reference: the ampersand represents itself.
    Text,
    /// A reference of this many bytes, and its character; `None` if the name is not in the tables here.
    Reference(usize, Option<char>),
    /// More of the following text is needed to decide; at most [`LONGEST`] bytes.
    More,
}

/// Classifies an ampersand and the text after it. `last` is true if no more text follows.
pub(crate) fn begun(text: &str, last: bool, in_attribute: bool) -> ReferenceStart {
    let bytes = text.as_bytes();
    match bytes.get(1) {
        Some(b'#') => number(bytes, last),
        Some(first) if first.is_ascii_alphabetic() => name(text, last, in_attribute),
        None if !last => ReferenceStart::More,
        _ => ReferenceStart::Text,
    }
}

fn number(bytes: &[u8], last: bool) -> ReferenceStart {
    let (start, radix) = match bytes.get(2) {
        Some(b'x' | b'X') => (3, 16),
        None if !last => return ReferenceStart::More,
        _ => (2, 10),
    };
    let digits = bytes.iter().skip(start).map_while(|byte| char::from(*byte).to_digit(radix));
    let (count, code) = digits.take(LONGEST).fold((0, 0_u32), |(count, code), digit| {
        (count + 1, code.saturating_mul(radix).saturating_add(digit))
    });
    let end = start + count;
    if end >= LONGEST {
        return ReferenceStart::Text;
    }
    let length = match bytes.get(end) {
        None if !last => return ReferenceStart::More,
        Some(b';') => end + 1,
        _ => end,
    };
    if count == 0 { ReferenceStart::Text } else { ReferenceStart::Reference(length, Some(numbered(code))) }
}

/// The character that browsers show for the number of a reference.
fn numbered(code: u32) -> char {
    match (code, u8::try_from(code)) {
        (0, _) => char::REPLACEMENT_CHARACTER,
        (_, Ok(byte @ 0x80..=0x9f)) => {
            let bytes = [byte];
            let (text, _) = encoding_rs::WINDOWS_1252.decode_without_bom_handling(&bytes);
            text.chars().next().unwrap_or(char::REPLACEMENT_CHARACTER)
        }
        _ => char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
    }
}

fn name(text: &str, last: bool, in_attribute: bool) -> ReferenceStart {
    let rest = text.get(1..).unwrap_or_default();
    let length = rest.bytes().take(NAME + 1).take_while(u8::is_ascii_alphanumeric).count();
    let next = rest.as_bytes().get(length);
    if next.is_none() && length <= NAME && !last {
        return ReferenceStart::More;
    }
    let name = rest.get(..length).unwrap_or_default();
    if next == Some(&b';') && length <= NAME {
        let known = old().chain(ASCII).find(|(known, _)| *known == name);
        return ReferenceStart::Reference(length + 2, known.map(|(_, character)| character));
    }
    // Without a semicolon only the names in `OLD` and `LATIN` are valid, and in attributes only if the next character
    // cannot be part of a name.
    let fits = |known: &&str| match in_attribute {
        true => name == *known && next != Some(&b'='),
        false => name.starts_with(known),
    };
    let found = old().filter(|(known, _)| fits(known)).max_by_key(|(known, _)| known.len());
    found.map_or(ReferenceStart::Text, |(known, character)| {
        ReferenceStart::Reference(known.len() + 1, Some(character))
    })
}

fn old() -> impl Iterator<Item = (&'static str, char)> {
    OLD.into_iter().chain(LATIN.split_ascii_whitespace().zip('\u{a0}'..='\u{ff}'))
}

/// Resolves the references to ASCII characters in an attribute's value. Other references stay, because their characters
/// would have to be converted to the form of the document.
pub(crate) fn resolve(text: &str) -> String {
    resolve_but(text, '&')
}

/// Like [`resolve`], but `mark` replaces the ampersand of each reference that stays.
pub(crate) fn resolve_but(text: &str, mark: char) -> String {
    let ascii = |length, character: Option<char>| {
        character.filter(char::is_ascii).map_or((mark, 1), |character| (character, length))
    };
    replaced(text, |length, character| Some(ascii(length, character))).unwrap_or_default()
}

/// Resolves the references in an attribute's value, in the form of a document in this encoding. Unknown references stay
/// as they are written.
pub(crate) fn resolve_value(text: &str, charset: crate::charset::Charset) -> String {
    let mut resolved = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'&', rest.as_bytes()) {
        let (before, reference) = rest.split_at(at);
        resolved.push_str(before);
        let length = match begun(reference, true, true) {
            ReferenceStart::Reference(length, Some(character)) => {
                resolved.push_str(&charset.transparent(character.encode_utf8(&mut [0; 4])));
                length
            }
            ReferenceStart::Reference(length, None) => {
                resolved.push_str(reference.get(..length).unwrap_or_default());
                length
            }
            _ => {
                resolved.push('&');
                1
            }
        };
        rest = reference.get(length..).unwrap_or_default();
    }
    resolved.push_str(rest);
    resolved
}

/// Resolves all references in an attribute's value; `None` if one of them has an unknown name.
pub(crate) fn resolve_all(text: &str) -> Option<String> {
    replaced(text, |length, character| Some((character?, length)))
}

/// Replaces each reference in an attribute's value. `by` gets the length and the character of the reference, and
/// returns the replacement and the number of bytes that it replaces. `None` if `by` returns `None`.
fn replaced(text: &str, by: impl Fn(usize, Option<char>) -> Option<(char, usize)>) -> Option<String> {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'&', rest.as_bytes()) {
        let (before, reference) = rest.split_at(at);
        replaced.push_str(before);
        let (character, length) = match begun(reference, true, true) {
            ReferenceStart::Reference(length, character) => by(length, character)?,
            _ => ('&', 1),
        };
        replaced.push(character);
        rest = reference.get(length..).unwrap_or_default();
    }
    replaced.push_str(rest);
    Some(replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_become_their_characters() {
        assert_eq!(resolve("a&amp;b&#64;c&#x40;d&commat;"), "a&b@c@d@");
        assert_eq!(resolve("&nbsp;&#233;&#xfffffff;&#;&"), "&nbsp;&#233;&#xfffffff;&#;&");
        assert_eq!(resolve("?a&lt=1&ltx&lt&#58x&colon;"), "?a&lt=1&ltx<:x:");
        assert_eq!(resolve_but("&eacute;&&amp;", '!'), "!eacute;&&");
        assert_eq!(resolve(""), "");
        assert_eq!(resolve_all("a&amp;b&nbsp;&#8364;&uuml&?x=1&y").as_deref(), Some("a&b\u{a0}€ü&?x=1&y"));
        assert_eq!(resolve_all("a&euro;"), None);
    }

    #[test]
    fn references_are_known_when_they_have_come() {
        let text = |text| begun(text, true, false);
        assert_eq!(text("&amp;x"), ReferenceStart::Reference(5, Some('&')));
        assert_eq!(text("&ampere"), ReferenceStart::Reference(4, Some('&')));
        assert_eq!(text("&notin;"), ReferenceStart::Reference(7, None));
        assert_eq!(text("&yuml;"), ReferenceStart::Reference(6, Some('ÿ')));
        assert_eq!(text("&#128;"), ReferenceStart::Reference(6, Some('€')));
        assert_eq!(text("&#xD800 "), ReferenceStart::Reference(7, Some('\u{fffd}')));
        assert_eq!(text("&T "), ReferenceStart::Text);
        assert_eq!(text("&#x;"), ReferenceStart::Text);
        for begins in ["&", "&#", "&#x", "&#6", "&a", "&amp"] {
            assert_eq!(begun(begins, false, false), ReferenceStart::More, "{begins}");
        }
        for long in [format!("&#{}65;", "0".repeat(LONGEST)), format!("&x{}", "y".repeat(NAME))] {
            assert_eq!(begun(&long, false, false), ReferenceStart::Text, "{long}");
        }
    }
}

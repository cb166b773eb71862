//! Detection of cross-site scripting.

use memchr::{memchr, memchr2};

use super::html::{Html, HtmlToken, Start};

/// Tags that run or load scripts.
const TAGS: [&str; 20] = [
    "APPLET", "BASE", "COMMENT", "EMBED", "FRAME", "FRAMESET", "HANDLER", "IFRAME", "IMPORT", "ISINDEX",
    "LINK", "LISTENER", "META", "NOSCRIPT", "OBJECT", "SCRIPT", "STYLE", "VMLFRAME", "XML", "XSS",
];

/// The effect that the value of an attribute can have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attribute {
    Harmless,
    /// The value is a script, whatever it contains.
    Script,
    /// The value is an address; its scheme may run a script.
    Address,
    /// The value is the name of another attribute.
    Name,
}

const ATTRIBUTES: [(&str, Attribute); 20] = [
    ("ACTION", Attribute::Address),
    ("ATTRIBUTENAME", Attribute::Name),
    ("BY", Attribute::Address),
    ("BACKGROUND", Attribute::Address),
    ("DATAFORMATAS", Attribute::Script),
    ("DATASRC", Attribute::Script),
    ("DYNSRC", Attribute::Address),
    ("FILTER", Attribute::Script),
    ("FORMACTION", Attribute::Address),
    ("FOLDER", Attribute::Address),
    ("FROM", Attribute::Address),
    ("HANDLER", Attribute::Address),
    ("HREF", Attribute::Address),
    ("LOWSRC", Attribute::Address),
    ("POSTER", Attribute::Address),
    ("SRC", Attribute::Address),
    ("STYLE", Attribute::Script),
    ("TO", Attribute::Address),
    ("VALUES", Attribute::Address),
    ("XLINK:HREF", Attribute::Address),
];

/// Schemes of addresses that run a script, or the beginnings of such schemes.
const SCHEMES: [&str; 4] = ["DATA", "VIEW-SOURCE", "JAVA", "VBSCRIPT"];

/// Returns true if the input would run a script when it is inserted into a page: as text, in a tag, or in the
/// value of an attribute.
pub fn xss(input: &[u8]) -> bool {
    // A tag needs a `<`, and an attribute with a value needs a `=`.
    if memchr2(b'<', b'=', input).is_none() {
        return false;
    }
    let starts = [Start::Text, Start::Tag, Start::Value(b'\''), Start::Value(b'"'), Start::Value(b'`')];
    starts.into_iter().any(|start| runs_script(input, start))
}

fn runs_script(input: &[u8], start: Start) -> bool {
    let mut html = Html::new(input, start);
    let mut attribute = Attribute::Harmless;
    while let Some((kind, text)) = html.next() {
        let before = std::mem::replace(&mut attribute, Attribute::Harmless);
        let runs = match kind {
            HtmlToken::Doctype => true,
            HtmlToken::TagName => is_bad_tag(text),
            HtmlToken::AttributeName => {
                attribute = attribute_of(text);
                false
            }
            HtmlToken::AttributeValue => match before {
                Attribute::Harmless => false,
                Attribute::Script => true,
                Attribute::Address => is_bad_address(text),
                Attribute::Name => attribute_of(text) != Attribute::Harmless,
            },
            HtmlToken::Comment => is_bad_comment(text),
            HtmlToken::Text | HtmlToken::TagEnd => false,
        };
        if runs {
            return true;
        }
    }
    false
}

/// Returns true if the text is the word in any case, ignoring zero bytes.
fn is_word(word: &str, text: &[u8]) -> bool {
    let text = text.iter().filter(|byte| **byte != 0).map(u8::to_ascii_uppercase);
    text.eq(word.bytes())
}

fn is_bad_tag(name: &[u8]) -> bool {
    let starts = |with: &[u8]| name[..3].eq_ignore_ascii_case(with);
    name.len() >= 3 && (TAGS.iter().any(|tag| is_word(tag, name)) || starts(b"SVG") || starts(b"XSL"))
}

fn attribute_of(name: &[u8]) -> Attribute {
    if name.len() < 2 {
        return Attribute::Harmless;
    }
    if name.len() >= 5 {
        let start = &name[..5];
        if name[..2].eq_ignore_ascii_case(b"ON") || is_word("XMLNS", start) || is_word("XLINK", start) {
            return Attribute::Script;
        }
    }
    let known = ATTRIBUTES.iter().find(|(known, _)| is_word(known, name));
    known.map_or(Attribute::Harmless, |(_, attribute)| *attribute)
}

fn is_bad_comment(text: &[u8]) -> bool {
    let starts = |with: &[u8]| text[..3].eq_ignore_ascii_case(with);
    // Internet Explorer ends tags at ticks, and runs conditional comments.
    memchr(b'`', text).is_some()
        || (text.len() > 3 && (starts(b"[IF") || starts(b"XML")))
        || (text.len() > 5 && (is_word("IMPORT", &text[..6]) || is_word("ENTITY", &text[..6])))
}

fn is_bad_address(text: &[u8]) -> bool {
    let skipped = text.iter().take_while(|byte| !matches!(byte, 33..=126)).count();
    let text = &text[skipped..];
    SCHEMES.iter().any(|scheme| starts_with(scheme.as_bytes(), text))
}

/// Returns true if a text starts with a word, in any case. Numeric references in the text are decoded before,
/// and zero bytes, line feeds and leading white space are removed.
fn starts_with(mut word: &[u8], mut text: &[u8]) -> bool {
    let mut first = true;
    while !text.is_empty() {
        let Some((expected, rest)) = word.split_first() else { return true };
        let (code, len) = character(text);
        text = &text[len..];
        if first && code <= 32 {
            continue;
        }
        first = false;
        if matches!(code, 0 | 10) {
            continue;
        }
        let upper = if (0x61..=0x7a).contains(&code) { code - 0x20 } else { code };
        // Only the lowest byte of a character's code counts.
        if upper.to_le_bytes()[0] != *expected {
            return false;
        }
        word = rest;
    }
    word.is_empty()
}

/// The largest code that a reference may have. A text with a larger code is not read as a reference.
const MAX_CODE: u32 = 0x10_00ff;

/// The code of the character or numeric reference at the start of a text, and its length in bytes.
fn character(text: &[u8]) -> (u32, usize) {
    let plain = (u32::from(text[0]), 1);
    let (start, radix) = match text {
        [b'&', b'#', b'x' | b'X', ..] => (3, 16),
        [b'&', b'#', ..] => (2, 10),
        _ => return plain,
    };
    let mut code = 0;
    let mut len = start;
    while let Some(digit) = text.get(len).and_then(|byte| char::from(*byte).to_digit(radix)) {
        code = code * radix + digit;
        if code > MAX_CODE {
            return plain;
        }
        len += 1;
    }
    if len == start {
        return plain;
    }
    (code, len + usize::from(text.get(len) == Some(&b';')))
}

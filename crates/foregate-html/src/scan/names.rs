//! Names of elements and attributes as numbers, and the meaning of elements for scanners of tags.

use crate::edges::Mark;

/// A name in lower case, as a number. The number of a name of up to [`SHORT`] bytes consists of a 1 and the bytes of
/// the name. Longer names are hashed; two of them collide only if an author has crafted them.
pub(crate) type Name = u128;

/// The number of the empty name.
pub(crate) const EMPTY: Name = 1;
/// The longest name with a unique number, bytes.
pub(crate) const SHORT: usize = 14;
/// The bit that is set in the numbers of names longer than [`SHORT`].
const LONG: Name = 1 << 127;
/// A bit that no number uses, for flags next to a name.
pub(crate) const FREE: Name = 1 << 126;
/// The multiplier for longer names: odd, and large.
const FACTOR: Name = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

/// Appends a byte to a name.
#[inline]
pub(crate) const fn push(name: Name, byte: u8) -> Name {
    let byte = byte.to_ascii_lowercase() as Name;
    if name >> (8 * SHORT) == 0 {
        return name << 8 | byte;
    }
    (name ^ byte).wrapping_mul(FACTOR) & !FREE | LONG
}

/// Returns true if the name is longer than [`SHORT`].
pub(crate) const fn is_long(name: Name) -> bool {
    name & LONG != 0
}

/// The number of a name.
pub(crate) const fn name(text: &str) -> Name {
    let (bytes, mut name, mut at) = (text.as_bytes(), EMPTY, 0);
    while at < bytes.len() {
        name = push(name, bytes[at]);
        at += 1;
    }
    name
}

macro_rules! names {
    ($($constant:ident = $text:literal)*) => {
        $(pub(crate) const $constant: Name = name($text);)*
    };
}

names! {
    A = "a" ANNOTATION_XML = "annotation-xml" AREA = "area" B = "b" BASE = "base" BASEFONT = "basefont" BGSOUND = "bgsound"
    BIG = "big" BLOCKQUOTE = "blockquote" BODY = "body" BR = "br" CAPTION = "caption" CENTER = "center" CODE = "code"
    COL = "col" COLGROUP = "colgroup"
    DD = "dd" DESC = "desc" DIV = "div" DL = "dl" DT = "dt" EM = "em" EMBED = "embed" ESI_COMMENT = "esi:comment"
    ESI_INCLUDE = "esi:include" FONT = "font" FORM = "form" FRAMESET = "frameset" FOREIGN_OBJECT = "foreignobject" H1 = "h1" H2 = "h2" H3 = "h3" H4 = "h4"
    H5 = "h5" H6 = "h6" HEAD = "head" HR = "hr" HTML = "html" I = "i" IFRAME = "iframe" IMG = "img" INPUT = "input"
    KEYGEN = "keygen" LI = "li" LINK = "link" LISTING = "listing" MALIGNMARK = "malignmark" MATH = "math" MENU = "menu" META = "meta"
    MGLYPH = "mglyph" MI = "mi"
    MN = "mn" MO = "mo" MS = "ms" MTEXT = "mtext" NOBR = "nobr" NOEMBED = "noembed" NOFRAMES = "noframes"
    NOSCRIPT = "noscript" OL = "ol" P = "p" PARAM = "param" PLAINTEXT = "plaintext" PRE = "pre" RUBY = "ruby" S = "s"
    SCRIPT = "script" SELECT = "select" SMALL = "small" SOURCE = "source" SPAN = "span" STRIKE = "strike" STRONG = "strong"
    STYLE = "style" SUB = "sub" SUP = "sup" SVG = "svg" TABLE = "table" TBODY = "tbody" TD = "td" TEMPLATE = "template"
    TEXTAREA = "textarea" TFOOT = "tfoot" TH = "th" THEAD = "thead" TITLE = "title" TR = "tr"
    TRACK = "track" TT = "tt" U = "u" UL = "ul" VAR = "var" WBR = "wbr" XMP = "xmp"
    COLOR = "color" ENCODING = "encoding" FACE = "face" SIZE = "size"
    TEXT_HTML = "text/html" XHTML = "application/xhtml+xml"
}

/// Returns true if elements have no content if this name is written in lower case, and have content otherwise.
pub(crate) fn is_void_in_lower_case(name: Name) -> bool {
    matches!(name, ESI_COMMENT | ESI_INCLUDE)
}

/// The meaning of an element in HTML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// Nothing in particular.
    Element,
    /// An element without content.
    Void,
    /// Its content is text up to its end tag.
    Text,
    /// A script, in which comments may hide end tags.
    Script,
    /// The rest of the document is text.
    Plain,
    /// SVG: its content is not HTML.
    Svg,
    /// MathML: its content is not HTML.
    Math,
}

impl Means {
    /// Returns true if the content of such an HTML element is text.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Script | Self::Plain)
    }
}

/// The meaning of an element, and its mark.
#[inline]
pub(crate) fn meaning(name: Name) -> (Means, Option<Mark>) {
    match u64::try_from(name) {
        Ok(name) => meaning_of_short(name),
        Err(_) => match name {
            TEXTAREA | NOFRAMES | NOSCRIPT => (Means::Text, None),
            PLAINTEXT => (Means::Plain, None),
            TEMPLATE => (Means::Element, Some(Mark::Template)),
            BASEFONT | ESI_COMMENT | ESI_INCLUDE => (Means::Void, None),
            _ => (Means::Element, None),
        },
    }
}

/// Like [`meaning`], for names of up to seven bytes. Each name is compared as one machine word.
#[inline]
pub(crate) fn meaning_of_short(name: u64) -> (Means, Option<Mark>) {
    macro_rules! short {
        ($($constant:ident)*) => {
            $(const $constant: u64 = narrow(super::names::$constant);)*
        };
    }
    short! {
        AREA BASE BGSOUND BODY BR COL EMBED HEAD HR HTML IFRAME IMG INPUT KEYGEN LINK MATH META NOEMBED PARAM SCRIPT SOURCE
        SELECT STYLE SVG TABLE TITLE TRACK WBR XMP
    }
    match name {
        HTML => (Means::Element, Some(Mark::Html)),
        HEAD => (Means::Element, Some(Mark::Head)),
        BODY => (Means::Element, Some(Mark::Body)),
        TITLE | STYLE => (Means::Text, Some(Mark::First)),
        SCRIPT => (Means::Script, Some(Mark::First)),
        META | LINK | BASE => (Means::Void, Some(Mark::First)),
        IFRAME | XMP | NOEMBED => (Means::Text, None),
        SVG => (Means::Svg, Some(Mark::Scope)),
        MATH => (Means::Math, Some(Mark::Scope)),
        TABLE | SELECT => (Means::Element, Some(Mark::Scope)),
        AREA | BGSOUND | BR | COL | EMBED | HR | IMG | INPUT | KEYGEN | PARAM | SOURCE | TRACK | WBR => {
            (Means::Void, None)
        }
        _ => (Means::Element, None),
    }
}

const fn narrow(name: Name) -> u64 {
    assert!(name >> 64 == 0, "the name has at most seven bytes");
    name as u64
}

/// The mark of an end tag.
#[inline]
pub(crate) fn end_mark(name: Name) -> Option<Mark> {
    match name {
        HTML => Some(Mark::Html),
        HEAD => Some(Mark::Head),
        BODY => Some(Mark::Body),
        TEMPLATE => Some(Mark::Template),
        TABLE | SELECT | SVG | MATH => Some(Mark::Scope),
        _ => None,
    }
}

/// Returns true if a start tag of this name is not allowed in SVG or MathML, and ends it (HTML, section 13.2.6.5).
pub(crate) fn ends_foreign(name: Name) -> bool {
    matches!(
        name,
        B | BIG
            | BLOCKQUOTE
            | BODY
            | BR
            | CENTER
            | CODE
            | DD
            | DIV
            | DL
            | DT
            | EM
            | EMBED
            | H1
            | H2
            | H3
            | H4
            | H5
            | H6
            | HEAD
            | HR
            | I
            | IMG
            | LI
            | LISTING
            | MENU
            | META
            | NOBR
            | OL
            | P
            | PRE
            | RUBY
            | S
            | SMALL
            | SPAN
            | STRONG
            | STRIKE
            | SUB
            | SUP
            | TABLE
            | TT
            | U
            | UL
            | VAR
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        assert_eq!((name("DIV"), name("blockquotE")), (DIV, BLOCKQUOTE));
        let long = ["annotation-xml2", "annotation-xml3", "annotation-xml23", "foreignobject-of-svg"];
        let names: Vec<Name> = long.iter().map(|text| name(text)).collect();
        assert!(names.iter().all(|name| is_long(*name) && name & FREE == 0));
        for (at, one) in names.iter().enumerate() {
            assert!(names.iter().skip(at + 1).all(|other| other != one));
        }
        assert!(!is_long(ANNOTATION_XML) && ANNOTATION_XML & FREE == 0 && XHTML & FREE == 0);
        assert_ne!(push(EMPTY, 0), EMPTY);
    }
}

//! Groups of elements that tree construction distinguishes (HTML, section 13.2.4.2).

use crate::scan::names::{Name, name};

macro_rules! names {
    ($($constant:ident = $text:literal)*) => {
        $(pub(crate) const $constant: Name = name($text);)*
    };
}

names! {
    A = "a" ADDRESS = "address" ANNOTATION_XML = "annotation-xml" APPLET = "applet" AREA = "area" ARTICLE = "article"
    ASIDE = "aside" B = "b" BASE = "base" BASEFONT = "basefont" BGSOUND = "bgsound" BIG = "big" BLOCKQUOTE = "blockquote"
    BODY = "body" BR = "br" BUTTON = "button" CAPTION = "caption" CENTER = "center" CODE = "code" COL = "col"
    COLGROUP = "colgroup" DD = "dd" DESC = "desc" DETAILS = "details" DIALOG = "dialog" DIR = "dir" DIV = "div" DL = "dl"
    DT = "dt" EM = "em" EMBED = "embed" FIELDSET = "fieldset" FIGCAPTION = "figcaption" FIGURE = "figure" FONT = "font"
    FOOTER = "footer" FOREIGN_OBJECT = "foreignobject" FORM = "form" FRAME = "frame" FRAMESET = "frameset" H1 = "h1"
    H2 = "h2" H3 = "h3" H4 = "h4" H5 = "h5" H6 = "h6" HEAD = "head" HEADER = "header" HGROUP = "hgroup" HR = "hr"
    HTML = "html" I = "i" IFRAME = "iframe" IMAGE = "image" IMG = "img" INPUT = "input" KEYGEN = "keygen" LI = "li"
    LINK = "link" LISTING = "listing" MAIN = "main" MALIGNMARK = "malignmark" MARQUEE = "marquee" MATH = "math"
    MENU = "menu" META = "meta" MGLYPH = "mglyph" MI = "mi" MN = "mn" MO = "mo" MS = "ms" MTEXT = "mtext" NAV = "nav"
    NOBR = "nobr" NOEMBED = "noembed" NOFRAMES = "noframes" NOSCRIPT = "noscript" OBJECT = "object" OL = "ol"
    OPTGROUP = "optgroup" OPTION = "option" P = "p" PARAM = "param" PLAINTEXT = "plaintext" PRE = "pre" RB = "rb"
    RP = "rp" RT = "rt" RTC = "rtc" RUBY = "ruby" S = "s" SCRIPT = "script" SEARCH = "search" SECTION = "section"
    SELECT = "select" SMALL = "small" SOURCE = "source" STRIKE = "strike" STRONG = "strong" STYLE = "style"
    SUMMARY = "summary" SVG = "svg" TABLE = "table" TBODY = "tbody" TD = "td"
    TEMPLATE = "template" TEXTAREA = "textarea" TFOOT = "tfoot" TH = "th" THEAD = "thead" TITLE = "title" TR = "tr"
    TRACK = "track" TT = "tt" U = "u" UL = "ul"  WBR = "wbr" XMP = "xmp"
}

/// HTML elements in the standard's category "special".
pub(super) fn is_special(name: Name) -> bool {
    closes_p(name)
        || is_heading(name)
        || is_in_table(name)
        || matches!(
            name,
            APPLET
                | AREA
                | BASE
                | BASEFONT
                | BGSOUND
                | BODY
                | BR
                | BUTTON
                | DD
                | DT
                | EMBED
                | FRAME
                | FRAMESET
                | FORM
                | HEAD
                | HR
                | HTML
                | IFRAME
                | IMG
                | INPUT
                | KEYGEN
                | LI
                | LINK
                | LISTING
                | MARQUEE
                | META
                | NOEMBED
                | NOFRAMES
                | NOSCRIPT
                | OBJECT
                | PARAM
                | PLAINTEXT
                | PRE
                | SCRIPT
                | SELECT
                | SOURCE
                | STYLE
                | TABLE
                | TEMPLATE
                | TEXTAREA
                | TITLE
                | TRACK
                | WBR
                | XMP
        )
}

/// Blocks: their start tags close only a paragraph, and their end tags close elements with implied end tags.
pub(super) fn closes_p(name: Name) -> bool {
    matches!(
        name,
        ADDRESS
            | ARTICLE
            | ASIDE
            | BLOCKQUOTE
            | CENTER
            | DETAILS
            | DIALOG
            | DIR
            | DIV
            | DL
            | FIELDSET
            | FIGCAPTION
            | FIGURE
            | FOOTER
            | HEADER
            | HGROUP
            | MAIN
            | MENU
            | NAV
            | OL
            | P
            | SEARCH
            | SECTION
            | SUMMARY
            | UL
    )
}

pub(super) fn is_heading(name: Name) -> bool {
    matches!(name, H1 | H2 | H3 | H4 | H5 | H6)
}

/// Parts of tables.
pub(super) fn is_in_table(name: Name) -> bool {
    matches!(name, CAPTION | COL | COLGROUP | TBODY | TD | TFOOT | TH | THEAD | TR)
}

pub(super) fn is_row_group(name: Name) -> bool {
    matches!(name, TBODY | THEAD | TFOOT)
}

/// Elements with end tags that may be implied.
pub(super) fn is_implied_end(name: Name) -> bool {
    matches!(name, DD | DT | LI | OPTGROUP | OPTION | P | RB | RP | RT | RTC)
}

/// Elements with end tags that are implied at the end of a template.
pub(super) fn is_implied_end_thoroughly(name: Name) -> bool {
    is_implied_end(name) || is_in_table(name) && name != COL
}

/// Formatting elements other than `a` and `nobr`. The start tags of `a` and `nobr` are handled separately.
pub(super) fn is_formatting(name: Name) -> bool {
    matches!(name, B | BIG | CODE | EM | FONT | I | S | SMALL | STRIKE | STRONG | TT | U)
}

/// Start tags that end SVG or MathML.
pub(super) fn ends_foreign(name: Name) -> bool {
    crate::scan::names::ends_foreign(name)
}

/// Elements of SVG or MathML that bound a scope.
pub(super) fn bounds_scope_in_svg(name: Name) -> bool {
    matches!(name, FOREIGN_OBJECT | DESC | TITLE)
}

pub(super) fn bounds_scope_in_math(name: Name) -> bool {
    matches!(name, MI | MN | MO | MS | MTEXT | ANNOTATION_XML)
}

/// HTML elements that bound a scope.
pub(super) fn bounds_scope(name: Name) -> bool {
    matches!(name, APPLET | CAPTION | HTML | TABLE | TD | TH | MARQUEE | OBJECT | TEMPLATE | SELECT)
}

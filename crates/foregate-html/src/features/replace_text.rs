//! Replacement of words in documents.
//!
//! ```kdl
//! html-text {
//!     replace "Example Ltd" "Example & Sons"
//!     ignore-case
//! }
//! ```
//!
//! Only text is searched, including titles and options. Tags, scripts, styles, comments and form fields are not
//! searched. A reference such as `&amp;` in the document counts as its character. A replacement is inserted as plain
//! text.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use foregate_module::settings::{Block, Context, Key, Mistakes, Node, Problem, together};

use super::{Configured, chooses, flag};
use crate::carry::UNUSED;
use crate::needles::Needles;
use crate::references::{LONGEST, ReferenceStart, begun};
use crate::{Feature, Page, Reads, Rewrite, TextOut, escape};

/// The step that chooses the feature.
const STEP: &str = "html-text";

static KEY: Key = Key::block(
    STEP,
    &BLOCK,
    "html-text { replace \"Example Ltd\" \"Example & Sons\" }",
    "Replaces texts in HTML, except in tags, scripts, styles and comments.",
);

static BLOCK: Block = Block {
    keys: &[
        Key::one(
            "replace",
            "FROM TO",
            "replace \"colour\" \"color\"",
            "A text and its replacement, which is inserted as text, not as markup. If several texts match at the same place, the longest is replaced.",
        )
        .args(2, 2)
        .many()
        .required(),
        Key::flag("ignore-case", "#false", "ignore-case", "Whether upper and lower case of ASCII letters are equal."),
    ],
    later: &[],
};

impl Configured for ReplaceText {
    const STEP: &'static str = STEP;
    const KEY: &'static Key = &KEY;

    fn from_node(node: &Node, _: &mut dyn Context) -> Result<Self, Problem> {
        let (pairs, ignore_case) = together((pairs_of(node), flag(node, "ignore-case")))?;
        Ok(Self::new(pairs, ignore_case))
    }
}

/// Reads the pairs of texts of the `replace` lines in a block.
pub(crate) fn pairs_of(node: &Node) -> Result<Vec<(String, String)>, Problem> {
    let mut length = 0;
    let mut mistakes = Mistakes::default();
    let mut pairs = Vec::new();
    let mut known = HashSet::new();
    for child in node.children_named("replace") {
        let Some((from, to)) = mistakes.kept(pair_of(child)) else { continue };
        if !known.insert(from.clone()) {
            mistakes.add(child.wrong("this text is replaced by an earlier line already"));
            continue;
        }
        length += from.len() + to.len();
        pairs.push((from, to));
        if length > Needles::LIMIT {
            mistakes.add(child.wrong(format!("the texts have more than {} bytes together", Needles::LIMIT)));
            break;
        }
    }
    mistakes.none().map(|()| pairs)
}

fn pair_of(node: &Node) -> Result<(String, String), Problem> {
    let (from, to) = (node.arg(0)?, node.arg(1)?);
    let (text, to) = together((from.text(), to.text()))?;
    if text.is_empty() {
        return Err(from.wrong("an empty text is everywhere"));
    }
    Ok((text.to_owned(), to.to_owned()))
}

chooses! {
    /// Chooses the feature.
    ChooseText, ReplaceText, "Replaces texts of documents."
}

/// The feature.
#[derive(Debug, Default)]
pub struct ReplaceText {
    pairs: Vec<(String, String)>,
    ignore_case: bool,
}

impl ReplaceText {
    /// Replaces the first of each pair by the second.
    pub fn new(pairs: Vec<(String, String)>, ignore_case: bool) -> Self {
        Self { pairs, ignore_case }
    }
}

impl Feature for ReplaceText {
    fn reads(&self) -> Reads {
        Reads { text: true, titles: true, ..Reads::default() }
    }

    fn growth(&self) -> usize {
        self.pairs.iter().map(|(from, to)| 6 * to.len() / from.len().max(1)).max().unwrap_or(0)
    }

    fn begin(self: Arc<Self>, page: &Page) -> Box<dyn Rewrite> {
        let (mut needles, mut instead) = (Vec::new(), Vec::new());
        for (from, to) in &self.pairs {
            let mut escaped = String::new();
            escape(to, &mut escaped);
            let escaped = page.reading(&page.charset().plain(&escaped));
            let mut read = String::new();
            from.chars().for_each(|character| add(character, page, &mut read));
            if !needles.contains(&read) {
                needles.push(read);
                instead.push(escaped);
            }
        }
        match Needles::new(&needles, self.ignore_case) {
            Some(needles) => {
                Box::new(Replacing { needles, instead, page: page.clone(), held: String::new() })
            }
            None => Box::new(Nothing),
        }
    }
}

/// The search form of a reference with an unknown name. No text to be replaced contains this character.
const UNKNOWN: char = UNUSED[0];
/// A character that the document's encoding lacks is searched for as two private-use characters, one from each of two
/// ranges. These are the first characters of the ranges.
const MISSING: (u32, u32) = (0xf_0000, 0xf_8000);

/// Appends the search form of a character, which is the same for text and references.
fn add(character: char, page: &Page, read: &mut String) {
    if character.is_ascii() {
        return read.push(character);
    }
    let form = page.reading(character.encode_utf8(&mut [0; 4]));
    if !form.starts_with('&') {
        return read.push_str(&form);
    }
    let code = u32::from(character);
    read.extend(
        [MISSING.0 + (code >> 11), MISSING.1 + (code & 0x7ff)].into_iter().filter_map(char::from_u32),
    );
}

/// Replaces nothing. It is used if no search can be made for the texts, which the limit on their length prevents.
struct Nothing;

impl Rewrite for Nothing {}

struct Replacing {
    needles: Needles,
    instead: Vec<String>,
    page: Page,
    /// Text that waits for the next piece. Its length is bounded: at most a reference for each byte of the longest text,
    /// and an incomplete reference.
    held: String,
}

impl Rewrite for Replacing {
    fn text(&mut self, text: &str, last: bool, out: &mut TextOut<'_>) {
        self.held.push_str(text);
        let resolved = ResolvedText::new(&self.held, last, &self.page);
        let mut told = self.needles.search(resolved.text.as_bytes(), last, &mut |_, _| true);
        // Text is only emitted up to the start of a character, and not up to a position within a reference.
        while !resolved.text.is_char_boundary(told) {
            told -= 1;
        }
        let told = resolved.aligned(told);
        // The text from `kept` on is held until the next piece.
        let (mut at, mut written, mut kept) = (0, 0, 0);
        let (instead, is_title) = (&self.instead, !out.allows_markup());
        let ready = resolved.text.get(..told).unwrap_or_default();
        self.needles.search(ready.as_bytes(), true, &mut |bytes, found| {
            let (start, end) = (at, at + bytes.len());
            at = end;
            let whole = resolved.aligned(start) == start && resolved.aligned(end) == end;
            let source = resolved.source(end);
            match found.filter(|_| whole) {
                Some(number) => {
                    out.matched();
                    // The held text must not form a tag or a reference with the replacement or with the text after it.
                    keep_apart(self.held.get(kept..written).unwrap_or_default(), out);
                    out.keep(instead.get(number).map_or("", |instead| instead));
                    kept = source;
                }
                None if source > written => {
                    let text = self.held.get(kept..source).unwrap_or_default();
                    let (before, _) = text.split_at(joint(text, is_title));
                    out.keep(before);
                    kept += before.len();
                }
                None => {}
            }
            written = source;
            true
        });
        if last {
            out.keep(self.held.get(kept..written).unwrap_or_default());
            kept = written;
        }
        self.held.drain(..kept);
    }
}

/// The text that forms a tag with a `<` before it in a title.
const ENDS_TITLE: &[u8] = b"/title";

/// The position from which the end of the text may form a tag or another reference with the following text.
fn joint(text: &str, is_title: bool) -> usize {
    let bytes = text.as_bytes();
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'#';
    let word = bytes.len() - bytes.iter().rev().take(LONGEST).take_while(is_part).count();
    match bytes.get(..word).unwrap_or_default() {
        [before @ .., b'&'] => return before.len(),
        [before @ .., b'<'] if word == bytes.len() => return before.len(),
        _ => {}
    }
    let longest = bytes.len().saturating_sub(ENDS_TITLE.len() + 1);
    let end = bytes.get(longest..).filter(|_| is_title).unwrap_or_default();
    let begins = end.iter().rposition(|byte| *byte == b'<').filter(|at| {
        let name = end.get(at + 1..).unwrap_or_default();
        ENDS_TITLE.get(..name.len()).is_some_and(|front| front.eq_ignore_ascii_case(name))
    });
    begins.map_or(bytes.len(), |at| longest + at)
}

/// Writes text so that it cannot form a tag or a reference with the text after it.
fn keep_apart(text: &str, out: &mut TextOut<'_>) {
    if let Some(rest) = text.strip_prefix('<') {
        out.keep("&lt;");
        return out.keep(rest);
    }
    match begun(text, true, false) {
        // This is a reference without a semicolon.
        ReferenceStart::Reference(length, _) => {
            let (reference, rest) = text.split_at_checked(length).unwrap_or((text, ""));
            [reference, ";", rest].into_iter().for_each(|part| out.keep(part));
        }
        _ => {
            let rest = text.strip_prefix('&');
            out.keep(if rest.is_some() { "&amp;" } else { "" });
            out.keep(rest.unwrap_or(text));
        }
    }
}

/// A text with resolved references. It ends before a reference at the end of the text that may be incomplete.
struct ResolvedText<'t> {
    text: Cow<'t, str>,
    references: Vec<Reference>,
}

/// The start and end of a reference.
struct Reference {
    /// The start of the reference's character in the resolved text.
    start: usize,
    end: usize,
    /// The start of the reference in the original text.
    source_start: usize,
    source_end: usize,
}

impl<'t> ResolvedText<'t> {
    fn new(source: &'t str, last: bool, page: &Page) -> Self {
        if memchr::memchr(b'&', source.as_bytes()).is_none() {
            return Self { text: Cow::Borrowed(source), references: Vec::new() };
        }
        let (mut text, mut references) = (String::with_capacity(source.len()), Vec::new());
        let mut at = 0;
        while let Some(rest) = source.get(at..).filter(|rest| !rest.is_empty()) {
            let before = memchr::memchr(b'&', rest.as_bytes()).unwrap_or(rest.len());
            let (before, rest) = rest.split_at(before);
            text.push_str(before);
            at += before.len();
            if rest.is_empty() {
                break;
            }
            match begun(rest, last, false) {
                ReferenceStart::Text => {
                    text.push('&');
                    at += 1;
                }
                ReferenceStart::Reference(length, character) => {
                    let (start, source_start) = (text.len(), at);
                    match character {
                        Some(character) => add(character, page, &mut text),
                        None => text.push(UNKNOWN),
                    }
                    at += length;
                    references.push(Reference { start, end: text.len(), source_start, source_end: at });
                }
                ReferenceStart::More => break,
            }
        }
        Self { text: Cow::Owned(text), references }
    }

    /// The last reference that begins before this position of the resolved text.
    fn before(&self, at: usize) -> Option<&Reference> {
        let count = self.references.partition_point(|reference| reference.start < at);
        self.references.get(count.checked_sub(1)?)
    }

    /// Returns `at`, a position in the resolved text. If `at` is within a reference, returns the start of the reference.
    fn aligned(&self, at: usize) -> usize {
        self.before(at).filter(|reference| at < reference.end).map_or(at, |reference| reference.start)
    }

    /// Converts a position in the resolved text to a position in the original text.
    fn source(&self, at: usize) -> usize {
        match self.before(at) {
            Some(reference) if at < reference.end => reference.source_start,
            Some(reference) => reference.source_end + at - reference.end,
            None => at,
        }
    }
}

#[cfg(test)]
mod tests {
    use foregate_module::testing::filtered_at_every_split;

    use super::*;
    use crate::tests::{Boxed, of};

    fn rewritten(pairs: &[(&str, &str)], content_type: &str, html: &[u8]) -> Vec<u8> {
        let pairs: Vec<_> = pairs.iter().map(|(from, to)| ((*from).into(), (*to).into())).collect();
        let make = || Boxed(of(vec![Arc::new(ReplaceText::new(pairs.clone(), false))], content_type).filter);
        filtered_at_every_split(make, html).unwrap()
    }

    #[test]
    fn texts_are_replaced_in_text_alone() {
        let pairs = [("AT&T", "<T&A>"), ("one", "two"), ("one more", "three"), ("grün", "größer")];
        let html = "<title>one</title><p title=one>AT&T AT&amp;T one more one grün</p><!--one--><script>one</script>\
                    <textarea>one</textarea>on<b>e</b>";
        let out = rewritten(&pairs, "text/html; charset=utf-8", html.as_bytes());
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "<title>two</title><p title=one>&lt;T&amp;A&gt; &lt;T&amp;A&gt; three two größer</p><!--one--><script>one</script>\
             <textarea>one</textarea>on<b>e</b>"
        );
    }

    #[test]
    fn texts_of_styles_and_scripts_stay_in_svg_too() {
        for html in [
            "1<svg>1<defs><style>.a{font-family:\"Example\"}</style></defs><script>var a='Example'</script><text>1</text></svg>1",
            "1<SVG><Style>Example<b-c/>Example</Style>1<style/>1<style>Example",
            "1<svg><g>1</g><script>Example<a>Example</a></script>1</svg><style>Example</style>1<svg><desc><style>Example</style>1",
            "1<svg><style><![CDATA[Example]]>Example&quot;</style>1</svg><!-- <svg><style></style></svg> -->1<p title='<svg>'>1",
            "<math><mi>1</mi></math><svg><style>Example</style></svg><svg><style>Example</style></svg>1",
        ] {
            for kind in ["text/html; charset=utf-8", "text/html; charset=shift_jis"] {
                let out = rewritten(&[("Example", "!"), ("1", "2")], kind, html.as_bytes());
                let expected = html.replace('1', "2");
                assert_eq!(String::from_utf8(out).unwrap(), expected, "{html}");
            }
        }
    }

    #[test]
    fn texts_are_found_in_the_encoding_of_the_document() {
        let out = rewritten(&[("grün", "€")], "text/html; charset=iso-8859-1", b"<p>gr\xfcn \xff");
        assert_eq!(out, b"<p>\x80 \xff");
        let out = rewritten(&[("ソ", "ソソ"), ("\\", "!")], "text/html; charset=shift_jis", b"\x83\x5c\\");
        assert_eq!(out, b"\x83\x5c\x83\x5c!");
    }

    #[test]
    fn references_are_the_characters_that_they_stand_for() {
        let utf8 = "text/html; charset=utf-8";
        for (pairs, html, expected) in [
            (
                &[("amp", "ampere"), ("lt", "quot")][..],
                "<p>Tom &amp; Jerry &lt;b&gt; amp</p>",
                "<p>Tom &amp; Jerry &lt;b&gt; ampere</p>",
            ),
            (&[("&", "+")], "&amp; &#38; &#x26; & &amp &eacute; &#233;", "+ + + + + &eacute; &#233;"),
            (
                &[("acute", "x"), ("not", "y"), (";", ",")],
                "&eacute; &notin; ;&unknown;",
                "&eacute; &notin; ,&unknown;",
            ),
            (&[("é!", "e")], "&eacute;! &#233;! &#xE9;&#33; é! &egrave;!", "e e e e &egrave;!"),
            (&[("<b>", "\u{a0}")], "&lt;b&gt; &#60;b> &lt;i&gt;", "\u{a0} \u{a0} &lt;i&gt;"),
            (&[("a\u{a0}b", "ab"), ("'", "")], "a&nbsp;b &apos;&#39;&quot;", "ab &quot;"),
            (&[("AT&T", "x")], "AT&T AT&amp;T AT&ampT AT&T; AT&am", "x x x AT&T; AT&am"),
        ] {
            let out = rewritten(pairs, utf8, html.as_bytes());
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{html}");
        }
        let out = rewritten(
            &[("ü€", "!"), ("252", "?")],
            "text/html; charset=koi8-r",
            b"&uuml;&euro; &uuml;&#8364; &#252;",
        );
        assert_eq!(out, b"&uuml;&euro; ! &#252;");
        // Without a declared encoding, the output is valid in any.
        let out = rewritten(&[("grün", "größer")], "text/html", b"<p>gr\xfcn \xff");
        assert_eq!(out, b"<p>gr&#246;&#223;er \xff");
        let out =
            rewritten(&[("ソ", "x"), ("\\", "!")], "text/html; charset=shift_jis", b"\x83\x5c&#12477;&bsol;");
        assert_eq!(out, b"xx!");
    }

    #[test]
    fn what_is_replaced_lets_nothing_become_markup() {
        let pairs = [("1", "one"), ("®", ""), ("ä", "ae"), ("1x", ""), ("?", "!")];
        for (html, expected) in [
            ("<p><®img src=x onerror=alert()>", "<p>&lt;img src=x onerror=alert()>"),
            ("<1 onmouseover=alert()>", "&lt;one onmouseover=alert()>"),
            ("<äa b=c><<ää a < b<1xp><", "&lt;aea b=c><&lt;aeae a < b&lt;p><"),
            ("<®®/p><!-- c --><®<<p>1", "&lt;/p><!-- c -->&lt;<<p>one"),
            (
                "<title><®/title></®title></tit®le> a < b<</title><®",
                "<title>&lt;/title>&lt;/title>&lt;/title> a < b<</title>&lt;",
            ),
            ("&lt;®p>&#60;®p><b>a<</b>®p", "&lt;p>&#60;p><b>a<</b>p"),
            (
                "<title>1 < 2 </ti ®<b></ti®t </TITLE></title>",
                "<title>one < 2 </ti <b>&lt;/tit </TITLE></title>",
            ),
            ("x&®lt;y &am®p; &#®60; &l®t", "x&amp;lt;y &amp;amp; &amp;#60; &amp;lt"),
            ("&not®in; &noti®n; &#4®9; & ® &amp;®lt; &®", "&not;in; &not;in; &#4;9; &  &amp;lt; &amp;"),
            ("<title>&®lt;/title></title>", "<title>&amp;lt;/title></title>"),
            ("<textarea><®</textarea><script><®</script>", "<textarea><®</textarea><script><®</script>"),
        ] {
            let out = rewritten(&pairs, "text/html; charset=utf-8", html.as_bytes());
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{html}");
        }
        // One feature removes text after the output of another.
        let pairs = |from: &str, to: &str| vec![(from.to_owned(), to.to_owned())];
        let make = || {
            let features: [Arc<dyn Feature>; 2] = [
                Arc::new(ReplaceText::new(pairs("1", "2"), false)),
                Arc::new(ReplaceText::new(pairs("2", ""), false)),
            ];
            Boxed(of(features.to_vec(), "text/html; charset=utf-8").filter)
        };
        let out = filtered_at_every_split(make, b"<1p><2p><12p>").unwrap();
        assert_eq!(out, b"&lt;p>&lt;p>&lt;p>");
    }

    #[test]
    fn case_of_references_is_not_that_of_text() {
        let make = || {
            let feature = ReplaceText::new(vec![("a".into(), "bb".into())], true);
            Boxed(of(vec![Arc::new(feature)], "text/html; charset=utf-8").filter)
        };
        assert_eq!(filtered_at_every_split(make, b"&amp; A &#65; &Auml;").unwrap(), b"&amp; bb bb &Auml;");
    }
}

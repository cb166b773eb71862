//! Markup of the configuration that is inserted into documents.
//!
//! ```kdl
//! html-insert {
//!     head-end "<script src=/stats.js nonce=\"{nonce}\"></script>"
//!     body-start "${file:notice.html}"
//!     before "main > h1" "<p>New</p>" limit=1
//! }
//! ```
//!
//! [`Edges`] describes how the edges of head and body are found.

use std::sync::Arc;

use foregate_module::settings::{Argument, Block, Context, Key, Node, Problem, Prop, each, together};

use super::{Configured, chooses};
use crate::edges::{MARKS, Mark, Side};
use crate::markup::{Partial, partial};
use crate::{Act, Edge, Edges, Element, End, EndTag, Feature, Page, Reads, Rewrite, Rule, Selector};

/// The step that chooses the feature.
const STEP: &str = "html-insert";
/// The longest piece of markup, bytes.
const MARKUP_LIMIT: usize = 64 * 1024;
/// The placeholder for the nonce in markup.
const NONCE: &str = "{nonce}";
/// The length of the shortest tag, bytes. The growth for each byte is computed for a document of such tags.
const TAG: usize = 3;

const LIMIT: Prop = Prop {
    name: "limit",
    usage: "NUMBER",
    required: false,
    default: "",
    about: "The most elements of a document at which the markup is inserted, counted from the start. Without it: all.",
};

const fn place(name: &'static str, example: &'static str, about: &'static str) -> Key {
    Key::one(name, "HTML", example, about).many()
}

const fn at(name: &'static str, example: &'static str, about: &'static str) -> Key {
    Key::one(name, "SELECTOR HTML", example, about).args(2, 2).props(&[LIMIT]).many()
}

static KEY: Key = Key::block(
    STEP,
    &BLOCK,
    "html-insert { head-end \"<script src=/stats.js></script>\" }",
    "Inserts markup into HTML. `{nonce}` in the markup is replaced by a nonce, which is then allowed by the response's `content-security-policy`.",
);

static BLOCK: Block = Block {
    keys: &[
        place("head-start", "head-start \"<meta name=a content=b>\"", "Inserts at the start of the head."),
        place(
            "head-end",
            "head-end \"<link rel=stylesheet href=/x.css>\"",
            "Inserts at the end of the head.",
        ),
        place("body-start", "body-start \"<p>Notice</p>\"", "Inserts at the start of the body."),
        place("body-end", "body-end \"<script src=/x.js></script>\"", "Inserts at the end of the body."),
        at("before", "before \"main\" \"<hr>\"", "Inserts before each element that matches the selector."),
        at("after", "after \"h1\" \"<hr>\"", "Inserts after each element that matches the selector."),
        at(
            "prepend",
            "prepend \"ul.menu\" \"<li>New</li>\"",
            "Inserts at the start of the content of each element that matches the selector.",
        ),
        at(
            "append",
            "append \"ul.menu\" \"<li>More</li>\" limit=1",
            "Inserts at the end of the content of each element that matches the selector.",
        ),
    ],
    later: &[],
};

/// The place at which markup is inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At the start of the head.
    HeadStart,
    /// At the end of the head.
    HeadEnd,
    /// At the start of the body.
    BodyStart,
    /// At the end of the body.
    BodyEnd,
    /// Before an element.
    Before,
    /// After an element.
    After,
    /// At the start of an element's content.
    Prepend,
    /// At the end of an element's content.
    Append,
}

const PLACES: [(&str, Place); 8] = [
    ("head-start", Place::HeadStart),
    ("head-end", Place::HeadEnd),
    ("body-start", Place::BodyStart),
    ("body-end", Place::BodyEnd),
    ("before", Place::Before),
    ("after", Place::After),
    ("prepend", Place::Prepend),
    ("append", Place::Append),
];

impl Configured for Insert {
    const STEP: &'static str = STEP;
    const KEY: &'static Key = &KEY;

    fn from_node(node: &Node, _: &mut dyn Context) -> Result<Self, Problem> {
        let mut insert = Insert::default();
        each::<_, ()>(node.children().iter().map(|child| {
            let Some((_, place)) = PLACES.iter().find(|(name, _)| *name == child.name()) else {
                return Ok(());
            };
            let markup = child.arg(child.args().len().saturating_sub(1)).and_then(read_markup);
            let limit = child.prop("limit").map(|limit| limit.number(1..=u64::from(u32::MAX))).transpose();
            let selector = match child.args() {
                [selector, markup] => {
                    let selector = Selector::from_argument(selector).map(Some);
                    together((selector, refuse_partial(markup))).map(|(selector, ())| selector)
                }
                _ => Ok(None),
            };
            let (selector, html, limit) = together((selector, markup, limit))?;
            match selector {
                Some(selector) => insert.at(*place, selector, html, limit),
                None => insert.edge(*place, html),
            }
            Ok(())
        }))?;
        if insert.edges.is_empty() && insert.elements.is_empty() {
            return Err(node.wrong("this inserts nothing").help("write where: `head-end \"<script ...>\"`"));
        }
        Ok(insert)
    }
}

fn read_markup(argument: &Argument) -> Result<&str, Problem> {
    let html = argument.text()?;
    if html.len() > MARKUP_LIMIT {
        return Err(argument.wrong(format!("markup to insert has at most {MARKUP_LIMIT} bytes")));
    }
    // A byte-order mark is only valid at the start of a whole document.
    Ok(html.strip_prefix('\u{feff}').unwrap_or(html))
}

/// Refuses incomplete markup at elements: an unclosed element would change the structure of the document after it.
fn refuse_partial(argument: &Argument) -> Result<(), Problem> {
    const WHOLE: &str = "insert whole elements, such as `<div>...</div>`";
    // Other errors have already been reported.
    let Some(partial) = read_markup(argument).ok().and_then(partial) else { return Ok(()) };
    let (message, help) = match partial {
        Partial::Opens(name) => (
            format!("the markup opens `{name}` and does not close it"),
            format!("insert whole elements: write `</{name}>` at its end"),
        ),
        Partial::Closes(name) => {
            (format!("the markup closes `{name}`, which it did not open"), WHOLE.to_owned())
        }
        Partial::Unfinished => (
            "the markup ends within a tag or a comment".to_owned(),
            "finish the tag or comment; a `<` that is text is written `&lt;`".to_owned(),
        ),
    };
    Err(argument.wrong(message).help(help))
}

chooses! {
    /// Chooses the feature.
    ChooseInsert, Insert, "Inserts markup into documents."
}

/// The feature.
#[derive(Debug, Default)]
pub struct Insert {
    /// The selectors of elements. Those of the marks of edges come first.
    selectors: Vec<Selector>,
    marks: Vec<(Mark, &'static str)>,
    edges: Vec<(Edge, String)>,
    elements: Vec<(Place, Selector, String, Option<u64>)>,
    side: Side,
}

impl Place {
    /// The edge of head or body; `None` for a place at an element.
    fn edge(self) -> Option<Edge> {
        match self {
            Self::HeadStart => Some(Edge::HeadStart),
            Self::HeadEnd => Some(Edge::HeadEnd),
            Self::BodyStart => Some(Edge::BodyStart),
            Self::BodyEnd => Some(Edge::BodyEnd),
            Self::Before | Self::After | Self::Prepend | Self::Append => None,
        }
    }
}

impl Insert {
    /// Inserts markup at the start or end of the head or the body. Ignores a place at an element.
    pub fn edge(&mut self, place: Place, html: &str) {
        let Some(edge) = place.edge() else { return };
        self.edges.push((edge, html.into()));
        let is_told = |mark: Mark| self.edges.iter().any(|(edge, _)| mark.tells(*edge));
        let told: Vec<_> = MARKS.into_iter().filter(|(mark, _)| is_told(*mark)).collect();
        let selectors = told.iter().map(|(_, name)| Selector::constant(name));
        self.selectors.splice(..self.marks.len(), selectors);
        self.marks = told;
    }

    /// Creates a feature that inserts markup at the start of the head, on this side of a tag.
    pub(crate) fn head_start(html: &str, side: Side) -> Self {
        let mut insert = Self { side, ..Self::default() };
        insert.edge(Place::HeadStart, html);
        insert
    }

    /// Inserts markup at the elements that a selector matches, at no more than `limit` elements of a document.
    pub fn at(&mut self, place: Place, selector: Selector, html: &str, limit: Option<u64>) {
        self.elements.push((place, selector, html.into(), limit));
    }

    /// The insertions at edges, in the form of a document.
    fn ready_edges(&self, page: &Page) -> Edges {
        let mut edges = Edges::of(page.kind, self.side);
        self.edges.iter().for_each(|(edge, html)| edges.insert(*edge, &ready(html, page)));
        edges
    }

    fn markup(&self) -> impl Iterator<Item = &str> {
        let edges = self.edges.iter().map(|(_, html)| &**html);
        edges.chain(self.elements.iter().map(|(_, _, html, _)| &**html))
    }
}

impl Feature for Insert {
    fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    fn reads(&self) -> Reads {
        Reads { end: !self.edges.is_empty(), ..Reads::default() }
    }

    fn growth(&self) -> usize {
        let unlimited = self.elements.iter().filter(|(.., limit)| limit.is_none());
        1 + unlimited.map(|(_, _, html, _)| html.len()).sum::<usize>() / TAG
    }

    fn adds_once(&self) -> usize {
        self.markup().map(str::len).sum()
    }

    fn wants_nonce(&self) -> bool {
        self.markup().any(|html| html.contains(NONCE))
    }

    fn edges(&self, page: &Page) -> Option<Edges> {
        self.elements.is_empty().then(|| self.ready_edges(page))
    }

    fn rules(&self, page: &Page) -> Vec<Rule> {
        let rules = self.elements.iter().map(|(place, selector, html, limit)| {
            let html = ready(html, page);
            let act = match place {
                Place::Before => Act::Before(html),
                Place::After => Act::After(html),
                Place::Prepend => Act::Prepend(html),
                _ => Act::Append(html),
            };
            Rule { selector: selector.clone(), act, limit: *limit }
        });
        rules.collect()
    }

    fn begin(self: Arc<Self>, page: &Page) -> Box<dyn Rewrite> {
        Box::new(Inserting { marks: self.marks.clone(), edges: self.ready_edges(page) })
    }
}

/// Converts markup to the form of the document.
fn ready(html: &str, page: &Page) -> String {
    match page.nonce() {
        Some(nonce) => page.text(&html.replace(NONCE, nonce)).into_owned(),
        None => page.text(html).into_owned(),
    }
}

/// The state for a document that has to be parsed.
struct Inserting {
    marks: Vec<(Mark, &'static str)>,
    edges: Edges,
}

impl Rewrite for Inserting {
    fn element(&mut self, selector: usize, element: &mut Element<'_, '_, '_>) {
        let Some((mark, _)) = self.marks.get(selector) else { return };
        let counts = *mark == Mark::Scope && element.has_content();
        if element.is_html() && *mark != Mark::Scope || counts {
            let (before, inside) = self.edges.start(*mark);
            before.into_iter().flatten().for_each(|html| element.before(&html));
            inside.iter().for_each(|html| element.prepend(html));
        }
        let ends = match mark {
            Mark::Html => true,
            Mark::Head | Mark::Body | Mark::Template => element.is_html(),
            Mark::Scope => counts,
            Mark::First => false,
        };
        if ends {
            element.watch_end();
        }
    }

    fn end_tag(&mut self, selector: usize, tag: &mut EndTag<'_, '_>) {
        let Some((mark, name)) = self.marks.get(selector) else { return };
        let own = *name == tag.name();
        if let Some(html) = own.then(|| self.edges.end(*mark)).flatten() {
            tag.before(&html);
        }
    }

    fn end(&mut self, end: &mut End<'_, '_>) {
        if self.edges.lacks_place() && self.edges.is_in_template() {
            end.leave_out();
        }
        self.edges.rest().for_each(|html| end.append(&html));
    }

    fn is_done(&self) -> bool {
        self.edges.is_done()
    }
}

#[cfg(test)]
mod tests {
    use foregate_module::BodyFilter;
    use foregate_module::testing::filtered_at_every_split;

    use super::*;
    use crate::pass::Pass;
    use crate::tests::Boxed;
    use crate::{ChosenFeature, Terms};

    fn rewritten(make: impl Fn(&mut Insert), html: &str) -> String {
        let make = || {
            let mut insert = Insert::default();
            make(&mut insert);
            let nonce = insert.wants_nonce().then(|| "N".into());
            let terms =
                Terms { content_type: Some(b"text/html; charset=utf-8".to_vec()), nonce, ..Terms::default() };
            Boxed(
                Pass::filter(vec![(ChosenFeature { step: "test", feature: Arc::new(insert) }, false)], terms)
                    .filter,
            )
        };
        String::from_utf8(filtered_at_every_split(make, html.as_bytes()).unwrap()).unwrap()
    }

    fn edges(insert: &mut Insert) {
        insert.edge(Place::HeadStart, "1");
        insert.edge(Place::HeadEnd, "2");
        insert.edge(Place::BodyStart, "3");
        insert.edge(Place::BodyEnd, "4ü");
    }

    #[test]
    fn edges_are_where_browsers_have_them() {
        let end = |insert: &mut Insert| insert.edge(Place::BodyEnd, "!");
        let other = |insert: &mut Insert| {
            insert.edge(Place::BodyEnd, "!");
            insert.at(Place::After, Selector::parse("q").unwrap(), "?", None);
        };
        for (html, expected) in [
            (
                "<body><table><tr><td></body>1</table>2</body>",
                "<body><table><tr><td></body>1</table>2</body>!",
            ),
            ("<body><table></table></body>", "<body><table></table>!</body>"),
            ("<body><svg><title></body></title></svg>1", "<body><svg><title></body></title></svg>1!"),
            ("<body><svg><title>a</title></svg></body>", "<body><svg><title>a</title></svg>!</body>"),
            ("<body><select><option></body></select>1", "<body><select><option></body></select>1!"),
        ] {
            assert_eq!(rewritten(end, html), expected);
            assert_eq!(rewritten(other, html), expected);
        }
        let starts = |insert: &mut Insert| {
            insert.edge(Place::HeadStart, "1");
            insert.edge(Place::BodyStart, "2");
        };
        for (html, expected) in [
            ("<html><select><head><body></select>", "<html><select><head><body></select>12"),
            ("<html><select></select><head><body>", "<html><select></select><head>1<body>2"),
        ] {
            assert_eq!(rewritten(starts, html), expected);
        }
    }

    #[test]
    fn what_stands_in_a_script_does_not_matter() {
        const PAGE: &str = "<body><p>1</p><script>x = \"<select>\"; y = '<svg>' + '<!--<template>'</script><!--<script>a-->\
<style>b</style><svg><desc></desc></svg><script>var z = '</div><svg><style>'</script></p><p>2</p></body>";
        let behind = |insert: &mut Insert| insert.at(Place::After, Selector::parse("p").unwrap(), "!", None);
        assert_eq!(
            rewritten(behind, PAGE),
            PAGE.replace("</p><", "</p>!<").replacen("</script></p>!", "</script></p>", 1)
        );
        let end = |insert: &mut Insert| insert.edge(Place::BodyEnd, "!");
        assert_eq!(rewritten(end, PAGE), PAGE.replace("</body>", "!</body>"));
        let both = |insert: &mut Insert| {
            behind(insert);
            end(insert);
        };
        assert!(rewritten(both, PAGE).ends_with("<p>2</p>!!</body>"));
    }

    #[test]
    fn svg_that_ends_where_it_begins_hides_no_body() {
        let end = |insert: &mut Insert| insert.edge(Place::BodyEnd, "!");
        for before in [
            "<svg/><script>'</body>'</script>",
            "<svg><svg/></svg><math/><style>a</style>",
            "<svg/></svg><title></title>",
        ] {
            assert_eq!(rewritten(end, &format!("<body>{before}</body>")), format!("<body>{before}!</body>"));
        }
    }

    #[test]
    fn what_is_inserted_behind_a_lone_bracket_is_text() {
        let edges = |insert: &mut Insert| {
            insert.edge(Place::HeadEnd, "/a");
            insert.edge(Place::BodyEnd, "b>");
        };
        assert_eq!(
            rewritten(edges, "<head><</head><body>1 <</body>"),
            "<head>&lt;/a</head><body>1 &lt;b></body>"
        );
        assert_eq!(rewritten(edges, "<head></head><body>1 <"), "<head>/a</head><body>1 &lt;b>");
        let tag = |insert: &mut Insert| insert.edge(Place::BodyEnd, "<i>");
        assert_eq!(rewritten(tag, "<body>1 << </body> <</html>"), "<body>1 << <i></body> <</html>");
        assert_eq!(rewritten(tag, "<html>1 <</body>"), "<html>1 <</body><i>");
        let around = |insert: &mut Insert| {
            insert.edge(Place::BodyEnd, "?");
            insert.at(Place::Before, Selector::parse("p").unwrap(), "a", None);
            insert.at(Place::Append, Selector::parse("p").unwrap(), "!b", None);
            insert.at(Place::Before, Selector::parse("i").unwrap(), "<b></b>", None);
        };
        assert_eq!(
            rewritten(around, "<html><<p>2 <</p> <<i><</i> <"),
            "<html>&lt;a<p>2 &lt;!b</p> <<b></b><i><</i> &lt;?"
        );
    }

    #[test]
    fn nothing_is_inserted_where_a_document_ends_within_a_tag() {
        let make = |places: &[Place], text: bool| {
            let mut insert = Insert::default();
            insert.edge(Place::BodyEnd, "<i title=\"\">-->");
            places.iter().for_each(|place| insert.at(*place, Selector::constant("hr"), "!", None));
            let mut features: Vec<Arc<dyn Feature>> = vec![Arc::new(insert)];
            if text {
                let pairs = vec![("Example Ltd".to_owned(), String::new())];
                features.push(Arc::new(crate::features::replace_text::ReplaceText::new(pairs, false)));
            }
            Boxed(crate::tests::of(features, "text/html; charset=utf-8").filter)
        };
        for (html, whole) in [
            ("<p>Hello <img src=x onerror=alert(1) ", false),
            ("<p>Hello <a title=\"x", false),
            ("<p title='a>b", false),
            ("a<!-- ", false),
            ("a<!-- > b", false),
            ("<!doctype html", false),
            ("a<?b", false),
            ("a</", false),
            ("a</ b", false),
            ("a</b", false),
            ("<script>a", false),
            ("<script>a</scr", false),
            ("<script>a</script>", true),
            ("<svg><path d=''/></svg><!-- a > -->b Example", true),
            ("a <", true),
            ("<p>1 < 2", true),
            ("", true),
        ] {
            for (places, text) in [(&[][..], false), (&[Place::After], false), (&[], true)] {
                let html = &*format!("<!doctype html>{html}");
                let out = filtered_at_every_split(|| make(places, text), html.as_bytes()).unwrap();
                let expected = [html, if whole { "<i title=\"\">-->" } else { "" }].concat();
                assert_eq!(String::from_utf8(out).unwrap(), expected, "{html} {places:?} {text}");
                let (mut pass, mut out, mut found) = (make(places, text), Vec::new(), Vec::new());
                pass.write(html.as_bytes(), &mut out).unwrap();
                pass.end(&mut out).unwrap();
                pass.0.report(&mut |finding| found.push((finding.event, finding.count)));
                let expected = if whole { "matches" } else { "markup-unfinished" };
                assert_eq!(found, [(expected, 1)], "{html} {places:?} {text}");
            }
        }
    }

    #[test]
    fn edges_are_found_with_and_without_their_tags() {
        for (html, expected) in [
            (
                "<html><head><title>t</title></head><body><p>x</body></html>",
                "<html><head>1<title>t</title>2</head><body>3<p>x4ü</body></html>",
            ),
            ("<head><title>t</title><body>x", "<head>1<title>t</title>2<body>3x4ü"),
            ("<meta charset=utf-8><title>t</title><p>x", "1<meta charset=utf-8><title>t</title><p>x234ü"),
            ("<html><body>x</html>", "<html>12<body>3x4ü</html>"),
            ("<!doctype html><p>x</p>", "<!doctype html><p>x</p>1234ü"),
            ("<head></head><body></body><body></body>", "<head>12</head><body>34ü</body><body></body>"),
            (
                "<script>'</head></body>'</script><body></body>",
                "<script>'</head></body>'</script>12<body>34ü</body>",
            ),
            (
                "<head></head><template><body></body></template><body><template></div></template>x</body>",
                "<head>12</head><template><body></body></template><body>3<template></div></template>x4ü</body>",
            ),
            (
                "<html><template><head></head></template><head><title></title></head>",
                "<html><template><head></head></template><head>1<title></title>2</head>34ü",
            ),
            // The browser is still in the template.
            ("<body><div><template></div><p>x", "12<body>3<div><template></div><p>x"),
            // Bodies that are no documents have no edges.
            ("", ""),
            ("<p>x</p>", "<p>x</p>"),
            ("<tr><td><title>x</title></td></tr>", "<tr><td><title>x</title></td></tr>"),
            ("<style>x</style><p>x</p>", "<style>x</style><p>x</p>"),
            ("<note><to>x</to><body>y</body></note>", "<note><to>x</to><body>y</body></note>"),
            ("f(\"<html><body></body>\")", "f(\"<html><body></body>\")"),
            // A document after a warning of an interpreter.
            (
                "<br><b>Warning</b><html><body>x</body></html>",
                "<br><b>Warning</b><html>12<body>3x4ü</body></html>",
            ),
        ] {
            assert_eq!(rewritten(edges, html), expected, "{html}");
        }
    }

    #[test]
    fn what_is_inserted_is_right_though_nobody_tells_the_encoding() {
        for places in [&[][..], &[Place::After]] {
            let make = || {
                let mut insert = Insert::default();
                insert.edge(Place::BodyStart, "ü€");
                places.iter().for_each(|place| insert.at(*place, Selector::constant("hr"), "ä", None));
                Boxed(crate::tests::of(vec![Arc::new(insert)], "text/html").filter)
            };
            for (html, expected) in [
                ("<body><meta charset=utf-8>é", "<body>&#252;&#8364;<meta charset=utf-8>é"),
                ("<meta charset=utf-8><body>é", "<meta charset=utf-8><body>ü€é"),
            ] {
                let out = filtered_at_every_split(make, html.as_bytes()).unwrap();
                assert_eq!(String::from_utf8(out).unwrap(), expected, "{html}");
            }
        }
    }

    #[test]
    fn markup_is_inserted_at_elements() {
        let insert = |insert: &mut Insert| {
            insert.at(Place::Before, Selector::constant("p"), "B", Some(1));
            insert.at(Place::After, Selector::constant("p"), "A", None);
            insert.at(Place::Prepend, Selector::constant("div.x, br"), "P", None);
            insert.at(Place::Append, Selector::constant("div.x"), "{nonce}", None);
        };
        assert_eq!(
            rewritten(insert, "<p>1</p><p>2</p><div class='x y'>3<br></div>"),
            "B<p>1</p>A<p>2</p>A<div class='x y'>P3<br>N</div>"
        );
    }

    #[test]
    fn nothing_is_parsed_behind_the_last_insertion() {
        let text = "x".repeat(32 << 10);
        for (place, selector, html, holds) in [
            (Place::HeadEnd, None, "<head></head>", false),
            (Place::BodyStart, None, "<body>", false),
            (Place::BodyEnd, None, "<body>", true),
            (Place::Before, Some("p"), "<p>", false),
            (Place::After, Some("p"), "<p>", true),
            (Place::After, Some("br"), "<br>", false),
            (Place::After, Some("p"), "<p></p>", false),
            (Place::Append, Some("p"), "<div><p></div>", false),
        ] {
            let mut insert = Insert::default();
            match selector {
                Some(selector) => insert.at(place, Selector::constant(selector), "!", Some(1)),
                None => insert.edge(place, "!"),
            }
            let mut pass = crate::tests::of(vec![Arc::new(insert)], "text/html; charset=utf-8").filter;
            let mut out = Vec::new();
            pass.write([html, &text].concat().as_bytes(), &mut out).unwrap();
            while pass.pending() {
                pass.write(b"", &mut out).unwrap();
            }
            // The rewriter holds the name of a tag until it has ended.
            pass.write(b"<name", &mut out).unwrap();
            assert_eq!(out.ends_with(b"<name"), !holds, "{place:?} {html}");
            let mut found = Vec::new();
            pass.report(&mut |finding| found.push((finding.event, finding.count)));
            assert_eq!(found, if holds { vec![] } else { vec![("matches", 1)] }, "{place:?}");
        }
    }
}

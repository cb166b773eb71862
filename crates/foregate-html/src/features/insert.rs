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
//! The ends of `head` and `body` are found where their tags were left out, too, as far as that can be told without
//! building a tree: at the start of `body`, at the end of `html`, at the end of the document.

use std::sync::Arc;

use foregate_module::settings::{Block, Context, FromNode, Key, Node, Problem, Prop};

use super::chooses;
use crate::{Chosen, Element, End, EndTag, Feature, Page, Rewrite, Selector};

/// The step that chooses the feature.
const STEP: &str = "html-insert";
/// The longest piece of markup, bytes.
const MARKUP_LIMIT: usize = 64 * 1024;
/// What stands for the nonce in markup.
const NONCE: &str = "{nonce}";
/// The shortest tag, bytes: what growth is counted by.
const TAG: usize = 3;

const LIMIT: Prop = Prop {
    name: "limit",
    usage: "NUMBER",
    required: false,
    default: "",
    about: "At how many elements of a document at most.",
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
    "html-insert { head-end \"<script src=/stats.js></script>\"; }",
    "Inserts markup into HTML. `{nonce}` in it becomes a nonce of the response, which its `content-security-policy` then allows.",
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
        at("before", "before \"main\" \"<hr>\"", "Inserts before elements that the selector fits."),
        at("after", "after \"h1\" \"<hr>\"", "Inserts behind such elements."),
        at("prepend", "prepend \"ul.menu\" \"<li>New</li>\"", "Inserts at the start of their content."),
        at("append", "append \"ul.menu\" \"<li>More</li>\" limit=1", "Inserts at the end of their content."),
    ],
    later: &[],
};

/// Where markup goes.
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
    /// Behind an element.
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

/// The settings of `html-insert`.
#[derive(Debug, Clone)]
pub struct Settings(Arc<Insert>);

impl Settings {
    fn chosen(&self) -> Chosen {
        Chosen { step: STEP, feature: Arc::clone(&self.0) as Arc<dyn Feature> }
    }
}

impl FromNode for Settings {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        let mut insert = Insert::default();
        let Some(node) = nodes.last() else { return Ok(Self(Arc::new(insert))) };
        for child in node.children() {
            let Some((_, place)) = PLACES.iter().find(|(name, _)| *name == child.name()) else { continue };
            let markup = child.arg(child.args().len().saturating_sub(1))?;
            let html = markup.text()?;
            if html.len() > MARKUP_LIMIT {
                return Err(markup.wrong(format!("markup to insert has at most {MARKUP_LIMIT} bytes")));
            }
            let limit = child.prop("limit").map(|limit| limit.number(1..=u64::from(u32::MAX))).transpose()?;
            match child.args() {
                [selector, _] => insert.at(*place, Selector::from_argument(selector)?, html, limit),
                _ => insert.edge(*place, html),
            }
        }
        if insert.edges.is_empty() && insert.elements.is_empty() {
            return Err(node.wrong("this inserts nothing").help("write where: `head-end \"<script ...>\"`"));
        }
        Ok(Self(Arc::new(insert)))
    }
}

chooses! {
    /// Chooses the feature.
    ChooseInsert, Settings, "html-insert", "Inserts markup into documents."
}

/// The feature.
#[derive(Debug, Default)]
pub struct Insert {
    /// Those of the edges first, as far as there is something to insert there.
    selectors: Vec<Selector>,
    marks: Vec<Mark>,
    edges: Vec<(Place, String)>,
    elements: Vec<(Place, String, Option<u64>)>,
}

/// What marks the edges of head and body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Html,
    Head,
    Body,
    /// What may come first where the tags of the head were left out.
    First,
}

const MARKS: [(Mark, &str); 9] = [
    (Mark::Html, "html"),
    (Mark::Head, "head"),
    (Mark::Body, "body"),
    (Mark::First, "title"),
    (Mark::First, "meta"),
    (Mark::First, "link"),
    (Mark::First, "base"),
    (Mark::First, "script"),
    (Mark::First, "style"),
];

impl Mark {
    /// Whether it tells where something has to be inserted.
    fn tells(self, place: Place) -> bool {
        match place {
            Place::HeadStart => self != Self::Html,
            Place::HeadEnd => matches!(self, Self::Head | Self::Body),
            Place::BodyStart => self == Self::Body,
            Place::BodyEnd => matches!(self, Self::Html | Self::Body),
            _ => false,
        }
    }
}

impl Insert {
    /// Inserts markup at an edge of head or body.
    pub fn edge(&mut self, place: Place, html: &str) {
        self.edges.push((place, html.into()));
        let is_told = |mark: Mark| self.edges.iter().any(|(place, _)| mark.tells(*place));
        let told: Vec<_> = MARKS.into_iter().filter(|(mark, _)| is_told(*mark)).collect();
        let selectors = told.iter().map(|(_, name)| Selector::constant(name));
        self.selectors.splice(..self.marks.len(), selectors);
        self.marks = told.into_iter().map(|(mark, _)| mark).collect();
    }

    /// Inserts markup at elements, at so many of a document at most.
    pub fn at(&mut self, place: Place, selector: Selector, html: &str, limit: Option<u64>) {
        self.selectors.push(selector);
        self.elements.push((place, html.into(), limit));
    }

    fn markup(&self) -> impl Iterator<Item = &str> {
        let edges = self.edges.iter().map(|(_, html)| &**html);
        edges.chain(self.elements.iter().map(|(_, html, _)| &**html))
    }
}

impl Feature for Insert {
    fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    fn growth(&self) -> usize {
        let unlimited = self.elements.iter().filter(|(_, _, limit)| limit.is_none());
        1 + unlimited.map(|(_, html, _)| html.len()).sum::<usize>() / TAG
    }

    fn wants_nonce(&self) -> bool {
        self.markup().any(|html| html.contains(NONCE))
    }

    fn begin(self: Arc<Self>, page: &Page) -> Box<dyn Rewrite> {
        let ready = |html: &str| match page.nonce() {
            Some(nonce) => page.text(&html.replace(NONCE, nonce)).into_owned(),
            None => page.text(html).into_owned(),
        };
        let of = |wanted: Place| {
            let edges = self.edges.iter().filter(|(place, _)| *place == wanted);
            edges.map(|(_, html)| ready(html)).collect::<String>()
        };
        Box::new(Inserting {
            marks: self.marks.clone(),
            open: 0,
            head_start: of(Place::HeadStart),
            head_end: of(Place::HeadEnd),
            body_start: of(Place::BodyStart),
            body_end: of(Place::BodyEnd),
            elements: self
                .elements
                .iter()
                .map(|(place, html, limit)| (*place, ready(html), *limit))
                .collect(),
        })
    }
}

/// What is still to be inserted at the edges; empty once it has been.
struct Inserting {
    marks: Vec<Mark>,
    /// How many elements are open at whose end something is going to be written.
    open: usize,
    head_start: String,
    head_end: String,
    body_start: String,
    body_end: String,
    /// With at how many elements more; `None`: at all.
    elements: Vec<(Place, String, Option<u64>)>,
}

impl Rewrite for Inserting {
    fn element(&mut self, selector: usize, element: &mut Element<'_, '_, '_>) {
        match self.marks.get(selector) {
            Some(Mark::Html) => element.watch_end(),
            Some(Mark::Head) if element.is_html() => {
                if !self.head_start.is_empty() {
                    element.prepend(&std::mem::take(&mut self.head_start));
                }
                element.watch_end();
            }
            Some(Mark::Body) if element.is_html() => self.body(element),
            // In a document whose head has no tag of its own, this is the first of it.
            Some(Mark::First) if !self.head_start.is_empty() && element.is_html() => {
                element.before(&std::mem::take(&mut self.head_start));
            }
            Some(_) => {}
            None => self.at(selector - self.marks.len(), element),
        }
    }

    fn end_tag(&mut self, selector: usize, tag: &mut EndTag<'_, '_>) {
        let Some(mark) = self.marks.get(selector) else {
            self.open = self.open.saturating_sub(1);
            return;
        };
        let held = match (mark, &*tag.name()) {
            (Mark::Head, "head") => std::mem::take(&mut self.head_end),
            (Mark::Body, "body") | (Mark::Html, "html") => std::mem::take(&mut self.body_end),
            _ => return,
        };
        if !held.is_empty() {
            tag.before(&held);
        }
    }

    fn end(&mut self, end: &mut End<'_, '_>) {
        for held in [&mut self.head_start, &mut self.head_end, &mut self.body_start, &mut self.body_end] {
            if !held.is_empty() {
                end.append(&std::mem::take(held));
            }
        }
    }

    fn is_done(&self) -> bool {
        let edges = [&self.head_start, &self.head_end, &self.body_start, &self.body_end];
        edges.iter().all(|held| held.is_empty())
            && self.elements.iter().all(|(_, _, left)| *left == Some(0))
            && self.open == 0
    }
}

impl Inserting {
    fn body(&mut self, element: &mut Element<'_, '_, '_>) {
        for held in [&mut self.head_start, &mut self.head_end] {
            if !held.is_empty() {
                element.before(&std::mem::take(held));
            }
        }
        if !self.body_start.is_empty() {
            element.prepend(&std::mem::take(&mut self.body_start));
        }
        element.watch_end();
    }

    fn at(&mut self, number: usize, element: &mut Element<'_, '_, '_>) {
        let Some((place, html, left)) = self.elements.get_mut(number) else { return };
        if *left == Some(0) {
            return;
        }
        // Where there is no content, nothing can be at its start or end.
        if matches!(place, Place::Prepend | Place::Append) && !element.has_content() {
            return;
        }
        if let Some(left) = left {
            *left = left.saturating_sub(1);
            if matches!(place, Place::After | Place::Append) && element.has_content() {
                self.open += 1;
                element.watch_end();
            }
        }
        match place {
            Place::Before => element.before(html),
            Place::After => element.after(html),
            Place::Prepend => element.prepend(html),
            _ => element.append(html),
        }
    }
}

#[cfg(test)]
mod tests {
    use foregate_module::testing::filtered_at_every_split;

    use super::*;
    use crate::Terms;
    use crate::pass::Pass;
    use crate::tests::Boxed;

    fn rewritten(make: impl Fn(&mut Insert), html: &str) -> String {
        let make = || {
            let mut insert = Insert::default();
            make(&mut insert);
            let nonce = insert.wants_nonce().then(|| "N".into());
            let terms =
                Terms { content_type: Some(b"text/html; charset=utf-8".to_vec()), nonce, ..Terms::default() };
            Boxed(
                Pass::filter(vec![(Chosen { step: "test", feature: Arc::new(insert) }, false)], terms).filter,
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
    fn edges_are_found_with_and_without_their_tags() {
        for (html, expected) in [
            (
                "<html><head><title>t</title></head><body><p>x</body></html>",
                "<html><head>1<title>t</title>2</head><body>3<p>x4ü</body></html>",
            ),
            ("<head><title>t</title><body>x", "<head>1<title>t</title>2<body>3x4ü"),
            ("<meta charset=utf-8><title>t</title><p>x", "1<meta charset=utf-8><title>t</title><p>x234ü"),
            ("<html><body>x</html>", "<html>12<body>3x4ü</html>"),
            ("<p>x</p>", "<p>x</p>1234ü"),
            ("<head></head><body></body><body></body>", "<head>12</head><body>34ü</body><body></body>"),
            (
                "<script>'</head></body>'</script><body></body>",
                "1<script>'</head></body>'</script>2<body>34ü</body>",
            ),
            ("", "1234ü"),
        ] {
            assert_eq!(rewritten(edges, html), expected, "{html}");
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
            assert_eq!(
                found,
                if place == Place::BodyEnd { vec![] } else { vec![("matches", 1)] },
                "{place:?}"
            );
        }
    }
}

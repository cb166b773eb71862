//! Insertion at the edges of head and body.
//!
//! The ends of `head` and `body` are found without their tags too, as far as that is possible without building a
//! tree: at the start of `body`, at the end of `html`, at the end of the document. Only documents have edges: see
//! [`BodyKind`]. The content of a `template` is no part of the document. In a table, a `select`, SVG or MathML browsers ignore the tags of
//! head and body, and so does this code.

use crate::kind::BodyKind;

/// An edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// The start of the head.
    HeadStart,
    /// The end of the head.
    HeadEnd,
    /// The start of the body.
    BodyStart,
    /// The end of the body.
    BodyEnd,
}

/// The pending insertions at the edges of a document: see [`Feature::edges`](crate::Feature::edges).
#[derive(Debug, Clone, Default)]
pub struct Edges {
    head_start: String,
    head_end: String,
    body_start: String,
    body_end: String,
    /// The kind of body, as far as it is known.
    kind: BodyKind,
    /// The number of open templates.
    templates: u32,
    /// How many elements are open outside of them in which tags of head and body mean nothing.
    scopes: u32,
    side: Side,
}

/// On which side of the tag where a head begins markup for its start may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Side {
    /// On either.
    #[default]
    Both,
    /// Before a tag, if the tag of the head was left out.
    Before,
    /// After the tag of the head.
    Behind,
}

/// A tag that marks an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Html,
    Head,
    Body,
    /// The first element of a head without tags.
    First,
    /// An element with content that is no part of the document.
    Template,
    /// That in which tags of head and body mean nothing.
    Scope,
}

/// The elements that are marks.
pub(crate) const MARKS: [(Mark, &str); 14] = [
    (Mark::Html, "html"),
    (Mark::Head, "head"),
    (Mark::Body, "body"),
    (Mark::First, "title"),
    (Mark::First, "meta"),
    (Mark::First, "link"),
    (Mark::First, "base"),
    (Mark::First, "script"),
    (Mark::First, "style"),
    (Mark::Template, "template"),
    (Mark::Scope, "table"),
    (Mark::Scope, "select"),
    (Mark::Scope, "svg"),
    (Mark::Scope, "math"),
];

impl Mark {
    /// Returns true if it marks this edge.
    pub fn tells(self, edge: Edge) -> bool {
        match self {
            Self::First => edge == Edge::HeadStart,
            // Only the other edges depend on whether it is a document.
            _ => true,
        }
    }
}

impl Edges {
    /// The edges of a body of this kind.
    pub(crate) fn of(kind: BodyKind, side: Side) -> Self {
        Self { kind, side, ..Self::default() }
    }

    /// Inserts markup at an edge, after earlier insertions there. The markup has to be in the form of texts in the document
    /// ([`Page::text`](crate::Page::text)).
    pub fn insert(&mut self, edge: Edge, html: &str) {
        self.at(edge).push_str(html);
    }

    fn at(&mut self, edge: Edge) -> &mut String {
        match edge {
            Edge::HeadStart => &mut self.head_start,
            Edge::HeadEnd => &mut self.head_end,
            Edge::BodyStart => &mut self.body_start,
            Edge::BodyEnd => &mut self.body_end,
        }
    }

    fn take(&mut self, edge: Edge) -> Option<String> {
        let held = std::mem::take(self.at(edge));
        (!held.is_empty()).then_some(held)
    }

    /// Handles the start tag of an HTML element: returns the markup to insert before it, in order, and after it.
    pub(crate) fn start(&mut self, mark: Mark) -> ([Option<String>; 2], Option<String>) {
        self.see(mark);
        if self.kind != BodyKind::Document || self.templates > 0 || self.scopes > 0 {
            return ([None, None], None);
        }
        let (mut before, mut inside) = match mark {
            Mark::Html | Mark::Template | Mark::Scope => ([None, None], None),
            Mark::Head => ([None, None], self.take(Edge::HeadStart)),
            Mark::Body => {
                ([self.take(Edge::HeadStart), self.take(Edge::HeadEnd)], self.take(Edge::BodyStart))
            }
            // In a document without a head tag, this element is the first of the head.
            Mark::First => ([self.take(Edge::HeadStart), None], None),
        };
        match self.side {
            Side::Both => {}
            Side::Before => inside = None,
            Side::Behind => before = [None, None],
        }
        (before, inside)
    }

    /// Notes the kind of body that a start tag implies, and the start of a template.
    fn see(&mut self, mark: Mark) {
        let shows = match self.kind {
            BodyKind::HeadContent => matches!(mark, Mark::Html | Mark::Head | Mark::Body),
            BodyKind::Fragment => mark == Mark::Html,
            _ => false,
        };
        match mark {
            Mark::Template => self.templates = self.templates.saturating_add(1),
            Mark::Scope if self.templates == 0 => self.scopes = self.scopes.saturating_add(1),
            _ if shows && self.templates == 0 => self.kind = BodyKind::Document,
            _ => {}
        }
    }

    /// Handles the end tag of an element: returns the markup to insert before it.
    pub(crate) fn end(&mut self, mark: Mark) -> Option<String> {
        match mark {
            Mark::Template => self.templates = self.templates.saturating_sub(1),
            Mark::Scope if self.templates == 0 => self.scopes = self.scopes.saturating_sub(1),
            _ => {}
        }
        if self.kind != BodyKind::Document || self.templates > 0 || self.scopes > 0 {
            return None;
        }
        match mark {
            Mark::Head => self.take(Edge::HeadEnd),
            Mark::Html | Mark::Body => self.take(Edge::BodyEnd),
            Mark::First | Mark::Template | Mark::Scope => None,
        }
    }

    /// The markup to insert at the end of the document, in order.
    pub(crate) fn rest(&mut self) -> impl Iterator<Item = String> {
        let is_document = self.kind == BodyKind::Document && self.templates == 0;
        let edges = [Edge::HeadStart, Edge::HeadEnd, Edge::BodyStart, Edge::BodyEnd];
        edges.map(|edge| self.take(edge).filter(|_| is_document)).into_iter().flatten()
    }

    /// Returns true if there is an insertion for the start of the head, which may be at its first element.
    pub(crate) fn begins_head(&self) -> bool {
        !self.head_start.is_empty()
    }

    /// Returns true if nothing is left to insert.
    pub(crate) fn is_done(&self) -> bool {
        let held = [&self.head_start, &self.head_end, &self.body_start, &self.body_end];
        self.kind == BodyKind::Text || held.iter().all(|held| held.is_empty())
    }

    /// Returns true if a template is open.
    pub(crate) fn is_in_template(&self) -> bool {
        self.templates > 0
    }

    /// Returns true if an insertion has found no place in the document.
    pub(crate) fn lacks_place(&self) -> bool {
        self.kind == BodyKind::Document && !self.is_done()
    }
}

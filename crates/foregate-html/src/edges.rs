//! Insertion at the edges of head and body.
//!
//! If the end tag of `head` or `body` is missing, the end is found at the start of `body`, at the end of `html` or at
//! the end of the document: no tree is built for this. Only documents have edges: see [`BodyKind`]. The content of a
//! `template` is not part of the document. In a table, a `select`, SVG or MathML, browsers ignore the tags of head and
//! body, and so does this code.

use crate::kind::BodyKind;

/// An edge of the head or the body.
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
    /// The number of open elements, outside of templates, in which browsers ignore the tags of head and body.
    scopes: u32,
    side: Side,
}

/// Markup for the start of the head is inserted before or after the first tag of the head. This says which is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Side {
    /// On either side.
    #[default]
    Both,
    /// Only before the first tag of the head, if the `head` tag itself was left out.
    Before,
    /// Only after the `head` tag.
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
    /// A template: its content is not part of the document.
    Template,
    /// An element in which browsers ignore the tags of head and body.
    Scope,
}

/// The elements with tags that are marks.
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
    /// Returns true if the tag can matter for this edge.
    pub fn tells(self, edge: Edge) -> bool {
        match self {
            Self::First => edge == Edge::HeadStart,
            // The other marks show whether the body is a document, so they matter for all edges.
            _ => true,
        }
    }
}

impl Edges {
    /// Edges without insertions, for a body of this kind.
    pub(crate) fn of(kind: BodyKind, side: Side) -> Self {
        Self { kind, side, ..Self::default() }
    }

    /// Inserts markup at an edge, after earlier insertions there. The markup has to be in the form that
    /// [`Page::text`](crate::Page::text) returns.
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

    /// Handles the start tag of an HTML element. Returns the two pieces of markup to insert before the tag, in order, and
    /// the markup to insert after it.
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
            // If markup for the start of the head still waits, the document has no `head` tag, and this element is the first
            // in the head.
            Mark::First => ([self.take(Edge::HeadStart), None], None),
        };
        match self.side {
            Side::Both => {}
            Side::Before => inside = None,
            Side::Behind => before = [None, None],
        }
        (before, inside)
    }

    /// Updates the kind of body, and the number of open templates, after a start tag.
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

    /// Handles the end tag of an element. Returns the markup to insert before the tag.
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

    /// Returns true if markup waits for the start of the head. Without a `head` tag, the markup is inserted before the
    /// first element of the head.
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

    /// Returns true if the body is a document, but an insertion is still pending.
    pub(crate) fn lacks_place(&self) -> bool {
        self.kind == BodyKind::Document && !self.is_done()
    }
}

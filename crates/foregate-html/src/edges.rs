//! What is inserted at the edges of head and body.
//!
//! The ends of `head` and `body` are found where their tags were left out, too, as far as that can be told without building a
//! tree: at the start of `body`, at the end of `html`, at the end of the document.

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

/// What is still to be inserted at the edges of a document: see [`Feature::edges`](crate::Feature::edges).
#[derive(Debug, Clone, Default)]
pub struct Edges {
    head_start: String,
    head_end: String,
    body_start: String,
    body_end: String,
}

/// What tells where edges are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Html,
    Head,
    Body,
    /// What may come first where the tags of the head were left out.
    First,
}

/// The elements that are marks.
pub(crate) const MARKS: [(Mark, &str); 9] = [
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
    /// Whether it tells where an edge is.
    pub fn tells(self, edge: Edge) -> bool {
        match edge {
            Edge::HeadStart => self != Self::Html,
            Edge::HeadEnd => matches!(self, Self::Head | Self::Body),
            Edge::BodyStart => self == Self::Body,
            Edge::BodyEnd => matches!(self, Self::Html | Self::Body),
        }
    }
}

impl Edges {
    /// Inserts markup at an edge, behind what is inserted there already. It has to have the form that texts have in the
    /// document ([`Page::text`](crate::Page::text)).
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

    /// The start tag of an element of HTML: what comes before it, in order, and what comes behind the tag.
    pub(crate) fn start(&mut self, mark: Mark) -> ([Option<String>; 2], Option<String>) {
        match mark {
            Mark::Html => ([None, None], None),
            Mark::Head => ([None, None], self.take(Edge::HeadStart)),
            Mark::Body => {
                ([self.take(Edge::HeadStart), self.take(Edge::HeadEnd)], self.take(Edge::BodyStart))
            }
            // In a document whose head has no tag of its own, this is the first of it.
            Mark::First => ([self.take(Edge::HeadStart), None], None),
        }
    }

    /// The end tag of an element: what comes before it.
    pub(crate) fn end(&mut self, mark: Mark) -> Option<String> {
        match mark {
            Mark::Head => self.take(Edge::HeadEnd),
            Mark::Html | Mark::Body => self.take(Edge::BodyEnd),
            Mark::First => None,
        }
    }

    /// The end of the document: what comes there, in order.
    pub(crate) fn rest(&mut self) -> impl Iterator<Item = String> {
        let edges = [Edge::HeadStart, Edge::HeadEnd, Edge::BodyStart, Edge::BodyEnd];
        edges.map(|edge| self.take(edge)).into_iter().flatten()
    }

    /// Whether there is something for the start of the head, which may be wherever its first element is.
    pub(crate) fn begins_head(&self) -> bool {
        !self.head_start.is_empty()
    }

    /// Whether all has been inserted.
    pub(crate) fn is_done(&self) -> bool {
        [&self.head_start, &self.head_end, &self.body_start, &self.body_end]
            .iter()
            .all(|held| held.is_empty())
    }
}

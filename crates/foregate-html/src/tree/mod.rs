//! The open elements in the HTML standard's tree construction (HTML, section 13.2.6).
//!
//! No tree is kept: only the stack of open elements, the list of formatting elements and the insertion mode, which together determine
//! the meaning of the rest of a document. Two documents with equal states here continue equally. So a change to a document leaves its
//! surroundings unchanged if it leads to the same state.
//!
//! Scripting counts as enabled.

mod adjust;
mod body;
mod foreign;
mod formatting;
mod kinds;
mod modes;
pub(crate) mod select;
mod stack;
mod tables;
mod tokens;

pub(crate) use self::adjust::{adjusted, has_namespace};
pub(crate) use self::formatting::Formatting;
pub(crate) use self::kinds::*;
pub(crate) use self::tokens::{FoundToken, Tokens, attributes};
use crate::scan::names::Name;

/// The most elements that may be open, and the most formatting elements that are open or opened again and again. Browsers have such a
/// limit for the first, and another tree beyond it.
pub(crate) const DEPTH: usize = 500;
const FORMATTING: usize = 64;

/// The work of opening or closing an element, in elements that are looked at.
const OPENING: usize = 16;

/// An element, by the order in which elements began.
pub(crate) type Id = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Html,
    Svg,
    Math,
}

/// An open element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node {
    pub id: Id,
    /// The element that it was inserted into, which need not be the one below it.
    pub parent: Id,
    pub name: Name,
    pub space: Space,
    /// A foreign element whose content is HTML; in MathML, except for two elements.
    point: bool,
}

impl Node {
    /// Returns true if it is this HTML element.
    pub fn is(&self, name: Name) -> bool {
        self.space == Space::Html && self.name == name
    }
}

/// The facts of a start tag that matter, other than its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Facts {
    /// `/>`
    pub empty: bool,
    /// The type is `hidden`.
    pub hidden: bool,
    /// It has an attribute with which `font` is HTML.
    pub font: bool,
    /// Its encoding is that of HTML.
    pub html: bool,
    /// Equal for tags with the same attributes.
    pub attributes: u64,
}

/// A token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    Start(Name, Facts),
    End(Name),
    /// White space.
    Blank,
    /// Characters that mean nothing in most places.
    Null,
    /// Other text.
    Text,
    Comment,
    /// A document type; true if it puts browsers into quirks mode.
    Doctype(bool),
}

/// The kind of content that follows a start tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Markup,
    /// Text up to the end tag of the same name.
    Text,
    Script,
    Plain,
}

/// Why an element began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Its start tag is the present token.
    Tag,
    /// The element has no tag.
    Implied,
    /// The element repeats a formatting element.
    Again(Id),
}

/// An effect of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// An element was inserted; before the children of its parent from `table` on, if that is not the last.
    Opened { node: Node, origin: Origin, table: Option<Id> },
    /// The element was closed.
    Closed(Node),
    /// Text or a comment was inserted into an element.
    Inserted(Id),
}

/// Insertion modes. That of table text is missing, since texts arrive classified as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Initial,
    BeforeHtml,
    BeforeHead,
    InHead,
    AfterHead,
    InBody,
    Text,
    InTable,
    InCaption,
    InColumns,
    InRows,
    InRow,
    InCell,
    InTemplate,
    AfterBody,
    InFrameset,
    AfterFrameset,
    AfterAfterBody,
    AfterAfterFrameset,
}

/// The state.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub stack: Vec<Node>,
    formatting: Vec<Formatting>,
    pub mode: Mode,
    /// The mode after the text of an element.
    behind: Mode,
    templates: Vec<Mode>,
    head: Option<Id>,
    form: Option<Id>,
    /// A `frameset` may still replace the body.
    pub frameset_ok: bool,
    pub quirks: bool,
    /// Insertions into a table are placed before it.
    fosters: bool,
    /// The tokenizer's state after the start tag.
    pub content: Content,
    next: Id,
    /// More is open than may be.
    pub exceeded: bool,
    /// The number of open elements that have been looked at or copied, about.
    pub work: u64,
    pub events: Vec<Event>,
}

/// The result of a mode: the token is done, or to be processed again in the new mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    Yes,
    Again,
}

impl Tree {
    /// At the start of a document.
    pub fn new() -> Self {
        Self {
            stack: Vec::new(),
            formatting: Vec::new(),
            mode: Mode::Initial,
            behind: Mode::InBody,
            templates: Vec::new(),
            head: None,
            form: None,
            frameset_ok: true,
            quirks: false,
            fosters: false,
            content: Content::Markup,
            next: 1,
            exceeded: false,
            work: 0,
            events: Vec::new(),
        }
    }

    /// Copies the state of another one into its own memory.
    pub fn take_from(&mut self, other: &Self) {
        let (mut stack, mut formatting) =
            (std::mem::take(&mut self.stack), std::mem::take(&mut self.formatting));
        let (mut templates, mut events) =
            (std::mem::take(&mut self.templates), std::mem::take(&mut self.events));
        stack.clone_from(&other.stack);
        formatting.clone_from(&other.formatting);
        templates.clone_from(&other.templates);
        events.clear();
        *self = Self { stack, formatting, templates, events, ..*other };
    }

    /// Processes a token. Its effects are in `events`.
    pub fn take(&mut self, token: Token) {
        self.events.clear();
        self.content = Content::Markup;
        if token == Token::Comment {
            return self.comment();
        }
        // No mode leads back to an earlier one.
        for _ in 0..64 {
            let done = if self.is_foreign(token) { self.foreign(token) } else { self.by_mode(token) };
            if done == Done::Yes {
                break;
            }
        }
        let looked = if matches!(token, Token::Start(..) | Token::End(_)) { self.stack.len() } else { 1 };
        self.work += (looked + OPENING * self.events.len()) as u64;
        self.exceeded |= self.stack.len() > DEPTH || self.formatting.len() > FORMATTING;
    }

    fn comment(&mut self) {
        let parent = match self.mode {
            Mode::Initial | Mode::BeforeHtml | Mode::AfterAfterBody | Mode::AfterAfterFrameset => 0,
            Mode::AfterBody => self.stack.first().map_or(0, |html| html.id),
            _ => self.current_id(),
        };
        self.events.push(Event::Inserted(parent));
    }

    /// The rules of the present mode.
    fn by_mode(&mut self, token: Token) -> Done {
        self.by(self.mode, token)
    }

    fn by(&mut self, mode: Mode, token: Token) -> Done {
        match mode {
            Mode::Initial => self.initial(token),
            Mode::BeforeHtml => self.before_html(token),
            Mode::BeforeHead => self.before_head(token),
            Mode::InHead => self.in_head(token),
            Mode::AfterHead => self.after_head(token),
            Mode::InBody => self.in_body(token),
            Mode::Text => self.in_text(token),
            Mode::InTable => self.in_table(token),
            Mode::InCaption => self.in_caption(token),
            Mode::InColumns => self.in_columns(token),
            Mode::InRows => self.in_rows(token),
            Mode::InRow => self.in_row(token),
            Mode::InCell => self.in_cell(token),
            Mode::InTemplate => self.in_template(token),
            Mode::AfterBody => self.after_body(token),
            Mode::InFrameset => self.in_frameset(token),
            Mode::AfterFrameset => self.after_frameset(token),
            Mode::AfterAfterBody => self.after_after_body(token),
            Mode::AfterAfterFrameset => self.after_after_frameset(token),
        }
    }

    /// Returns true if `<![CDATA[` begins a text here.
    pub fn has_cdata(&self) -> bool {
        self.stack.last().is_some_and(|node| node.space != Space::Html)
    }

    /// Returns true if a `select` is open, in which browsers differ.
    pub fn is_in_select(&self) -> bool {
        self.stack.iter().any(|node| node.is(SELECT))
    }

    /// Where in the stack an element is.
    pub fn position(&self, id: Id) -> Option<usize> {
        self.stack.iter().rposition(|node| node.id == id)
    }

    /// The number that the next element gets.
    pub fn next_id(&self) -> Id {
        self.next
    }

    /// Returns true if the rest of a document has the same meaning in both states, which were equal when the next element had the number `from`,
    /// except that a `frameset` may replace the body. Later elements count as equal if they are alike.
    pub fn goes_on_like(&self, other: &Self, from: Id) -> bool {
        let (mode, behind, content) = (self.mode, self.behind, self.content);
        let same_id = |one: Id, two: Id| one == two || one >= from && two >= from;
        let same_option = |one: Option<Id>, two: Option<Id>| match (one, two) {
            (Some(one), Some(two)) => same_id(one, two),
            (one, two) => one == two,
        };
        let same_node = |(one, two): (&Node, &Node)| {
            same_id(one.id, two.id)
                && same_id(one.parent, two.parent)
                && (one.name, one.space, one.point) == (two.name, two.space, two.point)
        };
        mode == other.mode
            && content == other.content
            && (mode != Mode::Text || behind == other.behind)
            && self.templates == other.templates
            && self.quirks == other.quirks
            && same_option(self.head, other.head)
            && same_option(self.form, other.form)
            && self.stack.len() == other.stack.len()
            && self.formatting.len() == other.formatting.len()
            && self.stack.iter().zip(&other.stack).all(same_node)
            && self.same_formatting(other, same_node)
            && self.exceeded == other.exceeded
    }

    fn same_formatting(&self, other: &Self, same_node: impl Fn((&Node, &Node)) -> bool) -> bool {
        self.formatting.iter().zip(&other.formatting).all(|pair| match pair {
            (Formatting::Marker, Formatting::Marker) => true,
            (Formatting::Element(one, a), Formatting::Element(two, b)) => {
                // A closed formatting element matters, because it would be reopened.
                let (place, other_place) = (self.position(one.id), other.position(two.id));
                a == b
                    && place == other_place
                    && (same_node((one, two)) || place.is_none() && one.name == two.name)
            }
            _ => false,
        })
    }

    /// Returns true if there is no body yet, and nothing in the head is open.
    pub fn is_before_body(&self) -> bool {
        let before = [Mode::Initial, Mode::BeforeHtml, Mode::BeforeHead, Mode::InHead, Mode::AfterHead];
        before.contains(&self.mode) && self.stack.len() <= 2
    }

    /// Returns true if nothing but the head or the body is open.
    pub fn has_only_begun(&self) -> bool {
        let modes = [Mode::InHead, Mode::AfterHead, Mode::InBody];
        modes.contains(&self.mode) && self.stack.len() <= 2 && self.formatting.is_empty()
    }

    /// The number of elements that a copy would copy.
    pub fn size(&self) -> u64 {
        (self.stack.len() + self.formatting.len()) as u64
    }

    /// About how much memory it has, bytes.
    pub fn held(&self) -> usize {
        size_of::<Self>()
            + size_of::<Node>() * self.stack.capacity()
            + size_of::<Formatting>() * self.formatting.capacity()
            + size_of::<Event>() * self.events.capacity()
    }
}

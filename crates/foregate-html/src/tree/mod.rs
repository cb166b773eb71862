//! The open elements in the HTML standard's tree construction (HTML, section 13.2.6).
//!
//! No tree is kept, only a state: the stack of open elements, the list of formatting elements and the insertion mode.
//! Together they determine the meaning of the rest of a document. So a change to a document does not affect the rest,
//! if the state after the change is the same as without it.
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
pub(crate) use self::formatting::{Formatting, FormattingList};
pub(crate) use self::kinds::*;
pub(crate) use self::stack::OpenElements;
pub(crate) use self::tokens::{FoundToken, Tokens, attributes};
use crate::scan::names::Name;

/// The most open elements, and below, the most formatting elements in the list. Browsers limit the number of open
/// elements too, and build a different tree beyond their limit.
pub(crate) const DEPTH: usize = 500;
const FORMATTING: usize = 64;

/// The work of opening or closing an element, counted in elements that are examined.
const OPENING: usize = 16;

/// The number of an element, in the order in which elements began.
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
    /// The element into which this one was inserted. It need not be the element below this one on the stack.
    pub parent: Id,
    pub name: Name,
    pub space: Space,
    /// True for an element of SVG or MathML with HTML content. In MathML, two elements are still read as MathML there.
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
    /// True if the attribute `type` is `hidden`.
    pub hidden: bool,
    /// True if there is an attribute with which `font` is an HTML element in SVG or MathML.
    pub font: bool,
    /// True if the attribute `encoding` names HTML.
    pub html: bool,
    /// A number that is equal for tags with the same attributes.
    pub attributes: u64,
}

/// A token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    Start(Name, Facts),
    End(Name),
    /// White space.
    Blank,
    /// NUL characters, which are ignored in most places.
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
    /// The present token is the element's start tag.
    Tag,
    /// The element has no tag in the document.
    Implied,
    /// The element is a copy of this formatting element, which is opened again.
    Again(Id),
}

/// An effect of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// An element was inserted: before the child `table` of its parent, or as the last child if `table` is `None`.
    Opened { node: Node, origin: Origin, table: Option<Id> },
    /// The element was closed.
    Closed(Node),
    /// Text or a comment was inserted into an element.
    Inserted(Id),
}

/// The insertion modes. The mode "in table text" is missing, because a text arrives classified as a whole.
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

/// The state of tree construction.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub open: OpenElements,
    pub formatting: FormattingList,
    pub mode: Mode,
    /// The mode to return to after the text of an element.
    behind: Mode,
    templates: Vec<Mode>,
    head: Option<Id>,
    form: Option<Id>,
    /// True if a `frameset` may still replace the body.
    pub frameset_ok: bool,
    pub quirks: bool,
    /// The tokenizer's state after the start tag.
    pub content: Content,
    /// True if too many elements are open.
    pub exceeded: bool,
    /// The approximate number of open elements that have been examined or copied.
    pub work: u64,
}

/// The result of an insertion mode: the token is done, or has to be processed again in the new mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    Yes,
    Again,
}

impl Tree {
    /// The state at the start of a document.
    pub fn new() -> Self {
        Self {
            open: OpenElements { next: 1, ..OpenElements::default() },
            formatting: FormattingList::default(),
            mode: Mode::Initial,
            behind: Mode::InBody,
            templates: Vec::new(),
            head: None,
            form: None,
            frameset_ok: true,
            quirks: false,
            content: Content::Markup,
            exceeded: false,
            work: 0,
        }
    }

    /// Copies another state into this one, and reuses the memory.
    pub fn take_from(&mut self, other: &Self) {
        self.open.take_from(&other.open);
        self.formatting.entries.clone_from(&other.formatting.entries);
        self.templates.clone_from(&other.templates);
        let (open, formatting) = (std::mem::take(&mut self.open), std::mem::take(&mut self.formatting));
        let templates = std::mem::take(&mut self.templates);
        *self = Self { open, formatting, templates, ..*other };
    }

    /// Processes a token. Its effects are in `events`.
    pub fn take(&mut self, token: Token) {
        self.open.events.clear();
        self.content = Content::Markup;
        if token == Token::Comment {
            return self.comment();
        }
        // No mode leads back to an earlier one.
        for _ in 0..64 {
            let done = if foreign::applies(self, token) {
                foreign::foreign(self, token)
            } else {
                self.by_mode(token)
            };
            if done == Done::Yes {
                break;
            }
        }
        let looked =
            if matches!(token, Token::Start(..) | Token::End(_)) { self.open.nodes.len() } else { 1 };
        self.work += (looked + OPENING * self.open.events.len()) as u64;
        self.exceeded |= self.open.nodes.len() > DEPTH || self.formatting.entries.len() > FORMATTING;
    }

    fn comment(&mut self) {
        let parent = match self.mode {
            Mode::Initial | Mode::BeforeHtml | Mode::AfterAfterBody | Mode::AfterAfterFrameset => 0,
            Mode::AfterBody => self.open.nodes.first().map_or(0, |html| html.id),
            _ => self.open.current_id(),
        };
        self.open.events.push(Event::Inserted(parent));
    }

    /// Applies the rules of the present mode to a token.
    fn by_mode(&mut self, token: Token) -> Done {
        self.by(self.mode, token)
    }

    fn by(&mut self, mode: Mode, token: Token) -> Done {
        match mode {
            Mode::Initial => modes::initial(self, token),
            Mode::BeforeHtml => modes::before_html(self, token),
            Mode::BeforeHead => modes::before_head(self, token),
            Mode::InHead => modes::in_head(self, token),
            Mode::AfterHead => modes::after_head(self, token),
            Mode::InBody => body::in_body(self, token),
            Mode::Text => modes::in_text(self, token),
            Mode::InTable => tables::in_table(self, token),
            Mode::InCaption => tables::in_caption(self, token),
            Mode::InColumns => tables::in_columns(self, token),
            Mode::InRows => tables::in_rows(self, token),
            Mode::InRow => tables::in_row(self, token),
            Mode::InCell => tables::in_cell(self, token),
            Mode::InTemplate => modes::in_template(self, token),
            Mode::AfterBody => modes::after_body(self, token),
            Mode::InFrameset => modes::in_frameset(self, token),
            Mode::AfterFrameset => modes::after_frameset(self, token),
            Mode::AfterAfterBody => modes::after_after_body(self, token),
            Mode::AfterAfterFrameset => modes::after_after_frameset(self, token),
        }
    }

    /// Inserts an element with text as its content.
    fn insert_text_element(&mut self, name: Name, content: Content) {
        self.open.insert(name, Origin::Tag);
        self.content = content;
        if self.mode != Mode::Text {
            self.behind = self.mode;
        }
        self.mode = Mode::Text;
    }

    /// Sets the insertion mode that follows from the stack.
    fn reset_mode(&mut self) {
        let mut mode = Mode::InBody;
        for (at, node) in self.open.nodes.iter().enumerate().rev() {
            if node.space != Space::Html {
                continue;
            }
            mode = match node.name {
                TD | TH if at > 0 => Mode::InCell,
                TR => Mode::InRow,
                TBODY | THEAD | TFOOT => Mode::InRows,
                CAPTION => Mode::InCaption,
                COLGROUP => Mode::InColumns,
                TABLE => Mode::InTable,
                TEMPLATE => self.templates.last().copied().unwrap_or(Mode::InBody),
                HEAD if at > 0 => Mode::InHead,
                BODY => Mode::InBody,
                FRAMESET => Mode::InFrameset,
                HTML if self.head.is_none() => Mode::BeforeHead,
                HTML => Mode::AfterHead,
                _ => continue,
            };
            break;
        }
        self.mode = mode;
    }

    /// The number that the next element gets.
    pub fn next_id(&self) -> Id {
        self.open.next
    }

    /// Returns true if the rest of a document means the same in both states, except for a `frameset` that may replace the
    /// body. The states were equal when the next element had the number `from`. Elements from this number on may have
    /// different numbers in the two states.
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
            && self.open.nodes.len() == other.open.nodes.len()
            && self.formatting.entries.len() == other.formatting.entries.len()
            && self.open.nodes.iter().zip(&other.open.nodes).all(same_node)
            && self.same_formatting(other, same_node)
            && self.exceeded == other.exceeded
    }

    fn same_formatting(&self, other: &Self, same_node: impl Fn((&Node, &Node)) -> bool) -> bool {
        self.formatting.entries.iter().zip(&other.formatting.entries).all(|pair| match pair {
            (Formatting::Marker, Formatting::Marker) => true,
            (Formatting::Element(one, a), Formatting::Element(two, b)) => {
                // A closed formatting element matters, because it would be reopened.
                let (place, other_place) = (self.open.position(one.id), other.open.position(two.id));
                a == b
                    && place == other_place
                    && (same_node((one, two)) || place.is_none() && one.name == two.name)
            }
            _ => false,
        })
    }

    /// Returns true if there is no body yet, and no element in the head is open.
    pub fn is_before_body(&self) -> bool {
        let before = [Mode::Initial, Mode::BeforeHtml, Mode::BeforeHead, Mode::InHead, Mode::AfterHead];
        before.contains(&self.mode) && self.open.nodes.len() <= 2
    }

    /// Returns true if only `html` and the head or the body are open.
    pub fn has_only_begun(&self) -> bool {
        let modes = [Mode::InHead, Mode::AfterHead, Mode::InBody];
        modes.contains(&self.mode) && self.open.nodes.len() <= 2 && self.formatting.entries.is_empty()
    }

    /// The number of elements that a copy of the state would copy.
    pub fn size(&self) -> u64 {
        (self.open.nodes.len() + self.formatting.entries.len()) as u64
    }

    /// The approximate memory of the state, bytes.
    pub fn held(&self) -> usize {
        size_of::<Self>()
            + size_of::<Node>() * self.open.nodes.capacity()
            + size_of::<Formatting>() * self.formatting.entries.capacity()
            + size_of::<Event>() * self.open.events.capacity()
    }
}

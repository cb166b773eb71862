//! The stack of open elements (HTML, sections 13.2.4.2 and 13.2.6.1).

use super::kinds::*;
use super::{Content, Event, Facts, Id, Mode, Node, Origin, Space, Tree};
use crate::scan::names::Name;

/// The boundary of the search for an element that must be in scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Default,
    Item,
    Button,
    Table,
}

impl Scope {
    fn ends_at(self, node: &Node) -> bool {
        match node.space {
            Space::Html => match self {
                Self::Table => matches!(node.name, HTML | TABLE | TEMPLATE),
                Self::Item => bounds_scope(node.name) || matches!(node.name, OL | UL),
                Self::Button => bounds_scope(node.name) || node.name == BUTTON,
                Self::Default => bounds_scope(node.name),
            },
            Space::Svg => self != Self::Table && bounds_scope_in_svg(node.name),
            Space::Math => self != Self::Table && bounds_scope_in_math(node.name),
        }
    }
}

impl Tree {
    pub(super) fn current_id(&self) -> Id {
        self.stack.last().map_or(0, |node| node.id)
    }

    pub(super) fn current_is(&self, fits: impl Fn(Name) -> bool) -> bool {
        self.stack.last().is_some_and(|node| node.space == Space::Html && fits(node.name))
    }

    pub(super) fn is_open(&self, name: Name) -> bool {
        self.stack.iter().any(|node| node.is(name))
    }

    pub(super) fn has_in(&self, scope: Scope, fits: impl Fn(Name) -> bool) -> bool {
        for node in self.stack.iter().rev() {
            if node.space == Space::Html && fits(node.name) {
                return true;
            }
            if scope.ends_at(node) {
                return false;
            }
        }
        false
    }

    pub(super) fn has(&self, name: Name) -> bool {
        self.has_in(Scope::Default, |other| other == name)
    }

    pub(super) fn has_in_table(&self, name: Name) -> bool {
        self.has_in(Scope::Table, |other| other == name)
    }

    /// Returns true if this very element is in scope.
    pub(super) fn has_element(&self, id: Id) -> bool {
        for node in self.stack.iter().rev() {
            if node.id == id {
                return true;
            }
            if Scope::Default.ends_at(node) {
                return false;
            }
        }
        false
    }

    pub(super) fn pop(&mut self) {
        if let Some(node) = self.stack.pop() {
            self.events.push(Event::Closed(node));
        }
    }

    /// Removes an element from the stack, wherever it is.
    pub(super) fn remove(&mut self, at: usize) {
        if at < self.stack.len() {
            let node = self.stack.remove(at);
            self.events.push(Event::Closed(node));
        }
    }

    /// Pops up to an element that fits, and that.
    pub(super) fn pop_until(&mut self, fits: impl Fn(Name) -> bool) {
        while let Some(node) = self.stack.last().copied() {
            self.pop();
            if node.space == Space::Html && fits(node.name) {
                break;
            }
        }
    }

    pub(super) fn pop_to(&mut self, length: usize) {
        while self.stack.len() > length {
            self.pop();
        }
    }

    /// Pops up to an element that fits, which stays.
    pub(super) fn clear_to(&mut self, fits: impl Fn(Name) -> bool) {
        while !self.stack.is_empty() && !self.current_is(|name| fits(name) || name == HTML) {
            self.pop();
        }
    }

    pub(super) fn imply_ends(&mut self, except: Name) {
        while self.current_is(|name| is_implied_end(name) && name != except) {
            self.pop();
        }
    }

    pub(super) fn imply_ends_thoroughly(&mut self) {
        while self.current_is(is_implied_end_thoroughly) {
            self.pop();
        }
    }

    pub(super) fn close_p(&mut self) {
        self.imply_ends(P);
        self.pop_until(|name| name == P);
    }

    pub(super) fn close_p_in_button_scope(&mut self) {
        if self.has_in(Scope::Button, |name| name == P) {
            self.close_p();
        }
    }

    /// The parent for an insertion now, and the table before which it is placed.
    pub(super) fn place(&self, target: Option<usize>) -> (Id, Option<Id>) {
        let target = target.and_then(|at| self.stack.get(at)).or(self.stack.last());
        let Some(target) = target else { return (0, None) };
        let is_table =
            target.space == Space::Html && (matches!(target.name, TABLE | TR) || is_row_group(target.name));
        if !self.fosters || !is_table {
            return (target.id, None);
        }
        let template = self.stack.iter().rposition(|node| node.is(TEMPLATE));
        let table = self.stack.iter().rposition(|node| node.is(TABLE));
        match (template, table) {
            (Some(template), table) if table.is_none_or(|table| template > table) => {
                (self.stack.get(template).map_or(0, |node| node.id), None)
            }
            (_, Some(table)) => {
                let table = self.stack.get(table);
                (table.map_or(0, |table| table.parent), table.map(|table| table.id))
            }
            _ => (self.stack.first().map_or(0, |node| node.id), None),
        }
    }

    /// Inserts an element.
    pub(super) fn insert_in(&mut self, space: Space, name: Name, point: bool, origin: Origin) -> Node {
        let (parent, table) = self.place(None);
        let node = Node { id: self.next, parent, name, space, point };
        self.next += 1;
        self.events.push(Event::Opened { node, origin, table });
        self.stack.push(node);
        node
    }

    pub(super) fn insert(&mut self, name: Name, origin: Origin) -> Node {
        self.insert_in(Space::Html, name, false, origin)
    }

    pub(super) fn insert_void(&mut self, name: Name) {
        self.insert(name, Origin::Tag);
        self.pop();
    }

    /// Inserts an element with text as its content.
    pub(super) fn insert_text_element(&mut self, name: Name, content: Content) {
        self.insert(name, Origin::Tag);
        self.content = content;
        if self.mode != Mode::Text {
            self.behind = self.mode;
        }
        self.mode = Mode::Text;
    }

    pub(super) fn insert_text(&mut self) {
        let (parent, _) = self.place(None);
        self.events.push(Event::Inserted(parent));
    }

    pub(super) fn insert_foreign(&mut self, space: Space, name: Name, facts: Facts) {
        let point = match space {
            Space::Html => false,
            Space::Svg => bounds_scope_in_svg(name),
            Space::Math => matches!(name, MI | MO | MN | MS | MTEXT) || name == ANNOTATION_XML && facts.html,
        };
        self.insert_in(space, name, point, Origin::Tag);
        if facts.empty {
            self.pop();
        }
    }

    /// The mode that the stack of elements stands for.
    pub(super) fn reset_mode(&mut self) {
        let mut mode = Mode::InBody;
        for (at, node) in self.stack.iter().enumerate().rev() {
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
}

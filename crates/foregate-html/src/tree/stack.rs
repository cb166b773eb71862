//! The stack of open elements (HTML, sections 13.2.4.2 and 13.2.6.1).

use super::kinds::*;
use super::{Event, Facts, Id, Node, Origin, Space};
use crate::scan::names::Name;

/// The kind of scope: the elements that end the search for an open element.
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

/// The stack of open elements, and what happens to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenElements {
    /// The elements, the outermost first.
    pub nodes: Vec<Node>,
    /// True if insertions into a table are placed before the table.
    pub(super) fosters: bool,
    pub(super) next: Id,
    /// The effects of the present token.
    pub events: Vec<Event>,
}

impl OpenElements {
    pub(super) fn current_id(&self) -> Id {
        self.nodes.last().map_or(0, |node| node.id)
    }

    pub(super) fn current_is(&self, fits: impl Fn(Name) -> bool) -> bool {
        self.nodes.last().is_some_and(|node| node.space == Space::Html && fits(node.name))
    }

    pub(super) fn is_open(&self, name: Name) -> bool {
        self.nodes.iter().any(|node| node.is(name))
    }

    pub(super) fn has_in(&self, scope: Scope, fits: impl Fn(Name) -> bool) -> bool {
        for node in self.nodes.iter().rev() {
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

    /// Returns true if the element with this number is in scope.
    pub(super) fn has_element(&self, id: Id) -> bool {
        for node in self.nodes.iter().rev() {
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
        if let Some(node) = self.nodes.pop() {
            self.events.push(Event::Closed(node));
        }
    }

    /// Removes the element at a position of the stack.
    pub(super) fn remove(&mut self, at: usize) {
        if at < self.nodes.len() {
            let node = self.nodes.remove(at);
            self.events.push(Event::Closed(node));
        }
    }

    /// Pops elements up to and including the first that fits.
    pub(super) fn pop_until(&mut self, fits: impl Fn(Name) -> bool) {
        while let Some(node) = self.nodes.last().copied() {
            self.pop();
            if node.space == Space::Html && fits(node.name) {
                break;
            }
        }
    }

    pub(super) fn pop_to(&mut self, length: usize) {
        while self.nodes.len() > length {
            self.pop();
        }
    }

    /// Pops elements up to the first that fits, which stays.
    pub(super) fn clear_to(&mut self, fits: impl Fn(Name) -> bool) {
        while !self.nodes.is_empty() && !self.current_is(|name| fits(name) || name == HTML) {
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

    /// The parent for an insertion, and the table before which the insertion is placed, if there is one.
    pub(super) fn place(&self, target: Option<usize>) -> (Id, Option<Id>) {
        let target = target.and_then(|at| self.nodes.get(at)).or(self.nodes.last());
        let Some(target) = target else { return (0, None) };
        let is_table =
            target.space == Space::Html && (matches!(target.name, TABLE | TR) || is_row_group(target.name));
        if !self.fosters || !is_table {
            return (target.id, None);
        }
        let template = self.nodes.iter().rposition(|node| node.is(TEMPLATE));
        let table = self.nodes.iter().rposition(|node| node.is(TABLE));
        match (template, table) {
            (Some(template), table) if table.is_none_or(|table| template > table) => {
                (self.nodes.get(template).map_or(0, |node| node.id), None)
            }
            (_, Some(table)) => {
                let table = self.nodes.get(table);
                (table.map_or(0, |table| table.parent), table.map(|table| table.id))
            }
            _ => (self.nodes.first().map_or(0, |node| node.id), None),
        }
    }

    /// Inserts an element.
    pub(super) fn insert_in(&mut self, space: Space, name: Name, point: bool, origin: Origin) -> Node {
        let (parent, table) = self.place(None);
        let node = Node { id: self.next, parent, name, space, point };
        self.next += 1;
        self.events.push(Event::Opened { node, origin, table });
        self.nodes.push(node);
        node
    }

    pub(super) fn insert(&mut self, name: Name, origin: Origin) -> Node {
        self.insert_in(Space::Html, name, false, origin)
    }

    pub(super) fn insert_void(&mut self, name: Name) {
        self.insert(name, Origin::Tag);
        self.pop();
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

    /// Opens a copy of an element.
    pub(super) fn again(&mut self, of: Node, parent: Id) -> Node {
        let node = Node { id: self.next, parent, ..of };
        self.next += 1;
        self.events.push(Event::Opened { node, origin: Origin::Again(of.id), table: None });
        node
    }

    pub(super) fn set_parent(&mut self, id: Id, parent: Id) {
        if let Some(node) = self.nodes.iter_mut().find(|node| node.id == id) {
            node.parent = parent;
        }
    }

    /// Returns true if `<![CDATA[` begins a text here.
    pub fn has_cdata(&self) -> bool {
        self.nodes.last().is_some_and(|node| node.space != Space::Html)
    }

    /// Returns true if a `select` is open. Browsers differ in their handling of its content.
    pub fn is_in_select(&self) -> bool {
        self.nodes.iter().any(|node| node.is(SELECT))
    }

    /// The position of an element in the stack.
    pub fn position(&self, id: Id) -> Option<usize> {
        self.nodes.iter().rposition(|node| node.id == id)
    }

    /// Copies the elements of another stack into the memory of this one. The events of the other stack are not copied.
    pub(super) fn take_from(&mut self, other: &Self) {
        self.nodes.clone_from(&other.nodes);
        self.events.clear();
        (self.fosters, self.next) = (other.fosters, other.next);
    }
}

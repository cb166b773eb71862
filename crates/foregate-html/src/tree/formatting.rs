//! The list of formatting elements, and the adoption agency (HTML, sections 13.2.4.3 and 13.2.6.4.7).

use super::kinds::*;
use super::{Event, Node, Origin, Space, Tree};
use crate::scan::names::Name;

/// An entry of the list: an element, with its attributes as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Formatting {
    Marker,
    Element(Node, u64),
}

impl Formatting {
    fn node(&self) -> Option<&Node> {
        match self {
            Self::Marker => None,
            Self::Element(node, _) => Some(node),
        }
    }
}

impl Tree {
    pub(super) fn push_marker(&mut self) {
        self.formatting.push(Formatting::Marker);
    }

    pub(super) fn clear_to_marker(&mut self) {
        while self.formatting.pop().is_some_and(|last| last != Formatting::Marker) {}
    }

    /// Returns true if an element is in the list.
    pub fn is_formatting(&self, id: super::Id) -> bool {
        self.formatting.iter().filter_map(Formatting::node).any(|node| node.id == id)
    }

    /// The elements from this one on that are open, or would be opened again.
    pub fn open_since(&self, from: super::Id) -> impl Iterator<Item = &Node> {
        let listed = self.formatting.iter().filter_map(Formatting::node);
        self.stack.iter().chain(listed).filter(move |node| node.id >= from)
    }

    pub(super) fn push_formatting(&mut self, node: Node, attributes: u64) {
        let begins =
            self.formatting.iter().rposition(|entry| *entry == Formatting::Marker).map_or(0, |at| at + 1);
        let same = |entry: &Formatting| matches!(entry, Formatting::Element(other, known) if other.name == node.name && *known == attributes);
        let listed = self.formatting.get(begins..).unwrap_or_default();
        if listed.iter().filter(|entry| same(entry)).count() >= 3
            && let Some(first) = listed.iter().position(same)
        {
            self.formatting.remove(begins + first);
        }
        self.formatting.push(Formatting::Element(node, attributes));
    }

    /// The last element of this name after the last marker.
    pub(super) fn last_formatting(&self, name: Name) -> Option<(usize, Node)> {
        for (at, entry) in self.formatting.iter().enumerate().rev() {
            match entry {
                Formatting::Marker => return None,
                Formatting::Element(node, _) if node.name == name => return Some((at, *node)),
                Formatting::Element(..) => {}
            }
        }
        None
    }

    pub(super) fn forget_formatting(&mut self, id: super::Id) {
        self.formatting.retain(|entry| entry.node().is_none_or(|node| node.id != id));
    }

    /// Opens elements again that were closed by others.
    pub(super) fn reconstruct(&mut self) {
        let is_open = |entry: &Formatting| entry.node().is_none_or(|node| self.position(node.id).is_some());
        let begins = self.formatting.iter().rposition(is_open).map_or(0, |at| at + 1);
        self.work += ((self.formatting.len() - begins) * self.stack.len()) as u64;
        for at in begins..self.formatting.len() {
            let Some(Formatting::Element(node, attributes)) = self.formatting.get(at).copied() else {
                continue;
            };
            let again = self.insert(node.name, Origin::Again(node.id));
            if let Some(entry) = self.formatting.get_mut(at) {
                *entry = Formatting::Element(again, attributes);
            }
        }
    }

    /// The end tag of a formatting element. Returns true if it is handled like any other end tag.
    pub(super) fn adopt(&mut self, name: Name) -> bool {
        if let Some(current) = self.stack.last().copied()
            && current.is(name)
            && !self.is_formatting(current.id)
        {
            self.pop();
            return false;
        }
        for _ in 0..8 {
            self.work += self.size();
            let Some((_, element)) = self.last_formatting(name) else { return true };
            let Some(at) = self.position(element.id) else {
                self.forget_formatting(element.id);
                return false;
            };
            if !self.has_element(element.id) {
                return false;
            }
            let is_furthest = |node: &Node| match node.space {
                Space::Html => is_special(node.name),
                Space::Svg => bounds_scope_in_svg(node.name),
                Space::Math => bounds_scope_in_math(node.name),
            };
            let furthest = self.stack.iter().enumerate().skip(at + 1).find(|(_, node)| is_furthest(node));
            let Some((furthest, block)) = furthest.map(|(place, node)| (place, *node)) else {
                self.pop_to(at);
                self.forget_formatting(element.id);
                return false;
            };
            self.adopt_block(element, at, furthest, block);
        }
        false
    }

    fn formatting_position(&self, id: super::Id) -> Option<usize> {
        self.formatting.iter().position(|entry| entry.node().is_some_and(|node| node.id == id))
    }

    fn adopt_block(&mut self, element: Node, at: usize, furthest: usize, block: Node) {
        let mut bookmark = self.formatting_position(element.id).unwrap_or_default();
        let (mut place, mut count, mut last, mut furthest) = (furthest, 0, block.id, furthest);
        loop {
            count += 1;
            self.work += self.size();
            place -= 1;
            if place <= at {
                break;
            }
            let Some(node) = self.stack.get(place).copied() else { break };
            if count > 3
                && let Some(listed) = self.formatting_position(node.id)
            {
                self.formatting.remove(listed);
                bookmark -= usize::from(listed < bookmark);
            }
            let Some(listed) = self.formatting_position(node.id) else {
                self.remove(place);
                furthest -= 1;
                continue;
            };
            let again = self.again(node, self.stack.get(at.saturating_sub(1)).map_or(0, |node| node.id));
            if let Some(entry) = self.formatting.get_mut(listed)
                && let Formatting::Element(_, attributes) = *entry
            {
                *entry = Formatting::Element(again, attributes);
            }
            if let Some(open) = self.stack.get_mut(place) {
                *open = again;
            }
            if last == block.id {
                bookmark = listed + 1;
            }
            self.set_parent(last, again.id);
            last = again.id;
        }
        let ancestor = at.saturating_sub(1);
        let fosters = std::mem::replace(&mut self.fosters, true);
        let (parent, _) = self.place(Some(ancestor));
        self.fosters = fosters;
        self.set_parent(last, parent);
        let attributes = match self.formatting_position(element.id).and_then(|at| self.formatting.get(at)) {
            Some(Formatting::Element(_, attributes)) => *attributes,
            _ => 0,
        };
        let again = self.again(element, block.id);
        if let Some(listed) = self.formatting_position(element.id) {
            self.formatting.remove(listed);
            bookmark -= usize::from(listed < bookmark);
        }
        let bookmark = bookmark.min(self.formatting.len());
        self.formatting.insert(bookmark, Formatting::Element(again, attributes));
        self.remove(at);
        self.stack.insert(furthest, again);
    }

    /// Opens another element like this one.
    fn again(&mut self, of: Node, parent: super::Id) -> Node {
        let node = Node { id: self.next, parent, ..of };
        self.next += 1;
        self.events.push(Event::Opened { node, origin: Origin::Again(of.id), table: None });
        node
    }

    fn set_parent(&mut self, id: super::Id, parent: super::Id) {
        if let Some(node) = self.stack.iter_mut().find(|node| node.id == id) {
            node.parent = parent;
        }
    }
}

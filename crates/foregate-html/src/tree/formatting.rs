//! The list of formatting elements, and the adoption agency (HTML, sections 13.2.4.3 and 13.2.6.4.7).

use super::kinds::*;
use super::{Id, Node, Origin, Space, Tree};
use crate::scan::names::Name;

/// An entry of the list of formatting elements. A number represents the attributes of the element.
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

/// The list of formatting elements.
#[derive(Debug, Clone, Default)]
pub(crate) struct FormattingList {
    pub(super) entries: Vec<Formatting>,
}

impl FormattingList {
    pub(super) fn push_marker(&mut self) {
        self.entries.push(Formatting::Marker);
    }

    pub(super) fn clear_to_marker(&mut self) {
        while self.entries.pop().is_some_and(|last| last != Formatting::Marker) {}
    }

    /// Returns true if an element is in the list.
    pub fn contains(&self, id: Id) -> bool {
        self.entries.iter().filter_map(Formatting::node).any(|node| node.id == id)
    }

    pub(super) fn push(&mut self, node: Node, attributes: u64) {
        let begins =
            self.entries.iter().rposition(|entry| *entry == Formatting::Marker).map_or(0, |at| at + 1);
        let same = |entry: &Formatting| matches!(entry, Formatting::Element(other, known) if other.name == node.name && *known == attributes);
        let listed = self.entries.get(begins..).unwrap_or_default();
        if listed.iter().filter(|entry| same(entry)).count() >= 3
            && let Some(first) = listed.iter().position(same)
        {
            self.entries.remove(begins + first);
        }
        self.entries.push(Formatting::Element(node, attributes));
    }

    /// The last element of this name after the last marker.
    pub(super) fn last(&self, name: Name) -> Option<(usize, Node)> {
        for (at, entry) in self.entries.iter().enumerate().rev() {
            match entry {
                Formatting::Marker => return None,
                Formatting::Element(node, _) if node.name == name => return Some((at, *node)),
                Formatting::Element(..) => {}
            }
        }
        None
    }

    pub(super) fn forget(&mut self, id: Id) {
        self.entries.retain(|entry| entry.node().is_none_or(|node| node.id != id));
    }

    fn position(&self, id: Id) -> Option<usize> {
        self.entries.iter().position(|entry| entry.node().is_some_and(|node| node.id == id))
    }
}

impl Tree {
    /// The elements with numbers from this one on that are open, or are in the list and would be opened again.
    pub fn open_since(&self, from: Id) -> impl Iterator<Item = &Node> {
        let listed = self.formatting.entries.iter().filter_map(Formatting::node);
        self.open.nodes.iter().chain(listed).filter(move |node| node.id >= from)
    }

    /// Opens formatting elements again that were closed implicitly.
    pub(super) fn reconstruct(&mut self) {
        let is_open =
            |entry: &Formatting| entry.node().is_none_or(|node| self.open.position(node.id).is_some());
        let begins = self.formatting.entries.iter().rposition(is_open).map_or(0, |at| at + 1);
        self.work += ((self.formatting.entries.len() - begins) * self.open.nodes.len()) as u64;
        for at in begins..self.formatting.entries.len() {
            let Some(Formatting::Element(node, attributes)) = self.formatting.entries.get(at).copied() else {
                continue;
            };
            let again = self.open.insert(node.name, Origin::Again(node.id));
            if let Some(entry) = self.formatting.entries.get_mut(at) {
                *entry = Formatting::Element(again, attributes);
            }
        }
    }

    /// Handles the end tag of a formatting element. Returns true if it has to be handled like any other end tag.
    pub(super) fn adopt(&mut self, name: Name) -> bool {
        if let Some(current) = self.open.nodes.last().copied()
            && current.is(name)
            && !self.formatting.contains(current.id)
        {
            self.open.pop();
            return false;
        }
        for _ in 0..8 {
            self.work += self.size();
            let Some((_, element)) = self.formatting.last(name) else { return true };
            let Some(at) = self.open.position(element.id) else {
                self.formatting.forget(element.id);
                return false;
            };
            if !self.open.has_element(element.id) {
                return false;
            }
            let is_furthest = |node: &Node| match node.space {
                Space::Html => is_special(node.name),
                Space::Svg => bounds_scope_in_svg(node.name),
                Space::Math => bounds_scope_in_math(node.name),
            };
            let furthest =
                self.open.nodes.iter().enumerate().skip(at + 1).find(|(_, node)| is_furthest(node));
            let Some((furthest, block)) = furthest.map(|(place, node)| (place, *node)) else {
                self.open.pop_to(at);
                self.formatting.forget(element.id);
                return false;
            };
            self.adopt_block(element, at, furthest, block);
        }
        false
    }

    fn adopt_block(&mut self, element: Node, at: usize, furthest: usize, block: Node) {
        let mut bookmark = self.formatting.position(element.id).unwrap_or_default();
        let (mut place, mut count, mut last, mut furthest) = (furthest, 0, block.id, furthest);
        loop {
            count += 1;
            self.work += self.size();
            place -= 1;
            if place <= at {
                break;
            }
            let Some(node) = self.open.nodes.get(place).copied() else { break };
            if count > 3
                && let Some(listed) = self.formatting.position(node.id)
            {
                self.formatting.entries.remove(listed);
                bookmark -= usize::from(listed < bookmark);
            }
            let Some(listed) = self.formatting.position(node.id) else {
                self.open.remove(place);
                furthest -= 1;
                continue;
            };
            let again =
                self.open.again(node, self.open.nodes.get(at.saturating_sub(1)).map_or(0, |node| node.id));
            if let Some(entry) = self.formatting.entries.get_mut(listed)
                && let Formatting::Element(_, attributes) = *entry
            {
                *entry = Formatting::Element(again, attributes);
            }
            if let Some(open) = self.open.nodes.get_mut(place) {
                *open = again;
            }
            if last == block.id {
                bookmark = listed + 1;
            }
            self.open.set_parent(last, again.id);
            last = again.id;
        }
        let ancestor = at.saturating_sub(1);
        let fosters = std::mem::replace(&mut self.open.fosters, true);
        let (parent, _) = self.open.place(Some(ancestor));
        self.open.fosters = fosters;
        self.open.set_parent(last, parent);
        let attributes =
            match self.formatting.position(element.id).and_then(|at| self.formatting.entries.get(at)) {
                Some(Formatting::Element(_, attributes)) => *attributes,
                _ => 0,
            };
        let again = self.open.again(element, block.id);
        if let Some(listed) = self.formatting.position(element.id) {
            self.formatting.entries.remove(listed);
            bookmark -= usize::from(listed < bookmark);
        }
        let bookmark = bookmark.min(self.formatting.entries.len());
        self.formatting.entries.insert(bookmark, Formatting::Element(again, attributes));
        self.open.remove(at);
        self.open.nodes.insert(furthest, again);
    }
}

//! The ends of elements: insertions there, and the ends of removals.

use std::sync::Arc;

use super::{Act, At, Doing, Follower, Op, Operation, Removal, Tally};
use crate::scan::names::Name;
use crate::splice::{Next, SpliceTarget, inserted, may_lack_its_end, text_of};
use crate::tree::{BODY, Event, Id, Node, Token, Tree};

impl Follower {
    /// Handles the elements that the present token ends. Elements that began with the same token are left out. So is the
    /// element to which the end tag belongs, if this element is being removed.
    pub(super) fn ended(&mut self, events: &[Event], at: &At) {
        let own = Self::own(events, at);
        for event in events {
            let Event::Closed(node) = event else { continue };
            if node.id >= at.from {
                continue;
            }
            let is_own = own == Some(node.id);
            if self.removal.as_ref().is_some_and(|removal| removal.node.id == node.id) {
                if is_own {
                    continue;
                }
                self.forget(node.id, true);
                self.end_removal(at, Some(at.token));
            }
            if self.removal.is_none() {
                self.end_watched(node, at, is_own);
            }
        }
        // The end tag of the body closes nothing, and insertions at the body's end come before it.
        if matches!(at.token, Token::End(BODY))
            && let Some(body) = self.tree.open.nodes.get(1).copied().filter(|node| node.is(BODY))
        {
            self.end_watched(&body, at, true);
        }
    }

    /// The element to which the present end tag belongs.
    fn own(events: &[Event], at: &At) -> Option<Id> {
        let Token::End(name) = at.token else { return None };
        let last = events.iter().rev().find_map(|event| match event {
            Event::Closed(node) => Some(*node),
            _ => None,
        })?;
        let is_heading =
            |name: Name| text_of(name).is_some_and(|name| matches!(name.as_bytes(), [b'h', b'1'..=b'6']));
        (last.name == name || is_heading(last.name) && is_heading(name)).then_some(last.id)
    }

    /// Applies the operations at the end of an element. Operations after its own end tag are applied later.
    pub(super) fn end_watched(&mut self, node: &Node, at: &At, own: bool) {
        // An element that has been removed is not on the stack.
        let position = self.before.open.position(node.id);
        let all: Vec<_> = self.watched.iter().filter(|watched| watched.id == node.id).copied().collect();
        for after in [false, true] {
            for watched in &all {
                let Some(rule) = self.rules.get(watched.rule) else { continue };
                if matches!(rule.act, Act::After(_)) != after || after && own {
                    continue;
                }
                let (html, dry, feature) = (Arc::clone(&rule.html), rule.dry, rule.feature);
                let place = match after {
                    true => SpliceTarget { parent: node.parent, depth: position },
                    false => SpliceTarget { parent: node.id, depth: position.map(|position| position + 1) },
                };
                let next = Next { token: at.token, then: &self.tree };
                let found = inserted(&self.before, place, &html, Some(&next), at.from, &mut self.work)
                    .filter(|_| !at.joins(&html));
                self.insert(at.start, found, &html, Doing { feature, dry, opens: at.opens });
            }
        }
        self.forget(node.id, own);
    }

    /// Drops the operations at the end of an element. With `but_behind`, the operations after its end tag stay.
    pub(super) fn forget(&mut self, id: Id, but_behind: bool) {
        let rules = &self.rules;
        self.watched.retain(|watched| {
            let after = rules.get(watched.rule).is_some_and(|rule| matches!(rule.act, Act::After(_)));
            watched.id != id || but_behind && after
        });
    }

    /// Applies the operations after the end tag of an element, or after an element without content.
    pub(super) fn ended_behind(&mut self, events: &[Event], at: &At) {
        let own = Self::own(events, at);
        let closed = events.iter().filter_map(|event| match event {
            Event::Closed(node) if own == Some(node.id) || node.id >= at.from => Some(*node),
            _ => None,
        });
        for node in closed {
            if self.removal.as_ref().is_some_and(|removal| removal.node.id == node.id) {
                self.forget(node.id, true);
                self.end_removal(at, None);
            }
            if self.removal.is_some() {
                continue;
            }
            let all: Vec<_> = self.watched.iter().filter(|watched| watched.id == node.id).copied().collect();
            let mut state: Option<Tree> = None;
            for watched in all {
                let Some(rule) = self.rules.get(watched.rule) else { continue };
                let (html, dry, feature) = (Arc::clone(&rule.html), rule.dry, rule.feature);
                let place = SpliceTarget { parent: node.parent, depth: None };
                let behind = state.as_ref().unwrap_or(&self.tree);
                let found = inserted(behind, place, &html, None, self.tree.next_id(), &mut self.work);
                let before = std::mem::replace(&mut self.before, Tree::new());
                let done = self.insert(at.end, found, &html, Doing { feature, dry, opens: false });
                let behind = std::mem::replace(&mut self.before, before);
                if done && !dry {
                    state = Some(behind);
                }
            }
            self.forget(node.id, false);
        }
    }

    /// Handles the end of the element that is being removed: it ends with the present token, or before that token.
    pub(super) fn end_removal(&mut self, at: &At, next: Option<Token>) {
        let Some(Removal { node, before, closed, .. }) = self.removal.take() else { return };
        let own = next.is_none();
        let place = if own { at.end } else { at.start };
        let ends = own || may_lack_its_end(&node);
        let ways = std::iter::once((before, String::new())).chain(closed);
        let way = ways.filter(|_| ends).find_map(|(without, closers)| {
            let mut then = without.clone();
            next.into_iter().for_each(|token| then.take(token));
            self.work += 2 * then.size() + std::mem::take(&mut then.work);
            self.goes_on_without(&then, node.id).map(|loosens| (without, closers, loosens))
        });
        self.push(match &way {
            Some((_, closers, _)) => Op::new(place, Operation::Cut(closers.clone()), Tally::Nothing),
            None => Op::new(place, Operation::Keep, Tally::Left),
        });
        if let Some((without, _, loosens)) = way {
            self.loosened |= loosens;
            if !own {
                self.before = without;
            }
        }
    }

    /// Returns `Some` if the rest of the document means the same with and without the element. `without` is the state
    /// without it. The bool is true if the removal allows a `frameset` to replace the body.
    fn goes_on_without(&self, without: &Tree, id: Id) -> Option<bool> {
        let has_body = without.open.nodes.get(1).is_some_and(|node| node.is(BODY));
        let loosens = without.frameset_ok && !self.tree.frameset_ok;
        if self.tree.goes_on_like(without, id) {
            return (!loosens || has_body).then_some(loosens);
        }
        // The element has implied the head or the body. Without the element, the next token implies the head or the body.
        (without.is_before_body() && self.tree.has_only_begun()).then_some(true)
    }

    /// Handles the end of the document, which ends all open elements.
    pub(super) fn end_all(&mut self) {
        let at = self.base + (self.held.len() - self.gone) as u64;
        if let Some(removal) = self.removal.take() {
            self.push(match may_lack_its_end(&removal.node) {
                true => Op::new(at, Operation::Cut(String::new()), Tally::Nothing),
                false => Op::new(at, Operation::Keep, Tally::Left),
            });
        }
        let mut state = self.tree.clone();
        let may = self.tokens.is_between() || self.tokens.is_in_text() && !self.tokens.is_unfinished();
        for node in self.tree.open.nodes.clone().into_iter().rev() {
            let all: Vec<_> = self.watched.iter().filter(|watched| watched.id == node.id).copied().collect();
            for (after, watched) in
                [false, true].into_iter().flat_map(|after| all.iter().map(move |one| (after, one)))
            {
                let Some(rule) = self.rules.get(watched.rule) else { continue };
                let Some(position) =
                    state.open.position(node.id).filter(|_| matches!(rule.act, Act::After(_)) == after)
                else {
                    continue;
                };
                let (html, dry, feature) = (Arc::clone(&rule.html), rule.dry, rule.feature);
                let place = match after {
                    true => SpliceTarget { parent: node.parent, depth: Some(position) },
                    false => SpliceTarget { parent: node.id, depth: Some(position + 1) },
                };
                let found =
                    inserted(&state, place, &html, None, state.next_id(), &mut self.work).filter(|_| may);
                // Nothing can replace the body any more.
                let found = found.map(|(closers, tree, _)| (closers, tree, false));
                let done = self.insert(at, found, &html, Doing { feature, dry, opens: false });
                if done && !dry {
                    state.take_from(&self.before);
                }
            }
        }
        self.watched.clear();
    }
}

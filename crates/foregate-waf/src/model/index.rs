//! An index that finds the rules of a selection without a look at each rule.

use foldhash::HashMap;

use super::{RuleId, RuleSelection, Template, TextMatch};

/// An index of the metadata of all rules, for resolving many selections.
#[derive(Debug, Default)]
pub struct Index {
    /// Ids with the positions of their rules, ascending.
    ids: Vec<(RuleId, usize)>,
    /// Each tag with the positions of the rules that have it. The positions are unsorted and may occur several
    /// times.
    tags: Texts,
    messages: Texts,
}

type Texts = HashMap<String, Vec<usize>>;

impl Index {
    /// Makes an index of rules. `rules` gives the id, tags and message of each rule, in the order of their
    /// positions.
    pub fn new<'r>(rules: impl Iterator<Item = (RuleId, &'r [Template], Option<&'r Template>)>) -> Self {
        let mut index = Self::default();
        for (at, (id, tags, message)) in rules.enumerate() {
            index.ids.push((id, at));
            index.add_tags(at, tags);
            if let Some(message) = message {
                add(&mut index.messages, message, at);
            }
        }
        index.ids.sort_unstable();
        index
    }

    /// The positions of the rules that are selected, ascending.
    pub fn selected(&self, selection: &RuleSelection) -> Vec<usize> {
        let mut found: Vec<usize> = match selection {
            RuleSelection::Ids(ranges) => {
                let from = |range: &std::ops::RangeInclusive<RuleId>| {
                    &self.ids[self.ids.partition_point(|(id, _)| id < range.start())..]
                };
                let within = |range| from(range).iter().take_while(|(id, _)| range.contains(id));
                ranges.iter().flat_map(within).map(|(_, at)| *at).collect()
            }
            RuleSelection::Tag(wanted) => with(&self.tags, wanted),
            RuleSelection::Message(wanted) => with(&self.messages, wanted),
        };
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Adds tags of the rule at `at`.
    pub(crate) fn add_tags(&mut self, at: usize, tags: &[Template]) {
        for tag in tags {
            add(&mut self.tags, tag, at);
        }
    }

    /// Changes the message of the rule at `at`.
    pub(crate) fn change_message(&mut self, at: usize, before: Option<&Template>, now: &Template) {
        if let Some(positions) = before.and_then(|before| self.messages.get_mut(&before.to_string())) {
            positions.retain(|other| *other != at);
        }
        add(&mut self.messages, now, at);
    }
}

fn add(texts: &mut Texts, text: &Template, at: usize) {
    match text.literal() {
        Some(text) => match texts.get_mut(text) {
            Some(positions) => positions.push(at),
            None => drop(texts.insert(text.to_owned(), vec![at])),
        },
        None => texts.entry(text.to_string()).or_default().push(at),
    }
}

fn with(texts: &Texts, wanted: &TextMatch) -> Vec<usize> {
    if let TextMatch::Exact(text) = wanted {
        return texts.get(&**text).cloned().unwrap_or_default();
    }
    let means = wanted.matcher();
    texts.iter().filter(|(text, _)| means(text)).flat_map(|(_, positions)| positions).copied().collect()
}

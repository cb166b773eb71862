//! The differences between the trees of two configurations, in words.

use std::collections::{HashMap, HashSet};

use foregate_config::{Item, ScalarKind, Tree};
use foregate_module::Pipeline;
use serde::Serialize;

use crate::config::schema;

/// Blocks with an order that has no meaning, because they are found by name.
const UNORDERED: [&str; 3] = ["site", "upstream", "list"];

/// The text that is shown in place of a secret.
const HIDDEN: &str = "\"...\"";

/// One difference.
#[derive(Debug, Serialize)]
pub(super) struct TreeChange {
    /// `added`, `removed`, `changed` or `moved`.
    pub change: &'static str,
    /// The blocks around the changed node, the outermost first.
    pub within: Vec<String>,
    /// The key of the changed node, with the node's name if it has one.
    pub what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
    /// `FILE:LINE:COLUMN` in the new configuration; in the old one for a removed node.
    pub place: String,
    /// The difference as a sentence.
    pub words: String,
}

/// All differences, in the order of the new configuration; removed parts come first in their block.
pub(super) fn between(old: &Tree, new: &Tree, pipeline: &Pipeline) -> Vec<TreeChange> {
    let mut changes = Changes { secrets: Secrets::new(pipeline), found: Vec::new(), within: Vec::new() };
    changes.level(old.roots(), new.roots());
    changes.found
}

/// The keys with secrets in all blocks, each with the properties that hold them. An empty name stands for the
/// arguments.
struct Secrets(HashMap<&'static str, Vec<&'static str>>);

impl Secrets {
    fn new(pipeline: &Pipeline) -> Self {
        let mut secrets: HashMap<&'static str, Vec<&'static str>> = HashMap::new();
        let mut add = |_: &schema::Path, key: &'static schema::Key| {
            if !key.secrets.is_empty() {
                secrets.entry(key.name).or_default().extend(key.secrets);
            }
        };
        schema::walk(&mut add);
        schema::walk_keys(pipeline.keys().into_iter().map(|(key, _)| key), &mut add);
        Self(secrets)
    }

    fn hides(&self, key: &str, property: Option<&str>) -> bool {
        self.0.get(key).is_some_and(|names| names.contains(&property.unwrap_or_default()))
    }
}

struct Changes {
    secrets: Secrets,
    found: Vec<TreeChange>,
    within: Vec<String>,
}

impl Changes {
    fn level(&mut self, old: Vec<Item<'_>>, new: Vec<Item<'_>>) {
        let pairs = pairs(&old, &new);
        let kept: HashSet<usize> = pairs.iter().flatten().copied().collect();
        for (_, item) in old.iter().enumerate().filter(|(at, _)| !kept.contains(at)) {
            let shown = written(*item, Some(&self.secrets));
            self.push("removed", *item, label(*item), Some(shown), None);
        }
        for (item, pair) in new.iter().zip(&pairs) {
            match pair.and_then(|at| old.get(at)) {
                None => {
                    let shown = written(*item, Some(&self.secrets));
                    self.push("added", *item, label(*item), None, Some(shown));
                }
                Some(before) => self.node(*before, *item),
            }
        }
        self.order(&new, &pairs);
    }

    fn node(&mut self, old: Item<'_>, new: Item<'_>) {
        if entries(old, None) != entries(new, None) {
            let (before, after) = (entries(old, Some(&self.secrets)), entries(new, Some(&self.secrets)));
            let name = format!("`{}`", new.node.name());
            let what = if is_named(old, new) { label(old) } else { name };
            self.push("changed", new, what, Some(before), Some(after));
        }
        let (old_block, new_block) = (old.children(), new.children());
        if !old_block.is_empty() || !new_block.is_empty() {
            self.within.push(label(new));
            self.level(old_block, new_block);
            self.within.pop();
        }
    }

    /// Reports nodes that have moved. The order of nodes is a setting: if several nodes have the same key, often the
    /// first one that matches is used.
    fn order(&mut self, new: &[Item<'_>], pairs: &[Option<usize>]) {
        let mut last: HashMap<&str, usize> = HashMap::new();
        let mut told: HashSet<&str> = HashSet::new();
        for (item, at) in new.iter().zip(pairs).filter_map(|(item, at)| Some((*item, (*at)?))) {
            let name = item.node.name();
            let before = last.insert(name, at);
            if before.is_some_and(|before| before > at) && !UNORDERED.contains(&name) && told.insert(name) {
                self.push("moved", item, label(item), None, None);
            }
        }
    }

    fn push(
        &mut self,
        change: &'static str,
        item: Item<'_>,
        what: String,
        old: Option<String>,
        new: Option<String>,
    ) {
        let around: String = self.within.iter().map(|block| format!("{block}: ")).collect();
        let words = match (change, &old, &new) {
            ("changed", Some(old), Some(new)) if old == new => format!("{around}{what} has another secret"),
            ("changed", Some(old), Some(new)) => {
                format!("{around}{what} changes from {} to {}", or_nothing(old), or_nothing(new))
            }
            ("added", _, _) => format!("{around}{what} is new"),
            ("removed", _, _) => format!("{around}{what} is gone"),
            _ => format!(
                "{around}{what} comes earlier than before, so that the order of `{}` differs",
                item.node.name()
            ),
        };
        let within = self.within.clone();
        self.found.push(TreeChange { change, within, what, old, new, place: item.line(), words });
    }
}

fn or_nothing(text: &str) -> &str {
    if text.is_empty() { "nothing" } else { text }
}

/// For each node of `new`, the index of its counterpart in `old`: a node with the same text, else one with the same key
/// and name, else one with the same key if each side has exactly one such node left.
fn pairs(old: &[Item<'_>], new: &[Item<'_>]) -> Vec<Option<usize>> {
    let mut pairs: Vec<Option<usize>> = vec![None; new.len()];
    let mut free = vec![true; old.len()];
    let keys: [fn(Item<'_>) -> String; 3] =
        [|item| written(item, None), name_of, |item| item.node.name().to_owned()];
    for (round, key) in keys.iter().enumerate() {
        let mut known: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, item) in old.iter().enumerate().rev().filter(|(at, _)| free[*at]) {
            known.entry(key(*item)).or_default().push(at);
        }
        let lonely = |key: &str, of: &HashMap<String, usize>| of.get(key) == Some(&1);
        let mut wanted: HashMap<String, usize> = HashMap::new();
        for item in new.iter().zip(&pairs).filter(|(_, pair)| pair.is_none()).map(|(item, _)| *item) {
            *wanted.entry(key(item)).or_default() += 1;
        }
        for (item, pair) in new.iter().zip(&mut pairs).filter(|(_, pair)| pair.is_none()) {
            let key = key(*item);
            let Some(places) = known.get_mut(&key) else { continue };
            let is_last_round = round == keys.len() - 1;
            // Two sites with different hosts are two sites, not one site with a changed host.
            if is_last_round && (places.len() != 1 || !lonely(&key, &wanted) || has_name(*item)) {
                continue;
            }
            if let Some(at) = places.pop() {
                free[at] = false;
                *pair = Some(at);
            }
        }
    }
    pairs
}

/// Returns true for blocks that are named by their first argument.
fn has_name(item: Item<'_>) -> bool {
    let name = item.node.name();
    UNORDERED.contains(&name) || ["route", "server", "listen", "rule"].contains(&name)
}

/// Returns true if two nodes have the same name. The name can then stand for the changed node.
fn is_named(old: Item<'_>, new: Item<'_>) -> bool {
    has_name(new) && label(old) == label(new)
}

/// The key with its first argument. For a route, the conditions are added, which are properties.
fn name_of(item: Item<'_>) -> String {
    let mut name = item.node.name().to_owned();
    let is_route = name == "route";
    let mut arguments = 0;
    for entry in item.node.entries() {
        match entry.key() {
            None if arguments == 0 => {
                name.push_str(&format!(" {}", entry.text()));
                arguments += 1;
            }
            Some(key) if is_route => name.push_str(&format!(" {key}={}", entry.text())),
            _ => {}
        }
    }
    name
}

/// The short name of a node for messages, without its block.
fn label(item: Item<'_>) -> String {
    let name = item.node.name();
    if !has_name(item) {
        return format!("`{name}`");
    }
    let mut label = name.to_owned();
    for entry in item.node.entries() {
        match entry.key() {
            Some(key) if name == "route" => {
                label.push_str(&format!(" {key}={}", value(entry.kind(), entry.text())));
            }
            Some(_) => {}
            None if label.len() == name.len() => {
                label.push_str(&format!(" {}", value(entry.kind(), entry.text())));
            }
            None => {}
        }
    }
    label
}

/// The arguments and properties in KDL, with the secrets replaced.
fn entries(item: Item<'_>, secrets: Option<&Secrets>) -> String {
    let mut text = String::new();
    for entry in item.node.entries() {
        if !text.is_empty() {
            text.push(' ');
        }
        if let Some(key) = entry.key() {
            text.push_str(&format!("{key}="));
        }
        // A reference such as `${env:NAME}` is shown, because only its value is secret.
        let is_reference = entry.text().starts_with("${") && entry.text().ends_with('}');
        match secrets.is_some_and(|secrets| secrets.hides(item.node.name(), entry.key())) && !is_reference {
            true => text.push_str(HIDDEN),
            false => text.push_str(&value(entry.kind(), entry.text())),
        }
    }
    text
}

fn value(kind: ScalarKind, text: &str) -> String {
    match kind {
        ScalarKind::String => format!("{text:?}"),
        ScalarKind::Number => text.to_owned(),
        ScalarKind::Bool(is) => if is { "#true" } else { "#false" }.to_owned(),
        ScalarKind::Null => "#null".to_owned(),
    }
}

/// The whole node on one line.
fn written(item: Item<'_>, secrets: Option<&Secrets>) -> String {
    let mut text = item.node.name().to_owned();
    let entries = entries(item, secrets);
    if !entries.is_empty() {
        text.push_str(&format!(" {entries}"));
    }
    let children = item.children();
    if !children.is_empty() {
        let block: Vec<String> = children.into_iter().map(|child| written(child, secrets)).collect();
        text.push_str(&format!(" {{ {} }}", block.join("; ")));
    }
    text
}

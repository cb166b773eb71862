//! Reading blocks by the table of keys, and single values.

use std::borrow::Cow;
use std::path::PathBuf;

use crate::config::document::{EntryRef, Kind};
use crate::config::load::Item;
use crate::config::problem::{Problem, Problems, nearest};
use crate::config::schema::{Block, Key};
use crate::config::value::{self, Value, Wrong};

/// Collects what is wrong while nodes are read.
pub(super) struct Decoder<'p> {
    problems: &'p mut Problems,
}

impl<'p> Decoder<'p> {
    pub(super) fn new(problems: &'p mut Problems) -> Self {
        Self { problems }
    }

    pub(super) fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// The nodes of a block that fit its table.
    pub(super) fn block<'t>(
        &mut self,
        item: Item<'t>,
        block: &'static Block,
    ) -> Vec<(&'static Key, Item<'t>)> {
        self.level(item.children(), block, Some(item))
    }

    /// Those of `items` that fit the table of `block`; `of` is the node that they stand in.
    pub(super) fn level<'t>(
        &mut self,
        items: Vec<Item<'t>>,
        block: &'static Block,
        of: Option<Item<'t>>,
    ) -> Vec<(&'static Key, Item<'t>)> {
        let mut nodes: Vec<(&'static Key, Item<'t>)> = Vec::with_capacity(items.len());
        let mut seen = Seen::default();
        for item in items {
            if self.problems.is_full() {
                return Vec::new();
            }
            let Some((number, key)) =
                block.keys.iter().enumerate().find(|(_, key)| key.name == item.node.name())
            else {
                if let Some(meant) = self.unknown(item, block, of) {
                    // Then it is not missing, too.
                    seen.insert(meant);
                }
                continue;
            };
            if seen.insert(number) && !key.many {
                let first =
                    nodes.iter().find(|(other, _)| other.name == key.name).map(|(_, first)| first.place());
                let problem = Problem::new(Some(item.place()), format!("`{}` stands here twice", key.name));
                self.push(match first {
                    Some(place) => problem.also(place, "the first one"),
                    None => problem,
                });
                continue;
            }
            if self.fits(key, item) {
                nodes.push((key, item));
            }
        }
        for (number, key) in block.keys.iter().enumerate() {
            if key.required && !seen.contains(number) {
                let place = of.map(|item| item.place());
                let what =
                    of.map_or("the configuration".to_owned(), |item| format!("`{}`", item.node.name()));
                let problem = Problem::new(place, format!("{what} needs a `{}`", key.name));
                self.push(problem.help(format!("add `{}`", key.example)));
            }
        }
        nodes
    }

    /// Tells that a node is not known; gives the number of the key that was probably meant.
    fn unknown(&mut self, item: Item<'_>, block: &'static Block, of: Option<Item<'_>>) -> Option<usize> {
        let name = item.node.name();
        let place = Some(item.place());
        if block.later.contains(&name) {
            self.push(Problem::new(place, format!("`{name}` is not in this version")));
            return None;
        }
        let where_to = of.map_or(String::new(), |item| format!(" in `{}`", item.node.name()));
        let problem = Problem::new(place, format!("`{name}` is not known{where_to}"));
        let near = nearest(name, block.keys.iter().map(|key| key.name));
        self.push(match near {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None => {
                let names: Vec<_> = block.keys.iter().map(|key| format!("`{}`", key.name)).collect();
                problem.help(format!("known here: {}", names.join(", ")))
            }
        });
        block.keys.iter().position(|key| Some(key.name) == near)
    }

    /// Whether arguments, properties and block of a node are those of its key.
    fn fits(&mut self, key: &'static Key, item: Item<'_>) -> bool {
        let usage = || format!("write `{} {}`", key.name, key.usage);
        let mut fits = true;
        let mut count = 0_usize;
        let mut props: Vec<&str> = Vec::new();
        for entry in item.node.entries() {
            let Some(name) = entry.key() else {
                count += 1;
                if count == usize::from(key.args.1) + 1 && key.args.1 < u8::MAX {
                    let message = format!("`{}` takes no further value", key.name);
                    self.push(Problem::new(Some(item.place_of(entry.span())), message).help(usage()));
                    fits = false;
                }
                continue;
            };
            let place = Some(item.place_of(entry.span()));
            if !key.props.iter().any(|prop| prop.name == name) {
                let problem = Problem::new(place, format!("`{}` has no property `{name}`", key.name));
                self.push(match nearest(name, key.props.iter().map(|prop| prop.name)) {
                    Some(near) => problem.help(format!("did you mean `{near}`?")),
                    None if key.props.is_empty()
                        && key.block.is_some_and(|b| b.keys.iter().any(|k| k.name == name)) =>
                    {
                        problem.help(format!("it stands in the block: `{} {{ {name} ... }}`", key.name))
                    }
                    None => problem.help(usage()),
                });
                fits = false;
            } else if props.contains(&name) {
                self.push(Problem::new(place, format!("the property `{name}` stands here twice")));
                fits = false;
            }
            props.push(name);
        }
        if count < usize::from(key.args.0) {
            self.push(
                Problem::new(Some(item.place()), format!("`{}` needs a value", key.name)).help(usage()),
            );
            fits = false;
        }
        for prop in key.props.iter().filter(|prop| prop.required && !props.contains(&prop.name)) {
            let message = format!("`{}` needs the property `{}`", key.name, prop.name);
            self.push(Problem::new(Some(item.place()), message).help(usage()));
            fits = false;
        }
        if key.block.is_none()
            && let Some(child) = item.node.children().next()
        {
            let place = Some(item.place_of(child.span()));
            self.push(Problem::new(place, format!("`{}` has no block", key.name)).help(usage()));
            fits = false;
        }
        fits
    }

    /// The argument with this number, counted from 0.
    pub(super) fn read<T>(
        &mut self,
        item: Item<'_>,
        number: usize,
        read: impl FnOnce(&Value<'_>) -> Result<T, Wrong>,
    ) -> Option<T> {
        let entry = item.node.entries().filter(|entry| entry.key().is_none()).nth(number)?;
        self.entry(item, entry, read)
    }

    /// All arguments.
    pub(super) fn read_all<T>(
        &mut self,
        item: Item<'_>,
        read: impl Fn(&Value<'_>) -> Result<T, Wrong>,
    ) -> Vec<T> {
        let entries = item.node.entries().filter(|entry| entry.key().is_none());
        entries.filter_map(|entry| self.entry(item, entry, &read)).collect()
    }

    /// The property with this name.
    pub(super) fn prop<T>(
        &mut self,
        item: Item<'_>,
        name: &str,
        read: impl FnOnce(&Value<'_>) -> Result<T, Wrong>,
    ) -> Option<T> {
        let entry = item.node.entries().find(|entry| entry.key() == Some(name))?;
        self.entry(item, entry, read)
    }

    /// A flag: on without an argument.
    pub(super) fn flag(&mut self, item: Item<'_>) -> bool {
        if item.node.entries().next().is_none() {
            return true;
        }
        self.read(item, 0, value::boolean).unwrap_or_default()
    }

    /// An argument that is one of several words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        item: Item<'_>,
        number: usize,
        words: &[(&str, T)],
    ) -> Option<T> {
        self.read(item, number, |value| value::choose(value, words))
    }

    /// An argument that is a path, from the folder of its file.
    pub(super) fn path(&mut self, item: Item<'_>, number: usize) -> Option<PathBuf> {
        let path = self.read(item, number, not_empty)?;
        Some(item.base().join(path))
    }

    /// The same for a file that must be there.
    pub(super) fn file(&mut self, item: Item<'_>, number: usize) -> Option<PathBuf> {
        self.read(item, number, |value| existing(item, value))
    }

    /// The same for a property.
    pub(super) fn prop_file(&mut self, item: Item<'_>, name: &str) -> Option<PathBuf> {
        self.prop(item, name, |value| existing(item, value))
    }

    fn entry<T>(
        &mut self,
        item: Item<'_>,
        entry: EntryRef<'_>,
        read: impl FnOnce(&Value<'_>) -> Result<T, Wrong>,
    ) -> Option<T> {
        let text = match entry.kind() {
            Kind::String => value::expand(entry.text(), item.base()),
            _ => Ok(Cow::Borrowed(entry.text())),
        };
        match text.and_then(|text| read(&Value { kind: entry.kind(), text })) {
            Ok(value) => Some(value),
            Err(wrong) => {
                let message = format!("`{}`: {}", written(item, entry), wrong.message);
                self.push(value::at(Wrong { message, ..wrong }, item.place_of(entry.span())));
                None
            }
        }
    }
}

/// How an entry stands in the file, after the name of its node. References are not resolved here: what they stand
/// for may be a secret.
fn written(item: Item<'_>, entry: EntryRef<'_>) -> String {
    const SHOWN: usize = 60;
    let value = item.source_of(entry.span());
    let value = match value.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => value.to_owned(),
    };
    match entry.key() {
        Some(key) => format!("{key}={value}"),
        None => format!("{} {value}", item.node.name()),
    }
}

fn not_empty(value: &Value<'_>) -> Result<String, Wrong> {
    match value::string(value)? {
        "" => Err(Wrong::new("expected a path")),
        path => Ok(path.to_owned()),
    }
}

fn existing(item: Item<'_>, value: &Value<'_>) -> Result<PathBuf, Wrong> {
    let path = item.base().join(not_empty(value)?);
    match std::fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => Err(Wrong::new(format!("{} is a folder", path.display()))),
        Ok(_) => Ok(path),
        Err(error) => Err(Wrong::new(format!("cannot read {}: {error}", path.display()))),
    }
}

/// Which keys of a block were seen; no block has more than 64.
#[derive(Default)]
struct Seen(u64);

impl Seen {
    /// Adds a key; says whether it was there already.
    fn insert(&mut self, number: usize) -> bool {
        let before = self.contains(number);
        self.0 |= 1 << (number % 64);
        before
    }

    fn contains(&self, number: usize) -> bool {
        self.0 & (1 << (number % 64)) != 0
    }
}

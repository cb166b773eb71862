//! Reading blocks by the table of keys, and single values.

use std::borrow::Cow;
use std::path::PathBuf;

use foregate_module::settings::{Argument, Node, Scalar};

use crate::context::missing_list;
use crate::document::{EntryRef, ScalarKind, Span};
use crate::elsewhere;
use crate::files;
use crate::foreign;
use crate::load::{Item, Tree};
use crate::positional;
use crate::problem::{Place, Problem, Problems};
use crate::schema::{Block, GENERIC, Key, Prop};
use crate::value::{self, Value, Wrong};

/// Reads nodes by tables of keys and collects the errors.
pub struct Decoder<'p> {
    problems: &'p mut Problems,
    /// The outermost block of the host's files.
    pub(crate) root: &'static Block,
    /// The keys of modules. The index of a key is its number.
    pub(crate) modules: Vec<&'static Key>,
    /// Set once a message has listed many keys: one long list is enough.
    pub(crate) listed: bool,
}

/// The nodes of a block that fit its table.
pub type Nodes<'t> = Vec<(&'static Key, Item<'t>)>;

/// Nodes of modules, each with the number of its key. A node that turns off an inherited key need not fit the
/// table of the key.
pub type ModuleNodes<'t> = Vec<(usize, Item<'t>)>;

/// The result of checking a node against its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// The node fits its key in every respect.
    Whole,
    /// The node has surplus entries, but can be read: errors in its block are reported, too.
    Readable,
    /// The node cannot be read.
    No,
}

/// Returns true if the block of `key` has a key with this name.
fn has_key(key: &Key, name: &str) -> bool {
    key.block.is_some_and(|block| block.keys.iter().any(|key| key.name == name))
}

impl<'p> Decoder<'p> {
    /// A decoder for files with the outermost block `root`. `modules` are the keys of modules, in the order of
    /// their numbers.
    pub fn new(problems: &'p mut Problems, root: &'static Block, modules: Vec<&'static Key>) -> Self {
        Self { problems, root, modules, listed: false }
    }

    /// Adds a problem.
    pub fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Like [`Problems::miss_files`].
    pub fn misses_files(&self) -> bool {
        self.problems.miss_files()
    }

    /// Adds a warning.
    pub fn warn(&mut self, warning: Problem) {
        self.problems.warn(warning);
    }

    /// Adds the error of a module and the further errors that it holds. `nodes` are the module's input.
    pub fn push_of_module(
        &mut self,
        tree: &Tree,
        nodes: &[Node],
        mut problem: foregate_module::settings::Problem,
    ) {
        let further = std::mem::take(&mut problem.further);
        for problem in std::iter::once(problem).chain(further) {
            if self.misses_files() && missing_list(&problem.message).is_some() {
                continue;
            }
            let modules = &self.modules;
            let place = problem.place;
            let span = Span { start: place.start, len: place.length };
            let written = tree.source_at(place.file, place.start, place.length);
            // If the place is a whole value, the message shows the value, as for our own keys.
            let value = nodes.iter().find_map(|node| {
                let key = modules.iter().copied().find(|key| key.name == node.name());
                value_at(node, key, place, written)
            });
            let message = match value {
                Some(value) => format!("`{value}`: {}", problem.message),
                None => problem.message,
            };
            let place = Some(Place { file: place.file, span });
            self.push(Problem { help: problem.help, ..Problem::new(place, message) });
        }
    }

    /// The nodes of a block that fit its table.
    pub fn block<'t>(&mut self, item: Item<'t>, block: &'static Block) -> Nodes<'t> {
        self.level(item.children(), block, Some(item), None)
    }

    /// Like [`Self::block`], for a block in which keys of modules are allowed.
    pub fn open_block<'t>(&mut self, item: Item<'t>, block: &'static Block) -> (Nodes<'t>, ModuleNodes<'t>) {
        self.open_level(item.children(), block, Some(item))
    }

    /// The `items` that fit the table of `block`, and the items with keys of modules. `of` is the node around them.
    pub fn open_level<'t>(
        &mut self,
        items: Vec<Item<'t>>,
        block: &'static Block,
        of: Option<Item<'t>>,
    ) -> (Nodes<'t>, ModuleNodes<'t>) {
        let mut modules = Vec::new();
        (self.level(items, block, of, Some(&mut modules)), modules)
    }

    fn level<'t>(
        &mut self,
        items: Vec<Item<'t>>,
        block: &'static Block,
        of: Option<Item<'t>>,
        mut modules: Option<&mut ModuleNodes<'t>>,
    ) -> Nodes<'t> {
        let mut nodes: Nodes<'t> = Vec::with_capacity(items.len());
        let mut seen = SeenKeys::default();
        let mut strange = false;
        for item in items {
            if self.problems.is_full() {
                self.problems.stop();
                return Vec::new();
            }
            let Some((number, key)) =
                block.keys.iter().enumerate().find(|(_, key)| key.name == item.node.name())
            else {
                if let Some(modules) = &mut modules
                    && let Some(number) = self.modules.iter().position(|key| key.name == item.node.name())
                {
                    self.module(number, item, modules);
                    continue;
                }
                strange = true;
                if let Some(meant) = self.unknown(item, block, of, modules.is_some()) {
                    // The key that was meant does not count as missing.
                    seen.insert(meant);
                }
                continue;
            };
            if seen.insert(number) && !key.many {
                let first =
                    nodes.iter().find(|(other, _)| other.name == key.name).map(|(_, first)| first.place());
                let problem = Problem::new(Some(item.place()), format!("`{}` is here twice", key.name));
                self.push(match first {
                    Some(place) => problem.also(place, "the first one"),
                    None => problem,
                });
                continue;
            }
            let fit = self.fit(key, item, &[]);
            if fit == Fit::Whole || fit == Fit::Readable && key.block.is_some() {
                nodes.push((key, item));
            }
        }
        // If there was an unknown key, it was probably meant to be the missing one.
        if !(strange && of.is_some()) {
            let module = modules.and_then(|modules| modules.first()).map(|(number, _)| *number);
            self.tell_missing(block, of, &seen, module);
        }
        nodes
    }

    /// Reports required keys that are missing in a block. `module` is the number of a module's key in the block.
    fn tell_missing(
        &mut self,
        block: &'static Block,
        of: Option<Item<'_>>,
        seen: &SeenKeys,
        module: Option<usize>,
    ) {
        if self.problems.miss_files() {
            return;
        }
        let missing =
            block.keys.iter().enumerate().filter(|(number, key)| key.required && !seen.contains(*number));
        for (_, key) in missing {
            // A missing key of the whole configuration has no place: the start of the file stands for it.
            let start = Place { file: 0, span: Span { start: 0, len: 0 } };
            let place = Some(of.map_or(start, |item| item.place()));
            let what = of.map_or("the configuration".to_owned(), |item| format!("`{}`", item.node.name()));
            let problem = Problem::new(place, format!("{what} needs a `{}`", key.name));
            let of_module = module.and_then(|number| self.modules.get(number));
            self.push(problem.help(match of_module {
                Some(module) => format!("add `{}`: `{}` acts on its requests", key.example, module.name),
                None => format!("add `{}`", key.example),
            }));
        }
    }

    /// Adds a node of a module if it fits its key, or turns off an inherited key.
    fn module<'t>(&mut self, number: usize, item: Item<'t>, modules: &mut ModuleNodes<'t>) {
        let Some(&key) = self.modules.get(number) else { return };
        if !key.many
            && let Some((_, first)) = modules.iter().find(|(other, _)| *other == number)
        {
            let problem = Problem::new(Some(item.place()), format!("`{}` is here twice", key.name));
            self.push(problem.also(first.place(), "the first one"));
            return;
        }
        if !turns_off(item) && item.node.entries().next().is_some_and(is_false) {
            let message = format!("`{} #false` turns it off and takes nothing else", key.name);
            self.push(Problem::new(Some(item.place()), message));
            return;
        }
        if let Some(word) = off(key, item) {
            let message = format!("`{} {word}`: a word does not turn it off", key.name);
            self.push(Problem::new(Some(item.place()), message).help(format!("write `{} #false`", key.name)));
            return;
        }
        let generic = if key.many { &[][..] } else { GENERIC };
        if turns_off(item) || self.fit(key, item, generic) == Fit::Whole {
            modules.push((number, item));
        }
    }

    /// Checks arguments, properties and block of a node against its key. The `generic` properties are allowed in
    /// addition to those of the key.
    fn fit(&mut self, key: &'static Key, item: Item<'_>, generic: &'static [Prop]) -> Fit {
        let usage = || match key.usage {
            "" => format!("such as `{}`", key.example),
            usage => format!("write `{} {usage}`", key.name),
        };
        let known = || key.props.iter().chain(generic);
        let children = || item.children().into_iter();
        let (mut fits, mut surplus) = (true, false);
        let mut count = 0_usize;
        let mut props: Vec<&str> = Vec::new();
        let first = item.node.entries().next();
        for entry in item.node.entries() {
            let Some(name) = entry.key() else {
                count += 1;
                if count == usize::from(key.args.1) + 1 && key.args.1 < u8::MAX {
                    let message = format!("`{}` takes no further value", key.name);
                    let help = unquoted(key, item)
                        .or_else(|| as_property(key, entry.text()))
                        .or_else(|| foreign::within_key(key, entry.text()));
                    let help = help.unwrap_or_else(usage);
                    self.push(Problem::new(Some(item.place_of(entry.span())), message).help(help));
                    surplus = true;
                }
                continue;
            };
            let place = Some(item.place_of(entry.span()));
            if !known().any(|prop| prop.name == name) {
                let problem = Problem::new(place, format!("`{}` has no property `{name}`", key.name));
                let help = elsewhere::similar_property(name, known().map(|prop| prop.name))
                    .or_else(|| positional::as_value(key, item, name))
                    .or_else(|| self.instead_of_prop(key, name, &usage));
                self.push(problem.help(help.unwrap_or_else(usage)));
                surplus = true;
                // If a key of the block was written as a property, it does not count as missing in the block.
                fits &= !has_key(key, name);
            } else if props.contains(&name) {
                self.push(Problem::new(place, format!("the property `{name}` is here twice")));
                surplus = true;
            }
            props.push(name);
        }
        if count < usize::from(key.args.0) {
            let problem = Problem::new(Some(item.place()), format!("`{}` needs a value", key.name));
            // The error for a property that should be this value has been reported already.
            if !positional::has_named_value(key, item) {
                self.push(problem.help(commented_out(item).unwrap_or_else(usage)));
            }
            fits = false;
        }
        for prop in key.props.iter().filter(|prop| prop.required && !props.contains(&prop.name)) {
            let inner = children().find(|child| child.node.name() == prop.name);
            // The error for a key without its block is reported below.
            if inner.is_some() && key.block.is_none() {
                continue;
            }
            let message = format!("`{}` needs the property `{}`", key.name, prop.name);
            let instead = inner.and_then(|inner| elsewhere::as_property(key, generic, item, inner));
            let instead = instead.or_else(|| foreign::rate(key.name, item.source_of(first?.span())));
            self.push(Problem::new(Some(item.place()), message).help(instead.unwrap_or_else(usage)));
            fits = false;
        }
        if key.block.is_none()
            && let Some(child) = children().next()
        {
            let instead = elsewhere::as_property(key, generic, item, child).unwrap_or_else(usage);
            let message = format!("`{}` has no block", key.name);
            self.push(Problem::new(Some(child.place()), message).help(instead));
            fits = false;
        }
        match (fits, surplus) {
            (true, false) => Fit::Whole,
            (true, true) => Fit::Readable,
            (false, _) => Fit::No,
        }
    }

    /// The suggestion for a node that should be a property of the node `of` around it.
    pub(crate) fn as_property(&self, block: &'static Block, of: Item<'_>, item: Item<'_>) -> Option<String> {
        let ours = elsewhere::key_of(block, &self.root.keys.iter().collect::<Vec<_>>());
        let key = ours.or_else(|| elsewhere::key_of(block, &self.modules))?;
        let of_module = self.modules.iter().any(|module| module.name == key.name && !module.many);
        elsewhere::as_property(key, if of_module { GENERIC } else { &[] }, of, item)
    }

    /// The node as a module reads it, with its block, and with references resolved. `None` if a part of it does not
    /// fit.
    pub fn node(&mut self, item: Item<'_>, key: &'static Key) -> Option<Node> {
        let place = item.place();
        let mut node = Node::new(item.node.name(), contract_place(place));
        let mut whole = true;
        for entry in item.node.entries() {
            let place = contract_place(item.place_of(entry.span()));
            let read = |value: &Value<'_>| Ok((value.kind, value.text.clone().into_owned()));
            let Some((kind, text)) = self.entry(item, entry, Some(key), read) else {
                whole = false;
                continue;
            };
            let argument = Argument::new(Scalar { kind, text: Cow::Owned(text) }, place);
            node = match entry.key() {
                None => node.with_arg(argument),
                Some(name) => node.with_prop(name, argument),
            };
        }
        let Some(block) = key.block else { return whole.then_some(node) };
        let before = self.problems.count();
        for (key, child) in self.block(item, block) {
            match self.node(child, key) {
                Some(child) => node = node.with_child(child),
                None => whole = false,
            }
        }
        (whole && self.problems.count() == before).then_some(node)
    }

    /// Reads the argument with this number, counted from 0.
    pub fn read<T>(
        &mut self,
        item: Item<'_>,
        number: usize,
        read: impl FnOnce(&Value<'_>) -> Result<T, Wrong>,
    ) -> Option<T> {
        let entry = item.node.entries().filter(|entry| entry.key().is_none()).nth(number)?;
        self.entry(item, entry, None, read)
    }

    /// Like [`Self::read`], for a key with arguments that may be secrets: messages do not show them.
    pub fn read_secret<T>(
        &mut self,
        item: Item<'_>,
        key: &'static Key,
        number: usize,
        read: impl FnOnce(&Value<'_>) -> Result<T, Wrong>,
    ) -> Option<T> {
        let entry = item.node.entries().filter(|entry| entry.key().is_none()).nth(number)?;
        self.entry(item, entry, Some(key), read)
    }

    /// All arguments.
    pub fn read_all<T>(&mut self, item: Item<'_>, read: impl Fn(&Value<'_>) -> Result<T, Wrong>) -> Vec<T> {
        let entries = item.node.entries().filter(|entry| entry.key().is_none());
        entries.filter_map(|entry| self.entry(item, entry, None, &read)).collect()
    }

    /// The property with this name.
    pub fn prop<T>(
        &mut self,
        item: Item<'_>,
        name: &str,
        read: impl FnOnce(&Value<'_>) -> Result<T, Wrong>,
    ) -> Option<T> {
        let entry = item.node.entries().find(|entry| entry.key() == Some(name))?;
        self.entry(item, entry, None, read)
    }

    /// Like [`Self::prop`], for a property that may be a secret: messages do not show it.
    pub fn prop_secret<T>(
        &mut self,
        item: Item<'_>,
        key: &'static Key,
        name: &str,
        read: impl FnOnce(&Value<'_>) -> Result<T, Wrong>,
    ) -> Option<T> {
        let entry = item.node.entries().find(|entry| entry.key() == Some(name))?;
        self.entry(item, entry, Some(key), read)
    }

    /// The property with this name in the form in which modules get it, with its place.
    pub fn argument(&mut self, item: Item<'_>, name: &str) -> Option<Argument> {
        let entry = item.node.entries().find(|entry| entry.key() == Some(name))?;
        let place = contract_place(item.place_of(entry.span()));
        let read = |value: &Value<'_>| Ok((value.kind, value.text.clone().into_owned()));
        let (kind, text) = self.entry(item, entry, None, read)?;
        Some(Argument::new(Scalar { kind, text: Cow::Owned(text) }, place))
    }

    /// Reads a flag. It is on if the node has no entries.
    pub fn flag(&mut self, item: Item<'_>) -> bool {
        if item.node.entries().next().is_none() {
            return true;
        }
        // After an error, the flag does not count as turned off.
        self.read(item, 0, value::boolean).unwrap_or(true)
    }

    /// Like [`Self::flag`], for a key that has properties as well.
    pub fn flag_of(&mut self, item: Item<'_>) -> bool {
        self.read(item, 0, value::boolean).unwrap_or(true)
    }

    /// Like [`Self::flag_of`], for a key with a property `prop`. If the argument is not a boolean, the error
    /// suggests to write it as that property.
    pub fn flag_or_prop(&mut self, item: Item<'_>, prop: &str) -> bool {
        let name = item.node.name();
        let read = |value: &Value<'_>| {
            value::boolean(value).map_err(|wrong| {
                let quote = if value.kind == ScalarKind::String { "\"" } else { "" };
                wrong.help(format!("write `{name} {prop}={quote}{}{quote}`", value.text))
            })
        };
        self.read(item, 0, read).unwrap_or(true)
    }

    /// An argument that is one of several words.
    pub fn choice<T: Copy>(&mut self, item: Item<'_>, number: usize, words: &[(&str, T)]) -> Option<T> {
        self.read(item, number, |value| value::choose(value, words))
    }

    /// Reads an argument that is a path, relative to the folder of its file.
    pub fn path(&mut self, item: Item<'_>, number: usize) -> Option<PathBuf> {
        let path = self.read(item, number, not_empty)?;
        Some(item.base().join(path))
    }

    /// Like `path`, for a file that must exist.
    pub fn file(&mut self, item: Item<'_>, number: usize) -> Option<PathBuf> {
        self.read(item, number, |value| existing(item, value))
    }

    /// Like `file`, for a property.
    pub fn prop_file(&mut self, item: Item<'_>, name: &str) -> Option<PathBuf> {
        self.prop(item, name, |value| existing(item, value))
    }

    /// Reads one value. `key` is the key of the node, if it may have secrets.
    pub(crate) fn entry<T>(
        &mut self,
        item: Item<'_>,
        entry: EntryRef<'_>,
        key: Option<&'static Key>,
        read: impl FnOnce(&Value<'_>) -> Result<T, Wrong>,
    ) -> Option<T> {
        let text = match entry.kind() {
            ScalarKind::String => {
                let problems = &mut *self.problems;
                value::expand(entry.text(), item.base(), &mut |reference, value| {
                    problems.hide(reference, value);
                })
            }
            _ => Ok(Cow::Borrowed(entry.text())),
        };
        match text.and_then(|text| read(&Value { kind: entry.kind(), text })) {
            Ok(value) => Some(value),
            Err(wrong) => {
                let message = format!("`{}`: {}", written(item, entry, key), wrong.message);
                self.push(value::at(Wrong { message, ..wrong }, item.place_of(entry.span())));
                None
            }
        }
    }
}

/// The suggestion for the name of a property that was written as a value.
fn as_property(key: &Key, text: &str) -> Option<String> {
    let prop = key.props.iter().find(|prop| prop.name == text)?;
    let value = if prop.usage.contains("#true") { "#true" } else { prop.usage };
    Some(format!("it is a property: write `{}={value}`", prop.name))
}

/// Returns true if a node of a module only turns off an inherited key: `NAME #false`.
pub fn turns_off(item: Item<'_>) -> bool {
    let mut entries = item.node.entries();
    entries.next().is_some_and(is_false) && entries.next().is_none() && item.node.children().next().is_none()
}

/// The word, such as `off`, by which a node of a module seems to turn off its key. `None` if a text alone is a
/// valid value of the key.
fn off<'t>(key: &Key, item: Item<'t>) -> Option<&'t str> {
    let mut entries = item.node.entries();
    let entry = entries.next().filter(|entry| entry.key().is_none() && entry.kind() == ScalarKind::String)?;
    let alone = entries.next().is_none() && item.node.children().next().is_none();
    let takes_text = key.args.0 > 0 && !key.props.iter().any(|prop| prop.required);
    (alone && !takes_text && value::is_off(entry.text())).then(|| item.source_of(entry.span()))
}

/// The suggestion for a node without a value if a path without quotes follows its name: `//` or `/*` begins a
/// comment.
fn commented_out(item: Item<'_>) -> Option<String> {
    let behind = item.source_behind(item.node.span()).trim_start_matches([' ', '\t']);
    let open = ["//", "/*"].into_iter().find(|open| behind.starts_with(open))?;
    let name = item.node.name();
    Some(format!("`{open}` begins a comment; put a path in quotes: `{name} \"{open}...\"`"))
}

fn is_false(entry: EntryRef<'_>) -> bool {
    entry.key().is_none() && entry.kind() == ScalarKind::Bool(false)
}

/// Converts a place to the type that modules use.
fn contract_place(place: Place) -> foregate_module::settings::Place {
    foregate_module::settings::Place { file: place.file, start: place.span.start, length: place.span.len }
}

/// The most characters of a value that messages show.
pub(crate) const SHOWN: usize = 60;

/// The source text of an entry, after the name of its node or property. References are not resolved here: their
/// values may be secrets.
fn written(item: Item<'_>, entry: EntryRef<'_>, key: Option<&Key>) -> String {
    let value = unless_secret(key, entry.key(), item.source_of(entry.span()));
    shown(item.node.name(), entry.key(), value)
}

/// The text that messages show for the value of the property `prop`, or of an argument if `prop` is `None`. If
/// one argument of a key may be a secret, no argument is shown, since arguments are easily mixed up.
fn unless_secret<'v>(key: Option<&Key>, prop: Option<&str>, written: &'v str) -> &'v str {
    let is_secret = key.is_some_and(|key| key.secrets.contains(&prop.unwrap_or_default()));
    if is_secret { HIDDEN } else { written }
}

fn shown(node: &str, key: Option<&str>, value: &str) -> String {
    let value = match value.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => value.to_owned(),
    };
    match key {
        Some(key) => format!("{key}={value}"),
        None => format!("{node} {value}"),
    }
}

/// The replacement for a secret in messages.
pub(crate) const HIDDEN: &str = "\"...\"";

/// The source text of the value at a place, if the value belongs to this node or to its block. `key` is the key
/// of the node.
fn value_at(
    node: &Node,
    key: Option<&'static Key>,
    place: foregate_module::settings::Place,
    written: &str,
) -> Option<String> {
    let is_there = |argument: &Argument| place.length > 0 && argument.place() == place;
    if node.args().iter().any(is_there) {
        return Some(shown(node.name(), None, unless_secret(key, None, written)));
    }
    if let Some((name, _)) = node.props().find(|(_, argument)| is_there(argument)) {
        return Some(shown(node.name(), Some(name), unless_secret(key, Some(name), written)));
    }
    let keys = key.and_then(|key| key.block).map_or(&[][..], |block| block.keys);
    node.children().iter().find_map(|child| {
        let key = keys.iter().find(|key| key.name == child.name());
        value_at(child, key, place, written)
    })
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
        Err(error) => Err(files::cannot_read(&path, &error)),
    }
}

/// The keys of a block that were seen. No block has more than 64 keys.
#[derive(Default)]
struct SeenKeys(u64);

impl SeenKeys {
    /// Adds a key. Returns true if the key was there already.
    fn insert(&mut self, number: usize) -> bool {
        let before = self.contains(number);
        self.0 |= 1 << (number % 64);
        before
    }

    fn contains(&self, number: usize) -> bool {
        self.0 & (1 << (number % 64)) != 0
    }
}

/// The suggestion for an expression without quotes, which other rule languages allow.
fn unquoted(key: &Key, item: Item<'_>) -> Option<String> {
    let values = || item.node.entries().filter(|entry| entry.key().is_none());
    let is_word = values().next().is_some_and(|first| first.span().len as usize == first.text().len());
    if !key.usage.starts_with("EXPRESSION") || !is_word {
        return None;
    }
    let words: Vec<Cow<'_, str>> = values()
        .map(|entry| match entry.text() {
            text if entry.span().len as usize == text.len() => Cow::Borrowed(text),
            text => Cow::Owned(format!("{text:?}")),
        })
        .collect();
    Some(format!("an expression is one value, in quotes: `{} #\"{}\"#`", key.name, words.join(" ")))
}

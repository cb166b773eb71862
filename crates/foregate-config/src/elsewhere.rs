//! Where a key stands, for who wrote it in another block.

use crate::block::{HIDDEN, SHOWN};
use crate::document::EntryRef;
use crate::load::Item;
use crate::schema::{Block, Key, Prop};

/// Places that one message may name; a key with more is too common for advice.
const FEW: usize = 3;

/// In which blocks a key of this name stands, in words; `None` where there is none, or too many to say. `root` and `modules`
/// are all keys that there are; the block is that in which it was written, with its name. `open`: keys of modules may
/// stand in it.
pub(crate) fn of(
    name: &str,
    (block, block_name, open): (&'static Block, &str, bool),
    root: &'static Block,
    modules: &[&'static Key],
) -> Option<String> {
    // Further in is where it was most likely meant.
    let within: Vec<_> =
        block.keys.iter().filter(|key| key.block.is_some_and(|inner| has(inner, name))).collect();
    if !within.is_empty() && !std::ptr::eq(block, root) {
        let each = |key: &&Key| match key.many {
            true => format!("in {}", with_article(key)),
            false => format!("in the `{}`", key.name),
        };
        let places: Vec<_> = within.iter().map(each).collect();
        return Some(format!("it stands {} of this `{block_name}`", places.join(" or ")));
    }
    let mut places = Vec::new();
    let mut around = Vec::new();
    // Who writes in the block of a module means that module, not a namesake elsewhere.
    if let Some(module) = module_of(block, modules) {
        find(name, module, "", &mut around, &mut places);
        return in_words(&places, None);
    }
    let at_top = root.keys.iter().find(|key| key.name == name);
    if at_top.is_some() {
        places.push(TOP.to_owned());
    }
    for key in root.keys {
        find(name, key, TOP, &mut around, &mut places);
    }
    // Of a key that is the host's, a namesake within a module would only be noise.
    if places.is_empty() && open {
        for key in modules {
            find(name, key, "", &mut around, &mut places);
        }
    }
    in_words(&places, at_top)
}

fn in_words(places: &[String], at_top: Option<&Key>) -> Option<String> {
    match places {
        [] => None,
        [one] if at_top.is_some_and(|key| !key.many) => {
            Some(format!("it stands {one}, and holds for all sites"))
        }
        [one] => Some(format!("it stands {one}")),
        [some @ .., last] if places.len() <= FEW => Some(format!("it stands {}, or {last}", some.join(", "))),
        _ => None,
    }
}

/// The module in whose block this block is, or whose block it is.
pub(crate) fn module_of(block: &'static Block, modules: &[&'static Key]) -> Option<&'static Key> {
    modules.iter().copied().find(|module| key_of(block, &[*module]).is_some())
}

/// The key among these, or in their blocks, whose block this is.
pub(crate) fn key_of(block: &'static Block, keys: &[&'static Key]) -> Option<&'static Key> {
    keys.iter().copied().find_map(|key| {
        let inner = key.block?;
        if std::ptr::eq(inner, block) {
            return Some(key);
        }
        key_of(block, &inner.keys.iter().collect::<Vec<_>>())
    })
}

/// The keys here whose first word or words are this name, as a question: `head-bytes` for `head`.
pub(crate) fn longer<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<String> {
    let begins = |known: &&str| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    let names: Vec<_> = known.filter(begins).map(|name| format!("`{name}`")).collect();
    match &names[..] {
        [] => None,
        [one] => Some(format!("did you mean {one}?")),
        [some @ .., last] => Some(format!("did you mean {} or {last}?", some.join(", "))),
    }
}

/// What to write where `item` stands in the block of the node `of`, but is one of the properties of that node's key.
pub(crate) fn as_property(key: &Key, generic: &[Prop], of: Item<'_>, item: Item<'_>) -> Option<String> {
    let name = item.node.name();
    key.props.iter().chain(generic).find(|prop| prop.name == name)?;
    let text = |item: Item<'_>, entry: EntryRef<'_>, secret: &str| {
        let text = item.source_of(entry.span()).to_owned();
        match key.secrets.contains(&secret) || text.chars().count() > SHOWN {
            true => HIDDEN.to_owned(),
            false => text,
        }
    };
    let arguments = of.node.entries().filter(|entry| entry.key().is_none());
    let arguments: String = arguments.map(|entry| format!(" {}", text(of, entry, ""))).collect();
    let mut values = item.node.entries();
    let value = match (values.next(), values.next()) {
        (None, _) => "#true".to_owned(),
        (Some(value), None) if value.key().is_none() => text(item, value, name),
        _ => HIDDEN.to_owned(),
    };
    let (place, block) = match key.block {
        Some(_) => ("it stands before the block", " { ... }"),
        None => ("it is a property", ""),
    };
    Some(format!("{place}: `{}{arguments} {name}={value}{block}`", key.name))
}

const TOP: &str = "at the top of the file";

/// Adds the places within the block of `key`; `level` says where the outermost key stands, if there is one place for it.
fn find(
    name: &str,
    key: &'static Key,
    level: &str,
    around: &mut Vec<&'static Key>,
    places: &mut Vec<String>,
) {
    let Some(block) = key.block else { return };
    around.push(key);
    if has(block, name) {
        let place = said(around, level);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    for key in block.keys {
        find(name, key, level, around, places);
    }
    around.pop();
}

fn has(block: &Block, name: &str) -> bool {
    block.keys.iter().any(|key| key.name == name)
}

/// A block by the keys around it: those that stand once in another need that one to be told from namesakes.
fn said(around: &[&'static Key], level: &str) -> String {
    match around {
        [.., outer, key] if !key.many => format!("in the `{}` of {}", key.name, with_article(outer)),
        [.., key] if key.many => format!("in {}", with_article(key)),
        [key] => format!("in `{}` {level}", key.name).trim_end().to_owned(),
        _ => String::new(),
    }
}

fn with_article(key: &Key) -> String {
    let article = match (key.many, key.name.starts_with(['a', 'e', 'i', 'o', 'u'])) {
        (false, _) => "",
        (true, false) => "a ",
        (true, true) => "an ",
    };
    format!("{article}`{}`", key.name)
}

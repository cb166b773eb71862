//! Finds the right block for a key that was written in a wrong one.

use crate::block::{HIDDEN, SHOWN};
use crate::document::EntryRef;
use crate::foreign;
use crate::load::Item;
use crate::schema::{Block, GENERIC, Key, Prop, walk_keys};
use foregate_rules::nearest;

/// The most places that one message names. If there are more, the message says so.
const FEW: usize = 3;

/// All keys, of the host and of modules.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'k> {
    /// The outermost block of the host's files.
    pub(crate) root: &'static Block,
    /// The keys of modules.
    pub(crate) modules: &'k [&'static Key],
}

impl Keys<'_> {
    fn all(&self) -> impl Iterator<Item = &'static Key> {
        self.root.keys.iter().chain(self.modules.iter().copied())
    }
}

/// Says in words to which blocks a key with this name belongs. `None` if there is no such key. `block` is the
/// block in which the name was written, and `block_name` its name. `open` is true if keys of modules are
/// allowed in it.
pub(crate) fn of(
    name: &str,
    (block, block_name, open): (&'static Block, &str, bool),
    keys: Keys<'_>,
) -> Option<String> {
    if !open && keys.modules.iter().any(|key| key.name == name) {
        return Some(format!("it belongs {TOP}, in a `site`, or in a `route`"));
    }
    // The key was most likely meant for an inner block.
    let within: Vec<_> =
        block.keys.iter().filter(|key| key.block.is_some_and(|inner| has(inner, name))).collect();
    if !within.is_empty() && !std::ptr::eq(block, keys.root) {
        let each = |key: &&Key| match key.many {
            true => format!("in {}", with_article(key)),
            false => format!("in the `{}`", key.name),
        };
        let places: Vec<_> = within.iter().map(each).collect();
        return Some(format!("it belongs {} of this `{block_name}`", places.join(" or ")));
    }
    let mut places = Vec::new();
    let mut around = Vec::new();
    // In the block of a module, a key of that module is more likely than a key of the same name elsewhere.
    if let Some(module) = module_of(block, keys.modules) {
        find(name, module, "", &mut around, &mut places);
    }
    if !places.is_empty() {
        return in_words(&places, None);
    }
    let at_top = keys.root.keys.iter().find(|key| key.name == name);
    if at_top.is_some() {
        places.push(TOP.to_owned());
    }
    for key in keys.root.keys {
        find(name, key, TOP, &mut around, &mut places);
    }
    // If the host has the key, keys of the same name within modules are not named.
    if places.is_empty() {
        for key in keys.modules {
            find(name, key, "", &mut around, &mut places);
        }
    }
    in_words(&places, at_top)
}

/// Like [`of`], for a key with a differently spelled name.
pub(crate) fn of_spelling(name: &str, keys: Keys<'_>) -> Option<String> {
    let mut found = None;
    walk_keys(keys.all(), &mut |_, key| {
        if found.is_none() && foreign::is_spelling_of(key.name, name) {
            found = Some(key.name);
        }
    });
    let place = of(found?, (keys.root, "", true), keys);
    // `of` finds no other place for a key of a module: it is allowed at the top of the file, too.
    let place = place.unwrap_or_else(|| format!("it belongs {TOP}, in a `site`, or in a `route`"));
    Some(format!("it is written `{}`; {place}", found?))
}

/// Says in words which keys have a property of this name. `None` if there is none.
pub(crate) fn of_property(name: &str, keys: Keys<'_>) -> Option<String> {
    if GENERIC.iter().any(|prop| prop.name == name) {
        return Some(format!(
            "it is a property of most keys of modules: `rate-limit 100 per=\"1s\" {name}=...`"
        ));
    }
    let mut found: Vec<(String, &Key)> = Vec::new();
    for key in keys.all() {
        having(name, key, &mut Vec::new(), &mut found);
    }
    let places: Vec<_> = found.iter().map(|(place, _)| place.clone()).collect();
    let mut text = format!("it is a property {}", listed(&places)?);
    if let [(_, key)] = &*found
        && key.example.contains(&format!(" {name}="))
    {
        text.push_str(&format!(": `{}`", key.example));
    }
    Some(text)
}

/// Adds the key, and the keys of its block, to `found` if they have a property of this name.
fn having(
    name: &str,
    key: &'static Key,
    around: &mut Vec<&'static Key>,
    found: &mut Vec<(String, &'static Key)>,
) {
    if key.props.iter().any(|prop| prop.name == name) {
        let place = match around.as_slice() {
            [] => format!("of `{}`", key.name),
            around => format!("of `{}` {}", key.name, said(around, "")),
        };
        found.push((place, key));
    }
    around.push(key);
    for inner in key.block.into_iter().flat_map(|block| block.keys) {
        having(name, inner, around, found);
    }
    around.pop();
}

fn in_words(places: &[String], at_top: Option<&Key>) -> Option<String> {
    let places = listed(places)?;
    let everywhere = at_top.is_some_and(|key| !key.many) && places == TOP;
    Some(format!("it belongs {places}{}", if everywhere { ", and holds for all sites" } else { "" }))
}

/// Lists places in words. `None` if there are none.
fn listed(places: &[String]) -> Option<String> {
    Some(match places {
        [] => return None,
        [one] => one.clone(),
        [some @ .., last] if places.len() <= FEW => format!("{}, or {last}", some.join(", ")),
        _ => format!("{}, or elsewhere", places[..FEW].join(", ")),
    })
}

/// The key of the module whose block is this block or contains it.
pub(crate) fn module_of(block: &'static Block, modules: &[&'static Key]) -> Option<&'static Key> {
    modules.iter().copied().find(|module| key_of(block, &[*module]).is_some())
}

/// The key whose block is this one, among these keys and the keys of their blocks.
pub(crate) fn key_of(block: &'static Block, keys: &[&'static Key]) -> Option<&'static Key> {
    keys.iter().copied().find_map(|key| {
        let inner = key.block?;
        if std::ptr::eq(inner, block) {
            return Some(key);
        }
        key_of(block, &inner.keys.iter().collect::<Vec<_>>())
    })
}

/// Asks whether one of the known keys that begin with this name was meant: `head-bytes` for `head`.
pub(crate) fn longer<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<String> {
    let begins = |known: &&str| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    let names: Vec<_> = known.filter(begins).map(|name| format!("`{name}`")).collect();
    match &names[..] {
        [] => None,
        [one] => Some(format!("did you mean {one}?")),
        [some @ .., last] => Some(format!("did you mean {} or {last}?", some.join(", "))),
    }
}

/// Asks whether a known property was meant: a similar one, or one that has the name as its beginning or its last word, as
/// `minimum` has `min` and `expect-status` has `status`.
pub(crate) fn similar_property<'k>(
    name: &str,
    known: impl Iterator<Item = &'k str> + Clone,
) -> Option<String> {
    /// Shorter names begin too many others.
    const SHORTEST: usize = 3;
    if let Some(near) = nearest(name, known.clone()) {
        return Some(format!("did you mean `{near}`?"));
    }
    let has = |known: &&str| {
        known.starts_with(name) || known.strip_suffix(name).is_some_and(|rest| rest.ends_with('-'))
    };
    let mut found = known.filter(|known| name.len() >= SHORTEST && has(known));
    let (first, second) = (found.next()?, found.next());
    Some(match second {
        None => format!("did you mean `{first}`?"),
        Some(second) => format!("did you mean `{first}` or `{second}`?"),
    })
}

/// The suggestion for `item` in the block of the node `of` if it is a property of that node's key.
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
        Some(_) => ("it belongs before the block", " { ... }"),
        None => ("it is a property", ""),
    };
    Some(format!("{place}: `{}{arguments} {name}={value}{block}`", key.name))
}

const TOP: &str = "at the top of the file";

/// Adds the places of a name within the block of `key`. `level` says in words where the outermost key belongs.
/// `level` is empty if the outermost key belongs in several places.
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

/// Describes a block by the keys around it. If the innermost key may only occur once, the key around it is
/// named, too, so that the description differs from that of other keys with the same name.
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

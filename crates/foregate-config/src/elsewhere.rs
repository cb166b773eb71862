//! Where a key stands, for who wrote it in another block.

use crate::schema::{Block, Key};

/// Places that one message may name; a key with more is too common for advice.
const FEW: usize = 3;

/// In which blocks a key of this name stands, in words; `None` where there is none, or too many to say. `root` and `modules`
/// are all keys that there are; the block is that in which it was written, with its name.
pub(crate) fn of(
    name: &str,
    (block, block_name): (&'static Block, &str),
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
    let at_top = root.keys.iter().find(|key| key.name == name);
    if at_top.is_some() {
        places.push(TOP.to_owned());
    }
    let mut around = Vec::new();
    for key in root.keys {
        find(name, key, TOP, &mut around, &mut places);
    }
    for key in modules {
        find(name, key, "", &mut around, &mut places);
    }
    match &places[..] {
        [] => None,
        [one] if at_top.is_some_and(|key| !key.many) => {
            Some(format!("it stands {one}, and holds for all sites"))
        }
        [one] => Some(format!("it stands {one}")),
        [some @ .., last] if places.len() <= FEW => Some(format!("it stands {}, or {last}", some.join(", "))),
        _ => None,
    }
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

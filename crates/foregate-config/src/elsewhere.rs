//! Where a key stands, for who wrote it in another block.

use crate::schema::{Block, Key};

/// Places that one message may name; a key with more is too common for advice.
const FEW: usize = 3;

/// In which blocks a key of this name stands, in words; `None` where there is none, or too many to say. `root` and `modules`
/// are all keys that there are.
pub(crate) fn of(name: &str, root: &'static Block, modules: &[&'static Key]) -> Option<String> {
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
    if block.keys.iter().any(|key| key.name == name) {
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

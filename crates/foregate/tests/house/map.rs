//! The map of the code, ARCHITECTURE.md: short, and as the code is.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{ALLOWED, rooms, root};

/// A map that is longer is no longer read.
const LONGEST: usize = 12 * 1024;

fn map() -> String {
    fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap()
}

/// The cells of the rows below the heading `title`, without the table's own heading.
fn rows<'a>(map: &'a str, title: &str) -> Vec<Vec<&'a str>> {
    let (_, section) = map.split_once(&format!("\n## {title}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")).skip(1);
    rows.map(|row| row.split(" | ").collect()).collect()
}

#[test]
fn the_map_is_short() {
    let length = map().len();
    assert!(length <= LONGEST, "ARCHITECTURE.md has {length} bytes of at most {LONGEST}");
}

#[test]
fn the_map_has_every_crate_and_its_arrows() {
    let map = map();
    let (mut wrong, mut above): (Vec<String>, Vec<&str>) = Default::default();
    for row in rows(&map, "Crates") {
        let name = row[0].trim_matches('`');
        let told: BTreeSet<&str> = match row[2].strip_prefix("all above but ") {
            Some(others) => {
                let others: Vec<_> = others.split(", ").collect();
                above.iter().copied().filter(|name| !others.contains(name)).collect()
            }
            None => row[2].split(", ").filter(|name| *name != "-").collect(),
        };
        let allowed = ALLOWED.iter().find(|(of, _)| *of == name).map(|(_, allowed)| *allowed);
        let allowed =
            allowed.map(|names| names.iter().filter_map(|name| name.strip_prefix("foregate-")).collect());
        if allowed.as_ref() != Some(&told) {
            wrong.push(format!("{name}: {told:?} in the map, {allowed:?} in the code"));
        }
        above.extend(name.strip_prefix("foregate-"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(rows(&map, "Crates").len(), ALLOWED.len(), "a crate is not in the map");
}

#[test]
fn the_map_has_every_folder_of_the_proxy() {
    let map = map();
    let source = root().join("crates/foregate-proxy/src");
    let entries = fs::read_dir(source).unwrap().map(|entry| entry.unwrap());
    let folders: BTreeSet<_> = entries
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    let rows = rows(&map, "Inside `foregate-proxy`");
    let told: BTreeSet<_> = rows.iter().map(|row| row[0].trim_matches(['`', '/']).to_owned()).collect();
    assert_eq!(told, folders);
}

/// The line with the rooms is their rough order: no room in it uses one that stands behind a later arrow.
#[test]
fn the_map_has_the_rooms_in_their_order() {
    let map = map();
    let (_, line) = map.split_once("From low to high:\n\n`").unwrap();
    let line = line.split('`').next().unwrap().replace('\n', " ");
    let levels: Vec<Vec<&str>> = line.split('→').map(|level| level.trim().split(", ").collect()).collect();
    for (at, level) in levels.iter().enumerate() {
        for room in level {
            let used = rooms::used_by(room);
            let wrong: Vec<_> =
                levels[at + 1..].iter().flatten().filter(|higher| used.contains(higher)).collect();
            assert!(wrong.is_empty(), "{room} uses {wrong:?}, which the map has above it");
        }
    }
}

/// Names in backticks that look like a path of the repository or of the proxy's sources.
#[test]
fn the_files_of_the_map_exist() {
    let map = map();
    let (root, source) = (root(), root().join("crates/foregate-proxy/src"));
    let missing: Vec<_> = map
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.contains('/') || Path::new(name).extension().is_some_and(|end| end == "rs"))
        .filter(|name| !name.contains([' ', '\n']))
        .filter(|name| {
            let folders = ["", "upstream", "exchange", "cache"];
            !root.join(name).exists() && !folders.iter().any(|folder| source.join(folder).join(name).exists())
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

//! The tables of docs/configuration.md are those of the table of keys, word for word.
//!
//! `UPDATE_DOCS=1 cargo test -p foregate --test reference` writes them anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at what they do not expect")]

use std::{env, fs, path::Path};

use foregate::config::schema::{Block, Key, ROOT};

/// The names of the blocks, as headings and markers say them: `listen tls` is the `tls` within `listen`.
fn blocks() -> Vec<(String, &'static Block)> {
    fn inner(name: &str, block: &'static Block, found: &mut Vec<(String, &'static Block)>) {
        for key in block.keys {
            if let Some(block) = key.block {
                // Of a route's path, only its last name: nobody says `site route`.
                let name = if key.name == "route" { "route".into() } else { format!("{name} {}", key.name) };
                let name = name.trim().to_owned();
                found.push((name.clone(), block));
                inner(&name, block, found);
            }
        }
    }
    let mut found = vec![("the file".to_owned(), &ROOT)];
    inner("", &ROOT, &mut found);
    found
}

fn table(block: &Block) -> String {
    let mut table = "| key | default | what it does |\n|---|---|---|\n".to_owned();
    for key in block.keys {
        let cells = [format!("`{}`", usage(key)), default(key), about(key)];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        table.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    table
}

fn usage(key: &Key) -> String {
    format!("{} {}", key.name, key.usage).trim().to_owned()
}

fn default(key: &Key) -> String {
    match (key.required, key.default) {
        (true, _) => "must be there".to_owned(),
        (false, "") => key.otherwise.to_owned(),
        (false, default) => format!("`{default}`"),
    }
}

fn about(key: &Key) -> String {
    let mut about = key.about.to_owned();
    for prop in key.props {
        let default = match (prop.required, prop.default) {
            (true, _) => " (must be there)".to_owned(),
            (false, "") => String::new(),
            (false, default) => format!(" (`{default}`)"),
        };
        about.push_str(&format!(" `{}={}`{default}: {}", prop.name, prop.usage, prop.about));
    }
    if key.many {
        about.push_str(" Several are allowed.");
    }
    about
}

#[test]
fn tables_are_those_of_the_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = fs::read_to_string(&path).unwrap();
    let mut updated = text.clone();
    for (name, block) in blocks() {
        let start = format!("<!-- keys of {name} -->\n");
        let Some(from) = updated.find(&start).map(|at| at + start.len()) else {
            panic!("docs/configuration.md has no place for the keys of {name}: {start}<!-- end -->");
        };
        let length = updated[from..].find("<!-- end -->").expect("each table has an end");
        updated.replace_range(from..from + length, &table(block));
    }
    if updated != text {
        assert!(
            env::var_os("UPDATE_DOCS").is_some(),
            "docs/configuration.md is behind the table of keys; UPDATE_DOCS=1 writes it anew"
        );
        fs::write(&path, updated).unwrap();
    }
}

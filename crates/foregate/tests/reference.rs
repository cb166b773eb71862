//! The tables of docs/configuration.md and docs/module-keys.md are those of the tables of keys, word for word.
//!
//! `UPDATE_DOCS=1 cargo test -p foregate --test reference` writes them anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at what they do not expect")]

use std::{env, fs, path::Path};

use foregate::config::schema::{Block, GENERIC, Key, ROOT, walk_keys};

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
    let mut table = "| key | default | effect |\n|---|---|---|\n".to_owned();
    for key in block.keys {
        table.push_str(&row(&[format!("`{}`", usage(key)), default(key), about(key)]));
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
    hold(&path, &text, &updated);
}

/// The table of docs/guide/nginx-directives.md, from the table of the messages.
#[test]
fn directives_of_nginx_have_the_advice_of_messages() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/nginx-directives.md");
    let text = fs::read_to_string(&path).unwrap();
    let directives = foregate_config::foreign::nginx_directives();
    assert!(directives.len() > 100, "{}", directives.len());
    let mut updated = "| NGINX | Foregate |\n|---|---|\n".to_owned();
    for (directive, advice) in directives {
        updated.push_str(&row(&[format!("`{directive}`"), advice]));
    }
    let at = text.find("| NGINX |").expect("the page has a table");
    updated.insert_str(0, &text[..at]);
    hold(&path, &text, &updated);
}

/// The list of jobs at the top of docs/how-do-i.md, a line for each section.
#[test]
fn the_list_of_jobs_is_that_of_the_headings() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-do-i.md");
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        if let Some(section) = line.strip_prefix("## ") {
            lines.push(format!("- {section}:"));
        } else if let (Some(job), Some(last)) = (line.strip_prefix("### "), lines.last_mut()) {
            let between = if last.ends_with(':') { " " } else { ", " };
            last.push_str(&format!("{between}[{}](#{})", in_sentence(job), anchor(job)));
        }
    }
    let list: String = lines.iter().map(|line| format!("{line}.\n")).collect();
    let from = text.find("\n- ").expect("the page has the list") + 1;
    let to = text.find("\n## ").expect("the page has sections");
    let updated = format!("{}{list}{}", &text[..from], &text[to..]);
    hold(&path, &text, &updated);
}

/// A heading without its capital letter, unless its first word has others.
fn in_sentence(heading: &str) -> String {
    let first = heading.split(' ').next().unwrap_or_default();
    match first.chars().skip(1).any(char::is_uppercase) {
        true => heading.to_owned(),
        false => {
            heading.chars().take(1).flat_map(char::to_lowercase).chain(heading.chars().skip(1)).collect()
        }
    }
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

/// Writes the updated file, or reports that it differs.
fn hold(path: &Path, text: &str, updated: &str) {
    if updated != text {
        assert!(
            env::var_os("UPDATE_DOCS").is_some(),
            "{} is behind the table of keys; UPDATE_DOCS=1 writes it anew",
            path.display()
        );
        fs::write(path, updated).unwrap();
    }
}

/// The text above the tables of modules.
const ABOVE: &str = "\
# Keys of modules

These keys belong at the top of the file, in a `site`, or in a `route`. A key that is allowed once counts where it is
innermost: that of a route replaces that of its site. Keys of which several are allowed add up, the outermost first. `KEY #false`
turns off the keys of outer blocks. `foregate modules KEY` prints the same text, with the steps that the key turns on.

Keys that are allowed once have these properties in addition to their own:

";

/// The reference of all modules that ship, made from their tables.
#[test]
fn the_reference_of_modules_is_that_of_their_keys() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/module-keys.md");
    let mut updated = format!("{ABOVE}| property | default | effect |\n|---|---|---|\n");
    for prop in GENERIC {
        let default = if prop.default.is_empty() { String::new() } else { format!("`{}`", prop.default) };
        let cells = [format!("`{}={}`", prop.name, prop.usage), default, prop.about.to_owned()];
        updated.push_str(&row(&cells));
    }
    let mut keys: Vec<_> = foregate::shipped().keys().into_iter().map(|(key, _)| key).collect();
    keys.sort_by_key(|key| key.name);
    for key in keys {
        // Where an example is too long for a line.
        let example = foregate::config::format(Path::new("example.kdl"), key.example);
        let example = example.unwrap_or_else(|refused| panic!("{}: {}", key.name, refused.plain()));
        updated.push_str(&format!("\n## `{}`\n\n```kdl module\n{example}```\n\n", key.name));
        updated.push_str("| key | default | effect |\n|---|---|---|\n");
        walk_keys([key], &mut |path, key| {
            let outer = path.split_last().map(|(_, outer)| outer.join(" ")).unwrap_or_default();
            let usage = format!("{outer} {}", usage(key)).trim().to_owned();
            updated.push_str(&row(&[format!("`{usage}`"), default(key), about(key)]));
        });
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    hold(&path, &text, &updated);
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>().join(" | "))
}

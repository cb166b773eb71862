//! `foregate check --show-defaults`.

use foregate::config::schema::{self, Key};
use serde::Serialize;

use super::output::{print, print_json};

/// One key for machines.
#[derive(Debug, Serialize)]
struct Shown {
    key: String,
    usage: &'static str,
    default: &'static str,
    about: &'static str,
}

pub(super) fn show(json: bool) {
    let mut shown = Vec::new();
    schema::walk(&mut |path, key| {
        shown.push(Shown { key: path.join(" "), usage: key.usage, default: default(key), about: key.about });
    });
    if json {
        print_json(&shown);
        return;
    }
    let width = shown.iter().map(|shown| shown.key.len()).max().unwrap_or_default();
    let mut text = String::new();
    for Shown { key, default, .. } in &shown {
        let default = if default.is_empty() { "-" } else { default };
        text.push_str(&format!("{key:width$}  {default}\n"));
    }
    print(&text);
}

/// What holds without the key, as it is written or in words.
fn default(key: &Key) -> &'static str {
    if key.default.is_empty() { key.otherwise } else { key.default }
}

//! `foregate check --show-defaults`.

use foregate_module::Pipeline;
use serde::Serialize;

use super::output::{print, print_json};
use crate::config::schema::{self, Key};

/// A key, or a property of a key, for the output in JSON.
#[derive(Debug, Serialize)]
struct DefaultKey {
    /// The key, after the keys of the blocks around it; a property ends with `=`.
    key: String,
    usage: &'static str,
    default: &'static str,
    about: &'static str,
    /// Set if a module defines the key; such a key may be at the top of the file, in a site, and in a route.
    module: bool,
}

pub(super) fn show(pipeline: &Pipeline, json: bool) {
    let mut shown = Vec::new();
    let mut add = |path: &schema::Path, key: &'static Key, module| {
        let (name, default) = (path.join(" "), default(key));
        let props = key.props.iter().map(|prop| DefaultKey {
            key: format!("{name} {}=", prop.name),
            usage: prop.usage,
            default: prop.default,
            about: prop.about,
            module,
        });
        let props: Vec<_> = props.collect();
        shown.push(DefaultKey { key: name, usage: key.usage, default, about: key.about, module });
        shown.extend(props);
    };
    schema::walk(&mut |path, key| add(path, key, false));
    schema::walk_keys(pipeline.keys().into_iter().map(|(key, _)| key), &mut |path, key| add(path, key, true));
    if json {
        print_json(&shown);
        return;
    }
    let width = shown.iter().map(|shown| shown.key.len()).max().unwrap_or_default();
    let mut text = String::new();
    for DefaultKey { key, default, .. } in &shown {
        let default = if default.is_empty() { "-" } else { default };
        text.push_str(&format!("{key:width$}  {default}\n"));
    }
    print(&text);
}

/// The default of the key, as a value or in words.
fn default(key: &Key) -> &'static str {
    if key.default.is_empty() { key.otherwise } else { key.default }
}

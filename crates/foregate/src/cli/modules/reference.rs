//! The reference of a module's key.

use foregate_module::Key;
use serde::Serialize;

use crate::config::schema::GENERIC;

/// The description of a key, for the output in JSON.
#[derive(Debug, Serialize)]
pub(super) struct KeyDescription {
    name: &'static str,
    usage: &'static str,
    about: &'static str,
    example: &'static str,
    /// The default, as a value or in words.
    default: &'static str,
    many: bool,
    required: bool,
    properties: Vec<Property>,
    block: Vec<KeyDescription>,
}

#[derive(Debug, Serialize)]
struct Property {
    name: &'static str,
    usage: &'static str,
    about: &'static str,
    default: &'static str,
    required: bool,
}

/// Describes a module's key, with the properties that all such keys have.
pub(super) fn key(key: &'static Key) -> KeyDescription {
    let mut shown = inner(key);
    if !key.many {
        shown.properties.extend(GENERIC.iter().map(property));
    }
    shown
}

fn inner(key: &'static Key) -> KeyDescription {
    KeyDescription {
        name: key.name,
        usage: key.usage,
        about: key.about,
        example: key.example,
        default: if key.default.is_empty() { key.otherwise } else { key.default },
        many: key.many,
        required: key.required,
        properties: key.props.iter().map(property).collect(),
        block: key.block.into_iter().flat_map(|block| block.keys).map(inner).collect(),
    }
}

fn property(prop: &'static foregate_module::settings::Prop) -> Property {
    let foregate_module::settings::Prop { name, usage, about, default, required } = *prop;
    Property { name, usage, about, default, required }
}

/// The text for people.
pub(super) fn text(of: &'static Key) -> String {
    let mut text = String::new();
    let shown = key(of);
    add(&shown, 0, &mut text);
    text.push_str(&format!("\nexample\n  {}\n", shown.example.replace('\n', "\n  ")));
    text
}

fn add(key: &KeyDescription, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    let usage = format!("{} {}", key.name, key.usage);
    let many = if key.many { " Several are allowed." } else { "" };
    let otherwise = match (key.required, key.default) {
        (true, _) => " It must be there.".to_owned(),
        (false, "") => String::new(),
        (false, default) => format!(" Without it: {default}."),
    };
    text.push_str(&format!("{indent}{}\n{indent}  {}{many}{otherwise}\n", usage.trim(), key.about));
    for property in &key.properties {
        let Property { name, usage, about, .. } = property;
        let default = match (property.required, property.default) {
            (true, _) => " It must be there.".to_owned(),
            (false, "") => String::new(),
            (false, default) => format!(" Without it: {default}."),
        };
        text.push_str(&format!("{indent}  {name}={usage}\n{indent}    {about}{default}\n"));
    }
    for inner in &key.block {
        add(inner, depth + 1, text);
    }
}

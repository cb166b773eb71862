//! The schemas of arguments and properties, made from their usage in the table of keys.

use serde_json::{Value, json};

use super::is_open;
use crate::config::blocks::argument_words;
use crate::config::schema::{Key, Prop};

/// The pattern of a reference to the environment or to a file; its value is not known here.
const REFERENCE: &str = r"\$\{(env|file):";
const DURATION: &str = r"^([0-9]+(ms|s|m|h|d))+$|\$\{(env|file):";
const SIZE: &str = r"^[0-9_]+\s*([kKMG]?B|[KMGT]iB)?$|\$\{(env|file):";
const NUMBER: &str = r"^\+?[0-9][0-9_a-zA-Z.]*$|\$\{(env|file):";

/// The words in a usage that stand for any text.
const TEXTS: [&str; 11] = [
    "NAME",
    "FILE",
    "FOLDER",
    "PATH",
    "URL",
    "HOST",
    "ADDRESS",
    "EXPRESSION",
    "UPSTREAM",
    "PATTERN",
    "SOURCE",
];

/// The schema of a value of any type.
pub(super) fn any() -> Value {
    json!({ "type": ["string", "number", "boolean", "null"] })
}

/// The schema of a key's arguments.
pub(super) fn arguments(key: &Key) -> Value {
    let (least, most) = key.args;
    let mut schema = json!({ "type": "array", "minItems": least });
    if !is_open(most) {
        schema["maxItems"] = most.into();
    }
    let words = argument_words(key.usage);
    let (fixed, rest) = match words.split_last() {
        Some((last, fixed)) if is_open(most) => match last.strip_suffix("...") {
            Some(last) => (fixed, Some(last)),
            None => return schema,
        },
        _ => (&words[..], None),
    };
    // If the usage does not list the arguments one by one, their types are unknown.
    if rest.is_none() && fixed.len() != usize::from(most) {
        return schema;
    }
    let first: Vec<Value> = fixed.iter().map(|word| value(word)).collect();
    if !first.is_empty() {
        schema["prefixItems"] = first.into();
    }
    if let Some(rest) = rest {
        schema["items"] = value(rest);
    }
    schema
}

/// The schema of a property.
pub(super) fn property(prop: &Prop) -> Value {
    let mut schema = value(prop.usage.trim_start_matches('[').trim_end_matches(']'));
    schema["description"] = prop.about.into();
    if let Some(default) = default(prop.default) {
        schema["default"] = default;
    }
    schema
}

/// The default of a property in JSON; `None` if the default is described in words.
fn default(text: &str) -> Option<Value> {
    match text {
        "#true" => Some(true.into()),
        "#false" => Some(false.into()),
        _ if text.starts_with(|c: char| c == '"' || c.is_ascii_digit()) => serde_json::from_str(text).ok(),
        _ => None,
    }
}

/// The schema of the values for which a word in a usage stands. An unknown word allows all values.
fn value(usage: &str) -> Value {
    let alternatives: Vec<&str> = usage.split('|').collect();
    if alternatives.iter().all(|word| matches!(*word, "#true" | "#false")) {
        return json!({ "type": "boolean" });
    }
    let quoted = |word: &&str| word.strip_prefix('"')?.strip_suffix('"').map(str::to_owned);
    let is_constant =
        |text: &String| text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    let constants: Option<Vec<String>> =
        alternatives.iter().map(|word| quoted(word).filter(is_constant)).collect();
    if let Some(constants) = constants.filter(|constants| constants.len() > 1) {
        return json!({ "anyOf": [{ "enum": constants }, { "type": "string", "pattern": REFERENCE }] });
    }
    match alternatives[..] {
        ["DURATION"] => json!({ "type": "string", "pattern": DURATION }),
        ["SIZE"] => json!({ "type": ["integer", "string"], "minimum": 0, "pattern": SIZE }),
        ["NUMBER"] => json!({ "type": ["number", "string"], "minimum": 0, "pattern": NUMBER }),
        [word] if TEXTS.contains(&word) => json!({ "type": "string" }),
        _ => json!({ "$ref": "#/$defs/value" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usages_have_the_types_of_their_words() {
        assert_eq!(value("#true|#false"), json!({ "type": "boolean" }));
        assert_eq!(value("\"1.2\"|\"1.3\"")["anyOf"][0], json!({ "enum": ["1.2", "1.3"] }));
        assert_eq!(value("\"NAME\"|\"NAME=VALUE\""), json!({ "$ref": "#/$defs/value" }));
        assert_eq!(default("\"1h\""), Some("1h".into()));
        assert_eq!(default("no signature"), None);
    }
}

//! Differences of two JSON documents by path.

use serde_json::Value;

/// The most differences that are reported for two documents.
const MOST: usize = 20;

/// One difference: its path, and both values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JsonDifference {
    /// The path without the indices of arrays, so that the elements of one array count together.
    pub general: String,
    /// The exact path.
    pub exact: String,
    /// The old value; `None` if it is missing.
    pub old: Option<Value>,
    pub new: Option<Value>,
}

/// The differences, in the order of the old document; at most 20.
pub(crate) fn differences(old: &Value, new: &Value) -> Vec<JsonDifference> {
    let mut found = Vec::new();
    walk(("$".to_owned(), "$".to_owned()), Some(old), Some(new), &mut found);
    found
}

fn walk(at: (String, String), old: Option<&Value>, new: Option<&Value>, found: &mut Vec<JsonDifference>) {
    if found.len() >= MOST {
        return;
    }
    match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let added = new.keys().filter(|name| !old.contains_key(*name));
            for name in old.keys().chain(added) {
                let step = member(name);
                let at = (format!("{}{step}", at.0), format!("{}{step}", at.1));
                walk(at, old.get(name), new.get(name), found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for index in 0..old.len().max(new.len()) {
                let at = (format!("{}[*]", at.0), format!("{}[{index}]", at.1));
                walk(at, old.get(index), new.get(index), found);
            }
        }
        (Some(old), Some(new)) if same(old, new) => {}
        (old, new) => {
            let (general, exact) = at;
            found.push(JsonDifference { general, exact, old: old.cloned(), new: new.cloned() });
        }
    }
}

/// Compares two values. Numbers are equal if they have the same value, however they are written.
fn same(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || a.as_f64().is_some() && a.as_f64() == b.as_f64() && !(a.is_u64() && b.is_u64())
        }
        _ => old == new,
    }
}

/// The part of a path that leads to a member of an object.
fn member(name: &str) -> String {
    let plain = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if plain { format!(".{name}") } else { format!("[{}]", Value::String(name.to_owned())) }
}

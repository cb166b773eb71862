//! Advice for values that are written as properties.

use crate::foreign::is_spelling_of;
use crate::load::Item;
use crate::schema::Key;

/// Other names of values without a name: the key, these names, and the word in the key's usage.
const NAMES: &[(&str, &[&str], &str)] = &[
    ("access-log", &["file", "path"], "TARGET"),
    ("mirror", &["to", "target"], "UPSTREAM"),
    ("proxy", &["to", "target"], "UPSTREAM"),
    ("respond", &["text", "message", "content", "html"], "BODY"),
    ("respond", &["code"], "STATUS"),
    ("server", &["addr", "host"], "ADDRESS"),
];

/// The longest text of a value in a message, in characters.
const SHOWN_MOST: usize = 40;

/// The words for values without a name in the usage of a key: `STATUS` and `BODY` in `STATUS [BODY]`.
fn words(key: &Key) -> Vec<&'static str> {
    key.usage
        .split_whitespace()
        .take_while(|word| !word.contains(['=', '{']))
        .map(|word| word.trim_matches(['[', ']', '.']))
        .filter(|word| word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-'))
        .collect()
}

/// The number of the value that a property of this name stands for.
fn number_of(key: &Key, words: &[&str], name: &str) -> Option<usize> {
    let other = NAMES.iter().find(|(of, names, _)| *of == key.name && names.contains(&name));
    words.iter().position(|word| match other {
        Some((_, _, meant)) => word == meant,
        None => is_spelling_of(word, name),
    })
}

/// The suggestion for a node with a property that is a value without a name: the node as it has to be. `None` if `name` is
/// no such property.
pub(crate) fn as_value(key: &Key, item: Item<'_>, name: &str) -> Option<String> {
    let words = words(key);
    number_of(key, &words, name)?;
    let mut values: Vec<Option<&str>> = vec![None; words.len()];
    let mut unnamed = Vec::new();
    for entry in item.node.entries() {
        let source = item.source_of(entry.span());
        match entry.key() {
            None => unnamed.push(source),
            Some(name) => {
                let Some(number) = number_of(key, &words, name) else { continue };
                *values.get_mut(number)? = Some(source);
            }
        }
    }
    let mut unnamed = unnamed.into_iter();
    let mut shown = key.name.to_owned();
    for (number, (value, word)) in values.into_iter().zip(words).enumerate() {
        let is_needed = number < usize::from(key.args.0);
        let Some(value) = value.or_else(|| unnamed.next()).or(is_needed.then_some(word)) else { continue };
        let is_shown = value.chars().count() <= SHOWN_MOST && key.secrets.is_empty();
        shown.push(' ');
        shown.push_str(if is_shown { value } else { word });
    }
    Some(format!("write it as a value without a name: `{shown}`"))
}

/// Returns true if the node has a property that is a value without a name.
pub(crate) fn has_named_value(key: &Key, item: Item<'_>) -> bool {
    let words = words(key);
    let mut names = item.node.entries().filter_map(|entry| entry.key());
    let is_known = |name: &str| key.props.iter().any(|prop| prop.name == name);
    names.any(|name| !is_known(name) && number_of(key, &words, name).is_some())
}

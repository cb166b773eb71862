//! Writes a configuration in its JSON form, which [`super::json`] reads.

use serde_json::Value;

use super::document::{EntryRef, NodeRef, ScalarKind, Siblings};

/// Spaces for each level of blocks.
const INDENT: usize = 2;

/// The JSON form of these nodes. A node without a block takes one line. Comments are lost.
pub(super) fn write(roots: Siblings<'_>) -> String {
    let mut text = String::new();
    nodes(roots, 0, &mut text);
    text.push('\n');
    text
}

fn nodes(siblings: Siblings<'_>, depth: usize, text: &mut String) {
    text.push('[');
    let mut between = "\n";
    for sibling in siblings {
        text.push_str(between);
        text.push_str(&" ".repeat((depth + 1) * INDENT));
        node(sibling, depth + 1, text);
        between = ",\n";
    }
    if between != "\n" {
        text.push('\n');
        text.push_str(&" ".repeat(depth * INDENT));
    }
    text.push(']');
}

fn node(node: NodeRef<'_>, depth: usize, text: &mut String) {
    text.push_str(&format!("{{\"name\": {}", Value::from(node.name())));
    let args: Vec<String> = node.entries().filter(|entry| entry.key().is_none()).map(value).collect();
    if !args.is_empty() {
        text.push_str(&format!(", \"args\": [{}]", args.join(", ")));
    }
    let prop = |entry: EntryRef<'_>| Some(format!("{}: {}", Value::from(entry.key()?), value(entry)));
    let props: Vec<String> = node.entries().filter_map(prop).collect();
    if !props.is_empty() {
        text.push_str(&format!(", \"props\": {{{}}}", props.join(", ")));
    }
    if node.children().next().is_some() {
        text.push_str(", \"children\": ");
        nodes(node.children(), depth, text);
    }
    text.push('}');
}

fn value(entry: EntryRef<'_>) -> String {
    match entry.kind() {
        ScalarKind::Bool(value) => value.to_string(),
        ScalarKind::Null => "null".to_owned(),
        // Numbers may be in quotes.
        ScalarKind::Number => number(entry.text()).unwrap_or_else(|| Value::from(entry.text()).to_string()),
        ScalarKind::String => Value::from(entry.text()).to_string(),
    }
}

/// A number in the syntax of JSON. `None` if JSON has no such number, as for `#inf`.
fn number(text: &str) -> Option<String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.replace('_', "");
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = digits.strip_prefix(prefix) {
            return u64::from_str_radix(digits, radix).ok().map(|number| format!("{sign}{number}"));
        }
    }
    let whole = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let zeros =
        digits[..whole].len().checked_sub(1)?.min(digits[..whole].bytes().take_while(|b| *b == b'0').count());
    Some(format!("{sign}{}", &digits[zeros..]))
}

#[cfg(test)]
mod tests {
    use super::super::document::same;
    use super::super::{json, kdl};
    use super::*;

    #[test]
    fn the_json_form_is_the_same_tree() {
        let source = r##"listen ":8080" { http2 #false; }
site "a.example" "b\"\\é\n" {
    route #"/"x""# { respond 200 "ok\n" type="text/plain"; cache #null; }
}
empty { }
"##;
        let read = kdl::read(source.to_owned()).unwrap();
        let written = write(read.roots());
        let again = json::read(written.clone()).unwrap();
        assert!(same(&read, &again), "{written}");
        assert!(
            written
                .contains(r#"{"name": "respond", "args": [200, "ok\n"], "props": {"type": "text/plain"}}"#)
        );
        assert_eq!(write(kdl::read(String::new()).unwrap().roots()), "[]\n");
    }

    #[test]
    fn numbers_are_those_of_json() {
        for (kdl, json) in [
            ("10_000", Some("10000")),
            ("0x1F", Some("31")),
            ("-0b11", Some("-3")),
            ("+5", Some("5")),
            ("007", Some("7")),
            ("0", Some("0")),
            ("00.5", Some("0.5")),
            ("-0.5e3", Some("-0.5e3")),
            ("#inf", None),
            ("#nan", None),
            ("0xFFFFFFFFFFFFFFFFFF", None),
        ] {
            assert_eq!(number(kdl).as_deref(), json, "{kdl}");
        }
    }
}

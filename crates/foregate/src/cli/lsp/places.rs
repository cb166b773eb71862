//! Definitions, the outline of a file, and its formatting.

use std::path::Path;

use foregate_config::{CursorSpot, INCLUDE, Item, Problems, Span, Tree, cursor, expand};
use serde_json::{Value, json};

use super::Session;
use super::files::{LineStarts, uri_of};
use crate::config;

/// The numbers of the protocol for the kinds of symbols.
const MODULE: u8 = 2;
const PROPERTY: u8 = 7;

impl Session {
    /// The node that a name refers to, or the files of an `include`.
    pub(super) fn definition(&self, params: &Value) -> Option<Value> {
        let (path, file) = self.file(params)?;
        let (_, _, at) = self.place(params)?;
        let place = cursor(&file.text, at);
        let written = file.text.get(place.span.start as usize..place.span.end())?;
        let value = written.trim_matches(['#', '"']);
        match &place.spot {
            CursorSpot::Argument { node, .. } if node == INCLUDE => {
                let pattern = path.parent()?.join(value);
                let files = expand(&pattern).ok()?;
                let start = json!({ "line": 0, "character": 0 });
                let range = json!({ "start": start, "end": start });
                let locations = files.iter().map(|file| json!({ "uri": uri_of(file), "range": range }));
                return Some(locations.collect());
            }
            CursorSpot::Argument { node, .. } | CursorSpot::Value { node, .. } => {
                let block = self.keys.within(place.path.iter().map(String::as_str))?;
                let key = self.keys.find(block, node)?.key;
                let is_upstream = match &place.spot {
                    CursorSpot::Value { name, .. } => name == "upstream",
                    _ => key.usage.starts_with("UPSTREAM"),
                };
                if is_upstream {
                    return self.named("upstream", value);
                }
            }
            _ => return None,
        }
        self.named("list", list_at(written, at - place.span.start as usize)?)
    }

    fn named(&self, key: &str, name: &str) -> Option<Value> {
        let found = self.named.iter().find(|named| named.key == key && named.name == name)?;
        Some(found.location.clone())
    }

    /// The outline of a file; `None` while the file has a syntax error.
    pub(super) fn symbols(&self, params: &Value) -> Option<Value> {
        let (path, file) = self.file(params)?;
        let mut problems = Problems::default();
        let tree = Tree::read_syntax(&path, file.text.clone(), &mut problems);
        let lines = LineStarts::new(&file.text, self.encoding);
        problems.is_empty().then(|| tree.roots().into_iter().map(|item| symbol(item, &lines)).collect())
    }

    /// The edits that format a file; `None` while the file has a syntax error.
    pub(super) fn formatted(&self, params: &Value) -> Option<Value> {
        let (path, file) = self.file(params)?;
        if path.extension().is_some_and(|extension| extension == "json") {
            return None;
        }
        let text = config::format(Path::new(&path), &file.text).ok()?;
        let lines = LineStarts::new(&file.text, self.encoding);
        let whole = json!({ "start": lines.position(0), "end": lines.position(file.text.len()) });
        Some(json!([{ "range": whole, "newText": text }]))
    }
}

/// The name of the list with its `$NAME` at this byte of an expression.
fn list_at(expression: &str, at: usize) -> Option<&str> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let before = expression.get(..at)?.trim_end_matches(is_of_name);
    let before = before.strip_suffix('$').unwrap_or(before);
    let name = expression.get(before.len()..)?.strip_prefix('$')?;
    Some(&name[..name.find(|c| !is_of_name(c)).unwrap_or(name.len())])
}

fn symbol(item: Item<'_>, lines: &LineStarts<'_>) -> Value {
    let node = item.node;
    let arguments = node.entries().filter(|entry| entry.key().is_none());
    let arguments: Vec<&str> = arguments.map(|entry| item.source_of(entry.span())).collect();
    let children: Vec<Value> = item.children().into_iter().map(|child| symbol(child, lines)).collect();
    json!({
        "name": node.name(),
        "detail": arguments.join(" "),
        "kind": if children.is_empty() { PROPERTY } else { MODULE },
        "range": json!({ "start": lines.position(node.span().start as usize), "end": lines.position(end(item)) }),
        "selectionRange": lines.range(node.span()),
        "children": children,
    })
}

/// The end of the last part of a node.
fn end(item: Item<'_>) -> usize {
    let entries = item.node.entries().map(|entry| entry.span());
    let own = entries.chain([item.node.span()]).map(Span::end).max().unwrap_or_default();
    item.children().into_iter().map(end).max().unwrap_or_default().max(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_under_the_cursor_is_found() {
        let text = "ip.src in $office or ip.src in $home";
        for at in [text.find("$off").unwrap(), text.find("office").unwrap() + 2, text.find(" or").unwrap()] {
            assert_eq!(list_at(text, at), Some("office"), "{at}");
        }
        assert_eq!(list_at(text, text.len()), Some("home"));
        assert_eq!(list_at(text, 3), None);
    }
}

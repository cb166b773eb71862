//! Completion and hover, from the table of keys.

use foregate_config::{Cursor, CursorSpot, cursor};
use serde_json::{Value, json};

use super::files::LineStarts;
use super::{OpenFile, Session};
use crate::config::blocks::{KeyChoice, argument_words};
use crate::config::schema::{Block, Prop};

/// The protocol's numbers for the kinds of completion.
const FIELD: u8 = 5;
const VALUE: u8 = 12;
const KEYWORD: u8 = 14;
const REFERENCE: u8 = 18;

/// One choice of a completion.
struct Choice {
    text: String,
    kind: u8,
    detail: String,
    about: String,
}

impl Session {
    pub(super) fn completion(&self, params: &Value) -> Option<Value> {
        let (file, lines, at) = self.place(params)?;
        let place = cursor(&file.text, at);
        let block = self.keys.within(place.path.iter().map(String::as_str))?;
        let choices = self.choices(block, &place);
        let range = lines.range(place.span);
        let items: Vec<Value> = choices
            .into_iter()
            .map(|choice| {
                json!({
                    "label": choice.text,
                    "kind": choice.kind,
                    "detail": choice.detail,
                    "documentation": { "kind": "markdown", "value": choice.about },
                    "filterText": choice.text,
                    "textEdit": { "range": range, "newText": choice.text },
                })
            })
            .collect();
        Some(items.into())
    }

    fn choices(&self, block: &'static Block, place: &Cursor) -> Vec<Choice> {
        match &place.spot {
            CursorSpot::Comment => Vec::new(),
            CursorSpot::Name => {
                let may_stand = |choice: &KeyChoice| {
                    choice.key.many || !place.before.iter().any(|name| name == choice.key.name)
                };
                self.keys.of(block).into_iter().filter(may_stand).map(of_key).collect()
            }
            CursorSpot::Argument { node, number, props } => {
                let Some(choice) = self.keys.find(block, node) else { return Vec::new() };
                let words = argument_words(choice.key.usage);
                let word = words.get(*number).or_else(|| words.last().filter(|word| word.ends_with("...")));
                let mut choices = word
                    .map_or(Vec::new(), |word| self.values(word.trim_end_matches("..."), choice.key.about));
                let is_new = |prop: &&Prop| !props.iter().any(|name| name == prop.name);
                choices.extend(choice.props().filter(is_new).map(|prop| of_prop(prop, "=")));
                choices
            }
            CursorSpot::Property { node, .. } => {
                let choice = self.keys.find(block, node);
                choice.iter().flat_map(|choice| choice.props()).map(|prop| of_prop(prop, "")).collect()
            }
            CursorSpot::Value { node, name } => {
                let choice = self.keys.find(block, node);
                let prop = choice.iter().flat_map(|choice| choice.props()).find(|prop| prop.name == name);
                let usage = |prop: &Prop| if prop.name == "upstream" { "UPSTREAM" } else { prop.usage };
                prop.map_or(Vec::new(), |prop| self.values(usage(prop), prop.about))
            }
        }
    }

    /// The values for which a word in a key's usage stands.
    fn values(&self, usage: &'static str, about: &str) -> Vec<Choice> {
        let choice =
            |text: String, kind| Choice { text, kind, detail: String::new(), about: about.to_owned() };
        if usage == "UPSTREAM" {
            let upstreams = self.named.iter().filter(|named| named.key == "upstream");
            return upstreams.map(|named| choice(format!("{:?}", named.name), REFERENCE)).collect();
        }
        let is_value = |word: &&str| {
            word.starts_with(|c: char| c == '#' || c.is_ascii_digit())
                || word
                    .strip_prefix('"')
                    .is_some_and(|word| word.starts_with(|c: char| !c.is_ascii_uppercase()))
        };
        usage.split('|').filter(is_value).map(|word| choice(word.to_owned(), VALUE)).collect()
    }

    pub(super) fn hover(&self, params: &Value) -> Option<Value> {
        let (file, lines, at) = self.place(params)?;
        let place = cursor(&file.text, at);
        let block = self.keys.within(place.path.iter().map(String::as_str))?;
        let about = match &place.spot {
            CursorSpot::Comment => return None,
            CursorSpot::Name => {
                let name = file.text.get(place.span.start as usize..place.span.end())?;
                key_text(self.keys.find(block, name.trim_matches('"'))?)
            }
            CursorSpot::Argument { node, .. } if place.span.len > 0 => key_text(self.keys.find(block, node)?),
            CursorSpot::Argument { .. } => return None,
            CursorSpot::Property { node, name } | CursorSpot::Value { node, name } => {
                let choice = self.keys.find(block, node)?;
                prop_text(choice.props().find(|prop| prop.name == name)?)
            }
        };
        Some(json!({ "contents": { "kind": "markdown", "value": about }, "range": lines.range(place.span) }))
    }

    /// The file and the byte offset of a request's cursor.
    pub(super) fn place(&self, params: &Value) -> Option<(&OpenFile, LineStarts<'_>, usize)> {
        let (path, file) = self.file(params)?;
        // Completion and hover understand KDL only.
        if path.extension().is_some_and(|extension| extension == "json") {
            return None;
        }
        let lines = LineStarts::new(&file.text, self.encoding);
        let at = lines.offset(params.get("position")?)?;
        Some((file, lines, at))
    }
}

fn of_key(choice: KeyChoice) -> Choice {
    let detail =
        if choice.of_module { format!("{} (module)", choice.key.usage) } else { choice.key.usage.to_owned() };
    Choice { text: choice.key.name.to_owned(), kind: KEYWORD, detail, about: key_text(choice) }
}

fn of_prop(prop: &Prop, behind: &str) -> Choice {
    Choice {
        text: format!("{}{behind}", prop.name),
        kind: FIELD,
        detail: prop.usage.to_owned(),
        about: prop_text(prop),
    }
}

/// The documentation of a key in Markdown.
fn key_text(choice: KeyChoice) -> String {
    let key = choice.key;
    let mut text = format!("```kdl\n{} {}\n```\n\n{}", key.name, key.usage, key.about);
    if key.many {
        text.push_str(" Several are allowed.");
    }
    match (key.required, key.default, key.otherwise) {
        (true, ..) => text.push_str("\n\nIt must be there."),
        (false, "", "") => {}
        (false, "", words) => text.push_str(&format!("\n\nDefault: {words}.")),
        (false, default, _) => text.push_str(&format!("\n\nDefault: `{default}`.")),
    }
    for prop in choice.props() {
        text.push_str(&format!("\n\n- `{}={}`: {}", prop.name, prop.usage, prop.about));
    }
    text.push_str(&format!("\n\n```kdl\n{}\n```\n", key.example));
    text
}

fn prop_text(prop: &Prop) -> String {
    let default = match (prop.required, prop.default) {
        (true, _) => "\n\nIt must be there.".to_owned(),
        (false, "") => String::new(),
        (false, default) => format!("\n\nDefault: `{default}`."),
    };
    format!("```kdl\n{}={}\n```\n\n{}{default}", prop.name, prop.usage, prop.about)
}

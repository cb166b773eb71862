//! `foregate schema`: the JSON Schema of the JSON form of the configuration, made from the table of keys.

mod values;

use clap::Args;
use foregate_module::Pipeline;
use serde_json::{Map, Value, json};

use super::output::{Outcome, complain, print_json};
use crate::config::blocks::{BlockKeys, KeyChoice};
use crate::config::schema::{ANY, Block, INCLUDE_KEY, ROOT};

#[derive(Debug, Args)]
pub(super) struct Schema {
    /// For a file that another one includes in this block, such as `file`, `site`, `route` or `listen tls`
    #[arg(long, value_name = "BLOCK")]
    included_in: Option<String>,
}

impl Schema {
    pub(super) fn run(&self, pipeline: &Pipeline) -> Outcome {
        let keys = BlockKeys::new(pipeline);
        let names = match self.included_in.as_deref() {
            None | Some("file") => Vec::new(),
            Some(block) => {
                let names: Vec<&str> = block.split_whitespace().collect();
                if names.first() == Some(&"route") { [&["site"], &names[..]].concat() } else { names }
            }
        };
        let Some(block) = keys.within(names.iter().copied()) else {
            complain(&format!(
                "there is no block `{}`; name it with those around it, such as `site`, `route`, `listen tls` or `file`",
                names.join(" ")
            ));
            return Outcome::Usage;
        };
        print_json(&schema(&keys, block, self.included_in.is_some()));
        Outcome::Fine
    }
}

/// The whole schema. If `part` is set, the file is included by another one, so no key is required.
fn schema(keys: &BlockKeys, block: &'static Block, part: bool) -> Value {
    let mut writer = SchemaWriter { keys, blocks: Vec::new(), definitions: Map::new() };
    writer.definitions.insert("value".to_owned(), values::any());
    let name = writer.block(block, if std::ptr::eq(block, &ROOT) { "file" } else { "part" });
    let mut required = Vec::new();
    if !part {
        required = required_keys(block);
    }
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of Foregate",
        "description": "The JSON form: an array of nodes. `foregate check` finds more errors than a schema can.",
        "$ref": format!("#/$defs/{name}"),
    });
    if !required.is_empty() {
        schema["allOf"] = required.into();
    }
    schema["$defs"] = writer.definitions.into();
    schema
}

/// Writes one definition for each block and each key.
struct SchemaWriter<'k> {
    keys: &'k BlockKeys,
    /// The blocks that have a definition, by address, with the name of the definition. Several keys may share a block.
    blocks: Vec<(*const Block, String)>,
    definitions: Map<String, Value>,
}

impl SchemaWriter<'_> {
    /// Returns the name of a block's definition, and writes the definition if it is missing.
    fn block(&mut self, block: &'static Block, name: &str) -> String {
        if let Some((_, name)) = self.blocks.iter().find(|(known, _)| std::ptr::eq(*known, block)) {
            return name.clone();
        }
        let name = name.to_owned();
        self.blocks.push((block, name.clone()));
        let choices = self.keys.of(block);
        let names: Vec<&str> = choices.iter().map(|choice| choice.key.name).collect();
        let abouts: Vec<&str> = choices.iter().map(|choice| choice.key.about).collect();
        let mut cases = Vec::new();
        let mut once = Vec::new();
        for choice in &choices {
            let of_key = self.key(*choice, &name);
            cases.push(
                json!({ "if": is_named(choice.key.name), "then": { "$ref": format!("#/$defs/{of_key}") } }),
            );
            if !choice.key.many {
                once.push(
                    json!({ "contains": is_named(choice.key.name), "minContains": 0, "maxContains": 1 }),
                );
            }
        }
        let mut definition = json!({
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    // Editors show `enumDescriptions` next to the names.
                    "name": { "type": "string", "enum": names, "enumDescriptions": abouts },
                    "args": { "type": "array", "items": { "$ref": "#/$defs/value" } },
                    "props": { "type": "object", "additionalProperties": { "$ref": "#/$defs/value" } },
                    "children": { "type": "array" },
                },
                "additionalProperties": false,
                "allOf": cases,
            },
        });
        if !once.is_empty() {
            definition["allOf"] = once.into();
        }
        self.definitions.insert(name.clone(), definition);
        name
    }

    /// Returns the name of the definition of a key in the block `outer`, and writes the definition if it is missing.
    fn key(&mut self, choice: KeyChoice, outer: &str) -> String {
        let key = choice.key;
        let name = match key.name {
            // `include` is the same key in every block, so it has one definition.
            name if name == INCLUDE_KEY.name => name.to_owned(),
            name if choice.of_module => format!("module.{name}"),
            name => format!("{outer}.{name}"),
        };
        if self.definitions.contains_key(&name) {
            return name;
        }
        // Reserve the name before the blocks inside are written, because they may contain the key again.
        self.definitions.insert(name.clone(), Value::Null);
        let mut properties = Map::new();
        let mut required: Vec<&str> = Vec::new();
        properties.insert("args".to_owned(), values::arguments(key));
        if key.args.0 > 0 {
            required.push("args");
        }
        properties.insert("props".to_owned(), props(choice));
        if key.props.iter().any(|prop| prop.required) {
            required.push("props");
        }
        let children = match key.block {
            None => json!({ "maxItems": 0 }),
            Some(block) => {
                let reference = format!("#/$defs/{}", self.block(block, &format!("{name}.block")));
                let inner = required_keys(block);
                if inner.is_empty() {
                    json!({ "$ref": reference })
                } else {
                    required.push("children");
                    json!({ "$ref": reference, "allOf": inner })
                }
            }
        };
        properties.insert("children".to_owned(), children);
        let mut definition = json!({ "properties": properties });
        if !required.is_empty() {
            definition["required"] = required.into();
        }
        if choice.of_module {
            definition = json!({ "if": is_off(), "then": turned_off(), "else": definition });
        }
        definition["description"] = key.about.into();
        definition["examples"] = examples(key.example);
        self.definitions.insert(name.clone(), definition);
        name
    }
}

fn props(choice: KeyChoice) -> Value {
    let properties: Map<String, Value> =
        choice.props().map(|prop| (prop.name.to_owned(), values::property(prop))).collect();
    let required: Vec<&str> = choice.props().filter(|prop| prop.required).map(|prop| prop.name).collect();
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

fn is_named(name: &str) -> Value {
    json!({ "properties": { "name": { "const": name } }, "required": ["name"] })
}

/// A schema that matches `KEY #false`.
fn is_off() -> Value {
    json!({ "properties": { "args": { "const": [false] } }, "required": ["args"] })
}

fn turned_off() -> Value {
    json!({ "properties": { "props": { "maxProperties": 0 }, "children": { "maxItems": 0 } } })
}

/// The schemas for the required keys of a block. An `include` counts as the key, because the included file may have the
/// key.
fn required_keys(block: &'static Block) -> Vec<Value> {
    let required = block.keys.iter().filter(|key| key.required);
    required
        .map(|key| {
            json!({ "contains": { "properties": { "name": { "enum": [key.name, INCLUDE_KEY.name] } }, "required": ["name"] } })
        })
        .collect()
}

/// The example of a key in its JSON form.
fn examples(example: &str) -> Value {
    let form = crate::config::json_form("example.kdl".as_ref(), example.to_owned()).ok();
    let nodes = form.and_then(|form| serde_json::from_str(&form).ok());
    nodes.unwrap_or_else(|| json!([]))
}

/// Returns true if a key takes any number of arguments.
fn is_open(most: u8) -> bool {
    most == ANY
}

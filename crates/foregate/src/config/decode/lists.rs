//! `list`.

use foregate_module::settings::value::Kind;

use super::block::Decoder;
use super::expressions::{Expressions, ListType};
use super::files::Files;
use crate::config::load::Item;
use crate::config::problem::{Place, Problem};
use crate::config::schema::LIST;
use crate::config::value::{self, Wrong, choose};

/// Bytes of the file of a list.
const LIST_FILE_LIMIT: usize = 64 << 20;

const TYPES: &[(&str, ListType)] =
    &[("ip", ListType::Ip), ("host", ListType::Host), ("string", ListType::String)];

/// Reads all lists into the compiler of expressions.
pub(super) fn decode(
    decoder: &mut Decoder<'_>,
    items: &[Item<'_>],
    files: &mut Files,
    expressions: &mut dyn Expressions,
) {
    let mut names: Vec<(String, Place)> = Vec::new();
    for item in items {
        let name = decoder.read(*item, 0, name);
        let list = read(decoder, *item, files);
        let (Some(name), Some(list)) = (name, list) else { continue };
        if let Some((_, first)) = names.iter().find(|(other, _)| *other == name) {
            let problem = Problem::new(Some(item.place()), "another list has this name already");
            decoder.push(problem.also(*first, "the first one"));
            continue;
        }
        if let Err((line, message)) = expressions.list(&name, list.kind, &list.text) {
            let problem = match list.places.get(line.saturating_sub(1)) {
                Some(place) => Problem::new(Some(*place), message),
                None => {
                    let (place, path) = list.file.unwrap_or((item.place(), String::new()));
                    Problem::new(Some(place), format!("{path}:{}: {message}", line - list.places.len()))
                }
            };
            decoder.push(problem);
        }
        names.push((name, item.place()));
    }
}

/// A name as expressions write it after `$`.
fn name(value: &value::Value<'_>) -> Result<String, Wrong> {
    let name = value::string(value)?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if name.is_empty() || !name.bytes().all(fits) {
        return Err(Wrong::new("the name of a list consists of letters, digits, `_`, `.` and `-`"));
    }
    Ok(name.to_owned())
}

struct List {
    kind: ListType,
    /// One entry on each line: those of the configuration first.
    text: String,
    /// Where the entries of the configuration stand.
    places: Vec<Place>,
    /// Where the name of the file stands, and its path.
    file: Option<(Place, String)>,
}

fn read(decoder: &mut Decoder<'_>, item: Item<'_>, files: &mut Files) -> Option<List> {
    let kind = decoder.prop(item, "type", |value| choose(value, TYPES));
    let mut list = List { kind: kind?, text: String::new(), places: Vec::new(), file: None };
    let mut whole = entries(decoder, item, 1, &mut list);
    for (_, entry) in decoder.block(item, &LIST) {
        whole &= entries(decoder, entry, 0, &mut list);
    }
    let file = item.node.entries().find(|entry| entry.key() == Some("file"));
    if let Some(entry) = file {
        let content = decoder.prop(item, "file", |value| {
            let path = item.base().join(value::string(value)?);
            let content = files.read(&path, LIST_FILE_LIMIT)?;
            let text = std::str::from_utf8(&content).map_err(|error| {
                let line = content[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
                Wrong::new(format!("line {line} of {} is not UTF-8", path.display()))
            })?;
            Ok((path.display().to_string(), text.to_owned()))
        });
        let (path, text) = content?;
        list.text.push_str(&text);
        list.file = Some((item.place_of(entry.span()), path));
    }
    whole.then_some(list)
}

/// Adds the arguments of a node after the first `skip`; false when one is no entry.
fn entries(decoder: &mut Decoder<'_>, item: Item<'_>, skip: usize, list: &mut List) -> bool {
    let before = list.places.len();
    let arguments: Vec<_> = item.node.entries().filter(|entry| entry.key().is_none()).collect();
    for (number, entry) in arguments.iter().enumerate().skip(skip) {
        let text = decoder.read(item, number, |value| {
            // Numbers are entries as they are written.
            let text = if value.kind == Kind::Number { &value.text } else { value::string(value)? };
            if text.trim().is_empty() || text.contains(['\n', '\r', '#']) {
                return Err(Wrong::new("an entry is not empty, and has neither `#` nor a line break"));
            }
            Ok(text.to_owned())
        });
        if let Some(text) = text {
            list.text.push_str(&text);
            list.text.push('\n');
            list.places.push(item.place_of(entry.span()));
        }
    }
    list.places.len() - before == arguments.len().saturating_sub(skip)
}

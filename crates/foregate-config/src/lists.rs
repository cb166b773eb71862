//! The key `list`.

use foregate_module::settings::value::{ScalarKind, text_of_file};
use foregate_rules::{List, ListError, Lists};

use super::block::Decoder;
use super::files::Files;
use crate::load::Item;
use crate::problem::{Place, Problem};
use crate::schema::LIST;
use crate::value::{self, Wrong, choose};

/// The most bytes of the file of a list.
const LIST_FILE_LIMIT: usize = 64 << 20;

/// Reads entries, one on each line.
type Parse = fn(&str) -> Result<List, ListError>;

const TYPES: &[(&str, Parse)] =
    &[("ip", List::parse_ips), ("host", List::parse_hosts), ("string", List::parse_strings)];

/// All lists by name.
pub fn decode(decoder: &mut Decoder<'_>, items: &[Item<'_>], files: &mut Files) -> Lists {
    let mut lists = Lists::new();
    let mut names: Vec<(String, Place)> = Vec::new();
    for item in items {
        let name = decoder.read(*item, 0, name);
        let list = entries_of(decoder, *item, files);
        let (Some(name), Some(list)) = (name.clone(), list) else {
            // The error has been reported. The list is still defined, so that expressions that name it cause no further
            // errors. If its type is unknown, texts are the most likely one.
            let kind = item.node.entries().find(|entry| entry.key() == Some("type"));
            let named = |kind: &str| TYPES.iter().find(|(name, _)| *name == kind).or(TYPES.last());
            let parse = kind.and_then(|kind| named(kind.text()));
            if let (Some(name), Some(Ok(empty))) = (name, parse.map(|(_, parse)| parse(""))) {
                lists.insert(&name, empty);
            }
            continue;
        };
        if let Some((_, first)) = names.iter().find(|(other, _)| *other == name) {
            let problem = Problem::new(Some(item.place()), "another list has this name already");
            decoder.push(problem.also(*first, "the first one"));
            continue;
        }
        match (list.parse)(&list.text) {
            Ok(list) => lists.insert(&name, list),
            Err(error) => {
                for problem in list.problems(*item, error) {
                    decoder.push(problem);
                }
                // Define the list all the same, so that expressions that name it cause no further errors.
                if let Ok(empty) = (list.parse)("") {
                    lists.insert(&name, empty);
                }
            }
        }
        names.push((name, item.place()));
    }
    lists
}

/// Reads the name of a list. Expressions write it after `$`.
fn name(value: &value::Value<'_>) -> Result<String, Wrong> {
    let name = value::string(value)?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if name.is_empty() || !name.bytes().all(fits) {
        return Err(Wrong::new("the name of a list consists of letters, digits, `_`, `.` and `-`"));
    }
    Ok(name.to_owned())
}

/// The entries of a list, before they are parsed.
struct Entries {
    parse: Parse,
    /// The entries, one on each line. Those in the configuration come before those of the file.
    text: String,
    /// The places of the entries in the configuration.
    places: Vec<Place>,
    /// The place at which the file is named, and its path.
    file: Option<(Place, String)>,
}

impl Entries {
    /// The problems for an error: one for each wrong entry in the configuration, or one for the first wrong entry
    /// of the file.
    fn problems(&self, item: Item<'_>, error: ListError) -> Vec<Problem> {
        let entries = self.text.lines().zip(1..).take(self.places.len());
        let wrong = |(entry, line)| (self.parse)(entry).err().map(|error| ListError { line, ..error });
        let problems: Vec<_> = entries.filter_map(wrong).map(|error| self.problem(item, error)).collect();
        if problems.is_empty() { Vec::from([self.problem(item, error)]) } else { problems }
    }

    /// The problem for an error, at the entry in the configuration, or with the line of the file.
    fn problem(&self, item: Item<'_>, ListError { line, message }: ListError) -> Problem {
        if let Some(place) = self.places.get(line.saturating_sub(1)) {
            return Problem::new(Some(*place), message);
        }
        match &self.file {
            Some((place, path)) => {
                let line = line - self.places.len();
                Problem::new(Some(*place), format!("{path}:{line}: {message}"))
            }
            None => Problem::new(Some(item.place()), message),
        }
    }
}

fn entries_of(decoder: &mut Decoder<'_>, item: Item<'_>, files: &mut Files) -> Option<Entries> {
    let parse = decoder.prop(item, "type", |value| choose(value, TYPES));
    let mut list = Entries { parse: parse?, text: String::new(), places: Vec::new(), file: None };
    let mut whole = entries(decoder, item, 1, &mut list);
    for (_, entry) in decoder.block(item, &LIST) {
        whole &= entries(decoder, entry, 0, &mut list);
    }
    let file = item.node.entries().find(|entry| entry.key() == Some("file"));
    if let Some(entry) = file {
        let content = decoder.prop(item, "file", |value| {
            let path = item.base().join(value::string(value)?);
            let content = files.read(&path, LIST_FILE_LIMIT)?;
            let text = text_of_file(&content).map_err(|error| {
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

/// Adds the arguments of a node after the first `skip` ones. Returns false if one of them is not a valid entry.
fn entries(decoder: &mut Decoder<'_>, item: Item<'_>, skip: usize, list: &mut Entries) -> bool {
    let before = list.places.len();
    let arguments: Vec<_> = item.node.entries().filter(|entry| entry.key().is_none()).collect();
    for entry in arguments.iter().skip(skip) {
        let text = decoder.entry(item, *entry, None, |value| {
            // A number is an entry in the spelling of the file.
            let text = if value.kind == ScalarKind::Number { &value.text } else { value::string(value)? };
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

//! Checks of the files that an editor has open, the messages of a check, and the fixes that the messages suggest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foregate_config::{EntryRef, Findings, Problem, Tree};
use foregate_module::Pipeline;
use serde_json::{Value, json};

use super::files::{Encoding, LineStarts, canonical, uri_of};
use crate::config::schema::ROOT;
use crate::config::{self, DEFAULT_FILES, Unsaved};

/// The number of folders above a file in which its main file is searched.
const FOLDERS_LIMIT: usize = 4;

/// One check of all open files.
pub(super) struct Checks {
    pub(super) open: Unsaved,
    /// The main file that the editor's settings name.
    pub(super) main: Option<PathBuf>,
    pub(super) encoding: Encoding,
}

/// The result of a check.
#[derive(Default)]
pub(super) struct CheckReport {
    /// The diagnostics of each file that was read, by canonical path.
    pub(super) messages: BTreeMap<PathBuf, Vec<Value>>,
    /// The definitions in the files.
    pub(super) named: Vec<NamedPlace>,
    /// Set if there is an error, so that definitions may be missing.
    pub(super) is_refused: bool,
}

/// A name that a node at the top of a file defines, and its place.
pub(super) struct NamedPlace {
    /// The key: `upstream` or `list`.
    pub(super) key: &'static str,
    pub(super) name: String,
    /// The place of the definition, as the protocol writes a location.
    pub(super) location: Value,
}

impl Checks {
    pub(super) fn run(&self, pipeline: &Arc<Pipeline>) -> CheckReport {
        let mut report = CheckReport::default();
        let mut paths: Vec<&PathBuf> = self.open.keys().collect();
        paths.sort();
        for path in paths {
            if report.messages.contains_key(path) {
                continue;
            }
            let found = self.mains(path).into_iter().find_map(|main| {
                let findings = config::look(&main, self.open.clone(), pipeline);
                let is_part = findings.tree().paths().any(|part| canonical(part) == *path);
                is_part.then_some(findings)
            });
            let alone = || config::look(path, self.open.clone(), pipeline);
            if let Some(findings) = found.or_else(|| self.is_configuration(path).then(alone)) {
                report.add(&findings, self.encoding);
            }
        }
        report
    }

    /// The main files that may include this file.
    fn mains(&self, path: &Path) -> Vec<PathBuf> {
        let name = Path::new(DEFAULT_FILES[0]);
        let folders = path.ancestors().skip(1).take(FOLDERS_LIMIT);
        let beside = folders.map(|folder| folder.join(name)).filter(|main| main != path && main.exists());
        self.main.iter().cloned().chain(beside).collect()
    }

    /// Returns true if the file is a configuration of Foregate. Other programs use KDL files as well.
    fn is_configuration(&self, path: &Path) -> bool {
        let text = self.open.get(path).map_or("", String::as_str);
        let mut words = text.lines().filter_map(|line| line.split([' ', '\t', '{', ';']).next());
        path.ends_with(DEFAULT_FILES[0]) || words.any(|word| ROOT.keys.iter().any(|key| key.name == word))
    }
}

impl CheckReport {
    fn add(&mut self, findings: &Findings, encoding: Encoding) {
        let tree = findings.tree();
        let texts: Vec<(&Path, &str)> = (0..).map_while(|file| tree.text(file)).collect();
        let lines: Vec<LineStarts<'_>> =
            texts.iter().map(|(_, text)| LineStarts::new(text, encoding)).collect();
        for (path, _) in &texts {
            self.messages.entry(canonical(path)).or_default();
        }
        let problems = findings.errors().into_iter().map(|error| (error, 1));
        for (problem, severity) in problems.chain(findings.warnings().into_iter().map(|warning| (warning, 2)))
        {
            self.is_refused |= severity == 1;
            let file = problem.place.map_or(0, |place| place.file as usize);
            let (Some((path, _)), Some(of_file)) = (texts.get(file), lines.get(file)) else { continue };
            let message = message(problem, severity, of_file, |file| {
                Some((uri_of(texts.get(file as usize)?.0), lines.get(file as usize)?))
            });
            self.messages.entry(canonical(path)).or_default().push(message);
        }
        self.named.extend(named(tree, &texts, &lines));
    }
}

/// One diagnostic.
fn message<'l, 't: 'l>(
    problem: &Problem,
    severity: u8,
    lines: &LineStarts<'_>,
    file: impl Fn(u32) -> Option<(String, &'l LineStarts<'t>)>,
) -> Value {
    let start = lines.position(0);
    let range = problem
        .place
        .map_or_else(|| json!({ "start": start, "end": start }), |place| lines.range(place.span));
    let mut text = problem.message.clone();
    if let Some(help) = &problem.help {
        text.push_str(&format!("\nhelp: {help}"));
    }
    let mut message = json!({ "range": range, "severity": severity, "source": "foregate", "message": text });
    if let Some(meant) = problem.help.as_deref().and_then(meant) {
        message["data"] = json!({ "meant": meant });
    }
    if let Some((place, what)) = &problem.also
        && let Some((uri, lines)) = file(place.file)
    {
        let location = json!({ "uri": uri, "range": lines.range(place.span) });
        message["relatedInformation"] = json!([{ "location": location, "message": what }]);
    }
    message
}

/// The replacement in a suggestion: `NAME` from "did you mean `NAME`?".
fn meant(help: &str) -> Option<&str> {
    let meant = help.strip_prefix("did you mean ")?;
    let meant = &meant[..meant.find('?')?];
    Some(meant.strip_prefix('`').and_then(|meant| meant.strip_suffix('`')).unwrap_or(meant))
}

/// The names that these files define.
fn named(tree: &Tree, texts: &[(&Path, &str)], lines: &[LineStarts<'_>]) -> Vec<NamedPlace> {
    let mut found = Vec::new();
    for item in tree.roots() {
        let Some(key) = ["upstream", "list"].into_iter().find(|key| *key == item.node.name()) else {
            continue;
        };
        let is_argument = |entry: &EntryRef<'_>| entry.key().is_none();
        let Some(entry) = item.node.entries().find(is_argument) else { continue };
        let place = item.place_of(entry.span());
        let file = place.file as usize;
        if let (Some((path, _)), Some(lines)) = (texts.get(file), lines.get(file)) {
            let location = json!({ "uri": uri_of(&canonical(path)), "range": lines.range(place.span) });
            found.push(NamedPlace { key, name: entry.text().to_owned(), location });
        }
    }
    found
}

/// The fixes for the diagnostics in a request: each replaces a wrong name by the one that was probably meant.
pub(super) fn fixes(params: &Value) -> Value {
    let uri = params.pointer("/textDocument/uri").and_then(Value::as_str).unwrap_or_default();
    let messages = params.pointer("/context/diagnostics").and_then(Value::as_array);
    let fix = |message: &Value| {
        let meant = message.pointer("/data/meant")?.as_str()?;
        Some(json!({
            "title": format!("Change it to {meant}"),
            "kind": "quickfix",
            "isPreferred": true,
            "diagnostics": [message],
            "edit": { "changes": { uri: [{ "range": message.get("range")?, "newText": meant }] } },
        }))
    };
    messages.into_iter().flatten().filter_map(fix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_meant_name_is_read_from_the_suggestion() {
        assert_eq!(meant("did you mean `server`?"), Some("server"));
        assert_eq!(meant("did you mean \"app\"?"), Some("\"app\""));
        assert_eq!(meant("did you mean `a`? As `b`, it belongs elsewhere"), Some("a"));
        assert_eq!(meant("write `proxy UPSTREAM`"), None);
    }
}

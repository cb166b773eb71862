//! Regression files: YAML to cases.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::input::Input;

/// The largest regression file that is read, bytes; a larger one is an error.
const FILE: u64 = 16 << 20;

/// One case: requests one after the other, each judged for itself.
#[derive(Debug)]
pub(super) struct Case {
    /// The rule and the case's number: `920100-1`.
    pub(super) name: String,
    /// Its requests.
    pub(super) stages: Vec<Stage>,
}

/// A request with its expected outcome.
#[derive(Debug)]
pub(super) struct Stage {
    /// The bytes to send.
    pub(super) request: Vec<u8>,
    /// The expected outcome.
    pub(super) expected: TestExpectation,
}

/// The expectations for one request.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TestExpectation {
    /// The status; `None` where any is fine.
    pub(super) status: Option<u16>,
    /// No response that an ordinary client could read.
    #[serde(rename = "expect_error")]
    pub(super) error: bool,
    /// The expected log.
    pub(super) log: ExpectedLog,
    /// Nothing is judged before the log is complete, so that nothing has to be tried again.
    #[serde(rename = "retry_once")]
    pub(super) _retry: IgnoredAny,
}

/// The expectations for the log lines of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ExpectedLog {
    /// Rules that match.
    #[serde(rename = "expect_ids")]
    pub(super) ids: Vec<u64>,
    /// Rules that do not.
    #[serde(rename = "no_expect_ids")]
    pub(super) no_ids: Vec<u64>,
    /// A pattern that a line matches.
    #[serde(rename = "match_regex")]
    pub(super) has: Option<String>,
    /// A pattern that no line may match.
    #[serde(rename = "no_match_regex")]
    pub(super) has_not: Option<String>,
}

/// A deviation: the expected outcome here, and the reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Override {
    /// The name of the case.
    pub(super) case: String,
    /// Why.
    pub(super) reason: String,
    /// The expected outcome of each of its requests.
    #[serde(rename = "output")]
    pub(super) expected: TestExpectation,
}

/// A regression file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// For readers of the file.
    #[serde(default, rename = "meta")]
    _meta: IgnoredAny,
    /// Some files have it outside of `meta`.
    #[serde(default, rename = "author")]
    _author: IgnoredAny,
    rule_id: u64,
    tests: Vec<FileCase>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileCase {
    test_id: u64,
    /// For readers of the file.
    #[serde(default, rename = "desc")]
    _about: IgnoredAny,
    stages: Vec<FileStage>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileStage {
    input: Input,
    output: TestExpectation,
}

/// Deviations.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Overrides {
    overrides: Vec<Override>,
}

/// Reads files, and all YAML files in folders and the folders below them in the order of their paths.
///
/// # Errors
///
/// A folder or file that cannot be read, or is malformed.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for path in paths {
        let mut files = Vec::new();
        list(path, &mut files)?;
        files.sort();
        for file in &files {
            let named = |error: String| format!("{}: {error}", file.display());
            cases_of(&text_of(file).map_err(named)?, &mut cases).map_err(named)?;
        }
    }
    Ok(cases)
}

/// The files of a path: itself, or those below it.
fn list(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let named = |error: std::io::Error| format!("{}: {error}", path.display());
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(named)? {
        let below = entry.map_err(named)?.path();
        if below.is_dir() || below.extension().is_some_and(|end| end == "yaml" || end == "yml") {
            list(&below, files)?;
        }
    }
    Ok(())
}

fn text_of(file: &Path) -> Result<String, String> {
    let about = fs::metadata(file).map_err(|error| error.to_string())?;
    if !about.is_file() || about.len() > FILE {
        return Err(format!("it is not a file of at most {FILE} bytes"));
    }
    fs::read_to_string(file).map_err(|error| error.to_string())
}

fn cases_of(text: &str, cases: &mut Vec<Case>) -> Result<(), String> {
    // Some files only say in a comment why a rule has no cases.
    if text.lines().all(|line| line.trim().is_empty() || line.starts_with('#') || line.trim() == "---") {
        return Ok(());
    }
    let file: File = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    for case in file.tests {
        let name = format!("{}-{}", file.rule_id, case.test_id);
        if case.stages.is_empty() {
            return Err(format!("{name} has no stages"));
        }
        let stage = |stage: FileStage| {
            Ok::<_, String>(Stage { request: stage.input.request()?, expected: stage.output })
        };
        let stages = case.stages.into_iter().map(stage).collect::<Result<_, _>>();
        cases.push(Case { stages: stages.map_err(|error| format!("{name}: {error}"))?, name });
    }
    Ok(())
}

/// The deviations of a file: a list of `case`, `reason`, `output`.
///
/// # Errors
///
/// The file cannot be read, or has an entry without a reason.
pub(super) fn overrides(file: &Path) -> Result<Vec<Override>, String> {
    let named = |error: String| format!("{}: {error}", file.display());
    let text = text_of(file).map_err(named)?;
    let read: Overrides = serde_saphyr::from_str(&text).map_err(|error| named(error.to_string()))?;
    match read.overrides.iter().find(|entry| entry.reason.trim().is_empty()) {
        Some(entry) => Err(named(format!("{} has no reason", entry.case))),
        None => Ok(read.overrides),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASE: &str =
        "rule_id: 7\ntests:\n  - test_id: 2\n    stages:\n      - input: {uri: /a}\n        output: ";

    fn expected(output: &str) -> Result<TestExpectation, String> {
        let mut cases = Vec::new();
        cases_of(&format!("---\nmeta: {{author: x}}\n{CASE}{output}\n"), &mut cases)?;
        assert_eq!(cases[0].name, "7-2");
        Ok(cases[0].stages[0].expected.clone())
    }

    #[test]
    fn cases_say_what_they_expect() {
        let found =
            expected("{status: 403, log: {expect_ids: [1, 2], no_expect_ids: [3], match_regex: 'a.c'}}");
        let log = ExpectedLog { ids: vec![1, 2], no_ids: vec![3], has: Some("a.c".into()), has_not: None };
        assert_eq!(found.unwrap(), TestExpectation { status: Some(403), log, ..TestExpectation::default() });
        let found = expected("{expect_error: true, retry_once: true, log: {no_match_regex: b}}").unwrap();
        assert!(found.error && found.log.has_not.as_deref() == Some("b"));
    }

    #[test]
    fn what_is_not_understood_is_told_with_its_place() {
        let wrong = expected("{log: {expect_idz: [1]}}").unwrap_err();
        assert!(wrong.contains("expect_idz") && wrong.contains('8'), "{wrong}");
        assert!(expected("{status: much}").is_err());
        let mut cases = Vec::new();
        assert!(cases_of("rule_id: 7\ntests: [{test_id: 1, stages: []}]", &mut cases).is_err());
        assert!(cases_of("tests: []", &mut cases).is_err());
        assert!(cases_of("---\n# nothing\n", &mut cases).is_ok());
    }
}

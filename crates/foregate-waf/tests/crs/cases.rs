//! The regression files of the rule set.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

/// One file.
#[derive(Debug, Deserialize)]
pub struct File {
    /// The rule that it is about.
    pub rule_id: u64,
    /// Its tests.
    pub tests: Vec<Test>,
}

/// One test.
#[derive(Debug, Deserialize)]
pub struct Test {
    /// Its number in the file.
    pub test_id: u32,
    /// Requests, one after the other.
    pub stages: Vec<Stage>,
}

/// One request with its expected outcome.
#[derive(Debug, Deserialize)]
pub struct Stage {
    /// The request.
    pub input: Input,
    /// The expected outcome.
    pub output: Output,
}

/// A request.
#[derive(Debug, Deserialize)]
pub struct Input {
    pub method: Option<String>,
    pub uri: Option<String>,
    pub version: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    pub data: Option<String>,
    pub encoded_request: Option<String>,
    pub autocomplete_headers: Option<bool>,
}

/// The expected outcome.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Output {
    pub status: Option<u16>,
    pub expect_error: bool,
    pub log: Log,
}

/// The expected log.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Log {
    pub expect_ids: Vec<u64>,
    pub no_expect_ids: Vec<u64>,
    pub match_regex: Option<String>,
    pub no_match_regex: Option<String>,
}

/// All files, in order.
pub fn read(folder: &Path) -> Vec<File> {
    let mut paths = Vec::new();
    let groups = std::fs::read_dir(folder.join("tests")).unwrap();
    for group in groups.flatten().filter(|entry| entry.path().is_dir()) {
        for entry in std::fs::read_dir(group.path()).unwrap().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "yaml") {
                paths.push(entry.path());
            }
        }
    }
    paths.sort();
    paths
        .iter()
        .filter_map(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            // One file consists of comments.
            let has_tests = text.lines().any(|line| line.starts_with("tests:"));
            has_tests.then(|| {
                serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
            })
        })
        .collect()
}

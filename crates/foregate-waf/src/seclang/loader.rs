//! Loads rules from files and texts.

use std::rc::Rc;
use std::sync::Arc;

use super::files::{Files, Shelf};
use super::findings::Findings;
use super::limits::{MAX_DIRECTIVE, MAX_FILE, MAX_FILES, MAX_INCLUDE_DEPTH};
use super::line::{Line, LineError, Part, directives, words};
use super::rule::Drafts;
use super::update::Update;
use super::{finish, lint, number, setting, update};
use crate::model::{Place, Problem, RuleSet};
use crate::transform::UnicodeMap;

/// A source of rules.
#[derive(Clone, Debug)]
pub enum Source {
    /// Rules in files: a path, or a pattern that at least one file has to match.
    Files(String),
    /// Rules in this text.
    Text {
        /// The name for errors; paths in the text are relative to its folder.
        name: String,
        /// The rules.
        text: String,
    },
}

impl Source {
    /// The rules in `text`.
    pub fn text(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Text { name: name.into(), text: text.into() }
    }

    /// The rules in the files that `pattern` names.
    pub fn files(pattern: impl Into<String>) -> Self {
        Self::Files(pattern.into())
    }
}

/// Loads the rules in these sources, in order, as one set. If there are errors, returns all of them, up to
/// [`MAX_ERRORS`](super::limits::MAX_ERRORS).
pub fn load(sources: &[Source], files: &mut dyn Files) -> Result<RuleSet, Vec<Problem>> {
    let mut loader = Loader {
        shelf: Shelf::new(files),
        findings: Findings::new(),
        drafts: Drafts::default(),
        said: setting::DirectiveSettings::default(),
        updates: Vec::new(),
        open: Vec::new(),
        count: 0,
    };
    for source in sources {
        match source {
            Source::Text { name, text } => loader.read(name, text.as_bytes()),
            Source::Files(pattern) => {
                let file: Arc<str> = pattern.as_str().into();
                loader.findings.enter(&file, &Rc::new(Line::at(1, 1)));
                loader.include(pattern, 0, true);
            }
        }
    }
    let Loader { mut findings, drafts, said, updates, .. } = loader;
    let rules = finish::finish(drafts, &updates, &mut findings);
    let mut set = RuleSet { rules, settings: said.settings, warnings: Vec::new() };
    if findings.errors.is_empty() {
        lint::lint(&set, &mut findings);
    }
    set.warnings = findings.warnings;
    if findings.errors.is_empty() { Ok(set) } else { Err(findings.errors) }
}

struct Loader<'f> {
    shelf: Shelf<'f>,
    findings: Findings,
    drafts: Drafts,
    said: setting::DirectiveSettings,
    updates: Vec<Update>,
    /// The files that are being read. Each is included by the one before it.
    open: Vec<String>,
    /// Files read so far.
    count: usize,
}

impl Loader<'_> {
    /// Reads the files that match `pattern`. `at` is the position of the pattern in the directive.
    fn include(&mut self, pattern: &str, at: usize, required: bool) {
        let paths = if pattern.contains(['*', '?']) {
            match self.shelf.glob(pattern) {
                Ok(paths) => paths,
                Err(reason) => {
                    let message = format!("the files `{pattern}` cannot be listed: {reason}");
                    return self.findings.error(at, message, None);
                }
            }
        } else {
            vec![pattern.to_owned()]
        };
        if paths.is_empty() && required {
            let suggestion = "`IncludeOptional` includes what there may be".to_owned();
            let suggestion = (!self.open.is_empty()).then_some(suggestion);
            return self.findings.error(at, format!("no file matches `{pattern}`"), suggestion);
        }
        for path in paths {
            if self.findings.is_full() {
                return;
            }
            self.include_one(&path, at);
        }
    }

    fn include_one(&mut self, path: &str, at: usize) {
        if self.open.iter().any(|open| open == path) {
            return self.findings.error(at, format!("`{path}` includes itself"), None);
        }
        if self.open.len() >= MAX_INCLUDE_DEPTH {
            let message = format!("more than {MAX_INCLUDE_DEPTH} files include one another");
            return self.findings.error(at, message, None);
        }
        if self.count >= MAX_FILES {
            return self.findings.error(at, format!("there are more than {MAX_FILES} files"), None);
        }
        if let Some(text) = self.shelf.read(path, MAX_FILE, at, &mut self.findings) {
            self.read(path, &text);
        }
    }

    /// Reads the directives in a text.
    fn read(&mut self, name: &str, text: &[u8]) {
        self.count += 1;
        let file: Arc<str> = name.into();
        let text = match std::str::from_utf8(text) {
            Ok(text) => text,
            Err(error) => {
                let valid = text.get(..error.valid_up_to()).unwrap_or_default();
                let before = valid.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
                let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
                let column = 1 + String::from_utf8_lossy(before).chars().count();
                let number = |count| u32::try_from(count).unwrap_or(u32::MAX);
                let place = Place { file, line: number(line), column: number(column) };
                return self.findings.error_at(place, "the file is not UTF-8", None);
            }
        };
        self.open.push(name.to_owned());
        for line in directives(text) {
            if self.findings.is_full() {
                break;
            }
            match line {
                Ok(line) => self.directive(&file, &Rc::new(line)),
                Err(broken) => {
                    let (line, message) = match broken {
                        LineError::TooLarge(line) => {
                            (line, format!("the directive is longer than {MAX_DIRECTIVE} bytes"))
                        }
                        LineError::Continued(line) => {
                            (line, "no line follows that continues this one".to_owned())
                        }
                        LineError::Commented(line) => {
                            let message = "this line belongs to the comment before it, which ends in `\\`";
                            let place = Place { file: Arc::clone(&file), line, column: 1 };
                            self.findings.warn_at(place, message, None);
                            continue;
                        }
                    };
                    self.findings.error_at(Place { file: Arc::clone(&file), line, column: 1 }, message, None);
                }
            }
        }
        self.drafts.interrupt(&mut self.findings);
        self.open.pop();
    }

    fn directive(&mut self, file: &Arc<str>, line: &Rc<Line>) {
        self.findings.enter(file, line);
        let Some(words) = words(line, &mut self.findings) else {
            return self.drafts.unreadable(line.text.contains("chain"), line.place(file, 0));
        };
        let Some((name, arguments)) = words.split_first() else { return };
        let is = |known: &str| name.raw.eq_ignore_ascii_case(known);
        if is("SecRule") || is("SecAction") {
            return self.drafts.rule(*name, arguments, &mut self.shelf, &mut self.findings);
        }
        self.drafts.interrupt(&mut self.findings);
        if is("SecMarker") {
            self.drafts.marker(*name, arguments, &mut self.findings);
        } else if is("SecDefaultAction") {
            self.drafts.default_action(*name, arguments, &mut self.findings);
        } else if is("Include") || is("IncludeOptional") {
            self.include_directive(file, *name, arguments, is("Include"));
            self.findings.enter(file, line);
        } else if is("SecUnicodeMapFile") {
            self.unicode_map(file, *name, arguments);
        } else if !update::directive(&mut self.updates, *name, arguments, &mut self.findings)
            && !setting::directive(&mut self.said, *name, arguments, &mut self.findings)
        {
            self.unknown(*name);
        }
    }

    fn include_directive(&mut self, file: &Arc<str>, name: Part<'_>, arguments: &[Part<'_>], required: bool) {
        let [pattern] = arguments else {
            return self.findings.error(name.at, format!("`{}` takes one argument, a path", name.raw), None);
        };
        let path = self.shelf.path(file, &pattern.text());
        self.include(&path, pattern.at, required);
    }

    /// Handles `SecUnicodeMapFile FILE PAGE`.
    fn unicode_map(&mut self, file: &Arc<str>, name: Part<'_>, arguments: &[Part<'_>]) {
        let words: Vec<_> = arguments.iter().flat_map(|part| part.split_all(char::is_whitespace)).collect();
        let [path, page] = &words[..] else {
            let message = format!("`{}` takes two arguments, a file and the number of a code page", name.raw);
            return self.findings.error(name.at, message, None);
        };
        let Some(page) =
            number::bounded(*page, 0..=u32::MAX, "the number of a code page", &mut self.findings)
        else {
            return;
        };
        let path_of_map = self.shelf.path(file, &path.text());
        let Some(text) = self.shelf.read_data(&path_of_map, path.at, &mut self.findings) else { return };
        match UnicodeMap::parse(&text, page) {
            Ok(map) => self.said.settings.unicode_map = Some(Arc::new(map)),
            Err((None, message)) => self.findings.error(path.at, message, None),
            Err((Some(line), message)) => {
                let place = Place { file: path_of_map.into(), line, column: 1 };
                self.findings.error_at(place, message, None);
            }
        }
    }

    fn unknown(&mut self, name: Part<'_>) {
        if name.raw.starts_with('<') {
            let suggestion = Some("sections belong to Apache; where rules hold is said by routes".into());
            return self.findings.error(name.at, "a section is not understood", suggestion);
        }
        const RULES: &[&str] = &[
            "Include",
            "IncludeOptional",
            "SecAction",
            "SecDefaultAction",
            "SecMarker",
            "SecRule",
            "SecUnicodeMapFile",
        ];
        let known = RULES.iter().copied().chain(update::names()).chain(setting::names());
        self.findings.unknown(name.at, "directive", name.raw, known);
    }
}

//! Shares compiled rules between all places of the configuration that name the same files, and between
//! consecutive configurations, so that a reload compiles only changed rules.

use std::fmt;
use std::sync::{Arc, Weak};

use foregate_module::settings::{Argument, Context, Node, Problem};
use foregate_module::settings::{Scalar, value::ScalarKind};
use parking_lot::Mutex;

use super::settings::{BODY, BODY_MOST};
use crate::engine::{Compile, Engine, TransactionLimits};
use crate::model::{self, AuditEngine, RuleSet};
use crate::seclang::{Files, Source, load, needs};

/// The most errors in rules that one message reports.
const TOLD: usize = 8;

/// The name, in place of a file name, for the rules that are made from the keys `exclude`. These rules come before
/// the rules of all files.
const EXCLUDE: &str = "exclude";

/// The settings of the configuration that are compiled into the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// Bounds of one transaction.
    pub(super) limits: TransactionLimits,
    /// The number of bytes of a request's body that rules see, if the configuration sets it.
    pub(super) body: Option<u64>,
    /// The media types of responses that rules read, if the configuration sets them.
    pub(super) response_types: Option<Vec<Box<str>>>,
    /// The number of bytes of a response's body that rules see, if the configuration sets it; 0 for none.
    pub(super) response_body: Option<u64>,
    /// The keys `exclude`, written as rules that remove other rules.
    pub(super) excludes: String,
    /// Set if there is an audit log.
    pub(super) audit: bool,
}

/// Compiled rules with their sources.
pub(super) struct CompiledRules {
    pub(super) engine: Arc<Engine>,
    roots: Vec<String>,
    terms: Terms,
    reads: Vec<(String, Arc<[u8]>)>,
    globs: Vec<(String, Vec<String>)>,
}

impl CompiledRules {
    /// Returns true if both were compiled from the same files and settings.
    fn is_of(&self, other: &Self) -> bool {
        self.roots == other.roots
            && self.terms == other.terms
            && self.reads == other.reads
            && self.globs == other.globs
    }

    /// Parses the rules again, from the bytes of which they were compiled.
    pub(super) fn rules(&self) -> Option<RuleSet> {
        let rules = load(&sources(&self.roots, &self.terms), &mut CompiledFiles(self)).ok()?;
        Some(with_terms(rules, &self.terms))
    }
}

/// The compiled rules of all configurations that are in use.
#[derive(Default)]
pub(super) struct Engines(Mutex<Vec<Weak<CompiledRules>>>);

impl fmt::Debug for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Engines").field(&self.0.lock().len()).finish()
    }
}

/// Reads files through the configuration, and remembers their contents.
struct Through<'c> {
    context: &'c mut dyn Context,
    /// The argument whose place is reported in messages.
    key: &'c Argument,
    reads: Vec<(String, Arc<[u8]>)>,
    globs: Vec<(String, Vec<String>)>,
}

impl Through<'_> {
    fn argument(&self, text: &str) -> Argument {
        Argument::new(Scalar { kind: ScalarKind::String, text: text.to_owned().into() }, self.key.place())
    }
}

impl Files for Through<'_> {
    fn read(&mut self, path: &str, limit: usize) -> Result<Vec<u8>, String> {
        let content = self.context.file(&self.argument(path), limit).map_err(|problem| problem.message)?;
        self.reads.push((path.to_owned(), Arc::clone(&content)));
        Ok(content.to_vec())
    }

    fn glob(&mut self, pattern: &str) -> Result<Vec<String>, String> {
        let found = self.context.glob(&self.argument(pattern)).map_err(|problem| problem.message)?;
        self.globs.push((pattern.to_owned(), found.clone()));
        Ok(found)
    }
}

impl Engines {
    /// Returns the compiled rules of these files. `files` are the arguments that name the files, and `excludes`
    /// are the keys that exclude rules.
    ///
    /// # Errors
    ///
    /// Errors in the rules, by file, line and column.
    pub(super) fn compiled(
        &self,
        files: &[Argument],
        terms: &Terms,
        excludes: &[&Node],
        context: &mut dyn Context,
    ) -> Result<Arc<CompiledRules>, Problem> {
        let Some(key) = files.first() else {
            return Err(Problem::new(Default::default(), "there are no files of rules"));
        };
        let roots = files.iter().map(|file| file.text().map(str::to_owned)).collect::<Result<Vec<_>, _>>()?;
        if let Some(known) = self.known(&roots, terms, key, context) {
            return Ok(known);
        }
        let mut through = Through { context, key, reads: Vec::new(), globs: Vec::new() };
        let rules = load(&sources(&roots, terms), &mut through).map_err(|problems| told(key, &problems))?;
        for need in needs(&rules, terms.body != Some(0)) {
            warn(through.context, key, &need);
        }
        for warning in rules.warnings.iter().filter(|warning| &*warning.place.file == EXCLUDE) {
            // Each exclusion has its own line, so the line number tells which key the warning concerns.
            if let Some(node) = excludes.get((warning.place.line as usize).saturating_sub(1)) {
                through.context.warn(node.wrong(&*warning.message));
            }
        }
        let rules = with_terms(rules, terms);
        let compile = Compile { limits: terms.limits.clone(), ..Compile::default() };
        let engine = Arc::new(Engine::compile(rules, compile).map_err(|problem| told(key, &[problem]))?);
        let Through { reads, globs, .. } = through;
        let made = Arc::new(CompiledRules { engine, roots, terms: terms.clone(), reads, globs });
        let mut all = self.0.lock();
        all.retain(|known| known.strong_count() > 0);
        // Another thread may have compiled the same rules in the meantime.
        let earlier = all.iter().filter_map(Weak::upgrade).find(|known| known.is_of(&made));
        if let Some(earlier) = earlier {
            return Ok(earlier);
        }
        all.push(Arc::downgrade(&made));
        Ok(made)
    }

    /// Finds rules that are already compiled, if their files have not changed. Reads all of these files, so that
    /// they are watched for changes.
    fn known(
        &self,
        roots: &[String],
        terms: &Terms,
        key: &Argument,
        context: &mut dyn Context,
    ) -> Option<Arc<CompiledRules>> {
        let all = self.0.lock();
        let mut through = Through { context, key, reads: Vec::new(), globs: Vec::new() };
        let alike = |known: &Arc<CompiledRules>| known.roots == roots && known.terms == *terms;
        all.iter().filter_map(Weak::upgrade).filter(alike).find(|known| {
            let globs = known
                .globs
                .iter()
                .all(|(pattern, found)| through.glob(pattern).is_ok_and(|now| now == *found));
            let mut same = |(path, content): &(String, Arc<[u8]>)| {
                through.context.file(&through.argument(path), usize::MAX - 1).is_ok_and(|now| now == *content)
            };
            globs && known.reads.iter().all(&mut same)
        })
    }
}

/// The files with the contents that they had when the rules were compiled.
struct CompiledFiles<'k>(&'k CompiledRules);

impl Files for CompiledFiles<'_> {
    fn read(&mut self, path: &str, _: usize) -> Result<Vec<u8>, String> {
        let found = self.0.reads.iter().find(|(known, _)| known == path);
        found.map(|(_, content)| content.to_vec()).ok_or_else(|| format!("{path} was not read"))
    }

    fn glob(&mut self, pattern: &str) -> Result<Vec<String>, String> {
        let found = self.0.globs.iter().find(|(known, _)| known == pattern);
        found.map(|(_, found)| found.clone()).ok_or_else(|| format!("{pattern} was not listed"))
    }
}

/// The sources of rules: the keys `exclude` as rules, and then the files.
fn sources(roots: &[String], terms: &Terms) -> Vec<Source> {
    let first = Source::text(EXCLUDE, terms.excludes.clone());
    std::iter::once(first).chain(roots.iter().map(Source::files)).collect()
}

/// Applies the settings of the configuration to the rules.
fn with_terms(mut rules: RuleSet, terms: &Terms) -> RuleSet {
    let settings = &mut rules.settings;
    settings.request_body_limit = terms.body.unwrap_or(match settings.request_body_limit_said {
        true => settings.request_body_limit.min(BODY_MOST),
        false => BODY,
    });
    if let Some(limit) = terms.response_body {
        settings.response_body_access = limit > 0;
        settings.response_body_limit = limit;
    }
    if let Some(types) = &terms.response_types {
        settings.response_body_types.clone_from(types);
    }
    settings.audit_engine = match settings.audit_engine {
        AuditEngine::Off if terms.audit => AuditEngine::RelevantOnly,
        // Without an audit log, no records have to be made.
        _ if !terms.audit => AuditEngine::Off,
        said => said,
    };
    rules
}

/// Reports a missing prerequisite as a warning.
fn warn(context: &mut dyn Context, key: &Argument, need: &model::Problem) {
    let warning = key.wrong(format!("{}: {}", need.place, need.message));
    context.warn(match &need.suggestion {
        Some(suggestion) => warning.help(suggestion.clone()),
        None => warning,
    });
}

/// Reports errors in rules as one problem of the configuration, at the key that names the files.
fn told(key: &Argument, problems: &[model::Problem]) -> Problem {
    let mut lines: Vec<String> = problems.iter().take(TOLD).map(ToString::to_string).collect();
    if problems.len() > TOLD {
        lines.push(format!("and {} more", problems.len() - TOLD));
    }
    key.wrong(lines.join("\n"))
}

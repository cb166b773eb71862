//! Expressions over exchanges: the language of `foregate-rules`, with the values of a pipeline as further fields.
//!
//! A [`Compiler`] is made for a pipeline and the named lists of a configuration. Its programs read an exchange through
//! [`View`]; a condition copies nothing except for composite fields such as `http.request.full_uri`.
//!
//! A value that a step shows is a field in all phases after the one in which the value is written. The field has the
//! name of the value, with `_` for `-`. The values named in [`VARIABLES`] together form one map, `vars`.

mod facts;
mod of_request;
#[cfg(test)]
mod tests;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use core::ops::{ControlFlow, Range};

use foregate_module::{Condition, Conditions, Doubt, Expression, Kind, PhaseId, Pipeline, View, testing};
use foregate_rules::{
    Entries, FactTable, FieldError, FieldId, Lists, Predicate, RuleSet, RuleSetError, Scalar, Scheme, Stage,
    StandardField, Type, Value, Word, limits, words,
};

use self::facts::{ExchangeFacts, Numbers, is_of_path};
pub use self::of_request::request_expression;

/// The names of the values with entries that form the map `vars`, in the order of their phases. A later value has all
/// entries of the earlier ones. Expressions may use `vars` already in the phase that writes the first value: the step
/// that sets the variables also evaluates expressions, and these see the variables so far.
pub const VARIABLES: [&str; 3] = ["vars", "vars-rewrite", "vars-response"];

/// The field with the client's country.
const COUNTRY: &str = "ip.src.country";

/// The name of the value with the client's country. Expressions can read it in two fields: the built-in field for the
/// country, and a field with the name of the value.
pub const COUNTRY_VALUE: &str = "geo.country";

/// The most readings of a path (ways in which an origin may decode it) for which conditions are evaluated. If a path
/// has more readings, the result of every condition that reads the path is in doubt.
const READINGS_MOST: usize = 32;

/// Why an expression was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The place in the text, in bytes. Empty if something is missing there.
    pub span: Range<usize>,
    /// The error, a sentence without full stop.
    pub message: String,
    /// A suggestion, if there is one.
    pub help: Option<String>,
    /// If only a named list is missing, the kind of entries that it needs.
    pub missing_list: Option<Entries>,
}

impl Mistake {
    /// A mistake other than a missing list.
    #[must_use]
    pub fn new(span: Range<usize>, message: impl Into<String>, help: Option<String>) -> Self {
        Self { span, message: message.into(), help, missing_list: None }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.span.start, self.message)?;
        self.help.as_ref().map_or(Ok(()), |help| write!(f, " ({help})"))
    }
}

impl From<foregate_rules::Error> for Mistake {
    fn from(error: foregate_rules::Error) -> Self {
        Self {
            span: error.span(),
            message: error.message().to_string(),
            help: error.help().map(ToString::to_string),
            missing_list: error.missing_list(),
        }
    }
}

/// Compiles expressions for the phases of a pipeline.
pub struct Compiler {
    scheme: Scheme,
    lists: Lists,
    numbers: Arc<Numbers>,
    /// For each field that was added, its name and the first phase in which it can be read.
    added: Vec<(String, PhaseId)>,
    /// The first phase in which the country can be read, if a step provides it.
    country: Option<PhaseId>,
    /// The values that the programs read, by their numbers in the pipeline.
    read: RefCell<Vec<u16>>,
}

impl Compiler {
    /// The lists that no compiled expression uses. Expressions that have been dropped do not count.
    pub fn unused_lists(&self) -> impl Iterator<Item = &str> {
        self.lists.unused()
    }

    /// A compiler for the values of a pipeline, with the current content of the lists.
    ///
    /// # Errors
    ///
    /// The name of a value is not a valid name of a field, or is that of a built-in field.
    pub fn new(pipeline: &Pipeline, lists: Lists) -> Result<Self, FieldError> {
        let mut compiler = Self {
            scheme: Scheme::standard(),
            lists,
            numbers: Arc::default(),
            added: Vec::new(),
            country: None,
            read: RefCell::default(),
        };
        let mut numbers = Numbers::default();
        for (number, value) in (0_u16..).zip(pipeline.values()) {
            let Some(kind) = value.shows else { continue };
            if VARIABLES.contains(&value.name) {
                if numbers.variables.is_empty() {
                    compiler.add(VARIABLES[0], Type::Map, value.phase, value.about)?;
                    numbers.added.push(None);
                }
                numbers.variables.push(number);
            } else {
                if value.name == COUNTRY_VALUE && kind == Kind::Bytes {
                    numbers.country = Some(number);
                    compiler.country = Some(behind(value.phase));
                }
                let name = value.name.replace('-', "_");
                compiler.add(&name, kind_of(kind), behind(value.phase), value.about)?;
                numbers.added.push(Some(number));
            }
        }
        compiler.numbers = Arc::new(numbers);
        Ok(compiler)
    }

    fn add(&mut self, name: &str, kind: Type, first: PhaseId, about: &str) -> Result<(), FieldError> {
        let scheme = core::mem::replace(&mut self.scheme, Scheme::standard());
        // The scheme knows only stages; `check` compares the phases, which are finer.
        self.scheme = scheme.with_field(name, kind, Stage::Request, about)?;
        self.added.push((name.to_string(), first));
        Ok(())
    }

    /// The numbers of the pipeline's values that are read by the programs compiled since the last call: see
    /// [`Configured::reads`](foregate_module::Configured::reads).
    pub fn take_read(&self) -> Box<[u16]> {
        self.read.take().into()
    }

    fn note_read(&self, field: FieldId) {
        let Numbers { added, country, variables } = &*self.numbers;
        let (one, many) = match (field.standard(), field.added().and_then(|number| added.get(number))) {
            (Some(StandardField::Country), _) => (*country, &[][..]),
            (_, Some(Some(number))) => (Some(*number), &[][..]),
            (_, Some(None)) => (None, &**variables),
            _ => (None, &[][..]),
        };
        // Each value is listed once: ten thousand rules may read the same value, and each plan walks over this list.
        let mut read = self.read.borrow_mut();
        for number in one.iter().chain(many) {
            if !read.contains(number) {
                read.push(*number);
            }
        }
    }

    /// The fields that expressions may use, including those of the pipeline.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// A condition to be evaluated in a phase.
    ///
    /// # Errors
    ///
    /// The text has a mistake, or a field that is not known in that phase.
    pub fn condition(&self, text: &str, phase: PhaseId) -> Result<Arc<dyn Condition>, Mistake> {
        let predicate = self.predicate(text, phase)?;
        let reads_path = predicate.reads().any(is_of_path);
        Ok(Arc::new(One { predicate, reads_path, numbers: Arc::clone(&self.numbers) }))
    }

    /// A value to be evaluated in a phase.
    ///
    /// # Errors
    ///
    /// As [`condition`](Self::condition).
    pub fn expression(&self, text: &str, phase: PhaseId) -> Result<Arc<dyn Expression>, Mistake> {
        let expression = self.scheme.compile_value(text, stage(phase), &self.lists)?;
        self.check(text, expression.reads(), phase)?;
        if expression.reads().next().is_some() {
            return Ok(Arc::new(Computed { expression, numbers: Arc::clone(&self.numbers) }));
        }
        let nothing = FactTable::new(&self.scheme);
        let value = expression.evaluate(&nothing).map(|value| value.to_text().into_owned().into());
        Ok(Arc::new(Constant(value)))
    }

    /// Many conditions to be evaluated in a phase.
    ///
    /// # Errors
    ///
    /// As [`condition`](Self::condition), with the number of the text at fault, from 0.
    pub fn conditions(
        &self,
        texts: &[&str],
        phase: PhaseId,
    ) -> Result<Arc<dyn Conditions>, (usize, Mistake)> {
        let mut predicates = Vec::with_capacity(texts.len());
        for (number, text) in texts.iter().enumerate() {
            predicates.push(self.predicate(text, phase).map_err(|mistake| (number, mistake))?);
        }
        let of_path = predicates.iter().map(|predicate| predicate.reads().any(is_of_path));
        let of_path: Box<[bool]> = of_path.collect();
        let reads_path = of_path.contains(&true);
        let rules = RuleSet::new(predicates).map_err(|error| {
            // The message names no rule by its number, because users number the rules of all phases, but this set has the rules of
            // one phase. The position in the file identifies the rule.
            let (number, message) = match error {
                RuleSetError::Patterns(number) => {
                    let most = limits::MAX_COMPILED_PATTERNS;
                    (number, format!("up to this rule the patterns of the rules take more than {most} bytes"))
                }
                RuleSetError::TooMany => (0, error.to_string()),
            };
            (number, Mistake::new(0..texts.get(number).map_or(0, |text| text.len()), message, None))
        })?;
        Ok(Arc::new(Many { rules, of_path, reads_path, numbers: Arc::clone(&self.numbers) }))
    }

    fn predicate(&self, text: &str, phase: PhaseId) -> Result<Predicate, Mistake> {
        let predicate = self.scheme.compile(text, stage(phase), &self.lists)?;
        self.check(text, predicate.reads(), phase)?;
        Ok(predicate)
    }

    /// Checks that all these fields are known in a phase.
    fn check(&self, text: &str, reads: impl Iterator<Item = FieldId>, phase: PhaseId) -> Result<(), Mistake> {
        for field in reads {
            self.note_read(field);
            let (name, first) = match (field.standard(), field.added()) {
                (Some(StandardField::Country), _) => (COUNTRY, self.country),
                (_, Some(number)) => match self.added.get(number) {
                    Some((name, first)) => (&**name, Some(*first)),
                    None => continue,
                },
                _ => continue,
            };
            let (message, help) = match first {
                Some(first) if first <= phase => continue,
                Some(first) => (
                    format!("`{name}` is not known before phase {first}, and this is evaluated in {phase}"),
                    None,
                ),
                None => {
                    (format!("nobody tells `{name}`"), Some("configure a module that knows it".to_string()))
                }
            };
            return Err(Mistake::new(place(text, self.scheme.field(field), name), message, help));
        }
        Ok(())
    }
}

/// The stage of expressions for a phase.
fn stage(phase: PhaseId) -> Stage {
    match phase {
        phase if phase >= PhaseId::UpstreamResponse => Stage::Response,
        phase if phase >= PhaseId::RequestBody => Stage::Body,
        _ => Stage::Request,
    }
}

/// The phase after another, or the last.
fn behind(phase: PhaseId) -> PhaseId {
    PhaseId::ALL.get(phase.order() + 1).copied().unwrap_or(PhaseId::Log)
}

fn kind_of(kind: Kind) -> Type {
    match kind {
        Kind::Bool => Type::Bool,
        Kind::Int => Type::Int,
        Kind::Bytes => Type::Bytes,
        Kind::Ip => Type::Ip,
        Kind::Map => Type::Map,
        Kind::Ints => Type::Array(Scalar::Int),
    }
}

/// The field that has the same meaning as a variable of NGINX; the variable's name includes the `$`.
pub fn field_of_variable(variable: &str) -> Option<String> {
    crate::literal::field(variable.strip_prefix('$')?)
}

/// The place at which a valid text names a field; all of the text if the place is not found.
fn place(text: &str, field: Option<&foregate_rules::Field>, name: &str) -> Range<usize> {
    let is_named = |word: &str| word == name || field.is_some_and(|field| field.aliases.contains(&word));
    let mut found = words(text).filter(|(word, _)| matches!(word, Word::Name(word) if is_named(word)));
    found.next().map_or(0..text.len(), |(_, span)| span)
}

/// The other readings of an exchange's path; `None` if there are too many to evaluate conditions for each.
fn other_paths<'v>(view: &View<'v>) -> Option<&'v [Vec<u8>]> {
    view.exchange().other_paths().filter(|paths| paths.len() <= READINGS_MOST)
}

struct One {
    predicate: Predicate,
    reads_path: bool,
    numbers: Arc<Numbers>,
}

impl Condition for One {
    fn holds(&self, view: &View<'_>) -> bool {
        let facts = ExchangeFacts { view: *view, numbers: &self.numbers, path: None };
        let holds = self.predicate.matches(&facts);
        let doubt = view.doubt();
        if !self.reads_path || doubt == Doubt::Ignored {
            return holds;
        }
        let other =
            |path: &Vec<u8>| self.predicate.matches(&ExchangeFacts { path: Some(path), ..facts }) != holds;
        let in_doubt = other_paths(view).is_none_or(|paths| paths.iter().any(other));
        if in_doubt && doubt == Doubt::Refuses {
            view.exchange().doubt_path();
        }
        holds && !(in_doubt && doubt == Doubt::Denies)
    }
}

struct Many {
    rules: RuleSet,
    /// For each rule: true if it reads the path.
    of_path: Box<[bool]>,
    /// Set if any rule reads the path.
    reads_path: bool,
    numbers: Arc<Numbers>,
}

impl Conditions for Many {
    fn each(&self, view: &View<'_>, visit: &mut dyn FnMut(usize) -> ControlFlow<()>) {
        // The visitor decides when to stop, so the result is ignored.
        let facts = ExchangeFacts { view: *view, numbers: &self.numbers, path: None };
        let _ = self.rules.each_match(&facts, visit);
    }

    fn each_in_doubt(&self, view: &View<'_>, visit: &mut dyn FnMut(usize) -> ControlFlow<()>) {
        if !self.reads_path {
            return;
        }
        let Some(paths) = other_paths(view) else {
            let of_path = (0..).zip(&self.of_path).filter(|(_, of_path)| **of_path);
            let _ = of_path.map(|(number, _)| number).try_for_each(visit);
            return;
        };
        if paths.is_empty() {
            return;
        }
        let matches = |path| {
            let mut all = Vec::new();
            let facts = ExchangeFacts { view: *view, numbers: &self.numbers, path };
            let _ = self.rules.each_match(&facts, |number| {
                all.push(number);
                ControlFlow::<()>::Continue(())
            });
            all
        };
        let own = matches(None);
        for path in paths {
            let other = matches(Some(path));
            let only_own = own.iter().filter(|number| other.binary_search(number).is_err());
            let only_other = other.iter().filter(|number| own.binary_search(number).is_err());
            if only_own.chain(only_other).try_for_each(|number| visit(*number)).is_break() {
                return;
            }
        }
    }
}

/// An expression that reads nothing.
struct Constant(Option<Box<[u8]>>);

impl Expression for Constant {
    fn evaluate<'v>(&'v self, _: &View<'v>) -> Option<Cow<'v, [u8]>> {
        self.0.as_deref().map(Cow::Borrowed)
    }
}

struct Computed {
    expression: foregate_rules::Expression,
    numbers: Arc<Numbers>,
}

impl Expression for Computed {
    fn evaluate<'v>(&'v self, view: &View<'v>) -> Option<Cow<'v, [u8]>> {
        let facts = ExchangeFacts { view: *view, numbers: &self.numbers, path: None };
        match self.expression.evaluate(&facts)? {
            Value::Bytes(bytes) => Some(Cow::Owned(bytes.into_owned())),
            value => Some(Cow::Owned(value.to_text().into_owned())),
        }
    }
}

impl testing::Compile for Compiler {
    fn condition(&self, text: &str, phase: PhaseId) -> Result<Arc<dyn Condition>, String> {
        self.condition(text, phase).map_err(|mistake| mistake.to_string())
    }

    fn expression(&self, text: &str, phase: PhaseId) -> Result<Arc<dyn Expression>, String> {
        self.expression(text, phase).map_err(|mistake| mistake.to_string())
    }

    fn conditions(&self, texts: &[&str], phase: PhaseId) -> Result<Arc<dyn Conditions>, (usize, String)> {
        self.conditions(texts, phase).map_err(|(number, mistake)| (number, mistake.to_string()))
    }
}

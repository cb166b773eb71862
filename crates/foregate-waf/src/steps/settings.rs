//! The settings of the key `waf`.

use std::sync::Arc;
use std::time::Duration;

use foregate_module::settings::{
    Argument, Context, FromNode, Key, LogId, Mistakes, Node, Problem, each, together,
};
use foregate_module::{Condition, Load, PhaseId, View, WhenFull};

use super::engines::{CompiledRules, Engines, Terms};
use super::keys::WAF;
use crate::engine::{Beyond, ENVIRONMENT, Engine, TransactionLimits, Unreadable};
use crate::model::{BeyondLimit, EngineMode};

/// The largest part of a request's body that rules can see, bytes. Platforms keep no more of a body for steps.
pub(super) const BODY_MOST: u64 = 64 << 20;
/// The default number of bytes of a response's body that rules see, and the largest value of `heavy`.
const RESPONSE_MOST: u64 = 1 << 20;
/// The number of bytes of a request's body that rules see, by default: the value in ModSecurity's recommended
/// configuration.
pub(super) const BODY: u64 = 13_107_200;
/// The longest that a request may wait for a thread.
const DEADLINE_MOST: Duration = Duration::from_secs(5);
/// The allowed values for the pause in a stream after which rules see the bytes so far.
const PAUSES: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
/// The default size up to which a body is held in memory, bytes. For smaller bodies, a file would cost more
/// than the memory.
const IN_MEMORY: u64 = 1 << 20;
/// The number of bytes that each value adds to the size of an input, which decides if the input is heavy.
const VALUE: usize = 64;
/// The id of the rule for the first `exclude`. It is larger than the ids that rule sets use.
const EXCLUDES: u64 = 4_294_960_000;
/// The most keys `exclude` in one `waf`; more are an error.
const EXCLUDES_MOST: usize = 4_096;
/// All requests, in hundredths of a percent.
const ALL: u64 = 10_000;

/// The settings of `waf`.
pub struct WafSettings {
    pub(super) compiled: Arc<CompiledRules>,
    pub(super) mode: EngineMode,
    pub(super) log: Option<LogId>,
    pub(super) audit: Option<LogId>,
    /// Set if log lines have to be in their files before the response begins.
    pub(super) log_sync: bool,
    pub(super) excludes: Vec<Exclude>,
    /// The share of requests that are inspected, hundredths of a percent.
    sample: u64,
    pub(super) body: usize,
    /// The size up to which a request's body is held in memory, bytes.
    pub(super) body_in_memory: usize,
    /// Set if bodies longer than `body` are refused.
    pub(super) refuses_long: bool,
    /// If rules may stop requests: the pause in a body of unknown length after which rules see the bytes so far.
    pub(super) stream_pause: Option<Duration>,
    /// Set if trailers of requests are removed.
    pub(super) drops_trailers: bool,
    heavy: usize,
    when_full: WhenFull,
    deadline: Duration,
}

/// Rules that do not run for some requests.
pub(super) struct Exclude {
    rules: ExcludedRules,
    when: Option<Arc<dyn Condition>>,
}

/// The rules that an `exclude` selects.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ExcludedRules {
    Id(u64),
    Tag(String),
}

impl Exclude {
    /// The exclusion as a rule that comes before all others.
    fn rule(&self, number: usize) -> String {
        let what = match &self.rules {
            ExcludedRules::Id(id) => format!("ruleRemoveById={id}"),
            ExcludedRules::Tag(tag) => format!("ruleRemoveByTag={tag}"),
        };
        let rule = match &self.when {
            Some(_) => format!("SecRule ENV:{} \"@streq 1\"", excluding(number)),
            None => "SecAction".to_owned(),
        };
        let id = EXCLUDES + number as u64;
        format!("{rule} \"id:{id},phase:1,pass,nolog,noauditlog,t:none,ctl:{what}\"\n")
    }

    /// The key as written, without its condition.
    pub(super) fn written(&self) -> String {
        match &self.rules {
            ExcludedRules::Id(id) => format!("exclude id={id}"),
            ExcludedRules::Tag(tag) => format!("exclude tag=\"{tag}\""),
        }
    }

    /// Returns true if it has a condition.
    pub(super) fn has_condition(&self) -> bool {
        self.when.is_some()
    }

    /// Returns true if the exclusion has a condition, and the condition holds for the request.
    pub(super) fn holds_for(&self, view: &View<'_>) -> bool {
        self.when.as_ref().is_some_and(|when| when.holds(view))
    }
}

impl WafSettings {
    /// The rules, compiled.
    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.compiled.engine
    }

    /// Returns true if the request is in the sample; `random` decides.
    pub(super) fn is_sampled(&self, random: u64) -> bool {
        random % ALL < self.sample
    }

    /// Returns true if all requests are inspected.
    pub(super) fn samples_all(&self) -> bool {
        self.sample == ALL
    }

    /// Returns true if no request is ever stopped.
    pub(super) fn only_detects(&self) -> bool {
        self.mode == EngineMode::DetectionOnly
    }

    /// Chooses the thread for an input. The input is heavy if its size reaches the setting `heavy`, where each value
    /// adds [`VALUE`] bytes to the size.
    pub(super) fn load(&self, bytes: usize, values: impl FnOnce() -> usize) -> Load {
        if bytes >= self.heavy || bytes + VALUE * values() >= self.heavy {
            return Load::Heavy { when_full: self.when_full, wait: self.deadline };
        }
        Load::Light
    }
}

impl FromNode for WafSettings {
    const KEY: Option<&'static Key> = Some(&WAF);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        Self::read(nodes, &Engines::default(), context)
    }
}

impl WafSettings {
    /// Reads the settings. Rules that `engines` already has are not compiled again.
    pub(super) fn read(
        nodes: &[Node],
        engines: &Engines,
        context: &mut dyn Context,
    ) -> Result<Self, Problem> {
        let Some(node) = nodes.first() else {
            return Err(Problem::new(Default::default(), "`waf` has no settings"));
        };
        if let Some(argument) = node.args().first() {
            return Err(argument.wrong("`waf` takes no value but #false"));
        }
        let modes = [("detect", EngineMode::DetectionOnly), ("block", EngineMode::On)];
        let body = node.child("body-limit");
        let longer = [("start", false), ("refuse", true)];
        let beyond = body.and_then(|body| body.prop("beyond"));
        let memory = body.and_then(|body| body.prop("memory"));
        let (
            mode,
            (log, audit, log_sync),
            refuses,
            memory,
            (drops_trailers, stream_pause),
            load,
            (excludes, terms),
        ) = together((
            node.prop("mode").map_or(Ok(EngineMode::DetectionOnly), |mode| mode.choice(&modes)),
            read_logs(node, context),
            beyond.map(|beyond| beyond.choice(&longer)).transpose(),
            memory.map(|memory| memory.size(0..=BODY_MOST)).transpose(),
            read_streams(node),
            read_load(node),
            read_terms(node, context),
        ))?;
        let (sample, heavy, when_full, deadline) = load;
        let files: Vec<Argument> =
            node.children_named("rules").flat_map(|rules| rules.args().iter().cloned()).collect();
        if files.is_empty() {
            return Err(node.wrong("`waf` needs `rules`"));
        }
        let written: Vec<&Node> = node.children_named("exclude").collect();
        let compiled = engines.compiled(&files, &terms, &written, context)?;
        let said = compiled.engine.settings();
        let seen = if said.request_body_access { said.request_body_limit as usize } else { 0 };
        let says_start = said.request_body_limit_action_said
            && said.request_body_limit_action == BeyondLimit::ProcessPartial;
        let refuses = refuses.unwrap_or(!says_start);
        let memory = memory.unwrap_or_else(|| said.request_body_in_memory_limit.max(IN_MEMORY));
        if mode == EngineMode::On {
            let what = UnreadParts {
                body: (seen > 0 && !refuses).then_some(seen),
                sample,
                when_full,
                stream_pause: stream_pause.is_some(),
            };
            warn_of_rest(node, &what, &terms, context);
        }
        Ok(Self {
            mode,
            log,
            audit,
            log_sync,
            excludes,
            sample,
            body: seen,
            body_in_memory: usize::try_from(memory).unwrap_or(usize::MAX),
            // If rules see no bodies, no body is too long for them.
            refuses_long: refuses && seen > 0,
            stream_pause,
            drops_trailers: drops_trailers && mode == EngineMode::On,
            heavy: heavy as usize,
            when_full,
            deadline,
            compiled,
        })
    }
}

/// Reads the files for log lines and for the audit log, and true if lines have to be in them before the
/// response begins.
fn read_logs(
    node: &Node,
    context: &mut dyn Context,
) -> Result<(Option<LogId>, Option<LogId>, bool), Problem> {
    let sync = node.prop("log-sync");
    let (log, audit, log_sync) = together((
        node.prop("log").map(|file| context.log(file)).transpose(),
        node.prop("audit").map(|file| context.log(file)).transpose(),
        sync.map_or(Ok(false), Argument::flag),
    ))?;
    if let Some(sync) = sync.filter(|_| log_sync && log.is_none() && audit.is_none()) {
        return Err(sync.wrong("`log-sync` needs a file: `log` or `audit`"));
    }
    Ok((log, audit, log_sync))
}

/// Reads the share of requests to inspect, the size from which an input is heavy, the treatment of requests
/// when too many are heavy, and the time limit of heavy ones.
fn read_load(node: &Node) -> Result<(u64, u64, WhenFull, Duration), Problem> {
    let full = [("inline", WhenFull::Inline), ("shed", WhenFull::Shed), ("error", WhenFull::Error)];
    let argument = |name| node.child(name).map(|child| child.arg(0)).transpose();
    let duration = |deadline: &Argument| deadline.duration(Duration::from_millis(1)..=DEADLINE_MOST);
    together((
        argument("sample").and_then(|share| share.map_or(Ok(ALL), percent)),
        argument("heavy").and_then(|size| size.map_or(Ok(4096), |size| size.size(0..=RESPONSE_MOST))),
        argument("when-full").and_then(|word| word.map_or(Ok(WhenFull::Inline), |word| word.choice(&full))),
        argument("deadline").and_then(|time| time.map_or(Ok(Duration::from_secs(1)), duration)),
    ))
}

/// Reads true if trailers are removed, and the pause after which rules see the bytes of a stream so far.
fn read_streams(node: &Node) -> Result<(bool, Option<Duration>), Problem> {
    let argument = |name| node.child(name).map(|child| child.arg(0)).transpose();
    let words = [("remove", true), ("pass", false)];
    together((
        argument("trailers").and_then(|word| word.map_or(Ok(true), |word| word.choice(&words))),
        argument("stream-pause").and_then(|time| time.map(|time| time.duration(PAUSES)).transpose()),
    ))
}

fn read_terms(node: &Node, context: &mut dyn Context) -> Result<(Vec<Exclude>, Terms), Problem> {
    let excludes = excludes(node, context);
    let terms = terms(node, excludes.as_deref().unwrap_or_default());
    together((excludes, terms))
}

/// The parts of requests that a blocking firewall does not read.
struct UnreadParts {
    /// The length of a body beyond which its bytes are not read; `None` if none are left unread.
    body: Option<usize>,
    /// The share of requests that are read, hundredths of a percent. All others are unread.
    sample: u64,
    when_full: WhenFull,
    /// Set if bytes after a pause in a stream are unread.
    stream_pause: bool,
}

/// Warns of input that passes uninspected with these settings, which an attacker can use to evade the rules.
/// Each warning names the key that closes the gap.
fn warn_of_rest(node: &Node, unlooked: &UnreadParts, terms: &Terms, context: &mut dyn Context) {
    let place = |key: &str| node.child(key).unwrap_or(node);
    let mut warn = |key: &str, what: String, help: &str| {
        context.warn(place(key).wrong(format!("rules do not see all: {what}")).help(help));
    };
    if let Some(most) = unlooked.body {
        let what = format!("what a request's body has beyond {most} bytes passes unseen");
        warn(
            "body-limit",
            what,
            "write `beyond=\"refuse\"` at `body-limit`, with the most that a body may have",
        );
    }
    if terms.body == Some(0) {
        let what = "bodies of requests pass unseen".to_owned();
        warn("body-limit", what, "leave out `body-limit` where the route is not for streams");
    }
    if unlooked.sample < ALL {
        let what = "requests beyond `sample` pass unseen".to_owned();
        warn("sample", what, "leave out `sample` once the rules block");
    }
    if unlooked.when_full == WhenFull::Shed {
        let what = "requests pass unseen while all threads for heavy work are busy".to_owned();
        warn("when-full", what, "write `when-full \"error\"`");
    }
    if unlooked.stream_pause {
        let what = "what a body of unknown length has behind a pause passes unseen".to_owned();
        warn("stream-pause", what, "leave out `stream-pause` where the route is not for streams");
    }
    if terms.limits.beyond == Beyond::Continue {
        let what = "what a request has beyond its budget passes unseen".to_owned();
        warn("budget", what, "leave out `beyond=\"pass\"`");
    }
    if terms.limits.unreadable == Unreadable::Pass {
        let what = "bodies that cannot be read pass".to_owned();
        warn("unreadable", what, "write `unreadable \"refuse\"`");
    }
}

fn terms(node: &Node, excludes: &[Exclude]) -> Result<Terms, Problem> {
    let size = |name: &str, most| node.child(name).map(|child| child.arg(0)?.size(0..=most)).transpose();
    let mut limits = TransactionLimits::default();
    let mut mistakes = Mistakes::default();
    if let Some(budget) = node.child("budget") {
        let beyond = [("refuse", Beyond::Deny(413)), ("pass", Beyond::Continue)];
        let beyond = budget.prop("beyond").map_or(Ok(Beyond::Deny(413)), |word| word.choice(&beyond));
        let work = budget.arg(0).and_then(|work| work.size(1..=u64::MAX));
        (limits.work, limits.beyond) =
            mistakes.kept(together((work, beyond))).unwrap_or((limits.work, limits.beyond));
    }
    if let Some(files) = node.child("unclear-files") {
        let read = files.arg(0).and_then(|word| word.choice(&[("files", false), ("both", true)]));
        limits.unclear_files = mistakes.kept(read).unwrap_or_default();
    }
    if let Some(unreadable) = node.child("unreadable") {
        let words = [("refuse", Unreadable::Deny(400)), ("pass", Unreadable::Pass)];
        let read = unreadable.arg(0).and_then(|word| word.choice(&words));
        limits.unreadable = mistakes.kept(read).unwrap_or(limits.unreadable);
    }
    let types = node.child("response-body").and_then(|node| node.prop("types"));
    let types = types.map(|types| {
        let types: Vec<Box<str>> =
            types.text()?.split_ascii_whitespace().map(|word| word.to_ascii_lowercase().into()).collect();
        Ok::<_, Problem>(types)
    });
    let ((), body, response_types, response_body) = together((
        mistakes.none(),
        size("body-limit", BODY_MOST),
        types.transpose(),
        size("response-body", RESPONSE_MOST),
    ))?;
    Ok(Terms {
        limits,
        body,
        response_types,
        response_body,
        excludes: excludes.iter().enumerate().map(|(number, exclude)| exclude.rule(number)).collect(),
        audit: node.prop("audit").is_some(),
    })
}

/// Reads the exclusions. There may be at most [`EXCLUDES_MOST`], of which at most [`ENVIRONMENT`] have a
/// condition, because each condition needs a variable of `ENV`.
fn excludes(node: &Node, context: &mut dyn Context) -> Result<Vec<Exclude>, Problem> {
    let mut excludes: Vec<Exclude> = Vec::new();
    let mut conditions = 0;
    let nodes = || node.children_named("exclude");
    for (node, exclude) in nodes().zip(each::<_, Vec<_>>(nodes().map(|node| exclude(node, context)))?) {
        conditions += usize::from(exclude.when.is_some());
        if conditions > ENVIRONMENT {
            return Err(node
                .wrong(format!("there are more than {ENVIRONMENT} `exclude`s with `when`"))
                .help("join some of one rule or tag by `or` in one condition"));
        }
        if excludes.len() == EXCLUDES_MOST {
            return Err(node.wrong(format!("there are more than {EXCLUDES_MOST} `exclude`s")));
        }
        excludes.push(exclude);
    }
    Ok(excludes)
}

fn exclude(node: &Node, context: &mut dyn Context) -> Result<Exclude, Problem> {
    let rules = match (node.prop("id"), node.prop("tag")) {
        (Some(id), None) => id.number(1..=u64::from(u32::MAX)).map(ExcludedRules::Id),
        (None, Some(tag)) => read_tag(tag).map(ExcludedRules::Tag),
        _ => Err(node.wrong("`exclude` needs either `id` or `tag`")),
    };
    let when = node.prop("when").map(|when| context.condition(when, PhaseId::RequestSecurity)).transpose();
    let (rules, when) = together((rules, when))?;
    Ok(Exclude { rules, when })
}

/// Reads a tag. It must not contain characters that cannot be written in a rule.
fn read_tag(argument: &Argument) -> Result<String, Problem> {
    let text = argument.text()?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
    if text.is_empty() || text.starts_with('/') || !text.bytes().all(fits) {
        return Err(argument.wrong("this is not a tag").help("write one such as \"attack-sqli\""));
    }
    Ok(text.to_owned())
}

/// The name of the variable that marks requests to which this exclusion applies.
pub(super) fn excluding(number: usize) -> String {
    format!("foregate.exclude.{number}")
}

/// Reads a percentage, and returns it in hundredths of a percent.
fn percent(argument: &Argument) -> Result<u64, Problem> {
    let wrong = || argument.wrong("expected a percentage from \"0.01%\" to \"100%\"");
    let text = argument.text()?;
    let number = text.strip_suffix('%').ok_or_else(wrong)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 2 || whole.len() > 3 {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let part: u64 = format!("{part:0<2}").parse().map_err(|_| wrong())?;
    let hundredths = whole * 100 + part;
    if (1..=ALL).contains(&hundredths) { Ok(hundredths) } else { Err(wrong()) }
}

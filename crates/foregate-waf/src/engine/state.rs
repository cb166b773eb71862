//! The state of one transaction.

use foldhash::HashSet;

use super::bits::Bits;
use super::budget::Budget;
use super::plan::Plan;
use super::report::Match;
use super::tx::{Slot, Variables};
use super::values::{Span, Values};
use super::verdict::Verdict;
use super::would::Would;
use crate::model::{
    AllowScope, AuditEngine, AuditParts, BodyProcessor, EngineMode, Phase, Variable, XmlArguments,
};
use crate::transform::Bytes;

/// The name of a value within its variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRef {
    /// The value has no name.
    None,
    /// A piece of the text.
    Span(Span),
    /// The slot of a variable of `TX`, which has a name that rules write out.
    Slot(Slot),
}

/// A value that matched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchedValue {
    pub(crate) variable: Variable,
    pub(crate) name: NameRef,
    /// The value as the operator saw it.
    pub(crate) value: Span,
    /// The number of the link that matched.
    pub(crate) link: usize,
}

/// Memory for the forms of a value, reused for the next value.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The kinds of bytes in each form, and the position of its hits in `hits`.
    pub(crate) forms: Vec<(Bytes, u32)>,
    /// Hits of the distinct forms, a row of words each.
    pub(crate) hits: Vec<u64>,
    /// The result of a scan.
    pub(crate) found: crate::scan::ScanHits,
    /// Text that is being put together.
    pub(crate) text: Vec<u8>,
}

/// Settings that `ctl` may change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Switches {
    pub(crate) mode: EngineMode,
    /// Set if the host only detects: it never stops a request, whatever rules decide.
    pub(crate) detects: bool,
    pub(crate) request_body: bool,
    pub(crate) request_body_limit: u64,
    pub(crate) processor: Option<BodyProcessor>,
    pub(crate) force_request_body: bool,
    pub(crate) response_body: bool,
    pub(crate) response_body_limit: u64,
    pub(crate) xml_arguments: XmlArguments,
    pub(crate) audit: AuditEngine,
    pub(crate) audit_parts: AuditParts,
}

/// The time of the transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// The time at which the transaction began, since 1970.
    pub(crate) started: std::time::Duration,
    /// The time since the transaction began.
    pub(crate) elapsed: std::time::Duration,
}

impl Clock {
    /// The present time, seconds since 1970.
    pub(crate) fn now(self) -> u64 {
        self.started.saturating_add(self.elapsed).as_secs()
    }
}

/// The scope of `allow`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// Set if no further rules run up to the response.
    pub(crate) request: bool,
    /// Set if no further rules run in the transaction, except for the log.
    pub(crate) transaction: bool,
}

impl Allowed {
    /// Returns true if the rules of a phase are skipped.
    pub(crate) fn covers(self, phase: Phase) -> bool {
        match phase {
            Phase::RequestHeaders | Phase::RequestBody => self.request || self.transaction,
            Phase::ResponseHeaders | Phase::ResponseBody => self.transaction,
            Phase::Logging => false,
        }
    }

    /// Adds the scope of another `allow`.
    pub(crate) fn add(&mut self, scope: AllowScope) {
        match scope {
            AllowScope::Phase => {}
            AllowScope::Request => self.request = true,
            AllowScope::Transaction => self.transaction = true,
        }
    }
}

/// The most values of matches that are kept from one phase to the next.
const MATCHED_ROOM: usize = 256;

/// A quoted value without a closing quote in its field. The origin may join the following `Cookie`
/// fields to it.
#[derive(Debug)]
pub(crate) struct OpenCookie {
    pub(crate) name: Span,
    /// The text after the quote.
    pub(crate) text: Vec<u8>,
}

/// The state of one transaction.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) values: Values,
    pub(crate) tx: Variables,
    pub(crate) switches: Switches,
    pub(crate) clock: Clock,
    /// Transformed values of the current phase.
    pub(crate) forms: Vec<Span>,
    /// The candidates of values in the current phase, in rows of words. The first row is empty.
    pub(crate) words: Vec<u64>,
    /// The steps of the current phase that have to run.
    pub(crate) live: Bits,
    pub(crate) scratch: Scratch,
    /// The matches of the running rule.
    pub(crate) matched: Vec<MatchedValue>,
    /// The rule that runs.
    pub(crate) rule: usize,
    pub(crate) phase: Phase,
    /// Set while the folded plan is valid.
    pub(crate) folded: bool,
    /// Rules that `ctl` has removed; `None` while there are none.
    pub(crate) removed: Option<Box<Bits>>,
    /// Exclusions of targets by `ctl`, each as the rule, link and effect that contains it. The rule set bounds
    /// their number.
    pub(crate) removed_targets: HashSet<(usize, usize, usize)>,
    /// The entries of `removed_targets` that apply to the running rule.
    pub(crate) removed_here: Vec<(usize, usize, usize)>,
    /// Keys of collections in the store, in the order of their type.
    pub(crate) keys: [Option<Span>; 5],
    pub(crate) session_id: Option<Span>,
    pub(crate) user_id: Option<Span>,
    pub(crate) env: Vec<(Span, Span)>,
    /// The number of `ENV` variables that the host has set.
    pub(crate) env_of_host: usize,
    pub(crate) open_cookie: Option<OpenCookie>,
    pub(crate) masks: super::masks::Masks,
    /// For each recorded match, the version of the masks when it was recorded.
    pub(crate) masked: Vec<usize>,
    pub(crate) highest_severity: Option<u8>,
    pub(crate) allowed: Allowed,
    pub(crate) budget: Budget,
    /// The limit that the request's body exceeded, if nothing had been decided before. Because of the limit, the host
    /// has denied the request, or would have denied it. If rules have switched the engine to detection, the limit is
    /// recorded as well, although no host would have denied the request.
    pub(crate) beyond: Option<&'static str>,
    /// The reason why rules cannot read the request's body, if they cannot.
    pub(crate) unreadable: Option<String>,
    /// Set if the host denies the request for its unreadable body, or would.
    pub(crate) refused_unreadable: bool,
    pub(crate) matches: Vec<Match>,
    pub(crate) omitted: u64,
    /// The number of times that an operator has looked at a value.
    pub(crate) looks: u64,
    pub(crate) verdict: Option<Verdict>,
    /// The verdicts that a blocking host would have applied, while the host only detects.
    pub(crate) would: Would,
    pub(crate) audit_relevant: bool,
    /// The secrets among the values.
    pub(crate) secrets: super::secrets::Secrets,
    /// Set while texts are expanded that must not show the matched value.
    pub(crate) hiding: bool,
    /// The most bytes of a value that are inserted into an expanded text.
    pub(crate) piece: usize,
}

impl State {
    pub(crate) fn new(plan: &Plan, mode: EngineMode, started: std::time::Duration) -> Self {
        let settings = &plan.settings;
        let mut tx = Variables::default();
        tx.start(plan.names.len());
        Self {
            values: Values::with_room(),
            tx,
            switches: Switches {
                mode,
                detects: false,
                request_body: settings.request_body_access,
                request_body_limit: settings.request_body_limit,
                processor: None,
                force_request_body: false,
                response_body: settings.response_body_access,
                response_body_limit: settings.response_body_limit,
                xml_arguments: settings.xml_arguments,
                audit: settings.audit_engine,
                audit_parts: settings.audit_parts,
            },
            clock: Clock { started, elapsed: std::time::Duration::ZERO },
            forms: Vec::new(),
            words: Vec::new(),
            live: Bits::default(),
            scratch: Scratch::default(),
            matched: Vec::new(),
            rule: 0,
            phase: Phase::RequestHeaders,
            folded: true,
            removed: None,
            removed_targets: HashSet::default(),
            removed_here: Vec::new(),
            keys: [None; 5],
            session_id: None,
            user_id: None,
            env: Vec::new(),
            env_of_host: 0,
            open_cookie: None,
            masks: super::masks::Masks::default(),
            masked: Vec::new(),
            highest_severity: None,
            allowed: Allowed::default(),
            budget: Budget::new(&plan.limits),
            beyond: None,
            unreadable: None,
            refused_unreadable: false,
            matches: Vec::new(),
            omitted: 0,
            looks: 0,
            verdict: None,
            would: Would::new(mode),
            audit_relevant: false,
            secrets: super::secrets::Secrets::default(),
            hiding: false,
            piece: usize::MAX,
        }
    }

    /// Selects the parser of the body.
    pub(crate) fn set_processor(&mut self, processor: BodyProcessor) {
        self.switches.processor = Some(processor);
        self.values.set_text(Variable::ReqbodyProcessor, processor.name().as_bytes());
    }

    /// Drops the matches of the previous rule, and frees memory beyond [`MATCHED_ROOM`] matches.
    pub(crate) fn forget_matched(&mut self) {
        self.matched.clear();
        self.matched.shrink_to(MATCHED_ROOM);
    }

    /// Returns true if there is room for this much further text; otherwise the transaction is over its budget.
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        self.budget.has_room(self.values.text.len().saturating_add(bytes))
    }
}

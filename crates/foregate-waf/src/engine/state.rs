//! The state of one transaction.

use foldhash::HashSet;

use super::bits::Bits;
use super::limits::{BODY_TEXT, BODY_TEXT_OF, LONG_BODY_TEXT, TURN};
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
    /// There is none.
    None,
    /// A piece of the text.
    Span(Span),
    /// A variable of `TX` under a name of the rules.
    Slot(Slot),
}

/// A value that matched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchedValue {
    pub(crate) variable: Variable,
    pub(crate) name: NameRef,
    /// The value as the operator saw it.
    pub(crate) value: Span,
    /// The number of the link.
    pub(crate) link: usize,
}

/// Memory for the forms of a value, reused for the next value.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// For each form, the kinds of its bytes and the start of its hits.
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
    /// Set if the host never stops a request, whatever rules decide.
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
    /// When it began, since 1970.
    pub(crate) started: std::time::Duration,
    /// The time since then.
    pub(crate) elapsed: std::time::Duration,
}

impl Clock {
    /// Seconds since 1970, now.
    pub(crate) fn now(self) -> u64 {
        self.started.saturating_add(self.elapsed).as_secs()
    }
}

/// The scope of `allow`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// No rules up to the response.
    pub(crate) request: bool,
    /// No rules up to the end.
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

    /// Widens it.
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

/// A value in quotes that has not ended with its field: fields that follow are joined to it for the origin.
#[derive(Debug)]
pub(crate) struct OpenCookie {
    pub(crate) name: Span,
    /// The text after the quote.
    pub(crate) text: Vec<u8>,
}

/// One transaction.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) values: Values,
    pub(crate) tx: Variables,
    pub(crate) switches: Switches,
    pub(crate) clock: Clock,
    /// Transformed values of the current phase.
    pub(crate) forms: Vec<Span>,
    /// Candidates of values in the current phase: rows of words, the first of them empty.
    pub(crate) words: Vec<u64>,
    /// Steps of the current phase that are to be done.
    pub(crate) live: Bits,
    pub(crate) scratch: Scratch,
    /// The matches of the running rule.
    pub(crate) matched: Vec<MatchedValue>,
    /// The rule that runs.
    pub(crate) rule: usize,
    pub(crate) phase: Phase,
    /// Set while the folded plan is valid.
    pub(crate) folded: bool,
    /// Rules that do not run any more; `None` while there are none.
    pub(crate) removed: Option<Box<Bits>>,
    /// Targets that are not looked at any more: rule, link and effect that say so. The rule set bounds how many those are.
    pub(crate) removed_targets: HashSet<(usize, usize, usize)>,
    /// The removed ones that the running rule skips.
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
    /// Of each match that is kept, how many masks were known by then.
    pub(crate) masked: Vec<usize>,
    pub(crate) highest_severity: Option<u8>,
    pub(crate) allowed: Allowed,
    /// Work left; see [`Limits::work`](super::TransactionLimits::work).
    pub(crate) work: u64,
    /// When this much work is left, other tasks have their turn again.
    pub(crate) turn_ends: u64,
    /// Lets other tasks have their turn.
    pub(crate) give_way: fn(),
    /// The largest amount of text, bytes, including the allowance for bodies in [`Limits::text`](super::TransactionLimits::text).
    pub(crate) text_most: usize,
    /// The exceeded limit, if any.
    pub(crate) over: Option<Over>,
    /// The limit that the request's body was longer than, if nothing had been decided before: the host has denied the request for it, or
    /// would have. It is set as well where rules have the engine only detect, so that neither holds.
    pub(crate) beyond: Option<&'static str>,
    /// Why rules cannot read the request's body, if they cannot.
    pub(crate) unreadable: Option<String>,
    /// Set if the host denies the request for that, or would.
    pub(crate) refused_unreadable: bool,
    pub(crate) matches: Vec<Match>,
    pub(crate) omitted: u64,
    /// Exact looks at values so far.
    pub(crate) looks: u64,
    pub(crate) verdict: Option<Verdict>,
    /// The verdicts that a blocking host would have applied, while the host only detects.
    pub(crate) would: Would,
    pub(crate) audit_relevant: bool,
    /// Secrets among the values.
    pub(crate) secrets: super::secrets::Secrets,
    /// Set if expanded texts must not show the match.
    pub(crate) hiding: bool,
    /// Most bytes of a value that goes into a text that is expanded.
    pub(crate) piece: usize,
}

/// The limit that a transaction exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Over {
    /// Work: [`Limits::work`](super::TransactionLimits::work).
    Work,
    /// Text: [`Limits::text`](super::TransactionLimits::text).
    Text,
    /// Arguments: `SecArgumentsLimit`.
    Arguments,
    /// Variables with made names: [`Limits::variables`](super::TransactionLimits::variables).
    Variables,
    /// Fields: [`Limits::fields`](super::TransactionLimits::fields), or cookies.
    Fields,
}

impl Over {
    /// The name of the limit, in logs and for expressions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Text => "text",
            Self::Arguments => "arguments",
            Self::Variables => "variables",
            Self::Fields => "fields",
        }
    }
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
            work: plan.limits.work,
            turn_ends: plan.limits.work.saturating_sub(TURN),
            give_way: || {},
            text_most: plan.limits.text,
            over: None,
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

    /// Takes off work. Returns true if there was enough.
    #[inline]
    pub(crate) fn spend(&mut self, work: u64) -> bool {
        match self.work.checked_sub(work) {
            Some(left) => {
                self.work = left;
                if left < self.turn_ends {
                    self.end_turn();
                }
                true
            }
            None => {
                self.exceed(Over::Work);
                false
            }
        }
    }

    #[cold]
    fn end_turn(&mut self) {
        self.turn_ends = self.work.saturating_sub(TURN);
        (self.give_way)();
    }

    /// Returns true if there is room for this much text; otherwise the transaction is over its budget.
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        let fits = self.values.text.len().saturating_add(bytes) <= self.text_most;
        if !fits {
            self.exceed(Over::Text);
        }
        fits
    }

    /// Adds the room that a body of this many bytes brings.
    pub(crate) fn add_room(&mut self, body: usize) {
        let (first, rest) = (body.min(BODY_TEXT_OF), body.saturating_sub(BODY_TEXT_OF));
        let room = first.saturating_mul(BODY_TEXT).saturating_add(rest.saturating_mul(LONG_BODY_TEXT));
        self.text_most = self.text_most.saturating_add(room);
    }

    /// Drops the matches of the previous rule. Room for many is released before the response arrives.
    pub(crate) fn forget_matched(&mut self) {
        self.matched.clear();
        self.matched.shrink_to(MATCHED_ROOM);
    }

    /// Records that the budget was exceeded. A lack of work is the most important reason.
    pub(crate) fn exceed(&mut self, over: Over) {
        if over == Over::Work || self.over.is_none() {
            self.over = Some(over);
        }
    }

    /// Returns true if all work is spent: operations with a cost are skipped from then on.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.over == Some(Over::Work)
    }
}

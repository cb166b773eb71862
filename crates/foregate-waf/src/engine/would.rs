//! The hypothetical verdict of a transaction whose host only detects.

use super::state::Allowed;
use super::verdict::Verdict;
use crate::model::{AllowScope, EngineMode, Phase, RuleId};

/// The verdict that a blocking host would have applied. In detection all rules run and are reported;
/// those that a blocking host would have skipped, or that only detect, do not count here.
#[derive(Debug)]
pub(crate) struct Would {
    /// The mode that the engine would be in.
    mode: EngineMode,
    /// The exemptions that would apply.
    allowed: Allowed,
    /// The phase of which no further rule would have run.
    ended: Option<Phase>,
    /// The verdict of the first rule that would have stopped it, or of a limit of the host before.
    pub(crate) verdict: Option<Verdict>,
    /// The rules that would have stopped it, in the order of their numbers.
    pub(crate) rules: Vec<RuleId>,
    /// The status of a transaction that is over its budget, if it would have been stopped for that.
    pub(crate) over: Option<u16>,
    /// Set if a limit of the host would have stopped it.
    pub(crate) limited: bool,
}

impl Would {
    /// Starts with the engine's mode: in detection, operators want to see the hypothetical verdict.
    pub(crate) fn new(mode: EngineMode) -> Self {
        let mode = if mode == EngineMode::DetectionOnly { EngineMode::On } else { mode };
        Self {
            mode,
            allowed: Allowed::default(),
            ended: None,
            verdict: None,
            rules: Vec::new(),
            over: None,
            limited: false,
        }
    }

    /// Returns true if the engine would stop requests.
    pub(crate) fn is_on(&self) -> bool {
        self.mode == EngineMode::On
    }

    fn runs(&self, phase: Phase) -> bool {
        self.ended != Some(phase) && !self.allowed.covers(phase)
    }

    /// A rule of this phase switches the engine.
    pub(crate) fn switch(&mut self, mode: EngineMode, phase: Phase) {
        if self.runs(phase) {
            self.mode = mode;
        }
    }

    /// A rule of this phase lets the request through.
    pub(crate) fn allow(&mut self, scope: AllowScope, phase: Phase) {
        if self.is_on() && self.runs(phase) {
            self.allowed.add(scope);
            self.ended = (scope == AllowScope::Phase).then_some(phase).or(self.ended);
        }
    }

    /// A rule of this phase is against the request.
    pub(crate) fn stop(&mut self, rule: RuleId, verdict: Verdict, phase: Phase) {
        if !self.is_on() || !self.runs(phase) {
            return;
        }
        if let Err(place) = self.rules.binary_search(&rule) {
            self.rules.insert(place, rule);
        }
        self.verdict.get_or_insert(verdict);
    }

    /// The transaction is over its budget in this phase, and would be answered with this status.
    pub(crate) fn exceed(&mut self, status: u16, phase: Phase) {
        if self.is_on() && self.runs(phase) {
            self.over = Some(status);
        }
    }
}

//! The hypothetical verdict of a transaction if its host only detects.

use super::state::Allowed;
use super::verdict::Verdict;
use crate::model::{AllowScope, EngineMode, Phase, RuleId};

/// The verdict that a blocking host would have applied. In detection, all rules run and are reported. Two kinds of
/// rules do not count here: rules that a blocking host would have skipped, and rules that run while its engine would
/// only detect.
#[derive(Debug)]
pub(crate) struct Would {
    /// The mode that the engine would be in.
    mode: EngineMode,
    /// The exemptions that would apply.
    allowed: Allowed,
    /// The phase that `allow:phase` would have ended: its further rules would not have run.
    ended: Option<Phase>,
    /// The verdict of the first rule that would have stopped the transaction, or of an earlier limit of the host.
    pub(crate) verdict: Option<Verdict>,
    /// The rules that would have stopped the transaction, in the order of their ids.
    pub(crate) rules: Vec<RuleId>,
    /// The status with which the transaction would have been stopped because it is over its budget.
    pub(crate) over: Option<u16>,
    /// Set if a limit of the host would have stopped the transaction.
    pub(crate) limited: bool,
}

impl Would {
    /// Starts with the mode of the engine. A mode that only detects counts as blocking, since operators want to
    /// see the hypothetical verdict.
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

    /// Records that a rule of this phase has switched the engine to a mode.
    pub(crate) fn switch(&mut self, mode: EngineMode, phase: Phase) {
        if self.runs(phase) {
            self.mode = mode;
        }
    }

    /// Records that a rule of this phase has allowed the request.
    pub(crate) fn allow(&mut self, scope: AllowScope, phase: Phase) {
        if self.is_on() && self.runs(phase) {
            self.allowed.add(scope);
            self.ended = (scope == AllowScope::Phase).then_some(phase).or(self.ended);
        }
    }

    /// Records that a rule of this phase would stop the request.
    pub(crate) fn stop(&mut self, rule: RuleId, verdict: Verdict, phase: Phase) {
        if !self.is_on() || !self.runs(phase) {
            return;
        }
        if let Err(place) = self.rules.binary_search(&rule) {
            self.rules.insert(place, rule);
        }
        self.verdict.get_or_insert(verdict);
    }

    /// Records that the transaction is over its budget in this phase and would be answered with this status.
    pub(crate) fn exceed(&mut self, status: u16, phase: Phase) {
        if self.is_on() && self.runs(phase) {
            self.over = Some(status);
        }
    }
}

//! The work and the text that a transaction may still use.

use super::limits::{BODY_TEXT, BODY_TEXT_OF, LONG_BODY_TEXT, TURN, TransactionLimits};

/// The limit that a transaction exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Over {
    /// Work: [`Limits::work`](TransactionLimits::work).
    Work,
    /// Text: [`Limits::text`](TransactionLimits::text).
    Text,
    /// Arguments: `SecArgumentsLimit`.
    Arguments,
    /// Variables under names made from the request: [`Limits::variables`](TransactionLimits::variables).
    Variables,
    /// Header fields ([`Limits::fields`](TransactionLimits::fields)), or cookies.
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

/// The budget of a transaction. The stages that take a request in, run rules and write reports all draw on it.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Work left; see [`TransactionLimits::work`].
    work: u64,
    /// When less work than this is left, the transaction yields to other tasks again.
    turn_ends: u64,
    /// Yields the thread to other tasks.
    give_way: fn(),
    /// The largest amount of text, bytes, including the allowance for bodies in [`TransactionLimits::text`].
    text: usize,
    over: Option<Over>,
}

impl Budget {
    pub(crate) fn new(limits: &TransactionLimits) -> Self {
        let turn_ends = limits.work.saturating_sub(TURN);
        Self { work: limits.work, turn_ends, give_way: || {}, text: limits.text, over: None }
    }

    /// Sets the function that yields the thread to other tasks.
    pub(crate) fn set_give_way(&mut self, call: fn()) {
        self.give_way = call;
    }

    /// The work that is left.
    pub(crate) fn left(&self) -> u64 {
        self.work
    }

    /// The exceeded limit, if any.
    pub(crate) fn over(&self) -> Option<Over> {
        self.over
    }

    /// Subtracts this much from the work that is left. Returns true if enough was left.
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

    /// Subtracts work that is done even if less is left. The next [`Self::spend`] ends the turn.
    #[inline]
    pub(crate) fn charge(&mut self, work: u64) {
        self.work = self.work.saturating_sub(work);
    }

    #[cold]
    fn end_turn(&mut self) {
        self.turn_ends = self.work.saturating_sub(TURN);
        (self.give_way)();
    }

    /// Returns true if the transaction may have this much text in all; otherwise it is over its budget.
    pub(crate) fn has_room(&mut self, text: usize) -> bool {
        let fits = text <= self.text;
        if !fits {
            self.exceed(Over::Text);
        }
        fits
    }

    /// Raises the limit of text for a body of this many bytes.
    pub(crate) fn add_room(&mut self, body: usize) {
        let (first, rest) = (body.min(BODY_TEXT_OF), body.saturating_sub(BODY_TEXT_OF));
        let room = first.saturating_mul(BODY_TEXT).saturating_add(rest.saturating_mul(LONG_BODY_TEXT));
        self.text = self.text.saturating_add(room);
    }

    /// Records that the budget was exceeded. Spent work replaces any other reason.
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

//! The state of the steps of modules in an exchange.

use foregate_module::{Runner, State};

use super::asked::SentFields;
use super::view::Facts;
use crate::error::Error;
use crate::shelf::{self, Shelf};

thread_local! {
    /// The memory of finished exchanges, kept for the next ones.
    static SHELF: Shelf<Box<Run>> = const { Shelf::new(SHELVED) };
}

/// The most states that a thread keeps.
const SHELVED: usize = 32;

/// The state of an exchange with steps, other than its heads.
pub(super) struct Run {
    /// The values of steps.
    pub state: State,
    /// The effects of steps on the exchange.
    pub facts: Facts,
    /// The request's fields from before it was prepared for the origin, if steps of the response read them.
    pub asked: SentFields,
    /// The progress of the steps.
    pub runner: Runner,
    /// The error that ended the exchange while a step ran on another thread.
    pub lost: Option<Error>,
}

impl Run {
    /// The state of an exchange that has just begun. Reuses memory of the thread.
    pub(super) fn of(facts: Facts) -> Box<Self> {
        match shelf::take(&SHELF) {
            Some(mut run) => {
                (run.facts, run.runner, run.lost) = (facts, Runner::default(), None);
                run
            }
            None => {
                let (state, asked, runner) = (State::default(), SentFields::default(), Runner::default());
                Box::new(Self { state, facts, asked, runner, lost: None })
            }
        }
    }

    /// The exchange is over: another one of this thread may use its memory.
    pub(super) fn shelve(mut self: Box<Self>) {
        self.state.clear();
        self.asked.put_away();
        (self.facts.body, self.facts.spool, self.facts.held) = (None, None, None);
        (self.facts.response_body, self.facts.response_share) = (Vec::new(), None);
        self.facts.received = None;
        self.facts.shares = Vec::new();
        shelf::give(&SHELF, self);
    }
}

/// Selects the steps of a phase that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    All,
    /// Steps of the phase `log` that run before the response begins. They run on the worker.
    LoggedFirst,
    /// The steps of the phase `log` at the end of the exchange. They run on the worker.
    Logged {
        first: bool,
    },
    /// Steps that read requests which were refused before they had a route.
    OfRefused,
}

//! Draws two servers by weight, and takes the one with the shorter expected wait: the recent latency times the
//! requests in flight.
//!
//! The average of latencies follows a peak at once and falls slowly, so that a server that becomes slow loses its
//! requests at its first slow response. A server that hangs looks slow, too, because its requests in flight pile up.

use super::two_choices::TwoChoices;
use super::{BalanceMethod, Choice};

/// The power of two choices, compared by expected wait.
#[derive(Debug)]
pub(super) struct PeakEwma(TwoChoices);

impl PeakEwma {
    pub(super) fn new(weights: &[u32]) -> Self {
        Self(TwoChoices::new(weights))
    }
}

impl BalanceMethod for PeakEwma {
    fn weighs_time(&self) -> bool {
        true
    }

    fn choose(&self, choice: &Choice<'_>, admits: &mut dyn FnMut(usize) -> bool) -> Option<usize> {
        self.0.choose(choice, admits)
    }
}

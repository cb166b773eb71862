//! Of two servers drawn by weight, the one with the shorter expected wait: its recent latency for each request in flight.
//!
//! The average of latencies follows a peak at once and falls slowly, so that a server that stumbles loses its requests at its first slow
//! answer. Requests that wait make a server that hangs look slow, too.

use super::two_choices::TwoChoices;
use super::{BalanceMethod, Choice};

/// The power of two choices, over waits.
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

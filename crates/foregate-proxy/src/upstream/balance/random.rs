//! Balancing by random draws, weighted by the servers' weights.

use super::round_robin::round;
use super::{BalanceMethod, Choice};
use crate::random;

/// Weighted draws. Nothing is shared between requests.
#[derive(Debug)]
pub(super) struct Random {
    /// The numbers of the servers, each as often as its weight.
    round: Box<[u16]>,
    servers: usize,
}

impl Random {
    pub(super) fn new(weights: &[u32]) -> Self {
        Self { round: round(weights), servers: weights.len() }
    }

    /// The number of servers.
    pub(super) fn servers(&self) -> usize {
        self.servers
    }

    /// Draws a server at random. Its chance is proportional to its weight.
    pub(super) fn draw(&self) -> Option<usize> {
        let length = u64::try_from(self.round.len()).ok()?;
        let at = usize::try_from(random::number().checked_rem(length)?).ok()?;
        self.round.get(at).copied().map(usize::from)
    }

    /// Draws until a server is admitted. After a number of draws, it offers each remaining server in turn.
    pub(super) fn draw_admitted(&self, admits: &mut dyn FnMut(usize) -> bool) -> Option<usize> {
        let mut refused = Vec::new();
        for _ in 0..4 * self.servers {
            let drawn = self.draw()?;
            if !refused.contains(&drawn) {
                if admits(drawn) {
                    return Some(drawn);
                }
                refused.push(drawn);
            }
        }
        (0..self.servers).filter(|server| !refused.contains(server)).find(|server| admits(*server))
    }
}

impl BalanceMethod for Random {
    fn choose(&self, _choice: &Choice<'_>, admits: &mut dyn FnMut(usize) -> bool) -> Option<usize> {
        self.draw_admitted(admits)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{are_near, shares};
    use super::*;

    #[test]
    fn draws_are_shares() {
        let equal = shares(&Random::new(&[1, 1, 1]), 30_000, |_| true);
        assert!(are_near(&equal, &[10_000; 3], 5), "{equal:?}");
        let weighted = shares(&Random::new(&[5, 2, 1]), 80_000, |_| true);
        assert!(are_near(&weighted, &[50_000, 20_000, 10_000], 5), "{weighted:?}");
        let left = shares(&Random::new(&[5, 2, 1]), 60_000, |server| server != 1);
        assert!(are_near(&[left[0], left[2]], &[50_000, 10_000], 5), "{left:?}");
    }

    #[test]
    fn a_server_that_is_hardly_ever_drawn_is_found() {
        let found = shares(&Random::new(&[1000, 1000, 1]), 50, |server| server == 2);
        assert_eq!(found, [0, 0, 50]);
    }
}

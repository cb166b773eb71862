//! Balancing to the server with the fewest requests in flight relative to its weight.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{BalanceMethod, Choice, share};

/// Least requests. Servers that are equally busy take turns by their weights, so that requests spread
/// over all servers even if there are few.
#[derive(Debug)]
pub(super) struct LeastRequests {
    weights: Box<[u32]>,
    /// The counters of turns: one for first attempts, and one for further attempts, so that these do not
    /// disturb the order of first attempts.
    next: [AtomicUsize; 2],
}

impl LeastRequests {
    pub(super) fn new(weights: &[u32]) -> Self {
        Self { weights: weights.into(), next: Default::default() }
    }

    /// The server at `turn` among those for which `is_tied` holds, by their weights.
    fn turn(&self, turn: usize, is_tied: &dyn Fn(usize) -> bool) -> Option<usize> {
        let tied = || self.weights.iter().enumerate().filter(|(server, _)| is_tied(*server));
        let total: usize = tied().map(|(_, weight)| *weight as usize).sum();
        let mut position = turn.checked_rem(total)?;
        for (server, weight) in tied() {
            match position.checked_sub(*weight as usize) {
                Some(left) => position = left,
                None => return Some(server),
            }
        }
        None
    }
}

impl BalanceMethod for LeastRequests {
    fn choose(&self, choice: &Choice<'_>, admits: &mut dyn FnMut(usize) -> bool) -> Option<usize> {
        let count = self.weights.len();
        let [first, further] = &self.next;
        let turn = if choice.is_further { further } else { first }.fetch_add(1, Ordering::Relaxed);
        let share_of = |server: usize| {
            let weight = self.weights.get(server).copied().unwrap_or(1);
            share((choice.in_flight)(server), weight)
        };
        let mut refused = Vec::new();
        while refused.len() < count {
            let open = || (0..count).filter(|server| !refused.contains(server));
            let least = open().map(share_of).min()?;
            let is_tied = |server: usize| !refused.contains(&server) && share_of(server) == least;
            // Loads may have changed since `least` was computed, so that no server has that load now.
            let server = self.turn(turn_behind(turn, refused.len()), &is_tied).or_else(|| open().next())?;
            if admits(server) {
                return Some(server);
            }
            refused.push(server);
        }
        None
    }
}

/// The turn for the next choice, after `refused` servers have refused the request. Such turns are
/// scrambled, because the same servers refuse at the same turns: with plain turns, the requests would not
/// spread over all other servers.
fn turn_behind(turn: usize, refused: usize) -> usize {
    if refused == 0 { turn } else { (turn ^ refused << 24).wrapping_mul(0x9e37_79b9) >> 12 }
}

#[cfg(test)]
mod tests {
    use super::super::tests::shares;
    use super::*;

    fn choose(balance: &LeastRequests, in_flight: [u32; 3], out: &[usize]) -> Option<usize> {
        let choice = Choice { key: None, is_further: false, in_flight: &|server| in_flight[server] };
        balance.choose(&choice, &mut |server| !out.contains(&server))
    }

    #[test]
    fn the_least_busy_server_is_next() {
        let balance = LeastRequests::new(&[1, 1, 1]);
        for _ in 0..10 {
            assert_eq!(choose(&balance, [3, 1, 2], &[]), Some(1));
            assert_eq!(choose(&balance, [3, 1, 2], &[1]), Some(2));
            assert_eq!(choose(&balance, [3, 1, 2], &[1, 2]), Some(0));
            assert_eq!(choose(&balance, [3, 1, 2], &[0, 1, 2]), None);
        }
    }

    #[test]
    fn a_heavy_server_has_more_requests_in_flight() {
        let balance = LeastRequests::new(&[1, 4, 1]);
        assert_eq!(choose(&balance, [1, 3, 1], &[]), Some(1));
        assert_eq!(choose(&balance, [1, 5, 2], &[]), Some(0));
        // Requests that stay are spread by weight.
        let mut in_flight = [0; 3];
        for _ in 0..600 {
            in_flight[choose(&balance, in_flight, &[]).unwrap()] += 1;
        }
        assert_eq!(in_flight, [100, 400, 100]);
    }

    #[test]
    fn servers_that_are_equally_busy_take_turns() {
        assert_eq!(shares(&LeastRequests::new(&[1, 1, 1]), 300, |_| true), [100; 3]);
        assert_eq!(shares(&LeastRequests::new(&[5, 2, 1]), 800, |_| true), [500, 200, 100]);
        let balance = LeastRequests::new(&[1, 1, 1]);
        let picked: Vec<_> = (0..4).filter_map(|_| choose(&balance, [7, 0, 0], &[])).collect();
        assert_eq!(picked, [1, 2, 1, 2]);
    }
}

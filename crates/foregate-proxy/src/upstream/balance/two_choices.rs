//! Draws two servers by weight, and takes the less busy one.
//!
//! The load is nearly as even as with least requests, although only two servers are compared. Several proxies, which do
//! not know each other's requests, do not all choose the same server.

use super::random::Random;
use super::{BalanceMethod, Choice, share};

/// The most draws for a second server that differs from the first.
const DRAWS: usize = 8;

/// The power of two choices.
#[derive(Debug)]
pub(super) struct TwoChoices {
    random: Random,
    weights: Box<[u32]>,
}

impl TwoChoices {
    pub(super) fn new(weights: &[u32]) -> Self {
        Self { random: Random::new(weights), weights: weights.into() }
    }

    /// A server other than the first; the first one if there is no other.
    fn other_than(&self, first: usize) -> usize {
        let drawn = (0..DRAWS).filter_map(|_| self.random.draw()).find(|drawn| *drawn != first);
        drawn.unwrap_or_else(|| (first + 1) % self.random.servers().max(1))
    }
}

impl BalanceMethod for TwoChoices {
    fn choose(&self, choice: &Choice<'_>, admits: &mut dyn FnMut(usize) -> bool) -> Option<usize> {
        let first = self.random.draw()?;
        let second = self.other_than(first);
        let share_of =
            |server: usize| share((choice.in_flight)(server), self.weights.get(server).copied().unwrap_or(1));
        let order = if share_of(second) < share_of(first) { [second, first] } else { [first, second] };
        if let Some(server) = order.into_iter().find(|server| admits(*server)) {
            return Some(server);
        }
        self.random.draw_admitted(&mut |server| !order.contains(&server) && admits(server))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{are_near, shares};
    use super::*;

    #[test]
    fn idle_servers_are_drawn_by_weight() {
        let equal = shares(&TwoChoices::new(&[1, 1, 1]), 30_000, |_| true);
        assert!(are_near(&equal, &[10_000; 3], 5), "{equal:?}");
        let weighted = shares(&TwoChoices::new(&[5, 2, 1]), 80_000, |_| true);
        assert!(are_near(&weighted, &[50_000, 20_000, 10_000], 5), "{weighted:?}");
    }

    #[test]
    fn the_busiest_server_gets_nothing() {
        let balance = TwoChoices::new(&[1, 1, 1]);
        let choice = Choice { key: None, is_further: false, in_flight: &|server| [9, 1, 1][server] };
        for _ in 0..1000 {
            assert_ne!(balance.choose(&choice, &mut |_| true), Some(0));
        }
        let mut offered = Vec::new();
        balance.choose(&choice, &mut |server| {
            offered.push(server);
            false
        });
        offered.sort_unstable();
        assert_eq!(offered, [0, 1, 2], "each is offered once");
    }

    #[test]
    fn requests_that_stay_are_spread_by_weight() {
        let (balance, mut in_flight) = (TwoChoices::new(&[1, 4, 1]), [0; 3]);
        for _ in 0..6000 {
            let choice = Choice { key: None, is_further: false, in_flight: &|server| in_flight[server] };
            let chosen = balance.choose(&choice, &mut |_| true).unwrap();
            in_flight[chosen] += 1;
        }
        let shares = in_flight.map(|count| count as usize);
        assert!(are_near(&shares, &[1000, 4000, 1000], 5), "{shares:?}");
    }
}

//! Weighted round robin.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{BalanceMethod, Choice};

/// The most entries of a round. Weights are scaled down to fit.
const LONGEST_ROUND: u64 = 4096;

/// Weighted round robin. The order of a round is computed once, and spreads heavy servers evenly over the
/// round.
#[derive(Debug)]
pub(super) struct RoundRobin {
    round: Box<[u16]>,
    next: AtomicUsize,
    /// The counter of further attempts. With a shared counter they would disturb the order of first
    /// attempts: if every second request were repeated, the other requests would all start at the same
    /// server.
    next_again: AtomicUsize,
}

impl RoundRobin {
    /// A round over servers with these weights.
    pub(super) fn new(weights: &[u32]) -> Self {
        Self { round: round(weights), next: AtomicUsize::new(0), next_again: AtomicUsize::new(0) }
    }

    fn take(&self, hand: &AtomicUsize) -> Option<usize> {
        let turn = hand.fetch_add(1, Ordering::Relaxed).checked_rem(self.round.len())?;
        self.round.get(turn).copied().map(usize::from)
    }
}

impl BalanceMethod for RoundRobin {
    /// Skips the turns of servers that are not admitted, so that the other servers share these requests
    /// by their weights.
    fn choose(&self, choice: &Choice<'_>, admits: &mut dyn FnMut(usize) -> bool) -> Option<usize> {
        let hand = if choice.is_further { &self.next_again } else { &self.next };
        let mut turns = self.round.iter().map_while(|_| self.take(hand));
        // Concurrent requests may have taken all turns of the servers that are admitted, so each server
        // is offered once more.
        turns
            .find(|&server| admits(server))
            .or_else(|| self.round.iter().map(|&server| usize::from(server)).find(|&server| admits(server)))
    }
}

/// The numbers of the servers, each as often as its weight, with heavy servers spread evenly.
pub(super) fn round(weights: &[u32]) -> Box<[u16]> {
    let weights = reduced(weights);
    let total: i64 = weights.iter().sum();
    let mut credit = vec![0i64; weights.len()];
    let mut round = Vec::with_capacity(usize::try_from(total).unwrap_or(0));
    for _ in 0..total {
        for (credit, weight) in credit.iter_mut().zip(&weights) {
            *credit += weight;
        }
        let richest = (0..credit.len()).rev().max_by_key(|&index| credit[index]).unwrap_or(0);
        credit[richest] -= total;
        round.push(u16::try_from(richest).unwrap_or(0));
    }
    round.into()
}

/// The weights divided by their greatest common divisor, and scaled down if the round would still
/// be too long.
fn reduced(weights: &[u32]) -> Vec<i64> {
    fn gcd(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    let weights: Vec<u64> = weights.iter().map(|&weight| u64::from(weight.max(1))).collect();
    let divisor = weights.iter().copied().fold(0, gcd).max(1);
    let total: u64 = weights.iter().map(|weight| weight / divisor).sum();
    let scale = total.div_ceil(LONGEST_ROUND).max(1);
    weights.iter().map(|weight| i64::try_from((weight / divisor / scale).max(1)).unwrap_or(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::shares;
    use super::*;

    fn choose(balance: &RoundRobin, is_further: bool, admits: impl Fn(usize) -> bool) -> Option<usize> {
        let choice = Choice { key: None, is_further, in_flight: &|_| 0 };
        balance.choose(&choice, &mut |server| admits(server))
    }

    fn picks(balance: &RoundRobin, count: usize) -> Vec<usize> {
        (0..count).filter_map(|_| choose(balance, false, |_| true)).collect()
    }

    #[test]
    fn weights_are_shares_spread_evenly() {
        assert_eq!(picks(&RoundRobin::new(&[5, 1, 1]), 7), [0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(picks(&RoundRobin::new(&[10, 20]), 6), [1, 0, 1, 1, 0, 1]);
        assert_eq!(picks(&RoundRobin::new(&[1]), 3), [0, 0, 0]);
        assert!(picks(&RoundRobin::new(&[]), 3).is_empty());
    }

    #[test]
    fn huge_weights_are_scaled() {
        let balance = RoundRobin::new(&[1000, 999, 998, 997, 996, 1]);
        assert!(balance.round.len() <= 4096 + 6);
        assert!(balance.round.contains(&5));
    }

    #[test]
    fn those_that_are_left_share_by_their_weights() {
        assert_eq!(shares(&RoundRobin::new(&[1, 1, 1]), 300, |server| server != 0), [0, 150, 150]);
        assert_eq!(shares(&RoundRobin::new(&[1, 1, 1]), 300, |server| server != 1), [150, 0, 150]);
        assert_eq!(shares(&RoundRobin::new(&[5, 2, 1]), 300, |server| server != 0), [0, 200, 100]);
        assert_eq!(shares(&RoundRobin::new(&[5, 2, 1]), 300, |server| server == 2), [0, 0, 300]);
        assert_eq!(shares(&RoundRobin::new(&[5, 2, 1]), 300, |_| false), [0, 0, 0]);
    }

    #[test]
    fn further_attempts_take_no_turns_of_first_ones() {
        let balance = RoundRobin::new(&[1, 1]);
        let mut firsts = [0, 0];
        for _ in 0..48 {
            let first = choose(&balance, false, |_| true).unwrap();
            firsts[first] += 1;
            if first == 0 {
                assert_eq!(choose(&balance, true, |server| server != first), Some(1));
            }
        }
        assert_eq!(firsts, [24, 24]);
    }

    #[test]
    fn further_attempts_are_spread_by_weight() {
        let balance = RoundRobin::new(&[1, 3, 1]);
        let mut shares = [0; 3];
        for _ in 0..100 {
            shares[choose(&balance, true, |server| server != 0).unwrap()] += 1;
        }
        assert_eq!(shares, [0, 75, 25]);
    }
}

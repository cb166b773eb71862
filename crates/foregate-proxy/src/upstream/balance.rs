//! Which server is tried next.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Most entries of the round: weights are scaled down to fit.
const LONGEST_ROUND: u64 = 4096;

/// Weighted round robin. The round is laid out once so that heavy servers are spread evenly over it.
#[derive(Debug)]
pub struct RoundRobin {
    round: Box<[u16]>,
    next: AtomicUsize,
}

impl RoundRobin {
    /// A round over servers with these weights.
    pub fn new(weights: &[u32]) -> Self {
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
        Self { round: round.into(), next: AtomicUsize::new(0) }
    }

    /// The next server for which `usable` holds.
    pub fn pick(&self, usable: impl Fn(usize) -> bool) -> Option<usize> {
        if self.round.is_empty() {
            return None;
        }
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        (0..self.round.len())
            .map(|offset| usize::from(self.round[(start.wrapping_add(offset)) % self.round.len()]))
            .find(|&server| usable(server))
    }
}

/// The weights divided by their greatest common divisor, and scaled down if the round would still be too long.
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
    use super::*;

    fn picks(balance: &RoundRobin, count: usize) -> Vec<usize> {
        (0..count).filter_map(|_| balance.pick(|_| true)).collect()
    }

    #[test]
    fn weights_are_shares_spread_evenly() {
        assert_eq!(picks(&RoundRobin::new(&[5, 1, 1]), 7), [0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(picks(&RoundRobin::new(&[10, 20]), 6), [1, 0, 1, 1, 0, 1]);
        assert_eq!(picks(&RoundRobin::new(&[1]), 3), [0, 0, 0]);
    }

    #[test]
    fn huge_weights_are_scaled() {
        let balance = RoundRobin::new(&[1000, 999, 998, 997, 996, 1]);
        assert!(balance.round.len() <= 4096 + 6);
        assert!(balance.round.contains(&5));
    }

    #[test]
    fn unusable_servers_are_passed_over() {
        let balance = RoundRobin::new(&[1, 1]);
        assert!((0..4).all(|_| balance.pick(|server| server == 1) == Some(1)));
        assert_eq!(balance.pick(|_| false), None);
    }
}

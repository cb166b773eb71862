//! Maglev (Eisenbud et al., NSDI 2016): requests that agree in one part get the same server, by a lookup
//! table that the servers fill in turns.

use super::hash::{hash, key};
use super::round_robin::RoundRobin;
use super::{BalanceMethod, BalancedRequest, Choice};
use crate::settings::HashBy;

/// The number of entries of the table, a prime. With more entries, the servers' shares are more even, and
/// fewer requests move when a server is added or removed.
const ENTRIES: u64 = 131_071;

/// A table of servers. The servers take turns at claiming an entry, each in an order given by its
/// address. The servers' shares differ by about one percent. When a server is removed, few requests of
/// the other servers move.
#[derive(Debug)]
pub(super) struct Maglev {
    by: HashBy,
    table: Box<[u16]>,
    servers: usize,
    /// For requests without the hashed part.
    turns: RoundRobin,
}

impl Maglev {
    pub(super) fn new(by: HashBy, servers: &[(String, u32)]) -> Self {
        let weights: Vec<u32> = servers.iter().map(|(_, weight)| *weight).collect();
        Self { by, table: table(servers), servers: servers.len(), turns: RoundRobin::new(&weights) }
    }
}

/// Fills the table. A server with half of the greatest weight claims an entry at every second turn.
fn table(servers: &[(String, u32)]) -> Box<[u16]> {
    const FREE: u16 = u16::MAX;
    let mut table = vec![FREE; if servers.is_empty() { 0 } else { ENTRIES as usize }];
    let greatest = servers.iter().map(|(_, weight)| u64::from(*weight)).max().unwrap_or(1);
    // For each server: the next entry in its order, the step to the entry after that, and the credit
    // that its weight has earned.
    let mut orders: Vec<(u64, u64, u64)> = servers
        .iter()
        .map(|(address, _)| {
            let offset = hash(&[b"offset#", address.as_bytes()]) % ENTRIES;
            let step = hash(&[b"step#", address.as_bytes()]) % (ENTRIES - 1) + 1;
            (offset, step, 0)
        })
        .collect();
    let mut left = table.len();
    while left > 0 {
        for (number, (next, step, credit)) in orders.iter_mut().enumerate() {
            *credit += servers.get(number).map_or(1, |(_, weight)| u64::from(*weight));
            if *credit < greatest || left == 0 {
                continue;
            }
            *credit -= greatest;
            while let Some(entry) = table.get_mut(*next as usize) {
                *next = (*next + *step) % ENTRIES;
                if *entry == FREE {
                    *entry = u16::try_from(number).unwrap_or(0);
                    left -= 1;
                    break;
                }
            }
        }
    }
    table.into()
}

impl BalanceMethod for Maglev {
    fn key(&self, asked: &BalancedRequest<'_>) -> Option<u64> {
        key(&self.by, asked)
    }

    /// Offers the server of the key's entry. If it is out, the following entries give its deputy.
    fn choose(&self, choice: &Choice<'_>, admits: &mut dyn FnMut(usize) -> bool) -> Option<usize> {
        let Some(key) = choice.key else { return self.turns.choose(choice, admits) };
        let at = usize::try_from(key % ENTRIES).unwrap_or(0);
        let (before, behind) = self.table.split_at_checked(at)?;
        let mut refused = Vec::new();
        for server in behind.iter().chain(before).map(|server| usize::from(*server)) {
            if refused.contains(&server) {
                continue;
            }
            if admits(server) {
                return Some(server);
            }
            refused.push(server);
            if refused.len() == self.servers {
                break;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::are_near;
    use super::*;

    fn servers(count: u32, weight: impl Fn(u32) -> u32) -> Vec<(String, u32)> {
        (0..count).map(|number| (format!("10.0.0.{number}:80"), weight(number))).collect()
    }

    fn shares(table: &[u16], count: usize) -> Vec<usize> {
        let mut shares = vec![0; count];
        table.iter().for_each(|server| shares[usize::from(*server)] += 1);
        shares
    }

    #[test]
    fn shares_are_even_and_by_weight() {
        let equal = shares(&table(&servers(100, |_| 1)), 100);
        assert!(are_near(&equal, &[ENTRIES as usize / 100; 100], 2), "{equal:?}");
        let weighted = shares(&table(&servers(3, |number| [5, 2, 1][number as usize])), 3);
        let expected = [5, 2, 1].map(|weight| weight * ENTRIES as usize / 8);
        assert!(are_near(&weighted, &expected, 2), "{weighted:?}");
    }

    #[test]
    fn a_server_that_leaves_moves_little_beside_its_own_share() {
        let all = servers(100, |_| 1);
        let before = table(&all);
        for gone in [0, 50, 99] {
            let mut rest = all.clone();
            let (gone_name, _) = rest.remove(gone);
            let after = table(&rest);
            let name = |servers: &[(String, u32)], at: u16| servers[usize::from(at)].0.clone();
            let moved =
                (0..before.len()).filter(|at| name(&all, before[*at]) != name(&rest, after[*at])).count();
            assert!(!rest.iter().any(|(name, _)| *name == gone_name));
            let ideal = before.len() / 100;
            assert!(moved >= ideal * 98 / 100 && moved * 2 <= ideal * 3, "{moved} of {ideal}");
        }
    }

    #[test]
    fn a_server_that_is_out_leaves_its_keys_to_all_others() {
        let balance = Maglev::new(HashBy::Path, &servers(10, |_| 1));
        let mut taken = [0; 10];
        for key in 0..20_000_u64 {
            let choice =
                Choice { key: Some(hash(&[&key.to_be_bytes()])), is_further: false, in_flight: &|_| 0 };
            let first = balance.choose(&choice, &mut |_| true).unwrap();
            let then = balance.choose(&choice, &mut |server| server != 3).unwrap();
            assert!(first == 3 || first == then);
            taken[then] += usize::from(first == 3);
        }
        assert_eq!(taken[3], 0);
        assert!(taken.iter().enumerate().all(|(server, taken)| server == 3 || *taken > 100), "{taken:?}");
    }
}

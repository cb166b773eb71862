//! A budget for the memory of body filters, buffered starts of bodies, and bodies kept for another attempt,
//! together.
//!
//! Each of these has a bound of its own, but a thousand requests at their bounds hold a thousand times as much. So
//! the process has one [`Budget`]. Each user of memory has a [`BudgetShare`] that grows with its needs, on the
//! [`Account`] of its client. A client that holds its part of the budget is refused more, while other clients are
//! not. The fuller the budget, the smaller the largest share that it grants: requests that need much memory are
//! refused long before those that need little.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::counters::metrics::Counter;
use crate::limits::account::{Account, Ledger, part};
use crate::limits::pressure::Charge;

/// A share may take at most one part in this many of the budget that other shares leave.
const LARGEST_SHARE: usize = 4;
/// The step in which shares grow and shrink, bytes. Amounts below a step are not counted.
const GRAIN: usize = 4096;

/// A common amount of memory, or of room in files, and how much of it is held.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicUsize,
    /// The part of the budget that one client may hold with all its requests, percent.
    per_client: AtomicUsize,
    held: AtomicUsize,
    clients: Ledger,
    /// True for memory that counts as memory of the process; false for room in files and for reserved windows.
    memory: bool,
    /// How often a share could not grow.
    pub refused: Counter,
}

/// The share of the budget that one body holds, on the account of its client. Dropping this value returns the share to
/// the budget.
#[derive(Debug)]
pub struct BudgetShare {
    budget: Arc<Budget>,
    held: usize,
    account: Account,
    charge: Charge,
}

impl Budget {
    /// A budget of this many bytes of memory.
    pub fn new(limit: usize) -> Self {
        Self { memory: true, ..Self::of_files(limit) }
    }

    /// A budget of bytes that windows promise to peers: they count as memory when they arrive.
    pub fn reserved(limit: usize) -> Self {
        Self::of_files(limit)
    }

    /// A budget of this many bytes in files.
    pub fn of_files(limit: usize) -> Self {
        Self {
            memory: false,
            limit: AtomicUsize::new(limit),
            per_client: AtomicUsize::new(crate::settings::FILTER_PER_CLIENT),
            held: AtomicUsize::new(0),
            clients: Ledger::default(),
            refused: Counter::default(),
        }
    }

    /// Changes the size of the budget, bytes, and the part of one client, percent. Shares that
    /// exceed it stay.
    pub fn set_limit(&self, limit: usize, per_client: usize) {
        self.limit.store(limit, Ordering::Relaxed);
        self.per_client.store(per_client, Ordering::Relaxed);
    }

    /// Bytes that are held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// The part of the budget that one client may hold, percent.
    pub fn per_client(&self) -> usize {
        self.per_client.load(Ordering::Relaxed)
    }

    /// Returns true if more than half of the budget is held, or more than half of this client's part. Optional uses
    /// should do without memory then.
    pub fn is_short(&self, account: Account) -> bool {
        self.is_held(account, 2)
    }

    /// Returns true if more than a quarter of the budget, or of this client's part, is held: a large request may be
    /// refused.
    pub fn is_felt(&self, account: Account) -> bool {
        self.is_held(account, 4)
    }

    /// Returns true if more than `1 / parts` of the whole budget is held, or more than `1 / parts` of this client's part.
    fn is_held(&self, account: Account, parts: usize) -> bool {
        let (held, limit) = (self.held(), self.limit.load(Ordering::Relaxed));
        let own = part(limit, self.per_client()) / parts;
        // If all clients together hold no more than `own`, this client's entry does not have to be read.
        held > limit / parts || held > own && self.clients.held(account) > own
    }

    /// An empty share on the account of a client. All shares of a client together may not exceed its part, but a single
    /// share may.
    pub fn share(self: &Arc<Self>, account: Account) -> BudgetShare {
        BudgetShare { budget: Arc::clone(self), held: 0, account, charge: Charge::new() }
    }

    fn grow(&self, account: Account, from: usize, to: usize) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let most = part(limit, self.per_client());
        let grow = |held: usize| {
            let others = held.saturating_sub(from);
            let largest = limit.saturating_sub(others) / LARGEST_SHARE;
            (to <= largest).then(|| others.saturating_add(to))
        };
        self.clients.change(account, from, to, |others| {
            (others == 0 || others.saturating_add(to) <= most)
                && self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow).is_ok()
        })
    }

    fn shrink(&self, account: Account, from: usize, to: usize) {
        if from > to {
            self.held.fetch_sub(from - to, Ordering::Relaxed);
            self.clients.change(account, from, to, |_| true);
        }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(crate::settings::FILTER_MEMORY)
    }
}

impl BudgetShare {
    /// An empty share of the same budget on the same account.
    pub fn another(&self) -> Self {
        self.budget.share(self.account)
    }

    /// The bytes that the share holds, in whole steps.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Sets the size of the share, bytes. Returns false, and changes nothing, if there is not
    /// enough. A smaller size is always granted.
    #[must_use]
    pub fn hold(&mut self, bytes: usize) -> bool {
        let wanted = bytes - bytes % GRAIN;
        if wanted <= self.held {
            self.budget.shrink(self.account, self.held, wanted);
            self.set(wanted, bytes);
            return true;
        }
        if !self.budget.grow(self.account, self.held, wanted) {
            self.budget.refused.inc();
            return false;
        }
        self.set(wanted, bytes);
        true
    }

    fn set(&mut self, held: usize, bytes: usize) {
        self.held = held;
        if self.budget.memory {
            self.charge.set(bytes);
        }
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.shrink(self.account, self.held, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn shares_shrink_as_memory_gets_short_and_come_back() {
        let budget = Arc::new(Budget::new(64 * MIB));
        let mut large = Vec::new();
        loop {
            let mut share = budget.share(Account::PROCESS);
            if !share.hold(8 * MIB) {
                break;
            }
            large.push(share);
        }
        // The fifth leaves 24 MiB, of which no share may take 8.
        assert_eq!((large.len(), budget.held(), budget.is_short(Account::PROCESS)), (5, 40 * MIB, true));
        let mut small = budget.share(Account::PROCESS);
        assert!(small.hold(MIB), "who needs little still gets it");
        assert_eq!(budget.refused.get(), 1);
        assert!(!small.hold(32 * MIB) && small.held == MIB, "a refused share is what it was");
        drop(large);
        assert!(small.hold(8 * MIB) && small.hold(MIB));
        assert_eq!((budget.held(), budget.is_short(Account::PROCESS)), (MIB, false));
        drop(small);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn nothing_is_ever_held_beyond_the_limit() {
        let budget = Arc::new(Budget::new(MIB));
        let mut shares: Vec<BudgetShare> = (0..1000).map(|_| budget.share(Account::PROCESS)).collect();
        for size in [64 * 1024, GRAIN, 1000] {
            for share in &mut shares {
                let _ = share.hold(size);
                assert!(budget.held() <= MIB);
            }
        }
        budget.set_limit(0, 100);
        assert!(!shares[0].hold(MIB) && shares[0].hold(0));
        drop(shares);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn memory_is_short_for_the_client_that_holds_it() {
        let budget = Arc::new(Budget::new(64 * MIB));
        let (one, other) =
            (Account::of(Some([192, 0, 2, 1].into())), Account::of(Some([192, 0, 2, 2].into())));
        let mut shares: Vec<_> = (0..16).map(|_| budget.share(one)).collect();
        let mut said = Vec::new();
        for share in &mut shares {
            assert!(share.hold(MIB));
            said.push((budget.is_felt(one), budget.is_short(one)));
        }
        let expected = (1..=16).map(|held| (held > 4, held > 8));
        assert_eq!(said, expected.collect::<Vec<_>>());
        assert!(!budget.is_felt(other) && !budget.share(one).hold(MIB) && budget.share(other).hold(12 * MIB));
    }

    #[test]
    fn one_client_has_its_part_but_always_one_body() {
        let budget = Arc::new(Budget::new(64 * MIB));
        let of = |text: &str| budget.share(Account::of(Some(text.parse().unwrap())));
        let mut large = of("192.0.2.1");
        budget.set_limit(64 * MIB, 10);
        assert!(large.hold(12 * MIB), "one body of a client is bounded as any other");
        let mut second = of("192.0.2.1");
        assert!(!second.hold(GRAIN) && second.hold(GRAIN - 1), "what is not counted is not refused");
        assert!(large.hold(5 * MIB) && second.hold(MIB) && !second.hold(2 * MIB));
        assert_eq!((budget.held(), budget.refused.get()), (6 * MIB, 2));
        let (mut one, mut same, mut other) = (of("2001:db8::1"), of("2001:db8::2"), of("2001:db8:0:1::1"));
        assert!(one.hold(6 * MIB) && !same.hold(MIB) && other.hold(6 * MIB));
        drop((one, same, other, large, second));
        assert_eq!((budget.held(), budget.clients.clients()), (0, 0));
    }
}

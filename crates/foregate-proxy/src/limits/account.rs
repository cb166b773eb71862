//! The accounts of clients, on which requests hold memory, places and descriptors.
//!
//! Every bounded resource that a request makes the process hold is charged to an [`Account`]. There
//! is no way to take memory of a [`Budget`](crate::limits::budget::Budget) or a place of [`Places`]
//! without an account, so code that does not name the client does not compile.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foregate_wire::client_network;

use super::client_table::ClientTable;

/// A client that holds something: an IPv4 address, or an IPv6 network of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account(Option<NonZeroU64>);

impl Account {
    /// The process itself, for resources that serve requests of all clients, such as kept answers
    /// of fetches. Their users have bounds of their own.
    pub const PROCESS: Self = Self(None);

    /// The account of the client with this address. A connection without an address comes over a Unix socket, from another
    /// proxy that stands for many clients, so it is not bounded as one client.
    pub fn of(address: Option<IpAddr>) -> Self {
        let bits = |address| match client_network(address) {
            // A number that no IPv6 client has (RFC 4291, section 2.4).
            IpAddr::V4(address) => 1 << 32 | u64::from(address.to_bits()),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
        };
        Self(address.map(|address| NonZeroU64::new(bits(address)).unwrap_or(NonZeroU64::MIN)))
    }

    /// Returns true if the account is bounded as one client.
    pub fn is_client(self) -> bool {
        self.0.is_some()
    }

    /// The number of the client in tables.
    pub(super) fn client(self) -> Option<NonZeroU64> {
        self.0
    }
}

/// The amounts of one resource that clients hold.
#[derive(Debug, Default)]
pub struct Ledger(ClientTable<usize>);

impl Ledger {
    /// The amount that an account holds; 0 for accounts that are not [counted](Account::is_client).
    pub fn held(&self, account: Account) -> usize {
        self.0.read(account, |held| *held).unwrap_or(0)
    }

    /// Replaces `from` by `to` in the amount that an account holds, if `may` returns true. `may` gets the rest of the
    /// amount that the client holds. `may` runs while the client's entry is locked, so that it can change other counts
    /// together with the entry.
    pub fn change(&self, account: Account, from: usize, to: usize, may: impl FnOnce(usize) -> bool) -> bool {
        if !account.is_client() {
            return may(0);
        }
        let changed = self.0.update(account, |held| {
            let others = held.saturating_sub(from);
            let agreed = may(others);
            if agreed {
                *held = others.saturating_add(to);
            }
            agreed
        });
        changed.unwrap_or(false)
    }

    /// The number of clients that hold something.
    #[cfg(test)]
    pub fn clients(&self) -> usize {
        self.0.clients()
    }
}

/// The part of `all` that one client may have, at least one.
pub fn part(all: usize, percent: usize) -> usize {
    (all / 100 * percent + all % 100 * percent / 100).max(1)
}

/// A bounded number of places, for example for fetches from an upstream. One client may take only a part of them.
#[derive(Debug)]
pub struct Places {
    most: usize,
    taken: AtomicUsize,
    clients: Ledger,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub struct AccountPlace {
    places: Arc<Places>,
    account: Account,
}

impl Places {
    /// This many places.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: AtomicUsize::new(0), clients: Ledger::default() })
    }

    /// Takes a place on this account, which may have `percent` of all places. `None` if the account has that many, or if
    /// all places are taken.
    pub fn take(self: &Arc<Self>, account: Account, percent: usize) -> Option<AccountPlace> {
        let part = part(self.most, percent);
        let take = |taken: usize| (taken < self.most).then_some(taken + 1);
        let took = self.clients.change(account, 0, 1, |others| {
            others < part && self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
        });
        took.then(|| AccountPlace { places: Arc::clone(self), account })
    }
}

impl Drop for AccountPlace {
    fn drop(&mut self) {
        self.places.taken.fetch_sub(1, Ordering::Relaxed);
        self.places.clients.change(self.account, 1, 0, |_| true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Account {
        Account::of(Some(text.parse().unwrap()))
    }

    #[test]
    fn clients_are_told_apart_by_address_or_network() {
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        let different =
            [of("192.0.2.1"), of("192.0.2.2"), of("2001:db8::1"), of("2001:db8:0:1::1"), of("0.0.0.0")];
        for (at, one) in different.iter().enumerate() {
            assert!(one.is_client() && !different[..at].contains(one), "{one:?}");
        }
        assert!(!Account::of(None).is_client());
    }

    #[test]
    fn one_client_has_its_part_of_the_places() {
        let places = Places::new(100);
        let mut taken: Vec<_> = (0..25).map(|_| places.take(of("192.0.2.1"), 25).unwrap()).collect();
        assert!(places.take(of("192.0.2.1"), 25).is_none());
        taken.extend((0..75).filter_map(|_| places.take(Account::of(None), 25)));
        assert_eq!(taken.len(), 100);
        assert!(places.take(of("192.0.2.2"), 25).is_none(), "there are no more");
        taken.drain(..1);
        let other = places.take(of("192.0.2.2"), 25);
        assert!(other.is_some() && places.take(of("192.0.2.1"), 25).is_none());
        drop((taken, other));
        assert_eq!((places.taken.load(Ordering::Relaxed), places.clients.clients()), (0, 0));
    }

    #[test]
    fn a_part_is_never_nothing() {
        assert_eq!([part(3, 25), part(1024, 25), part(0, 100), part(10, 100)], [1, 256, 1, 10]);
        assert_eq!(part(usize::MAX / 100, 100), usize::MAX / 100);
    }
}

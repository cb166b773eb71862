//! What filters of bodies, buffered starts of bodies and bodies kept for another attempt hold together.
//!
//! Each of them has a bound of its own, but a thousand requests at the bound are a thousand times that. All of the process
//! share one [`Budget`], and each takes its [`Share`] of it as it grows. The more is held, the smaller the largest share
//! that is given out: whoever asks for much is refused long before those who ask for little notice anything.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foregate_wire::client_network;
use parking_lot::Mutex;

use crate::pressure::Charge;
use crate::telemetry::metrics::Counter;

/// A share may be at most this part of what nobody else holds.
const LARGEST_SHARE: usize = 4;
/// Shares grow and shrink by this much, bytes; less than that is not counted.
const GRAIN: usize = 4096;

/// Memory, or room in files, that all share, and how much of it is held.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicUsize,
    /// What one client may hold of it with several bodies, percent.
    per_client: AtomicUsize,
    held: AtomicUsize,
    /// What those hold whose shares are counted by client.
    clients: Mutex<HashMap<Client, usize, foldhash::fast::RandomState>>,
    /// Whether it is memory, which counts among what the process holds, and not room in files.
    memory: bool,
    /// Shares that could not grow.
    pub refused: Counter,
}

/// What one body holds of it. Given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    held: usize,
    client: Option<Client>,
    charge: Charge,
}

/// What tells clients apart, in little room: a body has several shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Client(NonZeroU64);

impl Client {
    /// The network of an IPv6 client; IPv4 addresses lie among such as no client has (RFC 4291, section 2.4).
    fn of(address: IpAddr) -> Self {
        let bits = match client_network(address) {
            IpAddr::V4(address) => 1 << 32 | u64::from(address.to_bits()),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
        };
        Self(NonZeroU64::new(bits).unwrap_or(NonZeroU64::MIN))
    }
}

impl Budget {
    /// So many bytes of memory.
    pub fn new(limit: usize) -> Self {
        Self { memory: true, ..Self::of_files(limit) }
    }

    /// So many bytes that windows promise to peers: what comes in them is counted as memory when it comes.
    pub fn reserved(limit: usize) -> Self {
        Self::of_files(limit)
    }

    /// So many bytes in files.
    pub fn of_files(limit: usize) -> Self {
        Self {
            memory: false,
            limit: AtomicUsize::new(limit),
            per_client: AtomicUsize::new(crate::settings::FILTER_PER_CLIENT),
            held: AtomicUsize::new(0),
            clients: Mutex::default(),
            refused: Counter::default(),
        }
    }

    /// Changes how much there is, bytes, and the part of it that one client may hold, percent. What is held stays held.
    pub fn set_limit(&self, limit: usize, per_client: usize) {
        self.limit.store(limit, Ordering::Relaxed);
        self.per_client.store(per_client, Ordering::Relaxed);
    }

    /// Bytes that are held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether more than half is held: whoever can do without more should.
    pub fn is_short(&self) -> bool {
        self.held() > self.limit.load(Ordering::Relaxed) / 2
    }

    /// A share of nothing yet.
    pub fn share(self: &Arc<Self>) -> Share {
        Share { budget: Arc::clone(self), held: 0, client: None, charge: Charge::new() }
    }

    /// The same for what a client sends: with all its bodies together it may hold no more than its part, unless it has but
    /// one. IPv6 clients are told apart by their networks of 64 bits.
    pub fn share_of(self: &Arc<Self>, client: Option<IpAddr>) -> Share {
        let client = client.map(Client::of);
        Share { budget: Arc::clone(self), held: 0, client, charge: Charge::new() }
    }

    fn grow(&self, from: usize, to: usize) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let grow = |held: usize| {
            let others = held.saturating_sub(from);
            let largest = limit.saturating_sub(others) / LARGEST_SHARE;
            (to <= largest).then(|| others.saturating_add(to))
        };
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow).is_ok()
    }

    /// The same where the client may hold so much.
    fn grow_of(&self, client: Client, from: usize, to: usize) -> bool {
        let percent = self.per_client.load(Ordering::Relaxed);
        let most = self.limit.load(Ordering::Relaxed) / 100 * percent;
        let mut clients = self.clients.lock();
        let others = clients.get(&client).map_or(0, |held| held.saturating_sub(from));
        let may = others == 0 || others.saturating_add(to) <= most;
        if !may || !self.grow(from, to) {
            return false;
        }
        clients.insert(client, others.saturating_add(to));
        true
    }

    fn shrink(&self, client: Option<Client>, by: usize) {
        self.held.fetch_sub(by, Ordering::Relaxed);
        let Some(client) = client.filter(|_| by > 0) else { return };
        let mut clients = self.clients.lock();
        if let Some(held) = clients.get_mut(&client) {
            *held = held.saturating_sub(by);
            if *held == 0 {
                clients.remove(&client);
            }
        }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(crate::settings::FILTER_MEMORY)
    }
}

impl Share {
    /// A share of nothing yet, of the same and for the same client.
    pub fn another(&self) -> Self {
        Self { budget: Arc::clone(&self.budget), held: 0, client: self.client, charge: Charge::new() }
    }

    /// Makes this the size of the share, bytes. False: there is not enough, and the share is what it was. To hold less is
    /// always granted.
    #[must_use]
    pub fn hold(&mut self, bytes: usize) -> bool {
        let wanted = bytes - bytes % GRAIN;
        if wanted <= self.held {
            self.budget.shrink(self.client, self.held - wanted);
            self.set(wanted);
            return true;
        }
        let grown = match self.client {
            Some(client) => self.budget.grow_of(client, self.held, wanted),
            None => self.budget.grow(self.held, wanted),
        };
        if !grown {
            self.budget.refused.inc();
            return false;
        }
        self.set(wanted);
        true
    }

    fn set(&mut self, held: usize) {
        self.held = held;
        if self.budget.memory {
            self.charge.set(held);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.shrink(self.client, self.held);
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
            let mut share = budget.share();
            if !share.hold(8 * MIB) {
                break;
            }
            large.push(share);
        }
        // The fifth leaves 24 MiB, of which no share may take 8.
        assert_eq!((large.len(), budget.held(), budget.is_short()), (5, 40 * MIB, true));
        let mut small = budget.share();
        assert!(small.hold(MIB), "who needs little still gets it");
        assert_eq!(budget.refused.get(), 1);
        assert!(!small.hold(32 * MIB) && small.held == MIB, "a refused share is what it was");
        drop(large);
        assert!(small.hold(8 * MIB) && small.hold(MIB));
        assert_eq!((budget.held(), budget.is_short()), (MIB, false));
        drop(small);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn nothing_is_ever_held_beyond_the_limit() {
        let budget = Arc::new(Budget::new(MIB));
        let mut shares: Vec<Share> = (0..1000).map(|_| budget.share()).collect();
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
    fn one_client_has_its_part_but_always_one_body() {
        let budget = Arc::new(Budget::new(64 * MIB));
        let of = |text: &str| budget.share_of(Some(text.parse().unwrap()));
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
        assert_eq!((budget.held(), budget.clients.lock().len()), (0, 0));
    }
}

//! The state of a server apart from its health: the turns of its name's addresses, its former
//! addresses, and the limits on reports to operators.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::turns::Turns;
use crate::time::notices::Notices;

/// The time for which connections to an address stay in use after the address disappears from its name.
/// A name with many addresses may give a different selection each time, and has usually given the address
/// again by then.
const MOVED_AFTER: Duration = Duration::from_secs(30);
/// The most addresses of a name that are remembered. Beyond this, those not seen for longest are
/// forgotten.
const SEEN_MOST: usize = 256;

/// The state of a server.
#[derive(Debug, Default)]
pub(super) struct ServerMemory {
    /// The turns of its name's addresses.
    pub turns: Turns,
    seen: Mutex<SeenAddresses>,
    /// A handshake has failed.
    pub handshake: Notices,
    /// Limits notices of an address that does not answer.
    pub address: Notices,
    /// Limits notices of flooded connections.
    pub flood: Notices,
    /// Why the last handshake failed.
    tls_failure: Mutex<Option<String>>,
}

impl ServerMemory {
    /// A handshake has failed.
    pub fn tls_failed(&self, error: &impl ToString) {
        *self.tls_failure.lock() = Some(error.to_string());
    }

    /// Why the last handshake failed.
    pub fn tls_failure(&self) -> Option<String> {
        self.tls_failure.lock().clone()
    }

    /// Records addresses that the name has now. Returns the time at which an address was last forgotten.
    /// Connections that are older than this may lead to a forgotten address: check this with
    /// [`Self::has`].
    pub fn see(&self, addresses: &[IpAddr], now: Instant) -> Option<Instant> {
        self.seen.lock().see(addresses, now)
    }

    /// Records that the name has these addresses and no others. Former ones are forgotten at once. Returns
    /// the same time as [`Self::see`].
    pub fn see_all(&self, addresses: &[IpAddr], now: Instant) -> Option<Instant> {
        let mut seen = self.seen.lock();
        let before = seen.addresses.len();
        seen.addresses.retain(|(address, _)| addresses.contains(address));
        if seen.addresses.len() < before {
            seen.moved = Some(now);
        }
        seen.see(addresses, now)
    }

    /// Returns true if the name has this address, or had it recently.
    pub fn has(&self, address: IpAddr) -> bool {
        self.seen.lock().addresses.iter().any(|(seen, _)| *seen == address)
    }
}

/// The addresses of a name, and the time at which each was last seen.
#[derive(Debug, Default)]
struct SeenAddresses {
    addresses: Vec<(IpAddr, Instant)>,
    /// When an address was last forgotten.
    moved: Option<Instant>,
}

impl SeenAddresses {
    fn see(&mut self, addresses: &[IpAddr], now: Instant) -> Option<Instant> {
        for address in addresses {
            match self.addresses.iter_mut().find(|(seen, _)| seen == address) {
                Some((_, last)) => *last = now,
                None => self.addresses.push((*address, now)),
            }
        }
        let before = self.addresses.len();
        self.addresses.retain(|(_, last)| now.saturating_duration_since(*last) < MOVED_AFTER);
        if self.addresses.len() > SEEN_MOST {
            self.addresses.sort_by_key(|(_, last)| std::cmp::Reverse(*last));
            self.addresses.truncate(SEEN_MOST);
        }
        if self.addresses.len() < before {
            self.moved = Some(now);
        }
        self.moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn an_address_that_is_gone_for_a_while_is_forgotten() {
        let (remembered, start) = (ServerMemory::default(), Instant::now());
        assert_eq!(remembered.see(&[address(1)], start), None);
        for second in 1..30 {
            assert_eq!(remembered.see(&[address(2)], start + SECOND * second), None);
            assert!(remembered.has(address(1)));
        }
        let moved = start + MOVED_AFTER;
        assert_eq!(remembered.see(&[address(2)], moved), Some(moved));
        assert!(!remembered.has(address(1)) && remembered.has(address(2)));
        assert_eq!(remembered.see(&[address(2)], moved + SECOND), Some(moved));
        let gone = moved + SECOND * 2;
        assert_eq!(remembered.see_all(&[address(3)], gone), Some(gone), "at once");
        assert!(!remembered.has(address(2)) && remembered.has(address(3)));
        assert_eq!(remembered.see_all(&[], gone + SECOND), Some(gone + SECOND));
        assert!(!remembered.has(address(3)));
        assert_eq!(ServerMemory::default().see_all(&[], gone), None);
    }

    #[test]
    fn answers_that_change_in_turns_move_nothing() {
        let (remembered, start) = (ServerMemory::default(), Instant::now());
        for second in 0..100 {
            let answer = [address(second % 20), address((second + 7) % 20)];
            assert_eq!(remembered.see(&answer, start + SECOND * u32::from(second)), None);
        }
    }
}

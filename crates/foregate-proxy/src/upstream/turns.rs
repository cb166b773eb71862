//! The turns of a server's addresses. The addresses of its name are tried in turn, and those that have failed
//! come last.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::names::interleave;

/// The first time for which an address is avoided, after it refused a connection or failed on a request.
/// After this time, one connection tries the address. If it fails again, it is avoided for twice as
/// long, up to [`HELD_LONGEST`]. The tries become rarer because an address that drops packets costs the
/// trying connection a part of its time limit.
const HELD_FIRST: Duration = Duration::from_secs(10);
const HELD_LONGEST: Duration = Duration::from_mins(5);
/// The most avoided addresses. Beyond this, the one that has been avoided for longest is used again.
const HELD_MOST: usize = 256;

/// The turns of addresses.
#[derive(Debug, Default)]
pub(super) struct Turns {
    next: AtomicUsize,
    any_held: AtomicBool,
    held: Mutex<Vec<FailedAddress>>,
}

/// An address that has failed.
#[derive(Debug)]
struct FailedAddress {
    address: IpAddr,
    until: Instant,
    span: Duration,
    /// True if the address accepted connections, but failed on a request.
    connects: bool,
}

impl Turns {
    /// The addresses in the order in which a connection tries them: IPv4 and IPv6 alternate (RFC 8305,
    /// section 4), and avoided addresses come last. With `try_held`, an avoided address whose time is up
    /// comes first, but for this connection only.
    pub fn order(&self, addresses: &[IpAddr], try_held: bool, now: Instant) -> Vec<IpAddr> {
        let first = self.next.fetch_add(1, Ordering::Relaxed) % addresses.len().max(1);
        let turns = || addresses.iter().cycle().skip(first).take(addresses.len()).copied();
        if !self.any_held.load(Ordering::Relaxed) {
            return interleave(turns());
        }
        let mut held = self.held.lock();
        let is_due =
            |held: &&mut FailedAddress| try_held && held.until <= now && addresses.contains(&held.address);
        let due = held.iter_mut().find(is_due).map(|due| {
            due.span = (due.span * 2).min(HELD_LONGEST);
            due.until = now + due.span;
            due.address
        });
        let of = |address: &IpAddr| held.iter().find(|held| held.address == *address);
        let well = turns().filter(|address| of(address).is_none());
        let last = |connects: bool| {
            let of = &of;
            turns().filter(move |address| {
                of(address).is_some_and(|held| held.connects == connects) && Some(*address) != due
            })
        };
        // An address that failed on a request is better than one that accepts no connections.
        let parts = [interleave(well), interleave(last(true)), interleave(last(false))];
        due.into_iter().chain(parts.into_iter().flatten()).collect()
    }

    /// Records the failure of an address. `connects` is true if it accepted the connection and failed on a
    /// request.
    pub fn failed(&self, address: IpAddr, now: Instant, connects: bool) {
        let mut held = self.held.lock();
        if let Some(held) = held.iter_mut().find(|held| held.address == address) {
            held.connects = connects;
            return;
        }
        if held.len() >= HELD_MOST {
            held.remove(0);
        }
        held.push(FailedAddress { address, until: now + HELD_FIRST, span: HELD_FIRST, connects });
        self.any_held.store(true, Ordering::Relaxed);
    }

    /// Records that the server has answered from this address, which is then no longer avoided.
    pub fn answered(&self, address: impl FnOnce() -> Option<IpAddr>) {
        if !self.any_held.load(Ordering::Relaxed) {
            return;
        }
        let Some(address) = address() else { return };
        let mut held = self.held.lock();
        held.retain(|held| held.address != address);
        self.any_held.store(!held.is_empty(), Ordering::Relaxed);
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
    fn addresses_take_turns() {
        let (turns, now) = (Turns::default(), Instant::now());
        let addresses = [1, 2, 3].map(address);
        let firsts = || (0..6).map(|_| turns.order(&addresses, true, now)[0]).collect::<Vec<_>>();
        assert_eq!(firsts(), [1, 2, 3, 1, 2, 3].map(address));
        turns.failed(address(2), now, true);
        assert!(firsts().iter().all(|first| *first != address(2)));
        assert_eq!(turns.order(&addresses, true, now)[2], address(2), "it is tried when the others fail");
        assert!(turns.order(&[], true, now).is_empty());
    }

    #[test]
    fn families_are_tried_in_turns() {
        let (turns, now) = (Turns::default(), Instant::now());
        let v6: IpAddr = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into();
        let addresses = [v6, address(1), address(2), address(3)];
        let orders: Vec<_> = (0..4).map(|_| turns.order(&addresses, true, now)).collect();
        assert_eq!(orders[0], addresses, "each is the first in its turn");
        assert_eq!(orders[1], [address(1), v6, address(2), address(3)]);
        assert_eq!(orders[2], [address(2), v6, address(3), address(1)]);
        turns.failed(v6, now, false);
        assert_eq!(turns.order(&addresses, true, now)[3], v6);
    }

    #[test]
    fn one_connection_tries_an_address_that_has_failed() {
        let (turns, start) = (Turns::default(), Instant::now());
        let addresses = [1, 2].map(address);
        let tries = |seconds: std::ops::Range<u32>, try_held: bool| {
            let order = |second| turns.order(&addresses, try_held, start + SECOND * second);
            seconds.flat_map(|second| [second; 3]).filter(|second| order(*second)[0] == address(1)).count()
        };
        turns.failed(address(1), start, false);
        assert_eq!((tries(0..10, true), tries(10..12, false)), (0, 0));
        assert_eq!((tries(12..32, true), tries(32..72, true)), (1, 1));
        assert!((11..=14).contains(&tries(72..3672, true)), "every five minutes");
        turns.answered(|| Some(address(2)));
        assert_eq!(tries(3700..3710, false), 0);
        turns.answered(|| Some(address(1)));
        assert_eq!(tries(3710..3720, false), 15);
        turns.answered(|| panic!("nobody needs to know"));
    }

    #[test]
    fn all_take_turns_when_all_have_failed() {
        let (turns, now) = (Turns::default(), Instant::now());
        let addresses = [1, 2].map(address);
        addresses.into_iter().for_each(|address| turns.failed(address, now, false));
        let firsts: Vec<_> = (0..4).map(|_| turns.order(&addresses, true, now)[0]).collect();
        assert_eq!(firsts, [1, 2, 1, 2].map(address));
        // Except for addresses that take connections.
        turns.failed(address(2), now, true);
        assert!((0..4).all(|_| turns.order(&addresses, false, now)[0] == address(2)));
    }
}

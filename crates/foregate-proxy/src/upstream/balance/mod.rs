//! Methods of balancing: which server a request tries.
//!
//! A method sees the request once, for its key, and the requests in flight of each server. Health is not its concern: it offers servers in its
//! order until one is admitted.

mod hash;
mod least_requests;
mod random;
mod round_robin;
mod two_choices;

use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use self::hash::Hash;
use self::least_requests::LeastRequests;
use self::random::Random;
use self::round_robin::RoundRobin;
use self::two_choices::TwoChoices;
use crate::message::request::Request;
use crate::settings;

/// A request for which a server is chosen.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The request as the server gets it.
    pub request: &'a Request,
    /// The address of its client, where it has one.
    pub client: Option<IpAddr>,
}

/// One choice of a server.
pub(super) struct Choice<'a> {
    /// What [`Balance::key`] has made of the request.
    pub(super) key: Option<u64>,
    /// A further attempt, not the first.
    pub(super) is_further: bool,
    /// The requests in flight of each server; 0 unless the method counts them.
    pub(super) in_flight: &'a dyn Fn(usize) -> u32,
}

/// A method that spreads requests over the servers of an upstream, which are known by their numbers.
pub(super) trait Balance: Debug + Send + Sync {
    /// Whether the method reads requests in flight. They are counted only where it does.
    fn counts(&self) -> bool {
        false
    }

    /// The part of a request that the method goes by, made into a number; `None` where it goes by none, or the request has none.
    fn key(&self, _asked: &Asked<'_>) -> Option<u64> {
        None
    }

    /// Offers servers in the method's order until one is admitted; returns that one. To admit a server may cost it its trial: it is
    /// offered only if it is to be taken.
    fn choose(&self, choice: &Choice<'_>, admits: &mut dyn FnMut(usize) -> bool) -> Option<usize>;
}

/// The method that an upstream is configured with.
pub(super) fn method(balance: &settings::Balance, servers: &[settings::Server]) -> Box<dyn Balance> {
    let weights: Vec<u32> = servers.iter().map(|server| server.weight).collect();
    match balance {
        settings::Balance::RoundRobin => Box::new(RoundRobin::new(&weights)),
        settings::Balance::LeastRequests => Box::new(LeastRequests::new(&weights)),
        settings::Balance::TwoChoices => Box::new(TwoChoices::new(&weights)),
        settings::Balance::Random => Box::new(Random::new(&weights)),
        settings::Balance::Hash(by) => {
            let servers = servers.iter().map(|server| (server.address.to_string(), server.weight));
            Box::new(Hash::new(by.clone(), servers.collect()))
        }
    }
}

/// The requests in flight of one server. On a cache line of its own: threads change it with each request.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Load(AtomicU32);

impl Load {
    /// How many there are.
    pub(super) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts a request for as long as the result lives.
    pub(super) fn enter(self: &Arc<Self>) -> InFlight {
        self.0.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }
}

/// A request that a server is being asked.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Load>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Requests in flight for a weight, in billionths.
fn share(in_flight: u32, weight: u32) -> u64 {
    u64::from(in_flight) * 1_000_000_000 / u64::from(weight.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many requests, how many each of three servers gets, where none stays in flight.
    pub(super) fn shares(
        balance: &dyn Balance,
        count: usize,
        mut admits: impl FnMut(usize) -> bool,
    ) -> [usize; 3] {
        let mut shares = [0; 3];
        for _ in 0..count {
            let choice = Choice { key: None, is_further: false, in_flight: &|_| 0 };
            if let Some(server) = balance.choose(&choice, &mut admits) {
                shares[server] += 1;
            }
        }
        shares
    }

    /// Whether each share is within so many per cent of what was expected.
    pub(super) fn are_near(shares: &[usize], expected: &[usize], percent: usize) -> bool {
        shares
            .iter()
            .zip(expected)
            .all(|(share, expected)| share.abs_diff(*expected) * 100 <= expected * percent)
    }

    #[test]
    fn requests_in_flight_are_counted_until_they_end() {
        let load = Arc::new(Load::default());
        let two = [load.enter(), load.enter()];
        assert_eq!(load.get(), 2);
        drop(two);
        assert_eq!(load.get(), 0);
    }

    #[test]
    fn servers_that_are_not_admitted_leave_their_requests_to_the_others() {
        for balance in [
            settings::Balance::RoundRobin,
            settings::Balance::LeastRequests,
            settings::Balance::TwoChoices,
            settings::Balance::Random,
            settings::Balance::Hash(settings::HashBy::Client),
        ] {
            let servers = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
                .map(|address| settings::Server { address: address.parse().unwrap(), weight: 1 });
            let balance = method(&balance, &servers);
            for out in 0..3 {
                let shares = shares(&*balance, 3000, |server| server != out);
                let [one, other] = [(out + 1) % 3, (out + 2) % 3];
                assert_eq!(shares[out], 0, "{balance:?}");
                assert!(shares[one] > 1000 && shares[other] > 1000, "{balance:?}: {shares:?}");
                let alone = self::shares(&*balance, 100, |server| server == out);
                assert_eq!(alone[out], 100, "{balance:?}");
            }
            assert_eq!(shares(&*balance, 100, |_| false), [0; 3], "{balance:?}");
        }
    }
}

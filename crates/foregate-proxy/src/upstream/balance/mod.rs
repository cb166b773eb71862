//! Methods of balancing: which server a request tries.
//!
//! A method derives at most a key from the request, and sees the number of requests in flight of each
//! server. It knows nothing of health: it offers servers in its order until one is admitted.

mod hash;
mod least_requests;
mod maglev;
mod peak_ewma;
mod random;
mod request_view;
mod round_robin;
mod two_choices;

use std::fmt::Debug;
use std::net::IpAddr;

use self::hash::Hash;
pub(super) use self::hash::{cookie, hash};
use self::least_requests::LeastRequests;
use self::maglev::Maglev;
use self::peak_ewma::PeakEwma;
use self::random::Random;
use self::round_robin::RoundRobin;
use self::two_choices::TwoChoices;
use crate::message::request::Request;
use crate::settings;

/// A request for which a server is chosen.
#[derive(Debug, Clone, Copy)]
pub struct BalancedRequest<'a> {
    /// The request for the server.
    pub request: &'a Request,
    /// The address of the request's client, if it has one.
    pub client: Option<IpAddr>,
}

/// One choice of a server.
pub(super) struct Choice<'a> {
    /// The result of [`BalanceMethod::key`] for the request.
    pub(super) key: Option<u64>,
    /// True if this is a further attempt, false if it is the first.
    pub(super) is_further: bool,
    /// The requests in flight of each server. For a method that weighs latencies: the expected wait at
    /// each server, in microseconds.
    pub(super) in_flight: &'a dyn Fn(usize) -> u32,
}

/// A method that spreads requests over the servers of an upstream, which are known by their
/// numbers.
pub(super) trait BalanceMethod: Debug + Send + Sync {
    /// Returns true if the method weighs the latencies of servers. Their averages are kept only for such
    /// methods.
    fn weighs_time(&self) -> bool {
        false
    }

    /// The part of a request that the method uses, as a number; `None` if the method uses none, or
    /// the request lacks it.
    fn key(&self, _asked: &BalancedRequest<'_>) -> Option<u64> {
        None
    }

    /// Offers servers to `admits` in the method's order, and returns the first one that is admitted. If
    /// `admits` returns true, that server must be taken, because it may have been admitted for a trial.
    fn choose(&self, choice: &Choice<'_>, admits: &mut dyn FnMut(usize) -> bool) -> Option<usize>;
}

/// A method for servers with these addresses and weights.
pub(super) fn method<'s>(
    method: &settings::Balance,
    servers: impl Iterator<Item = (&'s str, u32)>,
) -> Box<dyn BalanceMethod> {
    let servers: Vec<(String, u32)> =
        servers.map(|(address, weight)| (address.to_owned(), weight.max(1))).collect();
    let weights: Vec<u32> = servers.iter().map(|(_, weight)| *weight).collect();
    match method {
        settings::Balance::RoundRobin => Box::new(RoundRobin::new(&weights)),
        settings::Balance::LeastRequests => Box::new(LeastRequests::new(&weights)),
        settings::Balance::TwoChoices => Box::new(TwoChoices::new(&weights)),
        settings::Balance::PeakEwma => Box::new(PeakEwma::new(&weights)),
        settings::Balance::Random => Box::new(Random::new(&weights)),
        settings::Balance::Hash(by) => Box::new(Hash::new(by.clone(), servers)),
        settings::Balance::Maglev(by) => Box::new(Maglev::new(by.clone(), &servers)),
    }
}

/// The requests in flight divided by the weight, in billionths.
fn share(in_flight: u32, weight: u32) -> u64 {
    u64::from(in_flight) * 1_000_000_000 / u64::from(weight.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of this many requests each of three servers gets, if none stays in flight.
    pub(super) fn shares(
        balance: &dyn BalanceMethod,
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

    /// Returns true if each share is within `percent` of the expected one.
    pub(super) fn are_near(shares: &[usize], expected: &[usize], percent: usize) -> bool {
        shares
            .iter()
            .zip(expected)
            .all(|(share, expected)| share.abs_diff(*expected) * 100 <= expected * percent)
    }

    #[test]
    fn servers_that_are_not_admitted_leave_their_requests_to_the_others() {
        for balance in [
            settings::Balance::RoundRobin,
            settings::Balance::LeastRequests,
            settings::Balance::TwoChoices,
            settings::Balance::Random,
            settings::Balance::PeakEwma,
            settings::Balance::Hash(settings::HashBy::Client),
            settings::Balance::Maglev(settings::HashBy::Client),
        ] {
            let servers = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
            let balance = method(&balance, servers.into_iter().map(|address| (address, 1)));
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

//! Connects to one of the addresses of a server's name. If one is slow, the next one is tried in
//! parallel (RFC 8305).

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rustix::io::Errno;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::connect::{Dialer, tcp};
use super::server::Server;
use crate::limits::descriptors::{self, DescriptorPlace};

/// The time without a connection after which the next address is tried as well (RFC 8305, section 5).
const NEXT_AFTER: Duration = Duration::from_millis(250);
/// The least time limit of an attempt at one of several addresses. It also bounds the number of attempts
/// at the same time.
const SHARE_MIN: Duration = Duration::from_secs(1);

impl Dialer {
    /// Connects to the first of these addresses that accepts. The addresses take turns at being tried
    /// first. During the attempts, `suspects` has their addresses in order; at the end, it has only the
    /// address that accepted.
    pub(super) async fn first_of(
        &self,
        server: &Server,
        found: &[IpAddr],
        port: u16,
        place: DescriptorPlace,
        suspects: &mut Vec<IpAddr>,
    ) -> io::Result<(TcpStream, DescriptorPlace)> {
        // If the server is down, each request tries only one address, and the addresses take turns. With
        // all addresses, the one that accepts connections would always win, although it may be faulty.
        let is_well = server.record.health.failures() == 0;
        let mut order = server.remembered.turns.order(found, is_well, self.clock.now());
        order.truncate(if is_well { order.len() } else { 1 });
        let mut losers = Vec::new();
        let count = u32::try_from(order.len()).unwrap_or(u32::MAX).max(1);
        let share = (self.settings.connect_timeout / count).max(SHARE_MIN);
        let race = race(order, port, share, place, suspects, |address, error| {
            if !descriptors::are_missing(error) {
                // The next connection does not try this address first.
                server.remembered.turns.failed(address, self.clock.now(), false);
            }
            // An address without a route does not count as an attempt.
            if !is_without_route(error) {
                losers.push((address, error.to_string()));
            }
        });
        let won = race.await;
        if won.is_err() {
            // The caller counts the last failure, as that of the whole connection.
            losers.pop();
        } else if let Some((address, error)) = losers.last() {
            self.tell_of_address(server, *address, error);
        }
        self.counters.failed.add(losers.len() as u64);
        won
    }

    /// Warns operators of an address that does not answer. As long as another address answers, no
    /// request fails, so nothing else would show the problem.
    fn tell_of_address(&self, server: &Server, address: IpAddr, error: &str) {
        if server.remembered.address.take(self.clock.now()) {
            tracing::warn!(
                upstream = %self.settings.name,
                server = %server.label,
                %address,
                error,
                "an address of the server does not answer; another one does, and this one is passed over for a while"
            );
        }
    }
}

/// Tries addresses in their order. The next one is tried as soon as one has failed, or if one is slow and
/// a further descriptor is free. Each attempt has the time limit `share`; the last one has all the time
/// that is left. The first address that accepts wins. `lost` is called for each address that has failed
/// or was overtaken by a later attempt.
async fn race(
    order: Vec<IpAddr>,
    port: u16,
    share: Duration,
    place: DescriptorPlace,
    suspects: &mut Vec<IpAddr>,
    mut lost: impl FnMut(IpAddr, &io::Error),
) -> io::Result<(TcpStream, DescriptorPlace)> {
    let mut order = order.into_iter();
    let mut place = Some(place);
    let mut attempts = FuturesUnordered::new();
    let mut failure = io::Error::from(ErrorKind::AddrNotAvailable);
    loop {
        if order.len() > 0
            && let Some(place) = place.take().or_else(DescriptorPlace::take_for_origin)
            && let Some(address) = order.next()
        {
            suspects.push(address);
            let limit = if order.len() > 0 { share } else { Duration::MAX };
            attempts.push(attempt(SocketAddr::new(address, port), limit, place));
        }
        tokio::select! {
            biased;
            ended = attempts.next() => match ended {
                Some((address, Ok(stream), place)) => {
                    let began = suspects.iter().position(|suspect| *suspect == address).unwrap_or(0);
                    let late = ErrorKind::TimedOut.into();
                    suspects.drain(..began).for_each(|slower| lost(slower, &late));
                    *suspects = vec![address];
                    return Ok((stream, place));
                }
                Some((address, Err(error), of_attempt)) => {
                    suspects.retain(|suspect| *suspect != address);
                    lost(address, &error);
                    (failure, place) = (error, Some(of_attempt));
                }
                // All attempts have failed, and no address is left.
                None => return Err(failure),
            },
            () = sleep(NEXT_AFTER), if order.len() > 0 => {}
        }
    }
}

async fn attempt(
    address: SocketAddr,
    limit: Duration,
    place: DescriptorPlace,
) -> (IpAddr, io::Result<TcpStream>, DescriptorPlace) {
    let connected = timeout(limit, tcp(address)).await;
    (address.ip(), connected.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())), place)
}

/// Returns true if the machine has no route to an address: for example, an IPv6 address on a machine
/// without IPv6.
fn is_without_route(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::NETUNREACH | Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT | Errno::INVAL))
}

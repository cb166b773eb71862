//! How long an origin keeps an unused connection open, and how many connections the load needs.
//!
//! Usually, a request gets the connection that was used last, so that surplus connections grow old and
//! are closed. An origin with a short idle limit then also closes connections that the next peak of the
//! load needs. Once such closes have revealed the limit, the oldest connections are used before they
//! reach it. This keeps as many connections open as were recently in use at the same time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The least time for which a peak of connections in use is remembered. It is forgotten after at most
/// twice this time.
const PEAK_COUNTS_FOR: Duration = Duration::from_secs(10);

/// The idle limit of an origin, as learned from its connections.
#[derive(Debug, Default)]
pub(super) struct IdleLimit {
    /// The limit in microseconds; 0 while it is unknown.
    micros: AtomicU64,
}

impl IdleLimit {
    /// The shortest idle time after which a connection was found closed; `None` before the first such
    /// connection.
    pub(super) fn get(&self) -> Option<Duration> {
        match self.micros.load(Ordering::Relaxed) {
            0 => None,
            micros => Some(Duration::from_micros(micros)),
        }
    }

    /// Records that the origin closed a connection that was idle for `idle`.
    pub(super) fn closed_after(&self, idle: Duration) {
        let micros = micros(idle);
        if self.get().is_none_or(|limit| idle < limit) {
            self.micros.store(micros, Ordering::Relaxed);
        }
    }

    /// Records that a connection was still open after `idle`. If the learned limit is shorter, it was
    /// wrong: the origin may have closed its connections because it restarted.
    pub(super) fn open_after(&self, idle: Duration) {
        if self.get().is_some_and(|limit| idle > limit) {
            self.micros.store(micros(idle * 2), Ordering::Relaxed);
        }
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1)
}

/// The recent peak of connections that were in use at the same time.
#[derive(Debug, Default)]
pub(super) struct Peak {
    since: Option<Instant>,
    present: usize,
    before: usize,
}

impl Peak {
    /// Records the number of connections in use, and returns the peak of the last 10 to 20 seconds.
    pub(super) fn note(&mut self, in_use: usize, now: Instant) -> usize {
        let since = *self.since.get_or_insert(now);
        let span = now.saturating_duration_since(since);
        if span >= PEAK_COUNTS_FOR {
            self.before = if span < PEAK_COUNTS_FOR * 2 { self.present } else { 0 };
            (self.since, self.present) = (Some(now), 0);
        }
        self.present = self.present.max(in_use);
        self.present.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::BTreeMap;
    use std::sync::Arc;

    use tokio::net::UnixStream;

    use crate::link::H1Link;
    use crate::transport::stream::{Socket, Stream};
    use crate::upstream::idle::{Ages, ConnectionStart};
    use crate::upstream::pool::ServerPool;

    const MILLI: Duration = Duration::from_millis(1);
    const AGES: Ages = Ages { idle: Duration::from_secs(55), total: Duration::from_secs(3600) };

    type Connection = (Box<H1Link>, Box<ConnectionStart>);

    /// Clients that think and ask, and an origin that answers after 10 ms and closes connections
    /// that are idle for 250 ms. The time is ours.
    struct Load {
        pool: ServerPool,
        now: Instant,
        /// The next events: a client sends a request, or its response is there, on this connection.
        events: BTreeMap<(Instant, u32), Option<Connection>>,
        /// The origin's ends of idle connections, and since when they are idle.
        idle: Vec<(usize, Instant, UnixStream)>,
        busy: BTreeMap<u32, (usize, UnixStream)>,
        opened: usize,
        seed: u64,
    }

    impl Load {
        fn new(clients: u32) -> Self {
            let now = Instant::now();
            let pool = ServerPool::new(&Arc::default());
            let mut load = Self {
                pool,
                now,
                events: BTreeMap::new(),
                idle: Vec::new(),
                busy: BTreeMap::new(),
                opened: 0,
                seed: 7,
            };
            for client in 0..clients {
                let first = now + load.think();
                load.events.insert((first, client), None);
            }
            load
        }

        /// 90 ms on average.
        fn think(&mut self) -> Duration {
            self.seed =
                self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Duration::from_micros(80_000 + (self.seed >> 33) % 20_000)
        }

        /// Serves this many requests of clients below `clients`. Returns the number of new
        /// connections.
        fn serve(&mut self, requests: usize, clients: u32) -> usize {
            let (before, mut asked, mut swept) = (self.opened, 0, self.now);
            while asked < requests {
                let ((at, client), response) = self.events.pop_first().unwrap();
                self.now = at;
                self.idle.retain(|(_, since, _)| at.saturating_duration_since(*since) < MILLI * 250);
                if at.saturating_duration_since(swept) >= Duration::from_secs(1) {
                    (swept, _) = (at, self.pool.sweep(at, AGES));
                }
                if let Some((link, made)) = response {
                    let (number, peer) = self.busy.remove(&client).unwrap();
                    self.idle.push((number, at, peer));
                    self.pool.put(link, made, at, 256);
                    let next = at + self.think();
                    self.events.insert((next, client), None);
                } else if client < clients {
                    asked += 1;
                    let connection = self.connection(client);
                    self.events.insert((at + MILLI * 10, client), Some(connection));
                }
            }
            self.opened - before
        }

        fn connection(&mut self, client: u32) -> Connection {
            if let Some((link, made)) = self.pool.take(self.now, AGES, None) {
                let number = made.address.map(|address| address.to_string()).unwrap();
                let of = |(of, ..): &(usize, Instant, UnixStream)| {
                    std::net::Ipv4Addr::from(*of as u32).to_string() == number
                };
                let at = self.idle.iter().position(of).expect("it is open");
                let (number, _, peer) = self.idle.remove(at);
                self.busy.insert(client, (number, peer));
                return (link, made);
            }
            self.opened += 1;
            let (ours, peer) = UnixStream::pair().unwrap();
            // The address encodes the client's number.
            let address = std::net::Ipv4Addr::from(self.opened as u32);
            let mut made = ConnectionStart::new(self.now, Some(address.into()));
            self.pool.count_open(&mut made);
            self.busy.insert(client, (self.opened, peer));
            (Box::new(H1Link::new(Stream::Plain(Socket::from(ours)))), made)
        }
    }

    #[tokio::test]
    async fn peaks_find_the_connections_that_an_origin_would_have_closed() {
        let mut load = Load::new(64);
        load.serve(5_000, 64);
        let opened = load.serve(20_000, 64);
        assert!(opened <= 60, "{opened} connections for 20,000 requests");
        let open = load.idle.len() + load.busy.len();
        // With an eighth of the load, most connections close.
        load.serve(3_000, 8);
        load.pool.sweep(load.now, AGES);
        let left = load.idle.len() + load.busy.len();
        assert!(left * 2 < open, "{left} of {open} are left");
        assert_eq!(load.pool.count_idle(), load.idle.len());
    }

    #[test]
    fn the_limit_is_the_shortest_time_that_nothing_contradicts() {
        let limit = IdleLimit::default();
        limit.open_after(MILLI * 900);
        assert_eq!(limit.get(), None);
        limit.closed_after(MILLI * 900);
        limit.closed_after(MILLI * 260);
        limit.closed_after(MILLI * 700);
        assert_eq!(limit.get(), Some(MILLI * 260));
        limit.open_after(MILLI * 259);
        assert_eq!(limit.get(), Some(MILLI * 260));
        // A restart.
        limit.closed_after(Duration::ZERO);
        assert_eq!(limit.get(), Some(Duration::from_micros(1)));
        limit.open_after(MILLI * 200);
        assert_eq!(limit.get(), Some(MILLI * 400));
        limit.closed_after(MILLI * 255);
        assert_eq!(limit.get(), Some(MILLI * 255));
    }

    #[test]
    fn a_peak_counts_for_a_while() {
        let (mut peak, start) = (Peak::default(), Instant::now());
        let at = |seconds: u32| start + Duration::from_secs(1) * seconds;
        assert_eq!(peak.note(20, at(0)), 20);
        assert_eq!(peak.note(3, at(9)), 20);
        assert_eq!(peak.note(4, at(11)), 20);
        assert_eq!(peak.note(2, at(19)), 20);
        assert_eq!(peak.note(2, at(22)), 4);
        assert_eq!(peak.note(1, at(60)), 1, "what was long ago does not count");
    }
}

//! The memory that peers make the process hold, and the measures against too much of it.
//!
//! Each connection has bounds of its own, but ten thousand connections at their bounds are more
//! than a machine has. So their memory is counted where it is taken: buffers, heads that are being
//! received, header blocks that are held back, bytes that wait for streams of HTTP/2 in either
//! direction, filters and starts of bodies ([`crate::limits::budget`]). As the sum grows towards
//! the limit, the process gives up services, the least important first: keep-alive, requests,
//! connections (see [`STAGES`]). The size of the process is no measure, because it shrinks late, if
//! at all, after memory has been freed.
//!
//! Counting costs nearly nothing: each thread adds up its own changes, and reports the sum
//! when it is large or when the thread is about to sleep.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::counters::metrics::Counter;
use crate::limits::buffer_size::{FIRST, LARGE, SMALL};
use crate::limits::clients::{Holdings, Registry};
use crate::time::notices::Notices;

/// A thread reports its balance once the balance is at least this many bytes. This is the size of
/// several of the largest buffers, which are taken and freed with each piece of a large body.
const LUMP: isize = 256 * 1024;
/// The level at which each stage begins, percent of the limit.
const BEGINS: [usize; 3] = [50, 75, 100];
/// The level at which all requests are refused, percent of the limit. Between the second stage and
/// this level, only clients with more connections than [`FEW`] are refused: each connection is
/// bounded, so only a client with many connections can make the process hold much.
const FOR_ALL: usize = 90;
/// The level at which no client gets keep-alive, percent of the limit. Between the first stage and
/// this level, only clients with more connections than [`FEW`] lose it.
const KEEP_ALIVE_FOR_ALL: usize = 85;
/// A client with at most this many connections is not to blame for a shortage of memory.
const FEW: usize = 8;
/// The distance between the level at which a stage begins and the lower one at which it ends,
/// percent of the limit: one request must not switch the stage on and off.
const HYSTERESIS: usize = 10;
/// The levels, percent of the limit, from which buffers for bodies are at most [`SMALL`] or
/// [`FIRST`]: the more clients do not read their responses, the fewer bytes each holds.
const BUFFERS: [(usize, usize); 2] = [(40, FIRST), (25, SMALL)];
/// The largest pending output of one HTTP/2 connection, bytes: as much as a hundred streams pass to
/// `h2` before any of it is written.
const UNSENT: usize = 4 * 1024 * 1024;
/// Smaller values for [`UNSENT`] under memory pressure: the level from which each applies, percent
/// of the limit, and the value.
const LESS_UNSENT: [(usize, usize); 4] = [(40, SMALL), (25, LARGE), (10, 256 * 1024), (5, 1024 * 1024)];
/// An incomplete head may hold one part in this many of the memory that is left before requests are
/// refused. So a client that sends much of a head and then waits is refused long before clients
/// with complete requests.
const LARGEST_HEAD: usize = 256;
/// The interval at which the stage is updated without a report, and the shorter one while requests
/// are refused.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_EVERY_SHORT: Duration = Duration::from_millis(50);
/// A client that holds less than one part in this many of the limit is left alone. For clients that
/// hold more:
///
/// - From the first stage on, requests of a client are refused if it holds more memory than is left
///   below the second stage.
/// - From the second stage on, connections with unread bodies, and those with clients that do not
///   read, are ended until the stage is over. The clients that hold the most come first. Refusing
///   requests is not enough, because requests admitted earlier may still grow by their windows.
const LARGE_HOLDER: usize = 64;

/// The names of the stages in metrics.
pub const STAGES: [&str; 3] = ["keep_alive", "requests", "connections"];

/// The idle connections that ended, and the HTTP/2 connections that got GOAWAY, for lack of memory.
pub static DRAINED: Counter = Counter::new();
/// Requests that were refused.
pub static REFUSED_REQUESTS: Counter = Counter::new();
/// Heads that were refused before they were complete.
pub static REFUSED_HEADS: Counter = Counter::new();
/// HTTP/2 connections that ended because their clients held the most memory, in bodies without a
/// reader and in streams.
pub static REFUSED_BODIES: Counter = Counter::new();
/// Connections that were closed as soon as they were accepted.
pub static REFUSED_CONNECTIONS: Counter = Counter::new();

static MEMORY: Accounts = Accounts::new();
/// Notified when the stage changes.
static CHANGED: Notify = Notify::const_new();

thread_local! {
    /// The unreported balance of this thread.
    static BALANCE: Cell<isize> = const { Cell::new(0) };
}

/// The accounts of the memory that peers make the process hold.
struct Accounts {
    held: AtomicIsize,
    limit: AtomicUsize,
    /// How many of the stages have been reached.
    stage: AtomicU8,
    changing: Mutex<()>,
    /// How often each stage was reached.
    reached: [Counter; 3],
}

impl Accounts {
    const fn new() -> Self {
        Self {
            held: AtomicIsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            stage: AtomicU8::new(0),
            changing: Mutex::new(()),
            reached: [Counter::new(), Counter::new(), Counter::new()],
        }
    }

    fn held(&self) -> usize {
        // Memory reported by one thread may be released by another, which may report first.
        usize::try_from(self.held.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn share(&self, percent: usize) -> usize {
        self.limit.load(Ordering::Relaxed) / 100 * percent
    }

    /// The stage for the current level, if the last one was `present`.
    fn next(&self, present: u8) -> u8 {
        let held = self.held();
        let reached =
            |less: usize| BEGINS.iter().filter(|begin| held >= self.share(**begin - less)).count() as u8;
        present.clamp(reached(0), reached(HYSTERESIS))
    }

    /// Updates the stage to the current level. Returns true if it has changed.
    fn look(&self) -> bool {
        let present = self.stage.load(Ordering::Relaxed);
        if self.next(present) == present {
            return false;
        }
        let _changing = self.changing.lock();
        let present = self.stage.load(Ordering::Relaxed);
        let next = self.next(present);
        for reached in self.reached.iter().take(next.into()).skip(present.into()) {
            reached.inc();
        }
        self.stage.store(next, Ordering::Relaxed);
        next != present
    }

    fn add(&self, bytes: isize) -> bool {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.look()
    }

    /// The bytes to release until the second stage is over; 0 below it.
    fn excess(&self) -> usize {
        match self.stage.load(Ordering::Relaxed) {
            0 | 1 => 0,
            _ => self.held().saturating_sub(self.share(BEGINS[1] - HYSTERESIS)) + 1,
        }
    }

    fn largest_buffer(&self) -> usize {
        let held = self.held();
        BUFFERS.iter().find(|(from, _)| held >= self.share(*from)).map_or(LARGE, |(_, size)| *size)
    }

    fn largest_unsent(&self) -> usize {
        let held = self.held();
        LESS_UNSENT.iter().find(|(from, _)| held >= self.share(*from)).map_or(UNSENT, |(_, size)| *size)
    }

    fn admits(&self, connections: impl FnOnce() -> Option<usize>, holds: impl FnOnce() -> usize) -> bool {
        match self.stage.load(Ordering::Relaxed) {
            0 => true,
            1 => holds() <= self.left().max(self.large_holding()),
            _ => {
                self.held() < self.share(FOR_ALL)
                    && connections().is_some_and(|connections| connections <= FEW)
            }
        }
    }

    /// The memory that is left before requests are refused.
    fn left(&self) -> usize {
        self.share(BEGINS[1]).saturating_sub(self.held())
    }

    fn large_holding(&self) -> usize {
        self.limit.load(Ordering::Relaxed) / LARGE_HOLDER
    }

    fn ends_keep_alive(&self, connections: impl FnOnce() -> Option<usize>) -> bool {
        self.stage.load(Ordering::Relaxed) >= 1
            && (self.is_tight_for_all() || connections().is_none_or(|connections| connections > FEW))
    }

    fn is_tight_for_all(&self) -> bool {
        self.held() >= self.share(KEEP_ALIVE_FOR_ALL)
    }

    fn allows_head(&self, bytes: usize) -> bool {
        bytes <= self.left() / LARGEST_HEAD
    }
}

/// Bytes that something holds, for as long as this value lives.
#[derive(Debug, Default)]
pub struct Charge(usize);

impl Charge {
    /// Holds nothing yet.
    pub const fn new() -> Self {
        Self(0)
    }

    /// The memory that is held.
    pub fn bytes(&self) -> usize {
        self.0
    }

    /// Sets the number of bytes that are held now.
    #[inline]
    pub fn set(&mut self, bytes: usize) {
        if bytes != self.0 {
            self.change(bytes);
        }
    }

    #[inline(never)]
    fn change(&mut self, bytes: usize) {
        note(bytes as isize - self.0 as isize);
        self.0 = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

fn note(bytes: isize) {
    let lump = BALANCE.try_with(|balance| {
        let sum = balance.get() + bytes;
        let told = sum.abs() >= LUMP;
        balance.set(if told { 0 } else { sum });
        if told { sum } else { 0 }
    });
    // A thread without a balance reports each change at once.
    tell(lump.unwrap_or(bytes));
}

fn tell(bytes: isize) {
    if bytes != 0 && MEMORY.add(bytes) {
        CHANGED.notify_one();
    }
}

/// Reports this thread's balance. For threads that are about to sleep.
pub fn settle() {
    tell(BALANCE.replace(0));
}

/// Sets the limit on the memory that is held, bytes.
pub fn set_limit(bytes: usize) {
    MEMORY.limit.store(bytes, Ordering::Relaxed);
    if MEMORY.look() {
        CHANGED.notify_one();
    }
}

/// The bytes that are held, and the limit on them.
pub fn held() -> (usize, usize) {
    (MEMORY.held(), MEMORY.limit.load(Ordering::Relaxed))
}

/// How often each stage was reached.
pub fn reached() -> [u64; 3] {
    [0, 1, 2].map(|stage: usize| MEMORY.reached.get(stage).map_or(0, Counter::get))
}

/// Returns true if memory is plentiful.
pub fn has_plenty() -> bool {
    largest_buffer() == LARGE
}

/// The largest buffer that a body may have.
pub fn largest_buffer() -> usize {
    MEMORY.largest_buffer()
}

/// The most of our output that may wait for one connection of HTTP/2.
pub fn largest_unsent() -> usize {
    MEMORY.largest_unsent()
}

/// Returns true if this client gets no keep-alive; `None` is an unknown client.
pub fn is_tight(client: Option<&Arc<Holdings>>) -> bool {
    MEMORY.ends_keep_alive(|| client.map(|client| client.connections()))
}

/// Returns true from the first stage on: large holders get no further requests.
pub fn is_felt() -> bool {
    MEMORY.stage.load(Ordering::Relaxed) >= 1
}

/// Returns true if requests of some or all clients are refused.
pub fn is_short() -> bool {
    MEMORY.stage.load(Ordering::Relaxed) >= 2
}

/// Returns true if new connections are closed.
pub fn refuses_connections() -> bool {
    MEMORY.stage.load(Ordering::Relaxed) >= 3
}

/// The error when there is no memory for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage;

/// Admits a new request of this client; `None` is an unknown client.
///
/// # Errors
///
/// New requests are refused at present, either all of them or those of clients that hold much or
/// have many connections. The refusal has been counted.
pub fn admit(client: Option<&Arc<Holdings>>) -> Result<(), Shortage> {
    let connections = || client.map(|client| client.connections());
    if MEMORY.admits(connections, || client.map_or(0, |client| client.held())) {
        return Ok(());
    }
    REFUSED_REQUESTS.inc();
    Err(Shortage)
}

/// Returns true if an incomplete head may hold this many bytes; otherwise counts the refusal.
pub fn allows_head(bytes: usize) -> bool {
    let allows = MEMORY.allows_head(bytes);
    if !allows {
        REFUSED_HEADS.inc();
    }
    allows
}

/// Acts on changes of the stage, and logs them: wakes idle connections, and connections of the
/// clients that hold the most, so that they end themselves.
pub async fn watch(registry: Arc<Registry>) {
    let (mut last, mut for_all, mut told) = (0, false, 0);
    let notices = Notices::default();
    loop {
        // While requests are refused, the stage is checked often, so that it ends soon.
        let pause = if last < 2 { LOOK_EVERY } else { LOOK_EVERY_SHORT };
        let _ = tokio::time::timeout(pause, CHANGED.notified()).await;
        MEMORY.look();
        let stage = MEMORY.stage.load(Ordering::Relaxed);
        let was_for_all = std::mem::replace(&mut for_all, MEMORY.is_tight_for_all());
        if stage > 0 && last == 0 || for_all && !was_for_all {
            registry.wake();
        }
        last = stage;
        let excess = MEMORY.excess();
        if excess > 0 {
            registry.take_back(excess, MEMORY.large_holding());
        }
        let now = Instant::now();
        // A worse stage is logged at once, a better one only if nothing was logged a moment ago.
        if stage != told && (stage > told || notices.take(now)) {
            notices.give(now);
            told = stage;
            let (held, limit) = held();
            let says = match stage {
                0 => "memory suffices again",
                1 => "memory gets short: keep-alive connections of clients with many end",
                2 => "memory is short: new requests are refused",
                _ => "memory is used up: new connections are closed",
            };
            if stage == 0 {
                tracing::info!(held, limit, "{says}");
            } else {
                tracing::warn!(held, limit, "{says}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_come_one_after_the_other_and_go_later_than_they_came() {
        let accounts = Accounts::new();
        accounts.limit.store(1000, Ordering::Relaxed);
        let stage = |bytes: isize| {
            let changed = accounts.add(bytes);
            (accounts.stage.load(Ordering::Relaxed), changed)
        };
        assert_eq!(stage(499), (0, false));
        assert_eq!(stage(1), (1, true));
        assert_eq!(stage(-100), (1, false));
        assert_eq!(stage(-1), (0, true));
        assert_eq!(accounts.excess(), 0);
        assert_eq!(stage(601), (3, true));
        assert_eq!(accounts.excess(), 351);
        assert_eq!(stage(-100), (3, false));
        assert_eq!(stage(-1), (2, true));
        assert_eq!(stage(-899), (0, true));
        assert_eq!([0, 1, 2].map(|stage: usize| accounts.reached[stage].get()), [2, 1, 1]);
        assert_eq!(stage(-10), (0, false));
        assert_eq!(accounts.held(), 0, "what is not told of yet is not held");
    }

    #[test]
    fn who_has_few_connections_is_served_longer() {
        let accounts = Accounts::new();
        accounts.limit.store(1000, Ordering::Relaxed);
        let admits = || [Some(8), Some(9), None].map(|connections| accounts.admits(|| connections, || 0));
        for (more, expected) in [
            (749, [true; 3]),
            (1, [true, false, false]),
            (149, [true, false, false]),
            (1, [false; 3]),
            (-300, [true; 3]),
        ] {
            accounts.add(more);
            assert_eq!(admits(), expected, "{} of 1000", accounts.held());
        }
    }

    #[test]
    fn who_holds_more_than_is_left_is_refused() {
        let accounts = Accounts::new();
        accounts.limit.store(6400, Ordering::Relaxed);
        let admits = || [100, 101, 1600, 1601].map(|holds| accounts.admits(|| None, || holds));
        for (more, expected) in [
            (3199, [true; 4]),
            (1, [true, true, true, false]),
            (1500, [true, false, false, false]),
            (-2500, [true; 4]),
        ] {
            accounts.add(more);
            assert_eq!(admits(), expected, "{} of 6400", accounts.held());
        }
    }

    #[test]
    fn who_has_few_connections_keeps_them_longer() {
        let accounts = Accounts::new();
        accounts.limit.store(1000, Ordering::Relaxed);
        let ends = || [Some(8), Some(9), None].map(|connections| accounts.ends_keep_alive(|| connections));
        for (more, expected) in
            [(499, [false; 3]), (1, [false, true, true]), (349, [false, true, true]), (1, [true; 3])]
        {
            accounts.add(more);
            assert_eq!(ends(), expected, "{} of 1000", accounts.held());
        }
    }

    #[test]
    fn buffers_become_smaller_before_anything_is_refused() {
        let accounts = Accounts::new();
        accounts.limit.store(1000, Ordering::Relaxed);
        for (held, size) in [(249, LARGE), (1, SMALL), (149, SMALL), (1, FIRST), (600, FIRST)] {
            accounts.add(held);
            assert_eq!(accounts.largest_buffer(), size, "{}", accounts.held());
        }
    }

    #[test]
    fn who_asks_for_much_is_refused_first() {
        let accounts = Accounts::new();
        accounts.limit.store(160 << 20, Ordering::Relaxed);
        assert!(accounts.allows_head(128 << 10));
        accounts.add(100 << 20);
        assert!(!accounts.allows_head(128 << 10) && accounts.allows_head(64 << 10));
        accounts.add(20 << 20);
        assert!(!accounts.allows_head(4 << 10));
    }

    #[test]
    fn a_thread_tells_in_lumps_and_before_it_sleeps() {
        let mut charge = Charge::new();
        charge.set(1000);
        assert_eq!(BALANCE.get(), 1000);
        charge.set(1000 + LUMP as usize);
        assert_eq!(BALANCE.get(), 0);
        drop(charge);
        assert_eq!(BALANCE.get(), 0);
        settle();
    }
}

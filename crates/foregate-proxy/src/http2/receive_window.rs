//! The windows in which a client may send, and their adaptation to its uploads.
//!
//! A window of 64 KiB limits a client to that amount per round trip: 0.6 MB/s at 100 ms. So during uploads, round trips
//! are measured with PINGs. If the origin has read most of a stream's window within one round trip, the stream gets a
//! larger window for the next. If the origin reads less than arrives, unread bytes pile up here, and the window shrinks
//! again. The growth of windows beyond their base is reserved in a budget that all connections share, with a bound for
//! each client. That bounds the unread bytes of many uploads together.

use std::time::{Duration, Instant};

use super::streams::Streams;
use super::{FRAME, LARGEST_WINDOW};
use crate::limits::budget::BudgetShare;
use crate::limits::pressure;
use crate::settings::Limits;

/// The payload of the PING that measures a round trip.
pub const MEASURES: [u8; 8] = *b"uploaded";
/// A measured round trip longer than this is ignored: either the PING was queued behind the client's data, or the
/// client delays its answer.
const LONGEST_ROUND: Duration = Duration::from_secs(1);
/// The first and the longest pause after a measurement that has not enlarged a window. The pause doubles each time.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// The factor by which a window grows at a time. It is large, because after a few more round trips an upload may be
/// over.
const GROWTH: usize = 8;
/// The number of updates in which a window is returned to the peer once its size has changed.
const STEPS: u32 = 8;
/// The limit on the growth of all windows of a connection together, as a multiple of the largest growth of one stream.
const LARGEST_SUM: usize = 2;

/// The window in which a peer may send.
#[derive(Debug, Clone, Copy)]
pub struct ReceiveWindow {
    size: u32,
    /// The amount that the peer may still send.
    left: i64,
    /// The amount used up since the last update. After the window has shrunk, it may be negative: the next bytes that are
    /// used up are then not returned to the peer, until it is 0 again.
    used: i64,
    /// The amount to be used up before the next update.
    step: i64,
}

impl ReceiveWindow {
    /// A window of `size` bytes, while the peer still assumes a window of `known`.
    pub fn new(size: u32, known: i64) -> Self {
        Self { size, left: known, used: i64::from(size) - known, step: i64::from(size / 2) }
    }

    /// A window of `size` bytes, while the peer may still assume the larger window `usual`.
    pub fn of_unsettled(size: u32, usual: i64) -> Self {
        Self { left: usual.max(size.into()), used: 0, ..Self::new(size, size.into()) }
    }

    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// Records that the peer has sent this much. Returns true if its window allows it.
    pub fn take(&mut self, bytes: usize) -> bool {
        self.left -= bytes as i64;
        // An empty frame needs no window, even if the window has become negative because its size was reduced later.
        bytes == 0 || self.left >= 0
    }

    /// Reduces the window by this much: the peer knows now that it is smaller than the usual one.
    pub fn settle(&mut self, by: i64) {
        self.left -= by;
    }

    /// Returns true if the peer has used more than a little of its window.
    fn is_in_use(&self) -> bool {
        self.left + FRAME as i64 <= i64::from(self.size)
    }

    /// Records used bytes. Returns an update for the peer, once it is worth a frame.
    pub fn give_back(&mut self, bytes: usize) -> Option<u32> {
        self.used += bytes as i64;
        if self.used < self.step { None } else { self.announce() }
    }

    /// Returns the part of the window that was not announced yet, for an update.
    pub fn announce(&mut self) -> Option<u32> {
        let told = u32::try_from(self.used).ok().filter(|told| *told > 0)?;
        self.used = 0;
        self.left += i64::from(told);
        Some(told)
    }

    /// The input that was received and is unread, bytes.
    fn waiting(&self) -> usize {
        usize::try_from(i64::from(self.size) - self.left - self.used).unwrap_or(0)
    }

    /// Sets the size. If it is smaller than before, the announced window shrinks only as the peer uses it up.
    fn resize(&mut self, size: usize) {
        let size = u32::try_from(size).unwrap_or(u32::MAX).min(LARGEST_WINDOW as u32);
        self.used += i64::from(size) - i64::from(self.size);
        self.size = size;
        // Small steps, so that the client does not have to wait for an update until a large step is used up.
        self.step = i64::from(size / STEPS);
    }
}

/// The amount that origins have read within the measured round trip.
#[derive(Debug, Clone, Copy, Default)]
pub struct Consumption {
    round: u32,
    bytes: usize,
    /// The least amount of unread input after any read, bytes.
    least_waiting: usize,
}

impl Consumption {
    /// Records that this many bytes were read in this round.
    pub fn add(&mut self, bytes: usize, window: &ReceiveWindow, round: u32) {
        if self.round != round {
            *self = Self { round, bytes: 0, least_waiting: usize::MAX };
        }
        self.bytes += bytes;
        self.least_waiting = self.least_waiting.min(window.waiting());
    }

    /// The size that the window should have, from `base` to `largest`.
    fn wanted(&self, window: &ReceiveWindow, round: u32, (base, largest): (usize, usize)) -> usize {
        let size = window.size();
        let queue = self.least_waiting;
        let wanted = match () {
            () if self.round != round => size,
            // At least this much input was always unread, so this part of the window was useless.
            () if queue > base / 2 => size.saturating_sub(queue),
            () if self.bytes * 3 < size * 2 => size,
            () => size * GROWTH,
        };
        wanted.clamp(base, largest.max(base))
    }
}

/// The growth of a connection's windows, and the measurement of round trips.
#[derive(Debug)]
pub struct Growth {
    /// The window of a stream without growth; `largest` is the largest window of a stream.
    base: usize,
    largest: usize,
    /// The window of the connection without the growth.
    base_connection: usize,
    /// The growth of all windows of streams together, bytes; `connection` is the additional growth of the connection's
    /// window.
    streams: usize,
    connection: usize,
    /// The reservation in the budget. Without one, windows do not grow.
    share: Option<BudgetShare>,
    /// The number of the last measurement; `since` is its start while it runs.
    pub round: u32,
    since: Option<Instant>,
    /// The earliest time of the next measurement; `pause` is the next pause.
    next: Option<Instant>,
    pause: Duration,
}

impl Growth {
    pub fn new(limits: &Limits, share: Option<BudgetShare>) -> Self {
        Self {
            base: limits.h2_stream_window as usize,
            largest: limits.h2_largest_window as usize,
            base_connection: limits.h2_connection_window as usize,
            streams: 0,
            connection: 0,
            share,
            round: 0,
            since: None,
            next: None,
            pause: PAUSES[0],
        }
    }

    /// The window of a stream that has not grown, bytes.
    pub fn base(&self) -> usize {
        self.base
    }

    fn largest_sum(&self) -> usize {
        LARGEST_SUM * self.largest.saturating_sub(self.base)
    }

    /// Reserves growth for the windows of streams and for the window of the connection. Returns false and changes
    /// nothing if the budget is not enough.
    fn reserve(&mut self, streams: usize, connection: usize) -> bool {
        let sum = streams + connection;
        let grows = sum > self.streams + self.connection;
        if grows && sum > self.largest_sum() {
            return false;
        }
        let reserved = self.share.as_mut().is_some_and(|share| share.hold(sum));
        if reserved {
            (self.streams, self.connection) = (streams, connection);
        }
        reserved
    }
}

impl Streams {
    /// Releases the growth of a stream that is over. Once there are no streams, releases the growth of the connection, too.
    pub(super) fn end_growth(&mut self, window: &ReceiveWindow) {
        let growth = &mut self.growth;
        let beyond = window.size().saturating_sub(growth.base);
        if beyond == 0 && (growth.connection == 0 || !self.entries.is_empty()) {
            return;
        }
        let connection = if self.entries.is_empty() { 0 } else { growth.connection };
        growth.reserve(growth.streams.saturating_sub(beyond), connection);
        self.window.resize(growth.base_connection + growth.streams + growth.connection);
    }

    /// Ends a round trip: sets the sizes of windows by the amounts read within it. Adds the window updates to `told`.
    fn end_round(&mut self, told: &mut Vec<(u32, u32)>) {
        let growth = &mut self.growth;
        let round = growth.round;
        let may_grow = pressure::has_plenty();
        let mut is_bound_by_stream = false;
        for (stream, entry) in &mut self.entries {
            let (base, size) = (growth.base, entry.received.size());
            let largest = if may_grow { growth.largest } else { base };
            let wanted = entry.consumed.wanted(&entry.received, round, (base, largest));
            is_bound_by_stream |= wanted > size;
            // If the budget is not enough for all of the growth, half of it is tried.
            let mut reserves =
                |wanted: &usize| growth.reserve(growth.streams + wanted - size, growth.connection);
            if wanted != size
                && let Some(wanted) =
                    [wanted, size.midpoint(wanted)].into_iter().find(|wanted| reserves(wanted))
            {
                entry.received.resize(wanted);
                told.extend(entry.received.announce().filter(|_| entry.receives).map(|by| (*stream, by)));
            }
        }
        // Many streams together may use up the window of the connection, although none uses up its own window.
        let size = growth.base_connection + growth.streams;
        self.window.resize(size + growth.connection);
        let most = match may_grow {
            true if is_bound_by_stream => growth.connection,
            true => growth.largest_sum().saturating_sub(growth.streams),
            false => 0,
        };
        let largest = size + most;
        let wanted = self.consumed.wanted(&self.window, round, (size, largest));
        growth.reserve(growth.streams, wanted - size);
        self.window.resize(growth.base_connection + growth.streams + growth.connection);
        told.extend(self.window.announce().map(|by| (0, by)));
    }

    /// Some of a body has come. Returns true if a round trip begins: it is time to measure one.
    pub(super) fn begins_round(&mut self, stream: u32, now: Instant) -> bool {
        let growth = &mut self.growth;
        let is_due = growth.since.is_none() && growth.next.is_none_or(|next| next <= now);
        if !is_due || growth.share.is_none() || growth.largest <= growth.base {
            return false;
        }
        let Some(entry) = self.entries.get(&stream) else { return false };
        let rest = entry.expected.unwrap_or(u64::MAX);
        if !entry.received.is_in_use() || rest <= entry.received.size() as u64 {
            return false;
        }
        growth.round = growth.round.wrapping_add(1);
        growth.since = Some(now);
        true
    }

    /// Called when the answer to the PING of a round trip has come. Returns the windows that are larger now: the number of
    /// the stream, or 0 for the connection, and the growth in bytes.
    pub(super) fn is_measured(&mut self, now: Instant) -> Vec<(u32, u32)> {
        let mut told = Vec::new();
        let Some(since) = self.growth.since.take() else { return told };
        let before = self.growth.streams + self.growth.connection;
        if now.saturating_duration_since(since) <= LONGEST_ROUND {
            self.end_round(&mut told);
        }
        let growth = &mut self.growth;
        if growth.streams + growth.connection > before {
            // The next measurement begins after most of a round trip, when input arrives that was sent with the new windows.
            (growth.pause, growth.next) =
                (PAUSES[0], Some(now + now.saturating_duration_since(since) * 3 / 4));
        } else {
            growth.next = Some(now + growth.pause);
            growth.pause = PAUSES[1].min(2 * growth.pause);
        }
        told
    }
}

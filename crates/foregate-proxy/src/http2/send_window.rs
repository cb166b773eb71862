//! The windows in which we may send, as the client opens them (RFC 9113, section 6.9).
//!
//! If a client opens its windows a few bytes at a time, each update would make us send a frame and wake two tasks.
//! So if a stream waits for a window and an update is too small for a useful frame, the update is held back until
//! further updates make it useful, or for a short time. All updates of that time together allow one frame for each
//! stream.

use std::time::{Duration, Instant};

use h2::Reason;

use super::{ConnectionState, Fault, LARGEST_WINDOW};
use crate::transport::meter::Meter;

/// A window of this many bytes is used at once. A smaller window is used at once only if all waiting output fits in it.
const USEFUL: i64 = 4096;
/// How long smaller updates are held back.
const HOLD: Duration = Duration::from_millis(10);

/// A window in which we may send.
#[derive(Debug, Clone, Copy)]
pub struct SendWindow {
    /// The amount that may be sent now, bytes; below 0 there is a debt.
    open: i64,
    /// A further amount of window that is held back.
    held: i64,
}

/// The result of a window update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The window is open.
    Open,
    /// The window will be open once [`SendWindow::release`] is called.
    Held,
    /// The window is still closed, even with all updates.
    Closed,
}

impl SendWindow {
    pub fn new(size: i64) -> Self {
        Self { open: size, held: 0 }
    }

    /// The amount that may be sent now, bytes; below 0 there is a debt.
    pub fn open(&self) -> i64 {
        self.open
    }

    /// Records that this much was sent.
    pub fn spend(&mut self, bytes: usize) {
        self.open -= bytes as i64;
    }

    /// Adds an update of the client, which reduces the window if `by` is below 0. `wanted` is the amount of output that
    /// waits for the window, bytes, if there is any.
    pub fn add(&mut self, by: i64, wanted: Option<usize>) -> Opening {
        let was_open = self.open > 0;
        self.held += by;
        let all = self.open + self.held;
        let wanted =
            wanted.map_or(1, |wanted| i64::try_from(wanted).map_or(USEFUL, |wanted| wanted.min(USEFUL)));
        if was_open || by < 0 || all >= wanted {
            return if self.release() { Opening::Open } else { Opening::Closed };
        }
        if all > 0 { Opening::Held } else { Opening::Closed }
    }

    /// Applies the updates that were held back. Returns true if something may be sent.
    pub fn release(&mut self) -> bool {
        self.open += std::mem::take(&mut self.held);
        self.open > 0
    }

    /// Returns true if the window exceeds the maximum.
    pub fn is_beyond(&self) -> bool {
        self.open + self.held > LARGEST_WINDOW
    }
}

/// The window updates of one connection that are held back.
#[derive(Debug, Default)]
pub struct HeldOpenings {
    streams: Vec<u32>,
    until: Option<Instant>,
}

impl HeldOpenings {
    /// Holds back an update of a stream, or with `None` an update of the connection.
    fn hold(&mut self, stream: Option<u32>, meter: &mut Meter, now: Instant) {
        if let Some(stream) = stream
            && !self.streams.contains(&stream)
        {
            self.streams.push(stream);
        }
        // A client that returns windows in small updates must not exhaust its budget of frames:
        // when the budget is low, it gets data only as often as the budget allows updates of both
        // windows.
        let mut pause = || meter.scarce(now).map_or(HOLD, |frame| (2 * frame).max(HOLD));
        self.until.get_or_insert_with(|| now + pause());
    }
}

impl ConnectionState {
    /// WINDOW_UPDATE (section 6.9).
    pub(super) fn window_update(&mut self, stream: u32, payload: &[u8], now: Instant) -> Result<(), Fault> {
        let bytes: &[u8; 4] = payload.try_into().map_err(|_| Reason::FRAME_SIZE_ERROR)?;
        let bytes = i64::from(u32::from_be_bytes(*bytes) & 0x7fff_ffff);
        self.meter.without_progress(now)?;
        if stream == 0 {
            return Ok(self.open_connection(bytes, now)?);
        }
        if self.streams.known(stream) == super::streams::FrameTarget::Idle {
            return Err(Reason::PROTOCOL_ERROR.into());
        }
        let Some(entry) = self.streams.entry(stream).filter(|entry| entry.end.is_none()) else {
            return Ok(());
        };
        if bytes == 0 {
            return Err(Fault::Stream(stream, Reason::PROTOCOL_ERROR));
        }
        let opening = entry.opens(bytes);
        if entry.window.is_beyond() {
            return Err(Fault::Stream(stream, Reason::FLOW_CONTROL_ERROR));
        }
        if opening == Opening::Held {
            self.openings.hold(Some(stream), &mut self.meter, now);
        }
        Ok(())
    }

    fn open_connection(&mut self, bytes: i64, now: Instant) -> Result<(), Reason> {
        if bytes == 0 {
            return Err(Reason::PROTOCOL_ERROR);
        }
        let wanted = self.output.awaits_window().then_some(usize::MAX);
        let opening = self.output.window.add(bytes, wanted);
        if self.output.window.is_beyond() {
            return Err(Reason::FLOW_CONTROL_ERROR);
        }
        match opening {
            Opening::Open => self.offer(),
            Opening::Held => self.openings.hold(None, &mut self.meter, now),
            Opening::Closed => {}
        }
        Ok(())
    }

    /// SETTINGS_INITIAL_WINDOW_SIZE (section 6.9.2): the windows of all streams change with it.
    pub(super) fn resize_windows(&mut self, size: u32, now: Instant) -> Result<(), Reason> {
        let size = i64::from(size);
        let by = size - self.output.stream_window;
        self.output.stream_window = size;
        let mut fits = size <= LARGEST_WINDOW;
        for (stream, entry) in self.streams.each().filter(|_| by != 0) {
            let opening = entry.opens(by);
            fits &= !entry.window.is_beyond();
            if opening == Opening::Held {
                self.openings.hold(Some(*stream), &mut self.meter, now);
            }
        }
        if fits { Ok(()) } else { Err(Reason::FLOW_CONTROL_ERROR) }
    }

    /// Applies the updates that were held back, once it is time. Returns that time if it is still to come.
    pub(super) fn release_openings(&mut self, now: Instant) -> Option<Instant> {
        if let Some(until) = self.openings.until.filter(|until| now < *until) {
            return Some(until);
        }
        if self.openings.until.take().is_some() {
            for stream in std::mem::take(&mut self.openings.streams) {
                if let Some(entry) = self.streams.entry(stream)
                    && entry.window.release()
                {
                    entry.wake();
                }
            }
            if self.output.window.release() {
                self.offer();
            }
        }
        None
    }
}

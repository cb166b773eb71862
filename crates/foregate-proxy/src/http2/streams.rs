//! The streams of one connection.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Waker};

use foldhash::fast::RandomState;
use foregate_wire::HeaderList;

use super::WINDOW;
use super::receive_window::{Consumption, Growth, ReceiveWindow};
use super::send_window::{Opening, SendWindow};
use crate::limits::budget::BudgetShare;
use crate::limits::clients::Holdings;
use crate::limits::pressure::Charge;
use crate::message::request::Request;
use crate::settings::Limits;
use crate::transport::outcome::LinkError;

/// The most streams that are remembered after we have reset them. The client may have sent further frames for them
/// before it learned of the reset.
const RESET: usize = 1024;
/// The number of the last opened streams that are remembered. If such a stream is closed, a frame for it counts as
/// late. A frame for any other old stream is a protocol error.
const RECENT: usize = 128;
/// The limit on all streams, including finished ones with tasks that still run, as a multiple of the limit on open
/// ones.
const LINGERING: usize = 2;

/// Beyond this many unread bytes of a body, the memory for them no longer doubles when it grows.
const LONG_BODY: usize = 64 * 1024;
/// The number of streams for which a connection without streams keeps memory.
const KEPT: usize = 4;
/// The memory of a stream in bytes, in addition to its head and its bodies: its task, its exchange,
/// and the allocator's overhead. Clients may have tens of thousands of streams that wait for a
/// window.
const STREAM: usize = 3584;
/// A connection updates the count of its streams for the client only when the number has changed by this much.
const COUNTED_STREAMS: usize = 4;

/// The streams of one connection.
#[derive(Debug)]
pub struct Streams {
    pub(super) entries: HashMap<u32, StreamEntry, RandomState>,
    /// The number of open streams, for their limit.
    open: usize,
    limit: usize,
    /// The last stream that the client has opened.
    pub last: u32,
    recent: VecDeque<u32>,
    reset: VecDeque<u32>,
    /// The window in which the client may send on all streams together.
    pub window: ReceiveWindow,
    /// The amount that origins have read from all streams.
    pub consumed: Consumption,
    pub growth: Growth,
    /// The window in which the client may send on each stream.
    stream_window: u32,
    /// True once the client has acknowledged our SETTINGS.
    settled: bool,
    pub holding: Holding,
}

/// The state of a stream. It exists until the stream's task has ended.
#[derive(Debug)]
pub struct StreamEntry {
    /// The waker of the task that has the [`super::ClientStream`].
    task: Option<Waker>,
    /// The unread input of the body.
    pub body: Vec<u8>,
    /// The announced bytes of the body that have not arrived yet; `None` if no length was announced.
    pub expected: Option<u64>,
    /// True while the request is not complete.
    pub receives: bool,
    pub trailers: Option<HeaderList>,
    /// True for a tunnel, in which only DATA is valid (RFC 9113, section 8.5).
    pub is_tunnel: bool,
    pub received: ReceiveWindow,
    pub consumed: Consumption,
    pub window: SendWindow,
    /// The amount of output that waits for `window`, bytes; 0 if none does.
    pub awaits_window: usize,
    /// True while the response was not sent completely.
    pub sends: bool,
    /// True while the stream is in the queue for room; `turn` is true once it was woken because there is room.
    pub queued: bool,
    pub turn: bool,
    /// The reason why the stream is over.
    pub end: Option<LinkError>,
    /// True if the stream counts as open.
    counts: bool,
}

impl StreamEntry {
    /// Wakes its task.
    pub fn wake(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// Registers the task of the stream to be woken by the next event.
    pub fn wait(&mut self, cx: &Context<'_>) {
        match &mut self.task {
            Some(task) if task.will_wake(cx.waker()) => {}
            task => *task = Some(cx.waker().clone()),
        }
    }

    /// Appends received bytes of the body. A long body gets little more memory than it needs.
    pub fn append(&mut self, content: &[u8]) {
        if self.body.len() >= LONG_BODY && self.body.capacity() - self.body.len() < content.len() {
            self.body.reserve_exact(content.len().max(self.body.len() / 4));
        }
        self.body.extend_from_slice(content);
    }

    /// Changes the send window by this much. Wakes the task if it waits for the window and can send now.
    pub fn opens(&mut self, by: i64) -> Opening {
        let wanted = Some(self.awaits_window).filter(|wanted| *wanted > 0);
        let opening = self.window.add(by, wanted);
        if opening == Opening::Open && wanted.is_some() {
            self.wake();
        }
        opening
    }

    fn is_open(&self) -> bool {
        self.end.is_none() && (self.receives || self.sends)
    }
}

/// The memory that a connection holds for its client: unread input of bodies, and its streams.
#[derive(Debug)]
pub struct Holding {
    bytes: usize,
    /// The number of streams as it is counted for the client.
    streams: usize,
    given_up: bool,
    charge: Charge,
    /// The client for which the memory counts.
    client: Option<Arc<Holdings>>,
}

impl Holding {
    /// The counted memory, bytes.
    pub fn held(&self) -> usize {
        self.charge.bytes()
    }

    pub fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.count();
    }

    pub fn sub(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.count();
    }

    /// Records the number of streams. It is counted in steps of four, so that on most connections, which have few
    /// streams, a request changes no shared counter.
    fn count_streams(&mut self, streams: usize) {
        if streams.abs_diff(self.streams) >= COUNTED_STREAMS || streams == 0 && self.streams > 0 {
            self.streams = streams;
            self.count();
        }
    }

    /// Stops counting the memory.
    pub fn give_up(&mut self) {
        self.given_up = true;
        self.count();
    }

    /// Counts the head of a request for the client before the request is started. A client may send many heads at once, and
    /// admission control has to see all of them.
    pub fn counts_head(&self, request: &mut Request) {
        if let Some(client) = &self.client {
            request.belongs_to(client);
        }
    }

    fn count(&mut self) {
        let bytes = if self.given_up { 0 } else { self.bytes + self.streams * STREAM };
        // Nothing changes for most streams, because they have no body. The client's counters are left alone then: all of its
        // connections share them.
        if bytes == self.charge.bytes() {
            return;
        }
        if let Some(client) = &self.client {
            client.count_held(self.charge.bytes(), bytes);
        }
        self.charge.set(bytes);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The state of a stream with an arriving frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameTarget {
    /// An open stream.
    There,
    /// A stream that we have reset. The client may not know that yet.
    Reset,
    /// A closed stream.
    Closed,
    /// A stream that was never opened and can no longer be opened, or that was closed long ago.
    Skipped,
    /// A stream that may be opened.
    Idle,
}

impl Streams {
    pub fn new(limits: &Limits, client: Option<Arc<Holdings>>, share: Option<BudgetShare>) -> Self {
        Self {
            entries: HashMap::default(),
            open: 0,
            limit: limits.h2_streams as usize,
            last: 0,
            recent: VecDeque::new(),
            reset: VecDeque::new(),
            window: ReceiveWindow::new(limits.h2_connection_window, WINDOW),
            consumed: Consumption::default(),
            growth: Growth::new(limits, share),
            stream_window: limits.h2_stream_window,
            settled: false,
            holding: Holding { bytes: 0, streams: 0, given_up: false, charge: Charge::new(), client },
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn open(&self) -> usize {
        self.open
    }

    pub fn entry(&mut self, stream: u32) -> Option<&mut StreamEntry> {
        self.entries.get_mut(&stream)
    }

    /// The state of this stream of a client.
    pub fn known(&self, stream: u32) -> FrameTarget {
        match () {
            // Clients' streams have odd numbers (RFC 9113, section 5.1.1).
            () if stream > self.last || stream.is_multiple_of(2) => FrameTarget::Idle,
            () if self.entries.contains_key(&stream) => FrameTarget::There,
            () if self.reset.contains(&stream) => FrameTarget::Reset,
            () if self.recent.contains(&stream) => FrameTarget::Closed,
            () => FrameTarget::Skipped,
        }
    }

    /// Returns true if the stream no longer exists from the client's point of view.
    pub fn is_over(&self, stream: u32) -> bool {
        self.entries.get(&stream).is_none_or(|entry| entry.end.is_some())
    }

    /// Returns two flags: true if the stream is open, and true if its response is incomplete.
    pub fn state(&self, stream: u32) -> (bool, bool) {
        self.entries.get(&stream).map_or((false, false), |entry| (entry.is_open(), entry.sends))
    }

    /// Opens the client's next stream. Returns false, and opens none, if the client has as many streams as it may.
    pub fn opens(&mut self, stream: u32, receives: bool, expected: Option<u64>, window: i64) -> bool {
        if self.open >= self.limit || self.entries.len() >= LINGERING * self.limit {
            return false;
        }
        let size = self.stream_window;
        let received = if self.settled {
            ReceiveWindow::new(size, size.into())
        } else {
            // The client uses the default until it has seen the settings.
            ReceiveWindow::of_unsettled(size, WINDOW)
        };
        let entry = StreamEntry {
            task: None,
            body: Vec::new(),
            expected,
            receives,
            trailers: None,
            is_tunnel: false,
            received,
            consumed: Consumption::default(),
            window: SendWindow::new(window),
            awaits_window: 0,
            sends: true,
            queued: false,
            turn: false,
            end: None,
            counts: true,
        };
        self.entries.insert(stream, entry);
        self.holding.count_streams(self.entries.len());
        self.open += 1;
        true
    }

    /// Records that the client has begun a stream, whether or not it is accepted.
    pub fn begun(&mut self, stream: u32) {
        self.last = stream;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(stream);
    }

    /// Records that the client has acknowledged our SETTINGS, and so knows its windows.
    pub fn settle(&mut self) {
        if !std::mem::replace(&mut self.settled, true) {
            let beyond = WINDOW - i64::from(self.stream_window);
            for entry in self.entries.values_mut().filter(|_| beyond > 0) {
                entry.received.settle(beyond);
            }
        }
    }

    /// All streams.
    pub fn each(&mut self) -> impl Iterator<Item = (&u32, &mut StreamEntry)> {
        self.entries.iter_mut()
    }

    /// Returns an error if nothing can be sent on a stream.
    pub fn sendable(&mut self, stream: u32) -> Result<(), LinkError> {
        match self.entry(stream) {
            None => Err(LinkError::H2),
            Some(entry) => entry.end.map_or(Ok(()), Err),
        }
    }

    /// Records that the response of a stream was sent completely.
    pub fn has_sent(&mut self, stream: u32) {
        if let Some(entry) = self.entry(stream) {
            entry.sends = false;
            self.update(stream);
        }
    }

    /// Stops counting a stream as open if both its sides have ended.
    pub fn update(&mut self, stream: u32) {
        if let Some(entry) = self.entries.get_mut(&stream)
            && entry.counts
            && !entry.is_open()
        {
            entry.counts = false;
            self.open -= 1;
        }
    }

    /// Ends a stream in both directions. Returns the bytes of its body that were received and will not be read.
    pub fn end(&mut self, stream: u32, error: LinkError) -> usize {
        let Some(entry) = self.entries.get_mut(&stream) else { return 0 };
        entry.end.get_or_insert(error);
        let unread = std::mem::take(&mut entry.body).len();
        let trailers = entry.trailers.take().map_or(0, |trailers| trailers.memory());
        entry.wake();
        self.holding.sub(unread + trailers);
        self.update(stream);
        unread
    }

    /// Resets a stream from this side.
    pub fn reset(&mut self, stream: u32, error: LinkError) -> usize {
        let receives = self.entries.get(&stream).is_none_or(|entry| entry.end.is_none() && entry.receives);
        if receives && !self.reset.contains(&stream) {
            if self.reset.len() == RESET {
                self.reset.pop_front();
            }
            self.reset.push_back(stream);
        }
        self.end(stream, error)
    }

    /// Returns true if we have reset a stream.
    pub fn was_reset(&self, stream: u32) -> bool {
        self.reset.contains(&stream)
    }

    /// Removes a stream after the end of its task.
    pub fn remove(&mut self, stream: u32) -> Option<StreamEntry> {
        let entry = self.entries.remove(&stream)?;
        self.end_growth(&entry.received);
        self.holding.count_streams(self.entries.len());
        self.open -= usize::from(entry.counts);
        // A connection without streams keeps memory only for a few.
        if self.entries.is_empty() && self.entries.capacity() > KEPT {
            self.entries.shrink_to(0);
        }
        Some(entry)
    }

    /// All streams are over in both directions.
    pub fn fail(&mut self, error: LinkError) {
        let streams: Vec<u32> = self.entries.keys().copied().collect();
        for stream in streams {
            self.end(stream, error);
        }
    }
}

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

/// Streams that are remembered after we have reset them: more of them may be under way.
const RESET: usize = 1024;
/// The number of opened streams that are remembered: frames for them are late, frames for others
/// are out of order.
const RECENT: usize = 128;
/// The factor for the number of streams, including finished ones with running tasks, over
/// the limit of open ones.
const LINGERING: usize = 2;

/// From so many bytes on that wait, memory for them does not double any more.
const LONG_BODY: usize = 64 * 1024;
/// Streams for which a connection without any keeps memory.
const KEPT: usize = 4;
/// The memory of a stream in bytes, in addition to its head and its bodies: its task, its exchange,
/// and the allocator's overhead. Clients may have tens of thousands of streams that wait for a
/// window.
const STREAM: usize = 3584;
/// This many of them come or go before a connection counts them.
const COUNTED_STREAMS: usize = 4;

/// The streams of one connection.
#[derive(Debug)]
pub struct Streams {
    pub(super) entries: HashMap<u32, StreamEntry, RandomState>,
    /// The number of open streams, for their limit.
    open: usize,
    limit: usize,
    /// The last that the client has opened.
    pub last: u32,
    recent: VecDeque<u32>,
    reset: VecDeque<u32>,
    /// The window of the client for all of them.
    pub window: ReceiveWindow,
    /// The consumption by origins of all of them.
    pub consumed: Consumption,
    pub growth: Growth,
    /// The window of the client for each.
    stream_window: u32,
    /// The client has acknowledged our SETTINGS.
    settled: bool,
    pub holding: Holding,
}

/// A stream, until its task is done with it.
#[derive(Debug)]
pub struct StreamEntry {
    /// The waker of the task that has the [`super::ClientStream`].
    task: Option<Waker>,
    /// The unread input of the body.
    pub body: Vec<u8>,
    /// Bytes of the body that were announced and have not come.
    pub expected: Option<u64>,
    /// The request is not complete.
    pub receives: bool,
    pub trailers: Option<HeaderList>,
    /// A tunnel: only DATA is valid (RFC 9113, section 8.5).
    pub is_tunnel: bool,
    pub received: ReceiveWindow,
    pub consumed: Consumption,
    pub window: SendWindow,
    /// The part of the body that waits for that window, bytes; 0 for none.
    pub awaits_window: usize,
    /// The response has not been sent to its end.
    pub sends: bool,
    /// The stream is in the queue for room, and was woken because there is some.
    pub queued: bool,
    pub turn: bool,
    /// The reason why the stream is over.
    pub end: Option<LinkError>,
    /// The stream counts as open.
    counts: bool,
}

impl StreamEntry {
    /// Wakes its task.
    pub fn wake(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// Registers its task to be woken by the next event.
    pub fn wait(&mut self, cx: &Context<'_>) {
        match &mut self.task {
            Some(task) if task.will_wake(cx.waker()) => {}
            task => *task = Some(cx.waker().clone()),
        }
    }

    /// More of the body has arrived. A long body gets little more memory than it needs.
    pub fn append(&mut self, content: &[u8]) {
        if self.body.len() >= LONG_BODY && self.body.capacity() - self.body.len() < content.len() {
            self.body.reserve_exact(content.len().max(self.body.len() / 4));
        }
        self.body.extend_from_slice(content);
    }

    /// The client has changed the window by this much.
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
    /// Streams that are counted.
    streams: usize,
    given_up: bool,
    charge: Charge,
    /// The client's resources in which it counts.
    client: Option<Arc<Holdings>>,
}

impl Holding {
    /// Bytes that are counted.
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

    /// Records that there are this many streams. They are counted by four: most connections have
    /// few, and a request is to change no counter.
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

    /// Counts the head of a request for the client before the request begins: a client that holds
    /// much memory gets no more, and it may have sent many heads at once.
    pub fn counts_head(&self, request: &mut Request) {
        if let Some(client) = &self.client {
            request.belongs_to(client);
        }
    }

    fn count(&mut self) {
        let bytes = if self.given_up { 0 } else { self.bytes + self.streams * STREAM };
        // Most streams have no body, and to count for a client concerns all of its connections.
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
    /// We have reset it: the frame was sent before the client knew.
    Reset,
    /// A closed stream.
    Closed,
    /// A stream that was never opened, and cannot be any more.
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

    /// Returns true if the stream does not exist any more, for its client.
    pub fn is_over(&self, stream: u32) -> bool {
        self.entries.get(&stream).is_none_or(|entry| entry.end.is_some())
    }

    /// Returns two flags: the stream is open; its response is incomplete.
    pub fn state(&self, stream: u32) -> (bool, bool) {
        self.entries.get(&stream).map_or((false, false), |entry| (entry.is_open(), entry.sends))
    }

    /// The client opens its next stream. Returns true if there may be one more; it has an entry
    /// then.
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

    /// The client has begun a stream, whatever becomes of it.
    pub fn begun(&mut self, stream: u32) {
        self.last = stream;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(stream);
    }

    /// The client has acknowledged its windows.
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

    /// A stream has been sent to its end.
    pub fn has_sent(&mut self, stream: u32) {
        if let Some(entry) = self.entry(stream) {
            entry.sends = false;
            self.update(stream);
        }
    }

    /// Looks whether a stream of which something has ended is still open.
    pub fn update(&mut self, stream: u32) {
        if let Some(entry) = self.entries.get_mut(&stream)
            && entry.counts
            && !entry.is_open()
        {
            entry.counts = false;
            self.open -= 1;
        }
    }

    /// The stream is over in both directions. Returns how much of its body will not be read any
    /// more.
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

    /// A stream's task is done with it.
    pub fn remove(&mut self, stream: u32) -> Option<StreamEntry> {
        let entry = self.entries.remove(&stream)?;
        self.end_growth(&entry.received);
        self.holding.count_streams(self.entries.len());
        self.open -= usize::from(entry.counts);
        // A connection that waits for its next request has no memory for many.
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

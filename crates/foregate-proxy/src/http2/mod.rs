//! The server's side of an HTTP/2 connection (RFC 9113), without I/O.
//!
//! One [`ConnectionState`] holds the state of a connection: unread input of its streams, pending output, windows,
//! tables, and the budgets for client behaviour. Several tasks share it. The task of the connection passes input to
//! it and writes its output ([`SharedState::receive`], [`SharedState::take_output`]). Each task of a stream has a
//! [`ClientStream`].
//!
//! Streams have no output queues. A stream writes its frames into one buffer that the connection's task sends next.
//! If the buffer has no room, or the stream has no window, the stream waits. So a client that reads nothing costs
//! only this one buffer, however many streams it has.

mod block;
mod input;
mod output;
mod receive_window;
mod send_window;
mod stream;
mod streams;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use foregate_wire::HeaderList;
use h2::Reason;
use parking_lot::Mutex;

pub use output::COLLECT;
pub use stream::ClientStream;

use self::input::InputState;
use self::output::Output;
use self::send_window::HeldOpenings;
use self::streams::Streams;
use crate::error::Error;
use crate::limits::budget::BudgetShare;
use crate::limits::clients::Holdings;
use crate::message::request::HeadTerms;
use crate::message::scratch::Scratch;
use crate::settings::Limits;
use crate::time::clock;
use crate::transport::buffer::Buffer;
use crate::transport::frames::kind;
use crate::transport::meter::{Flood, Meter};
use crate::transport::outcome::LinkError;

/// The largest frame that either side sends, in bytes: every peer takes frames of this size (RFC
/// 9113, section 6.5.2).
pub const FRAME: usize = 16 * 1024;
/// The overhead of a field in addition to its bytes.
const FIELD_COST: usize = 16;
/// No more input is processed while heads of this many bytes wait for their requests to be started, or after this many
/// bytes were decoded at once.
pub const HEADS: usize = 64 * 1024;
/// The initial window of streams and connections, unless another one was announced.
const WINDOW: i64 = 65_535;
/// The largest window that the protocol allows.
const LARGEST_WINDOW: i64 = (1 << 31) - 1;
/// The highest stream number. The first GOAWAY of a graceful end has it (section 6.8).
const LAST_STREAM: u32 = (1 << 31) - 1;
/// The payload of the PING that checks if a client knows of the connection's end.
const ENDING: [u8; 8] = *b"foregate";
/// The payload of the PING that checks if the client has read all output.
const ENDED: [u8; 8] = *b"the-last";

/// The state of a connection, shared by its task and by the tasks of its streams.
#[derive(Debug)]
pub struct SharedState(Mutex<ConnectionState>);

/// The result for input.
#[derive(Debug)]
pub struct InputResult {
    /// The processed length. The rest has to be passed again with the input after it. On an error,
    /// the connection has to end.
    pub bytes: Result<usize, Reason>,
    /// True if the rest has to be passed again once pending requests have been started, even without further input.
    pub held_back: bool,
    /// The number of requests that were over before they were started. They are reported only here.
    pub withdrawn: u64,
}

/// A request or stream that a client has opened.
#[derive(Debug)]
pub enum NewStream {
    /// A request.
    Request(CompleteRequest),
    /// A request that was refused for its head; its stream is reset.
    Refused(RefusedHead),
}

impl NewStream {
    /// The size of its head in bytes, which differs from the memory that the head occupies.
    pub fn size(&self) -> usize {
        let (fields, target) = match self {
            Self::Request(asked) => {
                let head = &asked.scratch.request.head;
                (&head.headers, head.target().len())
            }
            Self::Refused(refused) => (&refused.fields, 0),
        };
        fields.arena_len() + fields.len() * FIELD_COST + target
    }
}

/// A request with a complete head.
#[derive(Debug)]
pub struct CompleteRequest {
    /// Its stream.
    pub stream: u32,
    /// The request, with memory for its response.
    pub scratch: Box<Scratch>,
    /// The error in the request, if there is one.
    pub understood: Result<(), Error>,
}

/// A request with a malformed head.
#[derive(Debug)]
pub struct RefusedHead {
    /// The error in the request.
    pub error: Error,
    /// The fields as received, including pseudo-fields. They may contain any bytes.
    pub fields: HeaderList,
}

#[derive(Debug)]
struct ConnectionState {
    input: InputState,
    streams: Streams,
    output: Output,
    meter: Meter,
    openings: HeldOpenings,
    /// The task of the connection.
    task: Option<Waker>,
    /// True if the task has been woken since its last poll.
    woken: bool,
    /// The reason why the connection is over.
    over: Option<LinkError>,
    /// The progress of a graceful end.
    ending: Ending,
    /// True if the client has sent GOAWAY.
    leaving: bool,
    /// Requests that were over before they began, and have not been reported yet.
    withdrawn: u64,
    /// True if the client has read all output; `None` before it is asked.
    has_read_all: Option<bool>,
}

/// The progress of a graceful end (RFC 9113, section 6.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The connection accepts requests.
    No,
    /// The first GOAWAY was sent. Streams that the client opens before it knows of that are accepted.
    Told,
    /// The last GOAWAY was sent: streams with a higher number than this are ignored.
    Last(u32),
}

/// An error in a client's input.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The connection ends.
    Connection(Reason),
    /// A stream does.
    Stream(u32, Reason),
}

impl From<Flood> for Fault {
    fn from(flood: Flood) -> Self {
        Self::Connection(flood.into())
    }
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Self {
        Self::Connection(reason)
    }
}

impl SharedState {
    /// A new connection. Its memory counts for the client in `holdings`. Its windows grow within the budget of `windows`.
    pub fn new(limits: &Limits, holdings: Option<Arc<Holdings>>, windows: Option<BudgetShare>) -> Arc<Self> {
        let now = clock::now();
        let mut state = ConnectionState {
            input: InputState::new(limits, now),
            streams: Streams::new(limits, holdings, windows),
            output: Output::new(),
            meter: Meter::new(limits, now),
            openings: HeldOpenings::default(),
            task: None,
            woken: false,
            over: None,
            ending: Ending::No,
            leaving: false,
            withdrawn: 0,
            has_read_all: None,
        };
        state.greet(limits);
        Arc::new(Self(Mutex::new(state)))
    }

    /// Registers the waker for output. It is woken at most once until the next call.
    pub fn poll_by(&self, cx: &Context<'_>) {
        let mut state = self.0.lock();
        state.woken = false;
        match &mut state.task {
            Some(task) if task.will_wake(cx.waker()) => {}
            task => *task = Some(cx.waker().clone()),
        }
    }

    /// Processes input.
    pub fn receive(&self, bytes: &[u8], terms: &HeadTerms) -> InputResult {
        let mut state = self.0.lock();
        // The registered waker belongs to the calling task, which does not have to be woken.
        let woken = std::mem::replace(&mut state.woken, true);
        let taken = state.receive(bytes, clock::now(), terms);
        state.woken = woken;
        let held_back = taken.is_ok_and(|(_, held_back)| held_back);
        let withdrawn = std::mem::take(&mut state.withdrawn);
        InputResult { bytes: taken.map(|(bytes, _)| bytes), held_back, withdrawn }
    }

    /// The next request or stream of the client.
    pub fn next(&self) -> Option<NewStream> {
        self.0.lock().input.next_arrived()
    }

    /// The size of the heads that [`Self::next`] has yet to return, bytes.
    pub fn waiting_heads(&self) -> usize {
        self.0.lock().input.arrived_bytes
    }

    /// The time since which the client has been sending a head or the header of a frame; `None` if neither is incomplete.
    pub fn head_since(&self) -> Option<Instant> {
        self.0.lock().input.head_since
    }

    /// Restarts the time limit of an incomplete head, because until now nothing was read from the client.
    pub fn excuse_head(&self) {
        let input = &mut self.0.lock().input;
        input.head_since = input.head_since.map(|_| clock::now());
    }

    /// The pending output that was not taken yet, bytes.
    pub fn output(&self) -> usize {
        self.0.lock().output.waiting()
    }

    /// Moves output into an empty buffer.
    pub fn take_output(&self, into: &mut Buffer) {
        self.0.lock().output.take(into);
    }

    /// Records that this much of the taken output has been written.
    pub fn wrote(&self, bytes: usize) {
        let mut state = self.0.lock();
        state.output.wrote(bytes, clock::now());
        state.offer();
    }

    /// Wakes streams with small window updates that were held back, once it is time. Returns the time for the next
    /// call, if any updates are still held back.
    pub fn release_openings(&self, now: Instant) -> Option<Instant> {
        self.0.lock().release_openings(now)
    }

    /// The unread input of bodies, and the memory of streams, bytes.
    pub fn holding(&self) -> usize {
        self.0.lock().streams.holding.held()
    }

    /// Stops counting the memory of the connection, which is about to end. So no other client is asked to release memory
    /// meanwhile.
    pub fn give_up_holding(&self) {
        self.0.lock().streams.holding.give_up();
    }

    /// Returns true if there are no streams, and none will be accepted: the client knows of the
    /// end, or has sent GOAWAY.
    pub fn is_done(&self) -> bool {
        let mut state = self.0.lock();
        if !state.streams.is_empty() {
            return false;
        }
        if state.leaving && !matches!(state.ending, Ending::Last(_)) {
            state.end_at_last();
        }
        matches!(state.ending, Ending::Last(_))
    }

    /// Sends the first GOAWAY. Requests that the client sends before it knows of that are accepted.
    pub fn begin_to_end(&self) {
        let mut state = self.0.lock();
        if state.ending == Ending::No {
            state.ending = Ending::Told;
            state.output.go_away(LAST_STREAM, Reason::NO_ERROR);
            state.output.frame(kind::PING, 0, 0, &ENDING);
            state.meter.awaits_ack();
            state.wake();
        }
    }

    /// Sends a PING after all output. Its acknowledgement shows that the client has read everything.
    pub fn ask_whether_read(&self) {
        let mut state = self.0.lock();
        state.output.frame(kind::PING, 0, 0, &ENDED);
        state.meter.awaits_ack();
        state.has_read_all = Some(false);
    }

    /// Returns true if the client has acknowledged the PING of [`Self::ask_whether_read`].
    pub fn has_read_all(&self) -> bool {
        self.0.lock().has_read_all == Some(true)
    }

    /// Ends the connection, and tells the client this reason.
    pub fn expel(&self, reason: Reason) {
        let mut state = self.0.lock();
        let last = state.streams.last;
        state.output.go_away(last, reason);
        state.fail(reason.into());
        state.wake();
    }

    /// Ends the connection and all its streams with this error.
    pub fn fail(&self, error: LinkError) {
        self.0.lock().fail(error);
    }
}

impl ConnectionState {
    /// Sends the preface of a server (RFC 9113, section 3.4).
    fn greet(&mut self, limits: &Limits) {
        let mut settings = Vec::new();
        for (id, value) in [
            (1, limits.h2_header_table),
            (3, limits.h2_streams),
            (4, limits.h2_stream_window),
            (5, FRAME as u32),
            (6, u32::try_from(limits.head_bytes).unwrap_or(u32::MAX)),
            // Extended CONNECT (RFC 8441).
            (8, 1),
        ] {
            settings.extend_from_slice(&u16::to_be_bytes(id));
            settings.extend_from_slice(&u32::to_be_bytes(value));
        }
        self.output.frame(kind::SETTINGS, 0, 0, &settings);
        self.meter.awaits_ack();
        if let Some(bytes) = self.streams.window.announce() {
            self.output.window_update(0, bytes);
        }
    }

    /// Sends the last GOAWAY, with the last accepted stream. No more streams are accepted.
    fn end_at_last(&mut self) {
        self.ending = Ending::Last(self.streams.last);
        self.output.go_away(self.streams.last, Reason::NO_ERROR);
        self.wake();
    }

    /// Wakes the task of the connection, unless it has been woken already.
    fn wake(&mut self) {
        if !self.woken
            && let Some(task) = &self.task
        {
            self.woken = true;
            task.wake_by_ref();
        }
    }

    /// Resets a stream because of an error of the client, and counts that for the client.
    fn refuse(&mut self, stream: u32, reason: Reason, now: Instant) -> Result<(), Reason> {
        let (is_open, answers) = self.streams.state(stream);
        self.reset(stream, reason);
        self.withdraw(stream);
        let flood = match reason {
            // The client may have sent the frame before it got the response, so it only counts as useless (RFC 9113, section
            // 5.1).
            Reason::STREAM_CLOSED if !is_open || !answers => self.meter.without_progress(now),
            _ => self.meter.reset(now),
        };
        Ok(flood?)
    }

    /// Resets a stream.
    fn reset(&mut self, stream: u32, reason: Reason) {
        self.output.frame(kind::RST_STREAM, 0, stream, &u32::from(reason).to_be_bytes());
        let unread = self.streams.reset(stream, reason.into());
        self.give_back(unread);
        self.wake();
    }

    /// Returns this much of the connection's window to the client.
    fn give_back(&mut self, bytes: usize) {
        let streams = &mut self.streams;
        let update = streams.window.give_back(bytes);
        streams.consumed.add(bytes, &streams.window, streams.growth.round);
        if let Some(bytes) = update
            && self.over.is_none()
        {
            self.output.window_update(0, bytes);
            self.wake();
        }
    }

    /// Ends the connection.
    fn fail(&mut self, error: LinkError) {
        if self.over.is_none() {
            self.over = Some(error);
            self.streams.fail(error);
        }
    }

    /// Returns this much of the stream's window, so that the client may send as much again.
    fn give_back_of(&mut self, stream: u32, bytes: usize) {
        let round = self.streams.growth.round;
        let Some(entry) = self.streams.entry(stream).filter(|entry| entry.end.is_none() && entry.receives)
        else {
            return;
        };
        let update = entry.received.give_back(bytes);
        entry.consumed.add(bytes, &entry.received, round);
        if let Some(update) = update {
            self.output.window_update(stream, update);
            self.wake();
        }
    }

    /// Wakes streams that wait for room in the output, as many as there is room for.
    fn offer(&mut self) {
        while let Some(stream) = self.output.next_turn() {
            // A stream that is over needs no room.
            let Some(entry) = self.streams.entry(stream) else { continue };
            entry.queued = false;
            if entry.end.is_none() {
                entry.turn = true;
                entry.wake();
                self.output.turns += 1;
            }
        }
    }

    /// Waits for room in the connection's output for this stream; returns the amount. `what` is the
    /// kind of output.
    fn poll_room(&mut self, stream: u32, what: output::What, cx: &Context<'_>) -> Poll<usize> {
        let Some(entry) = self.streams.entry(stream) else { return Poll::Ready(0) };
        let had_turn = std::mem::take(&mut entry.turn);
        if had_turn {
            self.output.turns -= 1;
        }
        if let Some(room) = self.output.room(what, had_turn) {
            return Poll::Ready(room);
        }
        entry.wait(cx);
        if !entry.queued {
            entry.queued = true;
            self.output.queue(what, stream);
        }
        if had_turn {
            self.offer();
        }
        Poll::Pending
    }

    /// Sends a part of a body, for which there is room. `waits` is true if more of the body is ready to be sent.
    fn send(&mut self, stream: u32, data: &[u8], waits: bool, ends: bool) {
        let mut is_used_up = false;
        if let Some(entry) = self.streams.entry(stream) {
            entry.window.spend(data.len());
            entry.awaits_window = 0;
            is_used_up = entry.window.open() <= 0;
        }
        self.output.data(stream, data, ends);
        is_used_up |= self.output.window.open() <= 0;
        if waits && is_used_up {
            self.meter.sent_all_that_may_be(data.len());
        } else {
            self.meter.sent(data.len());
        }
        if ends {
            self.streams.has_sent(stream);
        }
        self.offer();
        self.wake();
    }

    /// Makes a stream wait for its own window to send this many bytes. It gives up its turn for room meanwhile.
    fn wait_for_window(&mut self, stream: u32, bytes: usize, cx: &Context<'_>) {
        if let Some(entry) = self.streams.entry(stream) {
            entry.wait(cx);
            entry.awaits_window = bytes;
            if std::mem::take(&mut entry.turn) {
                self.output.turns -= 1;
                self.offer();
            }
        }
    }
}

/// Runs a client and streams scripted by `data`.
#[cfg(fuzzing)]
pub fn fuzz(data: &[u8]) {
    tests::random::chaos(tests::random::Choices::from(data), 0);
}

#[cfg(test)]
mod tests;

#[cfg(all(fuzzing, not(test)))]
#[allow(dead_code, unused_imports, reason = "most of it is for tests")]
mod tests;

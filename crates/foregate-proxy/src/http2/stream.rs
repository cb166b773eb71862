//! A stream of a client, as seen by its task.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use foregate_wire::{BodyLength, HeaderList};
use h2::Reason;

use super::SharedState;
use super::output::What;
use crate::limits::pressure::Charge;
use crate::transport::outcome::{LinkError, ReceiveOutcome};

/// A stream with a client's request. If it is dropped before both sides have ended, it is reset: the client learns that
/// no more of the response comes and that the rest of its body is not needed.
#[derive(Debug)]
pub struct ClientStream {
    shared: Arc<SharedState>,
    id: u32,
    /// Received bytes of the body; the first `used` of them are consumed.
    chunk: Vec<u8>,
    used: usize,
    /// True once the whole request has been read from the shared state.
    received: bool,
    trailers: HeaderList,
    /// The memory of the trailers.
    trailers_charge: Charge,
    sending: ResponseProgress,
    /// True if there was no room for the stream's last output.
    awaits_room: bool,
    /// The code of the reset if the stream breaks off.
    breaks_with: Reason,
}

/// The progress of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseProgress {
    /// The head has not been sent.
    Nothing,
    /// The head was sent. `left` is the rest of the body, after which the stream ends; `None` if
    /// [`ClientStream::finish`] ends it. `begun` is true once a part of the body was sent.
    Body { left: Option<u64>, begun: bool },
    /// All of the response has been sent.
    Done,
}

impl ClientStream {
    /// The stream of a request that has arrived.
    pub fn new(shared: &Arc<SharedState>, id: u32) -> Self {
        Self {
            shared: Arc::clone(shared),
            id,
            chunk: Vec::new(),
            used: 0,
            received: false,
            trailers: HeaderList::new(),
            trailers_charge: Charge::new(),
            sending: ResponseProgress::Nothing,
            awaits_room: false,
            breaks_with: Reason::INTERNAL_ERROR,
        }
    }

    /// Marks the stream as a tunnel: if it breaks off, its peer learns that the other connection has
    /// failed. `extended` is true if the client's CONNECT names a protocol (RFC 8441, section 5; RFC 9113,
    /// section 8.5).
    pub fn opens_tunnel(&mut self, extended: bool) {
        self.breaks_with = if extended { Reason::CANCEL } else { Reason::CONNECT_ERROR };
    }

    /// Waits for some of the body, or for its end.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<ReceiveOutcome, LinkError>> {
        if !self.data().is_empty() {
            return Poll::Ready(Ok(ReceiveOutcome::Data));
        }
        if self.received {
            return Poll::Ready(Ok(ReceiveOutcome::End));
        }
        let mut state = self.shared.0.lock();
        let Some(entry) = state.streams.entry(self.id) else { return Poll::Ready(Err(LinkError::H2)) };
        if let Some(error) = entry.end {
            return Poll::Ready(Err(error));
        }
        // If all announced bytes have arrived, the last of them are held back until the stream has ended, too. With them the
        // receiver would have a complete message, but more data could still make the request invalid (RFC 9113, section
        // 8.1.1).
        let is_held = entry.receives && entry.expected == Some(0);
        if !entry.body.is_empty() && !is_held {
            std::mem::swap(&mut self.chunk, &mut entry.body);
            return Poll::Ready(Ok(ReceiveOutcome::Data));
        }
        if entry.receives {
            entry.wait(cx);
            return Poll::Pending;
        }
        self.received = true;
        if let Some(trailers) = entry.trailers.take() {
            state.streams.holding.sub(trailers.memory());
            self.trailers_charge.set(trailers.memory());
            self.trailers = trailers;
        }
        Poll::Ready(Ok(ReceiveOutcome::End))
    }

    /// The received and unconsumed bytes.
    pub fn data(&self) -> &[u8] {
        self.chunk.get(self.used..).unwrap_or_default()
    }

    /// Drops the first `count` bytes of [`Self::data`] and lets the peer send as many more.
    pub fn consume(&mut self, count: usize) {
        let count = count.min(self.data().len());
        self.used += count;
        if self.used == self.chunk.len() {
            self.chunk = Vec::new();
            self.used = 0;
        }
        let mut state = self.shared.0.lock();
        state.streams.holding.sub(count);
        state.give_back(count);
        state.give_back_of(self.id, count);
    }

    /// The trailers; complete at the body's end.
    pub fn trailers(&mut self) -> &mut HeaderList {
        &mut self.trailers
    }

    /// The trailers are not needed any more.
    pub fn drop_trailers(&mut self) {
        self.trailers = HeaderList::new();
        self.trailers_charge.set(0);
    }

    /// Sends an interim response.
    ///
    /// # Errors
    ///
    /// The stream is gone.
    pub fn send_interim(&mut self, status: u16, fields: &HeaderList) -> Result<(), LinkError> {
        let state = &mut *self.shared.0.lock();
        state.streams.sendable(self.id)?;
        state.output.head(self.id, Some(status), fields, None, false);
        state.wake();
        Ok(())
    }

    /// Sends the head of the response. `length` is the framing of the body; some framings allow
    /// trailers after it.
    ///
    /// # Errors
    ///
    /// The stream is gone.
    pub fn send_head(
        &mut self,
        status: u16,
        fields: &HeaderList,
        length: BodyLength,
        may_have_trailers: bool,
    ) -> Result<(), LinkError> {
        let ends = length.is_empty();
        let known = match length {
            BodyLength::Fixed(length) => Some(length),
            _ => None,
        };
        let state = &mut *self.shared.0.lock();
        state.streams.sendable(self.id)?;
        state.output.head(self.id, Some(status), fields, known, ends);
        self.sending = ResponseProgress::Body { left: known.filter(|_| !may_have_trailers), begun: false };
        if ends {
            self.sending = ResponseProgress::Done;
            state.streams.has_sent(self.id);
        }
        if length == BodyLength::Tunnel
            && let Some(entry) = state.streams.entry(self.id)
        {
            entry.is_tunnel = true;
        }
        state.wake();
        Ok(())
    }

    /// Sends the start of `data`. Returns how much of it was taken.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, LinkError>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let ResponseProgress::Body { left, begun } = self.sending else {
            return Poll::Ready(Err(LinkError::Length));
        };
        if left.is_some_and(|left| left < data.len() as u64) {
            return Poll::Ready(Err(LinkError::Length));
        }
        let state = &mut *self.shared.0.lock();
        state.streams.sendable(self.id)?;
        let what = if begun { What::Amid } else { What::Begin };
        let window = state.streams.entry(self.id).map_or(0, |entry| entry.window.open());
        let Some(window) = usize::try_from(window).ok().filter(|window| *window > 0) else {
            self.awaits_room = false;
            state.wait_for_window(self.id, data.len(), cx);
            return Poll::Pending;
        };
        let room = state.poll_room(self.id, what, cx);
        self.awaits_room = room.is_pending();
        let taken = ready!(room).min(window).min(data.len());
        let left = left.map(|left| left - taken as u64);
        let ends = left == Some(0);
        let (data, rest) = data.split_at_checked(taken).unwrap_or((data, &[]));
        state.send(self.id, data, !rest.is_empty(), ends);
        self.sending =
            if ends { ResponseProgress::Done } else { ResponseProgress::Body { left, begun: true } };
        Poll::Ready(Ok(taken))
    }

    /// Waits until a head, or trailers, may be sent.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let state = &mut *self.shared.0.lock();
        // If the stream is over, the sender learns that from its next write.
        let room = match state.streams.sendable(self.id) {
            Ok(()) => state.poll_room(self.id, What::Head, cx),
            Err(_) => Poll::Ready(0),
        };
        if room.is_ready() {
            state.offer();
        }
        self.awaits_room = room.is_pending();
        room.map(|_| ())
    }

    /// Returns true if more of the body waits than an ordinary window allows.
    pub fn holds_grown_window(&self) -> bool {
        let streams = &mut self.shared.0.lock().streams;
        let base = streams.growth.base();
        streams.entry(self.id).is_some_and(|entry| entry.body.len() + self.data().len() > base)
    }

    /// The time of the connection's last progress, if the stream waits for the connection. `None` if it
    /// waits only for its own window.
    pub fn left_at(&self) -> Option<Instant> {
        if self.awaits_room { self.shared.0.lock().output.left_at } else { None }
    }

    /// Ends the body that is being sent.
    ///
    /// # Errors
    ///
    /// The stream is gone, or the body is shorter than its head has said.
    pub fn finish(&mut self, trailers: &HeaderList) -> Result<(), LinkError> {
        match self.sending {
            ResponseProgress::Nothing | ResponseProgress::Done => return Ok(()),
            ResponseProgress::Body { left: Some(0), .. } => {}
            ResponseProgress::Body { left: Some(_), .. } => return Err(LinkError::Length),
            ResponseProgress::Body { left: None, .. } => {}
        }
        let state = &mut *self.shared.0.lock();
        state.streams.sendable(self.id)?;
        if trailers.is_empty() {
            state.send(self.id, &[], false, true);
        } else {
            state.output.head(self.id, None, trailers, None, true);
            state.streams.has_sent(self.id);
            state.wake();
        }
        self.sending = ResponseProgress::Done;
        Ok(())
    }

    /// Ready once the peer has reset the stream.
    pub fn poll_abandoned(&mut self, cx: &mut Context<'_>) -> Poll<LinkError> {
        let mut state = self.shared.0.lock();
        let Some(entry) = state.streams.entry(self.id) else { return Poll::Ready(LinkError::H2) };
        if let Some(error) = entry.end {
            return Poll::Ready(error);
        }
        entry.wait(cx);
        Poll::Pending
    }

    /// Returns true if the response has been sent, and the request is still arriving.
    pub fn is_answered_early(&self) -> bool {
        self.shared.0.lock().streams.state(self.id) == (true, false)
    }

    /// Returns true if GOAWAY was sent on the connection.
    pub fn is_of_ending_connection(&self) -> bool {
        self.shared.0.lock().ending != super::Ending::No
    }

    /// Resets the stream.
    pub fn abort(&mut self) {
        let mut state = self.shared.0.lock();
        let (is_open, _) = state.streams.state(self.id);
        if is_open {
            state.reset(self.id, self.breaks_with);
        }
    }

    /// Refuses the stream: its request may be made again elsewhere (RFC 9113, section 8.7).
    pub fn refuse(self) {
        self.shared.0.lock().reset(self.id, Reason::REFUSED_STREAM);
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        let unused = self.data().len();
        let state = &mut *self.shared.0.lock();
        state.streams.holding.sub(unused);
        state.give_back(unused);
        if let (true, answers) = state.streams.state(self.id) {
            // The rest of an answered request is not needed (section 8.1).
            state.reset(self.id, if answers { Reason::CANCEL } else { Reason::NO_ERROR });
        }
        if let Some(entry) = state.streams.remove(self.id) {
            let trailers = entry.trailers.map_or(0, |trailers| trailers.memory());
            state.streams.holding.sub(entry.body.len() + trailers);
            state.give_back(entry.body.len());
            if entry.turn {
                state.output.turns -= 1;
                state.offer();
            }
        }
        // An ending connection may have waited for it.
        if state.streams.is_empty() {
            state.wake();
        }
    }
}

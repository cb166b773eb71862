//! A stream of an HTTP/2 connection to an origin, for which `h2` speaks the protocol.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use foregate_wire::{BodyLength, HeaderList, may_be_trailer};
use h2::{Reason, RecvStream, SendStream};

use super::fields;
use super::turn::Turn;
use super::unread::Unread;
use super::unsent::{Piece, Unsent};
use super::{LinkError, ReceiveOutcome};
use crate::limits::pressure::Charge;

/// A stream of an HTTP/2 connection to an origin.
#[derive(Debug)]
pub struct H2Link {
    receive: Option<RecvStream>,
    /// The number of the stream while its response's head is awaited. Needed to give up a body that
    /// arrives before the head is polled.
    awaited: Option<u32>,
    /// The counter of the connection's unread input.
    unread: Option<Arc<Unread>>,
    chunk: Bytes,
    /// Input that follows `chunk`, joined from many small frames.
    gathered: Vec<u8>,
    turn: Turn,
    /// The reason why the message has no body. It is set only if there is no body; bytes that arrive
    /// nevertheless are refused then.
    refused: Option<Bodiless>,
    trailers: HeaderList,
    /// The memory of the trailers.
    trailers_charge: Charge,
    send: Option<SendStream<Piece>>,
    /// The counter of the connection's unsent output, until all output of the stream has been written.
    unsent: Option<Arc<Unsent>>,
    /// True once some of the body has been sent.
    begun: bool,
    /// The length left to send, if it is known and no trailers can follow.
    left: Option<u64>,
}

/// Why a message has no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bodiless {
    /// The response answers HEAD.
    Head,
    /// The status allows no body.
    Status,
}

impl H2Link {
    /// The link of a stream. A direction that is not known yet is set later, by [`Self::set_receive`] or
    /// [`Self::begin_send`].
    pub fn new(receive: Option<RecvStream>, send: Option<SendStream<Piece>>) -> Self {
        Self {
            receive,
            awaited: None,
            unread: None,
            chunk: Bytes::new(),
            gathered: Vec::new(),
            turn: Turn::default(),
            refused: None,
            trailers: HeaderList::new(),
            trailers_charge: Charge::new(),
            send,
            unsent: None,
            begun: false,
            left: None,
        }
    }

    /// Sets the counter of the connection's unread input.
    pub fn count_in(&mut self, unread: Arc<Unread>) {
        self.unread = Some(unread);
    }

    /// Sets the counter of the connection's unsent output.
    pub fn count_out(&mut self, unsent: Arc<Unsent>) {
        self.unsent = Some(unsent);
    }

    /// The counter of the connection's output.
    pub fn unsent(&self) -> Option<&Arc<Unsent>> {
        self.unsent.as_ref()
    }

    /// Expects the head of a response on this stream.
    pub fn await_head(&mut self, stream: u32) {
        self.awaited = Some(stream);
    }

    /// Sets the body, once the head of the response has arrived.
    pub fn set_receive(&mut self, receive: RecvStream) {
        self.awaited = None;
        if receive.is_end_stream() {
            // The response has no body.
            if let Some(unread) = &self.unread {
                unread.forget(receive.stream_id().as_u32());
            }
            return;
        }
        self.receive = Some(receive);
    }

    /// Prepares for sending the body after our head; `send` is the stream's sending half. The last byte
    /// ends the stream if the length is known and no trailers can follow. Otherwise [`Self::finish`] ends
    /// the stream.
    pub fn begin_send(&mut self, send: Option<SendStream<Piece>>, length: BodyLength) {
        self.send = send;
        self.left = match length {
            BodyLength::Fixed(length) => Some(length),
            _ => None,
        };
    }

    /// Waits for some of the body, or for its end.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<ReceiveOutcome, LinkError>> {
        loop {
            if !self.chunk.is_empty() {
                return Poll::Ready(Ok(ReceiveOutcome::Data));
            }
            if self.refused.is_some() {
                return Poll::Ready(Ok(ReceiveOutcome::End));
            }
            let Some(receive) = &mut self.receive else {
                return Poll::Ready(Ok(ReceiveOutcome::End));
            };
            let next = match std::mem::take(&mut self.gathered) {
                gathered if !gathered.is_empty() => Some(Ok(Bytes::from(gathered))),
                _ => {
                    ready!(self.turn.poll_piece(cx));
                    let Poll::Ready(next) = receive.poll_data(cx) else {
                        self.turn.over();
                        return Poll::Pending;
                    };
                    if let (Some(unread), Some(Ok(_))) = (&self.unread, &next) {
                        unread.took_frame(receive.stream_id().as_u32());
                    }
                    next
                }
            };
            match next {
                Some(Ok(chunk)) => self.chunk = chunk,
                Some(Err(error)) => {
                    let has_all = |unread: &Arc<Unread>| unread.has_given_all(receive.stream_id().as_u32());
                    let connection = error.is_io() || error.is_go_away();
                    if !connection || !self.unread.as_ref().is_some_and(has_all) {
                        return Poll::Ready(Err(error.into()));
                    }
                    // If the connection ends while we still send, `h2` reports an error, although
                    // the response is complete.
                    self.stop_receiving();
                }
                None => {
                    if let Some(trailers) = ready!(receive.poll_trailers(cx))? {
                        fields::append(&mut self.trailers, &trailers);
                        self.trailers.retain(|field| may_be_trailer(field.id));
                        self.trailers_charge.set(self.trailers.memory());
                    }
                    self.stop_receiving();
                }
            }
        }
    }

    /// Joins the bytes of waiting frames, if many frames wait.
    pub fn gather(&mut self, cx: &mut Context<'_>) {
        let (Some(receive), Some(unread)) = (&mut self.receive, &self.unread) else { return };
        let stream = receive.stream_id().as_u32();
        while unread.is_many(stream, cx.waker()) {
            // An end or an error is left to the next read.
            let Poll::Ready(Some(Ok(chunk))) = receive.poll_data(cx) else { return };
            unread.took_frame(stream);
            self.gathered.extend_from_slice(&chunk);
        }
    }

    /// Refuses a body, because the message has none. [`Self::take_refused`] decides later how the stream
    /// ends if the origin sends one.
    pub fn refuse_body(&mut self, why: Bodiless) {
        self.refused = self.receive.is_some().then_some(why);
    }

    /// Stops refusing a body, so that the stream can end without a reset. Returns the reason why it was
    /// refused; `None` if it was not.
    pub fn take_refused(&mut self) -> Option<Bodiless> {
        self.refused.take()
    }

    /// Waits for input after a head that allows no body. Returns true if the origin sends a body
    /// nevertheless; the stream is reset then.
    pub fn poll_refused(&mut self, why: Bodiless, cx: &mut Context<'_>) -> Poll<bool> {
        Poll::Ready(match ready!(self.poll_receive(cx)) {
            Ok(ReceiveOutcome::Data) => {
                self.consume(self.data().len());
                self.abort();
                true
            }
            Ok(_) => false,
            // After HEAD, `h2` itself detects a body. After other heads without a body, `h2` also
            // objects to a declared length without DATA, although this is valid there.
            Err(error) => why != Bodiless::Status && error == LinkError::Reset(Reason::PROTOCOL_ERROR),
        })
    }

    fn stop_receiving(&mut self) {
        self.gathered = Vec::new();
        let received = self.receive.take().map(|receive| receive.stream_id().as_u32());
        if let (Some(stream), Some(unread)) = (received.or(self.awaited.take()), &self.unread) {
            unread.forget(stream);
        }
    }

    /// The received and unconsumed bytes.
    pub fn data(&self) -> &[u8] {
        &self.chunk
    }

    /// Drops the first `count` bytes of [`Self::data`] and lets the origin send as many more.
    pub fn consume(&mut self, count: usize) {
        self.chunk.advance(count);
        if self.chunk.is_empty() {
            // Even an empty slice of the chunk keeps the buffer of its frame alive.
            self.chunk = Bytes::new();
        }
        if let Some(receive) = &mut self.receive {
            // Fails only for a stream that is closed, which needs no window.
            let _ = receive.flow_control().release_capacity(count);
            if let Some(unread) = &self.unread {
                unread.took(receive.stream_id().as_u32(), count);
            }
        }
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

    /// Returns true if the whole body has been received and consumed.
    pub fn is_received(&self) -> bool {
        self.chunk.is_empty()
            && self.gathered.is_empty()
            && self.receive.as_ref().is_none_or(RecvStream::is_end_stream)
    }

    /// Sends the start of `data`. Returns how much of it was taken.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, LinkError>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let Some(send) = &mut self.send else {
            return Poll::Ready(Err(LinkError::Length));
        };
        if self.left.is_some_and(|left| left < data.len() as u64) {
            return Poll::Ready(Err(LinkError::Length));
        }
        let room = match &self.unsent {
            None => usize::MAX,
            Some(unsent) => match unsent.poll_room(cx, !self.begun) {
                Poll::Ready(room) => room,
                // While waiting for room, the stream must still notice its own reset.
                Poll::Pending => return send.poll_reset(cx).map(|reset| Err(reset?.into())),
            },
        };
        let mut capacity = send.capacity();
        if capacity == 0 {
            send.reserve_capacity(data.len());
            while capacity == 0 {
                capacity = match ready!(send.poll_capacity(cx)) {
                    Some(capacity) => capacity?,
                    None => return Poll::Ready(Err(LinkError::Reset(Reason::STREAM_CLOSED))),
                };
            }
        }
        let taken = capacity.min(data.len()).min(room);
        let end = self.left == Some(taken as u64);
        send.send_data(Piece::new(&data[..taken], self.unsent.as_ref()), end)?;
        self.begun = true;
        if let Some(left) = &mut self.left {
            *left -= taken as u64;
        }
        Poll::Ready(Ok(taken))
    }

    /// Waits until the connection has room for trailers.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.unsent.as_ref().map_or(Poll::Ready(()), |unsent| unsent.poll_room(cx, true).map(|_| ()))
    }

    /// Ends the body that is being sent.
    pub fn finish(&mut self, trailers: &HeaderList) -> Result<(), LinkError> {
        let Some(send) = &mut self.send else { return Ok(()) };
        match self.left {
            Some(0) => {}
            Some(_) => return Err(LinkError::Length),
            None if trailers.is_empty() => send.send_data(Piece::end(), true)?,
            None => {
                let stream = send.stream_id().as_u32();
                let mut send = || send.send_trailers(fields::to_map(trailers));
                match &self.unsent {
                    Some(unsent) => unsent.send(stream, trailers, send)?,
                    None => send()?,
                }
            }
        }
        // The stream is kept, so that it can still be reset, but nothing more is sent.
        self.left = Some(0);
        Ok(())
    }

    /// Resets the stream.
    pub fn abort(&mut self) {
        if let Some(send) = &mut self.send {
            send.send_reset(Reason::CANCEL);
        }
        self.stop_receiving();
    }
}

impl Drop for H2Link {
    fn drop(&mut self) {
        self.stop_receiving();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::frames::{Frame, flag, kind};

    #[test]
    fn what_came_for_a_stream_whose_head_nobody_took_is_forgotten() {
        let unread = Arc::new(Unread::default());
        for (stream, ends) in [(1, 0), (3, flag::END_STREAM)] {
            unread.opened(stream);
            let mut link = H2Link::new(None, None);
            link.count_in(Arc::clone(&unread));
            link.await_head(stream);
            unread.received(&Frame::parse(&[0, 0, 10, kind::DATA, ends, 0, 0, 0, stream as u8]));
            assert!(unread.held() > 0);
            drop(link);
            assert_eq!(unread.held(), 0);
        }
    }
}

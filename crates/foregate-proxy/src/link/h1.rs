//! An HTTP/1 connection, seen from either side.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::task::{Context, Poll, Waker, ready};

use foregate_io::File;
use foregate_wire::serialise::{LAST_CHUNK, write_chunk_header, write_trailers};
use foregate_wire::{
    BodyDecoder, BodyLength, HeadLimits, HeadParser, HeaderList, RequestError, RequestHead, ResponseError,
    ResponseHead,
};
use tokio::io::AsyncWrite;

use super::turn::Turn;
use super::{LinkError, ReceiveOutcome};
use crate::limits::buffer_size::LARGE;
use crate::limits::pressure::Charge;
use crate::transport::buffer::Buffer;
use crate::transport::stream::{IdleState, Stream, poll_write_both};

/// The most bytes of a head that are read, regardless of the limits.
const MOST_OF_A_HEAD: usize = 128 * 1024;
/// Pieces of a body up to this size are copied behind pending output, so that a head and a small
/// body leave in one system call. Larger pieces are written without a copy.
const COPY_AT_MOST: usize = 4 * 1024;
/// The pending output that triggers a write, in bytes.
const WAIT_AT_MOST: usize = 16 * 1024;

/// Why no head could be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadFault<E> {
    /// The connection ended before the first byte of a head.
    Closed,
    /// The connection failed, or ended in the middle of the head.
    Link(LinkError),
    /// The bytes are not an acceptable head.
    Malformed(E),
}

/// How much of the current message's body is still to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendState {
    Nothing,
    Fixed(u64),
    /// The number of bytes that are left of the announced chunk.
    Chunks(usize),
    UntilClose,
}

/// The bytes of the last head, for a message that is to be passed on as it came.
#[derive(Debug)]
pub struct KeptHead {
    bytes: Option<Vec<u8>>,
    charge: Charge,
}

impl KeptHead {
    /// Sets whether the bytes of heads that are received from now on are kept.
    pub fn keep(&mut self, keep: bool) {
        if keep != self.bytes.is_some() {
            self.bytes = keep.then(Vec::new);
            self.charge.set(0);
        }
    }

    /// The bytes; empty where they were not kept.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }

    fn take(&mut self, head: &[u8]) {
        if let Some(bytes) = &mut self.bytes {
            bytes.clear();
            bytes.extend_from_slice(head);
            self.charge.set(bytes.capacity());
        }
    }
}

/// An HTTP/1 connection, one message at a time in each direction.
#[derive(Debug)]
pub struct H1Link {
    stream: Stream,
    input: Buffer,
    parser: HeadParser,
    decoder: BodyDecoder,
    /// Bytes of body at the start of `input`.
    data: usize,
    /// Bytes of framing that follow the bytes of body.
    after_data: usize,
    trailers: HeaderList,
    /// The memory of the trailers.
    trailers_charge: Charge,
    turn: Turn,
    output: Buffer,
    sending: SendState,
    ended: bool,
    /// The bytes of the last head, if they are to be kept.
    pub head: KeptHead,
    /// True if the body is received with its framing, undecoded.
    verbatim: bool,
}

impl H1Link {
    /// A connection on which nothing has been exchanged yet.
    pub fn new(stream: Stream) -> Self {
        Self {
            stream,
            input: Buffer::new(),
            parser: HeadParser::new(),
            decoder: BodyDecoder::new(BodyLength::Empty, &HeadLimits::default()),
            data: 0,
            after_data: 0,
            trailers: HeaderList::new(),
            trailers_charge: Charge::new(),
            turn: Turn::default(),
            output: Buffer::new(),
            sending: SendState::Nothing,
            ended: false,
            head: KeptHead { bytes: None, charge: Charge::new() },
            verbatim: false,
        }
    }

    /// The byte stream below.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The byte stream below, to be asked about its state.
    pub fn stream_mut(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// The byte stream, and the bytes that were read beyond the current message.
    pub fn into_parts(mut self) -> (Stream, Vec<u8>) {
        let ahead = self.input.take_unread();
        (self.stream, ahead)
    }

    /// Received bytes that belong to no message yet: the start of the next message, or excess
    /// bytes.
    pub fn ahead(&self) -> &[u8] {
        &self.input.unread()[self.data + self.after_data..]
    }

    /// Waits for more bytes before the next message. Returns false at the end of the stream.
    pub fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, LinkError>> {
        let count = match ready!(self.input.poll_fill(cx, &mut self.stream, MOST_OF_A_HEAD)) {
            // Requests declare their lengths, so no request can be truncated if TLS ends without
            // close_notify between two of them.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && self.stream.is_tls_server() => 0,
            filled => filled?,
        };
        self.ended |= count == 0;
        Poll::Ready(Ok(count > 0))
    }

    /// Returns true if the peer has sent unread bytes, or has ended, according to the kernel: the
    /// event loop may not have reported it yet.
    pub fn has_unread(&self) -> bool {
        self.stream.socket().look_now() != IdleState::Quiet
    }

    /// The memory that received bytes occupy.
    pub fn held(&self) -> usize {
        self.input.held()
    }

    /// Drops all bytes that have been received and not consumed.
    pub fn discard(&mut self) {
        self.input.consume(self.input.len());
        self.data = 0;
        self.after_data = 0;
    }

    /// Receives a request's head.
    pub fn poll_request_head(
        &mut self,
        cx: &mut Context<'_>,
        limits: &HeadLimits,
        head: &mut RequestHead,
    ) -> Poll<Result<(), HeadFault<RequestError>>> {
        self.poll_head(cx, |parser, input| parser.parse_request(input, limits, head))
    }

    /// Receives a response's head.
    pub fn poll_response_head(
        &mut self,
        cx: &mut Context<'_>,
        limits: &HeadLimits,
        head: &mut ResponseHead,
    ) -> Poll<Result<(), HeadFault<ResponseError>>> {
        self.poll_head(cx, |parser, input| parser.parse_response(input, limits, head))
    }

    fn poll_head<E>(
        &mut self,
        cx: &mut Context<'_>,
        mut parse: impl FnMut(&mut HeadParser, &[u8]) -> Result<Option<usize>, E>,
    ) -> Poll<Result<(), HeadFault<E>>> {
        if self.input.is_empty() {
            self.input.start_small();
        }
        loop {
            if !self.input.is_empty()
                && let Some(consumed) =
                    parse(&mut self.parser, self.input.unread()).map_err(HeadFault::Malformed)?
            {
                self.parser.reset();
                self.head.take(self.input.unread().get(..consumed).unwrap_or_default());
                self.input.consume(consumed);
                return Poll::Ready(Ok(()));
            }
            let first = self.input.is_empty();
            let filled = ready!(self.input.poll_fill(cx, &mut self.stream, MOST_OF_A_HEAD));
            if filled.map_err(|error| HeadFault::Link(error.into()))? == 0 {
                self.ended = true;
                let fault = if first { HeadFault::Closed } else { HeadFault::Link(LinkError::Truncated) };
                return Poll::Ready(Err(fault));
            }
        }
    }

    /// Prepares for the body that follows the head just received.
    pub fn begin_receive(&mut self, length: BodyLength, limits: &HeadLimits) {
        self.decoder = BodyDecoder::new(length, limits);
        self.trailers.clear();
        self.verbatim = false;
    }

    /// Makes [`Self::data`] return the next body with its framing and trailers. The end of the body is
    /// found nevertheless. Returns false if some of the body has been decoded already.
    pub fn receive_verbatim(&mut self) -> bool {
        self.verbatim = self.data == 0 && self.after_data == 0;
        self.verbatim
    }

    /// Sends the bytes up to [`Self::finish`] as they are, because they have their framing already. To be
    /// called after the head was written.
    pub fn send_verbatim(&mut self, length: BodyLength) {
        self.begin_send(if length.is_empty() { BodyLength::Empty } else { BodyLength::UntilClose });
    }

    /// Waits for some of the body, or for its end.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<ReceiveOutcome, LinkError>> {
        loop {
            if self.data > 0 {
                return Poll::Ready(Ok(ReceiveOutcome::Data));
            }
            if self.decoder.is_done() {
                return Poll::Ready(Ok(ReceiveOutcome::End));
            }
            if !self.input.is_empty() {
                ready!(self.turn.poll_piece(cx));
                let decoded = self.decoder.decode(self.input.unread(), &mut self.trailers)?;
                self.trailers_charge.set(self.trailers.memory());
                if self.verbatim {
                    self.data = decoded.consumed;
                    if decoded.consumed > 0 || decoded.done {
                        continue;
                    }
                }
                self.input.consume(decoded.data.start.min(decoded.consumed));
                self.data = decoded.data.len();
                self.after_data = decoded.consumed - decoded.data.end.min(decoded.consumed);
                if self.data == 0 {
                    self.input.consume(std::mem::take(&mut self.after_data));
                }
                if decoded.consumed > 0 || decoded.done {
                    continue;
                }
            }
            let Poll::Ready(filled) = self.poll_body(cx) else {
                self.turn.over();
                return Poll::Pending;
            };
            if filled? == 0 {
                self.ended = true;
                return Poll::Ready(match self.decoder.finish_eof() {
                    Ok(()) => Ok(ReceiveOutcome::End),
                    Err(_) => Err(LinkError::Truncated),
                });
            }
        }
    }

    /// Waits for more bytes of the body. Returns 0 at the end of the stream.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.ended { Poll::Ready(Ok(0)) } else { self.input.poll_fill(cx, &mut self.stream, LARGE) }
    }

    /// The received and unconsumed bytes of the body.
    pub fn data(&self) -> &[u8] {
        &self.input.unread()[..self.data]
    }

    /// Drops the first `count` bytes of [`Self::data`].
    pub fn consume(&mut self, count: usize) {
        let count = count.min(self.data);
        self.input.consume(count);
        self.data -= count;
        if self.data == 0 {
            self.input.consume(std::mem::take(&mut self.after_data));
        }
    }

    /// The trailers of the message that was received.
    pub fn trailers(&mut self) -> &mut HeaderList {
        &mut self.trailers
    }

    /// The trailers are not needed any more.
    pub fn drop_trailers(&mut self) {
        if !self.trailers.is_empty() {
            self.trailers = HeaderList::new();
            self.trailers_charge.set(0);
        }
    }

    /// Returns true if the whole body has been received and consumed.
    pub fn is_received(&self) -> bool {
        self.data == 0 && self.decoder.is_done()
    }

    /// The number of bytes of the body that are known to be unread or still to come.
    pub fn known_rest(&self) -> u64 {
        self.decoder.known_rest().saturating_add(self.data as u64)
    }

    /// Returns true if the peer has closed its side of the connection.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// The buffer for a head. [`Self::begin_send`] has to follow.
    pub fn head_out(&mut self) -> &mut Vec<u8> {
        self.output.tail()
    }

    /// Prepares for sending the body that belongs to the head just written.
    pub fn begin_send(&mut self, length: BodyLength) {
        self.sending = match length {
            BodyLength::Empty | BodyLength::Fixed(0) => SendState::Nothing,
            BodyLength::Fixed(length) => SendState::Fixed(length),
            BodyLength::Chunked => SendState::Chunks(0),
            BodyLength::UntilClose | BodyLength::Tunnel => SendState::UntilClose,
        };
    }

    /// Sends the start of `data`. Returns how much of it was taken.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, LinkError>> {
        let allowed = match &mut self.sending {
            SendState::Nothing => return Poll::Ready(Err(LinkError::Length)),
            SendState::Fixed(left) => usize::try_from(*left).unwrap_or(usize::MAX).min(data.len()),
            SendState::Chunks(left) => {
                if *left == 0 && !data.is_empty() {
                    write_chunk_header(self.output.tail(), data.len());
                    *left = data.len();
                }
                (*left).min(data.len())
            }
            SendState::UntilClose => data.len(),
        };
        if allowed == 0 && !data.is_empty() {
            return Poll::Ready(Err(LinkError::Length));
        }
        let data = &data[..allowed];
        let taken = if data.len() <= COPY_AT_MOST && self.output.len() + data.len() <= WAIT_AT_MOST {
            self.output.tail().extend_from_slice(data);
            data.len()
        } else {
            ready!(poll_write_through(&mut self.stream, &mut self.output, cx, data))?
        };
        match &mut self.sending {
            SendState::Fixed(left) => *left -= taken as u64,
            SendState::Chunks(left) => {
                *left -= taken;
                if *left == 0 {
                    self.output.tail().extend_from_slice(b"\r\n");
                }
            }
            SendState::Nothing | SendState::UntilClose => {}
        }
        Poll::Ready(Ok(taken))
    }

    /// Returns true if the system can send files on this connection by itself.
    pub fn takes_files(&self) -> bool {
        !self.stream.is_tls() && !matches!(self.sending, SendState::Chunks(_))
    }

    /// Sends pending output, then the start of `part` of the file. Returns the number of bytes of the
    /// file that were sent; 0 if the file ends before `part`.
    pub fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        part: Range<u64>,
    ) -> Poll<Result<u64, LinkError>> {
        let most = part.end.saturating_sub(part.start);
        let most = match self.sending {
            SendState::Fixed(left) => left.min(most),
            SendState::UntilClose => most,
            SendState::Nothing | SendState::Chunks(_) => 0,
        };
        let Stream::Plain(socket) = &mut self.stream else { return Poll::Ready(Err(LinkError::Length)) };
        if most == 0 {
            return Poll::Ready(Err(LinkError::Length));
        }
        while !self.output.is_empty() {
            let written = ready!(socket.poll_write_more(cx, self.output.unread()))?;
            self.output.consume(written);
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let sent = ready!(socket.poll_send_file(cx, file.as_fd(), part.start, most))? as u64;
        if let SendState::Fixed(left) = &mut self.sending {
            *left = left.saturating_sub(sent);
        }
        Poll::Ready(Ok(sent))
    }

    /// Copies the last data of a chunked body behind pending output if it is small, so that the end
    /// of the body leaves in the same system call. Returns true if it did.
    pub fn gather_last(&mut self, data: &[u8]) -> bool {
        // 64 bytes are left for the framing of the chunk.
        let fits = self.output.len() + data.len() <= WAIT_AT_MOST - 64;
        let gathers = self.sending == SendState::Chunks(0) && !data.is_empty() && fits;
        if gathers {
            let tail = self.output.tail();
            write_chunk_header(tail, data.len());
            tail.extend_from_slice(data);
            tail.extend_from_slice(b"\r\n");
        }
        gathers
    }

    /// Waits until all bytes accepted for sending have left the process.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        while !self.output.is_empty() {
            let written = ready!(poll_write_both(&mut self.stream, cx, self.output.unread(), &[]))?;
            self.output.consume(written);
        }
        self.output.release();
        // TLS buffers records while the socket is full.
        if self.stream.is_tls() {
            ready!(std::pin::Pin::new(&mut self.stream).poll_flush(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Ends the body that is being sent.
    pub fn finish(&mut self, trailers: &HeaderList) -> Result<(), LinkError> {
        match std::mem::replace(&mut self.sending, SendState::Nothing) {
            SendState::Nothing | SendState::Fixed(0) | SendState::UntilClose => Ok(()),
            SendState::Chunks(0) if trailers.is_empty() => {
                self.output.tail().extend_from_slice(LAST_CHUNK);
                Ok(())
            }
            SendState::Chunks(0) => {
                write_trailers(self.output.tail(), trailers);
                self.output.count();
                Ok(())
            }
            SendState::Fixed(_) | SendState::Chunks(_) => Err(LinkError::Length),
        }
    }

    /// Flushes the output, and ends our side of the connection.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        ready!(self.poll_flush(cx))?;
        ready!(std::pin::Pin::new(&mut self.stream).poll_shutdown(cx))?;
        Poll::Ready(Ok(()))
    }

    /// Ends our side of a connection that is about to be closed: TLS needs a close_notify (RFC
    /// 8446, section 6.1).
    pub fn poll_goodbye(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        match self.stream {
            Stream::Plain(_) => self.poll_flush(cx),
            _ => self.poll_shutdown(cx),
        }
    }

    /// Returns true if the connection may serve another message, because nothing of the last one is
    /// left.
    pub fn is_clean(&self) -> bool {
        !self.ended
            && self.is_received()
            && self.input.is_empty()
            && self.output.is_empty()
            && self.sending == SendState::Nothing
    }

    /// The state of an idle connection. Consumes available bytes, so a connection that is not quiet has
    /// to be closed.
    pub fn look(&mut self) -> IdleState {
        if !self.stream.is_tls() {
            return self.stream.socket().look();
        }
        // TLS records without data, such as session tickets, leave the connection usable.
        match self.poll_ahead(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => {
                self.input.release();
                IdleState::Quiet
            }
            Poll::Ready(Ok(true)) => IdleState::Excess,
            Poll::Ready(_) => IdleState::Ended,
        }
    }

    /// Returns true if TLS has decrypted unread bytes, or has ended: neither the input nor the
    /// socket shows that.
    pub fn is_ahead_in_tls(&mut self) -> bool {
        self.stream.is_tls() && self.poll_ahead(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Gives back all memory that is not needed while idle.
    pub fn release(&mut self) {
        self.input.release();
        self.output.release();
        self.trailers.clear();
        self.trailers.shrink_to(0, 0);
        self.trailers_charge.set(0);
        self.head.keep(false);
    }

    /// Ready once the connection has failed while nothing was to be received. A peer that has only
    /// ended its sending side still waits for our response and has not failed.
    pub fn poll_abandoned(&mut self, cx: &mut Context<'_>) -> Poll<LinkError> {
        if self.ended || !self.input.is_empty() || !self.decoder.is_done() {
            return Poll::Pending;
        }
        match self.poll_ahead(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(error),
            Poll::Ready(Ok(_)) | Poll::Pending => Poll::Pending,
        }
    }

    /// Aborts the message being sent. Accepted bytes are still sent if possible. If a plain close could be
    /// mistaken for the end of the message, the connection is reset.
    pub fn abort(&mut self) {
        let mut nobody = Context::from_waker(Waker::noop());
        // Bytes that cannot be sent at once are dropped, because their message is lost anyway.
        let _ = self.poll_flush(&mut nobody);
        if self.sending == SendState::UntilClose {
            self.stream.reset_on_close();
        }
    }
}

/// Writes pending output and then the start of `data`; consumes at least one byte of `data`.
fn poll_write_through(
    stream: &mut Stream,
    output: &mut Buffer,
    cx: &mut Context<'_>,
    data: &[u8],
) -> Poll<Result<usize, LinkError>> {
    loop {
        let waiting = output.len();
        let written = ready!(poll_write_both(stream, cx, output.unread(), data))?;
        output.consume(written.min(waiting));
        if written > waiting {
            return Poll::Ready(Ok(written - waiting));
        }
    }
}

//! One peer's end of an exchange: receiving and sending, for any protocol.
//!
//! Clients and origins have the same interface, so that bodies move in both directions by the same code.

pub mod ahead;
pub mod cached;
pub mod copy;
pub(crate) mod fields;
pub mod filter;
pub mod h1;
pub mod h2;
pub(crate) mod head_gate;
pub(crate) mod start;
pub mod sweep;
pub mod turn;
pub mod unread;
pub mod unsent;

use std::ops::Range;
use std::task::{Context, Poll};
use std::time::Instant;

use foregate_io::File;
use foregate_wire::HeaderList;

use crate::http2::ClientStream;

pub use crate::transport::outcome::{LinkError, ReceiveOutcome};
pub use ahead::AheadLink;
pub use cached::{CachedLink, StoredBody};
pub use h1::H1Link;
pub use h2::{Bodiless, H2Link};

/// The link with one peer of an exchange.
#[derive(Debug)]
pub enum Link {
    /// An HTTP/1 connection.
    H1(Box<H1Link>),
    /// A stream of an HTTP/2 connection to an origin.
    H2(Box<H2Link>),
    /// A stream of a client's HTTP/2 connection.
    Client(Box<ClientStream>),
    /// A body from the cache. It only sends.
    Cached(Box<CachedLink>),
    /// An origin with a response that is received ahead of the client.
    Ahead(Box<AheadLink>),
}

macro_rules! each {
    ($self:expr, $link:ident => $body:expr) => {
        match $self {
            Link::H1($link) => $body,
            Link::H2($link) => $body,
            Link::Client($link) => $body,
            Link::Cached($link) => $body,
            Link::Ahead($link) => $body,
        }
    };
}

impl Link {
    /// Waits for some of the body, or for its end.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<ReceiveOutcome, LinkError>> {
        each!(self, link => link.poll_receive(cx))
    }

    /// Returns true for a stream of an HTTP/2 connection.
    pub fn is_h2(&self) -> bool {
        match self {
            Self::H2(_) | Self::Client(_) => true,
            Self::H1(_) | Self::Cached(_) => false,
            Self::Ahead(link) => link.is_h2(),
        }
    }

    /// Makes the connection end with a reset when it is closed, if it carries only this exchange.
    pub fn reset_on_close(&self) {
        if let Self::H1(link) = self {
            link.stream().reset_on_close();
        }
    }

    /// Returns true if bytes have arrived after the head of CONNECT, also if they have not been read yet.
    pub fn has_more(&mut self) -> bool {
        let mut nobody = Context::from_waker(std::task::Waker::noop());
        match self {
            Self::H1(link) => {
                !link.ahead().is_empty() || matches!(link.poll_ahead(&mut nobody), Poll::Ready(Ok(true)))
            }
            Self::Cached(_) | Self::Ahead(_) => false,
            Self::H2(_) | Self::Client(_) => {
                matches!(self.poll_receive(&mut nobody), Poll::Ready(Ok(ReceiveOutcome::Data)))
            }
        }
    }

    /// Receives from an origin while its body has to wait: joins small pieces, which cost more memory
    /// than their bytes, or receives as much as may be received ahead.
    pub fn gather(&mut self, cx: &mut Context<'_>) {
        match self {
            Self::H2(link) => link.gather(cx),
            Self::Ahead(link) => link.gather(cx),
            Self::H1(_) | Self::Client(_) | Self::Cached(_) => {}
        }
    }

    /// The received and unconsumed bytes.
    pub fn data(&self) -> &[u8] {
        each!(self, link => link.data())
    }

    /// Drops the first `count` bytes of [`Self::data`].
    pub fn consume(&mut self, count: usize) {
        each!(self, link => link.consume(count));
    }

    /// The trailers; complete at the body's end.
    pub fn trailers(&mut self) -> &mut HeaderList {
        each!(self, link => link.trailers())
    }

    /// The trailers are not needed any more.
    pub fn drop_trailers(&mut self) {
        each!(self, link => link.drop_trailers());
    }

    /// Sends the start of `data`, or copies it into a small buffer. Returns how much was taken.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, LinkError>> {
        each!(self, link => link.poll_send(cx, data))
    }

    /// Returns true if [`Self::poll_send_file`] can send files.
    pub fn takes_files(&self) -> bool {
        matches!(self, Self::H1(link) if link.takes_files())
    }

    /// Sends the start of `part` of a file, without a copy in this process. Returns the number of bytes
    /// sent; 0 if the file ends before `part`.
    pub fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        part: Range<u64>,
    ) -> Poll<Result<u64, LinkError>> {
        match self {
            Self::H1(link) => link.poll_send_file(cx, file, part),
            _ => Poll::Ready(Err(LinkError::Length)),
        }
    }

    /// Sends the last data of a body, which may leave together with the end.
    pub fn poll_send_last(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, LinkError>> {
        if let Self::H1(link) = self
            && link.gather_last(data)
        {
            return Poll::Ready(Ok(data.len()));
        }
        self.poll_send(cx, data)
    }

    /// Waits until a head, or trailers, may be sent. HTTP/1 always has room, because it sends one message
    /// at a time.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::H1(_) | Self::Cached(_) | Self::Ahead(_) => Poll::Ready(()),
            Self::H2(link) => link.poll_room(cx),
            Self::Client(link) => link.poll_room(cx),
        }
    }

    /// Returns true if more bytes of a body wait here than fit into an ordinary flow-control window.
    pub fn holds_grown_window(&self) -> bool {
        match self {
            Self::H1(_) | Self::H2(_) | Self::Cached(_) | Self::Ahead(_) => false,
            Self::Client(link) => link.holds_grown_window(),
        }
    }

    /// When the other streams of the peer's connection last made progress; `None` if this stream has room for
    /// output.
    pub fn left_at(&self) -> Option<Instant> {
        match self {
            // Callers only ask this of clients.
            Self::H1(_) | Self::H2(_) | Self::Cached(_) | Self::Ahead(_) => None,
            Self::Client(link) => link.left_at(),
        }
    }

    /// Waits until all bytes accepted for sending have left the process.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        match self {
            Self::H1(link) => link.poll_flush(cx),
            // The connection's own task writes accepted bytes.
            Self::H2(_) | Self::Client(_) | Self::Cached(_) | Self::Ahead(_) => Poll::Ready(Ok(())),
        }
    }

    /// Ends the body that is being sent, with these trailers; does not flush.
    pub fn finish(&mut self, trailers: &HeaderList) -> Result<(), LinkError> {
        each!(self, link => link.finish(trailers))
    }

    /// Ready once the peer has given up the exchange. For phases in which nothing is read from it.
    pub fn poll_abandoned(&mut self, cx: &mut Context<'_>) -> Poll<LinkError> {
        match self {
            Self::H1(link) => link.poll_abandoned(cx),
            // Callers only ask this of clients.
            Self::H2(_) | Self::Cached(_) | Self::Ahead(_) => Poll::Pending,
            Self::Client(link) => link.poll_abandoned(cx),
        }
    }

    /// Aborts the exchange so that the peer cannot mistake the sent part for a complete message.
    pub fn abort(&mut self) {
        each!(self, link => link.abort());
    }
}

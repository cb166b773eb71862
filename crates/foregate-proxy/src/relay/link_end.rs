//! Uses the links of an exchange as ends of a relay.

use std::io::ErrorKind;
use std::task::{Context, Poll};
use std::time::Instant;

use foregate_wire::HeaderList;

use super::RelayEnd;
use crate::link::{Link, LinkError, ReceiveOutcome};

impl RelayEnd for Link {
    type Error = LinkError;

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, LinkError>> {
        self.poll_receive(cx).map_ok(|received| received == ReceiveOutcome::Data)
    }

    fn data(&self) -> &[u8] {
        self.data()
    }

    fn consume(&mut self, count: usize) {
        self.consume(count);
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, LinkError>> {
        self.poll_send(cx, data)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        self.poll_flush(cx)
    }

    /// Ends the stream without trailers. A tunnel has none, also if the other end is a stream that could have some (RFC
    /// 9113, section 8.5).
    fn finish(&mut self) -> Result<(), LinkError> {
        self.finish(&HeaderList::new())
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        match self {
            Self::H1(link) => match link.poll_shutdown(cx) {
                // The peer has closed the connection, but has already received everything.
                Poll::Ready(Err(LinkError::Io(ErrorKind::NotConnected))) => Poll::Ready(Ok(())),
                shut => shut,
            },
            // The end of an HTTP/2 stream is sent with its last frame.
            Self::H2(_) | Self::Client(_) | Self::Cached(_) | Self::Ahead(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<LinkError> {
        self.poll_abandoned(cx)
    }

    fn hold(&mut self, cx: &mut Context<'_>) {
        self.gather(cx);
    }

    fn left_at(&self) -> Option<Instant> {
        self.left_at()
    }
}

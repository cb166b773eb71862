//! Moves a body from one peer to the other with backpressure: what is not consumed is not read.

use std::task::{Context, Poll};

use foregate_wire::connection;

use super::{Link, LinkError, Received};

/// Who is being waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The peer that sends the body.
    Source,
    /// The peer that receives it.
    Sink,
    /// Nobody: the body has been moved.
    Nobody,
}

/// On which side a body stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyError {
    /// It could not be received.
    Source(LinkError),
    /// It could not be sent.
    Sink(LinkError),
    /// It is longer than the route allows.
    TooLarge,
}

/// A body on its way from one peer to another.
#[derive(Debug)]
pub struct Copy {
    /// Who is being waited for.
    pub waiting: Waiting,
    /// Bytes moved so far.
    pub moved: u64,
    /// The most that may be moved.
    pub limit: u64,
    /// Bytes kept for another attempt, and the most that may be kept; `None` once more than that was moved.
    pub kept: Option<Kept>,
    /// Whether trailers whose names have an underscore are left out.
    pub drop_underscores: bool,
    finished: bool,
    gave_up: bool,
}

/// The start of a body, kept in case it has to be sent again.
#[derive(Debug, Default)]
pub struct Kept {
    /// What has been moved.
    pub bytes: Vec<u8>,
    /// The most that is kept.
    pub limit: usize,
}

impl Copy {
    /// A body of which nothing has been moved yet.
    pub fn new() -> Self {
        Self {
            waiting: Waiting::Source,
            moved: 0,
            limit: u64::MAX,
            kept: None,
            drop_underscores: false,
            finished: false,
            gave_up: false,
        }
    }

    /// A body that has been dealt with already.
    pub fn done() -> Self {
        Self { waiting: Waiting::Nobody, finished: true, ..Self::new() }
    }

    /// Whether the whole body has been received and handed to the sink.
    pub fn is_done(&self) -> bool {
        self.waiting == Waiting::Nobody
    }

    /// Whether the source has come to its end.
    pub fn has_ended(&self) -> bool {
        self.finished
    }

    /// Moves no more of the body: the sink does not want it.
    pub fn give_up(&mut self) {
        self.gave_up = true;
        self.waiting = Waiting::Nobody;
    }

    /// Another sink takes what the last one did not want.
    pub fn resume(&mut self) {
        if std::mem::take(&mut self.gave_up) {
            self.waiting = Waiting::Source;
        }
    }

    /// Whether some of the body was not moved although it may have come.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Moves what can be moved. Pending means that [`Self::waiting`] has to act.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Link,
        sink: &mut Link,
    ) -> Poll<Result<(), CopyError>> {
        loop {
            if self.finished {
                return self.poll_flush(cx, sink, Waiting::Nobody);
            }
            match source.poll_receive(cx) {
                Poll::Pending => {
                    // What was taken from the source must not wait for what it sends next.
                    return match self.poll_flush(cx, sink, Waiting::Source) {
                        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                        _ => Poll::Pending,
                    };
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(CopyError::Source(error))),
                Poll::Ready(Ok(Received::Data)) => match self.poll_data(cx, source, sink) {
                    Poll::Pending => {
                        self.waiting = Waiting::Sink;
                        return Poll::Pending;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Ready(Ok(())) => {}
                },
                Poll::Ready(Ok(Received::End)) => {
                    let trailers = source.trailers();
                    if self.drop_underscores {
                        connection::drop_underscore_names(trailers);
                    }
                    sink.finish(trailers).map_err(CopyError::Sink)?;
                    self.finished = true;
                }
            }
        }
    }

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Link,
        sink: &mut Link,
    ) -> Poll<Result<(), CopyError>> {
        let data = source.data();
        if self.moved.saturating_add(data.len() as u64) > self.limit {
            return Poll::Ready(Err(CopyError::TooLarge));
        }
        let taken = match sink.poll_send(cx, data) {
            Poll::Ready(taken) => taken.map_err(CopyError::Sink)?,
            Poll::Pending => return Poll::Pending,
        };
        if let Some(kept) = &mut self.kept {
            if kept.bytes.len() + taken <= kept.limit {
                kept.bytes.extend_from_slice(&data[..taken]);
            } else {
                self.kept = None;
            }
        }
        source.consume(taken);
        self.moved += taken as u64;
        Poll::Ready(Ok(()))
    }

    fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut Link,
        then: Waiting,
    ) -> Poll<Result<(), CopyError>> {
        match sink.poll_flush(cx) {
            Poll::Ready(Ok(())) => {
                self.waiting = then;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(CopyError::Sink(error))),
            Poll::Pending => {
                self.waiting = Waiting::Sink;
                Poll::Pending
            }
        }
    }
}

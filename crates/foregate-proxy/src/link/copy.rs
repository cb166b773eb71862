//! Moves a body from one peer to the other with backpressure: nothing is read before earlier bytes
//! are consumed.

use std::task::{Context, Poll, ready};

use foregate_module::{Chain, FetchRequest};
use foregate_wire::HeaderList;

use super::filter::Filter;
use super::start::{Front, KeptStart};
use super::sweep::Trailers;
use super::turn::give_way;
use super::{Link, ReceiveOutcome};
use crate::comparison::SeenBody;
use crate::limits::budget::BudgetShare;
use crate::transport::outcome::CopyError;

/// The peer or event being waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitingFor {
    /// The peer that sends the body.
    Source,
    /// The peer that receives the body.
    Sink,
    /// The answer to a filter's fetch: see [`BodyCopy::question`].
    Answer,
    /// The file that holds the start of the body.
    File,
    /// Nobody: the whole body has been moved.
    Nobody,
}

/// The trailers with an underscore in their name that are forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Underscores {
    /// The whole body.
    All,
    /// Only names that are no misspelling of a known name, such as `Content_Length`.
    Own,
    /// None.
    None,
}

/// How near a body is to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// More may come from the source, or from filters.
    Ahead,
    /// The source has ended, and the sink does not know yet.
    Reached,
    /// The sink knows the end.
    Told,
}

/// A body on its way from one peer to another.
#[derive(Debug)]
pub struct BodyCopy {
    /// The peer being waited for.
    pub waiting: WaitingFor,
    /// The number of bytes taken from the source so far.
    pub moved: u64,
    /// The number of bytes given to the sink.
    pub sent: u64,
    /// The most that may be moved.
    pub limit: u64,
    /// Bytes kept for another attempt, and their limit; `None` once more than the limit was moved. Kept
    /// bytes that the present sink has not received yet are sent before anything else.
    pub kept: Option<KeptStart>,
    /// The trailers with an underscore in their name that are forwarded.
    pub underscores: Underscores,
    /// The checks of trailers.
    pub(super) trailers: Option<Box<Trailers>>,
    /// Filters of modules that the body goes through.
    pub filter: Option<Box<Filter>>,
    /// Bytes that were taken from the source earlier and are sent first. Bytes in memory count as
    /// moved when they are sent. Bytes in a temporary file have been counted already.
    pub front: Option<Front>,
    /// Observes the bytes that the sink takes.
    pub seen: Option<Box<SeenBody>>,
    pub(super) end: BodyEnd,
    gave_up: bool,
    /// The error of a filter in the start of the body. It is reported only after the head has been
    /// sent.
    broken: Option<CopyError>,
}

/// The number of bytes moved in a row. After them, other tasks of the worker run: a peer that is
/// always ready would hold the worker for milliseconds.
const BURST: u64 = 128 * 1024;
/// The size of the pieces in which kept bytes are sent.
const KEPT_PIECE: usize = 64 * 1024;
/// The number of bytes moved in a row through filters that are not quick. Such a filter may need a
/// millisecond for half of them.
const FILTERED_BURST: u64 = 32 * 1024;

impl BodyCopy {
    /// A body of which nothing has been moved yet.
    pub fn new() -> Self {
        Self {
            waiting: WaitingFor::Source,
            moved: 0,
            sent: 0,
            limit: u64::MAX,
            kept: None,
            underscores: Underscores::All,
            trailers: None,
            filter: None,
            front: None,
            seen: None,
            end: BodyEnd::Ahead,
            gave_up: false,
            broken: None,
        }
    }

    /// A body that is already complete: nothing is left to move.
    pub fn done() -> Self {
        Self { waiting: WaitingFor::Nobody, end: BodyEnd::Told, ..Self::new() }
    }

    /// Returns true if the whole body has been received and handed to the sink.
    pub fn is_done(&self) -> bool {
        self.waiting == WaitingFor::Nobody
    }

    /// Moves another body instead, all of which is in `front`. Nothing of the previous body may have been
    /// moved.
    pub fn replace(&mut self, front: Option<Front>) {
        (self.front, self.filter, self.broken) = (front, None, None);
    }

    /// Adds filters. Kept bytes, which were not sent yet, are filtered now.
    ///
    /// # Errors
    ///
    /// A filter cannot go on.
    pub fn filter_from_start(&mut self, chain: Chain, share: BudgetShare) -> Result<(), CopyError> {
        let filter = Filter::new(chain, share)?;
        let filter = self.filter.insert(Box::new(filter));
        if let Some(kept) = &mut self.kept {
            // Bytes in a file are filtered when they are sent.
            for piece in kept.take().bytes.chunks(Chain::PIECE) {
                filter.write(piece)?;
            }
        }
        if std::mem::replace(&mut self.end, BodyEnd::Ahead) != BodyEnd::Ahead {
            filter.end()?;
            self.waiting = WaitingFor::Sink;
        }
        Ok(())
    }

    /// Lets new filters process the first piece of the body before the head is sent. Pending until
    /// the piece has arrived.
    ///
    /// # Errors
    ///
    /// Filters need more memory than there is. Other errors abort the body only after its head was
    /// sent.
    pub fn poll_begin(
        &mut self,
        cx: &mut Context<'_>,
        filter: &mut Filter,
        source: Option<&mut Link>,
    ) -> Poll<Result<(), CopyError>> {
        let (written, count) = match (&mut self.front, source) {
            (None, None) => return Poll::Ready(Ok(())),
            (Some(front), _) => {
                ready!(front.poll_fill(cx))?;
                let piece = front.data();
                let piece = piece.get(..Chain::PIECE).unwrap_or(piece);
                let (written, count) = (filter.write(piece), piece.len());
                front.consume(count);
                if front.is_done() {
                    self.front = None;
                }
                (written, count)
            }
            (None, Some(source)) => {
                // An error is not handled here, because it occurs again when the body is moved.
                let Ok(ReceiveOutcome::Data) = ready!(source.poll_receive(cx)) else {
                    return Poll::Ready(Ok(()));
                };
                let piece = filter.start.piece(source.data());
                let (written, count) = (filter.write(piece), piece.len());
                source.consume(count);
                (written, count)
            }
        };
        self.moved += count as u64;
        match written {
            Err(CopyError::Memory) => Poll::Ready(Err(CopyError::Memory)),
            written => {
                self.broken = written.err();
                Poll::Ready(Ok(()))
            }
        }
    }

    /// The filters, unless the rest of the body bypasses them.
    fn filtering(&mut self) -> Option<&mut Filter> {
        // The filters get either all of `front` or none of it, even if they need no more bytes in the middle of it.
        let front = self.front.is_some();
        self.filter.as_deref_mut().filter(|filter| front || !filter.is_over())
    }

    /// Takes the fetch that a filter waits for; `None` if there is none, or it was taken already.
    pub fn question(&mut self) -> Option<FetchRequest> {
        self.filter.as_mut()?.chain.question()
    }

    /// A number that grows with each byte moved or sent, to detect a body that stalls.
    pub fn progress(&self) -> u64 {
        self.moved.wrapping_add(self.sent)
    }

    /// The source ended before anything was moved; the kept bytes are the whole body.
    pub fn source_ended(&mut self) {
        self.end = BodyEnd::Reached;
        self.waiting = WaitingFor::Nobody;
    }

    /// Stops moving the body, because the sink does not want it.
    pub fn give_up(&mut self) {
        self.gave_up = true;
        self.waiting = WaitingFor::Nobody;
    }

    /// Continues with another sink, from the first byte that the last sink has not accepted.
    pub fn resume(&mut self) {
        if std::mem::take(&mut self.gave_up) {
            self.waiting = WaitingFor::Source;
        }
    }

    /// Returns true if some of the body was not moved although it may have arrived.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Moves the available bytes, until the end of `source`, or of the kept bytes if `source` is `None`.
    /// Pending means that [`Self::waiting`] has to act first.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut source: Option<&mut Link>,
        sink: &mut Link,
    ) -> Poll<Result<(), CopyError>> {
        let moved = self.poll_moving(cx, source.as_deref_mut(), sink);
        if moved.is_pending()
            && self.waiting != WaitingFor::Source
            && let Some(source) = source
        {
            source.gather(cx);
        }
        moved
    }

    fn poll_moving(
        &mut self,
        cx: &mut Context<'_>,
        mut source: Option<&mut Link>,
        sink: &mut Link,
    ) -> Poll<Result<(), CopyError>> {
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Err(error));
        }
        let start = self.progress();
        loop {
            if self.end == BodyEnd::Told {
                return self.poll_flush(cx, sink, WaitingFor::Nobody);
            }
            let quick = self.filtering().map(|filter| filter.chain.is_quick());
            let burst = if quick == Some(false) { FILTERED_BURST } else { BURST };
            if self.progress().wrapping_sub(start) >= burst {
                give_way(cx);
                if quick.is_some() {
                    // Gathered bytes are not flushed yet: they leave together with the next bytes, if these arrive soon.
                    self.waiting = WaitingFor::Source;
                    return Poll::Pending;
                }
                return match self.poll_flush(cx, sink, WaitingFor::Source) {
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    _ => Poll::Pending,
                };
            }
            if self.kept.as_ref().is_some_and(|kept| !kept.due().is_empty()) {
                match self.poll_kept(cx, sink) {
                    Poll::Ready(Ok(())) => continue,
                    other => return other,
                }
            }
            if self.end == BodyEnd::Reached {
                match self.poll_finish(cx, source.as_deref_mut(), sink) {
                    Poll::Ready(Ok(())) => continue,
                    other => return other,
                }
            }
            match self.poll_filtered(cx, source.as_deref_mut(), sink) {
                Poll::Ready(Ok(())) if self.end == BodyEnd::Told => continue,
                Poll::Ready(Ok(())) => {}
                Poll::Pending if self.waiting == WaitingFor::Answer => {
                    // The output so far is flushed before the wait for the answer.
                    return match self.poll_flush(cx, sink, WaitingFor::Answer) {
                        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                        _ => Poll::Pending,
                    };
                }
                other => return other,
            }
            if self.front.as_ref().is_some_and(|front| !front.is_done()) {
                match self.poll_front(cx, sink) {
                    Poll::Ready(Ok(())) => continue,
                    other => return other,
                }
            }
            let received = match source.as_deref_mut() {
                Some(source) => source.poll_receive(cx),
                None => Poll::Ready(Ok(ReceiveOutcome::End)),
            };
            match received {
                Poll::Pending => {
                    if let Some(filter) = self.filtering() {
                        let more = filter.flush()?;
                        if filter.hurry() || more {
                            continue;
                        }
                    }
                    // The moved bytes are flushed before the wait for the source.
                    return match self.poll_flush(cx, sink, WaitingFor::Source) {
                        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                        _ => Poll::Pending,
                    };
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(CopyError::Source(error))),
                Poll::Ready(Ok(ReceiveOutcome::Data)) => {
                    match self.poll_data(cx, source.as_deref_mut(), sink) {
                        Poll::Pending => {
                            self.waiting = WaitingFor::Sink;
                            return Poll::Pending;
                        }
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Ready(Ok(())) => {}
                    }
                }
                Poll::Ready(Ok(ReceiveOutcome::End)) => match self.filtering() {
                    Some(filter) => filter.end()?,
                    None => match self.poll_finish(cx, source.as_deref_mut(), sink) {
                        Poll::Ready(Ok(())) => {}
                        other => return other,
                    },
                },
            }
        }
    }

    fn poll_finish(
        &mut self,
        cx: &mut Context<'_>,
        source: Option<&mut Link>,
        sink: &mut Link,
    ) -> Poll<Result<(), CopyError>> {
        let Some(source) = source else {
            sink.finish(&HeaderList::new()).map_err(CopyError::Sink)?;
            self.end = BodyEnd::Told;
            return Poll::Ready(Ok(()));
        };
        let trailers = source.trailers();
        if !trailers.is_empty() && sink.poll_room(cx).is_pending() {
            self.waiting = WaitingFor::Sink;
            return Poll::Pending;
        }
        self.clean(trailers);
        sink.finish(trailers).map_err(CopyError::Sink)?;
        // A further attempt would have to send the trailers again.
        if self.kept.is_none() && self.front.is_none() {
            source.drop_trailers();
        }
        self.end = BodyEnd::Told;
        Poll::Ready(Ok(()))
    }

    /// Sends filtered output, if it is due; nothing more is read from the source before that.
    fn poll_filtered(
        &mut self,
        cx: &mut Context<'_>,
        source: Option<&mut Link>,
        sink: &mut Link,
    ) -> Poll<Result<(), CopyError>> {
        if self.filtering().is_none() {
            return Poll::Ready(Ok(()));
        }
        let Some(mut filter) = self.filter.take() else { return Poll::Ready(Ok(())) };
        let start = self.sent;
        // If the rest bypasses the filters, it follows at once and needs no flush before.
        let written = !filter.pending().is_empty();
        let is_first = filter.start.is_due(written) && !filter.chain.is_quick() && filter.hurry();
        let sent = loop {
            if self.sent - start >= FILTERED_BURST {
                give_way(cx);
                self.waiting = WaitingFor::Sink;
                break Poll::Pending;
            }
            if filter.pending().is_empty() {
                match filter.resume() {
                    Ok(true) => continue,
                    Ok(false) if filter.chain.is_waiting() => match filter.flush() {
                        Ok(true) => continue,
                        Ok(false) => {
                            self.waiting = WaitingFor::Answer;
                            break Poll::Pending;
                        }
                        Err(error) => break Poll::Ready(Err(error)),
                    },
                    Ok(false) => break Poll::Ready(Ok(())),
                    Err(error) => break Poll::Ready(Err(error)),
                }
            }
            if !filter.is_due() {
                break Poll::Ready(Ok(()));
            }
            let sent = match filter.is_last() {
                true => sink.poll_send_last(cx, filter.pending()),
                false => sink.poll_send(cx, filter.pending()),
            };
            match sent {
                Poll::Ready(Ok(taken)) => {
                    self.took(filter.pending().get(..taken).unwrap_or_default());
                    filter.consume(taken);
                }
                Poll::Ready(Err(error)) => break Poll::Ready(Err(CopyError::Sink(error))),
                Poll::Pending => {
                    self.waiting = WaitingFor::Sink;
                    break Poll::Pending;
                }
            }
        };
        let ended = filter.ended && filter.pending().is_empty();
        self.filter = Some(filter);
        if ended && matches!(sent, Poll::Ready(Ok(()))) {
            match self.poll_finish(cx, source, sink) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        }
        // If this flush is pending, the sink is waited for only when there is more to send.
        if is_first
            && matches!(sent, Poll::Ready(Ok(())))
            && let Poll::Ready(Err(error)) = sink.poll_flush(cx)
        {
            return Poll::Ready(Err(CopyError::Sink(error)));
        }
        sent
    }

    /// Records the bytes that the sink has accepted, and keeps them for another attempt.
    fn took(&mut self, data: &[u8]) {
        self.sent += data.len() as u64;
        if let Some(seen) = &mut self.seen {
            seen.take(data);
        }
        if let Some(kept) = &mut self.kept
            && !kept.append(data)
        {
            self.kept = None;
        }
    }

    /// Sends kept bytes to a sink that has not received them yet.
    fn poll_kept(&mut self, cx: &mut Context<'_>, sink: &mut Link) -> Poll<Result<(), CopyError>> {
        let Some(kept) = &mut self.kept else { return Poll::Ready(Ok(())) };
        let due = kept.due();
        let Poll::Ready(taken) = sink.poll_send(cx, due.get(..KEPT_PIECE).unwrap_or(due)) else {
            self.waiting = WaitingFor::Sink;
            return Poll::Pending;
        };
        let taken = taken.map_err(CopyError::Sink)?;
        kept.consume(taken);
        self.sent += taken as u64;
        Poll::Ready(Ok(()))
    }

    /// Moves bytes that were taken from the source earlier.
    fn poll_front(&mut self, cx: &mut Context<'_>, sink: &mut Link) -> Poll<Result<(), CopyError>> {
        if let Some(sent) = self.poll_send_document(cx, sink) {
            return sent;
        }
        let Some(front) = &mut self.front else { return Poll::Ready(Ok(())) };
        match front.poll_fill(cx) {
            Poll::Ready(filled) => filled?,
            // While the disk is slow, the bytes so far are flushed to the sink.
            Poll::Pending => {
                return match self.poll_flush(cx, sink, WaitingFor::File) {
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    _ => Poll::Pending,
                };
            }
        }
        let data = front.data();
        let count = match &mut self.filter {
            Some(filter) => {
                let piece = data.get(..Chain::PIECE).unwrap_or(data);
                filter.write(piece)?;
                piece.len()
            }
            None => match sink.poll_send(cx, data) {
                Poll::Ready(taken) => {
                    let taken = taken.map_err(CopyError::Sink)?;
                    self.sent += taken as u64;
                    if let Some(seen) = &mut self.seen {
                        seen.take(data.get(..taken).unwrap_or_default());
                    }
                    taken
                }
                Poll::Pending => {
                    self.waiting = WaitingFor::Sink;
                    return Poll::Pending;
                }
            },
        };
        front.consume(count);
        if let Front::Memory { .. } | Front::Document(_) = front {
            self.moved += count as u64;
            if front.is_done() {
                self.front = None;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
        source: Option<&mut Link>,
        sink: &mut Link,
    ) -> Poll<Result<(), CopyError>> {
        let Some(source) = source else { return Poll::Ready(Ok(())) };
        let data = source.data();
        if self.moved.saturating_add(data.len() as u64) > self.limit {
            return Poll::Ready(Err(CopyError::TooLarge));
        }
        if let Some(filter) = self.filtering() {
            let piece = filter.start.piece(data);
            filter.write(piece)?;
            let count = piece.len();
            source.consume(count);
            self.moved += count as u64;
            return Poll::Ready(Ok(()));
        }
        let taken = match sink.poll_send(cx, data) {
            Poll::Ready(taken) => taken.map_err(CopyError::Sink)?,
            Poll::Pending => return Poll::Pending,
        };
        self.took(data.get(..taken).unwrap_or_default());
        source.consume(taken);
        self.moved += taken as u64;
        Poll::Ready(Ok(()))
    }

    fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut Link,
        then: WaitingFor,
    ) -> Poll<Result<(), CopyError>> {
        match sink.poll_flush(cx) {
            Poll::Ready(Ok(())) => {
                self.waiting = then;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(CopyError::Sink(error))),
            Poll::Pending => {
                self.waiting = WaitingFor::Sink;
                Poll::Pending
            }
        }
    }
}

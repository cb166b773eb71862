//! A response that is received ahead of a slow client, so that its origin is free before the client has all of it.
//!
//! Received bytes are kept in memory, and beyond a bound in a temporary file. Nothing is kept while the client reads as
//! fast as the origin sends. Once the bounds are reached, or if there is no memory and no file, the origin is read only
//! as fast as the client reads.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use foregate_wire::HeaderList;

use super::turn::give_way;
use super::{Link, LinkError, ReceiveOutcome};
use crate::limits::account::Account;
use crate::limits::budget::BudgetShare;
use crate::limits::spool::{Reader, Spool, SpoolError, Spools};
use crate::settings::BufferResponses;

/// The number of bytes received ahead in a row. After them, other tasks of the worker run.
const BURST: usize = 256 * 1024;

/// The files for responses.
#[derive(Debug)]
pub struct AheadFiles {
    /// The files of the process.
    pub spools: Arc<Spools>,
    /// The folder of the files.
    pub folder: PathBuf,
    /// The account of the client for which memory and files are used.
    pub account: Account,
}

type Written = (Result<Arc<Spool>, SpoolError>, Vec<u8>);
type Writing = Pin<Box<dyn Future<Output = Written> + Send + Sync>>;

/// The link of an origin with a response that is received ahead of the client.
///
/// The client gets bytes in this order: those in the file, those being written to it, those in memory, then those of
/// the origin.
pub struct AheadLink {
    /// The link of the origin; `None` once [`Self::take_origin`] has taken it.
    origin: Option<Link>,
    /// The result at the end of the origin's response.
    end: Option<Result<(), LinkError>>,
    trailers: HeaderList,
    limits: BufferResponses,
    memory: Vec<u8>,
    /// The number of bytes of `memory` that have been consumed.
    gone: usize,
    /// The memory budget's share for `memory` and for the bytes being written to the file.
    share: BudgetShare,
    file: Option<Reader>,
    writing: Option<Writing>,
    /// The number of bytes being written to the file.
    on_its_way: usize,
    /// `None` once a file could not be made or written.
    files: Option<AheadFiles>,
    /// True once a file was made.
    pub used_file: bool,
}

impl AheadLink {
    /// Nothing has been received yet.
    pub fn new(limits: BufferResponses, share: BudgetShare, files: AheadFiles) -> Self {
        Self {
            origin: None,
            end: None,
            trailers: HeaderList::new(),
            limits,
            memory: Vec::new(),
            gone: 0,
            share,
            file: None,
            writing: None,
            on_its_way: 0,
            files: Some(files),
            used_file: false,
        }
    }

    /// Takes the link of an origin, and puts itself in its place.
    pub fn before(self, link: &mut Link) {
        let origin = std::mem::replace(link, Link::Ahead(Box::new(self)));
        if let Link::Ahead(ahead) = link {
            ahead.origin = Some(origin);
        }
    }

    /// Returns true if the whole response has been received and the origin's link is still here.
    pub fn has_all(&self) -> bool {
        self.end == Some(Ok(())) && self.origin.is_some()
    }

    /// The origin's own link.
    pub fn take_origin(&mut self) -> Option<Link> {
        self.origin.take()
    }

    /// Returns true for a stream of an HTTP/2 connection.
    pub fn is_h2(&self) -> bool {
        self.origin.as_ref().is_some_and(Link::is_h2)
    }

    /// Waits for some of the body, or for its end.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<ReceiveOutcome, LinkError>> {
        loop {
            match &mut self.file {
                Some(file) if !file.is_done() => {
                    ready!(file.poll_fill(cx)).map_err(|_| LinkError::File)?;
                    return Poll::Ready(Ok(ReceiveOutcome::Data));
                }
                _ => {}
            }
            if self.writing.is_none() {
                break;
            }
            ready!(self.poll_written(cx));
        }
        // The file has been read completely: dropping it frees its space.
        self.file = None;
        if self.gone < self.memory.len() {
            return Poll::Ready(Ok(ReceiveOutcome::Data));
        }
        match (self.end, &mut self.origin) {
            (Some(end), _) => Poll::Ready(end.map(|()| ReceiveOutcome::End)),
            (None, None) => Poll::Ready(Err(LinkError::Truncated)),
            (None, Some(origin)) => {
                let received = ready!(origin.poll_receive(cx));
                if received != Ok(ReceiveOutcome::Data) {
                    self.ended(received.map(|_| ()));
                }
                Poll::Ready(received)
            }
        }
    }

    /// Receives from the origin while the client takes nothing, up to the bounds.
    pub fn gather(&mut self, cx: &mut Context<'_>) {
        let mut received = 0;
        while self.end.is_none() {
            if self.writing.is_some() && self.poll_written(cx).is_pending() && self.is_full() {
                return;
            }
            if self.is_full() && !self.begin_writing() {
                return;
            }
            let Some(origin) = &mut self.origin else { return };
            match origin.poll_receive(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(ReceiveOutcome::Data)) => {
                    let left = self.limits.memory.saturating_sub(self.memory.len());
                    let data = origin.data();
                    let data = data.get(..left).unwrap_or(data);
                    let count = data.len();
                    let length = self.memory.len() + count + self.on_its_way;
                    if !self.share.hold(length) {
                        // With memory full, a write to the file may make room.
                        if self.gone == self.memory.len() || !self.begin_writing() {
                            return;
                        }
                        continue;
                    }
                    self.memory.extend_from_slice(data);
                    origin.consume(count);
                    received += count;
                }
                Poll::Ready(other) => self.ended(other.map(|_| ())),
            }
            if received >= BURST {
                return give_way(cx);
            }
        }
    }

    /// Returns true if no more fits into memory.
    fn is_full(&self) -> bool {
        self.memory.len() >= self.limits.memory
    }

    fn ended(&mut self, end: Result<(), LinkError>) {
        if let Some(origin) = &mut self.origin {
            self.trailers.clone_from(origin.trailers());
            origin.drop_trailers();
        }
        self.end = Some(end);
    }

    /// Starts to write the bytes in memory to the file. Returns false if that is not possible now.
    fn begin_writing(&mut self) -> bool {
        let waiting = self.memory.len() - self.gone;
        let in_file = self.file.as_ref().map_or(0, Reader::len);
        if self.writing.is_some() || waiting == 0 || in_file + waiting as u64 > self.limits.size {
            return false;
        }
        let Some(files) = &self.files else { return false };
        let mut bytes = std::mem::take(&mut self.memory);
        bytes.drain(..std::mem::take(&mut self.gone));
        self.on_its_way = bytes.len();
        let spool = self.file.as_ref().map(Reader::spool);
        let (spools, folder, account) = (Arc::clone(&files.spools), files.folder.clone(), files.account);
        self.writing = Some(Box::pin(async move {
            let spool = match spool {
                Some(spool) => spool,
                None => match spools.create(&folder, account).await {
                    Ok(spool) => spool,
                    Err(error) => return (Err(error), bytes),
                },
            };
            let written = spool.append(&mut bytes).await;
            (written.map(|()| spool), bytes)
        }));
        true
    }

    /// Waits until the present write to the file has ended. If it fails, its bytes return to memory, and the file is not
    /// written any more.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(writing) = &mut self.writing else { return Poll::Ready(()) };
        let (written, mut bytes) = ready!(writing.as_mut().poll(cx));
        (self.writing, self.on_its_way) = (None, 0);
        match written {
            Ok(spool) => {
                self.used_file = true;
                self.file.get_or_insert_with(|| Reader::new(spool));
            }
            Err(_) => {
                self.files = None;
                bytes.extend_from_slice(self.memory.get(self.gone..).unwrap_or_default());
                (self.memory, self.gone) = (bytes, 0);
            }
        }
        self.settle();
        Poll::Ready(())
    }

    /// Gives back memory that is not needed any more.
    fn settle(&mut self) {
        // A smaller share is always granted.
        let _ = self.share.hold(self.memory.len() + self.on_its_way);
    }

    /// The received and unconsumed bytes.
    pub fn data(&self) -> &[u8] {
        match (&self.file, self.memory.get(self.gone..), &self.origin) {
            (Some(file), _, _) if !file.is_done() => file.data(),
            (_, Some(waiting), _) if !waiting.is_empty() => waiting,
            (_, _, Some(origin)) => origin.data(),
            _ => &[],
        }
    }

    /// Drops the first `count` bytes of [`Self::data`].
    pub fn consume(&mut self, count: usize) {
        match &mut self.file {
            Some(file) if !file.is_done() => return file.consume(count),
            _ => {}
        }
        if self.gone < self.memory.len() {
            self.gone += count;
            if self.gone == self.memory.len() {
                (self.memory, self.gone) = (Vec::new(), 0);
                self.settle();
            }
        } else if let Some(origin) = &mut self.origin {
            origin.consume(count);
        }
    }

    /// The trailers; complete at the body's end.
    pub fn trailers(&mut self) -> &mut HeaderList {
        &mut self.trailers
    }

    /// The trailers are not needed any more.
    pub fn drop_trailers(&mut self) {
        self.trailers = HeaderList::new();
    }

    /// Passes data to the origin. Usually there is none, because the request is complete before its
    /// response is received ahead.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, LinkError>> {
        self.origin
            .as_mut()
            .map_or(Poll::Ready(Err(LinkError::Truncated)), |origin| origin.poll_send(cx, data))
    }

    /// Ends the body that is being sent.
    pub fn finish(&mut self, trailers: &HeaderList) -> Result<(), LinkError> {
        self.origin.as_mut().map_or(Err(LinkError::Truncated), |origin| origin.finish(trailers))
    }

    /// Aborts the exchange with the origin.
    pub fn abort(&mut self) {
        if let Some(origin) = &mut self.origin {
            origin.abort();
        }
    }
}

impl std::fmt::Debug for AheadLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AheadLink")
            .field("origin", &self.origin)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

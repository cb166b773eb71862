//! Filters of bodies.

mod aside;
mod link;
mod start;

use alloc::boxed::Box;
use alloc::vec::Vec;

use self::aside::Aside;
use self::link::{Link, at_work, drain, give, push};
pub use self::start::Start;
use crate::fetch::{FetchRequest, FetchResult};
use crate::value::Value;

/// The sink of a filter.
pub trait Sink {
    /// Takes these bytes.
    fn write(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn write(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A filter that changes a body while it streams.
///
/// A filter gets the body in pieces of any size up to [`Chain::PIECE`] bytes, and writes its output to a sink. It must
/// not hold more than its budget. The platform takes the output away before the next piece, so a filter needs no memory
/// for output that is larger than the input.
pub trait BodyFilter: Send {
    /// Filters a piece.
    ///
    /// # Errors
    ///
    /// The filter cannot continue: see [`Bail`].
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail>;

    /// Returns true if the filter can write more output without further input. A filter with output that may be much
    /// larger than its input, such as decompression, writes a few tens of KiB at a time, keeps the rest of the piece,
    /// and returns true. It then gets empty pieces until it returns false. Default: false.
    fn pending(&self) -> bool {
        false
    }

    /// Returns true if the filter holds nothing and leaves the rest of the body unchanged. The body then bypasses the
    /// filter, which is only asked for its [report](Self::report). Called after each operation. Default: false.
    fn is_over(&self) -> bool {
        false
    }

    /// Returns true if the filter currently takes only a few microseconds for a piece. Nothing is gained then by sending
    /// the start of the body before the rest is filtered. Default: false.
    fn is_quick(&self) -> bool {
        false
    }

    /// Writes output that is held back for efficiency, as compression does. Called when the source of the body has nothing
    /// more for now, because the receiver may wait for this output. Incomplete input, such as half a token, stays held. May
    /// be called at any time before the end, and several times in a row. Default: nothing is held back.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    fn flush(&mut self, _out: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    /// Takes the fetch that the filter needs before it can write more. The filter then [waits](Self::waits) for the answer,
    /// and keeps input that arrives in the meantime. Default: `None`.
    fn question(&mut self) -> Option<FetchRequest> {
        None
    }

    /// Returns true if the filter has a fetch to make, or waits for its answer. The filter must not be
    /// [pending](Self::pending) in this state. Default: false.
    fn waits(&self) -> bool {
        false
    }

    /// Handles the answer to the fetch.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    fn answer(&mut self, _answer: FetchResult, _out: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    /// Handles the end of the body: writes all held output. A filter that waits for an answer writes the rest after it,
    /// during calls with empty pieces while it is [pending](Self::pending).
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail>;

    /// Gives up because the budget is exceeded: writes held input unchanged, so that no byte is lost.
    ///
    /// # Errors
    ///
    /// [`Bail::Break`] if the rest cannot pass unchanged, for example within a compressed stream.
    fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail>;

    /// The number of bytes of input that the filter holds and has not written yet. They count towards its
    /// [budget](Filtered::budget).
    fn held(&self) -> usize;

    /// Reports events to count; called once, at the end of the body or after it was broken off. Default: none.
    fn report(&mut self, _tell: &mut dyn FnMut(Finding)) {}
}

/// The list of filters that need the response's body without content coding. If the list has an entry, a decoding step
/// removes the content coding, and applies it again for the client.
#[derive(Debug)]
pub struct PlainBody;

impl Value for PlainBody {
    type Data = Wish;
    const NAME: &'static str = "response.plain-body";
    const ABOUT: &'static str = "The filters that need the response's body without its content coding.";
}

/// An entry of [`PlainBody`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// The step of the filter.
    pub step: &'static str,
    /// True if the filter is [dry](Filtered::dry): the body for the client must stay unchanged.
    pub dry: bool,
}

/// The list in which a step records that its filter removes the content coding of the response's body.
#[derive(Debug)]
pub struct DecodedBody;

impl Value for DecodedBody {
    type Data = Decoded;
    const NAME: &'static str = "response.decoded-body";
    const ABOUT: &'static str = "The content coding that the response's body had.";
}

/// An entry of [`DecodedBody`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    /// The coding, by its name in fields.
    pub coding: &'static str,
    /// True if only filters in a dry run see the decoded body, and the client gets the body as it arrived.
    pub dry: bool,
}

/// An event that a filter reports about a body, for the metric `foregate_step_events_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// The step that the event belongs to. A filter may act for several steps.
    pub step: &'static str,
    /// The event, a constant name.
    pub event: &'static str,
    /// The number of events.
    pub count: u64,
}

impl Finding {
    /// The event for a filter in a dry run that has panicked. The body has continued without the filter.
    pub const PANIC: &'static str = "dry-run-panic";
}

/// The event for a part of a body (206) that has passed without a filter, because the filter, or a feature of it,
/// changes the length.
pub const PART_PASSED: &str = "part-passed";

/// The traffic of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// The step that it belongs to.
    pub step: &'static str,
    /// The number of bytes of input. Bytes that bypass the filter do not count.
    pub taken: u64,
    /// The number of bytes of output.
    pub given: u64,
    /// The time that the filter has run, without the filters after it, nanoseconds; 0 without a [clock](Chain::clock).
    pub nanos: u64,
    /// The longest time that the filter has run without a pause, nanoseconds.
    pub longest: u64,
}

/// The reason why a filter cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bail {
    /// The filter has written everything that it held, including the present piece. The rest of the body passes unchanged.
    Pass,
    /// The body has to be broken off, so that its receiver notices that a part is missing.
    Break,
    /// The body exceeds its limit. A request is answered with 413.
    TooLarge,
}

/// A filter with its properties for the platform.
pub struct Filtered {
    /// The step that it belongs to, for metrics.
    pub name: &'static str,
    /// The filter.
    pub filter: Box<dyn BodyFilter>,
    /// The most bytes that the filter may hold. If it holds more, the platform calls `bail`.
    pub budget: usize,
    /// True if the length of the body stays the same. Otherwise `content-length` is removed, a strong validator becomes
    /// weak, and ranges are no longer offered. A part of a body (206) bypasses a filter that changes the length, which is
    /// counted as [`PART_PASSED`]. A step with a filter that must not be bypassed can request the whole body instead:
    /// see [`Step::TRIES_PARTS`](crate::Step::TRIES_PARTS).
    pub keeps_length: bool,
    /// True for a dry run: the filter reads a copy of the body, and the body itself passes unchanged. A dry filter gets the
    /// output of the dry filter directly before it.
    pub dry: bool,
}

impl Filtered {
    /// A filter that changes lengths and takes the body as received, with a budget of 64 KiB.
    pub fn new(name: &'static str, filter: impl BodyFilter + 'static) -> Self {
        Self { name, filter: Box::new(filter), budget: 64 * 1024, keeps_length: false, dry: false }
    }

    /// Removes the filters that must not filter a part of a body (206) as if it were the whole body. Calls `passed` with
    /// the step of each removed filter that would have changed the length: platforms count it as [`PART_PASSED`].
    pub fn keep_for_part(filters: &mut Vec<Self>, mut passed: impl FnMut(&'static str)) {
        filters.retain(|filter| {
            if filter.changes_length() {
                passed(filter.name);
            }
            filter.keeps_length
        });
    }

    /// Returns true if the length of the body may change.
    pub fn changes_length(&self) -> bool {
        !self.keeps_length && !self.dry
    }
}

/// A chain of filters: the output of each is the input of the next.
pub struct Chain {
    links: Vec<Link>,
    clock: Option<Clock>,
    /// Once the body has ended: the number of filters that have written all of their output.
    ended: Option<usize>,
}

/// A clock that returns nanoseconds since an arbitrary moment.
type Clock = fn() -> u64;

/// Calls its argument once, and returns false if it panicked. Only a platform with
/// the standard library can provide it.
pub type Guard = fn(&mut dyn FnMut()) -> bool;

/// The result of a call of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// The filter that has bailed out during this call. The rest of the body bypasses it.
    pub bailed: Option<&'static str>,
}

impl Chain {
    /// The largest piece that filters get at once, bytes.
    pub const PIECE: usize = 4096;

    /// Creates a chain of filters, in this order.
    pub fn new(filters: Vec<Filtered>) -> Self {
        Self::guarded(filters, |run| {
            run();
            true
        })
    }

    /// Creates a chain for a platform that can catch panics. If a filter in a dry run panics, the body stays unchanged, and
    /// the panic is [reported](Finding::PANIC).
    pub fn guarded(filters: Vec<Filtered>, guard: Guard) -> Self {
        let mut links: Vec<Link> = Vec::with_capacity(filters.len());
        let mut dry = Vec::new();
        for mut filtered in filters {
            if core::mem::take(&mut filtered.dry) {
                dry.push(filtered);
                continue;
            }
            links.extend(Aside::link(&mut dry, guard));
            links.push(Link::new(filtered));
        }
        links.extend(Aside::link(&mut dry, guard));
        Self { links, clock: None, ended: None }
    }

    /// Sets a clock, in nanoseconds, to measure filters.
    #[must_use]
    pub fn clock(self, clock: fn() -> u64) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Reports traffic and events, at the end of the body or after it was broken off.
    pub fn report(&mut self, moved: &mut dyn FnMut(Traffic), found: &mut dyn FnMut(Finding)) {
        for link in &mut self.links {
            let (step, Link { taken, given, nanos, longest, .. }) = (link.filtered.name, &link);
            if !step.is_empty() {
                moved(Traffic { step, taken: *taken, given: *given, nanos: *nanos, longest: *longest });
            }
            link.found.drain(..).for_each(&mut *found);
            if !link.running {
                link.filtered.filter.report(found);
            }
        }
    }

    /// The filter that panicked, for platforms that have caught a panic. The chain must not be used afterwards.
    pub fn panicked(&self) -> Option<&'static str> {
        // A filter runs within the writes of the filters before it, so the last running one has panicked.
        self.links.iter().rfind(|link| link.running).map(|link| link.filtered.name)
    }

    /// Returns true if there are no filters.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Returns true if the rest of the body bypasses all filters: platforms may pass it on without the chain, and need not call
    /// `end`.
    pub fn is_over(&self) -> bool {
        self.links.iter().all(|link| link.passing)
    }

    /// Returns true if a piece takes only a few microseconds in all filters: see [`BodyFilter::is_quick`].
    pub fn is_quick(&self) -> bool {
        self.links.iter().all(|link| link.passing || link.filtered.filter.is_quick())
    }

    /// Filters a piece and writes the output to `out`.
    ///
    /// # Errors
    ///
    /// The body cannot continue. The error has the reason, which is never [`Bail::Pass`], and the filter.
    pub fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<Passed, (Bail, &'static str)> {
        let mut passed = Passed::default();
        push(&mut self.links, piece, self.clock, out, &mut passed)?;
        Ok(passed)
    }

    /// Returns true if a filter can write more output without further input. Platforms take the output away and call
    /// [`resume`](Self::resume) before the next piece, so that a small piece with a large output needs little memory. If a
    /// platform does not, nothing is lost: the rest is written with the next piece.
    pub fn is_pending(&self) -> bool {
        let blocked = self.blocked();
        let rest = self.links.get(blocked.map_or(0, |at| at + 1)..).unwrap_or_default();
        rest.iter().any(Link::pending) || blocked.is_none() && self.is_ending()
    }

    /// The number of the last filter that waits for an answer. The filters before it must not write.
    fn blocked(&self) -> Option<usize> {
        self.links.iter().rposition(Link::waits)
    }

    fn is_ending(&self) -> bool {
        self.ended.is_some_and(|ended| ended < self.links.len())
    }

    /// Returns true if a filter waits for an answer. Before the next piece, platforms perform the fetch
    /// ([`question`](Self::question), [`answer`](Self::answer)); in the meantime they take the output away.
    pub fn is_waiting(&self) -> bool {
        self.blocked().is_some()
    }

    /// The step with the waiting filter.
    pub fn asking(&self) -> Option<&'static str> {
        Some(self.links.get(self.blocked()?)?.filtered.name)
    }

    /// Takes the fetch of the waiting filter; `None` if there is none, or it was taken before.
    pub fn question(&mut self) -> Option<FetchRequest> {
        let at = self.blocked()?;
        self.links.get_mut(at)?.filtered.filter.question()
    }

    /// Passes the answer to the fetch that was taken last.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn answer(
        &mut self,
        answer: FetchResult,
        out: &mut dyn Sink,
    ) -> Result<Passed, (Bail, &'static str)> {
        let mut passed = Passed::default();
        let at = self.blocked();
        if let Some([link, rest @ ..]) = at.and_then(|at| self.links.get_mut(at..)) {
            at_work(link, rest, self.clock, out, &mut passed, |filtered, next| {
                filtered.filter.answer(answer, next)
            })?;
        }
        Ok(passed)
    }

    /// Lets the last pending filter of the chain write more.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn resume(&mut self, out: &mut dyn Sink) -> Result<Passed, (Bail, &'static str)> {
        let mut passed = Passed::default();
        let first = self.blocked().map_or(0, |at| at + 1);
        let last = self.links.iter().rposition(Link::pending).filter(|last| *last >= first);
        match last.and_then(|last| self.links.get_mut(last..)) {
            Some([link, rest @ ..]) => give(link, rest, b"", self.clock, out, &mut passed)?,
            _ => self.go_on_ending(out, &mut passed)?,
        }
        Ok(passed)
    }

    /// The number of bytes that all filters hold now.
    pub fn held(&self) -> usize {
        let held = |link: &Link| if link.passing { 0 } else { link.filtered.filter.held() };
        self.links.iter().map(held).fold(0, usize::saturating_add)
    }

    /// Makes the filter that holds the most memory give up, as if it had exceeded its budget. Platforms call this if all of
    /// their filters together hold too much.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write): the filter cannot let the rest of the body pass unchanged.
    pub fn relieve(&mut self, out: &mut dyn Sink) -> Result<Passed, (Bail, &'static str)> {
        let (mut passed, clock) = (Passed::default(), self.clock);
        let active = self.links.iter().enumerate().filter(|(_, link)| !link.passing);
        let most = active.max_by_key(|(_, link)| link.filtered.filter.held()).map(|(number, _)| number);
        if let Some([link, rest @ ..]) = most.and_then(|most| self.links.get_mut(most..)) {
            at_work(link, rest, clock, out, &mut passed, |filtered, next| {
                filtered.filter.bail(next).and(Err(Bail::Pass))
            })?;
        }
        Ok(passed)
    }

    /// Flushes the filters: writes output that was held only for efficiency to `out`. Platforms call this before they wait
    /// for the source of the body.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn flush(&mut self, out: &mut dyn Sink) -> Result<Passed, (Bail, &'static str)> {
        let mut passed = Passed::default();
        let first = self.blocked().map_or(0, |at| at + 1);
        let mut links = self.links.get_mut(first..).unwrap_or_default();
        while let [link, rest @ ..] = links {
            if !link.passing {
                drain(link, rest, self.clock, out, &mut passed)?;
            }
            if !link.passing {
                at_work(link, rest, self.clock, out, &mut passed, |filtered, next| {
                    filtered.filter.flush(next)
                })?;
            }
            if link.waits() {
                break;
            }
            links = rest;
        }
        Ok(passed)
    }

    /// Ends the body and writes held output to `out`. If a filter waits for an answer, the rest is written after the
    /// answer, when the chain is [resumed](Self::resume).
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn end(&mut self, out: &mut dyn Sink) -> Result<Passed, (Bail, &'static str)> {
        let mut passed = Passed::default();
        self.ended.get_or_insert(0);
        self.go_on_ending(out, &mut passed)?;
        Ok(passed)
    }

    /// Ends the filters in order. A filter is ended once all filters before it have written all of their output.
    fn go_on_ending(&mut self, out: &mut dyn Sink, passed: &mut Passed) -> Result<(), (Bail, &'static str)> {
        let Some(ended) = &mut self.ended else { return Ok(()) };
        while let Some([link, rest @ ..]) = self.links.get_mut(*ended..) {
            if !link.passing {
                drain(link, rest, self.clock, out, passed)?;
            }
            if link.waits() {
                return Ok(());
            }
            if !link.passing && !core::mem::replace(&mut link.told, true) {
                at_work(link, rest, self.clock, out, passed, |filtered, next| filtered.filter.end(next))?;
                drain(link, rest, self.clock, out, passed)?;
                if link.waits() {
                    return Ok(());
                }
            }
            *ended += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

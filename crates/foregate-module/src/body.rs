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
/// A filter gets the body in pieces of any size, at most [`Chain::PIECE`] bytes, and writes its output. It must not
/// hold more than its budget; output is taken away before the next piece, so that a filter whose output grows needs
/// no memory for that.
pub trait BodyFilter: Send {
    /// Takes a piece.
    ///
    /// # Errors
    ///
    /// The filter cannot go on: see [`Bail`].
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail>;

    /// Returns true if there is more output without another piece. A filter that can make much of little, such as
    /// decompression, writes some ten KiB at once, keeps the rest of the piece, and returns true; it is then given empty pieces
    /// until it returns false. Default: false.
    fn pending(&self) -> bool {
        false
    }

    /// Returns true if the rest of the body passes unchanged and nothing of it is held: the body then bypasses
    /// the filter, which is only asked for its [report](Self::report). Called after each operation.
    /// Default: false.
    fn is_over(&self) -> bool {
        false
    }

    /// Returns true if the filter currently takes only a few microseconds for a piece: sending the start of
    /// the body before filtering the rest gains nothing then. Default: false.
    fn is_quick(&self) -> bool {
        false
    }

    /// The body's source has nothing more for now, and its receiver may wait for held output: a filter that holds output
    /// back, as compression does, writes it. Incomplete input, such as half a token, stays held. Called
    /// at any time before the end, several times in a row too. Default: nothing is held back.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    fn flush(&mut self, _out: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    /// Takes the fetch that the filter needs before it can write more. It [waits](Self::waits) until the answer arrives;
    /// input in the meantime is kept. Default: `None`.
    fn question(&mut self) -> Option<FetchRequest> {
        None
    }

    /// Returns true if the filter has a fetch to make, or waits for its answer. It is not [pending](Self::pending) then. Default:
    /// false.
    fn waits(&self) -> bool {
        false
    }

    /// The answer to its question.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    fn answer(&mut self, _answer: FetchResult, _out: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    /// The body has ended; held output is written. A filter that waits writes the rest after its answer,
    /// in calls with empty pieces while it is [pending](Self::pending).
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail>;

    /// Gives up: held input is written unchanged, so that no byte is lost. Called when the budget is exceeded.
    ///
    /// # Errors
    ///
    /// [`Bail::Break`] if the rest cannot pass unchanged, as within a compressed stream.
    fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail>;

    /// The number of bytes that the filter holds, which count for its [budget](Filtered::budget): input that is kept
    /// and not yet written. 0 for a filter that keeps nothing.
    fn held(&self) -> usize;

    /// Reports events to count; called once, at the end of the body or after it was broken off. Default: none.
    fn report(&mut self, _tell: &mut dyn FnMut(Finding)) {}
}

/// The list of filters that will need the response's body without content coding: a
/// step that decodes does so if there is an entry, and encodes again for the client.
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
    /// The filter is [dry](Filtered::dry): the client's body must stay unchanged.
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
    /// Only filters in a dry run see the decoded body; the client gets the body as it arrived.
    pub dry: bool,
}

/// Something that a filter has come across in a body, for metrics: `foregate_step_events_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// The step; a filter may act for several.
    pub step: &'static str,
    /// The event, a constant name.
    pub event: &'static str,
    /// How often.
    pub count: u64,
}

impl Finding {
    /// The event that a filter in a dry run has panicked: the body has gone on without it.
    pub const PANIC: &'static str = "dry-run-panic";
}

/// The event that a part of a body has passed without a filter, or a feature of one, that changes lengths.
pub const PART_PASSED: &str = "part-passed";

/// The traffic of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// The step that it belongs to.
    pub step: &'static str,
    /// Bytes of input; bytes that pass after it has bailed out or is over do not count.
    pub taken: u64,
    /// Bytes of output.
    pub given: u64,
    /// How long it was at work; 0 without a [clock](Chain::clock). Those after it do not count.
    pub nanos: u64,
    /// The longest that it was at work without a pause.
    pub longest: u64,
}

/// Why a filter cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bail {
    /// It has written everything that it held, including the present piece; the rest passes unchanged.
    Pass,
    /// Break the body off, so that its receiver notices that something is missing.
    Break,
    /// The body exceeds its limit. For a request: 413.
    TooLarge,
}

/// A filter with its properties for the platform.
pub struct Filtered {
    /// The step that it belongs to, for metrics.
    pub name: &'static str,
    /// The filter.
    pub filter: Box<dyn BodyFilter>,
    /// The most that it may hold, bytes. Beyond, the platform calls `bail`.
    pub budget: usize,
    /// Set if the length of the body stays the same. Otherwise `content-length` is removed, a strong validator becomes weak,
    /// and ranges are no longer offered. A part of a body (206) passes without a filter that changes its length, which is
    /// counted as [`PART_PASSED`]: a filter that has to see every whole body asks for it, see
    /// [`Step::TRIES_PARTS`](crate::Step::TRIES_PARTS).
    pub keeps_length: bool,
    /// It reads a copy of the body, which passes unchanged. Consecutive dry filters get each other's output.
    pub dry: bool,
}

impl Filtered {
    /// A filter that changes lengths and takes the body as received, with a budget of 64 KiB.
    pub fn new(name: &'static str, filter: impl BodyFilter + 'static) -> Self {
        Self { name, filter: Box::new(filter), budget: 64 * 1024, keeps_length: false, dry: false }
    }

    /// Leaves out the filters that cannot be put before a part of a body (206), which cannot be changed as if it were all of it.
    /// `passed` gets the steps of the filters that would have changed its length: platforms count them as [`PART_PASSED`].
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
    /// Once the body has ended: how many filters have written all that they had.
    ended: Option<usize>,
}

/// Nanoseconds since some moment.
type Clock = fn() -> u64;

/// Calls its argument once, and returns false if it panicked. Only a platform with
/// the standard library can provide it.
pub type Guard = fn(&mut dyn FnMut()) -> bool;

/// The result for a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// The filter that has bailed out now, and will no longer be asked.
    pub bailed: Option<&'static str>,
}

impl Chain {
    /// The largest piece that filters get at once, bytes.
    pub const PIECE: usize = 4096;

    /// Filters in their order.
    pub fn new(filters: Vec<Filtered>) -> Self {
        Self::guarded(filters, |run| {
            run();
            true
        })
    }

    /// For a platform that can catch panics: a panic of a filter in a dry run leaves the body unchanged, and is
    /// [reported](Finding::PANIC).
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

    /// For platforms that have caught a panic: the filter that panicked. The chain must not be used after that.
    pub fn panicked(&self) -> Option<&'static str> {
        // Later filters run within the writes of earlier ones.
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

    /// Filters a piece; output goes to `out`.
    ///
    /// # Errors
    ///
    /// The body cannot go on, with the filter that decided: never [`Bail::Pass`].
    pub fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<Passed, (Bail, &'static str)> {
        let mut passed = Passed::default();
        push(&mut self.links, piece, self.clock, out, &mut passed)?;
        Ok(passed)
    }

    /// Returns true if a filter has more output without another piece. Platforms take the output away and call
    /// [`resume`](Self::resume) before the next piece, so that a small piece that becomes large needs no memory. If
    /// they do not, nothing is lost: the rest is written with the next piece, all at once.
    pub fn is_pending(&self) -> bool {
        let blocked = self.blocked();
        let rest = self.links.get(blocked.map_or(0, |at| at + 1)..).unwrap_or_default();
        rest.iter().any(Link::pending) || blocked.is_none() && self.is_ending()
    }

    /// The last filter that waits for an answer: filters before it must not write.
    fn blocked(&self) -> Option<usize> {
        self.links.iter().rposition(Link::waits)
    }

    fn is_ending(&self) -> bool {
        self.ended.is_some_and(|ended| ended < self.links.len())
    }

    /// Returns true if a filter waits for an answer. Platforms make its fetch ([`question`](Self::question),
    /// [`answer`](Self::answer)) before the next piece, and take the output away in the meantime.
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

    /// Answers the question that was taken last.
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

    /// Lets the filter that is pending, and nearest to the receiver, write more.
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

    /// Bytes that all filters hold now.
    pub fn held(&self) -> usize {
        let held = |link: &Link| if link.passing { 0 } else { link.filtered.filter.held() };
        self.links.iter().map(held).fold(0, usize::saturating_add)
    }

    /// Makes the filter that holds the most memory give up, as if it had exceeded its budget: for platforms whose filters hold
    /// too much in total.
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

    /// Flushes the filters: the body's source has nothing more for now, so output that was held only for efficiency
    /// goes to `out`. Platforms call it before they wait for the source.
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

    /// Ends the body; held output goes to `out`. If a filter waits for an answer, the rest comes after
    /// the answer, when the chain is [resumed](Self::resume).
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

    /// Ends the filters in order, each after the output of those before it.
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

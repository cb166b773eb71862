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

/// Where a filter writes.
pub trait Sink {
    /// Takes these bytes.
    fn write(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn write(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Changes a body while it streams.
///
/// A filter gets the body in pieces of any size, at most [`Chain::PIECE`] bytes, and writes what shall go on. It must not
/// keep more than its budget; what it writes is taken away before it gets more, so that a filter whose output grows needs
/// no memory for that.
pub trait BodyFilter: Send {
    /// Takes a piece.
    ///
    /// # Errors
    ///
    /// The filter cannot go on: see [`Bail`].
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail>;

    /// Whether more is to be written without another piece. A filter that can make much of little, such as one that
    /// decompresses, writes some ten KiB at once, keeps the rest of the piece, and says so here; it is given empty pieces
    /// until it has no more. Default: no.
    fn pending(&self) -> bool {
        false
    }

    /// Whether the rest of the body passes unchanged, whatever comes, and nothing of it is held: then the body goes on
    /// without the filter, which is only asked for its [report](Self::report) any more. Asked whenever it has done something.
    /// Default: no.
    fn is_over(&self) -> bool {
        false
    }

    /// Whether the filter has made something of a piece within few microseconds, as of now: then nobody gains when the start of
    /// the body is sent before the rest of what has come goes through it. Default: no.
    fn is_quick(&self) -> bool {
        false
    }

    /// The body's source has nothing more for now, and its receiver may wait for what is held: a filter that holds output
    /// back, as compression does, writes it. Input of which the end has not come, such as half a token, stays held. Called
    /// at any time before the end, several times in a row too. Default: nothing is held back.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    fn flush(&mut self, _out: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    /// What has to be fetched before the filter can write more. From then on it [waits](Self::waits) until it is answered;
    /// what it is given meanwhile it keeps. Default: nothing.
    fn question(&mut self) -> Option<FetchRequest> {
        None
    }

    /// Whether the filter has a question, or waits for the answer to one. It is not [pending](Self::pending) then. Default:
    /// no.
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

    /// The body has ended; what is still held is written. A filter that waits writes the rest once it has been answered,
    /// when it is given empty pieces as it is [pending](Self::pending).
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail>;

    /// Gives up: what is held is written as it came, so that no byte is lost. Called when the budget is exceeded.
    ///
    /// # Errors
    ///
    /// [`Bail::Break`] if the rest cannot pass unchanged, as within a compressed stream.
    fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail>;

    /// Bytes that the filter holds now, which count for its [budget](Filtered::budget): the length of what it keeps of pieces
    /// and has not written. 0 for a filter that keeps nothing.
    fn held(&self) -> usize;

    /// What is to be counted of the body; asked once, when it is over or has been broken off. Default: nothing.
    fn report(&mut self, _tell: &mut dyn FnMut(Finding)) {}
}

/// The list of those who are going to put a filter before the response's body that needs it without content coding: a
/// step that decodes does so where there is an entry, and encodes again what the client has been promised.
#[derive(Debug)]
pub struct PlainBody;

impl Value for PlainBody {
    type Data = Wish;
    const NAME: &'static str = "response.plain-body";
    const ABOUT: &'static str = "Who needs the response's body without its content coding.";
}

/// An entry of [`PlainBody`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// The step whose filter it is.
    pub step: &'static str,
    /// The filter is [dry](Filtered::dry): what the client gets must stay as it is.
    pub dry: bool,
}

/// The list in which a step says that it has put a filter before the response's body that takes its content coding off.
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
    /// Only dry filters see the body decoded; the client gets it as it came.
    pub dry: bool,
}

/// Something that a filter has come across in a body, for metrics: `foregate_step_events_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// The step on whose behalf; a filter may act for several.
    pub step: &'static str,
    /// What, as a constant name.
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

/// What a filter has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// The step that it belongs to.
    pub step: &'static str,
    /// Bytes that it got; what passes by once it has bailed out or is over does not count.
    pub taken: u64,
    /// Bytes that it wrote.
    pub given: u64,
    /// How long it was at work; 0 without a [clock](Chain::clock). Those behind it do not count.
    pub nanos: u64,
    /// The longest that it was at work without a pause.
    pub longest: u64,
}

/// Why a filter cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bail {
    /// It has written all that it held, the present piece included; the rest passes as it comes.
    Pass,
    /// The body is broken off, so that its receiver sees that something is missing.
    Break,
    /// The body is longer than it may be. For a request: 413.
    TooLarge,
}

/// A filter, and what the platform has to know of it.
pub struct Filtered {
    /// The step that it belongs to, for metrics.
    pub name: &'static str,
    /// The filter.
    pub filter: Box<dyn BodyFilter>,
    /// The most that it may hold, bytes. Beyond, it is told to bail out.
    pub budget: usize,
    /// Whether the body has the same length afterwards. If not, `content-length` goes, a strong validator becomes weak,
    /// and ranges are no longer offered. A part of a body (206) passes without a filter that does not keep its length, which is
    /// counted as [`PART_PASSED`]: one that has to see all of every body asks for the whole, see
    /// [`Step::TRIES_PARTS`](crate::Step::TRIES_PARTS).
    pub keeps_length: bool,
    /// It sees the body, and the body goes on without it. Such filters behind each other get what the one before wrote.
    pub dry: bool,
}

impl Filtered {
    /// A filter that changes lengths and takes the body as it comes, with a budget of 64 KiB.
    pub fn new(name: &'static str, filter: impl BodyFilter + 'static) -> Self {
        Self { name, filter: Box::new(filter), budget: 64 * 1024, keeps_length: false, dry: false }
    }

    /// Leaves out the filters that cannot be put before a part of a body (206), which cannot be changed as if it were all of it.
    /// `passed` is told the steps of those that would have changed its length: platforms count them as [`PART_PASSED`].
    pub fn keep_for_part(filters: &mut Vec<Self>, mut passed: impl FnMut(&'static str)) {
        filters.retain(|filter| {
            if filter.changes_length() {
                passed(filter.name);
            }
            filter.keeps_length
        });
    }

    /// Whether the body may have another length afterwards.
    pub fn changes_length(&self) -> bool {
        !self.keeps_length && !self.dry
    }
}

/// Filters behind each other: what one writes the next one gets.
pub struct Chain {
    links: Vec<Link>,
    clock: Option<Clock>,
    /// Once the body has ended: how many filters have written all that they had.
    ended: Option<usize>,
}

/// Nanoseconds since some moment.
type Clock = fn() -> u64;

/// Calls what it is given once, and tells whether that has come to its end: false when it has panicked. Only a platform with
/// the standard library can tell.
pub type Guard = fn(&mut dyn FnMut()) -> bool;

/// What became of a piece.
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

    /// The same on a platform that can catch panics: one of a filter in a dry run leaves the body as it is, and is
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

    /// The same with a clock, which tells nanoseconds since some moment, to measure filters by.
    #[must_use]
    pub fn clock(self, clock: fn() -> u64) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// What is to be counted, once the body is over or has been broken off.
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

    /// For platforms that have caught a panic of a filter: whose it was. The chain must not be given anything after that.
    pub fn panicked(&self) -> Option<&'static str> {
        // What a filter writes, those behind it get while it is at work itself.
        self.links.iter().rfind(|link| link.running).map(|link| link.filtered.name)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Whether the rest of the body passes by all filters: platforms may hand it on without the chain, and need not tell it
    /// of the end.
    pub fn is_over(&self) -> bool {
        self.links.iter().all(|link| link.passing)
    }

    /// Whether pieces go through all filters within few microseconds: see [`BodyFilter::is_quick`].
    pub fn is_quick(&self) -> bool {
        self.links.iter().all(|link| link.passing || link.filtered.filter.is_quick())
    }

    /// Takes a piece; what comes out goes to `out`.
    ///
    /// # Errors
    ///
    /// The body cannot go on, and which filter says so: never [`Bail::Pass`].
    pub fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<Passed, (Bail, &'static str)> {
        let mut passed = Passed::default();
        push(&mut self.links, piece, self.clock, out, &mut passed)?;
        Ok(passed)
    }

    /// Whether a filter has more to write without another piece. Platforms take away what was written and call
    /// [`resume`](Self::resume) before they hand in more, so that a small piece that becomes large needs no memory. Where
    /// they do not, nothing is lost: the rest is written with the next piece, all at once.
    pub fn is_pending(&self) -> bool {
        let blocked = self.blocked();
        let rest = self.links.get(blocked.map_or(0, |at| at + 1)..).unwrap_or_default();
        rest.iter().any(Link::pending) || blocked.is_none() && self.is_ending()
    }

    /// Where filters wait for an answer: those before the last of them must not write.
    fn blocked(&self) -> Option<usize> {
        self.links.iter().rposition(Link::waits)
    }

    fn is_ending(&self) -> bool {
        self.ended.is_some_and(|ended| ended < self.links.len())
    }

    /// Whether a filter waits for an answer. Platforms give it what it asks for ([`question`](Self::question),
    /// [`answer`](Self::answer)) before they hand in more, and take away what was written meanwhile.
    pub fn is_waiting(&self) -> bool {
        self.blocked().is_some()
    }

    /// The step whose filter waits for an answer.
    pub fn asking(&self) -> Option<&'static str> {
        Some(self.links.get(self.blocked()?)?.filtered.name)
    }

    /// What the filter that waits asks for; `None` if nobody asks, or it has been taken already.
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

    /// Tells the filter that holds most to give up, as if it had exceeded its budget: for platforms whose filters hold too
    /// much together.
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

    /// The body's source has nothing more for now; what filters hold back for no other reason than to do better with more
    /// goes to `out`. For platforms to call before they wait for the source.
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

    /// The body has ended; what is still held goes to `out`. Where a filter waits for an answer, the rest comes when it has
    /// been answered and the chain is [resumed](Self::resume).
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

    /// Tells filters that the body has ended, each after it has got what those before it had to write.
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

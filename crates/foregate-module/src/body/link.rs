//! A filter as a link of a chain, and the calls of its methods.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Bail, BodyFilter, Clock, Filtered, Finding, Passed, Sink};

/// A filter of a chain.
pub(super) struct Link {
    pub filtered: Filtered,
    /// True if the body bypasses the filter, because it has bailed out or is over.
    pub passing: bool,
    /// True after `end` has been called.
    pub told: bool,
    pub taken: u64,
    pub given: u64,
    pub nanos: u64,
    pub longest: u64,
    /// The filter's events at the time when the body began to bypass it.
    pub found: Vec<Finding>,
    /// True while a method of the filter runs. It stays true if the filter panics.
    pub running: bool,
}

impl Link {
    pub fn new(filtered: Filtered) -> Self {
        Self {
            filtered,
            passing: false,
            told: false,
            taken: 0,
            given: 0,
            nanos: 0,
            longest: 0,
            found: Vec::new(),
            running: false,
        }
    }

    pub fn pending(&self) -> bool {
        !self.passing && self.filtered.filter.pending()
    }

    pub fn waits(&self) -> bool {
        !self.passing && self.filtered.filter.waits()
    }

    /// Lets the rest of the body bypass the filter. Its memory is freed; its events are kept.
    fn leave(&mut self) {
        self.passing = true;
        let mut gone = core::mem::replace(&mut self.filtered.filter, Box::new(Gone));
        gone.report(&mut |finding| self.found.push(finding));
    }
}

/// The sink of a filter: the filters after it.
pub(super) struct Behind<'a> {
    links: &'a mut [Link],
    clock: Option<Clock>,
    out: &'a mut dyn Sink,
    passed: &'a mut Passed,
    failed: Option<(Bail, &'static str)>,
    /// The number of bytes that the filter has written.
    given: u64,
    /// The time that the filters after this one took, nanoseconds.
    nanos: u64,
}

impl Sink for Behind<'_> {
    fn write(&mut self, bytes: &[u8]) {
        if self.failed.is_some() || bytes.is_empty() {
            return;
        }
        self.given += bytes.len() as u64;
        if self.links.is_empty() {
            return self.out.write(bytes);
        }
        let began = self.clock.map(|clock| clock());
        self.failed = push(self.links, bytes, self.clock, self.out, self.passed).err();
        self.nanos += since(self.clock, began);
    }
}

fn since(clock: Option<Clock>, began: Option<u64>) -> u64 {
    clock.zip(began).map_or(0, |(clock, began)| clock().saturating_sub(began))
}

/// Gives a piece to the first of these filters, or to `out`.
pub(super) fn push(
    links: &mut [Link],
    piece: &[u8],
    clock: Option<Clock>,
    out: &mut dyn Sink,
    passed: &mut Passed,
) -> Result<(), (Bail, &'static str)> {
    match links.split_first_mut() {
        None => out.write(piece),
        Some((link, rest)) => {
            drain(link, rest, clock, out, passed)?;
            if link.passing {
                return push(rest, piece, clock, out, passed);
            }
            give(link, rest, piece, clock, out, passed)?;
        }
    }
    Ok(())
}

/// Lets a filter write everything that it can write without further input.
pub(super) fn drain(
    link: &mut Link,
    rest: &mut [Link],
    clock: Option<Clock>,
    out: &mut dyn Sink,
    passed: &mut Passed,
) -> Result<(), (Bail, &'static str)> {
    while link.pending() {
        give(link, rest, b"", clock, out, passed)?;
    }
    Ok(())
}

/// Gives a piece to a filter that has not bailed out.
pub(super) fn give(
    link: &mut Link,
    rest: &mut [Link],
    piece: &[u8],
    clock: Option<Clock>,
    out: &mut dyn Sink,
    passed: &mut Passed,
) -> Result<(), (Bail, &'static str)> {
    link.taken += piece.len() as u64;
    at_work(link, rest, clock, out, passed, |filtered, next| {
        let written = filtered.filter.write(piece, next);
        if written.is_ok() && filtered.filter.held() > filtered.budget {
            return filtered.filter.bail(next).and(Err(Bail::Pass));
        }
        written
    })
}

/// Calls a method of a filter, and counts its time and output.
pub(super) fn at_work(
    link: &mut Link,
    rest: &mut [Link],
    clock: Option<Clock>,
    out: &mut dyn Sink,
    passed: &mut Passed,
    work: impl FnOnce(&mut Filtered, &mut Behind<'_>) -> Result<(), Bail>,
) -> Result<(), (Bail, &'static str)> {
    let mut next = Behind { links: rest, clock, out, passed, failed: None, given: 0, nanos: 0 };
    let began = clock.map(|clock| clock());
    link.running = true;
    let done = work(&mut link.filtered, &mut next);
    link.running = false;
    link.given += next.given;
    let took = since(clock, began).saturating_sub(next.nanos);
    link.nanos += took;
    link.longest = link.longest.max(took);
    match next.failed {
        Some(failed) => Err(failed),
        None => settle(link, done, passed),
    }
}

/// Replaces a filter that the body bypasses. Its methods are never called.
struct Gone;

impl BodyFilter for Gone {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        out.write(piece);
        Ok(())
    }

    fn end(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn held(&self) -> usize {
        0
    }
}

/// Records the state of a filter.
fn settle(
    link: &mut Link,
    result: Result<(), Bail>,
    passed: &mut Passed,
) -> Result<(), (Bail, &'static str)> {
    match result {
        Ok(()) => {
            if link.filtered.filter.is_over() {
                link.leave();
            }
            Ok(())
        }
        Err(Bail::Pass) => {
            link.leave();
            passed.bailed = Some(link.filtered.name);
            Ok(())
        }
        Err(bail) => Err((bail, link.filtered.name)),
    }
}

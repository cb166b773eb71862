//! Filters in a dry run.

use alloc::vec::Vec;

use crate::fetch::FetchError;

use super::{Bail, BodyFilter, Chain, Filtered, Finding, Guard, Link, Passed, Sink};

/// Filters in a dry run: they get a copy of the body, and what they write is dropped. Where one fails, or panics, they have
/// nothing more to say.
pub(super) struct Aside {
    chain: Chain,
    guard: Guard,
    failed: bool,
    /// Whose filter has panicked.
    panicked: Option<&'static str>,
}

/// Where the output of dry runs goes.
struct Nowhere;

impl Sink for Nowhere {
    fn write(&mut self, _: &[u8]) {}
}

impl Aside {
    /// The filters that were collected, if there are any, as one that has no name and changes nothing.
    pub(super) fn link(dry: &mut Vec<Filtered>, guard: Guard) -> Option<Link> {
        let filters = core::mem::take(dry);
        (!filters.is_empty()).then(|| {
            let aside = Self { chain: Chain::new(filters), guard, failed: false, panicked: None };
            Link::new(Filtered { budget: usize::MAX, keeps_length: true, ..Filtered::new("", aside) })
        })
    }

    fn tell(&mut self, tell: impl FnOnce(&mut Chain, &mut Nowhere) -> Result<Passed, (Bail, &'static str)>) {
        if self.failed {
            return;
        }
        let (chain, mut tell, mut failed) = (&mut self.chain, Some(tell), true);
        let whole = (self.guard)(&mut || {
            failed = tell.take().is_none_or(|tell| tell(chain, &mut Nowhere).is_err());
            // Nothing is fetched for a dry run.
            while !failed && chain.question().is_some() {
                failed = chain.answer(Err(FetchError::BadRequest), &mut Nowhere).is_err();
            }
        });
        self.failed = failed || !whole;
        if !whole {
            self.panicked = self.chain.panicked();
        }
    }
}

impl BodyFilter for Aside {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        out.write(piece);
        self.tell(|chain, nowhere| match piece {
            [] => chain.resume(nowhere),
            piece => chain.write(piece, nowhere),
        });
        Ok(())
    }

    fn pending(&self) -> bool {
        !self.failed && self.chain.is_pending()
    }

    fn is_over(&self) -> bool {
        self.failed || self.chain.is_over()
    }

    fn flush(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        self.tell(|chain, nowhere| chain.flush(nowhere));
        Ok(())
    }

    fn end(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        self.tell(|chain, nowhere| chain.end(nowhere));
        Ok(())
    }

    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn held(&self) -> usize {
        if self.failed { 0 } else { self.chain.held() }
    }

    fn report(&mut self, tell: &mut dyn FnMut(Finding)) {
        self.chain.report(&mut |_| {}, tell);
        if let Some(step) = self.panicked.take() {
            tell(Finding { step, event: Finding::PANIC, count: 1 });
        }
    }
}

//! Filters in a dry run.

use alloc::vec::Vec;

use crate::fetch::FetchError;

use super::{Bail, BodyFilter, Chain, Filtered, Finding, Link, Passed, Sink};

/// Filters in a dry run: they get a copy of the body, and what they write is dropped. One that fails has nothing more to
/// say.
pub(super) struct Aside {
    chain: Chain,
    failed: bool,
}

/// Where the output of dry runs goes.
struct Nowhere;

impl Sink for Nowhere {
    fn write(&mut self, _: &[u8]) {}
}

impl Aside {
    /// The filters that were collected, if there are any, as one that has no name and changes nothing.
    pub(super) fn link(dry: &mut Vec<Filtered>) -> Option<Link> {
        let filters = core::mem::take(dry);
        (!filters.is_empty()).then(|| {
            let aside = Self { chain: Chain::new(filters), failed: false };
            Link::new(Filtered { budget: usize::MAX, keeps_length: true, ..Filtered::new("", aside) })
        })
    }

    fn tell(&mut self, tell: impl FnOnce(&mut Chain, &mut Nowhere) -> Result<Passed, (Bail, &'static str)>) {
        if !self.failed {
            self.failed = tell(&mut self.chain, &mut Nowhere).is_err();
        }
        // Nothing is fetched for a dry run.
        while !self.failed && self.chain.question().is_some() {
            self.failed = self.chain.answer(Err(FetchError::BadRequest), &mut Nowhere).is_err();
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
    }
}

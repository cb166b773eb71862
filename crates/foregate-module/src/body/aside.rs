//! Filters in a dry run.

use alloc::vec::Vec;

use crate::fetch::FetchError;

use super::{Bail, BodyFilter, Chain, Filtered, Finding, Guard, Link, Passed, Sink};

/// A filter that runs filters in a dry run: they get a copy of the body, and their output is dropped. After a failure
/// or a panic they are skipped.
pub(super) struct Aside {
    chain: Chain,
    guard: Guard,
    failed: bool,
    /// The filter that panicked.
    panicked: Option<&'static str>,
    /// The filter that would have broken off the body because it is too long.
    too_large: Option<&'static str>,
    /// The state of the filters after the last call. It is stored, because methods of the filters are only called within
    /// the guard.
    state: FilterStates,
}

/// The state of filters.
#[derive(Clone, Copy)]
struct FilterStates {
    pending: bool,
    over: bool,
    held: usize,
}

impl FilterStates {
    /// The state of filters that are skipped.
    const GONE: Self = Self { pending: false, over: true, held: 0 };

    fn of(chain: &Chain) -> Self {
        Self { pending: chain.is_pending(), over: chain.is_over(), held: chain.held() }
    }
}

/// The sink of filters in a dry run.
struct Nowhere;

impl Sink for Nowhere {
    fn write(&mut self, _: &[u8]) {}
}

impl Aside {
    /// Combines the collected dry filters, if there are any, to one filter that has no name and changes nothing.
    pub(super) fn link(dry: &mut Vec<Filtered>, guard: Guard) -> Option<Link> {
        let filters = core::mem::take(dry);
        (!filters.is_empty()).then(|| {
            let chain = Chain::new(filters);
            let mut aside = Self {
                chain,
                guard,
                failed: false,
                panicked: None,
                too_large: None,
                state: FilterStates::GONE,
            };
            aside.tell(|_, _| Ok(Passed::default()));
            Link::new(Filtered { budget: usize::MAX, keeps_length: true, ..Filtered::new("", aside) })
        })
    }

    fn tell(&mut self, tell: impl FnOnce(&mut Chain, &mut Nowhere) -> Result<Passed, (Bail, &'static str)>) {
        if self.failed {
            return;
        }
        let (chain, mut tell, mut failed, mut said) = (&mut self.chain, Some(tell), true, FilterStates::GONE);
        let too_large = &mut self.too_large;
        let whole = (self.guard)(&mut || {
            let told = tell.take().map(|tell| tell(chain, &mut Nowhere));
            if let Some(Err((Bail::TooLarge, step))) = told {
                *too_large = Some(step);
            }
            failed = !matches!(told, Some(Ok(_)));
            // A dry run makes no fetches.
            while !failed && chain.question().is_some() {
                failed = chain.answer(Err(FetchError::BadRequest), &mut Nowhere).is_err();
            }
            if !failed {
                said = FilterStates::of(chain);
            }
        });
        self.failed = failed || !whole;
        self.state = said;
        if !whole {
            self.has_panicked();
        }
    }

    /// Records the filter that panicked: the running one, or the first if the panic happened during a query.
    fn has_panicked(&mut self) {
        let first = || self.chain.links.first().map(|link| link.filtered.name);
        self.panicked = self.panicked.or_else(|| self.chain.panicked()).or_else(first);
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
        self.state.pending
    }

    fn is_over(&self) -> bool {
        self.state.over
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
        self.state.held
    }

    fn report(&mut self, tell: &mut dyn FnMut(Finding)) {
        let chain = &mut self.chain;
        if !(self.guard)(&mut || chain.report(&mut |_| {}, tell)) {
            self.has_panicked();
        }
        if let Some(step) = self.panicked.take() {
            tell(Finding { step, event: Finding::PANIC, count: 1 });
        }
        if let Some(step) = self.too_large.take() {
            tell(Finding { step, event: crate::DRY_RUN, count: 1 });
        }
    }
}

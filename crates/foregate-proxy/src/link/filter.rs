//! The filters that modules apply to a body, and their output.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::time::Instant;

use foregate_module::{Bail, Chain, FetchRequest, FetchResult, Filtered, Passed, Start};

use crate::limits::budget::BudgetShare;
use crate::limits::buffer_size;
use crate::transport::outcome::CopyError;

/// Chains filters, with a clock that measures them. If a filter in a dry run panics, the panic is
/// caught.
pub fn chain(filters: Vec<Filtered>) -> Chain {
    Chain::guarded(filters, |run| catch_unwind(AssertUnwindSafe(run)).is_ok()).clock(|| {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
    })
}

/// Filters with their pending output.
pub struct Filter {
    /// The filters.
    pub chain: Chain,
    out: Vec<u8>,
    sent: usize,
    /// The number of output bytes gathered before they are sent, while the source has more.
    room: usize,
    /// True once the source has ended and the filters have been told.
    pub(super) ended: bool,
    /// True if the filters have been flushed since their last input.
    flushed: bool,
    /// True if the output must be sent at once.
    hurried: bool,
    /// Failures of filters, to be counted.
    pub faults: Faults,
    /// True if the filters may change the body. Trailers may not describe it any more then.
    pub rewrites: bool,
    /// How the start of the body is sent.
    pub(super) start: Start,
    /// The share of the memory budget for filters.
    share: BudgetShare,
}

/// The result of filters for a piece.
type Ran = Result<Passed, (Bail, &'static str)>;

/// Failures of filters, by the names of their steps.
#[derive(Debug, Default)]
pub struct Faults {
    /// The steps of the filters that have given up and let the rest of the body pass unchanged.
    pub bailed: Vec<&'static str>,
    /// The step of the filter that has aborted the body.
    pub broke: Option<&'static str>,
    /// The step of the filter that has panicked.
    pub panicked: Option<&'static str>,
}

/// The capacity that an empty output buffer keeps, and the amount gathered at first, bytes.
const FILTER_KEPT: usize = buffer_size::SMALL;
/// The amount of output, in bytes, that is gathered after [`FILTER_KEPT`] has proved too little.
/// Larger pieces wake the receiver less often.
const FILTER_LARGE: usize = buffer_size::LARGE;

impl Filter {
    /// A chain of filters with memory from `share`.
    ///
    /// # Errors
    ///
    /// There is not enough memory for them.
    pub fn new(chain: Chain, share: BudgetShare) -> Result<Self, CopyError> {
        let (out, faults, start) = (Vec::new(), Faults::default(), Start::default());
        let mut filter = Self {
            chain,
            out,
            sent: 0,
            room: FILTER_KEPT,
            ended: false,
            flushed: true,
            hurried: false,
            faults,
            rewrites: false,
            start,
            share,
        };
        filter.account()?;
        Ok(filter)
    }

    /// Sends the start of the body [early](Start::SOON), before the usual amount is gathered.
    #[must_use]
    pub fn begins_soon(mut self) -> Self {
        self.start = Start::SOON;
        self
    }

    /// Filters a piece of a body that is completely available; `last` is true for the last piece.
    /// Returns the fetch that a filter waits for. After the answer to this fetch, the caller calls this
    /// again without a piece, until `None` is returned.
    ///
    /// # Errors
    ///
    /// A filter cannot go on.
    pub fn of_whole(&mut self, piece: Option<&[u8]>, last: bool) -> Result<Option<FetchRequest>, CopyError> {
        if let Some(piece) = piece {
            self.write(piece)?;
        }
        if last && !self.ended {
            self.end()?;
        }
        while self.resume()? {}
        Ok(self.chain.question())
    }

    /// The name of the step with the filter that waits for a fetch.
    pub fn asking(&self) -> &'static str {
        self.chain.asking().unwrap_or_default()
    }

    /// Takes the output of filters.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Drops the filters. Returns a memory share for the output that was [taken](Self::take_output), of
    /// `bytes` bytes.
    pub fn into_share(self, bytes: usize) -> BudgetShare {
        let mut share = self.share;
        // The share covers these bytes already, together with the memory of the filters.
        let _ = share.hold(bytes);
        share
    }

    /// Passes the answer to a filter's fetch.
    ///
    /// # Errors
    ///
    /// A filter cannot go on.
    pub fn answer(&mut self, answer: FetchResult) -> Result<(), CopyError> {
        self.flushed = false;
        self.run(|chain, out| chain.answer(answer, out))
    }

    /// The unsent output.
    pub(super) fn pending(&self) -> &[u8] {
        self.out.get(self.sent..).unwrap_or_default()
    }

    /// Records that `count` bytes of the output have been sent.
    pub(super) fn consume(&mut self, count: usize) {
        self.sent += count;
        if self.sent >= self.out.len() {
            if self.sent + Chain::PIECE > self.room {
                self.room = FILTER_LARGE;
            }
            self.sent = 0;
            self.hurried = false;
            self.out.clear();
            self.out.shrink_to(FILTER_KEPT);
            self.let_go();
        }
    }

    /// Returns true if the rest of the body bypasses all filters, and no output is left to send
    /// before it.
    pub(super) fn is_over(&self) -> bool {
        self.chain.is_over() && self.pending().is_empty()
    }

    /// Returns true if output has to be sent before more is filtered. While the source has more,
    /// output is gathered, to make fewer and larger pieces.
    pub(super) fn is_due(&self) -> bool {
        let full = self.pending().len() + Chain::PIECE > self.room;
        let stops = self.ended || self.chain.is_pending() || self.chain.is_waiting() || self.chain.is_over();
        !self.pending().is_empty() && (full || stops || self.hurried)
    }

    /// Returns true if the output is the last of the body.
    pub(super) fn is_last(&self) -> bool {
        self.ended && !self.chain.is_pending() && !self.chain.is_waiting()
    }

    /// Makes the output due, although the source may have more soon. Returns true if there is any.
    pub(super) fn hurry(&mut self) -> bool {
        self.hurried = !self.pending().is_empty();
        self.hurried
    }

    /// Frees the buffer and its share once the rest of the body bypasses the filters.
    fn let_go(&mut self) {
        if self.is_over() {
            self.out = Vec::new();
            // Cannot fail: a share can always become smaller.
            let _ = self.share.hold(0);
        }
    }

    /// Gives filters a piece.
    pub(super) fn write(&mut self, piece: &[u8]) -> Result<(), CopyError> {
        self.flushed = false;
        self.run(|chain, out| chain.write(piece, out))
    }

    /// Lets the filters write output that needs no further input. Returns true if they had any.
    pub(super) fn resume(&mut self) -> Result<bool, CopyError> {
        if !self.chain.is_pending() {
            return Ok(false);
        }
        self.run(|chain, out| chain.resume(out))?;
        Ok(true)
    }

    /// Flushes the filters, because no input is available. Returns true if there is output.
    pub(super) fn flush(&mut self) -> Result<bool, CopyError> {
        if std::mem::replace(&mut self.flushed, true) {
            return Ok(false);
        }
        self.run(|chain, out| chain.flush(out))?;
        Ok(!self.pending().is_empty() || self.chain.is_pending())
    }

    /// Tells the filters that the source has ended.
    pub(super) fn end(&mut self) -> Result<(), CopyError> {
        self.ended = true;
        self.run(|chain, out| chain.end(out))
    }

    /// Runs the filters, and records failures.
    fn run(&mut self, work: impl FnOnce(&mut Chain, &mut Vec<u8>) -> Ran) -> Result<(), CopyError> {
        // Bytes that were sent must not pile up in the buffer while some output is always pending,
        // as with a window that opens bit by bit.
        if self.sent > 0 && self.sent >= self.pending().len() {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        self.guarded(work)?;
        self.account()?;
        self.let_go();
        Ok(())
    }

    fn guarded(&mut self, work: impl FnOnce(&mut Chain, &mut Vec<u8>) -> Ran) -> Result<(), CopyError> {
        // A panic ends the body: the filters are not used after it.
        let ran = catch_unwind(AssertUnwindSafe(|| work(&mut self.chain, &mut self.out)));
        match ran {
            Ok(Ok(passed)) => {
                self.faults.bailed.extend(passed.bailed);
                Ok(())
            }
            Ok(Err((bail, step))) => {
                self.faults.broke = Some(step);
                Err(match bail {
                    Bail::TooLarge => CopyError::TooLarge,
                    Bail::Break | Bail::Pass => CopyError::Filter(step),
                })
            }
            Err(_) => {
                let step = self.chain.panicked().unwrap_or("");
                self.faults.panicked = Some(step);
                Err(CopyError::Panicked(step))
            }
        }
    }

    /// Updates the share to the memory that the filters hold. If there is not enough memory, the filter
    /// that holds the most gives up.
    fn account(&mut self) -> Result<(), CopyError> {
        if self.share.hold(self.chain.held() + self.out.capacity()) {
            return Ok(());
        }
        self.guarded(|chain, out| chain.relieve(out)).map_err(|error| match error {
            CopyError::Panicked(step) => CopyError::Panicked(step),
            _ => CopyError::Memory,
        })?;
        if self.share.hold(self.chain.held() + self.out.capacity()) { Ok(()) } else { Err(CopyError::Memory) }
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter").field("pending", &self.pending().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use foregate_module::testing::PassOn;

    use super::*;
    use crate::limits::account::Account;
    use crate::limits::budget::Budget;

    #[test]
    fn what_never_empties_does_not_grow() {
        let budget = Arc::new(Budget::new(64 << 20));
        let mut filter =
            Filter::new(chain(vec![Filtered::new("plain", PassOn)]), budget.share(Account::PROCESS)).unwrap();
        let piece: Vec<u8> = (0..4096).map(|at| (at % 251) as u8).collect();
        let (mut written, mut read) = (Vec::new(), Vec::new());
        filter.write(&piece).unwrap();
        written.extend_from_slice(&piece);
        for _ in 0..10_000 {
            filter.write(&piece[..1000]).unwrap();
            written.extend_from_slice(&piece[..1000]);
            read.extend_from_slice(&filter.pending()[..1000]);
            filter.consume(1000);
        }
        assert_eq!(filter.pending().len(), 4096);
        read.extend_from_slice(filter.pending());
        assert!(read == written, "the same bytes in the same order");
        assert!(filter.out.capacity() <= 64 * 1024, "{}", filter.out.capacity());
    }
}

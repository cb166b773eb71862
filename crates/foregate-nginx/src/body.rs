//! Moves the body of a response through its filters into buffers of a fixed size.

use crate::share::Share;
use foregate_module::{Bail, Chain, FetchRequest, FetchResult, Finding, Passed, Sink, Start};

/// The capacity that the overflow buffer keeps once it is empty.
const SPILL_KEPT: usize = 16 * 1024;

/// A body on its way through filters.
pub(crate) struct Body {
    chain: Chain,
    /// The overflow: output that did not fit into the last buffer. A filter writes at most a few tens of KiB at once.
    spill: Vec<u8>,
    /// The number of bytes that have been taken out of the overflow.
    taken: usize,
    ended: bool,
    /// Set if the waiting filter's fetch has been reported.
    asked: bool,
    /// Set if the filters were flushed after a filter began to wait for a fetch, so that they hold back no output.
    flushed: bool,
    /// The answer to the waiting filter's fetch.
    answer: Option<FetchResult>,
    /// Controls how early the start of the body is sent.
    start: Start,
    /// Set if the rest of the body bypasses the filters once all of them have ended.
    passes: bool,
    /// Its share of the memory for all bodies.
    share: Share,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BodyProgress {
    /// The number of consumed bytes of the input.
    pub consumed: usize,
    /// The number of bytes written to the output buffer.
    pub produced: usize,
    /// Set if there is more output that needs no further input.
    pub more: bool,
    /// The step with a filter that has given up and lets the rest of the body pass.
    pub bailed: Option<&'static str>,
    /// Set if the output is to be sent before the next call.
    pub soon: bool,
    /// Set if the rest of the body, after this output, bypasses the filters.
    pub over: bool,
    /// A fetch for a filter. The body waits until the answer has been [given](Body::give).
    pub question: Option<FetchRequest>,
}

/// The reason why a body cannot continue, and the step of the filter that has stopped it.
pub(crate) type BodyFailure = (Bail, &'static str);

/// The output buffer of a call, and the overflow for output that does not fit into the buffer.
struct Window<'o> {
    out: &'o mut [u8],
    used: usize,
    spill: &'o mut Vec<u8>,
}

impl Sink for Window<'_> {
    fn write(&mut self, bytes: &[u8]) {
        let room = self.out.get_mut(self.used..).unwrap_or_default();
        // Once there is an overflow, further output goes there as well, to keep the order.
        let fits = if self.spill.is_empty() { room.len().min(bytes.len()) } else { 0 };
        let (now, later) = bytes.split_at(fits);
        room[..fits].copy_from_slice(now);
        self.used += fits;
        self.spill.extend_from_slice(later);
    }
}

impl Body {
    pub(crate) fn new(chain: Chain) -> Self {
        Self {
            chain,
            spill: Vec::new(),
            taken: 0,
            ended: false,
            asked: false,
            flushed: false,
            answer: None,
            start: Start::default(),
            passes: false,
            share: Share::new(),
        }
    }

    /// Makes the body send its start early. The rest [bypasses the filters](BodyProgress::over) once all of them have
    /// ended.
    pub(crate) fn streams(self) -> Self {
        Self { start: Start::SOON, passes: true, ..self }
    }

    /// Takes the answer to a filter's fetch.
    pub(crate) fn give(&mut self, answer: FetchResult) {
        self.answer = Some(answer);
    }

    /// Moves `input` through the filters until it is used up or `out` is full. With `end`, `input` is the last of the body;
    /// with `flush`, filters release the output that they hold back.
    ///
    /// # Errors
    ///
    /// The body cannot go on.
    pub(crate) fn move_on(
        &mut self,
        input: &[u8],
        end: bool,
        flush: bool,
        out: &mut [u8],
    ) -> Result<BodyProgress, BodyFailure> {
        let mut moved = BodyProgress::default();
        let mut used = self.take_spilled(out);
        let mut flushed = false;
        while used < out.len() && self.spill.is_empty() {
            let mut window = Window { out: &mut *out, used, spill: &mut self.spill };
            let passed = if self.chain.is_pending() {
                self.chain.resume(&mut window)
            } else if self.chain.is_waiting() {
                if let Some(answer) = self.answer.take() {
                    (self.asked, self.flushed) = (false, false);
                    self.chain.answer(answer, &mut window)
                } else if !self.flushed {
                    self.flushed = true;
                    self.chain.flush(&mut window)
                } else {
                    moved.question = self.ask()?;
                    break;
                }
            } else if self.passes && self.chain.is_over() {
                break;
            } else if let Some(rest) = input.get(moved.consumed..).filter(|rest| !rest.is_empty()) {
                let piece = self.start.piece(rest);
                moved.consumed += piece.len();
                self.chain.write(piece, &mut window)
            } else if end && !self.ended {
                self.ended = true;
                self.chain.end(&mut window)
            } else if flush && !end && !flushed {
                flushed = true;
                self.chain.flush(&mut window)
            } else {
                break;
            };
            used = window.used;
            let Passed { bailed } = passed?;
            moved.bailed = moved.bailed.or(bailed);
            if self.start.is_due(used > 0) && !self.chain.is_quick() {
                moved.soon = true;
                break;
            }
        }
        used = self.account(out, used, &mut moved)?;
        moved.produced = used;
        moved.over = self.passes && self.spill.is_empty() && self.chain.is_over();
        let stays = !self.spill.is_empty() || self.chain.is_pending() || self.chain.is_waiting();
        moved.more = stays
            || !moved.over
                && (moved.consumed == input.len() && ((end && !self.ended) || (flush && !end && !flushed)));
        Ok(moved)
    }

    /// Reserves budget for the memory that the filters hold now. If the budget is not enough, the filter that holds the
    /// most memory is asked to give up. Returns the used length of `out`.
    fn account(
        &mut self,
        out: &mut [u8],
        used: usize,
        moved: &mut BodyProgress,
    ) -> Result<usize, BodyFailure> {
        let held = self.chain.held();
        if self.share.hold(held + self.spill.capacity()) || held == 0 {
            return Ok(used);
        }
        let mut window = Window { out, used, spill: &mut self.spill };
        let passed = self.chain.relieve(&mut window);
        let used = window.used;
        let Passed { bailed } = passed?;
        moved.bailed = moved.bailed.or(bailed);
        self.share.hold(self.chain.held() + self.spill.capacity());
        Ok(used)
    }

    /// The fetch of the waiting filter, once.
    fn ask(&mut self) -> Result<Option<FetchRequest>, BodyFailure> {
        if std::mem::replace(&mut self.asked, true) {
            return Ok(None);
        }
        // A filter that waits without a question would wait for ever.
        let question = self.chain.question();
        question.map(Some).ok_or((Bail::Break, "a filter that waits for nothing"))
    }

    /// Reports the findings of filters, at the end of the body or after it was broken off.
    pub(crate) fn report(&mut self, found: &mut dyn FnMut(Finding)) {
        self.chain.report(&mut |_| {}, found);
    }

    /// Writes the overflow; returns the used length of `out`.
    fn take_spilled(&mut self, out: &mut [u8]) -> usize {
        let rest = self.spill.get(self.taken..).unwrap_or_default();
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        if self.taken >= self.spill.len() {
            self.spill.clear();
            self.spill.shrink_to(SPILL_KEPT);
            self.taken = 0;
        }
        count
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop at what they do not expect")]
mod tests {
    use foregate_module::settings::UpstreamId;
    use foregate_module::{BodyFilter, FetchError, Filtered};

    use super::*;

    /// Writes every byte many times, a little at a time, and a mark at the end.
    struct Grow {
        times: usize,
        held: Vec<u8>,
    }

    impl BodyFilter for Grow {
        fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
            for byte in piece {
                self.held.extend(std::iter::repeat_n(*byte, self.times));
            }
            let now = self.held.len().min(1000);
            out.write(&self.held.drain(..now).collect::<Vec<_>>());
            Ok(())
        }

        fn pending(&self) -> bool {
            !self.held.is_empty()
        }

        fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
            out.write(b"END");
            Ok(())
        }

        fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
            Ok(())
        }

        fn held(&self) -> usize {
            self.held.len()
        }
    }

    /// A filter that fetches after each piece, and writes the answer.
    #[derive(Default)]
    struct Ask {
        asks: bool,
        waits: bool,
    }

    impl BodyFilter for Ask {
        fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
            out.write(piece);
            self.asks = true;
            self.waits = true;
            Ok(())
        }

        fn question(&mut self) -> Option<FetchRequest> {
            std::mem::take(&mut self.asks).then(|| FetchRequest::get(UpstreamId(0), "/"))
        }

        fn waits(&self) -> bool {
            self.waits
        }

        fn answer(&mut self, answer: FetchResult, out: &mut dyn Sink) -> Result<(), Bail> {
            assert_eq!(answer.unwrap_err(), FetchError::BadRequest);
            out.write(b"none");
            self.waits = false;
            Ok(())
        }

        fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
            if !self.waits {
                out.write(b"END");
            }
            Ok(())
        }

        fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
            Ok(())
        }

        fn held(&self) -> usize {
            0
        }
    }

    #[test]
    fn nothing_moves_until_a_question_is_answered() {
        for room in [1, 3, 100] {
            let filtered = Filtered { budget: usize::MAX, ..Filtered::new("ask", Ask::default()) };
            let mut body = Body::new(Chain::new(vec![filtered]));
            assert_eq!(moved(&mut body, b"abcdef", 3, room), b"abcnonedefnoneEND", "{room}");
        }
    }

    fn grow(times: usize) -> Body {
        let filter = Grow { times, held: Vec::new() };
        let filtered = Filtered { budget: usize::MAX, ..Filtered::new("grow", filter) };
        Body::new(Chain::new(vec![filtered]))
    }

    /// Moves pieces of these lengths through buffers of `room` bytes.
    fn moved(body: &mut Body, input: &[u8], piece: usize, room: usize) -> Vec<u8> {
        let mut all = Vec::new();
        let count = input.chunks(piece).count();
        for (number, piece) in input.chunks(piece).enumerate() {
            let mut rest = piece;
            loop {
                let (mut out, end, flush) = (vec![0; room], number + 1 == count, number % 3 == 0);
                let moved = body.move_on(rest, end, flush, &mut out).unwrap();
                all.extend_from_slice(&out[..moved.produced]);
                rest = &rest[moved.consumed..];
                assert!(moved.produced > 0 || !moved.more || moved.question.is_some(), "it must get on");
                if moved.question.is_some() {
                    assert!(moved.more);
                    let again = body.move_on(rest, end, flush, &mut out).unwrap();
                    assert_eq!((again.consumed, again.produced, again.question), (0, 0, None), "it waits");
                    body.give(Err(FetchError::BadRequest));
                }
                if rest.is_empty() && !moved.more {
                    break;
                }
            }
        }
        all
    }

    #[test]
    fn whatever_the_pieces_and_the_buffers_the_output_is_the_same() {
        let input: Vec<u8> = (0..9000_u32).map(|number| (number % 251) as u8).collect();
        let mut expected: Vec<u8> = input.iter().flat_map(|byte| [*byte; 7]).collect();
        expected.extend_from_slice(b"END");
        for piece in [1, 7, 4096, 4097, 9000] {
            for room in [1, 100, 999, 4096, 16384] {
                assert!(moved(&mut grow(7), &input, piece, room) == expected, "{piece} {room}");
            }
        }
    }

    /// A filter that writes its first input, and then has nothing more to do.
    struct Once(bool);

    impl BodyFilter for Once {
        fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
            out.write(b"<once>");
            out.write(piece);
            self.0 = true;
            Ok(())
        }

        fn is_over(&self) -> bool {
            self.0
        }

        fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
            out.write(b"END");
            Ok(())
        }

        fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
            Ok(())
        }

        fn held(&self) -> usize {
            0
        }
    }

    #[test]
    fn what_comes_when_filters_are_over_passes() {
        let body = || Body::new(Chain::new(vec![Filtered::new("once", Once(false))])).streams();
        let (input, mut out) = ([7; 5000], [0; 8192]);
        let moved = body().move_on(&input, true, false, &mut out).unwrap();
        assert!(moved.over && !moved.more && !moved.soon && moved.consumed < input.len());
        assert_eq!(out[..moved.produced], [b"<once>", &input[..moved.consumed]].concat());

        // The overflow is written first.
        let mut small = body();
        let moved = small.move_on(&input, false, false, &mut out[..100]).unwrap();
        assert!(moved.more && !moved.over && moved.produced == 100);
        let again = small.move_on(&input[moved.consumed..], false, false, &mut out).unwrap();
        assert!(again.over && !again.more && again.consumed == 0);
        assert_eq!(again.produced, 6 + moved.consumed - 100);
    }

    #[test]
    fn the_start_of_what_is_long_is_sent_by_itself() {
        let mut body = grow(2).streams();
        let (input, mut out) = ([7; 5000], vec![0; 16384]);
        let first = body.move_on(&input, true, false, &mut out).unwrap();
        assert!(first.soon && first.consumed < 1024 && first.produced > 0);
        let mut produced = first.produced;
        let mut rest = &input[first.consumed..];
        loop {
            let moved = body.move_on(rest, true, false, &mut out).unwrap();
            assert!(!moved.soon && !moved.over);
            rest = &rest[moved.consumed..];
            produced += moved.produced;
            if !moved.more && rest.is_empty() {
                break;
            }
        }
        assert_eq!(produced, 2 * input.len() + 3);
    }

    #[test]
    fn the_end_waits_for_room() {
        let mut body = grow(1);
        let mut out = [0; 3];
        let first = body.move_on(b"abc", true, false, &mut out).unwrap();
        assert_eq!((first.consumed, first.produced, first.more), (3, 3, true));
        let second = body.move_on(b"", true, false, &mut out).unwrap();
        assert_eq!((second.produced, second.more, &out), (3, false, b"END"));
    }
}

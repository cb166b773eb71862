use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Bail, BodyFilter, Chain, Filtered, Finding, Sink, Traffic};
use crate::fetch::{FetchRequest, FetchResult};
use crate::ids::UpstreamId;
use crate::testing::PassOn;

/// Holds back up to three bytes, and marks the output of a flush and of the end.
#[derive(Default)]
struct Threes(Vec<u8>);

impl BodyFilter for Threes {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        for byte in piece {
            self.0.push(*byte);
            if self.0.len() == 3 {
                out.write(&core::mem::take(&mut self.0));
            }
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        if self.0.contains(&b'!') {
            return Err(Bail::Break);
        }
        out.write(&core::mem::take(&mut self.0));
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        out.write(&core::mem::take(&mut self.0));
        out.write(b".");
        Ok(())
    }

    fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        out.write(&core::mem::take(&mut self.0));
        Ok(())
    }

    fn held(&self) -> usize {
        // Holds nothing that counts, so that the budgets of the tests are those of the other filters.
        0
    }
}

#[test]
fn what_one_filter_flushes_the_next_one_gets_and_flushes_too() {
    let filters: [Box<dyn BodyFilter>; 3] =
        [Box::new(Threes::default()), Box::new(PassOn), Box::new(Threes::default())];
    let filtered = filters.map(|filter| Filtered { filter, ..Filtered::new("filter", PassOn) });
    let mut chain = Chain::new(Vec::from(filtered));
    let mut out = Vec::new();
    chain.write(b"ab", &mut out).unwrap();
    assert_eq!(out, b"");
    chain.flush(&mut out).unwrap();
    assert_eq!(out, b"ab");
    chain.flush(&mut out).unwrap();
    chain.write(b"cdef", &mut out).unwrap();
    assert_eq!(out, b"abcde");
    chain.end(&mut out).unwrap();
    assert_eq!(out, b"abcdef..");
}

/// Writes each byte three times, one byte at a time.
#[derive(Default)]
struct Thrice(Vec<u8>);

impl BodyFilter for Thrice {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        self.0.extend(piece.iter().flat_map(|byte| [*byte; 3]));
        if !self.0.is_empty() {
            out.write(&[self.0.remove(0)]);
        }
        Ok(())
    }

    fn pending(&self) -> bool {
        !self.0.is_empty()
    }

    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        assert!(!self.pending(), "told of the end before all was written");
        out.write(b".");
        Ok(())
    }

    fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        out.write(&core::mem::take(&mut self.0));
        Ok(())
    }

    fn held(&self) -> usize {
        // Holds nothing that counts, so that the budgets of the tests are those of the other filters.
        0
    }
}

#[test]
fn what_becomes_large_is_written_a_little_at_a_time() {
    let mut chain = Chain::new(Vec::from([
        Filtered::new("first", Thrice::default()),
        Filtered::new("second", Thrice::default()),
    ]));
    let mut out = Vec::new();
    chain.write(b"a", &mut out).unwrap();
    let mut rounds = 0;
    while chain.is_pending() {
        let before = out.len();
        chain.resume(&mut out).unwrap();
        assert!(out.len() - before <= 1);
        rounds += 1;
    }
    assert_eq!((out.as_slice(), rounds), (&b"aaaaaaaaa"[..], 8));
    // A platform that does not ask loses nothing.
    chain.write(b"b", &mut out).unwrap();
    chain.write(b"c", &mut out).unwrap();
    chain.end(&mut out).unwrap();
    assert_eq!(out, b"aaaaaaaaabbbbbbbbbccccccccc....");
}

#[test]
fn a_filter_in_a_dry_run_sees_the_body_and_changes_nothing() {
    let dry = |filtered: Filtered| Filtered { dry: true, ..filtered };
    let mut chain = Chain::new(Vec::from([
        Filtered::new("plain", PassOn),
        dry(Filtered::new("first", Thrice::default())),
        dry(Filtered::new("second", Thrice::default())),
        Filtered::new("third", Threes::default()),
    ]));
    let mut out = Vec::new();
    chain.write(b"abcd", &mut out).unwrap();
    assert_eq!(out, b"abc");
    assert!(chain.is_pending());
    chain.end(&mut out).unwrap();
    assert_eq!(out, b"abcd.");
    let mut moved = Vec::new();
    chain.report(&mut |traffic| moved.push((traffic.step, traffic.taken, traffic.given)), &mut |_| {});
    assert_eq!(moved, [("plain", 4, 4), ("third", 4, 5)]);
}

#[test]
fn filters_are_measured_without_those_behind_them() {
    fn clock() -> u64 {
        use core::sync::atomic::{AtomicU64, Ordering};
        static TIME: AtomicU64 = AtomicU64::new(0);
        TIME.fetch_add(1, Ordering::Relaxed)
    }
    let mut chain =
        Chain::new(Vec::from([Filtered::new("one", PassOn), Filtered::new("two", PassOn)])).clock(clock);
    let mut out = Vec::new();
    chain.write(b"ab", &mut out).unwrap();
    chain.write(b"c", &mut out).unwrap();
    let mut moved = Vec::new();
    chain.report(&mut |traffic| moved.push(traffic), &mut |_| {});
    // Each look at the clock takes one: two for each piece, and for the first filter two more around the second.
    assert_eq!(
        moved,
        [
            Traffic { step: "one", taken: 3, given: 3, nanos: 4, longest: 2 },
            Traffic { step: "two", taken: 3, given: 3, nanos: 2, longest: 1 }
        ]
    );
}

/// Gathers the whole body, and can let it pass unchanged or not.
struct Gathers(Vec<u8>, Result<(), Bail>);

impl BodyFilter for Gathers {
    fn write(&mut self, piece: &[u8], _: &mut dyn Sink) -> Result<(), Bail> {
        self.0.extend_from_slice(piece);
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        out.write(b"whole");
        Ok(())
    }

    fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        out.write(&core::mem::take(&mut self.0));
        self.1
    }

    fn held(&self) -> usize {
        self.0.len()
    }
}

#[test]
fn the_filter_that_holds_most_makes_room() {
    let mut chain = Chain::new(Vec::from([
        Filtered::new("plain", PassOn),
        Filtered::new("gathers", Gathers(Vec::new(), Ok(()))),
        Filtered::new("threes", Threes::default()),
    ]));
    let mut out = Vec::new();
    chain.write(b"abcd", &mut out).unwrap();
    assert_eq!((chain.held(), out.as_slice()), (4, &b""[..]));
    assert_eq!(chain.relieve(&mut out).unwrap().bailed, Some("gathers"));
    assert_eq!((chain.held(), out.as_slice()), (0, &b"abc"[..]));
    chain.write(b"ef", &mut out).unwrap();
    chain.end(&mut out).unwrap();
    assert_eq!(out, b"abcdef.");

    let mut chain = Chain::new(Vec::from([Filtered::new("strict", Gathers(Vec::new(), Err(Bail::Break)))]));
    chain.write(b"abcd", &mut Vec::new()).unwrap();
    assert_eq!(chain.relieve(&mut Vec::new()).unwrap_err(), (Bail::Break, "strict"));
}

#[test]
fn a_filter_that_breaks_the_body_off_while_flushing_is_named() {
    let mut chain = Chain::new(Vec::from([Filtered::new("threes", Threes::default())]));
    chain.write(b"!", &mut Vec::new()).unwrap();
    assert_eq!(chain.flush(&mut Vec::new()).unwrap_err(), (Bail::Break, "threes"));
}

/// Fetches the name after each `?`, and writes the answer in its place.
#[derive(Default)]
struct Asks {
    held: Vec<u8>,
    asks: bool,
}

impl Asks {
    fn work(&mut self, out: &mut dyn Sink) {
        let at = self.held.iter().position(|byte| *byte == b'?').filter(|_| !self.asks);
        let until = if self.asks { 0 } else { at.unwrap_or(self.held.len()) };
        out.write(&self.held.drain(..until).collect::<Vec<u8>>());
        if at.is_some() {
            self.held.remove(0);
            self.asks = true;
        }
    }
}

impl BodyFilter for Asks {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        self.held.extend(piece);
        self.work(out);
        Ok(())
    }

    fn pending(&self) -> bool {
        !self.asks && !self.held.is_empty()
    }

    fn question(&mut self) -> Option<FetchRequest> {
        Some(FetchRequest::get(UpstreamId(0), "/"))
    }

    fn waits(&self) -> bool {
        self.asks
    }

    fn answer(&mut self, answer: FetchResult, out: &mut dyn Sink) -> Result<(), Bail> {
        self.asks = false;
        out.write(if answer.is_ok() { b"[good]" } else { b"[bad]" });
        self.work(out);
        Ok(())
    }

    fn end(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn held(&self) -> usize {
        // Holds nothing that counts, so that the budgets of the tests are those of the other filters.
        0
    }
}

#[test]
fn a_filter_that_asks_holds_those_before_it_back_and_the_end() {
    let mut chain = Chain::new(Vec::from([
        Filtered::new("thrice", Thrice::default()),
        Filtered::new("asks", Asks::default()),
        Filtered::new("threes", Threes::default()),
    ]));
    let mut out = Vec::new();
    chain.write(b"a", &mut out).unwrap();
    chain.write(b"?", &mut out).unwrap();
    assert!(chain.is_waiting() && !chain.is_pending(), "the first filter has more, and must not write it");
    assert_eq!(out, b"aaa");
    chain.end(&mut out).unwrap();
    assert_eq!(out, b"aaa");
    let mut asked = 0;
    while chain.is_waiting() || chain.is_pending() {
        if chain.question().is_some() {
            asked += 1;
            let failed = Err(crate::FetchError::Timeout);
            chain.answer(failed, &mut out).unwrap();
        } else {
            chain.resume(&mut out).unwrap();
        }
    }
    // Three questions, the ends of the first and the last filter, and that of the last alone is after all.
    assert_eq!((asked, out.as_slice()), (3, &b"aaa[bad][bad][bad].."[..]));
}

/// Marks bytes up to the first `!`.
struct Until(bool);

impl BodyFilter for Until {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        for byte in piece {
            out.write(if self.0 { core::slice::from_ref(byte) } else { b"-" });
            self.0 |= *byte == b'!';
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.0
    }

    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        out.write(b".");
        Ok(())
    }

    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn held(&self) -> usize {
        7
    }

    fn report(&mut self, tell: &mut dyn FnMut(Finding)) {
        tell(Finding { step: "until", event: "seen", count: 1 });
    }
}

#[test]
fn the_body_passes_by_a_filter_that_is_over() {
    let mut chain = Chain::new(Vec::from([
        Filtered::new("until", Until(false)),
        Filtered::new("threes", Threes::default()),
    ]));
    let mut out = Vec::new();
    let passed = chain.write(b"ab", &mut out).unwrap();
    assert!(!chain.is_over() && passed.bailed.is_none() && chain.held() == 7);
    let passed = chain.write(b"!cd", &mut out).unwrap();
    assert!(!chain.is_over() && passed.bailed.is_none() && chain.held() == 0);
    chain.write(b"ef", &mut out).unwrap();
    chain.end(&mut out).unwrap();
    assert_eq!(out, b"---cdef.");
    let (mut moved, mut found) = (Vec::new(), 0);
    chain.report(&mut |traffic| moved.push((traffic.step, traffic.taken)), &mut |finding| {
        found += finding.count;
    });
    assert_eq!((moved, found), (Vec::from([("until", 5), ("threes", 7)]), 1));

    let dry = Filtered { dry: true, ..Filtered::new("until", Until(false)) };
    let mut chain = Chain::new(Vec::from([dry]));
    chain.write(b"ab", &mut out).unwrap();
    assert!(!chain.is_over() && !chain.is_quick());
    chain.write(b"!", &mut out).unwrap();
    assert!(chain.is_over() && chain.is_quick());
}

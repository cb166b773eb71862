//! Filters of bodies in a dry run on hosts that catch panics: here, with the standard library.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use foregate_module::testing::PassOn;
use foregate_module::{Bail, BodyFilter, Chain, Filtered, Finding, Sink};

/// Passes everything on, and a full stop behind it.
struct Stop;

impl BodyFilter for Stop {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        out.write(piece);
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        out.write(b".");
        Ok(())
    }

    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn held(&self) -> usize {
        0
    }
}

/// Panics at the end of the body, or before.
struct Panics(usize);

impl BodyFilter for Panics {
    fn write(&mut self, piece: &[u8], _: &mut dyn Sink) -> Result<(), Bail> {
        self.0 = self.0.checked_sub(piece.len()).expect("a panic within the body");
        Ok(())
    }

    fn end(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        panic!("at the end of the body");
    }

    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn held(&self) -> usize {
        0
    }
}

#[test]
fn a_panic_in_a_dry_run_changes_nothing() {
    let dry = |filtered: Filtered| Filtered { dry: true, ..filtered };
    for most in [0, 1, 100] {
        let filters = Vec::from([
            Filtered::new("first", PassOn),
            dry(Filtered::new("well", PassOn)),
            dry(Filtered::new("ill", Panics(most))),
            Filtered::new("last", Stop),
        ]);
        let mut chain = Chain::guarded(filters, |run| catch_unwind(AssertUnwindSafe(run)).is_ok());
        let mut out = Vec::new();
        for piece in [b"a", b"b"] {
            chain.write(piece, &mut out).unwrap();
            while chain.is_pending() {
                chain.resume(&mut out).unwrap();
            }
        }
        chain.end(&mut out).unwrap();
        while chain.is_pending() {
            chain.resume(&mut out).unwrap();
        }
        assert_eq!(out, b"ab.", "{most}");
        assert_eq!(chain.panicked(), None);
        let mut found = Vec::new();
        chain.report(&mut |_| {}, &mut |finding| found.push(finding));
        assert_eq!(found, [Finding { step: "ill", event: Finding::PANIC, count: 1 }], "{most}");
    }
}

/// Passes everything on, and panics where it is asked about itself, once it has been at work.
struct PanicsWhenAsked {
    by: &'static str,
    worked: bool,
}

impl PanicsWhenAsked {
    fn asked(&self, by: &str) {
        assert!(!self.worked || self.by != by, "asked by {by}");
    }
}

impl BodyFilter for PanicsWhenAsked {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        self.worked = true;
        out.write(piece);
        Ok(())
    }

    fn pending(&self) -> bool {
        self.asked("pending");
        false
    }

    fn is_over(&self) -> bool {
        self.asked("is_over");
        false
    }

    fn waits(&self) -> bool {
        self.asked("waits");
        false
    }

    fn end(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn held(&self) -> usize {
        self.asked("held");
        0
    }

    fn report(&mut self, _: &mut dyn FnMut(Finding)) {
        self.asked("report");
    }
}

#[test]
fn a_panic_of_a_filter_that_is_asked_about_itself_changes_nothing_either() {
    for by in ["pending", "is_over", "waits", "held", "report"] {
        let asked = Filtered { dry: true, ..Filtered::new("ill", PanicsWhenAsked { by, worked: false }) };
        let filters = Vec::from([asked, Filtered::new("last", Stop)]);
        let mut chain = Chain::guarded(filters, |run| catch_unwind(AssertUnwindSafe(run)).is_ok());
        let mut out = Vec::new();
        for piece in [b"a", b"b"] {
            chain.write(piece, &mut out).unwrap();
            assert!(!chain.is_pending() && !chain.is_over() && !chain.is_waiting() && chain.held() == 0);
            chain.flush(&mut out).unwrap();
        }
        chain.end(&mut out).unwrap();
        assert_eq!(out, b"ab.", "{by}");
        let mut found = Vec::new();
        chain.report(&mut |_| {}, &mut |finding| found.push(finding));
        assert_eq!(found, [Finding { step: "ill", event: Finding::PANIC, count: 1 }], "{by}");
    }
}

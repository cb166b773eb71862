//! Running one step with literal inputs, without a server.
//!
//! Most steps need only their own function, with plain values as inputs:
//!
//! ```
//! use core::ops::ControlFlow;
//! use foregate_module::{Never, Path, Step, Emit, Value, Filter, phase};
//!
//! # pub struct Depth;
//! # impl Value for Depth { type Data = usize; const NAME: &'static str = "depth"; const ABOUT: &'static str = ""; }
//! #[derive(Default)]
//! pub struct Measure;
//!
//! impl Step for Measure {
//!     type At = phase::RequestEarly;
//!     type Settings = ();
//!     type In<'r> = (Path<'r>,);
//!     type Out = (Emit<Depth>,);
//!     type Stop = Never;
//!     const NAME: &'static str = "measure";
//!     const ABOUT: &'static str = "Counts the segments of the path.";
//!     const FILTERS: &'static [Filter] = &[];
//!     fn run(&self, (): &(), (Path(path),): (Path<'_>,)) -> ControlFlow<Never, Self::Out> {
//!         ControlFlow::Continue((Emit(Some(path.iter().filter(|byte| **byte == b'/').count())),))
//!     }
//! }
//!
//! let ControlFlow::Continue((Emit(depth),)) = Measure.run(&(), (Path(b"/a/b"),));
//! assert_eq!(depth, Some(2));
//! ```
//!
//! [`Sample`] stands for a whole exchange, for filters, edits and steps that read everything:
//!
//! ```
//! # use core::ops::ControlFlow;
//! # use foregate_module::{Never, Step, EditResponse, Edits, Filter, phase};
//! # #[derive(Default)]
//! # pub struct Signature;
//! # impl Step for Signature {
//! #     type At = phase::ResponseHeaders;
//! #     type Settings = ();
//! #     type In<'r> = ();
//! #     type Out = (EditResponse,);
//! #     type Stop = Never;
//! #     const NAME: &'static str = "signature";
//! #     const ABOUT: &'static str = "";
//! #     const FILTERS: &'static [Filter] = &[];
//! #     fn run(&self, (): &(), (): ()) -> ControlFlow<Never, Self::Out> {
//! #         ControlFlow::Continue((EditResponse(Edits::new().set("x-signature", "foregate")),))
//! #     }
//! # }
//! use foregate_module::{Fields, testing::Sample};
//!
//! let mut sample = Sample::get("/").response(200);
//! sample.run(&Signature, &());
//! assert_eq!(sample.response.get("x-signature"), Some(&b"foregate"[..]));
//! ```

mod literals;
mod sample;

use alloc::vec::Vec;

pub use self::literals::{Compile, Literals, node, settings};
pub use self::sample::{Handshake, List, Sample};
use crate::body::{Bail, BodyFilter, Chain, Filtered, Passed, Sink};

/// A filter that passes everything on and holds nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct PassOn;

impl BodyFilter for PassOn {
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

/// The output of a filter for a body in these pieces; `None` if it breaks the body off.
///
/// # Panics
///
/// It gives up, so that the rest of the body passes, or fetches something: neither is output.
pub fn filtered(filter: impl BodyFilter + 'static, pieces: &[&[u8]]) -> Option<Vec<u8>> {
    let mut chain = Chain::new(Vec::from([Filtered::new("filter", filter)]));
    let mut out = Vec::new();
    for piece in pieces {
        went_on(chain.write(piece, &mut out).ok()?);
        while chain.is_pending() {
            went_on(chain.resume(&mut out).ok()?);
        }
        assert!(!chain.is_waiting(), "the filter waits for an answer, which nobody gives here");
    }
    went_on(chain.end(&mut out).ok()?);
    while chain.is_pending() {
        went_on(chain.resume(&mut out).ok()?);
    }
    assert!(!chain.is_waiting(), "the filter waits for an answer, which nobody gives here");
    Some(out)
}

fn went_on(passed: Passed) {
    assert!(passed.bailed.is_none(), "the filter has given up, and the rest of the body would pass");
}

/// The output of filters for a body, which must be the same for every split in two.
///
/// # Panics
///
/// It differs.
pub fn filtered_at_every_split<F: BodyFilter + 'static>(
    make: impl Fn() -> F,
    body: &[u8],
) -> Option<Vec<u8>> {
    let whole = filtered(make(), &[body]);
    for at in 0..=body.len() {
        let (head, tail) = body.split_at(at);
        let split = filtered(make(), &[head, tail]);
        assert!(split == whole, "split at byte {at}: {split:?}, in one piece: {whole:?}");
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::filtered;
    use crate::body::{Bail, BodyFilter, Sink};

    /// Gives up, or waits for an answer, at an `!`.
    struct Stops {
        asks: bool,
        stopped: bool,
    }

    impl BodyFilter for Stops {
        fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
            out.write(piece);
            self.stopped |= piece.contains(&b'!');
            if self.stopped && !self.asks { Err(Bail::Pass) } else { Ok(()) }
        }

        fn waits(&self) -> bool {
            self.stopped
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

    #[test]
    fn filters_that_go_on_are_told_by_what_they_write() {
        assert_eq!(
            filtered(Stops { asks: false, stopped: false }, &[b"a", b"b"]).as_deref(),
            Some(&b"ab"[..])
        );
    }

    #[test]
    #[should_panic = "has given up"]
    fn filters_that_give_up_are_no_filters_that_pass() {
        filtered(Stops { asks: false, stopped: false }, &[b"a", b"!", b"b"]);
    }

    #[test]
    #[should_panic = "waits for an answer"]
    fn filters_that_ask_are_not_answered() {
        filtered(Stops { asks: true, stopped: false }, &[b"a", b"!", b"b"]);
    }
}

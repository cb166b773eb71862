//! The state of steps that a new process takes over from the old one. It is written as bytes: for each step its name,
//! the version of its format, and the bytes of its state.

use alloc::vec::Vec;

use crate::pipeline::Pipeline;

/// The most bytes of one step's state.
const STATE_LIMIT: usize = 32 << 20;

impl Pipeline {
    /// Writes the states of all steps that have one, for a process that takes over: see [`Step::save`](crate::Step::save).
    /// `random` returns a number that cannot be guessed from outside.
    pub fn save(&self, now: u64, mut random: impl FnMut() -> u64) -> Vec<u8> {
        let mut all = Vec::new();
        for entry in self.entries() {
            let Some(state) = entry.step.save(now, random()) else { continue };
            let name = entry.decl().name.as_bytes();
            let (Ok(length), Ok(size)) = (u8::try_from(name.len()), u32::try_from(state.len())) else {
                continue;
            };
            if state.len() > STATE_LIMIT {
                continue;
            }
            all.push(length);
            all.extend_from_slice(name);
            all.extend_from_slice(&entry.step.state_version().to_le_bytes());
            all.extend_from_slice(&size.to_le_bytes());
            all.extend_from_slice(&state);
        }
        all
    }

    /// Adds the states of another process: see [`Step::restore`](crate::Step::restore). The state of a step is skipped if
    /// this program does not have the step, or has it with another format. From the first malformed byte on, the rest is
    /// ignored.
    pub fn restore(&self, all: &[u8], now: u64) {
        let mut rest = all;
        while let Some((name, version, state)) = next(&mut rest) {
            let entry = self.entries().iter().find(|entry| entry.decl().name.as_bytes() == name);
            if let Some(entry) = entry.filter(|entry| entry.step.state_version() == version) {
                entry.step.restore(state, now);
            }
        }
    }
}

/// Reads the next state: the name of its step, the version of its format, and its bytes.
fn next<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], u16, &'a [u8])> {
    let (length, after) = rest.split_first()?;
    let (name, after) = after.split_at_checked(usize::from(*length))?;
    let (version, after) = after.split_first_chunk()?;
    let (size, after) = after.split_first_chunk()?;
    let (state, after) = after.split_at_checked(u32::from_le_bytes(*size) as usize)?;
    *rest = after;
    Some((name, u16::from_le_bytes(*version), state))
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::ops::ControlFlow;
    use core::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{Filter, Never, Step, phase};

    /// A step that counts, in two versions of its format.
    #[derive(Default)]
    struct Counting<const VERSION: u16>(AtomicU64);

    impl<const VERSION: u16> Step for Counting<VERSION> {
        type At = phase::RequestEarly;
        type Settings = ();
        type In<'r> = ();
        type Out = ();
        type Stop = Never;
        const NAME: &'static str = "counting";
        const ABOUT: &'static str = "Counts.";
        const FILTERS: &'static [Filter] = &[];
        const STATE_VERSION: u16 = VERSION;

        fn save(&self, now: u64, random: u64) -> Option<Vec<u8>> {
            assert_eq!((now, random), (7, 9));
            Some(vec![self.0.load(Ordering::Relaxed) as u8 + 5])
        }

        fn restore(&self, state: &[u8], _: u64) {
            let sum: u64 = state.iter().map(|byte| u64::from(*byte)).sum();
            self.0.fetch_add(sum, Ordering::Relaxed);
        }

        fn run(&self, (): &(), (): ()) -> ControlFlow<Never> {
            ControlFlow::Continue(())
        }
    }

    fn pipeline<const VERSION: u16>() -> Pipeline {
        Pipeline::new(vec![vec![crate::step::erase::<Counting<VERSION>>()]])
    }

    fn saved(pipeline: &Pipeline) -> Vec<u8> {
        pipeline.save(7, || 9)
    }

    #[test]
    fn a_state_reaches_the_step_of_the_same_name_and_version() {
        let old = pipeline::<1>();
        let state = saved(&old);
        let (same, newer) = (pipeline::<1>(), pipeline::<2>());
        same.restore(&state, 0);
        newer.restore(&state, 0);
        assert_eq!(saved(&same).last(), Some(&10));
        assert_eq!(saved(&newer).last(), Some(&5), "another format is skipped");
        let mut unknown = vec![3, b'x', b'y', b'z', 1, 0, 2, 0, 0, 0, 1, 1];
        unknown.extend_from_slice(&state);
        same.restore(&unknown, 0);
        assert_eq!(saved(&same).last(), Some(&15), "an unknown step is skipped");
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let state = saved(&pipeline::<1>());
        for end in 0..state.len() {
            pipeline::<1>().restore(&state[..end], 0);
        }
        for byte in 0..=u8::MAX {
            pipeline::<1>().restore(&[byte; 300], 0);
        }
    }
}

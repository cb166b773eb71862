// Refused: a step that the group taken in has already.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::*;

struct Score;
impl Value for Score {
    type Data = u8;
    const NAME: &'static str = "bot.score";
    const ABOUT: &'static str = "A value.";
}

#[derive(Default)]
struct Ours;
impl Step for Ours {
    type At = phase::RequestEarly;
    type Settings = ();
    type In<'r> = (Read<'r, Score>,);
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "ours";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

#[derive(Default)]
struct Theirs;
impl Step for Theirs {
    type At = phase::RequestEarly;
    type Settings = ();
    type In<'r> = ();
    type Out = (Emit<Score>,);
    type Stop = Never;
    const NAME: &'static str = "theirs";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

mod theirs {
    foregate_module::pipeline! { pub fn shipped { super::Theirs } }
}

// Steps of the group that is taken in come first within a phase: this is fine.
pipeline! { fn right { use theirs::shipped; Ours } }

pipeline! { fn twice { use theirs::shipped; Theirs } }

fn main() {}

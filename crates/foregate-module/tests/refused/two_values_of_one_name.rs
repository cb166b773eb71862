// Refused: two values that have one name.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::*;

struct Score;
impl Value for Score {
    type Data = u8;
    const NAME: &'static str = "bot.score";
    const ABOUT: &'static str = "A value.";
}

struct Points;
impl Value for Points {
    type Data = u64;
    const NAME: &'static str = "bot.score";
    const ABOUT: &'static str = "Another value.";
}

#[derive(Default)]
struct Writes;
impl Step for Writes {
    type At = phase::RequestEarly;
    type Settings = ();
    type In<'r> = ();
    type Out = (Emit<Points>,);
    type Stop = Never;
    const NAME: &'static str = "writes";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, _: &Self::Settings, _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

#[derive(Default)]
struct Reads;
impl Step for Reads {
    type At = phase::RequestRewrite;
    type Settings = ();
    type In<'r> = (Read<'r, Score>,);
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "reads";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, _: &Self::Settings, _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

pipeline! { fn steps { Writes, Reads } }

fn main() {}

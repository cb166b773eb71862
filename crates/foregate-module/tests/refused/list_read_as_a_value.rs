// Refused: a list that is read as one value.
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
struct Adds;
impl Step for Adds {
    type At = phase::RequestEarly;
    type Settings = ();
    type In<'r> = ();
    type Out = (Add<Score>,);
    type Stop = Never;
    const NAME: &'static str = "adds";
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

pipeline! { fn steps { Adds, Reads } }

fn main() {}

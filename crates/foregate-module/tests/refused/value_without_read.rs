// Refused: a value among the inputs by itself.
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
struct Writes;
impl Step for Writes {
    type At = phase::RequestEarly;
    type Settings = ();
    type In<'r> = ();
    type Out = (Emit<Score>,);
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
    type In<'r> = (Score,);
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

// Refused: two writers of one value.
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
struct One;
impl Step for One {
    type At = phase::RequestEarly;
    type Settings = ();
    type In<'r> = ();
    type Out = (Emit<Score>,);
    type Stop = Never;
    const NAME: &'static str = "one";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

#[derive(Default)]
struct Two;
impl Step for Two {
    type At = phase::RequestRewrite;
    type Settings = ();
    type In<'r> = ();
    type Out = (Emit<Score>,);
    type Stop = Never;
    const NAME: &'static str = "two";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

pipeline! { fn steps { One, Two } }

fn main() {}

// Refused: two steps of one name.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::*;

#[derive(Default)]
struct One;
impl Step for One {
    type At = phase::RequestEarly;
    type Settings = ();
    type In<'r> = ();
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "same";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

#[derive(Default)]
struct Two;
impl Step for Two {
    type At = phase::Log;
    type Settings = ();
    type In<'r> = ();
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "same";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

pipeline! { fn steps { One, Two } }

fn main() {}

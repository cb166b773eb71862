// Refused: a step listed after one of a later phase.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::*;

#[derive(Default)]
struct Late;
impl Step for Late {
    type At = phase::ResponseHeaders;
    type Settings = ();
    type In<'r> = ();
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "late";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

#[derive(Default)]
struct Early;
impl Step for Early {
    type At = phase::RequestEarly;
    type Settings = ();
    type In<'r> = ();
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "early";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

pipeline! { fn steps { Late, Early } }

fn main() {}

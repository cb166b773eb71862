// Refused: an answer when the exchange has ended.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::*;

#[derive(Default)]
struct Late;
impl Step for Late {
    type At = phase::Log;
    type Settings = ();
    type In<'r> = ();
    type Out = ();
    type Stop = Respond;
    const NAME: &'static str = "late";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

fn main() {}

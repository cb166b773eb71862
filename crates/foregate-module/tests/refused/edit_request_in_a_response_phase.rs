// Refused: fields of the request are changed after it has been sent.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::*;

#[derive(Default)]
struct Late;
impl Step for Late {
    type At = phase::ResponseHeaders;
    type Settings = ();
    type In<'r> = ();
    type Out = (EditRequest,);
    type Stop = Never;
    const NAME: &'static str = "late";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

fn main() {}

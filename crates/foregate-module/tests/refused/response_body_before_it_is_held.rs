// Refused: the response's body is read before it has been received.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::*;

#[derive(Default)]
struct Early;
impl Step for Early {
    type At = phase::ResponseHeaders;
    type Settings = ();
    type In<'r> = (ResponseBody<'r>,);
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "early";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

fn main() {}

// Refused: a filter on statuses from the greater to the smaller.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::*;

#[derive(Default)]
struct Gets;
impl Step for Gets {
    type At = phase::ResponseHeaders;
    type Settings = ();
    type In<'r> = ();
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "gets";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[Filter::Status(599, 500)];
    fn run(&self, _: &Self::Settings, _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

pipeline! { fn steps { Gets } }

fn main() {}

// Refused: a step with a name that is no label.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::*;

#[derive(Default)]
struct Gets;
impl Step for Gets {
    type At = phase::RequestSecurity;
    type Settings = ();
    type In<'r> = ();
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "Gets All";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, _: &Self::Settings, _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

pipeline! { fn steps { Gets } }

fn main() {}

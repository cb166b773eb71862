// Refused: a filter on the status in a phase of the request.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::*;

#[derive(Default)]
struct Late;
impl Step for Late {
    type At = phase::RequestSecurity;
    type Settings = ();
    type In<'r> = ();
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "late";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[Filter::Status(500, 599)];
    fn run(&self, _: &Self::Settings, _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

pipeline! { fn steps { Late } }

fn main() {}

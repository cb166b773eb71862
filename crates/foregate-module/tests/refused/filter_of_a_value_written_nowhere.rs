// Refused: a filter on a value that no step writes.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::*;

#[derive(Default)]
struct Waits;
impl Step for Waits {
    type At = phase::RequestSecurity;
    type Settings = ();
    type In<'r> = ();
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "waits";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[Filter::Written("bot.scroe")];
    fn run(&self, _: &Self::Settings, _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

pipeline! { fn steps { Waits } }

fn main() {}

// Refused: two steps that set the client.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::*;

#[derive(Default)]
struct One;
impl Step for One {
    type At = phase::RequestEarly;
    type Settings = ();
    type In<'r> = ();
    type Out = (SetClientAddress,);
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
    type At = phase::RequestIdentity;
    type Settings = ();
    type In<'r> = ();
    type Out = (SetClientAddress,);
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

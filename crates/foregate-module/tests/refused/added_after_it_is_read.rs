// Refused: a step adds to a list that an earlier one has read.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::*;

struct Wishes;
impl Value for Wishes {
    type Data = u8;
    const NAME: &'static str = "wishes";
    const ABOUT: &'static str = "A list.";
}

#[derive(Default)]
struct Grants;
impl Step for Grants {
    type At = phase::RequestEarly;
    type Settings = ();
    type In<'r> = (Added<'r, Wishes>,);
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "grants";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

#[derive(Default)]
struct Wish;
impl Step for Wish {
    type At = phase::RequestRewrite;
    type Settings = ();
    type In<'r> = ();
    type Out = (Add<Wishes>,);
    type Stop = Never;
    const NAME: &'static str = "wish";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

pipeline! { fn steps { Grants, Wish } }

fn main() {}

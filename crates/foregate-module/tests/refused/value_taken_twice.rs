// Refused: a step takes a value that another one has taken and not emitted again.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::*;

struct Purse;
impl Value for Purse {
    type Data = u8;
    const NAME: &'static str = "purse";
    const ABOUT: &'static str = "A value that moves.";
}

#[derive(Default)]
struct Fills;
impl Step for Fills {
    type At = phase::RequestEarly;
    type Settings = ();
    type In<'r> = ();
    type Out = (Emit<Purse>,);
    type Stop = Never;
    const NAME: &'static str = "fills";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

#[derive(Default)]
struct Keeps;
impl Step for Keeps {
    type At = phase::RequestSecurity;
    type Settings = ();
    type In<'r> = (Take<Purse>,);
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "keeps";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

#[derive(Default)]
struct Spends;
impl Step for Spends {
    type At = phase::RequestRewrite;
    type Settings = ();
    type In<'r> = (Take<Purse>,);
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "spends";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

pipeline! { fn steps { Fills, Keeps, Spends } }

fn main() {}

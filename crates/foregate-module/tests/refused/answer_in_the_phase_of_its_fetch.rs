// Refused: the answer to a fetch is read in the phase of its request.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::*;

struct Users;
impl FetchKey for Users {
    const NAME: &'static str = "users.request";
    const ANSWER: &'static str = "users.answer";
}

#[derive(Default)]
struct Ask;
impl Step for Ask {
    type At = phase::RequestSecurity;
    type Settings = ();
    type In<'r> = ();
    type Out = (Emit<Fetch<Users>>,);
    type Stop = Never;
    const NAME: &'static str = "ask";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

#[derive(Default)]
struct Use;
impl Step for Use {
    type At = phase::RequestSecurity;
    type Settings = ();
    type In<'r> = (Read<'r, Fetched<Users>>,);
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "use";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

pipeline! { fn steps { Ask, Use } }

fn main() {}

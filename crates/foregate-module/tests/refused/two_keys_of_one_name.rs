// Refused: two modules with one key.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::settings::{Context, FromNode, Key, Node, Problem};
use foregate_module::*;

struct Ours;
impl FromNode for Ours {
    const KEY: Option<&'static Key> = Some(&Key::one("test", "", "test", "One thing."));
    fn from_nodes(_: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        Ok(Self)
    }
}

struct Theirs;
impl FromNode for Theirs {
    const KEY: Option<&'static Key> = Some(&Key::one("test", "", "test", "Another thing."));
    fn from_nodes(_: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        Ok(Self)
    }
}

#[derive(Default)]
struct One;
impl Step for One {
    type At = phase::RequestEarly;
    type Settings = Ours;
    type In<'r> = ();
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "one";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, _: &Self::Settings, _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

#[derive(Default)]
struct Two;
impl Step for Two {
    type At = phase::RequestRewrite;
    type Settings = Theirs;
    type In<'r> = ();
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "two";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, _: &Self::Settings, _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

pipeline! { fn steps { One, Two } }

fn main() {}

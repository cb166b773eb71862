// Refused: a value that is read but written nowhere.
#![allow(dead_code)]

use core::ops::ControlFlow;
use foregate_module::*;

struct Score;
impl Value for Score {
    type Data = u8;
    const NAME: &'static str = "bot.score";
    const ABOUT: &'static str = "A value.";
}

#[derive(Default)]
struct Reader;
impl Step for Reader {
    type At = phase::RequestSecurity;
    type Settings = ();
    type In<'r> = (Read<'r, Score>,);
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "reader";
    const ABOUT: &'static str = "A step.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), _: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        loop {}
    }
}

pipeline! { fn steps { Reader } }

fn main() {}

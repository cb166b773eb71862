//! A version that misbehaves, for the tests of upgrades. The variable `FOREGATE_FAULT` names the fault. No release is
//! built with this module.

#![allow(clippy::disallowed_methods, reason = "it is meant to be bad")]

use std::fs::File;
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{env, hint, process, thread};

use foregate_module::{Filter, Respond, Response, Step, phase};

foregate_module::pipeline! {
    /// All that ships, and a step that misbehaves.
    pub fn steps { use foregate::shipped; Misbehaves }
}

/// The time after the start at which a process begins to fail.
const LATER: Duration = Duration::from_millis(1500);
/// The delay of a slow response.
const SLOW: Duration = Duration::from_millis(4);
/// One in this many requests fails.
const ONE_OF: u64 = 20;
/// The amount of memory that leaks, in bytes.
const LEAK: usize = 110 << 20;

fn fault() -> &'static str {
    static FAULT: OnceLock<String> = OnceLock::new();
    FAULT.get_or_init(|| env::var("FOREGATE_FAULT").unwrap_or_default())
}

/// Returns true if this process serves for a supervisor.
fn serves() -> bool {
    env::var_os("FOREGATE_SERVING").is_some()
}

/// Starts the fault of the process, if one is set.
pub fn begin() {
    if !serves() {
        return;
    }
    match fault() {
        "exits" => process::exit(1),
        "hangs" => loop {
            thread::sleep(LATER);
        },
        "dies" | "leaks-memory" | "leaks-descriptors" => drop(thread::spawn(|| {
            thread::sleep(LATER);
            go_wrong();
        })),
        _ => {}
    }
}

fn go_wrong() {
    match fault() {
        "dies" => process::abort(),
        "leaks-memory" => {
            let leaked = vec![1_u8; LEAK];
            loop {
                hint::black_box(&leaked);
                thread::sleep(LATER);
            }
        }
        _ => {
            let leaked: Vec<_> = (0..400).map(|_| File::open("/dev/null")).collect();
            loop {
                hint::black_box(&leaked);
                thread::sleep(LATER);
            }
        }
    }
}

/// A step that makes requests fail, delays them or panics.
#[derive(Debug, Default)]
pub struct Misbehaves;

impl Step for Misbehaves {
    type At = phase::RequestEarly;
    type Settings = ();
    type In<'r> = ();
    type Out = ();
    type Stop = Respond;
    const NAME: &'static str = "misbehaves";
    const ABOUT: &'static str = "Fails, dawdles or panics, as a variable says.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, (): &(), (): ()) -> ControlFlow<Respond> {
        static REQUESTS: AtomicU64 = AtomicU64::new(0);
        let is_one = REQUESTS.fetch_add(1, Ordering::Relaxed).is_multiple_of(ONE_OF);
        match fault() {
            "fails" if is_one => {
                return ControlFlow::Break(Respond(Response::new(500)));
            }
            "panics" if is_one => panic!("as asked"),
            "slow" => thread::sleep(SLOW),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

//! All that the supervisor knows: sockets, generations, programs, and the state for the next process.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::binary::Binary;
use crate::channel::read_blob;
use crate::exposition::Sum;
use crate::generation::{Generation, Phase, memory_of};
use crate::protocol::{HeldSocket, Item};

/// The number of programs that are remembered: the present one and the one before.
const BINARIES: usize = 2;
/// The most former generations that may still serve connections. If there are more, the oldest is ended.
const DRAINING_MOST: usize = 32;

/// A listening socket that is kept open.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) socket: HeldSocket,
    /// The number of the generation that has bound the socket, or serves it now.
    pub(crate) owner: u64,
    pub(crate) descriptor: Rc<OwnedFd>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) held: Vec<Held>,
    pub(crate) generations: Vec<Rc<Generation>>,
    /// The number of the generation that accepts.
    pub(crate) serving: u64,
    pub(crate) next: u64,
    /// Programs that were kept, the present one last.
    pub(crate) binaries: Vec<Rc<Binary>>,
    pub(crate) crashes: Vec<Instant>,
    /// The error of the last start after a crash, if this start was with the configuration files. The next start is with
    /// the configuration that was in effect last, and if that fails, too, the one after it is with the files again.
    pub(crate) failed_start: Option<String>,
    pub(crate) items: Vec<(Item, Rc<OwnedFd>)>,
    /// The metrics of generations that have ended.
    pub(crate) ended: Sum,
    pub(crate) any_ended: bool,
    pub(crate) stopping: bool,
    /// The exit code of the supervisor, set once it is to end.
    pub(crate) code: Option<u8>,
    pub(crate) trial: Option<Trial>,
    /// The outcome of the last upgrade.
    pub(crate) last: Option<Value>,
    /// Signals for the serving process that arrived while there was none, or during a trial.
    pub(crate) queued: Vec<Signal>,
    /// The program as which this process is to continue.
    pub(crate) renewal: Option<Rc<Binary>>,
}

/// The upgrade that is under way.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) binary: PathBuf,
    pub(crate) step: String,
    pub(crate) since: Instant,
}

impl Trial {
    pub(crate) fn shown(&self) -> Value {
        json!({ "binary": self.binary, "step": self.step, "seconds": self.since.elapsed().as_secs_f64() })
    }
}

impl State {
    pub(crate) fn generation(&self, number: u64) -> Option<Rc<Generation>> {
        self.generations.iter().find(|known| known.number == number).cloned()
    }

    /// Adds the metrics of a generation that has ended.
    pub(crate) fn add_ended(&mut self, metrics: &OwnedFd) {
        if let Ok(text) = read_blob(metrics) {
            self.ended.add(&String::from_utf8_lossy(&text), true);
            self.any_ended = true;
        }
    }

    /// The memory of all processes in bytes. For processes that report it themselves, the last report counts.
    pub(crate) fn memory(&self) -> u64 {
        memory_of(std::process::id()).unwrap_or_default()
            + self.generations.iter().map(|generation| generation.memory()).sum::<u64>()
    }

    /// Ends the oldest former generations if there are more than [`DRAINING_MOST`].
    pub(crate) fn limit_draining(&self) {
        let draining =
            |known: &&Rc<Generation>| known.phase.get() == Phase::Draining && !known.told_to_end.get();
        let draining: Vec<_> = self.generations.iter().filter(draining).collect();
        let surplus = draining.len().saturating_sub(DRAINING_MOST);
        for oldest in draining.into_iter().take(surplus) {
            tracing::warn!(
                generation = oldest.number,
                "more than {DRAINING_MOST} former versions have connections: the oldest ends"
            );
            oldest.signal(Signal::TERM);
        }
    }

    /// Records that a new program was kept.
    pub(crate) fn remember(&mut self, binary: &Rc<Binary>) {
        // The trial of another configuration changes no program.
        match self.binaries.last_mut() {
            // Nor does an upgrade to the same file.
            Some(present) if Rc::ptr_eq(present, binary) || present.is(binary) => {
                *present = Rc::clone(binary);
            }
            _ => self.binaries.push(Rc::clone(binary)),
        }
        let surplus = self.binaries.len().saturating_sub(BINARIES);
        self.binaries.drain(..surplus);
        self.crashes.clear();
    }

    /// Takes over the sockets of another supervisor, with the generations that own them.
    pub(crate) fn adopt_sockets(
        &mut self,
        sockets: Vec<HeldSocket>,
        owners: &[u64],
        descriptors: impl Iterator<Item = OwnedFd>,
    ) {
        let serving = self.serving;
        let sockets = sockets.into_iter().zip(descriptors).enumerate();
        self.held.extend(sockets.map(|(number, (socket, descriptor))| {
            let owner = owners.get(number).copied().unwrap_or(serving);
            Held { socket, owner, descriptor: Rc::new(descriptor) }
        }));
    }

    /// The trial that runs, and the end of the last one.
    pub(crate) fn upgrade_status(&self) -> Value {
        json!({ "running": self.trial.as_ref().map(Trial::shown), "last": self.last })
    }
}

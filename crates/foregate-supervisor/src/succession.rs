//! Replacing the supervisor. Its process continues as another version of the program and keeps all sockets,
//! processes and state. A new supervisor can also take over from one that has died.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use crate::binary::Binary;
use crate::channel::{self, DESCRIPTORS_LIMIT, blob};
use crate::control;
use crate::generation::{Generation, Phase, StartedProcess};
use crate::protocol::{BEQUEST, Bequest, Past, Role};
use crate::supervisor::{ADOPTING_VARIABLE, Supervisor};

/// The size of the socket buffer that holds the state until the next program reads it, bytes.
const QUEUE: usize = 4 << 20;
/// The most sockets in one message.
const SOCKETS: usize = DESCRIPTORS_LIMIT;
/// Environment variables that describe descriptors. They are removed, since the next program gets its
/// descriptors with the state.
const OF_THE_START: [&str; 3] = ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

/// A process that is taken over.
struct Takeover {
    started: StartedProcess,
    serving: bool,
    past: Past,
}

impl Supervisor {
    /// Plans that this process continues as the new version, which was kept, as soon as no command is under way.
    pub(crate) fn plan_renewal(&self, new: &Generation, binary: &Rc<Binary>) {
        if binary.runs_here() {
            return;
        }
        if new.adopts.get() < BEQUEST {
            tracing::info!("the supervisor stays: the version that serves now cannot take over from it");
            return;
        }
        self.state.borrow_mut().renewal = Some(Rc::clone(binary));
    }

    /// Continues as the planned version, if no command is under way. Returns only if it is too early or if the
    /// replacement fails; then nothing has changed.
    pub(crate) fn renew(&self) {
        if !self.may_renew() {
            return;
        }
        let Some(binary) = self.state.borrow_mut().renewal.take() else { return };
        let path = binary.path.display();
        tracing::info!(binary = %path, "the supervisor goes on as this version");
        let error = match self.bequeath() {
            Ok(queue) => {
                let mut arguments = vec![binary.path.clone().into_os_string()];
                arguments.extend(self.options.arguments.iter().cloned());
                let is_passed = |name: &OsStr| !OF_THE_START.iter().any(|other| name == *other);
                let mut environment: Vec<(OsString, OsString)> = std::env::vars_os()
                    .filter(|(name, _)| is_passed(name) && name != ADOPTING_VARIABLE)
                    .collect();
                environment.push((ADOPTING_VARIABLE.into(), "1".into()));
                (self.options.replacement.replace)(&binary.program(), &arguments, &environment, queue)
            }
            Err(error) => error,
        };
        tracing::error!(binary = %path, %error, "the supervisor stays as it is: it cannot go on as another program");
    }

    fn may_renew(&self) -> bool {
        let state = self.state.borrow();
        let is_settled = |generation: &Rc<Generation>| {
            let ends = generation.refused.get() || generation.told_to_end.get() || generation.has_ended();
            *generation.ready.borrow() && !ends && !generation.is_asked()
        };
        let serves = state.generations.iter().any(|generation| generation.number == state.serving);
        state.trial.is_none()
            && !state.stopping
            && serves
            && !self.restarting.get()
            && !self.is_busy()
            && state.generations.iter().all(is_settled)
    }

    /// Writes the state for the next program into a socket; returns the end from which it can be read.
    fn bequeath(&self) -> io::Result<OwnedFd> {
        let (ours, theirs) = channel::pair()?;
        // There is no reader yet, so a blocking write would wait for ever: a state that does not fit has to be an
        // error.
        rustix::io::ioctl_fionbio(&ours, true)?;
        rustix::net::sockopt::set_socket_send_buffer_size(&ours, QUEUE)?;
        let tell = |bequest: &Bequest, descriptors: &[BorrowedFd<'_>]| {
            channel::send(ours.as_fd(), &serde_json::to_vec(bequest)?, descriptors)
        };
        let state = self.state.borrow();
        if let Some(control) = &*self.control.borrow() {
            tell(&Bequest::Control { path: control.path().to_owned() }, &[control.listener().as_fd()])?;
        }
        let programs =
            state.binaries.iter().map(|known| (known.path.clone(), known.file().is_some())).collect();
        let files: Vec<_> = state.binaries.iter().filter_map(|known| known.file()).map(AsFd::as_fd).collect();
        tell(&Bequest::Programs { programs }, &files)?;
        for generation in &state.generations {
            let bequest = Bequest::Generation {
                number: generation.number,
                binary: generation.binary.clone(),
                pid: generation.pid.get(),
                version: generation.version.borrow().clone(),
                serving: generation.number == state.serving,
                past: generation.past(),
            };
            tell(&bequest, &[generation.channel.as_fd()])?;
        }
        for some in state.held.chunks(SOCKETS) {
            let sockets = some.iter().map(|held| held.socket.clone()).collect();
            let owners = some.iter().map(|held| held.owner).collect();
            let descriptors: Vec<_> = some.iter().map(|held| held.descriptor.as_fd()).collect();
            tell(&Bequest::Sockets { sockets, owners }, &descriptors)?;
        }
        let items: Vec<_> = state.items.iter().take(DESCRIPTORS_LIMIT).collect();
        let descriptors: Vec<_> = items.iter().map(|(_, blob)| blob.as_fd()).collect();
        tell(&Bequest::Items { items: items.iter().map(|(item, _)| item.clone()).collect() }, &descriptors)?;
        if state.any_ended {
            let ended = blob(state.ended.text().as_bytes())?;
            tell(&Bequest::Ended, &[ended.as_fd()])?;
        }
        if let Some(last) = &state.last {
            tell(&Bequest::Last { last: last.clone() }, &[])?;
        }
        tell(&Bequest::End { next: state.next }, &[])?;
        Ok(theirs)
    }

    /// Takes over the state of another supervisor, or of this one before its program was replaced. Returns the
    /// coordination socket if the state contains it.
    ///
    /// # Errors
    ///
    /// The state cannot be read.
    pub(crate) fn adopt(&self, from: &OwnedFd) -> io::Result<Option<control::Socket>> {
        let mut socket = None;
        while let Some(message) = channel::receive(from.as_fd())? {
            let mut descriptors = message.descriptors.into_iter();
            match serde_json::from_slice(&message.bytes)? {
                Bequest::Sockets { sockets, owners } => {
                    self.state.borrow_mut().adopt_sockets(sockets, &owners, descriptors);
                }
                Bequest::Control { path } => {
                    socket = descriptors
                        .next()
                        .and_then(|descriptor| control::Socket::adopt(path, descriptor).ok());
                }
                Bequest::Programs { programs } => {
                    let kept = programs.into_iter().map(|(path, is_open)| {
                        let file = if is_open { descriptors.next() } else { None };
                        Rc::new(Binary::kept(path, file))
                    });
                    self.state.borrow_mut().binaries = kept.collect();
                }
                Bequest::Last { last } => self.state.borrow_mut().last = Some(last),
                Bequest::Generation { number, binary, pid, version, serving, past } => {
                    let age = Duration::from_millis(past.age);
                    let started = StartedProcess { number, binary, role: Role::Restart, pid, version, age };
                    if let Some(channel) = descriptors.next() {
                        self.adopt_generation(Takeover { started, serving, past }, channel);
                    }
                }
                Bequest::Items { items } => {
                    let items = items.into_iter().zip(descriptors.map(Rc::new));
                    self.state.borrow_mut().items.extend(items);
                }
                Bequest::Ended => {
                    descriptors.next().iter().for_each(|metrics| self.state.borrow_mut().add_ended(metrics));
                }
                Bequest::End { next } => {
                    let mut state = self.state.borrow_mut();
                    state.next = state.next.max(next);
                    break;
                }
                Bequest::Unknown => {}
            }
        }
        Ok(socket)
    }

    fn adopt_generation(&self, Takeover { started, serving, past }: Takeover, channel: OwnedFd) {
        let (number, binary) = (started.number, started.binary.clone());
        let Ok(generation) = Generation::adopt(started, &past, channel, &self.events) else { return };
        generation.ready.send_replace(true);
        generation.phase.set(if serving { Phase::Serving } else { Phase::Draining });
        let mut state = self.state.borrow_mut();
        state.next = state.next.max(number + 1);
        if serving {
            state.serving = number;
            generation.share.set(10_000);
            if state.binaries.is_empty() {
                state.binaries = vec![Rc::new(Binary::at(&binary))];
            }
        }
        state.generations.push(generation);
    }
}

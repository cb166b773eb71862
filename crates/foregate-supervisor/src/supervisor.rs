//! The main loop of the supervisor: one thread that handles signals, processes and commands.

use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::{mpsc, watch};
use tokio::task::{LocalSet, spawn_local};

use crate::binary::Binary;
use crate::channel::DESCRIPTORS_LIMIT;
use crate::control;
use crate::generation::{Event, Exit, Generation, Phase};
use crate::notify::tell_manager;
use crate::protocol::{Envelope, HeldSocket, Item, Order, PROTOCOL, Purpose, Report, Role};
use crate::state::{Held, State};

/// The variable that makes `foregate run` a supervisor that takes over: its standard input holds
/// the state of the old one.
pub const ADOPTING_VARIABLE: &str = "FOREGATE_ADOPTING";

/// The time limit for a process to answer with its state or its metrics.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// The span over which crashes are counted.
const CRASHES_WITHIN: Duration = Duration::from_secs(30);
/// After this many crashes within [`CRASHES_WITHIN`], the previous program is started, if there is one.
const CRASHES_MOST: usize = 3;
/// The pause before the second start in a row; it doubles with each further one.
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MOST: Duration = Duration::from_secs(5);
/// The interval at which the supervisor saves the state of the serving process, for use after a crash.
const SAVE_EVERY: Duration = Duration::from_secs(10);
/// The interval at which the supervisor checks if the planned replacement of its own program is possible.
const RENEW_EVERY: Duration = Duration::from_millis(50);
/// How long a former generation may serve its open connections.
pub(crate) const DRAINING_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// The settings of a supervisor.
#[derive(Debug)]
pub struct Options {
    /// The arguments of the processes that serve.
    pub arguments: Vec<OsString>,
    /// The configuration file, if there is one.
    pub configuration: Option<PathBuf>,
    /// Sockets that the service manager has passed.
    pub inherited: Vec<OwnedFd>,
    /// The version of this program.
    pub version: &'static str,
    /// If this supervisor takes over from another one: the socket from which it reads the state of the other.
    pub adopts: Option<OwnedFd>,
    /// The calls into the system that replace the program of this process.
    pub replacement: ReplacementCalls,
}

/// Replaces the program of this process. The arguments are the path of the new program, its arguments (its
/// name first), its environment, and its standard input. Signals are blocked in the new program until it
/// handles them, so that none is lost. Returns only on failure; then everything is as before.
pub type ReplaceProgram = fn(&OsStr, &[OsString], &[EnvironmentVariable], OwnedFd) -> io::Error;
/// The name of an environment variable, and its value.
pub type EnvironmentVariable = (OsString, OsString);

/// System calls that need unsafe code, which this crate forbids.
#[derive(Debug, Clone, Copy)]
pub struct ReplacementCalls {
    /// See [`ReplaceProgram`].
    pub replace: ReplaceProgram,
    /// Unblocks signals.
    pub unblock_signals: fn(),
}

#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) options: Options,
    pub(crate) state: RefCell<State>,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    /// Ends the running trial when it is set to a reason.
    pub(crate) abort: watch::Sender<Option<String>>,
    pub(crate) restarting: Cell<bool>,
    pub(crate) control: RefCell<Option<control::Socket>>,
    /// Counts, by its clones, the tasks that would be lost if this program were replaced.
    busy: Rc<()>,
}

/// Runs the supervisor until all processes have ended. Returns the exit code.
///
/// # Errors
///
/// The system's error for a process or a socket.
pub fn run(options: Options) -> io::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (events, received) = mpsc::unbounded_channel();
    let supervisor = Rc::new(Supervisor {
        options,
        state: RefCell::default(),
        events,
        abort: watch::channel(None).0,
        restarting: Cell::new(false),
        control: RefCell::default(),
        busy: Rc::new(()),
    });
    let local = LocalSet::new();
    let code = local.block_on(&runtime, supervisor.live(received))?;
    Ok(ExitCode::from(code))
}

struct Signals {
    hangup: unix::Signal,
    reopen: unix::Signal,
    upgrade: unix::Signal,
    quit: unix::Signal,
    terminate: unix::Signal,
    interrupt: unix::Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: unix::signal(SignalKind::hangup())?,
            reopen: unix::signal(SignalKind::user_defined1())?,
            upgrade: unix::signal(SignalKind::user_defined2())?,
            quit: unix::signal(SignalKind::quit())?,
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::HUP,
            _ = self.reopen.recv() => Signal::USR1,
            _ = self.upgrade.recv() => Signal::USR2,
            _ = self.quit.recv() => Signal::QUIT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.interrupt.recv() => Signal::INT,
        }
    }
}

impl Supervisor {
    async fn live(self: Rc<Self>, mut events: mpsc::UnboundedReceiver<Event>) -> io::Result<u8> {
        let mut signals = Signals::new()?;
        (self.options.replacement.unblock_signals)();
        let adopted = self.options.adopts.as_ref().map(|adopts| self.adopt(adopts)).transpose()?;
        let control = adopted.flatten();
        let control = control.or_else(|| control::Socket::bind(self.options.configuration.as_deref()));
        let listener = control.as_ref().map(control::Socket::listener);
        self.control.replace(control);
        if self.options.adopts.is_some() {
            let pid = std::process::id();
            tell_manager(&format!("MAINPID={pid}\nREADY=1\n"));
        } else {
            self.hold_inherited();
            let binary = Rc::new(Binary::running()?);
            self.state.borrow_mut().binaries.push(Rc::clone(&binary));
            self.start(&binary, Role::First).await?;
        }
        if let Some(listener) = listener {
            spawn_local(control::serve(listener, Rc::clone(&self)));
        }
        let mut saving = tokio::time::interval(SAVE_EVERY);
        saving.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let renews = self.state.borrow().renewal.is_some();
            tokio::select! {
                Some(event) = events.recv() => self.take(event).await,
                signal = signals.next() => self.signalled(signal),
                _ = saving.tick() => self.save_items(),
                () = tokio::time::sleep(RENEW_EVERY), if renews => {}
            }
            if renews && events.is_empty() {
                self.renew();
            }
            let state = self.state.borrow();
            if let Some(code) = state.code
                && state.generations.is_empty()
            {
                // Dropping the socket removes its file.
                self.control.replace(None);
                return Ok(code);
            }
        }
    }

    /// Holds the sockets that the service manager has passed. Their addresses stay empty: the serving process
    /// reads them from the sockets.
    fn hold_inherited(&self) {
        let mut state = self.state.borrow_mut();
        for descriptor in &self.options.inherited {
            let socket = HeldSocket { address: String::new(), purpose: Purpose::Clients, from_manager: true };
            match descriptor.try_clone() {
                Ok(descriptor) => state.held.push(Held { socket, owner: 0, descriptor: Rc::new(descriptor) }),
                Err(error) => tracing::error!(%error, "a socket of LISTEN_FDS cannot be kept"),
            }
        }
    }

    /// Starts a process, which gets the sockets and the state.
    pub(crate) async fn start(&self, binary: &Binary, role: Role) -> io::Result<Rc<Generation>> {
        let number = self.next_number();
        let generation =
            Generation::start(number, binary, &self.options.arguments, role, &self.events, None)?;
        let (sockets, items) = {
            let mut state = self.state.borrow_mut();
            if role != Role::Candidate {
                state.serving = number;
                for held in &mut state.held {
                    held.owner = number;
                }
            }
            state.generations.push(Rc::clone(&generation));
            let sockets: Vec<_> =
                state.held.iter().map(|held| (held.socket.clone(), Rc::clone(&held.descriptor))).collect();
            (sockets, state.items.clone())
        };
        // An error is ignored: a process that does not read these messages does not become ready, which is noticed.
        let _ = self.begin(&generation, &sockets, &items).await;
        Ok(generation)
    }

    /// The number of the next process that is started.
    pub(crate) fn next_number(&self) -> u64 {
        let mut state = self.state.borrow_mut();
        state.next += 1;
        state.next
    }

    pub(crate) async fn begin(
        &self,
        generation: &Generation,
        sockets: &[(HeldSocket, Rc<OwnedFd>)],
        items: &[(Item, Rc<OwnedFd>)],
    ) -> io::Result<()> {
        for some in sockets.chunks(DESCRIPTORS_LIMIT) {
            let descriptors: Vec<BorrowedFd<'_>> =
                some.iter().map(|(_, descriptor)| descriptor.as_fd()).collect();
            let sockets = some.iter().map(|(socket, _)| socket.clone()).collect();
            generation.tell(None, Order::Sockets { sockets }, &descriptors).await?;
        }
        let control =
            self.control.borrow().as_ref().map(|control| (control.path().to_owned(), control.listener()));
        if let Some((path, listener)) = control {
            generation.tell(None, Order::Control { path }, &[listener.as_fd()]).await?;
        }
        let items = &items[..items.len().min(DESCRIPTORS_LIMIT)];
        let descriptors: Vec<BorrowedFd<'_>> =
            items.iter().map(|(_, descriptor)| descriptor.as_fd()).collect();
        let order = Order::Begin {
            protocol: PROTOCOL,
            generation: generation.number,
            role: generation.role,
            binary: generation.binary.clone(),
            items: items.iter().map(|(item, _)| item.clone()).collect(),
            failure: self.state.borrow().failed_start.clone().filter(|_| generation.role == Role::Restart),
        };
        generation.tell(None, order, &descriptors).await
    }

    pub(crate) fn generation(&self, number: u64) -> Option<Rc<Generation>> {
        self.state.borrow().generation(number)
    }

    /// The generation that accepts.
    pub(crate) fn serving(&self) -> Option<Rc<Generation>> {
        let serving = self.state.borrow().serving;
        self.generation(serving).filter(|generation| !generation.has_ended())
    }

    async fn take(self: &Rc<Self>, event: Event) {
        match event {
            Event::Ended(number, exit) => self.ended(number, exit),
            Event::Report(number, report, descriptors) => {
                if let Some(generation) = self.generation(number) {
                    self.reported(&generation, report, descriptors);
                }
            }
        }
    }

    fn reported(
        self: &Rc<Self>,
        generation: &Rc<Generation>,
        Envelope { id, body }: Envelope<Report>,
        descriptors: Vec<OwnedFd>,
    ) {
        match body {
            Report::Ready { version, pid, lacks, inherits, adopts, purges, moves_cache, .. } => {
                generation.purges.set(purges);
                generation.moves_cache.set(moves_cache);
                generation.inherits.set(inherits);
                generation.adopts.set(adopts);
                generation.version.replace(version);
                generation.lacks.replace(lacks);
                generation.pid.set(pid);
                generation.start_took.set(generation.started.elapsed());
                generation.ready.send_replace(true);
                if generation.role != Role::Candidate {
                    generation.phase.set(Phase::Serving);
                    generation.share.set(10_000);
                    self.state.borrow_mut().failed_start = None;
                    let queued = std::mem::take(&mut self.state.borrow_mut().queued);
                    queued.into_iter().for_each(|signal| generation.signal(signal));
                    spawn_local(Rc::clone(self).keep_items(Rc::clone(generation)));
                }
            }
            Report::Hold { sockets } => {
                let mut state = self.state.borrow_mut();
                for (socket, descriptor) in sockets.into_iter().zip(descriptors) {
                    state
                        .held
                        .retain(|held| held.socket.from_manager || held.socket.address != socket.address);
                    state.held.push(Held {
                        socket,
                        owner: generation.number,
                        descriptor: Rc::new(descriptor),
                    });
                }
            }
            Report::Release { addresses } => {
                let mut state = self.state.borrow_mut();
                state.held.retain(|held| {
                    let owned = held.owner == generation.number && !held.socket.from_manager;
                    !owned || !addresses.contains(&held.socket.address)
                });
            }
            Report::Notify { text } => {
                let state = self.state.borrow();
                // A generation that has been replaced must not tell the service manager that the service stops.
                if state.serving == generation.number && (state.stopping || !text.contains("STOPPING=1")) {
                    tell_manager(&text);
                }
            }
            Report::Others => {
                if let Some(own) = descriptors.into_iter().next() {
                    generation.shown.replace(Some(own));
                }
                spawn_local(Rc::clone(self).tell_others(Rc::clone(generation), id));
            }
            Report::Purges => {
                spawn_local(Rc::clone(self).tell_purges(Rc::clone(generation), id, descriptors));
            }
            Report::Share { items } => {
                spawn_local(Rc::clone(self).share(Rc::clone(generation), id, items, descriptors));
            }
            Report::Last => {
                generation.shown.replace(None);
                descriptors.first().into_iter().for_each(|blob| self.state.borrow_mut().add_ended(blob));
            }
            // The answer to a question without a waiter any more, or a message of a newer version.
            _ => {}
        }
    }

    /// Marks a task as busy: this program is not replaced while the result lives.
    pub(crate) fn busy(&self) -> Rc<()> {
        Rc::clone(&self.busy)
    }

    pub(crate) fn is_busy(&self) -> bool {
        Rc::strong_count(&self.busy) > 1
    }

    /// Saves the state of the serving process, for the process that replaces it after a crash.
    pub(crate) async fn keep_items(self: Rc<Self>, generation: Rc<Generation>) {
        if let Ok((Report::Items { items }, blobs)) = generation.ask(Order::Items, &[], PATIENCE).await {
            self.state.borrow_mut().items = items.into_iter().zip(blobs.into_iter().map(Rc::new)).collect();
        }
    }

    /// Saves the present state of the serving process. Does nothing during a trial, which saves the state itself.
    fn save_items(self: &Rc<Self>) {
        let in_trial = self.state.borrow().trial.is_some();
        if let Some(serving) = self.serving().filter(|serving| !in_trial && *serving.ready.borrow()) {
            spawn_local(Rc::clone(self).keep_items(serving));
        }
    }

    fn signalled(self: &Rc<Self>, signal: Signal) {
        match signal {
            Signal::USR2 => {
                if self.state.borrow().stopping {
                    tracing::warn!("USR2: this process is draining, so that a new one can be started now");
                } else {
                    spawn_local(control::upgrade_by_signal(Rc::clone(self)));
                }
            }
            Signal::HUP => {
                let serving = self.serving().filter(|serving| *serving.ready.borrow());
                let mut state = self.state.borrow_mut();
                match serving {
                    Some(serving) if state.trial.is_none() => serving.signal(signal),
                    _ => {
                        if state.trial.is_some() {
                            tracing::warn!("HUP during an upgrade: the configuration is reloaded behind it");
                        }
                        state.queued.push(signal);
                        state.queued.dedup();
                    }
                }
            }
            Signal::USR1 => {
                let mut state = self.state.borrow_mut();
                let (ready, early): (Vec<_>, Vec<_>) =
                    state.generations.iter().cloned().partition(|generation| *generation.ready.borrow());
                ready.iter().for_each(|generation| generation.signal(signal));
                // A process that is not ready has no log files open yet. If all are starting, the signal is delivered later.
                if ready.is_empty() && !early.is_empty() {
                    state.queued.push(signal);
                }
            }
            _ => self.stop(signal),
        }
    }

    /// Ends all generations by passing the signal on to them.
    fn stop(&self, signal: Signal) {
        let mut state = self.state.borrow_mut();
        state.stopping = true;
        state.code.get_or_insert(0);
        // The sockets are closed now, so that another supervisor can bind the same addresses at once.
        state.held.clear();
        self.abort.send_replace(Some("the supervisor was told to stop".to_owned()));
        for generation in &state.generations {
            generation.signal(signal);
        }
    }

    fn ended(self: &Rc<Self>, number: u64, exit: Exit) {
        let Some(generation) = self.generation(number) else { return };
        // A process that has crashed sends no last metrics, so its last shown metrics are added.
        let shown = generation.shown.replace(None);
        let mut state = self.state.borrow_mut();
        shown.iter().for_each(|shown| state.add_ended(shown));
        state.generations.retain(|known| known.number != number);
        if state.serving != number {
            tracing::info!(generation = number, "the process has ended: {exit}");
            return;
        }
        if state.stopping {
            if let Exit::Code(code) = exit
                && code != 0
            {
                state.code = Some(u8::try_from(code).unwrap_or(1));
            }
            return;
        }
        if !*generation.ready.borrow() && generation.role == Role::First {
            // The process itself has logged the reason, unless a signal ended it.
            if let Exit::Signal(signal) = exit {
                tracing::error!("the serving process was ended by signal {signal} at its start");
            }
            state.code = Some(if let Exit::Code(code) = exit { u8::try_from(code).unwrap_or(1) } else { 1 });
            return;
        }
        if exit == Exit::Code(0) {
            // Something other than the supervisor has told the process to end, so everything ends.
            state.code = Some(0);
            state.stopping = true;
            state.held.clear();
            state.generations.iter().for_each(|generation| generation.signal(Signal::QUIT));
            return;
        }
        if !*generation.ready.borrow() {
            let failure = generation.failure.borrow().clone();
            let error = || failure.unwrap_or_else(|| format!("the process ended with {exit} at its start"));
            state.failed_start = if state.failed_start.is_none() { Some(error()) } else { None };
        }
        drop(state);
        self.crashed(exit);
    }

    /// Starts the process that serves again. Clients wait in the system's queues meanwhile.
    fn crashed(self: &Rc<Self>, exit: Exit) {
        let mut state = self.state.borrow_mut();
        let now = Instant::now();
        state.crashes.retain(|at| now.saturating_duration_since(*at) < CRASHES_WITHIN);
        state.crashes.push(now);
        let crashes = state.crashes.len();
        if crashes >= CRASHES_MOST && state.binaries.len() > 1 {
            let bad = state.binaries.pop();
            tracing::error!(
                binary = %bad.map(|bad| bad.path.display().to_string()).unwrap_or_default(),
                "crashed {crashes} times within {CRASHES_WITHIN:?}: the program before it serves again"
            );
            state.crashes.clear();
        }
        let doublings = u32::try_from(crashes.saturating_sub(2)).unwrap_or(u32::MAX).min(10);
        let pause =
            if crashes < 2 { Duration::ZERO } else { (BACKOFF * 2_u32.pow(doublings)).min(BACKOFF_MOST) };
        tracing::error!(?pause, "the serving process ended with {exit}: it is started again");
        drop(state);
        if !self.restarting.replace(true) {
            spawn_local(Rc::clone(self).restart(pause));
        }
    }

    async fn restart(self: Rc<Self>, pause: Duration) {
        tokio::time::sleep(pause).await;
        self.restarting.set(false);
        let binary = {
            let state = self.state.borrow();
            if state.stopping {
                return;
            }
            state.binaries.last().cloned()
        };
        let Some(binary) = binary else { return };
        if let Err(error) = self.start(&binary, Role::Restart).await {
            tracing::error!(%error, "the serving process cannot be started");
            self.restarting.set(true);
            let again = Rc::clone(&self);
            spawn_local(async move { Box::pin(again.restart(BACKOFF_MOST)).await });
        }
    }

    /// Performs the actions that waited for the end of the trial.
    pub(crate) fn trial_is_over(&self) {
        self.state.borrow_mut().trial = None;
        self.abort.send_replace(None);
        let serving = self.serving();
        let queued = std::mem::take(&mut self.state.borrow_mut().queued);
        for signal in queued {
            serving.iter().for_each(|serving| serving.signal(signal));
        }
    }

    /// The answer for `foregate status`.
    pub(crate) async fn status(&self) -> Value {
        let generations: Vec<_> = self.state.borrow().generations.clone();
        let mut shown = Vec::new();
        for generation in &generations {
            if *generation.ready.borrow()
                && let Ok((Report::Stats { stats }, _)) =
                    generation.ask(generation.stats_order(), &[], PATIENCE).await
            {
                generation.stats.replace(stats);
            }
            let stats = generation.stats.borrow();
            shown.push(json!({
                "generation": generation.number,
                "pid": generation.pid.get(),
                "version": *generation.version.borrow(),
                "binary": generation.binary,
                "state": generation.phase.get().name(),
                "share": f64::from(generation.share.get()) / 100.0,
                "requests": stats.requests,
                "connections": stats.connections,
                "cores": stats.cores,
                "memory": generation.memory(),
                "seconds": generation.started.elapsed().as_secs(),
            }));
        }
        let mut status = match self.serving() {
            Some(serving) => match serving.ask(Order::Status, &[], PATIENCE).await {
                Ok((Report::Status { status: Value::Object(status) }, _)) => status,
                _ => serde_json::Map::new(),
            },
            None => serde_json::Map::new(),
        };
        status.insert("ok".to_owned(), true.into());
        status.insert(
            "supervisor".to_owned(),
            json!({
                "pid": std::process::id(),
                "version": self.options.version,
                "memory": crate::generation::memory_of(std::process::id()),
            }),
        );
        status.insert("generations".to_owned(), shown.into());
        status.insert("upgrade".to_owned(), self.state.borrow().upgrade_status());
        Value::Object(status)
    }
}

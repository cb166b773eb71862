//! A generation: a process that serves, as the supervisor sees it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::binary::Binary;
use crate::channel::{self, Channel, readiness};
use crate::protocol::{Envelope, FAILURE_LIMIT, Order, Past, Report, Role, Stats};

/// The variable that makes `foregate run` a process that serves for a supervisor: its standard
/// input is the channel.
pub const SERVING_VARIABLE: &str = "FOREGATE_SERVING";

/// The time limit for reading the last messages of a process that has ended. Its channel may never close:
/// another process may hold it open.
const LAST_MESSAGES: Duration = Duration::from_secs(1);

/// Environment variables for the main process alone. Processes that serve do not inherit them.
const OF_THE_MAIN_PROCESS: [&str; 4] = ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET"];

/// The stage of a generation's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The process loads its configuration.
    Starting,
    /// The process is ready and gets a share of the connections during a trial.
    Trial,
    /// Accepts connections.
    Serving,
    /// The process accepts nothing more and serves its open connections to their end.
    Draining,
}

impl Phase {
    /// The name of the stage in logs and in the status.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Trial => "trial",
            Self::Serving => "serving",
            Self::Draining => "draining",
        }
    }
}

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The process ended with a code.
    Code(i32),
    /// A signal ended the process.
    Signal(i32),
    /// The process was not a child of this one, so its exit status is unknown.
    Unknown,
}

impl Exit {
    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }
}

impl Exit {
    /// The exit of a process that was adopted. `Unknown` unless the process is a child of this one, started
    /// before the program of this process was replaced.
    fn of_adopted(process: &AsyncFd<OwnedFd>) -> Self {
        let status = waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED).ok().flatten();
        match status.map(|status| (status.exit_status(), status.terminating_signal())) {
            Some((Some(code), _)) => Self::Code(code),
            Some((None, Some(signal))) => Self::Signal(signal),
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Unknown => f.write_str("an unknown exit code"),
        }
    }
}

/// The reason for which a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The process has ended.
    Ended,
    /// The process has not answered for this long.
    Silent(Duration),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("it has ended"),
            Self::Silent(patience) => write!(f, "no answer within {patience:?}"),
        }
    }
}

/// An answer with its descriptors.
type Answer = (Report, Vec<OwnedFd>);

/// An event of a generation: a report, or its end.
#[derive(Debug)]
pub(crate) enum Event {
    /// A report of the process.
    Report(u64, Envelope<Report>, Vec<OwnedFd>),
    /// The process has ended.
    Ended(u64, Exit),
}

/// A process that serves, or has served.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) number: u64,
    pub(crate) binary: PathBuf,
    pub(crate) role: Role,
    pub(crate) started: Instant,
    /// The time from the start until the process was ready.
    pub(crate) start_took: Cell<Duration>,
    pub(crate) phase: Cell<Phase>,
    /// The share of new connections that the generation gets, hundredths of a percent.
    pub(crate) share: Cell<u32>,
    pub(crate) version: RefCell<String>,
    /// Features that the process lacks until its next start, in words.
    pub(crate) lacks: RefCell<Vec<String>>,
    /// The id of the process that serves. It differs from `spawned` if the supervisor has started a wrapper, which then
    /// started this process.
    pub(crate) pid: Cell<u32>,
    pub(crate) stats: RefCell<Stats>,
    /// Set once the process was sent a signal that ends it.
    pub(crate) told_to_end: Cell<bool>,
    /// Set for a version that was refused: it is killed if it does not end soon.
    pub(crate) refused: Cell<bool>,
    /// Set if the process knows [`Order::Inherit`].
    pub(crate) inherits: Cell<bool>,
    /// See [`Report::Ready`].
    pub(crate) adopts: Cell<u32>,
    /// See [`Report::Ready`].
    pub(crate) purges: Cell<bool>,
    /// See [`Report::Ready`].
    pub(crate) moves_cache: Cell<bool>,
    /// See [`Report::Failed`].
    pub(crate) failure: RefCell<Option<String>>,
    /// Its last metrics that were included in an exposition. They count if the process crashes.
    pub(crate) shown: RefCell<Option<OwnedFd>>,
    /// Becomes true when the process first reports that it is ready.
    pub(crate) ready: watch::Sender<bool>,
    pub(crate) exit: watch::Sender<Option<Exit>>,
    process: OwnedFd,
    /// The id of the process that the supervisor has started: the generation itself, or a wrapper.
    spawned: u32,
    pub(crate) channel: Channel,
    pending: RefCell<HashMap<u64, oneshot::Sender<Answer>>>,
    next_question: Cell<u64>,
}

impl Generation {
    /// Starts a process. Its standard error is `stderr`, or that of the supervisor.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub(crate) fn start(
        number: u64,
        binary: &Binary,
        arguments: &[OsString],
        role: Role,
        events: &mpsc::UnboundedSender<Event>,
        stderr: Option<Stdio>,
    ) -> io::Result<Rc<Self>> {
        let (ours, theirs) = channel::pair()?;
        let mut command = Command::new(binary.program());
        command
            .arg0(&binary.path)
            .args(arguments)
            .stdin(Stdio::from(theirs))
            .env(SERVING_VARIABLE, number.to_string());
        if let Some(stderr) = stderr {
            command.stderr(stderr);
        }
        for name in OF_THE_MAIN_PROCESS {
            command.env_remove(name);
        }
        let child = command.spawn()?;
        let pid = child.id();
        let started = StartedProcess {
            number,
            binary: binary.path.clone(),
            role,
            pid,
            version: String::new(),
            age: Duration::ZERO,
        };
        Self::follow(started, ours, Some(child), events)
    }

    /// Adopts a process that was started by another supervisor, or by this one before its program was replaced.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub(crate) fn adopt(
        mut started: StartedProcess,
        past: &Past,
        channel: OwnedFd,
        events: &mpsc::UnboundedSender<Event>,
    ) -> io::Result<Rc<Self>> {
        let pid = started.pid;
        if past.spawned != 0 {
            started.pid = past.spawned;
        }
        let generation = Self::follow(started, channel, None, events)?;
        generation.pid.set(pid);
        generation.start_took.set(Duration::from_millis(past.start_took));
        generation.next_question.set(past.next_question);
        generation.lacks.replace(past.lacks.clone());
        generation.inherits.set(past.inherits);
        generation.adopts.set(past.adopts);
        generation.purges.set(past.purges);
        generation.moves_cache.set(past.moves_cache);
        Ok(generation)
    }

    /// The history of the generation, for the next supervisor.
    pub(crate) fn past(&self) -> Past {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Past {
            spawned: self.spawned,
            age: millis(self.started.elapsed()),
            start_took: millis(self.start_took.get()),
            next_question: self.next_question.get(),
            lacks: self.lacks.borrow().clone(),
            inherits: self.inherits.get(),
            adopts: self.adopts.get(),
            purges: self.purges.get(),
            moves_cache: self.moves_cache.get(),
        }
    }

    /// Returns true if a question has no answer yet.
    pub(crate) fn is_asked(&self) -> bool {
        !self.pending.borrow().is_empty()
    }

    fn follow(
        started: StartedProcess,
        channel: OwnedFd,
        child: Option<Child>,
        events: &mpsc::UnboundedSender<Event>,
    ) -> io::Result<Rc<Self>> {
        let StartedProcess { number, binary, role, pid, version, age } = started;
        let process = Pid::from_raw(pid.cast_signed()).ok_or(io::ErrorKind::InvalidInput)?;
        let process = pidfd_open(process, PidfdFlags::empty())?;
        let generation = Rc::new(Self {
            number,
            binary,
            role,
            started: Instant::now().checked_sub(age).unwrap_or_else(Instant::now),
            start_took: Cell::default(),
            phase: Cell::new(Phase::Starting),
            share: Cell::new(0),
            version: RefCell::new(version),
            lacks: RefCell::default(),
            pid: Cell::new(pid),
            stats: RefCell::default(),
            told_to_end: Cell::new(false),
            refused: Cell::new(false),
            inherits: Cell::new(false),
            adopts: Cell::new(0),
            purges: Cell::new(false),
            moves_cache: Cell::new(false),
            failure: RefCell::default(),
            shown: RefCell::default(),
            ready: watch::channel(false).0,
            exit: watch::channel(None).0,
            process: process.try_clone()?,
            spawned: pid,
            channel: Channel::new(channel)?,
            pending: RefCell::default(),
            next_question: Cell::new(0),
        });
        let process = readiness(process)?;
        let read = tokio::task::spawn_local(Rc::clone(&generation).read(events.clone()));
        tokio::task::spawn_local(Rc::clone(&generation).wait(process, child, read, events.clone()));
        Ok(generation)
    }

    async fn read(self: Rc<Self>, events: mpsc::UnboundedSender<Event>) {
        loop {
            let message = match self.channel.receive().await {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(generation = self.number, %error, "a message could not be received");
                    break;
                }
            };
            let report: Envelope<Report> = match serde_json::from_slice(&message.bytes) {
                Ok(report) => report,
                Err(error) => {
                    tracing::warn!(generation = self.number, %error, "a message is not understood");
                    continue;
                }
            };
            if let Report::Failed { error } = report.body {
                // Kept here and not as an event, so that it is known when the process is seen to have ended.
                self.failure.replace(Some(shortened(error)));
                continue;
            }
            let asked = report.id.and_then(|id| self.pending.borrow_mut().remove(&id));
            match asked {
                // The task that asked may have given up.
                Some(asked) => drop(asked.send((report.body, message.descriptors))),
                None => drop(events.send(Event::Report(self.number, report, message.descriptors))),
            }
        }
        // The process answers nothing any more, so the waiting tasks are released.
        self.pending.borrow_mut().clear();
    }

    async fn wait(
        self: Rc<Self>,
        process: AsyncFd<OwnedFd>,
        mut child: Option<Child>,
        read: JoinHandle<()>,
        events: mpsc::UnboundedSender<Event>,
    ) {
        // The descriptor becomes readable when the process ends.
        let _ = process.readable().await;
        // The last messages of the process are handled before its end.
        let _ = tokio::time::timeout(LAST_MESSAGES, read).await;
        let exit = match &mut child {
            Some(child) => child.wait().map_or(Exit::Unknown, Exit::of),
            None => Exit::of_adopted(&process),
        };
        self.exit.send_replace(Some(exit));
        let _ = events.send(Event::Ended(self.number, exit));
    }

    /// Completes once the process has ended.
    pub(crate) async fn ended(&self) -> Exit {
        let mut exit = self.exit.subscribe();
        let ended = exit.wait_for(Option::is_some).await;
        ended.ok().and_then(|exit| *exit).unwrap_or(Exit::Unknown)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// The process has ended, or does not read.
    pub(crate) async fn tell(
        &self,
        id: Option<u64>,
        order: Order,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let text = serde_json::to_vec(&Envelope { id, body: order })?;
        let sent = tokio::time::timeout(Duration::from_secs(5), self.channel.send(&text, descriptors)).await;
        sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Asks a question.
    ///
    /// # Errors
    ///
    /// There is no answer within `patience`.
    pub(crate) async fn ask(
        &self,
        order: Order,
        descriptors: &[BorrowedFd<'_>],
        patience: Duration,
    ) -> Result<Answer, NoAnswer> {
        let id = self.next_question.replace(self.next_question.get() + 1);
        let (answer, answered) = oneshot::channel();
        self.pending.borrow_mut().insert(id, answer);
        let asked = async {
            self.tell(Some(id), order, descriptors).await.map_err(|_| NoAnswer::Ended)?;
            answered.await.map_err(|_| NoAnswer::Ended)
        };
        let answer = tokio::select! {
            answer = tokio::time::timeout(patience, asked) => answer.unwrap_or(Err(NoAnswer::Silent(patience))),
            _ = self.ended() => Err(NoAnswer::Ended),
        };
        self.pending.borrow_mut().remove(&id);
        answer
    }

    /// Sends a signal, if the process still runs.
    pub(crate) fn signal(&self, signal: Signal) {
        if [Signal::TERM, Signal::QUIT, Signal::INT, Signal::KILL].contains(&signal) {
            self.told_to_end.set(true);
        }
        // A process that has ended needs no signal.
        let _ = pidfd_send_signal(&self.process, signal);
        // A wrapper may not pass the signal on to the process that serves.
        let own = self.pid.get();
        if own != self.spawned
            && !self.has_ended()
            && let Some(pid) = Pid::from_raw(own.cast_signed())
        {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// The order that asks the process for its numbers. After a process has changed its user, only root and the
    /// process itself can read its memory and descriptors. If the supervisor may not read them, the order asks
    /// for them too.
    pub(crate) fn stats_order(&self) -> Order {
        let holdings = std::fs::File::open(format!("/proc/{}/smaps_rollup", self.pid.get())).is_err();
        Order::Stats { holdings }
    }

    /// Its memory (proportional set size), bytes.
    pub(crate) fn memory(&self) -> u64 {
        memory_of(self.pid.get()).unwrap_or_else(|| self.stats.borrow().memory)
    }

    /// Its open descriptors.
    pub(crate) fn open_descriptors(&self) -> u64 {
        descriptors_of(self.pid.get()).unwrap_or_else(|| self.stats.borrow().open)
    }
}

/// The start of an error, at most [`FAILURE_LIMIT`] bytes.
fn shortened(mut error: String) -> String {
    if error.len() > FAILURE_LIMIT {
        error.truncate(error.floor_char_boundary(FAILURE_LIMIT));
        error.push_str(" ...");
    }
    error
}

/// The proportional set size of a process, bytes; `None` if this process may not read it.
pub fn memory_of(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// The number of open descriptors of a process; `None` if this process may not read it.
pub fn descriptors_of(process: u32) -> Option<u64> {
    let folder = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    Some(folder.count() as u64)
}

/// The identity of a process that has been started.
#[derive(Debug, Clone)]
pub(crate) struct StartedProcess {
    pub(crate) number: u64,
    pub(crate) binary: PathBuf,
    pub(crate) role: Role,
    pub(crate) pid: u32,
    pub(crate) version: String,
    /// The time since its start.
    pub(crate) age: Duration,
}

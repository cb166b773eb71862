//! A process that serves under a supervisor: its equipment at the start, and the messages in both
//! directions.

use std::collections::HashMap;
use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use foregate_supervisor::channel::{self, Channel, DESCRIPTORS_LIMIT, blob, read_blob};
use foregate_supervisor::protocol::{
    BEQUEST, Bequest, Envelope, FAILURE_LIMIT, HeldSocket, Item, Order, PROTOCOL, Past, Purpose, Report,
    Role, Stats,
};
use foregate_supervisor::{ADOPTING_VARIABLE, SERVING_VARIABLE, descriptors_of, memory_of};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::inheritance::{self, CONFIGURATION};
use super::source::SettingsSource;
use crate::admin;
use crate::cache::generations::{PurgeNotice, QUEUE, read_all, write_all};
use crate::handover::MetricsQuestion;
use crate::names::Resolver;
use crate::proxy::Proxy;
use crate::sys;
use crate::telemetry::exposition::ExpositionFormat;

/// The most bytes of configuration files that are kept for the process that follows a crash.
const CONFIGURATION_LIMIT: usize = 32 << 20;
/// How long latencies are still recorded after the supervisor has last asked for them.
const WATCHED: Duration = Duration::from_secs(10);
/// The time limit for an answer of the supervisor.
const PATIENCE: Duration = Duration::from_secs(3);
/// The time limit at the end of a process for sending its last metrics.
const FAREWELL: Duration = Duration::from_secs(1);

/// The equipment that a serving process gets from its supervisor at its start.
#[derive(Debug)]
pub struct Supervised {
    pub(super) channel: OwnedFd,
    pub(super) generation: u64,
    pub(super) role: Role,
    pub(super) binary: PathBuf,
    pub(super) sockets: Vec<(HeldSocket, OwnedFd)>,
    pub(super) items: Vec<(Item, OwnedFd)>,
    /// The coordination socket and its path, for a new supervisor.
    pub(super) control: Option<(PathBuf, OwnedFd)>,
    /// The reason why this process does not use the configuration files, if it does not.
    pub(super) refused: Option<String>,
}

impl Supervised {
    /// Reads the equipment from the supervisor, if this process was started by one. To be called
    /// once, before anything reads the standard input.
    ///
    /// # Errors
    ///
    /// The standard input is no channel to a supervisor, or the supervisor has gone.
    pub fn attach() -> io::Result<Option<Self>> {
        if env::var_os(SERVING_VARIABLE).is_none() {
            return Ok(None);
        }
        let channel = take_stdin()?;
        let (mut sockets, mut control) = (Vec::new(), None);
        let gone = || io::Error::other("the supervisor has gone");
        loop {
            let message = channel::receive(channel.as_fd())?.ok_or_else(gone)?;
            match serde_json::from_slice::<Envelope<Order>>(&message.bytes)?.body {
                Order::Sockets { sockets: some } => sockets.extend(some.into_iter().zip(message.descriptors)),
                Order::Control { path } => {
                    control = message.descriptors.into_iter().next().map(|socket| (path, socket));
                }
                Order::Begin { generation, role, binary, items, failure, .. } => {
                    let items = items.into_iter().zip(message.descriptors).collect();
                    let refused = failure.filter(|_| role == Role::Restart);
                    let supervised =
                        Self { channel, generation, role, binary, sockets, items, control, refused };
                    return Ok(Some(supervised));
                }
                _ => {}
            }
        }
    }

    /// The texts of the configuration that was in effect before a crash, as [`SettingsSource::take_texts`] has returned them.
    /// `None` if this process does not follow a crash, or if there are none.
    pub fn kept_configuration(&self) -> Option<Vec<u8>> {
        let follows_crash = self.role == Role::Restart;
        let texts = follows_crash.then(|| inheritance::piece(&self.items, CONFIGURATION)).flatten();
        texts.filter(|texts| !texts.is_empty())
    }

    /// The reason why the process before this one could not start with the configuration files.
    pub fn failed_start(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Records that this process serves [`Self::kept_configuration`] because the files were refused, and why; `None` if
    /// the process uses the files.
    pub fn refuse_files(&mut self, reason: Option<String>) {
        self.refused = reason;
    }

    /// The notice of a failed start. `None` if there is no descriptor left for it.
    pub fn failure_notice(&self) -> Option<FailureNotice> {
        self.channel.try_clone().ok().map(FailureNotice)
    }
}

/// Tells the supervisor why the process cannot start.
#[derive(Debug)]
pub struct FailureNotice(OwnedFd);

impl FailureNotice {
    /// Sends the error with its advice. To be called once, before the process ends.
    pub fn send(&self, error: &str) {
        let error = error.get(..error.floor_char_boundary(FAILURE_LIMIT)).unwrap_or_default().to_owned();
        let report = Envelope { id: None, body: Report::Failed { error } };
        // If the supervisor has gone, or does not read, the error is in the log all the same.
        let _ = serde_json::to_vec(&report)
            .map_err(io::Error::from)
            .and_then(|report| channel::send(self.0.as_fd(), &report, &[]));
    }
}

/// Duplicates the standard input. The new descriptor is closed on exec, so no other program gets it.
///
/// # Errors
///
/// The system's refusal.
pub fn take_stdin() -> io::Result<OwnedFd> {
    io::stdin().as_fd().try_clone_to_owned()
}

/// A message for the server's main task.
#[derive(Debug)]
pub(super) enum Message {
    /// An order of the supervisor, with the number of its question and the descriptors that came with it.
    Order(Option<u64>, Order, Vec<OwnedFd>),
    /// The process has handed over, and none of its connections may bring another request.
    Remnant,
    /// The process has handed over, and none of its exchanges holds the configuration any more.
    Unused,
    /// The supervisor has gone.
    Lost,
}

/// A report that waits to be sent.
#[derive(Debug)]
struct Outgoing {
    report: Envelope<Report>,
    descriptors: Vec<OwnedFd>,
    /// Notified once the report has been sent.
    sent: Option<oneshot::Sender<()>>,
}

/// The connection to the supervisor.
#[derive(Debug, Clone)]
pub(super) struct SupervisorLink {
    outgoing: mpsc::UnboundedSender<Outgoing>,
    questions: Arc<Questions>,
    channel: Arc<Channel>,
    /// Locked while state is read and sent, so that the latest state arrives last: the supervisor keeps the
    /// last piece that it gets.
    saving: Arc<Mutex<()>>,
    configuration: KeptConfiguration,
}

/// The blob with the texts of the configuration in effect, once the source of the settings has written them.
pub(super) type KeptConfiguration = Arc<Mutex<Option<OwnedFd>>>;

/// The piece of state in this blob.
pub(super) fn configuration_item(kept: &KeptConfiguration) -> Option<(Item, OwnedFd)> {
    let blob = kept.lock().as_ref()?.try_clone().ok()?;
    Some((Item { tag: CONFIGURATION.0.to_owned(), version: CONFIGURATION.1 }, blob))
}

#[derive(Debug, Default)]
struct Questions {
    next: AtomicU64,
    open: Mutex<HashMap<u64, oneshot::Sender<Vec<OwnedFd>>>>,
}

impl SupervisorLink {
    /// Connects to the supervisor over this channel. Orders that are not answered here go to `commands`.
    pub(super) fn new(
        channel: OwnedFd,
        proxy: &Arc<Proxy>,
        commands: mpsc::UnboundedSender<Message>,
        configuration: KeptConfiguration,
    ) -> io::Result<Self> {
        let channel = Arc::new(Channel::new(channel)?);
        let (outgoing, mut to_send) = mpsc::unbounded_channel::<Outgoing>();
        let sender = Arc::clone(&channel);
        tokio::spawn(async move {
            while let Some(Outgoing { report, descriptors, sent }) = to_send.recv().await {
                // An error needs no handling: the receiving side notices that the channel has ended.
                let _ = send(&sender, &report, &descriptors).await;
                // The waiting task may have given up.
                let _ = sent.map(|sent| sent.send(()));
            }
        });
        let link =
            Self { outgoing, questions: Arc::default(), channel, saving: Arc::default(), configuration };
        tokio::spawn(link.clone().read(Arc::clone(proxy), commands));
        Ok(link)
    }

    pub(super) fn report(&self, report: Report) {
        self.answer(None, report, Vec::new());
    }

    pub(super) fn answer(&self, id: Option<u64>, report: Report, descriptors: Vec<OwnedFd>) {
        // If the reader is gone, the process is about to end.
        let report = Envelope { id, body: report };
        let _ = self.outgoing.send(Outgoing { report, descriptors, sent: None });
    }

    /// Runs long work on another thread than the workers.
    #[allow(
        clippy::disallowed_methods,
        reason = "the supervisor asks one question at a time, and an operator's orders come one by one, so the queue is short"
    )]
    pub(super) fn beside(self, work: impl FnOnce(&Self) + Send + 'static) {
        tokio::task::spawn_blocking(move || {
            work(&self);
            // The thread may be idle for long, so its memory is returned now.
            sys::collect_memory();
        });
    }

    /// Adds the memory and the number of descriptors of this process to `stats`, and sends the answer.
    fn report_holdings(self, id: Option<u64>, mut stats: Stats) {
        // Not on a worker, because the system reads all page tables for this.
        self.beside(move |link| {
            let own = std::process::id();
            stats.memory = memory_of(own).unwrap_or_default();
            stats.open = descriptors_of(own).unwrap_or_default();
            link.answer(id, Report::Stats { stats }, Vec::new());
        });
    }

    /// Answers with the state for the next generation. The counts of rate limits, which may be megabytes, are copied first,
    /// and the small pieces last, so that these are current when they are sent.
    pub(super) fn report_items(self, id: Option<u64>, proxy: Arc<Proxy>, resolver: Resolver) {
        self.beside(move |link| {
            let steps = inheritance::save_steps(&proxy.config());
            let _saving = link.saving.lock();
            let small = inheritance::save_small(&proxy, &resolver);
            let configuration = configuration_item(&link.configuration);
            let (items, blobs) = small.into_iter().chain(configuration).chain(steps).unzip();
            link.answer(id, Report::Items { items }, blobs);
        });
    }

    /// Keeps the texts of the configuration that has taken effect. The supervisor gets them at once if this process
    /// serves (`is_serving`), else with the next state.
    pub(super) fn keep_configuration(self, source: Arc<dyn SettingsSource>, is_serving: bool) {
        self.beside(move |link| {
            let _saving = link.saving.lock();
            let Some(texts) = source.take_texts(CONFIGURATION_LIMIT) else { return };
            if texts.is_empty() {
                tracing::warn!(
                    "the configuration files are longer than {} MiB: if the process crashes, and the files are refused then, nothing serves",
                    CONFIGURATION_LIMIT >> 20
                );
            }
            *link.configuration.lock() = blob(&texts).ok();
            if is_serving && let Some((item, blob)) = configuration_item(&link.configuration) {
                link.answer(None, Report::Share { items: vec![item] }, vec![blob]);
            }
        });
    }

    /// Sends each new order of an operator to the supervisor, which keeps it and passes it on to the other generations.
    pub(super) async fn tell_orders(
        self,
        proxy: Weak<Proxy>,
        mut given: mpsc::Receiver<oneshot::Sender<()>>,
    ) {
        while let Some(told) = given.recv().await {
            let Some(proxy) = proxy.upgrade() else { return };
            let (id, answered) = self.question();
            self.clone().beside(move |link| {
                let _saving = link.saving.lock();
                let (items, blobs) = inheritance::save_health(&proxy.config()).into_iter().unzip();
                link.answer(Some(id), Report::Share { items }, blobs);
            });
            let _ = tokio::time::timeout(PATIENCE, answered).await;
            self.questions.open.lock().remove(&id);
            // The operator may have gone.
            let _ = told.send(());
        }
    }

    /// Registers a question. Returns its number, and the receiver of its answer.
    fn question(&self) -> (u64, oneshot::Receiver<Vec<OwnedFd>>) {
        let id = self.questions.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.questions.open.lock().insert(id, answer);
        (id, answered)
    }

    /// Makes the supervisor keep a copy of a socket.
    pub(super) fn hold(&self, socket: HeldSocket, descriptor: io::Result<OwnedFd>) {
        match descriptor {
            Ok(descriptor) => self.answer(None, Report::Hold { sockets: vec![socket] }, vec![descriptor]),
            Err(error) => {
                tracing::error!(address = socket.address, %error, "a socket would not outlive a crash");
            }
        }
    }

    async fn read(self, proxy: Arc<Proxy>, commands: mpsc::UnboundedSender<Message>) {
        let mut watched = false;
        loop {
            let received = tokio::time::timeout(WATCHED, self.channel.receive()).await;
            let Ok(received) = received else {
                if std::mem::take(&mut watched) {
                    proxy.metrics.latencies.watch(false);
                }
                continue;
            };
            let message = match received {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "a message of the supervisor could not be received");
                    break;
                }
            };
            let Ok(Envelope { id, body }) = serde_json::from_slice::<Envelope<Order>>(&message.bytes) else {
                tracing::warn!("a message of the supervisor is not understood");
                continue;
            };
            match body {
                Order::Stats { holdings } => {
                    watched = true;
                    proxy.metrics.latencies.watch(true);
                    let stats = admin::stats(&proxy);
                    if holdings {
                        self.clone().report_holdings(id, stats);
                    } else {
                        self.answer(id, Report::Stats { stats }, Vec::new());
                    }
                }
                Order::Exposition => {
                    let text = admin::own_metrics(&proxy, ExpositionFormat::OpenMetrics);
                    self.answer(id, Report::Exposition, blob(text.as_bytes()).into_iter().collect());
                }
                Order::Status => {
                    self.answer(id, Report::Status { status: admin::status(&proxy) }, Vec::new());
                }
                Order::Purges => {
                    for blob in &message.descriptors {
                        let bytes = read_blob(blob).unwrap_or_default();
                        read_all(&bytes).for_each(|purge| proxy.cache.repeat_of_generation(purge));
                    }
                    self.answer(id, Report::Done, Vec::new());
                }
                Order::Others | Order::Purged | Order::Shared => {
                    let asked = id.and_then(|id| self.questions.open.lock().remove(&id));
                    // The asking task may have given up.
                    let _ = asked.map(|asked| asked.send(message.descriptors));
                }
                Order::Unknown => {}
                order => drop(commands.send(Message::Order(id, order, message.descriptors))),
            }
        }
        let _ = commands.send(Message::Lost);
    }

    /// Asks for the metrics of the other generations, for each scrape.
    pub(super) async fn ask_for_others(self, mut asked: mpsc::Receiver<MetricsQuestion>) {
        while let Some(MetricsQuestion { own, answer: question }) = asked.recv().await {
            let (id, answered) = self.question();
            self.answer(Some(id), Report::Others, blob(own.as_bytes()).into_iter().collect());
            let blobs = tokio::time::timeout(PATIENCE, answered).await.ok().and_then(Result::ok);
            self.questions.open.lock().remove(&id);
            let texts = blobs.unwrap_or_default().into_iter().filter_map(|blob| read_blob(blob).ok());
            let texts = texts.map(|text| String::from_utf8_lossy(&text).into_owned()).collect();
            // A scraper may have gone.
            let _ = question.send(texts);
        }
    }

    /// Sends purges to the supervisor, which passes them on to other generations. All waiting purges are
    /// sent together.
    pub(super) async fn tell_purges(self, mut notices: mpsc::Receiver<PurgeNotice>) {
        let mut waiting = Vec::new();
        while notices.recv_many(&mut waiting, QUEUE).await > 0 {
            let purges = write_all(waiting.iter().map(|notice| &*notice.purge));
            let (id, answered) = self.question();
            self.answer(Some(id), Report::Purges, blob(&purges).into_iter().collect());
            // A supervisor that is being replaced answers late.
            let arrived = matches!(tokio::time::timeout(PATIENCE, answered).await, Ok(Ok(_)));
            self.questions.open.lock().remove(&id);
            for notice in waiting.drain(..).filter(|_| arrived) {
                // Nobody waits for a purge that a client's request has caused.
                let _ = notice.told.send(());
            }
            waiting.clear();
        }
    }

    /// Sends the last metrics to the supervisor, after all waiting reports.
    pub(super) async fn farewell(&self, proxy: &Proxy) {
        let text = admin::own_metrics(proxy, ExpositionFormat::OpenMetrics);
        let Ok(blob) = blob(text.as_bytes()) else { return };
        let report = Envelope { id: None, body: Report::Last };
        let (sent, is_sent) = oneshot::channel();
        let _ = self.outgoing.send(Outgoing { report, descriptors: vec![blob], sent: Some(sent) });
        let _ = tokio::time::timeout(FAREWELL, is_sent).await;
    }
}

async fn send(channel: &Channel, report: &Envelope<Report>, descriptors: &[OwnedFd]) -> io::Result<()> {
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    channel.send(&serde_json::to_vec(report)?, &descriptors).await
}

/// The state that a new supervisor gets if the old one has died.
pub(super) struct Estate<'a> {
    pub(super) generation: u64,
    pub(super) binary: PathBuf,
    pub(super) sockets: Vec<(HeldSocket, OwnedFd)>,
    pub(super) items: &'a [(Item, OwnedFd)],
    pub(super) control: Option<&'a (PathBuf, OwnedFd)>,
}

/// Starts a supervisor that takes over, and returns our end of its channel.
///
/// # Errors
///
/// The supervisor cannot be started.
pub(super) fn start_supervisor(estate: Estate<'_>) -> io::Result<(OwnedFd, Child)> {
    let (queue, theirs) = channel::pair()?;
    let (ours, given) = channel::pair()?;
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let child = Command::new(&estate.binary)
        .args(arguments)
        .stdin(Stdio::from(theirs))
        .env(ADOPTING_VARIABLE, "1")
        .env_remove(SERVING_VARIABLE)
        .spawn()?;
    let tell = |bequest: &Bequest, descriptors: &[&OwnedFd]| {
        let descriptors: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
        channel::send(queue.as_fd(), &serde_json::to_vec(bequest)?, &descriptors)
    };
    let generation = Bequest::Generation {
        number: estate.generation,
        binary: estate.binary,
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        serving: true,
        past: Past { inherits: true, adopts: BEQUEST, purges: true, moves_cache: true, ..Past::default() },
    };
    tell(&generation, &[&given])?;
    for some in estate.sockets.chunks(DESCRIPTORS_LIMIT) {
        let sockets = some.iter().map(|(socket, _)| socket.clone()).collect();
        let descriptors: Vec<_> = some.iter().map(|(_, descriptor)| descriptor).collect();
        tell(&Bequest::Sockets { sockets, owners: Vec::new() }, &descriptors)?;
    }
    let items = &estate.items[..estate.items.len().min(DESCRIPTORS_LIMIT)];
    let descriptors: Vec<_> = items.iter().map(|(_, descriptor)| descriptor).collect();
    tell(&Bequest::Items { items: items.iter().map(|(item, _)| item.clone()).collect() }, &descriptors)?;
    if let Some((path, socket)) = estate.control {
        tell(&Bequest::Control { path: path.clone() }, &[socket])?;
    }
    tell(&Bequest::End { next: estate.generation }, &[])?;
    Ok((ours, child))
}

/// The report that everything is loaded and bound.
pub(super) fn ready(lacks: Vec<String>) -> Report {
    Report::Ready {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        lacks,
        inherits: true,
        adopts: BEQUEST,
        purges: true,
        moves_cache: true,
    }
}

/// The description of a socket that the supervisor is to keep.
pub(super) fn held(address: String, purpose: Purpose, from_manager: bool) -> HeldSocket {
    HeldSocket { address, purpose, from_manager }
}

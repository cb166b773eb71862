//! A server under a supervisor: it starts with inherited sockets, exchanges connections with other
//! generations, and retires.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use foregate_supervisor::channel::Channel;
use foregate_supervisor::protocol::{Item, Order, Purpose, Report, Role};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::watch;
use tokio::time::Instant;

use super::inheritance;
use super::sockets::SocketFile;
use super::source::SettingsSource;
use super::supervised::{self, Estate, KeptConfiguration, Message, Supervised, SupervisorLink};
use super::{RunningServer, Stop, remnant, warm};
use crate::admin;
use crate::cache::generations::QUEUE;
use crate::handover::{Passage, PassedConnection, answer, receive};
use crate::listener::Listener;
use crate::pinning;
use crate::proxy::Proxy;
use crate::settings::Listen;
use crate::upstream::inheritance::Moment;

/// The time limit for one listener to answer the probe that the process sends to itself.
const PROBE: Duration = Duration::from_secs(5);
/// The request of the probe. It has no host, so it is refused and no origin gets it.
const PROBE_REQUEST: &str = "GET / HTTP/1.1\r\n\r\n";
/// The start of the expected answer, also of a TLS listener.
const PROBE_ANSWER: &[u8] = b"HTTP/1.1 400";
/// The time limit for a successor to acknowledge the connections passed to it, before this process retires.
const SETTLED: Duration = Duration::from_secs(1);

/// The channels to the listeners for connections that another process has accepted, by the listener's
/// address.
pub(super) type Arrivals = Arc<Mutex<HashMap<String, mpsc::Sender<PassedConnection>>>>;

/// The role of this process among the generations, and its connection to the supervisor.
pub(super) struct Membership {
    link: Option<SupervisorLink>,
    pub(super) messages: mpsc::UnboundedReceiver<Message>,
    pub(super) sender: mpsc::UnboundedSender<Message>,
    generation: u64,
    binary: PathBuf,
    /// True while the process is on trial and does not accept connections yet.
    pub(super) is_candidate: bool,
    /// The sockets that an earlier process has bound and no listener has taken yet.
    held: Mutex<HashMap<(Purpose, String), OwnedFd>>,
    /// The metrics and admin sockets, for a new supervisor.
    side_sockets: Mutex<HashMap<(Purpose, String), OwnedFd>>,
    pub(super) arrivals: Arrivals,
    /// Set once the process has handed over: the time at which it ends at the latest.
    pub(super) retired: Option<Instant>,
    /// A channel that closes when all stored responses have been given to the next version.
    pub(super) giving: Option<watch::Receiver<()>>,
    /// A supervisor that this process has started.
    supervisor: Option<Child>,
    /// The coordination socket and its path, for a supervisor that this process may have to start.
    control: Option<(PathBuf, OwnedFd)>,
    /// The configuration in effect, for the process that follows a crash.
    configuration: KeptConfiguration,
}

impl Membership {
    /// The membership with the equipment from a supervisor; without a supervisor it is empty.
    pub(super) fn new(supervised: Option<Supervised>, proxy: &Arc<Proxy>) -> io::Result<Self> {
        let (sender, messages) = mpsc::unbounded_channel();
        let mut membership = Self {
            link: None,
            messages,
            sender: sender.clone(),
            generation: 0,
            binary: PathBuf::new(),
            is_candidate: false,
            held: Mutex::default(),
            side_sockets: Mutex::default(),
            arrivals: Arc::default(),
            retired: None,
            giving: None,
            supervisor: None,
            control: None,
            configuration: KeptConfiguration::default(),
        };
        let Some(supervised) = supervised else { return Ok(membership) };
        membership.generation = supervised.generation;
        membership.binary = supervised.binary;
        membership.control = supervised.control;
        membership.is_candidate = supervised.role == Role::Candidate;
        let held = supervised.sockets.into_iter();
        let held = held.map(|(socket, descriptor)| ((socket.purpose, socket.address), descriptor));
        membership.held = Mutex::new(held.collect());
        membership.connect(supervised.channel, proxy)?;
        Ok(membership)
    }

    /// Connects to a supervisor over this channel.
    fn connect(&mut self, channel: OwnedFd, proxy: &Arc<Proxy>) -> io::Result<()> {
        let link = SupervisorLink::new(channel, proxy, self.sender.clone(), Arc::clone(&self.configuration))?;
        let (others, asked) = mpsc::channel(1);
        proxy.handover.set_others(others);
        tokio::spawn(link.clone().ask_for_others(asked));
        let (notices, purges) = mpsc::channel(QUEUE);
        proxy.cache.generations.connect(notices);
        if self.is_candidate {
            proxy.cache.generations.are_several();
        }
        tokio::spawn(link.clone().tell_purges(purges));
        let (orders, given) = mpsc::channel(1);
        proxy.handover.set_orders(orders);
        tokio::spawn(link.clone().tell_orders(Arc::downgrade(proxy), given));
        let notices = link.clone();
        crate::notify::through(move |text| notices.report(Report::Notify { text }));
        self.link = Some(link);
        Ok(())
    }

    pub(super) fn take_held(&self, purpose: Purpose, address: &str) -> Option<OwnedFd> {
        self.held.lock().remove(&(purpose, address.to_owned()))
    }

    /// Hands a socket that was bound here to the supervisor.
    pub(super) fn hold(&self, purpose: Purpose, address: String, socket: impl AsFd) {
        if let Some(link) = &self.link {
            let descriptor = socket.as_fd().try_clone_to_owned();
            if purpose != Purpose::Clients
                && let Ok(descriptor) = socket.as_fd().try_clone_to_owned()
            {
                let mut sockets = self.side_sockets.lock();
                sockets.retain(|(known, _), _| *known != purpose);
                sockets.insert((purpose, address.clone()), descriptor);
            }
            link.hold(supervised::held(address, purpose, false), descriptor);
        }
    }

    /// Tells the supervisor that nobody listens on these sockets any more.
    pub(super) fn release(&self, addresses: Vec<String>) {
        self.side_sockets.lock().retain(|(_, known), _| !addresses.contains(known));
        if let Some(link) = self.link.as_ref().filter(|_| !addresses.is_empty()) {
            link.report(Report::Release { addresses });
        }
    }

    /// Closes our copies of sockets, so that a successor may bind their addresses.
    pub(super) fn close_sockets(&mut self) {
        self.control = None;
        self.held.lock().clear();
        self.side_sockets.lock().clear();
    }

    /// Reports that everything is loaded and bound. If this process serves, sockets that no listener took are
    /// released.
    pub(super) fn ready(&self, lacks: Vec<String>) {
        let Some(link) = &self.link else { return };
        if !self.is_candidate {
            let unused = self.held.lock().drain().map(|((_, address), _)| address).collect();
            self.release(unused);
        }
        link.report(supervised::ready(lacks));
    }

    pub(super) async fn farewell(&self, proxy: &Proxy) {
        if let Some(link) = &self.link {
            link.farewell(proxy).await;
        }
    }

    /// Keeps the configuration that has taken effect, for the process that follows a crash.
    pub(super) fn keep_configuration(&self, source: &Arc<dyn SettingsSource>) {
        if let Some(link) = self.link.clone() {
            link.keep_configuration(Arc::clone(source), !self.is_candidate);
        }
    }

    fn done(&self, id: Option<u64>) {
        if let Some(link) = &self.link {
            link.answer(id, Report::Done, Vec::new());
        }
    }
}

/// For a process that has handed over: completes once it has given its cache away and has no connections left,
/// or once its time is up. Returns true if it has no connections left.
pub(super) async fn has_retired(
    proxy: &Proxy,
    retired: Option<Instant>,
    giving: Option<watch::Receiver<()>>,
) -> bool {
    let empty = async {
        if let Some(mut giving) = giving {
            // Nothing is sent on this channel: the error says that it has closed.
            let _ = giving.changed().await;
        }
        proxy.registry.empty().await;
    };
    match retired {
        None => std::future::pending().await,
        Some(deadline) => tokio::select! {
            () = empty => true,
            () = tokio::time::sleep_until(deadline) => false,
        },
    }
}

impl RunningServer {
    /// Handles one message of the supervisor. A returned value ends the process.
    pub(super) async fn follow(&mut self, message: Message) -> Option<Stop> {
        let (id, order, mut descriptors) = match message {
            Message::Order(id, order, descriptors) => (id, order, descriptors),
            Message::Lost => return self.lost_supervisor(),
            Message::Remnant => {
                self.shed();
                return None;
            }
            Message::Unused => {
                self.drop_configuration();
                return None;
            }
        };
        match order {
            Order::Probe => {
                let listeners: Vec<_> = self
                    .listening
                    .values()
                    .map(|listening| (Arc::clone(&listening.settings.borrow()), listening.arrivals.clone()))
                    .collect();
                let link = self.membership.link.clone();
                tokio::spawn(async move {
                    let error = probe(listeners).await.err();
                    link.iter().for_each(|link| {
                        link.answer(id, Report::Probed { error: error.clone() }, Vec::new());
                    });
                });
                return None;
            }
            Order::Receive => {
                let channel = descriptors.pop().map(Channel::new);
                if let Some(Ok(channel)) = channel {
                    tokio::spawn(take_connections(channel, Arc::clone(&self.membership.arrivals)));
                }
            }
            Order::Pass { share: 0 } => self.take_back(),
            Order::Pass { share } => {
                if let Some(Ok(channel)) = descriptors.pop().map(Channel::new) {
                    self.pass_to(channel);
                    self.proxy.cache.generations.are_several();
                }
                self.proxy.handover.passage().iter().for_each(|passage| passage.set_share(share));
            }
            Order::Accept => {
                if let Err(error) = self.take_over() {
                    // No answer is sent, so the other version goes on serving.
                    tracing::error!(%error, "this version cannot take over");
                    return Some(Stop::AtOnce);
                }
            }
            Order::Pin => {
                // Only the process that serves binds its workers.
                if !self.membership.is_candidate && self.membership.retired.is_none() {
                    pinning::bind();
                }
                return None;
            }
            Order::GiveCache => {
                self.membership.giving = warm::give(Arc::clone(&self.proxy.cache), descriptors.pop());
                return None;
            }
            Order::TakeCache => {
                warm::take(Arc::clone(&self.proxy.cache), descriptors.pop());
                return None;
            }
            Order::Retire { patience, replaced } => {
                self.retire(Duration::from_millis(patience), replaced).await;
            }
            Order::Items => {
                if let Some(link) = self.membership.link.clone() {
                    link.report_items(id, Arc::clone(&self.proxy), self.upstreams.resolver().clone());
                }
                return None;
            }
            Order::Inherit { items } => {
                let items: Vec<_> = items.into_iter().zip(descriptors).collect();
                let (config, certificates) = (self.proxy.config(), self.certificates.clone());
                if let Some(link) = self.membership.link.clone() {
                    // On another thread, so that requests are not delayed.
                    link.beside(move |link| {
                        inheritance::restore(&items, &config, &certificates, Moment::Later);
                        link.answer(id, Report::Done, Vec::new());
                    });
                }
                return None;
            }
            _ => return None,
        }
        self.membership.done(id);
        None
    }

    /// The status of a process without a supervisor, in the format that a supervisor reports.
    pub(super) fn status(&self) -> serde_json::Value {
        let mut status = admin::status(&self.proxy);
        status["ok"] = true.into();
        status["generations"] = serde_json::json!([{
            "generation": 1,
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "state": "serving",
            "share": 100.0,
            "requests": admin::stats(&self.proxy).requests,
            "connections": self.proxy.registry.count(),
        }]);
        status
    }

    /// The state that goes to the next generation.
    fn state_items(&self) -> Vec<(Item, OwnedFd)> {
        let mut items = inheritance::save(&self.proxy, self.upstreams.resolver());
        items.extend(supervised::configuration_item(&self.membership.configuration));
        items
    }

    fn pass_to(&self, channel: Channel) {
        let passage = Arc::new(Passage::new(channel));
        self.proxy.handover.set_passage(Some(Arc::clone(&passage)));
        let arrivals = Arc::clone(&self.membership.arrivals);
        tokio::spawn(async move {
            passage.follow(|passed| deliver(&arrivals, passed)).await;
            // The other version has gone: its connections are served here.
            passage.take_back().into_iter().for_each(|passed| deliver(&arrivals, passed));
        });
    }

    /// Stops passing connections on, and serves those that the other process has not acknowledged.
    fn take_back(&self) {
        if let Some(passage) = self.proxy.handover.set_passage(None) {
            passage.take_back().into_iter().for_each(|passed| deliver(&self.membership.arrivals, passed));
        }
    }

    /// Begins to accept connections, and takes over everything that the previous version served.
    fn take_over(&mut self) -> io::Result<()> {
        let config = self.proxy.config();
        let side = self.bind_side(&config.settings)?;
        self.membership.is_candidate = false;
        self.apply_side(&config.settings, side);
        for (address, listening) in &mut self.listening {
            let passed = self.inherited.values().any(|passed| Arc::ptr_eq(passed, &listening.listener));
            if listening.file.is_none() && !passed {
                listening.file = SocketFile::of(address);
            }
        }
        let unused = self.membership.held.lock().drain().map(|((_, address), _)| address).collect();
        self.membership.release(unused);
        self.proxy.handover.accept(true);
        self.source.started();
        tracing::info!("this version accepts");
        Ok(())
    }

    /// Leaves the sockets to another version. The process then ends once all its connections have ended.
    async fn retire(&mut self, patience: Duration, replaced: bool) {
        self.proxy.handover.accept(false);
        pinning::release();
        self.source.handed_over();
        if let Some(passage) = self.proxy.handover.passage() {
            let until = Instant::now() + SETTLED;
            while !passage.is_settled() && Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            self.take_back();
        }
        self.inherited.clear();
        self.membership.close_sockets();
        self.membership.configuration.lock().take();
        for (_, mut listening) in self.listening.drain() {
            if replaced && let Some(file) = listening.file.take() {
                file.keep();
            }
            // The listener's task ends by itself.
            drop(listening.stop());
        }
        self.membership.arrivals.lock().clear();
        let metrics = self.metrics_task.take().map(|(_, task)| task);
        let admin = self.admin_task.take().map(|(file, task)| {
            if replaced {
                file.keep();
            }
            task
        });
        let dashboard = self.dashboard.stop(replaced);
        [metrics, admin, dashboard].into_iter().flatten().for_each(|task| task.abort());
        self.proxy.registry.be_gentle(true);
        self.proxy.drain();
        if let Err(error) = self.proxy.cache.store.release_folders() {
            tracing::warn!(%error, "the cache's folders are given up; purges of the next version do not reach this one");
        }
        self.membership.is_candidate = false;
        self.membership.retired = Some(Instant::now() + patience);
        let (giving, messages) = (self.membership.giving.clone(), self.membership.sender.clone());
        tokio::spawn(remnant::watch(Arc::clone(&self.proxy.registry), giving, messages));
        let connections = self.proxy.registry.count();
        tracing::info!(connections, "this version accepts no more; it ends with its last connection");
    }

    /// The supervisor has died: this process starts another one, if it is serving.
    fn lost_supervisor(&mut self) -> Option<Stop> {
        self.membership.link = None;
        if self.membership.is_candidate {
            tracing::error!("the supervisor has gone: this version was on trial, and ends");
            return Some(Stop::AtOnce);
        }
        if self.membership.retired.is_some() {
            return None;
        }
        tracing::error!("the supervisor has gone: another one takes over");
        // Connections that the other process has not acknowledged are served here.
        self.take_back();
        if let Some(mut former) = self.membership.supervisor.take() {
            // Reaps the process of the former supervisor.
            let _ = former.try_wait();
        }
        let estate = Estate {
            generation: self.membership.generation,
            binary: self.membership.binary.clone(),
            sockets: self.all_sockets(),
            items: &self.state_items(),
            control: self.membership.control.as_ref(),
        };
        let started = supervised::start_supervisor(estate).and_then(|(channel, child)| {
            self.membership.supervisor = Some(child);
            self.membership.connect(channel, &self.proxy)
        });
        if let Err(error) = started {
            tracing::error!(%error, "no supervisor can be started: this process goes on alone");
        }
        None
    }

    /// The sockets that a supervisor holds.
    fn all_sockets(&self) -> Vec<(foregate_supervisor::protocol::HeldSocket, OwnedFd)> {
        let mut sockets = Vec::new();
        for (address, listening) in &self.listening {
            let from_manager = self.inherited.values().any(|passed| Arc::ptr_eq(passed, &listening.listener));
            let socket = supervised::held(address.to_string(), Purpose::Clients, from_manager);
            sockets.extend(listening.listener.as_fd().try_clone_to_owned().ok().map(|fd| (socket, fd)));
        }
        sockets.extend(self.membership.side_sockets.lock().iter().filter_map(
            |((purpose, address), socket)| {
                let held = supervised::held(address.clone(), *purpose, false);
                socket.try_clone().ok().map(|socket| (held, socket))
            },
        ));
        sockets
    }
}

/// Gives a connection to its listener. Closes it if the listener no longer exists.
fn deliver(arrivals: &Arrivals, passed: PassedConnection) {
    let Some(listener) = arrivals.lock().get(&*passed.address).cloned() else { return };
    if let Err(TrySendError::Full(passed)) = listener.try_send(passed) {
        tokio::spawn(async move {
            // The listener may have ended.
            let _ = listener.send(passed).await;
        });
    }
}

/// Receives connections from another version until the channel ends.
async fn take_connections(channel: Channel, arrivals: Arrivals) {
    while let Some((number, address, socket)) = receive(&channel).await {
        let listener = arrivals.lock().get(&address).cloned();
        if !answer(&channel, number, listener.is_some()).await {
            continue;
        }
        let Some(listener) = listener else { continue };
        // A connection needs no answer if its client has gone.
        if let Ok((socket, remote)) = Listener::passed(socket) {
            let _ = listener.send(PassedConnection { address: address.into(), socket, remote }).await;
        }
    }
}

/// Sends one request to each listener, without the network.
async fn probe(listeners: Vec<(Arc<Listen>, mpsc::Sender<PassedConnection>)>) -> Result<(), String> {
    for (listen, arrivals) in listeners {
        let asked = tokio::time::timeout(PROBE, probe_one(&listen, &arrivals)).await;
        let address = &listen.address;
        match asked {
            Ok(Ok(answer)) if answer.starts_with(PROBE_ANSWER) => {}
            Ok(Ok(answer)) => {
                let answer = String::from_utf8_lossy(&answer);
                return Err(format!("listen {address}: the answer begins with {answer:?}"));
            }
            Ok(Err(error)) => return Err(format!("listen {address}: {error}")),
            Err(_) => return Err(format!("listen {address}: no answer within {PROBE:?}")),
        }
    }
    Ok(())
}

async fn probe_one(listen: &Listen, arrivals: &mpsc::Sender<PassedConnection>) -> io::Result<Vec<u8>> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let passed =
        PassedConnection { address: listen.address.to_string().into(), socket: theirs.into(), remote: None };
    arrivals.send(passed).await.map_err(|_| io::Error::other("the listener has ended"))?;
    let header = if listen.proxy_protocol_from.is_empty() { "" } else { "PROXY UNKNOWN\r\n" };
    ours.write_all(format!("{header}{PROBE_REQUEST}").as_bytes()).await?;
    let mut start = vec![0; PROBE_ANSWER.len()];
    ours.read_exact(&mut start).await?;
    // The rest of the answer is read, so that the connection ends in good order.
    let _ = ours.read_to_end(&mut Vec::new()).await;
    Ok(start)
}

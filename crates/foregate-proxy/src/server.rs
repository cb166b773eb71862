//! The process: start, reload, and the end.

mod aside;
mod dashboard;
mod generations;
mod inheritance;
mod not_bound;
mod process_limits;
mod remnant;
mod signals;
mod sockets;
mod source;
mod supervised;
#[cfg(test)]
mod tests;
mod warm;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use foregate_module::Plan;
use foregate_supervisor::ReplacementCalls;
use foregate_supervisor::protocol::{Purpose, Role};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use self::aside::Aside;
use self::dashboard::DashboardSlot;
use self::generations::{Membership, has_retired};
pub use self::not_bound::{NotBound, advice};
use self::process_limits::{default_connections, keep_memory_out_of_dumps, raise_descriptor_limit};
use self::signals::Signals;
pub use self::signals::catch_early;
use self::sockets::{Bound, SideSockets, SocketFile};
pub use self::source::SettingsSource;
use self::source::{ReloadAnswer, ReloadCause, SourceControls};
pub use self::supervised::{FailureNotice, Supervised, take_stdin};
use crate::admin;
pub use crate::admin::EffectiveConfiguration;
use crate::admin::{AdminRequest, ConfigurationRefusal, GivenConfiguration};
use crate::cache::Folders;
use crate::configuration::Settings;
use crate::counters::metrics::Metrics;
use crate::exporter;
use crate::handover::PassedConnection;
use crate::limits::clients::Registry;
use crate::limits::pressure;
use crate::listener::{self, Listener, ListenerHandles};
use crate::memory;
use crate::pinning;
use crate::proxy::{Config, Proxy};
use crate::random;
use crate::settings::{Listen, ListenAddress};
use crate::sys;
use crate::telemetry::loads::LoadKind;
use crate::telemetry::log_file::LogFiles;
use crate::time::clock::{self, Clock};
use crate::time::poll_length::WatchedTask;
use crate::tls::CertificateStore;
use crate::upstream::inheritance::Moment;
use crate::upstream::{self, Upstreams};
use crate::watch::ConfiguredFiles;

/// The system calls by which a supervisor replaces its own program.
pub const REPLACEMENT: ReplacementCalls =
    ReplacementCalls { replace: sys::replace_program, unblock_signals: sys::unblock_signals };

/// The number of tasks that a worker polls before it checks its sockets again.
const TASKS_BETWEEN_LOOKS: u32 = 32;
/// The time limit at the end of the process for sending spans, then for the cache's last writes, then for all logs.
const FLUSH: Duration = Duration::from_secs(2);
/// How long the logging of exchanges that are cut off at the end of the process may take.
const END: Duration = Duration::from_millis(500);
/// The time limit for a stopped listener to accept the connections in the system's queue.
const LAST_ARRIVALS: Duration = Duration::from_secs(1);

/// The time that the end of the process may take after the drain, on a busy machine.
const AFTER_DRAIN: Duration = Duration::from_secs(10);

/// How often an old configuration is checked for requests that still use it.
const RETIRE_EVERY: Duration = Duration::from_millis(200);

/// Runs the proxy until a signal stops it.
///
/// `source` reads the settings again for reloads. `supervised` is the equipment from a supervisor, if there is one.
///
/// # Errors
///
/// A listener that cannot be bound, a file that cannot be used, or the system's refusal of threads or sockets.
pub fn run(
    settings: Settings,
    source: Arc<dyn SettingsSource>,
    supervised: Option<Supervised>,
) -> io::Result<()> {
    let inherited = sys::inherited_sockets();
    raise_descriptor_limit();
    keep_memory_out_of_dumps();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = settings.workers {
        runtime.worker_threads(workers.get());
    }
    // The number of tasks that a worker polls before it checks its sockets. With the default of 61,
    // a new request stays unseen for milliseconds when many bodies move as fast as they can.
    runtime.event_interval(TASKS_BETWEEN_LOOKS);
    // The runtime starts workers like its other threads. They are recognised by the park hook below, which only workers call.
    let pinned = settings.pin_workers;
    if pinned {
        pinning::prepare();
    }
    runtime.on_thread_start(move || {
        clock::tells_of_rests();
        random::seed();
        if pinned {
            // A thread inherits the core of the worker that starts it. Threads that are not workers may
            // run on all cores.
            sys::run_on_all_cores();
        }
    });
    runtime.on_thread_park(move || {
        if pinned {
            // Only workers run this, all of them before their first task.
            pinning::enrol();
        }
        clock::rest();
        pressure::settle();
        memory::give_back();
    });
    let runtime = runtime.enable_all().thread_name("foregate-worker").build()?;
    let ended = runtime.block_on(async {
        // Created before anything listens: an early signal must not end the process without a drain.
        let mut signals = Signals::new()?;
        let mut server = RunningServer::start(settings, source, inherited, supervised).await?;
        server.supervise(&mut signals).await;
        if server.exporter.is_some() {
            exporter::finish(&server.proxy, FLUSH).await;
        }
        server.membership.farewell(&server.proxy).await;
        Ok::<_, io::Error>((server.logs, Arc::clone(&server.proxy.cache)))
    });
    let time = ended.as_ref().map_or(FLUSH, |(_, cache)| cache.store.wait_for_bodies(FLUSH));
    // Tasks that are still running are dropped with their connections, and their exchanges logged.
    runtime.shutdown_timeout(END);
    let (logs, cache) = ended?;
    cache.store.flush(time);
    logs.flush(FLUSH);
    Ok(())
}

struct RunningServer {
    proxy: Arc<Proxy>,
    upstreams: Upstreams,
    /// Notified when the servers of services change.
    services: watch::Receiver<u64>,
    certificates: CertificateStore,
    source: Arc<dyn SettingsSource>,
    logs: LogFiles,
    aside: Arc<Aside>,
    listening: HashMap<ListenAddress, Listening>,
    next_listener: usize,
    /// The sockets that were passed to the process. They stay open while it serves, because a later reload
    /// may bring back a listener that was removed.
    inherited: HashMap<ListenAddress, Arc<Listener>>,
    /// Watches the files that the configuration refers to.
    files: ConfiguredFiles,
    changed: mpsc::Receiver<()>,
    requests: mpsc::Receiver<AdminRequest>,
    admin: mpsc::Sender<AdminRequest>,
    metrics_task: Option<(SocketAddr, JoinHandle<()>)>,
    admin_task: Option<(SocketFile, JoinHandle<()>)>,
    /// The task that sends spans; started once a configuration asks for it.
    exporter: Option<JoinHandle<()>>,
    dashboard: DashboardSlot,
    membership: Membership,
}

/// A running listener.
struct Listening {
    id: usize,
    /// The socket file, if this process has created it and removes it again.
    file: Option<SocketFile>,
    listener: Arc<Listener>,
    settings: watch::Sender<Arc<Listen>>,
    stop: watch::Sender<bool>,
    /// The channel to the listener for connections that another process has accepted.
    arrivals: mpsc::Sender<PassedConnection>,
    task: JoinHandle<()>,
}

impl Listening {
    /// Applies new settings. Logs those that the socket rejects.
    fn change(&self, listen: &Listen) {
        let address = &listen.address;
        let old = self.settings.send_replace(Arc::new(listen.clone()));
        if old.backlog != listen.backlog
            && let Err(error) = self.listener.set_backlog(listen.backlog)
        {
            tracing::warn!(%address, %error, "the backlog could not be changed");
        }
        if old.reuse_port != listen.reuse_port {
            tracing::warn!(%address, "a change of `reuse-port` takes effect with the next start");
        }
    }

    /// Stops the listener: its task accepts the connections in the queue, and ends.
    fn stop(self) -> JoinHandle<()> {
        // If a descriptor of the socket stayed open, clients could still connect, but nobody would accept them.
        drop(self.listener);
        self.stop.send_replace(true);
        self.task
    }
}

enum Stop {
    Graceful(Duration),
    AtOnce,
}

impl RunningServer {
    async fn start(
        settings: Settings,
        source: Arc<dyn SettingsSource>,
        mut inherited: Vec<std::os::fd::OwnedFd>,
        mut supervised: Option<Supervised>,
    ) -> io::Result<Self> {
        if let Some(supervised) = &mut supervised {
            let from_manager = supervised.sockets.extract_if(.., |(socket, _)| socket.from_manager);
            inherited.extend(from_manager.map(|(_, socket)| socket));
        }
        // Only the first generation has its cache folders for itself. A later one may have to wait for a generation that
        // still has connections.
        let is_candidate = supervised.as_ref().is_some_and(|supervised| supervised.role == Role::Candidate);
        let follows = is_candidate || supervised.as_ref().is_some_and(|supervised| supervised.generation > 1);
        let folders = if follows { Folders::Awaited } else { Folders::Required };
        // The parts that this generation lacks, for the report of the upgrade.
        let lacks = Vec::new();
        let metrics = Arc::new(Metrics::default());
        let clock = Clock::default();
        let upstreams = Upstreams::new(Arc::clone(&metrics), clock);
        let items = supervised.as_mut().map(|supervised| std::mem::take(&mut supervised.items));
        let items = items.unwrap_or_default();
        inheritance::restore_early(&items, &upstreams);
        let certificates = CertificateStore::with_keeper(source.keeper(), clock);
        let logs = LogFiles::new(clock);
        let mut config = Config::build(settings, &upstreams, &certificates, &[]).map_err(io::Error::other)?;
        config.open_folders(&[])?;
        config.open_logs(&logs, &metrics)?;
        config.settle(&upstreams).await;
        upstreams.resolver().forget_inherited();
        inheritance::restore(&items, &config, &certificates, Moment::Start);
        let proxy = Arc::new(Proxy::new(config, metrics, folders, inheritance::cache(&items), clock)?);
        let _ = proxy.shared.set(Arc::downgrade(&proxy));
        let refused = supervised.as_mut().and_then(|supervised| supervised.refused.take());
        refused.into_iter().for_each(|reason| {
            tracing::error!("the configuration files cannot be used at this start after a crash; the configuration that was in effect before serves, until a reload succeeds: {reason}");
            proxy.metrics.reloads_refused.inc();
            proxy.loads.record(LoadKind::Start, &Err(reason));
        });
        let membership = Membership::new(supervised, &proxy)?;
        proxy.handover.accept(!membership.is_candidate);
        if !membership.is_candidate {
            pinning::bind();
        }
        let (admin, requests) = mpsc::channel(16);
        let (tell, changed) = mpsc::channel(1);
        let mut server = Self {
            proxy: Arc::clone(&proxy),
            services: upstreams.changes(),
            upstreams,
            certificates,
            source,
            logs,
            aside: Arc::new(Aside::start()?),
            listening: HashMap::new(),
            next_listener: 0,
            inherited: HashMap::new(),
            files: ConfiguredFiles::new(tell),
            changed,
            requests,
            admin,
            metrics_task: None,
            admin_task: None,
            exporter: None,
            dashboard: DashboardSlot::default(),
            membership,
        };
        let config = proxy.config();
        for fd in inherited {
            let number = fd.as_raw_fd();
            let listener = Listener::adopt(fd)
                .map_err(|error| named(error, &format!("LISTEN_FDS, descriptor {number}")))?;
            server.inherited.insert(listener.address()?, Arc::new(listener));
        }
        // The sockets for clients are bound last: whoever reaches one of them reaches the metrics and the admin interface too.
        // While a version is on trial, these stay with the version that serves.
        let side = match server.membership.is_candidate {
            true => SideSockets::default(),
            false => server.bind_side(&config.settings)?,
        };
        let bound = server.bind(&config.settings)?;
        for address in server.inherited.keys() {
            let is_used = |bound: &Bound| bound.listener.address().is_ok_and(|used| used == *address);
            if !bound.iter().any(is_used) {
                tracing::warn!(%address, "passed by LISTEN_FDS, but no `listen` names it: its clients wait");
            }
        }
        server.apply(&config, bound, side);
        server.files.follow(&config.settings.watched);
        server.certificates.watch();
        tokio::spawn(memory::wake(tokio::runtime::Handle::current().metrics().num_workers()));
        tokio::spawn(pressure::watch(Arc::clone(&proxy.registry)));
        let (metrics, clock) = (Arc::clone(&proxy.metrics), server.upstreams.clock());
        tokio::spawn(WatchedTask::new(
            upstream::sweep(clock, move || proxy.config().upstreams.clone()),
            metrics,
        ));
        server.membership.ready(lacks);
        server.membership.keep_configuration(&server.source);
        crate::notify::ready();
        if !server.membership.is_candidate {
            server.source.started();
        }
        Ok(server)
    }

    /// Starts everything that the configuration needs and that cannot fail any more.
    fn apply(&mut self, config: &Arc<Config>, bound: Vec<Bound>, side: SideSockets) {
        let settings = &config.settings;
        let limit = settings.limits.connections.unwrap_or_else(default_connections);
        self.proxy.connection_limit.store(limit, Ordering::Relaxed);
        self.proxy.connections_per_client.store(settings.limits.connections_per_client, Ordering::Relaxed);
        let wanted: HashMap<_, _> =
            settings.listeners.iter().map(|listen| (listen.address.clone(), listen)).collect();
        for (address, listening) in self.listening.extract_if(|address, _| !wanted.contains_key(address)) {
            let id = listening.id;
            let stays = self.inherited.values().any(|passed| Arc::ptr_eq(passed, &listening.listener));
            drain_listener(&self.proxy.registry, id, listening.stop(), settings.timeouts.drain);
            self.membership.arrivals.lock().remove(&address.to_string());
            if !stays {
                self.membership.release(vec![address.to_string()]);
            }
            if stays {
                tracing::warn!(%address, "stopped listening; passed by LISTEN_FDS, so that it stays open: its clients wait");
            } else {
                tracing::info!(%address, "stopped listening");
            }
        }
        for (address, listening) in &self.listening {
            if let Some(listen) = wanted.get(address) {
                listening.change(listen);
            }
        }
        for bound in bound {
            self.listen(bound);
        }
        self.apply_side(settings, side);
        if settings.trace_export.is_some() && self.exporter.is_none() {
            let exporter = exporter::run(Arc::clone(&self.proxy));
            let exporter = WatchedTask::new(exporter, Arc::clone(&self.proxy.metrics));
            self.exporter = Some(tokio::spawn(exporter));
        }
        crate::limits::descriptors::look();
        tokio::spawn(async {
            // Connections that have just been closed release their descriptors a little later.
            tokio::time::sleep(Duration::from_secs(2)).await;
            crate::limits::descriptors::look();
        });
        let in_file = |plan: &Arc<Plan>| crate::limits::spool::is_used_by(plan);
        if settings.sites.routes().iter().any(|route| route.plan.get().is_some_and(in_file)) {
            let (spools, folder) = (Arc::clone(&self.proxy.spools), settings.spool_folder());
            tokio::spawn(async move { spools.probe(folder).await });
        }
    }

    fn apply_side(&mut self, settings: &Settings, side: SideSockets) {
        if self.metrics_task.as_ref().is_some_and(|(address, _)| settings.metrics != Some(*address))
            && let Some((address, task)) = self.metrics_task.take()
        {
            self.membership.release(vec![address.to_string()]);
            task.abort();
        }
        if let (Some(listener), Some(address)) = (side.metrics, settings.metrics) {
            self.membership.hold(Purpose::Metrics, address.to_string(), &listener);
            let task = tokio::spawn(admin::serve_metrics(listener, Arc::clone(&self.proxy)));
            tracing::info!(%address, "metrics");
            self.metrics_task = Some((address, task));
        }
        let stays = |file: &SocketFile| side.admin.is_none() && settings.admin.as_ref() == Some(&file.path);
        if self.admin_task.as_ref().is_some_and(|(file, _)| !stays(file))
            && let Some((file, task)) = self.admin_task.take()
        {
            self.membership.release(vec![ListenAddress::Unix(file.path.clone()).to_string()]);
            task.abort();
        }
        if let (Some((listener, file)), Some(path)) = (side.admin, settings.admin.clone()) {
            let address = ListenAddress::Unix(path.clone()).to_string();
            self.membership.hold(Purpose::Admin, address, &listener);
            let task = tokio::spawn(self.serve_admin(listener));
            self.admin_task = Some((file.unwrap_or_else(|| SocketFile::at(path)), task));
        }
        self.dashboard.apply(settings, side.dashboard, &self.membership, &self.proxy);
    }

    fn serve_admin(&self, listener: tokio::net::UnixListener) -> impl Future<Output = ()> + use<> {
        let controls = Arc::new(SourceControls(Arc::clone(&self.source)));
        admin::serve(listener, self.admin.clone(), Arc::clone(&self.proxy), controls)
    }

    fn listen(&mut self, bound: Bound) {
        let Bound { listen, listener, file, is_new } = bound;
        let address = listen.address.clone();
        let shown = listener.address().unwrap_or_else(|_| address.clone());
        tracing::info!(address = %shown, tls = listen.tls.is_some(), "listening");
        let (settings, settings_receiver) = watch::channel(listen);
        let (stop, stop_receiver) = watch::channel(false);
        let id = self.next_listener;
        self.next_listener += 1;
        let proxy = Arc::clone(&self.proxy);
        let (arrivals, arriving) = mpsc::channel(16);
        self.membership.arrivals.lock().insert(address.to_string(), arrivals.clone());
        if is_new {
            self.membership.hold(Purpose::Clients, address.to_string(), &*listener);
        }
        let reached =
            ListenerHandles { settings: settings_receiver, stop: stop_receiver, arrivals: arriving };
        let task = listener::run(proxy, Arc::clone(&listener), reached, id);
        let task = tokio::spawn(WatchedTask::new(task, Arc::clone(&self.proxy.metrics)));
        let listening = Listening { id, file, listener, settings, stop, arrivals, task };
        // The old socket has lost its file, so clients cannot reach it any more.
        if let Some(lost) = self.listening.insert(address, listening) {
            let id = lost.id;
            drain_listener(&self.proxy.registry, id, lost.stop(), self.timeouts().0);
        }
    }

    /// Follows signals and admin requests until the end.
    async fn supervise(&mut self, signals: &mut Signals) {
        let stop = self.until_stopped(signals).await;
        let drain = if let Stop::Graceful(limit) = stop { limit } else { Duration::ZERO };
        crate::notify::stopping(drain + AFTER_DRAIN);
        self.proxy.registry.be_gentle(false);
        self.membership.release(self.listening.keys().map(ToString::to_string).collect());
        self.membership.close_sockets();
        // The sockets and their files are removed now: a successor may create its own while requests in flight end
        // here.
        self.inherited.clear();
        let mut accepting = Vec::new();
        for (_, listening) in self.listening.drain() {
            accepting.push(listening.stop());
        }
        let metrics = self.metrics_task.take().map(|(_, task)| task);
        let admin = self.admin_task.take().map(|(_, task)| task);
        let dashboard = self.dashboard.stop(false);
        for task in [metrics, admin, dashboard].into_iter().flatten() {
            task.abort();
            // The error only says that the task was aborted.
            let _ = task.await;
        }
        if let Stop::Graceful(limit) = stop {
            // The connections in the system's queue are still served.
            let _ = tokio::time::timeout(LAST_ARRIVALS, futures_util::future::join_all(accepting)).await;
            self.proxy.drain();
            let connections = self.proxy.registry.count();
            tracing::info!(connections, ?limit, "draining");
            if self.drained(limit, signals).await {
                tracing::info!("all connections have ended");
            } else {
                tracing::warn!(connections = self.proxy.registry.count(), "cut off at the end of the drain");
            }
        }
    }

    /// Waits until all connections have ended. Signals still count: TERM shortens the wait, INT
    /// ends it.
    async fn drained(&self, limit: Duration, signals: &mut Signals) -> bool {
        let mut deadline = tokio::time::Instant::now() + limit;
        loop {
            tokio::select! {
                () = self.proxy.registry.empty() => return true,
                () = tokio::time::sleep_until(deadline) => return false,
                _ = signals.interrupt.recv() => return false,
                _ = signals.reopen.recv() => self.logs.reopen(),
                _ = signals.hangup.recv() => tracing::warn!("HUP while draining: nothing is reloaded any more"),
                _ = signals.upgrade.recv() => signals::say_no_upgrade(true),
                _ = signals.terminate.recv() => {
                    deadline = deadline.min(tokio::time::Instant::now() + self.timeouts().1);
                }
            }
        }
    }

    async fn until_stopped(&mut self, signals: &mut Signals) -> Stop {
        loop {
            let (drain, drain_term) = self.timeouts();
            let (cause, answer) = tokio::select! {
                _ = signals.hangup.recv() => (ReloadCause::Asked, ReloadAnswer::Nobody),
                // A later reload may have removed the file from the configuration.
                Some(()) = self.changed.recv() => match self.proxy.config().settings.watched.is_empty() {
                    true => continue,
                    false => (ReloadCause::Changed, ReloadAnswer::Nobody),
                },
                // The sender lives as long as the upstreams.
                _ = self.services.changed() => {
                    self.renew_upstreams();
                    continue;
                }
                Some(request) = self.requests.recv() => match request {
                    // The request has waited behind other work, and its client has given up.
                    request if request.is_abandoned() => continue,
                    AdminRequest::Reload(answer) => (ReloadCause::Asked, ReloadAnswer::Reload(answer)),
                    AdminRequest::Configure(given, answer) => {
                        if self.is_stale(&given) {
                            // The asking task may be gone.
                            let _ = answer.send(Err(ConfigurationRefusal::Stale));
                            continue;
                        }
                        (ReloadCause::Given(given), ReloadAnswer::Configure(answer))
                    }
                    AdminRequest::Status(answer) => {
                        // The asking task may be gone.
                        let _ = answer.send(self.status());
                        continue;
                    }
                },
                Some(message) = self.membership.messages.recv() => match self.follow(message).await {
                    Some(stop) => return stop,
                    None => continue,
                },
                ended = has_retired(&self.proxy, self.membership.retired, self.membership.giving.clone()) => {
                    return Stop::Graceful(if ended { Duration::ZERO } else { drain_term });
                }
                _ = signals.reopen.recv() => {
                    self.logs.reopen();
                    continue;
                }
                _ = signals.upgrade.recv() => {
                    signals::say_no_upgrade(false);
                    continue;
                }
                _ = signals.quit.recv() => return Stop::Graceful(drain),
                _ = signals.terminate.recv() => return Stop::Graceful(drain_term),
                _ = signals.interrupt.recv() => return Stop::AtOnce,
            };
            // The configuration may be on a file system that hangs, so a stop does not wait for the reload.
            // Nothing has changed until the files have been read.
            tokio::select! {
                result = self.reload(cause) => {
                    answer.send(result);
                }
                _ = signals.quit.recv() => return Stop::Graceful(drain),
                _ = signals.terminate.recv() => return Stop::Graceful(drain_term),
                _ = signals.interrupt.recv() => return Stop::AtOnce,
            }
        }
    }

    /// Returns true if the configuration in effect is not the one that `given` was made to replace.
    fn is_stale(&self, given: &GivenConfiguration) -> bool {
        let tag = self.source.effective().map(|effective| effective.tag);
        let fits = |replaced: &String| replaced == "*" || Some(replaced) == tag.as_ref();
        !given.replaces.is_empty() && !given.replaces.iter().any(fits)
    }

    /// Makes the upstreams use the present servers of their services.
    fn renew_upstreams(&self) {
        let old = self.proxy.config();
        if let Some(upstreams) = self.upstreams.renew(&old.upstreams) {
            self.proxy.set_upstreams(&old, upstreams);
            retire(old, &self.aside);
        }
    }

    fn timeouts(&self) -> (Duration, Duration) {
        let config = self.proxy.config();
        (config.settings.timeouts.drain, config.settings.timeouts.drain_term)
    }

    /// Builds the new configuration while the old one serves, and then swaps them. If the new one is refused, nothing
    /// changes.
    async fn reload(&mut self, cause: ReloadCause) -> Result<(), String> {
        crate::notify::reloading();
        let kind = if let ReloadCause::Changed = cause { LoadKind::Refresh } else { LoadKind::Reload };
        let result = self.try_reload(cause).await;
        self.proxy.loads.record(kind, &result);
        match &result {
            Ok(()) => {
                self.proxy.metrics.reloads_ok.inc();
                tracing::info!("reloaded");
            }
            Err(error) => {
                self.proxy.metrics.reloads_refused.inc();
                tracing::error!("reload refused, nothing has changed: {error}");
            }
        }
        crate::notify::ready();
        result
    }

    async fn try_reload(&mut self, cause: ReloadCause) -> Result<(), String> {
        if self.membership.is_candidate || self.proxy.handover.passage().is_some() {
            return Err("an upgrade is under way; reload again once it is over, or end it with `foregate upgrade --abort`".to_owned());
        }
        if self.membership.retired.is_some() {
            return Err("this process has handed over to another version".to_owned());
        }
        let source = Arc::clone(&self.source);
        let read = self.aside.run(move || match cause {
            ReloadCause::Asked => source.read(),
            ReloadCause::Changed => source.refresh(),
            ReloadCause::Given(given) => source.read_given(given.text, given.is_json),
        });
        let settings = read.await.map_err(|_| "reading the configuration panicked".to_owned())??;
        let old = self.proxy.config();
        if (settings.workers, settings.pin_workers) != (old.settings.workers, old.settings.pin_workers) {
            tracing::warn!("a change of `workers` takes effect with the next start");
        }
        if settings.user != old.settings.user {
            tracing::warn!("a change of `user` takes effect with the next start");
        }
        let mut config = Config::build(settings, &self.upstreams, &self.certificates, &old.upstreams)
            .map_err(|error| error.to_string())?;
        config.settle(&self.upstreams).await;
        let text = |error: io::Error| match advice(&error) {
            Some(help) => format!("{error}\n  help: {help}"),
            None => error.to_string(),
        };
        config.open_folders(&old.folders).map_err(text)?;
        config.open_logs(&self.logs, &self.proxy.metrics).map_err(text)?;
        let side = self.bind_side(&config.settings).map_err(text)?;
        let bound = self.bind(&config.settings).map_err(text)?;
        let leaves = self.proxy.leave(&old, &config);
        self.proxy.set_config(config);
        let config = self.proxy.config();
        self.apply(&config, bound, side);
        self.certificates.check();
        self.files.follow(&config.settings.watched);
        self.source.took_effect();
        self.membership.keep_configuration(&self.source);
        if leaves {
            let (proxy, old) = (Arc::clone(&self.proxy), Arc::clone(&old));
            tokio::spawn(async move {
                tokio::time::sleep(LAST_ARRIVALS).await;
                proxy.forget(&old);
            });
        }
        retire(old, &self.aside);
        Ok(())
    }
}

/// Ends the connections of a stopped listener gracefully, and cuts off the remaining ones after `limit`. `accepting` is
/// the listener's task, which may still accept connections of the queue.
fn drain_listener(
    registry: &Arc<Registry>,
    listener: usize,
    accepting: JoinHandle<()>,
    limit: Duration,
) -> JoinHandle<()> {
    registry.drain(Some(listener));
    let (registry, began) = (Arc::clone(registry), Instant::now());
    tokio::spawn(async move {
        // A connection that is accepted after the cut would never be ended.
        let _ = tokio::time::timeout(LAST_ARRIVALS, accepting).await;
        tokio::time::sleep(limit.saturating_sub(began.elapsed())).await;
        let connections = registry.cut(listener);
        if connections > 0 {
            tracing::warn!(connections, "cut off at the end of the drain of a listener that is no more");
        }
    })
}

/// Drops a configuration once no request holds it.
fn retire(old: Arc<Config>, aside: &Arc<Aside>) {
    let aside = Arc::clone(aside);
    tokio::spawn(async move {
        while Arc::strong_count(&old) > 1 {
            tokio::time::sleep(RETIRE_EVERY).await;
        }
        aside.run(move || drop(old));
    });
}

fn named(error: io::Error, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// The sockets that a service manager has passed to this process. To be called once, before
/// anything else opens descriptors, by a process that does not [`run`].
pub fn inherited_sockets() -> Vec<std::os::fd::OwnedFd> {
    sys::inherited_sockets()
}

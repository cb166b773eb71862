//! The state that all connections of the process share.

pub mod slim;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption, Cache as ConfigCache};
use foregate_module::LogLine;
use foregate_module::settings::LogId;
use foregate_wire::HeadLimits;

use self::slim::Shedding;
use crate::cache::{Cache, CacheIdentity, Folders};
use crate::comparison::Comparisons;
use crate::configuration::Settings;
use crate::counters::metrics::{Metrics, SiteCounters};
use crate::counters::steps::StepCounters;
use crate::fetches::Fetches;
use crate::folders::Folder;
use crate::handover::Handover;
use crate::limits::account::Ledger;
use crate::limits::budget::Budget;
use crate::limits::clients::Registry;
use crate::limits::gates::{GateLoad, RequestGate, RequestGates};
use crate::limits::pressure;
use crate::limits::spool::Spools;
use crate::loops::UnderWay;
use crate::offload::Offload;
use crate::routing::HostId;
use crate::settings::{Limits, Listen, ListenAddress, LogTarget, RequestLimit, Route, Timeouts};
use crate::spans::SpanQueue;
use crate::telemetry::access_log::{AccessLog, AccessLogs};
use crate::telemetry::audit::AuditLog;
use crate::telemetry::live::LiveRequests;
use crate::telemetry::loads::ConfigurationLoads;
use crate::telemetry::log_file::{LogFile, LogFiles};
use crate::time::clock::Clock;
use crate::tls::{Acceptor, CertificateStore, SiteHosts, TlsError};
use crate::upstream::{GateKey, Pools, Upstream, Upstreams};

/// The part of the configuration that connections keep from their start. Connections may outlive many
/// reloads, so they must not keep the rest of a configuration, which may have 100,000 sites.
#[derive(Debug)]
pub struct ConnectionTerms {
    /// Limits of size and count.
    pub limits: Limits,
    /// Time limits towards clients.
    pub timeouts: Timeouts,
}

/// A configuration in use. A request keeps the configuration that it started with.
#[derive(Debug, Clone)]
pub struct Config {
    /// The settings.
    pub settings: Arc<Settings>,
    /// The running upstreams, by their index in the settings.
    pub upstreams: Vec<Arc<Upstream>>,
    /// The served folders, by their index in the settings; none before they are opened.
    pub folders: Vec<Arc<Folder>>,
    /// The idle connections to origins, which all configurations share.
    pub pools: Arc<Pools>,
    /// The certificates of the process.
    pub certificates: CertificateStore,
    /// The part that connections keep.
    pub terms: Arc<ConnectionTerms>,
    /// The limits of heads.
    pub head_limits: HeadLimits,
    /// The TLS acceptors by the addresses of their listeners, in the order of the file.
    acceptors: Arc<[(ListenAddress, Acceptor)]>,
    /// The bounds on requests in flight; `None` if there are none.
    request_gates: Option<Arc<ConfiguredGates>>,
    /// The access logs; none before they are opened.
    access_logs: AccessLogs,
    /// The log files of modules, in the order of the settings; none before they are opened.
    logs: Vec<LogFile>,
}

impl Config {
    /// Builds a configuration from `settings` while the present one is in use, and shares equal parts with it.
    ///
    /// # Errors
    ///
    /// A TLS file that cannot be used.
    pub fn build(
        settings: Settings,
        upstreams: &Upstreams,
        certificates: &CertificateStore,
        old: &[Arc<Upstream>],
    ) -> Result<Self, TlsError> {
        let limits = &settings.limits;
        let head_limits =
            HeadLimits { bytes: limits.head_bytes, line: limits.head_line, fields: limits.head_fields };
        let mut acceptors = Vec::new();
        for listen in &settings.listeners {
            if let Some(tls) = &listen.tls {
                let sites = settings
                    .sites
                    .sites()
                    .iter()
                    .filter(|site| site.options.is_on(&listen.address))
                    .map(|site| SiteHosts { hosts: &site.hosts, tls: site.options.tls.as_ref() });
                let acceptor = Acceptor::new(
                    tls,
                    listen.http2,
                    sites,
                    settings.automatic.as_deref(),
                    limits,
                    certificates,
                )?;
                acceptors.push((listen.address.clone(), acceptor));
            }
        }
        let pools = Arc::clone(upstreams.pools());
        let request_gates = ConfiguredGates::new(&settings, upstreams.gates());
        let upstreams = upstreams.build(&settings.upstreams, head_limits, old)?;
        let terms = ConnectionTerms { limits: settings.limits.clone(), timeouts: settings.timeouts.clone() };
        Ok(Self {
            certificates: certificates.clone(),
            terms: Arc::new(terms),
            settings: Arc::new(settings),
            upstreams,
            folders: Vec::new(),
            pools,
            head_limits,
            acceptors: acceptors.into(),
            request_gates,
            access_logs: AccessLogs::default(),
            logs: Vec::new(),
        })
    }

    /// The part of this configuration that the rest of an exchange needs. This part has only one site, which is
    /// `site`, and its number there is [`HostId::FIRST`].
    pub fn slim(&self, site: Option<HostId>, route: Option<&Arc<Route>>, has_steps: bool) -> Self {
        let settings = &self.settings;
        let name = site.map(|site| &*settings.sites.site(site).name);
        let has_expressions = self.access_logs.of(name).any(AccessLog::has_expressions);
        let pipeline =
            if has_steps || has_expressions { Arc::clone(&settings.pipeline) } else { Arc::default() };
        let slim = Settings {
            limits: settings.limits.clone(),
            timeouts: settings.timeouts.clone(),
            trace_export: settings.trace_export.clone(),
            falls_back: settings.falls_back,
            sites: site.map(|site| settings.sites.only(site, route)).unwrap_or_default(),
            ..Settings::new(pipeline)
        };
        Self {
            settings: Arc::new(slim),
            upstreams: Vec::new(),
            folders: Vec::new(),
            acceptors: Arc::default(),
            request_gates: None,
            ..self.clone()
        }
    }

    /// Returns true if requests in flight are bounded.
    pub fn limits_requests(&self) -> bool {
        self.request_gates.is_some()
    }

    /// The bound on the requests of a listener's clients.
    pub fn listener_gate(&self, address: &ListenAddress) -> Option<&Arc<RequestGate>> {
        Some(&self.request_gates.as_ref()?.listeners.get(address)?.0)
    }

    /// The bound on the requests of a site, by its name.
    pub fn site_gate(&self, name: &str) -> Option<&Arc<RequestGate>> {
        Some(&self.request_gates.as_ref()?.sites.get(name)?.0)
    }

    /// The loads of the gates for requests in flight, in the order of scope and name. There is a limit on their number;
    /// others are left out.
    pub fn gate_loads(&self) -> Vec<GateLoad> {
        /// The most gates that are listed: as many as there may be labels of sites in metrics.
        const MOST: usize = 1000;
        let Some(gates) = &self.request_gates else { return Vec::new() };
        let listeners =
            gates.listeners.iter().map(|(address, (gate, _))| gate.load("listener", address.to_string()));
        let sites = gates.sites.iter().map(|(name, (gate, _))| gate.load("site", name.to_string()));
        let upstreams =
            gates.upstreams.iter().map(|(name, (gate, _))| gate.load("upstream", name.to_string()));
        let mut loads: Vec<_> = listeners.chain(sites.take(MOST)).chain(upstreams.take(MOST)).collect();
        loads.sort_by(|a, b| (a.scope, &a.name).cmp(&(b.scope, &b.name)));
        loads
    }

    /// Sets the bounds of all gates to those of this configuration.
    fn set_gates(&self) {
        let Some(gates) = &self.request_gates else { return };
        let all = gates.listeners.values().chain(gates.sites.values()).chain(gates.upstreams.values());
        all.for_each(|(gate, limit)| gate.set(*limit));
    }

    /// Waits a moment for the first lookups of services, and uses the servers that they find.
    pub async fn settle(&mut self, upstreams: &Upstreams) {
        let all = self.upstreams.iter().map(|upstream| upstream.looked_up(SERVICES_WITHIN));
        futures_util::future::join_all(all).await;
        if let Some(renewed) = upstreams.renew(&self.upstreams) {
            self.upstreams = renewed;
        }
    }

    /// Opens the served folders, and reuses those of `old` that are the same.
    ///
    /// # Errors
    ///
    /// A folder cannot be opened. The error names its path.
    pub fn open_folders(&mut self, old: &[Arc<Folder>]) -> io::Result<()> {
        let folders = self.settings.folders.iter();
        let folders = folders.map(|settings| Folder::open(settings, self.settings.disk_engine, old));
        self.folders = folders.collect::<io::Result<_>>()?;
        Ok(())
    }

    /// Opens the access log and the log files of modules, and reuses those in `files` that are open.
    ///
    /// # Errors
    ///
    /// A file cannot be opened, or its thread cannot be started. The error names its path.
    pub fn open_logs(&mut self, files: &LogFiles, metrics: &Metrics) -> io::Result<()> {
        let open = |what: &str, target: &LogTarget, dropped| {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{what} {target}: {error}"));
            files.open(target, dropped).map_err(named)
        };
        let mut access_logs = AccessLogs::default();
        for log in &self.settings.access_logs {
            let file = open("access log", &log.target, &metrics.access_log_dropped)?;
            access_logs.add(AccessLog::new(log.clone(), file));
        }
        self.access_logs = access_logs;
        let logs = self.settings.logs.iter();
        let logs = logs.map(|target| open("log", target, &metrics.module_log_dropped));
        self.logs = logs.collect::<io::Result<_>>()?;
        Ok(())
    }

    /// The access logs.
    pub fn access_logs(&self) -> &AccessLogs {
        &self.access_logs
    }

    /// Writes a step's line.
    pub fn log(&self, line: &LogLine) {
        if let Some(log) = self.logs.get(line.log.0 as usize) {
            log.push(&[&*line.line, b"\n"].concat());
        }
    }

    /// The log file of a module.
    pub fn log_file(&self, id: LogId) -> Option<&LogFile> {
        self.logs.get(id.0 as usize)
    }

    /// The TLS acceptor of a listener.
    pub fn acceptor(&self, address: &ListenAddress) -> Option<&Acceptor> {
        self.acceptors.iter().find(|(known, _)| known == address).map(|(_, acceptor)| acceptor)
    }
}

/// The gates of a configuration, each with its bound in that configuration.
#[derive(Debug, Default)]
struct ConfiguredGates {
    listeners: HashMap<ListenAddress, (Arc<RequestGate>, RequestLimit)>,
    sites: HashMap<Arc<str>, (Arc<RequestGate>, RequestLimit)>,
    upstreams: HashMap<Arc<str>, (Arc<RequestGate>, RequestLimit)>,
}

impl ConfiguredGates {
    /// The gates of these settings; `None` if requests in flight have no bound.
    fn new(settings: &Settings, known: &RequestGates<GateKey>) -> Option<Arc<Self>> {
        known.forget_unused();
        let mut gates = Self::default();
        for listen in &settings.listeners {
            if let Some(limit) = listen.requests {
                let gate = known.get(GateKey::Listener(listen.address.clone()), limit);
                gates.listeners.insert(listen.address.clone(), (gate, limit));
            }
        }
        for site in settings.sites.sites() {
            if let Some(limit) = site.options.requests {
                let gate = known.get(GateKey::Site(Arc::clone(&site.name)), limit);
                gates.sites.insert(Arc::clone(&site.name), (gate, limit));
            }
        }
        for upstream in &settings.upstreams {
            if let Some(limit) = upstream.requests {
                let gate = known.get(GateKey::Upstream(Arc::clone(&upstream.name)), limit);
                gates.upstreams.insert(Arc::clone(&upstream.name), (gate, limit));
            }
        }
        let is_empty = gates.listeners.is_empty() && gates.sites.is_empty() && gates.upstreams.is_empty();
        (!is_empty || settings.limits.requests_per_client.is_some()).then(|| Arc::new(gates))
    }
}

/// Gives sites their counters. The configuration must not be in use yet, so that it is the only owner of its settings.
fn count_sites(config: &mut Config, metrics: &Metrics) {
    if let Some(settings) = Arc::get_mut(&mut config.settings) {
        settings.sites.count_in(metrics);
    }
}

/// How long a start or reload waits for the servers of services. Servers that are found later are used
/// from then on.
const SERVICES_WITHIN: Duration = Duration::from_secs(1);

/// The growth of all upload windows together may take at most one part in this many of the memory limit for peers
/// (`limits { memory }`).
const UPLOAD_WINDOWS: usize = 8;

/// The state that all connections of the process share. It survives reloads.
#[derive(Debug)]
pub struct Proxy {
    config: ArcSwap<Config>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The counters of requests for a host that no site has.
    pub unrouted: Arc<SiteCounters>,
    /// The connections of clients.
    pub registry: Arc<Registry>,
    /// The number of descriptors that connections may use.
    pub connection_limit: AtomicUsize,
    /// The most connections that one client may have.
    pub connections_per_client: AtomicUsize,
    /// The counters of modules' steps.
    pub steps: Arc<StepCounters>,
    /// The threads for heavy steps.
    pub offload: Offload,
    /// The budget for the memory of body filters.
    pub filter_memory: Arc<Budget>,
    /// The budget for the growth of upload windows over HTTP/2.
    pub upload_windows: Arc<Budget>,
    /// The number of requests in flight of each client, if it is bounded.
    pub client_requests: Arc<Ledger>,
    /// The temporary files with starts of bodies.
    pub spools: Arc<Spools>,
    /// The requests of our own that steps have asked for.
    pub fetches: Fetches,
    /// The spans of recorded traces that wait to be sent to the receiver.
    pub spans: Arc<SpanQueue>,
    /// The requests that have fallen back and are not answered yet.
    pub under_way: UnderWay,
    /// Comparisons with the proxy that this one replaces.
    pub comparisons: Arc<Comparisons>,
    /// This proxy, for tasks that outlive the request that starts them.
    pub shared: OnceLock<Weak<Self>>,
    /// The log of changes that operators have made.
    pub audit: AuditLog,
    /// The last loads of the configuration.
    pub loads: ConfigurationLoads,
    /// The requests in flight, for operators who watch them.
    pub live: Arc<LiveRequests>,
    /// The cache.
    pub cache: Arc<Cache>,
    /// Controls whether this process accepts connections, and passes some of them to another generation.
    pub handover: Handover,
    /// The state of dropping the configuration after another version has taken over.
    pub shedding: Shedding,
    /// The previous configuration, kept for a moment after a reload if it had TLS listeners that the new one lacks.
    leaving: ArcSwapOption<Config>,
    draining: AtomicBool,
}

impl Proxy {
    /// A proxy with its first configuration.
    ///
    /// # Errors
    /// A folder of the cache cannot be used.
    pub fn new(
        mut config: Config,
        metrics: Arc<Metrics>,
        folders: Folders,
        identity: Option<CacheIdentity>,
        clock: Clock,
    ) -> io::Result<Self> {
        let unrouted = metrics.unrouted();
        count_sites(&mut config, &metrics);
        let limits = &config.settings.limits;
        let threads = config.settings.offload_threads.or(config.settings.workers);
        let threads = threads.or_else(|| std::thread::available_parallelism().ok());
        let threads = threads.map_or(1, std::num::NonZeroUsize::get);
        let offload = Offload::new(threads, limits.offload_queue, Arc::clone(&metrics));
        pressure::set_limit(config.settings.memory());
        let settings = &config.settings;
        let reads_files = !settings.folders.is_empty() || !settings.cache_store.disks.is_empty();
        crate::folders::tell_engine(settings.disk_engine, reads_files);
        let (store, engine) = (&settings.cache_store, settings.disk_engine);
        let cache = Cache::new(store, engine, Arc::clone(&metrics), folders, clock)?;
        let cache = Arc::new(cache.continuing(identity));
        cache.set_shield(config.settings.shield.as_ref());
        let steps = Arc::clone(metrics.steps(config.settings.pipeline.steps().map(|decl| decl.name)));
        let filter_memory = Arc::<Budget>::default();
        filter_memory.set_limit(limits.filter_memory, limits.filter_per_client);
        let spools = Arc::<Spools>::default();
        spools.budget.set_limit(limits.filter_files, limits.filter_per_client);
        let live = Arc::<LiveRequests>::default();
        live.keep_failures(config.settings.shows_failures());
        Ok(Self {
            audit: AuditLog::new(clock),
            loads: ConfigurationLoads::new(clock),
            live,
            steps,
            filter_memory,
            upload_windows: Arc::new(Budget::reserved(config.settings.memory() / UPLOAD_WINDOWS)),
            client_requests: Arc::default(),
            spools,
            offload,
            fetches: Fetches::default(),
            spans: Arc::new(SpanQueue::new(Arc::clone(&metrics))),
            under_way: UnderWay::default(),
            comparisons: Arc::new(Comparisons::new(Arc::clone(&metrics.comparisons))),
            shared: OnceLock::new(),
            cache,
            config: ArcSwap::from_pointee(config),
            unrouted,
            metrics,
            registry: Arc::new(Registry::new()),
            connection_limit: AtomicUsize::new(usize::MAX),
            connections_per_client: AtomicUsize::new(usize::MAX),
            handover: Handover::default(),
            shedding: Shedding::default(),
            leaving: ArcSwapOption::empty(),
            draining: AtomicBool::new(false),
        })
    }

    /// The present configuration.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// A cache for callers that often need the present configuration. While that is unchanged, reading the cache costs
    /// hardly anything.
    pub fn config_cache(&self) -> ConfigCache<&ArcSwap<Config>, Arc<Config>> {
        ConfigCache::new(&self.config)
    }

    /// The present configuration; for a connection from a TLS listener that no longer exists, the previous
    /// one.
    pub fn config_with(&self, listen: &Listen) -> Arc<Config> {
        let config = self.config();
        if listen.tls.is_none() || config.acceptor(&listen.address).is_some() {
            return config;
        }
        self.leaving.load_full().unwrap_or(config)
    }

    /// Keeps the present configuration until [`Self::forget`], if it has TLS listeners that `next` lacks. Returns true if
    /// it is kept. To be called before `next` takes effect.
    pub fn leave(&self, config: &Arc<Config>, next: &Config) -> bool {
        let leaves = config.acceptors.iter().any(|(address, _)| next.acceptor(address).is_none());
        if leaves {
            self.leaving.store(Some(Arc::clone(config)));
        }
        leaves
    }

    /// Drops the configuration kept by [`Self::leave`].
    pub fn forget(&self, config: &Arc<Config>) {
        let kept = self.leaving.load();
        if kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, config)) {
            self.leaving.compare_and_swap(&*kept, None);
        }
    }

    /// Replaces the present configuration.
    pub fn set_config(&self, mut config: Config) {
        count_sites(&mut config, &self.metrics);
        self.offload.set_limit(config.settings.limits.offload_queue);
        pressure::set_limit(config.settings.memory());
        self.live.keep_failures(config.settings.shows_failures());
        self.cache.set_limits(&config.settings.cache_store);
        self.cache.set_shield(config.settings.shield.as_ref());
        let limits = &config.settings.limits;
        self.filter_memory.set_limit(limits.filter_memory, limits.filter_per_client);
        self.spools.budget.set_limit(limits.filter_files, limits.filter_per_client);
        let windows = config.settings.memory() / UPLOAD_WINDOWS;
        self.upload_windows.set_limit(windows, limits.filter_per_client);
        config.set_gates();
        self.config.store(Arc::new(config));
    }

    /// Replaces the configuration with one that serves no requests. Only the folders and request gates stay, because the
    /// metrics show them.
    pub fn drop_config(&self) {
        let config = self.config();
        let (folders, request_gates) = (config.folders.clone(), config.request_gates.clone());
        let slim = Config { folders, request_gates, ..config.slim(None, None, false) };
        self.leaving.store(None);
        self.config.store(Arc::new(slim));
    }

    /// Makes new requests use these upstreams, which differ from those of the present configuration only
    /// in the servers of services.
    pub fn set_upstreams(&self, present: &Config, upstreams: Vec<Arc<Upstream>>) {
        self.config.store(Arc::new(Config { upstreams, ..present.clone() }));
    }

    /// Returns true if connections end after their present requests.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Ends all connections gracefully.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.registry.drain(None);
    }
}

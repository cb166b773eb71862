//! One complete configuration: the settings with their compiled sites.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use foregate_module::Pipeline;

use crate::routing::SiteTable;
use crate::settings::automatic::Automatic;
use crate::settings::{
    AccessLogSettings, CacheStore, CompareSamples, DashboardSettings, EngineChoice, Fallback, Files, Limits,
    Listen, LogTarget, MEMORY_PER_WORKER, PassedNames, ProcessUser, RoutePlan, ShieldSettings, Timeouts,
    TraceExport, UpstreamSettings,
};

/// One complete, validated configuration.
#[derive(Debug)]
pub struct Settings {
    /// Worker threads; `None` means one for each core that the process may use.
    pub workers: Option<NonZeroUsize>,
    /// True if each worker is bound to a core.
    pub pin_workers: bool,
    /// Threads for heavy steps of modules; `None` means as many as workers. They are started when
    /// there is work for them.
    pub offload_threads: Option<NonZeroUsize>,
    /// The user that the process changes to before it opens anything. Default: it keeps its user.
    pub user: Option<ProcessUser>,
    /// Where to accept connections, in the order of the file.
    pub listeners: Vec<Listen>,
    /// Where to serve Prometheus metrics, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// The admin socket (Unix, mode 0600), if any.
    pub admin: Option<PathBuf>,
    /// The page that shows the proxy at work, if any.
    pub dashboard: Option<DashboardSettings>,
    /// The access logs, those of all requests first.
    pub access_logs: Vec<AccessLogSettings>,
    /// Where the spans of recorded traces go, if anywhere.
    pub trace_export: Option<Arc<TraceExport>>,
    /// Where bodies too long to be held in memory are kept; `None` means the system's folder for
    /// temporary files.
    pub temporary_folder: Option<PathBuf>,
    /// Certificates that the proxy obtains itself, if any.
    pub automatic: Option<Arc<Automatic>>,
    /// The engine for reads of files that are not in memory: of the cache and of served folders.
    pub disk_engine: EngineChoice,
    /// The store of all caches.
    pub cache_store: CacheStore,
    /// The group of proxies that this one belongs to, if any.
    pub shield: Option<Arc<ShieldSettings>>,
    /// Limits of size and count.
    pub limits: Limits,
    /// Time limits towards clients.
    pub timeouts: Timeouts,
    /// Groups of origin servers, in the order of the file; routes refer to them by index.
    pub upstreams: Vec<Arc<UpstreamSettings>>,
    /// Folders of static files; routes refer to them by index.
    pub folders: Vec<Arc<Files>>,
    /// Sites with their routes, compiled.
    pub sites: SiteTable,
    /// All steps of modules that the program has; the plans of routes refer to it.
    pub pipeline: Arc<Pipeline>,
    /// The steps of modules that run on the answers to requests that no site takes.
    pub unrouted: RoutePlan,
    /// The destination of requests that match no site or route. Default (`None`): they are answered with 404.
    pub fallback: Option<Arc<Fallback>>,
    /// Rules for TLS connections that are passed unchanged to another proxy, in the order of the file.
    pub passed: Vec<PassedNames>,
    /// True if some requests may fall back: then the bytes of request heads are kept.
    pub falls_back: bool,
    /// True if some routes compare responses.
    pub compares: bool,
    /// The settings of the folder with samples of differences.
    pub compare_samples: Arc<CompareSamples>,
    /// The log files of modules, each once; [`foregate_module::LogId`] is a place in this list.
    pub logs: Vec<LogTarget>,
    /// The files that these settings were read from, each once. When one changes, the settings have to be loaded again.
    pub watched: Vec<PathBuf>,
}

impl Settings {
    /// The default settings, without listeners and sites.
    pub fn new(pipeline: Arc<Pipeline>) -> Self {
        Self {
            workers: None,
            pin_workers: false,
            offload_threads: None,
            user: None,
            listeners: Vec::new(),
            metrics: None,
            admin: None,
            dashboard: None,
            access_logs: Vec::new(),
            trace_export: None,
            temporary_folder: None,
            automatic: None,
            disk_engine: EngineChoice::default(),
            cache_store: CacheStore::default(),
            shield: None,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            upstreams: Vec::new(),
            folders: Vec::new(),
            sites: SiteTable::default(),
            pipeline,
            unrouted: RoutePlan::default(),
            fallback: None,
            passed: Vec::new(),
            falls_back: false,
            compares: false,
            compare_samples: Arc::new(CompareSamples::in_folder(
                std::env::temp_dir().join("foregate-compare"),
            )),
            logs: Vec::new(),
            watched: Vec::new(),
        }
    }

    /// The memory that peers may make the process hold, bytes.
    pub fn memory(&self) -> usize {
        let workers = self.workers.or_else(|| std::thread::available_parallelism().ok());
        let workers = workers.map_or(1, NonZeroUsize::get).max(2);
        let limits = &self.limits;
        limits.memory.unwrap_or_else(|| limits.filter_memory.saturating_add(MEMORY_PER_WORKER * workers))
    }

    /// Returns true if there is a place that displays failed requests.
    pub fn shows_failures(&self) -> bool {
        self.dashboard.is_some() || self.admin.is_some()
    }

    /// Where temporary files are made.
    pub fn spool_folder(&self) -> PathBuf {
        self.temporary_folder.clone().unwrap_or_else(std::env::temp_dir)
    }
}

//! The admin socket and the metrics endpoint.

mod api;
mod cache;
mod certificates;
mod comparisons;
mod dashboard;
mod figures;
mod http;
mod migration;
mod observers;
mod parameters;
mod refusal;
mod servers;
mod status;
mod unreadable;
mod verification;

pub use self::dashboard::serve_dashboard;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foregate_supervisor::exposition::Sum;
use foregate_supervisor::protocol::Stats;

use futures_util::future::select_all;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::api::AdminApi;
use self::certificates::certificates;
use self::http::{ClientPatience, serve_one};
use self::status::{certificates_in_short, servers_in_short};
use crate::counters::metrics::STATUS_CLASSES;
use crate::limits::descriptors;
use crate::listener::Listener;
use crate::pinning;
use crate::proxy::Proxy;
use crate::telemetry::exposition::{Exposition, ExpositionFormat};
use crate::telemetry::loads::LoadKind;
use crate::time::poll_length::WatchedTask;
use crate::transport::stream::Socket;

/// The longest head of a request, in bytes.
const LONGEST_REQUEST: u64 = 8 * 1024;
/// The time limit of a client of the admin socket or the metrics endpoint.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most clients of each that are served at the same time.
const CLIENTS: usize = 16;
/// The pause before the next accept if the process has no free file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// A request of an administrator.
#[derive(Debug)]
pub enum AdminRequest {
    /// Read the configuration again; the answer has the reason for a refusal.
    Reload(oneshot::Sender<Result<(), String>>),
    /// Return the state of the process.
    Status(oneshot::Sender<Value>),
    /// Use this configuration from now on.
    Configure(GivenConfiguration, oneshot::Sender<Result<(), ConfigurationRefusal>>),
}

impl AdminRequest {
    /// Returns true if nobody waits for the answer any more.
    pub fn is_abandoned(&self) -> bool {
        match self {
            Self::Reload(answer) => answer.is_closed(),
            Self::Status(answer) => answer.is_closed(),
            Self::Configure(_, answer) => answer.is_closed(),
        }
    }
}

/// A configuration that came in a request.
#[derive(Debug, Clone, Default)]
pub struct GivenConfiguration {
    /// Its text.
    pub text: String,
    /// Set if the text is in the JSON form.
    pub is_json: bool,
    /// The tags of the configurations that this one may replace; empty or `*` for any.
    pub replaces: Vec<String>,
}

/// The reason why a configuration has not taken effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigurationRefusal {
    /// The configuration in effect is not one that the new configuration may replace.
    Stale,
    /// The configuration has an error.
    Wrong(String),
}

/// The configuration in effect.
#[derive(Debug, Clone, Default)]
pub struct EffectiveConfiguration {
    /// A tag that changes if a text changes.
    pub tag: String,
    /// The paths and texts of its files, the main one first.
    pub files: Vec<(String, String)>,
}

/// The parts of the process that operators reach through the admin socket.
pub trait ProcessControls: Send + Sync {
    /// The configuration in effect; `None` if it does not come from files.
    fn effective(&self) -> Option<EffectiveConfiguration>;

    /// The level of the log, as it is written; `None` if it cannot be changed.
    fn log_filter(&self) -> Option<String>;

    /// Changes the level of the log.
    ///
    /// # Errors
    ///
    /// The level is invalid; returns the reason.
    fn set_log_filter(&self, filter: &str) -> Result<(), String>;
}

/// The clients of one endpoint. A new client never waits for idle clients: one of them is disconnected.
#[derive(Default)]
struct Clients(VecDeque<AdminClient>);

struct AdminClient {
    asked: ServingFlag,
    task: JoinHandle<()>,
}

/// True while a client's request is being served.
#[derive(Clone, Default)]
struct ServingFlag(Arc<AtomicBool>);

impl ServingFlag {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Clients {
    /// Serves a further client. If there are too many, the oldest client that has sent no request is disconnected. If all
    /// have sent one, waits until one of them is done.
    async fn admit<F: Future<Output = ()> + Send + 'static>(&mut self, serve: impl FnOnce(ServingFlag) -> F) {
        self.0.retain(|client| !client.task.is_finished());
        while self.0.len() >= CLIENTS {
            let idle = self.0.iter().position(|client| !client.asked.get());
            if let Some(AdminClient { task, .. }) = idle.and_then(|oldest| self.0.remove(oldest)) {
                task.abort();
                // The result only says that the task was aborted.
                let _ = task.await;
            } else {
                let _ = select_all(self.0.iter_mut().map(|client| &mut client.task)).await;
                self.0.retain(|client| !client.task.is_finished());
            }
        }
        let asked = ServingFlag::default();
        let task = tokio::spawn(serve(asked.clone()));
        self.0.push_back(AdminClient { asked, task });
    }
}

/// Serves the admin socket.
pub async fn serve(
    listener: UnixListener,
    requests: mpsc::Sender<AdminRequest>,
    proxy: Arc<Proxy>,
    controls: Arc<dyn ProcessControls>,
) {
    let mut clients = Clients::default();
    let api = Arc::new(AdminApi { proxy, requests, controls });
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let api = Arc::clone(&api);
                let serve = |asked: ServingFlag| async move {
                    if let Err(error) = answer(stream, &api, &asked).await {
                        tracing::debug!(%error, "admin client");
                    }
                };
                clients.admit(serve).await;
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn answer(stream: UnixStream, api: &AdminApi, asked: &ServingFlag) -> io::Result<()> {
    let credentials = stream.peer_cred()?;
    let own = rustix::process::geteuid().as_raw();
    let is_permitted = credentials.uid() == own || credentials.uid() == 0;
    let who = match credentials.pid() {
        Some(pid) => format!("uid {}, pid {pid}", credentials.uid()),
        None => format!("uid {}", credentials.uid()),
    };
    let answer = |request, patience: ClientPatience| {
        let who = &who;
        async move {
            match is_permitted {
                true => api.answer(request, who, &patience).await,
                false => AdminApi::forbid(),
            }
        }
    };
    serve_one(stream, asked, answer).await
}

/// Serves `/metrics` and `/health` to any client.
pub async fn serve_metrics(listener: Listener, proxy: Arc<Proxy>) {
    let mut clients = Clients::default();
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let proxy = Arc::clone(&proxy);
                let watched_by = Arc::clone(&proxy.metrics);
                let serve = |asked: ServingFlag| async move {
                    // A failing or slow client harms only itself.
                    let _ = timeout(PATIENCE, metrics(socket, &proxy, &asked)).await;
                };
                clients.admit(|asked| WatchedTask::new(serve(asked), watched_by)).await;
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn metrics(socket: Socket, proxy: &Proxy, asked: &ServingFlag) -> io::Result<()> {
    let mut socket = BufReader::new(socket);
    let mut head = Vec::new();
    let mut limited = (&mut socket).take(LONGEST_REQUEST);
    while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
        if limited.read_until(b'\n', &mut head).await? == 0 {
            return Ok(());
        }
    }
    asked.set();
    let target = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    const TEXT: &str = "text/plain; charset=utf-8";
    let (status, kind, body) = match (head.starts_with(b"GET ") || head.starts_with(b"HEAD "), path) {
        (true, b"/metrics") => {
            let format = ExpositionFormat::for_accept(&accept(&head));
            ("200 OK", format.content_type(), all_metrics(proxy, format).await)
        }
        (true, b"/health") if proxy.is_draining() => {
            ("503 Service Unavailable", TEXT, "draining\n".to_owned())
        }
        (true, b"/health") => ("200 OK", TEXT, "ok\n".to_owned()),
        (true, _) => ("404 Not Found", TEXT, "see /metrics and /health\n".to_owned()),
        (false, _) => ("405 Method Not Allowed", TEXT, "only GET and HEAD\n".to_owned()),
    };
    respond(&mut socket, status, kind, &body, head.starts_with(b"HEAD ")).await
}

/// The metrics of this process alone.
pub fn own_metrics(proxy: &Proxy, format: ExpositionFormat) -> String {
    let config = proxy.config();
    let obtained = config.certificates.keeper().map(|keeper| keeper.counts()).unwrap_or_default();
    Exposition::new(Arc::clone(&proxy.metrics))
        .with_certificates(config.certificates.expiries())
        .with_obtained(obtained)
        .with_folders(&config.folders)
        .with_bodies(&proxy.filter_memory, &proxy.spools)
        .with_cache(proxy.cache.figures())
        .with_request_gates(config.gate_loads())
        .render(format)
}

/// The metrics of all generations, including those that have ended.
async fn all_metrics(proxy: &Proxy, format: ExpositionFormat) -> String {
    let own = own_metrics(proxy, ExpositionFormat::OpenMetrics);
    let others = proxy.handover.others(&own).await;
    if others.is_empty() {
        return format.of(own);
    }
    let mut sum = Sum::default();
    sum.add(&own, false);
    for other in &others {
        sum.add(other, false);
    }
    format.of(sum.text())
}

/// The numbers by which this process is compared with another version.
pub fn stats(proxy: &Proxy) -> Stats {
    let metrics = &proxy.metrics;
    let mut stats = Stats {
        handshakes: metrics.handshakes_ok.get(),
        handshakes_failed: metrics.handshake_failures().iter().map(|(_, count)| count).sum(),
        panics: metrics.panics.get(),
        blocked: metrics.blocked_long(),
        accepted: metrics.connections_accepted.get(),
        connections: u64::try_from(metrics.connections_active.get()).unwrap_or(0),
        descriptors: descriptors::used() as u64,
        cores: pinning::cores(),
        ..Stats::default()
    };
    (stats.latencies, stats.latency_micros) = metrics.latencies.counts();
    for (_, site) in metrics.sites() {
        let classes = site.requests();
        stats.requests += classes.iter().sum::<u64>();
        for (class, count) in STATUS_CLASSES.iter().zip(classes) {
            match *class {
                "5xx" => stats.errors += count,
                "none" => stats.aborted += count,
                _ => {}
            }
        }
    }
    stats
}

/// The state of the serving process for `foregate status`: an object, to which the caller may add members.
pub fn status(proxy: &Proxy) -> Value {
    let config = proxy.config();
    let settings = &config.settings;
    let (loaded, refused) = proxy.loads.last();
    let refused = refused.map(
        |refused| json!({ "time": refused.time, "reason": refused.reason, "at_start": refused.kind == LoadKind::Start }),
    );
    let listeners: Vec<_> = settings.listeners.iter().map(|listen| listen.address.to_string()).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "listeners": listeners,
        "sites": settings.sites.sites().len(),
        "upstreams": settings.upstreams.len(),
        "configuration": { "loaded": loaded, "refused": refused },
        "draining": proxy.is_draining(),
        "connections": proxy.registry.count(),
        "certificates": certificates_in_short(&certificates(proxy)),
        "servers": servers_in_short(&servers::list(&config.upstreams)),
    })
}

/// The value of `Accept` in a head. Several such fields are joined.
fn accept(head: &[u8]) -> String {
    let lines = head.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    let values = lines.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("accept").then(|| value.trim())
    });
    values.collect::<Vec<_>>().join(",")
}

async fn respond(
    out: &mut (impl AsyncWrite + Unpin),
    status: &str,
    kind: &str,
    body: &str,
    head_only: bool,
) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    out.write_all(head.as_bytes()).await?;
    if !head_only {
        out.write_all(body.as_bytes()).await?;
    }
    out.shutdown().await
}

//! The dashboard: a page that shows the process at work, over server-sent events.

mod access;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream;
use http::header::{CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, timeout};

use self::access::{DashboardAccess, DashboardViewer};
use super::http::{
    ClientPatience, HttpRequest, HttpResponse, read_body, respond, respond_events, respond_json, serve_one,
};
use super::{Clients, PATIENCE, PAUSE, ServingFlag, certificates, figures, servers};
use crate::listener::Listener;
use crate::proxy::Proxy;
use crate::settings::DashboardSettings;
use crate::telemetry::live::Watching;
use crate::time::poll_length::WatchedTask;
use crate::transport::stream::Socket;

/// The most viewers of the events at the same time.
const VIEWERS: usize = 8;
/// How often events are sent.
const EVERY: Duration = Duration::from_secs(1);
/// The time for which the same figures are sent to several viewers.
const FRESH: Duration = Duration::from_millis(500);
/// The time after which an answer with events ends; the browser then asks again.
const EVENTS_FOR: Duration = Duration::from_secs(600);
/// The time limit of any other answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The largest order, bytes.
const ORDER_LIMIT: usize = 4096;
/// The most certificates that are shown.
const CERTIFICATES: usize = 200;

const PAGE: &str = include_str!("dashboard/page.html");
const STYLE: &str = include_str!("dashboard/style.css");
const SCRIPT: &str = concat!(include_str!("dashboard/charts.js"), include_str!("dashboard/script.js"));

/// The policy of the page: everything comes from this server, and no page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The state of the dashboard.
struct DashboardState {
    proxy: Arc<Proxy>,
    access: DashboardAccess,
    viewers: Arc<AtomicUsize>,
    /// The last figures, and when they were taken.
    figures: Mutex<Option<(Instant, Arc<str>)>>,
}

/// Serves the dashboard.
pub async fn serve_dashboard(listener: Listener, proxy: Arc<Proxy>) {
    let mut clients = Clients::default();
    let state = Arc::new(DashboardState {
        access: DashboardAccess::new(),
        viewers: Arc::default(),
        figures: Mutex::default(),
        proxy,
    });
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                let (state, metrics) = (Arc::clone(&state), Arc::clone(&state.proxy.metrics));
                let peer = peer.map(|peer| peer.ip());
                let serve =
                    |asked: ServingFlag| async move { serve_client(socket, peer, &state, &asked).await };
                clients.admit(|asked| WatchedTask::new(serve(asked), metrics)).await;
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn serve_client(
    socket: Socket,
    peer: Option<IpAddr>,
    state: &Arc<DashboardState>,
    asked: &ServingFlag,
) {
    let answer = |request: HttpRequest, patience: ClientPatience| async move {
        let mut response = state.answer(request, peer, &patience).await;
        for (name, value) in [
            (CONTENT_SECURITY_POLICY, POLICY),
            (HeaderName::from_static("x-content-type-options"), "nosniff"),
            (HeaderName::from_static("x-frame-options"), "DENY"),
            (HeaderName::from_static("referrer-policy"), "no-referrer"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        ] {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    };
    if let Err(error) = serve_one(socket, asked, answer).await {
        tracing::debug!(%error, "dashboard client");
    }
}

impl DashboardState {
    async fn answer(
        self: &Arc<Self>,
        request: HttpRequest,
        peer: Option<IpAddr>,
        patience: &ClientPatience,
    ) -> HttpResponse {
        let Some(settings) = self.proxy.config().settings.dashboard.clone() else {
            return respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, "there is no dashboard any more\n");
        };
        let viewer = match self.access.admit(&request, &settings, peer).await {
            Ok(viewer) => viewer,
            Err(refusal) => return refusal,
        };
        patience.extend(ANSWER_WITHIN);
        let method = request.method().clone();
        match (method, request.uri().path()) {
            (Method::GET | Method::HEAD, "/") => respond(StatusCode::OK, HTML, self.page(&settings)),
            (Method::GET | Method::HEAD, "/style.css") => {
                respond(StatusCode::OK, "text/css; charset=utf-8", STYLE)
            }
            (Method::GET | Method::HEAD, "/script.js") => {
                respond(StatusCode::OK, "text/javascript; charset=utf-8", SCRIPT)
            }
            (Method::GET | Method::HEAD, "/figures") => {
                respond_json(StatusCode::OK, &figures::figures(&self.proxy))
            }
            (Method::GET, "/events") => {
                patience.extend(EVENTS_FOR);
                self.events(settings)
            }
            (Method::POST, "/servers") => self.order(request, &settings, &viewer).await,
            (Method::GET | Method::HEAD, _) => respond(StatusCode::NOT_FOUND, TEXT, "the page is at /\n"),
            _ => respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET, HEAD and POST /servers\n"),
        }
    }

    /// The page. If changes are allowed, it contains the token of this process.
    fn page(&self, settings: &DashboardSettings) -> String {
        let token = if settings.allow_changes { self.access.token() } else { "" };
        PAGE.replace("{{token}}", token).replace("{{version}}", env!("CARGO_PKG_VERSION"))
    }

    fn events(self: &Arc<Self>, settings: DashboardSettings) -> HttpResponse {
        let before = self.viewers.fetch_add(1, Ordering::Relaxed);
        let seat = ViewerSeat(Arc::clone(&self.viewers));
        if before >= VIEWERS {
            let mut full = respond(
                StatusCode::SERVICE_UNAVAILABLE,
                TEXT,
                format!("{VIEWERS} viewers are here already\n"),
            );
            full.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("10"));
            return full;
        }
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let events = DashboardEvents {
            state: Arc::clone(self),
            settings,
            ticks,
            failures: None,
            certificates: String::new(),
            _watching: self.proxy.live.watch(),
            _seat: seat,
        };
        respond_events(stream::unfold(events, |mut events| async move {
            events.ticks.tick().await;
            let text = events.next()?;
            Some((text, events))
        }))
    }

    /// The current figures, which may be up to [`FRESH`] old.
    fn fresh_figures(&self) -> Arc<str> {
        let mut kept = self.figures.lock();
        if let Some((taken, figures)) = &*kept
            && taken.elapsed() < FRESH
        {
            return Arc::clone(figures);
        }
        let figures: Arc<str> = figures::figures(&self.proxy).to_string().into();
        *kept = Some((Instant::now(), Arc::clone(&figures)));
        figures
    }

    /// Carries out an order for a server.
    async fn order(
        &self,
        request: HttpRequest,
        settings: &DashboardSettings,
        viewer: &DashboardViewer,
    ) -> HttpResponse {
        if !settings.allow_changes {
            let help = "this dashboard changes nothing; `dashboard { allow-changes }` lets it\n";
            return respond(StatusCode::FORBIDDEN, TEXT, help);
        }
        if let Err(reason) = self.access.is_from_page(request.headers()) {
            return respond(StatusCode::FORBIDDEN, TEXT, format!("{reason}\n"));
        }
        let body = match timeout(PATIENCE, read_body(request.into_body(), ORDER_LIMIT)).await {
            Ok(Ok(body)) => body,
            Ok(Err(status)) => return respond(status, TEXT, "the order could not be read\n"),
            Err(_) => {
                return respond(StatusCode::REQUEST_TIMEOUT, TEXT, "the order did not arrive in time\n");
            }
        };
        let Ok(order) = serde_json::from_slice::<Value>(&body) else {
            return respond(StatusCode::BAD_REQUEST, TEXT, "expected an order in JSON\n");
        };
        let result = servers::order(&self.proxy, &order).await;
        let text = |name: &str| order.get(name).and_then(Value::as_str).unwrap_or_default();
        let change = format!("server {} of {}: {}", text("server"), text("upstream"), text("order"));
        self.proxy.audit.record(&viewer.to_string(), &change, result.as_ref().err().map(String::as_str));
        match result {
            Ok(()) => respond_json(StatusCode::OK, &json!({ "ok": true })),
            Err(error) => respond_json(StatusCode::CONFLICT, &json!({ "ok": false, "error": error })),
        }
    }
}

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// The place of a viewer.
struct ViewerSeat(Arc<AtomicUsize>);

impl Drop for ViewerSeat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The events for one viewer.
struct DashboardEvents {
    state: Arc<DashboardState>,
    /// The settings when the viewer was admitted.
    settings: DashboardSettings,
    ticks: tokio::time::Interval,
    /// The number of failed requests at the last event about them.
    failures: Option<u64>,
    /// The last event about certificates.
    certificates: String,
    _watching: Watching,
    _seat: ViewerSeat,
}

impl DashboardEvents {
    /// The events of the next second. `None` ends them: the viewer has to be admitted again, by this process or its
    /// successor.
    fn next(&mut self) -> Option<String> {
        let proxy = &self.state.proxy;
        let present = proxy.config().settings.dashboard.clone()?;
        let is_same = match (&present.password, &self.settings.password) {
            (Some(present), Some(known)) => present.is_same(known),
            (present, known) => present.is_none() && known.is_none(),
        };
        if !is_same || present.allow_changes != self.settings.allow_changes || proxy.is_draining() {
            return None;
        }
        let mut text = format!("event: figures\ndata: {}\n\n", self.state.fresh_figures());
        let failed = proxy.live.failed();
        if self.failures != Some(failed) {
            self.failures = Some(failed);
            text.push_str(&format!("event: failures\ndata: {}\n\n", figures::failures(proxy)));
        }
        let mut certificates = certificates(proxy);
        for list in ["certificates", "files"] {
            if let Some(list) = certificates.get_mut(list).and_then(Value::as_array_mut) {
                list.truncate(CERTIFICATES);
            }
        }
        let certificates = certificates.to_string();
        if certificates != self.certificates {
            text.push_str(&format!("event: certificates\ndata: {certificates}\n\n"));
            self.certificates = certificates;
        }
        Some(text)
    }
}

//! The demo origin: a small HTTP/1.1 server with one endpoint for each thing a proxy has to carry.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    io,
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Frame, Incoming},
    header::{self, HeaderMap, HeaderName, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
    sync::{Semaphore, watch},
    task::JoinSet,
};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::{
    large::{self, Selection},
    live,
};

/// Connections served at the same time; more wait in the listener's backlog.
const CONNECTIONS_LIMIT: usize = 1024;

/// Bytes of a request's head.
const HEAD_LIMIT: usize = 64 * 1024;

/// A request's head has to arrive within this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that requests in flight have to end after the shutdown signal.
const DRAIN: Duration = Duration::from_secs(2);

/// The pause after a failed accept. The process may be out of descriptors, and an immediate retry would loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The largest body that `/upload` and `/api/echo` count; a larger one is answered with 413.
const UPLOAD_LIMIT: u64 = 1024 * 1024 * 1024;

/// The size of `/large` without `bytes`.
const LARGE_DEFAULT: u64 = 64 * 1024 * 1024;

/// The largest `/large?bytes=`.
const LARGE_LIMIT: u64 = 1024 * 1024 * 1024;

/// `/slow` without `ms`, in milliseconds.
const SLOW_DEFAULT: u64 = 1_000;

/// The largest `/slow?ms=` and `/events?every=`, in milliseconds.
const SLOW_LIMIT: u64 = 30_000;

/// The time between two events of `/events`, in milliseconds.
const EVENTS_DEFAULT: u64 = 1_000;

const PAGE: &str = include_str!("page.html");

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Serves the demo on a thread of its own for as long as the process lives.
///
/// The thread has its own runtime, so that the origin's work does not count as the proxy's.
///
/// # Errors
///
/// The thread or its runtime cannot be started.
pub(super) fn spawn(listener: std::net::TcpListener) -> io::Result<()> {
    let runtime = runtime()?;
    let listener = registered(&runtime, listener)?;
    let serve = move || runtime.block_on(serve(listener, std::future::pending()));
    std::thread::Builder::new().name("foregate-demo".into()).spawn(serve)?;
    Ok(())
}

/// Serves the demo until the process is interrupted or terminated.
///
/// # Errors
///
/// The runtime cannot be started or the signals cannot be listened for.
pub(super) fn run(listener: std::net::TcpListener) -> io::Result<()> {
    let runtime = runtime()?;
    let listener = registered(&runtime, listener)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        serve(listener, async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        })
        .await;
        Ok(())
    })
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn registered(runtime: &Runtime, listener: std::net::TcpListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    let _inside = runtime.enter();
    TcpListener::from_std(listener)
}

/// Serves the demo on `listener` until `shutdown` resolves, then waits up to [`DRAIN`] for the
/// requests in flight.
///
/// Endpoints: `/`, `/api/echo`, `/api/time`, `/large?bytes=N`, `/slow?ms=N`,
/// `/events?count=N&every=MS`, `/ws`, `/status/NNN`, `/upload`. Errors of single connections end
/// those connections; a failing accept is logged and tried again.
async fn serve(listener: TcpListener, shutdown: impl Future<Output = ()>) {
    let (stop, stopping) = watch::channel(false);
    let places = Arc::new(Semaphore::new(CONNECTIONS_LIMIT));
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &places) => accepted,
            Some(_ended) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, place)) => {
                let stopping = stopping.clone();
                connections.spawn(async move {
                    connection(stream, stopping).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "demo origin: accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    // An error means that no connection is left to receive the signal.
    let _ = stop.send(true);
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN, all).await;
}

/// Accepts a connection once fewer than [`CONNECTIONS_LIMIT`] are served, so that an accepted one is served at once.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.expect("the semaphore is never closed");
    let (stream, _peer) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, place))
}

async fn connection(stream: TcpStream, mut stopping: watch::Receiver<bool>) {
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_LIMIT)
        .serve_connection(
            TokioIo::new(stream),
            service_fn(|request| async { Ok::<_, Infallible>(respond(request).await) }),
        )
        .with_upgrades();
    let mut serving = pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = stopped(&mut stopping) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "demo origin: connection ended");
    }
}

/// Resolves when the origin has to stop, or when the sender of that signal is gone.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|&stop| stop).await;
}

/// Answers a request by its path and method.
async fn respond(request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let answered = match path.as_str() {
        "/api/echo" => echo(request).await,
        "/upload" => upload(request).await,
        "/ws" => websocket(request),
        _ if !matches!(*request.method(), Method::GET | Method::HEAD) => {
            Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD here"))
        }
        "/" => Ok(typed("text/html; charset=utf-8", PAGE)),
        "/api/time" => Ok(now()),
        "/large" => big(&request),
        "/slow" => slow(&request).await,
        "/events" => events(&request),
        _ => match path.strip_prefix("/status/") {
            Some(code) => status(code),
            None => Err(Refusal::new(StatusCode::NOT_FOUND, "no such page; / lists them")),
        },
    };
    let mut response = answered.unwrap_or_else(Refusal::into_response);
    response
        .headers_mut()
        .insert(HeaderName::from_static("x-origin"), HeaderValue::from_static("foregate-demo"));
    response
}

/// A response that explains an error in the request.
struct Refusal {
    status: StatusCode,
    reason: String,
}

impl Refusal {
    fn new(status: StatusCode, reason: impl fmt::Display) -> Self {
        let reason = reason.to_string();
        Self { status, reason }
    }

    fn into_response(self) -> Response<Body> {
        let mut response = object(&json!({ "error": self.reason }));
        *response.status_mut() = self.status;
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            let allow = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(header::ALLOW, allow);
        }
        response
    }
}

async fn echo(request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let (head, body) = request.into_parts();
    let headers: Vec<_> = head
        .headers
        .iter()
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
        .collect();
    let length = count(body).await?;
    Ok(object(&json!({
        "method": head.method.as_str(),
        "path": head.uri.path(),
        "query": head.uri.query(),
        "version": format!("{:?}", head.version),
        "headers": headers,
        "body_bytes": length,
    })))
}

async fn upload(request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    if !matches!(*request.method(), Method::POST | Method::PUT) {
        let text = "send a body with POST or PUT";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, text));
    }
    let length = count(request.into_body()).await?;
    Ok(object(&json!({ "bytes": length })))
}

/// Reads a body to its end without keeping it, and returns its length.
async fn count(mut body: Incoming) -> Result<u64, Refusal> {
    let mut length: u64 = 0;
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, format_args!("body: {error}")))?;
        length += frame.data_ref().map_or(0, |data| data.len() as u64);
        if length > UPLOAD_LIMIT {
            let reason = format_args!("more than {UPLOAD_LIMIT} bytes").to_string();
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, reason));
        }
    }
    Ok(length)
}

fn now() -> Response<Body> {
    let now = SystemTime::now();
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut response = object(&json!({
        "time": httpdate::fmt_http_date(now),
        "unix_milliseconds": u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
    }));
    no_store(&mut response);
    response
}

fn big(request: &Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let length = number(request, "bytes", LARGE_LIMIT)?.unwrap_or(LARGE_DEFAULT);
    let tag = format!("\"large-{length}\"");
    let headers = request.headers();
    let range = match text(headers, &header::IF_RANGE) {
        Some(condition) if condition != tag => None,
        _ => text(headers, &header::RANGE),
    };
    let (status, start, end) = match large::select(range, length) {
        Selection::Whole => (StatusCode::OK, 0, length),
        Selection::Part { first, last } => (StatusCode::PARTIAL_CONTENT, first, last + 1),
        Selection::Unsatisfiable => (StatusCode::RANGE_NOT_SATISFIABLE, 0, 0),
    };
    let mut response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "text/plain; charset=utf-8")
        .header(header::CONTENT_LENGTH, end - start)
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::ETAG, tag);
    match status {
        StatusCode::PARTIAL_CONTENT => {
            let part = format!("bytes {start}-{}/{length}", end - 1);
            response = response.header(header::CONTENT_RANGE, part);
        }
        StatusCode::RANGE_NOT_SATISFIABLE => {
            response = response.header(header::CONTENT_RANGE, format!("bytes */{length}"));
        }
        _ => {}
    }
    Ok(response.body(streamed(large::bytes(start, end))).expect("every part is a valid header"))
}

async fn slow(request: &Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let pause = number(request, "ms", SLOW_LIMIT)?.unwrap_or(SLOW_DEFAULT);
    tokio::time::sleep(Duration::from_millis(pause)).await;
    let mut response = object(&json!({ "slept_milliseconds": pause }));
    no_store(&mut response);
    Ok(response)
}

fn events(request: &Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let every = number(request, "every", SLOW_LIMIT)?.unwrap_or(EVENTS_DEFAULT);
    let count = number(request, "count", u64::MAX)?;
    // A browser that reconnects sends the id of the last event that it has received.
    let last = text(request.headers(), &HeaderName::from_static("last-event-id"))
        .and_then(|id| id.parse::<u64>().ok());
    let first = last.map_or(1, |last| last.saturating_add(1));
    let stream = live::events(first, count, Duration::from_millis(every));
    let mut response = Response::new(streamed(stream));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    no_store(&mut response);
    Ok(response)
}

fn status(code: &str) -> Result<Response<Body>, Refusal> {
    let status = code
        .parse::<u16>()
        .ok()
        .filter(|code| (200..=999).contains(code))
        .and_then(|code| StatusCode::from_u16(code).ok())
        .ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, "a status is 200 to 999"))?;
    let mut response = object(&json!({ "status": status.as_u16() }));
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED) {
        response = Response::new(Full::default().boxed_unsync());
    }
    *response.status_mut() = status;
    if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
        let home = HeaderValue::from_static("/");
        response.headers_mut().insert(header::LOCATION, home);
    }
    Ok(response)
}

/// Answers the opening handshake of RFC 6455, section 4.2. Then [`live::echo`] serves the WebSocket.
fn websocket(mut request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let headers = request.headers();
    let asked = request.method() == Method::GET
        && lists(headers, &header::CONNECTION, "upgrade")
        && lists(headers, &header::UPGRADE, "websocket")
        && text(headers, &header::SEC_WEBSOCKET_VERSION) == Some("13");
    let key = headers.get(header::SEC_WEBSOCKET_KEY);
    let (true, Some(key)) = (asked, key) else {
        let mut response =
            Refusal::new(StatusCode::UPGRADE_REQUIRED, "a WebSocket lives here").into_response();
        let fields = response.headers_mut();
        fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        fields.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        fields.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return Ok(response);
    };
    let accept = derive_accept_key(key.as_bytes());
    tokio::spawn(live::echo(hyper::upgrade::on(&mut request)));
    Ok(Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, accept)
        .body(Full::default().boxed_unsync())
        .expect("base64 is a valid header"))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Returns true if a comma-separated field contains `token`, in any case.
fn lists(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|part| part.trim().eq_ignore_ascii_case(token))
}

/// Reads a number from the query; `None` if it is absent. Anything but a number up to `limit` is refused with 400.
fn number(request: &Request<Incoming>, name: &str, limit: u64) -> Result<Option<u64>, Refusal> {
    let Some(value) = request
        .uri()
        .query()
        .unwrap_or_default()
        .split('&')
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    else {
        return Ok(None);
    };
    match value.parse() {
        Ok(number) if number <= limit => Ok(Some(number)),
        _ => Err(Refusal::new(StatusCode::BAD_REQUEST, format_args!("{name} is a number up to {limit}"))),
    }
}

fn typed(kind: &'static str, content: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(content.into()).boxed_unsync());
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn object(value: &serde_json::Value) -> Response<Body> {
    typed("application/json", format!("{value:#}\n"))
}

fn no_store(response: &mut Response<Body>) {
    let value = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, value);
}

fn streamed(parts: impl futures_util::Stream<Item = Result<Bytes, Infallible>> + Send + 'static) -> Body {
    let frames = futures_util::StreamExt::map(parts, |part| part.map(Frame::data));
    StreamBody::new(frames).boxed_unsync()
}

#[cfg(test)]
#[path = "origin_tests.rs"]
mod tests;

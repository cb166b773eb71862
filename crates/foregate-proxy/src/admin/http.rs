//! HTTP for the few clients of the admin interfaces. Heads and bodies of requests are bounded; each connection serves
//! one request.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use super::unreadable::Explaining;
use super::{LONGEST_REQUEST, PATIENCE, ServingFlag};

/// A request with the rest of its body.
pub(super) type HttpRequest = http::Request<Incoming>;
/// An answer.
pub(super) type HttpResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The time limit of a client, from its first byte to its last. It is extended for a client that has been admitted.
#[derive(Debug, Clone)]
pub(super) struct ClientPatience(Arc<AtomicU64>);

impl ClientPatience {
    fn new(span: Duration) -> Self {
        Self(Arc::new(AtomicU64::new(span.as_secs())))
    }

    /// Extends the time limit.
    pub(super) fn extend(&self, span: Duration) {
        self.0.fetch_max(span.as_secs(), Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

/// Serves one request of a client. For a further request, the client needs a new connection.
pub(super) async fn serve_one<F>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    asked: &ServingFlag,
    answer: impl Fn(HttpRequest, ClientPatience) -> F,
) -> io::Result<()>
where
    F: Future<Output = HttpResponse>,
{
    let patience = ClientPatience::new(PATIENCE);
    let service = service_fn(|request| {
        asked.set();
        let answer = answer(request, patience.clone());
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .keep_alive(false)
            // A client that sends its request and closes its side, as `nc -N` does, still gets its answer.
            .half_close(true)
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_buf_size(LONGEST_REQUEST as usize)
            .serve_connection(TokioIo::new(Explaining::new(stream, asked.clone())), service)
    );
    let began = Instant::now();
    loop {
        let end = began + patience.get();
        if end <= Instant::now() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        tokio::select! {
            served = &mut connection => return served.map_err(io::Error::other),
            () = sleep_until(end) => {}
        }
    }
}

/// An answer with a body.
pub(super) fn respond(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// An answer in JSON.
pub(super) fn respond_json(status: StatusCode, value: &serde_json::Value) -> HttpResponse {
    respond(status, "application/json", format!("{value}\n"))
}

/// Server-sent events, as long as the client stays.
pub(super) fn respond_events(events: impl Stream<Item = String> + Send + 'static) -> HttpResponse {
    let frames = events.map(|event| Ok(Frame::data(Bytes::from(event))));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The body of a request, or the status of a refusal.
pub(super) async fn read_body(body: Incoming, limit: usize) -> Result<Bytes, StatusCode> {
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(StatusCode::PAYLOAD_TOO_LARGE),
        Err(_) => Err(StatusCode::BAD_REQUEST),
    }
}

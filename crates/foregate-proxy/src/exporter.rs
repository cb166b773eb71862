//! The task that sends the spans of recorded traces to their receiver, by OTLP over HTTP.
//!
//! Requests never wait for the export. If the receiver is away, slow or overloaded, a batch is sent again and again
//! for up to [`PATIENCE`]. New spans wait in the queue meanwhile; if it is full, they are dropped.

use std::sync::Arc;
use std::time::Duration;

use foregate_module::{FetchRequest, FetchTarget, Field, Text, UpstreamId};
use tokio::time::Instant;

use crate::exchange::fetch;
use crate::proxy::Proxy;
use crate::settings::TraceExport;
use crate::spans::{SpanBatch, rejected_spans, request_body};

/// The longest time for which a batch is sent again after failures.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause after the first failure. It doubles with each further failure.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest pause.
const PAUSE_MOST: Duration = Duration::from_secs(10);
/// The longest answer of a receiver that is read, bytes.
const ANSWER_MOST: usize = 64 * 1024;
/// The interval of the checks at the end of the process whether all spans are sent.
const LOOK: Duration = Duration::from_millis(10);

/// The result of sending a batch to the receiver.
#[derive(Debug)]
enum Delivery {
    /// The receiver has accepted the batch, except for this many spans.
    Taken(u64),
    /// The batch may be accepted later. Has the reason, and the pause if the receiver demands one.
    Later(String, Option<Duration>),
    /// The batch will never be accepted. Has the reason.
    Refused(String),
}

/// Sends batches, one at a time, as long as the process lives.
pub async fn run(proxy: Arc<Proxy>) {
    // True if the last batch has failed. The first failure in a row is logged, and later ones are not.
    let mut failing = false;
    loop {
        let batch = proxy.spans.batch().await;
        let spans = batch.spans();
        let arrived = match deliver(&proxy, &batch).await {
            Ok(rejected) => {
                if std::mem::take(&mut failing) {
                    tracing::info!("the receiver of traces takes spans again");
                }
                spans.saturating_sub(rejected)
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(spans, error, "spans could not be exported");
                }
                0
            }
        };
        proxy.spans.done(&batch, arrived);
    }
}

/// Waits until the remaining spans are sent, for at most `limit`, because the process ends.
pub async fn finish(proxy: &Proxy, limit: Duration) {
    proxy.spans.end();
    let until = Instant::now() + limit;
    while proxy.spans.pending() > 0 && Instant::now() < until {
        tokio::time::sleep(LOOK).await;
    }
}

/// Sends a batch. After a failure that may be temporary, sends it again. Returns the number of spans that the receiver
/// has rejected.
async fn deliver(proxy: &Proxy, batch: &SpanBatch) -> Result<u64, String> {
    let until = Instant::now() + PATIENCE;
    let mut pause = PAUSE;
    loop {
        let config = proxy.config();
        // A reload may have ended the export, or have sent it elsewhere.
        let Some(export) = &config.settings.trace_export else {
            return Err("the export is off".to_owned());
        };
        let Some(upstream) = config.upstreams.get(export.upstream) else {
            return Err("the receiver is not configured".to_owned());
        };
        let (error, wanted) = match judge(fetch::post(proxy, upstream, request(export, batch)).await) {
            Delivery::Taken(rejected) => return Ok(rejected),
            Delivery::Refused(error) => return Err(error),
            Delivery::Later(error, wanted) => (error, wanted),
        };
        // Random, so that many proxies do not return at the same time.
        let spread = 0.75 + (crate::random::number() % 1024) as f64 / 2048.0;
        let rest = wanted.unwrap_or(pause.mul_f64(spread));
        if proxy.spans.ends() || Instant::now() + rest > until {
            return Err(error);
        }
        drop(config);
        tokio::time::sleep(rest).await;
        pause = PAUSE_MOST.min(pause * 2);
    }
}

fn request(export: &TraceExport, batch: &SpanBatch) -> FetchRequest {
    let upstream = u32::try_from(export.upstream).unwrap_or(u32::MAX);
    let content_type = Field::new("content-type", "application/x-protobuf");
    let user_agent = Field::new("user-agent", concat!("foregate/", env!("CARGO_PKG_VERSION")));
    let mut ask = FetchRequest::get(UpstreamId(upstream), export.path.to_string());
    ask.target = FetchTarget::Upstream(UpstreamId(upstream));
    ask.method = Text::Static(b"POST");
    ask.fields = content_type.into_iter().chain(user_agent).chain(export.fields.iter().cloned()).collect();
    ask.body = request_body(batch, &export.resource).into();
    ask.limit = ANSWER_MOST;
    ask.timeout = export.timeout;
    ask
}

/// Judges the receiver's answer by the rules of OTLP over HTTP.
fn judge(answer: foregate_module::FetchResult) -> Delivery {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Delivery::Later(error.to_string(), None),
    };
    let text = || format!("the receiver has answered with status {}", answer.status);
    match answer.status {
        200..300 => Delivery::Taken(rejected_spans(&answer.body)),
        429 | 502 | 503 | 504 => {
            let seconds =
                answer.fields.iter().find(|field| field.name().eq_ignore_ascii_case(b"retry-after"));
            let seconds =
                seconds.and_then(|field| std::str::from_utf8(field.value()).ok()?.trim().parse().ok());
            Delivery::Later(text(), seconds.map(Duration::from_secs))
        }
        _ => Delivery::Refused(text()),
    }
}

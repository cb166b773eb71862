//! Spans of recorded traces: one for each request, and within it spans for its phases, its attempts and its fetches.
//!
//! A span is encoded when it ends. The spans of a request wait in its [`RequestTrace`] until the request ends and it is
//! decided whether they are sent. Then they wait in the [`SpanQueue`] for the task that sends them. Both are bounded;
//! spans beyond the bounds are dropped and counted. A request that is not recorded has no spans.

mod encode;
mod queue;

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use foregate_module::TraceContext;
use parking_lot::Mutex;

pub use self::encode::{Attributes, SpanKind, rejected_spans, request_body};
pub use self::queue::{SpanBatch, SpanQueue};
use crate::random;

/// The most spans of one request. Further ones are dropped.
const SPANS_MOST: u32 = 128;
/// The most bytes of the encoded spans of one request. Further spans are dropped.
const BYTES_MOST: usize = 64 * 1024;

/// The id of a span within its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanId(pub [u8; 8]);

impl SpanId {
    /// A new random id.
    pub fn random() -> Self {
        // An id of zeros is invalid.
        Self(random::number().max(1).to_be_bytes())
    }
}

/// The value of `traceparent` that names a span as the parent.
pub fn traceparent(context: &TraceContext, span: SpanId) -> [u8; 55] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
    let bytes = context.trace.iter().chain(&span.0).chain([&context.flags]);
    let places = (3..35).step_by(2).chain((36..52).step_by(2)).chain([53]);
    for (byte, at) in bytes.zip(places) {
        if let Some([high, low]) = text.get_mut(at..at + 2) {
            *high = DIGITS[usize::from(byte >> 4)];
            *low = DIGITS[usize::from(byte & 15)];
        }
    }
    text
}

/// A span that has ended.
#[derive(Debug)]
pub struct Span<'s> {
    /// Its id.
    pub id: SpanId,
    /// The parent span; `None` for the first span of a trace.
    pub parent: Option<SpanId>,
    /// The name of the span, the same for all spans of its kind.
    pub name: &'s str,
    /// The role of the proxy.
    pub kind: SpanKind,
    /// When it began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
    /// The attributes of the span.
    pub attributes: &'s Attributes,
    /// Set if the span counts as failed.
    pub failed: bool,
}

/// The spans of one request.
#[derive(Debug)]
pub struct RequestTrace {
    context: TraceContext,
    queue: Arc<SpanQueue>,
    /// The same moment on the monotonic clock and in nanoseconds since 1970, for conversions.
    began: (Instant, u64),
    state: Mutex<TraceState>,
}

#[derive(Debug, Default)]
struct TraceState {
    encoded: Vec<u8>,
    count: u32,
    /// `Some` once the request has ended: true if its spans are sent. Kept for fetches that outlive their request.
    sent: Option<bool>,
}

impl RequestTrace {
    /// Has no spans yet.
    pub fn new(context: TraceContext, queue: &Arc<SpanQueue>) -> Arc<Self> {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix = u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX);
        Arc::new(Self {
            context,
            queue: Arc::clone(queue),
            began: (Instant::now(), unix),
            state: Mutex::default(),
        })
    }

    /// The trace that the spans belong to.
    pub fn context(&self) -> &TraceContext {
        &self.context
    }

    /// Adds a span that has ended.
    pub fn record(&self, span: &Span<'_>) {
        let mut state = self.state.lock();
        if state.sent == Some(false) {
            return;
        }
        if state.count >= SPANS_MOST || state.encoded.len() > BYTES_MOST {
            drop(state);
            self.queue.lost(1);
            return;
        }
        let times = [self.unix(span.began), self.unix(span.ended)];
        encode::span(&mut state.encoded, &self.context.trace, span, times);
        state.count += 1;
        if state.sent == Some(true) {
            let encoded = std::mem::take(&mut state.encoded);
            drop(state);
            self.queue.push(encoded, 1);
        }
    }

    /// Ends the request's trace. Its spans are sent if `sent` is true, otherwise dropped.
    pub fn end(&self, sent: bool) {
        let mut state = self.state.lock();
        state.sent = Some(sent);
        let (encoded, count) = (std::mem::take(&mut state.encoded), state.count);
        drop(state);
        if sent && count > 0 {
            self.queue.push(encoded, count);
        }
    }

    /// Converts a moment to nanoseconds since 1970.
    fn unix(&self, at: Instant) -> u64 {
        let (began, unix) = self.began;
        let nanos = |span: std::time::Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        match at.checked_duration_since(began) {
            Some(after) => unix.saturating_add(nanos(after)),
            None => unix.saturating_sub(nanos(began.duration_since(at))),
        }
    }
}

/// A span in which further spans may be recorded.
#[derive(Debug, Clone)]
pub struct SpanParent {
    /// The spans of its request.
    pub trace: Arc<RequestTrace>,
    /// Its id.
    pub id: SpanId,
}

impl SpanParent {
    /// Adds a span within this one.
    pub fn record(
        &self,
        (id, kind, name): (SpanId, SpanKind, &str),
        (began, ended): (Instant, Instant),
        attributes: &Attributes,
        failed: bool,
    ) {
        self.trace.record(&Span { id, parent: Some(self.id), name, kind, began, ended, attributes, failed });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::metrics::Metrics;

    fn context() -> TraceContext {
        TraceContext { trace: [0xab; 16], span: [1; 8], parent: None, flags: 1 }
    }

    fn span(attributes: &Attributes) -> Span<'_> {
        let now = Instant::now();
        Span {
            id: SpanId::random(),
            parent: None,
            name: "a",
            kind: SpanKind::Internal,
            began: now,
            ended: now,
            attributes,
            failed: false,
        }
    }

    #[test]
    fn the_field_names_trace_and_span() {
        let field = traceparent(&context(), SpanId([0, 1, 2, 3, 4, 5, 0xfe, 0xff]));
        assert_eq!(field, *b"00-abababababababababababababababab-000102030405feff-01");
    }

    #[test]
    fn spans_of_a_request_are_bounded_and_the_rest_is_counted() {
        let metrics = Arc::<Metrics>::default();
        let queue = Arc::new(SpanQueue::new(Arc::clone(&metrics)));
        let trace = RequestTrace::new(context(), &queue);
        let attributes = Attributes::default();
        (0..SPANS_MOST + 5).for_each(|_| trace.record(&span(&attributes)));
        assert_eq!((queue.pending(), metrics.spans_dropped.get()), (0, 5));
        trace.end(true);
        assert_eq!(queue.pending(), SPANS_MOST as usize);
        let long = RequestTrace::new(context(), &queue);
        let mut attributes = Attributes::default();
        (0..40).for_each(|_| attributes.text("a", &[b'x'; 1024]));
        (0..3).for_each(|_| long.record(&span(&attributes)));
        assert_eq!(metrics.spans_dropped.get(), 6);
    }

    #[test]
    fn late_spans_follow_the_decision() {
        let queue = Arc::new(SpanQueue::new(Arc::default()));
        let attributes = Attributes::default();
        for (sent, expected) in [(false, 0), (true, 2)] {
            let trace = RequestTrace::new(context(), &queue);
            trace.record(&span(&attributes));
            trace.end(sent);
            trace.record(&span(&attributes));
            assert_eq!(queue.pending(), expected);
        }
    }
}

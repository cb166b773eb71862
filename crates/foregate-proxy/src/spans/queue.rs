//! Encoded spans that wait for the task that sends them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::counters::metrics::Metrics;

/// The most bytes of waiting spans. Further spans are dropped.
const BACKLOG_MOST: usize = 4 * 1024 * 1024;
/// A batch is sent as soon as it has at least this many bytes, so it is rarely much larger.
const BATCH: usize = 256 * 1024;
/// How long spans are gathered before they are sent.
const GATHER: Duration = Duration::from_secs(1);

/// The queue of spans that wait to be sent. Requests add spans without waiting.
#[derive(Debug)]
pub struct SpanQueue {
    waiting: Mutex<Waiting>,
    /// Notified when the first span arrives, when a batch is full, and when the process ends.
    news: Notify,
    /// True once the process ends: no further spans are gathered before a batch is sent.
    ends: AtomicBool,
    /// The number of spans that wait or are being sent.
    pending: AtomicUsize,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct Waiting {
    requests: VecDeque<EncodedSpans>,
    bytes: usize,
}

/// Spans of one request.
#[derive(Debug)]
struct EncodedSpans {
    encoded: Vec<u8>,
    count: u32,
}

/// Spans that are sent together.
#[derive(Debug, Default)]
pub struct SpanBatch(Vec<EncodedSpans>);

impl SpanBatch {
    /// The number of spans.
    pub fn spans(&self) -> u64 {
        self.0.iter().map(|spans| u64::from(spans.count)).sum()
    }

    pub(super) fn bytes(&self) -> usize {
        self.encoded().map(<[u8]>::len).sum()
    }

    pub(super) fn encoded(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|spans| &*spans.encoded)
    }
}

impl SpanQueue {
    /// An empty queue that counts in `metrics`.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            waiting: Mutex::default(),
            news: Notify::new(),
            ends: AtomicBool::new(false),
            pending: AtomicUsize::new(0),
            metrics,
        }
    }

    /// Adds spans of a request.
    pub(super) fn push(&self, encoded: Vec<u8>, count: u32) {
        let mut waiting = self.waiting.lock();
        if waiting.bytes + encoded.len() > BACKLOG_MOST {
            drop(waiting);
            return self.lost(count.into());
        }
        let before = waiting.bytes;
        waiting.bytes += encoded.len();
        let is_news = before == 0 || before < BATCH && waiting.bytes >= BATCH;
        waiting.requests.push_back(EncodedSpans { encoded, count });
        self.pending.fetch_add(count as usize, Ordering::Relaxed);
        drop(waiting);
        if is_news {
            self.news.notify_one();
        }
    }

    /// Counts spans that were not delivered.
    pub(super) fn lost(&self, count: u64) {
        self.metrics.spans_dropped.add(count);
    }

    /// Waits for the next batch of spans.
    pub async fn batch(&self) -> SpanBatch {
        while self.waiting.lock().bytes == 0 {
            self.news.notified().await;
        }
        // An error only means that the time for gathering is over.
        let _ = tokio::time::timeout(GATHER, async {
            while self.waiting.lock().bytes < BATCH && !self.ends.load(Ordering::Relaxed) {
                self.news.notified().await;
            }
        })
        .await;
        let mut waiting = self.waiting.lock();
        let (mut batch, mut bytes) = (SpanBatch::default(), 0);
        while bytes < BATCH
            && let Some(spans) = waiting.requests.pop_front()
        {
            bytes += spans.encoded.len();
            batch.0.push(spans);
        }
        waiting.bytes -= bytes;
        batch
    }

    /// Records that a batch has been sent, and that the receiver got `arrived` of its spans.
    pub fn done(&self, batch: &SpanBatch, arrived: u64) {
        self.metrics.spans_exported.add(arrived);
        self.metrics.spans_failed.add(batch.spans().saturating_sub(arrived));
        self.pending.fetch_sub(batch.spans() as usize, Ordering::Relaxed);
    }

    /// The number of spans that wait or are being sent.
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Makes spans be sent at once from now on, because the process ends.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
        self.news.notify_one();
    }

    /// Returns true once the process ends.
    pub fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_backlog_is_bounded_and_leaves_in_batches() {
        let metrics = Arc::<Metrics>::default();
        let queue = SpanQueue::new(Arc::clone(&metrics));
        let request = || vec![0; 32 * 1024];
        for _ in 0..130 {
            queue.push(request(), 2);
        }
        assert_eq!((queue.pending(), metrics.spans_dropped.get()), (256, 4));
        let batch = queue.batch().await;
        assert_eq!((batch.spans(), batch.bytes()), (16, BATCH));
        queue.done(&batch, 15);
        assert_eq!((queue.pending(), metrics.spans_exported.get(), metrics.spans_failed.get()), (240, 15, 1));
        queue.push(request(), 1);
        assert_eq!(queue.pending(), 241, "there is room again");
    }

    #[tokio::test]
    async fn a_single_span_waits_for_others_unless_the_process_ends() {
        let queue = SpanQueue::new(Arc::default());
        queue.push(vec![0; 10], 1);
        let began = std::time::Instant::now();
        assert_eq!(queue.batch().await.spans(), 1);
        assert!(began.elapsed() >= GATHER);
        queue.push(vec![0; 10], 1);
        queue.end();
        let began = std::time::Instant::now();
        assert_eq!(queue.batch().await.spans(), 1);
        assert!(began.elapsed() < GATHER);
    }
}

//! The limit on the rate of requests.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A limit on the requests per second, spread evenly.
pub(crate) struct Pace {
    gap: Option<Duration>,
    next: Mutex<Instant>,
}

impl Pace {
    pub fn new(rate: Option<f64>) -> Self {
        let gap = rate.map(|rate| Duration::from_secs_f64(1.0 / rate));
        Self { gap, next: Mutex::new(Instant::now()) }
    }

    /// Waits for the turn of the next request.
    pub async fn turn(&self) {
        let Some(gap) = self.gap else { return };
        let at = {
            let mut next = self.next.lock();
            let at = (*next).max(Instant::now());
            *next = at + gap;
            at
        };
        tokio::time::sleep_until(at.into()).await;
    }
}

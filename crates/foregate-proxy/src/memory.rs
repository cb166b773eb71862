//! Returning unused memory to the system.
//!
//! The allocator keeps pages for each thread, and returns free ones only when that thread allocates.
//! After a flood of requests, workers hold pages that other workers have freed, and a calm proxy
//! allocates next to nothing. So each idle worker purges its pages once in a while.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::sys;

/// The interval at which a worker returns unused memory, which takes some tens of microseconds.
const EVERY: Duration = Duration::from_secs(5);
/// The time after which workers should have noticed the pages that others have freed.
const SETTLED: Duration = Duration::from_millis(500);

thread_local! {
    static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Returns this thread's unused memory to the system, unless it has done so recently.
pub fn give_back() {
    let now = Instant::now();
    if LAST.get().is_none_or(|last| now.saturating_duration_since(last) >= EVERY) {
        LAST.set(Some(now));
        sys::collect_memory();
    }
}

/// Returns the whole pages of a buffer that is about to be freed; its content is undefined afterwards.
pub fn discard(buffer: &mut [u8]) {
    sys::discard(buffer);
}

/// Makes workers return unused memory now, and again after a moment, because in the meantime other workers have freed
/// some of it.
pub async fn give_back_soon(workers: usize) {
    for _ in 0..2 {
        give_back_now(workers);
        tokio::time::sleep(SETTLED).await;
    }
}

/// Makes workers return unused memory.
pub fn give_back_now(workers: usize) {
    for _ in 0..workers {
        tokio::spawn(async { sys::collect_memory() });
    }
}

/// Wakes idle workers at intervals to [`give_back`] memory.
pub async fn wake(workers: usize) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // One task for each worker: while a worker runs one of them, other workers take the rest.
        for _ in 0..workers {
            tokio::spawn(async { give_back() });
        }
    }
}

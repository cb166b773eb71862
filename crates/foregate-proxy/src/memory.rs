//! Returning unused memory to the system.
//!
//! The allocator keeps pages for each thread, and looks through them when that thread allocates.
//! Memory that one worker allocated and another freed, as when a flood of requests ends, would stay
//! until then; a calm proxy allocates next to nothing. So each worker looks through its pages once
//! in a while, when it is idle.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::sys;

/// The interval at which a worker returns unused memory; that takes it some tens of microseconds.
const EVERY: Duration = Duration::from_secs(5);
/// The time for workers to have noticed pages that others have freed.
const SETTLED: Duration = Duration::from_millis(500);

thread_local! {
    static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Returns this thread's unused memory, unless it did so lately.
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

/// Has workers return unused memory now, and once more for memory that others of them have freed meanwhile.
pub async fn give_back_soon(workers: usize) {
    for _ in 0..2 {
        give_back_now(workers);
        tokio::time::sleep(SETTLED).await;
    }
}

/// Has workers return unused memory.
pub fn give_back_now(workers: usize) {
    for _ in 0..workers {
        tokio::spawn(async { sys::collect_memory() });
    }
}

/// Has idle workers wake up now and then, since they [`give_back`] before they go to sleep again.
pub async fn wake(workers: usize) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // While one worker purges its memory, the others take the rest.
        for _ in 0..workers {
            tokio::spawn(async { give_back() });
        }
    }
}

//! Decides how long a shared fetch waits for slow readers, if the body is too long for the memory.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use foregate_cache::Lead;

use crate::time::timer::Timer;

/// The longest wait for the slowest reader, while no other reader has to wait for it.
const SLOWEST: Duration = Duration::from_secs(60);
/// The longest time that fast readers wait for slow readers while [`STRETCH`] bytes of the body pass. A reader is fast
/// if it has read everything that has arrived. After that time, readers that are a whole window behind are cut off. A reader that
/// reads 210 KiB per second is never cut off, and the fast readers get at least that rate.
const HELD_UP: Duration = Duration::from_secs(5);
/// The length of a stretch of the body, bytes.
const STRETCH: usize = 1 << 20;

/// The time that readers have waited for slower ones in the current stretch.
#[derive(Debug, Default)]
pub(super) struct SlowReaders {
    waited: Duration,
    passed: usize,
}

impl SlowReaders {
    /// Counts bytes of the body.
    pub fn pass(&mut self, bytes: usize) {
        self.passed += bytes;
        if self.passed >= STRETCH {
            *self = Self::default();
        }
    }

    /// Waits until all readers have room for a further piece, or cuts off the slow readers. Returns
    /// false if the body is too long for the memory and has no reader.
    pub async fn room(&mut self, lead: &mut Lead, timer: &mut Timer) -> bool {
        let begun = Instant::now();
        let mut held_up = None;
        let patience = HELD_UP.saturating_sub(self.waited);
        let room = poll_fn(|cx| {
            if let Poll::Ready(room) = lead.poll_room(cx) {
                return Poll::Ready(Some(room));
            }
            let until = if lead.keeps_followers_waiting() {
                *held_up.get_or_insert_with(Instant::now) + patience
            } else {
                begun + SLOWEST
            };
            timer.poll(cx, until).map(|()| None)
        })
        .await;
        self.waited += held_up.map_or(Duration::ZERO, |since: Instant| since.elapsed());
        room.unwrap_or_else(|| {
            lead.leave_behind();
            true
        })
    }
}

//! Observers on the admin socket: the dashboard, `top` and `logs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

use super::figures;
use crate::proxy::Proxy;
use crate::telemetry::live::Watching;

/// The most observers at the same time. Each counts as a client connection.
const OBSERVERS_MOST: usize = 8;
static OBSERVERS: AtomicUsize = AtomicUsize::new(0);

/// An observer, with a channel for the figures of each second.
pub(super) struct Observer {
    proxy: Arc<Proxy>,
    ticks: Interval,
    _seat: ObserverSeat,
    _watching: Watching,
}

/// The place of an observer.
struct ObserverSeat;

impl Drop for ObserverSeat {
    fn drop(&mut self) {
        OBSERVERS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Observer {
    /// # Errors
    ///
    /// There are too many observers.
    pub(super) fn new(proxy: &Arc<Proxy>) -> Result<Self, String> {
        let others = OBSERVERS.fetch_add(1, Ordering::Relaxed);
        let seat = ObserverSeat;
        if others >= OBSERVERS_MOST {
            return Err(format!("{OBSERVERS_MOST} others watch already"));
        }
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { proxy: Arc::clone(proxy), ticks, _seat: seat, _watching: proxy.live.watch() })
    }

    /// The next figures; `None` if another process serves from now on.
    pub(super) async fn next(&mut self) -> Option<String> {
        self.ticks.tick().await;
        (!self.proxy.is_draining()).then(|| figures::figures(&self.proxy).to_string())
    }
}

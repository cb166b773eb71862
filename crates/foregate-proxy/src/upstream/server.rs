//! A server of an upstream at work.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::idle::Ages;
use super::pool::ServerPool;
use super::record::ServerRecord;
use super::remembered::ServerMemory;
use crate::address::ServerAddress;
use crate::counters::metrics::ServerCounters;
use crate::error::Error;
use crate::names::ResolvedName;
use crate::settings;
use crate::tls::Refusal;

/// A server at work. A clone is the same server.
#[derive(Debug, Clone)]
pub struct Server {
    /// Its place among those of its upstream.
    pub(super) number: usize,
    /// Where it is.
    pub address: ServerAddress,
    /// The address as text, for logs.
    pub label: Arc<str>,
    pub(super) resolved: Option<Arc<ResolvedName>>,
    pub(super) pool: Arc<ServerPool>,
    pub(super) settings: Arc<settings::ServerSettings>,
    /// Its connections may be shared by stream.
    pub(super) shares: bool,
    pub(super) record: Arc<ServerRecord>,
    pub(super) remembered: Arc<ServerMemory>,
    pub(super) counters: Arc<ServerCounters>,
}

impl Server {
    /// Tells metrics whether the server gets requests.
    pub(super) fn show(&self) {
        let is_down = self.record.health.is_down() || self.record.checked.is_down();
        self.counters.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Counts that requests pass over the server from now on.
    pub(super) fn count_ejection(&self) {
        self.record.ejections.fetch_add(1, Ordering::Relaxed);
        self.counters.ejections.inc();
    }

    /// Operators are told that it has ended a handshake that was over for us.
    pub(super) fn tell_of_refusal(&self, error: Refusal, now: Instant) -> Error {
        self.remembered.tls_failed(&error);
        if self.remembered.handshake.take(now) {
            tracing::warn!(server = %self.label, %error, "TLS handshake with an origin failed");
        }
        Error::OriginTls
    }

    /// Drops idle connections that are too old, have died, or lead to where its name has not led
    /// for a while.
    pub(super) fn sweep(&self, now: Instant, ages: Ages) {
        self.pool.sweep(now, ages);
        let Some(resolved) = &self.resolved else { return };
        // A reload puts servers to work where there is no runtime.
        resolved.start();
        let moved = match resolved.addresses() {
            Some(addresses) if resolved.is_complete() => self.remembered.see_all(&addresses, now),
            Some(addresses) => self.remembered.see(&addresses, now),
            None if resolved.is_absent() => self.remembered.see_all(&[], now),
            None => None,
        };
        if let Some(moved) = moved {
            self.pool.retire(moved, |address| !self.remembered.has(address));
        }
    }
}

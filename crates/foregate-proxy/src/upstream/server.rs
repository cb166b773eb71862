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

/// A server of a running upstream. A clone is the same server.
#[derive(Debug, Clone)]
pub struct Server {
    /// The server's index among those of its upstream.
    pub(super) number: usize,
    /// The configured address.
    pub address: ServerAddress,
    /// The address as text, for logs.
    pub label: Arc<str>,
    pub(super) resolved: Option<Arc<ResolvedName>>,
    pub(super) pool: Arc<ServerPool>,
    pub(super) settings: Arc<settings::ServerSettings>,
    /// True if HTTP/2 connections to the server may be shared by several requests.
    pub(super) shares: bool,
    pub(super) record: Arc<ServerRecord>,
    pub(super) remembered: Arc<ServerMemory>,
    pub(super) counters: Arc<ServerCounters>,
}

impl Server {
    /// Updates the metric that shows if the server is down.
    pub(super) fn show(&self) {
        let is_down = self.record.health.is_down() || self.record.checked.is_down();
        self.counters.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Counts that requests pass over the server from now on.
    pub(super) fn count_ejection(&self) {
        self.record.ejections.fetch_add(1, Ordering::Relaxed);
        self.counters.ejections.inc();
    }

    /// Tells operators that the server has rejected our certificate after the handshake. Returns the
    /// error for the request.
    pub(super) fn tell_of_refusal(&self, error: Refusal, now: Instant) -> Error {
        self.remembered.tls_failed(&error);
        if self.remembered.handshake.take(now) {
            tracing::warn!(server = %self.label, %error, "TLS handshake with an origin failed");
        }
        Error::OriginTls
    }

    /// Drops idle connections that are too old, that have died, or whose address has not been an address
    /// of the server's name for a while.
    pub(super) fn sweep(&self, now: Instant, ages: Ages) {
        self.pool.sweep(now, ages);
        let Some(resolved) = &self.resolved else { return };
        // Lookups start here, because a reload creates servers outside of the runtime.
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

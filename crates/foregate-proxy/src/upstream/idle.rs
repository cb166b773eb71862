//! Idle HTTP/1 connections.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::idle_limit::Peak;
use super::own::{OwnConnections, OwnTurn};
use super::record::OpenConnection;
use crate::limits::descriptors::OfClient;
use crate::link::H1Link;
use crate::settings::UpstreamSettings;

/// The facts about an HTTP/1 connection that are known from its start.
#[derive(Debug)]
pub struct ConnectionStart {
    /// When the connection was made.
    pub born: Instant,
    /// The peer's address, if the server's name may have several. It is stored because a broken
    /// connection no longer reveals it.
    pub address: Option<IpAddr>,
    /// Counts the connection for the client that it serves; `None` while the connection is idle.
    pub of_client: Option<OfClient>,
    /// The client connection that this connection to an origin belongs to, if it serves no other client.
    /// After the client connection has ended, the connection to the origin serves no more requests.
    pub own: Option<Weak<OwnConnections>>,
    /// The client's turn to use the connection, if the client authenticates on it.
    pub turn: Option<OwnTurn>,
    /// Counts the connection among the open ones of its pool.
    pub(super) open: Option<OpenCount>,
    /// Counts the connection among those of its server.
    pub _of_server: Option<OpenConnection>,
}

impl ConnectionStart {
    /// The facts of a new connection to `address`, made at `born`.
    pub fn new(born: Instant, address: Option<IpAddr>) -> Box<Self> {
        Box::new(Self { born, address, of_client: None, own: None, turn: None, open: None, _of_server: None })
    }
}

/// Counts a connection among the open ones of its pool, in use or idle.
#[derive(Debug)]
pub(super) struct OpenCount(Arc<AtomicUsize>);

impl OpenCount {
    pub(super) fn count(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An idle connection of HTTP/1.
#[derive(Debug)]
pub(super) struct Idle {
    pub(super) link: Box<H1Link>,
    pub(super) made: Box<ConnectionStart>,
    pub(super) since: Instant,
}

impl Idle {
    /// Returns true if this idle connection belongs to the client connection `own`.
    pub(super) fn is_of(&self, own: *const OwnConnections) -> bool {
        self.made.own.as_ref().is_some_and(|of| std::ptr::eq(of.as_ptr(), own))
    }
}

/// The idle HTTP/1 connections. Each list begins with the one that has been idle for longest.
/// Connections that each belong to one client connection are in the list `own`, so that other requests
/// do not search them.
#[derive(Debug, Default)]
pub(super) struct IdleLists {
    pub(super) common: VecDeque<Idle>,
    pub(super) own: VecDeque<Idle>,
    peak: Peak,
}

impl IdleLists {
    pub(super) fn len(&self) -> usize {
        self.common.len() + self.own.len()
    }

    pub(super) fn push(&mut self, entry: Idle) {
        let list = if entry.made.own.is_some() { &mut self.own } else { &mut self.common };
        list.push_back(entry);
    }

    /// Removes the oldest connection of the longer list to make room. Connections of one kind therefore do
    /// not displace the other kind.
    pub(super) fn pop_for_room(&mut self) -> Option<Idle> {
        if self.own.len() > self.common.len() { self.own.pop_front() } else { self.common.pop_front() }
    }

    /// Takes a connection that may serve all clients. It is the one used last, except if the origin's
    /// idle limit is known. The oldest connection is then taken in two cases:
    ///
    /// - it has been idle for at least half of the limit, and the load needs all open connections;
    /// - it has been idle for the whole limit, so it has probably ended.
    ///
    /// `open` is the number of connections, including those in use.
    pub(super) fn pop_common(&mut self, limit: Option<Duration>, open: usize, now: Instant) -> Option<Idle> {
        let Some(limit) = limit else { return self.common.pop_back() };
        let idle = now.saturating_duration_since(self.common.front()?.since);
        let others = open.saturating_sub(self.own.len());
        // The connection of this request counts as in use already.
        let in_use = (others + 1).saturating_sub(self.common.len());
        let needed = self.peak.note(in_use, now);
        let is_turn = idle >= limit || idle >= limit / 2 && others <= needed;
        if is_turn { self.common.pop_front() } else { self.common.pop_back() }
    }

    pub(super) fn pop_own(&mut self, own: *const OwnConnections) -> Option<Idle> {
        let at = self.own.iter().rposition(|entry| entry.is_of(own))?;
        self.own.remove(at)
    }

    pub(super) fn pop_oldest(&mut self) -> Option<Idle> {
        let since = |list: &VecDeque<Idle>| list.front().map(|entry| entry.since);
        match (since(&self.common), since(&self.own)) {
            (Some(common), Some(own)) if own < common => self.own.pop_front(),
            (None, _) => self.own.pop_front(),
            _ => self.common.pop_front(),
        }
    }

    pub(super) fn oldest(&self) -> Option<Instant> {
        [&self.common, &self.own].into_iter().filter_map(|list| list.front()).map(|entry| entry.since).min()
    }
}

/// How long connections may be kept and used.
#[derive(Debug, Clone, Copy)]
pub struct Ages {
    /// Longest time without a request.
    pub idle: Duration,
    /// Longest time since the connection was made.
    pub total: Duration,
}

impl Ages {
    /// The ages that the settings of an upstream allow.
    pub fn of(settings: &UpstreamSettings) -> Self {
        Self { idle: settings.keep_alive, total: settings.connection_age }
    }
}

//! Judging servers by the outcomes of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::health::News;
use super::origin::Origin;
use super::pace::LatencyBuckets;
use super::server::Server;
use crate::counters::metrics::UpstreamCounters;
use crate::error::Error;
use crate::settings::{HedgeAfter, UpstreamSettings};
use crate::time::notices::Notices;

/// The number of answers that an upstream or a server needs before its latencies are meaningful.
const ANSWERS_LEAST: u64 = 20;
/// A server hangs if it has answered no request for this many times the 99th percentile of latency, and
/// for at least [`PATIENCE_LEAST`].
const PATIENCE_FACTOR: u32 = 3;
const PATIENCE_LEAST: Duration = Duration::from_millis(250);
/// The patience while latencies are unknown.
const PATIENCE_AT_FIRST: Duration = Duration::from_secs(2);
/// The fewest requests that must wait at a server for it to count as hanging, because a single request may
/// just take long. With exactly this number of waiting requests, the server has twice the usual time.
const WAITING_LEAST: u32 = 2;
/// While fewer answers are known than [`ANSWERS_LEAST`], but at least one: a server may hang if it is silent for this many
/// times the slowest of them, and for at least [`DOUBT_LEAST`].
const DOUBT_FACTOR: u32 = 2 * PATIENCE_FACTOR;
const DOUBT_LEAST: Duration = Duration::from_millis(500);
/// The smallest difference of latencies by which a server counts as slower than the others.
const SLOWER_LEAST: Duration = Duration::from_millis(10);

/// The shortest and the longest pause between two checks whether a server hangs.
pub(super) const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Judges the servers of an upstream.
#[derive(Debug)]
pub struct ServerJudge {
    settings: Arc<UpstreamSettings>,
    servers: Arc<[Server]>,
    counters: Arc<UpstreamCounters>,
    /// True if the method of balancing weighs latencies.
    weighs_time: bool,
    /// The time in microseconds that a request waits before its server is checked for hanging; 0 while
    /// latencies are unknown.
    patience: AtomicU64,
    /// The time in microseconds after which a second attempt begins, from recent latencies; 0 while there are too few.
    hedge_after: AtomicU64,
    /// Limits notices of single failures, before a server counts as down.
    failing: Notices,
}

impl ServerJudge {
    /// A judge that knows nothing of latencies yet.
    pub(super) fn new(
        settings: &Arc<UpstreamSettings>,
        servers: &Arc<[Server]>,
        counters: &Arc<UpstreamCounters>,
        weighs_time: bool,
    ) -> Self {
        Self {
            settings: Arc::clone(settings),
            servers: Arc::clone(servers),
            counters: Arc::clone(counters),
            weighs_time,
            patience: AtomicU64::new(0),
            hedge_after: AtomicU64::new(0),
            failing: Notices::default(),
        }
    }

    /// Records that a server has answered with `status`. `took` is the time since the attempt began.
    pub(super) fn answered(&self, server: usize, status: u16, took: Duration, now: Instant) {
        let Some(server) = self.servers.get(server) else { return };
        self.counters.durations.record(took);
        server.record.pace.answered(took, now, self.weighs_time);
        let eject = &self.settings.eject;
        if eject.statuses.contains(status) {
            server.record.failures.count("status");
            server.counters.failures.inc();
            match eject.share {
                Some(_) => self.note_share(server, true, now),
                None => self.note_failed(server, now, &format!("status {status}")),
            }
            return;
        }
        if eject.share.is_some() {
            self.note_share(server, false, now);
        }
        self.succeeded(server, now.checked_sub(took).unwrap_or(now), now);
    }

    /// Records that a server has answered a request that began at `began`.
    fn succeeded(&self, server: &Server, began: Instant, now: Instant) {
        if server.record.health.failures() == 0 {
            return;
        }
        let was_down = server.record.health.is_down();
        let news = server.record.health.succeeded(began, now);
        let is_down = server.record.health.is_down();
        if was_down && !is_down {
            server.record.outcomes.forget();
            server.record.start_slowly(now);
            server.record.changed("answers requests again");
        }
        server.show();
        if news == Some(News::Answers) {
            tracing::info!(upstream = %self.settings.name, server = %server.label, "the server answers again");
        }
    }

    /// Records that an attempt at a server has failed, if the failure says anything about the server. `began` is the
    /// start of the attempt.
    pub fn failed(&self, server: usize, began: Instant, now: Instant, reason: &Error) {
        match self.servers.get(server) {
            Some(server) if reason.is_failure_of_the_server() => self.note_failure(server, now, reason),
            Some(server) => server.record.health.inconclusive(began, now),
            None => {}
        }
    }

    /// Records that an attempt, which began at `began`, has failed on a connection. If the server's name has several
    /// addresses, the failure is also recorded for the connection's address.
    pub fn attempt_failed(
        &self,
        server: usize,
        origin: &Origin,
        began: Instant,
        now: Instant,
        reason: &Error,
    ) {
        let Some(server) = self.servers.get(server) else { return };
        if !origin.is_failure_of_the_server(reason, now) {
            return server.record.health.inconclusive(began, now);
        }
        if let Some(refusal) = origin.refusal().filter(|_| *reason == Error::OriginTls) {
            server.tell_of_refusal(refusal, now);
        }
        self.note_failure(server, now, reason);
        origin.address_failed(server, now);
    }

    /// Records that a request no longer waits for a server. This is no failure, because the server may have had too
    /// little time.
    pub fn gave_up(&self, server: usize, began: Instant, now: Instant) {
        if let Some(server) = self.servers.get(server) {
            server.record.health.inconclusive(began, now);
        }
    }

    /// Records that another server answered first. The time waited so far counts as a latency of this server, because
    /// the percentiles would otherwise leave out slow responses.
    pub(super) fn lost(&self, server: usize, began: Instant, now: Instant) {
        if let Some(server) = self.servers.get(server) {
            server.record.pace.took_at_least(now.saturating_duration_since(began));
            server.record.health.inconclusive(began, now);
        }
    }

    /// Records a failure. If the server has answered nobody for all of the time limit of a request, while other servers are
    /// well, one such failure is enough.
    pub(super) fn note_failure(&self, server: &Server, now: Instant, reason: &Error) {
        server.counters.failures.inc();
        server.record.failures.count(reason.kind());
        if self.settings.eject.share.is_some() {
            self.note_share(server, true, now);
        }
        self.note_failed(server, now, &reason.to_string());
        // Without this, a client alone with requests that only their own server may get would wait three times.
        if *reason == Error::FirstByteTimeout && self.settings.eject.hung && self.may_hang(server.number, now)
        {
            self.eject_silent(server, now);
        }
    }

    fn note_failed(&self, server: &Server, now: Instant, reason: &str) {
        let was_down = server.record.health.is_down();
        let news = server.record.health.failed(now, &self.settings.eject);
        server.show();
        let failures = self.settings.eject.failures;
        if !was_down && server.record.health.is_down() {
            server.record.changed(format!("failed {failures} times in a row: {reason}"));
            // A single server goes on being tried.
            if self.servers.len() > 1 {
                server.count_ejection();
            }
        }
        if news == Some(News::Fails) {
            let consequence = match self.servers.len() {
                1 => "; as the only one it goes on being tried",
                _ => " and is passed over for a while",
            };
            tracing::warn!(
                upstream = %self.settings.name,
                server = %server.label,
                %reason,
                "the server has failed {failures} times in a row{consequence}"
            );
        } else if !was_down && self.failing.take(now) {
            tracing::warn!(
                upstream = %self.settings.name,
                server = %server.label,
                %reason,
                "a request to the server failed"
            );
        }
    }

    /// Counts an attempt, and ejects the server if its percentage of failures is too high.
    fn note_share(&self, server: &Server, is_bad: bool, now: Instant) {
        let eject = &self.settings.eject;
        let share = server.record.outcomes.count(is_bad, eject.minimum);
        if let (Some(share), Some(most)) = (share, eject.share)
            && share >= most
            && self.may_eject(now)
        {
            self.eject(server, now, &format!("{share} % of its attempts failed"));
        }
    }

    /// Returns true if one more server may be ejected for its percentage of failures or its latency.
    fn may_eject(&self, now: Instant) -> bool {
        let out = self.servers.iter().filter(|server| !server.record.is_up(now)).count() as u64;
        (out + 1) * 100 <= self.servers.len() as u64 * u64::from(self.settings.eject.most)
    }

    fn eject(&self, server: &Server, now: Instant, reason: &str) {
        if server.record.health.is_down() && !server.record.health.is_up(now) {
            return;
        }
        let news = server.record.health.eject(now, &self.settings.eject);
        server.count_ejection();
        server.record.outcomes.forget();
        server.record.pace.forget();
        server.record.changed(format!("ejected: {reason}"));
        server.show();
        if news == Some(News::Fails) {
            tracing::warn!(
                upstream = %self.settings.name,
                server = %server.label,
                %reason,
                "the server is passed over for a while"
            );
        }
    }

    /// Records the result of a probe.
    pub(super) fn probed(&self, server: &Server, result: &Result<(), String>, now: Instant) {
        use super::checked::Verdict;
        let Some(check) = &self.settings.health else { return };
        let was_unknown = server.record.checked.is_unknown();
        let verdict = server.record.checked.note(result, check);
        match result {
            Ok(()) => server.counters.probes_passed.inc(),
            Err(_) => server.counters.probes_failed.inc(),
        }
        let (upstream, label) = (&self.settings.name, &server.label);
        match (verdict, result) {
            (Verdict::Up, _) => {
                server.record.health.forgive(now);
                server.record.changed("health checks succeed");
                if !was_unknown {
                    server.record.start_slowly(now);
                    tracing::info!(%upstream, server = %label, "health checks succeed: the server is up");
                }
            }
            (Verdict::Down, Err(reason)) => {
                server.record.changed(format!("health check: {reason}"));
                tracing::warn!(%upstream, server = %label, %reason, "health checks fail: the server is down");
            }
            (Verdict::Same | Verdict::Down, _) => {}
        }
        server.show();
    }

    /// Checks latencies, and begins new windows of time. Called once a second.
    pub(super) fn review(&self, now: Instant) {
        for server in self.servers.iter() {
            server.record.pace.age(now);
            server.record.outcomes.turn(now);
        }
        let all = self.latencies();
        self.learn_patience(&all);
        if let Some(HedgeAfter::Percentile(percent)) = self.settings.hedge
            && all.count() >= ANSWERS_LEAST
            && let Some(latency) = all.percentile(percent.into())
        {
            let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
            self.hedge_after.store(micros.max(1), Ordering::Relaxed);
        }
        if let Some(factor) = self.settings.eject.latency {
            self.judge_latencies(factor, now);
        }
    }

    /// The recent latencies of all servers.
    fn latencies(&self) -> LatencyBuckets {
        let mut all = LatencyBuckets::none();
        self.servers.iter().for_each(|server| all.add(&server.record.pace.latencies()));
        all
    }

    /// Derives the patience from latencies, if there are enough of them.
    fn learn_patience(&self, latencies: &LatencyBuckets) {
        if latencies.count() >= ANSWERS_LEAST
            && let Some(latency) = latencies.percentile(99)
        {
            let patience = latency.saturating_mul(PATIENCE_FACTOR).max(PATIENCE_LEAST);
            let micros = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
            self.patience.store(micros, Ordering::Relaxed);
        }
    }

    /// Ejects servers that are slower than the others by `factor` or more.
    fn judge_latencies(&self, factor: u32, now: Instant) {
        for server in self.servers.iter() {
            let own = server.record.pace.latencies();
            let mut others = LatencyBuckets::none();
            for other in self.servers.iter().filter(|other| other.number != server.number) {
                others.add(&other.record.pace.latencies());
            }
            if own.count() < ANSWERS_LEAST || others.count() < ANSWERS_LEAST {
                continue;
            }
            let (Some(own), Some(others)) = (own.percentile(50), others.percentile(50)) else { continue };
            if own >= others.saturating_mul(factor)
                && own >= others + SLOWER_LEAST
                && server.record.is_up(now)
                && self.may_eject(now)
            {
                let (own, others) = (own.as_millis(), others.as_millis());
                self.eject(
                    server,
                    now,
                    &format!("its median latency is {own} ms, that of the others {others} ms"),
                );
            }
        }
    }

    /// The time that a request waits before its server is checked for hanging; `None` if no other server could answer.
    pub(super) fn first_look(&self) -> Option<Duration> {
        if self.servers.len() < 2 || !self.settings.eject.hung {
            return None;
        }
        Some(match self.patience.load(Ordering::Relaxed) {
            // The latencies may have become known by then.
            0 => PATIENCE_LEAST,
            micros => Duration::from_micros(micros),
        })
    }

    /// How long a server may leave its requests without an answer. The first 20 answers count as soon as they are there,
    /// because [`Self::review`] could be too late for requests that wait at a server which hangs from the start.
    fn patience(&self) -> Duration {
        if self.patience.load(Ordering::Relaxed) == 0
            && self.servers.iter().map(|server| server.record.pace.count()).sum::<u64>() >= ANSWERS_LEAST
        {
            self.learn_patience(&self.latencies());
        }
        match self.patience.load(Ordering::Relaxed) {
            0 => PATIENCE_AT_FIRST,
            micros => Duration::from_micros(micros),
        }
    }

    /// The time that a request waits for a response before it is also sent to a second server; `None` if requests
    /// are not sent to a second server, or if too few latencies are known.
    pub(super) fn hedge_after(&self) -> Option<Duration> {
        match self.settings.hedge? {
            HedgeAfter::Time(time) => Some(time),
            HedgeAfter::Percentile(_) => match self.hedge_after.load(Ordering::Relaxed) {
                0 => None,
                micros => Some(Duration::from_micros(micros)),
            },
        }
    }

    /// Returns true if a server may hang: few requests wait at it, perhaps a single one, so the request may be slow instead.
    /// The server is not ejected; whether another server answers the same request sooner will tell.
    pub(super) fn may_hang(&self, server: usize, now: Instant) -> bool {
        let Some(server) = self.servers.get(server) else { return false };
        let patience = match self.patience() {
            PATIENCE_AT_FIRST => self.doubt(),
            known => known,
        };
        let is_well = |other: &Server| {
            other.number != server.number
                && other.record.is_up(now)
                && other.record.health.failures() == 0
                && other.record.silence(now) < patience
        };
        server.record.silence(now) >= patience && self.servers.iter().any(is_well)
    }

    /// The patience while few answers are known.
    fn doubt(&self) -> Duration {
        let slowest = self.latencies().percentile(100);
        slowest.map_or(PATIENCE_AT_FIRST, |slowest| slowest.saturating_mul(DOUBT_FACTOR).max(DOUBT_LEAST))
    }

    /// Returns true if a server hangs: it answers none of its waiting requests, while other servers do answer. A server that
    /// hangs is ejected.
    pub(super) fn hangs(&self, server: usize, now: Instant) -> bool {
        let Some(server) = self.servers.get(server) else { return false };
        let (patience, record) = (self.patience(), &server.record);
        // A server that is down already gets single requests as trials, so one waiting request is enough.
        let is_known = record.health.is_down();
        let enough = match record.load.waiting() {
            _ if is_known => patience,
            ..WAITING_LEAST => return false,
            WAITING_LEAST => 2 * patience,
            _ => patience,
        };
        if record.silence(now) < enough {
            return false;
        }
        let answers = |other: &Arc<super::record::ServerRecord>| {
            !Arc::ptr_eq(other, record) && other.is_up(now) && other.silence(now) < patience
        };
        let others = self.servers.iter().any(|other| answers(&other.record));
        if others && !is_known {
            self.eject_silent(server, now);
        }
        others
    }

    fn eject_silent(&self, server: &Server, now: Instant) {
        let silence = server.record.silence(now).as_millis();
        self.eject(server, now, &format!("it has answered nobody for {silence} ms"));
    }
}

/// The pause before the next check whether a server hangs. It grows with the time that the request has waited, because
/// thousands of requests may be waiting for something to happen, as long polls do.
pub(super) fn look_again(waited: Duration) -> Duration {
    (waited / 8).clamp(LOOK_AGAIN.0, LOOK_AGAIN.1)
}

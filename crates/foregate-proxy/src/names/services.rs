//! The servers of services (SRV records, RFC 2782). Like addresses, they are looked up outside of
//! requests.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::message::Target;
use super::schedule::{ABSENCES, Absence, CONFIRM_AFTER, LAST_GOOD, TTL_MAX, TTL_MIN, doubled, spread};
use super::{AGAIN_AFTER, AddressSource, NameKey, Trouble, watch_files};
use crate::random;

/// The most servers of a service that are used. If there are more, those with the highest priority numbers are
/// ignored.
const SERVERS_LIMIT: usize = 128;

/// The outcome of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceOutcome {
    /// The service has servers.
    Found {
        /// The servers of the service as the nameserver lists them.
        targets: Vec<Target>,
        /// How long the records are valid.
        valid_for: Duration,
        /// The reason why an earlier name of the search list, which may be the intended one, could not be looked
        /// up.
        doubt: Option<String>,
    },
    /// The service has no server, according to an authoritative nameserver.
    Absent(Absence),
    /// No server could answer, for this reason.
    Failed(String),
}

/// A server of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceServer {
    /// Its name, with a dot at the end.
    pub host: Arc<str>,
    /// Its port.
    pub port: u16,
    /// The position of its priority: 0 for preferred servers, 1 for the next ones, and so on.
    pub rank: u16,
    /// The server's share of the requests among servers of the same rank.
    pub weight: u16,
}

/// A service that is kept looked up as long as this value lives.
pub struct Service {
    pub(super) key: NameKey,
    current: ArcSwapOption<Arc<[ServiceServer]>>,
    looked_up: watch::Sender<bool>,
    wanted: Arc<Notify>,
    start: Mutex<Option<Arc<AddressSource>>>,
    /// The results of lookups, which only the task changes.
    pub(super) schedule: Mutex<ServiceSchedule>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("key", &self.key).field("servers", &self.servers()).finish()
    }
}

impl Service {
    pub(super) fn new(key: NameKey, source: Arc<AddressSource>, schedule: ServiceSchedule) -> Self {
        let known = schedule.servers(source.clock.now());
        Self {
            key,
            looked_up: watch::Sender::new(known.is_some()),
            current: ArcSwapOption::from_pointee(known.map(Into::into)),
            wanted: Arc::default(),
            start: Mutex::new(Some(source)),
            schedule: Mutex::new(schedule),
        }
    }

    /// The servers, with the first rank first; `None` while none are known. Returns the same `Arc` until
    /// they change.
    pub fn servers(&self) -> Option<Arc<[ServiceServer]>> {
        self.current.load().as_deref().cloned()
    }

    /// Waits until the first lookup of the service has ended, successful or not.
    pub async fn looked_up(self: &Arc<Self>) {
        self.start();
        let mut looked_up = self.looked_up.subscribe();
        // The sender cannot have been dropped: `self` holds it.
        let _ = looked_up.wait_for(|done| *done).await;
    }

    /// Tells that a request needs the servers of the service: if none are known, the next lookup begins
    /// soon.
    pub fn want(&self) {
        if self.current.load().is_none() {
            self.wanted.notify_one();
        }
    }

    /// Starts the task of the service, unless it has been started or there is no runtime.
    pub fn start(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if let Some(source) = self.start.lock().take() {
            if !source.watching.swap(true, std::sync::atomic::Ordering::Relaxed) {
                runtime.spawn(watch_files(Arc::downgrade(&source)));
            }
            runtime.spawn(keep(Arc::downgrade(self), source));
        }
    }

    /// Replaces the known servers. Returns true if they have changed.
    fn store(&self, servers: Option<Vec<ServiceServer>>) -> bool {
        let differs = self.servers().as_deref() != servers.as_deref();
        if differs {
            self.current.store(servers.map(|servers| Arc::new(servers.into())));
        }
        self.looked_up.send_replace(true);
        differs
    }
}

/// Looks a service up again and again, until it has no user any more.
async fn keep(service: Weak<Service>, source: Arc<AddressSource>) {
    let mut trouble = Trouble::default();
    let mut changes = source.changes.subscribe();
    loop {
        let Some(strong) = service.upgrade() else { return };
        let (key, wanted) = (strong.key.clone(), Arc::clone(&strong.wanted));
        drop(strong);
        changes.mark_unchanged();
        let outcome = match source.turns.acquire().await {
            Ok(_turn) => source.lookup.services(&key).await,
            Err(_) => return,
        };
        let Some(strong) = service.upgrade() else { return };
        let lookups = &source.metrics.name_lookups;
        let reason = match &outcome {
            ServiceOutcome::Found { doubt, .. } => {
                lookups.found.inc();
                doubt.clone()
            }
            ServiceOutcome::Absent(absence) => {
                lookups.absent.inc();
                Some(absence.to_string())
            }
            ServiceOutcome::Failed(reason) => {
                lookups.failed.inc();
                Some(reason.clone())
            }
        };
        let now = source.clock.now();
        let (wait, servers) = {
            let mut schedule = strong.schedule.lock();
            (schedule.next(now, outcome, random::number()), schedule.servers(now))
        };
        trouble.tell_of(&key.host, reason, servers.is_some(), now);
        if strong.store(servers) {
            source.services.send_modify(|version| *version += 1);
        }
        drop(strong);
        let wanted = async {
            sleep(AGAIN_AFTER).await;
            wanted.notified().await;
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = wanted => {}
            _ = changes.changed(), if key.servers.is_none() => {}
        }
    }
}

impl Trouble {
    /// Logs an incomplete lookup of a service with the reason, and the first complete one after it.
    fn tell_of(&mut self, service: &str, reason: Option<String>, has_servers: bool, now: Instant) {
        let Some(reason) = reason else {
            if self.0.take().is_some() {
                tracing::info!(service, "a service resolves again");
            }
            return;
        };
        let known =
            if has_servers { "the servers that are known are used further on" } else { "it has no server" };
        if self.is_news(format!("{reason}: {known}"), now) {
            tracing::warn!(service, error = reason, "a service does not resolve; {known}");
        }
    }
}

/// Decides which servers of a service are used, and when to look it up again. Without I/O.
#[derive(Debug, Default)]
pub(super) struct ServiceSchedule {
    known: Option<(Vec<ServiceServer>, Instant)>,
    failures: u32,
    absences: u32,
}

impl ServiceSchedule {
    /// A schedule that starts with the servers of another process, which were confirmed `age` ago.
    pub(super) fn going_on(mut servers: Vec<ServiceServer>, age: Duration, now: Instant) -> Self {
        servers.truncate(SERVERS_LIMIT);
        let at = now.checked_sub(age).filter(|_| age < LAST_GOOD && !servers.is_empty());
        Self { known: at.map(|at| (servers, at)), ..Self::default() }
    }

    /// The servers, and the time since they were confirmed.
    pub(super) fn last_good(&self, now: Instant) -> Option<(&[ServiceServer], Duration)> {
        let (servers, at) = self.known.as_ref()?;
        Some((servers, now.saturating_duration_since(*at)))
    }

    /// Records the outcome of a lookup. Returns how long to wait before the next one.
    fn next(&mut self, now: Instant, outcome: ServiceOutcome, random: u64) -> Duration {
        let wait = match outcome {
            ServiceOutcome::Found { targets, valid_for, doubt }
                if doubt.is_none() || self.servers(now).is_none() =>
            {
                let servers = ordered(targets);
                if servers.is_empty() {
                    return spread(self.absent(now), random);
                }
                (self.known, self.absences) = (Some((servers, now)), 0);
                let wait = valid_for.clamp(TTL_MIN, TTL_MAX);
                if doubt.is_some() {
                    wait.min(self.failed())
                } else {
                    self.failures = 0;
                    wait
                }
            }
            ServiceOutcome::Found { .. } | ServiceOutcome::Failed(_) => self.failed(),
            ServiceOutcome::Absent(_) => self.absent(now),
        };
        spread(wait, random)
    }

    /// The servers, for an hour after the last lookup that gave them.
    fn servers(&self, now: Instant) -> Option<Vec<ServiceServer>> {
        let (servers, at) = self.known.as_ref()?;
        (now.saturating_duration_since(*at) < LAST_GOOD).then(|| servers.clone())
    }

    fn failed(&mut self) -> Duration {
        let wait = doubled(self.failures);
        self.failures = self.failures.saturating_add(1);
        wait
    }

    fn absent(&mut self, now: Instant) -> Duration {
        self.failures = 0;
        self.absences = self.absences.saturating_add(1);
        if self.absences < ABSENCES && self.servers(now).is_some() {
            return CONFIRM_AFTER;
        }
        self.known = None;
        doubled(self.absences - 1)
    }
}

/// Sorts the servers, because nameservers return them in any order. Targets that are no host are left
/// out, such as the root, which means that the service is not offered.
fn ordered(mut targets: Vec<Target>) -> Vec<ServiceServer> {
    targets.sort();
    targets.dedup_by(|one, other| (one.port, &one.name) == (other.port, &other.name));
    let (mut servers, mut last, mut rank) = (Vec::new(), None, 0);
    for target in targets {
        if target.port == 0 || !target.name.is_host() {
            continue;
        }
        if last.replace(target.priority).is_some_and(|last| last != target.priority) {
            rank += 1;
        }
        let host = target.name.to_string().into();
        servers.push(ServiceServer { host, port: target.port, rank, weight: target.weight });
    }
    servers.truncate(SERVERS_LIMIT);
    servers
}

#[cfg(test)]
mod tests {
    use super::super::message::Name;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn target(name: &str, priority: u16, weight: u16) -> Target {
        Target { priority, weight, port: 80, name: Name::new(name).unwrap() }
    }

    fn found(targets: &[Target]) -> ServiceOutcome {
        ServiceOutcome::Found { targets: targets.to_vec(), valid_for: SECOND * 60, doubt: None }
    }

    #[test]
    fn servers_have_one_order() {
        let targets = [target("c.test", 20, 1), target("b.test", 10, 5), target("a.test", 10, 5)];
        let mut backwards = targets.to_vec();
        backwards.reverse();
        let servers = ordered(targets.to_vec());
        assert_eq!(ordered(backwards), servers);
        let shown: Vec<_> =
            servers.iter().map(|server| (server.host.to_string(), server.rank, server.weight)).collect();
        let expected = [("a.test.", 0, 5), ("b.test.", 0, 5), ("c.test.", 1, 1)];
        assert_eq!(shown, expected.map(|(name, rank, weight)| (name.to_owned(), rank, weight)));
        assert!(ordered(vec![Target { port: 0, ..target("a.test", 1, 1) }, target("a b", 1, 1)]).is_empty());
        let many: Vec<_> =
            (0..300).map(|number| target(&format!("s{number}.test"), number / 10, 1)).collect();
        assert_eq!(ordered(many).len(), SERVERS_LIMIT);
    }

    #[test]
    fn a_service_without_servers_is_believed_when_it_was_said_three_times() {
        let (mut schedule, now) = (ServiceSchedule::default(), Instant::now());
        let absent = || ServiceOutcome::Absent(Absence::NoName);
        assert_eq!(schedule.next(now, absent(), 0), SECOND, "it never had any");
        let one = [target("a.test", 1, 1)];
        assert_eq!(schedule.next(now, found(&one), 0), SECOND * 60);
        for _ in 1..ABSENCES {
            assert_eq!(schedule.next(now, absent(), 0), CONFIRM_AFTER);
            assert_eq!(schedule.servers(now), Some(ordered(one.to_vec())));
        }
        schedule.next(now, found(&[]), 0);
        assert_eq!(schedule.servers(now), None);
    }

    #[test]
    fn failures_leave_the_last_good_servers_for_an_hour() {
        let (mut schedule, now) = (ServiceSchedule::default(), Instant::now());
        schedule.next(now, found(&[target("a.test", 1, 1)]), 0);
        let failed = || ServiceOutcome::Failed("SERVFAIL".to_owned());
        assert_eq!(schedule.next(now, failed(), 0), SECOND);
        assert_eq!(schedule.next(now, failed(), 0), SECOND * 2);
        assert!(schedule.servers(now + SECOND * 3599).is_some());
        assert!(schedule.servers(now + LAST_GOOD).is_none());
        let doubtful = ServiceOutcome::Found {
            targets: vec![target("b.test", 1, 1)],
            valid_for: SECOND,
            doubt: Some("SERVFAIL".to_owned()),
        };
        schedule.next(now, doubtful, 0);
        assert_eq!(schedule.servers(now), Some(ordered(vec![target("a.test", 1, 1)])));
    }
}

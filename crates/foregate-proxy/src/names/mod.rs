//! Addresses of origins' names, looked up off the request path.
//!
//! Each name has one task that looks it up again when its records expire, and at once when the
//! system's files change. A request uses the addresses that are known; it never waits for a
//! lookup, except for the first lookup of a name.
//!
//! The following modules do no I/O: `hosts.rs` and `resolv_conf.rs` (the system's files), `message.rs`
//! (questions and answers) and `schedule.rs` (the answers that count, and the time of the next lookup).
//! `services.rs` keeps the servers of services, `stub.rs` asks nameservers, and `system.rs` reads files.

mod hosts;
mod inheritance;
mod message;
mod resolv_conf;
mod schedule;
mod services;
mod stub;
mod system;
#[cfg(test)]
pub mod tests;

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::sleep;

pub use self::schedule::interleave;
pub use self::services::{Service, ServiceServer};

use self::inheritance::InheritedNames;
use self::resolv_conf::Nameservers;
use self::schedule::{Knowledge, LookupOutcome, NameAddresses, Schedule, TTL_MAX};
use self::services::ServiceOutcome;
use self::stub::Stub;
use self::system::{Paths, System};
use crate::counters::metrics::{Metrics, NameCounters};
use crate::random;
use crate::time::clock::Clock;

/// The most lookups at a time; further ones wait for their turn.
const CONCURRENT_LOOKUPS: usize = 16;
/// The interval at which the system's files are checked for changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a lookup waits for the second address family after the first has arrived, while no
/// addresses of the name are known (RFC 8305, section 3).
const PATIENCE_AT_FIRST: Duration = Duration::from_millis(50);
/// As [`PATIENCE_AT_FIRST`], once addresses are known.
const PATIENCE: Duration = Duration::from_secs(2);
/// If a request needs a name without addresses, the next lookup begins this long after the last one.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often the same trouble with a name is logged.
const TOLD_EVERY: Duration = Duration::from_secs(30);

/// Resolves names, and keeps their addresses up to date. A clone shares the names.
#[derive(Debug, Clone)]
pub struct Resolver {
    shared: Arc<ResolverShared>,
}

struct ResolverShared {
    source: Arc<AddressSource>,
    names: Mutex<HashMap<NameKey, Weak<ResolvedName>>>,
    services: Mutex<HashMap<NameKey, Weak<Service>>>,
    /// The addresses from another process; dropped once this process serves.
    inherited: Mutex<InheritedNames>,
}

/// A name as configured, and the nameservers to ask for it; `None` for the system's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct NameKey {
    host: Arc<str>,
    servers: Option<Arc<[SocketAddr]>>,
}

/// The state that the tasks of all names share: the source of addresses, and the limit on concurrent
/// lookups.
struct AddressSource {
    clock: Clock,
    lookup: Box<dyn Lookup>,
    turns: Semaphore,
    metrics: Arc<Metrics>,
    /// Notified when the files that lookups depend on have changed.
    changes: watch::Sender<()>,
    /// Changes whenever the servers of any service change.
    services: watch::Sender<u64>,
    watching: AtomicBool,
}

impl fmt::Debug for ResolverShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("names", &self.names.lock().len()).finish_non_exhaustive()
    }
}

/// A name that is kept resolved as long as this value lives.
pub struct ResolvedName {
    key: NameKey,
    current: ArcSwapOption<Arc<[IpAddr]>>,
    /// True if the nameservers say that the name has no address.
    absent: AtomicBool,
    /// True if the known addresses are all addresses of the name.
    complete: AtomicBool,
    /// True once a lookup has ended, successful or not.
    looked_up: watch::Sender<bool>,
    /// Notified when a request needs the name and it has no addresses.
    wanted: Arc<Notify>,
    counters: Arc<NameCounters>,
    /// The parameters of the name's task; taken when it starts.
    start: Mutex<Option<Arc<AddressSource>>>,
    /// The results of lookups, which only the task changes.
    schedule: Mutex<Schedule>,
}

impl fmt::Debug for ResolvedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolved").field("key", &self.key).field("addresses", &self.addresses()).finish()
    }
}

impl Resolver {
    /// A resolver that uses the system's files and nameservers.
    pub fn new(metrics: Arc<Metrics>, clock: Clock) -> Self {
        let lookup = SystemLookup { system: System::new(Paths::default()), stub: Stub::default() };
        Self::with_lookup(Box::new(lookup), metrics, clock)
    }

    fn with_lookup(lookup: Box<dyn Lookup>, metrics: Arc<Metrics>, clock: Clock) -> Self {
        let source = AddressSource {
            clock,
            lookup,
            turns: Semaphore::new(CONCURRENT_LOOKUPS),
            metrics,
            changes: watch::Sender::default(),
            services: watch::Sender::default(),
            watching: AtomicBool::new(false),
        };
        let shared = ResolverShared {
            source: Arc::new(source),
            names: Mutex::default(),
            services: Mutex::default(),
            inherited: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Starts to keep the servers of the service `name` up to date (such as `_http._tcp.app.internal`, in
    /// lower case). Calls with the same arguments return the same value. `servers` are as for
    /// [`Self::resolve`].
    pub fn service(&self, name: &str, servers: Option<&Arc<[SocketAddr]>>) -> Arc<Service> {
        let key = NameKey { host: name.into(), servers: servers.cloned() };
        let mut services = self.shared.services.lock();
        if let Some(known) = services.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        services.retain(|_, service| service.strong_count() > 0);
        let inherited = self.shared.inherited.lock().take_service(&key);
        let service = Arc::new(Service::new(key.clone(), Arc::clone(&self.shared.source), inherited));
        services.insert(key, Arc::downgrade(&service));
        service.start();
        service
    }

    /// A receiver that is notified when the servers of any service change.
    pub fn service_changes(&self) -> watch::Receiver<u64> {
        self.shared.source.services.subscribe()
    }

    /// Starts to keep `host` (in lower case) resolved. Calls with the same arguments return the same
    /// value. A dot at the end of `host` means that no search list is used. If there are `servers`, they
    /// are asked instead of the system's nameservers, and the hosts file is not used. `localhost` and
    /// addresses need no lookup. A name that does not resolve is tried again and again.
    ///
    /// Outside of a runtime no lookup is made; [`ResolvedName::start`] or the first [`ResolvedName::wait`]
    /// starts it then.
    pub fn resolve(&self, host: &str, servers: Option<&Arc<[SocketAddr]>>) -> Arc<ResolvedName> {
        let key = NameKey { host: host.into(), servers: servers.cloned() };
        let mut names = self.shared.names.lock();
        if let Some(known) = names.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        names.retain(|_, name| name.strong_count() > 0);
        let fixed = fixed_addresses(host);
        let (mut schedule, complete) = self.shared.inherited.lock().take_name(&key);
        let inherited = schedule.addresses(self.shared.source.clock.now());
        let known = fixed.clone().or_else(|| (!inherited.is_empty()).then(|| inherited.into()));
        let counters = Arc::<NameCounters>::default();
        counters.addresses.set(known.as_ref().map_or(0, |known| known.len()));
        let resolved = Arc::new(ResolvedName {
            key: key.clone(),
            current: ArcSwapOption::from_pointee(known.clone()),
            absent: AtomicBool::new(false),
            complete: AtomicBool::new(fixed.is_some() || complete),
            looked_up: watch::Sender::new(known.is_some()),
            wanted: Arc::default(),
            counters,
            start: Mutex::new(fixed.is_none().then(|| Arc::clone(&self.shared.source))),
            schedule: Mutex::new(schedule),
        });
        names.insert(key, Arc::downgrade(&resolved));
        resolved.start();
        resolved
    }
}

/// The addresses of a host that no lookup is needed for (RFC 6761, section 6.3, for `localhost`).
fn fixed_addresses(host: &str) -> Option<Arc<[IpAddr]>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some([address].into());
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    let localhost = host == "localhost" || host.ends_with(".localhost");
    localhost.then(|| [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()].into())
}

impl ResolvedName {
    /// The addresses of the name, alternating between the families; `None` if none are known (yet, or any
    /// more). Costs little more than a pointer read. Returns the same `Arc` until the addresses change.
    pub fn addresses(&self) -> Option<Arc<[IpAddr]>> {
        self.current.load().as_deref().cloned()
    }

    /// Returns true if the nameservers say that the name has no address; false also if nothing is known.
    pub fn is_absent(&self) -> bool {
        self.absent.load(Ordering::Relaxed)
    }

    /// Returns true if the known addresses are all addresses of the name.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Relaxed)
    }

    /// The metrics of the name.
    pub fn counters(&self) -> &Arc<NameCounters> {
        &self.counters
    }

    /// The addresses of the name. Waits at most `limit` for the first lookup to end; later calls do not
    /// wait. If no addresses are known, the next lookup begins soon.
    pub async fn wait(self: &Arc<Self>, limit: Duration) -> Option<Arc<[IpAddr]>> {
        if !*self.looked_up.borrow() {
            self.start();
            let mut looked_up = self.looked_up.subscribe();
            // After the time limit, the addresses known by then are returned.
            let _ = tokio::time::timeout(limit, looked_up.wait_for(|done| *done)).await;
        } else if self.current.load().is_none() {
            self.wanted.notify_one();
        }
        self.addresses()
    }

    /// Starts the name's task, once, if there is a runtime.
    pub fn start(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if let Some(source) = self.start.lock().take() {
            if !source.watching.swap(true, Ordering::Relaxed) {
                runtime.spawn(watch_files(Arc::downgrade(&source)));
            }
            runtime.spawn(keep(Arc::downgrade(self), source));
        }
    }

    fn store(&self, knowledge: Knowledge, complete: bool) {
        let absent = knowledge == Knowledge::Absent;
        let new = match knowledge {
            Knowledge::Addresses(addresses) => Some(addresses),
            Knowledge::Absent | Knowledge::Unknown => None,
        };
        let known = self.addresses();
        let same = match (&known, &new) {
            (Some(known), Some(new)) => known.len() == new.len() && new.iter().all(|new| known.contains(new)),
            (None, None) => true,
            _ => false,
        };
        self.counters.addresses.set(new.as_ref().map_or(0, Vec::len));
        if !same {
            self.current.store(new.map(|new| Arc::new(new.into())));
        }
        self.absent.store(absent, Ordering::Relaxed);
        self.complete.store(complete, Ordering::Relaxed);
        self.looked_up.send_replace(true);
    }
}

/// Looks a name up again and again, until it has no user any more.
async fn keep(resolved: Weak<ResolvedName>, source: Arc<AddressSource>) {
    let mut trouble = Trouble::default();
    let mut changes = source.changes.subscribe();
    loop {
        let Some(strong) = resolved.upgrade() else { return };
        let (key, wanted) = (strong.key.clone(), Arc::clone(&strong.wanted));
        let patience = if strong.addresses().is_some() { PATIENCE } else { PATIENCE_AT_FIRST };
        drop(strong);
        changes.mark_unchanged();
        let outcome = match source.turns.acquire().await {
            Ok(_turn) => source.lookup.lookup(&key, patience).await,
            Err(_) => return,
        };
        let Some(strong) = resolved.upgrade() else { return };
        let lookups = &source.metrics.name_lookups;
        match &outcome {
            LookupOutcome::Found(_) => lookups.found.inc(),
            LookupOutcome::Absent(_) => lookups.absent.inc(),
            LookupOutcome::Failed(_) => lookups.failed.inc(),
        }
        let told = outcome.clone();
        let now = source.clock.now();
        let (knowledge, wait) = strong.schedule.lock().next(now, outcome, random::number());
        trouble.tell(&key.host, &told, &knowledge, now);
        strong.store(knowledge, matches!(told, LookupOutcome::Found(NameAddresses { complete: true, .. })));
        drop(strong);
        let wanted = async {
            sleep(AGAIN_AFTER).await;
            wanted.notified().await;
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = wanted => {}
            // The sender cannot have been dropped, because this task holds the source.
            _ = changes.changed(), if key.servers.is_none() => {}
        }
    }
}

/// Watches the system's files as long as a resolver exists.
async fn watch_files(source: Weak<AddressSource>) {
    loop {
        match source.upgrade() {
            Some(source) if source.lookup.look() => source.changes.send_replace(()),
            Some(_) => {}
            None => return,
        }
        sleep(LOOK_EVERY).await;
    }
}

/// The last report to operators about a name.
#[derive(Debug, Default)]
struct Trouble(Option<(String, Instant)>);

impl Trouble {
    /// Logs a lookup with missing results, and the first complete lookup after it.
    fn tell(&mut self, host: &str, outcome: &LookupOutcome, knowledge: &Knowledge, now: Instant) {
        let reason = match outcome {
            LookupOutcome::Found(NameAddresses { doubt: None, .. }) => {
                if self.0.take().is_some() {
                    tracing::info!(host, "an origin's name resolves again");
                }
                return;
            }
            LookupOutcome::Found(NameAddresses { doubt: Some(reason), .. })
            | LookupOutcome::Failed(reason) => reason.clone(),
            LookupOutcome::Absent(absence) => absence.to_string(),
        };
        let known = match knowledge {
            Knowledge::Addresses(_) => "the addresses that are known are used further on",
            Knowledge::Absent | Knowledge::Unknown => "it has no address",
        };
        let told = format!("{reason}: {known}");
        if self.is_news(told, now) {
            tracing::warn!(host, error = reason, "an origin's name does not resolve; {known}");
        }
    }

    /// Returns true if this report was not logged a moment ago, and records it as logged.
    fn is_news(&mut self, told: String, now: Instant) -> bool {
        let last = self.0.as_ref();
        let is_news =
            last.is_none_or(|(last, at)| *last != told || now.saturating_duration_since(*at) >= TOLD_EVERY);
        if is_news {
            self.0 = Some((told, now));
        }
        is_news
    }
}

type ServiceFuture<'a> = Pin<Box<dyn Future<Output = ServiceOutcome> + Send + 'a>>;
type LookupFuture<'a> = Pin<Box<dyn Future<Output = LookupOutcome> + Send + 'a>>;

/// A source of addresses.
trait Lookup: Send + Sync {
    /// Looks a name up. Once one address family has been found, waits at most `patience` for the other.
    fn lookup<'a>(&'a self, key: &'a NameKey, patience: Duration) -> LookupFuture<'a>;

    /// Looks for the servers of a service.
    fn services<'a>(&'a self, key: &'a NameKey) -> ServiceFuture<'a>;

    /// Checks the files that lookups depend on. Returns true if they have changed.
    fn look(&self) -> bool {
        false
    }
}

/// Looks names up in the hosts file first, then asks the nameservers of the configuration or of the
/// system.
struct SystemLookup {
    system: System,
    stub: Stub,
}

impl Lookup for SystemLookup {
    fn lookup<'a>(&'a self, key: &'a NameKey, patience: Duration) -> LookupFuture<'a> {
        Box::pin(async move {
            let bare = key.host.strip_suffix('.').unwrap_or(&key.host);
            if let Some(servers) = &key.servers {
                return self.stub.lookup(&configured(servers), &[bare.to_owned()], patience).await;
            }
            let contents = self.system.contents();
            let addresses = contents.hosts.get(bare);
            if !addresses.is_empty() {
                let (v4, v6) = addresses.iter().partition(|address| address.is_ipv4());
                return LookupOutcome::Found(NameAddresses {
                    v4: Some(v4),
                    v6: Some(v6),
                    valid_for: TTL_MAX,
                    complete: true,
                    doubt: None,
                });
            }
            let conf = &contents.resolv_conf;
            self.stub.lookup(&conf.nameservers, &conf.candidates(&key.host), patience).await
        })
    }

    fn services<'a>(&'a self, key: &'a NameKey) -> ServiceFuture<'a> {
        Box::pin(async move {
            let bare = key.host.strip_suffix('.').unwrap_or(&key.host);
            if let Some(servers) = &key.servers {
                return self.stub.services(&configured(servers), &[bare.to_owned()]).await;
            }
            let conf = &self.system.contents().resolv_conf;
            self.stub.services(&conf.nameservers, &conf.candidates(&key.host)).await
        })
    }

    fn look(&self) -> bool {
        self.system.look().1
    }
}

/// The nameservers of an upstream.
fn configured(servers: &[SocketAddr]) -> Nameservers {
    Nameservers { timeout: Duration::from_secs(2), ..Nameservers::new(servers.to_vec()) }
}

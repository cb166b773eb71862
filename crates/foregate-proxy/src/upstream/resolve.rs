//! Addresses of origins' names, resolved off the request path.
//!
//! Each name has a task that looks it up again when its records expire. A request reads what the last lookup
//! gave; it never waits for one, unless it is the first.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwapOption;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::LookupIpStrategy;
use hickory_resolver::net::NetError;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

/// The shortest time for which records are believed, whatever they say.
const TTL_MIN: Duration = Duration::from_secs(1);
/// The longest one.
const TTL_MAX: Duration = Duration::from_secs(300);
/// How long addresses are used after the last lookup that went well.
const LAST_GOOD: Duration = Duration::from_secs(3600);
/// The wait after a first failed lookup; it doubles with each one, up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(1);
/// See [`RETRY_MIN`].
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Lookups at a time; more wait for their turn.
const CONCURRENT_LOOKUPS: usize = 64;
/// Addresses kept of one name; more are left out.
const ADDRESSES_LIMIT: usize = 64;

/// Resolves names and keeps them fresh. A clone shares the names.
#[derive(Debug, Clone)]
pub struct Resolver {
    shared: Arc<Shared>,
}

struct Shared {
    source: Arc<Source>,
    names: Mutex<HashMap<Arc<str>, Weak<Resolved>>>,
}

/// Where addresses come from, and whose turn it is to ask.
struct Source {
    lookup: Box<dyn Lookup>,
    turns: Semaphore,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("names", &self.names.lock().len()).finish_non_exhaustive()
    }
}

/// A name that is kept resolved as long as this value lives.
pub struct Resolved {
    host: Arc<str>,
    current: ArcSwapOption<Arc<[IpAddr]>>,
    /// Whether a lookup has ended, well or not.
    looked_up: watch::Sender<bool>,
    /// What the name's task needs; taken when it starts.
    start: Mutex<Option<Arc<Source>>>,
}

impl fmt::Debug for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolved").field("host", &self.host).field("addresses", &self.addresses()).finish()
    }
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new()
    }
}

impl Resolver {
    /// A resolver by the system's configuration (`/etc/resolv.conf`, `/etc/hosts`, which are read again when
    /// they change).
    pub fn new() -> Self {
        Self::with_lookup(Box::new(SystemLookup::default()))
    }

    fn with_lookup(lookup: Box<dyn Lookup>) -> Self {
        let source = Arc::new(Source { lookup, turns: Semaphore::new(CONCURRENT_LOOKUPS) });
        Self { shared: Arc::new(Shared { source, names: Mutex::default() }) }
    }

    /// Starts to keep `host` (lower case, without trailing dot) resolved; the same value for the same name.
    /// `localhost` and addresses need no lookup. A name that does not resolve is tried again and again.
    ///
    /// Outside of a runtime (where a configuration is only checked) no lookup is made; the first
    /// [`Resolved::wait`] starts it then.
    pub fn resolve(&self, host: &str) -> Arc<Resolved> {
        let mut names = self.shared.names.lock();
        if let Some(known) = names.get(host).and_then(Weak::upgrade) {
            return known;
        }
        names.retain(|_, name| name.strong_count() > 0);
        let fixed = fixed_addresses(host);
        let resolved = Arc::new(Resolved {
            host: host.into(),
            current: ArcSwapOption::from_pointee(fixed.clone()),
            looked_up: watch::Sender::new(fixed.is_some()),
            start: Mutex::new(fixed.is_none().then(|| Arc::clone(&self.shared.source))),
        });
        names.insert(Arc::clone(&resolved.host), Arc::downgrade(&resolved));
        resolved.start();
        resolved
    }
}

/// The addresses of a host that no lookup is needed for (RFC 6761, section 6.3, for `localhost`).
fn fixed_addresses(host: &str) -> Option<Arc<[IpAddr]>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some([address].into());
    }
    let localhost = host == "localhost" || host.ends_with(".localhost");
    localhost.then(|| [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()].into())
}

impl Resolved {
    /// Its addresses, in the order in which they should be tried; `None` when none are known (yet, or any
    /// more). Costs little more than a pointer read. The same `Arc` as long as the set is the same.
    pub fn addresses(&self) -> Option<Arc<[IpAddr]>> {
        self.current.load().as_deref().cloned()
    }

    /// Its addresses, waiting at most `limit` for the first lookup to end; later calls do not wait.
    pub async fn wait(self: &Arc<Self>, limit: Duration) -> Option<Arc<[IpAddr]>> {
        if !*self.looked_up.borrow() {
            self.start();
            let mut looked_up = self.looked_up.subscribe();
            // Late or never: what is known is what counts.
            let _ = tokio::time::timeout(limit, looked_up.wait_for(|done| *done)).await;
        }
        self.addresses()
    }

    /// Starts the name's task, once, if there is a runtime.
    fn start(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if let Some(source) = self.start.lock().take() {
            runtime.spawn(keep(Arc::downgrade(self), source));
        }
    }

    fn store(&self, addresses: Option<Arc<[IpAddr]>>) {
        let known = self.addresses();
        let same = match (&known, &addresses) {
            (Some(known), Some(new)) => known.len() == new.len() && new.iter().all(|new| known.contains(new)),
            (None, None) => true,
            _ => false,
        };
        if !same {
            self.current.store(addresses.map(Arc::new));
        }
        self.looked_up.send_replace(true);
    }
}

/// Looks a name up again and again, until nobody uses it any more.
async fn keep(resolved: Weak<Resolved>, source: Arc<Source>) {
    let mut schedule = Schedule::default();
    loop {
        let Some(host) = resolved.upgrade().map(|resolved| Arc::clone(&resolved.host)) else { return };
        let answer = match source.turns.acquire().await {
            Ok(_turn) => source.lookup.lookup(&host).await,
            Err(_) => return,
        };
        let Some(strong) = resolved.upgrade() else { return };
        if let Err(error) = &answer {
            tracing::warn!(host = &*host, error, "an origin's name does not resolve");
        }
        let wait = schedule.next(Instant::now(), &strong, answer, RandomState::new().hash_one(0));
        drop(strong);
        tokio::time::sleep(wait).await;
    }
}

/// What a lookup gave.
#[derive(Debug, Clone)]
struct Answer {
    addresses: Vec<IpAddr>,
    valid_for: Duration,
}

/// When to look a name up again, and what to believe until then. Pure.
#[derive(Debug, Default)]
struct Schedule {
    last_good: Option<Instant>,
    failures: u32,
}

impl Schedule {
    /// Stores the addresses to use; returns how long to wait. `random` spreads the lookups of many names.
    fn next(
        &mut self,
        now: Instant,
        resolved: &Resolved,
        answer: Result<Answer, String>,
        random: u64,
    ) -> Duration {
        let wait = match answer {
            Ok(mut answer) if !answer.addresses.is_empty() => {
                *self = Self { last_good: Some(now), failures: 0 };
                answer.addresses.truncate(ADDRESSES_LIMIT);
                resolved.store(Some(answer.addresses.into()));
                answer.valid_for.clamp(TTL_MIN, TTL_MAX)
            }
            _ => {
                let fresh =
                    self.last_good.is_some_and(|good| now.saturating_duration_since(good) < LAST_GOOD);
                resolved.store(if fresh { resolved.addresses() } else { None });
                let wait = RETRY_MIN.saturating_mul(1 << self.failures.min(16)).min(RETRY_MAX);
                self.failures = self.failures.saturating_add(1);
                wait
            }
        };
        // Up to an eighth longer.
        wait + wait.mul_f64((random % 1024) as f64 / 1024.0 / 8.0)
    }
}

/// Where addresses come from.
trait Lookup: Send + Sync {
    fn lookup<'a>(
        &'a self,
        host: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, String>> + Send + 'a>>;
}

/// The system's resolver configuration; read again when its files change.
#[derive(Default)]
struct SystemLookup {
    current: Mutex<Option<(Stamps, TokioResolver)>>,
}

/// When the two files were last changed.
type Stamps = [Option<SystemTime>; 2];

impl SystemLookup {
    fn resolver(&self) -> Result<TokioResolver, String> {
        let modified = |file| fs::metadata(file).and_then(|metadata| metadata.modified()).ok();
        let stamps = ["/etc/resolv.conf", "/etc/hosts"].map(modified);
        let mut current = self.current.lock();
        if let Some((known, resolver)) = &*current
            && *known == stamps
        {
            return Ok(resolver.clone());
        }
        let mut builder = TokioResolver::builder_tokio().map_err(|error| error.to_string())?;
        let options = builder.options_mut();
        // What is asked for is what has expired here.
        options.cache_size = 0;
        // A machine without a route for IPv6 must not lose a share of its requests.
        options.ip_strategy = LookupIpStrategy::Ipv4thenIpv6;
        let resolver = builder.build().map_err(|error| error.to_string())?;
        *current = Some((stamps, resolver.clone()));
        Ok(resolver)
    }
}

impl Lookup for SystemLookup {
    fn lookup<'a>(
        &'a self,
        host: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, String>> + Send + 'a>> {
        Box::pin(async move {
            // The error itself shows the whole answer.
            let told = |error: NetError| match (error.is_nx_domain(), error.is_no_records_found()) {
                (true, _) => "there is no such name".to_owned(),
                (false, true) => "the name has no address".to_owned(),
                (false, false) => error.to_string(),
            };
            let found = self.resolver()?.lookup_ip(host).await.map_err(told)?;
            let valid_for = found.valid_until().saturating_duration_since(Instant::now());
            Ok(Answer { addresses: found.iter().collect(), valid_for })
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Gives the n-th answer to the n-th lookup, and the last one from then on.
    struct Script {
        answers: Vec<Result<Answer, String>>,
        asked: Arc<AtomicUsize>,
    }

    impl Lookup for Script {
        fn lookup<'a>(
            &'a self,
            _: &'a str,
        ) -> Pin<Box<dyn Future<Output = Result<Answer, String>> + Send + 'a>> {
            let turn = self.asked.fetch_add(1, Ordering::Relaxed).min(self.answers.len() - 1);
            Box::pin(async move {
                tokio::task::yield_now().await;
                self.answers[turn].clone()
            })
        }
    }

    /// Also returns how many lookups there were.
    fn scripted(answers: Vec<Result<Answer, String>>) -> (Resolver, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        (Resolver::with_lookup(Box::new(Script { answers, asked: Arc::clone(&asked) })), asked)
    }

    fn answer(last: u8, seconds: u64) -> Result<Answer, String> {
        Ok(Answer { addresses: vec![[192, 0, 2, last].into()], valid_for: Duration::from_secs(seconds) })
    }

    /// Names that have these addresses from the beginning.
    pub fn fixed(addresses: &[IpAddr]) -> Resolver {
        let answer = Answer { addresses: addresses.to_vec(), valid_for: Duration::from_secs(60) };
        scripted(vec![Ok(answer)]).0
    }

    const LONG: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_name_is_looked_up_once_for_all() {
        let (resolver, asked) = scripted(vec![answer(1, 60)]);
        let name = resolver.resolve("origin.test");
        assert_eq!(name.addresses(), None);
        let addresses = name.wait(LONG).await.unwrap();
        assert_eq!(*addresses, [IpAddr::from([192, 0, 2, 1])]);
        assert!(Arc::ptr_eq(&name, &resolver.resolve("origin.test")));
        assert!(Arc::ptr_eq(&addresses, &name.addresses().unwrap()));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn expired_records_are_looked_up_again_while_the_name_is_used() {
        let (resolver, asked) = scripted(vec![answer(1, 0), answer(2, 0)]);
        let name = resolver.resolve("origin.test");
        name.wait(LONG).await.unwrap();
        let second = [IpAddr::from([192, 0, 2, 2])];
        for _ in 0..500 {
            if *name.addresses().unwrap() == second {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(*name.addresses().unwrap(), second);
        drop(name);
        let before = asked.load(Ordering::Relaxed);
        // The name's task, which has a part in the source, ends when it wakes.
        while Arc::strong_count(&resolver.shared.source) > 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(asked.load(Ordering::Relaxed), before);
        resolver.resolve("other.test");
        assert_eq!(resolver.shared.names.lock().len(), 1, "unused names are forgotten");
    }

    #[tokio::test]
    async fn a_name_that_does_not_resolve_is_told_soon() {
        let (resolver, _) = scripted(vec![Err("no such name".into())]);
        let name = resolver.resolve("missing.test");
        let start = Instant::now();
        assert_eq!(name.wait(LONG).await, None);
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn without_a_runtime_the_lookup_waits_for_one() {
        let (resolver, asked) = scripted(vec![answer(1, 60)]);
        let name = resolver.resolve("origin.test");
        assert_eq!((name.addresses(), asked.load(Ordering::Relaxed)), (None, 0));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert!(runtime.block_on(name.wait(LONG)).is_some());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn some_names_need_no_lookup() {
        let (resolver, asked) = scripted(vec![Err("not asked".into())]);
        let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        for host in ["localhost", "app.localhost"] {
            assert_eq!(*resolver.resolve(host).addresses().unwrap(), loopback);
        }
        assert_eq!(*resolver.resolve("::1").wait(LONG).await.unwrap(), loopback[1..]);
        tokio::task::yield_now().await;
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn failures_are_waited_out_and_good_addresses_kept_for_an_hour() {
        let (resolver, _) = scripted(vec![Err("not asked".into())]);
        let resolved = resolver.resolve("a");
        let mut schedule = Schedule::default();
        let mut now = Instant::now();
        let mut next = |now, answer, random| schedule.next(now, &resolved, answer, random).as_secs_f64();
        let failed = || Err("refused".to_owned());
        assert_eq!(next(now, failed(), 0), 1.0);
        assert_eq!(next(now, failed(), 0), 2.0);
        assert_eq!((0..10).map(|_| next(now, failed(), 0)).last(), Some(30.0));
        assert_eq!(resolved.addresses(), None);

        assert_eq!(next(now, answer(1, 60), 0), 60.0);
        assert_eq!(next(now, answer(1, 0), 0), 1.0);
        assert_eq!(next(now, answer(1, 86_400), 0), 300.0);
        assert!((300.0..=337.5).contains(&next(now, answer(1, 86_400), 1023)));
        let good = resolved.addresses().unwrap();
        now += Duration::from_secs(3599);
        assert_eq!(next(now, failed(), 0), 1.0);
        assert!(Arc::ptr_eq(&resolved.addresses().unwrap(), &good));
        now += Duration::from_secs(1);
        next(now, failed(), 0);
        assert_eq!(resolved.addresses(), None);
        let empty = Ok(Answer { addresses: vec![], valid_for: Duration::from_secs(60) });
        assert_eq!(next(now, empty, 0), 4.0, "no address is a failure");
    }

    /// Most machines have a name of their own there; no packet leaves for it.
    #[tokio::test]
    async fn the_hosts_file_is_read() {
        let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
        let entries = hosts.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = words.next()?.parse::<Ipv4Addr>().ok()?;
            Some((IpAddr::from(address), words.find(|name| !name.contains("localhost"))?))
        });
        for (address, name) in entries.take(1) {
            let answer = SystemLookup::default().lookup(name).await.unwrap();
            assert!(answer.addresses.contains(&address), "{name}");
        }
    }
}

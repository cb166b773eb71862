//! The keeper: a thread that obtains certificates, renews them, and reports their state.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foregate_proxy::settings::CertificateFiles;
use foregate_proxy::settings::automatic::{Automatic, ChallengeKind, IssuedBy};
use foregate_proxy::tls::{CertificateKeeper, CertificateReport, KeeperCounts, StapleReport};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::sleep;

use crate::certificate::{Facts, now, temporary};
use crate::demand::{Admission, Admitted};
use crate::entry::Entry;
use crate::failure::{Failure, FailureKind, pause};
use crate::internal;
use crate::order::{IssuedCertificate, order, renewal_window};
use crate::schedule::{renewal, spread};
use crate::stapled::{self, StapledFile, log_staple};
use crate::staples::{STAPLES, StapleConsequence, StapleOutcome, look};
use crate::storage::{Record, Storage};

/// The most orders at the same time.
const ORDERS: usize = 8;
/// The longest pause between two checks for names that are due.
pub(crate) const LOOK: Duration = Duration::from_secs(60);
/// The most demanded names in memory. A further name displaces another name that has no order under way.
/// If the displaced name has a certificate, the next handshake for that name finds it in the storage.
const DEMANDED_MOST: usize = 10_000;
/// A restart shortens the pause after failures: a name is tried again this many seconds after its last
/// attempt.
const RESTART: i64 = 60;

/// Obtains certificates and renews them. All clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Keeper {
    shared: Arc<KeeperShared>,
}

#[derive(Debug, Default)]
pub(crate) struct KeeperShared {
    /// The configuration in effect. `None` if it has no automatic certificates.
    plan: Mutex<Option<Arc<Automatic>>>,
    pub(crate) entries: Mutex<BTreeMap<String, Entry>>,
    /// The certificates in files for which OCSP responses are fetched, by the file of the certificate.
    pub(crate) stapled: Mutex<BTreeMap<PathBuf, StapledFile>>,
    runs: AtomicBool,
    /// Wakes the loop: an attempt has ended, a handshake waits, or the configuration has changed.
    pub(crate) wake: Notify,
    /// Wakes handshakes that wait for the end of an attempt.
    ended: Notify,
    admission: Admission,
    /// By the authority's directory: the time until which it gets no orders, seconds since 1970.
    blocked: Mutex<BTreeMap<String, i64>>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    obtained: AtomicU64,
    failed: AtomicU64,
    demanded: AtomicU64,
    refused: AtomicU64,
    limited: AtomicU64,
    stapled: AtomicU64,
    staples_failed: AtomicU64,
}

impl Keeper {
    /// A keeper that has nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes sure that each name has a certificate before a configuration takes effect. A name without a
    /// stored certificate gets one of the internal authority, or a temporary one that we sign ourselves.
    ///
    /// # Errors
    ///
    /// The storage cannot be written.
    pub fn prepare(automatic: &Automatic) -> Result<(), String> {
        let storage = Storage::new(&automatic.storage);
        let failed = |error: io::Error| storage.refusal(&error);
        storage.prepare().map_err(failed)?;
        Storage::clean(&automatic.challenge_folder());
        for (name, issuer) in &automatic.names {
            if storage.certificate(automatic, name).is_some() {
                continue;
            }
            let pem = match issuer {
                IssuedBy::Internal => {
                    internal::issue(&storage, name).map_err(|failure| failure.to_string())?
                }
                IssuedBy::Authorities => temporary(name).map_err(|error| format!("`{name}`: {error}"))?,
            };
            storage.put_certificate(automatic, name, &pem).map_err(failed)?;
            if *issuer == IssuedBy::Internal {
                let facts = storage.certificate(automatic, name);
                let renew_at = facts.map_or(0, |facts| renewal(&facts, None, spread()));
                let record = Record { issuer: internal::ISSUER.into(), renew_at, ..Record::default() };
                storage.put_record(name, &record).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Makes sure that OCSP responses for these certificates can be stored before a configuration takes effect.
    ///
    /// # Errors
    ///
    /// The storage cannot be written.
    pub fn prepare_stapled(stapled: &[CertificateFiles]) -> Result<(), String> {
        stapled::prepare(stapled)
    }

    /// Takes over a configuration that has taken effect: the certificates to obtain, and the certificates in files for
    /// which OCSP responses are fetched. Without any, the keeper has nothing to do.
    pub fn follow(&self, automatic: Option<Arc<Automatic>>, stapled: &[CertificateFiles]) {
        let is_idle = automatic.is_none() && stapled.is_empty();
        self.shared.follow_files(stapled);
        match automatic {
            Some(automatic) => self.follow_names(automatic),
            None => {
                *self.shared.plan.lock() = None;
                self.shared.entries.lock().clear();
            }
        }
        if !is_idle {
            self.start();
        }
        self.shared.wake.notify_one();
    }

    fn follow_names(&self, automatic: Arc<Automatic>) {
        let shared = &self.shared;
        let storage = Storage::new(&automatic.storage);
        let mut read: BTreeMap<String, Entry> = BTreeMap::new();
        let has_internal = automatic.names.iter().any(|(_, issuer)| *issuer == IssuedBy::Internal);
        let root_fault = has_internal.then(|| internal::check_root(&storage).err()).flatten();
        if let Some(failure) = &root_fault {
            tracing::error!(%failure, "no certificate of the internal authority can be renewed");
        }
        for (name, issuer) in &automatic.names {
            let mut entry = Entry::read(&storage, &automatic, name, *issuer, false, now());
            entry.record.next_attempt = entry.record.next_attempt.min(entry.record.attempted + RESTART);
            if let Some(failure) = root_fault.as_ref().filter(|_| *issuer == IssuedBy::Internal) {
                entry.record.error = Some(failure.to_string());
            }
            read.insert(name.to_string(), entry);
        }
        let mut entries = shared.entries.lock();
        for (name, old) in std::mem::take(&mut *entries) {
            match read.get_mut(&name) {
                Some(entry) => {
                    entry.in_flight = old.in_flight;
                    entry.staple = old.staple.renewed();
                }
                None if old.demanded && automatic.on_demand.is_some() => drop(read.insert(name, old)),
                None => {}
            }
        }
        *entries = read;
        drop(entries);
        *shared.plan.lock() = Some(automatic);
    }

    /// Starts the thread, unless it runs.
    fn start(&self) {
        let shared = &self.shared;
        if !shared.runs.swap(true, Ordering::AcqRel) {
            let started = thread::Builder::new().name("foregate-acme".into()).spawn({
                let shared = Arc::clone(shared);
                move || run(&shared)
            });
            if let Err(error) = started {
                shared.runs.store(false, Ordering::Release);
                tracing::error!(%error, "no thread for certificates; the next reload tries again");
            }
        }
    }
}

fn run(shared: &Arc<KeeperShared>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(look_and_wait(shared)),
        Err(error) => {
            shared.runs.store(false, Ordering::Release);
            tracing::error!(%error, "no runtime for certificates; the next reload tries again");
        }
    }
}

async fn look_and_wait(shared: &Arc<KeeperShared>) {
    let orders = Arc::new(Semaphore::new(ORDERS));
    let staples = Arc::new(Semaphore::new(STAPLES));
    loop {
        let plan = shared.plan.lock().clone();
        let pause = match &plan {
            None => LOOK,
            Some(automatic) => {
                shared.begin_due(automatic, &orders).min(shared.begin_staples(automatic, &staples))
            }
        };
        let pause = pause.min(shared.begin_stapled(&staples));
        tokio::select! {
            () = sleep(pause) => {}
            () = shared.wake.notified() => {}
        }
    }
}

impl KeeperShared {
    /// Begins the attempts that are due, and returns the time until the next one is due.
    fn begin_due(self: &Arc<Self>, automatic: &Arc<Automatic>, orders: &Arc<Semaphore>) -> Duration {
        let now = now();
        let mut next = now + LOOK.as_secs() as i64;
        let mut entries = self.entries.lock();
        for (name, entry) in entries.iter_mut().filter(|(_, entry)| !entry.in_flight) {
            // A demanded name without a usable certificate is only tried while a handshake waits for it.
            let is_usable = entry.is_usable(now);
            if entry.demanded && !is_usable && !entry.asked {
                continue;
            }
            let due = entry.due(automatic).min(if is_usable { entry.window_at } else { i64::MAX });
            if due > now {
                next = next.min(due);
                continue;
            }
            let Ok(permit) = Arc::clone(orders).try_acquire_owned() else {
                // No further order may begin now. The end of an attempt wakes the loop again.
                break;
            };
            entry.in_flight = true;
            entry.asked = false;
            let (shared, automatic, name) = (Arc::clone(self), Arc::clone(automatic), name.clone());
            tokio::spawn(async move {
                shared.attempt(&automatic, &name).await;
                drop(permit);
                shared.ended.notify_waiters();
                shared.wake.notify_one();
            });
        }
        Duration::from_secs(u64::try_from(next - now).unwrap_or(0).max(1))
    }

    /// Begins the looks at OCSP responses that are due, and returns the time until the next one is due.
    fn begin_staples(self: &Arc<Self>, automatic: &Arc<Automatic>, staples: &Arc<Semaphore>) -> Duration {
        let now = now();
        let mut next = now + LOOK.as_secs() as i64;
        for (name, entry) in self.entries.lock().iter_mut() {
            let Some(due) = entry.staple_due(now) else { continue };
            if due > now {
                next = next.min(due);
                continue;
            }
            let Ok(permit) = Arc::clone(staples).try_acquire_owned() else { break };
            entry.staple.in_flight = true;
            let (shared, automatic, name) = (Arc::clone(self), Arc::clone(automatic), name.clone());
            tokio::spawn(async move {
                let outcome = look(&automatic.certificate(&name), crate::certificate::now).await;
                shared.note_staple(&automatic, &name, outcome);
                drop(permit);
                shared.wake.notify_one();
            });
        }
        Duration::from_secs(u64::try_from(next - now).unwrap_or(0).max(1))
    }

    pub(crate) fn count_staple(&self, name: &str, outcome: &StapleOutcome) {
        let count = match outcome {
            StapleOutcome::Holds { is_new: true, staple } => {
                tracing::debug!(name, until = staple.until, "new OCSP response");
                Some(&self.counts.stapled)
            }
            StapleOutcome::Failed(_) => Some(&self.counts.staples_failed),
            StapleOutcome::Holds { is_new: false, .. } | StapleOutcome::Moot | StapleOutcome::Revoked => None,
        };
        if let Some(count) = count {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn note_staple(&self, automatic: &Automatic, name: &str, outcome: StapleOutcome) {
        self.count_staple(name, &outcome);
        let now = now();
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(name) else { return };
        if entry.staple.note(outcome, now) == StapleConsequence::Order {
            entry.record.renew_at = now;
            if let Err(error) = Storage::new(&automatic.storage).put_record(name, &entry.record) {
                tracing::warn!(name, %error, "the revocation could not be noted in the storage");
            }
        }
        if let Some(report) = entry.staple_report(automatic, now) {
            log_staple(name, &report);
        }
    }

    async fn attempt(&self, automatic: &Arc<Automatic>, name: &str) {
        let Some(entry) = self.entries.lock().get(name).cloned() else { return };
        let storage = Storage::new(&automatic.storage);
        let outcome = self.attempt_with(&storage, automatic, name, &entry).await;
        let mut entries = self.entries.lock();
        let Some(present) = entries.get_mut(name) else { return };
        present.in_flight = false;
        match outcome {
            Ok(()) => {
                let read = Entry::read(&storage, automatic, name, present.issuer, present.demanded, now());
                *present = Entry { not_before: now() + 1, staple: present.staple.renewed(), ..read };
            }
            Err(failure) if failure.kind == FailureKind::Busy => {
                present.not_before = now() + pause(failure.kind, 1).as_secs() as i64;
                present.facts = storage.certificate(automatic, name);
                present.record = storage.record(name);
            }
            Err(failure) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                present.record.failures = present.record.failures.saturating_add(1);
                present.record.attempted = now();
                let pause = pause(failure.kind, present.record.failures);
                present.record.next_attempt = now() + pause.as_secs() as i64;
                present.record.error = Some(failure.to_string());
                let seconds = pause.as_secs();
                tracing::error!(name, again_in_seconds = seconds, "no new certificate: {failure}");
                if let Err(error) = storage.put_record(name, &present.record) {
                    tracing::warn!(name, %error, "the failure could not be noted in the storage");
                }
                if present.demanded && !present.is_usable(now()) {
                    self.admission.refuse(name, Instant::now());
                }
            }
        }
    }

    async fn attempt_with(
        &self,
        storage: &Storage,
        automatic: &Arc<Automatic>,
        name: &str,
        entry: &Entry,
    ) -> Result<(), Failure> {
        let lock = storage.lock(name).map_err(|error| Failure::of_file("the lock of a name", &error))?;
        let Some(_lock) = lock else {
            return Err(Failure::new(FailureKind::Busy, "another process is at it", "it is looked at again"));
        };
        // Another process may have renewed the certificate, or have failed to, since the last read.
        let fresh = Entry::read(storage, automatic, name, entry.issuer, entry.demanded, now());
        let is_news = fresh.record.renew_at != entry.record.renew_at
            || fresh.record.attempted != entry.record.attempted;
        if is_news && fresh.due(automatic) > now() {
            return Ok(());
        }
        if fresh.is_usable(now()) && entry.due(automatic) > now() {
            return self.look_at_window(storage, automatic, name, &fresh).await;
        }
        if entry.demanded
            && entry.is_usable(now())
            && let Some(on_demand) = &automatic.on_demand
            && self.admission.is_allowed(on_demand, name).await == Admitted::Refused
        {
            tracing::info!(name, "the name may have no certificate any more, and is not renewed");
            let record = Record { renew_at: i64::MAX, ..fresh.record };
            return storage
                .put_record(name, &record)
                .map_err(|error| Failure::of_file("the record of a name", &error));
        }
        let (issuer, issued) = self.issue(storage, automatic, name, &fresh).await?;
        let facts = Facts::read(issued.pem.as_bytes()).ok_or_else(|| {
            Failure::new(
                FailureKind::Refused,
                format!("{issuer} issued no certificate that can be read"),
                "it is tried again",
            )
        })?;
        storage
            .put_certificate(automatic, name, &issued.pem)
            .map_err(|error| Failure::of_file("the new certificate", &error))?;
        let renew_at = renewal(&facts, issued.window, spread());
        let record = Record { issuer: issuer.clone(), renew_at, ..Record::default() };
        storage
            .put_record(name, &record)
            .map_err(|error| Failure::of_file("the record of a name", &error))?;
        self.counts.obtained.fetch_add(1, Ordering::Relaxed);
        let days = facts.not_after.saturating_sub(now()) / 86_400;
        tracing::info!(name, issuer, days, "new certificate");
        Ok(())
    }

    /// Asks the authority for its renewal window, and moves the time of the renewal into the window.
    async fn look_at_window(
        &self,
        storage: &Storage,
        automatic: &Automatic,
        name: &str,
        entry: &Entry,
    ) -> Result<(), Failure> {
        let authority =
            automatic.authorities.iter().find(|authority| authority.directory == entry.record.issuer);
        let (Some(authority), Some(facts)) = (authority, &entry.facts) else { return Ok(()) };
        let Some(id) = &facts.id else { return Ok(()) };
        let window = renewal_window(storage, automatic, authority, id).await;
        let Some((from, to)) = window.filter(|(from, to)| !(*from..=*to).contains(&entry.record.renew_at))
        else {
            return Ok(());
        };
        let renew_at = renewal(facts, Some((from, to)), spread());
        let record = Record { renew_at, ..entry.record.clone() };
        storage.put_record(name, &record).map_err(|error| Failure::of_file("the record of a name", &error))
    }

    /// Obtains a certificate from the first authority that issues one.
    async fn issue(
        &self,
        storage: &Storage,
        automatic: &Automatic,
        name: &str,
        entry: &Entry,
    ) -> Result<(String, IssuedCertificate), Failure> {
        if entry.issuer == IssuedBy::Internal {
            let pem = internal::issue(storage, name)?;
            return Ok((internal::ISSUER.to_owned(), IssuedCertificate { pem, window: None }));
        }
        let kind = challenge(automatic, name, entry.record.failures)?;
        let mut failures: Vec<Failure> = Vec::new();
        for authority in &automatic.authorities {
            let directory = &authority.directory;
            if self.blocked.lock().get(directory).is_some_and(|until| *until > now()) {
                let message = format!("{directory} allows no more orders for now");
                failures.push(Failure::new(
                    FailureKind::RateLimited,
                    message,
                    "wait, or add another `directory`",
                ));
                continue;
            }
            let replaces =
                (entry.record.issuer == *directory).then(|| entry.facts.as_ref()?.id.as_ref()).flatten();
            match order(storage, automatic, authority, kind, name, replaces).await {
                Ok(issued) => return Ok((directory.clone(), issued)),
                Err(failure) => {
                    if failure.kind == FailureKind::RateLimited {
                        let until = now() + pause(failure.kind, 1).as_secs() as i64;
                        self.blocked.lock().insert(directory.clone(), until);
                    }
                    failures.push(failure);
                }
            }
        }
        // The failure with the shortest pause comes first and decides when the next attempt is made.
        failures.sort_by_key(|failure| pause(failure.kind, 1));
        let mut failures = failures.into_iter();
        let Some(mut first) = failures.next() else {
            return Err(Failure::new(FailureKind::Local, "there is no authority", "add a `directory`"));
        };
        for other in failures {
            first.message.push_str(&format!("; {}", other.message));
        }
        Err(first)
    }
}

/// Chooses the challenge of an attempt. After each failure, the next possible challenge is chosen.
fn challenge(automatic: &Automatic, name: &str, failures: u32) -> Result<ChallengeKind, Failure> {
    let is_possible = |kind: &&ChallengeKind| match kind {
        ChallengeKind::Dns => automatic.publishes_records(name),
        _ => !name.starts_with("*."),
    };
    let possible: Vec<_> = automatic.challenges.iter().filter(is_possible).collect();
    let turn = (failures as usize).checked_rem(possible.len()).unwrap_or(0);
    possible.get(turn).map(|kind| **kind).ok_or_else(|| {
        let message = format!("no challenge can be answered for `{name}`");
        Failure::new(
            FailureKind::Local,
            message,
            "a wildcard needs the challenge \"dns-01\", and a `dns-update` for its zone or a `dns-hook`",
        )
    })
}

impl CertificateKeeper for Keeper {
    fn obtain<'k>(
        &'k self,
        name: &'k str,
    ) -> Pin<Box<dyn Future<Output = Option<CertificateFiles>> + Send + 'k>> {
        Box::pin(self.shared.obtain(name))
    }

    fn reports(&self) -> Vec<CertificateReport> {
        let Some(automatic) = self.shared.plan.lock().clone() else { return Vec::new() };
        let (entries, now) = (self.shared.entries.lock(), now());
        entries.iter().map(|(name, entry)| entry.report(&automatic, name, now)).collect()
    }

    fn staples(&self) -> Vec<(PathBuf, StapleReport)> {
        let (stapled, now) = (self.shared.stapled.lock(), now());
        stapled.iter().filter_map(|(file, stapled)| Some((file.clone(), stapled.report(now)?))).collect()
    }

    fn certificates_changed(&self) {
        self.shared.wake.notify_one();
    }

    fn counts(&self) -> KeeperCounts {
        let counts = &self.shared.counts;
        let (failing, staples) = self.shared.standings();
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        KeeperCounts {
            obtained: of(&counts.obtained),
            failed: of(&counts.failed),
            failing,
            demanded: of(&counts.demanded),
            refused: of(&counts.refused),
            limited: of(&counts.limited),
            stapled: of(&counts.stapled),
            staples_failed: of(&counts.staples_failed),
            staples,
        }
    }
}

impl KeeperShared {
    async fn obtain(&self, name: &str) -> Option<CertificateFiles> {
        let automatic = self.plan.lock().clone()?;
        let on_demand = automatic.on_demand.as_ref()?;
        let files = automatic.certificate(name);
        loop {
            // Register before reading the state, so that the end of an attempt in between is not missed.
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            let known = self.entries.lock().get(name).map(|entry| (entry.is_usable(now()), entry.in_flight));
            match known {
                Some((true, _)) => return Some(files),
                Some((false, true)) => ended.await,
                _ if self.adopt(&automatic, name) => return Some(files),
                _ if self.must_wait(&automatic, name) => return None,
                _ => self.demand(&automatic, on_demand, name).await.then_some(())?,
            }
        }
    }

    /// Returns true if the last attempt for a name has failed too recently.
    fn must_wait(&self, automatic: &Automatic, name: &str) -> bool {
        let known = self.entries.lock().get(name).map(|entry| entry.record.next_attempt);
        let is_name = crate::names::is_host_name(name);
        known.unwrap_or_else(|| {
            if is_name { Storage::new(&automatic.storage).record(name).next_attempt } else { 0 }
        }) > now()
    }

    /// Adds an entry for a demanded name if the storage already has a certificate of the name. Returns false if it
    /// has none.
    fn adopt(&self, automatic: &Automatic, name: &str) -> bool {
        if !crate::names::is_host_name(name) {
            return false;
        }
        let storage = Storage::new(&automatic.storage);
        let entry = Entry::read(&storage, automatic, name, IssuedBy::Authorities, true, now());
        let is_usable = entry.is_usable(now());
        if is_usable {
            self.insert(name, entry);
            self.wake.notify_one();
        }
        is_usable
    }

    /// Begins an order for the name of a handshake if the name may have a certificate.
    async fn demand(
        &self,
        automatic: &Automatic,
        on_demand: &foregate_proxy::settings::automatic::OnDemand,
        name: &str,
    ) -> bool {
        let counts = &self.counts;
        match self.admission.admit(on_demand, name).await {
            Admitted::Refused => {
                counts.refused.fetch_add(1, Ordering::Relaxed);
                false
            }
            Admitted::Limited => {
                counts.limited.fetch_add(1, Ordering::Relaxed);
                false
            }
            Admitted::Yes => {
                counts.demanded.fetch_add(1, Ordering::Relaxed);
                let storage = Storage::new(&automatic.storage);
                let entry = Entry::read(&storage, automatic, name, IssuedBy::Authorities, true, now());
                self.insert(name, Entry { asked: true, ..entry });
                self.wake.notify_one();
                // Lets the loop mark the attempt as under way before the state is read again.
                tokio::task::yield_now().await;
                self.wait_for_begin(name).await
            }
        }
    }

    /// Waits until the loop has begun the attempt for a name, or ended it.
    async fn wait_for_begin(&self, name: &str) -> bool {
        loop {
            let ended = self.ended.notified();
            let state = self.state_of(name);
            match state {
                Some((true, _)) => return true,
                // All orders that may run at the same time are under way, so the attempt has not begun.
                Some((false, true)) => drop(tokio::time::timeout(Duration::from_millis(50), ended).await),
                _ => return false,
            }
        }
    }

    /// The state of a known name as two flags. The first is true if the certificate is usable or an order is
    /// under way; the second is true if a handshake waits for the order to begin.
    fn state_of(&self, name: &str) -> Option<(bool, bool)> {
        let entries = self.entries.lock();
        entries.get(name).map(|entry| (entry.is_usable(now()) || entry.in_flight, entry.asked))
    }

    fn insert(&self, name: &str, entry: Entry) {
        let mut entries = self.entries.lock();
        let is_room = entries.len() < DEMANDED_MOST
            || entries.values().filter(|entry| entry.demanded).count() < DEMANDED_MOST;
        if !is_room {
            let other = entries
                .iter()
                .find(|(_, entry)| entry.demanded && !entry.in_flight)
                .map(|(name, _)| name.clone());
            other.and_then(|other| entries.remove(&other));
        }
        if entries.get(name).is_none_or(|present| !present.in_flight) {
            entries.insert(name.to_owned(), entry);
        }
    }
}

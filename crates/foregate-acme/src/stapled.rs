//! Certificates in files for which the keeper fetches OCSP responses. Operators renew these certificates themselves.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::Duration;

use foregate_proxy::settings::CertificateFiles;
use foregate_proxy::tls::{StapleCounts, StapleReport, StapleStanding};
use tokio::sync::Semaphore;

use crate::certificate::{self, Facts, now};
use crate::keeper::{KeeperShared, LOOK};
use crate::staples::{StapleOutcome, StapleState, consequence, look};
use crate::storage::{Storage, read};

/// The message about a revoked certificate that an operator has to replace.
const REVOKED: &str =
    "the authority has revoked the certificate; put a new one in its place, which is read at once";

/// A certificate in files, and the state of its OCSP response.
#[derive(Debug, Clone)]
pub(crate) struct StapledFile {
    pub(crate) files: CertificateFiles,
    pub(crate) state: StapleState,
    /// `None` if the certificate cannot be read.
    facts: Option<Facts>,
    seen: Option<FileStamp>,
}

/// The identity of a file's content, without reading it: device, inode, size and time of change.
type FileStamp = (u64, u64, u64, (i64, i64));

impl StapledFile {
    pub(crate) fn new(files: CertificateFiles) -> Self {
        Self { files, state: StapleState::default(), facts: None, seen: None }
    }

    /// Reads the certificate again if its file has changed. A new certificate needs a response of its own.
    pub(crate) fn refresh(&mut self) {
        let seen = stamp(&self.files).ok();
        if self.seen == seen {
            return;
        }
        self.seen = seen;
        self.facts = read(&self.files.certificate).ok().and_then(|pem| Facts::read(&pem));
        self.state = self.state.renewed();
    }

    /// The time of the next look at the response, seconds since 1970. `None` if the certificate needs none.
    pub(crate) fn due(&self, now: i64) -> Option<i64> {
        (self.has_responder() && !self.state.in_flight)
            .then(|| self.facts.as_ref().filter(|facts| facts.not_after > now).map(|_| self.state.at))
            .flatten()
    }

    /// The state for the status output. `None` if the certificate cannot be read.
    pub(crate) fn report(&self, now: i64) -> Option<StapleReport> {
        let facts = self.facts.as_ref()?;
        let Some(obstacle) = facts.obstacle else {
            return Some(self.state.report(REVOKED, facts.demands_staple, now));
        };
        let fix = obstacle.fix(facts.demands_staple);
        let mut error = format!("no OCSP response can be fetched: {obstacle}; {fix}");
        if facts.demands_staple {
            error.push_str(". ");
            error.push_str(consequence(false, true));
        }
        let standing = self.standing(now)?;
        Some(StapleReport { standing, until: 0, next_attempt: 0, error: Some(error) })
    }

    /// The state in one word. `None` as with [`Self::report`].
    pub(crate) fn standing(&self, now: i64) -> Option<StapleStanding> {
        let facts = self.facts.as_ref()?;
        Some(match facts.obstacle {
            None => self.state.standing(now),
            // Clients refuse such a certificate, so the metrics must show it.
            Some(_) if facts.demands_staple => StapleStanding::Missing,
            Some(_) => StapleStanding::Unavailable,
        })
    }

    fn has_responder(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.obstacle.is_none())
    }
}

impl KeeperShared {
    /// As [`Self::begin_staples`], for certificates in files.
    pub(crate) fn begin_stapled(self: &Arc<Self>, staples: &Arc<Semaphore>) -> Duration {
        let now = now();
        let mut next = now + LOOK.as_secs() as i64;
        for file in self.stapled.lock().values_mut() {
            file.refresh();
            let Some(due) = file.due(now) else { continue };
            if due > now {
                next = next.min(due);
                continue;
            }
            let Ok(permit) = Arc::clone(staples).try_acquire_owned() else { break };
            file.state.in_flight = true;
            let (shared, files) = (Arc::clone(self), file.files.clone());
            tokio::spawn(async move {
                let outcome = look(&files, certificate::now).await;
                shared.note_stapled(&files, outcome);
                drop(permit);
                shared.wake.notify_one();
            });
        }
        Duration::from_secs(u64::try_from(next - now).unwrap_or(0).max(1))
    }

    fn note_stapled(&self, files: &CertificateFiles, outcome: StapleOutcome) {
        let name = files.certificate.display().to_string();
        self.count_staple(&name, &outcome);
        let (mut all, now) = (self.stapled.lock(), now());
        let Some(file) = all.get_mut(&files.certificate) else { return };
        file.state.note(outcome, now);
        if let Some(report) = file.report(now) {
            log_staple(&name, &report);
        }
    }

    pub(crate) fn follow_files(&self, stapled: &[CertificateFiles]) {
        let mut all = self.stapled.lock();
        let mut old = std::mem::take(&mut *all);
        for files in stapled {
            let known = old.remove(&files.certificate).filter(|known| known.files == *files);
            all.insert(files.certificate.clone(), known.unwrap_or_else(|| StapledFile::new(files.clone())));
        }
    }

    /// The number of certificates whose last attempt has failed, and the states of OCSP responses.
    pub(crate) fn standings(&self) -> (u64, StapleCounts) {
        let (now, mut failing, mut counts) = (now(), 0, StapleCounts::default());
        let mut count = |standing| match standing {
            StapleStanding::Waiting | StapleStanding::Unavailable => {}
            StapleStanding::Current => counts.current += 1,
            StapleStanding::Failing => counts.failing += 1,
            StapleStanding::Missing => counts.missing += 1,
            StapleStanding::Revoked => counts.revoked += 1,
        };
        for entry in self.entries.lock().values() {
            failing += u64::from(entry.is_failing(now));
            if entry.has_responder() {
                count(entry.staple.standing(now));
            }
        }
        self.stapled.lock().values().filter_map(|file| file.standing(now)).for_each(&mut count);
        (failing, counts)
    }
}

/// Logs the failure of a look at an OCSP response.
pub(crate) fn log_staple(name: &str, report: &StapleReport) {
    match &report.error {
        Some(error) if report.standing == StapleStanding::Revoked => tracing::error!(name, "{error}"),
        Some(error) => tracing::warn!(name, "{error}"),
        None => {}
    }
}

/// Makes the folder of the responses for these certificates.
pub(crate) fn prepare(stapled: &[CertificateFiles]) -> Result<(), String> {
    // All of them are in one folder of the storage.
    let file = stapled.iter().find_map(|files| files.staple.as_deref());
    let Some(folder) = file.and_then(|file| file.parent()?.parent()) else { return Ok(()) };
    let storage = Storage::new(folder);
    storage.prepare().map_err(|error| storage.refusal(&error))
}

fn stamp(files: &CertificateFiles) -> io::Result<FileStamp> {
    let metadata = fs::metadata(&files.certificate)?;
    let changed = (metadata.ctime(), metadata.ctime_nsec());
    Ok((metadata.dev(), metadata.ino(), metadata.size(), changed))
}

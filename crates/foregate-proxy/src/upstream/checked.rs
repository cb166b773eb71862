//! Active health: the results of probes. Several equal results in a row are needed to change the state.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::health_state::{ActiveHealth, Moment};
use crate::settings::HealthCheck;

/// The pause between the probes of a server that is down grows by the configured `every` after each group of
/// this many failures, up to [`SLOWEST`] times `every`.
const SLOWER_AFTER: u32 = 5;
const SLOWEST: u32 = 4;

const UNKNOWN: u8 = 0;
const UP: u8 = 1;
const DOWN: u8 = 2;

/// The upstream of the probed server.
pub(super) trait ProbeSubject: Debug + Send + Sync {
    /// Probes the server with this number, and records the result. Returns the pause before the next probe; `None` if the
    /// server is not to be probed any more.
    fn probe(&self, server: usize) -> Pin<Box<dyn Future<Output = Option<Duration>> + Send + '_>>;
}

/// The results of the probes of one server.
#[derive(Debug, Default)]
pub(super) struct ProbeResults {
    state: AtomicU8,
    /// The number of probes that succeeded; `failed` counts the others.
    pub passed: AtomicU64,
    pub failed: AtomicU64,
    streak: Mutex<Streak>,
    prober: Mutex<Prober>,
}

/// The equal results in a row up to now.
#[derive(Debug, Default)]
struct Streak {
    passed: u32,
    failed: u32,
    /// The reason for the last failure.
    reason: Option<String>,
}

/// The task that probes.
#[derive(Debug, Default)]
struct Prober {
    upstream: Option<Weak<dyn ProbeSubject>>,
    server: usize,
    is_running: bool,
    /// True if no prober may be started any more.
    has_ended: bool,
}

/// The change of a server's state by the result of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The state is unchanged.
    Same,
    /// The server is up.
    Up,
    /// The server is down.
    Down,
}

impl ProbeResults {
    /// Returns true if probes say that the server is down.
    pub(super) fn is_down(&self) -> bool {
        self.state.load(Ordering::Relaxed) == DOWN
    }

    /// Returns true if no probe has ended yet.
    pub(super) fn is_unknown(&self) -> bool {
        self.state.load(Ordering::Relaxed) == UNKNOWN
    }

    /// Why the last probe failed, if it did.
    pub(super) fn reason(&self) -> Option<String> {
        self.streak.lock().reason.clone()
    }

    /// Records the result of a probe. The very first result decides alone, because nothing else is known
    /// of the server.
    pub(super) fn note(&self, result: &Result<(), String>, check: &HealthCheck) -> Verdict {
        let mut streak = self.streak.lock();
        let state = self.state.load(Ordering::Relaxed);
        match result {
            Ok(()) => {
                self.passed.fetch_add(1, Ordering::Relaxed);
                (streak.failed, streak.passed, streak.reason) = (0, streak.passed.saturating_add(1), None);
                if state == UNKNOWN || state == DOWN && streak.passed >= check.rise {
                    self.state.store(UP, Ordering::Relaxed);
                    return Verdict::Up;
                }
            }
            Err(reason) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                (streak.passed, streak.failed) = (0, streak.failed.saturating_add(1));
                streak.reason = Some(reason.clone());
                if state == UNKNOWN || state == UP && streak.failed >= check.fall {
                    self.state.store(DOWN, Ordering::Relaxed);
                    return Verdict::Down;
                }
            }
        }
        Verdict::Same
    }

    /// The state, for the process that takes over from this one.
    pub(super) fn save(&self) -> ActiveHealth {
        let streak = self.streak.lock();
        let up = match self.state.load(Ordering::Relaxed) {
            UNKNOWN => None,
            state => Some(state == UP),
        };
        ActiveHealth { up, passed: streak.passed, failed: streak.failed, reason: streak.reason.clone() }
    }

    /// Takes over the state of another process. A process that already serves ignores it once it has a probe result
    /// of its own. Returns true if a state was taken over.
    pub(super) fn restore(&self, state: &ActiveHealth, moment: Moment) -> bool {
        let mut streak = self.streak.lock();
        let Some(up) = state.up.filter(|_| moment == Moment::Start || self.is_unknown()) else {
            return false;
        };
        (streak.passed, streak.failed) = (state.passed, state.failed);
        streak.reason.clone_from(&state.reason);
        self.state.store(if up { UP } else { DOWN }, Ordering::Relaxed);
        true
    }

    /// How long to wait for the next probe.
    pub(super) fn pause(&self, check: &HealthCheck, random: u64) -> Duration {
        let beyond = self.streak.lock().failed.saturating_sub(check.fall);
        let slower = if self.is_down() { (1 + beyond / SLOWER_AFTER).min(SLOWEST) } else { 1 };
        let pause = check.every.saturating_mul(slower);
        let jitter = u64::from(check.jitter);
        // A random percentage from `100 - jitter` to `100 + jitter`.
        let percent = 100 - jitter + random % (2 * jitter + 1);
        pause.saturating_mul(u32::try_from(percent).unwrap_or(100)) / 100
    }

    /// Assigns this server to the running prober. Returns true if the caller must start a prober.
    pub(super) fn attend(&self, upstream: Weak<dyn ProbeSubject>, server: usize) -> bool {
        let mut prober = self.prober.lock();
        if prober.has_ended {
            return false;
        }
        (prober.upstream, prober.server) = (Some(upstream), server);
        !std::mem::replace(&mut prober.is_running, true)
    }

    /// Makes the prober end at its next turn. No other one is started.
    pub(super) fn rest(&self) {
        *self.prober.lock() = Prober { has_ended: true, ..Prober::default() };
    }

    /// The server to probe. `None` if it is no longer used; the prober must then end.
    pub(super) fn subject(&self) -> Option<(Arc<dyn ProbeSubject>, usize)> {
        let mut prober = self.prober.lock();
        let upstream = prober.upstream.as_ref().and_then(Weak::upgrade);
        prober.is_running = upstream.is_some();
        Some((upstream?, prober.server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Probe;

    fn check() -> HealthCheck {
        HealthCheck {
            probe: Probe::Tcp,
            port: None,
            every: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
            jitter: 10,
        }
    }

    fn verdicts(checked: &ProbeResults, results: &str) -> Vec<Verdict> {
        let result = |letter| if letter == '+' { Ok(()) } else { Err("it failed".to_owned()) };
        results.chars().map(|letter| checked.note(&result(letter), &check())).collect()
    }

    #[test]
    fn a_server_that_flaps_stays_as_it_is() {
        use Verdict::{Down, Same, Up};
        let checked = ProbeResults::default();
        assert!(checked.is_unknown() && !checked.is_down());
        assert_eq!(verdicts(&checked, "+"), [Up]);
        assert!(verdicts(&checked, &"--+".repeat(50)).iter().all(|verdict| *verdict == Same));
        assert_eq!(verdicts(&checked, "---"), [Same, Same, Down]);
        assert_eq!(checked.reason().as_deref(), Some("it failed"));
        assert!(verdicts(&checked, &"+-".repeat(50)).iter().all(|verdict| *verdict == Same));
        assert!(checked.is_down());
        assert_eq!(verdicts(&checked, "++"), [Same, Up]);
        assert!(!checked.is_down() && checked.reason().is_none());
    }

    #[derive(Debug)]
    struct NoSubject;

    impl ProbeSubject for NoSubject {
        fn probe(&self, _: usize) -> Pin<Box<dyn Future<Output = Option<Duration>> + Send + '_>> {
            Box::pin(async { None })
        }
    }

    #[test]
    fn the_first_probe_decides_alone() {
        assert_eq!(verdicts(&ProbeResults::default(), "-"), [Verdict::Down]);
        assert_eq!(verdicts(&ProbeResults::default(), "+"), [Verdict::Up]);
    }

    #[test]
    fn results_of_another_process_count_until_there_are_own_ones() {
        use Verdict::{Same, Up};
        let (old, new) = (ProbeResults::default(), ProbeResults::default());
        verdicts(&old, "-");
        assert!(new.restore(&old.save(), Moment::Start) && new.is_down());
        assert_eq!(new.reason().as_deref(), Some("it failed"));
        assert_eq!(verdicts(&new, "++"), [Same, Up]);
        assert!(!new.restore(&old.save(), Moment::Later) && !new.is_down(), "it knows better");
        let late = ProbeResults::default();
        assert!(late.restore(&old.save(), Moment::Later) && late.is_down());
        assert!(!late.restore(&ActiveHealth::default(), Moment::Start), "nothing is known there");
    }

    #[test]
    fn a_prober_that_was_sent_to_rest_stays_away() {
        let checked = ProbeResults::default();
        let nobody = || Weak::<NoSubject>::new();
        assert!(checked.attend(nobody(), 0) && !checked.attend(nobody(), 0));
        checked.rest();
        assert!(checked.subject().is_none() && !checked.attend(nobody(), 0));
    }

    #[test]
    fn probes_of_a_server_that_stays_down_become_rare() {
        let (checked, check) = (ProbeResults::default(), check());
        let second = Duration::from_secs(1);
        assert_eq!(checked.pause(&check, 10), 5 * second);
        assert_eq!(checked.pause(&check, 0), second * 45 / 10);
        assert_eq!(checked.pause(&check, 20), second * 55 / 10);
        verdicts(&checked, "---");
        assert_eq!(checked.pause(&check, 10), 5 * second);
        verdicts(&checked, "-----");
        assert_eq!(checked.pause(&check, 10), 10 * second);
        verdicts(&checked, &"-".repeat(100));
        assert_eq!(checked.pause(&check, 10), 20 * second);
        verdicts(&checked, "+");
        assert_eq!(checked.pause(&check, 10), 5 * second, "it may be back");
    }
}

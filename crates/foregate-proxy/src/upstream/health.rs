//! The health of a server, from the results of requests.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::health_state::{Moment, PassiveHealth};
use crate::settings::Eject;

/// The number of answers in a row after which a server that was down is up again.
const SUCCESSES_UNTIL_UP: u32 = 2;
/// The time for which a trial keeps other requests away from a server. Otherwise a hanging server would
/// get all requests until the first one gives up.
const TRIAL: Duration = Duration::from_secs(10);
/// The time after a server came up in which a new failure is a relapse: the server is then avoided for
/// longer than before.
const RELAPSE: Duration = Duration::from_secs(30);
/// The most relapses that double the time for which a server is avoided.
const DOUBLED_MOST: u32 = 16;
/// The time for which further failures of a server are not logged. A server that fails and answers in
/// turns would otherwise fill the log.
const TOLD_FOR: Duration = Duration::from_secs(10);

/// The health of a server according to the results of requests. After some failures in a row, the server
/// is avoided for a while. Then it gets one request at a time, until it has answered more than once.
#[derive(Debug)]
pub(super) struct Health {
    /// The number of failures in a row. It is written only while `record` is locked, but read without the
    /// lock, so that requests to a healthy server take no lock.
    failures: AtomicU32,
    /// The end of the time for which the server is avoided, in milliseconds after `epoch`; 0 while it is
    /// up. It is written only while `record` is locked.
    down_until: AtomicU64,
    record: Mutex<HealthRecord>,
    epoch: Instant,
}

#[derive(Debug, Default)]
struct HealthRecord {
    /// The number of answers in a row since the server was last avoided.
    successes: u32,
    /// The start of a trial: a request that tests whether the server answers again. Other requests avoid the server
    /// until `down_until`.
    trial: Option<Instant>,
    /// The time at which the server was last taken out.
    out_at: Option<Instant>,
    /// The time before which failures are not logged again, in milliseconds after `epoch`.
    quiet_until: u64,
    /// True if operators were told that the server fails, but not yet that it answers again.
    told: bool,
    /// The time at which the server last came up; `relapses` counts the times that it soon failed again.
    up_at: Option<Instant>,
    relapses: u32,
}

/// A report about a server to operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// The server has failed so often that it is avoided.
    Fails,
    /// The server answers again.
    Answers,
}

impl Health {
    /// The health of an unknown server: it is up.
    pub(super) fn new() -> Self {
        Self {
            failures: AtomicU32::new(0),
            down_until: AtomicU64::new(0),
            record: Mutex::default(),
            epoch: Instant::now(),
        }
    }

    /// Failures in a row.
    pub(super) fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns true if the server is avoided, or on trial, because it failed.
    pub(super) fn is_down(&self) -> bool {
        self.down_until.load(Ordering::Relaxed) != 0
    }

    /// Returns true if the server is up, or due for a trial.
    pub(super) fn is_up(&self, now: Instant) -> bool {
        let until = self.down_until.load(Ordering::Relaxed);
        until == 0 || until <= self.millis(now)
    }

    /// Returns true if a request may go to the server now. If the server is due for a trial, this request
    /// becomes the trial, and no other one is admitted for a while.
    pub(super) fn admit(&self, now: Instant) -> bool {
        if self.down_until.load(Ordering::Relaxed) == 0 {
            return true;
        }
        let mut record = self.record.lock();
        if !self.is_up(now) {
            return false;
        }
        // The server may have come up before the lock was taken.
        if self.is_down() {
            record.trial = Some(now);
            self.pass_over(self.millis(now), TRIAL);
        }
        true
    }

    /// Records an answer to a request that began at `began`.
    pub(super) fn succeeded(&self, began: Instant, now: Instant) -> Option<News> {
        if self.failures() == 0 {
            return None;
        }
        let mut record = self.record.lock();
        if self.is_down() {
            // The last answers from before the server was taken out do not show that it is well again.
            if record.out_at.is_some_and(|out_at| began < out_at) {
                return None;
            }
            record.trial = None;
            record.successes += 1;
            if record.successes < SUCCESSES_UNTIL_UP {
                self.pass_over(self.millis(now), Duration::ZERO);
                return None;
            }
            record.up_at = Some(now);
        }
        self.failures.store(0, Ordering::Relaxed);
        self.down_until.store(0, Ordering::Relaxed);
        std::mem::take(&mut record.told).then_some(News::Answers)
    }

    /// Records a request, sent at `began`, that ended without a sign of the server's health. If it was the trial of a
    /// failed server, the next request becomes the trial instead. A request that began before the trial changes
    /// nothing.
    pub(super) fn inconclusive(&self, began: Instant, now: Instant) {
        if self.down_until.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut record = self.record.lock();
        if record.trial.is_some_and(|since| since <= began) {
            record.trial = None;
            self.pass_over(self.millis(now), Duration::ZERO);
        }
    }

    /// Records a failure.
    pub(super) fn failed(&self, now: Instant, eject: &Eject) -> Option<News> {
        let mut record = self.record.lock();
        if !self.is_up(now) && record.trial.is_none() {
            // When a server goes down, many requests fail at once. They count as one failure.
            return None;
        }
        let failures = self.failures().saturating_add(1);
        self.take_out(&mut record, failures, now, eject)
    }

    /// Avoids the server from now on, no matter how often it failed before.
    pub(super) fn eject(&self, now: Instant, eject: &Eject) -> Option<News> {
        let mut record = self.record.lock();
        if !self.is_up(now) && record.trial.is_none() {
            return None;
        }
        let failures = self.failures().saturating_add(1).max(eject.failures);
        self.take_out(&mut record, failures, now, eject)
    }

    /// Forgets all failures.
    pub(super) fn forgive(&self, now: Instant) {
        let mut record = self.record.lock();
        if self.is_down() {
            record.up_at = Some(now);
        }
        (record.trial, record.told) = (None, false);
        self.failures.store(0, Ordering::Relaxed);
        self.down_until.store(0, Ordering::Relaxed);
    }

    /// The state, for the process that takes over from this one.
    pub(super) fn save(&self, now: Instant) -> PassiveHealth {
        let record = self.record.lock();
        let up_for = record.up_at.map(|at| now.saturating_duration_since(at)).filter(|span| *span < RELAPSE);
        PassiveHealth {
            failures: self.failures(),
            down: self.is_down(),
            wait: self.down_until.load(Ordering::Relaxed).saturating_sub(self.millis(now)),
            successes: record.successes,
            // Relapses of long ago no longer count.
            relapses: if self.is_down() || up_for.is_some() { record.relapses } else { 0 },
            up_for: up_for.map(millis),
            told: record.told,
        }
    }

    /// Returns true if this process has seen the server come up after `moment`.
    pub(super) fn came_up_since(&self, moment: Option<Instant>) -> bool {
        let up_at = self.record.lock().up_at;
        !self.is_down() && up_at.zip(moment).is_some_and(|(up, moment)| up > moment)
    }

    /// Takes over the state of another process. Returns true if the state changed. The server is avoided for no longer
    /// than `longest`.
    pub(super) fn restore(
        &self,
        state: &PassiveHealth,
        moment: Moment,
        now: Instant,
        longest: Duration,
    ) -> bool {
        let mut record = self.record.lock();
        // A running process takes over failures alone, and only for a server that it believes to be up.
        if moment == Moment::Later && (!state.down || self.is_down()) {
            return false;
        }
        let down = state.down;
        (record.trial, record.successes, record.told) =
            (None, if down { state.successes } else { 0 }, state.told);
        record.relapses = state.relapses;
        record.up_at = state.up_for.and_then(|span| now.checked_sub(Duration::from_millis(span)));
        // A server that is down needs at least one failure, because answers only count after a failure.
        self.failures.store(state.failures.max(u32::from(down)), Ordering::Relaxed);
        match down {
            true => self.pass_over(self.millis(now), Duration::from_millis(state.wait).min(longest)),
            false => self.down_until.store(0, Ordering::Relaxed),
        }
        true
    }

    fn take_out(
        &self,
        record: &mut HealthRecord,
        failures: u32,
        now: Instant,
        eject: &Eject,
    ) -> Option<News> {
        (record.trial, record.successes) = (None, 0);
        self.failures.store(failures, Ordering::Relaxed);
        let beyond = failures.checked_sub(eject.failures)?;
        if !self.is_down() {
            let soon = record.up_at.is_some_and(|at| now.saturating_duration_since(at) < RELAPSE);
            record.relapses = if soon { record.relapses.saturating_add(1) } else { 0 };
        }
        let doubled = beyond.saturating_add(record.relapses).min(DOUBLED_MOST);
        let span = eject.first.saturating_mul(2u32.saturating_pow(doubled)).min(eject.longest);
        record.out_at = Some(now);
        let now = self.millis(now);
        // Adds up to an eighth, so that many proxies do not return to a server at the same time.
        let jitter = Duration::from_millis(now % (millis(span) / 8).max(1));
        self.pass_over(now, span + jitter);
        if now < record.quiet_until || std::mem::replace(&mut record.told, true) {
            return None;
        }
        record.quiet_until = now + millis(TOLD_FOR);
        Some(News::Fails)
    }

    fn pass_over(&self, now: u64, span: Duration) {
        self.down_until.store((now + millis(span)).max(1), Ordering::Relaxed);
    }

    fn millis(&self, now: Instant) -> u64 {
        millis(now.saturating_duration_since(self.epoch))
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn fail(health: &Health, now: Instant) -> Option<News> {
        health.failed(now, &Eject::default())
    }

    /// A server that has just been passed over, and when.
    fn down() -> (Health, Instant) {
        let health = Health::new();
        let now = Instant::now();
        for _ in 0..3 {
            assert!(health.is_up(now) && health.admit(now));
            fail(&health, now);
        }
        (health, now)
    }

    #[test]
    fn a_server_that_keeps_failing_is_passed_over_for_a_while() {
        let (health, now) = down();
        assert!(!health.is_up(now) && !health.admit(now));
        assert!(health.is_up(now + SECOND) && health.admit(now + SECOND));
    }

    #[test]
    fn a_trial_that_says_nothing_is_followed_by_another() {
        let (health, now) = down();
        let later = now + SECOND;
        assert!(health.admit(later) && !health.admit(later), "one at a time");
        health.inconclusive(now, later);
        assert!(!health.admit(later), "an older request is no trial");
        health.inconclusive(later, later);
        assert!(health.admit(later) && !health.admit(later));
        fail(&health, later);
        health.inconclusive(later, later);
        assert!(!health.admit(later), "only a trial is given back");
    }

    #[test]
    fn answers_between_keep_a_server_up() {
        let health = Health::new();
        let now = Instant::now();
        for _ in 0..100 {
            fail(&health, now);
            fail(&health, now);
            assert_eq!(health.succeeded(now, now), None);
            assert!(health.admit(now));
        }
    }

    #[test]
    fn one_request_at_a_time_tries_a_server_that_was_passed_over() {
        let (health, mut now) = down();
        now += SECOND;
        assert!(health.admit(now));
        assert!(!health.is_up(now) && !health.admit(now), "what comes of the first is not known yet");
        fail(&health, now + 5 * SECOND);
        now += 5 * SECOND;
        assert!(!health.admit(now));
        now += 2 * SECOND;
        assert!(health.admit(now), "the second trial");
        assert!(!health.admit(now + 9 * SECOND));
        assert!(health.admit(now + 11 * SECOND), "the second has come to nothing");
    }

    #[test]
    fn a_server_is_up_after_two_answers() {
        let (health, mut now) = down();
        now += SECOND;
        assert!(health.admit(now));
        assert_eq!(health.succeeded(now, now), None);
        assert!(health.admit(now), "the second trial comes at once");
        assert!(!health.admit(now));
        assert_eq!(health.succeeded(now, now), Some(News::Answers));
        assert!(health.admit(now) && health.admit(now));
        fail(&health, now);
        assert!(health.admit(now), "failures are counted from the beginning");

        let (health, mut now) = down();
        now += SECOND;
        health.succeeded(now, now);
        fail(&health, now);
        assert!(!health.is_up(now));
        now += 2 * SECOND;
        assert_eq!(health.succeeded(now, now), None, "answers are counted from the beginning");
    }

    #[test]
    fn failures_and_their_end_are_told_once() {
        let health = Health::new();
        let later = Instant::now() + SECOND * 10_000;
        // A server that is passed over is tried again after some ten seconds at most.
        let mut now = Instant::now();
        let mut fails = |times: usize| {
            let mut news = Vec::new();
            for _ in 0..times {
                now += SECOND * 20;
                news.extend(fail(&health, now));
            }
            news
        };
        assert_eq!(fails(2), []);
        assert_eq!(health.succeeded(later, Instant::now()), None);
        assert_eq!(fails(20), [News::Fails]);
        assert_eq!(health.succeeded(later, Instant::now()), None);
        assert_eq!(health.succeeded(later, Instant::now()), Some(News::Answers));
        assert_eq!(health.succeeded(later, Instant::now()), None);
        assert_eq!(fails(3), [News::Fails]);
    }

    #[test]
    fn a_server_that_fails_and_answers_in_turns_is_told_of_now_and_then() {
        let health = Health::new();
        let start = Instant::now();
        let mut told = 0;
        for turn in 0..1000 {
            let now = start + Duration::from_millis(20) * turn;
            told += (0..3).filter(|_| fail(&health, now).is_some()).count();
            health.succeeded(now, now);
            health.succeeded(now, now);
        }
        // Twenty seconds.
        assert_eq!(told, 2);
    }

    #[test]
    fn a_server_that_fails_again_soon_is_passed_over_for_longer() {
        let (health, mut now) = down();
        let mut spans = Vec::new();
        for _ in 0..6 {
            let span = (0..200).find(|tenth| health.is_up(now + SECOND / 10 * *tenth)).unwrap();
            spans.push(span);
            now += SECOND / 10 * span;
            for _ in 0..2 {
                assert!(health.admit(now));
                health.succeeded(now, now);
            }
            (0..3).for_each(|_| _ = fail(&health, now));
        }
        assert!(spans.is_sorted() && spans[0] <= 6 && spans[5] >= 100 && spans[5] <= 115, "{spans:?}");
    }

    #[test]
    fn answers_to_requests_from_before_the_ejection_do_not_bring_a_server_back() {
        let (health, before) = (Health::new(), Instant::now());
        let out = before + SECOND;
        health.eject(out, &Eject::default());
        for _ in 0..3 {
            assert_eq!(health.succeeded(before, out + SECOND / 10), None);
        }
        assert!(health.is_down() && !health.is_up(out + SECOND / 10));
        // While all servers are out, requests go to it all the same.
        health.succeeded(out, out + SECOND / 10);
        assert_eq!(health.succeeded(out, out + SECOND / 10), Some(News::Answers));
    }

    #[test]
    fn an_ejected_server_comes_back_by_two_answers() {
        let (health, now) = (Health::new(), Instant::now());
        assert_eq!(health.eject(now, &Eject::default()), Some(News::Fails));
        assert_eq!(health.eject(now, &Eject::default()), None, "it is out");
        assert!(!health.is_up(now) && health.is_up(now + SECOND) && health.admit(now + SECOND));
        assert_eq!(health.succeeded(now + SECOND, now + SECOND), None);
        assert_eq!(health.succeeded(now + SECOND, now + SECOND), Some(News::Answers));
        assert!(!health.is_down());
        health.eject(now + 2 * SECOND, &Eject::default());
        health.forgive(now + 2 * SECOND);
        assert!(health.is_up(now + 2 * SECOND) && health.failures() == 0);
    }
}

//! The steady clock of steps: milliseconds that continue from one process to the next, so that the times in the state
//! of steps stay valid after an upgrade.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The greatest age of a clock that is continued; an older one is an error.
const OLDEST: Duration = Duration::from_secs(20 * 365 * 86_400);

static CLOCK: SteadyClock = SteadyClock(OnceLock::new());

/// Milliseconds of `now` since the clock began.
pub fn millis(now: Instant) -> u64 {
    CLOCK.millis(now)
}

/// When the clock began, microseconds after the start of the machine.
pub fn beginning() -> u64 {
    CLOCK.beginning()
}

/// Continues the clock of another process on this machine. Has no effect if this clock has begun already, or if
/// `beginning` is impossible.
pub fn go_on(beginning: u64) {
    CLOCK.go_on(beginning);
}

struct SteadyClock(OnceLock<Instant>);

impl SteadyClock {
    fn millis(&self, now: Instant) -> u64 {
        let steady = now.saturating_duration_since(*self.0.get_or_init(|| now));
        u64::try_from(steady.as_millis()).unwrap_or(u64::MAX)
    }

    fn beginning(&self) -> u64 {
        let now = Instant::now();
        let age = now.saturating_duration_since(*self.0.get_or_init(|| now));
        since_boot().saturating_sub(u64::try_from(age.as_micros()).unwrap_or(u64::MAX))
    }

    fn go_on(&self, beginning: u64) {
        let Some(age) = since_boot().checked_sub(beginning).map(Duration::from_micros) else { return };
        if age <= OLDEST
            && let Some(start) = Instant::now().checked_sub(age)
        {
            // A clock that has begun already keeps its start.
            let _ = self.0.set(start);
        }
    }
}

fn since_boot() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds.saturating_mul(1_000_000) + u64::try_from(now.tv_nsec).unwrap_or_default() / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_goes_on_has_the_same_time() {
        let clock = SteadyClock(OnceLock::new());
        for nonsense in [u64::MAX, since_boot() + 1_000_000_000] {
            clock.go_on(nonsense);
        }
        assert!(clock.0.get().is_none());
        let begun = since_boot().saturating_sub(5_000_000);
        clock.go_on(begun);
        let now = clock.millis(Instant::now());
        assert!((4_900..15_000).contains(&now), "{now}");
        assert!(clock.beginning().abs_diff(begun) < 10_000);
        clock.go_on(0);
        assert!(clock.millis(Instant::now()) - now < 10_000, "it has begun");
    }
}

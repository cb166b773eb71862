//! When the configuration was loaded, and whether the last attempt to replace it was refused.

use parking_lot::Mutex;

use crate::time::clock::Clock;

/// The last loads of the configuration.
#[derive(Debug)]
pub struct ConfigurationLoads {
    last: Mutex<LastLoads>,
    clock: Clock,
}

/// Times are seconds since 1970.
#[derive(Debug)]
struct LastLoads {
    loaded: u64,
    refused: Option<RefusedLoad>,
}

/// A reload that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedLoad {
    /// The time of the refusal, in seconds since 1970.
    pub time: u64,
    /// The reason of the refusal.
    pub reason: String,
}

impl ConfigurationLoads {
    /// The loads of a process that has just loaded its configuration.
    pub fn new(clock: Clock) -> Self {
        Self { last: Mutex::new(LastLoads { loaded: clock.unix(), refused: None }), clock }
    }

    /// Records the result of a reload.
    pub fn record(&self, result: &Result<(), String>) {
        let now = self.clock.unix();
        let mut last = self.last.lock();
        match result {
            Ok(()) => *last = LastLoads { loaded: now, refused: None },
            Err(reason) => last.refused = Some(RefusedLoad { time: now, reason: reason.clone() }),
        }
    }

    /// The time at which the current configuration was loaded, in seconds since 1970, and a reload that was refused
    /// since then.
    pub fn last(&self) -> (u64, Option<RefusedLoad>) {
        let last = self.last.lock();
        (last.loaded, last.refused.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_refusal_is_told_until_the_next_load() {
        let clock = Clock::of_a_test();
        let loads = ConfigurationLoads::new(clock);
        let (first, _) = loads.last();
        clock.advance(Duration::from_secs(100));
        loads.record(&Err("unknown key".to_owned()));
        let (loaded, refused) = loads.last();
        let refused = refused.unwrap();
        assert_eq!((loaded, &*refused.reason), (first, "unknown key"));
        assert!(refused.time >= first + 100, "{} after {first}", refused.time);
        clock.advance(Duration::from_secs(100));
        loads.record(&Ok(()));
        let (loaded, refused) = loads.last();
        assert!(loaded >= first + 200 && refused.is_none(), "{loaded} after {first}");
    }
}

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

/// A load that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedLoad {
    /// The time of the refusal, in seconds since 1970.
    pub time: u64,
    /// The reason of the refusal.
    pub reason: String,
    /// The kind of the load.
    pub kind: LoadKind,
}

/// The kinds of loads of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadKind {
    /// The files were read at the start of this process, after a crash of the one before.
    Start,
    /// The configuration was replaced.
    Reload,
    /// The files to which the present configuration refers were read again.
    Refresh,
}

impl ConfigurationLoads {
    /// The loads of a process that has just loaded its configuration.
    pub fn new(clock: Clock) -> Self {
        Self { last: Mutex::new(LastLoads { loaded: clock.unix(), refused: None }), clock }
    }

    /// Records the result of a load. A refresh reads no configuration files, so it leaves their refusal as it is.
    pub fn record(&self, kind: LoadKind, result: &Result<(), String>) {
        let now = self.clock.unix();
        let mut last = self.last.lock();
        let files_are_refused =
            last.refused.as_ref().is_some_and(|refused| refused.kind != LoadKind::Refresh);
        let refused = match result {
            _ if kind == LoadKind::Refresh && files_are_refused => last.refused.take(),
            Ok(()) => None,
            Err(reason) => Some(RefusedLoad { time: now, reason: reason.clone(), kind }),
        };
        let loaded = if result.is_ok() { now } else { last.loaded };
        *last = LastLoads { loaded, refused };
    }

    /// The time at which the current configuration was loaded, in seconds since 1970, and a load that was refused
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
        loads.record(LoadKind::Reload, &Err("unknown key".to_owned()));
        let (loaded, refused) = loads.last();
        let refused = refused.unwrap();
        assert_eq!((loaded, &*refused.reason), (first, "unknown key"));
        assert!(refused.time >= first + 100, "{} after {first}", refused.time);
        clock.advance(Duration::from_secs(100));
        loads.record(LoadKind::Reload, &Ok(()));
        let (loaded, refused) = loads.last();
        assert!(loaded >= first + 200 && refused.is_none(), "{loaded} after {first}");
    }

    #[test]
    fn a_refresh_leaves_the_refusal_of_the_files() {
        let loads = ConfigurationLoads::new(Clock::of_a_test());
        let refused = || loads.last().1.map(|refused| refused.reason);
        let wrong = |reason: &str| Err(reason.to_owned());
        loads.record(LoadKind::Refresh, &wrong("a list"));
        assert_eq!(refused().as_deref(), Some("a list"));
        loads.record(LoadKind::Refresh, &Ok(()));
        assert_eq!(refused(), None);
        for kind in [LoadKind::Start, LoadKind::Reload] {
            loads.record(kind, &wrong("the files"));
            loads.record(LoadKind::Refresh, &wrong("a list"));
            loads.record(LoadKind::Refresh, &Ok(()));
            assert_eq!(refused().as_deref(), Some("the files"));
            loads.record(LoadKind::Reload, &Ok(()));
            assert_eq!(refused(), None);
        }
    }
}

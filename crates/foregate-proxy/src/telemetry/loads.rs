//! When the configuration was loaded, and whether the last attempt to replace it was refused.

use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// The last loads of the configuration.
#[derive(Debug)]
pub struct ConfigurationLoads(Mutex<LastLoads>);

#[derive(Debug)]
struct LastLoads {
    loaded: SystemTime,
    refused: Option<RefusedLoad>,
}

/// A reload that was refused.
#[derive(Debug, Clone)]
pub struct RefusedLoad {
    /// The time of the refusal, in seconds since 1970.
    pub time: u64,
    /// The reason of the refusal.
    pub reason: String,
}

impl Default for ConfigurationLoads {
    fn default() -> Self {
        Self(Mutex::new(LastLoads { loaded: SystemTime::now(), refused: None }))
    }
}

impl ConfigurationLoads {
    /// Records the result of a reload.
    pub fn record(&self, result: &Result<(), String>) {
        let mut last = self.0.lock();
        match result {
            Ok(()) => *last = LastLoads { loaded: SystemTime::now(), refused: None },
            Err(reason) => {
                last.refused = Some(RefusedLoad { time: seconds(SystemTime::now()), reason: reason.clone() });
            }
        }
    }

    /// The time at which the current configuration was loaded, in seconds since 1970, and a reload that was refused
    /// since then.
    pub fn last(&self) -> (u64, Option<RefusedLoad>) {
        let last = self.0.lock();
        (seconds(last.loaded), last.refused.clone())
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

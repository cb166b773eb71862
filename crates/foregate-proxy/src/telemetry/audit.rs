//! Changes by operators, with their authors and results.

use std::collections::VecDeque;
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::time::clock::Clock;

/// The most changes that are kept.
const KEPT: usize = 100;

/// The last changes.
#[derive(Debug)]
pub struct AuditLog {
    changes: Mutex<VecDeque<AuditedChange>>,
    clock: Clock,
}

/// A change, or a refused one.
#[derive(Debug, Clone)]
pub struct AuditedChange {
    /// The time of the change.
    pub time: SystemTime,
    /// The operator, such as `uid 0, pid 17` or `dashboard user ada from 192.0.2.7`.
    pub who: String,
    /// The change, such as `reload`.
    pub change: String,
    /// The reason for a refusal.
    pub refused: Option<String>,
}

impl AuditLog {
    /// An empty log, whose changes get their times from `clock`.
    pub fn new(clock: Clock) -> Self {
        Self { changes: Mutex::default(), clock }
    }

    /// Records a change, and writes it to the log of the process.
    pub fn record(&self, who: &str, change: &str, refused: Option<&str>) {
        match refused {
            None => tracing::info!(who, change, "audit: an operator's change"),
            Some(error) => tracing::warn!(who, change, error, "audit: an operator's change was refused"),
        }
        let refused = refused.map(str::to_owned);
        let entry = AuditedChange {
            time: self.clock.wall(),
            who: who.to_owned(),
            change: change.to_owned(),
            refused,
        };
        let mut changes = self.changes.lock();
        if changes.len() >= KEPT {
            changes.pop_front();
        }
        changes.push_back(entry);
    }

    /// The kept changes, the newest one first.
    pub fn changes(&self) -> Vec<AuditedChange> {
        self.changes.lock().iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_newest_changes_are_kept_with_their_times() {
        let clock = Clock::of_a_test();
        let log = AuditLog::new(clock);
        for number in 0..=KEPT {
            log.record("uid 0", &format!("change {number}"), None);
            clock.advance(Duration::from_secs(60));
        }
        let changes = log.changes();
        assert_eq!((changes.len(), &*changes[0].change), (KEPT, "change 100"));
        assert_eq!(changes[KEPT - 1].change, "change 1");
        let passed = changes[0].time.duration_since(changes[1].time).unwrap();
        assert!(passed >= Duration::from_secs(60), "{passed:?}");
    }
}

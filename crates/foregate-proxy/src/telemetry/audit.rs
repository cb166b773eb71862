//! Changes by operators, with their authors and results.

use std::collections::VecDeque;
use std::time::SystemTime;

use parking_lot::Mutex;

/// The most changes that are kept.
const KEPT: usize = 100;

/// The last changes.
#[derive(Debug, Default)]
pub struct AuditLog(Mutex<VecDeque<AuditedChange>>);

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
    /// Records a change, and writes it to the log of the process.
    pub fn record(&self, who: &str, change: &str, refused: Option<&str>) {
        match refused {
            None => tracing::info!(who, change, "audit: an operator's change"),
            Some(error) => tracing::warn!(who, change, error, "audit: an operator's change was refused"),
        }
        let refused = refused.map(str::to_owned);
        let entry = AuditedChange {
            time: SystemTime::now(),
            who: who.to_owned(),
            change: change.to_owned(),
            refused,
        };
        let mut changes = self.0.lock();
        if changes.len() >= KEPT {
            changes.pop_front();
        }
        changes.push_back(entry);
    }

    /// The kept changes, the newest one first.
    pub fn changes(&self) -> Vec<AuditedChange> {
        self.0.lock().iter().rev().cloned().collect()
    }
}

//! The state of a server's health, for the next process.

use serde::{Deserialize, Serialize};

/// The moment at which a state is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before this process serves, and has no state of its own.
    Start,
    /// While this process serves: its own observations have priority, and the other process only adds orders and
    /// failures.
    Later,
}

/// The judgement by requests.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PassiveHealth {
    pub(super) failures: u32,
    pub(super) down: bool,
    /// The time until the server is tried again, in milliseconds.
    pub(super) wait: u64,
    pub(super) successes: u32,
    pub(super) relapses: u32,
    /// Milliseconds since it came up last.
    pub(super) up_for: Option<u64>,
    pub(super) told: bool,
}

/// The judgement by probes.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ActiveHealth {
    /// `None` before the first result.
    pub(super) up: Option<bool>,
    pub(super) passed: u32,
    pub(super) failed: u32,
    pub(super) reason: Option<String>,
}

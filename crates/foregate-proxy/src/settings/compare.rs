//! Comparing responses with those of the proxy that Foregate replaces.

use std::path::PathBuf;
use std::time::Duration;

pub use foregate_compare::Rules as CompareRules;

/// One `compare` node: which requests are sent to the old proxy as well.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Compare {
    /// The old proxy, by index into
    /// [`Settings::upstreams`](crate::configuration::Settings::upstreams).
    pub upstream: usize,
    /// Where the two responses come from. Default: [`CompareMode::Shadow`].
    pub mode: CompareMode,
    /// The share of requests that are compared, of [`SHARE_WHOLE`](super::SHARE_WHOLE). Default: all.
    pub share: u32,
    /// The share of these for which the old proxy is asked twice. Default: 10 %.
    pub learn: u32,
    /// The parts that are compared.
    pub rules: CompareRules,
}

/// The source of the two responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompareMode {
    /// This proxy answers the client; the old one gets the request as well.
    Shadow,
    /// The old proxy answers the client, and asks its origin through a tap of this one.
    Tap,
    /// The old proxy answers the client; the steps of this one run over its response.
    DryRun,
}

/// Where samples of differences lie, and how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompareSamples {
    /// The folder.
    pub folder: PathBuf,
    /// Bytes of all samples. Default: 64 MiB.
    pub size: u64,
    /// Samples of one route and class. Default: 20.
    pub each: usize,
    /// How long a sample is kept. Default: 7 days.
    pub keep: Duration,
    /// Values are kept as they are. Default: no, credentials, cookies, values of queries and bodies are hashes.
    pub raw: bool,
}

impl CompareSamples {
    /// Samples in a folder.
    pub fn in_folder(folder: PathBuf) -> Self {
        Self { folder, size: 64 << 20, each: 20, keep: Duration::from_secs(7 * 86_400), raw: false }
    }
}

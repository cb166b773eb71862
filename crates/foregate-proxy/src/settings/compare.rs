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
    /// The way in which the two responses are obtained. Default: [`CompareMode::Shadow`].
    pub mode: CompareMode,
    /// The share of requests that are compared, of [`SHARE_WHOLE`](super::SHARE_WHOLE). Default: all.
    pub share: u32,
    /// The share of compared requests for which the old proxy is asked twice, to learn which parts of its responses vary.
    /// Default: 10 %.
    pub learn: u32,
    /// The rules for the parts of responses that are compared.
    pub rules: CompareRules,
}

/// The way in which the two responses are obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompareMode {
    /// This proxy answers the client; the old one gets the request as well.
    Shadow,
    /// The old proxy answers the client, and asks its origin through a tap of this one.
    Tap,
    /// The old proxy answers the client. The steps of this proxy run on the old proxy's response.
    DryRun,
}

/// The storage of samples of differences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompareSamples {
    /// The folder.
    pub folder: PathBuf,
    /// The most bytes of all samples together. Default: 64 MiB.
    pub size: u64,
    /// The most samples of one route and one class of difference. Default: 20.
    pub each: usize,
    /// How long a sample is kept. Default: 7 days.
    pub keep: Duration,
    /// Store all values unchanged. Default: no; hashes replace credentials, cookies, values of queries, and bodies.
    pub raw: bool,
}

impl CompareSamples {
    /// Samples in a folder.
    pub fn in_folder(folder: PathBuf) -> Self {
        Self { folder, size: 64 << 20, each: 20, keep: Duration::from_secs(7 * 86_400), raw: false }
    }
}

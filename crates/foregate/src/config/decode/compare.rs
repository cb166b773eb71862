//! `compare` and `compare-samples`.

use std::sync::Arc;
use std::time::Duration;

use foregate_compare::{Name, Rules};
use foregate_config::value::{self, Wrong};
use foregate_config::{Decoder, Item, Problem, Upstreams as _};
use foregate_proxy::settings::{Compare, CompareMode, CompareSamples, SHARE_WHOLE};

use super::fallback::share;
use super::names::UpstreamNames;

/// The upper bound for the bytes of a body that are compared.
const BODY_MOST: u64 = 16 << 20;
/// The longest that samples may be kept: ten years.
const KEEP_MOST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Reads a `compare`; `None` where a problem was found.
pub(super) fn decode(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    upstreams: &UpstreamNames,
) -> Option<Arc<Compare>> {
    let has = |name: &str| item.node.entries().any(|entry| entry.key() == Some(name));
    let upstream =
        decoder.prop(item, "upstream", |value| Ok(upstreams.find(value::string(value)?)?.0 as usize));
    let mut compare = Compare {
        upstream: upstream.unwrap_or_default(),
        mode: CompareMode::Shadow,
        share: SHARE_WHOLE,
        learn: SHARE_WHOLE / 10,
        rules: Rules::default(),
    };
    let mut whole = upstream.is_some();
    if has("mode") {
        const MODES: &[(&str, CompareMode)] =
            &[("shadow", CompareMode::Shadow), ("tap", CompareMode::Tap), ("dry-run", CompareMode::DryRun)];
        match decoder.prop(item, "mode", |value| value::choose(value, MODES)) {
            Some(mode) => compare.mode = mode,
            None => whole = false,
        }
    }
    for (name, to) in [("share", &mut compare.share), ("learn", &mut compare.learn)] {
        if has(name) {
            match decoder.prop(item, name, |value| share(value, name)) {
                Some(part) => *to = part,
                None => whole = false,
            }
        }
    }
    if whole && compare.share == 0 {
        let problem = Problem::new(Some(item.place()), "`share=\"0%\"` compares no request");
        decoder.warn(problem.help("write a larger share, or leave `compare` out"));
    }
    compare.rules.order = decoder.prop(item, "order", value::boolean).unwrap_or_default();
    if has("body") {
        match decoder.prop(item, "body", |value| value::size(value, 0..=BODY_MOST)) {
            Some(limit) => compare.rules.body_limit = limit as usize,
            None => whole = false,
        }
    }
    if has("ignore") {
        match decoder.prop(item, "ignore", parts) {
            Some(parts) => {
                for part in parts {
                    compare.rules.ignore(part);
                }
            }
            None => whole = false,
        }
    }
    whole.then(|| Arc::new(compare))
}

fn parts(value: &value::Value<'_>) -> Result<Vec<Name>, Wrong> {
    let parts = value::string(value)?.split(',').map(str::trim).filter(|part| !part.is_empty());
    let parts: Result<Vec<_>, _> = parts.map(Name::read).collect();
    match parts {
        Ok(parts) if parts.is_empty() => {
            Err(Wrong::new("expected parts of responses").help("write `ignore=\"etag, cookie sid\"`"))
        }
        Ok(parts) => Ok(parts),
        Err(error) => Err(Wrong::new(error)),
    }
}

/// Reads `compare-samples`.
pub(super) fn samples(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<Arc<CompareSamples>> {
    let mut samples = CompareSamples::in_folder(decoder.path(item, 0)?);
    if let Some(size) = decoder.prop(item, "size", |value| value::size(value, 4096..=u64::MAX)) {
        samples.size = size;
    }
    if let Some(each) = decoder.prop(item, "each", |value| value::number(value, 1..=10_000)) {
        samples.each = each as usize;
    }
    let long = Duration::from_secs(1)..=KEEP_MOST;
    if let Some(keep) = decoder.prop(item, "keep", |value| value::duration(value, long)) {
        samples.keep = keep;
    }
    samples.raw = decoder.prop(item, "raw", value::boolean).unwrap_or_default();
    Some(Arc::new(samples))
}

/// The settings for samples if the configuration has no `compare-samples`.
pub(super) fn default_samples() -> Arc<CompareSamples> {
    Arc::new(CompareSamples::in_folder(super::default_storage().join("compare")))
}

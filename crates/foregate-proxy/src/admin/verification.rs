//! The check of everything that the cache has on disk, with its progress as server-sent events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foregate_disk::{Verified, VerifyCursor};
use futures_util::{Stream, stream};
use http::StatusCode;
use serde_json::{Value, json};

use super::refusal::ApiError;
use crate::proxy::Proxy;

/// The time between two events.
const STEP: Duration = Duration::from_secs(1);

/// Set while a check is under way. There is only one at a time: each keeps the disk busy.
static UNDER_WAY: AtomicBool = AtomicBool::new(false);

/// A check that is under way. It ends with the stream of its events, so also when the client leaves.
struct Verification {
    proxy: Arc<Proxy>,
    /// The position from which the check continues; `None` after its last event.
    next: Option<VerifyCursor>,
    sum: Verified,
    _place: VerificationPlace,
}

/// The right to check.
struct VerificationPlace;

impl VerificationPlace {
    fn take() -> Option<Self> {
        (!UNDER_WAY.swap(true, Ordering::Relaxed)).then_some(Self)
    }
}

impl Drop for VerificationPlace {
    fn drop(&mut self) {
        UNDER_WAY.store(false, Ordering::Relaxed);
    }
}

/// Begins a check, and returns its events: `progress` each second, and `done` or `failed` at the end.
pub(super) fn verify(proxy: &Arc<Proxy>) -> Result<impl Stream<Item = String> + use<>, ApiError> {
    if proxy.cache.store.on_disk().is_none() {
        return Err(without_folder(proxy));
    }
    let place = VerificationPlace::take().ok_or_else(|| {
        ApiError(StatusCode::CONFLICT, "a check is under way already: wait for its end".to_owned())
    })?;
    let begin = Some(VerifyCursor::default());
    let check =
        Verification { proxy: Arc::clone(proxy), next: begin, sum: Verified::default(), _place: place };
    Ok(stream::unfold(check, |mut check| async move {
        let (name, data) = check.step().await?;
        Some((format!("event: {name}\ndata: {data}\n\n"), check))
    }))
}

/// The reason why there is nothing to check.
fn without_folder(proxy: &Proxy) -> ApiError {
    if proxy.cache.store.awaits_folders() {
        let help = "another generation of this proxy holds the folders of the cache: try again when it has let go of them";
        return ApiError(StatusCode::SERVICE_UNAVAILABLE, help.to_owned());
    }
    ApiError(StatusCode::CONFLICT, "the cache has no folder: `cache-store { disk ... }`".to_owned())
}

impl Verification {
    /// Checks for a while, and returns the next event. `None` after the last one.
    async fn step(&mut self) -> Option<(&'static str, Value)> {
        let from = self.next.take()?;
        let store = &self.proxy.cache.store;
        let Some(verified) = store.verify(from, STEP).await else {
            let ApiError(_, error) = without_folder(&self.proxy);
            return Some(("failed", json!({ "ok": false, "error": error })));
        };
        let add = |sum: &mut u64, part: u64| *sum = sum.saturating_add(part);
        add(&mut self.sum.whole, verified.whole);
        add(&mut self.sum.bytes, verified.bytes);
        add(&mut self.sum.damaged, verified.damaged);
        add(&mut self.sum.unread, verified.unread);
        self.next = verified.next;
        let data = json!({
            "ok": true,
            "whole": self.sum.whole,
            "bytes": self.sum.bytes,
            "damaged": self.sum.damaged,
            "unread": self.sum.unread,
            "entries": store.on_disk(),
        });
        Some((if self.next.is_some() { "progress" } else { "done" }, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_check_is_under_way() {
        let place = VerificationPlace::take();
        assert!(place.is_some() && VerificationPlace::take().is_none());
        drop(place);
        assert!(VerificationPlace::take().is_some());
    }
}

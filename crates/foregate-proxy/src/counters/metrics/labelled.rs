//! Counters by the value of a label.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::ERRORS_LIMIT;

/// The most labels for sites, and as many for upstreams and for servers. Further names share the label [`OTHER`].
pub(super) const LABELS_LIMIT: usize = 1000;
/// The label of entries without a label of their own.
pub(super) const OTHER: &str = "other";
/// The label of requests that no site claims.
pub(super) const UNROUTED: &str = "-";

/// Counts by a few fixed names.
#[derive(Debug, Default)]
pub struct Kinds(Mutex<Vec<(&'static str, u64)>>);

impl Kinds {
    /// Counts one of this kind.
    pub fn count(&self, kind: &'static str) {
        let mut kinds = self.0.lock();
        if let Some((_, count)) = kinds.iter_mut().find(|(known, _)| *known == kind) {
            *count += 1;
        } else if kinds.len() < ERRORS_LIMIT {
            kinds.push((kind, 1));
        }
    }

    /// The counts so far.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        self.0.lock().clone()
    }
}

/// Counters by the value of a label.
#[derive(Debug)]
pub(super) struct LabelledCounters<T> {
    named: Mutex<HashMap<Arc<str>, Arc<T>>>,
    pub(super) other: Arc<T>,
}

impl<T: Default> Default for LabelledCounters<T> {
    fn default() -> Self {
        Self { named: Mutex::default(), other: Arc::default() }
    }
}

impl<T: Default> LabelledCounters<T> {
    pub(super) fn get(&self, name: &str) -> Arc<T> {
        let mut named = self.named.lock();
        if let Some(known) = named.get(name) {
            return Arc::clone(known);
        }
        if named.len() >= LABELS_LIMIT {
            named.retain(|_, counters| is_in_use(counters));
        }
        if named.len() >= LABELS_LIMIT {
            return Arc::clone(&self.other);
        }
        Arc::clone(named.entry(name.into()).or_default())
    }

    pub(super) fn set<'n>(
        &self,
        names: impl Iterator<Item = &'n Arc<str>> + Clone,
    ) -> (Vec<Arc<T>>, Vec<u32>) {
        let mut named = self.named.lock();
        let mut old = std::mem::take(&mut *named);
        named.extend(old.remove_entry(UNROUTED));
        for name in names.clone() {
            if old.is_empty() {
                break;
            }
            named.extend(old.remove_entry(name));
        }
        let mut counters = Vec::new();
        let mut other = None;
        let indices = names.map(|name| {
            let own = match named.get(name) {
                Some(own) => own,
                None if named.len() < LABELS_LIMIT => named.entry(Arc::clone(name)).or_default(),
                None => {
                    return *other.get_or_insert_with(|| {
                        counters.push(Arc::clone(&self.other));
                        counters.len() as u32 - 1
                    });
                }
            };
            counters.push(Arc::clone(own));
            counters.len() as u32 - 1
        });
        let indices = indices.collect();
        (counters, indices)
    }

    /// The entries in the order of their names; `other` last, when it is in use. Unused entries are
    /// dropped.
    pub(super) fn all(&self) -> Vec<(Arc<str>, Arc<T>)> {
        let mut named = self.named.lock();
        named.retain(|_, counters| is_in_use(counters));
        let mut all: Vec<_> =
            named.iter().map(|(name, counters)| (Arc::clone(name), Arc::clone(counters))).collect();
        drop(named);
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        if is_in_use(&self.other) && !all.iter().any(|(name, _)| name.as_ref() == OTHER) {
            all.push((OTHER.into(), Arc::clone(&self.other)));
        }
        all
    }
}

/// Returns true if the counters are referenced outside of their table.
fn is_in_use<T>(counters: &Arc<T>) -> bool {
    Arc::strong_count(counters) > 1
}

//! Detects requests that loop between this proxy and the old proxy that they fall back to.
//!
//! A marker field would change the bytes of every request. So it is added only if a loop is possible:
//! the request comes from a machine of the old proxy while several equal requests are on their way
//! there. A request that arrives with the marker has been here before.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::random;

/// The name of the marker field.
pub const MARKER: &[u8] = b"Foregate-Fallback";

/// The name of the field that marks requests which a tap has passed on.
pub const TAP_MARKER: &[u8] = b"Foregate-Tap";

/// If this many equal requests are under way, the next one may be part of a loop.
const SUSPICIOUS: u32 = 4;

/// The value of the marker field, which only this process knows.
static VALUE: LazyLock<String> = LazyLock::new(|| format!("{:016x}", random::number()));

/// The number of requests that have fallen back and are not answered yet, by a hash of the request.
#[derive(Debug, Default)]
pub struct UnderWay(Mutex<HashMap<u64, u32, foldhash::fast::RandomState>>);

/// A request that has fallen back. It counts until this value is dropped.
#[derive(Debug)]
pub struct OnItsWay<'a> {
    all: &'a UnderWay,
    key: u64,
    /// True if several equal requests are under way, so that this one may be part of a loop.
    pub is_suspicious: bool,
}

impl UnderWay {
    /// Counts a request with this hash.
    pub fn enter(&self, key: u64) -> OnItsWay<'_> {
        let mut counts = self.0.lock();
        let count = counts.entry(key).or_default();
        *count += 1;
        OnItsWay { all: self, key, is_suspicious: *count > SUSPICIOUS }
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        let mut counts = self.all.0.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

/// The marker of this process.
pub fn marker() -> &'static [u8] {
    VALUE.as_bytes()
}

/// Returns true if `value`, of a field with the marker's name, contains the marker of this process.
pub fn has_been_here(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|member| member.trim_ascii() == marker())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_requests_are_suspicious_while_many_are_under_way() {
        let all = UnderWay::default();
        let held: Vec<_> = (0..SUSPICIOUS).map(|_| all.enter(1)).collect();
        assert!(held.iter().all(|request| !request.is_suspicious));
        assert!(!all.enter(2).is_suspicious);
        assert!(all.enter(1).is_suspicious);
        drop(held);
        assert!(!all.enter(1).is_suspicious);
        assert!(all.0.lock().is_empty());
    }

    #[test]
    fn the_marker_is_found_among_others() {
        let value = [b"abc, ", marker()].concat();
        assert!(has_been_here(&value) && !has_been_here(b"abc"));
    }
}

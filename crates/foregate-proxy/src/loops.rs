//! Detects requests that go round between this proxy and another one that they fall back to.
//!
//! A marker in a field would change the bytes of every request. So it is added only where a loop is
//! possible: the request comes from a machine of the old proxy while several equal ones are on
//! their way there. A request that brings the marker back has gone round.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::random;

/// The name of the field.
pub const MARKER: &[u8] = b"Foregate-Fallback";

/// The name of the field of requests that a tap has passed on.
pub const TAP_MARKER: &[u8] = b"Foregate-Tap";

/// Equal requests under way from which on the next one is marked.
const SUSPICIOUS: u32 = 4;

/// The value of the field, which only this process knows.
static VALUE: LazyLock<String> = LazyLock::new(|| format!("{:016x}", random::number()));

/// The requests that have fallen back and are not answered yet, by a hash.
#[derive(Debug, Default)]
pub struct UnderWay(Mutex<HashMap<u64, u32, foldhash::fast::RandomState>>);

/// A request on its way. It is counted until this is dropped.
#[derive(Debug)]
pub struct OnItsWay<'a> {
    all: &'a UnderWay,
    key: u64,
    /// Several equal ones are under way.
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

/// Returns true if a field of the marker's name says that the request has been here.
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

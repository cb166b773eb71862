//! Sets of field names from a configuration. They serve to find such fields in trailers, which no step sees.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Names without duplicates, regardless of case; see [`of_requests`](Self::of_requests).
#[derive(Debug)]
pub(crate) struct Names {
    sorted: Box<[Box<[u8]>]>,
    spelt: fn(u8) -> u8,
}

impl Default for Names {
    fn default() -> Self {
        Self { sorted: Box::default(), spelt: |byte| byte.to_ascii_lowercase() }
    }
}

impl Names {
    /// Names of fields of requests: `_` counts as `-`, as it does for many origins.
    pub(crate) fn of_requests<'n>(names: impl Iterator<Item = &'n [u8]>) -> Self {
        Self::new(names, |byte| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() })
    }

    /// Names of fields of responses.
    pub(crate) fn of_responses<'n>(names: impl Iterator<Item = &'n [u8]>) -> Self {
        Self::new(names, |byte| byte.to_ascii_lowercase())
    }

    fn new<'n>(names: impl Iterator<Item = &'n [u8]>, spelt: fn(u8) -> u8) -> Self {
        let spell = |name: &[u8]| name.iter().map(|byte| spelt(*byte)).collect::<Box<[u8]>>();
        let mut sorted: Vec<_> = names.map(spell).collect();
        sorted.sort_unstable();
        sorted.dedup();
        Self { sorted: sorted.into(), spelt }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    pub(crate) fn contains(&self, name: &[u8]) -> bool {
        let spelt = || name.iter().map(|byte| (self.spelt)(*byte));
        self.sorted.binary_search_by(|own| own.iter().copied().cmp(spelt())).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_every_spelling() {
        let names = [&b"x-b"[..], b"X_A", b"x-a", b"x-debug"];
        let request = Names::of_requests(names.into_iter());
        assert_eq!(request.sorted.len(), 3);
        for name in [&b"X-B"[..], b"x_b", b"X-A", b"x_debug"] {
            assert!(request.contains(name));
        }
        assert!(!request.contains(b"x") && !request.contains(b"x-debugger") && !request.contains(b""));
        let response = Names::of_responses(names.into_iter());
        assert!(response.contains(b"X-B") && response.contains(b"x_a") && !response.contains(b"x_b"));
        assert!(Names::default().is_empty() && !Names::default().contains(b"x"));
    }
}

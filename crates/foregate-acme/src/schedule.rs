//! The time to renew a certificate.

use std::hash::{BuildHasher as _, RandomState};

use crate::certificate::Facts;

/// The least age of a certificate at its renewal if the authority suggests a time: this many seconds, or a
/// quarter of its lifetime if that is less.
const LEAST_AGE: i64 = 3600;

/// The least time from a renewal to the end of the certificate: this many seconds, or a quarter of its
/// lifetime if that is less.
const LEAST_LEFT: i64 = 60;

/// Chooses the time to renew a certificate, seconds since 1970: a moment within the window that the authority
/// suggests (RFC 9773), or after two thirds of the lifetime if there is no window. `spread`, from 0 to 1,
/// shifts the time, so that certificates that were issued together are not renewed together.
pub(crate) fn renewal(facts: &Facts, window: Option<(i64, i64)>, spread: f64) -> i64 {
    let lifetime = facts.lifetime();
    let part = |numerator: i64, denominator: i64| {
        lifetime / denominator * numerator + lifetime % denominator * numerator / denominator
    };
    let usual = facts.not_before + part(2, 3) - (part(1, 30) as f64 * spread) as i64;
    let Some((from, to)) = window.filter(|(from, to)| from <= to) else { return usual };
    let chosen = from + ((to - from) as f64 * spread) as i64;
    let earliest = facts.not_before.saturating_add(part(1, 4).min(LEAST_AGE));
    // A window that ends with the certificate would leave no time for a second attempt.
    let latest = facts.not_after - part(1, 10).max(part(1, 4).min(LEAST_LEFT));
    // A window that is longer than the lifetime makes no sense: ignore it.
    if to - from > lifetime { usual } else { chosen.clamp(earliest, latest) }
}

/// A random number from 0 to 1.
pub(crate) fn spread() -> f64 {
    // The standard library seeds each hasher with random keys.
    let number = RandomState::new().hash_one(0_u8) >> 11;
    number as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    fn facts(lifetime: i64) -> Facts {
        Facts {
            public_key: Vec::new(),
            not_before: 0,
            not_after: lifetime,
            is_temporary: false,
            id: None,
            obstacle: None,
            demands_staple: false,
        }
    }

    #[test]
    fn a_third_of_the_life_is_left() {
        assert_eq!(renewal(&facts(90 * DAY), None, 0.0), 60 * DAY);
        assert_eq!(renewal(&facts(90 * DAY), None, 1.0), 57 * DAY);
        assert_eq!(renewal(&facts(6 * DAY), None, 0.0), 4 * DAY);
        assert_eq!(renewal(&facts(30), None, 1.0), 19);
        assert_eq!(renewal(&facts(0), None, 0.5), 0);
    }

    #[test]
    fn the_authority_may_suggest_a_time() {
        let life = facts(90 * DAY);
        assert_eq!(renewal(&life, Some((50 * DAY, 54 * DAY)), 0.5), 52 * DAY);
        // One in the past is for certificates that will be revoked, but not at the moment of their issue.
        assert_eq!(renewal(&life, Some((-2 * DAY, -DAY)), 0.5), LEAST_AGE);
        assert_eq!(renewal(&life, Some((89 * DAY, 91 * DAY)), 1.0), 81 * DAY);
        assert_eq!(renewal(&life, Some((54 * DAY, 50 * DAY)), 0.0), 60 * DAY);
        assert_eq!(renewal(&facts(30), Some((-DAY, DAY)), 0.0), 20);
        // An order takes some seconds.
        assert_eq!(renewal(&facts(20), Some((10, 25)), 1.0), 15);
    }

    #[test]
    fn the_spread_is_within_its_bounds() {
        let all: Vec<_> = (0..100).map(|_| spread()).collect();
        assert!(all.iter().all(|one| (0.0..1.0).contains(one)));
        assert!(all.iter().any(|one| *one < 0.5) && all.iter().any(|one| *one >= 0.5));
    }
}

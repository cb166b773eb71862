//! Which known name somebody may have meant.

use std::cmp::Reverse;

use strsim::osa_distance;

/// How many letters in a hundred may differ.
const MAX_DIFFERENCE_PERCENT: usize = 40;

/// Names longer than this are compared with nothing.
const MAX_NAME: usize = 128;

/// The known name that is most like `name`, if any is much like it; of equals, the longest, for letters are
/// left out more often than doubled; of these, the first in the alphabet.
pub fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    if name.len() > MAX_NAME {
        return None;
    }
    let most = (name.len() * MAX_DIFFERENCE_PERCENT / 100).max(1);
    known
        .filter(|known| known.len().abs_diff(name.len()) <= most)
        .map(|known| (osa_distance(name, known), known))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, known)| (*distance, Reverse(known.len()), *known))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found() {
        let known = ["list", "listen", "upstream", "site", "metrics"];
        let near = |name: &str| nearest(name, known.into_iter());
        assert_eq!(near("lisen"), Some("listen"));
        assert_eq!(near("listn"), Some("listen"));
        assert_eq!(near("upstraem"), Some("upstream"));
        assert_eq!(near("sites"), Some("site"));
        assert_eq!(near("quite-different"), None);
    }
}

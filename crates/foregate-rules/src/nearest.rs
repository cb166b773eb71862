//! Finds the known name that was probably meant by an unknown one.

use std::cmp::Reverse;

use strsim::osa_distance;

/// The greatest percentage of letters that may differ.
const MAX_DIFFERENCE_PERCENT: usize = 40;

/// The longest name, in bytes, for which a similar one is searched.
const MAX_NAME: usize = 128;

/// The known name that is most similar to `name`; `None` if none is similar enough. Of equally similar names, the
/// longest one is chosen, because letters are more often left out than doubled, and then the first in the alphabet.
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

//! Which known name somebody may have meant.

use std::cmp::Reverse;

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
        .map(|known| (distance(name.as_bytes(), known.as_bytes()), known))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, known)| (*distance, Reverse(known.len()), *known))
        .map(|(_, known)| known)
}

/// How many bytes have to be put in, taken out, replaced or swapped with their neighbour to make one text of the other.
fn distance(left: &[u8], right: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, r) in right.iter().enumerate() {
            let replaced = row[j] + usize::from(l != r);
            let mut least = replaced.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && left[i - 1] == *r && right[j - 1] == *l {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[right.len()]
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
        assert_eq!(distance(b"ab", b"ba"), 1);
        assert_eq!(distance(b"", b"abc"), 3);
    }
}

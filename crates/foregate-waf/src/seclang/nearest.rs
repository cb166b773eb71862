//! Finds the known name that the author of a rule may have meant.

use strsim::osa_distance;

/// The largest difference between two similar names, in percent of the letters.
const MAX_DIFFERENCE_PERCENT: usize = 34;

/// The longest name, in bytes, for which a similar one is searched.
const MAX_NAME: usize = 64;

/// The known name that is most similar to `name`, ignoring case; `None` if no name is similar enough. Of
/// equally similar names, the first in the alphabet.
pub(super) fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    if name.len() > MAX_NAME {
        return None;
    }
    let most = (name.len() * MAX_DIFFERENCE_PERCENT / 100).max(1);
    let name = name.to_ascii_lowercase();
    known
        .filter(|known| known.len().abs_diff(name.len()) <= most)
        .map(|known| (osa_distance(&name, &known.to_ascii_lowercase()), known))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, known)| known)
}

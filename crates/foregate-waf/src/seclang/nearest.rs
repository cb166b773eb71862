//! Which known name somebody may have meant.

use strsim::osa_distance;

/// How many letters in a hundred may differ.
const MAX_DIFFERENCE_PERCENT: usize = 34;

/// Names longer than this are compared with nothing.
const MAX_NAME: usize = 64;

/// The known name that is most like `name` whatever the case, if any is much like it; of equals, the first in the
/// alphabet.
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

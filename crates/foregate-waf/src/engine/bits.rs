//! Sets of small numbers, as words of 64 bits.

/// A set of numbers below a bound. The bound is fixed when the set is made, and rounded up to whole words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bits {
    words: Box<[u64]>,
}

impl Bits {
    /// The empty set over numbers below `bound`.
    pub(crate) fn new(bound: usize) -> Self {
        Self { words: vec![0; bound.div_ceil(64)].into_boxed_slice() }
    }

    /// The words of the set; the lowest numbers are in the first word.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds a number. A number beyond the bound is ignored.
    pub(crate) fn insert(&mut self, number: usize) {
        if let Some(word) = self.words.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }

    /// Returns true if the number is in the set.
    #[inline]
    pub(crate) fn contains(&self, number: usize) -> bool {
        contains(&self.words, number)
    }

    /// Adds all numbers of another set.
    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine |= theirs;
        }
    }

    /// Returns true if the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Makes this set equal to `other`. Keeps the allocated memory if the bounds are equal.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        if self.words.len() == other.words.len() {
            self.words.copy_from_slice(&other.words);
        } else {
            self.words = other.words.clone();
        }
    }

    /// The lowest number in the set that is not below `from`.
    #[inline]
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        let first = from / 64;
        let mut word = self.words.get(first)? & (u64::MAX << (from % 64));
        let mut at = first;
        loop {
            if word != 0 {
                return Some(at * 64 + word.trailing_zeros() as usize);
            }
            at += 1;
            word = *self.words.get(at)?;
        }
    }

    /// The numbers in the set, lowest first.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        ones(&self.words)
    }
}

/// Returns true if the number is in a set given as words.
#[inline]
pub(crate) fn contains(words: &[u64], number: usize) -> bool {
    words.get(number / 64).is_some_and(|word| word & (1 << (number % 64)) != 0)
}

/// The numbers of a set given as words, lowest first.
pub(crate) fn ones(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    words.iter().enumerate().flat_map(|(at, word)| {
        let mut left = *word;
        std::iter::from_fn(move || {
            (left != 0).then(|| {
                let bit = left.trailing_zeros() as usize;
                left &= left - 1;
                at * 64 + bit
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_finds_what_iter_finds() {
        let mut bits = Bits::new(200);
        for number in [0, 1, 63, 64, 130, 199, 256, 1000] {
            bits.insert(number);
        }
        assert_eq!(bits.iter().collect::<Vec<_>>(), [0, 1, 63, 64, 130, 199]);
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(number) = bits.next(from) {
            found.push(number);
            from = number + 1;
        }
        assert_eq!(found, [0, 1, 63, 64, 130, 199]);
        assert!(bits.contains(63) && !bits.contains(62) && !bits.contains(10_000));
    }
}

//! Sets of steps.

/// A set of steps, by their numbers in the pipeline: one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Steps([u64; Self::WORDS]);

impl Steps {
    const WORDS: usize = 4;
    /// How many steps a pipeline may have.
    pub const LIMIT: usize = 64 * Self::WORDS;
    /// No step.
    pub const NONE: Self = Self([0; Self::WORDS]);

    /// The set with one more step.
    #[must_use]
    pub const fn with(mut self, step: usize) -> Self {
        if step < Self::LIMIT {
            self.0[step / 64] |= 1 << (step % 64);
        }
        self
    }

    /// Returns true if a step is in the set.
    pub const fn contains(&self, step: usize) -> bool {
        step < Self::LIMIT && self.0[step / 64] >> (step % 64) & 1 == 1
    }

    /// The union of two sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(core::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// The intersection of two sets.
    #[must_use]
    pub(crate) fn both(self, other: Self) -> Self {
        Self(core::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }
}

//! Compact memory for tables that do not change once they are built.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::sys::Pages;

/// The least size of a table that is moved to pages of its own, bytes. A smaller one occupies few pages anyway.
const LARGE: usize = 1 << 20;

/// A table that grows while it is built, and is only read afterwards.
pub(super) struct CompactTable<T> {
    growing: Vec<T>,
    /// All entries, if the table is complete and large.
    pages: Option<Pages<T>>,
}

impl<T: Copy> CompactTable<T> {
    /// The entries, to add further ones.
    pub(super) fn growing(&mut self) -> &mut Vec<T> {
        if let Some(pages) = self.pages.take() {
            self.growing = pages.to_vec();
        }
        &mut self.growing
    }

    /// Completes the table: frees the memory that growing has left over.
    pub(super) fn settle(&mut self) {
        if self.pages.is_none() && size_of_val(&self.growing[..]) >= LARGE {
            self.pages = Pages::new(&self.growing);
        }
        if self.pages.is_some() {
            self.growing = Vec::new();
        }
        self.growing.shrink_to_fit();
    }
}

impl<T> From<Vec<T>> for CompactTable<T> {
    fn from(growing: Vec<T>) -> Self {
        Self { growing, pages: None }
    }
}

impl<T> Default for CompactTable<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T: fmt::Debug> fmt::Debug for CompactTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Deref for CompactTable<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.pages {
            Some(pages) => pages,
            None => &self.growing,
        }
    }
}

impl<T> DerefMut for CompactTable<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.pages {
            Some(pages) => pages,
            None => &mut self.growing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_table_moves_and_can_grow_again() {
        let mut store = CompactTable::default();
        store.growing().extend(0..400_000_u32);
        store.settle();
        assert!(store.pages.is_some() && store.growing.capacity() == 0);
        store[1] = 7;
        store.growing().push(8);
        store.settle();
        assert_eq!((store.len(), store[1], store[399_999], store[400_000]), (400_001, 7, 399_999, 8));
        let mut small = CompactTable::default();
        small.growing().push(1_u8);
        small.settle();
        assert!(small.pages.is_none());
    }
}

//! The memory of brotli's state: it does not report it, so allocations are counted.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use brotli::enc::{Allocator, BrotliAlloc, SliceWrapper, StandardAlloc};

/// Bytes that are held. Clones count together.
#[derive(Debug, Clone, Default)]
pub(super) struct CountedBytes(Arc<AtomicUsize>);

impl CountedBytes {
    /// Bytes that were allocated and not freed.
    pub(super) fn held(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T: Clone + Default> Allocator<T> for CountedBytes {
    type AllocatedMemory = <StandardAlloc as Allocator<T>>::AllocatedMemory;

    fn alloc_cell(&mut self, length: usize) -> Self::AllocatedMemory {
        self.0.fetch_add(length.saturating_mul(size_of::<T>()), Ordering::Relaxed);
        StandardAlloc::default().alloc_cell(length)
    }

    fn free_cell(&mut self, memory: Self::AllocatedMemory) {
        let bytes = memory.slice().len().saturating_mul(size_of::<T>());
        // Memory that its user made itself was never counted.
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| Some(held.saturating_sub(bytes)));
    }
}

impl BrotliAlloc for CountedBytes {}

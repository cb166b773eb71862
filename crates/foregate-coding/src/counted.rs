//! The memory of brotli's state. The library does not report it, so its allocations are counted.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use brotli::enc::{Allocator, BrotliAlloc, SliceWrapper, StandardAlloc};

/// An allocator that counts the bytes it has handed out. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(super) struct CountedBytes(Arc<AtomicUsize>);

impl CountedBytes {
    /// Bytes that were allocated and have not been freed.
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
        // The count saturates: brotli also frees memory that it did not allocate here, which was never counted.
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| Some(held.saturating_sub(bytes)));
    }
}

impl BrotliAlloc for CountedBytes {}

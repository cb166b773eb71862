//! Memory that a thread keeps for its next users: buffers, timers, request objects.
//!
//! Users empty a value before they return it, so that the next one sees nothing of them.

use std::cell::RefCell;
use std::thread::LocalKey;

/// Values that lie ready on one thread, up to a number. Further ones go back to the allocator.
#[derive(Debug)]
pub struct Shelf<T> {
    values: RefCell<Vec<T>>,
    most: usize,
}

impl<T> Shelf<T> {
    /// An empty shelf for at most this many values.
    pub const fn new(most: usize) -> Self {
        Self { values: RefCell::new(Vec::new()), most }
    }

    /// A value that lies ready.
    #[inline]
    pub fn take(&self) -> Option<T> {
        self.values.borrow_mut().pop()
    }

    /// Returns a value.
    #[inline]
    pub fn give(&self, value: T) {
        let mut values = self.values.borrow_mut();
        if values.len() < self.most {
            values.push(value);
        } else {
            // Dropping the value may use the shelf, so the borrow ends first.
            drop(values);
            drop(value);
        }
    }
}

/// Takes a value of this thread's shelf. There is none on a thread that ends.
#[inline]
pub fn take<T>(shelf: &'static LocalKey<Shelf<T>>) -> Option<T> {
    shelf.try_with(Shelf::take).ok().flatten()
}

/// Returns a value to this thread's shelf. On a thread that ends, the value goes with it.
#[inline]
pub fn give<T>(shelf: &'static LocalKey<Shelf<T>>, value: T) {
    let _ = shelf.try_with(|shelf| shelf.give(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static NUMBERS: Shelf<Box<u8>> = const { Shelf::new(2) };
        static NESTED: Shelf<Returned> = const { Shelf::new(1) };
    }

    struct Returned(u8);

    impl Drop for Returned {
        fn drop(&mut self) {
            if self.0 > 0 {
                give(&NESTED, Self(self.0 - 1));
            }
        }
    }

    #[test]
    fn a_shelf_is_bounded_and_of_its_thread() {
        (1..=3).for_each(|number| give(&NUMBERS, Box::new(number)));
        assert_eq!(std::thread::spawn(|| take(&NUMBERS)).join().unwrap(), None);
        let left: Vec<_> = std::iter::from_fn(|| take(&NUMBERS)).map(|number| *number).collect();
        assert_eq!(left, [2, 1]);
    }

    #[test]
    fn the_end_of_a_value_may_use_the_shelf() {
        give(&NESTED, Returned(0));
        give(&NESTED, Returned(3));
        assert_eq!(take(&NESTED).map(|value| value.0), Some(0));
    }
}

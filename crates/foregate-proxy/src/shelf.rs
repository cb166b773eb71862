//! Objects that a thread keeps for reuse, such as buffers, timers and request objects.
//!
//! A user empties an object before it returns it, so that the next user sees none of its data.

use std::cell::RefCell;
use std::thread::LocalKey;

/// A bounded number of values that are ready for reuse on one thread. Further returned values are freed.
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

    /// Takes a value from the shelf; `None` if it is empty.
    #[inline]
    pub fn take(&self) -> Option<T> {
        self.values.borrow_mut().pop()
    }

    /// Returns a value to the shelf.
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

/// Takes a value from this thread's shelf. A thread that is ending has no shelf any more.
#[inline]
pub fn take<T>(shelf: &'static LocalKey<Shelf<T>>) -> Option<T> {
    shelf.try_with(Shelf::take).ok().flatten()
}

/// Returns a value to this thread's shelf. On a thread that is ending, the value is dropped.
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

//! The elements that are open.

use std::collections::HashMap;

use super::names::{FREE, Name};

/// An end tag's element is searched for among this many elements that were opened last. For the elements before them,
/// the names are counted. So an end tag without an element is cheap, however many elements are open.
const SEARCHED: usize = 64;

/// The list of open elements.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// The names of the open elements, with the flag [`FREE`] if a feature waits for the end of the element.
    names: Vec<Name>,
    /// The number of names, from the outermost element on, that are in `counts`.
    counted: usize,
    counts: HashMap<Name, usize>,
}

impl Open {
    /// Adds an element. `awaited` is true if a feature waits for its end.
    #[inline]
    pub fn push(&mut self, name: Name, awaited: bool) {
        self.names.push(if awaited { name | FREE } else { name });
        if self.names.len() - self.counted > 2 * SEARCHED {
            self.count();
        }
    }

    /// Counts the names of elements that are not searched any more.
    #[cold]
    fn count(&mut self) {
        let end = self.names.len() - SEARCHED;
        for name in self.names.get(self.counted..end).unwrap_or_default() {
            *self.counts.entry(name & !FREE).or_default() += 1;
        }
        self.counted = end;
    }

    /// Handles an end tag: closes the last opened element of this name, and all elements in it. Returns true if a feature
    /// waits for the end of the element.
    #[inline]
    pub fn close(&mut self, name: Name) -> bool {
        // Nearly always, the last element matches.
        if let Some(open) = self.names.last()
            && open & !FREE == name
            && self.counted < self.names.len()
        {
            let awaited = open & FREE != 0;
            self.names.pop();
            return awaited;
        }
        self.close_outer(name)
    }

    /// Closes an element that need not be the last one.
    fn close_outer(&mut self, name: Name) -> bool {
        let searched = self.names.get(self.counted..).unwrap_or_default();
        let found = searched.iter().rposition(|open| open & !FREE == name);
        match found.map(|at| self.counted + at).or_else(|| self.deep(name)) {
            Some(at) => {
                let awaited = self.names.get(at).is_some_and(|open| open & FREE != 0);
                self.names.truncate(at);
                awaited
            }
            None => false,
        }
    }

    /// Finds the last element of this name among the counted ones. This element and those after it are then removed from
    /// the counts.
    #[cold]
    fn deep(&mut self, name: Name) -> Option<usize> {
        if !self.counts.contains_key(&name) {
            return None;
        }
        let at = self.names.iter().take(self.counted).rposition(|open| open & !FREE == name)?;
        for name in self.names.get(at..self.counted).unwrap_or_default() {
            if let Some(count) = self.counts.get_mut(&(name & !FREE)) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&(name & !FREE));
                }
            }
        }
        self.counted = at;
        Some(at)
    }

    /// About how much memory it has, bytes.
    pub fn held(&self) -> usize {
        size_of::<Name>() * self.names.capacity() + 2 * size_of::<(Name, usize)>() * self.counts.capacity()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn end_tags_without_an_element_are_cheap() {
        let mut open = Open::default();
        (0..20_000).for_each(|number| open.push(2 + number % 5_000, false));
        // Each would otherwise go through all of them: more than a minute.
        assert!((0..100_000).all(|number| !open.close(20_000 + number)));
        assert!(open.held() < 4 << 20);
    }

    proptest! {
        #[test]
        fn it_is_the_last_of_its_name_that_is_closed(tags in proptest::collection::vec((any::<bool>(), 2_u128..40, any::<bool>()), 0..2000)) {
            let (mut open, mut plain) = (Open::default(), Vec::new());
            for (closes, name, awaited) in tags {
                if closes && name % 3 == 0 {
                    let at = plain.iter().rposition(|(open, _)| *open == name);
                    let expected = at.is_some_and(|at| plain.drain(at..).next().is_some_and(|(_, awaited)| awaited));
                    prop_assert_eq!(open.close(name), expected);
                } else {
                    open.push(name, awaited);
                    plain.push((name, awaited));
                }
            }
            prop_assert_eq!(open.names.len(), plain.len());
        }
    }
}

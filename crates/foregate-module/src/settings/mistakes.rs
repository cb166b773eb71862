//! Collects the errors in the parts of settings.

use super::Problem;

/// Collects the errors of several parts of the settings. For a tuple or a list, use [`together`] and [`each`] instead.
#[derive(Debug, Default)]
pub struct Mistakes(Option<Problem>);

impl Mistakes {
    /// Returns the value, or records the error.
    pub fn kept<T>(&mut self, read: Result<T, Problem>) -> Option<T> {
        read.map_err(|problem| self.add(problem)).ok()
    }

    /// Records one mistake.
    pub fn add(&mut self, problem: Problem) {
        self.0 = Some(match self.0.take() {
            Some(first) => first.and(problem),
            None => problem,
        });
    }

    /// Returns `Ok` if there are no errors.
    ///
    /// # Errors
    ///
    /// Returns the collected mistakes as one problem.
    pub fn none(self) -> Result<(), Problem> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Reads all parts of a tuple. Check conditions between several parts after this call, when all of them could be read:
/// then a misspelt part is not reported as missing.
///
/// ```
/// # use foregate_module::settings::{Node, Problem, together};
/// fn read(node: &Node) -> Result<(u64, bool), Problem> {
///     let least = node.arg(0).and_then(|least| least.number(1..=9));
///     let strict = node.prop("strict").map_or(Ok(false), |strict| strict.flag());
///     let (least, strict) = together((least, strict))?;
///     if strict && least < 2 {
///         return Err(node.wrong("what is strict needs 2 at least"));
///     }
///     Ok((least, strict))
/// }
/// # use foregate_module::testing::node;
/// # let problem = read(&node("a").arg_literal(0).prop_literal("strict", "yes")).unwrap_err();
/// # assert_eq!(problem.further.len(), 1);
/// # assert!(read(&node("a").arg_literal(1).prop_literal("strict", true)).unwrap_err().further.is_empty());
/// ```
///
/// # Errors
///
/// The errors of all parts, as one problem.
pub fn together<P: Parts>(parts: P) -> Result<P::Read, Problem> {
    parts.read()
}

/// Reads each of many parts of the same type.
///
/// ```
/// # use foregate_module::settings::{Node, Problem, each};
/// fn read(node: &Node) -> Result<Vec<u64>, Problem> {
///     each(node.args().iter().map(|argument| argument.number(1..=9)))
/// }
/// # use foregate_module::testing::node;
/// # let problem = read(&node("a").arg_literal(0).arg_literal(1).arg_literal(10)).unwrap_err();
/// # assert_eq!(problem.further.len(), 1);
/// ```
///
/// # Errors
///
/// The errors of all parts, as one problem.
pub fn each<T, C: FromIterator<T>>(
    parts: impl IntoIterator<Item = Result<T, Problem>>,
) -> Result<C, Problem> {
    let mut mistakes = Mistakes::default();
    let read = parts.into_iter().filter_map(|part| mistakes.kept(part)).collect();
    mistakes.none().map(|()| read)
}

/// Tuples of read parts, for [`together`].
pub trait Parts {
    /// The tuple without errors.
    type Read;

    /// See [`together`].
    ///
    /// # Errors
    ///
    /// The errors of all parts.
    fn read(self) -> Result<Self::Read, Problem>;
}

fn both<A, B>(first: Result<A, Problem>, second: Result<B, Problem>) -> Result<(A, B), Problem> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok((first, second)),
        (Err(first), Err(second)) => Err(first.and(second)),
        (Err(problem), Ok(_)) | (Ok(_), Err(problem)) => Err(problem),
    }
}

macro_rules! nested {
    ($with:ident $only:ident) => { $only };
    (both $first:ident $($rest:ident)+) => { both($first, nested!(both $($rest)+)) };
    (pair $first:ident $($rest:ident)+) => { ($first, nested!(pair $($rest)+)) };
}

macro_rules! parts {
    ($($type:ident $part:ident),+) => {
        impl<$($type),+> Parts for ($(Result<$type, Problem>,)+) {
            type Read = ($($type,)+);

            fn read(self) -> Result<Self::Read, Problem> {
                let ($($part,)+) = self;
                let nested!(pair $($part)+) = nested!(both $($part)+)?;
                Ok(($($part,)+))
            }
        }
    };
}

parts!(A a, B b);
parts!(A a, B b, C c);
parts!(A a, B b, C c, D d);
parts!(A a, B b, C c, D d, E e);
parts!(A a, B b, C c, D d, E e, F f);
parts!(A a, B b, C c, D d, E e, F f, G g);
parts!(A a, B b, C c, D d, E e, F f, G g, H h);

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::{each, together};
    use crate::settings::Problem;

    fn wrong<T>(message: &str) -> Result<T, Problem> {
        Err(Problem::new(Default::default(), message))
    }

    fn messages<T>(read: Result<T, Problem>) -> Vec<alloc::string::String> {
        let problem = read.err().unwrap();
        core::iter::once(problem.message)
            .chain(problem.further.into_iter().map(|more| more.message))
            .collect()
    }

    #[test]
    fn all_that_is_wrong_is_told_in_its_order() {
        assert_eq!(together((Ok(1), Ok("a"), Ok(true))), Ok((1, "a", true)));
        let several = together((wrong::<u8>("a"), Ok(1), together((wrong::<u8>("b"), wrong::<()>("c")))));
        assert_eq!(messages(several), ["a", "b", "c"]);
        assert_eq!(each([Ok(1), Ok(2)]), Ok(Vec::from([1, 2])));
        assert_eq!(messages(each::<_, Vec<u8>>([Ok(1), wrong("a"), Ok(2), wrong("b")])), ["a", "b"]);
    }
}

//! Compiled expressions that are evaluated for an exchange.

use alloc::borrow::Cow;
use core::ops::ControlFlow;

use crate::input::View;

/// A compiled expression of type bool about an exchange.
pub trait Condition: Send + Sync {
    /// Returns true if the condition holds.
    fn holds(&self, view: &View<'_>) -> bool;
}

/// A compiled expression about an exchange. Its value is converted to bytes.
pub trait Expression: Send + Sync {
    /// The value; `None` if a part of the exchange that the expression needs is missing.
    fn evaluate<'v>(&'v self, view: &View<'v>) -> Option<Cow<'v, [u8]>>;
}

/// Many conditions that are compiled together, so that each part of an exchange is examined once for all of them.
pub trait Conditions: Send + Sync {
    /// Calls `visit` with the number of each condition that holds, in order, until `visit` returns `Break`.
    fn each(&self, view: &View<'_>, visit: &mut dyn FnMut(usize) -> ControlFlow<()>);

    /// Calls `visit` with the number of each condition that has another result for one of
    /// [`Exchange::other_paths`](crate::Exchange::other_paths), until `visit` returns `Break`. A number may be passed more
    /// than once. The caller decides whether [the path is in doubt](crate::Exchange::doubt_path).
    fn each_in_doubt(&self, _view: &View<'_>, _visit: &mut dyn FnMut(usize) -> ControlFlow<()>) {}
}

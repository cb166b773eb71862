//! Compiled expressions over an exchange.

use alloc::borrow::Cow;
use core::ops::ControlFlow;

use crate::input::View;

/// An expression of type bool over an exchange, compiled.
pub trait Condition: Send + Sync {
    /// Returns true if it holds.
    fn holds(&self, view: &View<'_>) -> bool;
}

/// An expression over an exchange, compiled; its value is turned into bytes.
pub trait Expression: Send + Sync {
    /// The value; `None` if a part that it needs is absent.
    fn evaluate<'v>(&'v self, view: &View<'v>) -> Option<Cow<'v, [u8]>>;
}

/// Many conditions, compiled together so that conditions about the same part share one look at it.
pub trait Conditions: Send + Sync {
    /// Calls `visit` with the number of each condition that holds, in order, until it breaks.
    fn each(&self, view: &View<'_>, visit: &mut dyn FnMut(usize) -> ControlFlow<()>);

    /// Calls `visit` with the number of each that comes to something else for one of [`Exchange::other_paths`](crate::Exchange::other_paths), until it
    /// breaks; with some perhaps more than once. Whether [the path is in doubt](crate::Exchange::doubt_path) then is the caller's to say.
    fn each_in_doubt(&self, _view: &View<'_>, _visit: &mut dyn FnMut(usize) -> ControlFlow<()>) {}
}

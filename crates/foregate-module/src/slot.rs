//! Slots, which are the inputs and outputs of steps, and the values of a pipeline.

use core::any::Any;
use core::fmt;

use crate::phase_id::PhaseId;
use crate::value::{Kind, Shown, Value};

/// An input or output of a step.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    /// Its name.
    pub name: &'static str,
    /// Its access.
    pub access: Access,
    /// The kind of the value in expressions; `None` if expressions cannot read it.
    pub shows: Option<Kind>,
    /// How expressions read the value.
    pub(crate) show: Show,
    /// The function that shrinks the value when memory is short.
    pub(crate) shrink: Shrink,
    /// Its description, a sentence; empty for inputs of the platform.
    pub about: &'static str,
    /// The value that the platform writes in answer to this value.
    pub answer: Option<&'static str>,
}

/// The kind of an input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Something that the platform knows, or a part of the exchange that any number of steps may change.
    Platform,
    /// A part of the exchange that only one step of the pipeline may change.
    Only,
    /// A value of a step.
    Value,
    /// A value that moves out of its slot to the step that reads it. For inputs only.
    Moved,
    /// A list to which any number of steps add, before other steps read it.
    List,
}

impl Slot {
    /// An input of the platform.
    pub const fn builtin(name: &'static str) -> Self {
        Self {
            name,
            access: Access::Platform,
            shows: None,
            show: show_nothing,
            shrink: shrink_nothing,
            about: "",
            answer: None,
        }
    }

    /// A part of the exchange that any number of steps may change.
    pub const fn effect(name: &'static str) -> Self {
        Self::builtin(name)
    }

    /// A part of the exchange that only one step may change.
    pub const fn only(name: &'static str) -> Self {
        Self { access: Access::Only, ..Self::builtin(name) }
    }

    /// A value of a step.
    pub const fn value<V: Value>() -> Self {
        Self {
            name: V::NAME,
            access: Access::Value,
            shows: V::SHOWS,
            show: show::<V>,
            shrink: shrink::<V>,
            about: V::ABOUT,
            answer: V::ANSWER,
        }
    }

    /// A value of a step, which moves to the step that reads it.
    pub const fn moved<V: Value>() -> Self {
        Self { access: Access::Moved, ..Self::value::<V>() }
    }

    /// A list to which steps add values.
    pub const fn list<V: Value>() -> Self {
        Self {
            access: Access::List,
            shows: None,
            show: show_nothing,
            shrink: shrink_nothing,
            ..Self::value::<V>()
        }
    }

    /// Returns true if the input or output has a slot of its own.
    pub const fn is_kept(&self) -> bool {
        matches!(self.access, Access::Value | Access::Moved | Access::List)
    }
}

/// Converts a value for expressions.
pub(crate) type Show = fn(&(dyn Any + Send + Sync)) -> Option<Shown<'_>>;

pub(crate) fn show<V: Value>(value: &(dyn Any + Send + Sync)) -> Option<Shown<'_>> {
    value.downcast_ref().and_then(V::show)
}

pub(crate) fn show_nothing(_: &(dyn Any + Send + Sync)) -> Option<Shown<'_>> {
    None
}

/// Shrinks a value when memory is short. Returns true if what remains may be kept.
pub(crate) type Shrink = fn(&mut (dyn Any + Send + Sync)) -> bool;

pub(crate) fn shrink<V: Value>(value: &mut (dyn Any + Send + Sync)) -> bool {
    value.downcast_mut().is_some_and(V::shrink)
}

pub(crate) fn shrink_nothing(_: &mut (dyn Any + Send + Sync)) -> bool {
    false
}

/// A value of a pipeline. Its number is its index in [`Pipeline::values`](crate::Pipeline::values).
#[derive(Clone, Copy)]
pub struct ValueInfo {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// The kind of the value in expressions; `None` if expressions cannot read it.
    pub shows: Option<Kind>,
    /// The phase in which it is written: expressions of later phases may read it.
    pub phase: PhaseId,
    pub(crate) show: Show,
    pub(crate) shrink: Shrink,
}

impl ValueInfo {
    pub(crate) fn show<'v>(&self, value: &'v (dyn Any + Send + Sync)) -> Option<Shown<'v>> {
        (self.show)(value)
    }
}

impl fmt::Debug for ValueInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

//! What the platform keeps of an exchange on behalf of the steps.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;

use crate::body::Filtered;
use crate::input::{Input, ReadableAt, View};
use crate::phase_id::Phase;
use crate::plan::Steps;
use crate::text::Text;
use crate::value::Value;

/// The values that steps have written, one slot for each value of the pipeline.
#[derive(Default)]
pub struct Slots(Vec<Option<Box<dyn Any + Send + Sync>>>);

impl Slots {
    /// The value in a slot, if it has been written.
    pub fn get(&self, slot: u16) -> Option<&(dyn Any + Send + Sync)> {
        self.0.get(usize::from(slot))?.as_deref()
    }

    /// Writes a value.
    pub fn put(&mut self, slot: u16, value: Box<dyn Any + Send + Sync>) {
        let slot = usize::from(slot);
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot] = Some(value);
    }

    /// Takes a value out.
    pub fn take(&mut self, slot: u16) -> Option<Box<dyn Any + Send + Sync>> {
        self.0.get_mut(usize::from(slot))?.take()
    }
}

/// What the platform keeps of an exchange on behalf of the steps: a `Default` at its start.
#[derive(Default)]
pub struct State {
    /// The values.
    pub slots: Slots,
    /// Steps that run no more.
    pub skipped: Steps,
    /// Filters of the request's body, in their order.
    pub request_filters: Vec<Filtered>,
    /// Filters of the response's body, in their order.
    pub response_filters: Vec<Filtered>,
    /// What the access log is to say beside its own fields.
    pub notes: Vec<(Text, Text)>,
    /// What the step that ran last wants to have counted.
    pub events: Vec<&'static str>,
    /// Slots of fetches that have been emitted and not been performed.
    pub fetches: Vec<u16>,
}

impl State {
    /// The start of another exchange. Memory is kept.
    pub fn clear(&mut self) {
        self.slots.0.clear();
        self.skipped = Steps::NONE;
        self.request_filters.clear();
        self.response_filters.clear();
        self.notes.clear();
        self.events.clear();
        self.fetches.clear();
    }
}

/// A value of an earlier step; `None` if it did not run, or wrote none.
pub struct Read<'r, V: Value>(pub Option<&'r V::Data>);

impl<'r, V: Value> Input<'r> for Read<'r, V> {
    const SLOT: crate::check::Slot = crate::check::Slot::value::<V>();
    fn read(view: &View<'r>, slot: u16) -> Self {
        Self(view.slot(slot).and_then(|value| value.downcast_ref()))
    }
}

impl<P: Phase, V: Value> ReadableAt<P> for Read<'_, V> {}

//! The state that the platform keeps of an exchange for its steps.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::Cell;

use crate::body::Filtered;
use crate::fetch::{FetchRequest, FetchResult};
use crate::input::{Input, ReadableAt, View};
use crate::output::LogLine;
use crate::phase_id::Phase;
use crate::slot::{Access, Slot};
use crate::steps::Steps;
use crate::text::Text;
use crate::value::Value;

/// The values that steps have written, one slot for each value of the pipeline.
///
/// If a value owns no memory (a number, for example), its box is kept when the slots are cleared, and the next exchange
/// reuses the box.
#[derive(Default)]
pub struct Slots {
    all: Vec<StateSlot>,
    /// The slots that may have been written since they were cleared.
    touched: Vec<u16>,
}

/// The largest value whose memory is kept, bytes.
const KEPT: usize = 64;

#[derive(Default)]
struct StateSlot {
    value: Option<Box<dyn Any + Send + Sync>>,
    /// Set if `value` belongs to this exchange. If not set, `value` is only memory that can be reused.
    written: bool,
    /// Set if a step in a dry run has written the value: only steps in a dry run see it.
    dry: bool,
    /// Set if the memory can be reused.
    plain: bool,
}

impl StateSlot {
    /// Empties the slot, but keeps memory that can be reused.
    fn unwrite(&mut self) {
        self.written = false;
        if !self.plain {
            self.value = None;
        }
    }
}

impl Slots {
    /// The value in a slot, if it has been written.
    pub fn get(&self, slot: u16) -> Option<&(dyn Any + Send + Sync)> {
        self.see(slot, false)
    }

    /// The value in a slot, if it has been written. Only steps in a dry run (`dry`) see values of dry runs.
    pub(crate) fn see(&self, slot: u16, dry: bool) -> Option<&(dyn Any + Send + Sync)> {
        let slot = self.all.get(usize::from(slot)).filter(|slot| slot.written && (dry || !slot.dry))?;
        slot.value.as_deref()
    }

    /// Writes a value.
    pub fn put(&mut self, slot: u16, value: Box<dyn Any + Send + Sync>) {
        *self.at(slot) = StateSlot { value: Some(value), written: true, dry: false, plain: false };
    }

    /// Writes a value, in a dry run or not.
    pub(crate) fn write<T: Any + Send + Sync>(&mut self, slot: u16, value: T, dry: bool) {
        let slot = self.at(slot);
        (slot.written, slot.dry) = (true, dry);
        if let Some(kept) = slot.value.as_deref_mut().and_then(|kept| kept.downcast_mut()) {
            *kept = value;
            return;
        }
        slot.plain = !core::mem::needs_drop::<T>() && size_of::<T>() <= KEPT;
        slot.value = Some(Box::new(value));
    }

    /// Takes a value out of its slot, with its memory. A step in a dry run takes only values from dry runs; other steps
    /// take only values from outside of dry runs.
    pub(crate) fn take(&mut self, slot: u16, dry: bool) -> Option<Box<dyn Any + Send + Sync>> {
        let slot = self.all.get_mut(usize::from(slot)).filter(|slot| slot.written && slot.dry == dry)?;
        slot.written = false;
        slot.value.take()
    }

    /// Takes all values that a step with these inputs requires.
    pub(crate) fn take_all(&mut self, inputs: &[Slot], slots: &[u16], dry: bool) -> MovedValues {
        let mut taken = Vec::new();
        for (input, slot) in inputs.iter().zip(slots) {
            if input.access == Access::Moved
                && let Some(value) = self.take(*slot, dry)
            {
                taken.push((*slot, value));
            }
        }
        MovedValues(Cell::new(taken))
    }

    /// Puts back the values that a step has not kept.
    pub(crate) fn put_back(&mut self, taken: MovedValues, dry: bool) {
        for (slot, value) in taken.0.into_inner() {
            *self.at(slot) = StateSlot { value: Some(value), written: true, dry, plain: false };
        }
    }

    /// Drops a value, unless the value owns no memory, or `shrink` returns true because it has made the value small.
    pub(crate) fn forget(&mut self, slot: u16, shrink: fn(&mut (dyn Any + Send + Sync)) -> bool) {
        if let Some(slot) = self.all.get_mut(usize::from(slot)).filter(|slot| slot.written && !slot.plain)
            && !slot.value.as_deref_mut().is_some_and(shrink)
        {
            *slot = StateSlot::default();
        }
    }

    /// Marks a slot as not written.
    pub(crate) fn unwrite(&mut self, slot: u16) {
        if let Some(slot) = self.all.get_mut(usize::from(slot)) {
            slot.unwrite();
        }
    }

    /// A slot that is about to be written.
    #[inline]
    fn at(&mut self, number: u16) -> &mut StateSlot {
        let place = usize::from(number);
        if self.all.len() <= place {
            self.all.resize_with(place + 1, StateSlot::default);
        }
        let slot = &mut self.all[place];
        if !slot.written {
            self.touched.push(number);
        }
        slot
    }

    fn clear(&mut self) {
        for slot in self.touched.drain(..) {
            if let Some(slot) = self.all.get_mut(usize::from(slot)) {
                slot.unwrite();
            }
        }
    }

    /// Adds to a list, in a dry run or not.
    pub(crate) fn add<T: Any + Send + Sync>(&mut self, slot: u16, item: T, dry: bool) {
        let written = self.all.get_mut(usize::from(slot)).filter(|slot| slot.written);
        let list = written.and_then(|slot| slot.value.as_deref_mut());
        match list.and_then(|value| value.downcast_mut::<Vec<(T, bool)>>()) {
            Some(list) => list.push((item, dry)),
            // Steps inside and outside of dry runs share the list, so `dry` is stored with each entry.
            None => self.write(slot, Vec::from([(item, dry)]), false),
        }
    }

    /// Takes the question out of the slot of a fetch.
    pub fn take_question(&mut self, slot: u16) -> Option<Question> {
        let StateSlot { value, dry, .. } =
            core::mem::take(self.all.get_mut(usize::from(slot)).filter(|slot| slot.written)?);
        Some(Question { request: *value?.downcast().ok()?, dry })
    }

    /// Writes the answer to a question into its slot.
    pub fn answer(&mut self, slot: u16, answer: FetchResult, dry: bool) {
        self.write(slot, answer, dry);
    }
}

/// Values that have been taken out of their slots for a step.
pub(crate) struct MovedValues(Cell<Vec<(u16, Box<dyn Any + Send + Sync>)>>);

impl MovedValues {
    fn take(&self, slot: u16) -> Option<Box<dyn Any + Send + Sync>> {
        let mut taken = self.0.take();
        let at = taken.iter().position(|(number, _)| *number == slot);
        let value = at.map(|at| taken.swap_remove(at).1);
        self.0.set(taken);
        value
    }

    fn put(&self, slot: u16, value: Box<dyn Any + Send + Sync>) {
        let mut taken = self.0.take();
        taken.push((slot, value));
        self.0.set(taken);
    }
}

/// A fetch that a step has asked for.
#[derive(Debug)]
pub struct Question {
    /// The request, with its target.
    pub request: FetchRequest,
    /// Set for a step in a dry run; only such steps see the response.
    pub dry: bool,
}

/// The state that the platform keeps of an exchange for its steps: a `Default` at the start.
#[derive(Default)]
pub struct State {
    /// The values.
    pub slots: Slots,
    /// Steps that must not run any more.
    pub skipped: Steps,
    /// Keys with an evaluated `when`, by [`PlannedStep::key`](crate::PlannedStep::key).
    pub(crate) decided: Steps,
    /// The keys with a true `when`.
    pub(crate) wanted: Steps,
    /// Filters of the request's body, in their order.
    pub request_filters: Vec<Filtered>,
    /// Filters of the response's body, in their order.
    pub response_filters: Vec<Filtered>,
    /// Notes for the access log, in addition to its own fields.
    pub notes: Vec<(Text, Text)>,
    /// The events of the step that ran last.
    pub events: Vec<&'static str>,
    /// The events for parts of the configuration, by their names.
    pub tallies: Vec<(&'static str, Text)>,
    /// Lines for log files that have not been written.
    pub lines: Vec<LogLine>,
    /// Set if a step that was tried on a partial response (206) needs the whole body.
    pub asks_whole: bool,
    /// The length of the response body's start that steps want to read at once, bytes.
    pub hold: usize,
    /// Bytes that values hold, as declared by their steps.
    pub held: usize,
    /// The pending fetches: the slot of each, and the name of the step that asks.
    pub fetches: Vec<(u16, &'static str)>,
}

impl State {
    /// Returns true if the step that ran last has left something to count or to write.
    #[inline]
    pub fn has_news(&self) -> bool {
        !(self.events.is_empty() && self.tallies.is_empty() && self.lines.is_empty()) || self.held != 0
    }

    /// Drops the fetches that have not been made.
    pub(crate) fn forget_fetches(&mut self) {
        for (slot, _) in self.fetches.drain(..) {
            self.slots.take_question(slot);
        }
    }

    /// The start of another exchange. Memory is kept.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.skipped = Steps::NONE;
        self.decided = Steps::NONE;
        self.wanted = Steps::NONE;
        self.request_filters.clear();
        self.response_filters.clear();
        self.notes.clear();
        self.events.clear();
        self.tallies.clear();
        self.lines.clear();
        self.asks_whole = false;
        self.hold = 0;
        self.held = 0;
        self.fetches.clear();
    }
}

/// The entries that earlier steps have [added](crate::Add) to a list, in their order.
pub struct Added<'r, V: Value> {
    entries: &'r [(V::Data, bool)],
}

impl<'r, V: Value> Added<'r, V> {
    /// The entries; each has a flag that is true if a step in a dry run has added it. The step that reads them must make
    /// sure that such an entry has no effect.
    pub fn iter(&self) -> impl Iterator<Item = (&'r V::Data, bool)> + use<'r, V> {
        self.entries.iter().map(|(data, dry)| (data, *dry))
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns true if there are entries, and steps in a dry run have added all of them.
    pub fn is_dry(&self) -> bool {
        !self.entries.is_empty() && self.entries.iter().all(|(_, dry)| *dry)
    }
}

impl<'r, V: Value> Input<'r> for Added<'r, V> {
    const SLOT: Slot = Slot::list::<V>();
    fn read(view: &View<'r>, slot: u16) -> Self {
        let list = view.slot(slot).and_then(|list| list.downcast_ref::<Vec<(V::Data, bool)>>());
        Self { entries: list.map_or(&[], Vec::as_slice) }
    }
}

impl<P: Phase, V: Value> ReadableAt<P> for Added<'_, V> {}

/// A value of an earlier step; `None` if that step did not run, or wrote no value.
pub struct Read<'r, V: Value>(pub Option<&'r V::Data>);

impl<'r, V: Value> Input<'r> for Read<'r, V> {
    const SLOT: Slot = Slot::value::<V>();
    fn read(view: &View<'r>, slot: u16) -> Self {
        Self(view.slot(slot).and_then(|value| value.downcast_ref()))
    }
}

impl<P: Phase, V: Value> ReadableAt<P> for Read<'_, V> {}

/// A value of an earlier step, which moves to this step; `None` if the earlier step did not run, or wrote no value. For
/// later steps, this step has to [emit](crate::Emit) the value again, even if it ends the request
/// ([`EmitAnd`](crate::EmitAnd)). If this step panics, the value is lost.
pub struct Take<V: Value>(pub Option<V::Data>);

impl<'r, V: Value> Input<'r> for Take<V> {
    const SLOT: Slot = Slot::moved::<V>();

    fn read(view: &View<'r>, slot: u16) -> Self {
        let value = view.taken().and_then(|taken| taken.take(slot));
        Self(value.and_then(|value| value.downcast().ok()).map(|value: Box<V::Data>| *value))
    }

    fn put_back(self, view: &View<'r>, slot: u16) {
        if let (Some(data), Some(taken)) = (self.0, view.taken()) {
            taken.put(slot, Box::new(data));
        }
    }
}

impl<P: Phase, V: Value> ReadableAt<P> for Take<V> {}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::sync::Arc;

    use super::Slots;

    fn address(slots: &Slots, slot: u16) -> *const u64 {
        slots.get(slot).unwrap().downcast_ref::<u64>().unwrap()
    }

    #[test]
    fn numbers_are_written_where_those_of_the_last_exchange_were() {
        let mut slots = Slots::default();
        slots.write(3, 7_u64, false);
        let first = address(&slots, 3);
        slots.clear();
        assert!(slots.get(3).is_none() && slots.see(3, true).is_none());
        slots.write(3, 8_u64, false);
        assert_eq!((address(&slots, 3), slots.get(3).unwrap().downcast_ref()), (first, Some(&8_u64)));
        // Another pipeline may use another type for the slot.
        slots.clear();
        slots.write(3, String::from("text"), true);
        assert!(slots.get(3).is_none());
        assert_eq!(slots.see(3, true).unwrap().downcast_ref(), Some(&String::from("text")));
    }

    #[test]
    fn what_owns_something_is_dropped_when_the_exchange_is_over() {
        let owned = Arc::new(());
        let mut slots = Slots::default();
        slots.write(0, Arc::clone(&owned), false);
        slots.write(0, Arc::clone(&owned), false);
        assert_eq!(Arc::strong_count(&owned), 2);
        slots.clear();
        assert_eq!(Arc::strong_count(&owned), 1);
    }

    #[test]
    fn of_what_there_is_no_memory_for_what_is_small_stays() {
        let halve = |value: &mut (dyn core::any::Any + Send + Sync)| {
            value.downcast_mut::<String>().is_some_and(|text| {
                text.truncate(1);
                text == "k"
            })
        };
        let mut slots = Slots::default();
        slots.write(0, String::from("kept"), true);
        slots.write(1, String::from("gone"), false);
        slots.write(2, 7_u64, false);
        (0..4).for_each(|slot| slots.forget(slot, halve));
        assert!(slots.get(0).is_none(), "it is still one of a dry run");
        assert_eq!(slots.see(0, true).unwrap().downcast_ref(), Some(&String::from("k")));
        assert!(slots.see(1, true).is_none());
        assert_eq!(slots.get(2).unwrap().downcast_ref(), Some(&7_u64));
    }
}

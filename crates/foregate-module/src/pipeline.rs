//! All steps of a program, in their order.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::time::Duration;

use crate::check::Decl;
use crate::exchange::Exchange;
use crate::input::{Body, ReceivedRequest, RequestFields, View};
use crate::output::{FilterResponseBody, HoldResponseBody, Output};
use crate::phase_id::PhaseId;
use crate::plan::{Plan, PlannedStep};
use crate::settings::{Context, Key, Node, Problem};
use crate::slot::{Access, Slot, ValueInfo, show_nothing, shrink_nothing};
use crate::state::State;
use crate::step::{Call, ErasedStep, Filter, Load, Swept, Verdict, Weight};
use crate::steps::Steps;
use crate::text::Text;

/// One step of a pipeline.
pub struct Entry {
    pub(crate) step: Box<dyn ErasedStep>,
    decl: &'static Decl,
    inputs: Box<[u16]>,
    outputs: Box<[u16]>,
}

impl Entry {
    /// The step's declaration.
    #[inline]
    pub fn decl(&self) -> &'static Decl {
        self.decl
    }

    /// The key of the configuration that turns the step on; `None` if the step is always on.
    pub fn key(&self) -> Option<&'static Key> {
        self.step.key()
    }

    /// Returns true if the step reads the request as it was received.
    pub fn reads_received(&self) -> bool {
        self.decl().inputs.iter().any(|input| input.name == ReceivedRequest::NAME)
    }

    /// Returns true if the step may read the fields of the request.
    pub(crate) fn reads_request_fields(&self) -> bool {
        let of_filter = |filter: &Filter| matches!(filter, Filter::RequestField(_));
        let reads = |input: &Slot| [RequestFields::NAME, View::NAME].contains(&input.name);
        self.decl().inputs.iter().any(reads) || self.decl().filters.iter().any(of_filter)
    }

    /// Returns true if the step reads the start of the request's body.
    pub fn reads_body(&self) -> bool {
        self.decl().inputs.iter().any(|input| input.name == Body::NAME)
    }

    /// Returns true if the step may ask for the start of the response's body.
    pub fn holds_response(&self) -> bool {
        self.decl().outputs.iter().any(|output| output.name == HoldResponseBody::SLOT.name)
    }

    /// Returns true if the step may filter the response's body.
    pub fn filters_response(&self) -> bool {
        self.decl().outputs.iter().any(|output| output.name == FilterResponseBody::SLOT.name)
    }

    /// Reads the step's settings.
    ///
    /// # Errors
    ///
    /// Errors in the settings.
    pub fn decode(
        &self,
        nodes: &[Node],
        context: &mut dyn Context,
    ) -> Result<Arc<dyn Any + Send + Sync>, Problem> {
        self.step.decode(nodes, context)
    }

    /// The slots of the values that the step takes.
    pub(crate) fn takes(&self) -> impl Iterator<Item = u16> {
        let inputs = self.decl.inputs.iter().zip(&self.inputs);
        inputs.filter(|(input, _)| input.access == Access::Moved).map(|(_, slot)| *slot)
    }

    /// The slots of the values that the step writes, without lists.
    pub(crate) fn emits(&self) -> impl Iterator<Item = u16> {
        let outputs = self.decl.outputs.iter().zip(&self.outputs);
        outputs.filter(|(output, _)| output.access == Access::Value).map(|(_, slot)| *slot)
    }

    /// Returns true if the step writes one of these values.
    pub(crate) fn writes_any(&self, values: &[u16]) -> bool {
        self.outputs.iter().any(|output| values.contains(output))
    }

    /// Returns true if the step never ends a request with these settings: see [`Step::only_watches`](crate::Step::only_watches).
    pub fn only_watches(&self, settings: &Arc<dyn Any + Send + Sync>) -> bool {
        self.step.only_watches(&**settings)
    }

    /// Returns true if the step guards something with these settings: see [`Step::guards`](crate::Step::guards).
    pub fn guards(&self, settings: &Arc<dyn Any + Send + Sync>) -> bool {
        self.step.guards(&**settings)
    }

    /// The number of bytes of the request's body that the step asks for with these settings.
    pub fn body(&self, settings: &Arc<dyn Any + Send + Sync>) -> usize {
        self.step.body(&**settings)
    }

    /// The most bytes of the request's body that are held in memory: see
    /// [`Step::body_in_memory`](crate::Step::body_in_memory).
    pub fn body_in_memory(&self, settings: &Arc<dyn Any + Send + Sync>) -> usize {
        self.step.body_in_memory(&**settings)
    }

    /// See [`Step::body_pause`](crate::Step::body_pause).
    pub fn body_pause(&self, settings: &Arc<dyn Any + Send + Sync>) -> Option<Duration> {
        self.step.body_pause(&**settings)
    }

    /// Returns true if a 304 must not keep an old response of the step in use: see [`Step::RENEWS`](crate::Step::RENEWS).
    pub fn renews(&self) -> bool {
        self.step.renews()
    }

    /// Returns true if the step is tried on parts of bodies: see [`Step::TRIES_PARTS`](crate::Step::TRIES_PARTS).
    pub fn tries_parts(&self) -> bool {
        self.step.tries_parts()
    }

    /// Returns true if the step checks fields of interim responses and trailers with these settings: see
    /// [`Step::sweeps`](crate::Step::sweeps).
    pub fn sweeps(&self, settings: &Arc<dyn Any + Send + Sync>) -> bool {
        self.step.sweeps(&**settings)
    }

    /// Returns true if the step runs before the response begins: see [`Step::logs_first`](crate::Step::logs_first).
    pub fn logs_first(&self, settings: &Arc<dyn Any + Send + Sync>) -> bool {
        self.step.logs_first(&**settings)
    }

    /// Returns true if the step never does anything with these settings: see [`Step::is_idle`](crate::Step::is_idle).
    pub fn is_idle(&self, settings: &Arc<dyn Any + Send + Sync>) -> bool {
        self.step.is_idle(&**settings)
    }

    /// The fields that only the step may set: see [`Step::identity`](crate::Step::identity).
    pub fn identity(&self, settings: &Arc<dyn Any + Send + Sync>) -> Vec<Text> {
        self.step.identity(&**settings)
    }
}

/// The reason why a step cannot skip a module: the module runs earlier, because the order of steps is the same for
/// every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooLate {
    /// The first relevant step of the module.
    pub step: &'static str,
    /// The phase of that step.
    pub phase: PhaseId,
    /// The step that should skip the module, and its phase.
    pub after: (&'static str, PhaseId),
    /// The steps of the module that can still be skipped.
    pub later: Vec<&'static str>,
}

/// All steps of a program, in the order in which they run. [`pipeline!`](crate::pipeline!) makes it. The default
/// pipeline has no steps.
#[derive(Default)]
pub struct Pipeline {
    entries: Box<[Entry]>,
    values: Box<[ValueInfo]>,
    /// For each fetch, the slot of the request and the slot of the answer.
    fetches: Box<[(u16, u16)]>,
}

impl Pipeline {
    /// Merges groups of steps phase by phase: the steps of an earlier group come first, and steps with
    /// [`LAST`](crate::Step::LAST) come after all others. Programs use [`pipeline!`](crate::pipeline!) instead, because the
    /// compiler then checks the result.
    pub fn new(groups: Vec<Vec<Box<dyn ErasedStep>>>) -> Self {
        let mut steps: Vec<_> = groups.into_iter().flatten().collect();
        // The sort is stable: within a phase, the order of the groups does not change.
        steps.sort_by_key(|step| step.decl().turn());
        steps.truncate(Steps::LIMIT);
        let mut values: Vec<ValueInfo> = Vec::new();
        let mut fetches = Vec::new();
        for decl in steps.iter().map(|step| step.decl()) {
            for slot in decl.outputs.iter().filter(|slot| slot.is_kept()) {
                // Several steps may add to a list, and a step that took a value may emit it again.
                if values.iter().any(|value| value.name == slot.name) {
                    continue;
                }
                let number = values.len() as u16;
                let phase = decl.phase;
                values.push(ValueInfo {
                    name: slot.name,
                    about: slot.about,
                    shows: slot.shows,
                    phase,
                    show: slot.show,
                    shrink: slot.shrink,
                });
                if let Some(answer) = slot.answer {
                    fetches.push((number, number + 1));
                    let about = "The answer to a request that the platform has made.";
                    let (show, shrink) = (show_nothing, shrink_nothing);
                    values.push(ValueInfo { name: answer, about, shows: None, phase, show, shrink });
                }
            }
        }
        let slots = |slots: &[Slot]| -> Box<[u16]> {
            let number = |slot: &Slot| values.iter().position(|value| value.name == slot.name);
            let value = |slot: &Slot| if slot.is_kept() { number(slot) } else { None };
            slots.iter().map(|slot| value(slot).map_or(u16::MAX, |number| number as u16)).collect()
        };
        let entry = |step: Box<dyn ErasedStep>| {
            let decl = step.decl();
            Entry { inputs: slots(decl.inputs), outputs: slots(decl.outputs), decl, step }
        };
        let entries = steps.into_iter().map(entry).collect();
        Self { entries, values: values.into(), fetches: fetches.into() }
    }

    /// The declarations of all steps, in their order.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = &'static Decl> {
        self.entries.iter().map(Entry::decl)
    }

    /// All steps, in their order. The index of a step is its number.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// All values, in the order in which they are written.
    pub fn values(&self) -> &[ValueInfo] {
        &self.values
    }

    /// The slot for the answer to a fetch. `request` is the slot in which a step emitted the fetch.
    pub fn answer_slot(&self, request: u16) -> Option<u16> {
        self.fetches.iter().find(|(slot, _)| *slot == request).map(|(_, answer)| *answer)
    }

    /// Returns true if the step of this number writes the value of this name, or adds to the list of this name.
    pub(crate) fn writes(&self, step: u16, value: &str) -> bool {
        self.entries.get(usize::from(step)).is_some_and(|entry| {
            entry.decl().outputs.iter().any(|output| output.is_kept() && output.name == value)
        })
    }

    /// Finds two steps with keys of the same name but different types of settings, so that only one of the steps could
    /// be turned on. Programs refuse to start with such a pipeline. The compiler already refuses conflicts that it can see
    /// without comparing types.
    pub fn conflicting_keys(&self) -> Option<[&'static Decl; 2]> {
        let of_key = |entry: &&Entry| entry.key().is_some();
        let clashes = |one: &Entry, other: &Entry| {
            one.key().map(|key| key.name) == other.key().map(|key| key.name)
                && one.step.settings_type() != other.step.settings_type()
        };
        self.entries.iter().enumerate().filter(|(_, entry)| of_key(entry)).find_map(|(number, entry)| {
            let other = self.entries[..number].iter().find(|other| clashes(other, entry))?;
            Some([other.decl(), entry.decl()])
        })
    }

    /// The keys of the configuration, each with the number of a step that reads it.
    pub fn keys(&self) -> Vec<(&'static Key, usize)> {
        let mut keys: Vec<(&'static Key, usize)> = Vec::new();
        for (number, entry) in self.entries.iter().enumerate() {
            if let Some(key) = entry.key()
                && keys.iter().all(|(other, _)| other.name != key.name)
            {
                keys.push((key, number));
            }
        }
        keys
    }

    /// The steps that the key of this name turns on, or the step of this name.
    pub fn named(&self, name: &str) -> Steps {
        let named =
            |entry: &Entry| entry.decl().name == name || entry.key().is_some_and(|key| key.name == name);
        let numbers = self.entries.iter().enumerate().filter(|(_, entry)| named(entry));
        numbers.fold(Steps::NONE, |steps, (number, _)| steps.with(number))
    }

    /// The steps that `name` names: the steps that the key `name` turns on, or the step `name`. They are to be skipped by
    /// the step `after`, so they must run after it.
    ///
    /// # Errors
    ///
    /// One of the steps runs before `after`, so `after` would skip it too late. Only the steps that may end requests are
    /// checked. If none of the steps may end requests, those that change something are checked; a step that only makes a
    /// fetch may run earlier.
    pub fn named_after(&self, name: &str, after: &str) -> Result<Steps, TooLate> {
        let named = self.named(name);
        let entries = || self.entries.iter().enumerate();
        let Some((place, skips)) = entries().find(|(_, entry)| entry.decl().name == after) else {
            return Ok(named);
        };
        let named_steps = || entries().filter(|(number, _)| named.contains(*number));
        let ends = named_steps().any(|(_, entry)| !entry.decl().stops.is_empty());
        let acts = |decl: &Decl| match ends {
            true => !decl.stops.is_empty(),
            false => decl.outputs.iter().any(|slot| slot.access != Access::Value),
        };
        let done = |(number, entry): &(usize, &Entry)| *number <= place && acts(entry.decl());
        let Some((_, done)) = named_steps().find(done) else {
            return Ok(named);
        };
        let later = named_steps().skip_while(|(number, _)| *number <= place);
        let (done, skips) = (done.decl(), skips.decl());
        Err(TooLate {
            step: done.name,
            phase: done.phase,
            after: (skips.name, skips.phase),
            later: later.map(|(_, entry)| entry.decl().name).collect(),
        })
    }

    /// Returns true if the `when` of a planned step's key holds. The condition is evaluated once for an exchange, at the
    /// first step of the key. Changes after that do not affect later steps of the key.
    pub fn is_wanted(&self, planned: &PlannedStep, exchange: &dyn Exchange, state: &mut State) -> bool {
        let Some(when) = &planned.when else { return true };
        let key = usize::from(planned.key);
        if !state.decided.contains(key) {
            state.decided = state.decided.with(key);
            let view = View::new(exchange, &state.slots, self.values()).dry(planned.dry_run);
            if when.holds(&view.guarding(planned.guards)) {
                state.wanted = state.wanted.with(key);
            }
        }
        state.wanted.contains(key)
    }

    /// Returns true if a request continues when a planned step cannot run. This is the case for a step in a dry run, and
    /// for a step that only watches, if no acting step reads its results.
    pub fn may_fail(&self, planned: &PlannedStep) -> bool {
        let entry = self.entries.get(usize::from(planned.step));
        let watches = || entry.is_some_and(|entry| entry.only_watches(&planned.settings));
        planned.dry_run || (!planned.decides && watches())
    }

    /// Drops the memory of the values that the steps of this step's key have written: see [`Value::shrink`](crate::Value::shrink). The platform catches
    /// panics.
    pub fn forget(&self, planned: &PlannedStep, state: &mut State) {
        let key = |entry: &Entry| entry.key().map(|key| key.name);
        let Some(own) = self.entries.get(usize::from(planned.step)).and_then(key) else { return };
        let entries = self.entries.iter().filter(|entry| key(entry) == Some(own));
        // A value that is taken and emitted again is an output of several steps.
        let mut slots: Vec<u16> = entries.flat_map(|entry| entry.outputs.iter().copied()).collect();
        slots.sort_unstable();
        slots.dedup();
        for slot in slots {
            if let Some(value) = self.values.get(usize::from(slot)) {
                state.slots.forget(slot, value.shrink);
            }
        }
    }

    /// Returns true if a planned step would run now: its `when` and its filters hold.
    pub fn applies(&self, planned: &PlannedStep, exchange: &dyn Exchange, state: &mut State) -> bool {
        self.is_wanted(planned, exchange, state)
            && self.entries.get(usize::from(planned.step)).is_some_and(|entry| entry.step.applies(exchange))
    }

    /// The number of the step that asks for the whole body, if there is one. Platforms call this if the response has
    /// only a part of the body (206): see [`Step::TRIES_PARTS`](crate::Step::TRIES_PARTS). The platform catches panics.
    pub fn asks_whole(&self, plan: &Plan, exchange: &mut dyn Exchange, state: &mut State) -> Option<u16> {
        let mut tried = State::default();
        // The whole response may give `when` another result, so the decisions of this trial are undone.
        let (decided, wanted) = (state.decided, state.wanted);
        let mut runs = Steps::NONE;
        for planned in plan.parts() {
            let step = usize::from(planned.step);
            if !state.skipped.contains(step) && self.is_wanted(planned, exchange, state) {
                runs = runs.with(step);
            }
        }
        // This is done before the step runs, because the step may panic.
        (state.decided, state.wanted) = (decided, wanted);
        let asks =
            plan.parts().iter().filter(|planned| runs.contains(usize::from(planned.step))).find(|planned| {
                self.run(planned, exchange, &mut tried);
                tried.asks_whole
            });
        asks.map(|planned| planned.step)
    }

    /// Returns true if a planned step keeps a field of an interim response, or of trailers. Before the call, the platform
    /// checks that `when` holds and that the step is not skipped. The platform catches panics.
    pub fn keeps(&self, planned: &PlannedStep, swept: Swept, name: &[u8]) -> bool {
        let entry = self.entries.get(usize::from(planned.step));
        entry.is_none_or(|entry| entry.step.keeps(&*planned.settings, swept, name))
    }

    /// Decides on which thread a planned step has to run if it is run now. The platform catches panics.
    pub fn load(&self, planned: &PlannedStep, exchange: &mut dyn Exchange, state: &mut State) -> Load {
        let Some(entry) = self.entries.get(usize::from(planned.step)) else { return Load::Light };
        match entry.decl().weight {
            Weight::Light => Load::Light,
            Weight::Heavy(when_full) => Load::Heavy { when_full, wait: Duration::MAX },
            Weight::Varies => entry.step.load(self.call(entry, planned, exchange, state)),
        }
    }

    /// Runs a planned step on this thread, if its filters hold. Before the call, the platform checks that `when` holds and
    /// that the step is not skipped. The platform catches panics.
    pub fn run(&self, planned: &PlannedStep, exchange: &mut dyn Exchange, state: &mut State) -> Verdict {
        let Some(entry) = self.entries.get(usize::from(planned.step)) else { return Verdict::Passed };
        entry.step.run(self.call(entry, planned, exchange, state))
    }

    fn call<'a>(
        &'a self,
        entry: &'a Entry,
        planned: &'a PlannedStep,
        exchange: &'a mut dyn Exchange,
        state: &'a mut State,
    ) -> Call<'a> {
        let (settings, dry) = (&*planned.settings, planned.dry_run);
        let (inputs, outputs) = (&entry.inputs, &entry.outputs);
        Call { settings, exchange, state, pipeline: self, inputs, outputs, dry }
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.steps().map(|decl| decl.name)).finish()
    }
}

/// Lists the steps of a program, in the order of their phases, and has the compiler check them.
///
/// ```text
/// pipeline! { pub fn steps { StepA, StepB } }
/// pipeline! { pub fn steps { use foregate::shipped; MyStep } }
/// ```
///
/// makes a function `steps() -> Pipeline`, and a type of the same name, with which another list can include all of
/// these steps (`use`). Groups are merged phase by phase. Within a phase, the steps of included groups come first, in
/// the order in which the groups are named, then the other steps, then steps with [`LAST`](crate::Step::LAST).
#[macro_export]
macro_rules! pipeline {
    ($(#[$attribute:meta])* $vis:vis fn $name:ident { $(use $group:ty;)* $($step:ty),* $(,)? }) => {
        #[allow(long_running_const_eval, reason = "many steps are compared with each other, which ends")]
        const _: () = $crate::check(&[$(<$group>::DECLS,)* &[$($crate::decl::<$step>()),*]]);

        $crate::group! {
            /// The steps of this list, for lists that include it.
            $vis enum $name { $(use $group;)* $($step),* }
        }

        $(#[$attribute])*
        $vis fn $name() -> $crate::Pipeline {
            $crate::Pipeline::new($crate::groups([$name::group()]))
        }
    };
}

/// Defines a group of steps, in the order of their phases, that pipelines can include (`use`). The steps are checked
/// only in a pipeline, so a group may read values of other groups.
///
/// ```text
/// group! { pub enum first { StepA, StepB } }
/// ```
#[macro_export]
macro_rules! group {
    ($(#[$attribute:meta])* $vis:vis enum $name:ident { $(use $group:ty;)* $($step:ty),* $(,)? }) => {
        $(#[$attribute])*
        #[allow(non_camel_case_types, reason = "a list of steps, which may stand beside a function of its name")]
        $vis enum $name {}

        impl $name {
            const COUNT: usize = {
                let own: &[$crate::Decl] = &[$($crate::decl::<$step>()),*];
                own.len() $(+ <$group>::DECLS.len())*
            };

            /// The declarations of the steps, in the order in which they run.
            pub const DECLS: &[$crate::Decl] =
                &$crate::merged::<{ Self::COUNT }>(&[$(<$group>::DECLS,)* &[$($crate::decl::<$step>()),*]]);

            /// The steps.
            pub fn group() -> $crate::Group {
                $crate::groups([$(<$group>::group(),)* $crate::group([$($crate::erase::<$step>()),*])])
                    .into_iter()
                    .flatten()
                    .collect()
            }
        }
    };
}

/// Steps without their types.
pub type Group = Vec<Box<dyn ErasedStep>>;

/// For [`pipeline!`](crate::pipeline!).
#[doc(hidden)]
pub fn group<const N: usize>(steps: [Box<dyn ErasedStep>; N]) -> Group {
    steps.into()
}

/// For [`pipeline!`](crate::pipeline!).
#[doc(hidden)]
pub fn groups<const N: usize>(groups: [Group; N]) -> Vec<Group> {
    groups.into()
}

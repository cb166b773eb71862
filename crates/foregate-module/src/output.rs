//! Outputs of steps.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::DRY_RUN;
use crate::body::Filtered;
use crate::exchange::{Exchange, TraceContext};
use crate::fields::Edits;
use crate::ids::{LogId, UpstreamId};
use crate::phase_id::{BeforeEnd, BeforeHold, BeforeResponse, BeforeUpstream, HoldsResponse, Phase};
use crate::slot::Slot;
use crate::state::State;
use crate::steps::Steps;
use crate::text::Text;
use crate::value::Value;

/// The target of outputs.
pub struct Apply<'a> {
    /// The exchange.
    pub exchange: &'a mut dyn Exchange,
    /// The state kept for steps.
    pub state: &'a mut State,
    /// The step.
    pub step: &'static str,
    /// True for a dry run: only values are written, and steps outside of a dry run do not see them.
    pub dry: bool,
}

impl Apply<'_> {
    /// Records an effect that was skipped because of a dry run.
    fn leave_out(&mut self, what: &str) {
        let note = [self.step, ": ", what].concat();
        // A note may exist already, because steps run again when a response is replaced.
        let is_told = self
            .state
            .notes
            .iter()
            .any(|(name, said)| **name == *DRY_RUN.as_bytes() && **said == *note.as_bytes());
        if is_told {
            return;
        }
        if !self.state.events.contains(&DRY_RUN) {
            self.state.events.push(DRY_RUN);
        }
        self.state.notes.push((Text::Static(DRY_RUN.as_bytes()), Text::from(note)));
    }
}

/// An output of a step.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an output of a step",
    label = "a value is written as `Emit<{Self}>`, an entry of a list as `Add<{Self}>`, a question as `Emit<Fetch<KEY>>`"
)]
pub trait Output {
    /// The output, for checks and descriptions.
    const SLOT: Slot;

    /// Writes the output. If the output is a value, `slot` is the slot of the value.
    fn apply(self, apply: &mut Apply<'_>, slot: u16);
}

/// Outputs that a phase allows.
#[diagnostic::on_unimplemented(message = "phase `{P}` does not allow the output `{Self}`")]
pub trait WritableAt<P: Phase> {}

/// All outputs of a step: a tuple of up to seven outputs.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not what a step can write",
    label = "write a tuple of at most seven outputs, such as `(EditResponse,)`"
)]
pub trait Outputs<P: Phase> {
    /// The outputs.
    const SLOTS: &'static [Slot];

    /// Writes all outputs in order. `slots` has an entry for each output.
    fn apply(self, apply: &mut Apply<'_>, slots: &[u16]);
}

macro_rules! outputs {
    ($($output:ident $number:tt),*) => {
        impl<Ph: Phase, $($output: Output + WritableAt<Ph>),*> Outputs<Ph> for ($($output,)*) {
            const SLOTS: &'static [Slot] = &[$($output::SLOT),*];
            #[allow(unused_variables, reason = "the empty tuple writes nothing")]
            fn apply(self, apply: &mut Apply<'_>, slots: &[u16]) {
                $(self.$number.apply(apply, slots.get($number).copied().unwrap_or(u16::MAX));)*
            }
        }
    };
}

outputs!();
outputs!(A 0);
outputs!(A 0, B 1);
outputs!(A 0, B 1, C 2);
outputs!(A 0, B 1, C 2, D 3);
outputs!(A 0, B 1, C 2, D 3, E 4);
outputs!(A 0, B 1, C 2, D 3, E 4, F 5);
outputs!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);

/// A value for later steps; `None` writes nothing.
#[derive(Debug)]
pub struct Emit<V: Value>(pub Option<V::Data>);

impl<V: Value> Output for Emit<V> {
    const SLOT: Slot = Slot::value::<V>();
    fn apply(self, apply: &mut Apply<'_>, slot: u16) {
        if let Some(data) = self.0 {
            apply.state.slots.write(slot, data, apply.dry);
            if V::ANSWER.is_some() {
                apply.state.fetches.push((slot, apply.step));
            }
        }
    }
}

impl<P: BeforeEnd, V: Value> WritableAt<P> for Emit<V> {}

/// One more entry of a list that later steps read as [`Added`](crate::Added): any number of steps may add to it. `None`
/// adds nothing.
#[derive(Debug)]
pub struct Add<V: Value>(pub Option<V::Data>);

impl<V: Value> Output for Add<V> {
    const SLOT: Slot = Slot::list::<V>();
    fn apply(self, apply: &mut Apply<'_>, slot: u16) {
        if let Some(data) = self.0 {
            apply.state.slots.add(slot, data, apply.dry);
        }
    }
}

impl<P: BeforeEnd, V: Value> WritableAt<P> for Add<V> {}

macro_rules! effects {
    ($($(#[$doc:meta])* $name:ident($type:ty), $label:literal, $once:ident, $when:ident, $changes:expr, $apply:expr;)*) => { $(
        $(#[$doc])*
        pub struct $name(pub $type);

        impl Output for $name {
            const SLOT: Slot = Slot::$once($label);
            fn apply(self, apply: &mut Apply<'_>, _: u16) {
                let changes: fn(&dyn Exchange, &$type) -> bool = $changes;
                let write: fn(&mut Apply<'_>, $type) = $apply;
                if !apply.dry {
                    write(apply, self.0);
                } else if changes(apply.exchange, &self.0) {
                    apply.leave_out($label);
                }
            }
        }

        impl<P: $when> WritableAt<P> for $name {}
    )* };
}

// For each effect: its name, whether several steps may write it (`effect`) or one (`only`), the phases that allow it, a
// test for a change that a dry run has to report, and the code that applies it.
effects! {
    /// Changes to the fields of the request. Any number of steps may make changes; they are applied in the order of the
    /// steps.
    EditRequest(Edits), "request fields", effect, BeforeResponse, |exchange, edits| edits.change(exchange.request_fields()), |apply, edits| {
        if !edits.is_empty() {
            edits.apply(apply.exchange.request_fields_mut());
        }
    };
    /// Changes to the fields of the response. Any number of steps may make changes; they are applied in the order of the
    /// steps.
    EditResponse(Edits), "response fields", effect, HoldsResponse, |exchange, edits| edits.change(exchange.response_fields()), |apply, edits| {
        if !edits.is_empty() {
            edits.apply(apply.exchange.response_fields_mut());
        }
    };
    /// The effective client address. One step of the pipeline may set it.
    SetClientAddress(Option<IpAddr>), "client address", only, BeforeUpstream, |exchange, client| client.is_some() && *client != exchange.client(), |apply, client| {
        if let Some(client) = client {
            apply.exchange.set_client(client);
        }
    };
    /// The effective scheme: true for `https`, false for `http`. One step of the pipeline may set it.
    SetClientScheme(Option<bool>), "client scheme", only, BeforeUpstream, |exchange, secure| secure.is_some_and(|secure| secure != (exchange.scheme() == "https")), |apply, secure| {
        if let Some(secure) = secure {
            apply.exchange.set_secure(secure);
        }
    };
    /// Another path and query for the origin. The route does not change. `None` leaves a part unchanged; an empty query
    /// removes the query. With an invalid path, or one with a `..` in any spelling, the request is refused.
    RewriteTarget(Option<(Option<Text>, Option<Text>)>), "target", effect, BeforeUpstream, |_, what| what.is_some(), |apply, target| {
        if let Some((path, query)) = target {
            apply.exchange.set_target(path.as_deref(), query.as_deref());
        }
    };
    /// An upstream to use instead of the route's.
    ChooseUpstream(Option<UpstreamId>), "upstream", effect, BeforeUpstream, |_, what| what.is_some(), |apply, upstream| {
        if let Some(upstream) = upstream {
            apply.exchange.set_upstream(upstream);
        }
    };
    /// A limit on the length of the request's body, bytes. The smallest of all limits applies. A request with a longer
    /// body is answered with 413.
    LimitRequestBody(Option<u64>), "request body limit", effect, BeforeResponse, |_, what| what.is_some(), |apply, limit| {
        if let Some(limit) = limit {
            apply.exchange.limit_request_body(limit);
        }
    };
    /// A filter of the request's body; filters run in the order of their steps.
    FilterRequestBody(Option<Filtered>), "request body", effect, BeforeResponse, |_, what| what.is_some(), |apply, filter| {
        apply.state.request_filters.extend(filter);
    };
    /// The trace that the request belongs to, for platforms that record spans. One step of the pipeline may set it.
    SetTrace(Option<TraceContext>), "trace", only, BeforeUpstream, |_, _| false, |apply, trace| {
        if let Some(trace) = trace {
            apply.exchange.set_trace(trace);
        }
    };
    /// Names and values for the access log.
    Notes(Vec<Note>), "log", effect, Phase, |_, _| false, |apply, notes| {
        apply.state.notes.extend(notes.into_iter().map(|note| (note.name, note.value)));
    };
    /// An event to count, by its constant name, in the metric `foregate_step_events_total`.
    Count(Option<&'static str>), "metrics", effect, Phase, |_, _| false, |apply, event| {
        apply.state.events.extend(event);
    };
    /// Several events to count: see [`Count`].
    Counts(Vec<&'static str>), "metrics", effect, Phase, |_, _| false, |apply, events| {
        apply.state.events.extend(events);
    };
    /// Events that concern parts of the configuration, such as rules, to count in the metric `foregate_step_tally_total`:
    /// the constant name of the event, and the name of the part.
    Tally(Vec<(&'static str, Text)>), "metrics of parts", effect, Phase, |_, _| false, |apply, tallies| {
        apply.state.tallies.extend(tallies);
    };
    /// True if the response has only a part of the body (206), and the step needs the whole body: see
    /// [`Step::TRIES_PARTS`](crate::Step::TRIES_PARTS). This has no effect if the request cannot be repeated any more.
    AskWhole(bool), "request for the whole", effect, HoldsResponse, |_, _| false, |apply, asks| {
        apply.state.asks_whole |= asks;
    };
    /// Steps that do not run for this request any more.
    Skip(Steps), "steps", effect, BeforeEnd, |_, _| false, |apply, steps| {
        apply.state.skipped = apply.state.skipped.and(steps);
    };
}

/// A filter of the response's body. Filters run in the order of their steps. The filter of a step in a dry run is
/// [dry](Filtered::dry): it sees the body, but does not change it for the client. A part of a body (206) bypasses
/// filters that do not [keep its length](Filtered::keeps_length).
pub struct FilterResponseBody(pub Option<Filtered>);

impl Output for FilterResponseBody {
    const SLOT: Slot = Slot::effect("response body");
    fn apply(self, apply: &mut Apply<'_>, _: u16) {
        let dry = apply.dry;
        if dry && self.0.as_ref().is_some_and(Filtered::changes_length) {
            apply.leave_out("response body");
        }
        let filter = self.0.map(|filtered| Filtered { dry: filtered.dry || dry, ..filtered });
        apply.state.response_filters.extend(filter);
    }
}

impl<P: HoldsResponse> WritableAt<P> for FilterResponseBody {}

/// The additional memory that the step's values hold until the end of the request, bytes. The platform counts it
/// together with the memory of body filters. If too little memory is left, the request ends with 503. But if the step
/// [only watches](crate::Step::only_watches) or is in a dry run, the request continues without the values: see
/// [`Value::shrink`]. This is for values that grow with a body; small values need not be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holds(pub usize);

impl Output for Holds {
    const SLOT: Slot = Slot::effect("memory");
    fn apply(self, apply: &mut Apply<'_>, _: u16) {
        apply.state.held = apply.state.held.saturating_add(self.0);
    }
}

impl<P: Phase> WritableAt<P> for Holds {}

/// Like [`Notes`], but written in a dry run too, because the notes report the results of the dry run.
#[derive(Debug)]
pub struct Findings(pub Vec<Note>);

impl Output for Findings {
    const SLOT: Slot = Slot::effect("log");
    fn apply(self, apply: &mut Apply<'_>, _: u16) {
        apply.state.notes.extend(self.0.into_iter().map(|note| (note.name, note.value)));
    }
}

impl<P: Phase> WritableAt<P> for Findings {}

/// A name and a value for the access log, under the key `notes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The name.
    pub name: Text,
    /// The value; bytes that are not UTF-8 are replaced.
    pub value: Text,
}

/// The number of bytes of the response's body to receive before the phase `response-body`. The steps of that phase read
/// them as [`ResponseBody`](crate::ResponseBody), before the client gets even the head. The largest number that a step
/// asks for applies, up to 1 MiB. Fewer bytes are received if the body ends, or after ten seconds. This also applies in
/// a dry run, which would have no input otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldResponseBody(pub Option<usize>);

impl Output for HoldResponseBody {
    const SLOT: Slot = Slot::effect("response body start");
    fn apply(self, apply: &mut Apply<'_>, _: u16) {
        apply.state.hold = apply.state.hold.max(self.0.unwrap_or_default());
    }
}

impl<P: BeforeHold> WritableAt<P> for HoldResponseBody {}

/// Lines for log files of the configuration; see [`Context::log`](crate::Context::log). They are written in a dry run
/// too, because they report its results.
#[derive(Debug, Default)]
pub struct WriteLog(pub Vec<LogLine>);

/// A line for a log file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The log file.
    pub log: LogId,
    /// The line, without a line end. It must not contain line ends, which would split it.
    pub line: Text,
}

impl Output for WriteLog {
    const SLOT: Slot = Slot::effect("log files");
    fn apply(self, apply: &mut Apply<'_>, _: u16) {
        apply.state.lines.extend(self.0);
    }
}

impl<P: Phase> WritableAt<P> for WriteLog {}

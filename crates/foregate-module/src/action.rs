//! Ways for a step to end a request.

use alloc::vec::Vec;

use crate::fields::Field;
use crate::output::{Apply, Emit, Note, Output};
use crate::phase_id::{BeforeEnd, BeforeResponse, HoldsResponse, Phase};
use crate::response::Response;
use crate::slot::Slot;
use crate::text::Text;
use crate::value::Value;

/// An instruction to the platform that ends the normal course of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Answer with this response.
    Respond(Response),
    /// Send nothing more, and close the connection so that the client notices.
    Abort,
}

impl Action {
    /// The name for metrics and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Respond(_) => "respond",
            Self::Abort => "abort",
        }
    }
}

/// A way in which a step may end a request.
pub trait Terminal: Sized {
    /// The names of these ends, as `foregate modules` shows them; empty for [`Never`].
    const NAMES: &'static [&'static str];

    /// True if it may add notes to the access log. Default: false.
    const NOTES: bool = false;

    /// Takes the notes for the access log; see [`Noted`].
    fn notes(&mut self) -> Vec<Note> {
        Vec::new()
    }

    /// The values that it emits; see [`EmitAnd`].
    const EMITS: &'static [Slot] = &[];

    /// Writes the emitted values into their slots. `slot` returns the slot for a name.
    fn emit(&mut self, _apply: &mut Apply<'_>, _slot: &dyn Fn(&str) -> Option<u16>) {}

    /// The instruction for the platform.
    fn action(self) -> Action;
}

/// Ways to end a request that a phase allows.
#[diagnostic::on_unimplemented(message = "phase `{P}` does not allow the terminal action `{Self}`")]
pub trait StopAt<P: Phase>: Terminal {}

/// The step never ends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Never {}

/// Answers the request without an origin. Steps of the response phases run on this answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Respond(pub Response);

/// Redirects the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The status: 301, 302, 303, 307 or 308. Any other value is replaced by 302.
    pub status: u16,
    /// The value of Location. If it is not a valid field value, the response is a 500.
    pub location: Text,
}

/// Replaces the response. The rest of the origin's response is dropped, and filters for its body are removed. Later
/// steps see the new response.
///
/// If a step of `response-headers` or `response-body` replaces the response, earlier steps may have changed the fields
/// of the old response. In this case the steps of `response-headers` and `response-error-page` run again on the new
/// response, except the step that replaced the response. After a step of `response-error-page` they do not run again:
/// that step has to copy the fields that are to stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replace(pub Response);

/// Resets the connection, or the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abort;

/// A way to end a request, with notes for the access log about the reason. The client does not get the notes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted<S> {
    /// How the request ends.
    pub stop: S,
    /// The notes for the access log.
    pub notes: Vec<Note>,
}

/// A way to end a request, with a value for later steps, such as steps of the phase `log`. The value may be one that
/// the step has [taken](crate::Take). The step also declares the value as an output ([`Emit`]), for requests that it
/// does not end.
pub struct EmitAnd<V: Value, S> {
    /// The value; `None` emits nothing.
    pub value: Option<V::Data>,
    /// How the request ends.
    pub stop: S,
}

impl<V: Value, S: Terminal> Terminal for EmitAnd<V, S> {
    const NAMES: &'static [&'static str] = S::NAMES;
    const NOTES: bool = S::NOTES;
    const EMITS: &'static [Slot] = &[Slot::value::<V>()];
    fn notes(&mut self) -> Vec<Note> {
        self.stop.notes()
    }
    fn emit(&mut self, apply: &mut Apply<'_>, slot: &dyn Fn(&str) -> Option<u16>) {
        if let Some(slot) = slot(V::NAME) {
            Emit::<V>(self.value.take()).apply(apply, slot);
        }
    }
    fn action(self) -> Action {
        self.stop.action()
    }
}

/// One of two ways to end a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first.
    A(A),
    /// The second.
    B(B),
}

impl Terminal for Never {
    const NAMES: &'static [&'static str] = &[];
    fn action(self) -> Action {
        match self {}
    }
}

impl Terminal for Respond {
    const NAMES: &'static [&'static str] = &["respond"];
    fn action(self) -> Action {
        Action::Respond(self.0)
    }
}

impl Terminal for Redirect {
    const NAMES: &'static [&'static str] = &["redirect"];
    fn action(self) -> Action {
        let status = if matches!(self.status, 301 | 302 | 303 | 307 | 308) { self.status } else { 302 };
        Action::Respond(match Field::new("location", self.location) {
            Ok(location) => Response { fields: Vec::from([location]), ..Response::new(status) },
            Err(_) => Response::new(500),
        })
    }
}

impl Terminal for Replace {
    const NAMES: &'static [&'static str] = &["replace"];
    fn action(self) -> Action {
        Action::Respond(self.0)
    }
}

impl Terminal for Abort {
    const NAMES: &'static [&'static str] = &["abort"];
    fn action(self) -> Action {
        Action::Abort
    }
}

impl<S: Terminal> Terminal for Noted<S> {
    const NAMES: &'static [&'static str] = S::NAMES;
    const NOTES: bool = true;
    const EMITS: &'static [Slot] = S::EMITS;
    fn notes(&mut self) -> Vec<Note> {
        core::mem::take(&mut self.notes)
    }
    fn emit(&mut self, apply: &mut Apply<'_>, slot: &dyn Fn(&str) -> Option<u16>) {
        self.stop.emit(apply, slot);
    }
    fn action(self) -> Action {
        self.stop.action()
    }
}

impl<A: Terminal, B: Terminal> Terminal for Either<A, B> {
    const NAMES: &'static [&'static str] = match (A::NAMES, B::NAMES) {
        (&[a], &[b]) => &[a, b],
        (&[a, b], &[c]) | (&[a], &[b, c]) => &[a, b, c],
        (a, &[]) => a,
        (&[], b) => b,
        _ => &["respond", "redirect", "replace", "abort"],
    };
    const NOTES: bool = A::NOTES || B::NOTES;
    const EMITS: &'static [Slot] = if A::EMITS.is_empty() { B::EMITS } else { A::EMITS };
    fn emit(&mut self, apply: &mut Apply<'_>, slot: &dyn Fn(&str) -> Option<u16>) {
        match self {
            Self::A(stop) => stop.emit(apply, slot),
            Self::B(stop) => stop.emit(apply, slot),
        }
    }
    fn notes(&mut self) -> Vec<Note> {
        match self {
            Self::A(stop) => stop.notes(),
            Self::B(stop) => stop.notes(),
        }
    }
    fn action(self) -> Action {
        match self {
            Self::A(stop) => stop.action(),
            Self::B(stop) => stop.action(),
        }
    }
}

impl<P: Phase> StopAt<P> for Never {}
impl<P: BeforeResponse> StopAt<P> for Respond {}
impl<P: BeforeResponse> StopAt<P> for Redirect {}
impl<P: HoldsResponse> StopAt<P> for Replace {}
impl<P: BeforeEnd> StopAt<P> for Abort {}
impl<P: Phase, S: StopAt<P>> StopAt<P> for Noted<S> {}
impl<P: BeforeEnd, V: Value, S: StopAt<P>> StopAt<P> for EmitAnd<V, S> {}
impl<P: Phase, A: StopAt<P>, B: StopAt<P>> StopAt<P> for Either<A, B> {}

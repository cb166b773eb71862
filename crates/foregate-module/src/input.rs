//! Inputs of steps.

use alloc::vec::Vec;
use core::any::Any;
use core::net::IpAddr;

use crate::exchange::{Exchange, Now, Received, Source, Summary, TlsFacts};
use crate::fields::Fields;
use crate::phase_id::{AfterBody, AfterHold, AfterResponse, Phase};
use crate::slot::{Slot, ValueInfo};
use crate::state::{MovedValues, Slots};
use crate::value::{Shown, Value};

/// An input of a step.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an input of a step",
    label = "a value is read as `Read<'r, {Self}>` or moved as `Take<{Self}>`, a list read as `Added<'r, {Self}>`, an answer as `Read<'r, Fetched<KEY>>`"
)]
pub trait Input<'r>: Sized {
    /// The input, for checks and descriptions.
    const SLOT: Slot;

    /// Reads the input. If the input is a value, `slot` is the slot of the value.
    fn read(view: &View<'r>, slot: u16) -> Self;

    /// Called if the step has only looked at the input: puts a value that was [taken](crate::Take) back into its slot.
    fn put_back(self, _view: &View<'r>, _slot: u16) {}
}

/// Inputs that are known in a phase.
#[diagnostic::on_unimplemented(message = "`{Self}` is not known in phase `{P}`")]
pub trait ReadableAt<P: Phase> {}

/// All inputs of a step: a tuple of up to ten inputs.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not what a step can read",
    label = "write a tuple of at most ten inputs, such as `(Path<'r>,)`"
)]
pub trait Inputs<'r, P: Phase>: Sized {
    /// The inputs.
    const SLOTS: &'static [Slot];

    /// Reads all inputs. `slots` has an entry for each input.
    fn read(view: &View<'r>, slots: &[u16]) -> Self;

    /// See [`Input::put_back`].
    fn put_back(self, view: &View<'r>, slots: &[u16]);
}

macro_rules! inputs {
    ($($input:ident $number:tt),*) => {
        impl<'r, Ph: Phase, $($input: Input<'r> + ReadableAt<Ph>),*> Inputs<'r, Ph> for ($($input,)*) {
            const SLOTS: &'static [Slot] = &[$($input::SLOT),*];
            #[allow(clippy::unused_unit, unused_variables, reason = "the empty tuple reads nothing")]
            fn read(view: &View<'r>, slots: &[u16]) -> Self {
                ($($input::read(view, slots.get($number).copied().unwrap_or(u16::MAX)),)*)
            }
            #[allow(unused_variables, reason = "the empty tuple reads nothing")]
            fn put_back(self, view: &View<'r>, slots: &[u16]) {
                $(self.$number.put_back(view, slots.get($number).copied().unwrap_or(u16::MAX));)*
            }
        }
    };
}

inputs!();
inputs!(A 0);
inputs!(A 0, B 1);
inputs!(A 0, B 1, C 2);
inputs!(A 0, B 1, C 2, D 3);
inputs!(A 0, B 1, C 2, D 3, E 4);
inputs!(A 0, B 1, C 2, D 3, E 4, F 5);
inputs!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
inputs!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
inputs!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
inputs!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);

/// Everything that is known so far about an exchange. This is for expressions, because the author of the configuration
/// chooses the parts that they read. A step that always reads the same parts declares them as inputs instead.
#[derive(Clone, Copy)]
pub struct View<'r> {
    exchange: &'r dyn Exchange,
    slots: &'r Slots,
    values: &'r [ValueInfo],
    /// The number of a value, and the data that expressions see instead of the value in its slot.
    instead: Option<(u16, &'r (dyn Any + Send + Sync))>,
    /// An address that expressions see instead of the client's.
    client: Option<IpAddr>,
    /// The values that the step takes out of their slots.
    taken: Option<&'r MovedValues>,
    dry: bool,
    doubt: Doubt,
}

/// The treatment of a condition with a result that differs for one of the [other paths](Exchange::other_paths).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// The request [does not reach an origin](Exchange::doubt_path). For conditions that guard something. The default.
    Refuses,
    /// The difference is ignored: the result for the path itself counts.
    Ignored,
    /// The condition does not hold. For optional actions.
    Denies,
}

impl<'r> View<'r> {
    /// The name that marks steps which read this input.
    pub(crate) const NAME: &'static str = "everything";

    /// A view of an exchange, for platforms. `values` are the [values](crate::Pipeline::values) of its pipeline.
    pub fn new(exchange: &'r dyn Exchange, slots: &'r Slots, values: &'r [ValueInfo]) -> Self {
        Self {
            exchange,
            slots,
            values,
            instead: None,
            client: None,
            taken: None,
            dry: false,
            doubt: Doubt::Refuses,
        }
    }

    /// A view for a step in a dry run, which sees the values that other steps in a dry run have written.
    #[must_use]
    pub fn dry(self, dry: bool) -> Self {
        Self { dry, ..self }
    }

    /// A view with a value that the step is about to write, for a step with expressions that see the results of its
    /// earlier expressions. It holds only one such value: a second call replaces the first.
    #[must_use]
    pub fn with<V: Value>(self, data: &'r V::Data) -> Self {
        let number = self.values.iter().position(|value| value.name == V::NAME);
        let instead = number.map(|number| (number as u16, data as &'r (dyn Any + Send + Sync)));
        Self { instead, ..self }
    }

    /// A view with this client address, for a step with expressions that treat all clients of a network as one client.
    #[must_use]
    pub fn with_client(self, client: IpAddr) -> Self {
        Self { client: Some(client), ..self }
    }

    /// A view with another treatment of conditions in doubt.
    #[must_use]
    pub fn in_doubt(self, doubt: Doubt) -> Self {
        Self { doubt, ..self }
    }

    /// A view for a step. `guards` is true if the step [guards](crate::Step::guards) something.
    pub(crate) fn guarding(self, guards: bool) -> Self {
        self.in_doubt(if guards { Doubt::Refuses } else { Doubt::Ignored })
    }

    /// The treatment of conditions in doubt. In a dry run it is never [`Refuses`](Doubt::Refuses).
    pub fn doubt(&self) -> Doubt {
        match self.doubt {
            Doubt::Refuses if self.dry => Doubt::Ignored,
            doubt => doubt,
        }
    }

    /// Returns true for a dry run.
    pub fn is_dry(&self) -> bool {
        self.dry
    }

    /// The exchange.
    pub fn exchange(&self) -> &'r dyn Exchange {
        self.exchange
    }

    /// The client's address, or its replacement for expressions.
    pub fn client(&self) -> Option<IpAddr> {
        self.client.or_else(|| self.exchange.client())
    }

    /// A value that steps have written, by its number in [`Pipeline::values`](crate::Pipeline::values).
    pub fn value(&self, number: u16) -> Option<Shown<'r>> {
        let value = match self.instead {
            Some((instead, data)) if instead == number => data,
            _ => self.slots.see(number, self.dry)?,
        };
        self.values.get(usize::from(number))?.show(value)
    }

    /// A view for a step that takes values.
    pub(crate) fn taking(self, taken: &'r MovedValues) -> Self {
        Self { taken: Some(taken), ..self }
    }

    pub(crate) fn taken(&self) -> Option<&'r MovedValues> {
        self.taken
    }

    pub(crate) fn slot(&self, slot: u16) -> Option<&'r (dyn Any + Send + Sync)> {
        self.slots.see(slot, self.dry)
    }
}

impl<'r> Input<'r> for View<'r> {
    const SLOT: Slot = Slot::builtin(Self::NAME);
    fn read(view: &View<'r>, _: u16) -> Self {
        *view
    }
}

impl<P: Phase> ReadableAt<P> for View<'_> {}

macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident($type:ty), $label:literal, $when:ident, $read:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name(pub $type);

        impl<'r> Input<'r> for $name {
            const SLOT: Slot = Slot::builtin($label);
            fn read(view: &View<'r>, _: u16) -> Self {
                let read: fn(&dyn Exchange) -> $type = $read;
                Self(read(view.exchange))
            }
        }

        impl<P: $when> ReadableAt<P> for $name {}
    )* };
}

macro_rules! borrowed {
    ($($(#[$doc:meta])* $name:ident($type:ty), $label:literal, $when:ident, $read:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name<'r>(pub $type);

        impl<'r> Input<'r> for $name<'r> {
            const SLOT: Slot = Slot::builtin($label);
            fn read(view: &View<'r>, _: u16) -> Self {
                let read: fn(&'r dyn Exchange) -> $type = $read;
                Self(read(view.exchange))
            }
        }

        impl<P: $when> ReadableAt<P> for $name<'_> {}
    )* };
}

plain! {
    /// The address of the client: that of the peer, or the one that a trusted peer forwarded. `None` for a Unix socket.
    ClientAddress(Option<IpAddr>), "client address", Phase, |exchange| exchange.client();
    /// The address of the connection's other end.
    PeerAddress(Option<IpAddr>), "peer address", Phase, |exchange| exchange.peer();
    /// The time of the phase.
    Time(Now), "time", Phase, |exchange| exchange.now();
    /// True if all body filters together hold so much memory that a step should not add an optional filter.
    MemoryIsShort(bool), "memory is short", Phase, |exchange| exchange.memory_is_short();
    /// The version of the plan, for the validators of bodies that depend on the configuration: see
    /// [`versioned_validators`](crate::versioned_validators).
    PlanVersion(u32), "version of the plan", AfterResponse, |exchange| exchange.plan_version();
    /// A number that cannot be guessed.
    Random(u64), "random number", Phase, |exchange| exchange.random();
    /// The length of the request's body, bytes; 0 without a body, `None` if the client has not announced the length.
    RequestLength(Option<u64>), "request length", Phase, |exchange| exchange.request_length();
    /// The status of the response.
    Status(u16), "status", AfterResponse, |exchange| exchange.status().unwrap_or_default();
    /// The outcome of the exchange so far; complete in the phase `log`.
    Outcome(Summary), "outcome", AfterResponse, |exchange| exchange.summary();
}

borrowed! {
    /// `http` or `https`.
    Scheme(&'r str), "scheme", Phase, |exchange| exchange.scheme();
    /// `HTTP/1.1` and similar.
    Protocol(&'r str), "protocol", Phase, |exchange| exchange.protocol();
    /// The facts about the TLS handshake; `None` without TLS.
    Tls(Option<TlsFacts<'r>>), "tls", Phase, |exchange| exchange.tls();
    /// The method.
    Method(&'r [u8]), "method", Phase, |exchange| exchange.method();
    /// The host: lower case, without port.
    Host(&'r str), "host", Phase, |exchange| exchange.host();
    /// The host, and the port unless it is the default port of the scheme.
    Authority(&'r str), "authority", Phase, |exchange| exchange.authority();
    /// The path in its normal form.
    Path(&'r [u8]), "path", Phase, |exchange| exchange.path();
    /// The other paths for which servers may take the path ([`Exchange::other_paths`]). `None` if there are too many to
    /// check.
    OtherPaths(Option<&'r [Vec<u8>]>), "other readings of the path", Phase, |exchange| exchange.other_paths();
    /// The query, without `?`.
    Query(Option<&'r [u8]>), "query", Phase, |exchange| exchange.query();
    /// The target as it was sent.
    RawTarget(&'r [u8]), "raw target", Phase, |exchange| exchange.raw_target();
    /// The first host of the site.
    SiteName(&'r str), "site", Phase, |exchange| exchange.site();
    /// The pattern of the route.
    RouteName(&'r str), "route", Phase, |exchange| exchange.route();
    /// The source of the response.
    ResponseSource(Source<'r>), "response source", AfterResponse, |exchange| exchange.source();
}

/// True if the step runs without effect, because its key has `dry-run=#true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DryRun(pub bool);

impl<'r> Input<'r> for DryRun {
    const SLOT: Slot = Slot::builtin("dry run");
    fn read(view: &View<'r>, _: u16) -> Self {
        Self(view.dry)
    }
}

impl<P: Phase> ReadableAt<P> for DryRun {}

/// If a step that reads the request's [`Body`] did not get as much of the body as it asked for, or did not run: the
/// kind of the error that caused this. The request may have continued all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unseen(pub Option<&'static str>);

impl<'r> Input<'r> for Unseen {
    const SLOT: Slot = Slot::builtin("why the request body is unseen");
    fn read(view: &View<'r>, _: u16) -> Self {
        Self(view.exchange.request_body_unseen())
    }
}

impl<P: Phase> ReadableAt<P> for Unseen {}

/// The fields of the request. Up to the phase `upstream-request` they include the changes of steps. In later phases
/// they are again those that the client sent.
#[derive(Clone, Copy)]
pub struct RequestFields<'r>(pub &'r dyn Fields);

impl RequestFields<'_> {
    /// The name that marks steps which read this input.
    pub(crate) const NAME: &'static str = "request fields";
}

impl<'r> Input<'r> for RequestFields<'r> {
    const SLOT: Slot = Slot::builtin(Self::NAME);
    fn read(view: &View<'r>, _: u16) -> Self {
        Self(view.exchange.request_fields())
    }
}

impl<P: Phase> ReadableAt<P> for RequestFields<'_> {}

/// The fields of the response.
#[derive(Clone, Copy)]
pub struct ResponseFields<'r>(pub &'r dyn Fields);

impl<'r> Input<'r> for ResponseFields<'r> {
    const SLOT: Slot = Slot::builtin("response fields");
    fn read(view: &View<'r>, _: u16) -> Self {
        Self(view.exchange.response_fields())
    }
}

impl<P: AfterResponse> ReadableAt<P> for ResponseFields<'_> {}

/// A function that long work has to call about ten times in a millisecond. If a thread that serves requests waits for
/// the core, the function lets it run first. On a thread that serves requests, the function does nothing.
///
/// Threads for heavy work have a lower priority, but a kernel reschedules only at its next
/// tick, which can be four milliseconds later.
#[derive(Debug, Clone, Copy)]
pub struct GiveWay(pub fn());

impl Input<'_> for GiveWay {
    const SLOT: Slot = Slot::builtin("give way");
    fn read(view: &View<'_>, _: u16) -> Self {
        Self(view.exchange.give_way())
    }
}

impl<P: Phase> ReadableAt<P> for GiveWay {}

/// The kind of the error that the response reports, if the server made the response for an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorKind<'r>(pub Option<&'r str>);

impl<'r> Input<'r> for ErrorKind<'r> {
    const SLOT: Slot = Slot::builtin("error");
    fn read(view: &View<'r>, _: u16) -> Self {
        match view.exchange.source() {
            Source::Error(kind) => Self(Some(kind)),
            _ => Self(None),
        }
    }
}

impl<P: AfterResponse> ReadableAt<P> for ErrorKind<'_> {}

/// The start of the request's body: as much as the steps of the route asked for in [`Step::body`](crate::Step::body).
/// If none of them asked, it is empty.
///
/// A platform may keep a long start in a file: see [`Step::body_in_memory`](crate::Step::body_in_memory). The file is
/// only read for [`Step::run`](crate::Step::run), on a thread for heavy work. [`Step::load`](crate::Step::load) and
/// steps of the phase `log` get no bytes then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Body<'r> {
    /// The received bytes.
    pub bytes: &'r [u8],
    /// The length in bytes. It is set even if the bytes are not available.
    pub length: usize,
    /// True if this is the whole body.
    pub whole: bool,
}

impl Body<'_> {
    /// The name that marks steps which read this input.
    pub(crate) const NAME: &'static str = "request body";
}

impl<'r> Input<'r> for Body<'r> {
    const SLOT: Slot = Slot::builtin(Body::NAME);
    fn read(view: &View<'r>, _: u16) -> Self {
        let (bytes, whole) = view.exchange.request_body();
        Self { bytes, length: view.exchange.request_body_length(), whole }
    }
}

impl<P: AfterBody> ReadableAt<P> for Body<'_> {}

/// The start of the response's body: as much as steps of earlier phases asked for with
/// [`HoldResponseBody`](crate::HoldResponseBody).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseBody<'r> {
    /// The received bytes.
    pub bytes: &'r [u8],
    /// True if this is the whole body.
    pub whole: bool,
}

impl<'r> Input<'r> for ResponseBody<'r> {
    const SLOT: Slot = Slot::builtin("response body");
    fn read(view: &View<'r>, _: u16) -> Self {
        let (bytes, whole) = view.exchange.response_body();
        Self { bytes, whole }
    }
}

impl<P: AfterHold> ReadableAt<P> for ResponseBody<'_> {}

/// The request as its client sent it: method, target and fields before any change by the platform or a step. The
/// platform keeps a copy for a route with a step that reads this.
///
/// A step of the phase `log` that reads this input also runs for requests that were refused before they had a route.
/// [`Received::refusal`](crate::Received::refusal) is then the reason. The settings of the step are those of the route
/// that seems to match the host and path of the request, or else those at the top level of the configuration. For such
/// a request, only the other inputs about the connection are valid, and values of earlier phases are missing.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedRequest<'r>(pub Received<'r>);

impl ReceivedRequest<'_> {
    /// The name that marks steps which read this input.
    pub(crate) const NAME: &'static str = "request as received";
}

impl<'r> Input<'r> for ReceivedRequest<'r> {
    const SLOT: Slot = Slot::builtin(ReceivedRequest::NAME);
    fn read(view: &View<'r>, _: u16) -> Self {
        Self(view.exchange.received())
    }
}

impl<P: Phase> ReadableAt<P> for ReceivedRequest<'_> {}

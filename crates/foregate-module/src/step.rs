//! A step: what the author of a module writes.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::{Any, TypeId};
use core::ops::ControlFlow;
use core::time::Duration;

use crate::action::{Action, StopAt, Terminal};
use crate::check::{Decl, decl};
use crate::exchange::Exchange;
use crate::input::{Inputs, View};
use crate::output::{Apply, Notes, Output, Outputs};
use crate::phase_id::{Phase, PhaseId};
use crate::pipeline::Pipeline;
use crate::settings::{Context, FromNode, Key, Node, Problem};
use crate::state::State;
use crate::text::Text;

/// One step of a module.
///
/// A step is made once for the process, by [`Default`], and shared by all threads; its settings are those of the route
/// that a request takes. What a step keeps beyond a request is its own and bounded, in atomics.
pub trait Step: Default + Send + Sync + 'static {
    /// The phase in which it runs.
    type At: Phase;
    /// Its part of the configuration, validated. Steps of one module share a type. `()` for none.
    type Settings: FromNode;
    /// What it reads: a tuple such as `(ClientAddress, Path<'r>, Read<'r, Score>)`.
    type In<'r>: Inputs<'r, Self::At>;
    /// What it writes: a tuple such as `(Emit<Score>, EditRequest)`.
    type Out: Outputs<Self::At>;
    /// How it may end the request: [`Never`](crate::Never), [`Respond`](crate::Respond), ...
    type Stop: StopAt<Self::At>;
    /// Its name: lower case, words joined by `-`; the module's name first.
    const NAME: &'static str;
    /// What it does, in a sentence.
    const ABOUT: &'static str;
    /// When it runs at all; all must hold. A step with settings runs only where they are configured, without saying so.
    const FILTERS: &'static [Filter];
    /// Whether it belongs on the threads for heavy work. Default: no.
    const WEIGHT: Weight = Weight::Light;
    /// Whether a request goes on without it when it panics; otherwise it is answered with 500. The same where a light step has held
    /// its thread for so long that the platform has moved it to those for heavy work, and there is no place; otherwise it is
    /// answered with 503. Default: no.
    const OPTIONAL: bool = false;
    /// Whether a filter that comes of it [asks](crate::BodyFilter::question) for other documents: platforms that do not answer
    /// such questions refuse its key. Default: no.
    const ASKS: bool = false;

    /// Whether what it puts into a response may change although what the origin has stays the same, so that no 304 may keep an old
    /// one in use: on a route that configures it, but for dry runs, platforms take the conditions away from requests after the
    /// phase `upstream-request` ([`Plan::renew`](crate::Plan::renew)), whether the step runs or not. It takes the validators away
    /// from the responses itself. Default: no.
    const RENEWS: bool = false;

    /// Whether it runs behind the steps of its phase that do not say so, whoever lists them: for what has to see a response as all
    /// others have made it, such as codings of contents. Default: no.
    const LAST: bool = false;

    /// Whether it is tried on a response that is a part of a body (206). Where the request can be repeated without `Range`, platforms
    /// run the steps of the phase `response-body` that say so on the head as it came, before any other step of the response, and
    /// with values of their own. If one of them says [`AskWhole`](crate::AskWhole), the response is dropped and the request
    /// repeated; whatever else they have written is forgotten. They must not change the head of a part. Default: no.
    const TRIES_PARTS: bool = false;

    /// Whether it never does anything with these settings, so that routes with them do without it: for modules whose steps
    /// carry out one part of their settings each. Default: no.
    fn is_idle(_settings: &Self::Settings) -> bool {
        false
    }

    /// Whether it never ends a request with these settings: a request goes on without it, then, where it cannot run, or cannot get
    /// the body that it asks for. Default: no.
    fn only_watches(_settings: &Self::Settings) -> bool {
        false
    }

    /// Whether it refuses requests with these settings, or decides what of them an origin gets, so that it matters for whom it is
    /// left out: a request goes to no origin, then, where a condition of its comes to something else in the eyes of another server
    /// ([`Exchange::doubt_path`]). A module asks for that if any of its steps before the response does. Default: unless it
    /// [only watches](Self::only_watches).
    fn guards(settings: &Self::Settings) -> bool {
        !Self::only_watches(settings)
    }

    /// How much of the request's body must have been received before the phase `request-body`, bytes. Default: none.
    fn body(_settings: &Self::Settings) -> usize {
        0
    }

    /// How much of that is held in memory, bytes: platforms that can keep a longer body in a temporary file until the step
    /// runs. The least of what the steps of a route say counts. Default: all.
    fn body_in_memory(_settings: &Self::Settings) -> usize {
        usize::MAX
    }

    /// After which pause in a request's body of unknown length the step runs on what has come so far, so that a client which waits
    /// for an answer to it gets one: the rest goes on without the step. The longest of what the steps of a route say counts.
    /// Default: after none, unless all of them [only watch](Self::only_watches).
    fn body_pause(_settings: &Self::Settings) -> Option<Duration> {
        None
    }

    /// Fields of the request in which the module tells the origin who the client is. On a route that configures the module
    /// the client's own are taken away before the phase `request-identity`, so that nothing which judges a request believes
    /// them, whether the step runs or not: under a `when` that does not hold, in a dry run, and when rules skip it. Names are
    /// compared without regard to case, and `_` counts as `-`, as it does for many origins. Default: none.
    fn identity(_settings: &Self::Settings) -> Vec<Text> {
        Vec::new()
    }

    /// Whether fields that no step sees go through [`keeps`](Self::keeps) with these settings: those of trailers of requests for a
    /// step that runs before there is a response, those of interim responses and of trailers of responses for one that runs
    /// later. Default: no.
    fn sweeps(_settings: &Self::Settings) -> bool {
        false
    }

    /// Whether such a field, of this name, goes on to the origin or the client. Default: yes.
    fn keeps(&self, _settings: &Self::Settings, _swept: Swept, _name: &[u8]) -> bool {
        true
    }

    /// Whether a step of the phase `log` runs before the response begins with these settings, so that its lines are in their files
    /// before the client has the response. The platform waits for the files for a limited time. What the step reads of the
    /// exchange is as it is then: a response that breaks off later has its status, and no error. A platform that cannot do so
    /// refuses such settings ([`Plan::logs_first`](crate::Plan::logs_first)). Default: no, the step runs when the exchange is over.
    fn logs_first(_settings: &Self::Settings) -> bool {
        false
    }

    /// Where it runs for this request, if [`WEIGHT`](Self::WEIGHT) is [`Weight::Varies`]: asked right before
    /// [`run`](Self::run), with the same inputs. Should cost little beside what it decides about. Default: here.
    fn load(&self, _settings: &Self::Settings, _input: &Self::In<'_>) -> Load {
        Load::Light
    }

    /// Reads its settings. A step may override this to keep in itself what is costly to make of files, for configurations that follow.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    fn decode(&self, nodes: &[Node], context: &mut dyn Context) -> Result<Self::Settings, Problem> {
        FromNode::from_nodes(nodes, context)
    }

    /// Runs it. Must not block; heavy work is declared by [`WEIGHT`](Self::WEIGHT).
    fn run(&self, settings: &Self::Settings, input: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out>;
}

/// A condition under which a step runs. The first three are decided once for a route, the others cost a look at the
/// request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// The route asks an upstream.
    Proxied,
    /// The route does not ask an upstream.
    Answered,
    /// An earlier step that the route uses writes the value of this name, or adds to the list: for steps without settings
    /// that carry out what others have asked for.
    Written(&'static str),
    /// The request has this method.
    Method(&'static str),
    /// The request has a field of this name.
    RequestField(&'static str),
    /// The response's status lies between these, both included.
    Status(u16, u16),
    /// The response has a field of this name.
    ResponseField(&'static str),
}

impl Filter {
    /// Whether it can be decided for a route, and how.
    /// `written` says whether a step of the route that comes before writes a value.
    pub(crate) fn of_route(self, proxied: bool, written: impl Fn(&str) -> bool) -> Option<bool> {
        match self {
            Self::Proxied => Some(proxied),
            Self::Answered => Some(!proxied),
            Self::Written(value) => Some(written(value)),
            _ => None,
        }
    }

    fn holds(self, exchange: &dyn Exchange) -> bool {
        match self {
            Self::Proxied | Self::Answered | Self::Written(_) => true,
            Self::Method(method) => exchange.method() == method.as_bytes(),
            Self::RequestField(name) => exchange.request_fields().get(name).is_some(),
            Self::Status(from, to) => exchange.status().is_some_and(|status| (from..=to).contains(&status)),
            Self::ResponseField(name) => exchange.response_fields().get(name).is_some(),
        }
    }
}

/// Where a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// On the thread of the request: under some ten microseconds.
    Light,
    /// On the threads for heavy work, whose queue is bounded.
    Heavy(WhenFull),
    /// As [`Step::load`] says for each request: for steps whose work grows with what they look at.
    Varies,
}

/// Where a field stands that no step sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swept {
    /// In an interim response.
    Interim,
    /// Behind a body.
    Trailers,
}

/// Where a step runs for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// On the thread of the request.
    Light,
    /// On the threads for heavy work.
    Heavy {
        /// What becomes of it when there is no place, or none in time.
        when_full: WhenFull,
        /// How long it may wait for a thread, at most five seconds; thirty where the request's body lies in a file.
        wait: Duration,
    },
}

/// What becomes of a heavy step when the queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It runs on the thread of the request, which other requests of that thread feel.
    Inline,
    /// The request goes on without it.
    Shed,
    /// The request is answered with 503.
    Error,
}

/// What a step has decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It was filtered out.
    Passed,
    /// It ran; its outputs have been written.
    Continue,
    /// It ends the request.
    Stop(Action),
}

/// A step without its types, for the platform.
pub trait Erased: Send + Sync {
    /// What the step declares.
    fn decl(&self) -> &'static Decl;

    /// The key of the configuration that turns it on.
    fn key(&self) -> Option<&'static Key>;

    /// The type of its settings.
    fn settings_type(&self) -> TypeId;

    /// Reads its settings.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    fn decode(
        &self,
        nodes: &[Node],
        context: &mut dyn Context,
    ) -> Result<Arc<dyn Any + Send + Sync>, Problem>;

    /// See [`Step::is_idle`].
    fn is_idle(&self, settings: &(dyn Any + Send + Sync)) -> bool;

    /// See [`Step::only_watches`].
    fn only_watches(&self, settings: &(dyn Any + Send + Sync)) -> bool;

    /// See [`Step::guards`].
    fn guards(&self, settings: &(dyn Any + Send + Sync)) -> bool;

    /// How much of the request's body it asks for with these settings, bytes.
    fn body(&self, settings: &(dyn Any + Send + Sync)) -> usize;

    /// See [`Step::body_in_memory`].
    fn body_in_memory(&self, settings: &(dyn Any + Send + Sync)) -> usize;

    /// See [`Step::body_pause`].
    fn body_pause(&self, settings: &(dyn Any + Send + Sync)) -> Option<Duration>;

    /// See [`Step::identity`].
    fn identity(&self, settings: &(dyn Any + Send + Sync)) -> Vec<Text>;

    /// See [`Step::RENEWS`].
    fn renews(&self) -> bool;

    /// See [`Step::TRIES_PARTS`].
    fn tries_parts(&self) -> bool;

    /// See [`Step::sweeps`].
    fn sweeps(&self, settings: &(dyn Any + Send + Sync)) -> bool;

    /// See [`Step::keeps`].
    fn keeps(&self, settings: &(dyn Any + Send + Sync), swept: Swept, name: &[u8]) -> bool;

    /// See [`Step::logs_first`].
    fn logs_first(&self, settings: &(dyn Any + Send + Sync)) -> bool;

    /// Whether its filters hold.
    fn applies(&self, exchange: &dyn Exchange) -> bool;

    /// What [`Step::load`] says; the step is going to run.
    fn load(&self, call: Call<'_>) -> Load;

    /// Runs the step if its filters hold. With `dry`, nothing is written but values for other steps in a dry run,
    /// and the platform must not act on what is returned.
    fn run(&self, call: Call<'_>) -> Verdict;
}

/// All that a step is run with.
pub struct Call<'a> {
    /// The settings of the route, of the type that the step states.
    pub settings: &'a (dyn Any + Send + Sync),
    /// The exchange.
    pub exchange: &'a mut dyn Exchange,
    /// What is kept of it.
    pub state: &'a mut State,
    /// The pipeline that the step belongs to.
    pub pipeline: &'a Pipeline,
    /// Where its inputs are.
    pub inputs: &'a [u16],
    /// Where its outputs go.
    pub outputs: &'a [u16],
    /// Whether nothing may change.
    pub dry: bool,
}

/// A step, and what it declares as a constant.
struct Typed<S: Step>(S);

impl<S: Step> Typed<S> {
    const DECL: Decl = decl::<S>();
}

impl<S: Step> Erased for Typed<S> {
    fn decl(&self) -> &'static Decl {
        &Self::DECL
    }

    fn key(&self) -> Option<&'static Key> {
        S::Settings::KEY
    }

    fn settings_type(&self) -> TypeId {
        TypeId::of::<S::Settings>()
    }

    fn decode(
        &self,
        nodes: &[Node],
        context: &mut dyn Context,
    ) -> Result<Arc<dyn Any + Send + Sync>, Problem> {
        Ok(Arc::new(self.0.decode(nodes, context)?))
    }

    fn is_idle(&self, settings: &(dyn Any + Send + Sync)) -> bool {
        settings.downcast_ref().is_some_and(|settings| S::is_idle(settings))
    }

    fn only_watches(&self, settings: &(dyn Any + Send + Sync)) -> bool {
        settings.downcast_ref().is_some_and(|settings| S::only_watches(settings))
    }

    fn guards(&self, settings: &(dyn Any + Send + Sync)) -> bool {
        settings.downcast_ref().is_none_or(|settings| S::guards(settings))
    }

    fn body(&self, settings: &(dyn Any + Send + Sync)) -> usize {
        settings.downcast_ref().map_or(0, |settings| S::body(settings))
    }

    fn body_in_memory(&self, settings: &(dyn Any + Send + Sync)) -> usize {
        settings.downcast_ref().map_or(usize::MAX, |settings| S::body_in_memory(settings))
    }

    fn body_pause(&self, settings: &(dyn Any + Send + Sync)) -> Option<Duration> {
        settings.downcast_ref().and_then(|settings| S::body_pause(settings))
    }

    fn identity(&self, settings: &(dyn Any + Send + Sync)) -> Vec<Text> {
        settings.downcast_ref().map_or_else(Vec::new, |settings| S::identity(settings))
    }

    fn renews(&self) -> bool {
        S::RENEWS
    }

    fn tries_parts(&self) -> bool {
        S::TRIES_PARTS
    }

    fn sweeps(&self, settings: &(dyn Any + Send + Sync)) -> bool {
        settings.downcast_ref().is_some_and(|settings| S::sweeps(settings))
    }

    fn keeps(&self, settings: &(dyn Any + Send + Sync), swept: Swept, name: &[u8]) -> bool {
        settings.downcast_ref().is_none_or(|settings| self.0.keeps(settings, swept, name))
    }

    fn logs_first(&self, settings: &(dyn Any + Send + Sync)) -> bool {
        S::At::ID == PhaseId::Log && settings.downcast_ref().is_some_and(|settings| S::logs_first(settings))
    }

    fn applies(&self, exchange: &dyn Exchange) -> bool {
        S::FILTERS.iter().all(|filter| filter.holds(exchange))
    }

    fn load(&self, call: Call<'_>) -> Load {
        let Some(settings) = call.settings.downcast_ref::<S::Settings>() else { return Load::Light };
        let taken = call.state.slots.take_all(Self::DECL.inputs, call.inputs, call.dry);
        let view = View::new(call.exchange, &call.state.slots, call.pipeline).dry(call.dry);
        let view = view.guarding(S::guards(settings)).taking(&taken);
        let input = <S::In<'_> as Inputs<'_, S::At>>::read(&view, call.inputs);
        let load = self.0.load(settings, &input);
        input.put_back(&view, call.inputs);
        call.state.slots.put_back(taken, call.dry);
        load
    }

    fn run(&self, call: Call<'_>) -> Verdict {
        let Some(settings) = call.settings.downcast_ref::<S::Settings>() else { return Verdict::Passed };
        run_typed(&self.0, settings, call)
    }
}

/// Runs a step whose types are known; of `call`, the settings are not looked at.
pub(crate) fn run_typed<S: Step>(step: &S, settings: &S::Settings, call: Call<'_>) -> Verdict {
    if !S::FILTERS.iter().all(|filter| filter.holds(call.exchange)) {
        return Verdict::Passed;
    }
    let inputs = <S::In<'_> as Inputs<'_, S::At>>::SLOTS;
    let taken = call.state.slots.take_all(inputs, call.inputs, call.dry);
    let view = View::new(call.exchange, &call.state.slots, call.pipeline).dry(call.dry);
    let view = view.guarding(S::guards(settings)).taking(&taken);
    let input = <S::In<'_> as Inputs<'_, S::At>>::read(&view, call.inputs);
    let decided = step.run(settings, input);
    let mut apply = Apply { exchange: call.exchange, state: call.state, step: S::NAME, dry: call.dry };
    match decided {
        ControlFlow::Continue(output) => {
            output.apply(&mut apply, call.outputs);
            Verdict::Continue
        }
        ControlFlow::Break(mut stop) => {
            Notes(stop.notes()).apply(&mut apply, u16::MAX);
            let outputs = <S::Out as Outputs<S::At>>::SLOTS;
            stop.emit(&mut apply, &|name| {
                let at = outputs.iter().position(|output| output.name == name);
                at.and_then(|at| call.outputs.get(at)).copied()
            });
            Verdict::Stop(stop.action())
        }
    }
}

/// A new instance of `S`, without its type.
pub fn erase<S: Step>() -> Box<dyn Erased> {
    Box::new(Typed(S::default()))
}

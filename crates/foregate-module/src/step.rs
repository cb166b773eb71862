//! Steps: the code that the author of a module writes.

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
/// A step is made once for the process, by [`Default`], and shared by all threads; its settings are those of the
/// request's route. State that a step keeps beyond a request is its own and bounded, in atomics.
pub trait Step: Default + Send + Sync + 'static {
    /// The phase in which it runs.
    type At: Phase;
    /// Its part of the configuration, validated. Steps of one module share a type. `()` for none.
    type Settings: FromNode;
    /// The inputs: a tuple such as `(ClientAddress, Path<'r>, Read<'r, Score>)`.
    type In<'r>: Inputs<'r, Self::At>;
    /// The outputs: a tuple such as `(Emit<Score>, EditRequest)`.
    type Out: Outputs<Self::At>;
    /// Its way to end the request: [`Never`](crate::Never), [`Respond`](crate::Respond), ...
    type Stop: StopAt<Self::At>;
    /// Its name: lower case, words joined by `-`; the module's name first.
    const NAME: &'static str;
    /// The description, a sentence.
    const ABOUT: &'static str;
    /// When it runs at all; all must hold. A step with settings runs only where they are configured, without saying so.
    const FILTERS: &'static [Filter];
    /// Selects the threads for heavy work. Default: light.
    const WEIGHT: Weight = Weight::Light;
    /// Set if a request goes on when the step panics; otherwise the response is 500. The same applies when a light step has blocked
    /// its thread for so long that the platform has moved it to those for heavy work, and there is no place; otherwise the response
    /// is 503. Default: false.
    const OPTIONAL: bool = false;
    /// Set if its filter [fetches](crate::BodyFilter::question) other documents: platforms without such
    /// fetches refuse its key. Default: false.
    const ASKS: bool = false;

    /// Set if its insertions into a response may change while the origin's resource stays the same, so that no 304 may keep an old
    /// one in use: on a route that configures it, but for dry runs, platforms remove the conditions from requests after the
    /// phase `upstream-request` ([`Plan::renew`](crate::Plan::renew)), even if the step does not run. It removes the validators
    /// from the responses itself. Default: false.
    const RENEWS: bool = false;

    /// Set if it runs after the other steps of its phase, regardless of the order of lists: for steps that need the final response, such as
    /// content codings. Default: false.
    const LAST: bool = false;

    /// Set if it is tried on a partial response (206). If the request can be repeated without `Range`, platforms
    /// run such steps of the phase `response-body` on the original head, before any other step of the response, and
    /// with values of their own. If one of them emits [`AskWhole`](crate::AskWhole), the response is dropped and the request
    /// repeated; their other output is dropped. They must not change the head of a part. Default: false.
    const TRIES_PARTS: bool = false;

    /// Returns true if it never does anything with these settings, so that routes with them skip it: for modules whose steps
    /// each carry out a part of their settings. Default: false.
    fn is_idle(_settings: &Self::Settings) -> bool {
        false
    }

    /// Returns true if it never ends a request with these settings: a request goes on without it if it cannot run, or cannot get
    /// the body that it needs. Default: false.
    fn only_watches(_settings: &Self::Settings) -> bool {
        false
    }

    /// Returns true if, with these settings, the step refuses requests, or decides which part of them an origin gets, so that skipping it
    /// matters: a request goes to no origin if one of its conditions has another result for another reading of the path
    /// ([`Exchange::doubt_path`]). A module guards if any of its steps before the response does. Default: true unless it [only
    /// watches](Self::only_watches).
    fn guards(settings: &Self::Settings) -> bool {
        !Self::only_watches(settings)
    }

    /// How much of the request's body must have been received before the phase `request-body`, bytes. Default: none.
    fn body(_settings: &Self::Settings) -> usize {
        0
    }

    /// The part of that which is held in memory, bytes: for platforms that can keep a longer body in a temporary file until the step
    /// runs. The smallest value of a route's steps counts. Default: all.
    fn body_in_memory(_settings: &Self::Settings) -> usize {
        usize::MAX
    }

    /// The pause in a request's body of unknown length after which the step runs on the received part, so that a client which waits
    /// for a response to it gets one: the rest bypasses the step. The longest of a route's steps counts.
    /// Default: none, unless all of them [only watch](Self::only_watches).
    fn body_pause(_settings: &Self::Settings) -> Option<Duration> {
        None
    }

    /// Fields of the request with which the module identifies the client to the origin. On a route that configures the module
    /// the client's own are removed before the phase `request-identity`, so that no step believes
    /// them, even if the step does not run: under a `when` that does not hold, in a dry run, and when rules skip it. Names are
    /// compared without regard to case, and `_` counts as `-`, as it does for many origins. Default: none.
    fn identity(_settings: &Self::Settings) -> Vec<Text> {
        Vec::new()
    }

    /// Returns true if [`keeps`](Self::keeps) decides about fields that no step sees, with these settings: those of request trailers for a
    /// step that runs before there is a response, those of interim responses and of response trailers for one that runs
    /// later. Default: false.
    fn sweeps(_settings: &Self::Settings) -> bool {
        false
    }

    /// Returns true if a field of this name passes to the origin or the client. Default: true.
    fn keeps(&self, _settings: &Self::Settings, _swept: Swept, _name: &[u8]) -> bool {
        true
    }

    /// Returns true if a step of the phase `log` runs before the response begins with these settings, so that its lines are in their files
    /// before the client has the response. The platform waits for the files for a limited time. The outcome that the step reads
    /// is that of this time: a response that breaks off later has its status, and no error. A platform without this feature
    /// refuses such settings ([`Plan::logs_first`](crate::Plan::logs_first)). Default: false, the step runs when the exchange is over.
    fn logs_first(_settings: &Self::Settings) -> bool {
        false
    }

    /// The thread for this request, if [`WEIGHT`](Self::WEIGHT) is [`Weight::Varies`]: called right before
    /// [`run`](Self::run), with the same inputs. Should be cheap compared with the work. Default: here.
    fn load(&self, _settings: &Self::Settings, _input: &Self::In<'_>) -> Load {
        Load::Light
    }

    /// Reads its settings. A step may override this to keep in itself what is costly to make of files, for configurations that follow.
    ///
    /// # Errors
    ///
    /// The mistakes in the settings.
    fn decode(&self, nodes: &[Node], context: &mut dyn Context) -> Result<Self::Settings, Problem> {
        FromNode::from_nodes(nodes, context)
    }

    /// The version of the format of [`save`](Self::save). A process that takes over gets states of its own version alone. Default: 1.
    const STATE_VERSION: u16 = 1;

    /// The state that it keeps beyond requests, for a process that takes over from this one. Times in it are on the steady clock, which goes
    /// on in that process; `now` is the present one, milliseconds. `random` is a number that cannot be guessed from outside. Bounded like
    /// the state itself. Default: none.
    fn save(&self, _now: u64, _random: u64) -> Option<Vec<u8>> {
        None
    }

    /// Adds the [state](Self::save) of another process to its own. Called at the start and again while requests are served; the bytes may be
    /// any. Default: ignores them.
    fn restore(&self, _state: &[u8], _now: u64) {}

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
    /// An earlier step of the route writes the value of this name, or adds to the list: for steps without settings
    /// that carry out requests of others.
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
    /// The result for a route, if it is decided there.
    /// `written` returns true if an earlier step of the route writes a value.
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

/// The thread on which a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// On the thread of the request: under some ten microseconds.
    Light,
    /// On the threads for heavy work, with a bounded queue.
    Heavy(WhenFull),
    /// Varies by request: [`Step::load`] returns it, for steps whose work grows with their input.
    Varies,
}

/// The position of a field that no step sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swept {
    /// In an interim response.
    Interim,
    /// After a body.
    Trailers,
}

/// The thread on which a step runs for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// On the thread of the request.
    Light,
    /// On the threads for heavy work.
    Heavy {
        /// The treatment if there is no place, or no thread in time.
        when_full: WhenFull,
        /// How long it may wait for a thread, at most five seconds; thirty where the request's body lies in a file.
        wait: Duration,
    },
}

/// The treatment of a heavy step when the queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It runs on the thread of the request, and delays other requests of that thread.
    Inline,
    /// The request continues without the step.
    Shed,
    /// The request is answered with 503.
    Error,
}

/// The decision of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A filter excluded the step.
    Passed,
    /// The step ran; its outputs have been written.
    Continue,
    /// The step ends the request.
    Stop(Action),
}

/// A step without its types, for the platform.
pub trait ErasedStep: Send + Sync {
    /// The step's declaration.
    fn decl(&self) -> &'static Decl;

    /// The key of the configuration that turns it on.
    fn key(&self) -> Option<&'static Key>;

    /// The type of its settings.
    fn settings_type(&self) -> TypeId;

    /// Reads its settings.
    ///
    /// # Errors
    ///
    /// Errors in the settings.
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

    /// See [`Step::STATE_VERSION`].
    fn state_version(&self) -> u16;

    /// See [`Step::save`].
    fn save(&self, now: u64, random: u64) -> Option<Vec<u8>>;

    /// See [`Step::restore`].
    fn restore(&self, state: &[u8], now: u64);

    /// Returns true if its filters hold.
    fn applies(&self, exchange: &dyn Exchange) -> bool;

    /// The result of [`Step::load`]; the step is about to run.
    fn load(&self, call: Call<'_>) -> Load;

    /// Runs the step if its filters hold. With `dry`, nothing is written but values for other steps in a dry run,
    /// and the platform must ignore the result.
    fn run(&self, call: Call<'_>) -> Verdict;
}

/// All that a step is run with.
pub struct Call<'a> {
    /// The settings of the route, of the type that the step states.
    pub settings: &'a (dyn Any + Send + Sync),
    /// The exchange.
    pub exchange: &'a mut dyn Exchange,
    /// The state that the step keeps.
    pub state: &'a mut State,
    /// The pipeline that the step belongs to.
    pub pipeline: &'a Pipeline,
    /// The slots of its inputs.
    pub inputs: &'a [u16],
    /// The slots of its outputs.
    pub outputs: &'a [u16],
    /// Set if nothing may change.
    pub dry: bool,
}

/// A step, with its declaration as a constant.
struct TypedStep<S: Step>(S);

impl<S: Step> TypedStep<S> {
    const DECL: Decl = decl::<S>();
}

impl<S: Step> ErasedStep for TypedStep<S> {
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

    fn state_version(&self) -> u16 {
        S::STATE_VERSION
    }

    fn save(&self, now: u64, random: u64) -> Option<Vec<u8>> {
        self.0.save(now, random)
    }

    fn restore(&self, state: &[u8], now: u64) {
        self.0.restore(state, now);
    }

    fn applies(&self, exchange: &dyn Exchange) -> bool {
        S::FILTERS.iter().all(|filter| filter.holds(exchange))
    }

    fn load(&self, call: Call<'_>) -> Load {
        let Some(settings) = call.settings.downcast_ref::<S::Settings>() else { return Load::Light };
        let taken = call.state.slots.take_all(Self::DECL.inputs, call.inputs, call.dry);
        let view = View::new(call.exchange, &call.state.slots, call.pipeline.values()).dry(call.dry);
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

/// Runs a step with known types; the settings in `call` are ignored.
pub(crate) fn run_typed<S: Step>(step: &S, settings: &S::Settings, call: Call<'_>) -> Verdict {
    if !S::FILTERS.iter().all(|filter| filter.holds(call.exchange)) {
        return Verdict::Passed;
    }
    let inputs = <S::In<'_> as Inputs<'_, S::At>>::SLOTS;
    let taken = call.state.slots.take_all(inputs, call.inputs, call.dry);
    let view = View::new(call.exchange, &call.state.slots, call.pipeline.values()).dry(call.dry);
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
pub fn erase<S: Step>() -> Box<dyn ErasedStep> {
    Box::new(TypedStep(S::default()))
}

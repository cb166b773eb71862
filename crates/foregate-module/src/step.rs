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
/// A step is made once for the process, by [`Default`], and shared by all threads. It runs with the settings of the
/// request's route. State that lives longer than a request is in fields of the step: in atomics, and of bounded size.
pub trait Step: Default + Send + Sync + 'static {
    /// The phase in which the step runs.
    type At: Phase;
    /// The step's settings, read from the configuration and validated. All steps of a module share this type. `()` for
    /// none.
    type Settings: FromNode;
    /// The inputs: a tuple such as `(ClientAddress, Path<'r>, Read<'r, Score>)`.
    type In<'r>: Inputs<'r, Self::At>;
    /// The outputs: a tuple such as `(Emit<Score>, EditRequest)`.
    type Out: Outputs<Self::At>;
    /// The way in which the step may end the request: [`Never`](crate::Never), [`Respond`](crate::Respond), ...
    type Stop: StopAt<Self::At>;
    /// The name of the step: lower case, words joined by `-`, beginning with the module's name.
    const NAME: &'static str;
    /// The description, a sentence.
    const ABOUT: &'static str;
    /// The conditions under which the step runs: all must hold. A step with settings runs only on routes that configure
    /// them; it needs no filter for that.
    const FILTERS: &'static [Filter];
    /// Selects the thread of the request or the threads for heavy work. Default: light.
    const WEIGHT: Weight = Weight::Light;
    /// True if the request continues without the step when the step fails. There are two cases:
    ///
    /// - The step panics. If false, the response is 500.
    /// - The step is light, but has blocked its thread for too long. The platform then runs it on the threads for heavy
    ///   work, and their queue is full. If false, the response is 503.
    ///
    /// Default: false.
    const OPTIONAL: bool = false;
    /// True if the step's filter [fetches](crate::BodyFilter::question) other documents. Platforms without such
    /// fetches refuse the step's key. Default: false.
    const ASKS: bool = false;

    /// True if the step inserts something into responses, and the insertion may change while the origin's resource
    /// stays the same. A 304 would keep the old insertion in use. So platforms remove the conditions from requests
    /// after the phase `upstream-request` ([`Plan::renew`](crate::Plan::renew)). They do so on every route that
    /// configures the step outside of a dry run, even if the step does not run. The step itself removes the validators
    /// from the responses. Default: false.
    const RENEWS: bool = false;

    /// True if the step runs after all other steps of its phase, regardless of its position in the list of steps. For steps
    /// that need the final response, such as content codings. Default: false.
    const LAST: bool = false;

    /// True if the step is tried on a partial response (206). If the request can be repeated without `Range`, platforms
    /// run such steps of the phase `response-body` on the original head, before any other step of the response, and with
    /// separate values. If one of them emits [`AskWhole`](crate::AskWhole), the platform drops the response and repeats
    /// the request. It ignores all other output of the trial. These steps must not change the head of a partial response.
    /// Default: false.
    const TRIES_PARTS: bool = false;

    /// Returns true if the step never does anything with these settings; routes with such settings skip it. For modules
    /// in which each step carries out only a part of the settings. Default: false.
    fn is_idle(_settings: &Self::Settings) -> bool {
        false
    }

    /// Returns true if the step never ends a request with these settings. Then a request continues without the step if the
    /// step cannot run, or if the body that it needs is not available. Default: false.
    fn only_watches(_settings: &Self::Settings) -> bool {
        false
    }

    /// Returns true if, with these settings, the step refuses requests, or decides which parts of a request reach the
    /// origin. No client may get around such a step: if the origin could read the path in another way, and a condition of
    /// the step had another result for that reading, the request goes to no origin ([`Exchange::doubt_path`]). A module
    /// guards if any of its steps before the response does. Default: true unless it [only watches](Self::only_watches).
    fn guards(settings: &Self::Settings) -> bool {
        !Self::only_watches(settings)
    }

    /// The length of the request body's start that must have been received before the phase `request-body`, bytes.
    /// Default: 0.
    fn body(_settings: &Self::Settings) -> usize {
        0
    }

    /// The part of [`body`](Self::body) that is held in memory, bytes. Platforms with temporary files keep a longer
    /// body in a file until the step runs. The smallest value of a route's steps counts. Default: all of the part is in
    /// memory.
    fn body_in_memory(_settings: &Self::Settings) -> usize {
        usize::MAX
    }

    /// For a request's body of unknown length: after a pause of this length, the step runs on the received part, and the
    /// rest of the body bypasses it. Otherwise a client that waits for a response before it sends more would wait forever.
    /// The longest pause of a route's steps counts. Steps in a dry run and steps that [only watch](Self::only_watches) do
    /// not count. Default: `None`, the step waits regardless of pauses.
    fn body_pause(_settings: &Self::Settings) -> Option<Duration> {
        None
    }

    /// Fields of the request with which the module identifies the client to the origin. On a route that configures the
    /// module, the platform removes such fields of the client before the phase `request-identity`, so that no step believes
    /// them. It does so even if the step does not run: if its `when` does not hold, in a dry run, or if rules skip it.
    /// Names are compared without regard to case, and `_` counts as `-`, as it does for many origins. Default: none.
    fn identity(_settings: &Self::Settings) -> Vec<Text> {
        Vec::new()
    }

    /// Returns true if, with these settings, [`keeps`](Self::keeps) decides about fields that no step sees. If the step
    /// runs before the response, these are the request trailers; if later, the fields of interim responses and the
    /// response trailers. Default: false.
    fn sweeps(_settings: &Self::Settings) -> bool {
        false
    }

    /// Returns true if a field of this name passes to the origin or the client. Default: true.
    fn keeps(&self, _settings: &Self::Settings, _swept: Swept, _name: &[u8]) -> bool {
        true
    }

    /// Returns true if, with these settings, a step of the phase `log` runs before the response begins, so that its lines
    /// are in the log files before the client has the response. The platform waits for the files for a limited time. The
    /// step cannot see how the response ends: if the response breaks off later, the step has seen its status but not the
    /// error. A platform without this feature refuses such settings ([`Plan::logs_first`](crate::Plan::logs_first)).
    /// Default: false, the step runs when the exchange is over.
    fn logs_first(_settings: &Self::Settings) -> bool {
        false
    }

    /// The thread for this request, if [`WEIGHT`](Self::WEIGHT) is [`Weight::Varies`]: called right before
    /// [`run`](Self::run), with the same inputs. The call should be cheap compared with the work. Default: this thread.
    fn load(&self, _settings: &Self::Settings, _input: &Self::In<'_>) -> Load {
        Load::Light
    }

    /// Reads the step's settings. A step may override this to cache data that is costly to make from files: the next
    /// configuration that uses the same files then gets the cached data.
    ///
    /// # Errors
    ///
    /// The mistakes in the settings.
    fn decode(&self, nodes: &[Node], context: &mut dyn Context) -> Result<Self::Settings, Problem> {
        FromNode::from_nodes(nodes, context)
    }

    /// The version of the format of [`save`](Self::save). A process that takes over gets only states of the same version.
    /// Default: 1.
    const STATE_VERSION: u16 = 1;

    /// The state that the step keeps between requests, for a process that takes over from this one. Times in the state are
    /// of the steady clock, which the other process shares; `now` is the current time of that clock, milliseconds. `random`
    /// is a number that nobody outside can guess. The size must be bounded. Default: none.
    fn save(&self, _now: u64, _random: u64) -> Option<Vec<u8>> {
        None
    }

    /// Adds the [state](Self::save) of another process to its own. Called at the start, and again while requests are
    /// served. The bytes may be invalid. Default: ignores them.
    fn restore(&self, _state: &[u8], _now: u64) {}

    /// Runs the step. It must not block; a step with heavy work declares this by [`WEIGHT`](Self::WEIGHT).
    fn run(&self, settings: &Self::Settings, input: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out>;
}

/// A condition under which a step runs. The first three are decided once for a route, the others for every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// The route asks an upstream.
    Proxied,
    /// The route does not ask an upstream.
    Answered,
    /// An earlier step of the route writes the value of this name, or adds to the list of this name. For steps without
    /// settings, which carry out the orders of other steps.
    Written(&'static str),
    /// The request has this method.
    Method(&'static str),
    /// The request has a field of this name.
    RequestField(&'static str),
    /// The response's status is in this range, both ends included.
    Status(u16, u16),
    /// The response has a field of this name.
    ResponseField(&'static str),
}

impl Filter {
    /// The result of the filter, if it is the same for all requests of the route; `None` if it depends on the request.
    /// `written` returns true if an earlier step of the route writes the value of a name.
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
    /// On the thread of the request: for work of less than about ten microseconds.
    Light,
    /// On the threads for heavy work, with a bounded queue.
    Heavy(WhenFull),
    /// The thread differs by request: [`Step::load`] returns it. For steps with work that grows with their input.
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
        /// The treatment if the queue is full, or no thread is free in time.
        when_full: WhenFull,
        /// The longest wait for a thread: at most five seconds, or thirty if the request's body is in a file.
        wait: Duration,
    },
}

/// The treatment of a heavy step if the queue is full.
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

    /// The key of the configuration that turns the step on.
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

    /// See [`Step::body`].
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

    /// Runs the step if its filters hold. With `dry`, the step only writes values for other steps in a dry run, and the
    /// platform must ignore the result.
    fn run(&self, call: Call<'_>) -> Verdict;
}

/// The arguments of a call of a step.
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

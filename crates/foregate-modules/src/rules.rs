//! Rules: conditions in the expression language, and their actions.
//!
//! ```kdl
//! rule #"http.request.uri.path eq "/admin" and not ip.src in $office"# name="admin" { block; }
//! rule #"http.host eq "old.example""# {
//!     redirect #"concat("https://new.example", http.request.uri)"# expression=#true status=301
//! }
//! rule "http.response.code ge 500" phase="response" { set-response-header "retry-after" "10"; }
//! ```
//!
//! One step evaluates all rules of a phase together, against the request as it is at that time. Further steps carry out
//! the decisions, each in its own phase: responses and `skip` at once, changes to the request in `request-rewrite`, the
//! choice of upstreams in `upstream-select`, changes to the response in `response-headers`. Later rules see only the
//! variables that earlier rules have set, not their changes.

mod challenge;
mod evaluate;
mod keys;
mod settings;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use foregate_module::{
    ChooseUpstream, EditRequest, EditResponse, Edits, Emit, Filter, Kind, Never, Notes, Read, Replace,
    Respond, Response, RewriteTarget, Shown, Skip, Step, Swept, Tally, Text, Value, View, phase,
};

pub use self::evaluate::Decision;
use self::evaluate::{Evaluation, evaluate};
use self::settings::Action;
pub use self::settings::Rules;
use crate::expressions::VARIABLES;

/// Texts that rules keep for a request, each name once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables(Vec<(Text, Text)>);

impl Variables {
    fn set(&mut self, name: Arc<[u8]>, value: Text) {
        match self.0.iter_mut().find(|(found, _)| **found == *name) {
            Some((_, old)) => *old = value,
            None => self.0.push((Text::Shared(name), value)),
        }
    }
}

macro_rules! values {
    ($($(#[$doc:meta])* $name:ident: $data:ty, $label:expr, $about:literal $(, $kind:ident, $show:expr)?;)*) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl Value for $name {
            type Data = $data;
            const NAME: &'static str = $label;
            const ABOUT: &'static str = $about;
            $(
                const SHOWS: Option<Kind> = Some(Kind::$kind);
                fn show(data: &$data) -> Option<Shown<'_>> {
                    let show: fn(&$data) -> Shown<'_> = $show;
                    Some(show(data))
                }
            )?
        }
    )* };
}

values! {
    /// The variables of rules of the phase `request`.
    Kept: Variables, VARIABLES[0], "Texts that rules have kept.", Map, |variables| Shown::Map(&variables.0);
    /// The variables of earlier phases, and of rules of the phase `rewrite`.
    KeptInRewrite: Variables, VARIABLES[1], "Texts that rules have kept.", Map, |variables| Shown::Map(&variables.0);
    /// The variables of earlier phases, and of rules of the phase `response`.
    KeptInResponse: Variables, VARIABLES[2], "Texts that rules have kept.", Map, |variables| Shown::Map(&variables.0);
    /// The decisions of rules of the phase `request`.
    Decided: Decision, "rules.decision", "The decisions of rules about the request.";
    /// The decisions of rules of the phase `rewrite`.
    DecidedInRewrite: Decision, "rules.rewrite-decision", "The decisions of rules of the phase `rewrite`.";
    /// The decisions of rules of the phase `response`.
    DecidedInResponse: Decision, "rules.response-decision", "The decisions of rules of the phase `response`.";
}

/// Evaluates the rules of the phase `request`.
#[derive(Debug, Default)]
pub struct EvaluateRequest;

impl Step for EvaluateRequest {
    type At = phase::RequestSecurity;
    type Settings = Rules;
    type In<'r> = (View<'r>,);
    type Out = (Emit<Decided>, Emit<Kept>, Notes, Tally, Skip);
    type Stop = Never;
    const NAME: &'static str = "rules";
    const ABOUT: &'static str = "Evaluates the rules of the phase `request`.";
    const FILTERS: &'static [Filter] = &[];

    fn is_idle(rules: &Rules) -> bool {
        rules.request.is_empty()
    }

    fn guards(rules: &Rules) -> bool {
        rules.request.guards()
    }

    fn run(&self, rules: &Rules, (view,): (View<'_>,)) -> ControlFlow<Never, Self::Out> {
        let done = evaluate::<Kept>(&rules.request, view, None);
        ControlFlow::Continue((
            Emit(done.decision),
            Emit(done.variables),
            Notes(done.notes),
            Tally(done.tallies),
            Skip(done.skipped),
        ))
    }
}

/// Ends requests as rules of the phase `request` have decided.
#[derive(Debug, Default)]
pub struct StopRequest;

impl Step for StopRequest {
    type At = phase::RequestSecurity;
    type Settings = Rules;
    type In<'r> = (Read<'r, Decided>,);
    type Out = ();
    type Stop = Respond;
    const NAME: &'static str = "rules-stop";
    const ABOUT: &'static str = "Answers requests that rules block, redirect or challenge.";
    const FILTERS: &'static [Filter] = &[];

    fn is_idle(rules: &Rules) -> bool {
        !rules.request.any(Action::may_stop)
    }

    fn run(&self, _: &Rules, (Read(decided),): (Read<'_, Decided>,)) -> ControlFlow<Respond> {
        stop(decided).map_break(Respond)
    }
}

/// Changes requests as rules of the phase `request` have decided.
#[derive(Debug, Default)]
pub struct ChangeRequest;

impl Step for ChangeRequest {
    type At = phase::RequestRewrite;
    type Settings = Rules;
    type In<'r> = (Read<'r, Decided>,);
    type Out = (EditRequest, RewriteTarget);
    type Stop = Never;
    const NAME: &'static str = "rules-change";
    const ABOUT: &'static str = "Changes the request as rules of the phase `request` say.";
    const FILTERS: &'static [Filter] = &[];

    fn is_idle(rules: &Rules) -> bool {
        !rules.request.any(Action::edits_request)
    }

    fn sweeps(rules: &Rules) -> bool {
        !rules.of_requests.is_empty()
    }

    fn keeps(&self, rules: &Rules, _: Swept, name: &[u8]) -> bool {
        !rules.of_requests.contains(name)
    }

    fn run(&self, _: &Rules, (Read(decided),): (Read<'_, Decided>,)) -> ControlFlow<Never, Self::Out> {
        ControlFlow::Continue(changes(decided))
    }
}

/// Evaluates the rules of the phase `rewrite`.
#[derive(Debug, Default)]
pub struct EvaluateRewrite;

impl Step for EvaluateRewrite {
    type At = phase::RequestRewrite;
    type Settings = Rules;
    type In<'r> = (View<'r>, Read<'r, Decided>, Read<'r, Kept>);
    type Out = (Emit<DecidedInRewrite>, Emit<KeptInRewrite>, EditRequest, RewriteTarget, Notes, Tally, Skip);
    type Stop = Never;
    const NAME: &'static str = "rules-rewrite";
    const ABOUT: &'static str =
        "Evaluates the rules of the phase `rewrite`, and changes the request as they say.";
    const FILTERS: &'static [Filter] = &[];

    fn is_idle(rules: &Rules) -> bool {
        rules.rewrite.is_empty()
    }

    fn guards(rules: &Rules) -> bool {
        rules.rewrite.guards()
    }

    fn sweeps(rules: &Rules) -> bool {
        rules.rewrite.any(Action::edits_request) && !rules.of_requests.is_empty()
    }

    fn keeps(&self, rules: &Rules, _: Swept, name: &[u8]) -> bool {
        !rules.of_requests.contains(name)
    }

    fn run(
        &self,
        rules: &Rules,
        (view, Read(decided), Read(kept)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let leaves = decided.is_some_and(|decided| decided.leaves_rules);
        let done = match leaves {
            true => Evaluation::default(),
            false => evaluate::<KeptInRewrite>(&rules.rewrite, view, kept),
        };
        let (edits, target) = changes(done.decision.as_ref());
        let (notes, tally, skip) = (Notes(done.notes), Tally(done.tallies), Skip(done.skipped));
        ControlFlow::Continue((Emit(done.decision), Emit(done.variables), edits, target, notes, tally, skip))
    }
}

/// Ends requests as rules of the phase `rewrite` have decided.
#[derive(Debug, Default)]
pub struct StopRewrite;

impl Step for StopRewrite {
    type At = phase::RequestRewrite;
    type Settings = Rules;
    type In<'r> = (Read<'r, DecidedInRewrite>,);
    type Out = ();
    type Stop = Respond;
    const NAME: &'static str = "rules-rewrite-stop";
    const ABOUT: &'static str =
        "Answers requests that rules of the phase `rewrite` block, redirect or challenge.";
    const FILTERS: &'static [Filter] = &[];

    fn is_idle(rules: &Rules) -> bool {
        !rules.rewrite.any(Action::may_stop)
    }

    fn run(&self, _: &Rules, (Read(decided),): (Read<'_, DecidedInRewrite>,)) -> ControlFlow<Respond> {
        stop(decided).map_break(Respond)
    }
}

/// Chooses the upstream that a rule names.
#[derive(Debug, Default)]
pub struct SelectUpstream;

impl Step for SelectUpstream {
    type At = phase::UpstreamSelect;
    type Settings = Rules;
    type In<'r> = (Read<'r, Decided>, Read<'r, DecidedInRewrite>);
    type Out = (ChooseUpstream,);
    type Stop = Never;
    const NAME: &'static str = "rules-upstream";
    const ABOUT: &'static str = "Asks the upstream that a rule names.";
    const FILTERS: &'static [Filter] = &[Filter::Proxied];

    fn is_idle(rules: &Rules) -> bool {
        ![&rules.request, &rules.rewrite].iter().any(|group| group.any(Action::chooses_upstream))
    }

    fn run(
        &self,
        _: &Rules,
        (Read(decided), Read(later)): (Read<'_, Decided>, Read<'_, DecidedInRewrite>),
    ) -> ControlFlow<Never, Self::Out> {
        let chosen = [later, decided].into_iter().flatten().find_map(|decided| decided.upstream);
        ControlFlow::Continue((ChooseUpstream(chosen),))
    }
}

/// Evaluates the rules of the phase `response`.
#[derive(Debug, Default)]
pub struct EvaluateResponse;

impl Step for EvaluateResponse {
    type At = phase::ResponseHeaders;
    type Settings = Rules;
    type In<'r> =
        (View<'r>, Read<'r, Decided>, Read<'r, DecidedInRewrite>, Read<'r, Kept>, Read<'r, KeptInRewrite>);
    type Out = (Emit<DecidedInResponse>, Emit<KeptInResponse>, Notes, Tally, Skip);
    type Stop = Never;
    const NAME: &'static str = "rules-response";
    const ABOUT: &'static str = "Evaluates the rules of the phase `response`.";
    const FILTERS: &'static [Filter] = &[];

    fn is_idle(rules: &Rules) -> bool {
        rules.response.is_empty()
    }

    fn run(&self, rules: &Rules, input: Self::In<'_>) -> ControlFlow<Never, Self::Out> {
        let (view, Read(decided), Read(rewrite), Read(kept), Read(later)) = input;
        let leaves = [decided, rewrite].into_iter().flatten().any(|decided| decided.leaves_rules);
        let done = match leaves {
            true => Evaluation::default(),
            false => evaluate::<KeptInResponse>(&rules.response, view, later.or(kept)),
        };
        let (notes, tally, skip) = (Notes(done.notes), Tally(done.tallies), Skip(done.skipped));
        ControlFlow::Continue((Emit(done.decision), Emit(done.variables), notes, tally, skip))
    }
}

/// Replaces responses as rules of the phase `response` have decided.
#[derive(Debug, Default)]
pub struct ReplaceResponse;

impl Step for ReplaceResponse {
    type At = phase::ResponseHeaders;
    type Settings = Rules;
    type In<'r> = (Read<'r, DecidedInResponse>,);
    type Out = ();
    type Stop = Replace;
    const NAME: &'static str = "rules-replace";
    const ABOUT: &'static str = "Replaces responses as rules of the phase `response` say.";
    const FILTERS: &'static [Filter] = &[];

    fn is_idle(rules: &Rules) -> bool {
        !rules.response.any(Action::may_stop)
    }

    fn run(&self, _: &Rules, (Read(decided),): (Read<'_, DecidedInResponse>,)) -> ControlFlow<Replace> {
        stop(decided).map_break(Replace)
    }
}

/// Changes responses as rules have decided, including responses that rules have made.
#[derive(Debug, Default)]
pub struct ChangeResponse;

impl Step for ChangeResponse {
    type At = phase::ResponseHeaders;
    type Settings = Rules;
    type In<'r> = (Read<'r, Decided>, Read<'r, DecidedInRewrite>, Read<'r, DecidedInResponse>);
    type Out = (EditResponse,);
    type Stop = Never;
    const NAME: &'static str = "rules-change-response";
    const ABOUT: &'static str = "Changes the response as rules of all phases say.";
    const FILTERS: &'static [Filter] = &[];

    fn is_idle(rules: &Rules) -> bool {
        ![&rules.request, &rules.rewrite, &rules.response]
            .iter()
            .any(|group| group.any(Action::edits_response))
    }

    fn sweeps(rules: &Rules) -> bool {
        !rules.of_responses.is_empty()
    }

    fn keeps(&self, rules: &Rules, swept: Swept, name: &[u8]) -> bool {
        // Interim responses pass unchanged: it is not yet known which rules will match, and preload hints do no harm.
        swept == Swept::Interim || !rules.of_responses.contains(name)
    }

    fn run(
        &self,
        _: &Rules,
        (Read(request), Read(rewrite), Read(response)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let mut edits = Edits::new();
        for decided in [request, rewrite, response].into_iter().flatten() {
            edits.extend(&decided.response);
        }
        ControlFlow::Continue((EditResponse(edits),))
    }
}

/// Ends the request with the response that rules have decided on, if any.
fn stop(decided: Option<&Decision>) -> ControlFlow<Response> {
    match decided.and_then(|decided| decided.stop.as_deref()) {
        Some(response) => ControlFlow::Break(response.clone()),
        None => ControlFlow::Continue(()),
    }
}

/// The changes to a request that rules have decided on.
fn changes(decided: Option<&Decision>) -> (EditRequest, RewriteTarget) {
    let Some(decided) = decided else { return (EditRequest(Edits::new()), RewriteTarget(None)) };
    let rewritten = decided.path.is_some() || decided.query.is_some();
    let target = rewritten.then(|| (decided.path.clone(), decided.query.clone()));
    (EditRequest(decided.request.clone()), RewriteTarget(target))
}

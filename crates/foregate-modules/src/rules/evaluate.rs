//! Evaluating the rules of a phase.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use foregate_module::settings::UpstreamId;
use foregate_module::{Doubt, Edit, Edits, Exchange, Note, Response, Steps, Text, Value, View};

use super::Variables;
use super::settings::{Action, Change, PhaseRules, Rule};
use crate::redirects;

/// The decisions of a phase's rules, for the steps that carry them out.
#[derive(Default)]
pub struct Decision {
    /// The response that ends the request.
    pub(super) stop: Option<Box<Response>>,
    /// Changes to the request's fields.
    pub(super) request: Edits,
    /// Changes to the response's fields.
    pub(super) response: Edits,
    pub(super) path: Option<Text>,
    pub(super) query: Option<Text>,
    pub(super) upstream: Option<UpstreamId>,
    /// Set if the rules of later phases are left out.
    pub(super) leaves_rules: bool,
}

/// The decisions so far.
#[derive(Default)]
pub(super) struct Evaluation {
    /// The decisions; `None` as long as there are none.
    pub(super) decision: Option<Decision>,
    /// The variables; `None` as long as none has been set in this phase.
    pub(super) variables: Option<Variables>,
    pub(super) notes: Vec<Note>,
    pub(super) skipped: Steps,
    /// The metrics, by the names of rules.
    pub(super) tallies: Vec<(&'static str, Text)>,
}

/// Evaluates the rules of a phase. `V` is the value for the phase's variables; `before` are the variables of earlier
/// phases.
pub(super) fn evaluate<V: Value<Data = Variables>>(
    group: &PhaseRules,
    view: View<'_>,
    before: Option<&Variables>,
) -> Evaluation {
    let mut evaluation = Evaluation::default();
    for segment in &group.segments {
        let seen = evaluation.variables.clone();
        let conditions_view = seen.as_ref().map_or(view, |seen| view.with::<V>(seen));
        let (mut over, mut last) = (false, usize::MAX);
        segment.conditions.each(&conditions_view, &mut |number| {
            let Some(rule) = group.rules.get(segment.first + number) else {
                return ControlFlow::Continue(());
            };
            let flow = evaluation.follow::<V>(rule, view, before);
            over = flow.is_break();
            if over {
                last = number;
            }
            flow
        });
        // An origin may read the path in another way than the rules, so that a request could get around a guarding rule.
        // Rules after `last` do not count: no rule after it has been carried out.
        if view.doubt() == Doubt::Refuses {
            segment.conditions.each_in_doubt(&conditions_view, &mut |number| {
                let rule = group.rules.get(segment.first + number);
                if number > last || !rule.is_some_and(Rule::guards) {
                    return ControlFlow::Continue(());
                }
                view.exchange().doubt_path();
                ControlFlow::Break(())
            });
        }
        if over {
            break;
        }
    }
    evaluation
}

impl Evaluation {
    /// Carries out a rule. Breaks if no later rule may be carried out.
    fn follow<V: Value<Data = Variables>>(
        &mut self,
        rule: &Rule,
        view: View<'_>,
        before: Option<&Variables>,
    ) -> ControlFlow<()> {
        if rule.dry_run {
            self.note("rule-dry-run", Text::Shared(Arc::clone(&rule.name)));
            self.tallies.push(("dry-run", Text::Shared(Arc::clone(&rule.name))));
            return ControlFlow::Continue(());
        }
        let mut flow = ControlFlow::Continue(());
        for action in &rule.actions {
            // The value of a variable may use the variables that earlier actions have set.
            let variables = self.variables.take();
            let seen = variables.as_ref().map_or(view, |variables| view.with::<V>(variables));
            let done = self.act(action, &seen);
            self.variables = variables;
            match done {
                Done::Nothing => {}
                Done::Set(name, value) => {
                    let variables = self.variables.get_or_insert_with(|| before.cloned().unwrap_or_default());
                    variables.set(name, value);
                }
                Done::LeftRules => flow = ControlFlow::Break(()),
                Done::Stopped(response) => {
                    self.note("rule", Text::Shared(Arc::clone(&rule.name)));
                    self.tallies.push(("end", Text::Shared(Arc::clone(&rule.name))));
                    self.decide().stop = Some(Box::new(response));
                    return ControlFlow::Break(());
                }
            }
        }
        flow
    }

    fn act(&mut self, action: &Action, view: &View<'_>) -> Done {
        match action {
            Action::Respond { status, content_type, body } => {
                let response = Response::new(*status);
                let body = body.get(view).unwrap_or_default();
                return Done::Stopped(match &*body {
                    b"" => response,
                    _ => response.body(Text::Shared(Arc::clone(content_type)), body).meant(),
                });
            }
            Action::Redirect { status, target } => {
                let location = target.get(view).and_then(|target| location(target, view.exchange()));
                if let Some(location) = location {
                    return Done::Stopped(Response::new(*status).field("location", location));
                }
            }
            Action::Rewrite { path, query } => {
                let (path, query) = (
                    path.as_ref().and_then(|path| path.get(view)),
                    query.as_ref().and_then(|query| query.get(view)),
                );
                let decision = self.decide();
                decision.path = path.or(decision.path.take());
                decision.query = query.or(decision.query.take());
            }
            Action::EditRequest(change) => {
                change_fields(change, view, &mut self.decide().request);
            }
            Action::EditResponse(change) => {
                change_fields(change, view, &mut self.decide().response);
            }
            Action::Set { name, value } => {
                if let Some(value) = value.get(view) {
                    return Done::Set(Arc::clone(name), value);
                }
            }
            Action::Upstream(upstream) => self.decide().upstream = Some(*upstream),
            Action::Skip { steps, rules } => {
                self.skipped = self.skipped.and(*steps);
                if *rules {
                    self.decide().leaves_rules = true;
                    return Done::LeftRules;
                }
            }
            Action::Log { name, value } => {
                if let Some(value) = value.get(view) {
                    self.note(Text::Shared(Arc::clone(name)), value);
                }
            }
            Action::Challenge(challenge) => {
                if !challenge.is_solved(view.exchange()) {
                    return Done::Stopped(challenge.page(view.exchange()));
                }
            }
        }
        Done::Nothing
    }

    fn decide(&mut self) -> &mut Decision {
        self.decision.get_or_insert_default()
    }

    fn note(&mut self, name: impl Into<Text>, value: Text) {
        self.notes.push(Note { name: name.into(), value });
    }
}

/// The result of an action.
enum Done {
    Nothing,
    Set(Arc<[u8]>, Text),
    LeftRules,
    Stopped(Response),
}

/// Adds the change for a request to `edits`. If the change would append a value that is empty, missing, or invalid in a
/// field, nothing is added.
fn change_fields(change: &Change, view: &View<'_>, edits: &mut Edits) {
    let (named, appends, value) = match change {
        Change::Fixed(edit) => return edits.push_shared(edit),
        Change::Computed { field, appends, value } => (field, *appends, value),
    };
    let value = value.evaluate(view).map(Cow::into_owned);
    let field = value.and_then(|value| named.with_value(value).ok());
    match field.filter(|field| !field.value().is_empty()) {
        Some(field) if appends => edits.push(Edit::Append(field)),
        Some(field) => edits.push(Edit::Set(field)),
        None if appends => {}
        // Without a value of ours, the client's value is removed: the origin could mistake it for ours.
        None => edits.push(named.removal()),
    }
}

/// A target as the value of `location`; `None` if the target is invalid, or is the request's own address.
fn location(target: Text, exchange: &dyn Exchange) -> Option<Text> {
    let target = match target {
        Text::Owned(target) => Text::Owned(redirects::made_safe(target)?),
        target => target,
    };
    let (path, query) = (exchange.path(), exchange.query());
    let same = redirects::is_same(&target, exchange.scheme(), exchange.authority(), path, query);
    (!same).then_some(target)
}

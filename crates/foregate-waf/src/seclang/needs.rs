//! Finds missing prerequisites: directives without which valid rules have no effect.

use crate::model::{
    Action, Change, Ctl, Disruptive, Phase, Problem, Rule, RuleSet, Selector, Variable, WritableCollection,
};

/// The variable that the setup file of the Core Rule Set sets. By this variable, the rules of the set check that the
/// setup has been loaded.
const SETUP: &str = "crs_setup_version";

/// Finds the prerequisites that a set of rules lacks, each with the place of a rule that needs it and the
/// directive to add. To be called only for complete sets, because a part of a set may rely on other parts.
/// `wants_bodies` is true if the configuration asks for inspection of request bodies.
pub fn needs(set: &RuleSet, wants_bodies: bool) -> Vec<Problem> {
    let bodies = bodies(set).filter(|_| wants_bodies);
    let unread = wants_bodies && set.settings.request_body_access;
    let unread = [Variable::ReqbodyError, Variable::MultipartStrictError]
        .map(|asked| unread.then(|| lets_pass(set, asked))?);
    [bodies, setup(set)].into_iter().chain(unread).flatten().collect()
}

/// Finds rules that read bodies of requests although the rules never get bodies.
fn bodies(set: &RuleSet) -> Option<Problem> {
    let turns_on = |action: &Action| matches!(action, Action::Ctl(Ctl::RequestBodyAccess(true)));
    if set.settings.request_body_access || set.rules.iter().flat_map(actions).any(turns_on) {
        return None;
    }
    let mut looking = set.rules.iter().filter(|rule| looks_at_bodies(rule));
    let first = looking.next()?;
    let others = looking.count();
    let others = if others == 0 { String::new() } else { format!(" and {others} more") };
    Some(Problem {
        place: first.place.clone(),
        message: format!(
            "bodies of requests are not looked at, and the rule {}{others} would: what a POST sends passes",
            first.id
        ),
        suggestion: Some(
            "write `SecRequestBodyAccess On`, as the recommended configuration does, which comes first"
                .into(),
        ),
    })
}

/// Finds rules that check for unreadable bodies with the variable `asked`, if none of them stops the request.
/// Because of such rules, the firewall itself does not refuse unreadable bodies.
fn lets_pass(set: &RuleSet, asked: Variable) -> Option<Problem> {
    if !set.rules.iter().any(looks_at_bodies) {
        return None;
    }
    let asks =
        |rule: &Rule| rule.links.iter().flat_map(|link| &link.targets).any(|target| target.variable == asked);
    let mut asking = set.rules.iter().enumerate().filter(|(_, rule)| asks(rule));
    let (_, first) = asking.clone().next()?;
    let stops = |(at, rule): (usize, &Rule)| {
        let scores = actions(rule).any(|action| matches!(action, Action::SetVar(_)));
        let denies = !matches!(rule.disruptive, Disruptive::Pass | Disruptive::Allow(_));
        let is_left_out = || set.rules.iter().take(at).any(|before| leaves_out(set, before, at));
        (scores || denies) && !is_left_out()
    };
    if asking.any(stops) {
        return None;
    }
    Some(Problem {
        place: first.place.clone(),
        message: format!(
            "rules do not see all: the rule {} asks for `{asked}`, and no rule that does stops a request, so bodies that cannot be \
             read pass",
            first.id
        ),
        suggestion: Some(
            "have it deny with the status 400, or leave it out: the firewall refuses such bodies by itself"
                .into(),
        ),
    })
}

fn actions(rule: &Rule) -> impl Iterator<Item = &Action> {
    rule.links.iter().flat_map(|link| &link.actions)
}

fn looks_at_bodies(rule: &Rule) -> bool {
    let mut targets = rule.links.iter().flat_map(|link| &link.targets);
    rule.phase >= Phase::RequestBody
        && targets.any(|target| {
            matches!(
                target.variable,
                Variable::Args
                    | Variable::ArgsNames
                    | Variable::ArgsPost
                    | Variable::ArgsPostNames
                    | Variable::Files
                    | Variable::FilesNames
                    | Variable::FilesTmpContent
                    | Variable::FullRequest
                    | Variable::RequestBody
                    | Variable::Xml
            )
        })
}

/// Warns if the setup of the Core Rule Set is missing or comes too late. The first rule of the set then
/// refuses every request.
fn setup(set: &RuleSet) -> Option<Problem> {
    let at = set.rules.iter().position(asks_for_setup)?;
    let (before, behind) = set.rules.split_at(at);
    if before.iter().any(|rule| sets_up(rule) || leaves_out(set, rule, at)) {
        return None;
    }
    let rule = &set.rules[at];
    let what = if behind.iter().any(sets_up) {
        "crs-setup.conf stands behind the rules of the Core Rule Set"
    } else {
        "the rules of the Core Rule Set are there without their crs-setup.conf"
    };
    Some(Problem {
        place: rule.place.clone(),
        message: format!("{what}: the rule {} refuses every request", rule.id),
        suggestion: Some("name crs-setup.conf, a copy of crs-setup.conf.example, before rules/*.conf".into()),
    })
}

fn asks_for_setup(rule: &Rule) -> bool {
    let is_setup = |selector: &Option<Selector>| matches!(selector, Some(Selector::Name(name)) if name.eq_ignore_ascii_case(SETUP));
    matches!(rule.disruptive, Disruptive::Deny { .. })
        && rule
            .links
            .iter()
            .flat_map(|link| &link.targets)
            .any(|target| target.variable == Variable::Tx && target.count && is_setup(&target.selector))
}

fn sets_up(rule: &Rule) -> bool {
    actions(rule).any(|action| match action {
        Action::SetVar(set) => {
            set.collection == WritableCollection::Tx
                && set.change != Change::Unset
                && set.name.literal().is_some_and(|name| name.eq_ignore_ascii_case(SETUP))
        }
        _ => false,
    })
}

/// Returns true if `rule` removes the rule at `at` for every request.
fn leaves_out(set: &RuleSet, rule: &Rule, at: usize) -> bool {
    rule.links.iter().all(|link| link.targets.is_empty())
        && actions(rule).any(|action| match action {
            Action::Ctl(Ctl::RemoveRules(selection)) => {
                let left = &set.rules[at];
                selection.matcher()(left.id, &left.tags, left.message.as_ref())
            }
            _ => false,
        })
}

//! Warns of probable mistakes.

use std::cell::OnceCell;

use super::findings::Findings;
use super::update::nothing_meant;
use crate::model::{Action, Ctl, Disruptive, Index, Phase, Rule, RuleSet};

/// Warns of rules that cannot have their apparent effect.
pub(super) fn lint(set: &RuleSet, findings: &mut Findings) {
    let index = OnceCell::new();
    for rule in &set.rules {
        known_later(rule, findings);
        for link in &rule.links {
            for action in &link.actions {
                if let Action::Ctl(ctl) = action {
                    without_effect(set, &index, ctl, &link.place, findings);
                }
            }
        }
    }
    for phase in Phase::ALL {
        never_reached(set, phase, findings);
    }
}

/// Warns of links that read only variables that have no values yet in the link's phase. Such a link never matches; if
/// it is negated or counts values, its result is always the same.
fn known_later(rule: &Rule, findings: &mut Findings) {
    for link in &rule.links {
        let first = link.targets.iter().map(|target| target.variable.known_from()).min();
        if let Some(known) = first.filter(|known| *known > rule.phase) {
            let named = &link.targets[0];
            let message = format!(
                "the rule {} never has a value: `{named}` is known from phase {} on, and the rule runs in phase {}",
                rule.id,
                known.number(),
                rule.phase.number()
            );
            findings.warn_at(link.place.clone(), message, None);
        }
    }
}

/// Warns of a `ctl` that selects no rule, or excludes a variable that none of the selected rules reads.
fn without_effect(
    set: &RuleSet,
    index: &OnceCell<Index>,
    ctl: &Ctl,
    place: &crate::model::Place,
    findings: &mut Findings,
) {
    let (Ctl::RemoveRules(selection) | Ctl::RemoveTarget(selection, _)) = ctl else { return };
    let selected = index.get_or_init(|| set.index()).selected(selection);
    if selected.is_empty() {
        return nothing_meant(place.clone(), selection, findings);
    }
    let Ctl::RemoveTarget(_, exclusion) = ctl else { return };
    let looks = |at: &usize| {
        let targets = set.rules[*at].links.iter().flat_map(|link| &link.targets);
        targets.clone().any(|target| target.variable == exclusion.variable)
    };
    if !selected.iter().any(looks) {
        let message = format!("none of the rules meant looks at `{}`", exclusion.variable);
        findings.warn_at(place.clone(), message, None);
    }
}

/// Warns of rules that never run because an earlier rule always matches and skips them.
fn never_reached(set: &RuleSet, phase: Phase, findings: &mut Findings) {
    let mut until = 0;
    let mut because = None;
    for (at, rule) in set.rules.iter().enumerate().filter(|(_, rule)| rule.phase == phase) {
        if let Some(id) = because.filter(|_| at < until) {
            let message = format!("the rule {} never runs: the rule {id} before it always matches", rule.id);
            findings.warn_at(rule.place.clone(), message, None);
            continue;
        }
        if rule.links.iter().any(|link| !link.targets.is_empty()) {
            continue;
        }
        let stops = !matches!(rule.disruptive, Disruptive::Pass) && phase != Phase::Logging;
        if let Some(to) = rule.skip_to.or(stops.then_some(set.rules.len())) {
            (until, because) = (to, Some(rule.id));
        }
    }
}

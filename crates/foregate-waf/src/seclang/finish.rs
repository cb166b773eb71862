//! Turns rules from their written form into their final form.

use foldhash::HashMap;

use super::action::{DisruptiveChoice, Skip};
use super::findings::Findings;
use super::nearest::nearest;
use super::rule::{Draft, DraftLink, Drafts, Marker, in_effect};
use super::update::{self, Update};
use crate::model::{Disruptive, Link, Place, Rule, RuleId, Transformation};

/// The status of a denied request, by default.
const DENIED: u16 = 403;

/// The status of a redirected request, by default.
const REDIRECTED: u16 = 302;

/// Returns the rules with all updates applied and all skips resolved to positions.
pub(super) fn finish(drafts: Drafts, updates: &[Update], findings: &mut Findings) -> Vec<Rule> {
    let markers = drafts.markers;
    let mut slots: Vec<Option<Draft>> = drafts.rules.into_iter().map(Some).collect();
    update::apply(updates, &mut slots, findings);
    let kept = kept_before(&slots);
    let mut rules = Vec::new();
    let mut skips = Vec::new();
    for draft in slots.into_iter().flatten() {
        skips.push(draft.links[0].actions.skip.clone());
        rules.push(rule(draft));
    }
    let places = Places::new(&rules, &markers, &kept);
    for (at, skip) in skips.into_iter().enumerate() {
        let Some((skip, place)) = skip else { continue };
        let to = match skip {
            Skip::Rules(count) => Some(places.beyond(&rules, at, count)),
            Skip::After(name) => places.target_of(&name, at, &place, &markers, findings),
        };
        rules[at].skip_to = to;
    }
    rules
}

/// For each position between the written rules, the number of rules before it that were not removed.
fn kept_before(slots: &[Option<Draft>]) -> Vec<usize> {
    let counts = slots.iter().scan(0, |kept, slot| {
        *kept += usize::from(slot.is_some());
        Some(*kept)
    });
    std::iter::once(0).chain(counts).collect()
}

/// Finds the targets of skips.
struct Places<'m> {
    /// The positions of the markers with each name, ascending.
    markers: HashMap<&'m str, Vec<usize>>,
    /// Positions of rules by their ids.
    rules: HashMap<RuleId, usize>,
    /// Positions of the rules of each phase, ascending.
    phases: [Vec<usize>; 5],
}

impl<'m> Places<'m> {
    fn new(rules: &[Rule], markers: &'m [Marker], kept: &[usize]) -> Self {
        let mut places = Self {
            markers: HashMap::default(),
            rules: rules.iter().enumerate().map(|(at, rule)| (rule.id, at)).collect(),
            phases: Default::default(),
        };
        for marker in markers {
            let position = kept.get(marker.after).copied().unwrap_or(rules.len());
            places.markers.entry(&marker.name).or_default().push(position);
        }
        for (at, rule) in rules.iter().enumerate() {
            places.phases[rule.phase as usize].push(at);
        }
        places
    }

    /// The position that is reached if the rule at `at` skips this many rules of its phase.
    fn beyond(&self, rules: &[Rule], at: usize, count: usize) -> usize {
        let same = &self.phases[rules[at].phase as usize];
        let next = same.partition_point(|other| *other <= at).saturating_add(count);
        same.get(next).copied().unwrap_or(rules.len())
    }

    /// The position to which the rule at `at` skips: the next marker with this name, or the position after the
    /// rule with this id.
    fn target_of(
        &self,
        name: &str,
        at: usize,
        place: &Place,
        markers: &[Marker],
        findings: &mut Findings,
    ) -> Option<usize> {
        let named = self.markers.get(name);
        let marked =
            named.and_then(|named| named.get(named.partition_point(|position| *position <= at)).copied());
        let after_rule = name.parse().ok().and_then(|id| self.rules.get(&id)).map(|rule| rule + 1);
        let found = marked.or(after_rule.filter(|position| *position > at));
        if found.is_none() {
            let message = if named.is_some() || after_rule.is_some() {
                format!("`{name}` stands before the rule that skips to it")
            } else {
                format!("there is no marker `{name}`")
            };
            let near = nearest(name, markers.iter().map(|marker| &*marker.name));
            let suggestion = near.filter(|near| *near != name).map(|near| format!("did you mean `{near}`?"));
            findings.error_at(place.clone(), message, suggestion);
        }
        found
    }
}

fn rule(draft: Draft) -> Rule {
    let defaults = draft.defaults;
    let links = draft.links.iter().map(|written| link(written, &defaults.transformations)).collect();
    let DraftLink { place, actions, .. } = draft.links.into_iter().next().expect("a draft has a link");
    let status = actions.status.or(defaults.status);
    let disruptive = match actions.disruptive {
        None | Some(DisruptiveChoice::Block) => defaults.disruptive.clone(),
        Some(said) => said,
    };
    Rule {
        id: draft.id,
        place,
        phase: draft.phase,
        links,
        disruptive: match disruptive {
            // `block` has been replaced with the default action, which cannot be `block` itself.
            DisruptiveChoice::Pass | DisruptiveChoice::Block => Disruptive::Pass,
            DisruptiveChoice::Allow(scope) => Disruptive::Allow(scope),
            DisruptiveChoice::Deny => Disruptive::Deny { status: status.unwrap_or(DENIED) },
            DisruptiveChoice::Drop => Disruptive::Drop,
            DisruptiveChoice::Redirect(to) => {
                let status = status.filter(|status| (300..400).contains(status)).unwrap_or(REDIRECTED);
                Disruptive::Redirect { status, to }
            }
        },
        log: actions.log.unwrap_or(defaults.log),
        audit_log: actions.audit_log.unwrap_or(defaults.audit_log),
        message: actions.message,
        data: actions.data,
        severity: actions.severity,
        tags: actions.tags,
        revision: actions.revision,
        version: actions.version,
        maturity: actions.maturity,
        accuracy: actions.accuracy,
        skip_to: None,
    }
}

fn link(written: &DraftLink, defaults: &[Transformation]) -> Link {
    let actions = &written.actions;
    Link {
        place: written.place.clone(),
        targets: written.targets.clone(),
        exclusions: written.exclusions.clone(),
        negated: written.negated,
        operator: written.operator.clone(),
        transformations: in_effect(defaults, &actions.transformations),
        multi_match: actions.multi_match,
        capture: actions.capture,
        actions: actions.effects.clone(),
    }
}

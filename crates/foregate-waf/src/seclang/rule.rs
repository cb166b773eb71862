//! Rules in their written form. The default actions are kept separately from a rule's own, so that updates
//! can still change the rule.

use std::collections::HashMap;
use std::rc::Rc;

use super::action::{Actions, Class, DisruptiveChoice, Verb};
use super::files::Shelf;
use super::findings::Findings;
use super::limits::{MAX_CHAIN, MAX_MARKERS, MAX_RULES};
use super::line::Part;
use super::{operator, target};
use crate::model::{Exclusion, Operator, Phase, Place, RuleId, Target, Transformation};

/// A rule in its written form.
pub(super) struct Draft {
    pub(super) id: RuleId,
    pub(super) phase: Phase,
    pub(super) defaults: Rc<Defaults>,
    /// The links of the rule; never empty.
    pub(super) links: Vec<DraftLink>,
}

/// A rule of a chain in its written form.
pub(super) struct DraftLink {
    pub(super) place: Place,
    pub(super) targets: Vec<Target>,
    pub(super) exclusions: Vec<Exclusion>,
    pub(super) negated: bool,
    pub(super) operator: Operator,
    pub(super) actions: Actions,
}

/// The defaults of a phase: `SecDefaultAction`.
pub(super) struct Defaults {
    pub(super) disruptive: DisruptiveChoice,
    pub(super) status: Option<u16>,
    pub(super) log: bool,
    pub(super) audit_log: bool,
    pub(super) transformations: Vec<Transformation>,
}

impl Default for Defaults {
    /// The defaults if there is no `SecDefaultAction`.
    fn default() -> Self {
        Self {
            disruptive: DisruptiveChoice::Pass,
            status: None,
            log: true,
            audit_log: true,
            transformations: Vec::new(),
        }
    }
}

/// A named position between rules (`SecMarker`).
pub(super) struct Marker {
    pub(super) name: Box<str>,
    /// The number of rules before it.
    pub(super) after: usize,
}

/// The rules that have been read so far.
#[derive(Default)]
pub(super) struct Drafts {
    pub(super) rules: Vec<Draft>,
    pub(super) markers: Vec<Marker>,
    ids: HashMap<RuleId, Place>,
    defaults: [Rc<Defaults>; 5],
    chain: Option<Chain>,
}

/// A chain before its last rule has been read.
struct Chain {
    /// The links so far; `None` after an error in one of them.
    draft: Option<Draft>,
    /// The phase of the chain; `None` if its first rule could not be read.
    phase: Option<Phase>,
    /// The place of the last rule so far.
    last: Place,
    links: usize,
}

impl Drafts {
    /// Handles `SecRule TARGETS OPERATOR ACTIONS` and `SecAction ACTIONS`.
    pub(super) fn rule(
        &mut self,
        name: Part<'_>,
        arguments: &[Part<'_>],
        shelf: &mut Shelf<'_>,
        findings: &mut Findings,
    ) {
        let errors = findings.errors.len();
        let link = link(name, arguments, shelf, findings);
        let Some(link) = link else {
            let chained = arguments.iter().any(|part| part.raw.contains("chain"));
            return self.unreadable(chained, findings.place(name.at));
        };
        let chained = link.actions.chain;
        match self.chain.take() {
            Some(chain) => self.continue_chain(chain, link, errors, findings),
            None => self.start(link, errors, findings),
        }
        if !chained {
            // The previous chain is complete.
            let complete = self.chain.take().and_then(|chain| chain.draft);
            self.rules.extend(complete);
        }
    }

    /// Handles a rule that could not be parsed, after the error has been recorded. If the rule seems to be
    /// chained to the next one, the next rule is treated as part of a chain. This avoids a second error.
    pub(super) fn unreadable(&mut self, chained: bool, place: Place) {
        let before = self.chain.take();
        if chained {
            let (phase, links) = before.map_or((None, 0), |chain| (chain.phase, chain.links));
            self.chain = Some(Chain { draft: None, phase, last: place, links: links + 1 });
        }
    }

    fn start(&mut self, link: DraftLink, errors: usize, findings: &mut Findings) {
        let place = link.place.clone();
        let phase = link.actions.phase.unwrap_or(Phase::RequestBody);
        match link.actions.id {
            Some(id) => {
                if let Some(first) = self.ids.insert(id, place.clone()) {
                    let message = format!("the id {id} is taken by the rule at {first}");
                    findings.error_at(place.clone(), message, None);
                }
            }
            None if findings.errors.len() == errors => {
                findings.error_at(place.clone(), "the rule has no id", Some("add `id:NUMBER`".into()));
            }
            None => {}
        }
        if self.rules.len() >= MAX_RULES {
            findings.error_at(place.clone(), format!("there are more than {MAX_RULES} rules"), None);
        }
        let defaults = Rc::clone(&self.defaults[phase as usize]);
        let sound = findings.errors.len() == errors;
        let draft = link.actions.id.filter(|_| sound);
        let draft = draft.map(|id| Draft { id, phase, defaults, links: vec![link] });
        self.chain = Some(Chain { draft, phase: Some(phase), last: place, links: 1 });
    }

    fn continue_chain(&mut self, mut chain: Chain, link: DraftLink, errors: usize, findings: &mut Findings) {
        chain.last = link.place.clone();
        check_link(&link.actions, chain.phase, findings);
        chain.links += 1;
        if chain.links > MAX_CHAIN {
            findings.error_at(chain.last.clone(), format!("a chain has more than {MAX_CHAIN} rules"), None);
        }
        let sound = findings.errors.len() == errors;
        match chain.draft.as_mut() {
            Some(draft) if sound => draft.links.push(link),
            _ => chain.draft = None,
        }
        self.chain = Some(chain);
    }

    /// Handles a directive other than a rule: if a chain is not complete, that is an error.
    pub(super) fn interrupt(&mut self, findings: &mut Findings) {
        if let Some(chain) = self.chain.take() {
            let suggestion = Some("a `SecRule` has to follow a rule with `chain`".into());
            findings.error_at(chain.last, "the chain does not end", suggestion);
        }
    }

    /// Handles `SecMarker NAME`.
    pub(super) fn marker(&mut self, name: Part<'_>, arguments: &[Part<'_>], findings: &mut Findings) {
        match arguments {
            [one] if !one.raw.is_empty() => {
                if self.markers.len() >= MAX_MARKERS {
                    return findings.error(
                        one.at,
                        format!("there are more than {MAX_MARKERS} markers"),
                        None,
                    );
                }
                self.markers.push(Marker { name: one.text().into(), after: self.rules.len() });
            }
            _ => findings.error(name.at, "`SecMarker` takes one argument, a name", None),
        }
    }

    /// Handles `SecDefaultAction ACTIONS`, which applies to later rules.
    pub(super) fn default_action(&mut self, name: Part<'_>, arguments: &[Part<'_>], findings: &mut Findings) {
        let [list] = arguments else {
            return findings.error(name.at, "`SecDefaultAction` takes one argument, a list of actions", None);
        };
        let actions = Actions::parse(*list, findings);
        let known = Defaults::default();
        let (mut phase, mut disruptive) = (false, false);
        for (verb, at) in &actions.seen {
            phase |= *verb == Verb::Phase;
            disruptive |= verb.is_disruptive();
            let allowed = verb.class() == Class::Logging || verb.is_disruptive();
            if !allowed && !matches!(verb, Verb::Phase | Verb::Status | Verb::Transform)
                || *verb == Verb::Block
            {
                let message = format!("the action `{}` cannot be a default", verb.name());
                findings.error(*at, message, None);
            }
        }
        if !phase {
            let suggestion = Some("add `phase:NUMBER`".into());
            return findings.error(list.at, "`SecDefaultAction` says no phase", suggestion);
        }
        if !disruptive {
            let suggestion = Some("add `pass` or `deny`".into());
            return findings.error(list.at, "`SecDefaultAction` says no disruptive action", suggestion);
        }
        let Some(phase) = actions.phase else { return };
        self.defaults[phase as usize] = Rc::new(Defaults {
            disruptive: actions.disruptive.unwrap_or(known.disruptive),
            status: actions.status,
            log: actions.log.unwrap_or(known.log),
            audit_log: actions.audit_log.unwrap_or(known.audit_log),
            transformations: in_effect(&[], &actions.transformations),
        });
    }
}

/// The transformations that take effect: each `t:none` removes the ones before it, including the defaults.
pub(super) fn in_effect(defaults: &[Transformation], said: &[Option<Transformation>]) -> Vec<Transformation> {
    match said.iter().rposition(Option::is_none) {
        Some(none) => said[none..].iter().copied().flatten().collect(),
        None => defaults.iter().copied().chain(said.iter().copied().flatten()).collect(),
    }
}

/// Parses the arguments of one `SecRule` or `SecAction`. Returns `None` if some are missing, which is recorded.
fn link(
    name: Part<'_>,
    arguments: &[Part<'_>],
    shelf: &mut Shelf<'_>,
    findings: &mut Findings,
) -> Option<DraftLink> {
    let place = findings.place(name.at);
    if name.raw.eq_ignore_ascii_case("SecAction") {
        let [actions] = arguments else {
            findings.error(name.at, "`SecAction` takes one argument, a list of actions", None);
            return None;
        };
        let actions = Actions::parse(*actions, findings);
        let (targets, exclusions, operator) = (Vec::new(), Vec::new(), Operator::Unconditional);
        return Some(DraftLink { place, targets, exclusions, negated: false, operator, actions });
    }
    let (target, test, actions) = match arguments {
        [target, test] => (*target, *test, None),
        [target, test, actions] => (*target, *test, Some(*actions)),
        _ => {
            let message = "`SecRule` takes targets, an operator and a list of actions";
            let suggestion = Some("`SecRule ARGS \"@rx pattern\" \"id:1,phase:2,deny\"`".into());
            findings.error(name.at, message, suggestion);
            return None;
        }
    };
    let (targets, exclusions) = target::targets(target, findings);
    if targets.is_empty() && !exclusions.is_empty() {
        findings.error(target.at, "the rule looks at nothing: all its targets are left out", None);
    }
    let tested = operator::operator(test, shelf, findings);
    let actions = actions.map(|actions| Actions::parse(actions, findings)).unwrap_or_default();
    // After an error, loading fails anyway, so any operator will do.
    let (negated, operator) = tested.unwrap_or((false, Operator::Never));
    Some(DraftLink { place, targets, exclusions, negated, operator, actions })
}

/// Reports actions that a chained rule cannot have.
fn check_link(actions: &Actions, phase: Option<Phase>, findings: &mut Findings) {
    let first = Some("write it in the first rule of the chain".into());
    for (verb, at) in &actions.seen {
        let name = verb.name();
        match verb.class() {
            Class::Each => {}
            Class::Logging => {
                let message = format!("`{name}` has no effect in a rule that is chained to another");
                findings.warn(*at, message, first.clone());
            }
            Class::First if *verb == Verb::Phase => {
                if let Some(phase) = phase.filter(|phase| actions.phase.is_some_and(|said| said != *phase)) {
                    let message = format!("the chain runs in phase {}", phase.number());
                    findings.error(*at, message, first.clone());
                }
            }
            Class::First => {
                let message =
                    format!("the action `{name}` cannot stand in a rule that is chained to another");
                findings.error(*at, message, first.clone());
            }
        }
    }
}

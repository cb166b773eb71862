//! Directives that change or remove other rules, both earlier and later ones.

use super::action::{self, Actions, Class, Verb};
use super::findings::Findings;
use super::limits::{MAX_TARGETS, MAX_UPDATED_TARGETS, MAX_UPDATES};
use super::line::Part;
use super::number;
use super::rule::Draft;
use super::target;
use crate::model::{Exclusion, Index, Place, RuleId, RuleSelection, Target};

/// A directive that changes or removes other rules.
pub(super) struct Update {
    place: Place,
    change: DraftChange,
}

enum DraftChange {
    Remove(RuleSelection),
    Targets {
        rules: RuleSelection,
        targets: Vec<Target>,
        exclusions: Vec<Exclusion>,
        instead_of: Vec<Target>,
    },
    Actions {
        id: RuleId,
        link: usize,
        actions: Box<Actions>,
    },
}

#[derive(Clone, Copy)]
enum UpdateKind {
    RemoveById,
    RemoveByMessage,
    RemoveByTag,
    ActionById,
    TargetById,
    TargetByMessage,
    TargetByTag,
}

/// These directives, sorted by name.
const DIRECTIVES: &[(&str, UpdateKind)] = &[
    ("SecRuleRemoveById", UpdateKind::RemoveById),
    ("SecRuleRemoveByMsg", UpdateKind::RemoveByMessage),
    ("SecRuleRemoveByTag", UpdateKind::RemoveByTag),
    ("SecRuleUpdateActionById", UpdateKind::ActionById),
    ("SecRuleUpdateTargetById", UpdateKind::TargetById),
    ("SecRuleUpdateTargetByMsg", UpdateKind::TargetByMessage),
    ("SecRuleUpdateTargetByTag", UpdateKind::TargetByTag),
];

/// The names of these directives.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    DIRECTIVES.iter().map(|(name, _)| *name)
}

/// Adds a directive to `updates`. Returns false if there is no directive with this name; that is not recorded
/// as an error.
pub(super) fn directive(
    updates: &mut Vec<Update>,
    name: Part<'_>,
    arguments: &[Part<'_>],
    findings: &mut Findings,
) -> bool {
    let Some((known, kind)) = DIRECTIVES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name.raw))
    else {
        return false;
    };
    if updates.len() >= MAX_UPDATES {
        findings.error(name.at, format!("more than {MAX_UPDATES} directives update rules"), None);
        return true;
    }
    let change = match (kind, arguments) {
        (UpdateKind::RemoveById, [_, ..]) => remove_by_id(arguments, findings),
        (UpdateKind::RemoveByMessage, [text]) => {
            action::text_match(*text, findings).map(RuleSelection::Message).map(DraftChange::Remove)
        }
        (UpdateKind::RemoveByTag, [text]) => {
            action::text_match(*text, findings).map(RuleSelection::Tag).map(DraftChange::Remove)
        }
        (UpdateKind::ActionById, [id, actions]) => update_actions(*id, *actions, findings),
        (
            UpdateKind::TargetById | UpdateKind::TargetByMessage | UpdateKind::TargetByTag,
            [rules, targets, more @ ..],
        ) if more.len() < 2 => {
            let rules = match kind {
                UpdateKind::TargetById => action::ids(*rules, findings).map(RuleSelection::Ids),
                UpdateKind::TargetByTag => action::text_match(*rules, findings).map(RuleSelection::Tag),
                _ => action::text_match(*rules, findings).map(RuleSelection::Message),
            };
            update_targets(rules, *targets, more.first().copied(), findings)
        }
        _ => {
            let wanted = match kind {
                UpdateKind::RemoveById => "ids",
                UpdateKind::RemoveByMessage => "a message",
                UpdateKind::RemoveByTag => "a tag",
                UpdateKind::ActionById => "an id and a list of actions",
                UpdateKind::TargetById => "ids and targets",
                UpdateKind::TargetByMessage => "a message and targets",
                UpdateKind::TargetByTag => "a tag and targets",
            };
            findings.error(name.at, format!("`{known}` takes {wanted}"), None);
            None
        }
    };
    let place = findings.place(name.at);
    updates.extend(change.map(|change| Update { place, change }));
    true
}

fn remove_by_id(arguments: &[Part<'_>], findings: &mut Findings) -> Option<DraftChange> {
    let ranges: Vec<_> = arguments.iter().map(|part| action::ids(*part, findings)).collect();
    let ranges: Option<Vec<_>> = ranges.into_iter().collect();
    ranges.map(|ranges| DraftChange::Remove(RuleSelection::Ids(ranges.concat())))
}

fn update_targets(
    rules: Option<RuleSelection>,
    part: Part<'_>,
    instead_of: Option<Part<'_>>,
    findings: &mut Findings,
) -> Option<DraftChange> {
    let errors = findings.errors.len();
    let (targets, exclusions) = target::targets(part, findings);
    let instead_of = instead_of.map_or_else(Vec::new, |replaced| {
        let (targets, exclusions) = target::targets(replaced, findings);
        if !exclusions.is_empty() {
            findings.error(replaced.at, "what is replaced is named without `!`", None);
        }
        targets
    });
    let sound = findings.errors.len() == errors;
    rules.filter(|_| sound).map(|rules| DraftChange::Targets { rules, targets, exclusions, instead_of })
}

/// Parses `ID` or `ID:LINK`, and the actions that replace or extend those of the rule.
fn update_actions(id: Part<'_>, list: Part<'_>, findings: &mut Findings) -> Option<DraftChange> {
    let (id, link) = id.split(':').map_or((id, None), |(id, link)| (id, Some(link)));
    let id = number::bounded(id, 1..=RuleId::MAX, "an id", findings)?;
    let link =
        link.map_or(Some(0), |link| number::bounded(link, 0..=usize::MAX, "a place in a chain", findings))?;
    let errors = findings.errors.len();
    let actions = Actions::parse(list, findings);
    for (verb, at) in &actions.seen {
        let name = verb.name();
        if matches!(verb, Verb::Id | Verb::Phase | Verb::Chain) {
            findings.error(*at, format!("the action `{name}` cannot be updated"), None);
        } else if link > 0 && verb.class() != Class::Each {
            let message = format!("the action `{name}` cannot stand in a rule that is chained to another");
            findings.error(*at, message, None);
        }
    }
    let sound = findings.errors.len() == errors;
    sound.then(|| DraftChange::Actions { id, link, actions: Box::new(actions) })
}

/// Applies the updates. A removed rule becomes `None`, so that the other rules keep their positions.
pub(super) fn apply(updates: &[Update], rules: &mut [Option<Draft>], findings: &mut Findings) {
    if updates.is_empty() {
        return;
    }
    let mut index = Index::new(rules.iter().flatten().map(|rule| {
        let actions = &rule.links[0].actions;
        (rule.id, &*actions.tags, actions.message.as_ref())
    }));
    let mut targets = 0;
    for update in updates {
        let place = &update.place;
        match &update.change {
            DraftChange::Remove(selection) => {
                let removed = index.selected(selection).into_iter().filter_map(|at| rules[at].take());
                if removed.count() == 0 {
                    nothing_meant(place.clone(), selection, findings);
                }
            }
            DraftChange::Targets { rules: selection, targets: more, exclusions, instead_of } => {
                let mut meant = index.selected(selection);
                meant.retain(|at| rules[*at].is_some());
                if meant.is_empty() {
                    nothing_meant(place.clone(), selection, findings);
                }
                targets += meant.len() * (more.len() + exclusions.len());
                if targets > MAX_UPDATED_TARGETS {
                    let message = format!("updates add more than {MAX_UPDATED_TARGETS} targets to rules");
                    return findings.error_at(place.clone(), message, None);
                }
                for at in meant {
                    if let Some(rule) = &mut rules[at] {
                        retarget(place, rule, more, exclusions, instead_of, findings);
                    }
                }
            }
            DraftChange::Actions { id, link, actions } => {
                let selection = RuleSelection::Ids(vec![*id..=*id]);
                let at = index.selected(&selection).first().copied();
                match at.and_then(|at| Some((at, rules[at].as_mut()?))) {
                    Some((at, rule)) => overlay(place, at, rule, *link, actions, &mut index, findings),
                    None => nothing_meant(place.clone(), &selection, findings),
                }
            }
        }
    }
}

/// Merges new actions into those of a link. The new ones win.
fn overlay(
    place: &Place,
    at: usize,
    rule: &mut Draft,
    link: usize,
    actions: &Actions,
    index: &mut Index,
    findings: &mut Findings,
) {
    let id = rule.id;
    let Some(changed) = rule.links.get_mut(link) else {
        let message = format!("the chain of the rule {id} has no rule {link}");
        return findings.error_at(place.clone(), message, Some("the first is 0".into()));
    };
    if link == 0 {
        index.add_tags(at, &actions.tags);
        if let Some(message) = &actions.message {
            index.change_message(at, changed.actions.message.as_ref(), message);
        }
    }
    changed.actions.overlay(actions);
}

/// Changes the first link of a rule: removes the targets `instead_of`, and adds the targets and the exclusions.
fn retarget(
    place: &Place,
    rule: &mut Draft,
    targets: &[Target],
    exclusions: &[Exclusion],
    instead_of: &[Target],
    findings: &mut Findings,
) {
    let first = &mut rule.links[0];
    if first.targets.is_empty() {
        let message = format!("the rule {} is a `SecAction` and looks at nothing", rule.id);
        return findings.warn_at(place.clone(), message, None);
    }
    let before = first.targets.len();
    first.targets.retain(|target| !instead_of.contains(target));
    if first.targets.len() == before && !instead_of.is_empty() {
        let message = format!("the rule {} does not look at what is replaced", rule.id);
        return findings.warn_at(place.clone(), message, None);
    }
    first.targets.extend_from_slice(targets);
    first.exclusions.extend_from_slice(exclusions);
    if first.targets.len() + first.exclusions.len() > MAX_TARGETS {
        let message = format!("the rule {} has more than {MAX_TARGETS} targets", rule.id);
        findings.error_at(place.clone(), message, None);
    }
    let unseen = exclusions
        .iter()
        .find(|exclusion| !first.targets.iter().any(|target| target.variable == exclusion.variable));
    if let Some(unseen) = unseen {
        let message = format!("the rule {} does not look at `{}`", rule.id, unseen.variable);
        findings.warn_at(place.clone(), message, None);
    }
}

/// Reports a selection that no rule matches, which is probably a mistake.
pub(super) fn nothing_meant(place: Place, selection: &RuleSelection, findings: &mut Findings) {
    use crate::model::TextMatch::{Exact, Pattern};
    let message = match selection {
        RuleSelection::Ids(ranges) => match ranges.as_slice() {
            [one] if one.start() == one.end() => format!("no rule has the id {}", one.start()),
            _ => "no rule has one of these ids".into(),
        },
        RuleSelection::Tag(Exact(text)) => format!("no rule has the tag `{text}`"),
        RuleSelection::Message(Exact(text)) => format!("no rule has the message `{text}`"),
        RuleSelection::Tag(Pattern(pattern)) => {
            format!("no rule has a tag that matches `{}`", pattern.text())
        }
        RuleSelection::Message(Pattern(pattern)) => {
            format!("no rule has a message that matches `{}`", pattern.text())
        }
    };
    let plain = matches!(selection, RuleSelection::Tag(Exact(text)) | RuleSelection::Message(Exact(text))
        if text.contains(['*', '[', '(', '^', '$', '|', '\\']));
    findings.warn_at(place, message, plain.then(|| "a pattern stands between slashes: `/PATTERN/`".into()));
}

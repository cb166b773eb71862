//! Parses lists of actions, such as `id:1,phase:2,deny,t:none,setvar:'tx.score=+5',msg:'Matched
//! %{MATCHED_VAR}'`.

mod change;
mod ctl;
mod list;
mod verb;

pub(super) use ctl::{ids, text_match};
pub(super) use verb::{Class, Verb};

use super::findings::Findings;
use super::line::Part;
use super::number;
use super::template::template;
use crate::model::{Action, AllowScope, Phase, Place, RuleId, Severity, Template, Transformation};

/// A parsed list of actions.
#[derive(Clone, Default)]
pub(super) struct Actions {
    pub(super) id: Option<RuleId>,
    pub(super) phase: Option<Phase>,
    pub(super) disruptive: Option<DisruptiveChoice>,
    pub(super) status: Option<u16>,
    pub(super) log: Option<bool>,
    pub(super) audit_log: Option<bool>,
    pub(super) message: Option<Template>,
    pub(super) data: Option<Template>,
    pub(super) severity: Option<Severity>,
    pub(super) tags: Vec<Template>,
    pub(super) revision: Option<Box<str>>,
    pub(super) version: Option<Box<str>>,
    pub(super) maturity: Option<u8>,
    pub(super) accuracy: Option<u8>,
    /// `skip` or `skipAfter`, with the place of the action.
    pub(super) skip: Option<(Skip, Place)>,
    /// The transformations, in order. `None` stands for `t:none`, which removes the transformations before it.
    pub(super) transformations: Vec<Option<Transformation>>,
    pub(super) multi_match: bool,
    pub(super) capture: bool,
    pub(super) chain: bool,
    /// The effects of a match, in order.
    pub(super) effects: Vec<Action>,
    /// Every action with its place, in order.
    pub(super) seen: Vec<(Verb, usize)>,
}

/// The disruptive action of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DisruptiveChoice {
    Pass,
    /// `block`: the default action of the phase.
    Block,
    Allow(AllowScope),
    Deny,
    Drop,
    Redirect(Template),
}

/// The rules that are skipped after a match.
#[derive(Clone, Debug)]
pub(super) enum Skip {
    /// This many rules of the same phase.
    Rules(usize),
    /// All rules up to this marker, or up to and including the rule with this id.
    After(Box<str>),
}

impl Actions {
    /// Parses the list in `part`. Actions with an error, which is recorded, are skipped.
    pub(super) fn parse(part: Part<'_>, findings: &mut Findings) -> Self {
        let mut actions = Self::default();
        for item in list::items(part, findings) {
            let Some((name, verb)) = verb::find(item.name, findings) else { continue };
            actions.once(name, *verb, item.name.at, findings);
            actions.seen.push((*verb, item.name.at));
            match (item.value, verb.takes()) {
                (None, verb::Takes::Value) => {
                    let suggestion = Some(format!("`{name}:VALUE`"));
                    findings.error(item.name.at, format!("the action `{name}` needs a value"), suggestion);
                }
                (Some(value), verb::Takes::Nothing) => {
                    findings.error(value.at, format!("the action `{name}` takes no value"), None);
                }
                (value, _) => actions.take(*verb, value.unwrap_or(item.name.to(0)), findings),
            }
        }
        actions
    }

    /// Reports an action that is repeated although a list may have it only once.
    fn once(&self, name: &str, verb: Verb, at: usize, findings: &mut Findings) {
        let before = self.seen.iter().rev().find(|(before, _)| {
            *before == verb && verb.stands_once() || before.is_disruptive() && verb.is_disruptive()
        });
        match before {
            Some((before, _)) if *before == verb && matches!(verb, Verb::Id | Verb::Phase) => {
                findings.error(at, format!("the action `{name}` stands twice"), None);
            }
            Some((before, _)) if *before == verb => {
                findings.warn(at, format!("the action `{name}` stands twice: the last counts"), None);
            }
            Some((before, _)) => {
                let before = before.name();
                findings.warn(at, format!("`{name}` takes the place of `{before}` before it"), None);
            }
            None => {}
        }
    }

    fn take(&mut self, verb: Verb, value: Part<'_>, findings: &mut Findings) {
        match verb {
            Verb::Id => self.id = number::bounded(value, 1..=RuleId::MAX, "an id", findings),
            Verb::Phase => self.phase = phase(value, findings),
            Verb::Pass => self.disruptive = Some(DisruptiveChoice::Pass),
            Verb::Block => self.disruptive = Some(DisruptiveChoice::Block),
            Verb::Deny => self.disruptive = Some(DisruptiveChoice::Deny),
            Verb::Drop => self.disruptive = Some(DisruptiveChoice::Drop),
            Verb::Allow => self.disruptive = allow(value, findings),
            Verb::Redirect => self.disruptive = template(value, findings).map(DisruptiveChoice::Redirect),
            Verb::Status => self.status = number::bounded(value, 200..=599u16, "a status", findings),
            Verb::Log => (self.log, self.audit_log) = (Some(true), Some(true)),
            Verb::NoLog => (self.log, self.audit_log) = (Some(false), Some(false)),
            Verb::AuditLog => self.audit_log = Some(true),
            Verb::NoAuditLog => self.audit_log = Some(false),
            Verb::Skip => {
                let rules = number::bounded(value, 1..=usize::MAX, "a number of rules", findings);
                self.skip = rules.map(|rules| (Skip::Rules(rules), findings.place(value.at)));
            }
            Verb::SkipAfter => {
                self.skip = Some((Skip::After(value.text().into()), findings.place(value.at)));
            }
            Verb::Chain => self.chain = true,
            Verb::Capture => self.capture = true,
            Verb::MultiMatch => self.multi_match = true,
            Verb::Transform => self.transformations.extend(transformation(value, findings)),
            Verb::Message => self.message = template(value, findings),
            Verb::LogData => self.data = template(value, findings),
            Verb::Severity => self.severity = severity(value, findings),
            Verb::Tag => self.tags.extend(template(value, findings)),
            Verb::Revision => self.revision = Some(value.text().into()),
            Verb::Version => self.version = Some(value.text().into()),
            Verb::Maturity => self.maturity = number::bounded(value, 0..=9u8, "a maturity", findings),
            Verb::Accuracy => self.accuracy = number::bounded(value, 0..=9u8, "an accuracy", findings),
            Verb::Ctl => self.effects.extend(ctl::ctl(value, findings)),
            verb => self.effects.extend(change::effect(verb, value, findings)),
        }
    }

    /// Merges `other` into this list. Of actions that a list may have only once, those of `other` win.
    pub(super) fn overlay(&mut self, other: &Self) {
        fn over<T: Clone>(mine: &mut Option<T>, other: &Option<T>) {
            if other.is_some() {
                mine.clone_from(other);
            }
        }
        over(&mut self.disruptive, &other.disruptive);
        over(&mut self.status, &other.status);
        over(&mut self.log, &other.log);
        over(&mut self.audit_log, &other.audit_log);
        over(&mut self.message, &other.message);
        over(&mut self.data, &other.data);
        over(&mut self.severity, &other.severity);
        over(&mut self.revision, &other.revision);
        over(&mut self.version, &other.version);
        over(&mut self.maturity, &other.maturity);
        over(&mut self.accuracy, &other.accuracy);
        over(&mut self.skip, &other.skip);
        self.multi_match |= other.multi_match;
        self.capture |= other.capture;
        self.tags.extend_from_slice(&other.tags);
        self.transformations.extend_from_slice(&other.transformations);
        self.effects.extend_from_slice(&other.effects);
    }
}

fn phase(part: Part<'_>, findings: &mut Findings) -> Option<Phase> {
    let text = part.text();
    let found = match text.to_ascii_lowercase().as_str() {
        "1" => Some(Phase::RequestHeaders),
        "2" | "request" => Some(Phase::RequestBody),
        "3" => Some(Phase::ResponseHeaders),
        "4" | "response" => Some(Phase::ResponseBody),
        "5" | "logging" => Some(Phase::Logging),
        _ => None,
    };
    if found.is_none() {
        let suggestion = Some("phases are 1 to 5, `request`, `response` and `logging`".into());
        findings.error(part.at, format!("there is no phase `{text}`"), suggestion);
    }
    found
}

fn allow(part: Part<'_>, findings: &mut Findings) -> Option<DisruptiveChoice> {
    let text = part.text();
    match text.to_ascii_lowercase().as_str() {
        "" => Some(DisruptiveChoice::Allow(AllowScope::Transaction)),
        "phase" => Some(DisruptiveChoice::Allow(AllowScope::Phase)),
        "request" => Some(DisruptiveChoice::Allow(AllowScope::Request)),
        _ => {
            let suggestion = Some("`allow`, `allow:phase` and `allow:request` are known".into());
            findings.error(part.at, format!("`{text}` cannot be allowed"), suggestion);
            None
        }
    }
}

fn severity(part: Part<'_>, findings: &mut Findings) -> Option<Severity> {
    let text = part.text();
    let named = Severity::ALL
        .iter()
        .find(|(name, severity)| name.eq_ignore_ascii_case(&text) || severity.number().to_string() == text);
    if named.is_none() {
        findings.unknown(part.at, "severity", &text, Severity::ALL.iter().map(|(name, _)| *name));
    }
    named.map(|(_, severity)| *severity)
}

/// Parses the value of `t`. `Some(None)` stands for `t:none`; `None` is an error, which is recorded.
fn transformation(part: Part<'_>, findings: &mut Findings) -> Option<Option<Transformation>> {
    let text = part.text();
    if text.eq_ignore_ascii_case("none") {
        return Some(None);
    }
    let found = Transformation::parse(&text);
    if found.is_none() {
        let known = Transformation::ALL.iter().map(|(name, _)| *name).chain(["none"]);
        findings.unknown(part.at, "transformation", &text, known);
    }
    found.map(Some)
}

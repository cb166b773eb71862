//! Parses `ctl:NAME=VALUE`, which changes a setting or removes rules for the rest of a transaction.

use std::ops::RangeInclusive;

use super::super::findings::Findings;
use super::super::line::Part;
use super::super::number;
use super::super::{pattern, setting, target};
use crate::model::{Action, AuditPartsChange, BodyProcessor, Ctl, RuleId, RuleSelection, TextMatch};

#[derive(Clone, Copy)]
enum MakeCtl {
    AuditEngine,
    AuditParts,
    ForceRequestBodyVariable,
    XmlArguments,
    RequestBodyAccess,
    RequestBodyLimit,
    RequestBodyProcessor,
    ResponseBodyAccess,
    ResponseBodyLimit,
    RuleEngine,
    Remove(By),
    RemoveTarget(By),
}

/// The way in which rules are selected.
#[derive(Clone, Copy)]
enum By {
    Id,
    Message,
    Tag,
}

/// Every `ctl`, sorted by name.
const CTLS: &[(&str, MakeCtl)] = &[
    ("auditEngine", MakeCtl::AuditEngine),
    ("auditLogParts", MakeCtl::AuditParts),
    ("forceRequestBodyVariable", MakeCtl::ForceRequestBodyVariable),
    ("parseXmlIntoArgs", MakeCtl::XmlArguments),
    ("requestBodyAccess", MakeCtl::RequestBodyAccess),
    ("requestBodyLimit", MakeCtl::RequestBodyLimit),
    ("requestBodyProcessor", MakeCtl::RequestBodyProcessor),
    ("responseBodyAccess", MakeCtl::ResponseBodyAccess),
    ("responseBodyLimit", MakeCtl::ResponseBodyLimit),
    ("ruleEngine", MakeCtl::RuleEngine),
    ("ruleRemoveById", MakeCtl::Remove(By::Id)),
    ("ruleRemoveByMsg", MakeCtl::Remove(By::Message)),
    ("ruleRemoveByTag", MakeCtl::Remove(By::Tag)),
    ("ruleRemoveTargetById", MakeCtl::RemoveTarget(By::Id)),
    ("ruleRemoveTargetByMsg", MakeCtl::RemoveTarget(By::Message)),
    ("ruleRemoveTargetByTag", MakeCtl::RemoveTarget(By::Tag)),
];

const NO_HASH: &str = "pages are not signed";

/// The `ctl`s of ModSecurity and Coraza that are not supported, with the reasons.
const NOT_OFFERED: &[(&str, &str)] = &[
    ("debugLogLevel", "diagnostics are those of the proxy"),
    ("hashEnforcement", NO_HASH),
    ("hashEngine", NO_HASH),
    ("responseBodyProcessor", "bodies of responses are not taken apart"),
    ("ruleUpdateTargetById", "`ruleRemoveTargetById` takes its place"),
];

/// Parses the value of a `ctl`. Returns no action after an error, which is recorded.
pub(super) fn ctl(part: Part<'_>, findings: &mut Findings) -> Vec<Action> {
    let Some((name, value)) = part.split('=') else {
        let suggestion = Some("it is written `ctl:NAME=VALUE`".into());
        findings.error(part.at, format!("`=` is missing in `{}`", part.text()), suggestion);
        return Vec::new();
    };
    let (name, value) = (name.trim(), value.trim());
    let Some((_, make)) = CTLS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name.raw)) else {
        match NOT_OFFERED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name.raw)) {
            Some((known, reason)) => {
                findings.error(name.at, format!("the `ctl` `{known}` is not offered: {reason}"), None);
            }
            None => findings.unknown(name.at, "`ctl`", name.raw, CTLS.iter().map(|(name, _)| *name)),
        }
        return Vec::new();
    };
    if let MakeCtl::RemoveTarget(by) = make {
        return remove_target(*by, value, findings);
    }
    one(*make, value, findings).map(Action::Ctl).into_iter().collect()
}

fn one(make: MakeCtl, value: Part<'_>, findings: &mut Findings) -> Option<Ctl> {
    let bytes = |findings: &mut Findings| number::bounded(value, 0..=u64::MAX, "a number of bytes", findings);
    Some(match make {
        MakeCtl::AuditEngine => Ctl::AuditEngine(setting::choice(value, setting::AUDIT_ENGINES, findings)?),
        MakeCtl::AuditParts => Ctl::AuditParts(audit_parts(value, findings)?),
        MakeCtl::ForceRequestBodyVariable => {
            Ctl::ForceRequestBodyVariable(setting::choice(value, setting::SWITCH, findings)?)
        }
        MakeCtl::XmlArguments => Ctl::XmlArguments(setting::choice(value, setting::XML_ARGUMENTS, findings)?),
        MakeCtl::RequestBodyAccess => {
            Ctl::RequestBodyAccess(setting::choice(value, setting::SWITCH, findings)?)
        }
        MakeCtl::RequestBodyLimit => Ctl::RequestBodyLimit(bytes(findings)?),
        MakeCtl::RequestBodyProcessor => {
            Ctl::RequestBodyProcessor(setting::choice(value, BodyProcessor::ALL, findings)?)
        }
        MakeCtl::ResponseBodyAccess => {
            Ctl::ResponseBodyAccess(setting::choice(value, setting::SWITCH, findings)?)
        }
        MakeCtl::ResponseBodyLimit => Ctl::ResponseBodyLimit(bytes(findings)?),
        MakeCtl::RuleEngine => Ctl::RuleEngine(setting::choice(value, setting::ENGINES, findings)?),
        MakeCtl::Remove(by) => Ctl::RemoveRules(selection(by, value, findings)?),
        MakeCtl::RemoveTarget(_) => return None,
    })
}

/// Parses `RULES;TARGETS`.
fn remove_target(by: By, value: Part<'_>, findings: &mut Findings) -> Vec<Action> {
    let Some((rules, target)) = value.split(';') else {
        let suggestion = Some("it is written `RULES;VARIABLE:NAME`".into());
        findings.error(value.at, format!("`;` is missing in `{}`", value.text()), suggestion);
        return Vec::new();
    };
    let rules = selection(by, rules.trim(), findings);
    let exclusions = target::exclusions(target, findings);
    let Some(rules) = rules else { return Vec::new() };
    exclusions.into_iter().map(|exclusion| Action::Ctl(Ctl::RemoveTarget(rules.clone(), exclusion))).collect()
}

fn selection(by: By, part: Part<'_>, findings: &mut Findings) -> Option<RuleSelection> {
    match by {
        By::Id => ids(part, findings).map(RuleSelection::Ids),
        By::Tag => text_match(part, findings).map(RuleSelection::Tag),
        By::Message => text_match(part, findings).map(RuleSelection::Message),
    }
}

/// Parses ids and ranges of ids, separated by white space or commas: `942100 942200-942299`.
pub(in super::super) fn ids(part: Part<'_>, findings: &mut Findings) -> Option<Vec<RangeInclusive<RuleId>>> {
    let mut ranges = Vec::new();
    let mut right = true;
    for one in part.split_all(|found| found == ',' || found.is_whitespace()) {
        let text = one.text();
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        match (first.parse::<RuleId>(), last.parse::<RuleId>()) {
            (Ok(first), Ok(last)) if first <= last => ranges.push(first..=last),
            _ => {
                right = false;
                findings.error(one.at, format!("`{text}` is no id and no range of ids"), None);
            }
        }
    }
    if ranges.is_empty() && right {
        findings.error(part.at, "an id is missing", None);
        return None;
    }
    right.then_some(ranges)
}

/// Parses a literal text, or a pattern between slashes.
pub(in super::super) fn text_match(part: Part<'_>, findings: &mut Findings) -> Option<TextMatch> {
    if part.raw.is_empty() {
        findings.error(part.at, "a text is missing", None);
        return None;
    }
    if let Some(inner) = part.strip('/')
        && let Some(end) = inner.raw.strip_suffix('/').map(str::len)
    {
        let wanted = TextMatch::Pattern(pattern::regex(inner.to(end), findings)?);
        if !wanted.compiles() {
            findings.error(inner.at, "the pattern is too large", None);
            return None;
        }
        return Some(wanted);
    }
    Some(TextMatch::Exact(part.text().into()))
}

fn audit_parts(part: Part<'_>, findings: &mut Findings) -> Option<AuditPartsChange> {
    if let Some(parts) = part.strip('+') {
        return setting::audit_parts(parts, findings).map(AuditPartsChange::Add);
    }
    if let Some(parts) = part.strip('-') {
        return setting::audit_parts(parts, findings).map(AuditPartsChange::Remove);
    }
    setting::audit_parts(part, findings).map(AuditPartsChange::Set)
}

//! Parses actions that change variables, collections, or the masks of logs.

use super::super::findings::Findings;
use super::super::line::Part;
use super::super::number;
use super::super::template::{number, template};
use super::verb::Verb;
use crate::model::{
    Action, Change, Mask, PersistentCollection, SetVar, Template, Variable, WritableCollection,
};

/// Parses the value of `verb`. Returns `None` after an error, which is recorded.
pub(super) fn effect(verb: Verb, value: Part<'_>, findings: &mut Findings) -> Option<Action> {
    let name = || value.text().into_boxed_str();
    Some(match verb {
        Verb::SetVar => Action::SetVar(set_var(value, findings)?),
        Verb::ExpireVar => expire_var(value, findings)?,
        Verb::DeprecateVar => deprecate_var(value, findings)?,
        Verb::InitCol => init_col(value, findings)?,
        Verb::SetSession => keyed(PersistentCollection::Session, Some(Variable::SessionId), value, findings)?,
        Verb::SetUser => keyed(PersistentCollection::User, Some(Variable::UserId), value, findings)?,
        Verb::SetResource => keyed(PersistentCollection::Resource, None, value, findings)?,
        Verb::SetEnv => set_env(value, findings)?,
        Verb::MaskArgument => Action::Mask(Mask::Argument(name())),
        Verb::MaskRequestHeader => Action::Mask(Mask::RequestHeader(name())),
        Verb::MaskResponseHeader => Action::Mask(Mask::ResponseHeader(name())),
        Verb::MaskMatched => Action::Mask(Mask::Matched),
        Verb::MaskMatchedBytes => Action::Mask(matched_bytes(value, findings)?),
        // The caller handles all other actions.
        _ => return None,
    })
}

/// Parses `COLLECTION.NAME=VALUE`, `…=+VALUE`, `…=-VALUE`, `COLLECTION.NAME` or `!COLLECTION.NAME`.
fn set_var(value: Part<'_>, findings: &mut Findings) -> Option<SetVar> {
    if let Some(element) = value.strip('!') {
        let (collection, name) = element_of(element, findings)?;
        return Some(SetVar { collection, name, change: Change::Unset });
    }
    let Some((element, right)) = value.split('=') else {
        let (collection, name) = element_of(value, findings)?;
        return Some(SetVar { collection, name, change: Change::Set(Template::text("1")) });
    };
    let (collection, name) = element_of(element, findings)?;
    let right = right.trim();
    if right.raw.starts_with('\'') {
        let suggestion = Some("quote the whole: `setvar:'tx.name=value'`".into());
        findings.error(right.at, "a quote stands within the value of `setvar`", suggestion);
        return None;
    }
    let change = if let Some(amount) = right.strip('+') {
        Change::Add(number(amount, findings)?)
    } else if let Some(amount) = right.strip('-') {
        Change::Subtract(number(amount, findings)?)
    } else {
        Change::Set(template(right, findings)?)
    };
    Some(SetVar { collection, name, change })
}

/// Parses `COLLECTION.NAME`.
fn element_of(part: Part<'_>, findings: &mut Findings) -> Option<(WritableCollection, Template)> {
    let part = part.trim();
    let Some((collection, name)) = part.split('.') else {
        let suggestion = Some("a variable is written `tx.name`".into());
        findings.error(part.at, format!("`{}` names no collection", part.text()), suggestion);
        return None;
    };
    let found = writable(collection, findings)?;
    if name.raw.is_empty() || name.raw.contains(char::is_whitespace) {
        findings.error(name.at, format!("`{}` is not the name of a variable", name.text()), None);
        return None;
    }
    Some((found, template(name, findings)?))
}

fn writable(part: Part<'_>, findings: &mut Findings) -> Option<WritableCollection> {
    if part.raw.eq_ignore_ascii_case("tx") {
        return Some(WritableCollection::Tx);
    }
    let known = PersistentCollection::ALL;
    let found = known.iter().find(|(name, _)| name.eq_ignore_ascii_case(part.raw));
    if found.is_none() {
        let names = known.iter().map(|(name, _)| *name).chain(["TX"]);
        findings.unknown(part.at, "collection that rules change,", &part.text(), names);
    }
    found.map(|(_, found)| WritableCollection::Persistent(*found))
}

fn persistent(part: Part<'_>, findings: &mut Findings) -> Option<PersistentCollection> {
    match writable(part, findings)? {
        WritableCollection::Persistent(found) => Some(found),
        WritableCollection::Tx => {
            findings.error(part.at, "`TX` ends with the transaction", None);
            None
        }
    }
}

/// Splits an action's value at `=`.
fn assigned<'l>(value: Part<'l>, form: &str, findings: &mut Findings) -> Option<(Part<'l>, Part<'l>)> {
    let sides = value.split('=');
    if sides.is_none() {
        let suggestion = Some(format!("it is written `{form}`"));
        findings.error(value.at, format!("`=` is missing in `{}`", value.text()), suggestion);
    }
    sides.map(|(left, right)| (left.trim(), right.trim()))
}

fn expire_var(value: Part<'_>, findings: &mut Findings) -> Option<Action> {
    let (element, seconds) = assigned(value, "expirevar:ip.name=SECONDS", findings)?;
    let (collection, name) = element_of(element, findings)?;
    Some(Action::ExpireVar { collection, name, seconds: number(seconds, findings)? })
}

fn deprecate_var(value: Part<'_>, findings: &mut Findings) -> Option<Action> {
    let form = "deprecatevar:ip.name=AMOUNT/SECONDS";
    let (element, rate) = assigned(value, form, findings)?;
    let (collection, name) = element_of(element, findings)?;
    let collection = match collection {
        WritableCollection::Persistent(found) => found,
        WritableCollection::Tx => {
            findings.error(element.at, "`TX` ends with the transaction", None);
            return None;
        }
    };
    let Some((amount, seconds)) = rate.split('/') else {
        findings.error(rate.at, "`/` is missing", Some(format!("it is written `{form}`")));
        return None;
    };
    let amount = number::bounded(amount, 0..=u32::MAX, "an amount", findings)?;
    let seconds = number::bounded(seconds, 1..=u32::MAX, "a number of seconds", findings)?;
    Some(Action::DeprecateVar { collection, name, amount, seconds })
}

fn init_col(value: Part<'_>, findings: &mut Findings) -> Option<Action> {
    let (collection, key) = assigned(value, "initcol:ip=%{REMOTE_ADDR}", findings)?;
    keyed(persistent(collection, findings)?, None, key, findings)
}

fn keyed(
    collection: PersistentCollection,
    known_as: Option<Variable>,
    key: Part<'_>,
    findings: &mut Findings,
) -> Option<Action> {
    Some(Action::InitCol { collection, key: template(key, findings)?, known_as })
}

fn set_env(value: Part<'_>, findings: &mut Findings) -> Option<Action> {
    let (name, value) = assigned(value, "setenv:NAME=VALUE", findings)?;
    Some(Action::SetEnv { name: template(name, findings)?, value: template(value, findings)? })
}

/// Parses `FIRST/LAST`, or an empty value.
fn matched_bytes(value: Part<'_>, findings: &mut Findings) -> Option<Mask> {
    if value.raw.is_empty() {
        return Some(Mask::MatchedBytes { first: 0, last: 0 });
    }
    let Some((first, last)) = value.split('/') else {
        let suggestion = Some("it is written `sanitiseMatchedBytes:FIRST/LAST`".into());
        findings.error(value.at, "`/` is missing", suggestion);
        return None;
    };
    let mut bytes = |part| number::bounded(part, 0..=u32::MAX, "a number of bytes", findings);
    Some(Mask::MatchedBytes { first: bytes(first)?, last: bytes(last)? })
}

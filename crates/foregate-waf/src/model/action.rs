//! Actions: the effects of a rule that matches.

use std::ops::RangeInclusive;

use super::{
    AuditEngine, AuditParts, BodyProcessor, EngineMode, Exclusion, Number, Regex, RuleId, Template, Variable,
    XmlArguments,
};
use crate::scan::{Pattern, PatternOptions};

/// The effect on the transaction when a rule matches and the engine is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disruptive {
    /// `pass`: no effect; the next rule runs.
    Pass,
    /// `allow`: further rules are skipped.
    Allow(AllowScope),
    /// `deny`: the answer has this status, 403 by default.
    Deny {
        /// The status, 100 to 999.
        status: u16,
    },
    /// `drop`: the connection is closed without an answer.
    Drop,
    /// `redirect`: the answer is a redirect with this status, 302 by default.
    Redirect {
        /// The status, 300 to 399.
        status: u16,
        /// The target.
        to: Template,
    },
}

/// The rules that `allow` skips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowScope {
    /// `allow`: all further rules, except for those of the logging phase.
    Transaction,
    /// `allow:phase`: the further rules of this phase.
    Phase,
    /// `allow:request`: the further rules up to the response.
    Request,
}

/// The effect of a matching link. It also takes place if the engine only detects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `setvar`.
    SetVar(SetVar),
    /// `expirevar:COLLECTION.NAME=SECONDS`: the element expires after that time.
    ExpireVar {
        /// The collection.
        collection: WritableCollection,
        /// The name of the element.
        name: Template,
        /// The time after which the element expires, seconds.
        seconds: Number,
    },
    /// `deprecatevar:COLLECTION.NAME=AMOUNT/SECONDS`: the element, a number, loses `amount` every `seconds`.
    DeprecateVar {
        /// The collection.
        collection: PersistentCollection,
        /// The name of the element.
        name: Template,
        /// The amount that it loses.
        amount: u32,
        /// The interval in seconds; never 0.
        seconds: u32,
    },
    /// `initcol:COLLECTION=KEY`, `setsid`, `setuid`, `setrsc`: opens the record of the collection that is stored
    /// under this key.
    InitCol {
        /// The collection.
        collection: PersistentCollection,
        /// The key of the record.
        key: Template,
        /// The variable that is set to the key: `SESSIONID` for `setsid`, `USERID` for `setuid`.
        known_as: Option<Variable>,
    },
    /// `setenv:NAME=VALUE`: sets `ENV:NAME` for this transaction.
    SetEnv {
        /// The name.
        name: Template,
        /// The value.
        value: Template,
    },
    /// `ctl`: changes a setting or removes rules for the rest of this transaction.
    Ctl(Ctl),
    /// `sanitiseArg` and its kin: a value is not shown in logs.
    Mask(Mask),
}

/// A change of an element of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetVar {
    /// The collection.
    pub collection: WritableCollection,
    /// The name of the element, in any case.
    pub name: Template,
    /// The change.
    pub change: Change,
}

/// A change of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `name=value`, or `name`, which sets it to `1`.
    Set(Template),
    /// `name=+value`: the sum; text that is no number counts as 0.
    Add(Number),
    /// `name=-value`: the difference; text that is no number counts as 0.
    Subtract(Number),
    /// `!name`: the element is removed.
    Unset,
}

/// A collection that rules change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WritableCollection {
    /// `TX`: the variables of this transaction.
    Tx,
    /// A collection that outlives the transaction.
    Persistent(PersistentCollection),
}

/// A collection that outlives the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PersistentCollection {
    /// `GLOBAL`
    Global,
    /// `IP`
    Ip,
    /// `RESOURCE`
    Resource,
    /// `SESSION`
    Session,
    /// `USER`
    User,
}

impl PersistentCollection {
    /// All values with their names.
    pub const ALL: &[(&str, Self)] = &[
        ("GLOBAL", Self::Global),
        ("IP", Self::Ip),
        ("RESOURCE", Self::Resource),
        ("SESSION", Self::Session),
        ("USER", Self::User),
    ];
}

/// A value that logs do not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mask {
    /// `sanitiseArg`: the argument of this name.
    Argument(Box<str>),
    /// `sanitiseRequestHeader`: the field of this name.
    RequestHeader(Box<str>),
    /// `sanitiseResponseHeader`: the field of this name.
    ResponseHeader(Box<str>),
    /// `sanitiseMatched`: the variable that matched.
    Matched,
    /// `sanitiseMatchedBytes:FIRST/LAST`: the match, except for this many bytes at its ends.
    MatchedBytes {
        /// Bytes shown at the start.
        first: u32,
        /// Bytes shown at the end.
        last: u32,
    },
}

/// A change by `ctl` for the rest of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ctl {
    /// `ruleEngine`
    RuleEngine(EngineMode),
    /// `ruleRemoveById`, `ruleRemoveByTag`, `ruleRemoveByMsg`: these rules do not run.
    RemoveRules(RuleSelection),
    /// `ruleRemoveTargetById`, `ruleRemoveTargetByTag`, `ruleRemoveTargetByMsg`: the selected rules do not read the
    /// excluded values.
    RemoveTarget(RuleSelection, Exclusion),
    /// `requestBodyAccess`
    RequestBodyAccess(bool),
    /// `requestBodyLimit`, in bytes
    RequestBodyLimit(u64),
    /// `requestBodyProcessor`
    RequestBodyProcessor(BodyProcessor),
    /// `forceRequestBodyVariable`: `REQUEST_BODY` is set for every body processor.
    ForceRequestBodyVariable(bool),
    /// `responseBodyAccess`
    ResponseBodyAccess(bool),
    /// `responseBodyLimit`, in bytes
    ResponseBodyLimit(u64),
    /// `parseXmlIntoArgs`
    XmlArguments(XmlArguments),
    /// `auditEngine`
    AuditEngine(AuditEngine),
    /// `auditLogParts`
    AuditParts(AuditPartsChange),
}

/// The effect of `ctl:auditLogParts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditPartsChange {
    /// `+LETTERS`
    Add(AuditParts),
    /// `-LETTERS`
    Remove(AuditParts),
    /// `LETTERS`
    Set(AuditParts),
}

/// A selection of rules by their metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleSelection {
    /// Rules with an id in one of these ranges.
    Ids(Vec<RangeInclusive<RuleId>>),
    /// Rules with a tag that matches.
    Tag(TextMatch),
    /// Rules with a `msg` that matches. Its macros are not expanded.
    Message(TextMatch),
}

/// A condition on a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextMatch {
    /// The text equals this one, including case.
    Exact(Box<str>),
    /// The text contains a match of this pattern (`/PATTERN/`).
    Pattern(Regex),
}

impl RuleSelection {
    /// Returns a function that takes the id, tags and message of a rule, and returns true if the rule is selected.
    pub fn matcher(&self) -> impl Fn(RuleId, &[Template], Option<&Template>) -> bool {
        let text = match self {
            Self::Ids(_) => None,
            Self::Tag(wanted) | Self::Message(wanted) => Some(wanted.matcher()),
        };
        move |id, tags, message| match (self, &text) {
            (Self::Ids(ranges), _) => ranges.iter().any(|range| range.contains(&id)),
            (Self::Tag(_), Some(wanted)) => tags.iter().any(|tag| wanted(&tag.to_string())),
            (Self::Message(_), Some(wanted)) => message.is_some_and(|message| wanted(&message.to_string())),
            (_, None) => false,
        }
    }
}

impl TextMatch {
    /// Returns true if the selection is valid: a pattern has to compile. Loading rejects invalid selections.
    pub fn compiles(&self) -> bool {
        match self {
            Self::Exact(_) => true,
            Self::Pattern(regex) => compiled(regex).is_some(),
        }
    }

    /// Returns a function that is true for the texts that satisfy the condition. It is never true for a pattern
    /// that does not compile.
    pub fn matcher(&self) -> Box<dyn Fn(&str) -> bool + '_> {
        match self {
            Self::Exact(wanted) => Box::new(|text| text == &**wanted),
            Self::Pattern(regex) => {
                let compiled = compiled(regex);
                Box::new(move |text| {
                    compiled.as_ref().is_some_and(|compiled| compiled.is_match(text.as_bytes()))
                })
            }
        }
    }
}

fn compiled(regex: &Regex) -> Option<Pattern> {
    Pattern::new(regex.text().as_bytes(), PatternOptions::default()).ok()
}

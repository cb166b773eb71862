//! The names of actions.

use super::super::findings::Findings;
use super::super::line::Part;

/// An action, without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Verb {
    Accuracy,
    Allow,
    AuditLog,
    Block,
    Capture,
    Chain,
    Ctl,
    Deny,
    DeprecateVar,
    Drop,
    ExpireVar,
    Id,
    InitCol,
    Log,
    LogData,
    MaskArgument,
    MaskMatched,
    MaskMatchedBytes,
    MaskRequestHeader,
    MaskResponseHeader,
    Maturity,
    Message,
    MultiMatch,
    NoAuditLog,
    NoLog,
    Pass,
    Phase,
    Redirect,
    Revision,
    SetEnv,
    SetResource,
    SetSession,
    SetUser,
    SetVar,
    Severity,
    Skip,
    SkipAfter,
    Status,
    Tag,
    Transform,
    Version,
}

/// Every action, sorted by name.
const VERBS: &[(&str, Verb)] = &[
    ("accuracy", Verb::Accuracy),
    ("allow", Verb::Allow),
    ("auditlog", Verb::AuditLog),
    ("block", Verb::Block),
    ("capture", Verb::Capture),
    ("chain", Verb::Chain),
    ("ctl", Verb::Ctl),
    ("deny", Verb::Deny),
    ("deprecatevar", Verb::DeprecateVar),
    ("drop", Verb::Drop),
    ("expirevar", Verb::ExpireVar),
    ("id", Verb::Id),
    ("initcol", Verb::InitCol),
    ("log", Verb::Log),
    ("logdata", Verb::LogData),
    ("maturity", Verb::Maturity),
    ("msg", Verb::Message),
    ("multiMatch", Verb::MultiMatch),
    ("noauditlog", Verb::NoAuditLog),
    ("nolog", Verb::NoLog),
    ("pass", Verb::Pass),
    ("phase", Verb::Phase),
    ("redirect", Verb::Redirect),
    ("rev", Verb::Revision),
    ("sanitiseArg", Verb::MaskArgument),
    ("sanitiseMatched", Verb::MaskMatched),
    ("sanitiseMatchedBytes", Verb::MaskMatchedBytes),
    ("sanitiseRequestHeader", Verb::MaskRequestHeader),
    ("sanitiseResponseHeader", Verb::MaskResponseHeader),
    ("sanitizeArg", Verb::MaskArgument),
    ("sanitizeMatched", Verb::MaskMatched),
    ("sanitizeMatchedBytes", Verb::MaskMatchedBytes),
    ("sanitizeRequestHeader", Verb::MaskRequestHeader),
    ("sanitizeResponseHeader", Verb::MaskResponseHeader),
    ("setenv", Verb::SetEnv),
    ("setrsc", Verb::SetResource),
    ("setsid", Verb::SetSession),
    ("setuid", Verb::SetUser),
    ("setvar", Verb::SetVar),
    ("severity", Verb::Severity),
    ("skip", Verb::Skip),
    ("skipAfter", Verb::SkipAfter),
    ("status", Verb::Status),
    ("t", Verb::Transform),
    ("tag", Verb::Tag),
    ("ver", Verb::Version),
];

const NO_REWRITE: &str = "bodies are not rewritten by rules";

/// The actions of ModSecurity that are not supported, with the reasons.
const NOT_OFFERED: &[(&str, &str)] = &[
    ("append", NO_REWRITE),
    ("exec", "no programs are run"),
    ("pause", "a request that waits takes memory: `drop` or `deny` it"),
    ("prepend", NO_REWRITE),
    ("proxy", "where a request goes is said by routes"),
    ("xmlns", "XPath knows no namespaces here"),
];

/// The syntax of the value after an action's name.
pub(super) enum Takes {
    Nothing,
    Value,
    Either,
}

/// The rules of a chain in which an action is allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Class {
    /// Only the first rule of a chain; the action applies to the whole chain.
    First,
    /// The first rule of a chain. In other rules the action has no effect.
    Logging,
    /// Every rule of a chain; the action applies to that rule alone.
    Each,
}

/// Finds the action with this name in the table. An unknown name is reported.
pub(super) fn find(part: Part<'_>, findings: &mut Findings) -> Option<&'static (&'static str, Verb)> {
    let found = VERBS.iter().find(|(name, _)| name.eq_ignore_ascii_case(part.raw));
    if found.is_none() {
        match NOT_OFFERED.iter().find(|(name, _)| name.eq_ignore_ascii_case(part.raw)) {
            Some((name, reason)) => {
                findings.error(part.at, format!("the action `{name}` is not offered: {reason}"), None);
            }
            None => findings.unknown(part.at, "action", part.raw, VERBS.iter().map(|(name, _)| *name)),
        }
    }
    found
}

impl Verb {
    /// Its name.
    pub(in super::super) fn name(self) -> &'static str {
        VERBS.iter().find(|(_, verb)| *verb == self).map_or("", |(name, _)| name)
    }

    /// The rules of a chain in which the action is allowed.
    pub(in super::super) fn class(self) -> Class {
        match self {
            Self::Log | Self::NoLog | Self::AuditLog | Self::NoAuditLog => Class::Logging,
            Self::Capture | Self::Chain | Self::MultiMatch | Self::Transform => Class::Each,
            verb if verb.is_effect() => Class::Each,
            _ => Class::First,
        }
    }

    /// Returns true if the action has an effect when its rule matches, and is not disruptive.
    pub(in super::super) fn is_effect(self) -> bool {
        matches!(
            self,
            Self::Ctl
                | Self::DeprecateVar
                | Self::ExpireVar
                | Self::InitCol
                | Self::MaskArgument
                | Self::MaskMatched
                | Self::MaskMatchedBytes
                | Self::MaskRequestHeader
                | Self::MaskResponseHeader
                | Self::SetEnv
                | Self::SetResource
                | Self::SetSession
                | Self::SetUser
                | Self::SetVar
        )
    }

    /// Returns true if the action is disruptive.
    pub(in super::super) fn is_disruptive(self) -> bool {
        matches!(self, Self::Allow | Self::Block | Self::Deny | Self::Drop | Self::Pass | Self::Redirect)
    }

    pub(super) fn stands_once(self) -> bool {
        !self.is_effect() && !matches!(self, Self::Tag | Self::Transform)
    }

    pub(super) fn takes(self) -> Takes {
        match self {
            Self::Allow => Takes::Either,
            Self::AuditLog
            | Self::Block
            | Self::Capture
            | Self::Chain
            | Self::Deny
            | Self::Drop
            | Self::Log
            | Self::MaskMatched
            | Self::MultiMatch
            | Self::NoAuditLog
            | Self::NoLog
            | Self::Pass => Takes::Nothing,
            Self::MaskMatchedBytes => Takes::Either,
            _ => Takes::Value,
        }
    }
}

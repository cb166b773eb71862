//! Rules as types: SecLang without text left to interpret.
//!
//! [`seclang`](crate::seclang) makes these values, and the [`engine`](crate::engine) compiles them.
//! Directives that change rules (defaults, updates, removals) have been applied already, and the content of
//! files that rules name is included.

mod action;
mod index;
mod operator;
mod rule;
mod settings;
mod target;
mod template;

pub use action::{
    Action, AllowScope, AuditPartsChange, Change, Ctl, Disruptive, Mask, PersistentCollection, RuleSelection,
    SetVar, TextMatch, WritableCollection,
};
pub use index::Index;
pub use operator::{ByteSet, Comparison, Network, NetworkError, Number, Operator, Phrases, Regex};
pub use rule::{Link, Phase, Place, Problem, Rule, RuleId, RuleSet, Severity};
pub use settings::{
    AuditEngine, AuditParts, BeyondLimit, BodyProcessor, EngineMode, Settings, StatusSet, XmlArguments,
};
pub use target::{Exclusion, Selector, Target, Variable, VariableKind, XPath};
pub use template::{Macro, Piece, Template};

pub use crate::transform::Transformation;

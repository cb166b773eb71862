//! Rules, typed: what SecLang says, with nothing left as text to understand.
//!
//! [`seclang`](crate::seclang) makes these values, the [`engine`](crate::engine) compiles them. What a directive says
//! about rules that are already there (defaults, updates, removals) has been applied to them; what a rule takes from
//! files is in it.

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
pub use target::{Exclusion, Kind, Selector, Target, Variable, XPath};
pub use template::{Macro, Piece, Template};

pub use crate::transform::Transformation;

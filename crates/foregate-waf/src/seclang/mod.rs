//! Parses SecLang into the [model](crate::model).
//!
//! [`load`] reads rules in the language of ModSecurity and the OWASP Core Rule Set: every directive,
//! variable, operator, transformation, action and `ctl` that makes sense in a reverse proxy. An unknown
//! construct is an error, with its place and, if there is a similar name, a suggestion. Several errors are
//! reported at a time, and nothing is skipped silently. Known constructs that have no effect here, and
//! probable mistakes, are [`RuleSet::warnings`](crate::model::RuleSet::warnings).
//!
//! ```
//! use foregate_waf::seclang::{NoFiles, Source, load};
//!
//! let text = r#"
//! SecRuleEngine On
//! SecRule ARGS|!ARGS:comment "@contains <script" "id:1,phase:2,deny,t:lowercase,msg:'Script in %{MATCHED_VAR_NAME}'"
//! "#;
//! let set = load(&[Source::text("rules.conf", text)], &mut NoFiles).expect("right");
//! assert_eq!(set.rules[0].id, 1);
//!
//! let wrong = load(&[Source::text("rules.conf", "SecRule ARGZ \"@rx a\" \"id:1\"")], &mut NoFiles).unwrap_err();
//! assert_eq!(wrong[0].to_string(), "rules.conf:1:9: there is no variable `ARGZ` (did you mean `ARGS`?)");
//! ```
//!
//! # The language
//!
//! A directive is a line; `\` at the end of a line continues it on the next. Lines that start with `#` are
//! comments. Arguments are separated by white space and may be quoted with `"` or `'`. Within quotes, `\`
//! before the same quote stands for the quote; before any other character, the `\` is kept. Files are UTF-8;
//! files of phrases (`@pmFromFile`) may contain any bytes.
//!
//! `SecRuleRemoveBy…` and `SecRuleUpdate…By…` apply to rules before and after them. They select a tag or
//! message by a literal text or by a pattern between slashes (`/^attack-/`).
//!
//! Paths are relative to the file that names them.

mod action;
mod files;
mod findings;
mod finish;
pub mod limits;
mod line;
mod lint;
mod loader;
mod nearest;
mod needs;
mod number;
mod operator;
mod pattern;
mod rule;
mod setting;
mod status;
mod target;
mod template;
mod update;

pub use files::{Files, NoFiles};
pub use loader::{Source, load};
pub use needs::needs;

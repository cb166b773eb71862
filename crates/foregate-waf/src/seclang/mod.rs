//! SecLang: text to the [model](crate::model).
//!
//! [`load`] reads rules as they are written for ModSecurity and for the OWASP Core Rule Set: every directive,
//! variable, operator, transformation, action and `ctl` that means something to a reverse proxy. Unknown
//! constructs are errors with their place and a suggestion if one is near; several are found
//! at a time, and nothing is skipped silently. Known constructs without effect here, and probable mistakes, are
//! [`RuleSet::warnings`](crate::model::RuleSet::warnings).
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
//! A directive is a line; `\` at its end continues it. Lines that start with `#` are comments. Arguments are separated
//! by white space and quoted with `"` or `'`, within which `\` before that quote stands for the quote and is kept
//! before all else. Files are UTF-8; files of phrases (`@pmFromFile`) may hold any bytes.
//!
//! `SecRuleRemoveBy…` and `SecRuleUpdate…By…` apply to rules before and after them. A tag or message is a literal,
//! or a pattern between slashes (`/^attack-/`).
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

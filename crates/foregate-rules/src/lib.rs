//! The expression language of Foregate, in the syntax of Cloudflare's Rules language. Expressions are conditions or
//! values over a request. They are compiled once, and evaluated without I/O and without a clock.
//!
//! A [`Scheme`] declares the fields. It compiles a text to a [`Predicate`] (a condition) or an [`Expression`] (a
//! value). An evaluation reads from a request, through [`Facts`], only the fields that it needs. A [`RuleSet`]
//! evaluates many predicates in order and shares the work between them.
//!
//! ```
//! use foregate_rules::{FactTable, List, Lists, Scheme, Stage, Value};
//!
//! let scheme = Scheme::standard();
//! let mut lists = Lists::new();
//! lists.insert("office", List::parse_ips("192.0.2.0/24  # Berlin\n2001:db8::/48\n")?);
//!
//! let text = r#"starts_with(http.request.uri.path, "/admin/") and not ip.src in $office"#;
//! let blocked = scheme.compile(text, Stage::Request, &lists)?;
//!
//! let mut facts = FactTable::new(&scheme);
//! facts.set("http.request.uri.path", "/admin/users").set("ip.src", std::net::Ipv4Addr::new(198, 51, 100, 7));
//! assert!(blocked.matches(&facts));
//!
//! let text = r#"regex_replace(http.request.uri.path, "^/admin/(.*)$", "/staff/${1}")"#;
//! let rewritten = scheme.compile_value(text, Stage::Request, &lists)?;
//! assert_eq!(rewritten.evaluate(&facts), Some(Value::from("/staff/users")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An error has a place and a suggestion:
//!
//! ```
//! # use foregate_rules::{Lists, Scheme, Stage};
//! let error = Scheme::standard().compile(r#"http.hots eq "a""#, Stage::Request, &Lists::new()).unwrap_err();
//! assert_eq!(error.span(), 0..9);
//! assert_eq!(error.message(), "there is no field `http.hots`");
//! assert_eq!(error.help(), Some("did you mean `http.host`?"));
//! ```
//!
//! # Absent values
//!
//! A request may lack a value, such as a header field that was not sent, or the country of an unknown address. That
//! is no error:
//!
//! - A comparison with an absent value is false, so `ne`, which means `not eq`, is true.
//! - An absent boolean field is false.
//! - A function of an absent value is absent, with these exceptions: `concat` leaves the value out, and `starts_with`,
//!   `ends_with`, `has_key` and `has_value` are false.
//! - `any` over no elements is false, and `all` is true.
//! - The `len` of a value under a name that a map does not have is absent.
//! - The `len` of an array field without elements is 0.
//!
//! # Limits
//!
//! Everything that can grow has a bound in [`limits`]. An expression that exceeds one is refused when it is compiled.
//! Regular expressions are matched in linear time. Evaluation allocates only for the results of functions, and walks a
//! tree that is no deeper than [`limits::MAX_DEPTH`].

#![forbid(unsafe_code)]

mod check;
mod cost;
mod error;
mod evaluate;
mod facts;
mod functions;
mod lex;
pub mod limits;
mod lists;
mod literals;
mod nearest;
mod parse;
mod pattern;
mod predicate;
mod program;
mod rule_set;
mod scheme;
mod sets;

pub use error::Error;
pub use facts::{FactTable, Facts, Value};
pub use functions::{FUNCTIONS, Function};
pub use lex::{Word, words};
pub use lists::{Entries, List, ListError, Lists};
pub use nearest::nearest;
pub use predicate::{Expression, Predicate};
pub use rule_set::{RuleSet, RuleSetError};
pub use scheme::{Field, FieldError, FieldId, Scalar, Scheme, Stage, StandardField, Type};

/// Returns true if a field cannot have this name, because it is a keyword or a function.
fn is_reserved(name: &str) -> bool {
    parse::is_keyword(name) || functions::is_known(name)
}

//! The web application firewall of Foregate. It loads rules in SecLang, the language of ModSecurity and of
//! the OWASP Core Rule Set, compiles them to a plan, and runs the plan over a request and its response,
//! without input, output or clock.
//!
//! | module | contents |
//! |---|---|
//! | [`model`] | rules as types, without text left to interpret |
//! | [`seclang`] | text to the model: directives, files, errors with their place |
//! | [`engine`] | the model compiled to a plan, and one transaction of it: five phases, verdicts, a report |
//! | [`operator`] | comparisons of values |
//! | [`transform`] | changes of a value before it is compared: pure functions |
//! | [`body`] | bodies to names and values |
//! | [`injection`] | SQL injection and cross-site scripting by tokens rather than patterns |
//! | [`scan`] | patterns, the literals they require, and one automaton over many of those |
//! | [`steps`] | the module: its settings and its steps in a pipeline |

#![forbid(unsafe_code)]

/// The settings and rules to load before the Core Rule Set. They decide which bodies are inspected and which
/// are refused.
pub const RECOMMENDED: &str = include_str!("recommended.conf");

pub mod body;
mod date;
pub mod engine;
pub mod injection;
pub mod model;
pub mod operator;
pub mod scan;
pub mod seclang;
pub mod steps;
pub mod transform;

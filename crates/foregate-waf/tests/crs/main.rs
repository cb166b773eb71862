//! The OWASP Core Rule Set and its regression files, run without sockets. The folder of the rule set comes from the
//! environment variable `CRS` (`make test-waf` sets it); without it, as in a plain `cargo test`, there is nothing to do.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

mod cases;
mod mutations;
mod rules;
mod suite;

//! SQL injection and cross-site scripting, found by tokens rather than patterns.
//!
//! Both give the same results as libinjection 3.9.2, which ModSecurity 3 uses, and take linear time.

mod fold;
mod html;
mod sqli;
mod token;
mod tokenizer;
mod words;
mod xss;

pub use sqli::{Fingerprint, sqli};
pub use xss::xss;

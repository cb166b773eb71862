//! Writes a case to a file, which can be kept with the configuration.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::answer::Answer;
use crate::case::Case;

/// The fields of an answer that a written case expects.
const EXPECTED: [&str; 4] = ["content-type", "location", "cache-control", "content-encoding"];

/// The text of a case that expects the status and some fields of an answer. The case has no templates.
pub fn write_case(case: &Case, answer: Option<&Answer>) -> String {
    let mut text = format!("{} {}\n", case.method, case.url);
    for (name, value) in &case.fields {
        let _ = writeln!(text, "{name}: {value}");
    }
    if !case.body.is_empty() {
        let _ = writeln!(text, "base64,{};", BASE64_STANDARD.encode(&case.body));
    }
    if let Some(answer) = answer {
        let _ = writeln!(text, "HTTP {}", answer.status);
        for name in EXPECTED {
            if let Some(Ok(value)) = answer.field(name).map(std::str::from_utf8) {
                let _ = writeln!(text, "{name}: {value}");
            }
        }
    }
    text.push('\n');
    text
}

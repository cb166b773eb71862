//! Numbers of directives and actions.

use super::findings::Findings;
use super::line::Part;

/// A number within these bounds.
pub(super) fn bounded<N>(
    part: Part<'_>,
    within: std::ops::RangeInclusive<N>,
    what: &str,
    findings: &mut Findings,
) -> Option<N>
where
    N: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    let text = part.text();
    // `+5` is a number to Rust.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && within.contains(number));
    if number.is_none() {
        let suggestion = format!("a number from {} to {}", within.start(), within.end());
        findings.error(part.at, format!("`{text}` is not {what}"), Some(suggestion));
    }
    number
}

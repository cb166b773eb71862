//! Parses numbers in directives and actions.

use super::findings::Findings;
use super::line::Part;

/// Parses a number within these bounds; `None` after an error, which is recorded.
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
    // Rust's parser would also accept a sign, as in `+5`.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && within.contains(number));
    if number.is_none() {
        let suggestion = format!("a number from {} to {}", within.start(), within.end());
        findings.error(part.at, format!("`{text}` is not {what}"), Some(suggestion));
    }
    number
}

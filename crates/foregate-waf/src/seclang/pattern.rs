//! Checks the validity and the cost of patterns.

use regex_syntax::hir::{Hir, HirKind};

use super::findings::Findings;
use super::limits::{COSTLY_PATTERN, MAX_PATTERN_COST};
use super::line::Part;
use crate::model::Regex;
use crate::scan::{self, PatternError, PatternOptions};

/// The pattern in `part`; `None` if it is invalid, which is reported.
pub(super) fn regex(part: Part<'_>, findings: &mut Findings) -> Option<Regex> {
    let text = part.text();
    let hir = match scan::parse(text.as_bytes(), PatternOptions::default()) {
        Ok(hir) => hir,
        Err(error) => {
            refused(part, &text, &error, findings);
            return None;
        }
    };
    let cost = cost(&hir);
    if cost > MAX_PATTERN_COST {
        findings.error(part.at, "the pattern is too large once its repetitions are written out", None);
        return None;
    }
    if cost > COSTLY_PATTERN {
        findings.warn(
            part.at,
            format!("the pattern comes to {cost} bytes once its repetitions are written out, which is slow"),
            Some("`*` and `+` cost less than counted repetitions".into()),
        );
    }
    Some(Regex::new(&text))
}

/// Reports the error of a pattern, with its place within the pattern if that is known.
fn refused(part: Part<'_>, text: &str, error: &PatternError, findings: &mut Findings) {
    let offset = error.at.filter(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let suggestion = unavailable(&text[offset..]);
    // If the source has escaped quotes, positions in the text are not positions in the source.
    let offset = if text == part.raw { offset } else { 0 };
    findings.error(part.at + offset, error.what.clone(), suggestion);
}

/// The explanation for a construct of PCRE that cannot be matched in linear time; `None` for other text.
fn unavailable(rest: &str) -> Option<String> {
    const GROUPS: &[&str] = &["(?=", "(?!", "(?<=", "(?<!", "(?>", "(?R", "(?(", "(?P=", "(?|"];
    let digit = |text: &str| text.starts_with(|found: char| found.is_ascii_digit());
    if GROUPS.iter().any(|group| rest.starts_with(group)) || rest.strip_prefix('\\').is_some_and(digit) {
        return Some("patterns are matched in linear time; a chained rule can look twice".into());
    }
    None
}

/// The number of bytes that a pattern can match in sequence, with all alternatives added up.
fn cost(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(_) => 1,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.saturating_add(1));
            // Each repetition counts as at least one byte, even that of an empty pattern.
            cost(&repetition.sub).max(1).saturating_mul(u64::from(times))
        }
        HirKind::Capture(capture) => cost(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(cost).fold(0, u64::saturating_add)
        }
    }
}

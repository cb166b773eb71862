//! Splits a list of actions into its items.

use super::super::findings::Findings;
use super::super::limits::MAX_ACTIONS;
use super::super::line::{Part, end_of_quoted};

/// `NAME` or `NAME:VALUE`.
pub(super) struct ActionItem<'l> {
    pub(super) name: Part<'l>,
    /// The value without its quotes.
    pub(super) value: Option<Part<'l>>,
}

/// Splits the actions in `part` at commas. The list ends at an error, which is recorded.
pub(super) fn items<'l>(part: Part<'l>, findings: &mut Findings) -> Vec<ActionItem<'l>> {
    let mut items = Vec::new();
    let mut rest = part.trim();
    loop {
        let end = rest.raw.find([':', ',']).unwrap_or(rest.raw.len());
        let name = rest.to(end).trim();
        if name.raw.is_empty() {
            findings.error(rest.at, "an action is missing", None);
            return items;
        }
        if items.len() >= MAX_ACTIONS {
            findings.error(name.at, format!("a list has more than {MAX_ACTIONS} actions"), None);
            return items;
        }
        let after = rest.from(end);
        let (value, after) = match after.strip(':') {
            None => (None, after),
            Some(value) => match value_of(value, findings) {
                Some((value, after)) => (Some(value), after),
                None => return items,
            },
        };
        items.push(ActionItem { name, value });
        match after.strip(',') {
            Some(after) => rest = after.trim(),
            None => return items,
        }
    }
}

/// Reads a value, which is quoted with `'` or ends at the next comma. Returns the value, and the rest from
/// the comma on.
fn value_of<'l>(part: Part<'l>, findings: &mut Findings) -> Option<(Part<'l>, Part<'l>)> {
    let part = part.trim().in_both_quotes();
    let Some(inner) = part.strip('\'') else {
        let end = part.raw.find(',').unwrap_or(part.raw.len());
        return Some((part.to(end).trim(), part.from(end)));
    };
    let Some(end) = end_of_quoted(inner.raw, '\'') else {
        findings.error(part.at, "the quote `'` of the value is not closed", None);
        return None;
    };
    let after = inner.from(end + 1).trim();
    if !after.raw.is_empty() && !after.raw.starts_with(',') {
        let suggestion = Some("a quote in a quoted value is written `\\'`".into());
        findings.error(after.at, "`,` has to follow a quoted value", suggestion);
        return None;
    }
    Some((inner.to(end), after))
}

//! Fields whose values are lists (RFC 9110, section 5.6.1).

use foregate_module::{Edits, Fields, Text};

/// Whether a list has an element, in any case.
pub(crate) fn has_element(fields: &dyn Fields, name: &str, wanted: &[u8]) -> bool {
    let mut elements = fields.all(name).flat_map(|value| value.split(|byte| *byte == b','));
    elements.any(|element| element.trim_ascii().eq_ignore_ascii_case(wanted))
}

/// Adds a name to `Vary` unless it says so already.
pub(crate) fn vary(edits: Edits, response: &dyn Fields, name: impl Into<Text>) -> Edits {
    let name = name.into();
    if has_element(response, "vary", &name) || has_element(response, "vary", b"*") {
        return edits;
    }
    edits.append("Vary", name)
}

/// Fields that count more than `Cache-Control` in caches of content delivery networks (RFC 9213, and its forerunner): where a response
/// is for one client, they go.
pub(crate) const OF_SHARED_CACHES: [&str; 2] = ["cdn-cache-control", "surrogate-control"];

/// How much a client likes something, in thousandths; 0: not at all.
pub(crate) type Quality = u16;

/// The quality that a client gives without saying one.
pub(crate) const FULL: Quality = 1000;

/// The quality of `q=0.5`, a parameter of an element (RFC 9110, section 12.4.2); what is no number counts as nothing, since it was meant to say less than all.
pub(crate) fn quality(parameter: &[u8]) -> Option<Quality> {
    let (name, value) = parameter.split_at_checked(2)?;
    if !name.eq_ignore_ascii_case(b"q=") {
        return None;
    }
    let (whole, fraction) = match value {
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        [whole] => (whole, &b""[..]),
        _ => return Some(0),
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return Some(0);
    }
    let digit = |number: usize| fraction.get(number).map_or(0, |digit| Quality::from(digit - b'0'));
    match whole {
        b'0' => Some(digit(0) * 100 + digit(1) * 10 + digit(2)),
        b'1' if fraction.iter().all(|digit| *digit == b'0') => Some(FULL),
        _ => Some(0),
    }
}

//! Fields with lists as values (RFC 9110, section 5.6.1).

use foregate_module::{Edits, Fields, Text};

/// Returns true if a list has an element, compared without regard to case.
pub(crate) fn has_element(fields: &dyn Fields, name: &str, wanted: &[u8]) -> bool {
    let mut elements = fields.all(name).flat_map(|value| value.split(|byte| *byte == b','));
    elements.any(|element| element.trim_ascii().eq_ignore_ascii_case(wanted))
}

/// Adds a name to `Vary`, unless it is there already.
pub(crate) fn vary(edits: Edits, response: &dyn Fields, name: impl Into<Text>) -> Edits {
    let name = name.into();
    if has_element(response, "vary", &name) || has_element(response, "vary", b"*") {
        return edits;
    }
    edits.append("Vary", name)
}

/// Fields that take precedence over `Cache-Control` in caches of content delivery networks (RFC 9213, and its
/// forerunner). They are removed from a response that is for one client only.
pub(crate) const OF_SHARED_CACHES: [&str; 2] = ["cdn-cache-control", "surrogate-control"];

//! Parses targets, such as `ARGS|&REQUEST_HEADERS:Host|!ARGS:/^a/|XML:/*`.

use super::findings::Findings;
use super::limits::MAX_TARGETS;
use super::line::{Part, end_of_quoted};
use super::pattern;
use crate::model::{Exclusion, Selector, Target, Variable, VariableKind, XPath};

/// Alternative names of variables.
const ALIASES: &[(&str, Variable)] =
    &[("MULTIPART_SEMICOLON_MISSING", Variable::MultipartMissingSemicolon), ("REQUEST_XML", Variable::Xml)];

const FILES: &str = "uploaded files are not written to disk";
const NO_SCRIPT: &str = "a reverse proxy runs no scripts";
const NO_PERFORMANCE: &str = "the proxy's metrics say how long rules take";
const LINEAR: &str = "patterns are matched in linear time and have no limits that they could exceed";
const USE_BODY: &str = "`REQUEST_BODY` and `RESPONSE_BODY` are offered";

/// The variables of ModSecurity that have no meaning here, with the reasons.
const NOT_OFFERED: &[(&str, &str)] = &[
    ("FILES_TMPNAMES", FILES),
    ("GEO", "`@geoLookup`, which fills it, is not offered"),
    ("MODSEC_BUILD", "this is not ModSecurity"),
    ("MSC_PCRE_ERROR", LINEAR),
    ("MSC_PCRE_LIMITS_EXCEEDED", LINEAR),
    ("PERF_ALL", NO_PERFORMANCE),
    ("PERF_COMBINED", NO_PERFORMANCE),
    ("PERF_GC", NO_PERFORMANCE),
    ("PERF_LOGGING", NO_PERFORMANCE),
    ("PERF_PHASE1", NO_PERFORMANCE),
    ("PERF_PHASE2", NO_PERFORMANCE),
    ("PERF_PHASE3", NO_PERFORMANCE),
    ("PERF_PHASE4", NO_PERFORMANCE),
    ("PERF_PHASE5", NO_PERFORMANCE),
    ("PERF_RULES", NO_PERFORMANCE),
    ("PERF_SREAD", NO_PERFORMANCE),
    ("PERF_SWRITE", NO_PERFORMANCE),
    ("SCRIPT_BASENAME", NO_SCRIPT),
    ("SCRIPT_FILENAME", NO_SCRIPT),
    ("SCRIPT_GID", NO_SCRIPT),
    ("SCRIPT_GROUPNAME", NO_SCRIPT),
    ("SCRIPT_MODE", NO_SCRIPT),
    ("SCRIPT_UID", NO_SCRIPT),
    ("SCRIPT_USERNAME", NO_SCRIPT),
    ("SDBM_DELETE_ERROR", "collections are not kept in files"),
    ("STREAM_INPUT_BODY", USE_BODY),
    ("STREAM_OUTPUT_BODY", USE_BODY),
    ("USERAGENT_IP", "`REMOTE_ADDR` is the client's address"),
    ("WEBSERVER_ERROR_LOG", "the proxy's log is not seen by rules"),
];

/// The targets and exclusions of a rule; errors are recorded and skipped.
pub(super) fn targets(part: Part<'_>, findings: &mut Findings) -> (Vec<Target>, Vec<Exclusion>) {
    let (mut targets, mut exclusions) = (Vec::new(), Vec::new());
    each(part, findings, |one, findings| target(one, findings, &mut targets, &mut exclusions));
    (targets, exclusions)
}

/// Exclusions that are named without `!`; errors are recorded and skipped.
pub(super) fn exclusions(part: Part<'_>, findings: &mut Findings) -> Vec<Exclusion> {
    let mut exclusions = Vec::new();
    each(part, findings, |one, findings| {
        if one.raw.starts_with(['!', '&']) {
            let suggestion = Some("leave out the `!` or `&`".into());
            return findings.error(
                one.at,
                "what rules shall not look at is named without a sign",
                suggestion,
            );
        }
        let found = selected(one, true, findings);
        exclusions.extend(found.map(|(variable, selector)| Exclusion { variable, selector }));
    });
    exclusions
}

/// Calls `found` with each target in a list. Targets are separated by `|` or, as ModSecurity also allows, by
/// commas. There may be at most [`MAX_TARGETS`].
fn each<'l>(part: Part<'l>, findings: &mut Findings, mut found: impl FnMut(Part<'l>, &mut Findings)) {
    let mut rest = Some(part);
    let mut count = 0;
    while let Some(part) = rest {
        let (one, after) = first(part);
        let one = one.trim();
        count += 1;
        if count > MAX_TARGETS {
            return findings.error(one.at, format!("a rule has more than {MAX_TARGETS} targets"), None);
        }
        if one.raw.is_empty() {
            findings.error(one.at, "a variable is missing", None);
        } else {
            found(one, findings);
        }
        rest = after;
    }
}

/// Separators of targets.
const SEPARATORS: [char; 2] = ['|', ','];

/// Splits at the first `|` or comma outside of patterns and quotes.
fn first(part: Part<'_>) -> (Part<'_>, Option<Part<'_>>) {
    let end = match part.raw.split_once(':') {
        Some((name, selector)) if !name.contains(SEPARATORS) => {
            let from = name.len() + 1;
            let skipped = match selector.as_bytes().first() {
                Some(b'\'') => end_of_quoted(&selector[1..], '\'').map(|end| end + 2),
                // An XPath looks like a pattern but is not.
                Some(b'/') if !is_document(name) => end_of_pattern(selector),
                _ => None,
            };
            let from = from + skipped.unwrap_or(0);
            part.raw[from..].find(SEPARATORS).map(|end| from + end)
        }
        _ => part.raw.find(SEPARATORS),
    };
    match end {
        Some(end) => (part.to(end), Some(part.from(end + 1))),
        None => (part, None),
    }
}

fn is_document(name: &str) -> bool {
    let name = name.trim().trim_start_matches(['!', '&']);
    variable_named(name).is_some_and(|variable| variable.kind() == VariableKind::Document)
}

/// The end of a pattern that starts with a slash. Its last slash is followed by a separator of targets or by
/// the end of the text.
fn end_of_pattern(text: &str) -> Option<usize> {
    let mut escaped = false;
    let mut found = None;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        if byte == b'/' && !escaped && matches!(text.as_bytes().get(at + 1), None | Some(b'|' | b',')) {
            found = Some(at + 1);
            break;
        }
        escaped = byte == b'\\' && !escaped;
    }
    found
}

fn target(
    part: Part<'_>,
    findings: &mut Findings,
    targets: &mut Vec<Target>,
    exclusions: &mut Vec<Exclusion>,
) {
    let excluded = part.strip('!');
    let counted = part.strip('&');
    let plain = excluded.or(counted).unwrap_or(part).trim();
    if excluded.is_some() && plain.raw.starts_with('&') {
        return findings.error(plain.at, "a count cannot be left out", Some("leave out the variable".into()));
    }
    let Some((variable, selector)) = selected(plain, excluded.is_some(), findings) else { return };
    if excluded.is_some() {
        exclusions.push(Exclusion { variable, selector });
    } else {
        targets.push(Target { variable, selector, count: counted.is_some() });
    }
}

/// Parses `VARIABLE` or `VARIABLE:SELECTOR`.
fn selected(part: Part<'_>, excluded: bool, findings: &mut Findings) -> Option<(Variable, Option<Selector>)> {
    let (name, selector) = part.split(':').map_or((part, None), |(name, selector)| (name, Some(selector)));
    let found = variable(name.raw, name.at, findings)?;
    let Some(selector) = selector else {
        if found.kind() == VariableKind::Document && !excluded {
            findings.error(part.at, format!("`{found}` needs an XPath"), Some(x_paths()));
            return None;
        }
        return Some((found, None));
    };
    if found.kind() == VariableKind::Scalar {
        let message = format!("`{found}` is one value: it has no element `{}`", selector.text());
        findings.error(selector.at, message, None);
        return None;
    }
    let selector = if found.kind() == VariableKind::Document {
        x_path(selector, findings)?
    } else {
        element(selector, &found, findings)?
    };
    Some((found, Some(selector)))
}

fn x_paths() -> String {
    "`/*` is all texts, `//@*` are all attributes".into()
}

fn x_path(part: Part<'_>, findings: &mut Findings) -> Option<Selector> {
    let text = part.text();
    let found = XPath::ALL.iter().find(|(known, _)| *known == text.trim_matches('\''));
    if found.is_none() {
        findings.error(part.at, format!("the XPath `{text}` is not understood"), Some(x_paths()));
    }
    found.map(|(_, found)| Selector::XPath(*found))
}

/// Parses a selector: a name or a pattern, quoted or not.
fn element(part: Part<'_>, of: &Variable, findings: &mut Findings) -> Option<Selector> {
    let quoted = part.strip('\'').and_then(|inner| {
        let end = end_of_quoted(inner.raw, '\'')?;
        (end + 1 == inner.raw.len()).then(|| inner.to(end).in_both_quotes())
    });
    if part.raw.starts_with('\'') && quoted.is_none() {
        findings.error(part.at, "the selector's quote `'` is not closed at its end", None);
        return None;
    }
    let part = quoted.unwrap_or(part);
    if let Some(inner) = part.strip('/') {
        let Some(end) = inner.raw.strip_suffix('/').map(str::len) else {
            let suggestion = Some("a pattern is written `/PATTERN/`".into());
            findings.error(part.at, "the pattern is not closed with `/`", suggestion);
            return None;
        };
        return pattern::regex(inner.to(end), findings).map(Selector::Regex);
    }
    if part.raw.is_empty() {
        findings.error(part.at, format!("the name of an element of `{of}` is missing"), None);
        return None;
    }
    Some(Selector::Name(part.text().into()))
}

/// The variable with this name. An unknown name is reported.
pub(super) fn variable(name: &str, at: usize, findings: &mut Findings) -> Option<Variable> {
    let found = variable_named(name);
    if found.is_none() {
        let known = Variable::ALL.iter().map(|(name, _)| *name);
        match NOT_OFFERED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some((known, reason)) => {
                findings.error(at, format!("the variable `{known}` is not offered: {reason}"), None);
            }
            None => findings.unknown(at, "variable", name, known),
        }
    }
    found
}

fn variable_named(name: &str) -> Option<Variable> {
    let alias = ALIASES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    alias.map(|(_, found)| *found).or_else(|| Variable::parse(name))
}

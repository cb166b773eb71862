//! Parses texts with macros.

use super::findings::Findings;
use super::line::Part;
use super::target::variable;
use crate::model::{Macro, Number, Piece, Template, Variable, VariableKind};

/// Parses a text that may have macros. `None` if a macro is invalid, which is reported.
pub(super) fn template(part: Part<'_>, findings: &mut Findings) -> Option<Template> {
    let mut pieces = Vec::new();
    let mut rest = part;
    let mut right = true;
    while let Some(start) = rest.raw.find("%{") {
        pieces.push(Piece::Text(rest.to(start).text().into()));
        let inner = rest.from(start + 2);
        let Some((name, after)) = inner.split('}') else {
            findings.error(rest.at + start, "`%{` is not closed with `}`", None);
            return None;
        };
        match macro_of(name, findings) {
            Some(found) => pieces.push(Piece::Macro(found)),
            None => right = false,
        }
        rest = after;
    }
    pieces.push(Piece::Text(rest.text().into()));
    right.then(|| Template::new(pieces))
}

/// Parses the inside of a macro: `VARIABLE`, `COLLECTION.name` or `COLLECTION:name`.
fn macro_of(part: Part<'_>, findings: &mut Findings) -> Option<Macro> {
    let (text, at) = (part.text(), part.at);
    let (name, element) = match text.find(['.', ':']) {
        Some(end) => (&text[..end], Some(&text[end + 1..])),
        None => (&*text, None),
    };
    let variable = variable(name, at, findings)?;
    match (variable.kind(), element) {
        (VariableKind::Document, _) => {
            findings.error(at, format!("`{variable}` cannot stand in a macro"), None);
            None
        }
        (VariableKind::Scalar, Some(_)) => {
            findings.error(at, format!("`{variable}` is one value and has no elements"), None);
            None
        }
        (_, Some("")) => {
            findings.error(at, format!("the name of an element of `{variable}` is missing"), None);
            None
        }
        (_, element) => Some(Macro { variable, name: element.map(Into::into) }),
    }
}

/// Reports macros in an argument that allows none. Returns true if there are none.
pub(super) fn without_macros(part: Part<'_>, of: &str, findings: &mut Findings) -> bool {
    let mut rest = part.raw;
    while let Some(start) = rest.find("%{") {
        rest = &rest[start + 2..];
        // A pattern may contain `%{` that is not a macro.
        let name = rest.split(['}', '.', ':']).next().unwrap_or_default();
        if Variable::parse(name).is_some() && rest.contains('}') {
            findings.error(
                part.at + (part.raw.len() - rest.len() - 2),
                format!("no macro can stand in {of}: it is compiled when rules are loaded"),
                Some("`@contains`, `@within`, `@streq`, `@beginsWith` and `@endsWith` take macros".into()),
            );
            return false;
        }
    }
    true
}

/// Parses a whole number, or a text with macros that expands to a number.
pub(super) fn number(part: Part<'_>, findings: &mut Findings) -> Option<Number> {
    let text = template(part, findings)?;
    match text.literal().map(|literal| literal.trim().parse()) {
        None => Some(Number::Computed(text)),
        Some(Ok(number)) => Some(Number::Fixed(number)),
        Some(Err(_)) => {
            let message = match part.raw {
                "" => "a number is missing".to_owned(),
                _ => format!("`{text}` is not a whole number"),
            };
            findings.error(part.at, message, None);
            None
        }
    }
}

//! Checks answers against the expectations of their cases.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::answer::Answer;
use crate::case::{Assert, Case, Predicate, Query};

/// The most bytes of a body that expectations look at.
const BODY_MOST: usize = 16 << 20;
/// The longest value in a message.
const SHOWN: usize = 200;

/// Values by name. Each replaces the template `{{name}}`.
pub type Variables = BTreeMap<String, String>;

/// An expectation that an answer does not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The line of the expectation.
    pub line: usize,
    /// The expected and the actual value.
    pub message: String,
}

/// Checks an answer against all expectations of a case, and stores the captured values in `variables`.
pub fn judge(case: &Case, answer: &Answer, variables: &mut Variables) -> Vec<Judged> {
    let mut wrong = Vec::new();
    if let Some(expected) = case.status
        && expected != answer.status
    {
        wrong.push(Judged {
            line: case.line,
            message: format!("status: expected {expected}, got {}", answer.status),
        });
    }
    let body = LazyBody::default();
    for assert in &case.asserts {
        if let Some(message) = unmet(assert, answer, &body, variables) {
            wrong.push(Judged { line: assert.line, message });
        }
    }
    for capture in &case.captures {
        match find(&capture.query, answer, &body) {
            Some(value) => {
                let value = match &value {
                    Value::Array(values) if values.len() == 1 => values.first().map(text).unwrap_or_default(),
                    value => text(value),
                };
                variables.insert(capture.name.clone(), value);
            }
            None => {
                let message =
                    format!("`{}` captures nothing: {} is not there", capture.name, name(&capture.query));
                wrong.push(Judged { line: capture.line, message });
            }
        }
    }
    wrong
}

/// The decoded body, and its JSON, which are made once they are needed.
#[derive(Default)]
struct LazyBody {
    text: std::cell::OnceCell<String>,
    json: std::cell::OnceCell<Option<Value>>,
}

impl LazyBody {
    fn text(&self, answer: &Answer) -> &str {
        self.text.get_or_init(|| String::from_utf8_lossy(&answer.decoded(BODY_MOST).bytes).into_owned())
    }

    fn json(&self, answer: &Answer) -> Option<&Value> {
        self.json.get_or_init(|| serde_json::from_str(self.text(answer)).ok()).as_ref()
    }
}

fn name(query: &Query) -> String {
    match query {
        Query::Status => "status".into(),
        Query::Header(name) => format!("header {name:?}"),
        Query::Cookie(name, None) => format!("cookie {name:?}"),
        Query::Cookie(name, Some(attribute)) => format!("cookie \"{name}[{attribute}]\""),
        Query::Body => "body".into(),
        Query::Bytes => "bytes".into(),
        Query::JsonPath(_) => "jsonpath".into(),
        Query::Regex(regex) => format!("regex /{regex}/"),
        Query::Duration => "duration".into(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// Finds the value of a query in an answer. The values of a field are a list.
fn find(query: &Query, answer: &Answer, body: &LazyBody) -> Option<Value> {
    match query {
        Query::Status => Some(answer.status.into()),
        Query::Header(name) => {
            let own = answer.fields.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name));
            let values: Vec<Value> =
                own.map(|(_, value)| String::from_utf8_lossy(value).into_owned().into()).collect();
            (!values.is_empty()).then_some(Value::Array(values))
        }
        Query::Cookie(name, attribute) => cookie(answer, name, attribute.as_deref()),
        Query::Body => Some(body.text(answer).into()),
        Query::Bytes => Some(answer.decoded(BODY_MOST).bytes.len().into()),
        Query::JsonPath(path) => path.find(body.json(answer)?),
        Query::Regex(regex) => {
            let found = regex.captures(body.text(answer))?;
            found.get(1).or_else(|| found.get(0)).map(|group| group.as_str().into())
        }
        Query::Duration => Some(u64::try_from(answer.time.as_millis()).unwrap_or(u64::MAX).into()),
    }
}

fn cookie(answer: &Answer, name: &str, attribute: Option<&str>) -> Option<Value> {
    for (_, value) in answer.fields.iter().filter(|(own, _)| *own == "set-cookie") {
        let text = String::from_utf8_lossy(value).into_owned();
        let mut parts = text.split(';').map(str::trim);
        let Some((own, value)) = parts.next().and_then(|pair| pair.split_once('=')) else { continue };
        if own.trim() != name {
            continue;
        }
        let Some(attribute) = attribute else { return Some(value.trim().into()) };
        return parts.find_map(|part| {
            let (own, value) = part.split_once('=').unwrap_or((part, ""));
            own.trim().eq_ignore_ascii_case(attribute).then(|| value.trim().into())
        });
    }
    None
}

/// Describes the mistake if the answer does not meet an expectation.
fn unmet(assert: &Assert, answer: &Answer, body: &LazyBody, variables: &Variables) -> Option<String> {
    let found = find(&assert.query, answer, body);
    let found = if assert.count { found.map(|value| count(&value).into()) } else { found };
    let holds = match (&assert.predicate, &found) {
        (Predicate::Exists, found) => found.is_some(),
        (_, None) => return (!assert.not).then(|| format!("{}: it is not there", name(&assert.query))),
        (predicate, Some(Value::Array(values))) if matches!(assert.query, Query::Header(_)) => {
            // It is enough if one of several fields with this name meets the predicate, or if their joined values do.
            let joined = Value::from(values.iter().map(text).collect::<Vec<_>>().join(", "));
            values.iter().any(|value| meets(predicate, value, variables))
                || meets(predicate, &joined, variables)
        }
        (predicate, Some(value)) => meets(predicate, value, variables),
    };
    (holds == assert.not).then(|| {
        let not = if assert.not { "not " } else { "" };
        let got = found.as_ref().map_or_else(|| "nothing".to_owned(), shown);
        format!(
            "{}: expected {not}{}, got {got}",
            name(&assert.query),
            expected(&assert.predicate, variables)
        )
    })
}

fn count(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.len(),
        Value::Object(members) => members.len(),
        Value::String(text) => text.chars().count(),
        Value::Number(number) => number.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0),
        _ => 1,
    }
}

/// A value with its templates replaced.
fn filled(value: &Value, variables: &Variables) -> Value {
    match value {
        Value::String(text) if text.contains("{{") => {
            fill(text, variables).unwrap_or_else(|_| text.clone()).into()
        }
        value => value.clone(),
    }
}

/// Replaces each `{{name}}` by the value of the variable.
///
/// # Errors
///
/// A variable has no value. The error is its name.
pub(crate) fn fill(text: &str, variables: &Variables) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("{{") {
        out.push_str(before);
        let Some((name, after)) = behind.split_once("}}") else {
            out.push_str("{{");
            rest = behind;
            continue;
        };
        out.push_str(variables.get(name.trim()).ok_or_else(|| name.trim().to_owned())?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn meets(predicate: &Predicate, value: &Value, variables: &Variables) -> bool {
    let as_number = || value.as_f64().or_else(|| value.as_str()?.parse().ok());
    let compare =
        |holds: fn(&f64, &f64) -> bool, other: &f64| as_number().is_some_and(|own| holds(&own, other));
    match predicate {
        Predicate::Equal(expected) => equal(value, &filled(expected, variables)),
        Predicate::NotEqual(expected) => !equal(value, &filled(expected, variables)),
        Predicate::Greater(other) => compare(f64::gt, other),
        Predicate::GreaterOrEqual(other) => compare(f64::ge, other),
        Predicate::Less(other) => compare(f64::lt, other),
        Predicate::LessOrEqual(other) => compare(f64::le, other),
        Predicate::Contains(part) => {
            let part = filled(part, variables);
            match value {
                Value::Array(values) => values.iter().any(|value| equal(value, &part)),
                value => text(value).contains(&text(&part)),
            }
        }
        Predicate::StartsWith(start) => {
            text(value).starts_with(&text(&filled(&start.clone().into(), variables)))
        }
        Predicate::EndsWith(end) => text(value).ends_with(&text(&filled(&end.clone().into(), variables))),
        Predicate::Matches(regex) => regex.is_match(&text(value)),
        Predicate::Exists => true,
        Predicate::IsEmpty => count(value) == 0,
        Predicate::IsKind(kind) => match *kind {
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "list" => value.is_array(),
            _ => value.is_object(),
        },
    }
}

fn equal(value: &Value, expected: &Value) -> bool {
    match (value, expected) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        _ => value == expected,
    }
}

fn expected(predicate: &Predicate, variables: &Variables) -> String {
    let value = |value: &Value| shown(&filled(value, variables));
    match predicate {
        Predicate::Equal(other) => value(other),
        Predicate::NotEqual(other) => format!("other than {}", value(other)),
        Predicate::Greater(other) => format!("more than {other}"),
        Predicate::GreaterOrEqual(other) => format!("{other} or more"),
        Predicate::Less(other) => format!("less than {other}"),
        Predicate::LessOrEqual(other) => format!("{other} or less"),
        Predicate::Contains(part) => format!("something with {}", value(part)),
        Predicate::StartsWith(start) => format!("something that begins with {start:?}"),
        Predicate::EndsWith(end) => format!("something that ends with {end:?}"),
        Predicate::Matches(regex) => format!("a match of /{regex}/"),
        Predicate::Exists => "a value".into(),
        Predicate::IsEmpty => "nothing in it".into(),
        Predicate::IsKind(kind) => format!("of kind {kind}"),
    }
}

impl Case {
    /// The case with its templates replaced by the values of the variables.
    ///
    /// # Errors
    ///
    /// A variable has no value. The error is its name.
    pub fn filled(&self, variables: &Variables) -> Result<Self, String> {
        let mut case = self.clone();
        case.url = fill(&self.url, variables)?;
        for (name, value) in &mut case.fields {
            (*name, *value) = (fill(name, variables)?, fill(value, variables)?);
        }
        if self.body_is_text
            && let Ok(text) = std::str::from_utf8(&self.body)
        {
            case.body = fill(text, variables)?.into_bytes();
        }
        Ok(case)
    }
}

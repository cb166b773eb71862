//! Queries and predicates.

use serde_json::Value;

use super::line::Line;
use super::{Assert, CaseError, Predicate, Query, nearest};
use crate::path::JsonPath;

const QUERIES: [&str; 8] = ["status", "header", "cookie", "body", "bytes", "jsonpath", "regex", "duration"];
const PREDICATES: [&str; 18] = [
    "==",
    "!=",
    ">",
    ">=",
    "<",
    "<=",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "exists",
    "isEmpty",
    "isInteger",
    "isNumber",
    "isString",
    "isBoolean",
    "isList",
    "isObject",
];

pub(super) fn query(line: &mut Line<'_>) -> Result<Query, CaseError> {
    line.skip_spaces();
    let start = *line;
    Ok(match line.word() {
        "status" => Query::Status,
        "header" => Query::Header(line.quoted()?),
        "cookie" => {
            let text = line.quoted()?;
            match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
                Some((name, attribute)) => {
                    Query::Cookie(name.to_owned(), Some(attribute.to_ascii_lowercase()))
                }
                None => Query::Cookie(text, None),
            }
        }
        "body" => Query::Body,
        "bytes" => Query::Bytes,
        "jsonpath" => {
            line.skip_spaces();
            let at = *line;
            Query::JsonPath(JsonPath::read(&line.quoted()?).map_err(|error| at.error(error.0))?)
        }
        "regex" => Query::Regex(line.expression()?),
        "duration" => Query::Duration,
        other => {
            return Err(start.error(format!("unknown query `{other}`")).help(nearest(other, &QUERIES)));
        }
    })
}

pub(super) fn assert(mut line: Line<'_>) -> Result<Assert, CaseError> {
    let query = query(&mut line)?;
    let count = line.peek() == "count";
    if count {
        line.word();
    }
    let not = line.peek() == "not";
    if not {
        line.word();
    }
    line.skip_spaces();
    let start = line;
    let predicate = match line.word() {
        "==" => Predicate::Equal(value(&mut line)?),
        "!=" => Predicate::NotEqual(value(&mut line)?),
        ">" => Predicate::Greater(number(&mut line)?),
        ">=" => Predicate::GreaterOrEqual(number(&mut line)?),
        "<" => Predicate::Less(number(&mut line)?),
        "<=" => Predicate::LessOrEqual(number(&mut line)?),
        "contains" | "includes" => Predicate::Contains(value(&mut line)?),
        "startsWith" => Predicate::StartsWith(line.quoted()?),
        "endsWith" => Predicate::EndsWith(line.quoted()?),
        "matches" => Predicate::Matches(line.expression()?),
        "exists" => Predicate::Exists,
        "isEmpty" => Predicate::IsEmpty,
        "isInteger" => Predicate::IsKind("integer"),
        "isNumber" => Predicate::IsKind("number"),
        "isString" => Predicate::IsKind("string"),
        "isBoolean" => Predicate::IsKind("boolean"),
        "isList" | "isCollection" => Predicate::IsKind("list"),
        "isObject" => Predicate::IsKind("object"),
        "" => return Err(start.error("a predicate is missing").help("such as `== 200` or `exists`")),
        other => {
            let error = start.error(format!("unknown predicate `{other}`"));
            return Err(error.help(nearest(other, &PREDICATES)));
        }
    };
    line.end()?;
    Ok(Assert { line: line.number, query, count, not, predicate })
}

/// A text in quotes or backticks, a number, `true`, `false` or `null`.
fn value(line: &mut Line<'_>) -> Result<Value, CaseError> {
    line.skip_spaces();
    if line.rest().starts_with('"') {
        return Ok(Value::String(line.quoted()?));
    }
    let start = *line;
    let word = line.word();
    if let Some(text) = word.strip_prefix('`').and_then(|word| word.strip_suffix('`')) {
        return Ok(Value::String(text.to_owned()));
    }
    let read =
        serde_json::from_str::<Value>(word).ok().filter(|value| !value.is_object() && !value.is_array());
    read.ok_or_else(|| {
        let error = start.error(format!("`{word}` is no value"));
        error.help("a text stands in double quotes; numbers, true, false and null without")
    })
}

fn number(line: &mut Line<'_>) -> Result<f64, CaseError> {
    line.skip_spaces();
    let start = *line;
    let word = line.word();
    word.parse().map_err(|_| start.error(format!("`{word}` is no number")))
}

//! Paths of values in JSON documents: `$.users[0].name`, `$['a b']`, `$.users[*].id`.

use serde_json::Value;

/// The most values that a path may find.
const FOUND_MOST: usize = 100_000;

/// A path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath(Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Member(String),
    Index(i64),
    Every,
}

/// The reason why a text is no path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPathError(pub String);

impl JsonPath {
    /// Reads a path.
    ///
    /// # Errors
    ///
    /// The path has an unsupported form.
    pub fn read(text: &str) -> Result<Self, JsonPathError> {
        let wrong = |reason: &str| JsonPathError(format!("{text:?} is no path of a value: {reason}"));
        let mut rest = text
            .trim()
            .strip_prefix('$')
            .ok_or_else(|| wrong("it begins with `$`, such as `$.users[0].name`"))?;
        let mut segments = Vec::new();
        while !rest.is_empty() {
            if rest.starts_with("..") {
                return Err(wrong("`..` is not supported; write the whole path"));
            }
            if let Some(behind) = rest.strip_prefix('.') {
                let end = behind.find(['.', '[']).unwrap_or(behind.len());
                let (name, others) = behind.split_at(end);
                match name {
                    "" => return Err(wrong("a name stands behind `.`")),
                    "*" => segments.push(Segment::Every),
                    name => segments.push(Segment::Member(name.to_owned())),
                }
                rest = others;
            } else if let Some(behind) = rest.strip_prefix('[') {
                let quote = behind.chars().next().filter(|c| matches!(c, '\'' | '"'));
                let (inner, others) = match quote {
                    Some(quote) => {
                        let inner = behind.get(1..).unwrap_or_default();
                        inner
                            .split_once(&format!("{quote}]"))
                            .ok_or_else(|| wrong("the quoted name does not end"))?
                    }
                    None => behind.split_once(']').ok_or_else(|| wrong("`]` is missing"))?,
                };
                segments.push(match inner {
                    name if quote.is_some() => Segment::Member(name.to_owned()),
                    "*" => Segment::Every,
                    index => Segment::Index(index.parse().map_err(|_| {
                        wrong("in brackets stand an index, `*` or a quoted name; filters such as `?(@.a)` are not supported")
                    })?),
                });
                rest = others;
            } else {
                return Err(wrong("`.` or `[` is expected between its parts"));
            }
        }
        Ok(Self(segments))
    }

    /// Finds the value, or a list of values if the path has `*`. `None` if there is no value.
    pub fn find(&self, document: &Value) -> Option<Value> {
        let mut found = vec![document];
        for segment in &self.0 {
            let mut next: Vec<&Value> = Vec::new();
            for value in found {
                match segment {
                    Segment::Member(name) => next.extend(value.get(name)),
                    Segment::Index(index) => {
                        let list = value.as_array();
                        let length = list.map_or(0, Vec::len);
                        let at = usize::try_from(*index)
                            .ok()
                            .or_else(|| length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?));
                        next.extend(list.zip(at).and_then(|(list, at)| list.get(at)));
                    }
                    Segment::Every => match value {
                        Value::Array(list) => next.extend(list),
                        Value::Object(map) => next.extend(map.values()),
                        _ => {}
                    },
                }
                next.truncate(FOUND_MOST);
            }
            found = next;
        }
        if self.0.contains(&Segment::Every) {
            return Some(Value::Array(found.into_iter().cloned().collect()));
        }
        found.first().map(|value| (*value).clone())
    }
}

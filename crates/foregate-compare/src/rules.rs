//! The fields that are left out of a comparison.

use std::collections::BTreeSet;

/// Fields that differ between any two responses, or that identify the server of a response.
const BUILT_IN: [&str; 17] = [
    "date",
    "age",
    "server",
    "via",
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "alt-svc",
    "x-served-by",
    "x-timer",
    "x-runtime",
    "server-timing",
    "x-response-time",
    "cf-ray",
    "traceparent",
    "tracestate",
];

/// A field identifies a request if its name has one of these ends.
const REQUEST_IDS: [&str; 5] = ["request-id", "correlation-id", "trace-id", "span-id", "requestid"];

/// The most names that may be ignored in addition to the built-in ones.
const IGNORED_MOST: usize = 1000;

/// The rules of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rules {
    ignored: BTreeSet<Name>,
    /// `true` if the order of fields counts. Default: `false`.
    pub order: bool,
    /// The most bytes of a body that are decoded and compared. Default: 1 MiB.
    pub body_limit: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self { ignored: BTreeSet::new(), order: false, body_limit: 1 << 20 }
    }
}

/// The name of a part of a response: `status`, `header x`, `cookie x`, `json $.x`, `body`, `order`; or of the request to the
/// origin: `request host`, `request header x`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Reads a name as operators write it: `x` alone is the header `x`, `$.x` is `json $.x`.
    ///
    /// # Errors
    ///
    /// The text does not name a part. The message states the expected form.
    pub fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (kind, name) = match text.split_once(' ') {
            Some((kind, name)) => (kind, name.trim()),
            None if text.starts_with('$') => ("json", text),
            None if matches!(text, "status" | "body" | "order" | "timing") => {
                return Ok(Self(text.to_owned()));
            }
            None => ("header", text),
        };
        let is_token = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(&byte))
        };
        match kind {
            "request" if matches!(name, "host" | "target" | "method") => Ok(Self(format!("request {name}"))),
            "request" if !name.starts_with("request") => Ok(Self(format!("request {}", Self::read(name)?.0))),
            "header" if is_token(name) => Ok(Self(format!("header {}", name.to_ascii_lowercase()))),
            "cookie" if is_token(name) => Ok(Self(format!("cookie {name}"))),
            "json" if name.starts_with('$') => Ok(Self(format!("json {name}"))),
            _ => Err(format!(
                "{text:?} names no part of a response; expected the name of a field, `header NAME`, `cookie NAME`, `json $.PATH`, \
                 `body` or `status`"
            )),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Rules {
    /// Rules that only ignore the built-in parts.
    pub fn new(order: bool, body_limit: usize) -> Self {
        Self { order, body_limit, ..Self::default() }
    }

    /// Leaves a part out of comparisons. Returns false if too many are left out already.
    pub fn ignore(&mut self, name: Name) -> bool {
        self.ignored.len() < IGNORED_MOST && {
            self.ignored.insert(name);
            true
        }
    }

    /// The rules for requests to the origin: those for names that begin with `request`. The word is removed from
    /// the names.
    pub(crate) fn of_requests(&self) -> Self {
        let named = self.ignored.iter().filter_map(|name| name.0.strip_prefix("request "));
        Self { ignored: named.map(|name| Name(name.to_owned())).collect(), ..self.clone() }
    }

    /// The parts that are left out in addition to the built-in ones.
    pub fn ignored(&self) -> impl Iterator<Item = &str> {
        self.ignored.iter().map(Name::as_str)
    }

    /// Returns true if a part of a response is left out. A JSON path is left out with everything below it.
    pub fn ignores(&self, part: &str) -> bool {
        if part.strip_prefix("header ").is_some_and(|header| is_built_in(header.as_bytes())) {
            return true;
        }
        let is_json = |name: &str| name.starts_with("json ") || name.starts_with("request json ");
        let is_below = |name: &str| {
            part.strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || is_json(name) && rest.starts_with(['.', '[']))
        };
        self.ignored.iter().any(|name| is_below(name.as_str()))
    }
}

/// Returns true for a field of answers that is never compared. The name is in lower case.
pub(crate) fn is_built_in(header: &[u8]) -> bool {
    BUILT_IN.iter().any(|name| name.as_bytes() == header)
        || REQUEST_IDS.iter().any(|end| header.ends_with(end.as_bytes()))
}

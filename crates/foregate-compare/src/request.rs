//! Requests that the two systems would send to an origin, and their differences.

use crate::answer::{Answer, Body, Outcome};
use crate::difference::{Class, Difference, are_equal, compare};
use crate::rules::Rules;

/// A request as an origin gets it.
#[derive(Debug, Clone, Default)]
pub struct AskedRequest {
    /// The method.
    pub method: String,
    /// The target.
    pub target: String,
    /// The host and port that the origin gets.
    pub host: String,
    /// The fields in their order, with names in lower case, and the body.
    pub message: Answer,
    /// `true` if the body is not known. It is not compared then.
    pub body_is_unknown: bool,
}

impl AskedRequest {
    /// A request without a body.
    pub fn new<'f>(
        (method, target, host): (&[u8], &[u8], &str),
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    ) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            method: text(method),
            target: text(target),
            host: host.to_owned(),
            message: Answer::new(0, fields),
            body_is_unknown: false,
        }
    }

    /// Returns true if two requests are equal under all rules with this `order`. It may return false for equal
    /// requests.
    pub fn is_equal(&self, other: &Self, order: bool) -> bool {
        !(self.body_is_unknown || other.body_is_unknown)
            && self.method == other.method
            && self.target == other.target
            && self.host == other.host
            && are_equal(&self.message, &other.message, order)
    }

    /// The same request with this body.
    #[must_use]
    pub fn with_body(mut self, body: Body) -> Self {
        self.message.body = body;
        self
    }
}

/// The differences of the requests that two systems would send to an origin. A request is `None` if its system
/// sends none.
pub fn compare_requests(
    old: Option<&AskedRequest>,
    new: Option<&AskedRequest>,
    rules: &Rules,
) -> Vec<Difference> {
    let mut found = Vec::new();
    let differs = |part: &str, old: Option<String>, new: Option<String>| {
        (old != new && !rules.ignores(part)).then(|| Difference {
            class: Class::Request,
            part: part.to_owned(),
            place: None,
            old,
            new,
        })
    };
    let line = |request: &AskedRequest| format!("{} {}", request.method, request.target);
    let (Some(old), Some(new)) = (old, new) else {
        found.extend(differs("request", old.map(line), new.map(line)));
        return found;
    };
    let facts = [
        ("request method", &old.method, &new.method),
        ("request target", &old.target, &new.target),
        ("request host", &old.host, &new.host),
    ];
    for (part, old, new) in facts {
        found.extend(differs(part, Some(old.clone()), Some(new.clone())));
    }
    let (mut a, mut b) = (old.message.clone(), new.message.clone());
    if old.body_is_unknown || new.body_is_unknown {
        (a.body, b.body) = (Body::default(), Body::default());
    }
    let of_message =
        compare(&Outcome::Answered(Box::new(a)), &Outcome::Answered(Box::new(b)), &rules.of_requests());
    found.extend(of_message.into_iter().map(|difference| Difference {
        class: Class::Request,
        part: format!("request {}", difference.part),
        ..difference
    }));
    found
}

//! How requests are spread over the servers of an upstream.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use foregate_module::Expression;

/// A method of balancing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Balance {
    /// Servers take turns, in proportion to their weights.
    #[default]
    RoundRobin,
    /// The server with the fewest requests in flight relative to its weight.
    LeastRequests,
    /// Draws two servers at random by weight, and takes the one with fewer requests in flight relative to its
    /// weight.
    TwoChoices,
    /// A server drawn at random by weight.
    Random,
    /// Draws two servers at random by weight, and takes the one with the lower product of recent latency
    /// and requests in flight.
    PeakEwma,
    /// Requests with the same value of this part get the same server, by consistent hashing on a ring.
    Hash(HashBy),
    /// As [`Self::Hash`], but with a Maglev table instead of a ring.
    Maglev(HashBy),
}

/// The part of a request that is hashed to select its server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HashBy {
    /// The address of the client.
    Client,
    /// The path in the form in which the server gets it.
    Path,
    /// The path and query in the form in which the server gets them.
    Target,
    /// The value of a field, by its name in lower case.
    Header(Box<str>),
    /// The value of a cookie, by its name.
    Cookie(Box<str>),
    /// The value of an expression.
    Expression(HashExpression),
}

/// An expression over the request in the form in which the server gets it, and over the client's address. Expressions
/// with the same text are equal, because they read nothing else.
#[derive(Clone)]
pub struct HashExpression {
    /// The text of the expression.
    pub text: Arc<str>,
    /// The compiled text.
    pub value: Arc<dyn Expression>,
}

impl PartialEq for HashExpression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for HashExpression {}

impl Hash for HashExpression {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Debug for HashExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HashExpression").field(&self.text).finish()
    }
}

//! How requests are spread over the servers of an upstream.

/// A method of balancing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Balance {
    /// Servers take turns, by their weights.
    #[default]
    RoundRobin,
    /// The server with the fewest requests in flight for its weight.
    LeastRequests,
    /// Draws two servers by weight, and takes the one with fewer requests in flight for its weight.
    TwoChoices,
    /// A server drawn by weight.
    Random,
    /// Of two servers drawn by weight, the one with the lower product of recent latency and
    /// requests in flight.
    PeakEwma,
    /// Requests that are equal in this get the same server: consistent hashing on a ring.
    Hash(HashBy),
    /// By a hash, with a Maglev table.
    Maglev(HashBy),
}

/// The part of a request that decides on its server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HashBy {
    /// The address of the client.
    Client,
    /// The path as the server gets it.
    Path,
    /// The path and query as the server gets them.
    Target,
    /// The value of a field, by its name in lower case.
    Header(Box<str>),
    /// The value of a cookie, by its name.
    Cookie(Box<str>),
}

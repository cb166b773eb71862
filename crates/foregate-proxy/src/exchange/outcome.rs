//! How an exchange leaves its connection.

/// The treatment of the client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The connection may serve another request, once the rest of this one's body has been read.
    Reusable,
    /// The connection ends after all output has been sent.
    Close,
    /// The connection ends at once.
    Abort,
    /// The rest of the exchange is stored in the client, and continues with a slim configuration.
    Moved,
}

//! The response that the client gets for a verdict.

use foregate_module::{Abort, Action, Either, Redirect, Respond, Response, Terminal, Text};

use super::values::HeldTransaction;
use crate::engine::Verdict;

/// The way in which a step ends a request.
pub(super) enum End {
    /// The request ends with this response.
    Respond(Response),
    /// The request ends without a response.
    Abort,
}

impl End {
    /// Converts the end to the outcome of a step in a request phase.
    pub(super) fn of_request(self) -> Either<Respond, Abort> {
        match self {
            Self::Respond(response) => Either::A(Respond(response)),
            Self::Abort => Either::B(Abort),
        }
    }
}

/// The way in which a verdict ends a request; `None` if the request continues. The client gets the transaction's id, so
/// that operators can find the log lines.
pub(super) fn end(verdict: Verdict, held: &HeldTransaction) -> Option<End> {
    match verdict {
        Verdict::Pass => None,
        Verdict::Deny { status, .. } => Some(End::Respond(refusal(status, held))),
        Verdict::Redirect { status, to, .. } => {
            let redirect = Redirect { status, location: Text::from(location(&to)) };
            match redirect.action() {
                Action::Respond(response) => Some(End::Respond(response)),
                Action::Abort => Some(End::Abort),
            }
        }
        Verdict::Drop { .. } => Some(End::Abort),
    }
}

/// Makes a safe field value of the target of a redirect, which rules may build from client input. Control
/// characters are removed, and characters that a target must not contain are encoded.
fn location(to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(to.len());
    for byte in to.iter().filter(|byte| !byte.is_ascii_control()) {
        match byte {
            b' ' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80.. => {
                out.extend_from_slice(format!("%{byte:02X}").as_bytes());
            }
            byte => out.push(*byte),
        }
    }
    out
}

/// The response that refuses a request.
pub(super) fn refusal(status: u16, held: &HeldTransaction) -> Response {
    let text = format!("this request was refused; reference {}\n", held.id);
    Response::new(status).body("text/plain; charset=utf-8", text).field("cache-control", "no-store")
}

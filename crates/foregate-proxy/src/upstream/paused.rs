//! A request to an upstream that is held without borrowing the upstream, and resumed later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ask::{Ask, RequestTurn};
use super::attempts::Attempts;
use super::members::Upstream;
use super::opening::{Addresses, OpeningTerms};
use super::traced::AttemptSpans;

/// A request after the start of its response. Until it is resumed, it does not count as in flight. It makes no further
/// attempts.
#[derive(Debug)]
pub struct PausedAsk {
    first_byte: Option<Duration>,
    reused: Option<bool>,
    attempts: Attempts,
    turn: Option<Box<RequestTurn>>,
    spans: Option<Box<AttemptSpans>>,
    began: Instant,
    opened: u32,
}

impl From<Ask<'_>> for PausedAsk {
    fn from(ask: Ask<'_>) -> Self {
        let Ask { first_byte, reused, attempts, turn, spans, began, opened, .. } = ask;
        Self { first_byte, reused, attempts, turn, spans, began, opened }
    }
}

impl PausedAsk {
    /// Resumes the request with the same upstream.
    pub fn resume<'a>(self, upstream: &'a Arc<Upstream>, addresses: &'a Addresses) -> Ask<'a> {
        let Self { first_byte, reused, attempts, turn, spans, began, opened } = self;
        let terms = OpeningTerms {
            fresh: false,
            addresses,
            behalf: None,
            client: None,
            own: None,
            http1: false,
            authenticates: false,
            handed_over: None,
        };
        Ask {
            first_byte,
            reused,
            attempts,
            turn,
            spans,
            began,
            opened,
            rules: None,
            ..Ask::new(upstream, terms)
        }
    }
}

//! Fetches a response from the node of the shield that owns the address, and not from the origin.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::LeaderParts;
use super::fill::{FetchedResponse, Fill, FillAsks, final_head};
use super::shield::{AnswerKind, CallKind, FetchCall, NodeCall, SHIELD_FIELD, ShieldGroup, TAGS_FIELD};
use crate::error::Error;
use crate::random;
use crate::upstream::{Addresses, Ask, OpeningTerms, Upstream};
use foregate_cache::{Tag, ask_for_whole};
use foregate_wire::{HeaderList, ResponseHead};

/// The time that an owner has in addition to its own time limit for the origin.
const MORE: Duration = Duration::from_secs(1);

/// The question to the node that is asked before the origin.
#[derive(Debug)]
pub struct OwnerAsk {
    /// The group.
    pub group: Arc<ShieldGroup>,
    /// The number of the node.
    pub node: usize,
    /// The upstream for requests to the node.
    pub upstream: Arc<Upstream>,
    /// The facts about the request that the owner needs.
    pub call: FetchCall,
}

/// The outcome of a question to an owner.
enum OwnerAnswer {
    /// The response of the origin.
    Response,
    /// The owner says that the origin has failed.
    Failure,
    /// The answer has no valid proof: the origin is asked.
    Nothing,
}

impl OwnerAsk {
    /// Verifies the proof of an answer.
    fn judge(&self, head: &ResponseHead, nonce: u64) -> OwnerAnswer {
        let proof = head.headers.get_name(SHIELD_FIELD).unwrap_or_default();
        let is = |kind| self.group.is_proof(proof, kind, nonce, head.status, b"");
        if is(AnswerKind::Response) {
            OwnerAnswer::Response
        } else if is(AnswerKind::Failure) {
            OwnerAnswer::Failure
        } else {
            OwnerAnswer::Nothing
        }
    }
}

impl Fill {
    /// Asks the owner. Returns the fill if the origin has to be asked.
    pub(super) async fn ask_owner(mut self, owner: OwnerAsk) -> ControlFlow<(), Self> {
        let upstream = Arc::clone(&owner.upstream);
        let mut asks = FillAsks::new(self.request.for_fetch(), self.times.first_byte + MORE);
        let nonce = random::number();
        let call = NodeCall {
            from: owner.group.settings.own_name().to_owned(),
            nonce,
            kind: CallKind::Fetch(Box::new(owner.call.clone())),
        };
        let request = &mut asks.request;
        let authority = request.origin_authority(&upstream.settings).as_bytes();
        let Some(field) = owner.group.sign(owner.node, &call, request.target.as_bytes(), authority) else {
            self.cache.shield.counters.direct.inc();
            return ControlFlow::Continue(self);
        };
        request.head.headers.remove_name(SHIELD_FIELD);
        request.head.headers.push(SHIELD_FIELD, field.as_bytes());
        let fetch = self.cache.store.floors().begin_fetch();
        let sequence = fetch.sequence();
        self.lead.begin(fetch);
        let sent = self.cache.now();
        let terms = OpeningTerms {
            fresh: false,
            addresses: Addresses::NONE,
            behalf: None,
            client: None,
            own: None,
            http1: false,
            authenticates: false,
            handed_over: None,
        };
        let mut ask = Ask::new(&upstream, terms);
        ask.set_account(self.account);
        ask.set_span(self.span.clone());
        let answered = tokio::select! {
            answered = final_head(&mut ask, &mut asks, self.hand.as_ref()) => answered,
            () = owner.group.away(owner.node) => Err(Error::OriginHangs),
        };
        let (origin, length) = match answered {
            Ok(answered) => answered,
            Err(error) => {
                tracing::debug!(%error, "a node of the shield does not answer");
                self.cache.shield.counters.direct.inc();
                return ControlFlow::Continue(self);
            }
        };
        match owner.judge(&asks.head, nonce) {
            OwnerAnswer::Response => {}
            OwnerAnswer::Failure => {
                upstream.connections.drop_rest(origin);
                self.fail(Error::SharedFetch);
                return ControlFlow::Break(());
            }
            OwnerAnswer::Nothing => {
                upstream.connections.drop_rest(origin);
                self.cache.shield.counters.direct.inc();
                return ControlFlow::Continue(self);
            }
        }
        self.cache.shield.counters.asked.inc();
        if let Some(hand) = self.hand.as_ref().filter(|hand| hand.capacity() > 1) {
            let _ = hand.try_send(LeaderParts::FromOwner);
        }
        self.tags = take_tags(&mut asks.head.headers);
        self.upstream = Arc::clone(&upstream);
        let arrived = FetchedResponse { origin, length, sent, received: self.cache.now(), sequence };
        match self.answered(arrived, &mut asks, &ask).await {
            ControlFlow::Break(()) => ControlFlow::Break(()),
            ControlFlow::Continue(mut fill) => {
                // The 304 does not match the stored response.
                ask_for_whole(&mut fill.request.head.headers);
                fill.tags.clear();
                ControlFlow::Continue(fill)
            }
        }
    }
}

/// Takes the hashed tags, and the proof, from an answer.
fn take_tags(headers: &mut HeaderList) -> Vec<Tag> {
    let lines = headers.get_all_name(TAGS_FIELD).filter_map(|tags| std::str::from_utf8(tags).ok());
    let tags = lines.flat_map(|tags| tags.split(' ')).filter_map(|tag| u64::from_str_radix(tag, 16).ok());
    let tags = tags.map(Tag::from_bits).collect();
    headers.remove_name(TAGS_FIELD);
    headers.remove_name(SHIELD_FIELD);
    tags
}

//! A request that has come from another node of the shield.

use std::net::IpAddr;
use std::sync::Arc;

use foregate_cache::KeyText;
use foregate_wire::HeaderList;

use crate::cache::{AnswerKind, FetchCall, SHIELD_FIELD, ShieldGroup};

/// A request that has come from another node.
#[derive(Debug)]
pub(super) struct ShieldedRequest {
    /// The group.
    pub group: Arc<ShieldGroup>,
    /// The number of the question, which the proof in the answer covers.
    pub nonce: u64,
    /// The call of the asking node, with the route, the upstream, the key and the client.
    pub call: FetchCall,
}

impl ShieldedRequest {
    /// The address of the client.
    pub fn client(&self) -> Option<IpAddr> {
        self.call.client
    }

    /// The text of the key.
    pub fn text(&self) -> Option<KeyText> {
        KeyText::from_bytes(&self.call.text)
    }

    /// Signs the answer. If it is an error reply of this proxy, the asking node treats it like a failure of the origin.
    pub fn prove(&self, is_error: bool, status: u16, headers: &mut HeaderList) {
        let kind = if is_error { AnswerKind::Failure } else { AnswerKind::Response };
        headers.remove_name(SHIELD_FIELD);
        headers.push(SHIELD_FIELD, self.group.prove(kind, self.nonce, status, b"").as_bytes());
    }
}

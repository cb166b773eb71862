//! The handshake fields of WebSocket over HTTP/1 (RFC 6455, section 4). They are needed if only one side uses HTTP/2:
//! the handshake of HTTP/2 has no such fields.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The text that a server appends to the client's key (RFC 6455, section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A new key, for a client without a key in its handshake.
pub fn new_key() -> String {
    let mut nonce = [0u8; 16];
    // If the source of randomness fails, the key is still valid: it only proves freshness.
    let _ = SystemRandom::new().fill(&mut nonce);
    STANDARD.encode(nonce)
}

/// The value of `Sec-WebSocket-Accept` for a client's key.
pub fn accept(key: &[u8]) -> String {
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(super::accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}

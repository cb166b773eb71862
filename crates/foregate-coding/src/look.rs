//! Decodes the start of a body for inspection, while the body itself passes unchanged.

use alloc::vec::Vec;

use foregate_module::Chain;

use super::{ContentCoding, Limits, response_decoder};

/// The start of a response's body without its coding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The decoded bytes.
    pub bytes: Vec<u8>,
    /// Set if `bytes` is the whole body.
    pub whole: bool,
    /// Set if the body is not in the form of its coding. The output before the error is included.
    pub broken: bool,
}

/// Decodes the start of a body, up to `limit` bytes of output. `whole` is true if `body` is the whole encoded
/// body. Whatever its content, at most 64 KiB more than `limit` are decoded.
pub fn start(coding: ContentCoding, body: &[u8], whole: bool, limit: usize) -> Start {
    let limits = Limits { total: u64::MAX, ratio: u64::MAX, free: 0 };
    let mut chain = Chain::new(Vec::from([response_decoder("start", coding, limits)]));
    let mut bytes = Vec::new();
    let mut decode = || {
        for piece in body.chunks(Chain::PIECE) {
            chain.write(piece, &mut bytes)?;
            while chain.is_pending() && bytes.len() <= limit {
                chain.resume(&mut bytes)?;
            }
            if bytes.len() > limit {
                return Ok(false);
            }
        }
        if whole {
            chain.end(&mut bytes)?;
        }
        Ok(whole)
    };
    let ended = decode().map_err(|(_, _): (foregate_module::Bail, &str)| ());
    let fits = bytes.len() <= limit;
    bytes.truncate(limit);
    Start { bytes, whole: fits && ended == Ok(true), broken: ended.is_err() }
}

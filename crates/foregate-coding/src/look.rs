//! The decoded start of a body, for inspection of a body that passes unchanged.

use alloc::vec::Vec;

use foregate_module::Chain;

use super::{ContentCoding, Limits, response_decoder};

/// The start of a response's body without its coding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The decoded bytes.
    pub bytes: Vec<u8>,
    /// Set if that is all of the body.
    pub whole: bool,
    /// Set if the body is not in the form of its coding. The output before the error is included.
    pub broken: bool,
}

/// Decodes as much of `body` as makes at most `limit` bytes; `whole` says whether that is all of the body. No more than that
/// is decoded, and 64 KiB, whatever the body is made of.
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

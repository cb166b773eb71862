//! The content of every body: a fixed pattern with a prime as its period, so that a
//! missing, doubled or moved byte is noticed.

use std::sync::LazyLock;

/// Length after which the pattern repeats. Prime, so that no buffer size divides it.
const PERIOD: usize = 65_521;

static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut state: u32 = 0x9e37_79b9;
    (0..PERIOD)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 24) as u8
        })
        .collect()
});

/// The first `length` bytes of a body.
pub fn body(length: usize) -> Vec<u8> {
    PATTERN.iter().copied().cycle().take(length).collect()
}

/// Compares `bytes` with a body from `offset` on.
pub fn matches(mut offset: usize, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let at = offset % PERIOD;
        let length = bytes.len().min(PERIOD - at);
        if bytes[..length] != PATTERN[at..at + length] {
            return false;
        }
        bytes = &bytes[length..];
        offset += length;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_matches_itself_at_every_offset_and_nothing_else() {
        let whole = body(3 * PERIOD + 7);
        for offset in [0, 1, 1000, PERIOD - 1, PERIOD, 2 * PERIOD + 5] {
            assert!(matches(offset, &whole[offset..]));
            assert!(!matches(offset + 1, &whole[offset..]));
        }
    }
}

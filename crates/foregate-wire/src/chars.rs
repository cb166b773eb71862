//! Classes of bytes, and scans that look at eight bytes at a time.

/// `token` characters of RFC 9110, 5.6.2.
static TOKEN: [bool; 256] = table(b"!#$%&'*+-.^_`|~", true);

/// A table of the given bytes, with letters and digits when asked.
pub(crate) const fn table(bytes: &[u8], alphanumeric: bool) -> [bool; 256] {
    let mut table = [false; 256];
    let mut i = 0;
    while i < bytes.len() {
        table[bytes[i] as usize] = true;
        i += 1;
    }
    let mut byte = 0u8;
    while alphanumeric && byte < 128 {
        if byte.is_ascii_alphanumeric() {
            table[byte as usize] = true;
        }
        byte += 1;
    }
    table
}

#[inline]
pub(crate) fn is_token_byte(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

/// Whether this is a `token`: not empty, and token characters only.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token_byte(byte))
}

/// Whether a field value may hold the byte: HTAB, SP, VCHAR, obs-text (RFC 9110, 5.5).
#[inline]
pub(crate) fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= 0x20 && byte != 0x7f)
}

/// Space or tab (`OWS` and `BWS` are made of these).
#[inline]
pub(crate) fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Without the blanks around it.
#[inline]
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    trim_end(trim_start(bytes))
}

/// Without the blanks before it.
#[inline]
pub(crate) fn trim_start(mut bytes: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = bytes
        && is_blank(*first)
    {
        bytes = rest;
    }
    bytes
}

/// Without the blanks after it.
#[inline]
pub(crate) fn trim_end(mut bytes: &[u8]) -> &[u8] {
    while let [rest @ .., last] = bytes
        && is_blank(*last)
    {
        bytes = rest;
    }
    bytes
}

/// Index of the first byte from `from` on that is not a token character, or the length.
#[inline]
pub(crate) fn token_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(&byte) = bytes.get(at) {
        if !is_token_byte(byte) {
            break;
        }
        at += 1;
    }
    at
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Index of the first byte from `from` on that a field value cannot hold, or the length.
#[inline]
pub(crate) fn value_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    loop {
        // Without an exit in the inner loop the compiler makes it a few vector instructions.
        while let Some(block) = bytes.get(at..).and_then(<[u8]>::first_chunk::<16>) {
            let mut refused = false;
            for &byte in block {
                refused |= ((byte < 0x20) & (byte != b'\t')) | (byte == 0x7f);
            }
            if refused {
                break;
            }
            at += 16;
        }
        let mut word = [0x20; 8];
        let rest = bytes.get(at..).unwrap_or_default();
        match rest.first_chunk::<8>() {
            Some(chunk) => word = *chunk,
            None => {
                for (to, from) in word.iter_mut().zip(rest) {
                    *to = *from;
                }
            }
        }
        let hits = controls(u64::from_le_bytes(word));
        if hits == 0 {
            if rest.len() <= 8 {
                return bytes.len();
            }
            at += 8;
            continue;
        }
        at += hits.trailing_zeros() as usize / 8;
        if bytes[at] != b'\t' {
            return at;
        }
        at += 1;
    }
}

/// The high bit of every lane that holds a control byte. Lanes above the lowest such one may be wrong: a borrow can
/// make a false hit there.
#[inline]
fn controls(word: u64) -> u64 {
    let low = word.wrapping_sub(ONES * 0x20) & !word;
    let del = word ^ (ONES * 0x7f);
    let del = del.wrapping_sub(ONES) & !del;
    (low | del) & HIGH
}

/// Index of the first byte from `from` on that is a control byte or a space, or the length.
#[inline]
pub(crate) fn word_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*chunk);
        let low = word.wrapping_sub(ONES * 0x21) & !word;
        let del = word ^ (ONES * 0x7f);
        let del = del.wrapping_sub(ONES) & !del;
        let hits = (low | del) & HIGH;
        if hits != 0 {
            return at + hits.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while let Some(&byte) = bytes.get(at) {
        if byte <= b' ' || byte == 0x7f {
            break;
        }
        at += 1;
    }
    at.min(bytes.len())
}

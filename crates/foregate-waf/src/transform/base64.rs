//! Base64.

/// The six bits of a letter; `None` for other bytes.
fn sextet(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

/// Strictly decodes the text before the first zero byte: the result is empty if any byte is invalid. Line ends may
/// be anywhere; spaces may be before a line end and at the end of the text. An incomplete group of four is dropped.
pub(super) fn decode(input: &[u8]) -> Vec<u8> {
    let input = &input[..memchr::memchr(0, input).unwrap_or(input.len())];
    if !is_valid(input) {
        return Vec::new();
    }
    let mut out = Vec::with_capacity(input.len() / 4 * 3);
    let (mut group, mut letters, mut padding) = (0, 0, 0);
    for &byte in input.iter().filter(|byte| !matches!(byte, b'\r' | b'\n' | b' ')) {
        group = group << 6 | sextet(byte).unwrap_or(0);
        padding += usize::from(byte == b'=');
        letters += 1;
        if letters == 4 {
            let bytes = group.to_be_bytes();
            out.extend_from_slice(&bytes[1..4 - padding]);
            (group, letters) = (0, 0);
        }
    }
    out
}

fn is_valid(input: &[u8]) -> bool {
    let (mut at, mut padding) = (0, 0);
    while at < input.len() {
        let spaces = input[at..].iter().take_while(|byte| **byte == b' ').count();
        at += spaces;
        match input[at..] {
            [] => return true,
            [b'\r', b'\n', ..] | [b'\n', ..] => {}
            _ if spaces > 0 => return false,
            [b'=', ..] => {
                padding += 1;
                if padding > 2 {
                    return false;
                }
            }
            [byte, ..] => {
                if sextet(byte).is_none() || padding > 0 {
                    return false;
                }
            }
        }
        at += 1;
    }
    true
}

/// Decodes leniently: invalid bytes are skipped, and an incomplete group of four gives the whole bytes in it.
pub(super) fn decode_lenient(input: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(input.len() / 4 * 3 + 3);
    let (mut group, mut letters) = (0u32, 0usize);
    for (at, &byte) in input.iter().enumerate() {
        if byte == b'=' {
            // A single `=` after the first letter of a group makes the whole text invalid.
            if letters == 1 && input.get(at + 1) != Some(&b'=') {
                return Vec::new();
            }
            continue;
        }
        let Some(bits) = sextet(byte) else { continue };
        group = group << 6 | bits;
        match letters {
            1 => out.push((group >> 4).to_le_bytes()[0]),
            2 => out.push((group >> 2).to_le_bytes()[0]),
            3 => out.push(group.to_le_bytes()[0]),
            _ => {}
        }
        letters = (letters + 1) % 4;
    }
    // ModSecurity compares the last letter's decoded value with the character `=`, so it takes `9` (61) for `=` (61).
    if letters == 1 && matches!(input.last(), Some(b'=' | b'9')) {
        return Vec::new();
    }
    out
}

pub(super) fn encode(input: &[u8]) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::with_capacity(input.len().div_ceil(3) * 4);
    for bytes in input.chunks(3) {
        let group =
            bytes.iter().fold(0u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - bytes.len()));
        for place in 0..4 {
            let bits = group >> (18 - 6 * place) & 63;
            out.push(if place <= bytes.len() { LETTERS[bits as usize] } else { b'=' });
        }
    }
    out
}

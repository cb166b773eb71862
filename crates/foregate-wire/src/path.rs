//! The normal form of a path (RFC 3986, 6.2.2) and of a query.
//!
//! Routing, rules, cache keys, the firewall and the origin all see this form, so all spellings of a path are treated
//! alike.

use crate::chars::{of, table};
use crate::target::TargetError;

/// The treatment of several slashes in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slashes {
    /// Several slashes become one.
    #[default]
    Merge,
    /// Several slashes are kept.
    Keep,
}

/// `unreserved` of RFC 3986, 2.3: the only bytes that are decoded.
pub(crate) static UNRESERVED: [bool; 256] = table(b"-._~", true);
/// The characters that a path contains unencoded: `pchar` and `/`, without `%`.
pub(crate) static PATH: [bool; 256] = table(b"-._~!$&'()*+,;=:@/", true);
/// The characters that a query contains unencoded. These are more than in RFC 3986, because browsers send brackets,
/// braces, `|`, `\`, `^` and `` ` `` unencoded. Controls, spaces, quotes, `<`, `>`, `#` and bytes from 0x80 on are
/// encoded.
static QUERY: [bool; 256] = table(b"-._~!$&'()*+,;=:@/?%[]{}|\\^`", true);
const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Appends the normal form of a raw path to `out`.
///
/// Encoded unreserved characters are decoded, other encodings get upper-case digits, bytes that a path cannot hold are
/// encoded, dot segments are resolved (`..` at the root stays at the root) and slashes are merged or kept. `%2F` stays
/// encoded, because it does not separate segments. Normalising is idempotent.
///
/// # Errors
/// A path without a leading slash, a broken percent-encoding, or `%00`. On an error nothing is appended to `out`.
pub fn normalize_path(raw: &[u8], slashes: Slashes, out: &mut Vec<u8>) -> Result<(), TargetError> {
    if raw.first() != Some(&b'/') {
        return Err(TargetError::BadForm);
    }
    let start = out.len();
    if is_normal(raw, slashes) {
        out.extend_from_slice(raw);
        return Ok(());
    }
    out.reserve(raw.len());
    let result = write_normal(raw, slashes, start, out);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Appends a query (the text after the `?`), and encodes bytes that are not allowed in a request. Nothing is decoded.
pub fn normalize_query(raw: &[u8], out: &mut Vec<u8>) {
    if raw.iter().all(|&byte| of(&QUERY, byte)) {
        out.extend_from_slice(raw);
        return;
    }
    for &byte in raw {
        if of(&QUERY, byte) {
            out.push(byte);
        } else {
            push_encoded(out, byte);
        }
    }
}

/// Returns true if a path is certainly in normal form, after one scan without writing. For some normal paths it returns
/// false.
pub fn is_normal(raw: &[u8], slashes: Slashes) -> bool {
    // A dot after a slash may begin a dot segment. Only the full normalisation decides that.
    let after_slash = match slashes {
        Slashes::Merge => DOT | SLASH,
        Slashes::Keep => DOT,
    };
    let mut refused = 0;
    let mut before = 0;
    // Nearly all paths are normal, so the loop runs to the end instead of testing each byte for an early return.
    for &byte in raw {
        let kind = of(&KINDS, byte);
        refused |= kind & (FOREIGN | if before == SLASH { after_slash } else { 0 });
        before = kind;
    }
    raw.first() == Some(&b'/') && refused == 0
}

/// The classes of bytes for [`is_normal`].
static KINDS: [u8; 256] = kinds();
const FOREIGN: u8 = 1;
const SLASH: u8 = 2;
const DOT: u8 = 4;

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, for which a place out of bounds is an error"
)]
const fn kinds() -> [u8; 256] {
    let mut kinds = [FOREIGN; 256];
    let mut byte = 0;
    while byte < kinds.len() {
        if PATH[byte] {
            kinds[byte] = 0;
        }
        byte += 1;
    }
    kinds[b'/' as usize] = SLASH;
    kinds[b'.' as usize] = DOT;
    kinds
}

fn write_normal(raw: &[u8], slashes: Slashes, start: usize, out: &mut Vec<u8>) -> Result<(), TargetError> {
    out.push(b'/');
    // The start of the current segment, after the slash before it.
    let mut segment = out.len();
    let mut rest = raw.get(1..).unwrap_or_default();
    loop {
        match rest {
            [] => {
                end_segment(out, start, &mut segment, slashes, false);
                return Ok(());
            }
            [b'/', after @ ..] => {
                end_segment(out, start, &mut segment, slashes, true);
                rest = after;
            }
            [b'%', high, low, after @ ..] => {
                let digit = |byte: u8| (byte as char).to_digit(16).ok_or(TargetError::BadPercent);
                let byte = (digit(*high)? << 4 | digit(*low)?) as u8;
                match byte {
                    0 => return Err(TargetError::Nul),
                    byte if of(&UNRESERVED, byte) => out.push(byte),
                    byte => push_encoded(out, byte),
                }
                rest = after;
            }
            [b'%', ..] => return Err(TargetError::BadPercent),
            [0, ..] => return Err(TargetError::Nul),
            [byte, after @ ..] => {
                if of(&PATH, *byte) {
                    out.push(*byte);
                } else {
                    push_encoded(out, *byte);
                }
                rest = after;
            }
        }
    }
}

/// Finishes the segment that has just been written: it resolves a dot segment or appends the slash. `slash` is true if
/// a slash follows, and false at the end of the path.
fn end_segment(out: &mut Vec<u8>, start: usize, segment: &mut usize, slashes: Slashes, slash: bool) {
    match out.get(*segment..).unwrap_or_default() {
        b"." => out.truncate(*segment),
        b".." => {
            out.truncate(*segment);
            // Remove the segment before this one, up to the slash in front of it, but never the root's slash.
            if *segment > start + 1 {
                let before = out.get(start..*segment - 1).unwrap_or_default();
                let above = before.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                out.truncate(start + above + 1);
            }
        }
        b"" if slashes == Slashes::Merge => {}
        _ if slash => out.push(b'/'),
        _ => {}
    }
    *segment = out.len();
}

fn push_encoded(out: &mut Vec<u8>, byte: u8) {
    let digit = |value: u8| HEX.get(usize::from(value)).copied().unwrap_or_default();
    out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
}

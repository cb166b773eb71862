//! Paths without `.`, `..` and doubled slashes.

use std::borrow::Cow;

use memchr::memchr_iter;

/// Removes doubled slashes, `.` and `..`. A `..` without a segment before it stays in a relative path and is removed
/// from an absolute path.
pub(super) fn normalize(input: &[u8]) -> Cow<'_, [u8]> {
    if is_normal(input) {
        return Cow::Borrowed(input);
    }
    let mut out = walk(input);
    if !input.ends_with(b"/") && out.ends_with(b"/") {
        out.pop();
    }
    if out == input { Cow::Borrowed(input) } else { Cow::Owned(out) }
}

/// Like [`normalize`], after all backslashes have become slashes.
pub(super) fn normalize_windows(input: &[u8]) -> Cow<'_, [u8]> {
    let slashes = super::space::map(input, |byte| if byte == b'\\' { b'/' } else { byte });
    match slashes {
        Cow::Borrowed(input) => normalize(input),
        Cow::Owned(slashes) => match normalize(&slashes) {
            Cow::Owned(normal) => Cow::Owned(normal),
            Cow::Borrowed(_) => Cow::Owned(slashes),
        },
    }
}

/// Returns true if the path is in normal form: no slash is next to a slash or a dot, and no dot is at either end.
fn is_normal(input: &[u8]) -> bool {
    let beside = |at: usize| matches!(input.get(at), Some(b'/' | b'.'));
    let plain = |at: usize| !beside(at + 1) && (at == 0 || input[at - 1] != b'.');
    input.first() != Some(&b'.') && input.last() != Some(&b'.') && memchr_iter(b'/', input).all(plain)
}

/// Builds the normal form. Whether a segment is `.` or `..` is decided from its last two bytes. So a segment that
/// merely ends in two dots (`a..`) also removes the segment before it, as the rules expect.
fn walk(input: &[u8]) -> Vec<u8> {
    let relative = input.first() != Some(&b'/');
    let mut out: Vec<u8> = Vec::with_capacity(input.len());
    let mut at_root = false;
    let mut at = 0;
    while at < input.len() {
        let last = at + 1 == input.len();
        if last || input[at + 1] == b'/' {
            match (input[at], out.last().copied()) {
                (b'/', _) if !last => {}
                (b'.', Some(b'.')) if relative && (at_root || out.len() <= 2) => at_root = true,
                (b'.', Some(b'.')) => {
                    let segment = out.len().saturating_sub(2);
                    let slash = out[..segment].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                    at_root |= slash == 0;
                    out.truncate(if slash == 0 { usize::from(!relative && last) } else { slash });
                    at += 1;
                }
                (b'.', None) => at += 1,
                (b'.', Some(b'/')) => {
                    if !last {
                        out.pop();
                    }
                    at += 1;
                }
                (b'.', Some(_)) | (_, None) => {}
                (_, Some(_)) => at_root = false,
            }
        }
        let Some(&byte) = input.get(at) else { break };
        if byte == b'/' {
            while input.get(at + 1) == Some(&b'/') {
                at += 1;
            }
            if relative && out.is_empty() {
                at += 1;
                continue;
            }
        }
        out.push(byte);
        at += 1;
    }
    out
}

//! Converts targets between NGINX's form, which is decoded, and the normal form that steps see.

use foregate_module::has_parent_segment;
use foregate_wire::{Slashes, normalize_path, normalize_query};

/// The normal form of path and query, from the raw target.
pub(crate) fn of_raw(raw: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let (path, query) = match raw.iter().position(|byte| *byte == b'?') {
        Some(at) => (&raw[..at], raw.get(at + 1..)),
        None => (raw, None),
    };
    // A fragment is no part of a target; NGINX drops it as well.
    let path = path.split(|byte| *byte == b'#').next().unwrap_or_default();
    if path == b"*" {
        return Some((path.to_vec(), None));
    }
    let mut normal = Vec::with_capacity(path.len());
    normalize_path(path, Slashes::Merge, &mut normal).ok()?;
    let query = query.map(|query| normal_query(query.split(|byte| *byte == b'#').next().unwrap_or_default()));
    Some((normal, query))
}

/// The normal form from a decoded path, as NGINX's own rewriting leaves it.
pub(crate) fn of_decoded(path: &[u8], args: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = Vec::with_capacity(path.len());
    for byte in path {
        // The bytes that the normal form does not encode, except `%`.
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(byte) {
            encoded.push(*byte);
        } else {
            encoded.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
    let mut normal = Vec::with_capacity(encoded.len());
    if normalize_path(&encoded, Slashes::Merge, &mut normal).is_err() {
        normal = encoded;
    }
    (normal, (!args.is_empty()).then(|| normal_query(args)))
}

/// The normal form of a path that a step has made; `None` if the path is invalid.
pub(crate) fn normal_path(path: &[u8]) -> Option<Vec<u8>> {
    let mut normal = Vec::with_capacity(path.len());
    normalize_path(path, Slashes::Merge, &mut normal).ok()?;
    Some(normal)
}

/// The normal form of a path that replaces the client's path. The new path may contain client input, so a `..` in it is
/// refused.
pub(crate) fn rewritten(path: &[u8]) -> Option<Vec<u8>> {
    if has_parent_segment(path) { None } else { normal_path(path) }
}

/// The normal form of a query.
pub(crate) fn normal_query(query: &[u8]) -> Vec<u8> {
    let mut normal = Vec::with_capacity(query.len());
    normalize_query(query, &mut normal);
    normal
}

/// A normalised path with its escapes decoded, as NGINX keeps it.
pub(crate) fn decoded(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| first == b'%');
        match digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_one_form() {
        let of = |raw: &str| {
            let (path, query) = of_raw(raw.as_bytes())?;
            Some((String::from_utf8(path).ok()?, query.and_then(|query| String::from_utf8(query).ok())))
        };
        assert_eq!(of("/a/../b//c%41?x=1"), Some(("/b/cA".into(), Some("x=1".into()))));
        assert_eq!(of("/a"), Some(("/a".into(), None)));
        assert_eq!(of("/a?"), Some(("/a".into(), Some(String::new()))));
        assert_eq!(of("/a%zz"), None);
        assert_eq!(of("*"), Some(("*".into(), None)));
    }

    #[test]
    fn paths_that_lead_up_are_none() {
        assert_eq!(rewritten(b"/files/a//b"), Some(b"/files/a/b".to_vec()));
        for path in
            [&b"/files/../a"[..], b"/files/x%2f..%2fa", b"/files/%252e%252e/a", b"/files/..%253b/a", b"a"]
        {
            assert_eq!(rewritten(path), None, "{path:?}");
        }
    }

    #[test]
    fn decoded_paths_come_back() {
        let (path, query) = of_decoded("/a b/\u{e4}%".as_bytes(), b"q=1");
        assert_eq!((path.as_slice(), query.as_deref()), (&b"/a%20b/%C3%A4%25"[..], Some(&b"q=1"[..])));
        assert_eq!(decoded(&path), "/a b/\u{e4}%".as_bytes());
        assert_eq!(decoded(b"/%2"), b"/%2");
    }
}

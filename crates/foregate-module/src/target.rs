//! Checks of changed targets.

use alloc::vec::Vec;

/// Returns true if a path has a `..` that some server could follow: under any number of encodings, after a `\`, or
/// before a character that ends a segment for some servers (`;`, `?`, `#`, NUL). A path that a step builds from
/// client input may contain such a `..`: [`RewriteTarget`](crate::RewriteTarget) refuses it.
pub fn has_parent_segment(path: &[u8]) -> bool {
    let mut plain = Vec::with_capacity(path.len());
    for &byte in path {
        plain.push(byte);
        // A decoded byte may be a part of another escape: `%25%32%65` becomes `%2e`, and then a dot. Each decoding removes two
        // bytes, so the whole takes linear time.
        while let [.., b'%', high, low] = *plain {
            let digit = |byte: u8| (byte as char).to_digit(16);
            let (Some(high), Some(low)) = (digit(high), digit(low)) else { break };
            plain.truncate(plain.len() - 3);
            plain.push((high << 4 | low) as u8);
        }
    }
    let mut segments = plain.split(|byte| matches!(byte, b'/' | b'\\'));
    segments.any(|segment| matches!(segment, b".." | [b'.', b'.', b';' | b'?' | b'#' | 0, ..]))
}

#[cfg(test)]
mod tests {
    use super::has_parent_segment;

    #[test]
    fn paths_that_lead_up_are_known_in_any_spelling() {
        for path in [
            "/..",
            "/../a",
            "/a/..",
            "/..\\a",
            "/a\\..",
            "/a%2f..%2Fb",
            "/%2e%2E/a",
            "/.%2e/a",
            "/%252e%252e/admin",
            "/%252e%252e%252fadmin",
            "/..%252fadmin",
            "/..%255cadmin",
            "/%25252525252e./a",
            "/%25%32%65%25%32%45/a",
            "/%%32%65./a",
            "/%2%35%32e./a",
            "/..;",
            "/..;x=1/a",
            "/..%3b/a",
            "/..%253b/admin",
            "/..?",
            "/..%3f",
            "/..%253Fx",
            "/..#",
            "/..%23x",
            "/..%2523",
            "/..%00",
            "/..%2500.html",
        ] {
            assert!(has_parent_segment(path.as_bytes()), "{path}");
        }
        for path in [
            "",
            "/",
            "/a/b.html",
            "/.",
            "/...",
            "/.../a",
            "/..a",
            "/a..",
            "/a..;/b",
            "/.;./a",
            "/.%3b./a",
            "/what%3f..%23/a",
            "/100%25",
            "/100%25/a..b",
            "/%2e",
            "/%2e%2e%2e",
            "/%",
            "/%2",
            "/%2g..",
            "/..%zz",
            "/..%25",
            "/%E4%2e.",
        ] {
            assert!(!has_parent_segment(path.as_bytes()), "{path}");
        }
        // Linear, though the meaning of all of it depends on the last byte.
        let deep = [b"/.%".as_slice(), &b"25".repeat(500_000), b"2e"].concat();
        assert!(has_parent_segment(&deep));
        let broken = [b"/.".as_slice(), &b"%2".repeat(500_000), b"5"].concat();
        assert!(!has_parent_segment(&broken));
    }
}

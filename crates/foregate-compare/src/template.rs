//! Groups similar paths without a configuration that says which paths belong together.

/// The most segments of a path that are distinguished. Further segments become `**`.
const SEGMENTS: usize = 6;

/// A path with `*` instead of segments that look like numbers, and without its query: `/users/*/orders`.
pub fn template(target: &str) -> String {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let mut out = String::new();
    for (at, segment) in path.split('/').skip(1).enumerate() {
        if at == SEGMENTS {
            out.push_str("/**");
            break;
        }
        out.push('/');
        out.push_str(if is_identity(segment) { "*" } else { segment });
    }
    if out.is_empty() { "/".to_owned() } else { out }
}

/// Returns true if a segment is a number, a UUID, or a long text with digits.
fn is_identity(segment: &str) -> bool {
    let (name, digits) = (segment.len(), segment.bytes().filter(u8::is_ascii_digit).count());
    let is_hex = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    digits > 0 && (digits == name || name >= 8 && segment.bytes().all(is_hex) || name >= 20 && digits >= 4)
}

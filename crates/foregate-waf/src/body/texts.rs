//! The runs of text in a long binary body.

/// The least length of a run of printable bytes that counts as text. In random data, one byte in fifteen is
/// in such a run.
const LEAST: usize = 4;

/// The first `whole` bytes of a body, followed by the texts in the rest, each after a line feed; `None` if
/// the whole body is text: UTF-8 without NUL.
///
/// Rules need only these texts, since their patterns match text. In an archive or a picture, the texts are a
/// fifteenth of its length.
pub(crate) fn texts(body: &[u8], whole: usize) -> Option<Vec<u8>> {
    let (start, mut rest) = body.split_at_checked(whole).filter(|_| !is_text(body))?;
    let mut out = Vec::with_capacity(start.len() + rest.len() / 8);
    out.extend_from_slice(start);
    // A text may continue across the border between the first bytes and the rest.
    let mut goes_on = start.last().is_some_and(is_printable);
    while !rest.is_empty() {
        let length = rest.iter().take_while(|byte| is_printable(byte)).count();
        let (text, behind) = rest.split_at(length);
        if goes_on || length >= LEAST {
            if !goes_on {
                out.push(b'\n');
            }
            out.extend_from_slice(text);
        }
        goes_on = false;
        let other = behind.iter().take_while(|byte| !is_printable(byte)).count();
        rest = behind.get(other..).unwrap_or_default();
    }
    Some(out)
}

/// Returns true if a body is UTF-8 without NUL.
pub(crate) fn is_text(body: &[u8]) -> bool {
    memchr::memchr(0, body).is_none() && std::str::from_utf8(body).is_ok()
}

fn is_printable(byte: &u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_what_is_none() {
        for (body, whole, found) in [
            (&b"ab\0c\x01evil\xff\xfeabc\x02${a}"[..], 3, Some(&b"ab\0\nevil\n${a}"[..])),
            (b"ab\0cd\x01", 4, Some(b"ab\0cd")),
            (b"\xff\xfe\xfd", 1, Some(b"\xff")),
            ("a text \u{e9}".as_bytes(), 2, None),
            (b"\0abc", 9, None),
        ] {
            assert_eq!(texts(body, whole).as_deref(), found, "{}", body.escape_ascii());
        }
        // As an archive is: a linear congruence.
        let mut seed = 1_u32;
        let random: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        })
        .take(1 << 20)
        .collect();
        let most = texts(&random, 0).map_or(usize::MAX, |found| found.len());
        assert!(most < random.len() / 10, "{most}");
    }
}

//! Classes of bytes, and scans that look at many bytes at a time.

/// `token` characters of RFC 9110, 5.6.2.
static TOKEN: [bool; 256] = table(b"!#$%&'*+-.^_`|~", true);

/// A table that is true for the given bytes, and for letters and digits if `alphanumeric` is set.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, for which a place out of bounds is an error"
)]
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

/// The entry of a table for a byte.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "such a table has a place for each byte")]
pub(crate) fn of<T: Copy>(table: &[T; 256], byte: u8) -> T {
    table[usize::from(byte)]
}

#[inline]
pub(crate) fn is_token_byte(byte: u8) -> bool {
    of(&TOKEN, byte)
}

/// Returns true for a `token`: not empty, and token characters only.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token_byte(byte))
}

/// Returns true if a field value may contain the byte: HTAB, SP, VCHAR, obs-text (RFC 9110, 5.5).
#[inline]
pub(crate) fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= 0x20 && byte != 0x7f)
}

/// Space or tab (`OWS` and `BWS` are made of these).
#[inline]
pub(crate) fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// The text without the blanks around it.
#[inline]
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    trim_end(trim_start(bytes))
}

/// The text without the blanks before it.
#[inline]
pub(crate) fn trim_start(mut bytes: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = bytes
        && is_blank(*first)
    {
        bytes = rest;
    }
    bytes
}

/// The text without the blanks after it.
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
    let rest = bytes.get(from..).unwrap_or_default();
    rest.iter().position(|&byte| !is_token_byte(byte)).map_or(bytes.len(), |at| from + at)
}

/// Index of the first byte from `from` on that a field value cannot hold, or the length.
#[inline]
pub(crate) fn value_end(bytes: &[u8], from: usize) -> usize {
    let is = |byte| ((byte < 0x20) & (byte != b'\t')) | (byte == 0x7f);
    find(bytes, from, is, |word| below(word, 0x20) | equal(word, 0x7f))
}

/// Index of the first byte from `from` on that is a control byte or a space, or the length.
#[inline]
pub(crate) fn word_end(bytes: &[u8], from: usize) -> usize {
    let is = |byte| (byte <= b' ') | (byte == 0x7f);
    find(bytes, from, is, |word| below(word, 0x21) | equal(word, 0x7f))
}

/// Index of the first byte that is a control byte, a space or a `#`, or the length.
#[inline]
pub(crate) fn target_end(bytes: &[u8]) -> usize {
    let is = |byte| (byte <= b' ') | (byte == 0x7f) | (byte == b'#');
    find(bytes, 0, is, |word| below(word, 0x21) | equal(word, 0x7f) | equal(word, b'#'))
}

/// Index of the first byte equal to `wanted`, or the length.
#[inline]
pub(crate) fn byte_at(bytes: &[u8], wanted: u8) -> usize {
    find(bytes, 0, |byte| byte == wanted, |word| equal(word, wanted))
}

/// Index of the first byte from `from` on for which `is` is true, or the length. `is` has no branches, so that the
/// compiler can test sixteen bytes at once. `hits` marks the same bytes in a word of eight bytes; only its first mark
/// is reliable.
#[inline(always)]
fn find(bytes: &[u8], from: usize, is: impl Fn(u8) -> bool, hits: impl Fn(u64) -> u64) -> usize {
    let mut rest = bytes.get(from..).unwrap_or_default();
    while let Some((block, behind)) = rest.split_first_chunk::<16>() {
        let mut any = false;
        for &byte in block {
            any |= is(byte);
        }
        if any {
            break;
        }
        rest = behind;
    }
    while let Some((word, behind)) = rest.split_first_chunk::<8>() {
        let found = hits(u64::from_le_bytes(*word));
        if found == 0 {
            rest = behind;
            continue;
        }
        let at = found.trailing_zeros() as usize / 8;
        if word.get(at).is_some_and(|&byte| is(byte)) {
            return bytes.len() - rest.len() + at;
        }
        rest = rest.get(at + 1..).unwrap_or_default();
    }
    let at = rest.iter().position(|&byte| is(byte)).unwrap_or(rest.len());
    bytes.len() - rest.len() + at
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Sets the high bit of each byte that equals `byte`. Only the lowest set bit is reliable: the subtraction's borrow can
/// set a bit above it by mistake.
#[inline]
pub(crate) fn equal(word: u64, byte: u8) -> u64 {
    let other = word ^ (ONES * u64::from(byte));
    other.wrapping_sub(ONES) & !other & HIGH
}

/// Sets the high bit of each byte below `bound`, which is at most 0x80. As with [`equal`], only the lowest set bit is
/// reliable.
#[inline]
pub(crate) fn below(word: u64, bound: u8) -> u64 {
    word.wrapping_sub(ONES * u64::from(bound)) & !word & HIGH
}

/// In each byte, the bit by which an upper-case and a lower-case letter differ.
pub(crate) const SPACES: u64 = 0x2020_2020_2020_2020;

/// The first eight bytes as a word, padded with zeros if there are fewer.
#[inline]
pub(crate) fn short_word(bytes: &[u8]) -> u64 {
    if let Some(word) = bytes.first_chunk() {
        return u64::from_le_bytes(*word);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return u64::from(first) | u64::from(last) << ((bytes.len() - 4) * 8);
    }
    let byte = |at: usize| bytes.get(at).map_or(0, |byte| u64::from(*byte) << (at * 8));
    byte(0) | byte(1) | byte(2)
}

/// Returns true if two texts are equal except for the case of letters. Compares eight bytes at a time, because most
/// names differ in their first eight. The last eight bytes overlap the group before them.
#[inline]
pub(crate) fn eq_but_case(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let (Some(last), Some(other_last)) = (one.last_chunk(), other.last_chunk()) else {
        return same_but_case(short_word(one), short_word(other));
    };
    let same = |(one, other): (&[u8; 8], &[u8; 8])| {
        same_but_case(u64::from_le_bytes(*one), u64::from_le_bytes(*other))
    };
    one.as_chunks().0.iter().zip(other.as_chunks().0).all(same) && same((last, other_last))
}

#[inline]
fn same_but_case(one: u64, other: u64) -> bool {
    let differs = one ^ other;
    differs == 0 || differs & !SPACES == 0 && (differs << 2) & !letters(one) == 0
}

/// The high bit of each byte that is a letter.
#[inline]
fn letters(word: u64) -> u64 {
    let folded = word | SPACES;
    let low = folded & !HIGH;
    let (from_a, behind_z) = (low + ONES * u64::from(0x80 - b'a'), low + ONES * u64::from(0x80 - b'{'));
    from_a & !behind_z & !folded & HIGH
}

/// Returns true if the byte is in the text.
#[inline]
pub(crate) fn has(bytes: &[u8], wanted: u8) -> bool {
    let has = |word: &[u8; 8]| equal(u64::from_le_bytes(*word), wanted) != 0;
    match bytes.last_chunk() {
        Some(last) => bytes.as_chunks().0.iter().any(has) || has(last),
        None => bytes.contains(&wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_text_are_compared_as_its_bytes_are() {
        for length in 0..=20 {
            let text: Vec<u8> = (b'a'..).take(length).collect();
            assert_eq!(short_word(&text).to_le_bytes()[..length.min(8)], text[..length.min(8)]);
            assert!(length >= 8 || short_word(&text) >> (length * 8) == 0);
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut other = text.clone();
                    other[at] = byte;
                    assert_eq!(
                        eq_but_case(&text, &other),
                        text.eq_ignore_ascii_case(&other),
                        "{byte:#x} at {at}"
                    );
                    assert_eq!(has(&other, b'_'), other.contains(&b'_'), "{byte:#x} at {at}");
                    // Controls and marks that are as far from each other as the cases of a letter.
                    let mut third = other.clone();
                    third[at] ^= 0x20;
                    assert_eq!(
                        eq_but_case(&third, &other),
                        third.eq_ignore_ascii_case(&other),
                        "{byte:#x} at {at}"
                    );
                }
            }
            assert!(!eq_but_case(&text, &[&text[..], b"a"].concat()));
        }
    }

    /// Every byte at every place of some lengths, and some bytes at every place of the others.
    #[test]
    fn scans_find_what_a_look_at_each_byte_finds() {
        type Scan = (fn(&[u8], usize) -> usize, fn(u8) -> bool);
        let scans: [Scan; 4] = [
            (value_end, |byte| !is_value_byte(byte)),
            (word_end, |byte| byte <= b' ' || byte == 0x7f),
            (
                |bytes, from| target_end(&bytes[from.min(bytes.len())..]) + from.min(bytes.len()),
                |byte| byte <= b' ' || byte == 0x7f || byte == b'#',
            ),
            (
                |bytes, from| byte_at(&bytes[from.min(bytes.len())..], b'?') + from.min(bytes.len()),
                |byte| byte == b'?',
            ),
        ];
        let some = |byte: u8| matches!(byte & 0x7f, 0 | 8..=10 | 0x1f..=0x23 | b'?' | 0x7e..);
        // A space after a tab, which is valid, must not be reported in its place.
        for (length, usual) in (0..=35).flat_map(|length| [b'a', b' ', b'\t'].map(|usual| (length, usual))) {
            let mut text = vec![usual; length];
            for at in 0..length {
                for byte in (0..=u8::MAX).filter(|byte| some(*byte) || [5, 19, 33].contains(&length)) {
                    text[at] = byte;
                    for from in [0, at.saturating_sub(1), at, at + 1] {
                        for (scan, hits) in scans {
                            let rest = text.iter().skip(from).position(|&byte| hits(byte));
                            let expected = rest.map_or(length, |rest| from + rest);
                            assert_eq!(
                                scan(&text, from),
                                expected,
                                "{byte:#x} at {at} of {length} from {from}"
                            );
                        }
                    }
                }
                text[at] = usual;
            }
        }
    }
}

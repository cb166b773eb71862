//! `/large`: a body of any size up to 1 GiB in which every byte is predictable, with ranges.
//!
//! The body is a sequence of lines of 64 bytes; each begins with its own offset in hexadecimal. So a
//! reader sees at once if a part was lost, doubled or moved on the way.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{Stream, stream};

/// The length of a line, the line feed included.
const LINE: u64 = 64;

/// The bytes that are made at a time: enough to be cheap, but few enough to be held in memory for a slow reader.
const CHUNK: u64 = 64 * 1024;

/// The rest of each line after the 16 digits of the offset.
const REST: &[u8; 48] = b" foregate counts every byte: 0123456789 abcdef.\n";

/// The part of a body of `length` bytes that a `Range` field requests (RFC 9110, section 14).
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// The whole body, with status 200: the request has no range, several ranges, another unit, or a field that cannot be
    /// parsed.
    Whole,
    /// From the first to the last byte, both included.
    Part {
        /// Offset of the first byte.
        first: u64,
        /// Offset of the last byte.
        last: u64,
    },
    /// A range that lies outside of the body: 416.
    Unsatisfiable,
}

/// Reads a `Range` field for a body of `length` bytes.
pub(crate) fn select(range: Option<&str>, length: u64) -> Selection {
    let Some((first, last)) =
        range.and_then(|range| range.strip_prefix("bytes=")).and_then(|set| set.trim().split_once('-'))
    else {
        return Selection::Whole;
    };
    let (Ok(first), Ok(last)) = (position(first), position(last)) else {
        return Selection::Whole;
    };
    match (first, last) {
        (None, None) => Selection::Whole,
        (Some(first), Some(last)) if last < first => Selection::Whole,
        (Some(first), _) if first >= length => Selection::Unsatisfiable,
        (Some(first), last) => Selection::Part { first, last: last.unwrap_or(u64::MAX).min(length - 1) },
        (None, Some(suffix)) if suffix == 0 || length == 0 => Selection::Unsatisfiable,
        (None, Some(suffix)) => Selection::Part { first: length.saturating_sub(suffix), last: length - 1 },
    }
}

/// Parses one side of a range: nothing, or digits only. `parse` alone would also accept a sign.
fn position(text: &str) -> Result<Option<u64>, ()> {
    if text.is_empty() {
        return Ok(None);
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(());
    }
    text.parse().map(Some).map_err(|_| ())
}

/// The bytes from `start` up to `end`, made as the reader asks for them.
pub(crate) fn bytes(start: u64, end: u64) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(start, move |from| async move {
        let to = end.min(from.saturating_add(CHUNK));
        (from < to).then(|| (Ok(lines(from, to)), to))
    })
}

fn lines(from: u64, to: u64) -> Bytes {
    let skipped = from % LINE;
    let first = from - skipped;
    let size = usize::try_from(to - first).expect("a chunk and a line fit into memory");
    let line = usize::try_from(LINE).expect("64 fits");
    let mut out = Vec::with_capacity(size + line);
    let mut offset = first;
    while out.len() < size {
        for shift in (0..16).rev() {
            let digit = (offset >> (shift * 4)) & 0xf;
            out.push(b"0123456789abcdef"[usize::try_from(digit).expect("four bits fit")]);
        }
        out.extend_from_slice(REST);
        offset += LINE;
    }
    let skipped = usize::try_from(skipped).expect("less than a line");
    Bytes::from(out).slice(skipped..size)
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    async fn collect(start: u64, end: u64) -> Vec<u8> {
        bytes(start, end)
            .fold(Vec::new(), |mut all, part| async move {
                all.extend_from_slice(&part.expect("infallible"));
                all
            })
            .await
    }

    #[tokio::test]
    async fn every_part_is_the_same_part_of_the_whole() {
        let end = 2 * CHUNK + 17;
        let whole = collect(0, end).await;
        assert_eq!(whole.len() as u64, end);
        assert!(whole.starts_with(b"0000000000000000 foregate"));
        assert_eq!(&whole[128..144], b"0000000000000080");
        for (from, to) in [(0, 0), (0, 1), (63, 65), (100, CHUNK + 100), (CHUNK, end)] {
            let (start, stop) = (from as usize, to as usize);
            assert_eq!(collect(from, to).await, &whole[start..stop], "{from} to {to}");
        }
    }

    #[test]
    fn ranges() {
        use Selection::{Part, Unsatisfiable, Whole};
        let part = |first, last| Part { first, last };
        for (range, expected) in [
            ("bytes=0-0", part(0, 0)),
            ("bytes=10-", part(10, 99)),
            ("bytes=10-1000", part(10, 99)),
            ("bytes=-10", part(90, 99)),
            ("bytes=-1000", part(0, 99)),
            ("bytes=100-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=9-8", Whole),
            ("bytes=0-1,3-4", Whole),
            ("bytes=+1-2", Whole),
            ("bytes=99999999999999999999-", Whole),
            ("bytes=-", Whole),
            ("lines=0-1", Whole),
        ] {
            assert_eq!(select(Some(range), 100), expected, "{range}");
        }
        assert_eq!(select(None, 100), Whole);
        assert_eq!(select(Some("bytes=0-0"), 0), Unsatisfiable);
        assert_eq!(select(Some("bytes=-5"), 0), Unsatisfiable);
    }
}

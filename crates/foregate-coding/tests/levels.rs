//! The effect of levels: on real text, the output of a higher one is never much larger.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::path::Path;

use foregate_coding::{BROTLI_ENCODER_MEMORY, ContentCoding, DEFLATE_MEMORY, ZSTD_ENCODER_MEMORY, encoder};
use foregate_module::Chain;

/// The sources of this repository, up to so many bytes.
fn sources(length: usize) -> Vec<u8> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()];
    let mut text = Vec::new();
    while let Some(folder) = folders.pop()
        && text.len() < length
    {
        let mut entries: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for entry in entries {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                text.extend(std::fs::read(entry).unwrap());
            }
        }
    }
    text.truncate(length);
    text
}

/// How long a body becomes, and the most that is held meanwhile.
fn encoded(coding: ContentCoding, level: u32, body: &[u8], is_known: bool) -> (usize, usize) {
    let length = is_known.then_some(body.len() as u64);
    let mut chain = Chain::new(vec![encoder("encode", coding, level, length)]);
    let (mut out, mut held) = (Vec::new(), 0);
    for piece in body.chunks(Chain::PIECE) {
        chain.write(piece, &mut out).unwrap();
        held = held.max(chain.held());
    }
    assert!(chain.end(&mut out).unwrap().bailed.is_none());
    (out.len(), held)
}

#[test]
fn a_higher_level_is_not_larger_and_memory_is_bounded() {
    let text = sources(1_200_000);
    assert_eq!(text.len(), 1_200_000);
    for coding in ContentCoding::ALL {
        let bound = match coding {
            ContentCoding::Gzip | ContentCoding::Deflate => DEFLATE_MEMORY,
            ContentCoding::Brotli => BROTLI_ENCODER_MEMORY,
            ContentCoding::Zstd => ZSTD_ENCODER_MEMORY,
        };
        for length in [5_000, 60_000, 300_000, text.len()] {
            for is_known in [true, false] {
                if !is_known && length == text.len() {
                    // Gathering makes no difference to it.
                    continue;
                }
                let (least, most) = coding.levels();
                let mut smallest = usize::MAX;
                for level in least..=most {
                    let (bytes, held) = encoded(coding, level, &text[..length], is_known);
                    let what =
                        format!("{coding:?} {level} of {length}, {is_known}: {bytes} bytes, {held} held");
                    assert!(bytes <= smallest.saturating_add(smallest / 50), "{what}, {smallest} below");
                    assert!(held <= bound, "{what}");
                    smallest = smallest.min(bytes);
                }
            }
        }
    }
}

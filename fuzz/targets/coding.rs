//! Invariants for any body with a content coding. The body of a fuzz target, also run over its corpus by
//! `cargo test`.
//!
//! The first byte of an input chooses coding, splits and level, the rest is the body.

use foregate_module::{Bail, Chain, Filtered};
use foregate_modules::coding::{ContentCoding, Limits, decoder, encoder};

/// The most that is decoded, bytes: enough for windows to wrap, not enough to take long.
const TOTAL: u64 = 1 << 20;
/// A limit that more bodies exceed.
const LESS: u64 = 4096;
/// The largest output at once, bytes: that of a decoder, and a piece.
const AT_ONCE: usize = 68 * 1024;

fn through(filter: Filtered, body: &[u8], stride: usize) -> Result<Vec<u8>, Bail> {
    let mut chain = Chain::new(vec![filter]);
    let mut out = Vec::new();
    let bail = |(bail, _)| bail;
    for piece in body.chunks(stride) {
        let mut before = out.len();
        chain.write(piece, &mut out).map_err(bail)?;
        while chain.is_pending() {
            assert!(out.len() - before <= AT_ONCE);
            before = out.len();
            chain.resume(&mut out).map_err(bail)?;
        }
    }
    let passed = chain.end(&mut out).map_err(bail)?;
    assert_eq!(passed.bailed, None, "a codec keeps to its budget");
    Ok(out)
}

/// Decoding ends, within its limits, with the same bytes for every split, and with those of larger limits;
/// re-encoded output is decoded to the same.
pub(crate) fn content_coding(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else { return };
    let coding = ContentCoding::ALL[usize::from(choice & 3)];
    let stride = [Chain::PIECE, 1, 3, 17][usize::from(choice >> 2 & 3)];
    let limits = Limits { total: TOTAL, ratio: u64::MAX, free: 0 };

    let whole = through(decoder("decode", coding, limits), body, Chain::PIECE);
    let split = through(decoder("decode", coding, limits), body, stride);
    let limited = through(decoder("decode", coding, Limits { total: LESS, ..limits }), body, stride);
    match &whole {
        Ok(whole) if whole.len() as u64 > LESS => assert_eq!(limited, Err(Bail::TooLarge)),
        Ok(whole) => assert!(limited.as_ref() == Ok(whole), "a limit that is not reached"),
        Err(_) => assert!(limited.is_err()),
    }
    match (whole, split) {
        (Ok(whole), Ok(split)) => {
            assert!(whole == split, "split into pieces of {stride}");
            assert!(whole.len() as u64 <= TOTAL);
            let level = u32::from(choice >> 4);
            let length = (choice & 1 == 0).then_some(body.len() as u64);
            let encoded = through(encoder("encode", coding, level, length), &whole, stride.max(3))
                .expect("any bytes can be encoded");
            let again = through(decoder("decode", coding, limits), &encoded, Chain::PIECE);
            assert!(again == Ok(whole), "encoded again at level {level}");
        }
        (Err(Bail::Break | Bail::TooLarge), Err(Bail::Break | Bail::TooLarge)) => {}
        (whole, split) => {
            panic!(
                "in one piece: {:?}, split: {:?}",
                whole.map(|body| body.len()),
                split.map(|body| body.len())
            )
        }
    }
}

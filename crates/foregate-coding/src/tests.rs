use alloc::vec;
use alloc::vec::Vec;

use brotli::enc::BrotliEncoderParams;
use foregate_module::{Bail, BodyFilter, Chain, Filtered, Sink};
use proptest::prelude::*;

use super::ContentCoding::{self, Brotli, Deflate, Gzip, Zstd};
use super::{Limits, Start, coding_of, decoded, decoder, encoder, response_decoder, start};

/// The output of a filter for pieces, or its error.
fn through(filter: Filtered, pieces: &[&[u8]]) -> Result<Vec<u8>, Bail> {
    let mut chain = Chain::new(vec![filter]);
    let mut out = Vec::new();
    let taken = (|| {
        for piece in pieces {
            chain.write(piece, &mut out)?;
            while chain.is_pending() {
                let before = out.len();
                chain.resume(&mut out)?;
                assert!(out.len() - before <= 68 * 1024, "{} bytes at once", out.len() - before);
            }
        }
        chain.end(&mut out)
    })();
    match taken {
        Ok(passed) => {
            assert_eq!(passed.bailed, None, "the budget was exceeded");
            Ok(out)
        }
        Err((bail, _)) => Err(bail),
    }
}

fn decode_with(coding: ContentCoding, limits: Limits, body: &[u8]) -> Result<Vec<u8>, Bail> {
    let pieces: Vec<_> = body.chunks(Chain::PIECE).collect();
    through(decoder("decode", coding, limits), &pieces)
}

fn decode(coding: ContentCoding, body: &[u8]) -> Result<Vec<u8>, Bail> {
    decode_with(coding, Limits::default(), body)
}

fn encode(coding: ContentCoding, level: u32, body: &[u8]) -> Vec<u8> {
    let pieces: Vec<_> = body.chunks(Chain::PIECE).collect();
    through(encoder("encode", coding, level, None), &pieces).unwrap()
}

/// Text that repeats itself, but not too much.
fn text(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let words: [&[u8]; 8] = [b"proxy", b"edge", b" ", b" ", b"\n", b"request", b"answer", b"field"];
    let mut text = Vec::new();
    while text.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.extend_from_slice(words[(state >> 29) as usize]);
        text.push(b'a' + (state >> 24) as u8 % 26);
    }
    text.truncate(length);
    text
}

const HELLO: &[u8] = b"hello, hello, hello";

/// Made by other programs, or by hand.
const FOREIGN: [(ContentCoding, &[u8]); 5] = [
    (
        Gzip,
        b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\xcb\x48\xcd\xc9\xc9\xd7\x51\xc8\x40\xa2\0\x9f\xa1\xca\x09\x13\0\0\0",
    ),
    (Deflate, b"\x78\x9c\xcb\x48\xcd\xc9\xc9\xd7\x51\xc8\x40\xa2\0\x44\x28\x06\xd5"),
    (Deflate, b"\xcb\x48\xcd\xc9\xc9\xd7\x51\xc8\x40\xa2\0"),
    // A stored metablock with a window of 64 KiB, and the empty last one.
    (Brotli, b"\x20\x01\x10hello, hello, hello\x03"),
    // A raw block, in a frame of one segment.
    (Zstd, b"\x28\xb5\x2f\xfd\x20\x13\x99\0\0hello, hello, hello"),
];

#[test]
fn bodies_of_other_programs_are_decoded_wherever_they_are_split() {
    for (coding, body) in FOREIGN {
        assert_eq!(decode(coding, body).as_deref(), Ok(HELLO), "{coding:?}");
        for at in 0..=body.len() {
            let (head, tail) = body.split_at(at);
            let split = through(decoder("decode", coding, Limits::default()), &[head, tail]);
            assert_eq!(split.as_deref(), Ok(HELLO), "{coding:?}, split at {at}");
        }
    }
}

#[test]
fn a_body_that_ends_early_is_broken_off() {
    for (coding, body) in FOREIGN {
        for end in 1..body.len() {
            assert_eq!(decode(coding, &body[..end]), Err(Bail::Break), "{coding:?} up to {end}");
        }
    }
}

#[test]
fn a_body_that_goes_on_after_its_end_is_broken_off() {
    for (coding, body) in FOREIGN {
        for garbage in [&b"\0"[..], b"x", b"garbage that is longer than any head of a member"] {
            let body = [body, garbage].concat();
            assert_eq!(decode(coding, &body), Err(Bail::Break), "{coding:?} and {garbage:?}");
        }
    }
}

#[test]
fn of_responses_what_stands_behind_the_end_is_dropped() {
    let filter = |coding| response_decoder("decode", coding, Limits::default());
    for (coding, body) in FOREIGN {
        for garbage in [&b"\0"[..], b"x", b"\r\n\r\n", &[0; 100_000]] {
            let all = [body, garbage].concat();
            for at in [0, body.len() - 1, body.len(), all.len() - 1] {
                let (head, tail) = all.split_at(at);
                assert_eq!(through(filter(coding), &[head, tail]).as_deref(), Ok(HELLO), "{coding:?} {at}");
            }
            let looked = start(coding, &all, true, 1000);
            assert_eq!((&looked.bytes[..], looked.whole, looked.broken), (HELLO, true, false), "{coding:?}");
        }
        for end in 1..body.len() {
            assert_eq!(through(filter(coding), &[&body[..end]]), Err(Bail::Break), "{coding:?} up to {end}");
        }
    }
    // Another part that is none, as far as can be told.
    let member = [FOREIGN[0].1, b"\x1f\x8bx"].concat();
    assert_eq!(through(filter(Gzip), &[&member]), Err(Bail::Break));
    let both = [FOREIGN[0].1, FOREIGN[0].1, b"\0"].concat();
    assert_eq!(through(filter(Gzip), &[&both]).as_deref(), Ok(&HELLO.repeat(2)[..]));
}

#[test]
fn an_empty_body_is_taken_for_what_it_is() {
    for coding in ContentCoding::ALL {
        assert_eq!(decode(coding, b"").as_deref(), Ok(&b""[..]), "{coding:?}");
        let encoded = encode(coding, 1, b"");
        assert!(!encoded.is_empty(), "{coding:?}");
        assert_eq!(decode(coding, &encoded).as_deref(), Ok(&b""[..]), "{coding:?}");
    }
}

#[test]
fn gzip_members_and_zstd_frames_may_follow_each_other() {
    for coding in [Gzip, Zstd] {
        let (first, second) = (encode(coding, 1, HELLO), encode(coding, 3, &text(100_000)));
        let both = [&first[..], &encode(coding, 1, b""), &second, &first].concat();
        let expected = [HELLO, &text(100_000), HELLO].concat();
        assert_eq!(decode(coding, &both).as_deref(), Ok(&expected[..]), "{coding:?}");
        let half = [&first[..], &first[..first.len() - 1]].concat();
        assert_eq!(decode(coding, &half), Err(Bail::Break), "{coding:?}");
    }
    // A frame to skip, and then one that is not.
    let skipped = [b"\x50\x2a\x4d\x18\x03\0\0\0abc", FOREIGN[4].1].concat();
    assert_eq!(decode(Zstd, &skipped).as_deref(), Ok(HELLO));
}

#[test]
fn a_checksum_that_does_not_fit_breaks_the_body_off() {
    for (coding, body) in FOREIGN.iter().take(2) {
        let mut body = body.to_vec();
        let at = body.len() - if *coding == Gzip { 8 } else { 1 };
        body[at] ^= 1;
        assert_eq!(decode(*coding, &body), Err(Bail::Break), "{coding:?}");
    }
}

#[test]
fn little_that_becomes_much_is_broken_off_and_never_gathered() {
    let zeros = vec![0; 4 << 20];
    for coding in ContentCoding::ALL {
        let bomb = encode(coding, 5, &zeros);
        assert!(bomb.len() < zeros.len() / 400, "{coding:?}: {}", bomb.len());
        assert_eq!(decode(coding, &bomb), Err(Bail::TooLarge), "{coding:?}");
        let lenient = Limits { ratio: u64::MAX, ..Limits::default() };
        assert!(decode_with(coding, lenient, &bomb) == Ok(zeros.clone()), "{coding:?}");
        let short = Limits { total: (4 << 20) - 1, ..lenient };
        assert_eq!(decode_with(coding, short, &bomb), Err(Bail::TooLarge), "{coding:?}");
    }
}

/// The output of a body of any size stays within the free bytes, or within the ratio, which counts all input.
#[test]
fn bodies_are_bounded_by_what_has_come_of_them() {
    let limits = Limits { ratio: 100, free: 4096, ..Limits::default() };
    // Zeros, then incompressible bytes.
    let mut noise = 1_u32;
    let mut body = vec![0; 100_000];
    body.extend(
        core::iter::repeat_with(|| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        })
        .take(4000),
    );
    for coding in ContentCoding::ALL {
        let decoded = |length| decode_with(coding, limits, &encode(coding, 5, &vec![0; length]));
        assert!(decoded(4096).is_ok(), "{coding:?}");
        assert_eq!(decoded(300_000), Err(Bail::TooLarge), "{coding:?}");
        assert!(decode_with(coding, limits, &encode(coding, 5, &body)) == Ok(body.clone()), "{coding:?}");
    }
}

#[test]
fn windows_beyond_the_bounds_are_refused() {
    let frame = |window: u8| [b"\x28\xb5\x2f\xfd\0", &[window][..], b"\x09\0\0a"].concat();
    assert_eq!(decode(Zstd, &frame(13 << 3)).as_deref(), Ok(&b"a"[..]));
    assert_eq!(decode(Zstd, &frame(13 << 3 | 1)), Err(Bail::Break));
    assert_eq!(decode(Zstd, &frame(14 << 3)), Err(Bail::Break));
    let brotli = |lgwin: i32, large_window: bool| {
        let params =
            BrotliEncoderParams { quality: 1, lgwin, large_window, ..BrotliEncoderParams::default() };
        let mut encoded = Vec::new();
        brotli::BrotliCompress(&mut &HELLO[..], &mut encoded, &params).unwrap();
        encoded
    };
    assert_eq!(decode(Brotli, &brotli(24, false)).as_deref(), Ok(HELLO));
    assert_eq!(decode(Brotli, &brotli(26, true)), Err(Bail::Break));
}

#[test]
fn preset_dictionaries_are_refused() {
    // The head asks for a dictionary; read as the raw format, the body is invalid as well.
    assert_eq!(decode(Deflate, b"\x78\xbb\x01\x02\x03\x04\xcb\x48"), Err(Bail::Break));
    assert_eq!(decode(Zstd, b"\x28\xb5\x2f\xfd\x21\x07\x13\x99\0\0hello, hello, hello"), Err(Bail::Break));
}

#[test]
fn what_was_written_before_a_flush_can_be_read_after_it() {
    for coding in ContentCoding::ALL {
        let mut chain = Chain::new(vec![encoder("encode", coding, 4, None)]);
        let mut reader = Chain::new(vec![decoder("decode", coding, Limits::default())]);
        let mut plain = Vec::new();
        let mut expected = Vec::new();
        for event in [&b"data: 1\n\n"[..], b"data: 2\n\n", &text(10_000), b"data: 4\n\n"] {
            let mut wire = Vec::new();
            chain.write(event, &mut wire).unwrap();
            chain.flush(&mut wire).unwrap();
            reader.write(&wire, &mut plain).unwrap();
            expected.extend_from_slice(event);
            assert!(plain == expected, "{coding:?}: {} of {}", plain.len(), expected.len());
            let mut again = Vec::new();
            chain.flush(&mut again).unwrap();
            assert_eq!(again, b"", "{coding:?}: nothing came since the last flush");
        }
        let mut wire = Vec::new();
        chain.end(&mut wire).unwrap();
        reader.write(&wire, &mut plain).unwrap();
        reader.end(&mut plain).unwrap();
        assert!(plain == expected, "{coding:?}");
    }
}

#[test]
fn every_level_stays_within_its_budget_and_makes_text_shorter() {
    let body = text(600_000);
    for coding in ContentCoding::ALL {
        let (least, most) = coding.levels();
        for level in least..=most {
            let encoded = encode(coding, level, &body);
            assert!(encoded.len() < body.len() * 3 / 4, "{coding:?} {level}: {}", encoded.len());
            assert!(decode(coding, &encoded).as_ref() == Ok(&body), "{coding:?} {level}");
        }
    }
}

#[test]
fn a_length_that_is_wrong_does_no_harm() {
    let body = text(300_000);
    for coding in ContentCoding::ALL {
        for length in [0, 1, 700, 100_000, 1 << 40, u64::MAX] {
            let encoded = through(encoder("encode", coding, 3, Some(length)), &[&body]).unwrap();
            assert!(decode(coding, &encoded).as_ref() == Ok(&body), "{coding:?} with length {length}");
        }
    }
}

/// Makes letters upper case. Holds a letter back until the next one arrives.
#[derive(Default)]
struct Upper(Option<u8>);

impl BodyFilter for Upper {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        for byte in piece {
            if let Some(held) = self.0.replace(byte.to_ascii_uppercase()) {
                out.write(&[held]);
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        if let Some(held) = self.0.take() {
            out.write(&[held]);
        }
        Ok(())
    }

    fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        self.end(out)
    }

    fn held(&self) -> usize {
        usize::from(self.0.is_some())
    }
}

#[test]
fn a_filter_behind_a_decoder_sees_the_plain_body() {
    let limits = Limits::default();
    for (coding, body) in FOREIGN {
        let filter =
            decoded(Filtered::new("upper", Upper::default()), Some(coding.token().as_bytes()), limits);
        assert_eq!(
            through(filter.unwrap(), &[body]).as_deref(),
            Ok(&b"HELLO, HELLO, HELLO"[..]),
            "{coding:?}"
        );
    }
    for plain in [None, Some(&b""[..]), Some(b"identity")] {
        let filter = decoded(Filtered::new("upper", Upper::default()), plain, limits).unwrap();
        assert_eq!(through(filter, &[b"abc"]).as_deref(), Ok(&b"ABC"[..]));
    }
    for unknown in [&b"aes128gcm"[..], b"gzip, gzip", b"compress", b"gzip;q=1"] {
        assert!(decoded(Filtered::new("upper", Upper::default()), Some(unknown), limits).is_none());
    }
}

#[test]
fn much_behind_a_decoder_comes_a_little_at_a_time() {
    let body = text(1 << 20);
    let encoded = encode(Zstd, 9, &body);
    let filter = decoded(Filtered::new("upper", Upper::default()), Some(b"zstd"), Limits::default()).unwrap();
    assert!(through(filter, &[&encoded]) == Ok(body.to_ascii_uppercase()));
}

#[test]
fn names_are_known_in_any_case() {
    assert_eq!(coding_of(b"GZIP"), Some(Gzip));
    assert_eq!(coding_of(b" x-gzip\t"), Some(Gzip));
    assert_eq!(coding_of(b"Br"), Some(Brotli));
    assert_eq!(coding_of(b"zstd"), Some(Zstd));
    assert_eq!(coding_of(b"deflate"), Some(Deflate));
    assert_eq!(coding_of(b"identity"), None);
    assert_eq!(coding_of(b""), None);
}

fn any_coding() -> impl Strategy<Value = ContentCoding> {
    prop::sample::select(&ContentCoding::ALL[..])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_is_decoded(
        coding in any_coding(),
        level in 0..10_u32,
        length in prop::option::of(0..70_000_u64),
        pieces in prop::collection::vec((prop::collection::vec(prop::sample::select(&b"abcd\0\xff"[..]), 0..3000), any::<bool>()), 0..6),
        step in 1..5000_usize,
    ) {
        let mut chain = Chain::new(vec![encoder("encode", coding, level, length)]);
        let (mut encoded, mut body) = (Vec::new(), Vec::new());
        for (piece, flush) in &pieces {
            chain.write(piece, &mut encoded).unwrap();
            body.extend_from_slice(piece);
            if *flush {
                chain.flush(&mut encoded).unwrap();
            }
        }
        chain.end(&mut encoded).unwrap();
        let pieces: Vec<_> = encoded.chunks(step).collect();
        let plain = through(decoder("decode", coding, Limits::default()), &pieces);
        prop_assert!(plain == Ok(body));
    }

    #[test]
    fn nothing_makes_a_decoder_panic(
        coding in any_coding(),
        mut body in prop::collection::vec(any::<u8>(), 0..200),
        source in 0..5_usize,
        at in any::<prop::sample::Index>(),
    ) {
        // Half of the time, a good body with noise inside.
        if let Some((_, good)) = FOREIGN.get(source) {
            let at = at.index(good.len());
            body.truncate(3);
            body.splice(0..0, good[..at].iter().copied());
            body.extend_from_slice(&good[at..]);
        }
        let _ = decode(coding, &body);
    }
}

#[test]
fn what_codecs_hold_is_told_before_and_while_they_do() {
    let body = text(300_000);
    for coding in ContentCoding::ALL {
        let (least, most) = coding.levels();
        for level in [least, coding.default_level(), most] {
            let mut encoding = Chain::new(vec![encoder("encode", coding, level, None)]);
            let (expected, mut encoded) = (encoding.held(), Vec::new());
            for piece in body.chunks(Chain::PIECE) {
                encoding.write(piece, &mut encoded).unwrap();
            }
            // The reservation is at least the need, and at most a small multiple.
            let held = encoding.held();
            assert!(held > 10_000 && held <= expected * 5 / 4, "{coding:?} {level}: {held} of {expected}");
            encoding.end(&mut encoded).unwrap();
            let mut decoding = Chain::new(vec![decoder("decode", coding, Limits::default())]);
            assert_eq!(decoding.held(), 0, "a decoder that waits for its body holds nothing");
            let mut plain = Vec::new();
            for piece in encoded.chunks(Chain::PIECE) {
                decoding.write(piece, &mut plain).unwrap();
            }
            let held = decoding.held();
            assert!((30_000..5_000_000).contains(&held), "{coding:?} {level}: {held} to decode");
        }
    }
}

#[test]
fn a_decoder_before_a_filter_is_counted_with_it() {
    let plain = || Filtered::new("upper", Upper(None));
    let mut chain = Chain::new(vec![decoded(plain(), Some(b"gzip"), Limits::default()).unwrap()]);
    chain.write(&encode(Gzip, 1, HELLO), &mut Vec::new()).unwrap();
    assert!(chain.held() > 30_000, "{}", chain.held());
}

#[test]
fn the_start_of_a_body_is_decoded_for_looking() {
    let text = b"some text, again and again; ".repeat(20_000);
    for coding in ContentCoding::ALL {
        let coded = through(encoder("e", coding, 3, None), &[&text]).unwrap();
        let all = start(coding, &coded, true, 1 << 20);
        assert_eq!((all.bytes.len(), all.whole, all.broken), (text.len(), true, false));
        assert_eq!(all.bytes, text);
        let some = start(coding, &coded, true, 1000);
        assert_eq!((&*some.bytes, some.whole, some.broken), (&text[..1000], false, false), "{coding:?}");
        let exact = start(coding, &coded, true, text.len());
        assert!(exact.whole && exact.bytes == text);
        // A part; its end is not that of the body.
        let half = start(coding, &coded[..coded.len() / 2], false, 1 << 20);
        assert!(!half.whole && !half.broken && text.starts_with(&half.bytes));
        assert!(start(coding, &coded[..coded.len() / 2], true, 1 << 20).broken);
        assert!(start(coding, b"neither this nor that", true, 1 << 20).broken);
        assert_eq!(start(coding, b"", true, 10), Start { bytes: vec![], whole: true, broken: false });
    }
}

#[test]
fn much_of_little_is_not_decoded() {
    for coding in ContentCoding::ALL {
        let coded = through(encoder("e", coding, 3, None), &[&vec![0; 32 << 20]]).unwrap();
        let some = start(coding, &coded, true, 10_000);
        assert_eq!((some.bytes.len(), some.whole), (10_000, false));
        assert!(some.bytes.capacity() <= 256 << 10, "{}", some.bytes.capacity());
    }
}

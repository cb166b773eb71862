//! Bodies: data, framing, refusals.

use foregate_wire::BodyError as E;
use foregate_wire::{BodyDecoder, BodyLength, DecodeProgress, HeadLimits, HeaderList, MAX_CHUNK_OVERHEAD};

use super::lines;

#[derive(Debug, PartialEq)]
struct Body {
    data: Vec<u8>,
    trailers: Vec<String>,
    consumed: usize,
    done: bool,
}

fn decode_steps(limits: &HeadLimits, input: &[u8], stride: usize) -> Result<Body, E> {
    let mut decoder = BodyDecoder::new(BodyLength::Chunked, limits);
    let mut trailers = HeaderList::new();
    let mut body = Body { data: Vec::new(), trailers: Vec::new(), consumed: 0, done: false };
    let mut end = 0;
    while end < input.len() && !body.done {
        end = (end + stride).min(input.len());
        while !body.done && body.consumed < end {
            let unread = &input[body.consumed..end];
            let decoded = decoder.decode(unread, &mut trailers)?;
            assert!(decoded.consumed > 0, "stuck");
            body.data.extend_from_slice(&unread[decoded.data]);
            body.consumed += decoded.consumed;
            body.done = decoded.done;
        }
    }
    body.trailers = lines(&trailers);
    Ok(body)
}

/// Decodes a chunked body whole, byte by byte and in other strides.
fn decode(input: &[u8]) -> Result<Body, E> {
    let limits = HeadLimits { bytes: 200, line: 100, fields: 3 };
    let whole = decode_steps(&limits, input, input.len().max(1));
    for stride in [1, 2, 3, 7] {
        assert_eq!(decode_steps(&limits, input, stride), whole, "in steps of {stride}");
    }
    whole
}

fn refused(input: &[u8], error: E) {
    assert_eq!(decode(input), Err(error), "{}", input.escape_ascii());
}

#[test]
fn chunks() {
    let body = decode(b"5\r\nhello\r\n00a\r\n, big worl\r\n2;x=\"y\"\r\nd!\r\n0\r\n\r\nGET /").unwrap();
    assert_eq!(body.data, b"hello, big world!");
    assert!(body.done);
    assert_eq!(body.consumed, 45);
    assert_eq!(decode(b"0\r\n\r\n").unwrap().data, b"");
    assert_eq!(decode(b"000;a\r\n\r\n").unwrap().consumed, 9);
    assert!(!decode(b"5\r\nhello\r\n0\r\n").unwrap().done);
    assert!(!decode(b"7fffffffffffffff\r\nx").unwrap().done);
    assert_eq!(decode(b"F\r\n0123456789abcde\r\n0\r\n\r\n").unwrap().data.len(), 15);
}

#[test]
fn a_call_returns_one_run_of_data_and_the_framing_around_it() {
    let mut decoder = BodyDecoder::new(BodyLength::Chunked, &HeadLimits::default());
    let mut trailers = HeaderList::new();
    let input = b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\nnext";
    let first = decoder.decode(input, &mut trailers).unwrap();
    assert_eq!(first, DecodeProgress { consumed: 13, data: 3..8, done: false });
    let second = decoder.decode(&input[13..], &mut trailers).unwrap();
    assert_eq!(second, DecodeProgress { consumed: 8, data: 0..1, done: true });
    let third = decoder.decode(&input[21..], &mut trailers).unwrap();
    assert_eq!(third, DecodeProgress { consumed: 0, data: 0..0, done: true });
}

#[test]
fn chunk_sizes_that_are_refused() {
    for size in ["", "x", "0x5", "+5", "-5", " 5", "5x", "5_", "\u{ff}", "\0", "5\t5", "5\x0b", "0x", "00x"] {
        let input = format!("{size}\r\nhello\r\n0\r\n\r\n");
        let error = decode(input.as_bytes()).unwrap_err();
        assert!(matches!(error, E::BadChunkSize | E::BadExtension), "{size:?}: {error:?}");
    }
    refused(b"8000000000000000\r\n", E::ChunkSizeOverflow);
    refused(b"ffffffffffffffff\r\n", E::ChunkSizeOverflow);
    refused(b"10000000000000000\r\n", E::ChunkSizeOverflow);
    refused(b"100000000000000000000000000000005\r\n", E::ChunkSizeOverflow);
}

#[test]
fn line_ends_are_crlf() {
    refused(b"5\nhello\r\n0\r\n\r\n", E::MissingCrlf);
    refused(b"5\rhello\r\n0\r\n\r\n", E::MissingCrlf);
    refused(b"5\r\nhello\n0\r\n\r\n", E::MissingCrlf);
    refused(b"5\r\nhello\r0\r\n\r\n", E::MissingCrlf);
    refused(b"5\r\nhello!\r\n0\r\n\r\n", E::MissingCrlf);
    refused(b"5\r\nhello0\r\n\r\n", E::MissingCrlf);
    refused(b"0\n\r\n", E::MissingCrlf);
    refused(b"5;a\nhello", E::MissingCrlf);
    refused(b"0\r\n\n", E::BadTrailer);
    refused(b"0\r\n\rX\n", E::BadTrailer);
}

#[test]
fn extensions() {
    for extension in ["a", "a=b", "a=\"b;\\\" \t\u{e4}\"", " \t; \ta = b ; c", "a;b;c=d", "a=\"\"", "a =b"] {
        let extension = if extension.starts_with(' ') { extension.into() } else { format!(";{extension}") };
        let input = format!("5{extension}\r\nhello\r\n0{extension}\r\n\r\n");
        let body = decode(input.as_bytes()).unwrap_or_else(|error| panic!("{extension}: {error}"));
        assert_eq!((&body.data[..], body.done), (&b"hello"[..], true), "{extension}");
    }
    for extension in [
        ";",
        ";;a",
        ";=b",
        ";a=",
        ";a=b=c",
        ";a b",
        ";a=\"b",
        ";a=\"b\"c",
        ";a=\x01",
        ";a=\"\x01\"",
        ";a=\"\\\r\"",
        ";a=\"\n\"",
        ";a=\"\0\"",
        ";a\rb",
        " ",
        "\t",
        ";\u{e4}",
        ";a=b c",
        " a",
    ] {
        let input = format!("5{extension}\r\nhello\r\n0\r\n\r\n");
        let error = decode(input.as_bytes()).unwrap_err();
        assert!(matches!(error, E::BadExtension | E::MissingCrlf), "{extension:?}: {error:?}");
    }
}

#[test]
fn extensions_and_leading_zeros_have_one_budget() {
    let limits = HeadLimits::default();
    let budget = MAX_CHUNK_OVERHEAD as usize;
    let zeros = |count: usize| format!("{}5\r\nhello\r\n0\r\n\r\n", "0".repeat(count));
    assert!(decode_steps(&limits, zeros(budget).as_bytes(), 4096).unwrap().done);
    assert_eq!(decode_steps(&limits, zeros(budget + 1).as_bytes(), 4096), Err(E::TooMuchOverhead));
    let extension = |count: usize| format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(count - 1));
    assert!(decode_steps(&limits, extension(budget).as_bytes(), 4096).unwrap().done);
    assert_eq!(decode_steps(&limits, extension(budget + 1).as_bytes(), 4096), Err(E::TooMuchOverhead));
    // The budget is the body's, not the chunk's.
    let many = format!("{}0\r\n\r\n", "1;abc\r\nx\r\n".repeat(budget / 4 + 1));
    assert_eq!(decode_steps(&limits, many.as_bytes(), 4096), Err(E::TooMuchOverhead));
}

#[test]
fn trailers() {
    let body = decode(b"0\r\nX-Sum: 1\r\nx-empty:\r\n\r\nrest").unwrap();
    assert_eq!((body.trailers, body.consumed), (vec!["X-Sum: 1".into(), "x-empty: ".into()], 25));
    // Fields that affect framing, routing or the connection are dropped.
    let body = decode(b"0\r\nContent-Length: 5\r\nHOST: a\r\nA: b\r\n\r\n").unwrap();
    assert_eq!(body.trailers, ["A: b"]);
    for name in
        ["Transfer-Encoding", "Connection", "Authorization", "X-Forwarded-For", "Trailer", "Set-Cookie"]
    {
        let body = decode(format!("0\r\n{name}: chunked\r\n\r\n").as_bytes()).unwrap();
        assert!(body.trailers.is_empty(), "{name}");
    }
    refused(b"0\r\nA : b\r\n\r\n", E::BadTrailer);
    refused(b"0\r\nA: b\r\n c\r\n\r\n", E::BadTrailer);
    refused(b"0\r\nA: b\n\r\n", E::BadTrailer);
    refused(b"0\r\nA: b\rc\r\n\r\n", E::BadTrailer);
    refused(b"0\r\nA: \0\r\n\r\n", E::BadTrailer);
    refused(b"0\r\nGET / HTTP/1.1\r\n\r\n", E::BadTrailer);
    refused(b"0\r\na:b\r\na:b\r\na:b\r\na:b\r\n\r\n", E::TrailersTooLarge);
    refused(format!("0\r\na:{}\r\n\r\n", "b".repeat(99)).as_bytes(), E::TrailersTooLarge);
    assert!(decode(format!("0\r\na:{}\r\n\r\n", "b".repeat(98)).as_bytes()).unwrap().done);
    refused(
        format!("0\r\n{}\r\n", format!("a:{}\r\n", "b".repeat(96)).repeat(2)).as_bytes(),
        E::TrailersTooLarge,
    );
}

#[test]
fn fixed_and_until_close() {
    let limits = HeadLimits::default();
    let mut none = HeaderList::new();
    let mut fixed = BodyDecoder::new(BodyLength::Fixed(5), &limits);
    assert_eq!(fixed.decode(b"hel", &mut none), Ok(DecodeProgress { consumed: 3, data: 0..3, done: false }));
    assert_eq!(fixed.decode(b"", &mut none), Ok(DecodeProgress { consumed: 0, data: 0..0, done: false }));
    assert_eq!(fixed.finish_eof(), Err(E::UnexpectedEof));
    assert_eq!(fixed.decode(b"loGET", &mut none), Ok(DecodeProgress { consumed: 2, data: 0..2, done: true }));
    assert_eq!((fixed.is_done(), fixed.finish_eof()), (true, Ok(())));

    let mut close = BodyDecoder::new(BodyLength::UntilClose, &limits);
    assert_eq!(close.decode(b"abc", &mut none), Ok(DecodeProgress { consumed: 3, data: 0..3, done: false }));
    assert!(!close.is_done());
    assert_eq!((close.finish_eof(), close.is_done()), (Ok(()), true));

    for length in [BodyLength::Empty, BodyLength::Fixed(0)] {
        let mut empty = BodyDecoder::new(length, &limits);
        assert!(empty.is_done());
        assert_eq!(
            empty.decode(b"next", &mut none),
            Ok(DecodeProgress { consumed: 0, data: 0..0, done: true })
        );
    }
    let mut chunked = BodyDecoder::new(BodyLength::Chunked, &limits);
    assert_eq!(chunked.finish_eof(), Err(E::UnexpectedEof));
}

#[test]
fn an_error_stays() {
    let mut decoder = BodyDecoder::new(BodyLength::Chunked, &HeadLimits::default());
    let mut none = HeaderList::new();
    assert_eq!(decoder.decode(b"x", &mut none), Err(E::BadChunkSize));
    assert_eq!(decoder.decode(b"0\r\n\r\n", &mut none), Err(E::BadChunkSize));
    assert_eq!(decoder.finish_eof(), Err(E::BadChunkSize));
}

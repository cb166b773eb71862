//! Bytes of an origin in, bytes for `h2` out; and `h2` itself behind the gate.

use std::collections::VecDeque;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::transport::frames::{Frames, PREFACE, written as frame};

const FRAME: usize = 16 * 1024;
/// `:status 200`.
const OK: &[u8] = b"\x88";
/// `:status 304`.
const NOT_MODIFIED: &[u8] = b"\x8b";
/// `:status 103`.
const HINTS: &[u8] = b"\x08\x03103";
/// x: a
const TRAILER: &[u8] = b"\x00\x01x\x01a";
const WHOLE: u8 = flag::END_HEADERS | flag::END_STREAM;

fn headers(flags: u8, stream: u32, block: &[&[u8]]) -> Vec<u8> {
    frame(kind::HEADERS, flags, stream, &block.concat())
}

/// The frame that stands for a malformed one which has added nothing to the table.
fn substitute(flags: u8, stream: u32) -> Vec<u8> {
    headers(flags, stream, &[b"\x0f\x2a\x01x"])
}

/// A gate behind which requests have been sent on these streams.
fn gate(streams: &[u32], limits: HeadLimits) -> HeadGate {
    let mut gate = HeadGate::new(limits, FRAME);
    assert!(streams.iter().all(|stream| gate.headers_were_sent(*stream)));
    gate
}

/// The output, the reason for which the connection ends, and the stream.
type Answered = (Vec<u8>, Option<Reason>, Option<u32>);

/// Passes bytes in pieces, the first of which has `first` bytes and the others `others`.
fn passed(streams: &[u32], bytes: &[u8], first: usize, others: usize) -> Answered {
    let mut gate = gate(streams, HeadLimits::default());
    let mut out = Vec::new();
    let (first, rest) = bytes.split_at(first.min(bytes.len()));
    for piece in std::iter::once(first).chain(rest.chunks(others)) {
        let count = gate.pass(piece);
        out.extend_from_slice(&piece[..count]);
        let ready = gate.ready();
        out.extend_from_slice(ready.unread());
        ready.consume(ready.len());
    }
    (out, gate.fault(), gate.culprit())
}

/// The output of a gate for frames after requests on these streams; it must not depend on the
/// split.
fn answered(streams: &[u32], frames: &[&[u8]]) -> Answered {
    let bytes = frames.concat();
    let whole = passed(streams, &bytes, bytes.len(), 1);
    for first in 0..bytes.len() {
        assert_eq!(whole, passed(streams, &bytes, first, bytes.len()), "split at {first}");
    }
    for others in [1, 2, 7, 11] {
        assert_eq!(whole, passed(streams, &bytes, 0, others), "split into {others}");
    }
    whole
}

fn untouched(streams: &[u32], frames: &[&[u8]]) {
    assert_eq!(answered(streams, frames), (frames.concat(), None, None));
}

#[test]
fn well_formed_responses_pass_untouched() {
    let frames = [
        headers(flag::END_HEADERS, 5, &[HINTS, b"\x40\x03x-a\x01b"]),
        headers(flag::END_HEADERS, 5, &[OK, b"\xbe"]),
        headers(WHOLE, 1, &[OK]),
        frame(kind::PING, 0, 0, b"foregate"),
        frame(kind::WINDOW_UPDATE, 0, 3, b"\0\0\0\x01"),
        headers(flag::END_HEADERS, 3, &[OK]),
        frame(kind::DATA, 0, 3, b"body"),
        frame(kind::DATA, flag::END_STREAM, 3, b""),
        headers(WHOLE, 5, &[TRAILER]),
        // Padded, with a priority, in three frames.
        headers(flag::PADDED | flag::PRIORITY, 7, &[b"\x03\0\0\0\x01\x10", OK, b"\0\0\0"]),
        frame(kind::CONTINUATION, 0, 7, b""),
        frame(kind::CONTINUATION, flag::END_HEADERS, 7, b"\xbe"),
        frame(99, 0xff, 0, b"unknown"),
        frame(kind::GOAWAY, 0, 0, b"\0\0\0\x07\0\0\0\0"),
    ];
    let frames: Vec<_> = frames.iter().map(|frame| &frame[..]).collect();
    untouched(&[1, 3, 5, 7], &frames);
}

#[test]
fn empty_data_says_nothing_where_a_stream_may_have_it() {
    let empty = |stream| frame(kind::DATA, 0, stream, b"");
    let head = headers(flag::END_HEADERS, 1, &[OK]);
    let data = frame(kind::DATA, 0, 1, b"body");
    let padded = frame(kind::DATA, flag::PADDED, 1, b"\x02a\0\0");
    let end = frame(kind::DATA, flag::END_STREAM, 1, b"");
    let first = [&head[..], &empty(1), &data, &empty(1), &empty(1), &empty(2), &empty(3)].concat();
    let (out, fault, _) = answered(&[1], &[&first, &padded, &end, &empty(1)]);
    assert_eq!((out, fault), ([&head[..], &data, &empty(2), &empty(3), &padded, &end].concat(), None));
    let reset = frame(kind::RST_STREAM, 0, 1, &[0; 4]);
    assert_eq!(answered(&[1], &[&head, &reset, &empty(1)]).0, [&head[..], &reset].concat());
}

#[test]
fn padding_says_nothing_and_is_given_back() {
    let padding = |stream, length: u8| {
        frame(kind::DATA, flag::PADDED, stream, &[&[length][..], &vec![0; length.into()]].concat())
    };
    let heads = [1, 3, 5].map(|stream| headers(flag::END_HEADERS, stream, &[OK])).concat();
    let end = frame(kind::DATA, flag::END_STREAM | flag::PADDED, 3, b"\x01\0");
    let pads =
        [padding(1, 0), padding(1, 255), padding(3, 1), padding(7, 2), end.clone(), padding(5, 2)].concat();
    assert_eq!(answered(&[1, 3, 5], &[&heads, &pads]).0, [&heads[..], &padding(7, 2), &end].concat());
    let mut gate = gate(&[1, 3, 5], HeadLimits::default());
    gate.pass(&[heads, pads].concat());
    gate.stream_is_reset(5);
    gate.pass(&padding(5, 9));
    let mut out = Buffer::new();
    gate.give_back(&mut out);
    let window = |stream, bytes: u32| frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
    assert_eq!(out.unread(), [window(1, 257), window(0, 1 + 256 + 2 + 3 + 10)].concat());
    out.consume(out.len());
    gate.give_back(&mut out);
    assert!(out.is_empty());
    // More padding than the frame has is `h2`'s to judge.
    untouched(&[1], &[&headers(flag::END_HEADERS, 1, &[OK]), &frame(kind::DATA, flag::PADDED, 1, b"\x09\0")]);
}

#[test]
fn a_block_in_many_frames_goes_on_in_few() {
    let many = |count: usize, length: u8, size: usize| {
        let field = [b"\x00\x01x", &[length][..], &vec![b'a'; length.into()]].concat();
        let rest = field.repeat(count);
        let mut frames = headers(flag::END_STREAM, 1, &[OK]);
        let parts = rest.len().div_ceil(size);
        for (number, part) in rest.chunks(size).enumerate() {
            let last = if number + 1 == parts { flag::END_HEADERS } else { 0 };
            frames.extend(frame(kind::CONTINUATION, last, 1, part));
        }
        (frames, [OK, &rest].concat())
    };
    untouched(&[1], &[&many(4, 1, 5).0]);
    let (frames, block) = many(20, 1, 5);
    assert_eq!(answered(&[1], &[&frames]).0, headers(WHOLE, 1, &[&block]));
    let (frames, block) = many(480, 100, 2500);
    let (out, ..) = passed(&[1], &frames, frames.len(), 1);
    let parts: Vec<_> = block.chunks(FRAME).collect();
    let expected = [
        headers(flag::END_STREAM, 1, &[parts[0]]),
        frame(kind::CONTINUATION, 0, 1, parts[1]),
        frame(kind::CONTINUATION, 0, 1, parts[2]),
        frame(kind::CONTINUATION, flag::END_HEADERS, 1, parts[3]),
    ];
    assert!(out == expected.concat() && parts.len() == 4);
}

#[test]
fn malformed_responses_and_trailers_are_replaced() {
    let good = headers(WHOLE, 3, &[OK]);
    let request = b"\x82\x86\x84\x01\x01a";
    for block in
        [&[OK, b"\x04\x01/"][..], &[OK, b"\x00\x03X-A\x01b"], &[TRAILER], &[b"\x08\x0299"], &[request]]
    {
        let bad = headers(flag::END_HEADERS, 1, block);
        let expected = [&substitute(flag::END_HEADERS, 1)[..], &good].concat();
        assert_eq!(answered(&[1, 3], &[&bad, &good]), (expected, None, None), "{block:?}");
    }
    let head = headers(flag::END_HEADERS, 1, &[OK]);
    let bad = headers(WHOLE, 1, &[OK]);
    let expected = [&head[..], &substitute(WHOLE, 1), &good].concat();
    assert_eq!(answered(&[1, 3], &[&head, &bad, &good]), (expected, None, None), "a status in trailers");
}

#[test]
fn a_replaced_frame_keeps_its_stream_and_its_end() {
    let bad = [
        headers(flag::PADDED | flag::PRIORITY, 1, &[b"\x02\0\0\0\0\x10", OK, b"\0\0"]),
        frame(kind::CONTINUATION, 0, 1, b"\x00\x03x-a"),
        frame(kind::CONTINUATION, flag::END_HEADERS, 1, b"\x03a\r\n"),
    ];
    let data = frame(kind::DATA, flag::END_STREAM, 1, b"body");
    let expected = [substitute(flag::END_HEADERS, 1), data.clone()].concat();
    assert_eq!(answered(&[1], &[&bad[0], &bad[1], &bad[2], &data]), (expected, None, None));
}

#[test]
fn what_a_malformed_head_has_added_stays() {
    let bad = headers(WHOLE, 1, &[OK, b"\x40\x03x-a\x03a\0b\x40\x03x-b\x02ok"]);
    let expected = b"\x40\x03x-a\x03xxx\x40\x03x-b\x02ok\x0f\x2a\x01x";
    // The valid field passes by its index, the other one does not.
    let (good, again) = (headers(WHOLE, 3, &[OK, b"\xbe"]), headers(WHOLE, 5, &[OK, b"\xbf"]));
    let (out, ..) = answered(&[1, 3, 5], &[&bad, &good, &again]);
    assert_eq!(out, [headers(WHOLE, 1, &[expected]), good, substitute(WHOLE, 5)].concat());
}

#[test]
fn a_head_that_is_too_large_is_replaced_and_told() {
    let field = |count: usize| {
        [
            &b"\x00\x01b\x7f"[..],
            &[(count - 127) as u8 & 0x7f | 0x80, ((count - 127) >> 7) as u8],
            &vec![b'b'; count],
        ]
        .concat()
    };
    // 42 for the status, 34 for `a`.
    let head = |stream, rest: usize| headers(WHOLE, stream, &[OK, b"\x40\x01a\x01v", &field(rest - 33)]);
    let largest = 4096 - 42 - 34;
    let mut gate = gate(&[1, 3, 5], HeadLimits { bytes: 4096, ..HeadLimits::default() });
    let fits = head(1, largest);
    assert_eq!(gate.pass(&fits), fits.len());
    assert!(gate.take_too_large().is_empty());
    assert_eq!(gate.pass(&head(3, largest + 1)), 0);
    assert_eq!(gate.ready().unread(), headers(WHOLE, 3, &[b"\x40\x01a\x01v\x0f\x2a\x01x"]));
    assert_eq!((gate.take_too_large(), gate.take_too_large()), (vec![3], Vec::new()));
    // A block that is malformed as well is not reported as too large.
    gate.pass(&headers(WHOLE, 5, &[OK, OK, &field(5000)]));
    assert!(gate.take_too_large().is_empty() && gate.fault().is_none());
}

#[test]
fn trailers_beyond_the_limits_of_a_head_are_replaced() {
    let limits = HeadLimits { bytes: 1024, line: 256, fields: 3 };
    let long = |count: u8| {
        [&b"\x00\x01b\x7f"[..], &[(count - 127) | 0x80, 1], &vec![b'b'; usize::from(count) + 128]].concat()
    };
    for (block, fits) in
        [(TRAILER.repeat(3), true), (TRAILER.repeat(4), false), (long(127), true), (long(128), false)]
    {
        let mut gate = gate(&[1], limits);
        gate.pass(&headers(flag::END_HEADERS, 1, &[OK]));
        let trailers = headers(WHOLE, 1, &[&block]);
        let passed = gate.pass(&trailers);
        let expected = if fits { Vec::new() } else { substitute(WHOLE, 1) };
        assert_eq!((passed, gate.ready().unread()), (if fits { trailers.len() } else { 0 }, &expected[..]));
        assert!(gate.take_too_large().is_empty());
    }
}

#[test]
fn a_length_that_no_body_has_is_left_out() {
    const LENGTH: &[u8] = b"\x0f\x0d\x015";
    let head = |flags, block: &[&[u8]]| headers(flags, 1, block);
    for status in [HINTS, NOT_MODIFIED] {
        let (out, ..) = answered(&[1], &[&head(flag::END_HEADERS, &[status, LENGTH, TRAILER])]);
        assert_eq!(out, head(flag::END_HEADERS, &[status, TRAILER]));
    }
    untouched(&[1], &[&head(WHOLE, &[NOT_MODIFIED, LENGTH])]);
    untouched(&[1], &[&head(flag::END_HEADERS, &[OK, LENGTH])]);
}

/// The answer of `h2` to a block on a closed stream does not depend on its fields.
#[test]
fn blocks_on_closed_streams_pass() {
    let (one, three) = (headers(WHOLE, 1, &[OK]), headers(flag::END_HEADERS, 3, &[OK]));
    let (after_one, after) = (headers(WHOLE, 1, &[TRAILER]), headers(WHOLE, 3, &[TRAILER]));
    untouched(&[1], &[&one, &after_one]);
    untouched(&[3], &[&three, &frame(kind::DATA, flag::END_STREAM, 3, b""), &after]);
    untouched(&[3], &[&three, &frame(kind::RST_STREAM, 0, 3, &[0; 4]), &after]);
    untouched(&[3], &[&three, &after_one]);
}

#[test]
fn what_comes_for_a_stream_that_is_over_does_no_harm() {
    let head = headers(flag::END_HEADERS, 1, &[OK, b"\x40\x03x-a\x01b"]);
    let next = headers(WHOLE, 3, &[OK, b"\xbe"]);
    // The entry is in the table of `h2` all the same.
    let harmless = headers(flag::END_HEADERS, 1, &[b"\x40\x03x-a\x01b"]);
    assert_eq!(answered(&[3], &[&head, &next]), ([&harmless[..], &next].concat(), None, None));
    let malformed = headers(WHOLE, 1, &[b"\x00\x01x\x03a\0b"]);
    for whole in [headers(WHOLE, 1, &[OK]), frame(kind::RST_STREAM, 0, 1, &[0; 4])] {
        let expected = [&whole[..], &headers(WHOLE, 1, &[])].concat();
        assert_eq!(answered(&[1], &[&whole, &malformed]), (expected, None, None));
    }
}

#[test]
fn a_stream_that_depends_on_itself_keeps_the_table_in_step() {
    let bad = headers(WHOLE | flag::PRIORITY, 1, &[b"\0\0\0\x01\x10", OK, b"\x40\x03x-a\x01b"]);
    let good = headers(WHOLE, 3, &[OK, b"\xbe"]);
    let (out, ..) = answered(&[1, 3], &[&bad, &good]);
    assert_eq!(out, [headers(WHOLE, 1, &[b"\x40\x03x-a\x01b\x0f\x2a\x01x"]), good].concat());
}

#[test]
fn the_stream_that_breaks_a_connection_is_known() {
    let broken = Some(Reason::PROTOCOL_ERROR);
    let good = headers(WHOLE, 3, &[OK]);
    for bad in [
        frame(kind::DATA, 0, 1, b"no head"),
        frame(kind::WINDOW_UPDATE, 0, 1, b"\0\0\0\0"),
        frame(kind::PUSH_PROMISE, flag::END_HEADERS, 1, b"\0\0\0\x02\x88"),
        frame(kind::CONTINUATION, flag::END_HEADERS, 1, OK),
    ] {
        assert_eq!(answered(&[1, 3], &[&good, &bad, &good]), (good.clone(), broken, Some(1)), "{bad:?}");
    }
    let endless = [headers(0, 1, &[OK]), frame(kind::CONTINUATION, 0, 1, b"").repeat(100)].concat();
    let expected = (good.clone(), Some(Reason::ENHANCE_YOUR_CALM), Some(1));
    assert_eq!(answered(&[1, 3], &[&good, &endless]), expected);
    let garbage = headers(WHOLE, 1, &[b"\xff\xff\xff\xff\xff\xff"]);
    let (out, fault, culprit) = answered(&[1, 3], &[&good, &garbage]);
    assert_eq!((out, fault, culprit), (good, Some(Reason::COMPRESSION_ERROR), Some(1)));
}

#[test]
fn what_no_connection_survives() {
    let fault = |frames: &[&[u8]]| answered(&[1], frames).1;
    let open = headers(0, 1, &[OK]);
    let end = frame(kind::CONTINUATION, flag::END_HEADERS, 1, b"");
    assert_eq!(fault(&[&headers(WHOLE, 1, &[b"\xff"])]), Some(Reason::COMPRESSION_ERROR));
    assert_eq!(fault(&[&open, &frame(kind::CONTINUATION, 4, 1, b"\x40")]), Some(Reason::COMPRESSION_ERROR));
    assert_eq!(fault(&[&open, &frame(kind::PING, 0, 0, &[0; 8])]), Some(Reason::PROTOCOL_ERROR));
    assert_eq!(fault(&[&open, &frame(kind::CONTINUATION, 4, 3, b"")]), Some(Reason::PROTOCOL_ERROR));
    assert_eq!(fault(&[&open, &end, &end]), Some(Reason::PROTOCOL_ERROR));
    assert_eq!(fault(&[&headers(WHOLE, 2, &[OK])]), Some(Reason::PROTOCOL_ERROR));
    assert_eq!(fault(&[&headers(WHOLE, 0, &[OK])]), Some(Reason::PROTOCOL_ERROR));
    assert_eq!(fault(&[&headers(WHOLE | flag::PADDED, 1, &[b"\x09", OK])]), Some(Reason::PROTOCOL_ERROR));
    assert_eq!(fault(&[&headers(WHOLE | flag::PADDED, 1, &[])]), Some(Reason::FRAME_SIZE_ERROR));
    assert_eq!(fault(&[&headers(WHOLE | flag::PRIORITY, 1, &[b"1234"])]), Some(Reason::FRAME_SIZE_ERROR));
    assert_eq!(fault(&[&headers(WHOLE, 1, &[OK, b"\x40\x00\x00"])]), Some(Reason::PROTOCOL_ERROR));
    // Fields of 300 KB by their index.
    let large = [&b"\x40\x01a\x7f\x80\x17"[..], &[b'a'; 3071]].concat();
    let bomb = headers(WHOLE, 1, &[OK, &large, &[0xbe; 100]]);
    assert_eq!(passed(&[1], &bomb, bomb.len(), 1).1, Some(Reason::ENHANCE_YOUR_CALM));
}

#[test]
fn a_window_beyond_the_largest_is_a_fault_of_flow_control() {
    let settings = |value: u32| {
        let payload =
            [&[0, 3, 0x80, 0, 0, 1, 0, 4][..], &value.to_be_bytes(), &[0, 5, 0, 0, 0x40, 0]].concat();
        frame(kind::SETTINGS, 0, 0, &payload)
    };
    untouched(
        &[],
        &[
            &settings(u32::MAX >> 1),
            &frame(kind::SETTINGS, 0, 0, b"\0\x04\xff"),
            &frame(kind::SETTINGS, flag::ACK, 0, b""),
        ],
    );
    assert_eq!(answered(&[], &[&settings(1 << 31)]).1, Some(Reason::FLOW_CONTROL_ERROR));
}

/// The result of this many frames on a connection with one request.
fn flooded(frames: &[u8], times: usize) -> Option<Reason> {
    let mut gate = gate(&[1], HeadLimits::default());
    gate.pass(&headers(flag::END_HEADERS, 1, &[OK]));
    for _ in 0..times {
        gate.pass(frames);
        let ready = gate.ready();
        ready.consume(ready.len());
    }
    gate.fault()
}

#[test]
fn a_flood_without_progress_ends_the_connection() {
    let window = frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
    for flood in [
        frame(kind::PING, 0, 0, b"foregate"),
        frame(kind::PING, flag::ACK, 0, b"foregate"),
        frame(kind::SETTINGS, 0, 0, b""),
        frame(kind::PRIORITY, 0, 1, &[0; 5]),
        frame(0xfa, 0, 0, b"?"),
    ] {
        assert_eq!(flooded(&flood, 900), None, "{flood:?}");
        assert_eq!(flooded(&flood, 1200), Some(Reason::ENHANCE_YOUR_CALM), "{flood:?}");
    }
    assert_eq!(flooded(&frame(kind::DATA, 0, 1, b"body"), 100_000), None);
    // How small the pieces are that it reads and writes is its own affair, within reason.
    let trailers = headers(WHOLE, 3, &[TRAILER]);
    for doubtful in [
        frame(kind::DATA, 0, 1, b""),
        frame(kind::DATA, flag::PADDED, 1, b"\x01\0"),
        window.clone(),
        frame(kind::DATA, 0, 3, b"reset before"),
        frame(kind::RST_STREAM, 0, 3, &[0; 4]),
        trailers,
    ] {
        assert_eq!(flooded(&doubtful, 15_000), None, "{doubtful:?}");
        assert_eq!(flooded(&doubtful, 50_000), Some(Reason::ENHANCE_YOUR_CALM), "{doubtful:?}");
    }
    // The origin answers our frames.
    let mut gate = gate(&[1], HeadLimits::default());
    for _ in 0..2000 {
        gate.data_was_sent(16 * 1024);
        gate.awaits_ack();
        gate.pass(&[&window[..], &window, &frame(kind::PING, flag::ACK, 0, b"foregate")].concat());
    }
    assert_eq!(gate.fault(), None);
}

#[test]
fn a_frame_that_is_too_large_is_not_waited_for() {
    let header = [0, 0x40, 1, kind::HEADERS, WHOLE, 0, 0, 0, 1];
    assert_eq!(answered(&[1], &[&header]).1, Some(Reason::FRAME_SIZE_ERROR));
}

/// An encoder that adds nearly all fields to the table, as browsers do.
struct Encoder {
    table: VecDeque<(String, Vec<u8>)>,
}

impl Encoder {
    fn literal(out: &mut Vec<u8>, text: &[u8]) {
        assert!(text.len() < 127 + 128);
        match text.len() {
            length @ ..127 => out.push(length as u8),
            length => out.extend_from_slice(&[127, (length - 127) as u8]),
        }
        out.extend_from_slice(text);
    }

    fn field(&mut self, out: &mut Vec<u8>, name: &str, value: &[u8], indexed: bool) {
        let known = self.table.iter().position(|(other, of)| other == name && of == value);
        // One byte can name 62 to 126, or 62 to 124 where 6 bits need another byte.
        if let Some(position) = known.filter(|position| *position < 60) {
            return out.push(0x80 | (62 + position) as u8);
        }
        let named = self.table.iter().position(|(other, _)| other == name).filter(|position| *position < 60);
        match (named, indexed) {
            (Some(0), true) => out.push(0x7e),
            (Some(position), true) => out.extend_from_slice(&[0x7f, (62 + position - 63) as u8]),
            (Some(position), false) => out.extend_from_slice(&[0x0f, (62 + position - 15) as u8]),
            (None, _) => {
                out.push(if indexed { 0x40 } else { 0 });
                Self::literal(out, name.as_bytes());
            }
        }
        Self::literal(out, value);
        if indexed {
            self.table.push_front((name.to_owned(), value.to_vec()));
            let size = |table: &VecDeque<(String, Vec<u8>)>| -> usize {
                table.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
            };
            while size(&self.table) > 4096 {
                self.table.pop_back();
            }
        }
    }
}

#[derive(Debug, Clone)]
struct Sent {
    fields: Vec<(String, Vec<u8>, bool)>,
    /// Set if it has a path, as only requests do.
    path: bool,
}

fn sent() -> impl Strategy<Value = Sent> {
    let value = prop_oneof![
        6 => "[a-z]{0,3}".prop_map(String::into_bytes),
        2 => "[a-z]{150,250}".prop_map(String::into_bytes),
        1 => prop_oneof![Just("a\0b"), Just("a\r\nb: c"), Just(" a"), Just("\x7f")].prop_map(|text| text.as_bytes().to_vec()),
    ];
    let name = prop_oneof![12 => "x-[a-e]", 1 => "X-[A-B]", 1 => Just("connection".to_owned())];
    let fields = proptest::collection::vec((name, value, prop::bool::weighted(0.8)), 0..12);
    (fields, prop::bool::weighted(0.15)).prop_map(|(fields, path)| Sent { fields, path })
}

/// Has `h2` ask for this many things, each of which these bytes answer: the fields that it has
/// understood, in order, but for those of responses that are malformed.
async fn understood(bytes: &[u8], count: usize) -> Vec<Option<Vec<String>>> {
    let (near, mut far) = tokio::io::duplex(1024 * 1024);
    let (mut sender, connection) = h2::client::handshake(near).await.unwrap();
    tokio::spawn(connection);
    let mut responses = Vec::new();
    for _ in 0..count {
        sender = sender.ready().await.unwrap();
        let request = http::Request::get("http://a/").body(()).unwrap();
        responses.push(sender.send_request(request, true).unwrap().0);
    }
    // A response needs a request first.
    let (mut asked, mut frames, mut piece) = (0, Frames::after(PREFACE), [0; 4096]);
    while asked < count {
        let read = far.read(&mut piece).await.unwrap();
        let mut bytes = &piece[..read];
        while let Some(frame) = frames.next(&mut bytes, |_| 0) {
            asked += usize::from(frame.kind == kind::HEADERS);
        }
    }
    far.write_all(&frame(kind::SETTINGS, 0, 0, b"")).await.unwrap();
    far.write_all(bytes).await.unwrap();
    let mut understood = Vec::new();
    for response in responses {
        understood.push(match response.await {
            Ok(response) => {
                let text = |value: &[u8]| value.escape_ascii().to_string();
                let fields = response.headers().iter();
                let fields = fields.map(|(name, value)| format!("{name}={}", text(value.as_bytes())));
                Some(fields.collect())
            }
            Err(error) => {
                assert!(error.is_reset() && error.reason() == Some(Reason::PROTOCOL_ERROR), "{error}");
                None
            }
        });
    }
    understood
}

/// Frames of which many are wrong.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![6 => Just(kind::HEADERS), 3 => Just(kind::CONTINUATION), 2 => Just(kind::DATA), 1 => 0..12u8];
    let payload = prop_oneof![
        6 => Just(OK.to_vec()),
        2 => Just([OK, b"\x40\x01a\x03b\0c"].concat()),
        2 => Just([OK, b"\xbe"].concat()),
        2 => Just([HINTS, b"\x40\x01a\x01b"].concat()),
        1 => Just(TRAILER.to_vec()),
        1 => Just(Vec::new()),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
    ];
    let flags = prop_oneof![6 => Just(WHOLE), 4 => Just(flag::END_HEADERS), 2 => Just(0), 1 => any::<u8>()];
    (kinds, flags, 0..8u32, payload).prop_map(|(kind, flags, stream, payload)| {
        let stream = if stream == 0 { 0 } else { 2 * stream - 1 };
        frame(kind, flags, stream, &payload)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_comes_of_bytes_does_not_depend_on_their_pieces(
        frames in proptest::collection::vec(any_frame(), 1..20),
        first in 0..40usize,
        others in 1..60usize,
    ) {
        let (streams, bytes) = ([1, 3, 5, 7, 9], frames.concat());
        prop_assert_eq!(passed(&streams, &bytes, bytes.len(), 1), passed(&streams, &bytes, first, others));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn h2_stays_in_step(responses in proptest::collection::vec(sent(), 1..40)) {
        let mut encoder = Encoder { table: VecDeque::new() };
        let (mut bytes, mut streams, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for (number, response) in responses.iter().enumerate() {
            let stream = 1 + 2 * number as u32;
            let mut block = OK.to_vec();
            if response.path {
                encoder.field(&mut block, ":path", b"/a", number % 3 == 0);
            }
            for (name, value, indexed) in &response.fields {
                encoder.field(&mut block, name, value, *indexed);
            }
            bytes.extend(headers(WHOLE, stream, &[&block]));
            streams.push(stream);
            let is_good = |(name, value, _): &(String, Vec<u8>, bool)| {
                name.starts_with("x-") && value.iter().all(u8::is_ascii_lowercase)
            };
            expected.push((response.fields.iter().all(is_good) && !response.path).then(|| {
                let fields = response.fields.iter();
                let mut fields: Vec<String> =
                    fields.map(|(name, value, _)| format!("{name}={}", value.escape_ascii())).collect();
                // h2's map has the values of a name together.
                fields.sort();
                fields
            }));
        }
        let (bytes, fault, _) = passed(&streams, &bytes, bytes.len(), 1);
        prop_assert_eq!(fault, None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut understood = runtime.block_on(understood(&bytes, streams.len()));
        for fields in understood.iter_mut().flatten() {
            fields.sort();
        }
        prop_assert_eq!(understood, expected);
    }
}

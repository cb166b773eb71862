//! Bytes of a client in, bytes for `h2` out; and `h2` itself behind the gate.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::connection::h2_builder as builder;
use crate::connection::metered_stream as metered;
use crate::link::frames::written as frame;

const FRAME: usize = 16 * 1024;
const START: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// `:method GET`, `:scheme http`, `:path /`, `:authority a`.
const GET: &[u8] = b"\x82\x86\x84\x01\x01a";
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

/// What a gate has made of some bytes.
#[derive(Debug, PartialEq, Eq)]
struct Made {
    out: Vec<u8>,
    refused: Vec<(Malformed, Vec<String>)>,
    fault: Option<Reason>,
}

/// Passes bytes in pieces, the first of which has `first` bytes and the others `others`.
fn passed(bytes: &[u8], first: usize, others: usize) -> Made {
    let mut gate = HeadGate::new(&Limits::default(), FRAME);
    let mut made = Made { out: Vec::new(), refused: Vec::new(), fault: None };
    let (first, rest) = bytes.split_at(first);
    for piece in std::iter::once(first).chain(rest.chunks(others)) {
        let count = gate.pass(piece);
        made.out.extend_from_slice(&piece[..count]);
        loop {
            while let Some(refused) = gate.take_refused() {
                let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
                let fields = refused.fields.iter();
                let fields =
                    fields.map(|field| format!("{}={}", text(field.name), text(field.value))).collect();
                made.refused.push((refused.fault.unwrap(), fields));
            }
            let ready = gate.ready();
            if ready.is_empty() {
                break;
            }
            made.out.extend_from_slice(ready.unread());
            ready.consume(ready.len());
        }
    }
    made.fault = gate.fault();
    made
}

/// What comes of frames behind the preface, which must not depend on how they are split.
fn made(frames: &[&[u8]]) -> Made {
    let bytes = [START, &frames.concat()].concat();
    let whole = passed(&bytes, bytes.len(), 1);
    for first in 0..bytes.len() {
        let split = passed(&bytes, first, bytes.len());
        assert_eq!(whole, split, "split at {first}");
    }
    for others in [1, 2, 7, 11] {
        assert_eq!(whole, passed(&bytes, 0, others), "split into {others}");
    }
    let out = whole.out.strip_prefix(START).unwrap().to_vec();
    Made { out, ..whole }
}

fn untouched(frames: &[&[u8]]) {
    assert_eq!(made(frames), Made { out: frames.concat(), refused: Vec::new(), fault: None });
}

fn fault(frames: &[&[u8]]) -> Option<Reason> {
    made(frames).fault
}

#[test]
fn what_is_well_formed_passes_untouched() {
    untouched(&[
        &headers(WHOLE, 1, &[GET, b"\x40\x03x-a\x01b"]),
        &frame(kind::PING, 0, 0, b"foregate"),
        &headers(flag::END_HEADERS, 3, &[GET, b"\xbe"]),
        &frame(kind::DATA, 0, 3, &[b'a'; 50]),
        &headers(WHOLE, 3, &[b"\x00\x05x-sum\x011"]),
        // Padded, with a priority, in three frames.
        &headers(flag::PADDED | flag::PRIORITY, 5, &[b"\x03\0\0\0\x01\x10", GET, b"\0\0\0"]),
        &frame(kind::CONTINUATION, 0, 5, b""),
        &frame(kind::CONTINUATION, flag::END_HEADERS, 5, b"\xbe"),
        &frame(kind::DATA, flag::END_STREAM, 5, b"body"),
        &frame(99, 0xff, 0, b"unknown"),
        &headers(WHOLE, 7, &[GET]),
    ]);
}

#[test]
fn empty_data_says_nothing_where_a_stream_may_have_it() {
    let empty = |stream| frame(kind::DATA, 0, stream, b"");
    let head = headers(flag::END_HEADERS, 1, &[GET]);
    let data = frame(kind::DATA, 0, 1, b"body");
    let made = made(&[&empty(1), &head, &empty(1), &data, &empty(1), &empty(1), &empty(3), &data]);
    assert_eq!(made.out, [&empty(1)[..], &head, &data, &empty(3), &data].concat());
    let padded = frame(kind::DATA, flag::PADDED, 1, b"\x02a\0\0");
    let end = frame(kind::DATA, flag::END_STREAM, 1, b"");
    untouched(&[&head, &padded, &end, &empty(1)]);
    untouched(&[&head, &frame(kind::RST_STREAM, 0, 1, &[0; 4]), &empty(1)]);
}

#[test]
fn padding_says_nothing_and_is_given_back() {
    let padding = |stream, length: u8| {
        frame(kind::DATA, flag::PADDED, stream, &[&[length][..], &vec![0; length.into()]].concat())
    };
    let heads = [1, 3, 5].map(|stream| headers(flag::END_HEADERS, stream, &[GET])).concat();
    let end = frame(kind::DATA, flag::END_STREAM | flag::PADDED, 3, b"\x01\0");
    let pads =
        [padding(1, 0), padding(1, 255), padding(3, 1), padding(7, 2), end.clone(), padding(5, 2)].concat();
    assert_eq!(made(&[&heads, &pads]).out, [&heads[..], &padding(7, 2), &end].concat());
    let mut gate = HeadGate::new(&Limits::default(), FRAME);
    gate.pass(&[START, &heads, &pads].concat());
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
    let bad = [headers(flag::END_HEADERS, 1, &[GET]), frame(kind::DATA, flag::PADDED, 1, b"\x09\0")].concat();
    untouched(&[&bad]);
}

#[test]
fn empty_data_of_a_stream_that_we_have_reset_says_nothing() {
    let mut gate = HeadGate::new(&Limits::default(), FRAME);
    for stream in (1..2 * RESET as u32 + 100).step_by(2) {
        let head = headers(flag::END_HEADERS, stream, &[GET]);
        let bytes = if stream == 1 { [START, &head].concat() } else { head };
        assert_eq!(gate.pass(&bytes), bytes.len());
        gate.stream_is_reset(stream);
        assert_eq!(gate.pass(&frame(kind::DATA, 0, stream, b"")), 0);
        assert!(gate.ready().is_empty());
    }
    assert_eq!(gate.reset.len(), RESET);
    assert_eq!(gate.pass(&frame(kind::DATA, 0, 1, b"")), HEADER, "forgotten");
}

#[test]
fn a_block_in_many_frames_goes_on_in_few() {
    let many = |count: usize, length: u8, size: usize| {
        let field = [b"\x00\x01x", &[length][..], &vec![b'a'; length.into()]].concat();
        let rest = field.repeat(count);
        let mut frames = headers(flag::END_STREAM, 1, &[GET]);
        let parts = rest.len().div_ceil(size);
        for (number, part) in rest.chunks(size).enumerate() {
            let last = if number + 1 == parts { flag::END_HEADERS } else { 0 };
            frames.extend(frame(kind::CONTINUATION, last, 1, part));
        }
        (frames, [GET, &rest].concat())
    };
    untouched(&[&many(4, 1, 5).0]);
    let (frames, block) = many(30, 1, 3);
    assert_eq!(made(&[&frames]).out, headers(WHOLE, 1, &[&block]));
    let (frames, block) = many(480, 100, 1000);
    let bytes = [START, &frames].concat();
    let made = passed(&bytes, bytes.len(), 1);
    let parts: Vec<_> = block.chunks(FRAME).collect();
    let expected = [
        headers(flag::END_STREAM, 1, &[parts[0]]),
        frame(kind::CONTINUATION, 0, 1, parts[1]),
        frame(kind::CONTINUATION, 0, 1, parts[2]),
        frame(kind::CONTINUATION, flag::END_HEADERS, 1, parts[3]),
    ];
    assert!(made.out == [START, &expected.concat()].concat() && parts.len() == 4);
}

#[test]
fn a_malformed_head_is_replaced() {
    let good = headers(WHOLE, 1, &[GET]);
    let bad = headers(WHOLE, 3, &[GET, b"\x00\x03X-A\x01b"]);
    let next = headers(WHOLE, 5, &[GET]);
    let expected = Made {
        out: [&good[..], &substitute(WHOLE, 3), &next].concat(),
        refused: vec![(
            Malformed::UpperCase,
            [":method=GET", ":scheme=http", ":path=/", ":authority=a", "X-A=b"].map(str::to_owned).to_vec(),
        )],
        fault: None,
    };
    assert_eq!(made(&[&good, &bad, &next]), expected);
}

#[test]
fn a_replaced_frame_keeps_its_stream_and_its_end() {
    let bad = [
        headers(flag::PADDED | flag::PRIORITY, 1, &[b"\x02\0\0\0\0\x10", GET, b"\0\0"]),
        frame(kind::CONTINUATION, 0, 1, b"\x00\x03x-a"),
        frame(kind::CONTINUATION, flag::END_HEADERS, 1, b"\x03a\r\n"),
    ];
    let data = frame(kind::DATA, flag::END_STREAM, 1, b"body");
    let made = made(&[&bad[0], &bad[1], &bad[2], &data]);
    assert_eq!(made.out, [substitute(flag::END_HEADERS, 1), data].concat());
    assert_eq!(made.refused.len(), 1);
    assert_eq!(made.refused[0].0, Malformed::BadValue);
}

#[test]
fn what_a_malformed_head_has_added_stays() {
    let bad = headers(WHOLE, 1, &[GET, b"\x40\x03x-a\x03a\0b\x40\x03x-b\x02ok"]);
    let expected = b"\x40\x03x-a\x03xxx\x40\x03x-b\x02ok\x0f\x2a\x01x";
    // The good one by its index passes, the other one does not.
    let (good, again) = (headers(WHOLE, 3, &[GET, b"\xbe"]), headers(WHOLE, 5, &[GET, b"\xbf"]));
    let made = made(&[&bad, &good, &again]);
    assert_eq!(made.out, [headers(WHOLE, 1, &[expected]), good, substitute(WHOLE, 5)].concat());
    assert_eq!(made.refused.len(), 2);
    assert_eq!(made.refused[1].1.last().unwrap(), "x-a=a\\x00b");
}

#[test]
fn malformed_trailers_are_replaced_but_are_no_request() {
    let (head, bad) = (headers(flag::END_HEADERS, 1, &[GET]), headers(WHOLE, 1, &[b"\x84"]));
    let made = made(&[&head, &frame(kind::DATA, 0, 1, b"a"), &bad]);
    assert_eq!(made.out, [head, frame(kind::DATA, 0, 1, b"a"), substitute(WHOLE, 1)].concat());
    assert_eq!((made.refused, made.fault), (Vec::new(), None));
}

#[test]
fn a_head_that_is_too_large_is_replaced_by_one_that_is_not() {
    let limits = Limits { head_bytes: 4096, ..Limits::default() };
    let field = |count: usize| {
        [
            &b"\x00\x01b\x7f"[..],
            &[(count - 127) as u8 & 0x7f | 0x80, ((count - 127) >> 7) as u8],
            &vec![b'b'; count],
        ]
        .concat()
    };
    // Pseudo-fields: 42 for the method, 43, 38, and 43 for the authority; 34 for `x-a`.
    let head = |stream, rest: usize| {
        headers(flag::END_HEADERS, stream, &[GET, b"\x40\x01a\x01v", &field(rest - 33)])
    };
    let largest = 4096 - 42 - 43 - 38 - 43 - 34;
    let mut gate = HeadGate::new(&limits, FRAME);
    gate.pass(START);
    let fits = head(1, largest);
    assert_eq!(gate.pass(&fits), fits.len());
    assert_eq!(gate.pass(&head(3, largest + 1)), 0);
    let stand_in = [
        &b"\x00\x07:method\x03GET\x00\x07:scheme\x0elist-too-large\x00\x05:path\x01/\x00\x0a:authority\x01a"
            [..],
        b"\x40\x01a\x01v",
    ]
    .concat();
    let expected = headers(flag::END_HEADERS, 3, &[&stand_in]);
    assert_eq!(gate.ready().unread(), expected);
    gate.ready().consume(expected.len());
    assert!(gate.take_refused().is_none(), "it is answered");
    // It may have trailers, and CONNECT is reset and shown.
    let trailers = headers(WHOLE, 3, &[TRAILER]);
    assert_eq!(gate.pass(&trailers), trailers.len());
    gate.pass(&headers(WHOLE, 5, &[b"\x02\x07CONNECT\x01\x01a", &field(4000)]));
    assert_eq!(gate.ready().unread(), substitute(WHOLE, 5));
    let refused = gate.take_refused().unwrap();
    assert_eq!((refused.fault, refused.fields.len()), (None, 3));
}

#[test]
fn trailers_beyond_the_limits_of_a_head_are_replaced() {
    let limits = Limits { head_bytes: 1024, head_line: 256, head_fields: 3, ..Limits::default() };
    let long = |count: u8| {
        [&b"\x00\x01b\x7f"[..], &[(count - 127) | 0x80, 1], &vec![b'b'; usize::from(count) + 128]].concat()
    };
    for (block, fits) in
        [(TRAILER.repeat(3), true), (TRAILER.repeat(4), false), (long(127), true), (long(128), false)]
    {
        let mut gate = HeadGate::new(&limits, FRAME);
        gate.pass(START);
        gate.pass(&headers(flag::END_HEADERS, 1, &[GET]));
        let trailers = headers(WHOLE, 1, &[&block]);
        let passed = gate.pass(&trailers);
        let expected = if fits { Vec::new() } else { substitute(WHOLE, 1) };
        assert_eq!((passed, gate.ready().unread()), (if fits { trailers.len() } else { 0 }, &expected[..]));
    }
}

/// What `h2` says of a block on a stream that is not open does not depend on its fields.
#[test]
fn blocks_on_closed_streams_pass() {
    let (one, three) = (headers(WHOLE, 1, &[GET]), headers(flag::END_HEADERS, 3, &[GET]));
    let (after_one, after) = (headers(WHOLE, 1, &[TRAILER]), headers(WHOLE, 3, &[TRAILER]));
    untouched(&[&one, &after_one]);
    untouched(&[&three, &frame(kind::DATA, flag::END_STREAM, 3, b""), &after]);
    untouched(&[&three, &frame(kind::RST_STREAM, 0, 3, &[0; 4]), &after]);
    untouched(&[&three, &after_one]);
}

/// The connection would end for it, and there is no stream any more that could be reset instead.
#[test]
fn a_malformed_block_on_a_closed_stream_is_replaced_by_a_harmless_one() {
    let (head, reset) = (headers(flag::END_HEADERS, 1, &[GET]), frame(kind::RST_STREAM, 0, 1, &[0; 4]));
    let made = made(&[&head, &reset, &headers(WHOLE, 1, &[b"\x00\x01x\x03a\0b"])]);
    assert_eq!(made.out, [head, reset, headers(WHOLE, 1, &[b""])].concat());
    assert_eq!((made.refused, made.fault), (Vec::new(), None));
}

/// `h2` may not know the stream any more.
#[test]
fn the_last_block_of_a_stream_that_we_have_reset_says_nothing() {
    let mut gate = HeadGate::new(&Limits::default(), FRAME);
    gate.pass(START);
    for stream in [1, 3] {
        let head = headers(flag::END_HEADERS, stream, &[GET]);
        assert_eq!(gate.pass(&head), head.len());
        gate.stream_is_reset(stream);
    }
    let after = headers(WHOLE, 1, &[TRAILER]);
    assert_eq!(gate.pass(&after), 0);
    assert!(gate.ready().is_empty());
    assert_eq!(gate.pass(&after), after.len(), "a second one is for `h2` to judge");
    // From one that changes the table on `h2` has to do without it.
    assert_eq!(gate.pass(&headers(WHOLE, 3, &[b"\x40\x01x\x01a"])), 0);
    assert!(gate.ready().is_empty());
    assert_eq!(gate.pass(&headers(WHOLE, 5, &[GET, b"\xbe"])), 0);
    let get = b"\x00\x07:method\x03GET\x00\x07:scheme\x04http\x00\x05:path\x01/\x00\x0a:authority\x01a\x00\x01x\x01a";
    let expected = [headers(WHOLE, 5, &[get]), headers(WHOLE, 3, &[b""]), substitute(WHOLE, 7)].concat();
    gate.pass(&headers(WHOLE, 3, &[b"\xbe"]));
    gate.pass(&headers(WHOLE, 7, &[GET, b"\xbe\x84"]));
    assert_eq!(gate.ready().unread(), expected);
}

#[test]
fn the_trailers_of_a_malformed_request_say_nothing() {
    let (bad, after) = (headers(flag::END_HEADERS, 1, &[GET, GET]), headers(WHOLE, 1, &[TRAILER]));
    assert_eq!(made(&[&bad, &after]).out, substitute(flag::END_HEADERS, 1));
}

#[test]
fn a_stream_that_depends_on_itself_keeps_the_table_in_step() {
    let bad = headers(WHOLE | flag::PRIORITY, 1, &[b"\0\0\0\x01\x10", GET, b"\x40\x03x-a\x01b"]);
    let good = headers(WHOLE, 3, &[GET, b"\xbe"]);
    let made = made(&[&bad, &good]);
    assert_eq!(made.out, [headers(WHOLE, 1, &[b"\x40\x03x-a\x01b\x0f\x2a\x01x"]), good].concat());
}

#[test]
fn what_no_connection_survives() {
    let get = headers(WHOLE, 1, &[GET]);
    let open = headers(0, 1, &[GET]);
    let end = frame(kind::CONTINUATION, flag::END_HEADERS, 1, b"");
    assert_eq!(fault(&[&headers(WHOLE, 1, &[b"\xff"])]), Some(Reason::COMPRESSION_ERROR));
    assert_eq!(fault(&[&open, &frame(kind::CONTINUATION, 4, 1, b"\x40")]), Some(Reason::COMPRESSION_ERROR));
    assert_eq!(fault(&[&open, &frame(kind::PING, 0, 0, &[0; 8])]), Some(Reason::PROTOCOL_ERROR));
    assert_eq!(fault(&[&open, &frame(kind::CONTINUATION, 4, 3, b"")]), Some(Reason::PROTOCOL_ERROR));
    assert_eq!(fault(&[&open, &end, &end]), Some(Reason::PROTOCOL_ERROR));
    assert_eq!(fault(&[&get, &headers(WHOLE, 2, &[GET])]), Some(Reason::PROTOCOL_ERROR));
    assert_eq!(fault(&[&get, &headers(WHOLE, 0, &[GET])]), Some(Reason::PROTOCOL_ERROR));
    assert_eq!(fault(&[&frame(kind::PUSH_PROMISE, 4, 1, b"\0\0\0\x02")]), Some(Reason::PROTOCOL_ERROR));
    assert_eq!(fault(&[&headers(WHOLE | flag::PADDED, 1, &[b"\x09", GET])]), Some(Reason::PROTOCOL_ERROR));
    assert_eq!(fault(&[&headers(WHOLE | flag::PADDED, 1, &[])]), Some(Reason::FRAME_SIZE_ERROR));
    assert_eq!(fault(&[&headers(WHOLE | flag::PRIORITY, 1, &[b"1234"])]), Some(Reason::FRAME_SIZE_ERROR));
    assert_eq!(fault(&[&headers(WHOLE, 1, &[GET, b"\x40\x00\x00"])]), Some(Reason::PROTOCOL_ERROR));
    // Fields of 300 KB by their index.
    let large = [&b"\x40\x01a\x7f\x80\x17"[..], &[b'a'; 3071]].concat();
    let bomb = headers(WHOLE, 1, &[GET, &large, &[0xbe; 100]]);
    let bytes = [START, &bomb].concat();
    assert_eq!(passed(&bytes, bytes.len(), 1).fault, Some(Reason::ENHANCE_YOUR_CALM));
}

#[test]
fn a_window_beyond_the_largest_is_a_fault_of_flow_control() {
    let settings = |value: u32| {
        let payload =
            [&[0, 3, 0x80, 0, 0, 1, 0, 4][..], &value.to_be_bytes(), &[0, 5, 0, 0, 0x40, 0]].concat();
        frame(kind::SETTINGS, 0, 0, &payload)
    };
    untouched(&[
        &settings(u32::MAX >> 1),
        &frame(kind::SETTINGS, 0, 0, b"\0\x04\xff"),
        &frame(kind::SETTINGS, flag::ACK, 0, b""),
    ]);
    assert_eq!(fault(&[&settings(1 << 31)]), Some(Reason::FLOW_CONTROL_ERROR));
}

#[test]
fn a_frame_that_is_too_large_is_not_waited_for() {
    let bytes = [START, &[0, 0x40, 1, kind::HEADERS, WHOLE, 0, 0, 0, 1]].concat();
    assert_eq!(passed(&bytes, bytes.len(), 1).fault, Some(Reason::FRAME_SIZE_ERROR));
}

#[test]
fn refused_heads_that_nobody_takes_hold_back_the_rest() {
    let mut gate = HeadGate::new(&Limits::default(), FRAME);
    gate.pass(START);
    let heads: Vec<u8> = (0..20).flat_map(|number| headers(WHOLE, 1 + 2 * number, &[GET, GET])).collect();
    assert_eq!(gate.pass(&heads), 0);
    assert!(gate.is_full());
    let one = substitute(WHOLE, 1).len();
    let ready = gate.ready();
    assert_eq!(ready.len(), REFUSED * one);
    ready.consume(REFUSED * one);
    assert!(gate.ready().is_empty());
    // With each that is taken another one is judged, though nothing more is read.
    for _ in REFUSED..20 {
        assert!(gate.take_refused().is_some());
        let ready = gate.ready();
        assert_eq!(ready.len(), one);
        ready.consume(one);
    }
    assert_eq!(std::iter::from_fn(|| gate.take_refused()).count(), REFUSED);
    assert!(gate.ready().is_empty() && gate.held.is_empty());
}

#[test]
fn what_is_kept_of_a_refused_head_is_bounded() {
    let mut gate = HeadGate::new(&Limits { head_bytes: 4096, ..Limits::default() }, FRAME);
    gate.pass(START);
    let field = [&b"\x00\x01a\x7f\xd1\x0e"[..], &[b'a'; 2000]].concat();
    gate.pass(&headers(WHOLE, 1, &[GET, GET, &field, &field, &field, &field]));
    let fields = gate.take_refused().unwrap().fields;
    assert_eq!(fields.get_all_name(b"a").count(), 2);
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
    path: String,
}

fn sent() -> impl Strategy<Value = Sent> {
    let value = prop_oneof![
        6 => "[a-z]{0,3}".prop_map(String::into_bytes),
        2 => "[a-z]{150,250}".prop_map(String::into_bytes),
        1 => prop_oneof![Just("a\0b"), Just("a\r\nb: c"), Just(" a"), Just("\x7f")].prop_map(|text| text.as_bytes().to_vec()),
    ];
    let name = prop_oneof![12 => "x-[a-e]", 1 => "X-[A-B]", 1 => Just("connection".to_owned())];
    let path = prop_oneof![6 => "/[a-c]{0,2}", 1 => Just("/a#b".to_owned())];
    let fields = proptest::collection::vec((name, value, prop::bool::weighted(0.8)), 0..12);
    (fields, path).prop_map(|(fields, path)| Sent { fields, path })
}

/// Sends requests, good and malformed ones, to `h2` behind the gate; what it has understood of which stream, and which
/// were reset as malformed.
async fn understood(bytes: &[u8], count: usize) -> (BTreeMap<u32, Vec<String>>, Vec<u32>) {
    let (mut near, far) = tokio::io::duplex(1024 * 1024);
    near.write_all(bytes).await.unwrap();
    let limits = Limits::default();
    let (io, control) = metered(far, &limits, FRAME);
    let mut h2 = builder(&limits).handshake::<_, Bytes>(io).await.unwrap();
    let (mut requests, mut resets) = (BTreeMap::new(), Vec::new());
    let mut frames = Vec::new();
    while requests.len() + resets.len() < count {
        let accepted = poll_fn(|cx| {
            while control.take_refused().is_some() {}
            let accepted = h2.poll_accept(cx);
            let _ = control.poll_flush(cx);
            match accepted {
                Poll::Pending => Poll::Ready(None),
                Poll::Ready(accepted) => Poll::Ready(Some(accepted.unwrap().unwrap())),
            }
        });
        if let Some((request, mut respond)) = accepted.await {
            let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
            let fields = request.headers().iter();
            let fields = fields.map(|(name, value)| format!("{name}={}", text(value.as_bytes())));
            let path = std::iter::once(request.uri().path().to_owned());
            requests.insert(respond.stream_id().as_u32(), path.chain(fields).collect());
            respond.send_response(http::Response::new(()), true).unwrap();
            continue;
        }
        tokio::task::yield_now().await;
        let mut piece = vec![0; 64 * 1024];
        if let Ok(read) =
            tokio::time::timeout(std::time::Duration::from_millis(50), near.read(&mut piece)).await
        {
            frames.extend_from_slice(&piece[..read.unwrap()]);
        }
        resets.clear();
        let mut rest = &frames[..];
        while let Some((header, behind)) = rest.split_first_chunk::<HEADER>() {
            let frame = Frame::parse(header);
            let (payload, behind) = behind.split_at(frame.length);
            match frame.kind {
                kind::RST_STREAM => {
                    assert_eq!(payload, [0, 0, 0, 1], "PROTOCOL_ERROR");
                    resets.push(frame.stream);
                }
                7 => panic!("GOAWAY {payload:?}"),
                _ => {}
            }
            rest = behind;
        }
    }
    (requests, resets)
}

/// Frames of which many are wrong.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![6 => Just(kind::HEADERS), 3 => Just(kind::CONTINUATION), 2 => Just(kind::DATA), 1 => 0..12u8];
    let payload = prop_oneof![
        6 => Just(GET.to_vec()),
        2 => Just([GET, b"\x40\x01a\x03b\0c"].concat()),
        2 => Just([GET, b"\xbe"].concat()),
        1 => Just(Vec::new()),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
    ];
    let flags = prop_oneof![6 => Just(WHOLE), 2 => Just(flag::END_HEADERS), 2 => Just(0), 1 => any::<u8>()];
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
        let bytes = [START, &frames.concat()].concat();
        prop_assert_eq!(passed(&bytes, bytes.len(), 1), passed(&bytes, first, others));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn h2_stays_in_step(requests in proptest::collection::vec(sent(), 1..40)) {
        let mut encoder = Encoder { table: VecDeque::new() };
        let (mut bytes, mut good, mut bad) = (START.to_vec(), BTreeMap::new(), Vec::new());
        for (number, request) in requests.iter().enumerate() {
            let stream = 1 + 2 * number as u32;
            let mut block = b"\x82\x86".to_vec();
            encoder.field(&mut block, ":path", request.path.as_bytes(), number % 3 == 0);
            encoder.field(&mut block, ":authority", b"example.com", true);
            for (name, value, indexed) in &request.fields {
                encoder.field(&mut block, name, value, *indexed);
            }
            bytes.extend(headers(WHOLE, stream, &[&block]));
            let is_good = |(name, value, _): &(String, Vec<u8>, bool)| {
                name.starts_with("x-") && value.iter().all(u8::is_ascii_lowercase)
            };
            if request.fields.iter().all(is_good) && !request.path.contains('#') {
                // h2's map has the values of a name together.
                let mut fields: Vec<String> = request.fields.iter()
                    .map(|(name, value, _)| format!("{name}={}", value.escape_ascii())).collect();
                fields.sort();
                fields.insert(0, request.path.clone());
                good.insert(stream, fields);
            } else {
                bad.push(stream);
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (mut requests, mut resets) = runtime.block_on(understood(&bytes, good.len() + bad.len()));
        for fields in requests.values_mut() {
            fields[1..].sort();
        }
        resets.sort_unstable();
        prop_assert_eq!(requests, good);
        prop_assert_eq!(resets, bad);
    }
}

/// What a gate for an origin makes of frames once requests have been sent on these streams; it must not depend on how they are split.
fn answered(streams: &[u32], frames: &[&[u8]]) -> (Vec<u8>, Option<Reason>, Option<u32>) {
    let bytes = frames.concat();
    let passed = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut gate = HeadGate::for_origin(HeadLimits::default(), FRAME);
        assert!(streams.iter().all(|stream| gate.headers_were_sent(*stream)));
        let mut out = Vec::new();
        for piece in pieces {
            let count = gate.pass(piece);
            out.extend_from_slice(&piece[..count]);
            let ready = gate.ready();
            out.extend_from_slice(ready.unread());
            ready.consume(ready.len());
        }
        (out, gate.fault(), gate.culprit())
    };
    let whole = passed(&mut std::iter::once(&bytes[..]));
    for size in [1, 2, 7, 11] {
        assert_eq!(whole, passed(&mut bytes.chunks(size)), "split into {size}");
    }
    whole
}

/// `:status 200`.
const OK: &[u8] = b"\x88";
/// `:status 103`.
const HINTS: &[u8] = b"\x08\x03103";

#[test]
fn well_formed_responses_pass_untouched() {
    let frames = [
        headers(flag::END_HEADERS, 5, &[HINTS, b"\x40\x03x-a\x01b"]),
        headers(flag::END_HEADERS, 5, &[OK, b"\xbe"]),
        headers(WHOLE, 1, &[OK]),
        frame(kind::WINDOW_UPDATE, 0, 3, b"\0\0\0\x01"),
        headers(flag::END_HEADERS, 3, &[OK]),
        frame(kind::DATA, 0, 3, b"body"),
        frame(kind::DATA, flag::END_STREAM, 3, b""),
        headers(WHOLE, 5, &[TRAILER]),
        frame(kind::GOAWAY, 0, 0, b"\0\0\0\x05\0\0\0\0"),
    ];
    let frames: Vec<_> = frames.iter().map(|frame| &frame[..]).collect();
    assert_eq!(answered(&[1, 3, 5], &frames), (frames.concat(), None, None));
}

#[test]
fn malformed_responses_and_trailers_are_replaced() {
    let good = headers(WHOLE, 3, &[OK]);
    for block in [&[OK, b"\x04\x01/"][..], &[OK, b"\x00\x03X-A\x01b"], &[TRAILER], &[b"\x08\x0299"], &[GET]] {
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
fn what_comes_for_a_stream_that_was_reset_does_no_harm() {
    let head = headers(flag::END_HEADERS, 1, &[OK, b"\x40\x03x-a\x01b"]);
    let next = headers(WHOLE, 3, &[OK, b"\xbe"]);
    // The entry is in the table of `h2` all the same.
    let harmless = headers(flag::END_HEADERS, 1, &[b"\x40\x03x-a\x01b"]);
    assert_eq!(answered(&[3], &[&head, &next]), ([&harmless[..], &next].concat(), None, None));
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

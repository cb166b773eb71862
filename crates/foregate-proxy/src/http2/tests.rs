//! Bytes in, bytes out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::time::Duration;

use foregate_wire::hpack::{Inspector, Section};
use foregate_wire::{BodyLength, HeadLimits};

use super::*;
use crate::link::ReceiveOutcome;
use crate::transport::frames::{Frame, HEADER, flag, written};

mod floods;
pub mod random;
mod windows;

const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const TERMS: HeadTerms =
    HeadTerms { secure: false, limits: HeadLimits { bytes: 64 << 10, line: 16 << 10, fields: 128 } };
/// `GET http://a/`, and `POST http://a/`.
const GET: &[u8] = b"\x82\x84\x86\x41\x01a";
const POST: &[u8] = b"\x83\x84\x86\x41\x01a";
const WHOLE: u8 = flag::END_HEADERS | flag::END_STREAM;

/// A sent frame: kind, flags, stream and payload.
type Sent = (u8, u8, u32, Vec<u8>);

/// A client.
struct Peer {
    shared: Arc<SharedState>,
    now: Instant,
    /// The unprocessed rest of its frames.
    rest: Vec<u8>,
    decoder: Inspector,
    fault: Option<Reason>,
}

impl Peer {
    fn new() -> Self {
        Self::with(&Limits::default())
    }

    fn with(limits: &Limits) -> Self {
        let mut peer = Self::silent(limits);
        peer.writes(GREETING);
        peer.sends(kind::SETTINGS, 0, 0, &[]);
        peer.sends(kind::SETTINGS, flag::ACK, 0, &[]);
        assert_eq!((peer.fault, peer.gets().len()), (None, 3), "SETTINGS, WINDOW_UPDATE, SETTINGS ACK");
        peer
    }

    /// A peer that has sent nothing.
    fn silent(limits: &Limits) -> Self {
        Self::of(limits, None)
    }

    fn of(limits: &Limits, client: Option<Arc<Holdings>>) -> Self {
        let shared = SharedState::new(limits, client, None);
        let decoder = Inspector::new(4096, 1 << 20);
        Self { shared, now: Instant::now(), rest: Vec::new(), decoder, fault: None }
    }

    fn writes(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        match self.shared.0.lock().receive(&self.rest, self.now, &TERMS) {
            Ok((taken, _)) => drop(self.rest.drain(..taken)),
            Err(reason) => self.fault = Some(reason),
        }
    }

    fn sends(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Option<Reason> {
        self.writes(&written(kind, flags, stream, payload));
        self.fault
    }

    fn gets(&mut self) -> Vec<Sent> {
        let mut output = Buffer::new();
        self.shared.take_output(&mut output);
        self.shared.wrote(output.len());
        let (mut bytes, mut frames) = (output.unread(), Vec::new());
        while let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() {
            let frame = Frame::parse(header);
            let (payload, rest) = rest.split_at(frame.length);
            frames.push((frame.kind, frame.flags, frame.stream, payload.to_vec()));
            bytes = rest;
        }
        assert!(bytes.is_empty(), "frames are whole");
        frames
    }

    /// The received frames of one kind.
    fn gets_of(&mut self, wanted: u8) -> Vec<Sent> {
        self.gets().into_iter().filter(|(kind, ..)| *kind == wanted).collect()
    }

    /// The codes with which its streams were reset.
    fn resets(&mut self) -> Vec<(u32, u32)> {
        let resets = self.gets_of(kind::RST_STREAM).into_iter();
        resets.map(|(.., stream, code)| (stream, u32::from_be_bytes(code.try_into().unwrap()))).collect()
    }

    fn fields(&mut self, block: &[u8]) -> String {
        let mut text = String::new();
        let mut scratch = Vec::new();
        let inspected = self.decoder.inspect(block, Section::Response, &mut scratch).unwrap();
        inspected.fields(&mut Vec::new(), |name, value| {
            text += &format!("{}: {}\n", name.escape_ascii(), value.escape_ascii());
        });
        text
    }

    /// Begins the next request that has come.
    fn accept(&self) -> Option<ClientStream> {
        match self.shared.next()? {
            NewStream::Request(asked) => {
                assert_eq!(asked.understood, Ok(()));
                Some(ClientStream::new(&self.shared, asked.stream))
            }
            NewStream::Refused(refused) => panic!("{refused:?}"),
        }
    }

    fn asks(&mut self, stream: u32) -> ClientStream {
        assert_eq!(self.sends(kind::HEADERS, WHOLE, stream, GET), None);
        self.accept().unwrap()
    }

    fn posts(&mut self, stream: u32) -> ClientStream {
        assert_eq!(self.sends(kind::HEADERS, flag::END_HEADERS, stream, POST), None);
        self.accept().unwrap()
    }

    /// The number of successful calls of `send`, and the error that follows.
    fn until_fault(mut self, mut send: impl FnMut(&mut Self, u32)) -> (u32, Reason) {
        for count in 0..1_000_000 {
            send(&mut self, count);
            if let Some(fault) = self.fault {
                return (count, fault);
            }
            self.gets();
        }
        panic!("no fault");
    }
}

/// A waker that remembers.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn noop() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn head(stream: &mut ClientStream, length: BodyLength) {
    stream.send_head(200, &HeaderList::new(), length, false).unwrap();
}

/// All that there is of a stream's body.
fn body(stream: &mut ClientStream) -> (Vec<u8>, Poll<Result<ReceiveOutcome, LinkError>>) {
    let mut body = Vec::new();
    loop {
        match stream.poll_receive(&mut noop()) {
            Poll::Ready(Ok(ReceiveOutcome::Data)) => {
                body.extend_from_slice(stream.data());
                stream.consume(stream.data().len());
            }
            polled => return (body, polled),
        }
    }
}

/// A field is worth as much memory as it stands for, however few bytes name it.
#[test]
fn heads_behind_large_ones_wait_as_they_came() {
    const STREAMS: u32 = 30;
    let mut peer = Peer::new();
    let mut first = b"\x82\x86\x84\x41\x06a.test\x40\x01x\x7f\xbd\x1d".to_vec();
    first.resize(first.len() + 3900, b'y');
    // Each further head takes all of its fields from the table.
    let again = b"\x82\x86\x84\xbf\xbe".to_vec();
    let ends = flag::END_STREAM | flag::END_HEADERS;
    let blocks = (0..STREAMS).map(|number| if number == 0 { &first } else { &again });
    let frames =
        (0..).zip(blocks).flat_map(|(number, block)| written(kind::HEADERS, ends, 2 * number + 1, block));
    peer.writes(&frames.collect::<Vec<_>>());
    assert!(peer.shared.waiting_heads() < 2 * HEADS, "{}", peer.shared.waiting_heads());
    assert!(!peer.rest.is_empty());
    let mut begun = 0;
    while let Some(NewStream::Request(asked)) = peer.shared.next() {
        assert!(asked.understood.is_ok(), "{:?}", asked.understood);
        begun += 1;
        peer.writes(&[]);
    }
    assert_eq!((begun, peer.rest.len(), peer.fault), (STREAMS, 0, None));
}

#[test]
fn a_server_greets_with_all_its_limits() {
    let mut peer = Peer::silent(&Limits::default());
    let sent = peer.gets();
    let settings: Vec<_> = sent[0].3.chunks(6).map(|setting| (setting[1], &setting[2..])).collect();
    assert_eq!(
        settings,
        [
            (1, &[0, 0, 0x10, 0][..]),
            (3, &[0, 0, 0, 100]),
            (4, &[0, 1, 0, 0]),
            (5, &[0, 0, 0x40, 0]),
            (6, &[0, 1, 0, 0]),
            (8, &[0, 0, 0, 1]),
        ]
    );
    assert_eq!(sent[1], (kind::WINDOW_UPDATE, 0, 0, ((1u32 << 20) - 65_535).to_be_bytes().to_vec()));
    assert_eq!(sent.len(), 2);
    for wrong in [&b"PRI * HTTP/1"[..], b"GET / HTTP/1.1\r\n\r\n......."] {
        let mut peer = Peer::silent(&Limits::default());
        peer.writes(wrong);
        assert_eq!(peer.fault, Some(Reason::PROTOCOL_ERROR));
    }
    let mut peer = Peer::silent(&Limits::default());
    peer.writes(GREETING);
    assert_eq!(peer.sends(kind::PING, 0, 0, &[0; 8]), Some(Reason::PROTOCOL_ERROR), "SETTINGS come first");
}

#[test]
fn a_request_and_its_response() {
    let mut peer = Peer::new();
    let mut stream = peer.posts(1);
    assert!(stream.poll_receive(&mut noop()).is_pending());
    peer.sends(kind::DATA, flag::PADDED, 1, &[2, b'a', b'b', 0, 0]);
    peer.sends(kind::HEADERS, WHOLE, 1, b"\x40\x01t\x01v");
    assert_eq!(body(&mut stream), (b"ab".to_vec(), Poll::Ready(Ok(ReceiveOutcome::End))));
    assert_eq!(stream.trailers().get_name(b"t"), Some(&b"v"[..]));

    let mut fields = HeaderList::new();
    fields.push(b"X-Upper", b"1");
    fields.push(b"content-length", b"7");
    fields.push(b"connection", b"close");
    stream.send_interim(103, &HeaderList::new()).unwrap();
    stream.send_head(200, &fields, BodyLength::Fixed(3), false).unwrap();
    assert_eq!(stream.poll_send(&mut noop(), b"abc"), Poll::Ready(Ok(3)));
    assert_eq!(stream.finish(&HeaderList::new()), Ok(()));
    let sent = peer.gets();
    assert_eq!(peer.fields(&sent[0].3), ":status: 103\n");
    assert_eq!(peer.fields(&sent[1].3), ":status: 200\nx-upper: 1\ncontent-length: 3\n");
    assert_eq!(sent[2], (kind::DATA, flag::END_STREAM, 1, b"abc".to_vec()));
    drop(stream);
    assert_eq!(peer.gets(), [], "it is over");
    assert!(peer.shared.0.lock().streams.is_empty() && peer.shared.holding() == 0);
}

#[test]
fn long_heads_go_on_in_frames_of_the_usual_size() {
    let mut peer = Peer::new();
    let mut stream = peer.asks(1);
    let mut fields = HeaderList::new();
    for _ in 0..5 {
        fields.push(b"a", &[b'\\'; 15_000]);
    }
    stream.send_head(200, &fields, BodyLength::Empty, false).unwrap();
    let sent = peer.gets();
    let (last, rest) = sent.split_last().unwrap();
    assert_eq!((rest[0].0, rest[0].1), (kind::HEADERS, flag::END_STREAM));
    assert!(
        rest[1..].iter().all(|frame| (frame.0, frame.1, frame.3.len()) == (kind::CONTINUATION, 0, FRAME))
    );
    assert_eq!((last.0, last.1), (kind::CONTINUATION, flag::END_HEADERS));
    let block: Vec<u8> = sent.into_iter().flat_map(|frame| frame.3).collect();
    assert_eq!(peer.fields(&block).lines().count(), 6);
}

/// Frames of all kinds.
fn conversation() -> Vec<u8> {
    let mut bytes = [GREETING.to_vec(), written(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0x20, 0])].concat();
    for stream in (1..40).step_by(4) {
        bytes.extend(written(kind::HEADERS, flag::END_HEADERS, stream, POST));
        bytes.extend(written(kind::DATA, 0, stream, b"some of it"));
        bytes.extend(written(kind::DATA, flag::PADDED, stream, &[3, b'x', 0, 0, 0]));
        bytes.extend(written(0xee, 0, stream, b"unknown"));
        bytes.extend(written(
            kind::HEADERS,
            flag::PADDED | flag::PRIORITY,
            stream + 2,
            &[1, 0, 0, 0, 0, 9, 0],
        ));
        bytes.extend(written(kind::CONTINUATION, 0, stream + 2, &GET[..3]));
        bytes.extend(written(kind::CONTINUATION, flag::END_HEADERS, stream + 2, &GET[3..]));
        bytes.extend(written(kind::PING, 0, 0, &[stream as u8; 8]));
        bytes.extend(written(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0]));
        bytes.extend(written(kind::RST_STREAM, 0, stream + 2, &[0, 0, 0, 8]));
        bytes.extend(written(kind::DATA, flag::END_STREAM, stream, b""));
    }
    bytes
}

#[test]
fn bytes_mean_the_same_however_they_are_split() {
    let bytes = conversation();
    let run = |size: usize| {
        let mut peer = Peer::silent(&Limits::default());
        bytes.chunks(size).for_each(|part| peer.writes(part));
        assert_eq!((peer.fault, peer.rest.len()), (None, 0));
        let mut seen = Vec::new();
        while let Some(NewStream::Request(asked)) = peer.shared.next() {
            let mut stream = ClientStream::new(&peer.shared, asked.stream);
            seen.push((asked.stream, body(&mut stream).0));
        }
        assert_eq!(peer.shared.0.lock().withdrawn, 10);
        (seen, peer.gets())
    };
    let whole = run(bytes.len());
    for size in 1..60 {
        assert_eq!(run(size), whole, "parts of {size}");
    }
}

#[test]
fn what_is_no_http_2_ends_the_connection() {
    let block = |bytes: &[u8]| bytes.to_vec();
    for (frame, reason) in [
        ((kind::DATA, 0, 0, block(b"x")), Reason::PROTOCOL_ERROR),
        ((kind::PRIORITY, 0, 9, vec![0, 0, 0, 9, 0]), Reason::PROTOCOL_ERROR),
        ((kind::DATA, 0, 2, block(b"x")), Reason::PROTOCOL_ERROR),
        ((kind::DATA, 0, 9, block(b"x")), Reason::PROTOCOL_ERROR),
        ((kind::DATA, flag::PADDED, 1, block(&[2, 0])), Reason::PROTOCOL_ERROR),
        ((kind::DATA, flag::PADDED, 1, block(b"")), Reason::FRAME_SIZE_ERROR),
        ((kind::DATA, 0, 1, vec![0; FRAME + 1]), Reason::FRAME_SIZE_ERROR),
        ((kind::HEADERS, WHOLE, 0, block(GET)), Reason::PROTOCOL_ERROR),
        ((kind::HEADERS, WHOLE, 2, block(GET)), Reason::PROTOCOL_ERROR),
        ((kind::HEADERS, WHOLE, 3, block(GET)), Reason::PROTOCOL_ERROR),
        ((kind::HEADERS, WHOLE, 7, block(b"\xff")), Reason::COMPRESSION_ERROR),
        ((kind::HEADERS, WHOLE | flag::PADDED, 7, block(&[9, 0])), Reason::PROTOCOL_ERROR),
        ((kind::HEADERS, WHOLE | flag::PRIORITY, 7, block(&[0; 4])), Reason::FRAME_SIZE_ERROR),
        ((kind::CONTINUATION, 0, 1, block(b"")), Reason::PROTOCOL_ERROR),
        ((kind::PUSH_PROMISE, 0, 1, block(&[0; 4])), Reason::PROTOCOL_ERROR),
        ((kind::PRIORITY, 0, 0, block(&[0; 5])), Reason::PROTOCOL_ERROR),
        ((kind::RST_STREAM, 0, 0, block(&[0; 4])), Reason::PROTOCOL_ERROR),
        ((kind::RST_STREAM, 0, 9, block(&[0; 4])), Reason::PROTOCOL_ERROR),
        ((kind::RST_STREAM, 0, 1, block(&[0; 3])), Reason::FRAME_SIZE_ERROR),
        ((kind::SETTINGS, 0, 1, block(b"")), Reason::PROTOCOL_ERROR),
        ((kind::SETTINGS, 0, 0, block(&[0; 5])), Reason::FRAME_SIZE_ERROR),
        ((kind::SETTINGS, flag::ACK, 0, block(&[0; 6])), Reason::FRAME_SIZE_ERROR),
        ((kind::SETTINGS, 0, 0, block(&[0, 2, 0, 0, 0, 2])), Reason::PROTOCOL_ERROR),
        ((kind::SETTINGS, 0, 0, block(&[0, 4, 0x80, 0, 0, 0])), Reason::FLOW_CONTROL_ERROR),
        ((kind::SETTINGS, 0, 0, block(&[0, 5, 0, 0, 0x3f, 0xff])), Reason::PROTOCOL_ERROR),
        ((kind::SETTINGS, 0, 0, block(&[0, 5, 1, 0, 0, 0])), Reason::PROTOCOL_ERROR),
        ((kind::PING, 0, 1, block(&[0; 8])), Reason::PROTOCOL_ERROR),
        ((kind::PING, 0, 0, block(&[0; 7])), Reason::FRAME_SIZE_ERROR),
        ((kind::GOAWAY, 0, 1, block(&[0; 8])), Reason::PROTOCOL_ERROR),
        ((kind::GOAWAY, 0, 0, block(&[0; 7])), Reason::FRAME_SIZE_ERROR),
        ((kind::WINDOW_UPDATE, 0, 0, block(&[0; 4])), Reason::PROTOCOL_ERROR),
        ((kind::WINDOW_UPDATE, 0, 9, block(&[0, 0, 0, 1])), Reason::PROTOCOL_ERROR),
        ((kind::WINDOW_UPDATE, 0, 0, block(&[0; 3])), Reason::FRAME_SIZE_ERROR),
        ((kind::WINDOW_UPDATE, 0, 0, block(&[0x7f, 0xff, 0xff, 0xff])), Reason::FLOW_CONTROL_ERROR),
    ] {
        let mut peer = Peer::new();
        let streams = (peer.posts(1), peer.asks(5));
        let (kind, flags, stream, payload) = frame;
        assert_eq!(
            peer.sends(kind, flags, stream, &payload),
            Some(reason),
            "kind {kind} stream {stream} {payload:?}"
        );
        drop(streams);
    }
    let mut peer = Peer::new();
    drop(peer.asks(1));
    peer.gets();
    // Priorities say nothing, also those that cannot be.
    peer.sends(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 0]);
    peer.sends(kind::PRIORITY, 0, 1, &[0; 4]);
    let reset = [Reason::PROTOCOL_ERROR, Reason::FRAME_SIZE_ERROR].map(|reason| (1, reason.into()));
    assert_eq!(peer.resets(), reset);
    peer.sends(kind::HEADERS, 0, 3, GET);
    assert_eq!(peer.sends(kind::PING, 0, 0, &[0; 8]), Some(Reason::PROTOCOL_ERROR), "amid a block");
}

#[test]
fn what_is_wrong_with_a_stream_resets_it_alone() {
    let bad = b"\x82\x84\x86\x41\x01a\x40\x01X\x01v";
    let itself = [&[0, 0, 0, 3, 0][..], GET].concat();
    let long = b"\x83\x84\x86\x41\x01a\x0f\x0d\x012";
    type Frames<'f> = &'f [(u8, u8, &'f [u8])];
    let cases: [(Frames, Reason); 11] = [
        (&[(kind::HEADERS, WHOLE, bad)], Reason::PROTOCOL_ERROR),
        (&[(kind::HEADERS, WHOLE | flag::PRIORITY, &itself)], Reason::PROTOCOL_ERROR),
        (&[(kind::HEADERS, WHOLE, long)], Reason::PROTOCOL_ERROR),
        (&[(kind::HEADERS, flag::END_HEADERS, long), (kind::DATA, 0, b"xyz")], Reason::PROTOCOL_ERROR),
        (&[(kind::HEADERS, flag::END_HEADERS, long), (kind::DATA, 1, b"x")], Reason::PROTOCOL_ERROR),
        (&[(kind::HEADERS, flag::END_HEADERS, long), (kind::HEADERS, WHOLE, b"")], Reason::PROTOCOL_ERROR),
        (&[(kind::HEADERS, flag::END_HEADERS, POST), (kind::HEADERS, 4, b"")], Reason::PROTOCOL_ERROR),
        (
            &[(kind::HEADERS, flag::END_HEADERS, POST), (kind::WINDOW_UPDATE, 0, &[0; 4])],
            Reason::PROTOCOL_ERROR,
        ),
        (&[(kind::HEADERS, WHOLE, GET), (kind::DATA, 0, b"x")], Reason::STREAM_CLOSED),
        (&[(kind::HEADERS, WHOLE, GET), (kind::PRIORITY, 0, &[0, 0, 0, 3, 0])], Reason::PROTOCOL_ERROR),
        (
            &[(kind::HEADERS, WHOLE, GET), (kind::WINDOW_UPDATE, 0, &[0x7f, 0xff, 0xff, 0xff])],
            Reason::FLOW_CONTROL_ERROR,
        ),
    ];
    for (number, (frames, reason)) in cases.into_iter().enumerate() {
        let mut peer = Peer::new();
        let other = peer.posts(1);
        for (kind, flags, payload) in frames {
            assert_eq!(peer.sends(*kind, *flags, 3, payload), None);
        }
        assert_eq!(peer.resets(), [(3, reason.into())], "case {number}");
        assert!(!matches!(peer.shared.next(), Some(NewStream::Request(_))), "nobody serves it");
        // More of it may be under way.
        for (kind, flags, payload) in [(kind::DATA, 0, &b"x"[..]), (kind::HEADERS, WHOLE, b"")] {
            if number < 3 || number == 6 {
                assert_eq!(peer.sends(kind, flags, 3, payload), None, "case {number}");
            }
        }
        peer.sends(kind::DATA, flag::END_STREAM, 1, b"");
        assert_eq!(peer.resets(), [], "case {number}");
        drop(other);
        assert_eq!(peer.shared.holding(), 0);
    }
}

#[test]
fn the_last_of_a_length_waits_for_the_end_of_its_stream() {
    let mut peer = Peer::new();
    peer.sends(kind::HEADERS, flag::END_HEADERS, 1, b"\x83\x84\x86\x41\x01a\x0f\x0d\x014");
    let mut stream = peer.accept().unwrap();
    peer.sends(kind::DATA, 0, 1, b"ab");
    assert_eq!(body(&mut stream), (b"ab".to_vec(), Poll::Pending));
    peer.sends(kind::DATA, 0, 1, b"cd");
    assert_eq!(body(&mut stream), (Vec::new(), Poll::Pending));
    peer.sends(kind::DATA, flag::END_STREAM, 1, b"");
    assert_eq!(body(&mut stream), (b"cd".to_vec(), Poll::Ready(Ok(ReceiveOutcome::End))));
}

#[test]
fn heads_that_are_too_large_are_answered_unless_they_are_far_too_large() {
    let field = |size: usize| {
        let mut field = b"\x40\x01a\x7f".to_vec();
        let mut left = size - 127;
        while left >= 128 {
            field.push(left as u8 | 0x80);
            left >>= 7;
        }
        field.push(left as u8);
        field.resize(field.len() + size, b'v');
        field
    };
    let ask = |size: usize| {
        let mut peer = Peer::new();
        let block = [GET, &field(size)].concat();
        let mut parts = block.chunks(FRAME).peekable();
        let mut kind = kind::HEADERS;
        while let Some(part) = parts.next() {
            let ends = if parts.peek().is_none() { flag::END_HEADERS } else { 0 };
            let first = if kind == kind::HEADERS { flag::END_STREAM } else { 0 };
            peer.sends(kind, ends | first, 1, part);
            kind = kind::CONTINUATION;
        }
        let understood = match peer.shared.next() {
            Some(NewStream::Request(asked)) => Some(asked.understood),
            _ => None,
        };
        (peer.fault, understood)
    };
    let too_large = Error::Request(foregate_wire::RequestError::HeadTooLarge);
    assert_eq!(ask(1000), (None, Some(Ok(()))));
    assert_eq!(ask(17_000), (None, Some(Err(Error::Request(foregate_wire::RequestError::LineTooLong)))));
    assert_eq!(ask(66_000), (None, Some(Err(too_large))));
    assert_eq!(ask(120_000), (None, Some(Err(too_large))));
    assert_eq!(ask(140_000).0, Some(Reason::ENHANCE_YOUR_CALM));
}

#[test]
fn streams_beyond_the_limit_are_refused_until_others_are_over() {
    let mut peer = Peer::new();
    let mut streams: Vec<_> = (1..201).step_by(2).map(|stream| peer.asks(stream)).collect();
    peer.sends(kind::HEADERS, WHOLE, 201, GET);
    assert_eq!(peer.resets(), [(201, Reason::REFUSED_STREAM.into())]);
    head(&mut streams[0], BodyLength::Empty);
    drop(peer.asks(203));
    // A client that resets its streams has room for others at once, although their tasks still have
    // to end.
    for stream in (3..21).step_by(2) {
        peer.sends(kind::RST_STREAM, 0, stream, &[0, 0, 0, 8]);
    }
    drop(peer.asks(205));
    assert_eq!(peer.shared.0.lock().streams.open(), 90);
    drop(streams);
    assert!(peer.shared.0.lock().streams.is_empty());
}

#[test]
fn a_stream_that_is_dropped_says_how() {
    let mut peer = Peer::new();
    drop(peer.asks(1));
    let mut answered = peer.posts(3);
    head(&mut answered, BodyLength::Empty);
    drop(answered);
    let mut begun = peer.asks(5);
    head(&mut begun, BodyLength::Chunked);
    drop(begun);
    peer.asks(7).abort();
    let mut broken = peer.asks(11);
    head(&mut broken, BodyLength::Chunked);
    broken.abort();
    peer.asks(13).refuse();
    let reset = [
        (1, Reason::CANCEL),
        (3, Reason::NO_ERROR),
        (5, Reason::CANCEL),
        (7, Reason::INTERNAL_ERROR),
        (11, Reason::INTERNAL_ERROR),
    ];
    let mut expected: Vec<(u32, u32)> = reset.map(|(stream, reason)| (stream, reason.into())).to_vec();
    expected.push((13, Reason::REFUSED_STREAM.into()));
    assert_eq!(peer.resets(), expected);
    // Frames in flight are ignored.
    assert_eq!(peer.sends(kind::DATA, flag::END_STREAM, 3, b"late"), None);
    assert_eq!(peer.resets(), []);
}

/// A client that does not read costs one buffer, for any number of streams.
#[test]
fn output_that_nobody_takes_is_bounded() {
    let mut peer = Peer::new();
    peer.sends(kind::SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    peer.sends(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]);
    peer.gets();
    let mut streams: Vec<_> = (1..201).step_by(2).map(|stream| peer.asks(stream)).collect();
    let mut fields = HeaderList::new();
    fields.push(b"a", &[b'v'; 10_000]);
    for stream in &mut streams {
        if stream.poll_room(&mut noop()).is_ready() {
            stream.send_head(200, &fields, BodyLength::Chunked, false).unwrap();
        }
        while matches!(stream.poll_send(&mut noop(), &[0; 50_000]), Poll::Ready(Ok(_))) {}
    }
    assert!(peer.shared.output() < 120_000, "{}", peer.shared.output());
}

/// Streams that wait for a window hold no output, but have memory of their own.
#[test]
fn streams_count_for_their_client_where_they_are_many() {
    let client = Arc::new(Holdings::new(std::net::IpAddr::from([192, 0, 2, 1])));
    let mut peer = Peer::of(&Limits::default(), Some(Arc::clone(&client)));
    peer.writes(GREETING);
    peer.sends(kind::SETTINGS, 0, 0, &[]);
    let mut streams: Vec<_> = (1..7).step_by(2).map(|stream| peer.asks(stream)).collect();
    assert_eq!(client.held(), 0, "few are not worth it");
    streams.extend((7..201).step_by(2).map(|stream| peer.asks(stream)));
    let held = client.held();
    assert!((96 * 3584..=100 * 3584).contains(&held) && peer.shared.holding() == held, "{held}");
    streams.truncate(50);
    assert!(client.held() < held);
    streams.clear();
    assert_eq!((client.held(), peer.shared.holding()), (0, 0));
}

#[test]
fn a_connection_ends_once_its_client_knows_and_all_is_answered() {
    let mut peer = Peer::new();
    let mut stream = peer.asks(1);
    peer.shared.begin_to_end();
    peer.shared.begin_to_end();
    let sent = peer.gets();
    assert_eq!(sent[0], (kind::GOAWAY, 0, 0, vec![0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]));
    assert_eq!((sent[1].0, sent.len()), (kind::PING, 2));
    let late = peer.asks(3);
    assert_eq!(peer.sends(kind::PING, flag::ACK, 0, &sent[1].3), None);
    assert_eq!(peer.gets(), [(kind::GOAWAY, 0, 0, vec![0, 0, 0, 3, 0, 0, 0, 0])]);
    assert!(!peer.shared.is_done());
    peer.sends(kind::HEADERS, WHOLE, 5, GET);
    assert!(peer.shared.next().is_none() && peer.gets().is_empty(), "it is not taken");
    head(&mut stream, BodyLength::Empty);
    drop((stream, late));
    assert!(peer.shared.is_done());
    peer.gets();
    // The last frame checks if the client has read everything before it.
    assert_eq!(peer.sends(kind::PING, flag::ACK, 0, &ENDED), None);
    peer.shared.ask_whether_read();
    let [(kind::PING, 0, 0, last)] = &peer.gets()[..] else { panic!() };
    for (payload, has_read_all) in [(&sent[1].3, false), (last, true)] {
        assert_eq!(peer.sends(kind::PING, flag::ACK, 0, payload), None);
        assert_eq!(peer.shared.has_read_all(), has_read_all);
    }
}

#[test]
fn a_client_that_leaves_gets_what_it_has_asked() {
    let mut peer = Peer::new();
    let mut stream = peer.asks(1);
    assert_eq!(peer.sends(kind::GOAWAY, 0, 0, &[0; 8]), None);
    let late = peer.asks(3);
    assert!(!peer.shared.is_done() && peer.gets().is_empty());
    head(&mut stream, BodyLength::Empty);
    drop((stream, late));
    peer.gets();
    assert!(peer.shared.is_done() && peer.shared.is_done());
    assert_eq!(peer.gets(), [(kind::GOAWAY, 0, 0, vec![0, 0, 0, 3, 0, 0, 0, 0])]);
}

#[test]
fn nothing_but_data_comes_through_a_tunnel() {
    let mut peer = Peer::new();
    let mut stream = peer.posts(1);
    stream.send_head(200, &HeaderList::new(), BodyLength::Tunnel, false).unwrap();
    peer.gets();
    peer.sends(kind::DATA, 0, 1, b"ab");
    assert_eq!(body(&mut stream), (b"ab".to_vec(), Poll::Pending));
    assert_eq!(peer.sends(kind::HEADERS, WHOLE, 1, b""), None);
    assert_eq!(peer.resets(), [(1, Reason::PROTOCOL_ERROR.into())]);
}

#[test]
fn a_connection_that_fails_tells_its_streams() {
    let mut peer = Peer::new();
    let mut stream = peer.posts(1);
    peer.sends(kind::DATA, 0, 1, b"abc");
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(Arc::clone(&flag));
    assert!(stream.poll_abandoned(&mut Context::from_waker(&waker)).is_pending());
    peer.shared.fail(LinkError::CutOff);
    peer.shared.fail(LinkError::H2);
    assert!(flag.0.load(Ordering::Relaxed));
    assert_eq!(stream.poll_abandoned(&mut noop()), Poll::Ready(LinkError::CutOff));
    assert_eq!(stream.poll_receive(&mut noop()), Poll::Ready(Err(LinkError::CutOff)));
    assert_eq!(stream.send_head(200, &HeaderList::new(), BodyLength::Empty, false), Err(LinkError::CutOff));
    assert_eq!(peer.shared.holding(), 0);
}

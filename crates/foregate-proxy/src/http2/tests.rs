//! Bytes in, bytes out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::time::Duration;

use foregate_wire::BodyLength;
use foregate_wire::hpack::{Inspector, Section};

use super::*;
use crate::link::Received;
use crate::link::frames::{Frame, HEADER, flag, written};

const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const TERMS: Terms =
    Terms { secure: false, limits: HeadLimits { bytes: 64 << 10, line: 16 << 10, fields: 128 } };
/// `GET http://a/`, and `POST http://a/`.
const GET: &[u8] = b"\x82\x84\x86\x41\x01a";
const POST: &[u8] = b"\x83\x84\x86\x41\x01a";
const WHOLE: u8 = flag::END_HEADERS | flag::END_STREAM;

/// What was sent: kind, flags, stream and payload.
type Sent = (u8, u8, u32, Vec<u8>);

/// A client.
struct Peer {
    shared: Arc<Shared>,
    now: Instant,
    /// What of its frames was not taken.
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

    /// One that has said nothing.
    fn silent(limits: &Limits) -> Self {
        let shared = Shared::new(limits, None);
        let decoder = Inspector::new(4096, 1 << 20);
        Self { shared, now: Instant::now(), rest: Vec::new(), decoder, fault: None }
    }

    fn writes(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        match self.shared.0.lock().receive(&self.rest, self.now, &TERMS) {
            Ok(taken) => drop(self.rest.drain(..taken)),
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

    /// What it gets of one kind.
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
            (Arrived::Request(asked), _) => {
                assert_eq!(asked.understood, Ok(()));
                Some(ClientStream::new(&self.shared, asked.stream))
            }
            (Arrived::Refused(refused), _) => panic!("{refused:?}"),
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

    /// How many times `send` goes well, and why it does not any more.
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
fn body(stream: &mut ClientStream) -> (Vec<u8>, Poll<Result<Received, LinkError>>) {
    let mut body = Vec::new();
    loop {
        match stream.poll_receive(&mut noop()) {
            Poll::Ready(Ok(Received::Data)) => {
                body.extend_from_slice(stream.data());
                stream.consume(stream.data().len());
            }
            polled => return (body, polled),
        }
    }
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
    assert_eq!(body(&mut stream), (b"ab".to_vec(), Poll::Ready(Ok(Received::End))));
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
    assert!(peer.shared.0.lock().streams.is_empty() && peer.shared.unread() == 0);
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
        while let Some((Arrived::Request(asked), gone)) = peer.shared.next() {
            let mut stream = ClientStream::new(&peer.shared, asked.stream);
            seen.push((asked.stream, gone, body(&mut stream).0));
        }
        assert_eq!(seen.iter().filter(|(_, gone, _)| *gone).count(), 10);
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
    // Priorities say nothing, also those that cannot be.
    peer.sends(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 0]);
    peer.sends(kind::PRIORITY, 0, 1, &[0; 4]);
    let reset = [Reason::PROTOCOL_ERROR, Reason::FRAME_SIZE_ERROR].map(|reason| (1, reason.into()));
    assert_eq!(peer.resets(), reset);
    drop(peer.asks(1));
    peer.sends(kind::HEADERS, 0, 3, GET);
    assert_eq!(peer.sends(kind::PING, 0, 0, &[0; 8]), Some(Reason::PROTOCOL_ERROR), "amid a block");
}

#[test]
fn what_is_wrong_with_a_stream_resets_it_alone() {
    let bad = b"\x82\x84\x86\x41\x01a\x40\x01X\x01v";
    let itself = [&[0, 0, 0, 3, 0][..], GET].concat();
    let long = b"\x83\x84\x86\x41\x01a\x0f\x0d\x012";
    type Frames<'f> = &'f [(u8, u8, &'f [u8])];
    let cases: [(Frames, Reason); 10] = [
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
        let arrived = peer.shared.next();
        match &arrived {
            Some((Arrived::Request(asked), gone)) => {
                assert!(*gone);
                let mut stream = ClientStream::new(&peer.shared, asked.stream);
                assert_eq!(stream.poll_receive(&mut noop()), Poll::Ready(Err(reason.into())));
            }
            Some((Arrived::Refused(_), _)) | None => {}
        }
        // More of it may be under way.
        for (kind, flags, payload) in [(kind::DATA, 0, &b"x"[..]), (kind::HEADERS, WHOLE, b"")] {
            if number < 3 || number == 6 {
                assert_eq!(peer.sends(kind, flags, 3, payload), None, "case {number}");
            }
        }
        peer.sends(kind::DATA, flag::END_STREAM, 1, b"");
        assert_eq!(peer.resets(), [], "case {number}");
        drop(other);
        assert_eq!(peer.shared.unread(), 0);
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
    assert_eq!(body(&mut stream), (b"cd".to_vec(), Poll::Ready(Ok(Received::End))));
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
            Some((Arrived::Request(asked), _)) => Some(asked.understood),
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
    // Who resets its streams has room for others, while their tasks come to an end.
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
    peer.asks(9).refuse();
    let reset =
        [(1, Reason::CANCEL), (3, Reason::NO_ERROR), (5, Reason::CANCEL), (7, Reason::INTERNAL_ERROR)];
    let mut expected: Vec<(u32, u32)> = reset.map(|(stream, reason)| (stream, reason.into())).to_vec();
    expected.push((9, Reason::REFUSED_STREAM.into()));
    assert_eq!(peer.resets(), expected);
    // What was under way is ignored.
    assert_eq!(peer.sends(kind::DATA, flag::END_STREAM, 3, b"late"), None);
    assert_eq!(peer.resets(), []);
}

#[test]
fn windows_come_back_whatever_becomes_of_a_body() {
    let limits = Limits { h2_connection_window: 100_000, h2_stream_window: 50_000, ..Limits::default() };
    let mut peer = Peer::with(&limits);
    // What the client may send on the connection.
    let mut window = 100_000_i64;
    for round in 0..400 {
        let stream = 2 * round + 1;
        let mut served = Some(peer.posts(stream));
        let padded = [&[200][..], &[0; 8000 + 200]].concat();
        for _ in 0..3 {
            window -= 8201;
            assert!(window >= 0, "round {round}: no window is left");
            assert_eq!(peer.sends(kind::DATA, flag::PADDED, stream, &padded), None);
            match (round % 5, &mut served) {
                // Read by half, not at all, to its end.
                (0, Some(served)) => {
                    let _ = served.poll_receive(&mut noop());
                    served.consume(4000);
                }
                (1, Some(served)) => drop(body(served)),
                // Answered early, and reset by the client, with more under way.
                (2, _) => served = None,
                (3, _) => {
                    peer.sends(kind::RST_STREAM, 0, stream, &[0, 0, 0, 0]);
                }
                _ => {}
            }
            let updates =
                peer.gets_of(kind::WINDOW_UPDATE).into_iter().filter(|(.., stream, _)| *stream == 0);
            window +=
                updates.map(|(.., by)| i64::from(u32::from_be_bytes(by.try_into().unwrap()))).sum::<i64>();
            assert!(window <= 100_000);
            if round % 5 == 3 {
                break;
            }
        }
        drop(served);
        let updates = peer.gets_of(kind::WINDOW_UPDATE).into_iter().filter(|(.., stream, _)| *stream == 0);
        window += updates.map(|(.., by)| i64::from(u32::from_be_bytes(by.try_into().unwrap()))).sum::<i64>();
        peer.now += Duration::from_millis(100);
    }
    assert_eq!(peer.shared.unread(), 0);
    assert!(window >= 50_000, "{window}");
}

#[test]
fn a_client_is_held_to_its_windows_and_to_no_others() {
    // It does not know of a smaller window until it has seen our SETTINGS.
    let limits = Limits { h2_stream_window: 10_000, ..Limits::default() };
    let mut peer = Peer::silent(&limits);
    peer.writes(GREETING);
    peer.sends(kind::SETTINGS, 0, 0, &[]);
    let _stream = peer.posts(1);
    for _ in 0..6 {
        assert_eq!(peer.sends(kind::DATA, 0, 1, &[0; 10_000]), None);
    }
    peer.sends(kind::SETTINGS, flag::ACK, 0, &[]);
    peer.gets();
    let _late = peer.posts(3);
    peer.sends(kind::DATA, 0, 3, &[0; 10_000]);
    assert_eq!(peer.resets(), []);
    peer.sends(kind::DATA, 0, 3, b"x");
    peer.sends(kind::DATA, 0, 1, b"x");
    assert_eq!(peer.resets(), [3, 1].map(|stream| (stream, Reason::FLOW_CONTROL_ERROR.into())));
    let mut peer = Peer::with(&Limits { h2_connection_window: 70_000, ..Limits::default() });
    let _streams = (peer.posts(1), peer.posts(3));
    for stream in [1, 1, 1, 3] {
        assert_eq!(peer.sends(kind::DATA, 0, stream, &[0; FRAME]), None);
    }
    assert_eq!(peer.sends(kind::DATA, 0, 3, &[0; 70_001 - 4 * FRAME]), Some(Reason::FLOW_CONTROL_ERROR));
}

/// Bodies over windows that open as they please: every byte comes in its order, none beyond a window, and nobody waits for ever.
#[test]
fn every_body_comes_whole_through_whatever_windows() {
    for seed in 0..60 {
        transfer(seed);
    }
}

fn transfer(seed: u64) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut peer = Peer::new();
    let mut stream_window = 65_535_i64;
    let streams = 1 + random(40) as usize;
    let sizes: Vec<usize> = (0..streams).map(|_| [10, 5000, 70_000, 300_000][random(4) as usize]).collect();
    let mut serving = Vec::new();
    for (number, size) in sizes.iter().enumerate() {
        let mut stream = peer.asks(2 * number as u32 + 1);
        let length = if random(2) == 0 { BodyLength::Chunked } else { BodyLength::Fixed(*size as u64) };
        head(&mut stream, length);
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        serving.push((number, Some(stream), 0, flag));
    }
    peer.gets();
    let (mut window, mut windows) = (65_535_i64, vec![stream_window; streams]);
    let mut received = vec![0; streams];
    let mut ended = vec![false; streams];
    let mut rounds = 0;
    while ended.iter().any(|ended| !ended) {
        rounds += 1;
        assert!(rounds < 100_000, "seed {seed}: somebody waits for ever; {received:?} of {sizes:?}");
        // Tasks run that have been woken, in some order.
        let first = random(streams as u64) as usize;
        for at in 0..streams {
            let (number, stream, sent, flag) = &mut serving[(first + at) % streams];
            if !flag.0.swap(false, Ordering::Relaxed) {
                continue;
            }
            let waker = Waker::from(Arc::clone(flag));
            let mut cx = Context::from_waker(&waker);
            let Some(served) = stream else { continue };
            loop {
                let left = sizes[*number] - *sent;
                if left == 0 {
                    served.finish(&HeaderList::new()).unwrap();
                    *stream = None;
                    break;
                }
                let piece: Vec<u8> = (*sent..*sent + left.min(50_000)).map(|at| (at % 251) as u8).collect();
                match served.poll_send(&mut cx, &piece) {
                    Poll::Ready(taken) => *sent += taken.unwrap(),
                    Poll::Pending => break,
                }
                // Others may have their turn in between.
                if random(3) == 0 {
                    flag.0.store(true, Ordering::Relaxed);
                    break;
                }
            }
        }
        for (kind, flags, stream, payload) in peer.gets() {
            assert_eq!(kind, kind::DATA, "seed {seed}");
            let number = stream as usize / 2;
            for byte in &payload {
                assert_eq!(usize::from(*byte), received[number] % 251);
                received[number] += 1;
            }
            window -= payload.len() as i64;
            windows[number] -= payload.len() as i64;
            assert!(
                payload.is_empty() || window >= 0 && windows[number] >= 0,
                "seed {seed}: beyond a window"
            );
            if flags & flag::END_STREAM != 0 {
                assert_eq!(received[number], sizes[number]);
                ended[number] = true;
            }
        }
        // The client opens windows as it pleases, and changes those of all streams now and then.
        if random(20) == 0 {
            let size = [0, 1, 1000, 65_535, 200_000][random(5) as usize];
            windows.iter_mut().for_each(|window| *window += size - stream_window);
            stream_window = size;
            let value = u32::try_from(size).unwrap().to_be_bytes();
            peer.sends(kind::SETTINGS, 0, 0, &[&[0, 4], &value[..]].concat());
            assert_eq!(peer.gets().len(), 1, "its ACK");
        }
        let number = random(streams as u64) as usize;
        for stream in [Some(number), None] {
            let by = [1, 100, 16_384, 100_000][random(4) as usize];
            let target = stream.map_or(&mut window, |number| &mut windows[number]);
            if random(2) == 0 && *target < 1 << 20 {
                *target += by;
                let id = stream.map_or(0, |number| 2 * number as u32 + 1);
                peer.sends(kind::WINDOW_UPDATE, 0, id, &u32::try_from(by).unwrap().to_be_bytes());
            }
        }
        assert_eq!(peer.fault, None);
        peer.now += Duration::from_secs(1);
    }
    drop(serving);
    let state = peer.shared.0.lock();
    assert!(state.streams.is_empty() && state.output.turns == 0);
}

/// What it does not read costs a buffer, however many streams it has.
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
    assert_eq!(peer.shared.unread(), 0);
}

/// Frames that make sense by chance, and streams that are served by chance: what is counted comes out even.
#[test]
fn nothing_is_left_of_whatever_a_client_does() {
    let rounds: u32 = (1..400).map(chaos).sum();
    assert!(rounds > 400 * 100, "{rounds}: most of what clients do is HTTP/2");
}

fn chaos(seed: u64) -> u32 {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let limits = Limits {
        h2_streams: 8,
        h2_stream_window: [1, 1000, 65_536][random(3) as usize],
        h2_connection_window: [70_000, 1 << 20][random(2) as usize],
        h2_control_burst: 1 << 20,
        h2_resets_burst: 1 << 20,
        h2_resets_total: 1 << 20,
        ..Limits::default()
    };
    let mut peer = Peer::silent(&limits);
    peer.writes(GREETING);
    peer.sends(kind::SETTINGS, 0, 0, &[]);
    let mut streams: Vec<ClientStream> = Vec::new();
    let mut opened = vec![1];
    let mut next = 3;
    peer.sends(kind::HEADERS, flag::END_HEADERS, 1, POST);
    let mut rounds = 0;
    while rounds < 300 {
        rounds += 1;
        let known = opened[random(opened.len() as u64) as usize];
        let size = [0, 1, 9, 300, 2000][random(5) as usize];
        let mut payload = vec![random(1 + size / 2) as u8; size as usize];
        let block = [GET, POST, b"\x82", b"", b"\x83\x84\x86\x41\x01a\x0f\x0d\x015"][random(5) as usize];
        let flags = if size == 0 { random(2) as u8 } else { random(256) as u8 };
        match random(16) {
            0..4 => {
                peer.sends(kind::HEADERS, flag::END_HEADERS | flags & flag::END_STREAM, next, block);
                opened.push(next);
                next += 2 + 2 * random(2) as u32;
            }
            4..8 => {
                peer.sends(kind::DATA, flags & (flag::END_STREAM | flag::PADDED), known, &payload);
            }
            8 => {
                peer.sends(kind::RST_STREAM, 0, known, &[0, 0, 0, 8]);
            }
            9 => {
                peer.sends(
                    kind::WINDOW_UPDATE,
                    0,
                    [0, known][random(2) as usize],
                    &[0, 0, random(256) as u8, 9],
                );
            }
            10 => {
                let setting = [0, [1, 3, 4][random(3) as usize], 0, 0, random(256) as u8, random(256) as u8];
                let is_ack = random(4) == 0;
                let payload = if is_ack { &[] } else { &setting[..] };
                peer.sends(kind::SETTINGS, if is_ack { flag::ACK } else { 0 }, 0, payload);
            }
            11 if random(4) == 0 => {
                peer.sends(kind::HEADERS, flag::END_HEADERS | flags & flag::END_STREAM, known, b"");
            }
            12 if random(200) == 0 => {
                payload.truncate(20);
                peer.sends(random(12) as u8, flags, [0, known][random(2) as usize], &payload);
            }
            13 if random(20) == 0 => peer.shared.begin_to_end(),
            _ => {}
        }
        while let Some((arrived, _)) = peer.shared.next() {
            if let Arrived::Request(asked) = arrived {
                streams.push(ClientStream::new(&peer.shared, asked.stream));
            }
        }
        let at = random(1 + streams.len() as u64) as usize;
        if let Some(stream) = streams.get_mut(at) {
            match random(8) {
                0 => drop(body(stream)),
                1 => {
                    let _ = stream.poll_receive(&mut noop());
                }
                2 => stream.consume(random(100) as usize),
                3 => {
                    let _ = stream.send_head(200, &HeaderList::new(), BodyLength::Chunked, true);
                }
                4 => {
                    let _ = stream.poll_send(&mut noop(), &[7; 20_000]);
                }
                5 => {
                    let _ = stream.finish(&HeaderList::new());
                }
                6 => stream.abort(),
                _ => {
                    streams.swap_remove(at);
                }
            }
        }
        if random(3) == 0 {
            peer.gets();
        }
        if let Some(fault) = peer.fault {
            peer.shared.expel(fault);
            break;
        }
    }
    peer.gets();
    drop(streams);
    let state = peer.shared.0.lock();
    assert!(state.streams.is_empty() && state.streams.open() == 0, "seed {seed}");
    assert_eq!((state.streams.unread.held(), state.output.turns), (0, 0), "seed {seed}");
    rounds
}

mod floods {
    use super::*;

    const CALM: Reason = Reason::ENHANCE_YOUR_CALM;

    /// A client with one stream, whose credits are used up.
    fn peer() -> (Peer, ClientStream) {
        let mut peer = Peer::new();
        let stream = peer.posts(1);
        for _ in 0..2 {
            peer.sends(kind::PING, 0, 0, &[0; 8]);
        }
        peer.gets();
        (peer, stream)
    }

    #[test]
    fn frames_without_progress_have_a_burst_and_a_rate() {
        for (kind, flags, stream, payload) in [
            (kind::PING, 0, 0, &[0; 8][..]),
            (kind::PING, flag::ACK, 0, &[0; 8]),
            (kind::SETTINGS, flag::ACK, 0, &[]),
            (kind::PRIORITY, 0, 1, &[0; 5]),
            (kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
            (kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
            (kind::DATA, 0, 1, &[]),
            (kind::DATA, flag::PADDED, 1, &[3, 0, 0, 0]),
            (kind::GOAWAY, 0, 0, &[0; 8]),
            (0xee, 0, 1, &[]),
        ] {
            let (peer, _stream) = peer();
            let flood = peer.until_fault(|peer, _| {
                peer.sends(kind, flags, stream, payload);
            });
            assert_eq!(flood, (999, CALM), "kind {kind}");
        }
        let (slow, _stream) = peer();
        let flood = slow.until_fault(|peer, _| {
            peer.now += Duration::from_millis(25);
            peer.sends(kind::PING, 0, 0, &[0; 8]);
        });
        assert!(flood.0 > 1900 && flood.0 < 2010, "40 a second use up 20 of the burst a second: {flood:?}");
        let (mut slow, _stream) = peer();
        for _ in 0..5000 {
            slow.now += Duration::from_millis(50);
            assert_eq!(slow.sends(kind::PING, 0, 0, &[0; 8]), None);
            slow.gets();
        }
    }

    #[test]
    fn what_answers_our_frames_is_free() {
        let mut peer = Peer::new();
        for request in 0..20_000 {
            let id = 2 * request + 1;
            let mut stream = peer.asks(id);
            peer.sends(kind::PRIORITY, 0, id, &[0; 5]);
            head(&mut stream, BodyLength::Chunked);
            assert_eq!(stream.poll_send(&mut noop(), &[0; 5000]), Poll::Ready(Ok(5000)));
            for stream in [0, id, 0, id] {
                assert_eq!(peer.sends(kind::WINDOW_UPDATE, 0, stream, &[0, 0, 0x20, 0]), None);
            }
            stream.finish(&HeaderList::new()).unwrap();
            peer.gets();
        }
        let (count, _) = peer.until_fault(|peer, _| {
            peer.sends(kind::PRIORITY, 0, 1, &[0; 5]);
        });
        assert!(count <= 1000 + 4096, "credits are not saved up for ever");
    }

    /// Each that opens all windows by a byte has each stream send a byte (CVE-2019-9511).
    #[test]
    fn settings_are_not_paid_for_by_what_they_have_us_send() {
        let mut peer = Peer::new();
        let _streams: Vec<_> = (1..201).step_by(2).map(|stream| peer.asks(stream)).collect();
        let flood = peer.until_fault(|peer, _| {
            peer.sends(kind::SETTINGS, 0, 0, &[]);
        });
        assert_eq!(flood, (76, CALM));
    }

    #[test]
    fn premature_resets_have_a_burst_a_rate_and_a_total() {
        let reset = |peer: &mut Peer, count: u32| {
            peer.sends(kind::HEADERS, flag::END_HEADERS, 2 * count + 1, GET);
            peer.sends(kind::RST_STREAM, 0, 2 * count + 1, &[0, 0, 0, 8]);
            while let Some((Arrived::Request(asked), gone)) = peer.shared.next() {
                assert!(gone || peer.fault.is_some());
                drop(ClientStream::new(&peer.shared, asked.stream));
            }
        };
        assert_eq!(Peer::new().until_fault(reset), (100, CALM));
        let flood = Peer::new().until_fault(|peer, count| {
            peer.now += Duration::from_millis(100);
            reset(peer, count);
        });
        assert_eq!(flood, (1000, CALM));
        // What was answered to its end may be reset.
        let mut peer = Peer::new();
        for count in 0..3000 {
            let mut stream = peer.posts(2 * count + 1);
            head(&mut stream, BodyLength::Empty);
            assert_eq!(peer.sends(kind::RST_STREAM, 0, 2 * count + 1, &[0; 4]), None);
            peer.now += Duration::from_millis(50);
            peer.gets();
        }
    }

    #[test]
    fn resets_that_we_are_made_to_send_count() {
        let bad = Peer::new().until_fault(|peer, count| {
            peer.sends(kind::HEADERS, WHOLE, 2 * count + 1, b"\x82\x82");
            peer.shared.next();
        });
        assert_eq!(bad, (100, CALM));
        let behind = Peer::new().until_fault(|peer, count| {
            let stream = (peer.fault.is_none()).then(|| peer.asks(2 * count + 1));
            peer.sends(kind::DATA, 0, 2 * count + 1, b"x");
            drop(stream);
        });
        assert_eq!(behind, (100, CALM));
    }

    #[test]
    fn what_comes_late_for_an_answered_stream_is_no_fault() {
        let mut peer = Peer::new();
        for stream in (1..4000).step_by(2) {
            let mut served = peer.posts(stream);
            head(&mut served, BodyLength::Empty);
            drop(served);
            assert_eq!(peer.sends(kind::DATA, flag::END_STREAM, stream, b"late"), None);
            assert_eq!(peer.resets(), [(stream, 0)]);
        }
        // Nobody sends so much of it.
        let (count, reason) = peer.until_fault(|peer, count| {
            let mut stream = peer.asks(4001 + 2 * count);
            head(&mut stream, BodyLength::Empty);
            drop(stream);
            peer.sends(kind::DATA, 0, 4001 + 2 * count, b"x");
            peer.sends(kind::DATA, 0, 4001 + 2 * count, b"x");
            peer.sends(kind::PING, 0, 0, &[0; 8]);
            peer.sends(kind::PING, 0, 0, &[0; 8]);
        });
        assert!(count < 5200 && reason == CALM, "{count}: without end it is one");
    }

    #[test]
    fn header_blocks_have_an_end() {
        let start = || {
            let mut peer = Peer::new();
            peer.sends(kind::HEADERS, 0, 1, b"h");
            peer
        };
        let small = start().until_fault(|peer, _| {
            peer.sends(kind::CONTINUATION, 0, 1, b"h");
        });
        // The stream has earned two credits, and SETTINGS were the first of the burst.
        assert_eq!(small, (16 + 2 + 999, CALM));
        let big = vec![0; FRAME];
        let large = start().until_fault(|peer, _| {
            peer.sends(kind::CONTINUATION, 0, 1, &big);
        });
        assert_eq!(large, (7, CALM));
    }
}

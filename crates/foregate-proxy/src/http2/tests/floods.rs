//! Floods of a client.

use super::*;

const CALM: Reason = Reason::ENHANCE_YOUR_CALM;

/// A client with one stream, and no credits left.
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
        assert!(peer.shared.next().is_none(), "nobody serves it");
    };
    assert_eq!(Peer::new().until_fault(reset), (100, CALM));
    let flood = Peer::new().until_fault(|peer, count| {
        peer.now += Duration::from_millis(100);
        reset(peer, count);
    });
    assert_eq!(flood, (1000, CALM));
    // A completely answered request may be reset.
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
    // No client sends this much of it.
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

#[test]
fn what_is_asked_behind_the_end_is_paid_for() {
    let mut peer = Peer::new();
    peer.shared.begin_to_end();
    peer.sends(kind::PING, flag::ACK, 0, &ENDING);
    let mut output = 0;
    let (count, reason) = peer.until_fault(|peer, count| {
        peer.sends(kind::HEADERS, WHOLE, 2 * count + 1, GET);
        peer.sends(kind::PING, 0, 0, &[0; 8]);
        output += peer.shared.output();
    });
    assert!(count < 600 && reason == CALM && output < 10_000, "{count} {reason:?} {output}");
}

#[test]
fn trailers_of_streams_that_were_reset_are_paid_for() {
    let mut peer = Peer::new();
    drop(peer.posts(1));
    let flood = peer.until_fault(|peer, _| {
        peer.sends(kind::HEADERS, WHOLE, 1, b"\x0f\x2d\x01a");
    });
    assert_eq!(flood.1, CALM);
}

#[test]
fn a_head_counts_for_its_client_before_it_is_served() {
    let client = Arc::new(Holdings::new([203, 0, 113, 8].into()));
    let mut peer = Peer::of(&Limits::default(), Some(Arc::clone(&client)));
    peer.writes(GREETING);
    peer.sends(kind::SETTINGS, 0, 0, &[]);
    // x: a field of 10,000 bytes, with a length of three bytes.
    let block = [GET, b"\x00\x01x\x7f\x91\x4d", &[b'a'; 10_000]].concat();
    peer.sends(kind::HEADERS, WHOLE, 1, &block);
    let one = client.held();
    assert!(one >= 10_000, "{one}");
    peer.sends(kind::HEADERS, WHOLE, 3, &block);
    assert!(client.held() >= 20_000, "{}", client.held());
    peer.sends(kind::RST_STREAM, 0, 3, &[0, 0, 0, 8]);
    assert_eq!(client.held(), one, "what was withdrawn is given back");
    let waiting = peer.shared.waiting_heads();
    assert!((10_000..11_000).contains(&waiting), "{waiting}");
    let Some(NewStream::Request(asked)) = peer.shared.next() else { panic!("a request has come") };
    assert_eq!(peer.shared.waiting_heads(), 0);
    assert_eq!(client.held(), one);
    asked.scratch.give();
    assert_eq!((client.held(), peer.fault), (0, None));
}

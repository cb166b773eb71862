//! Frames in, floods out.

use std::time::Duration;

use super::*;
use crate::link::frames::written as frame;

const PRIORITY: u8 = 2;
const WINDOW_UPDATE: u8 = 8;

struct Peer {
    meter: FrameMeter,
    now: Instant,
}

impl Peer {
    fn new() -> Self {
        let now = Instant::now();
        let mut meter = FrameMeter::new(&Limits::default(), now);
        meter.observe(now, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        Self { meter, now }
    }

    fn sends(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<(), Flood> {
        self.meter.observe(self.now, &frame(kind, flags, stream, payload))
    }

    fn gets(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.meter.observe_sent(self.now, &frame(kind, flags, stream, payload), |_| {});
    }

    /// How many times `send` goes well.
    fn until_flood(mut self, mut send: impl FnMut(&mut Self, u32) -> Result<(), Flood>) -> (u32, Flood) {
        for count in 0..1_000_000 {
            if let Err(flood) = send(&mut self, count) {
                assert_eq!(self.sends(kind::DATA, 0, 1, b"x"), Err(flood), "a flood stays one");
                return (count, flood);
            }
        }
        panic!("no flood");
    }
}

#[test]
fn frames_without_progress_have_a_burst_and_a_rate() {
    for (kind, flags, payload) in [
        (kind::PING, 0, &[0; 8][..]),
        (kind::PING, flag::ACK, &[0; 8]),
        (kind::SETTINGS, 0, &[]),
        (kind::SETTINGS, flag::ACK, &[]),
        (PRIORITY, 0, &[0; 5]),
        (WINDOW_UPDATE, 0, &[0, 0, 0, 1]),
        (kind::DATA, 0, &[]),
        (kind::DATA, flag::PADDED, &[3, 0, 0, 0]),
        (0xee, 0, &[]),
        (kind::RST_STREAM, 0, &[0; 4]),
    ] {
        let (count, flood) = Peer::new().until_flood(|peer, _| peer.sends(kind, flags, 1, payload));
        assert_eq!((count, flood), (1000, Flood::Control), "kind {kind}");
    }
    let (count, flood) = Peer::new().until_flood(|peer, _| {
        peer.now += Duration::from_millis(25);
        peer.sends(kind::PING, 0, 0, &[0; 8])
    });
    assert_eq!((count, flood), (1999, Flood::Control), "40 a second use up 20 of the burst a second");
    let mut slow = Peer::new();
    for _ in 0..5000 {
        slow.now += Duration::from_millis(50);
        slow.sends(kind::PING, 0, 0, &[0; 8]).unwrap();
    }
}

#[test]
fn what_answers_our_frames_is_free() {
    let mut peer = Peer::new();
    peer.gets(kind::SETTINGS, 0, 0, &[]);
    for request in 0..20_000 {
        let stream = 2 * request + 1;
        peer.sends(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, b"h").unwrap();
        peer.sends(PRIORITY, 0, stream, &[0; 5]).unwrap();
        peer.gets(kind::HEADERS, flag::END_HEADERS, stream, b"h");
        peer.gets(kind::DATA, flag::END_STREAM, stream, &[0; 5000]);
        for stream in [0, stream, 0, stream] {
            peer.sends(WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1]).unwrap();
        }
        peer.gets(kind::PING, 0, 0, &[0; 8]);
        peer.sends(kind::PING, flag::ACK, 0, &[0; 8]).unwrap();
    }
    assert!(peer.meter.control.tokens >= 999 * TokenBucket::TOKEN);
    let (count, _) = peer.until_flood(|peer, _| peer.sends(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]));
    assert!(count <= 1000 + CREDITS_LIMIT, "credits are not saved up for ever");
}

/// Each that opens all windows by a byte has each stream send a byte (CVE-2019-9511).
#[test]
fn settings_are_not_paid_for_by_what_they_have_us_send() {
    let mut peer = Peer::new();
    for stream in (1..201).step_by(2) {
        peer.sends(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, b"h").unwrap();
    }
    let dribble = |peer: &mut Peer, count: u32| {
        peer.sends(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, u8::try_from(count % 256).unwrap()])?;
        peer.gets(kind::SETTINGS, flag::ACK, 0, &[]);
        (1..201).step_by(2).for_each(|stream| peer.gets(kind::DATA, 0, stream, b"x"));
        Ok(())
    };
    assert_eq!(peer.until_flood(dribble), (76, Flood::Control));
}

#[test]
fn premature_resets_have_a_burst_a_rate_and_a_total() {
    let reset = |peer: &mut Peer, count: u32| {
        peer.sends(kind::HEADERS, flag::END_HEADERS, 2 * count + 1, b"h").unwrap();
        peer.sends(kind::RST_STREAM, 0, 2 * count + 1, &[0, 0, 0, 8])
    };
    assert_eq!(Peer::new().until_flood(reset), (100, Flood::Resets));
    let slowly = |peer: &mut Peer, count: u32| {
        peer.now += Duration::from_millis(100);
        reset(peer, count)
    };
    assert_eq!(Peer::new().until_flood(slowly), (1000, Flood::Resets));
}

#[test]
fn resets_that_we_are_made_to_send_count() {
    let made = |code: u8| {
        move |peer: &mut Peer, count: u32| {
            peer.sends(kind::HEADERS, flag::END_HEADERS, 2 * count + 1, b"h")?;
            peer.gets(kind::RST_STREAM, 0, 2 * count + 1, &[0, 0, 0, code]);
            Ok(())
        }
    };
    for code in [1, 3, 5, 7, 11] {
        // The flood is told by the next frame of the peer.
        assert_eq!(Peer::new().until_flood(made(code)), (101, Flood::Resets), "code {code}");
    }
    let mut peer = Peer::new();
    for count in 0..2000 {
        made(8)(&mut peer, count).unwrap();
    }
    assert_eq!(peer.meter.resets_left, 1000);
}

#[test]
fn what_comes_late_for_an_answered_stream_is_no_fault() {
    let mut peer = Peer::new();
    for stream in (1..4000).step_by(2) {
        peer.sends(kind::HEADERS, flag::END_HEADERS, stream, b"").unwrap();
        peer.gets(kind::HEADERS, flag::END_STREAM | flag::END_HEADERS, stream, b"");
        peer.gets(kind::RST_STREAM, 0, stream, &[0; 4]);
        peer.sends(kind::DATA, flag::END_STREAM, stream, b"late").unwrap();
        peer.gets(kind::RST_STREAM, 0, stream, &[0, 0, 0, 5]);
    }
    let (count, flood) = peer.until_flood(|peer, _| {
        peer.gets(kind::RST_STREAM, 0, 1, &[0, 0, 0, 5]);
        peer.sends(kind::DATA, 0, 1, b"x")
    });
    assert!(count < 5200, "{count}: without end it is one");
    assert_eq!(flood, Flood::Control);
}

#[test]
fn what_comes_behind_the_end_of_a_stream_that_is_not_answered_is_a_fault() {
    let (count, flood) = Peer::new().until_flood(|peer, count| {
        let stream = 2 * count + 1;
        peer.sends(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, b"")?;
        peer.sends(kind::DATA, 0, stream, b"x")?;
        peer.gets(kind::RST_STREAM, 0, stream, &[0, 0, 0, 5]);
        peer.sends(kind::DATA, 0, stream, b"x")
    });
    assert_eq!((count, flood), (100, Flood::Resets));
}

#[test]
fn a_reset_after_the_whole_response_is_not_premature() {
    let mut peer = Peer::new();
    for count in 0..3000 {
        let stream = 2 * count + 1;
        peer.sends(kind::HEADERS, flag::END_HEADERS, stream, b"h").unwrap();
        peer.gets(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, b"h");
        peer.sends(kind::RST_STREAM, 0, stream, &[0; 4]).unwrap();
    }
    assert_eq!(peer.meter.resets_left, 1000);
    assert!(peer.meter.open.is_empty());
}

#[test]
fn header_blocks_have_an_end() {
    let start = || {
        let mut peer = Peer::new();
        peer.sends(kind::HEADERS, 0, 1, b"h").unwrap();
        peer
    };
    let (count, flood) = start().until_flood(|peer, _| peer.sends(kind::CONTINUATION, 0, 1, b"h"));
    // The stream has earned two credits.
    assert_eq!((count, flood), (16 + 2 + 1000, Flood::Control));
    let big = vec![0; 16 * 1024];
    let (count, flood) = start().until_flood(|peer, _| peer.sends(kind::CONTINUATION, 0, 1, &big));
    assert_eq!((count, flood), (7, Flood::Continuation));
    let empty = |peer: &mut Peer, _| {
        peer.meter.credits = 0;
        peer.sends(kind::HEADERS, 0, 1, b"")
    };
    // The first one opens a stream.
    assert_eq!(Peer::new().until_flood(empty), (1001, Flood::Control));
}

#[test]
fn streams_that_are_remembered_are_bounded() {
    let mut peer = Peer::new();
    for count in 0..10_000 {
        peer.sends(kind::HEADERS, flag::END_HEADERS, 2 * count + 1, b"h").unwrap();
    }
    assert_eq!(peer.meter.open.len(), 164);
}

#[test]
fn frames_are_found_however_the_bytes_are_split() {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    for count in 0..60 {
        bytes.extend(frame(kind::HEADERS, flag::END_HEADERS, 2 * count + 1, b"block"));
        bytes.extend(frame(kind::DATA, flag::PADDED, 2 * count + 1, &[2, 1, 0, 0]));
        bytes.extend(frame(kind::DATA, flag::PADDED, 2 * count + 1, &[3, 0, 0, 0]));
        bytes.extend(frame(kind::RST_STREAM, 0, 2 * count + 1, &[0, 0, 0, 8]));
        bytes.extend(frame(kind::PING, 0, 0, &[0; 8]));
    }
    let now = Instant::now();
    let counts = |meter: &FrameMeter| (meter.resets_left, meter.credits, meter.control.tokens);
    let mut whole = FrameMeter::new(&Limits::default(), now);
    whole.observe(now, &bytes).unwrap();
    assert_eq!(whole.resets_left, 940);
    for size in 1..40 {
        let mut parts = FrameMeter::new(&Limits::default(), now);
        for part in bytes.chunks(size) {
            parts.observe(now, part).unwrap();
        }
        assert_eq!(counts(&parts), counts(&whole), "parts of {size}");
    }
    let sent = [frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 1]), frame(kind::DATA, 0, 3, &[0; 9000])].concat();
    for size in 1..40 {
        let mut parts = FrameMeter::new(&Limits::default(), now);
        sent.chunks(size).for_each(|part| parts.observe_sent(now, part, |_| {}));
        assert_eq!((parts.resets_left, parts.credits), (999, 6), "parts of {size}");
    }
}

#[test]
fn frames_that_nobody_takes_cost_no_more_than_a_multiple_of_the_window() {
    let mut peer = Peer::new();
    peer.sends(kind::HEADERS, flag::END_HEADERS, 1, b"h").unwrap();
    let (count, flood) = peer.until_flood(|peer, _| peer.sends(kind::DATA, 0, 1, b"x"));
    assert_eq!((count, flood), (16 * 1024, Flood::Data));
    let mut peer = Peer::new();
    peer.sends(kind::HEADERS, flag::END_HEADERS, 1, b"h").unwrap();
    for _ in 0..16 * 1024 {
        peer.sends(kind::DATA, 0, 1, &[0; 64]).unwrap();
    }
    assert_eq!(peer.meter.unread().held(), 5 << 20, "a window full of frames of 64 bytes");
    peer.gets(kind::RST_STREAM, 0, 1, &[0; 4]);
    assert_eq!(peer.meter.unread().held(), 0);
    for _ in 0..100_000 {
        peer.sends(kind::DATA, 0, 1, b"x").unwrap();
    }
}

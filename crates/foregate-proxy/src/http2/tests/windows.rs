//! Windows, in both directions.

use super::*;
use crate::limits::account::Account;
use crate::limits::budget::Budget;

/// A stream without window, with data that waits for more of it.
fn starved() -> (Peer, ClientStream) {
    let mut peer = Peer::new();
    let mut stream = peer.asks(1);
    head(&mut stream, BodyLength::Chunked);
    opens(&mut peer, 0, 1 << 24);
    while stream.poll_send(&mut noop(), &[0; 30_000]).is_ready() {
        peer.gets();
    }
    (peer, stream)
}

fn opens(peer: &mut Peer, stream: u32, by: u32) -> Option<Reason> {
    peer.sends(kind::WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

#[test]
fn small_openings_are_sent_together() {
    let (mut peer, mut stream) = starved();
    for _ in 0..50 {
        opens(&mut peer, 1, 10);
        assert!(stream.poll_send(&mut noop(), &[0; 30_000]).is_pending());
    }
    let until = peer.shared.release_openings(peer.now).expect("they are held back");
    assert_eq!(until - peer.now, Duration::from_millis(10));
    assert!(stream.poll_send(&mut noop(), &[0; 30_000]).is_pending());
    assert_eq!(peer.shared.release_openings(until), None);
    assert_eq!(stream.poll_send(&mut noop(), &[0; 30_000]), Poll::Ready(Ok(500)));
    assert!(stream.poll_send(&mut noop(), &[0; 30_000]).is_pending());
    opens(&mut peer, 1, 95);
    opens(&mut peer, 1, 4001);
    assert_eq!(stream.poll_send(&mut noop(), &[0; 30_000]), Poll::Ready(Ok(4096)), "that is useful");
    assert!(stream.poll_send(&mut noop(), &[0; 10]).is_pending());
    opens(&mut peer, 1, 10);
    assert_eq!(stream.poll_send(&mut noop(), &[0; 10]), Poll::Ready(Ok(10)), "that is all there is");
}

#[test]
fn a_window_that_nobody_waits_for_is_open_at_once() {
    let mut peer = Peer::new();
    let mut stream = peer.asks(1);
    head(&mut stream, BodyLength::Chunked);
    peer.sends(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    opens(&mut peer, 1, 3);
    assert_eq!(stream.poll_send(&mut noop(), b"hello"), Poll::Ready(Ok(3)));
    assert!(stream.poll_send(&mut noop(), b"lo").is_pending());
    // All windows are closed further, and opened again.
    peer.sends(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 9]);
    assert_eq!(stream.poll_send(&mut noop(), b"lo"), Poll::Ready(Ok(2)));
}

#[test]
fn small_openings_of_the_connection_are_sent_together() {
    let mut peer = Peer::new();
    let mut streams = [peer.asks(1), peer.asks(3)];
    for (stream, id) in streams.iter_mut().zip([1, 3]) {
        head(stream, BodyLength::Chunked);
        opens(&mut peer, id, 1 << 20);
    }
    for _ in 0..20 {
        let [first, _] = &mut streams;
        let _ = first.poll_send(&mut noop(), &[0; 30_000]);
        peer.gets();
    }
    let [first, second] = &mut streams;
    assert!(first.poll_send(&mut noop(), &[0; 9000]).is_pending());
    assert!(second.poll_send(&mut noop(), &[0; 9000]).is_pending());
    for _ in 0..30 {
        opens(&mut peer, 0, 10);
        assert!(first.poll_send(&mut noop(), &[0; 9000]).is_pending());
    }
    peer.shared.release_openings(peer.now + Duration::from_millis(10));
    let sent: Vec<_> = [first, second].map(|stream| stream.poll_send(&mut noop(), &[0; 9000])).into();
    assert!(sent.contains(&Poll::Ready(Ok(300))), "{sent:?}");
}

/// How often both windows can be opened by this much before the connection ends.
fn openings(by: u32) -> u32 {
    let (mut peer, mut stream) = starved();
    for count in 0..5000 {
        for window in [1, 0] {
            if let Some(reason) = opens(&mut peer, window, by) {
                assert_eq!(reason, Reason::ENHANCE_YOUR_CALM);
                return count;
            }
        }
        peer.shared.release_openings(peer.now + Duration::from_secs(1));
        let _ = stream.poll_send(&mut noop(), &[0; 30_000]);
        peer.gets();
    }
    5000
}

#[test]
fn openings_pay_for_themselves_by_the_bytes_that_are_sent_for_them() {
    let counts = [1, 100, 512, 1024, 16_384].map(openings);
    assert!(counts[0] < 600 && counts[1] < 700 && counts[2] < 1300, "{counts:?}");
    assert_eq!(counts[3..], [5000; 2]);
}

/// A client that returns its windows and waits for data before it does so again is never ended.
#[test]
fn a_receiver_with_little_memory_is_served_for_ever() {
    let (mut peer, mut stream) = starved();
    for _ in 0..5000 {
        assert_eq!(opens(&mut peer, 1, 50), None);
        assert_eq!(opens(&mut peer, 0, 50), None);
        if let Some(until) = peer.shared.release_openings(peer.now) {
            peer.now = until;
            peer.shared.release_openings(until);
        }
        assert_eq!(stream.poll_send(&mut noop(), &[0; 30_000]), Poll::Ready(Ok(50)));
        assert!(stream.poll_send(&mut noop(), &[0; 30_000]).is_pending());
        peer.gets();
    }
}

#[test]
fn each_change_of_all_windows_counts() {
    let mut peer = Peer::new();
    let many: Vec<u8> = [[0, 4, 0, 0, 0xff, 0xff], [0, 4, 0, 0, 0, 0]].concat().repeat(600);
    assert_eq!(peer.sends(kind::SETTINGS, 0, 0, &many), Some(Reason::ENHANCE_YOUR_CALM));
}

/// A client that uses its windows fully, with PINGs that take 100 ms.
struct Uploader {
    peer: Peer,
    stream: ClientStream,
    windows: [i64; 2],
    pings: usize,
}

impl Uploader {
    fn new(budget: &Arc<Budget>) -> Self {
        let shared = SharedState::new(&Limits::default(), None, Some(budget.share(Account::PROCESS)));
        let (now, decoder) = (Instant::now(), Inspector::new(4096, 1 << 20));
        let mut peer = Peer { shared, now, rest: Vec::new(), decoder, fault: None };
        peer.writes(GREETING);
        peer.sends(kind::SETTINGS, 0, 0, &[]);
        peer.sends(kind::SETTINGS, flag::ACK, 0, &[]);
        let stream = peer.posts(1);
        let mut uploader = Self { peer, stream, windows: [65_536, 65_535], pings: 0 };
        uploader.hears();
        uploader
    }

    fn hears(&mut self) {
        for (kind, _, stream, payload) in self.peer.gets() {
            match kind {
                kind::WINDOW_UPDATE => {
                    let by = u32::from_be_bytes(payload.try_into().unwrap());
                    self.windows[usize::from(stream == 0)] += i64::from(by);
                }
                kind::PING => self.pings += 1,
                _ => {}
            }
        }
    }

    /// The origin takes this much at most. Returns how much it took.
    fn consume(&mut self, most: usize) -> usize {
        let mut left = most;
        while left > 0 && self.stream.poll_receive(&mut noop()).is_ready() {
            let count = self.stream.data().len().min(left);
            if count == 0 {
                break;
            }
            self.stream.consume(count);
            left -= count;
        }
        most - left
    }

    /// One round trip, in which the origin takes this much at most. Returns how much was sent.
    fn round(&mut self, mut taken: usize) -> usize {
        let mut sent = 0;
        while let Ok(size @ 1..) = usize::try_from(self.windows[0].min(self.windows[1])) {
            let size = size.min(FRAME);
            assert_eq!(self.peer.sends(kind::DATA, 0, 1, &vec![0; size]), None);
            self.windows = self.windows.map(|window| window - size as i64);
            sent += size;
            taken -= self.consume(taken);
        }
        self.consume(taken);
        self.peer.now += Duration::from_millis(100);
        self.hears();
        for _ in 0..std::mem::take(&mut self.pings) {
            self.peer.sends(kind::PING, flag::ACK, 0, b"uploaded");
        }
        self.hears();
        sent
    }
}

#[test]
fn windows_of_uploads_grow_while_the_origin_takes_them() {
    let budget = Arc::new(Budget::reserved(20 << 20));
    let mut uploader = Uploader::new(&budget);
    let sent: Vec<_> = (0..30).map(|_| uploader.round(usize::MAX)).collect();
    assert!(sent[0] <= 65_536 && sent[29] >= 4 << 20, "{sent:?}");
    assert!(budget.held() <= 8 << 20, "{}", budget.held());
    drop(uploader.stream);
    assert_eq!(budget.held(), 0, "what a stream had is given back with it");
}

#[test]
fn an_origin_that_takes_less_has_little_waiting() {
    let budget = Arc::new(Budget::reserved(20 << 20));
    let mut uploader = Uploader::new(&budget);
    for _ in 0..100 {
        uploader.round(30_000);
    }
    assert_eq!(budget.held(), 0);
    for _ in 0..100 {
        uploader.round(usize::MAX);
    }
    assert!(budget.held() >= 3 << 20, "{}", budget.held());
    for _ in 0..300 {
        uploader.round(200_000);
    }
    let waiting = uploader.peer.shared.holding();
    assert!(waiting < 512 << 10 && budget.held() < 1 << 20, "{waiting} {}", budget.held());
}

#[test]
fn windows_do_not_grow_beyond_what_is_left_for_all() {
    let budget = Arc::new(Budget::reserved(4 << 20));
    let mut uploaders: Vec<_> = (0..20).map(|_| Uploader::new(&budget)).collect();
    for _ in 0..30 {
        for uploader in &mut uploaders {
            uploader.round(usize::MAX);
        }
    }
    assert!(budget.held() <= 4 << 20);
}

#[test]
fn windows_come_back_whatever_becomes_of_a_body() {
    let limits = Limits { h2_connection_window: 100_000, h2_stream_window: 50_000, ..Limits::default() };
    let mut peer = Peer::with(&limits);
    // The client's window on the connection.
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
    assert_eq!(peer.shared.holding(), 0);
    assert!(window >= 50_000, "{window}");
}

#[test]
fn a_client_is_held_to_its_windows_and_to_no_others() {
    // The client assumes the default window until it has seen our SETTINGS.
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

//! Relays between streams in memory.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{
    AsyncRead as _, AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex,
};

use super::way::BURST;
use super::*;

/// The buffer of an in-memory stream, bytes.
const ROOM: usize = 16 * 1024;
/// The size of a receive, bytes.
const PIECE: usize = 4096;

/// One end of a relay, over a stream in memory.
struct MemoryEnd {
    stream: DuplexStream,
    piece: Vec<u8>,
    finished: bool,
    holds: usize,
    left_at: Option<Instant>,
}

impl RelayEnd for MemoryEnd {
    type Error = io::ErrorKind;

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, io::ErrorKind>> {
        if self.piece.is_empty() {
            let mut bytes = [0; PIECE];
            let mut buffer = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)).map_err(|error| error.kind())?;
            self.piece.extend_from_slice(buffer.filled());
            // The peer sends this text to have its connection reset.
            if self.piece.starts_with(b"RST") {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset));
            }
        }
        Poll::Ready(Ok(!self.piece.is_empty()))
    }

    fn data(&self) -> &[u8] {
        &self.piece
    }

    fn consume(&mut self, count: usize) {
        self.piece.drain(..count);
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, io::ErrorKind>> {
        assert!(!self.finished && !data.is_empty());
        Pin::new(&mut self.stream).poll_write(cx, data).map_err(|error| error.kind())
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), io::ErrorKind>> {
        Pin::new(&mut self.stream).poll_flush(cx).map_err(|error| error.kind())
    }

    fn finish(&mut self) -> Result<(), io::ErrorKind> {
        assert!(!std::mem::replace(&mut self.finished, true), "once");
        Ok(())
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), io::ErrorKind>> {
        assert!(self.finished);
        Pin::new(&mut self.stream).poll_shutdown(cx).map_err(|error| error.kind())
    }

    fn poll_failed(&mut self, _cx: &mut Context<'_>) -> Poll<io::ErrorKind> {
        Poll::Pending
    }

    fn hold(&mut self, _cx: &mut Context<'_>) {
        self.holds += 1;
    }

    fn left_at(&self) -> Option<Instant> {
        self.left_at
    }
}

fn end() -> (MemoryEnd, DuplexStream) {
    let (ours, theirs) = duplex(ROOM);
    (MemoryEnd { stream: ours, piece: Vec::new(), finished: false, holds: 0, left_at: None }, theirs)
}

/// A relay that waits for a minute, its ends, and the peers of these.
struct Scene {
    relay: Relay,
    ends: (MemoryEnd, MemoryEnd),
    near: DuplexStream,
    far: DuplexStream,
    timer: Timer,
}

impl Scene {
    fn new() -> Self {
        let minute = Duration::from_secs(60);
        Self::waiting(RelayTimes { idle: minute, near_takes: minute, far_takes: minute })
    }

    fn waiting(times: RelayTimes) -> Self {
        let ((near_end, near), (far_end, far)) = (end(), end());
        let (ends, timer) = ((near_end, far_end), Timer::new(Duration::from_millis(10)));
        Self { relay: Relay::new(times, Instant::now()), ends, near, far, timer }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RelayFault<io::ErrorKind>>> {
        self.relay.poll(cx, &mut self.ends.0, &mut self.ends.1, &mut self.timer)
    }

    /// Runs the relay to its end, or until nothing moves.
    async fn run(&mut self) -> Option<Result<(), RelayFault<io::ErrorKind>>> {
        let mut before = None;
        poll_fn(|cx| {
            let polled = self.poll(cx);
            let after = Some(self.relay.record());
            match polled {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending if before == after => Poll::Ready(None),
                Poll::Pending => {
                    before = after;
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            }
        })
        .await
    }
}

async fn rest_of(peer: &mut DuplexStream) -> String {
    let mut rest = String::new();
    peer.read_to_string(&mut rest).await.unwrap();
    rest
}

#[tokio::test]
async fn the_near_peer_may_end_first() {
    let mut scene = Scene::new();
    scene.near.write_all(b"question").await.unwrap();
    scene.near.shutdown().await.unwrap();
    assert_eq!(scene.run().await, None, "the far peer may still answer");
    assert_eq!(rest_of(&mut scene.far).await, "question");
    assert_eq!(scene.relay.record(), RelayRecord { up: 8, down: 0, ended_by: Some(RelaySide::Near) });
    scene.far.write_all(b"an answer").await.unwrap();
    assert_eq!(scene.run().await, None);
    scene.far.shutdown().await.unwrap();
    assert_eq!(scene.run().await, Some(Ok(())));
    assert_eq!(rest_of(&mut scene.near).await, "an answer");
    assert_eq!(scene.relay.record(), RelayRecord { up: 8, down: 9, ended_by: Some(RelaySide::Near) });
}

#[tokio::test]
async fn the_far_peer_may_end_first() {
    let mut scene = Scene::new();
    scene.far.write_all(b"greeting").await.unwrap();
    scene.far.shutdown().await.unwrap();
    assert_eq!(scene.run().await, None, "the near peer may still speak");
    assert_eq!(rest_of(&mut scene.near).await, "greeting");
    scene.near.write_all(b"thanks").await.unwrap();
    scene.near.shutdown().await.unwrap();
    assert_eq!(scene.run().await, Some(Ok(())));
    assert_eq!(rest_of(&mut scene.far).await, "thanks");
    assert_eq!(scene.relay.record(), RelayRecord { up: 6, down: 8, ended_by: Some(RelaySide::Far) });
}

#[tokio::test]
async fn both_may_end_at_once() {
    let mut scene = Scene::new();
    scene.near.shutdown().await.unwrap();
    scene.far.shutdown().await.unwrap();
    assert_eq!(scene.run().await, Some(Ok(())));
    assert_eq!(scene.relay.record(), RelayRecord { up: 0, down: 0, ended_by: Some(RelaySide::Near) });
}

#[tokio::test]
async fn a_slow_reader_holds_its_writer_and_nobody_else() {
    let mut scene = Scene::new();
    let sent: Vec<u8> = (0..1_000_000u32).map(|index| index as u8).collect();
    let (mut given, mut taken) = (0, Vec::new());
    while taken.len() < sent.len() {
        while given < sent.len() {
            let written =
                poll_fn(|cx| Poll::Ready(Pin::new(&mut scene.near).poll_write(cx, &sent[given..]))).await;
            let Poll::Ready(count) = written else { break };
            given += count.unwrap();
            assert_eq!(scene.run().await, None);
        }
        assert!(given <= taken.len() + 2 * ROOM + PIECE, "no more than streams and one piece hold");
        assert!(scene.relay.up.stuck().is_some() || given == sent.len());
        // The other direction goes on.
        scene.far.write_all(b"x").await.unwrap();
        assert_eq!(scene.run().await, None);
        assert_eq!(scene.near.read_u8().await.unwrap(), b'x');
        let mut some = [0; 1000];
        let count = scene.far.read(&mut some).await.unwrap();
        taken.extend_from_slice(&some[..count]);
    }
    assert!(taken == sent);
    assert!(scene.ends.0.holds > 0 && scene.ends.1.holds == 0);
    assert_eq!(scene.run().await, None);
    assert_eq!(scene.relay.up.stuck(), None, "all was taken");
}

#[tokio::test]
async fn peers_that_are_always_ready_have_the_worker_for_a_while_at_a_time() {
    let mut scene = Scene::new();
    let (near, mut far) = duplex(1 << 20);
    scene.ends.0.stream = near;
    let (wide, _reader) = duplex(1 << 20);
    scene.ends.1.stream = wide;
    far.write_all(&vec![0; 1 << 20]).await.unwrap();
    let mut moved = 0;
    poll_fn(|cx| {
        assert!(scene.poll(cx).is_pending());
        let up = scene.relay.record().up;
        assert!(up - moved < BURST + PIECE as u64);
        moved = up;
        if up == 1 << 20 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[tokio::test]
async fn nothing_moves_for_too_long() {
    let mut times = RelayTimes { idle: Duration::from_millis(50), near_takes: MINUTE, far_takes: MINUTE };
    let start = Instant::now();
    let mut scene = Scene::waiting(times);
    assert_eq!(poll_fn(|cx| scene.poll(cx)).await, Err(RelayFault::Idle));
    assert!(start.elapsed() >= times.idle);
    // Any progress in either direction restarts the time.
    let start = Instant::now();
    let mut scene = Scene::waiting(times);
    let mut near = std::mem::replace(&mut scene.near, duplex(1).0);
    let speaks = async {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(30)).await;
            near.write_all(b"x").await.unwrap();
        }
    };
    let (result, ()) = tokio::join!(poll_fn(|cx| scene.poll(cx)), speaks);
    assert_eq!(result, Err(RelayFault::Idle));
    assert!(start.elapsed() >= Duration::from_millis(150) + times.idle);
    // After the far peer has ended, the relay lasts only as long as a peer may take: the peer may
    // have gone, and nothing is lost.
    times = RelayTimes { idle: MINUTE, near_takes: MINUTE, far_takes: Duration::from_millis(50) };
    let mut scene = Scene::waiting(times);
    scene.far.shutdown().await.unwrap();
    assert_eq!(poll_fn(|cx| scene.poll(cx)).await, Ok(()));
    assert_eq!(scene.relay.record().ended_by, Some(RelaySide::Far));
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_peer_that_does_not_take_what_waits_stalls_its_direction() {
    let short = Duration::from_millis(50);
    for side in [RelaySide::Near, RelaySide::Far] {
        let (near_takes, far_takes) = if side == RelaySide::Near { (short, MINUTE) } else { (MINUTE, short) };
        let mut scene = Scene::waiting(RelayTimes { idle: MINUTE, near_takes, far_takes });
        let writer = if side == RelaySide::Near { &mut scene.far } else { &mut scene.near };
        let mut writer = std::mem::replace(writer, duplex(1).0);
        let writes = async { writer.write_all(&vec![0; 3 * ROOM]).await };
        let result = tokio::select! {
            result = poll_fn(|cx| scene.poll(cx)) => result,
            _ = writes => unreachable!("there is no room for it"),
        };
        assert_eq!(result, Err(RelayFault::Stalled(side)));
    }
}

#[tokio::test]
async fn what_leaves_before_it_is_progress_of_a_peer_that_waits_for_room() {
    let mut scene = Scene::waiting(RelayTimes { idle: 9 * MINUTE, near_takes: MINUTE, far_takes: MINUTE });
    let mut far = std::mem::replace(&mut scene.far, duplex(1).0);
    poll_fn(|cx| {
        let _ = Pin::new(&mut far).poll_write(cx, &[0; ROOM]);
        Poll::Ready(())
    })
    .await;
    scene.run().await;
    far.write_all(b"x").await.unwrap();
    assert_eq!(scene.run().await, None);
    let stuck = scene.relay.down.stuck().unwrap();
    assert_eq!(scene.relay.deadline::<()>(), (stuck + MINUTE, RelayFault::Stalled(RelaySide::Near)));
    let later = Instant::now() + MINUTE / 2;
    scene.ends.0.left_at = Some(later);
    assert_eq!(scene.run().await, None);
    assert_eq!(scene.relay.deadline::<()>(), (later + MINUTE, RelayFault::Stalled(RelaySide::Near)));
}

#[tokio::test]
async fn a_reset_ends_both_directions_and_says_where() {
    let mut scene = Scene::new();
    scene.near.write_all(b"RST").await.unwrap();
    assert_eq!(
        scene.run().await,
        Some(Err(RelayFault::Failed(RelaySide::Near, io::ErrorKind::ConnectionReset)))
    );
    let mut scene = Scene::new();
    scene.near.write_all(b"request").await.unwrap();
    scene.far.write_all(b"RST").await.unwrap();
    assert_eq!(
        scene.run().await,
        Some(Err(RelayFault::Failed(RelaySide::Far, io::ErrorKind::ConnectionReset)))
    );
    assert_eq!(scene.relay.record().up, 7, "what came before it was passed on");
    // A write finds out that a peer is gone.
    let mut scene = Scene::new();
    drop(scene.far);
    scene.far = duplex(1).0;
    scene.near.write_all(b"request").await.unwrap();
    assert_eq!(scene.run().await, Some(Err(RelayFault::Failed(RelaySide::Far, io::ErrorKind::BrokenPipe))));
}

#[tokio::test]
async fn nothing_is_lost_with_what_is_said_to_a_far_peer_that_has_ended_and_gone() {
    let mut scene = Scene::new();
    scene.far.write_all(b"all").await.unwrap();
    scene.far.shutdown().await.unwrap();
    assert_eq!(scene.run().await, None);
    drop(scene.far);
    scene.far = duplex(1).0;
    scene.near.write_all(b"more").await.unwrap();
    assert_eq!(scene.run().await, Some(Ok(())));
    assert_eq!(rest_of(&mut scene.near).await, "all");
    assert_eq!(scene.relay.record().ended_by, Some(RelaySide::Far));
    // The output for a near peer that is gone is lost.
    let mut scene = Scene::new();
    scene.near.shutdown().await.unwrap();
    assert_eq!(scene.run().await, None);
    drop(scene.near);
    scene.near = duplex(1).0;
    scene.far.write_all(b"answer").await.unwrap();
    assert_eq!(scene.run().await, Some(Err(RelayFault::Failed(RelaySide::Near, io::ErrorKind::BrokenPipe))));
}

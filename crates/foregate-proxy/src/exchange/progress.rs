//! Progress of bodies, and its deadlines.

use std::time::{Duration, Instant};

use crate::settings::{OriginTimes, Timeouts};
use crate::transport::progress::{Movement, Rate, Taking};

/// The time of the last progress in each direction, and the rate at which the client sends.
#[derive(Debug)]
pub struct Progress {
    up: Movement,
    given: u64,
    down: Movement,
    client: Taking,
    rate: Rate,
}

/// The event that an exchange waits for. Each has its own time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwaitedEvent {
    /// The client's body.
    ClientBody,
    /// The client's body, which the client may hold back until the origin has sent a 100 (RFC 9110, section 10.1.1).
    ExpectedBody,
    /// The client has to read our output.
    ClientRead,
    /// The origin has to read our output.
    OriginRead,
    /// The head of the origin's response.
    FirstByte,
    /// The origin's body.
    OriginBody,
    /// Either body, once the final response has begun. Each side may need the other side's data before it sends more.
    EitherBody,
}

impl Progress {
    /// Nothing has moved yet.
    pub fn new(now: Instant) -> Self {
        Self {
            up: Movement::new(now),
            given: 0,
            down: Movement::new(now),
            client: Taking::default(),
            rate: Rate::new(now),
        }
    }

    /// Restarts, for another awaited event.
    pub fn restart(&mut self, now: Instant) {
        self.up.restart(now);
        self.down.restart(now);
        self.client = Taking::default();
        self.rate.restart(self.up.bytes(), now);
    }

    /// Records the bytes moved so far in each direction.
    pub fn observe(&mut self, uploaded: u64, downloaded: u64, now: Instant) {
        self.up.observe(uploaded, now);
        self.down.observe(downloaded, now);
    }

    /// Records the bytes that the origin has received so far. They may come from memory or a file, without progress of the
    /// client.
    pub fn observe_given(&mut self, given: u64, now: Instant) {
        if given != self.given {
            self.given = given;
            self.up.restart(now);
        }
    }

    /// Records the bytes that the client has received so far, whether the exchange `waits` for the client, and the last
    /// progress of other streams of its connection.
    pub fn observe_client(&mut self, given: u64, waits: bool, left_at: Option<Instant>, now: Instant) {
        self.client.observe(given, waits, now);
        self.client.has_left(left_at);
    }

    /// The time of the last progress of the upload.
    pub fn uploaded_at(&self) -> Instant {
        self.up.at()
    }

    /// The origin has been given all of the request.
    pub fn uploaded_all(&mut self, now: Instant) {
        self.up.restart(now);
    }

    /// Starts a new span for the client's rate, because the exchange has not been waiting for the client.
    pub fn excuse_client(&mut self, now: Instant) {
        self.rate.restart(self.up.bytes(), now);
    }

    /// The time at which the client will have been silent for `pause`, unless it sends something.
    pub fn silent_for(&self, pause: Duration) -> Instant {
        self.up.at() + pause
    }

    /// The deadline of `awaited`. `None` if it depends on an origin's time limits and `origin` is `None`.
    pub fn deadline(
        &mut self,
        awaited: AwaitedEvent,
        timeouts: &Timeouts,
        origin: Option<OriginTimes>,
        now: Instant,
    ) -> Option<Instant> {
        Some(match awaited {
            AwaitedEvent::ClientBody => self.client_deadline(timeouts, now),
            AwaitedEvent::ExpectedBody => self.up.at() + timeouts.body_idle.max(origin?.first_byte),
            AwaitedEvent::ClientRead => self.client.stuck().unwrap_or(now) + timeouts.write_stall,
            AwaitedEvent::OriginRead | AwaitedEvent::OriginBody => self.moved_at() + origin?.idle,
            AwaitedEvent::FirstByte => self.up.at() + origin?.first_byte,
            AwaitedEvent::EitherBody => self.moved_at() + timeouts.body_idle.max(origin?.idle),
        })
    }

    /// The time of the last progress in either direction. Before the response has begun, only the upload counts.
    pub fn moved_at(&self) -> Instant {
        self.up.at().max(self.down.at())
    }

    /// Until when more of the client's body must have come.
    pub fn client_deadline(&mut self, timeouts: &Timeouts, now: Instant) -> Instant {
        let idle = self.up.at() + timeouts.body_idle;
        idle.min(self.rate.deadline(self.up.bytes(), timeouts, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::UpstreamSettings;

    #[test]
    fn what_leaves_before_it_is_progress_of_what_waits_for_room() {
        let start = Instant::now();
        let (timeouts, upstream) = (Timeouts::default(), UpstreamSettings::new("a", Vec::new()));
        let mut progress = Progress::new(start);
        progress.observe_client(0, true, None, start);
        let later = start + Duration::from_secs(29);
        for (at, expected) in [(None, start), (Some(later), later), (Some(start), later)] {
            progress.observe_client(0, true, at, later);
            let deadline = progress
                .deadline(AwaitedEvent::ClientRead, &timeouts, Some((&upstream).into()), later)
                .unwrap();
            assert_eq!(deadline, expected + timeouts.write_stall);
        }
    }

    #[test]
    fn what_the_origin_takes_is_progress_but_none_of_the_clients() {
        let start = Instant::now();
        let (timeouts, upstream) = (Timeouts::default(), UpstreamSettings::new("a", Vec::new()));
        let mut progress = Progress::new(start);
        let later = start + Duration::from_secs(45);
        progress.observe_given(1 << 20, later);
        let deadline =
            progress.deadline(AwaitedEvent::OriginRead, &timeouts, Some((&upstream).into()), later).unwrap();
        assert_eq!(deadline, later + upstream.idle_timeout);
        let deadline =
            progress.deadline(AwaitedEvent::ClientBody, &timeouts, Some((&upstream).into()), later).unwrap();
        assert!(deadline < later, "it has sent nothing for longer than it may");
        progress.excuse_client(later);
        let deadline =
            progress.deadline(AwaitedEvent::ClientBody, &timeouts, Some((&upstream).into()), later).unwrap();
        assert_eq!(deadline, later + timeouts.body_idle);
    }

    #[test]
    fn once_the_response_has_begun_movement_in_either_direction_is_life() {
        let start = Instant::now();
        let (timeouts, upstream) = (Timeouts::default(), UpstreamSettings::new("a", Vec::new()));
        let mut progress = Progress::new(start);
        let mut judge = |second: u64, uploaded: u64, downloaded: u64| {
            let now = start + Duration::from_secs(second);
            progress.observe(uploaded, downloaded, now);
            let both = [AwaitedEvent::EitherBody, AwaitedEvent::OriginBody, AwaitedEvent::OriginRead];
            both.map(|awaited| progress.deadline(awaited, &timeouts, Some((&upstream).into()), now).unwrap())
        };
        let idle = timeouts.body_idle.max(upstream.idle_timeout);
        for second in (0..300).step_by(20) {
            let now = start + Duration::from_secs(second);
            let expected = [now + idle, now + upstream.idle_timeout, now + upstream.idle_timeout];
            assert_eq!(judge(second, second, 0), expected, "one byte a second is enough");
        }
        for second in (300..600).step_by(20) {
            let now = start + Duration::from_secs(second);
            assert_eq!(judge(second, 280, second)[0], now + idle, "the client is silent, the origin is not");
        }
        assert_eq!(judge(900, 280, 580)[0], start + Duration::from_secs(580) + idle, "neither moves");
    }

    #[test]
    fn a_body_that_trickles_is_too_slow_after_the_grace() {
        let start = Instant::now();
        let timeouts = Timeouts::default();
        let upstream = UpstreamSettings::new("a", Vec::new());
        let mut progress = Progress::new(start);
        let mut deadline = |second: u64, bytes: u64| {
            let now = start + Duration::from_secs(second);
            progress.observe(bytes, 0, now);
            progress.deadline(AwaitedEvent::ClientBody, &timeouts, Some((&upstream).into()), now).unwrap()
                - start
        };
        assert_eq!(deadline(0, 0), Duration::from_secs(30));
        assert_eq!(deadline(5, 1 << 20), Duration::from_secs(30));
        assert_eq!(deadline(29, (1 << 20) + 256 * 20), Duration::from_secs(30));
        assert_eq!(deadline(30, (1 << 20) + 256 * 20), Duration::from_secs(50));
        let passed = deadline(50, (1 << 20) + 256 * 40 - 1);
        assert_eq!(passed, Duration::from_secs(50), "too slow: the time has passed");
    }

    #[test]
    fn what_comes_in_the_grace_does_not_help_afterwards() {
        let start = Instant::now();
        let timeouts = Timeouts::default();
        let mut progress = Progress::new(start);
        progress.client_deadline(&timeouts, start);
        for second in 1..30 {
            let now = start + Duration::from_secs(second);
            progress.observe((1 << 20) + 255 * second, 0, now);
            assert!(progress.client_deadline(&timeouts, now) > now);
        }
        let now = start + Duration::from_secs(30);
        assert_eq!(progress.client_deadline(&timeouts, now), now, "255 bytes a second for 20 s");
    }
}

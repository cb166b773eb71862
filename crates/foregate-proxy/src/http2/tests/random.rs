//! Random behaviour of clients and streams.

use super::*;

/// The source of choices: random, or given.
pub enum Choices<'a> {
    Chance(u64),
    Chosen(&'a [u8]),
}

impl Choices<'_> {
    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        match self {
            Self::Chance(state) => {
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                *state % end
            }
            Self::Chosen(rest) => {
                let (number, behind) = rest.split_first_chunk().unwrap_or((&[0; 2], &[]));
                *rest = behind;
                u64::from(u16::from_be_bytes(*number)) % end
            }
        }
    }

    fn is_over(&self) -> bool {
        matches!(self, Self::Chosen([]))
    }
}

impl From<u64> for Choices<'static> {
    fn from(seed: u64) -> Self {
        Self::Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
}

impl<'a> From<&'a [u8]> for Choices<'a> {
    fn from(data: &'a [u8]) -> Self {
        Self::Chosen(data)
    }
}

/// Bodies over windows that open at random: every byte arrives in order, none beyond a window, and
/// no stream waits for ever.
#[test]
fn every_body_comes_whole_through_whatever_windows() {
    for seed in 0..60 {
        transfer(seed);
    }
}

fn transfer(seed: u64) {
    let mut choices = Choices::from(seed);
    let mut random = |end| choices.below(end);
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
                // Other tasks may have their turn in between.
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
        peer.shared.release_openings(peer.now);
    }
    drop(serving);
    let state = peer.shared.0.lock();
    assert!(state.streams.is_empty() && state.output.turns == 0);
}

/// Plausible frames and stream operations at random: the counts come out even.
#[test]
fn nothing_is_left_of_whatever_a_client_does() {
    let rounds: u32 = (1..400_u64).map(|seed| chaos(seed.into(), seed)).sum();
    assert!(rounds > 400 * 100, "{rounds}: most of what clients do is HTTP/2");
}

#[test]
fn nothing_is_left_of_what_was_found_by_fuzzing() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/http2");
    let inputs: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(inputs.len() >= 10, "the corpus is there");
    for input in inputs {
        chaos(Choices::from(&*std::fs::read(input).unwrap()), 0);
    }
}

/// Runs a client and its streams by these choices; returns the number of rounds. `seed` is printed
/// at a failure.
pub fn chaos(mut choices: Choices<'_>, seed: u64) -> u32 {
    let limits = Limits {
        h2_streams: 8,
        h2_stream_window: [1, 1000, 65_536][choices.below(3) as usize],
        h2_connection_window: [70_000, 1 << 20][choices.below(2) as usize],
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
    while rounds < 300 && !choices.is_over() {
        rounds += 1;
        let known = opened[choices.below(opened.len() as u64) as usize];
        let size = [0, 1, 9, 300, 2000][choices.below(5) as usize];
        let mut payload = vec![choices.below(1 + size / 2) as u8; size as usize];
        let block =
            [GET, POST, b"\x82", b"", b"\x83\x84\x86\x41\x01a\x0f\x0d\x015"][choices.below(5) as usize];
        let flags = if size == 0 { choices.below(2) as u8 } else { choices.below(256) as u8 };
        match choices.below(16) {
            0..4 => {
                peer.sends(kind::HEADERS, flag::END_HEADERS | flags & flag::END_STREAM, next, block);
                opened.push(next);
                next += 2 + 2 * choices.below(2) as u32;
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
                    [0, known][choices.below(2) as usize],
                    &[0, 0, choices.below(256) as u8, 9],
                );
            }
            10 => {
                let setting = [
                    0,
                    [1, 3, 4][choices.below(3) as usize],
                    0,
                    0,
                    choices.below(256) as u8,
                    choices.below(256) as u8,
                ];
                let is_ack = choices.below(4) == 0;
                let payload = if is_ack { &[] } else { &setting[..] };
                peer.sends(kind::SETTINGS, if is_ack { flag::ACK } else { 0 }, 0, payload);
            }
            11 if choices.below(4) == 0 => {
                peer.sends(kind::HEADERS, flag::END_HEADERS | flags & flag::END_STREAM, known, b"");
            }
            12 if choices.below(200) == 0 => {
                payload.truncate(20);
                peer.sends(choices.below(12) as u8, flags, [0, known][choices.below(2) as usize], &payload);
            }
            13 if choices.below(20) == 0 => peer.shared.begin_to_end(),
            14 if choices.below(200) == 0 => {
                let bytes: Vec<u8> = (0..choices.below(64)).map(|_| choices.below(256) as u8).collect();
                peer.writes(&bytes);
            }
            15 if choices.below(20) == 0 => peer.shared.ask_whether_read(),
            _ => {}
        }
        while choices.below(4) > 0
            && let Some(arrived) = peer.shared.next()
        {
            if let NewStream::Request(asked) = arrived {
                streams.push(ClientStream::new(&peer.shared, asked.stream));
            }
        }
        let at = choices.below(1 + streams.len() as u64) as usize;
        if let Some(stream) = streams.get_mut(at) {
            match choices.below(8) {
                0 => drop(body(stream)),
                1 => {
                    let _ = stream.poll_receive(&mut noop());
                }
                2 => stream.consume(choices.below(100) as usize),
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
        if choices.below(3) == 0 {
            peer.gets();
        }
        if let Some(fault) = peer.fault {
            peer.shared.expel(fault);
            break;
        }
    }
    peer.gets();
    drop(streams);
    while let Some(arrived) = peer.shared.next() {
        if let NewStream::Request(asked) = arrived {
            drop(ClientStream::new(&peer.shared, asked.stream));
        }
    }
    let state = peer.shared.0.lock();
    assert!(state.streams.is_empty() && state.streams.open() == 0, "seed {seed}");
    assert_eq!((state.streams.holding.held(), state.output.turns), (0, 0), "seed {seed}");
    rounds
}

//! The shared buffer of lines, and the thread that writes it to the file.

use std::io::{self, ErrorKind};
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use super::output::LogOutput;
use crate::counters::metrics::Counter;
use crate::settings::LogTarget;
use crate::time::clock::Clock;

/// The most bytes that wait to be written or are being written. Further lines are dropped.
pub(in crate::telemetry) const BACKLOG_LIMIT: usize = 4 * 1024 * 1024;
/// The number of waiting bytes that are written without further delay.
const BATCH: usize = 64 * 1024;
/// The average interval between two writes; a full [`BATCH`] is written earlier. A line is therefore in
/// the file soon after its response, and under load many lines share the cost of one wake-up.
const PERIOD: Duration = Duration::from_millis(5);
/// The most unused time that is saved up as a burst allowance: after a quiet time, the first lines
/// are written without waiting for [`PERIOD`].
const UNUSED: Duration = Duration::from_millis(100);
/// The capacity in bytes above which an empty buffer is freed.
const BUFFER_KEPT: usize = 256 * 1024;

/// The state shared by the serving threads and the writer.
#[derive(Debug)]
pub(super) struct WriterShared {
    state: Mutex<WriterState>,
    /// Signals the writer that there is something to do.
    work: Condvar,
    /// Signals that the writer has written something.
    progress: Condvar,
    /// The number of bytes that the writer has written or given up: the counterpart of
    /// [`WriterState::taken_in`].
    written: watch::Sender<u64>,
    dropped: Arc<Counter>,
}

#[derive(Debug, Default)]
struct WriterState {
    lines: Vec<u8>,
    /// The number of all bytes that were ever added to `lines`.
    taken_in: u64,
    /// The number of bytes that the writer has taken from `lines` and not written yet.
    in_flight: usize,
    /// True while the writer sleeps until a line is added.
    idle: bool,
    hurry: bool,
    reopen: bool,
    closed: bool,
}

/// Opens the target and starts the thread.
pub(super) fn start(
    target: &LogTarget,
    dropped: Arc<Counter>,
    clock: Clock,
) -> io::Result<Arc<WriterShared>> {
    let output = LogOutput::open(target, clock)?;
    let shared = Arc::new(WriterShared {
        state: Mutex::new(WriterState::default()),
        work: Condvar::new(),
        progress: Condvar::new(),
        written: watch::Sender::new(0),
        dropped,
    });
    let writer = Writer {
        shared: Arc::clone(&shared),
        target: target.clone(),
        output,
        rest: clock.now(),
        failing: false,
        clock,
    };
    thread::Builder::new().name("foregate-log".into()).spawn(move || writer.run())?;
    Ok(shared)
}

impl WriterShared {
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.state.lock();
        if state.lines.len() + state.in_flight + line.len() > BACKLOG_LIMIT {
            drop(state);
            self.dropped.inc();
            return;
        }
        let before = state.lines.len();
        state.lines.extend_from_slice(line);
        state.taken_in += line.len() as u64;
        // The writer is woken at most twice for a batch: for its first line, and when the batch is full.
        let wake = state.idle || (before < BATCH && state.lines.len() >= BATCH);
        state.idle = false;
        drop(state);
        if wake {
            self.work.notify_one();
        }
    }

    pub(super) fn reopen(&self) {
        self.state.lock().reopen = true;
        self.work.notify_one();
    }

    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.work.notify_one();
    }

    /// Returns true if lost lines are counted in `counter`.
    pub(super) fn counts_in(&self, counter: &Arc<Counter>) -> bool {
        Arc::ptr_eq(&self.dropped, counter)
    }

    /// Makes the writer write pending lines.
    pub(super) fn hurry(&self) {
        self.state.lock().hurry = true;
        self.work.notify_one();
    }

    /// Makes the writer write pending lines. The future ends when they are written or lost.
    pub(super) fn settle(&self) -> impl Future<Output = ()> + use<> {
        let mut written = self.written.subscribe();
        let mut state = self.state.lock();
        let until = state.taken_in;
        state.hurry |= !state.lines.is_empty();
        drop(state);
        self.work.notify_one();
        async move {
            // This cannot fail: the writer runs as long as a handle of the file exists.
            let _ = written.wait_for(|written| *written >= until).await;
        }
    }

    /// Waits until all is written, or the time is over. Returns true if all was written.
    pub(super) fn wait(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.lines.is_empty() || state.in_flight > 0 {
            if self.progress.wait_until(&mut state, deadline).timed_out() {
                return false;
            }
        }
        true
    }
}

struct Writer {
    shared: Arc<WriterShared>,
    target: LogTarget,
    output: LogOutput,
    /// The end of the pause in which lines gather.
    rest: Instant,
    /// True if the last write failed. Only the first failure of a series is logged.
    failing: bool,
    clock: Clock,
}

/// The rest of a partly written line. The next write begins with it, so that each line is complete.
#[derive(Default)]
pub(super) struct Torn(Vec<u8>);

impl Torn {
    /// Returns true while a line is incomplete.
    pub(super) fn is_some(&self) -> bool {
        !self.0.is_empty()
    }

    /// Writes lines. On an error, the lines of which no byte was written are lost. Returns their number
    /// and the error.
    pub(super) fn write(&mut self, file: &mut impl io::Write, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        let was_torn = !self.0.is_empty();
        let mut joined = mem::take(&mut self.0);
        let bytes = if was_torn {
            joined.extend_from_slice(lines);
            &joined
        } else {
            lines
        };
        let Err((written, error)) = write_all(file, bytes) else { return Ok(()) };
        let (before, left) = bytes.split_at(written);
        let is_torn = before.last().map_or(was_torn, |last| *last != b'\n');
        let line = if is_torn { memchr::memchr(b'\n', left).map_or(left.len(), |end| end + 1) } else { 0 };
        let (torn, lost) = left.split_at(line);
        self.0 = torn.to_vec();
        Err((memchr::memchr_iter(b'\n', lost).count() as u64, error))
    }
}

/// Writes all bytes; on an error, returns how many were written, and the error.
fn write_all(file: &mut impl io::Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while let Some(left) = bytes.get(written..).filter(|left| !left.is_empty()) {
        match file.write(left) {
            Ok(0) => return Err((written, ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

/// The end of the pause after a write, in which lines gather. This is the generic cell rate algorithm
/// with the interval [`PERIOD`] and the tolerance [`UNUSED`].
fn next_rest(rest: Instant, now: Instant) -> Instant {
    now.checked_sub(UNUSED).map_or(rest, |oldest| rest.max(oldest)) + PERIOD
}

/// The next work of the writer.
struct Work {
    reopen: bool,
    closed: bool,
}

impl Writer {
    fn run(mut self) {
        let mut batch = Vec::new();
        loop {
            let work = self.next(&mut batch);
            let taken = batch.len() as u64;
            if !batch.is_empty() {
                self.write(&batch);
                self.rest = next_rest(self.rest, self.clock.now());
                batch.clear();
                batch.shrink_to(BUFFER_KEPT);
            }
            self.shared.state.lock().in_flight = 0;
            self.shared.progress.notify_all();
            if taken > 0 {
                self.shared.written.send_modify(|written| *written += taken);
            }
            if work.reopen {
                self.reopen();
            }
            if work.closed {
                return;
            }
        }
    }

    /// Pauses while lines gather, waits for a line if there is none, and moves all lines to `batch`.
    fn next(&self, batch: &mut Vec<u8>) -> Work {
        let mut state = self.shared.state.lock();
        let urgent = |state: &WriterState| state.hurry || state.reopen || state.closed;
        while state.lines.len() < BATCH && !urgent(&state) {
            if self.shared.work.wait_until(&mut state, self.rest).timed_out() {
                break;
            }
        }
        while state.lines.is_empty() && !urgent(&state) {
            state.idle = true;
            self.shared.work.wait(&mut state);
        }
        state.idle = false;
        mem::swap(&mut state.lines, batch);
        state.in_flight = batch.len();
        state.hurry = false;
        Work { reopen: mem::take(&mut state.reopen), closed: state.closed }
    }

    fn write(&mut self, batch: &[u8]) {
        let Err((lost, error)) = self.output.send(batch) else {
            self.failing = false;
            return;
        };
        self.shared.dropped.add(lost);
        if !mem::replace(&mut self.failing, true) {
            tracing::error!(log = %self.target, %error, "a log cannot be written");
        }
    }

    fn reopen(&mut self) {
        match self.output.reopen() {
            Ok(lost) => self.shared.dropped.add(lost),
            Err(error) => tracing::error!(log = %self.target, %error, "a log cannot be opened anew"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for this many bytes.
    struct Disk(Vec<u8>, usize);

    impl io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.1.min(bytes.len());
            if room == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.0.extend_from_slice(&bytes[..room]);
            self.1 -= room;
            Ok(room)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_whole_wherever_a_full_disk_cuts_them_off() {
        let lines = b"one\ntwo\nthree\n";
        for room in 0..lines.len() {
            for more in 0..4 {
                let (mut disk, mut torn) = (Disk(Vec::new(), room), Torn::default());
                let (mut lost, _) = torn.write(&mut disk, lines).unwrap_err();
                disk.1 = more;
                lost += torn.write(&mut disk, b"four\n").map_or_else(|(lost, _)| lost, |()| 0);
                disk.1 = 100;
                torn.write(&mut disk, b"five\n").unwrap();
                let found = std::str::from_utf8(&disk.0).unwrap();
                let known = |line| ["one", "two", "three", "four", "five"].contains(&line);
                assert!(found.lines().all(known), "{room} {more} {found:?}");
                assert_eq!(found.lines().count() as u64 + lost, 5, "{room} {more} {found:?}");
            }
        }
    }

    #[test]
    fn a_few_writes_go_at_once_and_many_in_a_row_rest() {
        let began = Instant::now();
        let (mut rest, mut at_once) = (began, 0);
        let mut now = began + UNUSED;
        while rest <= now {
            (rest, at_once) = (next_rest(rest, now), at_once + 1);
        }
        assert_eq!(at_once, (UNUSED.as_millis() / PERIOD.as_millis()) as u32 + 1);
        for _ in 0..100 {
            let before = rest;
            now = rest;
            rest = next_rest(rest, now);
            assert_eq!(rest - before, PERIOD);
        }
        now = rest + 10 * UNUSED;
        assert_eq!(next_rest(rest, now), now - UNUSED + PERIOD, "what was not used longer ago is lost");
    }

    #[test]
    fn a_line_that_comes_alone_is_written_at_once() {
        let path = std::env::temp_dir().join(format!("foregate-log-at-once-{}.log", std::process::id()));
        let shared = start(&LogTarget::file(&path), Arc::default(), Clock::default()).unwrap();
        let mut soonest = Duration::MAX;
        for number in 1..=5 {
            let began = Instant::now();
            shared.push(b"line\n");
            while std::fs::read(&path).unwrap().len() < 5 * number {
                assert!(began.elapsed() < Duration::from_secs(10), "it is written");
                thread::yield_now();
            }
            soonest = soonest.min(began.elapsed());
        }
        // Before, each took as long as lines gathered then, 200 ms.
        assert!(soonest < Duration::from_millis(50), "{soonest:?}");
        shared.close();
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_writer_is_not_woken_for_each_of_many_lines() {
        let path = std::env::temp_dir().join(format!("foregate-log-many-{}.log", std::process::id()));
        let shared = start(&LogTarget::file(&path), Arc::default(), Clock::default()).unwrap();
        let (line, mut woken) = ([b'x'; 300], 0);
        for _ in 0..2000 {
            woken += usize::from(shared.state.lock().idle);
            shared.push(&line);
        }
        // At most a few writes, until it notices that there are many lines.
        assert!(woken < 100, "{woken} of 2000");
        shared.hurry();
        assert!(shared.wait(Instant::now() + Duration::from_secs(10)));
        shared.close();
        std::fs::remove_file(&path).unwrap();
    }
}

//! The log of a panic.
//!
//! A panic while a request is served is caught and fails that request only. A client may be able to cause the same
//! panic again and again, so the log must not be costly. The number of lines is limited, and so are backtraces, which
//! load the tables of symbols.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{self, PanicHookInfo};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Within this time at most [`LINES`] lines are logged, and one backtrace if the environment asks for backtraces.
const SPAN: Duration = Duration::from_secs(10);
/// The most lines within [`SPAN`].
const LINES: u32 = 10;

/// The start of the current span of time, and the number of panics in it.
#[derive(Debug, Default)]
struct Span {
    since: Option<Instant>,
    panics: u32,
}

/// The part of a panic's report that is logged.
#[derive(Debug, PartialEq, Eq)]
enum LoggedPanic {
    LineAndBacktrace,
    Line,
    /// The last line of a span, which says that further panics are only counted.
    LastLine,
    Nothing,
}

impl Span {
    fn tell(&mut self, now: Instant) -> LoggedPanic {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= SPAN) {
            *self = Self { since: Some(now), panics: 0 };
        }
        self.panics = self.panics.saturating_add(1);
        match self.panics {
            1 => LoggedPanic::LineAndBacktrace,
            2..LINES => LoggedPanic::Line,
            LINES => LoggedPanic::LastLine,
            _ => LoggedPanic::Nothing,
        }
    }
}

/// Installs the panic hook, which logs each panic as one line within the limits.
pub(super) fn log_panics() {
    static SPAN_NOW: Mutex<Span> = Mutex::new(Span { since: None, panics: 0 });
    panic::set_hook(Box::new(|info| {
        let told = SPAN_NOW.lock().tell(Instant::now());
        log(info, &told);
    }));
}

fn log(info: &PanicHookInfo<'_>, told: &LoggedPanic) {
    if *told == LoggedPanic::Nothing {
        return;
    }
    let message = info.payload_as_str().unwrap_or("no message");
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    match told {
        LoggedPanic::LastLine => {
            tracing::error!(thread, place, message, "panicked; further panics within 10 s are only counted");
        }
        _ => tracing::error!(thread, place, message, "panicked"),
    }
    if *told == LoggedPanic::LineAndBacktrace {
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            tracing::error!("{backtrace}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_limited_in_each_span() {
        let (mut span, now) = (Span::default(), Instant::now());
        let told: Vec<_> = (0..LINES + 2).map(|_| span.tell(now)).collect();
        assert_eq!(told[0], LoggedPanic::LineAndBacktrace);
        assert!(told[1..LINES as usize - 1].iter().all(|told| *told == LoggedPanic::Line));
        assert_eq!(
            told[LINES as usize - 1..],
            [LoggedPanic::LastLine, LoggedPanic::Nothing, LoggedPanic::Nothing]
        );
        assert_eq!(span.tell(now + SPAN), LoggedPanic::LineAndBacktrace);
    }
}

//! Formats a line, without an allocation once its buffer has grown.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::{SystemTime, UNIX_EPOCH};

use foregate_module::Text;
use foregate_wire::date::CalendarDay;

use super::LogEntry;
use crate::address::write_ip;

/// The limit of one value in bytes, after escaping. A longer value is cut off.
pub(super) const VALUE_LIMIT: usize = 16 * 1024;
/// The limit of values that clients choose.
pub(super) const CLIENT_VALUE_LIMIT: usize = 2 * 1024;

/// Appends the line of `entry`, its end included.
pub(super) fn line(line: &mut Vec<u8>, entry: &LogEntry<'_>) {
    object(line, entry);
    line.extend_from_slice(b"}\n");
}

/// Appends the object of `entry` without its end.
pub(super) fn object(line: &mut Vec<u8>, entry: &LogEntry<'_>) {
    line.extend_from_slice(b"{\"time\":\"");
    time(line, entry.time);
    line.push(b'"');
    if let Some(client) = entry.client {
        line.extend_from_slice(b",\"client\":\"");
        write_ip(client.to_canonical(), |part| line.extend_from_slice(part.as_bytes()));
        line.push(b'"');
    }
    if !entry.method.is_empty() {
        text(line, b",\"method\":\"", entry.method);
    }
    plain(line, b",\"scheme\":\"", entry.scheme);
    text(line, b",\"host\":\"", entry.host);
    text(line, b",\"path\":\"", entry.path);
    plain(line, b",\"protocol\":\"", entry.protocol);
    optional(line, entry.status, |line, status| number(line, b",\"status\":", status.into()));
    number(line, b",\"bytes_in\":", entry.bytes_in);
    number(line, b",\"bytes_out\":", entry.bytes_out);
    number(line, b",\"duration_us\":", micros(entry.duration));
    optional(line, entry.site, |line, site| text(line, b",\"site\":\"", site.as_bytes()));
    optional(line, entry.route, |line, route| text(line, b",\"route\":\"", route.as_bytes()));
    optional(line, entry.action, |line, action| plain(line, b",\"action\":\"", action));
    origin(line, entry);
    optional(line, entry.cache, |line, outcome| text(line, b",\"cache\":\"", outcome.as_bytes()));
    optional(line, entry.cache_reason, |line, reason| text(line, b",\"cache_reason\":\"", reason.as_bytes()));
    optional(line, entry.fallback, |line, reason| text(line, b",\"fallback\":\"", reason.as_bytes()));
    optional(line, entry.error, |line, error| text(line, b",\"error\":\"", error.as_bytes()));
    optional(line, entry.error_side, |line, side| text(line, b",\"error_side\":\"", side.as_bytes()));
    optional(line, entry.ended_by, |line, side| plain(line, b",\"ended_by\":\"", side));
    optional(line, entry.tls, |line, tls| plain(line, b",\"tls\":\"", tls));
    optional(line, entry.user_agent, |line, agent| {
        cut_text(line, b",\"user_agent\":\"", agent, CLIENT_VALUE_LIMIT);
    });
    optional(line, entry.referer, |line, referer| {
        cut_text(line, b",\"referer\":\"", referer, CLIENT_VALUE_LIMIT);
    });
    notes(line, entry.notes);
}

/// Appends the notes as an object. Each name appears once (RFC 8259, section 4); several values of
/// a name form an array.
pub(super) fn notes(line: &mut Vec<u8>, notes: &[(Text, Text)]) {
    for (number, (name, value)) in notes.iter().enumerate() {
        let (before, from) = notes.split_at(number);
        if before.iter().any(|(other, _)| other == name) {
            continue;
        }
        text(line, if number == 0 { b",\"notes\":{\"" } else { b",\"" }, name);
        let is_new = |(at, note): &(usize, &(Text, Text))| note.0 == *name && !from[..*at].contains(note);
        let mut others = from.iter().enumerate().skip(1).filter(is_new).peekable();
        let is_array = others.peek().is_some();
        text(line, if is_array { b":[\"" } else { b":\"" }, value);
        others.for_each(|(_, (_, value))| text(line, b",\"", value));
        if is_array {
            line.push(b']');
        }
    }
    if !notes.is_empty() {
        line.push(b'}');
    }
}

fn origin(line: &mut Vec<u8>, entry: &LogEntry<'_>) {
    optional(line, entry.upstream, |line, upstream| text(line, b",\"upstream\":\"", upstream.as_bytes()));
    optional(line, entry.server, |line, server| text(line, b",\"server\":\"", server.as_bytes()));
    if entry.attempts > 0 {
        number(line, b",\"attempts\":", entry.attempts.into());
    }
    optional(line, entry.upstream_first_byte, |line, span| {
        number(line, b",\"upstream_first_byte_us\":", micros(span));
    });
    optional(line, entry.upstream_reused, |line, reused| {
        line.extend_from_slice(if reused {
            b",\"upstream_reused\":true"
        } else {
            b",\"upstream_reused\":false"
        });
    });
}

fn optional<T>(line: &mut Vec<u8>, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    if let Some(value) = value {
        write(line, value);
    }
}

pub(super) fn micros(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn number(line: &mut Vec<u8>, key: &[u8], value: u64) {
    line.extend_from_slice(key);
    line.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writes one of our own values, which needs no escaping.
fn plain(line: &mut Vec<u8>, key: &[u8], value: &'static str) {
    line.extend_from_slice(key);
    line.extend_from_slice(value.as_bytes());
    line.push(b'"');
}

fn text(line: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    cut_text(line, key, value, VALUE_LIMIT);
}

/// Writes a value of any bytes, at most `limit` bytes after escaping. Valid UTF-8 stays unchanged. An
/// invalid byte appears as the character with its number (`\u00ff`), so every line is valid JSON.
pub(super) fn cut_text(line: &mut Vec<u8>, key: &[u8], value: &[u8], limit: usize) {
    line.extend_from_slice(key);
    // Escaping never shortens a value, so bytes beyond the limit cannot be written.
    let value = value.get(..limit).unwrap_or(value);
    // The loop has neither an early exit nor a branch, so the compiler can check many bytes at once.
    if value.iter().fold(true, |plain, byte| plain & is_plain(*byte)) {
        line.extend_from_slice(value);
    } else {
        let end = line.len() + limit;
        // `Break` only means that the value was cut off.
        let _ = escape(line, value, end);
    }
    line.push(b'"');
}

/// Returns true for printable ASCII that needs no escape in a JSON string.
const fn is_plain(byte: u8) -> bool {
    (byte >= 0x20) & (byte < 0x7f) & (byte != b'"') & (byte != b'\\')
}

/// Writes whole characters and escapes until the line would be longer than `end`.
fn escape(line: &mut Vec<u8>, value: &[u8], end: usize) -> ControlFlow<()> {
    for chunk in value.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => push(line, b"\\\"", end)?,
                '\\' => push(line, b"\\\\", end)?,
                '\n' => push(line, b"\\n", end)?,
                '\r' => push(line, b"\\r", end)?,
                '\t' => push(line, b"\\t", end)?,
                control @ ('\0'..' ' | '\x7f') => push(line, &code_point(control as u8), end)?,
                other => push(line, other.encode_utf8(&mut [0; 4]).as_bytes(), end)?,
            }
        }
        for byte in chunk.invalid() {
            push(line, &code_point(*byte), end)?;
        }
    }
    ControlFlow::Continue(())
}

fn push(line: &mut Vec<u8>, written: &[u8], end: usize) -> ControlFlow<()> {
    if line.len() + written.len() > end {
        return ControlFlow::Break(());
    }
    line.extend_from_slice(written);
    ControlFlow::Continue(())
}

fn code_point(byte: u8) -> [u8; 6] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| HEX[usize::from(value & 15)];
    [b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte)]
}

/// The part of a time that changes only once a second, such as `2026-11-21T07:26:28`.
type Second = [u8; 19];

pub(in crate::telemetry) fn time(line: &mut Vec<u8>, time: SystemTime) {
    thread_local! {
        static LAST: Cell<(u64, Second)> = const { Cell::new((u64::MAX, [0; 19])) };
    }
    // A clock before 1970 shows as 1970.
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (mut second, mut formatted) = LAST.get();
    if second != since.as_secs() {
        second = since.as_secs();
        formatted = format_second(second);
        LAST.set((second, formatted));
    }
    line.extend_from_slice(&formatted);
    let millis = since.subsec_millis();
    let [.., hundreds, tens, ones] = digits::<3>(millis);
    line.extend_from_slice(&[b'.', hundreds, tens, ones, b'Z']);
}

fn format_second(seconds: u64) -> Second {
    let CalendarDay { year, month, day } = CalendarDay::of(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let mut text = *b"0000-00-00T00:00:00";
    // Four digits are enough for the year until 9999.
    text[..4].copy_from_slice(&digits::<4>(u32::try_from(year).unwrap_or(u32::MAX)));
    for (position, value) in [(5, month), (8, day), (11, hour), (14, minute), (17, second)] {
        text[position..position + 2].copy_from_slice(&digits::<2>(value as u32));
    }
    text
}

pub(super) fn digits<const N: usize>(mut value: u32) -> [u8; N] {
    let mut digits = [b'0'; N];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
    digits
}

//! Formats lines in the other formats: the common and the combined log format, templates, and JSON objects with
//! chosen or additional values.
//!
//! Values that clients choose are escaped as NGINX does it: `"`, `\\` and every byte that is not printable ASCII become
//! `\\xHH`. No value can therefore end its quotes or its line early.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use foregate_wire::date::CalendarDay;

use super::LogEntry;
use super::format::{self, CLIENT_VALUE_LIMIT, VALUE_LIMIT, micros};
use crate::address::write_ip;
use crate::settings::{AccessLogSettings, LOG_FIELDS, LineFormat, TemplatePart};

/// A value of an entry.
enum ShownValue<'a> {
    Text(&'a [u8]),
    Number(u64),
    Flag(bool),
    Address(IpAddr),
    Time(SystemTime),
    /// The notes of modules.
    Notes,
}

/// Appends a line with its end.
pub(super) fn line(
    line: &mut Vec<u8>,
    entry: &LogEntry<'_>,
    log: &AccessLogSettings,
    added: &[Option<Vec<u8>>],
) {
    match &log.format {
        LineFormat::Json | LineFormat::JsonOf(_) => json(line, entry, log, added),
        LineFormat::Template(parts) => {
            for part in parts {
                match part {
                    TemplatePart::Text(text) => line.extend_from_slice(text.as_bytes()),
                    TemplatePart::Known(number) => plain(line, entry, value(entry, *number)),
                    TemplatePart::Added(number) => {
                        escaped(line, added.get(*number).and_then(Option::as_deref), VALUE_LIMIT);
                    }
                }
            }
        }
        LineFormat::Common => common(line, entry, added),
        LineFormat::Combined => {
            common(line, entry, &[]);
            quoted(line, entry.referer, CLIENT_VALUE_LIMIT);
            quoted(line, entry.user_agent, CLIENT_VALUE_LIMIT);
            added.iter().for_each(|value| quoted(line, value.as_deref(), VALUE_LIMIT));
        }
    }
    line.push(b'\n');
}

fn common(line: &mut Vec<u8>, entry: &LogEntry<'_>, added: &[Option<Vec<u8>>]) {
    plain(line, entry, entry.client.map(ShownValue::Address));
    line.extend_from_slice(b" - - [");
    clf_time(line, entry.time);
    line.extend_from_slice(b"] \"");
    if !entry.method.is_empty() {
        escaped(line, Some(entry.method), CLIENT_VALUE_LIMIT);
        line.push(b' ');
        escaped(line, Some(entry.path), VALUE_LIMIT);
        line.push(b' ');
        line.extend_from_slice(entry.protocol.as_bytes());
    }
    line.extend_from_slice(b"\" ");
    plain(line, entry, entry.status.map(|status| ShownValue::Number(status.into())));
    line.push(b' ');
    plain(line, entry, Some(ShownValue::Number(entry.bytes_out)));
    added.iter().for_each(|value| quoted(line, value.as_deref(), VALUE_LIMIT));
}

fn json(line: &mut Vec<u8>, entry: &LogEntry<'_>, log: &AccessLogSettings, added: &[Option<Vec<u8>>]) {
    let begun = line.len();
    if let LineFormat::JsonOf(numbers) = &log.format {
        for number in numbers {
            let Some((shown, name)) = value(entry, *number).zip(LOG_FIELDS.get(*number)) else { continue };
            match shown {
                ShownValue::Notes => format::notes(line, entry.notes),
                ShownValue::Text(text) => {
                    format::cut_text(line, &key(name, b"\""), text, limit(name));
                }
                ShownValue::Number(_) | ShownValue::Flag(_) => {
                    line.extend_from_slice(&key(name, b""));
                    plain(line, entry, Some(shown));
                }
                ShownValue::Address(_) | ShownValue::Time(_) => {
                    line.extend_from_slice(&key(name, b"\""));
                    plain(line, entry, Some(shown));
                    line.push(b'"');
                }
            }
        }
    } else {
        format::object(line, entry);
    }
    for ((name, _), value) in log.fields.iter().zip(added) {
        if let Some(value) = value {
            format::cut_text(line, &key(name, b"\""), value, VALUE_LIMIT);
        }
    }
    match line.get_mut(begun) {
        Some(first) => *first = b'{',
        None => line.push(b'{'),
    }
    line.push(b'}');
}

/// `,"NAME":` and the start of the value.
fn key(name: &str, start: &[u8]) -> Vec<u8> {
    [b",\"", name.as_bytes(), b"\":", start].concat()
}

fn limit(name: &str) -> usize {
    if matches!(name, "user_agent" | "referer") { CLIENT_VALUE_LIMIT } else { VALUE_LIMIT }
}

/// The value with a number of [`LOG_FIELDS`]; `None` if it does not apply.
fn value<'a>(entry: &LogEntry<'a>, number: usize) -> Option<ShownValue<'a>> {
    let text = |text: Option<&'a str>| text.map(|text| ShownValue::Text(text.as_bytes()));
    match *LOG_FIELDS.get(number)? {
        "time" => Some(ShownValue::Time(entry.time)),
        "client" => entry.client.map(ShownValue::Address),
        "method" => (!entry.method.is_empty()).then_some(ShownValue::Text(entry.method)),
        "scheme" => text(Some(entry.scheme)),
        "host" => Some(ShownValue::Text(entry.host)),
        "path" => Some(ShownValue::Text(entry.path)),
        "protocol" => text(Some(entry.protocol)),
        "status" => entry.status.map(|status| ShownValue::Number(status.into())),
        "bytes_in" => Some(ShownValue::Number(entry.bytes_in)),
        "bytes_out" => Some(ShownValue::Number(entry.bytes_out)),
        "duration_us" => Some(ShownValue::Number(micros(entry.duration))),
        "site" => text(entry.site),
        "route" => text(entry.route),
        "action" => text(entry.action),
        "upstream" => text(entry.upstream),
        "server" => text(entry.server),
        "attempts" => (entry.attempts > 0).then(|| ShownValue::Number(entry.attempts.into())),
        "upstream_first_byte_us" => entry.upstream_first_byte.map(|span| ShownValue::Number(micros(span))),
        "upstream_reused" => entry.upstream_reused.map(ShownValue::Flag),
        "cache" => text(entry.cache),
        "cache_reason" => text(entry.cache_reason),
        "fallback" => text(entry.fallback),
        "error" => text(entry.error),
        "error_side" => text(entry.error_side),
        "ended_by" => text(entry.ended_by),
        "tls" => text(entry.tls),
        "user_agent" => entry.user_agent.map(ShownValue::Text),
        "referer" => entry.referer.map(ShownValue::Text),
        "notes" => (!entry.notes.is_empty()).then_some(ShownValue::Notes),
        _ => None,
    }
}

/// Writes a value without quotes, or `-` if it does not apply.
fn plain(line: &mut Vec<u8>, entry: &LogEntry<'_>, shown: Option<ShownValue<'_>>) {
    match shown {
        None => line.push(b'-'),
        Some(ShownValue::Text(text)) => escaped(line, Some(text), VALUE_LIMIT),
        Some(ShownValue::Number(number)) => {
            line.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        }
        Some(ShownValue::Flag(flag)) => line.extend_from_slice(if flag { b"true" } else { b"false" }),
        Some(ShownValue::Address(address)) => {
            write_ip(address.to_canonical(), |part| line.extend_from_slice(part.as_bytes()));
        }
        Some(ShownValue::Time(time)) => format::time(line, time),
        Some(ShownValue::Notes) => {
            for (number, (name, value)) in entry.notes.iter().enumerate() {
                line.extend_from_slice(if number == 0 { b"" } else { b";" });
                escaped(line, Some(name), VALUE_LIMIT);
                line.push(b'=');
                escaped(line, Some(value), VALUE_LIMIT);
            }
        }
    }
}

fn quoted(line: &mut Vec<u8>, value: Option<&[u8]>, limit: usize) {
    line.extend_from_slice(b" \"");
    escaped(line, value, limit);
    line.push(b'"');
}

/// Writes at most `limit` bytes of a value, or `-` if there is none.
fn escaped(line: &mut Vec<u8>, value: Option<&[u8]>, limit: usize) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let Some(value) = value else { return line.push(b'-') };
    for byte in value.iter().take(limit) {
        match *byte {
            b'"' | b'\\' | 0..0x20 | 0x7f.. => {
                let digit = |value: u8| HEX[usize::from(value & 15)];
                line.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(*byte)]);
            }
            plain => line.push(plain),
        }
    }
}

/// `28/Nov/2026:23:38:00 +0000`.
fn clf_time(line: &mut Vec<u8>, time: SystemTime) {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let CalendarDay { year, month, day } = CalendarDay::of(seconds / 86_400);
    line.extend_from_slice(&format::digits::<2>(day as u32));
    line.push(b'/');
    line.extend_from_slice(MONTHS.get(month as usize - 1).map_or("Jan", |name| name).as_bytes());
    line.push(b'/');
    line.extend_from_slice(&format::digits::<4>(u32::try_from(year).unwrap_or(u32::MAX)));
    for value in [seconds / 3600 % 24, seconds / 60 % 60, seconds % 60] {
        line.push(b':');
        line.extend_from_slice(&format::digits::<2>(value as u32));
    }
    line.extend_from_slice(b" +0000");
}

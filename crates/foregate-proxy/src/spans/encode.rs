//! Spans in the encoding of OTLP, which is Protocol Buffers: the few messages of `opentelemetry.proto.trace.v1` that are needed.

use std::sync::Arc;

use super::{Span, SpanBatch};

/// The longest value of an attribute and the longest name of a span, bytes. Longer ones are truncated.
const VALUE_MOST: usize = 1024;

/// The wire types of Protocol Buffers.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const FIXED32: u8 = 5;

/// The role of the proxy in a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// The span is work within the proxy.
    Internal = 1,
    /// The proxy is the server of the span's request.
    Server = 2,
    /// The proxy is the client of the span's request.
    Client = 3,
}

/// Attributes of a span or of a resource, encoded.
#[derive(Debug, Clone, Default)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds a text. Bytes that are not UTF-8 are replaced.
    pub fn text(&mut self, name: &str, value: &[u8]) {
        let value = value.get(..VALUE_MOST).unwrap_or(value);
        let value = String::from_utf8_lossy(value);
        self.value(name, |any| field(any, 1, value.as_bytes()));
    }

    /// Adds a number.
    pub fn number(&mut self, name: &str, value: u64) {
        self.value(name, |any| {
            key(any, 3, VARINT);
            // The format only has signed numbers.
            varint(any, value.min(i64::MAX as u64));
        });
    }

    /// Adds a truth value.
    pub fn flag(&mut self, name: &str, value: bool) {
        self.value(name, |any| {
            key(any, 2, VARINT);
            varint(any, value.into());
        });
    }

    /// Appends a message `KeyValue`, without the field key before it.
    fn value(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        let mut any = Vec::with_capacity(32);
        write(&mut any);
        let mut pair = Vec::with_capacity(name.len() + any.len() + 8);
        field(&mut pair, 1, name.as_bytes());
        field(&mut pair, 2, &any);
        varint(&mut self.0, pair.len() as u64);
        self.0.extend_from_slice(&pair);
    }

    /// Writes each attribute as a field with this number.
    fn write(&self, out: &mut Vec<u8>, number: u8) {
        let mut rest = &self.0[..];
        while let Some((length, after)) = read_varint(rest) {
            let Some((pair, others)) =
                usize::try_from(length).ok().and_then(|end| after.split_at_checked(end))
            else {
                return;
            };
            field(out, number, pair);
            rest = others;
        }
    }
}

/// Appends a span as the field `spans` of the message `ScopeSpans`. `times` are nanoseconds since 1970.
pub(super) fn span(out: &mut Vec<u8>, trace: &[u8; 16], span: &Span<'_>, [began, ended]: [u64; 2]) {
    const FAILED: &[u8] = &[3 << 3 | VARINT, 2];
    let mut message = Vec::with_capacity(128 + span.attributes.0.len());
    field(&mut message, 1, trace);
    field(&mut message, 2, &span.id.0);
    if let Some(parent) = span.parent {
        field(&mut message, 4, &parent.0);
    }
    let end = span.name.floor_char_boundary(VALUE_MOST);
    field(&mut message, 5, span.name.get(..end).unwrap_or_default().as_bytes());
    key(&mut message, 6, VARINT);
    varint(&mut message, span.kind as u64);
    for (number, time) in [(7, began), (8, ended.max(began))] {
        key(&mut message, number, FIXED64);
        message.extend_from_slice(&time.to_le_bytes());
    }
    span.attributes.write(&mut message, 9);
    if span.failed {
        field(&mut message, 15, FAILED);
    }
    field(out, 2, &message);
}

/// The body of a request that exports a batch: the message `ExportTraceServiceRequest`.
pub fn request_body(batch: &SpanBatch, resource: &[(Arc<str>, Arc<str>)]) -> Vec<u8> {
    let mut attributes = Attributes::default();
    resource.iter().for_each(|(name, value)| attributes.text(name, value.as_bytes()));
    let mut of_resource = Vec::new();
    attributes.write(&mut of_resource, 1);
    let mut scope = Vec::new();
    field(&mut scope, 1, b"foregate");
    field(&mut scope, 2, env!("CARGO_PKG_VERSION").as_bytes());
    let mut spans = Vec::with_capacity(batch.bytes() + 64);
    field(&mut spans, 1, &scope);
    batch.encoded().for_each(|encoded| spans.extend_from_slice(encoded));
    let mut all = Vec::with_capacity(spans.len() + of_resource.len() + 32);
    field(&mut all, 1, &of_resource);
    field(&mut all, 2, &spans);
    let mut body = Vec::with_capacity(all.len() + 8);
    field(&mut body, 1, &all);
    body
}

/// The number of spans that a receiver rejected, from the message `ExportTraceServiceResponse`. An unreadable message counts as
/// none.
pub fn rejected_spans(body: &[u8]) -> u64 {
    let partial = fields(body).find_map(|(number, value)| match value {
        FieldValue::Bytes(bytes) if number == 1 => Some(bytes),
        _ => None,
    });
    let rejected = fields(partial.unwrap_or_default()).find_map(|(number, value)| match value {
        FieldValue::Number(count) if number == 1 => Some(count),
        _ => None,
    });
    // A negative number is ignored.
    rejected.filter(|count| i64::try_from(*count).is_ok()).unwrap_or(0)
}

enum FieldValue<'b> {
    Number(u64),
    Bytes(&'b [u8]),
    Other,
}

/// The fields of a message, up to the first unreadable one.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u64, FieldValue<'_>)> {
    std::iter::from_fn(move || {
        let (key, after) = read_varint(rest)?;
        let (value, after) = match (key & 7) as u8 {
            VARINT => read_varint(after).map(|(value, after)| (FieldValue::Number(value), after))?,
            BYTES => {
                let (length, after) = read_varint(after)?;
                let (value, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
                (FieldValue::Bytes(value), after)
            }
            FIXED64 => (FieldValue::Other, after.get(8..)?),
            FIXED32 => (FieldValue::Other, after.get(4..)?),
            _ => return None,
        };
        rest = after;
        Some((key >> 3, value))
    })
}

fn field(out: &mut Vec<u8>, number: u8, value: &[u8]) {
    key(out, number, BYTES);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn key(out: &mut Vec<u8>, number: u8, kind: u8) {
    varint(out, u64::from(number) << 3 | u64::from(kind));
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at as u32);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(at + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX >> 1, u64::MAX] {
            let mut bytes = Vec::new();
            varint(&mut bytes, value);
            assert_eq!(read_varint(&bytes), Some((value, &[][..])), "{value}");
            bytes.pop();
            assert_eq!(read_varint(&bytes), None, "{value}");
        }
        assert_eq!(read_varint(&[0xff; 11]), None);
    }

    #[test]
    fn an_attribute_is_a_pair_of_its_name_and_any_value() {
        let mut attributes = Attributes::default();
        attributes.text("a", b"x\xff");
        attributes.number("n", 300);
        attributes.flag("f", true);
        let mut out = Vec::new();
        attributes.write(&mut out, 9);
        let expected: [&[u8]; 3] = [
            b"\x4a\x0b\x0a\x01a\x12\x06\x0a\x04x\xef\xbf\xbd",
            b"\x4a\x08\x0a\x01n\x12\x03\x18\xac\x02",
            b"\x4a\x07\x0a\x01f\x12\x02\x10\x01",
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn a_receiver_says_how_many_spans_it_has_not_taken() {
        assert_eq!(rejected_spans(b""), 0);
        assert_eq!(rejected_spans(b"\x0a\x05\x08\x07\x12\x01x"), 7);
        assert_eq!(rejected_spans(b"\x0a\x03\x12\x01x"), 0, "a warning alone");
        let body = b"\x0a\x05\x08\x07\x12\x01x";
        for end in 0..body.len() {
            assert_eq!(rejected_spans(&body[..end]), 0, "{end}");
        }
        assert_eq!(rejected_spans(b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), 0, "minus one");
    }
}

//! Invariants of the codec for any input. Each function is the body of a fuzz target and is also run over
//! that target's corpus by `cargo test`.
//!
//! The first byte of an input chooses limits and splits, the rest is the peer's data.

use foregate_wire::connection::{drop_underscore_names, keep_alive, strip_hop_by_hop, upgrade};
use foregate_wire::hpack::{BlockError, Encoder, InspectedBlock, Inspector, Section};
use foregate_wire::proxy_protocol;
use foregate_wire::serialise::{
    end_head, write_chunk_header, write_fields, write_request_line, write_status_line, write_trailers,
};
use foregate_wire::{
    BodyDecoder, BodyError, BodyLength, HeadLimits, HeadParser, HeaderList, Method, NameId, RequestError,
    RequestHead, ResponseError, ResponseHead, Slashes, Target, is_normal, normalize_path, normalize_query,
    other_readings, parse_authority, request_authority, request_length, response_length,
};

/// Limits that small inputs reach, or the default ones.
fn limits(choice: u8) -> HeadLimits {
    match choice & 3 {
        0 | 1 => HeadLimits::default(),
        2 => HeadLimits { bytes: 96, line: 24, fields: 3 },
        _ => HeadLimits { bytes: 40, line: 64, fields: 128 },
    }
}

/// The lengths of input that a parser sees one after the other: always ends with all of it.
fn steps(choice: u8, len: usize) -> Vec<usize> {
    let stride = match choice >> 2 & 3 {
        0 => len.max(1),
        1 => 1,
        2 => 3,
        _ => 17,
    };
    let mut steps: Vec<usize> = (0..len).step_by(stride).collect();
    steps.push(len);
    steps
}

fn request(
    input: &[u8],
    limits: &HeadLimits,
    steps: &[usize],
) -> (Result<Option<usize>, RequestError>, RequestHead) {
    let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
    for &end in steps {
        let outcome = parser.parse_request(&input[..end], limits, &mut head);
        if outcome != Ok(None) {
            return (outcome, head);
        }
        assert!(head.headers.iter().count() <= limits.fields);
    }
    (Ok(None), head)
}

fn response(
    input: &[u8],
    limits: &HeadLimits,
    steps: &[usize],
) -> (Result<Option<usize>, ResponseError>, ResponseHead) {
    let (mut parser, mut head) = (HeadParser::new(), ResponseHead::new());
    for &end in steps {
        let outcome = parser.parse_response(&input[..end], limits, &mut head);
        if outcome != Ok(None) {
            return (outcome, head);
        }
        assert!(head.headers.iter().count() <= limits.fields);
    }
    (Ok(None), head)
}

fn check_fields(headers: &HeaderList) {
    for field in headers {
        assert!(!field.name.is_empty());
        assert!(field.name.iter().all(|byte| byte.is_ascii_graphic() && *byte != b':'));
        assert!(!field.value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        assert!(!matches!(field.value.first(), Some(b' ' | b'\t')));
        assert!(!matches!(field.value.last(), Some(b' ' | b'\t')));
        assert!(headers.get_name(field.name).is_some());
    }
}

/// The most fields that limits allow.
const FIELDS: usize = 128;

/// Another parser reads the fields that were meant.
fn same_fields(headers: &HeaderList, other: &[httparse::Header<'_>]) {
    let other = other.iter().map(|field| (field.name.as_bytes(), field.value));
    assert!(headers.iter().map(|field| (field.name, field.value)).eq(other), "another parser's fields");
}

/// A request head, and all that is derived from it.
pub fn request_head(data: &[u8]) {
    let Some((&choice, input)) = data.split_first() else {
        return;
    };
    let limits = limits(choice);
    let (whole, head) = request(input, &limits, &[input.len()]);
    for choice in [choice, 4] {
        let (split, other) = request(input, &limits, &steps(choice, input.len()));
        assert_eq!(whole, split, "the outcome depends on how the input is split");
        if whole.is_ok() {
            assert_eq!((head.target(), &head.headers), (other.target(), &other.headers));
        }
    }
    let Ok(Some(consumed)) = whole else {
        return;
    };
    assert!(consumed <= input.len() && consumed <= limits.bytes);
    assert!(head.headers.len() <= limits.fields);
    check_fields(&head.headers);

    let mut wire = Vec::new();
    write_request_line(&mut wire, &head.method, head.target());
    write_fields(&mut wire, &head.headers);
    end_head(&mut wire);
    let generous = HeadLimits { bytes: 1 << 20, line: 1 << 20, fields: 1 << 12 };
    let (again, same) = request(&wire, &generous, &[wire.len()]);
    assert_eq!(again, Ok(Some(wire.len())), "what is written can be read");
    assert_eq!((head.target(), head.method, &head.headers), (same.target(), same.method, &same.headers));

    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut other = httparse::Request::new(&mut fields);
    // Its targets are text.
    if head.target().is_ascii() {
        assert_eq!(
            other.parse(&wire),
            Ok(httparse::Status::Complete(wire.len())),
            "another parser's outcome"
        );
        let line = (other.method.map(str::as_bytes), other.path.map(str::as_bytes), other.version);
        assert_eq!(line, (Some(head.method.as_bytes()), Some(head.target()), Some(1)));
        same_fields(&head.headers, other.headers);
    }

    if let Ok(target) = Target::parse(&head.method, head.target()) {
        let mut out = String::new();
        let _ = request_authority(&head, &target, &mut out);
    }
    let _ = (keep_alive(head.version, &head.headers), upgrade(&head.headers));
    let length = request_length(&head);
    let mut headers = head.headers.clone();
    let before = headers.len();
    let removed = strip_hop_by_hop(&mut headers, true);
    assert!(headers.len() <= before && removed <= before);
    drop_underscore_names(&mut headers);
    assert_eq!(drop_underscore_names(&mut headers), 0);
    check_fields(&headers);
    if let Ok(length) = length {
        assert!(!matches!(length, BodyLength::UntilClose | BodyLength::Tunnel));
        body(length, &limits, choice, &input[consumed..]);
    }
}

/// A response head, and all that is derived from it.
pub fn response_head(data: &[u8]) {
    let Some((&choice, input)) = data.split_first() else {
        return;
    };
    let limits = limits(choice);
    let (whole, head) = response(input, &limits, &[input.len()]);
    for choice in [choice, 4] {
        let (split, other) = response(input, &limits, &steps(choice, input.len()));
        assert_eq!(whole, split, "the outcome depends on how the input is split");
        if whole.is_ok() {
            assert_eq!((head.reason(), &head.headers), (other.reason(), &other.headers));
        }
    }
    let Ok(Some(consumed)) = whole else {
        return;
    };
    assert!((100..=999).contains(&head.status));
    check_fields(&head.headers);

    let mut wire = Vec::new();
    write_status_line(&mut wire, head.status, head.reason());
    write_fields(&mut wire, &head.headers);
    end_head(&mut wire);
    let generous = HeadLimits { bytes: 1 << 20, line: 1 << 20, fields: 1 << 12 };
    let (again, same) = response(&wire, &generous, &[wire.len()]);
    assert_eq!(again, Ok(Some(wire.len())), "what is written can be read");
    assert_eq!((head.status, head.reason(), &head.headers), (same.status, same.reason(), &same.headers));

    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut other = httparse::Response::new(&mut fields);
    assert_eq!(other.parse(&wire), Ok(httparse::Status::Complete(wire.len())), "another parser's outcome");
    assert_eq!((other.code, other.version), (Some(head.status), Some(1)));
    same_fields(&head.headers, other.headers);

    let method = [Method::Get, Method::Head, Method::Connect, Method::Post][usize::from(choice >> 4 & 3)];
    if let Ok(length) = response_length(&method, &head) {
        body(length, &limits, choice, &input[consumed..]);
    }
}

/// A chunked body.
pub fn chunked_body(data: &[u8]) {
    let Some((&choice, input)) = data.split_first() else {
        return;
    };
    body(BodyLength::Chunked, &limits(choice), choice, input);
}

#[derive(Debug, Default)]
struct Body {
    data: Vec<u8>,
    trailers: HeaderList,
    consumed: usize,
    done: bool,
    error: Option<BodyError>,
}

fn decode(length: BodyLength, limits: &HeadLimits, input: &[u8], steps: &[usize]) -> Body {
    let mut decoder = BodyDecoder::new(length, limits);
    let mut body = Body::default();
    for &end in steps {
        loop {
            let unread = &input[body.consumed..end];
            match decoder.decode(unread, &mut body.trailers) {
                Ok(decoded) => {
                    assert!(decoded.consumed <= unread.len() && decoded.data.end <= decoded.consumed);
                    assert_eq!(decoded.done, decoder.is_done());
                    body.data.extend_from_slice(&unread[decoded.data]);
                    body.consumed += decoded.consumed;
                    body.done = decoded.done;
                    if decoded.done || decoded.consumed == 0 {
                        break;
                    }
                }
                Err(error) => {
                    assert_eq!(decoder.decode(unread, &mut body.trailers), Err(error), "an error stays");
                    body.error = Some(error);
                    return body;
                }
            }
        }
        if body.done {
            break;
        }
        assert_eq!(body.consumed, end, "input that is not consumed, but no end");
    }
    body
}

fn body(length: BodyLength, limits: &HeadLimits, choice: u8, input: &[u8]) {
    let whole = decode(length, limits, input, &[input.len()]);
    for choice in [choice, 4] {
        let split = decode(length, limits, input, &steps(choice, input.len()));
        assert_eq!(whole.error, split.error, "the outcome depends on how the input is split");
        if whole.error.is_some() {
            assert!(split.data.starts_with(&whole.data));
            continue;
        }
        assert_eq!(
            (&whole.data, &whole.trailers, whole.consumed, whole.done),
            (&split.data, &split.trailers, split.consumed, split.done)
        );
    }
    check_fields(&whole.trailers);
    if !whole.done || length != BodyLength::Chunked {
        return;
    }
    let mut wire = Vec::new();
    for chunk in whole.data.chunks(1 + usize::from(choice)) {
        write_chunk_header(&mut wire, chunk.len());
        wire.extend_from_slice(chunk);
        wire.extend_from_slice(b"\r\n");
    }
    write_trailers(&mut wire, &whole.trailers);
    // A trailer takes at most one byte more than it took: the blank after the colon.
    let limits = HeadLimits { bytes: limits.bytes * 2, line: limits.line + 1, ..*limits };
    let again = decode(length, &limits, &wire, &[wire.len()]);
    assert_eq!((again.error, again.done, again.consumed), (None, true, wire.len()));
    assert_eq!((&again.data, &again.trailers), (&whole.data, &whole.trailers));
}

/// A request target, a path, a query, a host, and a PROXY header.
pub fn target_host(data: &[u8]) {
    for method in [Method::Get, Method::Options, Method::Connect] {
        if let Ok(target) = Target::parse(&method, data) {
            assert!(target.path.is_empty() || target.path[0] == b'/' || target.path == b"*");
            path(target.path);
            query(target.query.unwrap_or_default());
            authority(target.authority().unwrap_or_default());
        }
    }
    path(data);
    query(data);
    authority(data);
    proxy_header(data);
}

fn path(raw: &[u8]) {
    for slashes in [Slashes::Merge, Slashes::Keep] {
        let mut normal = b"before".to_vec();
        let Ok(()) = normalize_path(raw, slashes, &mut normal) else {
            assert_eq!(normal, b"before");
            continue;
        };
        let normal = &normal[6..];
        let mut again = Vec::new();
        assert_eq!(normalize_path(normal, slashes, &mut again), Ok(()));
        assert_eq!(normal, again, "not idempotent");
        assert_eq!(normal[0], b'/');
        assert!(normal.iter().all(|byte| byte.is_ascii_graphic() && !b"\\#?\"<>[]{}|^`".contains(byte)));
        assert!(!normal.split(|&byte| byte == b'/').any(|segment| segment == b"." || segment == b".."));
        let readings = other_readings(normal, slashes, |_| true).unwrap_or_default();
        for reading in &readings {
            let mut again = Vec::new();
            assert_eq!(normalize_path(reading, Slashes::Keep, &mut again), Ok(()));
            assert!(reading != normal, "another path");
            assert!(
                again == normal || readings.contains(&again),
                "the normal form of a reading is one as well"
            );
        }
        if slashes == Slashes::Merge {
            assert!(!normal.windows(2).any(|pair| pair == b"//"));
        }
        if is_normal(raw, slashes) {
            assert_eq!(raw, normal);
        }
    }
}

fn query(raw: &[u8]) {
    let (mut normal, mut again) = (Vec::new(), Vec::new());
    normalize_query(raw, &mut normal);
    normalize_query(&normal, &mut again);
    assert_eq!(normal, again, "not idempotent");
    assert!(normal.iter().all(|byte| byte.is_ascii_graphic() && !b"\"#<>".contains(byte)));
}

fn authority(raw: &[u8]) {
    let (mut out, mut again) = (String::new(), String::new());
    if let Ok(first) = parse_authority(raw, &mut out) {
        let port = first.port.map(|port| format!(":{port}")).unwrap_or_default();
        let second = parse_authority(format!("{}{port}", first.host).as_bytes(), &mut again);
        assert_eq!(second, Ok(first), "not idempotent");
        assert!(!first.host.bytes().any(|byte| byte.is_ascii_uppercase() || byte <= b' ' || byte >= 0x7f));
    }
}

fn proxy_header(input: &[u8]) {
    let whole = proxy_protocol::parse(input);
    for end in 0..input.len().min(proxy_protocol::MAX_V2_PAYLOAD) {
        match proxy_protocol::parse(&input[..end]) {
            Ok(None) => {}
            // A decision about a part of the input holds for the whole.
            decided => {
                assert_eq!(decided, whole);
                break;
            }
        }
    }
    if let Ok(Some((proxy_protocol::ProxyHeader::Proxied { source, destination }, consumed))) = whole {
        assert!(consumed <= input.len());
        for write in [proxy_protocol::write_v1, proxy_protocol::write_v2] {
            let mut out = Vec::new();
            write(&mut out, source, destination);
            let expected = proxy_protocol::ProxyHeader::Proxied { source, destination };
            assert_eq!(proxy_protocol::parse(&out), Ok(Some((expected, out.len()))));
        }
    }
}

/// A list that is changed step by step equals a plain list. A line of the input is a step: a byte for the operation,
/// a name, a colon, a value.
pub fn header_list(data: &[u8]) {
    /// All fields are compared after each step.
    const STEPS: usize = 200;
    let (mut list, mut plain, mut mark) = (HeaderList::new(), Plain::default(), 0);
    for line in data.split(|byte| *byte == b'\n').take(STEPS) {
        let Some((choice, field)) = line.split_first() else { continue };
        let colon = field.iter().position(|byte| *byte == b':').unwrap_or(field.len());
        let (name, value) = (&field[..colon], field.get(colon + 1..).unwrap_or_default());
        let id = NameId::from_name(name);
        let mut scratch = HeaderList::new();
        let taken = scratch.try_push(name, value);
        match choice % 10 {
            0 | 1 => {
                assert_eq!(list.try_push(name, value), taken);
                if taken.is_ok() {
                    plain.push(name, value.trim_ascii());
                }
            }
            2 if taken.is_ok() => {
                list.set_name(name, value);
                plain.set(name, name, value);
            }
            3 => assert_eq!(list.remove_name(name), plain.remove(name)),
            4 if id != NameId::Unknown => {
                list.set(id, value);
                plain.set(name, id.as_canonical().as_bytes(), value);
            }
            5 if id != NameId::Unknown => assert_eq!(list.remove(id), plain.remove(name)),
            6 => {
                list.retain(|field| field.value != value);
                plain.0.retain(|(_, kept, _)| kept != value);
            }
            7 => {
                list.retain_before(mark, |field| field.value != value);
                plain.0.retain(|(_, kept, new)| *new || kept != value);
            }
            8 => {
                mark = list.arena_len();
                plain.0.iter_mut().for_each(|(_, _, new)| *new = false);
            }
            _ => {
                let mut copy = HeaderList::new();
                copy.push(b"x-gone", b"1");
                copy.clone_from(&list);
                assert_eq!(copy, list);
                list = copy;
            }
        }
        plain.check(&list, name);
    }
}

/// Names, values, and whether a field is newer than the mark.
#[derive(Default)]
struct Plain(Vec<(Vec<u8>, Vec<u8>, bool)>);

impl Plain {
    fn push(&mut self, name: &[u8], value: &[u8]) {
        self.0.push((name.into(), value.into(), true));
    }

    /// Replaces the first value of a name, or adds the field under this spelling.
    fn set(&mut self, name: &[u8], spelling: &[u8], value: &[u8]) {
        let Some(at) = self.0.iter().position(|(other, ..)| other.eq_ignore_ascii_case(name)) else {
            return self.push(spelling, value);
        };
        self.0[at].1 = value.into();
        let mut number = 0;
        self.0.retain(|(other, ..)| {
            number += 1;
            number <= at + 1 || !other.eq_ignore_ascii_case(name)
        });
    }

    fn remove(&mut self, name: &[u8]) -> usize {
        let before = self.0.len();
        self.0.retain(|(other, ..)| !other.eq_ignore_ascii_case(name));
        before - self.0.len()
    }

    fn check(&self, list: &HeaderList, name: &[u8]) {
        assert_eq!(list.len(), self.0.len());
        for (number, (field, (name, value, _))) in list.iter().zip(&self.0).enumerate() {
            assert_eq!((field.name, field.value, field.id), (&**name, &**value, NameId::from_name(name)));
            assert_eq!(list.at(number), Some(field));
        }
        let values = || self.0.iter().filter(|(other, ..)| other.eq_ignore_ascii_case(name));
        assert!(list.get_all_name(name).eq(values().map(|(_, value, _)| &**value)));
        assert_eq!(list.get_name(name), values().next().map(|(_, value, _)| &**value));
        let id = NameId::from_name(name);
        if id != NameId::Unknown {
            assert_eq!((list.count(id), list.contains(id)), (values().count(), values().count() > 0));
        }
        let second = list.find_name(name, 0).and_then(|(first, _)| list.find_name(name, first + 1));
        assert_eq!(second.map(|(_, value)| value), values().nth(1).map(|(_, value, _)| &**value));
    }
}

/// Header blocks of one connection, each with its length before it.
///
/// Another inspector represents the decoder behind the first one: it gets well-formed blocks, and substitutes for the
/// rest. Both must have the same entries then.
pub fn header_blocks(data: &[u8]) {
    let Some((&choice, mut input)) = data.split_first() else {
        return;
    };
    let (mut inspector, mut decoder) = (Inspector::new(4096, 1 << 18), Inspector::new(4096, 1 << 18));
    let (mut scratch, mut substitute) = (Vec::new(), Vec::new());
    let sections = [Section::Request, Section::Trailers, Section::Response];
    let section = sections[usize::from(choice) % 3];
    let mut written = Written::new();
    while let Some((&length, rest)) = input.split_first() {
        let (block, rest) = rest.split_at(rest.len().min(usize::from(length)));
        input = rest;
        let Ok(inspected) = inspector.inspect(block, section, &mut scratch) else {
            return;
        };
        let fault = inspected.fault();
        let mut count = 0;
        inspected.fields(&mut scratch, |name, value| {
            count += 1;
            let known = matches!(name.first(), Some(b':')) || fault.is_some();
            assert!(known || !name.is_empty() && !name.iter().any(u8::is_ascii_uppercase));
            assert!(fault.is_some() || !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        });
        assert!(count <= block.len());
        if fault.is_none() {
            written.check(&inspected, usize::from(choice));
        }
        substitute.clear();
        if fault.is_some() && !inspected.substitute(&mut substitute) {
            return;
        }
        assert!(substitute.len() <= 4096 + 16);
        let block = if fault.is_some() { &substitute[..] } else { block };
        let followed =
            decoder.inspect(block, section, &mut scratch).map(|inspected| inspected.fault().is_some());
        assert_eq!(followed, Ok(fault.is_some()));
        if choice & 0x80 != 0 {
            inspector.trim();
        }
        same_entries(&mut inspector, &mut decoder);
    }
}

/// An encoder's output for the fields of blocks, with its decoder.
struct Written {
    encoder: Encoder,
    decoder: Inspector,
    blocks: usize,
}

impl Written {
    fn new() -> Self {
        Self { encoder: Encoder::new(), decoder: Inspector::new(4096, 1 << 18), blocks: 0 }
    }

    /// The fields of a block must be the same once they have been written and decoded, whatever the size of the table.
    fn check(&mut self, inspected: &InspectedBlock<'_>, choice: usize) {
        self.blocks += 1;
        self.encoder.set_table([4096, 0, 100, 1 << 20][choice * self.blocks % 4]);
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        let mut fields = Vec::new();
        inspected.fields(&mut Vec::new(), |name, value| {
            if !name.starts_with(b":") {
                fields.push((name.to_vec(), value.to_vec()));
                self.encoder.field(NameId::from_name(name), name, value, &mut block);
            }
        });
        let mut decoded = Vec::new();
        let mut scratch = Vec::new();
        let inspected = self
            .decoder
            .inspect(&block, Section::Trailers, &mut scratch)
            .expect("what was written can be decoded");
        assert_eq!(inspected.fault(), None);
        inspected.fields(&mut Vec::new(), |name, value| decoded.push((name.to_vec(), value.to_vec())));
        assert_eq!(decoded, fields);
    }
}

/// Both inspectors must have the same entries, except for malformed ones.
fn same_entries(one: &mut Inspector, other: &mut Inspector) {
    let mut scratch = Vec::new();
    for index in 62..127u8 {
        let mut known = |inspector: &mut Inspector| {
            let block = [0x80 | index];
            let inspected = inspector.inspect(&block, Section::Trailers, &mut scratch)?;
            let mut field = (Vec::new(), Vec::new());
            inspected.fields(&mut Vec::new(), |name, value| field = (name.to_vec(), value.to_vec()));
            Ok::<_, BlockError>((inspected.fault(), field))
        };
        match (known(one), known(other)) {
            (Err(one), Err(other)) => return assert_eq!(one, other),
            (Ok((one_fault, one)), Ok((_, other))) => {
                assert_eq!(one.0.len() + one.1.len(), other.0.len() + other.1.len());
                assert!(one_fault.is_some() || one == other);
                assert!(!other.1.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
            }
            (one, other) => panic!("{one:?}, {other:?}"),
        }
    }
}

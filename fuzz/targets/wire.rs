//! What must hold for any input of the HTTP/1 codec. Each function is the body of a fuzz target and is also run over
//! that target's corpus by `cargo test`.
//!
//! The first byte of an input chooses limits and splits, the rest is what the peer sent.

use foregate_wire::connection::{drop_underscore_names, keep_alive, strip_hop_by_hop, upgrade};
use foregate_wire::proxy_protocol;
use foregate_wire::serialise::{
    end_head, write_chunk_header, write_fields, write_request_line, write_status_line, write_trailers,
};
use foregate_wire::{
    BodyDecoder, BodyError, BodyLength, HeadLimits, HeadParser, HeaderList, Method, RequestError,
    RequestHead, ResponseError, ResponseHead, Slashes, Target, is_normal, normalize_path, normalize_query,
    parse_authority, request_authority, request_length, response_length,
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
            // What a part of the input decides, the rest does not change.
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

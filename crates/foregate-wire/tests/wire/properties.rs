//! Properties of every input of a kind, and agreement with another parser.

use foregate_wire::serialise::{
    end_head, reason_phrase, write_chunk_header, write_content_length, write_decimal, write_field,
    write_fields, write_request_line, write_status_line, write_trailers,
};
use foregate_wire::{
    BodyDecoder, BodyLength, HeadLimits, HeadParser, HeaderList, Method, RequestHead, ResponseHead, Slashes,
    normalize_path,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Pieces of heads, good and bad.
const PIECES: &[&[u8]] = &[
    b"GET",
    b"POST",
    b" ",
    b"/",
    b"/a?b",
    b"*",
    b" HTTP/1.1\r\n",
    b" HTTP/1.0\r\n",
    b"GET / HTTP/1.1\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"Host: a\r\n",
    b"Host",
    b":",
    b": \t",
    b"\t",
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b"\x7f",
    b"\xff",
    b"Content-Length: 5\r\n",
    b"value \r\n",
    b"x-y_z",
];

/// Bytes that look like a head, more or less.
fn nearly_a_head() -> impl Strategy<Value = Vec<u8>> {
    vec(proptest::sample::select(PIECES), 0..12).prop_map(|pieces| pieces.concat())
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}", "Host|cookie|TE|Content-Length|sec-websocket-key"]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![0x21..0x7fu8, 0x80..=0xffu8, Just(b' '), Just(b'\t')], 0..40)
        .prop_map(|value| value.trim_ascii().to_vec())
}

fn fields() -> impl Strategy<Value = HeaderList> {
    vec((name(), value()), 0..20).prop_map(|fields| {
        let mut list = HeaderList::new();
        for (name, value) in fields {
            list.try_push(name.as_bytes(), &value).unwrap();
        }
        list
    })
}

/// Lines for consecutive heads that share some, and invalid ones.
const LINES: &[&str] = &[
    "Host: a\r\n",
    "Date: x\r\n",
    "Date: y\r\n",
    "a_b: c\r\n",
    "A:\r\n",
    "A: \tb \r\n",
    "Set-Cookie: a=1\r\n",
    "X-Own: 1\r\n",
    "X-Own: 12\r\n",
    "X-Own : 1\r\n",
    " folded\r\n",
    "X: \0\r\n",
    "X: a\nb\r\n",
    "",
];

/// A head as it comes in two pieces, after others.
fn in_pieces<H, E>(
    parse: impl Fn(&mut HeadParser, &[u8], &mut H) -> Result<Option<usize>, E>,
    head: &mut H,
    input: &[u8],
    split: usize,
) -> Result<Option<usize>, E> {
    let mut parser = HeadParser::new();
    match parse(&mut parser, &input[..split.min(input.len())], head) {
        Ok(None) => parse(&mut parser, input, head),
        other => other,
    }
}

proptest! {
    /// Memory of earlier heads does not change results, for any split of the input.
    #[test]
    fn a_head_is_read_alike_whatever_came_before(
        heads in vec((vec(proptest::sample::select(LINES), 0..7), 0..80usize), 1..6),
        fields in 3..8usize,
        bytes in 60..200usize,
    ) {
        let limits = HeadLimits { bytes, fields, ..HeadLimits::default() };
        let (mut request, mut response) = (RequestHead::new(), ResponseHead::new());
        for (lines, split) in heads {
            let fields = lines.concat() + "\r\n";
            let input = format!("GET / HTTP/1.1\r\n{fields}");
            let parse = |parser: &mut HeadParser, input: &[u8], head: &mut RequestHead| {
                parser.parse_request(input, &limits, head)
            };
            let mut fresh = RequestHead::new();
            let expected = in_pieces(parse, &mut fresh, input.as_bytes(), input.len());
            prop_assert_eq!(in_pieces(parse, &mut request, input.as_bytes(), split), expected);
            prop_assert_eq!(&request.headers, &fresh.headers);
            prop_assert_eq!(request.headers.may_have_underscores(), fresh.headers.may_have_underscores());
            let ids = |headers: &HeaderList| headers.iter().map(|field| field.id).collect::<Vec<_>>();
            prop_assert_eq!(ids(&request.headers), ids(&fresh.headers));
            for id in ids(&fresh.headers) {
                prop_assert_eq!(request.headers.get(id), fresh.headers.get(id));
            }
            let input = format!("HTTP/1.1 200 OK\r\n{fields}");
            let parse = |parser: &mut HeadParser, input: &[u8], head: &mut ResponseHead| {
                parser.parse_response(input, &limits, head)
            };
            let mut fresh = ResponseHead::new();
            let expected = in_pieces(parse, &mut fresh, input.as_bytes(), input.len());
            prop_assert_eq!(in_pieces(parse, &mut response, input.as_bytes(), split), expected);
            prop_assert_eq!(&response.headers, &fresh.headers);
            prop_assert_eq!(ids(&response.headers), ids(&fresh.headers));
        }
    }

    #[test]
    fn what_we_accept_another_parser_takes_for_the_same(input in nearly_a_head()) {
        let limits = HeadLimits::default();
        let mut head = RequestHead::new();
        if let Ok(Some(consumed)) = HeadParser::new().parse_request(&input, &limits, &mut head) {
            let mut fields = [httparse::EMPTY_HEADER; 128];
            let mut other = httparse::Request::new(&mut fields);
            prop_assert_eq!(other.parse(&input), Ok(httparse::Status::Complete(consumed)));
            prop_assert_eq!(other.method, Some(head.method.as_str()));
            prop_assert_eq!(other.path.map(str::as_bytes), Some(head.target()));
            let ours: Vec<_> = head.headers.iter().map(|field| (field.name, field.value)).collect();
            let theirs: Vec<_> = other.headers.iter().map(|field| (field.name.as_bytes(), field.value)).collect();
            prop_assert_eq!(ours, theirs);
        }
        let mut head = ResponseHead::new();
        if let Ok(Some(consumed)) = HeadParser::new().parse_response(&input, &limits, &mut head) {
            let mut fields = [httparse::EMPTY_HEADER; 128];
            let mut other = httparse::Response::new(&mut fields);
            prop_assert_eq!(other.parse(&input), Ok(httparse::Status::Complete(consumed)));
            prop_assert_eq!(other.code, Some(head.status));
        }
    }

    #[test]
    fn heads_survive_writing_and_parsing(
        method in "[A-Z]{1,24}",
        target in "/[!-~]{0,40}",
        status in 100..=999u16,
        headers in fields(),
    ) {
        let limits = HeadLimits::default();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut wire = Vec::new();
        write_request_line(&mut wire, &method, target.as_bytes());
        write_fields(&mut wire, &headers);
        end_head(&mut wire);
        let mut head = RequestHead::new();
        let consumed = HeadParser::new().parse_request(&wire, &limits, &mut head);
        prop_assert_eq!(consumed, Ok(Some(wire.len())));
        prop_assert_eq!((head.method, head.target()), (method, target.as_bytes()));
        prop_assert_eq!(&head.headers, &headers);

        let mut wire = Vec::new();
        write_status_line(&mut wire, status, reason_phrase(status).as_bytes());
        write_fields(&mut wire, &headers);
        end_head(&mut wire);
        let mut head = ResponseHead::new();
        let consumed = HeadParser::new().parse_response(&wire, &limits, &mut head);
        prop_assert_eq!(consumed, Ok(Some(wire.len())));
        prop_assert_eq!((head.status, &head.headers), (status, &headers));
    }

    #[test]
    fn chunks_survive_writing_and_decoding(
        chunks in vec(vec(any::<u8>(), 1..300), 0..6),
        trailers in fields(),
        stride in 1..400usize,
    ) {
        let mut wire = Vec::new();
        for chunk in &chunks {
            write_chunk_header(&mut wire, chunk.len());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(b"\r\n");
        }
        let mut trailers = trailers;
        for name in ["host", "cookie", "te", "content-length"] {
            trailers.remove_name(name.as_bytes());
        }
        write_trailers(&mut wire, &trailers);
        wire.extend_from_slice(b"next");

        let mut decoder = BodyDecoder::new(BodyLength::Chunked, &HeadLimits::default());
        let (mut data, mut found, mut at) = (Vec::new(), HeaderList::new(), 0);
        while !decoder.is_done() {
            let unread = &wire[at..(at + stride).min(wire.len())];
            let decoded = decoder.decode(unread, &mut found).unwrap();
            prop_assert!(decoded.consumed > 0);
            data.extend_from_slice(&unread[decoded.data]);
            at += decoded.consumed;
        }
        prop_assert_eq!(data, chunks.concat());
        prop_assert_eq!(found, trailers);
        prop_assert_eq!(&wire[at..], b"next");
    }

    #[test]
    fn the_normal_form_of_a_path_is_its_own(raw in "/([a./]|//|%2e|%2F|%5c|%[0-9a-f]{2}|[ -~]|\u{e4}){0,20}") {
        for slashes in [Slashes::Merge, Slashes::Keep] {
            let (mut once, mut twice) = (Vec::new(), Vec::new());
            if normalize_path(raw.as_bytes(), slashes, &mut once).is_ok() {
                prop_assert_eq!(normalize_path(&once, slashes, &mut twice), Ok(()));
                prop_assert_eq!(&once, &twice);
                let text = String::from_utf8(once).unwrap();
                prop_assert!(!text.split('/').any(|segment| segment == "." || segment == ".."));
            }
        }
    }

    /// Other spellings of the same path have the same form.
    #[test]
    fn spellings_of_a_path_meet(path in "(/[a-z.~-]{1,6}){1,5}", mask in any::<u64>()) {
        let spelled: String = path
            .bytes()
            .enumerate()
            .map(|(at, byte)| match mask >> (at % 32 * 2) & 3 {
                0 if byte != b'/' => format!("%{byte:02x}"),
                1 if byte != b'/' => format!("%{byte:02X}"),
                2 if byte == b'/' => "//./".to_owned(),
                3 if byte == b'/' => "/x/%2E./".to_owned(),
                _ => (byte as char).to_string(),
            })
            .collect();
        let (mut plain, mut other) = (Vec::new(), Vec::new());
        normalize_path(path.as_bytes(), Slashes::Merge, &mut plain).unwrap();
        normalize_path(spelled.as_bytes(), Slashes::Merge, &mut other).unwrap();
        prop_assert_eq!(String::from_utf8(plain).unwrap(), String::from_utf8(other).unwrap(), "{}", spelled);
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_does(number in any::<u64>(), size in 1..usize::MAX) {
        let mut out = Vec::new();
        write_decimal(&mut out, number);
        prop_assert_eq!(out, number.to_string().into_bytes());
        let mut out = Vec::new();
        write_chunk_header(&mut out, size);
        prop_assert_eq!(out, format!("{size:x}\r\n").into_bytes());
    }
}

#[test]
fn what_is_written() {
    let mut out = Vec::new();
    write_request_line(&mut out, &Method::Get, b"/a");
    write_field(&mut out, b"A", b"b");
    write_content_length(&mut out, 0);
    end_head(&mut out);
    write_status_line(&mut out, 404, reason_phrase(404).as_bytes());
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "GET /a HTTP/1.1\r\nA: b\r\nContent-Length: 0\r\n\r\nHTTP/1.1 404 Not Found\r\n"
    );
}

//! What one request costs in the codec: `cargo bench -p foregate-wire`.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark may stop")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use foregate_wire::connection::{drop_underscore_names, keep_alive, strip_hop_by_hop};
use foregate_wire::serialise::{end_head, write_fields, write_request_line};
use foregate_wire::{
    BodyDecoder, BodyLength, HeadLimits, HeadParser, HeaderList, RequestHead, ResponseHead, Slashes, Target,
    normalize_path, request_authority, request_length,
};

/// What a browser sends, 490 bytes.
const TYPICAL: &[u8] = b"GET /static/css/main.css?v=20240101 HTTP/1.1\r\n\
Host: www.example.com\r\n\
Connection: keep-alive\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36\r\n\
Accept: text/css,*/*;q=0.1\r\n\
Referer: https://www.example.com/products/list?page=3\r\n\
Accept-Encoding: gzip, deflate, br\r\n\
Accept-Language: en-US,en;q=0.9,de;q=0.8\r\n\
Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\
If-None-Match: \"5f3c1a2b-1234\"\r\n\
Sec-Fetch-Mode: no-cors\r\n\r\n";
/// What a load generator sends.
const SMALL: &[u8] = b"GET /1k HTTP/1.1\r\nHost: localhost:8080\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
Server: nginx\r\n\
Date: Sat, 01 Jan 2000 00:00:00 GMT\r\n\
Content-Type: text/html; charset=utf-8\r\n\
Content-Length: 1024\r\n\
Connection: keep-alive\r\n\
ETag: \"5f3c1a2b-1234\"\r\n\
Cache-Control: max-age=60\r\n\r\n";

fn heads(criterion: &mut Criterion) {
    let limits = HeadLimits::default();
    for (name, input) in [("typical", TYPICAL), ("small", SMALL)] {
        let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
        criterion.bench_function(&format!("request/{name}/parse"), |bencher| {
            bencher.iter(|| parser.parse_request(black_box(input), &limits, &mut head).unwrap());
        });
        criterion.bench_function(&format!("request/{name}/parse by httparse"), |bencher| {
            bencher.iter(|| {
                let mut fields = [httparse::EMPTY_HEADER; 128];
                httparse::Request::new(&mut fields).parse(black_box(input)).unwrap()
            });
        });
        let (mut path, mut host) = (Vec::new(), String::new());
        criterion.bench_function(&format!("request/{name}/target, host, framing"), |bencher| {
            bencher.iter(|| {
                let target = Target::parse(&head.method, head.target()).unwrap();
                path.clear();
                normalize_path(target.path, Slashes::Merge, &mut path).unwrap();
                black_box(request_authority(&head, &target, &mut host)).unwrap();
                (request_length(&head).unwrap(), keep_alive(head.version, &head.headers))
            });
        });
        let mut headers = HeaderList::new();
        criterion.bench_function(&format!("request/{name}/copy and strip fields"), |bencher| {
            bencher.iter(|| {
                headers.clone_from(&head.headers);
                strip_hop_by_hop(&mut headers, true) + drop_underscore_names(&mut headers)
            });
        });
        let mut out = Vec::new();
        criterion.bench_function(&format!("request/{name}/write"), |bencher| {
            bencher.iter(|| {
                out.clear();
                write_request_line(&mut out, &head.method, head.target());
                write_fields(&mut out, &head.headers);
                end_head(&mut out);
                out.len()
            });
        });
    }
    let (mut parser, mut head) = (HeadParser::new(), ResponseHead::new());
    criterion.bench_function("response/parse", |bencher| {
        bencher.iter(|| parser.parse_response(black_box(RESPONSE), &limits, &mut head).unwrap());
    });
}

fn bodies(criterion: &mut Criterion) {
    let limits = HeadLimits::default();
    for size in [64, 4096] {
        let chunk = [format!("{size:x}\r\n").as_bytes(), &vec![b'x'; size], b"\r\n"].concat();
        let input = [chunk.repeat(65536 / size).as_slice(), b"0\r\n\r\n"].concat();
        criterion.bench_function(&format!("body/64 KiB in chunks of {size}"), |bencher| {
            bencher.iter(|| {
                let mut decoder = BodyDecoder::new(BodyLength::Chunked, &limits);
                let (mut trailers, mut at, mut data) = (HeaderList::new(), 0, 0);
                while !decoder.is_done() {
                    let decoded = decoder.decode(black_box(&input[at..]), &mut trailers).unwrap();
                    at += decoded.consumed;
                    data += decoded.data.len();
                }
                data
            });
        });
    }
}

criterion_group!(benches, heads, bodies);
criterion_main!(benches);

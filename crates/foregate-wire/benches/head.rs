//! Cost of one request in the codec: `cargo bench -p foregate-wire`.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark may stop")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use foregate_wire::connection::{drop_underscore_names, keep_alive, strip_hop_by_hop};
use foregate_wire::hpack::{Encoder, Inspector, Section};
use foregate_wire::serialise::{end_head, write_fields, write_request_line};
use foregate_wire::{
    BodyDecoder, BodyLength, HeadLimits, HeadParser, HeaderList, NameId, RequestHead, ResponseHead, Slashes,
    Target, normalize_path, other_readings, request_authority, request_length,
};

/// A typical request of a browser, 490 bytes.
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
/// A request of a load generator.
const SMALL: &[u8] = b"GET /1k HTTP/1.1\r\nHost: localhost:8080\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
Server: nginx\r\n\
Date: Sat, 01 Jan 2000 00:00:00 GMT\r\n\
Content-Type: text/html; charset=utf-8\r\n\
Content-Length: 1024\r\n\
Connection: keep-alive\r\n\
ETag: \"5f3c1a2b-1234\"\r\n\
Cache-Control: max-age=60\r\n\r\n";

/// The first request of a browser over HTTP/2: all its fields but the path are added to the table.
const FIRST_BLOCK: &[u8] = b"\
\x82\x87\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff\x04\x90\x62\xbb\x0f\x25\xa4\x4a\x18\xa0\xc8\x4f\
\xf9\x58\xe6\x2c\x0c\xff\x7a\xce\xd0\x7f\x66\xa2\x81\xb0\xda\xe0\x53\xfa\xfc\x08\x7e\xd4\xce\x6a\xad\xf2\xa7\x97\
\x9c\x89\xc6\xbf\xb5\x21\xae\xba\x0b\xc8\xb1\xe6\x32\x58\x6d\x97\x57\x65\xc5\x3f\xac\xd8\xf7\xe8\xcf\xf4\xa5\x06\
\xea\x55\x31\x14\x9d\x4f\xfd\xa9\x7a\x7b\x0f\x49\x58\x08\x80\xb8\x17\x02\xe0\x53\x70\xe5\x1d\x86\x61\xb6\x5d\x5d\
\x97\x3f\x53\x8e\x49\x7c\xa5\x82\x21\x1f\x5f\x2c\x7c\xfd\xf6\x80\x0b\x87\x50\x8d\x9b\xd9\xab\xfa\x52\x42\xcb\x40\
\xd2\x5f\xa5\x23\xb3\x51\x93\x2d\x4b\x70\xdd\xf4\x5a\xbe\xfb\x40\x05\xdf\xfa\x90\xbf\x7d\xa0\x02\xef\x7f\x60\x9c\
\x41\x50\x83\x1e\xa8\x00\x11\x32\xd3\x6e\x3a\xf3\xe3\x8c\x92\x16\x50\x04\x4c\xb4\xdb\x8e\xbc\xf8\xe3\x24\x85\x97\
\x60\x88\x4c\xe5\xa4\xb0\x48\x3b\x3a\xff\x40\x8a\x41\x48\xb4\xa5\x49\x27\x5a\x93\xc8\x5f\x85\xa8\xeb\x10\xf6\x23\
\x40\x8a\x41\x48\xb4\xa5\x49\x27\x59\x06\x49\x7f\x88\x40\xe9\x2a\xc7\xb0\xd3\x1a\xaf\x40\x8a\x41\x48\xb4\xa5\x49\
\x27\x5a\x42\xa1\x3f\x84\x42\x7d\x50\x5f\x40\x8d\x41\x48\xb1\x27\x5a\xd1\xad\x5d\x03\x4c\xa7\xb2\x9f\x87\xfe\x73\
\x9a\xab\x7c\xff\x3f";
/// A later one: fields by their index, another path, a Referer.
const NEXT_BLOCK: &[u8] = b"\
\x82\x87\xc8\x04\x96\x61\x09\x1a\x4c\x46\x08\x84\x31\x48\xcd\x52\xe4\x42\x3f\xce\xf0\x08\x02\x68\x01\x00\x7f\xc7\
\xc6\xc5\xc4\xc3\xc2\xc1\xc0\xbf\xbe\x0f\x24\xa0\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\x43\
\xd2\xc5\x76\x1e\x4b\x48\x94\x31\x41\x90\x9f\xf2\xb1\xcc\x58\x19";
/// Fields by their index alone.
const INDEXED_BLOCK: &[u8] = b"\x82\x87\x84\xc8\xc7\xc6\xc5\xc4\xc3\xc2\xc1\xc0\xbf\xbe";

fn blocks(criterion: &mut Criterion) {
    let mut scratch = Vec::new();
    criterion.bench_function("header block/first", |bencher| {
        bencher.iter(|| {
            let mut inspector = Inspector::new(4096, 1 << 18);
            inspector.inspect(black_box(FIRST_BLOCK), Section::Request, &mut scratch).unwrap().fault()
        });
    });
    let mut inspector = Inspector::new(4096, 1 << 18);
    inspector.inspect(FIRST_BLOCK, Section::Request, &mut scratch).unwrap();
    for (name, block) in [("next", NEXT_BLOCK), ("indexed alone", INDEXED_BLOCK)] {
        criterion.bench_function(&format!("header block/{name}"), |bencher| {
            bencher.iter(|| {
                let inspected = inspector.inspect(black_box(block), Section::Request, &mut scratch).unwrap();
                assert_eq!(inspected.fault(), None);
            });
        });
    }
}

/// A head like [`RESPONSE`], most of which has been sent before.
fn encoded(criterion: &mut Criterion) {
    let fields = [
        (NameId::Server, "Server", "nginx"),
        (NameId::Date, "Date", "Sat, 01 Jan 2000 00:00:00 GMT"),
        (NameId::ContentType, "Content-Type", "text/html; charset=utf-8"),
        (NameId::Etag, "ETag", "\"5f3c1a2b-1234\""),
        (NameId::CacheControl, "Cache-Control", "max-age=60"),
    ];
    let (mut encoder, mut block) = (Encoder::new(), Vec::new());
    criterion.bench_function("header block/encoded", |bencher| {
        bencher.iter(|| {
            block.clear();
            encoder.begin(&mut block);
            encoder.status(200, &mut block);
            encoder.content_length(black_box(1024), &mut block);
            for (id, name, value) in black_box(&fields) {
                encoder.field(*id, name.as_bytes(), value.as_bytes(), &mut block);
            }
            block.len()
        });
    });
}

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

fn paths(criterion: &mut Criterion) {
    for (name, path) in [
        ("short", "/static/css/main.css".to_owned()),
        ("4 KB", "/abcdefgh".repeat(430)),
        ("4 KB with escapes", "/ab%20cd%C3%A9gh".repeat(240)),
        ("4 KB with escapes that a path may hold", "/ab%40cd".repeat(480)),
        ("4 KB of layers", "/a%5c..;%2e%252e%2f".repeat(200)),
    ] {
        let mut normal = Vec::new();
        normalize_path(path.as_bytes(), Slashes::Merge, &mut normal).unwrap();
        criterion.bench_function(&format!("path/readings/{name}"), |bencher| {
            bencher.iter(|| other_readings(black_box(&normal), Slashes::Merge, |_| true));
        });
    }
}

criterion_group!(benches, heads, bodies, blocks, encoded, paths);
criterion_main!(benches);

//! How long a body is: the table of RFC 9112, 6.3.

use foregate_wire::FramingError as E;
use foregate_wire::{
    BodyLength, Method, collapse_content_length, content_length, request_length, response_length,
};

use super::{lines, request_of, response_of};

#[test]
fn requests() {
    let cases: &[(&[&str], Result<BodyLength, E>)] = &[
        (&[], Ok(BodyLength::Empty)),
        (&["Content-Length: 0"], Ok(BodyLength::Fixed(0))),
        (&["content-length: 0042"], Ok(BodyLength::Fixed(42))),
        (&["Content-Length: 9223372036854775807"], Ok(BodyLength::Fixed(i64::MAX as u64))),
        (&["Content-Length: 5", "Content-Length: 5"], Ok(BodyLength::Fixed(5))),
        (&["Transfer-Encoding: chunked"], Ok(BodyLength::Chunked)),
        (&["transfer-encoding: CHUNKED"], Ok(BodyLength::Chunked)),
        (&["Content-Length: 9223372036854775808"], Err(E::BadContentLength)),
        (&["Content-Length: 18446744073709551617"], Err(E::BadContentLength)),
        (&["Content-Length: "], Err(E::BadContentLength)),
        (&["Content-Length: +5"], Err(E::BadContentLength)),
        (&["Content-Length: -5"], Err(E::BadContentLength)),
        (&["Content-Length: 5, 5"], Err(E::BadContentLength)),
        (&["Content-Length: 0x5"], Err(E::BadContentLength)),
        (&["Content-Length: 5 5"], Err(E::BadContentLength)),
        (&["Content-Length: 5.0"], Err(E::BadContentLength)),
        (&["Content-Length: 5", "Content-Length: 6"], Err(E::DifferentContentLengths)),
        (&["Content-Length: 5", "Content-Length:"], Err(E::BadContentLength)),
        (&["Content-Length: 5", "Transfer-Encoding: chunked"], Err(E::BothLengths)),
        (&["Transfer-Encoding: x", "Content-Length: x"], Err(E::BothLengths)),
        (&["Transfer-Encoding: chunked, chunked"], Err(E::BadTransferEncoding)),
        (&["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], Err(E::BadTransferEncoding)),
        (&["Transfer-Encoding: "], Err(E::BadTransferEncoding)),
        (&["Transfer-Encoding: chunked,"], Err(E::BadTransferEncoding)),
        (&["Transfer-Encoding: \"chunked\""], Err(E::BadTransferEncoding)),
        (&["Transfer-Encoding: chunked;q=1"], Err(E::BadTransferEncoding)),
        (&["Transfer-Encoding: \u{b}chunked"], Err(E::BadTransferEncoding)),
        (&["Transfer-Encoding: gzip, chunked"], Err(E::UnknownCoding)),
        (&["Transfer-Encoding: identity"], Err(E::UnknownCoding)),
        (&["Transfer-Encoding: xchunked"], Err(E::UnknownCoding)),
        (&["Transfer-Encoding: chunked", "Transfer-Encoding: identity"], Err(E::UnknownCoding)),
    ];
    for (fields, length) in cases {
        if fields.concat().contains('\u{b}') {
            // Such a byte does not get past the parser.
            continue;
        }
        let head = request_of(&[&["POST / HTTP/1.1", "Host: a"], *fields].concat());
        assert_eq!(request_length(&head), *length, "{fields:?}");
    }
    let head = request_of(&["POST / HTTP/1.0", "Transfer-Encoding: chunked"]);
    assert_eq!(request_length(&head), Err(E::TransferEncodingInHttp10));
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "CONNECT"] {
        let head = request_of(&[&format!("{method} / HTTP/1.1"), "Content-Length: 3"]);
        assert_eq!(request_length(&head), Ok(BodyLength::Fixed(3)), "{method}");
    }
    assert_eq!(E::UnknownCoding.status(), 501);
    assert_eq!(E::BothLengths.status(), 400);
}

#[test]
fn responses() {
    use BodyLength as L;
    let (get, head, connect) = (Method::Get, Method::Head, Method::Connect);
    let cases: &[(&Method, &str, &[&str], Result<L, E>)] = &[
        (&get, "200", &[], Ok(L::UntilClose)),
        (&get, "200", &["Content-Length: 5"], Ok(L::Fixed(5))),
        (&get, "500", &["Transfer-Encoding: chunked"], Ok(L::Chunked)),
        (&get, "100", &[], Ok(L::Empty)),
        (&get, "103", &["Content-Length: 5"], Ok(L::Empty)),
        (&get, "101", &[], Ok(L::Tunnel)),
        (&get, "204", &[], Ok(L::Empty)),
        (&get, "204", &["Content-Length: 5"], Ok(L::Empty)),
        (&get, "205", &["Content-Length: 0"], Ok(L::Fixed(0))),
        (&get, "304", &["Content-Length: 5"], Ok(L::Empty)),
        (&head, "200", &["Content-Length: 5"], Ok(L::Empty)),
        (&head, "200", &["Transfer-Encoding: chunked"], Ok(L::Empty)),
        (&head, "200", &[], Ok(L::Empty)),
        (&connect, "200", &["Content-Length: 5"], Ok(L::Tunnel)),
        (&connect, "299", &["Transfer-Encoding: x"], Ok(L::Tunnel)),
        (&connect, "403", &["Content-Length: 5"], Ok(L::Fixed(5))),
        (&get, "200", &["Content-Length: 5", "Transfer-Encoding: chunked"], Err(E::BothLengths)),
        (&head, "200", &["Content-Length: 5", "Transfer-Encoding: chunked"], Err(E::BothLengths)),
        (&get, "304", &["Content-Length: 5", "Content-Length: 6"], Err(E::DifferentContentLengths)),
        (&get, "200", &["Content-Length: x"], Err(E::BadContentLength)),
        (&get, "200", &["Transfer-Encoding: br"], Err(E::UnknownCoding)),
    ];
    for (method, status, fields, length) in cases {
        let head = response_of(&[&[&format!("HTTP/1.1 {status} x")[..]], *fields].concat());
        assert_eq!(response_length(method, &head), *length, "{method} {status} {fields:?}");
    }
    let head = response_of(&["HTTP/1.0 200 OK", "Transfer-Encoding: chunked"]);
    assert_eq!(response_length(&get, &head), Err(E::TransferEncodingInHttp10));
}

#[test]
fn equal_lengths_collapse() {
    let mut head = response_of(&["HTTP/1.1 200 OK", "Content-Length: 5", "A: b", "content-length: 5"]);
    assert_eq!(content_length(&head.headers), Ok(Some(5)));
    collapse_content_length(&mut head.headers);
    assert_eq!(lines(&head.headers), ["Content-Length: 5", "A: b"]);
}

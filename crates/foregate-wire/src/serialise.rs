//! Writes heads and chunk framing. All output comes from parsed and validated values, not from a peer's raw bytes.

use crate::headers::HeaderList;
use crate::method::Method;

/// The chunk that ends a body without trailers (RFC 9112, 7.1).
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Appends `METHOD SP target SP HTTP/1.1 CRLF`. The target must come from [`normalize_path`](crate::normalize_path) or
/// from the parser.
#[inline]
pub fn write_request_line(out: &mut Vec<u8>, method: &Method, target: &[u8]) {
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Appends `HTTP/1.1 SP status SP reason CRLF`. `status` is 100 to 999.
#[inline]
pub fn write_status_line(out: &mut Vec<u8>, status: u16, reason: &[u8]) {
    let digits = status.min(999);
    let digit = |n: u16| b'0' + (n % 10) as u8;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&[digit(digits / 100), digit(digits / 10), digit(digits), b' ']);
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
}

/// Appends one field line. Name and value come from a validated list.
#[inline]
pub fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends all fields of a list in order.
#[inline]
pub fn write_fields(out: &mut Vec<u8>, headers: &HeaderList) {
    headers.write_lines(out);
}

/// Appends the empty line that ends a head or a trailer section.
#[inline]
pub fn end_head(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// Appends `Content-Length: n CRLF`.
pub fn write_content_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"Content-Length: ");
    write_decimal(out, length);
    out.extend_from_slice(b"\r\n");
}

/// Appends a number in decimal.
pub fn write_decimal(out: &mut Vec<u8>, mut number: u64) {
    // u64::MAX has 20 digits.
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    for digit in digits.iter_mut().rev() {
        at -= 1;
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
}

/// Appends the line before a chunk's data, with the size in hexadecimal. `len` must not be 0, which would end the body.
pub fn write_chunk_header(out: &mut Vec<u8>, len: usize) {
    debug_assert!(len > 0, "an empty chunk ends the body");
    let mut digits = [0u8; 16];
    let mut at = digits.len();
    let mut rest = len;
    for digit in digits.iter_mut().rev() {
        at -= 1;
        *digit = b"0123456789abcdef".get(rest & 15).copied().unwrap_or_default();
        rest >>= 4;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
    out.extend_from_slice(b"\r\n");
}

/// Appends the last chunk, the trailers and the empty line after them.
pub fn write_trailers(out: &mut Vec<u8>, trailers: &HeaderList) {
    out.extend_from_slice(b"0\r\n");
    write_fields(out, trailers);
    end_head(out);
}

/// The registered reason phrase of a status code; empty for a code that is not registered.
pub fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        511 => "Network Authentication Required",
        _ => "",
    }
}

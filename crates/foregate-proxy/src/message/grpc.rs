//! Error replies as clients of gRPC read them: status 200 without a body, and the outcome in fields of the head
//! (`Trailers-Only` in the protocol of gRPC over HTTP/2).

use std::fmt::Write as _;

use foregate_wire::serialise::reason_phrase;
use foregate_wire::{Method, NameId, RequestHead, ResponseHead};

/// The longest text that becomes a `grpc-message`, in characters. The rest is cut off: the fields of a head are
/// bounded at clients, some at 8 KiB, and each byte may take three.
const MESSAGE_LIMIT: usize = 512;

/// Fields that describe a body, which such a reply does not have.
const OF_THE_BODY: [NameId; 9] = [
    NameId::ContentType,
    NameId::ContentLength,
    NameId::ContentEncoding,
    NameId::ContentLanguage,
    NameId::ContentLocation,
    NameId::ContentDisposition,
    NameId::Etag,
    NameId::LastModified,
    NameId::AcceptRanges,
];

/// Returns true if the request is a call of gRPC by its method and media type. `application/grpc-web` is another
/// protocol, whose clients read the status of HTTP.
pub fn is_call(head: &RequestHead) -> bool {
    const TYPE: &[u8] = b"application/grpc";
    let Some(value) = head.headers.get(NameId::ContentType).filter(|_| head.method == Method::Post) else {
        return false;
    };
    let Some((start, rest)) = value.split_at_checked(TYPE.len()) else { return false };
    start.eq_ignore_ascii_case(TYPE) && matches!(rest.first(), None | Some(b'+' | b';' | b' ' | b'\t'))
}

/// Makes an error reply one of gRPC. `body` is its body, which is then no longer sent.
pub fn make_trailers_only(head: &mut ResponseHead, body: &[u8]) {
    let message = message(head, body);
    head.headers.remove_each(&OF_THE_BODY);
    head.headers.push_id(NameId::ContentType, b"application/grpc");
    head.headers.set(NameId::GrpcStatus, code(head.status).as_bytes());
    head.headers.set(NameId::GrpcMessage, message.as_bytes());
    head.status = 200;
}

/// The code for a status of HTTP, by the table for clients that get a response without a code
/// (`http-grpc-status-mapping.md` in the documentation of gRPC). So a client sees the same code whether the proxy or
/// its own library translates. A 504 is UNAVAILABLE and not DEADLINE_EXCEEDED, which stands for the deadline of the client.
fn code(status: u16) -> &'static str {
    match status {
        400 => "13",
        401 => "16",
        403 => "7",
        404 => "12",
        429 | 502 | 503 | 504 => "14",
        _ => "2",
    }
}

/// The text for people: the body if it is plain text, otherwise the reason phrase of the status.
fn message(head: &ResponseHead, body: &[u8]) -> String {
    let is_text = head.headers.get(NameId::ContentType).is_some_and(|kind| kind.starts_with(b"text/plain"))
        && !head.headers.contains(NameId::ContentEncoding);
    let text = std::str::from_utf8(body).ok().map(str::trim).filter(|text| is_text && !text.is_empty());
    let mut message = String::new();
    for character in text.unwrap_or(reason_phrase(head.status)).chars().take(MESSAGE_LIMIT) {
        // Percent-Byte-Unencoded of gRPC: printable characters of ASCII but the percent sign.
        if matches!(character, ' '..='$' | '&'..='~') {
            message.push(character);
        } else {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(message, "%{byte:02X}");
            }
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, content_type: &str) -> RequestHead {
        let mut head = RequestHead::new();
        head.method = method;
        head.headers.push_id(NameId::ContentType, content_type.as_bytes());
        head
    }

    fn reply(status: u16, content_type: &str, body: &[u8]) -> ResponseHead {
        let mut head = ResponseHead::new();
        head.status = status;
        head.headers.push_id(NameId::ContentType, content_type.as_bytes());
        make_trailers_only(&mut head, body);
        head
    }

    fn field(head: &ResponseHead, name: NameId) -> &str {
        std::str::from_utf8(head.headers.get(name).unwrap()).unwrap()
    }

    #[test]
    fn calls_are_known_by_their_media_type() {
        for kind in ["application/grpc", "application/grpc+proto", "Application/gRPC; charset=utf-8"] {
            assert!(is_call(&request(Method::Post, kind)), "{kind}");
            assert!(!is_call(&request(Method::Get, kind)), "{kind}");
        }
        for kind in
            ["", "application/grp", "application/grpc-web", "application/grpc-web+proto", "text/plain"]
        {
            assert!(!is_call(&request(Method::Post, kind)), "{kind}");
        }
    }

    #[test]
    fn the_code_follows_the_status() {
        let codes = [(400, "13"), (401, "16"), (403, "7"), (404, "12"), (429, "14"), (504, "14"), (500, "2")];
        for (status, code) in codes {
            let head = reply(status, "text/plain", b"");
            assert_eq!((head.status, field(&head, NameId::GrpcStatus)), (200, code), "{status}");
            assert_eq!(field(&head, NameId::ContentType), "application/grpc");
        }
    }

    #[test]
    fn the_message_is_the_text_of_the_reply() {
        let head = reply(404, "text/plain; charset=utf-8", "404 Not Found\n100 % \u{fc}\n".as_bytes());
        assert_eq!(field(&head, NameId::GrpcMessage), "404 Not Found%0A100 %25 %C3%BC");
        let page = reply(503, "text/html", b"<h1>Back soon</h1>");
        assert_eq!(field(&page, NameId::GrpcMessage), "Service Unavailable");
        let binary = reply(403, "text/plain", b"\xff");
        assert_eq!(field(&binary, NameId::GrpcMessage), "Forbidden");
    }

    #[test]
    fn a_long_message_is_cut_off() {
        let head = reply(403, "text/plain", "\u{20ac}".repeat(MESSAGE_LIMIT + 1).as_bytes());
        assert_eq!(field(&head, NameId::GrpcMessage).len(), 9 * MESSAGE_LIMIT);
    }

    #[test]
    fn fields_of_the_body_go_with_it() {
        let mut head = ResponseHead::new();
        head.status = 429;
        let fields = ["Content-Length", "Content-Language", "ETag", "Retry-After"];
        fields.iter().for_each(|name| head.headers.push(name.as_bytes(), b"1"));
        make_trailers_only(&mut head, b"x");
        let names: Vec<_> = head.headers.iter().map(|field| field.name.to_ascii_lowercase()).collect();
        assert_eq!(names, [&b"retry-after"[..], b"content-type", b"grpc-status", b"grpc-message"]);
    }
}

//! The original bytes of an exchange that falls back: the old proxy gets the client's own head, and
//! the client gets the old proxy's own response head.
//!
//! This is the one exception to the rule that an origin gets a serialisation of the canonical
//! request. The client's bytes go on only after the strict parser has read them, and only if
//! [`is_safe`] holds, so that both sides agree on the framing.

use foregate_wire::{BodyLength, HeaderList, NameId, RequestHead, Target, connection};

/// The bytes of both heads.
#[derive(Debug, Default)]
pub struct Verbatim {
    /// The head for the old proxy, line ends and the empty line included.
    pub request: Vec<u8>,
    /// The head of the last response that was received.
    pub response: Vec<u8>,
}

/// The framing fields, other spellings of which a lenient server may accept.
const FRAMING: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];

/// Returns true if every server reads the same message from the bytes of this head as the strict
/// parser: the length is stated once, there is no other spelling of a framing field, and `Connection`
/// does not make the next hop drop a framing field. `Upgrade` must not offer HTTP itself, because the
/// proxy could not see requests after such a switch.
pub fn is_safe(head: &RequestHead, length: BodyLength) -> bool {
    let headers = &head.headers;
    let count = |id| headers.count(id);
    let (lengths, codings) = (count(NameId::ContentLength), count(NameId::TransferEncoding));
    let agrees = match length {
        BodyLength::Empty => lengths + codings == 0,
        BodyLength::Fixed(_) => lengths == 1 && codings == 0,
        BodyLength::Chunked => lengths == 0 && codings == 1,
        BodyLength::UntilClose | BodyLength::Tunnel => false,
    };
    let is_spelling = |name: &[u8]| FRAMING.iter().any(|known| connection::is_spelling(name, known));
    let misspelt = headers.iter().any(|field| field.id == NameId::Unknown && is_spelling(field.name));
    agrees && !misspelt && !names_framing(headers) && !connection::offers_http(headers)
}

/// Returns true if `Connection` names a framing field or `Host`.
fn names_framing(headers: &HeaderList) -> bool {
    let options = headers.get_all(NameId::Connection).flat_map(|value| value.split(|byte| *byte == b','));
    options.map(<[u8]>::trim_ascii).any(|option| {
        FRAMING.iter().chain(&[&b"host"[..]]).any(|known| connection::is_spelling(option, known))
    })
}

/// Returns true if each `Host` in the bytes of a head equals the authority in the target, or if the target has none.
/// The canonical request uses the authority in the target instead of `Host`.
pub fn names_one_host(bytes: &[u8], head: &RequestHead) -> bool {
    let Ok(target) = Target::parse(&head.method, head.target()) else { return false };
    let Some(authority) = target.authority() else { return true };
    let hosts = bytes.split(|byte| *byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (line.get(..colon)?, line.get(colon + 1..)?);
        name.eq_ignore_ascii_case(b"host").then_some(value.trim_ascii())
    });
    hosts.into_iter().all(|host| host.eq_ignore_ascii_case(authority))
}

/// Removes the fields of these names, in any spelling, from the bytes of a head.
pub fn remove_fields(head: &mut Vec<u8>, names: &[&[u8]]) {
    let is_named = |line: &[u8]| {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        name.len() < line.len() && names.iter().any(|known| connection::is_spelling(name, known))
    };
    let mut kept = Vec::with_capacity(head.len());
    let mut is_first = true;
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        // Empty lines may come before the request line.
        let is_start = is_first && line != b"\r\n";
        if is_first || !is_named(line) {
            kept.extend_from_slice(line);
        }
        is_first &= !is_start;
    }
    *head = kept;
}

/// Adds a field after the others in the bytes of a head.
pub fn add_field(head: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if head.ends_with(b"\r\n\r\n") {
        head.truncate(head.len() - 2);
        head.extend_from_slice(&[name, b": ", value, b"\r\n\r\n"].concat());
    }
}

#[cfg(test)]
mod tests {
    use foregate_wire::{HeadLimits, HeadParser, request_length};

    use super::*;

    fn safe(fields: &str) -> bool {
        let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut head = RequestHead::new();
        HeadParser::new().parse_request(text.as_bytes(), &HeadLimits::default(), &mut head).unwrap();
        is_safe(&head, request_length(&head).unwrap())
    }

    #[test]
    fn bytes_go_on_only_where_all_servers_read_one_framing() {
        for fields in
            ["", "Content-Length: 5\r\n", "TRANSFER-encoding:chunked\r\n", "Connection: close, x\r\n"]
        {
            assert!(safe(fields), "{fields}");
        }
        for fields in [
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content_Length: 5\r\n",
            "Content-Length: 5\r\nTransfer_Encoding: chunked\r\n",
            "Content-Length: 5\r\nConnection: x, content-LENGTH\r\n",
            "Connection: Transfer-Encoding\r\n",
            "Connection: host\r\n",
        ] {
            assert!(!safe(fields), "{fields}");
        }
    }

    #[test]
    fn http_is_not_offered_and_one_host_is_named() {
        assert!(safe("Connection: upgrade\r\nUpgrade: websocket\r\n") && safe("Upgrade: x\r\n"));
        for fields in [
            "Connection: upgrade\r\nUpgrade: h2c\r\n",
            "Connection: upgrade, HTTP2-Settings\r\nUpgrade: websocket, h2c\r\nHTTP2-Settings: AA\r\n",
            "Upgrade: h2c\r\n",
            "HTTP2-Settings: AA\r\n",
        ] {
            assert!(!safe(fields), "{fields}");
        }
        let names = |target: &str| {
            let text = format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n");
            let mut head = RequestHead::new();
            HeadParser::new().parse_request(text.as_bytes(), &HeadLimits::default(), &mut head).unwrap();
            names_one_host(text.as_bytes(), &head)
        };
        assert!(names("/") && names("http://A.test/x"));
        assert!(!names("http://b.test/x") && !names("http://a.test:81/"));
    }

    #[test]
    fn fields_are_removed_and_added_and_nothing_else_changes() {
        let mut head = b"\r\nGET x-a: HTTP/1.1\r\nX_A: 1\r\nhost:  b \r\nx-a:2\r\nx-ab: 3\r\n\r\n".to_vec();
        remove_fields(&mut head, &[b"x-a"]);
        add_field(&mut head, b"M", b"1");
        assert_eq!(head, b"\r\nGET x-a: HTTP/1.1\r\nhost:  b \r\nx-ab: 3\r\nM: 1\r\n\r\n");
    }
}

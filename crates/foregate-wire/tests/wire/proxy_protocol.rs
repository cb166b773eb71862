//! The PROXY protocol.

use foregate_wire::proxy_protocol::{
    MAX_V2_PAYLOAD, ProxyError, ProxyHeader, parse, write_v1, write_v1_unknown, write_v2, write_v2_local,
};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Parses whole and byte by byte; a decision about a part must equal that about the whole.
fn read(input: &[u8]) -> Result<Option<(ProxyHeader, usize)>, ProxyError> {
    let whole = parse(input);
    for end in 0..input.len() {
        let part = parse(&input[..end]);
        assert!(part == Ok(None) || part == whole, "{part:?} after {end} bytes, then {whole:?}");
    }
    whole
}

fn v2(bytes: &[u8]) -> Vec<u8> {
    [SIGNATURE, bytes].concat()
}

fn proxied(source: &str, destination: &str) -> ProxyHeader {
    ProxyHeader::Proxied { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

#[test]
fn version_1() {
    let line = b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\nGET /";
    assert_eq!(read(line), Ok(Some((proxied("192.0.2.1:56324", "192.0.2.2:443"), 42))));
    let line = b"PROXY TCP6 2001:db8::1 ::1 0 65535\r\n";
    assert_eq!(read(line), Ok(Some((proxied("[2001:db8::1]:0", "[::1]:65535"), line.len()))));
    assert_eq!(read(b"PROXY UNKNOWN\r\n"), Ok(Some((ProxyHeader::Local, 15))));
    assert_eq!(read(b"PROXY UNKNOWN ffff:: x\r\n"), Ok(Some((ProxyHeader::Local, 24))));
    assert_eq!(read(b"PROXY TCP4 192.0.2.1"), Ok(None));
    for line in [
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2 \r\n",
        "PROXY TCP4  1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n",
        "PROXY TCP4 ::1 ::1 1 2\r\n",
        "PROXY TCP6 1.2.3.4 ::1 1 2\r\n",
        "PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY \r\n",
    ] {
        assert_eq!(read(line.as_bytes()), Err(ProxyError::BadLine), "{line:?}");
    }
    let long = format!("PROXY UNKNOWN {}", "x".repeat(93));
    assert_eq!(read(long.as_bytes()), Err(ProxyError::BadLine));
    assert_eq!(read(&long.as_bytes()[..106]), Ok(None));
    for other in ["GET / HTTP/1.1", "PROXY\r", "proxy ", "\r\nG", "\x16\x03"] {
        assert_eq!(read(other.as_bytes()), Err(ProxyError::NoSignature), "{other:?}");
    }
}

#[test]
fn version_2() {
    let v4 = v2(b"\x21\x11\0\x0c\x01\x02\x03\x04\x05\x06\x07\x08\x00\x50\x01\xbbrest");
    assert_eq!(read(&v4), Ok(Some((proxied("1.2.3.4:80", "5.6.7.8:443"), 28))));
    let tlv = v2(b"\x21\x11\0\x10\x01\x02\x03\x04\x05\x06\x07\x08\x00\x50\x01\xbb\x04\0\x01x");
    assert_eq!(read(&tlv), Ok(Some((proxied("1.2.3.4:80", "5.6.7.8:443"), 32))));
    assert_eq!(read(&v2(b"\x20\0\0\0")), Ok(Some((ProxyHeader::Local, 16))));
    assert_eq!(read(&v2(b"\x20\x11\0\x02ab")), Ok(Some((ProxyHeader::Local, 18))));
    assert_eq!(read(&v2(b"\x21\x31\0\x01a")), Ok(Some((ProxyHeader::Local, 17))));
    assert_eq!(read(&v2(b"\x21\x00\0\0")), Ok(Some((ProxyHeader::Local, 16))));
    assert_eq!(read(&v2(b"\x21\x11\0\x0c")), Ok(None));
    for bytes in [&b"\x11"[..], b"\x22", b"\x21\x11\0\x0bxxxxxxxxxxx", b"\x21\x21\0\x01x", b"\x21\x41\0\0"] {
        assert_eq!(read(&v2(bytes)), Err(ProxyError::BadHeader), "{}", bytes.escape_ascii());
    }
    let too_long = (MAX_V2_PAYLOAD as u16 + 1).to_be_bytes();
    assert_eq!(read(&v2(&[0x21, 0x11, too_long[0], too_long[1]])), Err(ProxyError::TooLong));
}

#[test]
fn what_is_written_can_be_read() {
    let pairs = [("1.2.3.4:80", "5.6.7.8:65535"), ("[2001:db8::1]:1", "[::]:0")];
    for (source, destination) in pairs {
        for write in [write_v1, write_v2] {
            let mut out = Vec::new();
            write(&mut out, source.parse().unwrap(), destination.parse().unwrap());
            assert_eq!(read(&out), Ok(Some((proxied(source, destination), out.len()))));
        }
    }
    let mut mixed = Vec::new();
    write_v1(&mut mixed, "1.2.3.4:1".parse().unwrap(), "[::1]:2".parse().unwrap());
    assert_eq!(mixed, b"PROXY TCP6 ::ffff:1.2.3.4 ::1 1 2\r\n");
    for write in [write_v1_unknown, write_v2_local] {
        let mut out = Vec::new();
        write(&mut out);
        assert_eq!(read(&out), Ok(Some((ProxyHeader::Local, out.len()))));
    }
}

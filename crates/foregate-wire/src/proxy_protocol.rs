//! The PROXY protocol, versions 1 and 2: a line or a block with the client's address, sent before the first byte of a
//! connection. It must be read from trusted peers only.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest version 1 line, its CRLF included.
pub const MAX_V1: usize = 107;
/// The most bytes of addresses and TLVs after a version 2 header.
pub const MAX_V2_PAYLOAD: usize = 4096;
/// The start of a version 2 block.
const V2_SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const V2_HEADER: usize = 16;

/// The content of a PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// The sender opened the connection for itself (a health check), or does not know the client: use the socket's
    /// addresses.
    Local,
    /// The client connected from `source` to `destination`.
    Proxied {
        /// The client.
        source: SocketAddr,
        /// The address to which the client connected.
        destination: SocketAddr,
    },
}

/// Why a PROXY header was refused. The connection must be closed without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ProxyError {
    /// The bytes are the start of neither a version 1 line nor a version 2 block.
    #[error("the connection does not begin with a PROXY header")]
    NoSignature,
    /// A version 1 line that is malformed or longer than [`MAX_V1`].
    #[error("the PROXY version 1 line is malformed")]
    BadLine,
    /// A version, command, family or length that is invalid in version 2.
    #[error("the PROXY version 2 header is malformed")]
    BadHeader,
    /// More than [`MAX_V2_PAYLOAD`] bytes of addresses and TLVs.
    #[error("the PROXY version 2 header is longer than 4 KiB")]
    TooLong,
}

/// Reads the header at the start of a connection. `None` asks for another call with the same bytes and more behind
/// them.
///
/// # Errors
/// The bytes cannot become a valid header. This is reported at the first such byte.
pub fn parse(input: &[u8]) -> Result<Option<(ProxyHeader, usize)>, ProxyError> {
    let v2 = input.len().min(V2_SIGNATURE.len());
    if input.get(..v2) == V2_SIGNATURE.get(..v2) {
        return if input.len() < V2_HEADER { check_v2_start(input).map(|()| None) } else { parse_v2(input) };
    }
    let prefix = b"PROXY ";
    let v1 = input.len().min(prefix.len());
    if input.get(..v1) != prefix.get(..v1) {
        return Err(ProxyError::NoSignature);
    }
    let window = input.get(..MAX_V1).unwrap_or(input);
    let Some(end) = memchr::memchr(b'\n', window) else {
        return if input.len() >= MAX_V1 { Err(ProxyError::BadLine) } else { Ok(None) };
    };
    let line = window.get(..end).and_then(|line| line.strip_suffix(b"\r")).ok_or(ProxyError::BadLine)?;
    Ok(Some((parse_v1(line)?, end + 1)))
}

/// Appends a version 1 line. Addresses of different families are written as IPv6.
pub fn write_v1(out: &mut Vec<u8>, source: SocketAddr, destination: SocketAddr) {
    use std::io::Write as _;

    let (family, from, to) = match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ("TCP4", IpAddr::V4(from), IpAddr::V4(to)),
        (from, to) => ("TCP6", IpAddr::V6(as_v6(from)), IpAddr::V6(as_v6(to))),
    };
    // Writing to a Vec does not fail.
    let _ = write!(out, "PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port());
}

/// Appends a version 1 line that says nothing about the client.
pub fn write_v1_unknown(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PROXY UNKNOWN\r\n");
}

/// The TLV with the ALPN protocol of the connection.
pub const TLV_ALPN: u8 = 0x01;
/// The TLV with the server name that the client has requested.
pub const TLV_AUTHORITY: u8 = 0x02;
/// The TLV about TLS. It contains one byte of flags, four bytes with the result of the client certificate's
/// verification, and more TLVs.
pub const TLV_SSL: u8 = 0x20;
/// Inside [`TLV_SSL`]: the version of TLS.
pub const TLV_SSL_VERSION: u8 = 0x21;
/// Inside [`TLV_SSL`]: the common name of the client's certificate.
pub const TLV_SSL_CN: u8 = 0x22;
/// Inside [`TLV_SSL`]: the cipher suite.
pub const TLV_SSL_CIPHER: u8 = 0x23;

/// Appends one TLV; a value of more than 64 KiB is left out.
pub fn write_tlv(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let Ok(length) = u16::try_from(value.len()) else { return };
    out.push(kind);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(value);
}

/// Appends a version 2 block for a TCP connection. Addresses of different families are written as IPv6.
pub fn write_v2(out: &mut Vec<u8>, source: SocketAddr, destination: SocketAddr) {
    write_v2_with(out, source, destination, &[]);
}

/// Appends a version 2 block for a TCP connection with these TLVs. All TLVs are left out if the payload would be longer
/// than [`MAX_V2_PAYLOAD`].
pub fn write_v2_with(out: &mut Vec<u8>, source: SocketAddr, destination: SocketAddr, tlvs: &[u8]) {
    const ADDRESSES_MOST: usize = 36;
    let tlvs = if ADDRESSES_MOST + tlvs.len() > MAX_V2_PAYLOAD { &[] } else { tlvs };
    let length = |addresses: u16| (addresses + tlvs.len() as u16).to_be_bytes();
    out.extend_from_slice(&V2_SIGNATURE);
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            out.extend_from_slice(&[0x21, 0x11]);
            out.extend_from_slice(&length(12));
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
        (from, to) => {
            out.extend_from_slice(&[0x21, 0x21]);
            out.extend_from_slice(&length(36));
            out.extend_from_slice(&as_v6(from).octets());
            out.extend_from_slice(&as_v6(to).octets());
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
    out.extend_from_slice(tlvs);
}

/// Appends a version 2 block for a connection of the proxy's own, such as a health check.
pub fn write_v2_local(out: &mut Vec<u8>) {
    out.extend_from_slice(&V2_SIGNATURE);
    out.extend_from_slice(&[0x20, 0x00, 0, 0]);
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn parse_v1(line: &[u8]) -> Result<ProxyHeader, ProxyError> {
    let text = core::str::from_utf8(line).map_err(|_| ProxyError::BadLine)?;
    let mut words = text.split(' ').skip(1);
    let mut word = || words.next().ok_or(ProxyError::BadLine);
    let (source, destination): (IpAddr, IpAddr) = match word()? {
        // The rest of the line after UNKNOWN is ignored.
        "UNKNOWN" => return Ok(ProxyHeader::Local),
        "TCP4" => (address::<Ipv4Addr>(word()?)?.into(), address::<Ipv4Addr>(word()?)?.into()),
        "TCP6" => (address::<Ipv6Addr>(word()?)?.into(), address::<Ipv6Addr>(word()?)?.into()),
        _ => return Err(ProxyError::BadLine),
    };
    let (from, to) = (port(word()?)?, port(word()?)?);
    if words.next().is_some() {
        return Err(ProxyError::BadLine);
    }
    Ok(ProxyHeader::Proxied {
        source: SocketAddr::new(source, from),
        destination: SocketAddr::new(destination, to),
    })
}

fn address<A: core::str::FromStr>(text: &str) -> Result<A, ProxyError> {
    text.parse().map_err(|_| ProxyError::BadLine)
}

/// Parses a port: decimal digits without a sign or leading zeros.
fn port(text: &str) -> Result<u16, ProxyError> {
    if text.is_empty()
        || !text.bytes().all(|byte| byte.is_ascii_digit())
        || (text.len() > 1 && text.starts_with('0'))
    {
        return Err(ProxyError::BadLine);
    }
    text.parse().map_err(|_| ProxyError::BadLine)
}

/// Checks the part of a version 2 header that has arrived.
fn check_v2_start(input: &[u8]) -> Result<(), ProxyError> {
    if let Some(&command) = input.get(12)
        && command != 0x20
        && command != 0x21
    {
        return Err(ProxyError::BadHeader);
    }
    Ok(())
}

fn parse_v2(input: &[u8]) -> Result<Option<(ProxyHeader, usize)>, ProxyError> {
    check_v2_start(input)?;
    let Some([.., command, family, high, low]) = input.first_chunk::<V2_HEADER>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    if length > MAX_V2_PAYLOAD {
        return Err(ProxyError::TooLong);
    }
    let Some(payload) = input.get(V2_HEADER..V2_HEADER + length) else {
        return Ok(None);
    };
    let header = if *command == 0x20 { ProxyHeader::Local } else { v2_addresses(*family, payload)? };
    Ok(Some((header, V2_HEADER + length)))
}

/// The addresses of a proxied connection. Protocols other than TCP and UDP over IP count as local.
fn v2_addresses(family: u8, payload: &[u8]) -> Result<ProxyHeader, ProxyError> {
    match family {
        0x11 | 0x12 => {
            let bytes: &[u8; 12] = payload.first_chunk().ok_or(ProxyError::BadHeader)?;
            let [a, b, c, d, e, f, g, h, ports @ ..] = *bytes;
            let (from, to) = v2_ports(ports);
            Ok(ProxyHeader::Proxied {
                source: SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), from),
                destination: SocketAddr::new(Ipv4Addr::new(e, f, g, h).into(), to),
            })
        }
        0x21 | 0x22 => {
            let (source, rest) = payload.split_first_chunk::<16>().ok_or(ProxyError::BadHeader)?;
            let (destination, rest) = rest.split_first_chunk::<16>().ok_or(ProxyError::BadHeader)?;
            let (from, to) = v2_ports(*rest.first_chunk().ok_or(ProxyError::BadHeader)?);
            Ok(ProxyHeader::Proxied {
                source: SocketAddr::new(Ipv6Addr::from(*source).into(), from),
                destination: SocketAddr::new(Ipv6Addr::from(*destination).into(), to),
            })
        }
        0x00 | 0x31 | 0x32 => Ok(ProxyHeader::Local),
        _ => Err(ProxyError::BadHeader),
    }
}

fn v2_ports([a, b, c, d]: [u8; 4]) -> (u16, u16) {
    (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}

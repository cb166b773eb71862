//! Hosts and authorities (RFC 3986, 3.2; RFC 9110, 7.2).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::chars::{of, table};
use crate::head::RequestHead;
use crate::method::Version;
use crate::name_id::NameId;
use crate::target::Target;

/// The longest authority that is accepted, in bytes.
pub const MAX_AUTHORITY: usize = 255;

/// The characters of a host name: letters, digits, `-`, `_` and `.`.
static NAME: [bool; 256] = table(b"-_.", true);

/// Why an authority was refused: 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HostError {
    /// An HTTP/1.1 request without a Host field.
    #[error("the request has no Host field")]
    Missing,
    /// More than one Host field.
    #[error("the request has more than one Host field")]
    Repeated,
    /// An authority without a host.
    #[error("the host is empty")]
    Empty,
    /// More than [`MAX_AUTHORITY`] bytes.
    #[error("the host is longer than 255 bytes")]
    TooLong,
    /// User information before an `@`, which a request must not carry (RFC 9110, 4.2.4).
    #[error("the authority holds user information")]
    UserInfo,
    /// A name with anything but letters, digits, `-`, `_` and `.`, or with an empty label.
    #[error("the host is not a valid name or address")]
    BadName,
    /// Brackets around something other than an IPv6 address.
    #[error("the host in brackets is not an IPv6 address")]
    BadIpv6,
    /// A port that is no number from 0 to 65535.
    #[error("the port is not a number from 0 to 65535")]
    BadPort,
}

/// The kind of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostKind {
    /// A name.
    Name,
    /// A dotted IPv4 address.
    Ipv4(Ipv4Addr),
    /// An IPv6 address, written in brackets.
    Ipv6(Ipv6Addr),
}

/// A host and port in their normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority<'a> {
    /// The host in lower case, without a trailing dot. An IPv6 address is in brackets and in its canonical spelling.
    pub host: &'a str,
    /// The port, when one was given.
    pub port: Option<u16>,
    /// The kind.
    pub kind: HostKind,
}

/// The authority to which a request is addressed (RFC 9112, 3.2.2): the target's authority if it has one, otherwise the
/// Host field. `None` for an HTTP/1.0 request without either. The result borrows from `out`, which is overwritten.
///
/// # Errors
/// Host is missing from an HTTP/1.1 request, repeated, or invalid, even if the target's authority replaces it.
pub fn request_authority<'a>(
    head: &RequestHead,
    target: &Target<'_>,
    out: &'a mut String,
) -> Result<Option<Authority<'a>>, HostError> {
    let host = head.headers.get(NameId::Host);
    match host {
        None if head.version >= Version::Http11 => return Err(HostError::Missing),
        Some(_) if head.headers.count(NameId::Host) > 1 => return Err(HostError::Repeated),
        _ => {}
    }
    match (host, target.authority()) {
        (Some(host), Some(authority)) => {
            if host != authority {
                parse_authority(host, out)?;
            }
            parse_authority(authority, out).map(Some)
        }
        (Some(authority), None) | (None, Some(authority)) => parse_authority(authority, out).map(Some),
        (None, None) => Ok(None),
    }
}

/// Checks an authority and writes its host in normal form into `out`, which is cleared first.
///
/// # Errors
/// Anything that is not a host name, an IPv4 address or a bracketed IPv6 address with an optional port.
pub fn parse_authority<'a>(raw: &[u8], out: &'a mut String) -> Result<Authority<'a>, HostError> {
    use core::fmt::Write as _;

    out.clear();
    if raw.is_empty() {
        return Err(HostError::Empty);
    }
    if raw.len() > MAX_AUTHORITY {
        return Err(HostError::TooLong);
    }
    if let [b'[', rest @ ..] = raw {
        let end = memchr::memchr(b']', rest).ok_or(HostError::BadIpv6)?;
        let (text, behind) = rest.split_at_checked(end).ok_or(HostError::BadIpv6)?;
        let text = core::str::from_utf8(text).map_err(|_| HostError::BadIpv6)?;
        let address: Ipv6Addr = text.parse().map_err(|_| HostError::BadIpv6)?;
        let port = match behind {
            [b']'] => None,
            [b']', b':', port @ ..] => parse_port(port)?,
            _ => return Err(HostError::BadIpv6),
        };
        write!(out, "[{address}]").map_err(|_| HostError::BadIpv6)?;
        return Ok(Authority { host: out, port, kind: HostKind::Ipv6(address) });
    }
    let (name, port) = match memchr::memchr(b':', raw) {
        Some(at) => {
            let port = parse_port(raw.get(at + 1..).unwrap_or_default())?;
            (raw.get(..at).unwrap_or_default(), port)
        }
        None => (raw, None),
    };
    let kind = normalize_name(name, out)?;
    Ok(Authority { host: out, port, kind })
}

/// Parses a port, which must be digits only. An empty text means the scheme's default port.
fn parse_port(digits: &[u8]) -> Result<Option<u16>, HostError> {
    if digits.is_empty() {
        return Ok(None);
    }
    let mut port: u32 = 0;
    for &byte in digits {
        if !byte.is_ascii_digit() {
            return Err(if byte == b'@' { HostError::UserInfo } else { HostError::BadPort });
        }
        port = port * 10 + u32::from(byte - b'0');
        if port > u32::from(u16::MAX) {
            return Err(HostError::BadPort);
        }
    }
    Ok(Some(port as u16))
}

/// Lower-cases a name, drops the dot at its end and refuses empty labels.
fn normalize_name(name: &[u8], out: &mut String) -> Result<HostKind, HostError> {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let Some(&last) = name.last() else {
        return Err(HostError::Empty);
    };
    let mut before = b'.';
    for &byte in name {
        if !of(&NAME, byte) {
            return Err(if byte == b'@' { HostError::UserInfo } else { HostError::BadName });
        }
        if byte == b'.' && before == b'.' {
            return Err(HostError::BadName);
        }
        before = byte;
    }
    if last == b'.' {
        return Err(HostError::BadName);
    }
    out.push_str(core::str::from_utf8(name).map_err(|_| HostError::BadName)?);
    out.make_ascii_lowercase();
    if last.is_ascii_digit()
        && let Ok(address) = out.parse()
    {
        return Ok(HostKind::Ipv4(address));
    }
    Ok(HostKind::Name)
}

/// The key for limits per client: the IPv4 address, or the /64 network of an IPv6 address, because an IPv6 client can
/// use any address in its /64.
pub fn client_network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

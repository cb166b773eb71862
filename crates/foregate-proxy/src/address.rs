//! Addresses of origin servers and blocks of client addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// Formats an address like `Display`, and passes the pieces to `push`. For IPv4, which most clients use, this is faster
/// than `Display`: an address is formatted for each connection and for each line of the access log.
pub fn write_ip(address: IpAddr, mut push: impl FnMut(&str)) {
    let IpAddr::V4(address) = address else { return push(&address.to_string()) };
    for (number, octet) in address.octets().into_iter().enumerate() {
        if number > 0 {
            push(".");
        }
        push(itoa::Buffer::new().format(octet));
    }
}

/// The address of an origin server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// An address that needs no resolving.
    Ip(SocketAddr),
    /// A name, which is resolved in the background, so that no request waits for it.
    Name {
        /// The host in lower case. A name with a trailing dot is fully qualified: no search list is
        /// used.
        host: Arc<str>,
        /// TCP port.
        port: u16,
    },
    /// A Unix stream socket (`unix:/path`).
    Unix(PathBuf),
    /// A service (`srv:_http._tcp.app.internal`) with its servers in SRV records (RFC 2782). In
    /// lower case.
    Service(Arc<str>),
}

impl ServerAddress {
    /// The host for SNI and for the check of the certificate, without a dot at the end; `None`
    /// for a Unix socket and a service.
    pub fn host(&self) -> Option<String> {
        match self {
            Self::Ip(address) => Some(address.ip().to_string()),
            Self::Name { host, .. } => Some(without_dot(host).to_owned()),
            Self::Unix(_) | Self::Service(_) => None,
        }
    }

    /// Host and port, as a request to the server names them; `None` for a Unix socket and a
    /// service.
    pub fn authority(&self) -> Option<String> {
        match self {
            Self::Ip(address) => Some(address.to_string()),
            Self::Name { host, port } => Some(format!("{}:{port}", without_dot(host))),
            Self::Unix(_) | Self::Service(_) => None,
        }
    }

    /// This host with another port. A Unix socket has none.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Self {
        match self {
            Self::Ip(address) => Self::Ip(SocketAddr::new(address.ip(), port)),
            Self::Name { host, .. } => Self::Name { host: Arc::clone(host), port },
            Self::Unix(_) | Self::Service(_) => self.clone(),
        }
    }

    /// Returns true if the address has to be resolved.
    pub fn is_name(&self) -> bool {
        matches!(self, Self::Name { .. } | Self::Service(_))
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Service(name) => write!(f, "srv:{name}"),
        }
    }
}

/// A text that is not an address of an origin server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerAddressError {
    /// The text has none of the expected forms.
    #[error("expected HOST:PORT, IP:PORT, [IPV6]:PORT, unix:PATH or srv:NAME")]
    Form,
    /// `srv:` without the name of a service.
    #[error("expected the name of a service after `srv:`")]
    Service,
    /// The host consists of numbers, but is not an IPv4 address. No host name consists of numbers alone.
    #[error("`{0}` is no IPv4 address: that is four numbers from 0 to 255 with dots between them")]
    Ipv4(String),
}

impl FromStr for ServerAddress {
    type Err = ServerAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') { Ok(Self::Unix(path.into())) } else { Err(Self::Err::Form) };
        }
        if let Some(service) = text.strip_prefix("srv:") {
            let name = service.to_ascii_lowercase();
            let is_service = is_host_name(without_dot(&name)) && !is_numeric(without_dot(&name));
            return if is_service { Ok(Self::Service(name.into())) } else { Err(Self::Err::Service) };
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return if address.port() == 0 { Err(Self::Err::Form) } else { Ok(Self::Ip(address)) };
        }
        let (host, port) = text.rsplit_once(':').ok_or(Self::Err::Form)?;
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse::<u16>().ok().filter(|port| *port != 0 && digits).ok_or(Self::Err::Form)?;
        let host = host.to_ascii_lowercase();
        if !is_host_name(without_dot(&host)) {
            return Err(Self::Err::Form);
        }
        if is_numeric(without_dot(&host)) {
            return Err(Self::Err::Ipv4(host));
        }
        Ok(Self::Name { host: host.into(), port })
    }
}

fn without_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// Returns true if a host consists of numbers alone: decimal, octal or hexadecimal. Such a host is an IPv4
/// address or a mistake: libc reads it as a number if possible, and never resolves it as a name.
pub fn is_numeric(host: &str) -> bool {
    let is_number = |label: &str| match label.strip_prefix("0x").or_else(|| label.strip_prefix("0X")) {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit()),
    };
    host.split('.').all(is_number)
}

/// Returns true for a host name of RFC 1123, with underscores allowed: labels of 1 to 63 characters, at most 253
/// characters in all.
pub fn is_host_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    host.len() <= 253 && host.split('.').all(label)
}

/// A CIDR block, such as `10.0.0.0/8`. A single address is a block with one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddressBlock {
    base: IpAddr,
    prefix: u8,
}

impl AddressBlock {
    /// Returns true if `address` is in the block. IPv4 addresses mapped into IPv6 count as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.base.is_ipv4() && masked(address, self.prefix) == self.base
    }
}

/// The first address of the block of an address.
fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

/// A text that is not a CIDR block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressBlockError {
    /// The text has none of the expected forms.
    #[error("expected an address or a block such as 10.0.0.0/8 or 2001:db8::/32")]
    Form,
    /// The address has bits beyond the prefix. The user may have meant the single address, or this block.
    #[error("the address has bits beyond the prefix; the network is {0}/{1}")]
    Bits(IpAddr, u8),
}

impl FromStr for AddressBlock {
    type Err = AddressBlockError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (base, prefix) = match text.split_once('/') {
            Some((base, prefix)) => (base, Some(prefix.parse::<u8>().map_err(|_| AddressBlockError::Form)?)),
            None => (text, None),
        };
        let base = base.parse::<IpAddr>().map_err(|_| AddressBlockError::Form)?;
        let widest = if base.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(widest);
        if prefix > widest {
            return Err(AddressBlockError::Form);
        }
        let network = masked(base, prefix);
        if network != base {
            return Err(AddressBlockError::Bits(network, prefix));
        }
        Ok(Self { base, prefix })
    }
}

impl Default for AddressBlock {
    fn default() -> Self {
        Self { base: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_addresses_are_understood() {
        let parse = |text: &str| text.parse::<ServerAddress>().map(|a| a.to_string());
        assert_eq!(parse("127.0.0.1:80"), Ok("127.0.0.1:80".into()));
        assert_eq!(parse("[::1]:80"), Ok("[::1]:80".into()));
        assert_eq!(parse("Origin.Example.:8080"), Ok("origin.example.:8080".into()));
        assert_eq!(parse("shop_web_1:80"), Ok("shop_web_1:80".into()));
        assert_eq!(parse("_a.b_:80"), Ok("_a.b_:80".into()));
        assert_eq!(parse("node.1:80"), Ok("node.1:80".into()));
        assert_eq!(parse("unix:/run/app.sock"), Ok("unix:/run/app.sock".into()));
        let wrong =
            ["", "host", "host:0", "host:70000", "host:+80", "unix:rel", "-a:80", "a..b:80", "a.b..:80"];
        for bad in wrong.into_iter().chain([".:80", "http://a:80", "::1:80", "[::1.:80"]) {
            assert_eq!(parse(bad), Err(ServerAddressError::Form), "{bad}");
        }
        assert_eq!(parse("srv:_HTTP._tcp.app.internal."), Ok("srv:_http._tcp.app.internal.".into()));
        for bad in ["srv:", "srv:_http._tcp.app:80", "srv:1.2.3.4", "srv:a b"] {
            assert_eq!(parse(bad), Err(ServerAddressError::Service), "{bad}");
        }
        for bad in
            ["256.1.1.1", "1.2.3", "1.2.3.4.5", "1.2.3.4.", "010.0.0.1", "0x7f.0.0.1", "127.1", "8080", "0x"]
        {
            let error = ServerAddressError::Ipv4(bad.into());
            assert_eq!(parse(&format!("{bad}:80")), Err(error), "{bad}");
        }
        let absolute: ServerAddress = "api.example.:80".parse().unwrap();
        assert_eq!(absolute.host().as_deref(), Some("api.example"));
        assert_eq!(absolute.authority().as_deref(), Some("api.example:80"));
        assert_ne!(absolute, "api.example:80".parse().unwrap());
    }

    #[test]
    fn blocks_contain_their_addresses() {
        let block = |text: &str| text.parse::<AddressBlock>().unwrap();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(block("10.0.0.0/8").contains(ip("10.255.0.1")));
        assert!(block("10.0.0.0/8").contains(ip("::ffff:10.1.2.3")));
        assert!(!block("10.0.0.0/8").contains(ip("11.0.0.1")));
        assert!(block("0.0.0.0/0").contains(ip("1.2.3.4")));
        assert!(block("::/0").contains(ip("2001:db8::1")));
        assert!(!block("2001:db8::1").contains(ip("2001:db8::2")));
        let wrong = |text: &str| text.parse::<AddressBlock>().unwrap_err().to_string();
        assert_eq!(
            wrong("10.0.0.0/33"),
            "expected an address or a block such as 10.0.0.0/8 or 2001:db8::/32"
        );
        assert_eq!(wrong("10.0.0.1/8"), "the address has bits beyond the prefix; the network is 10.0.0.0/8");
        assert_eq!(wrong("::1/0"), "the address has bits beyond the prefix; the network is ::/0");
    }
}

//! Listeners, and the TLS that they speak.

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::RequestLimit;
use super::automatic::IssuedBy;
use crate::address::AddressBlock;

/// The address of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// An IPv4 or IPv6 address and port; an IPv6 wildcard accepts IPv6 only.
    Tcp(SocketAddr),
    /// The path of a Unix stream socket; a stale file there is replaced.
    Unix(PathBuf),
}

/// One `listen` node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address at which connections are accepted.
    pub address: ListenAddress,
    /// Bind with `SO_REUSEPORT`, so that another process may share the port. Default: no.
    pub reuse_port: bool,
    /// The length of the kernel's accept queue. Default: 4096, which the kernel caps at
    /// `somaxconn`.
    pub backlog: u32,
    /// Peers that must start each connection with a PROXY protocol header (v1 or v2). Other peers are
    /// served without a header. Default: empty.
    pub proxy_protocol_from: Vec<AddressBlock>,
    /// TLS on this listener; `None`: cleartext.
    pub tls: Option<ListenTls>,
    /// Offer HTTP/2 (ALPN with TLS, prior knowledge without). Default: yes.
    pub http2: bool,
    /// Still answer HTTP/1 clients that have ended their sending side of the connection. Default:
    /// yes.
    pub half_close: bool,
    /// Connections over this listener. Beyond: accepting pauses on this listener. Default (`None`): no limit of its own.
    pub connections: Option<usize>,
    /// Requests in flight over this listener. Default: no limit.
    pub requests: Option<RequestLimit>,
    /// The name of the upstream to which the listener passes all its requests, as a tap of the old proxy. Default:
    /// none; the listener serves clients.
    pub tap: Option<Box<str>>,
    /// Only serve the other nodes of the shield here, and no clients. Default: no.
    pub shield: bool,
    /// Set for both sockets of `:PORT`. If the system has no IPv6, the IPv6 socket may be missing. Default: false.
    pub of_all_addresses: bool,
}

impl Listen {
    /// A cleartext listener with default settings.
    pub fn new(address: ListenAddress) -> Self {
        Self {
            address,
            reuse_port: false,
            backlog: 4096,
            proxy_protocol_from: Vec::new(),
            tls: None,
            http2: true,
            half_close: true,
            connections: None,
            requests: None,
            tap: None,
            shield: false,
            of_all_addresses: false,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// TLS of one listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenTls {
    /// The certificates. The SNI selects one: by an exact name first, then by a wildcard, otherwise the first of the list.
    pub certificates: Vec<CertificateFiles>,
    /// Obtain certificates from this issuer for sites that have none of their own. Default: none are
    /// obtained.
    pub automatic: Option<IssuedBy>,
    /// The policy for sites that have none of their own.
    pub policy: TlsPolicy,
}

/// A certificate chain and its key, as PEM files. Changed files are read again without a restart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CertificateFiles {
    /// PEM chain, leaf first.
    pub certificate: PathBuf,
    /// PEM private key (PKCS#8, PKCS#1 or SEC1).
    pub key: PathBuf,
    /// The file into which OCSP responses for the certificate are fetched. Default (`None`): none are fetched, and
    /// the file next to the certificate, if there is one, is used.
    pub staple: Option<PathBuf>,
}

impl CertificateFiles {
    /// The files of a certificate for which no OCSP responses are fetched.
    pub fn new(certificate: PathBuf, key: PathBuf) -> Self {
        Self { certificate, key, staple: None }
    }

    /// The file with the OCSP response that handshakes send: `CERTIFICATE.ocsp` unless responses are fetched.
    pub fn staple_file(&self) -> PathBuf {
        self.staple.clone().unwrap_or_else(|| {
            let mut name = OsString::from(&self.certificate);
            name.push(".ocsp");
            name.into()
        })
    }
}

/// The requirements for a TLS handshake. Two sites with different policies never share a session ticket.
/// They only share a connection if neither asks for client certificates and the handshake satisfies
/// both.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct TlsPolicy {
    /// The lowest version that is negotiated. Default: 1.2.
    pub minimum_version: TlsVersion,
    /// Requests client certificates. Default: none.
    pub client_certificates: Option<ClientCertificates>,
}

/// A TLS protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[default]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

/// Verification of client certificates.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientCertificates {
    /// PEM file with the authorities that must have issued the clients' certificates.
    pub authorities: PathBuf,
    /// Refuse a handshake without a certificate. Otherwise a certificate is optional, but verified if the
    /// client sends one.
    pub required: bool,
}

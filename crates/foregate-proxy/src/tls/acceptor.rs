//! Handshakes with clients.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use rustls::server::{NoServerSessionStorage, ServerConfig, ServerConnection};
use rustls::{CipherSuite, Error as RustlsError, HandshakeKind, InvalidMessage, NamedGroup, ProtocolVersion};
use rustls::{SupportedProtocolVersion, version};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::server::StartHandshake;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use super::alpn::Alpn;
use super::automatic::AutomaticTls;
use super::crypto::provider;
use super::expiry::{self, CertificateClock};
use super::identity::ClientIdentity;
use super::names::{HostMap, asked_name};
use super::noted::noting;
use super::policy::{Policy, PolicyId};
use super::sni::{CertificateTable, ServedCertificate, SiteCertificates};
use super::store::{CertificateStore, TlsError};
use crate::settings::automatic::Automatic;
use crate::settings::{CertificateFiles, Limits, ListenTls, SiteTls, TlsVersion};

/// The number of tickets sent after each TLS 1.3 handshake, full or resumed. A ticket is used only
/// once (RFC 8446, appendix C.4), so with two tickets a client can resume two connections at a time.
const TICKETS: usize = 2;
/// The most tickets that a client may ask for (RFC 9149).
const TICKETS_LIMIT: usize = 4;
/// The largest ClientHello in bytes that `rustls` accepts. For a larger one, it ends the handshake.
const HELLO_LIMIT: usize = 0xffff;

/// A client's connection after its handshake.
pub type ServerStream<IO> = tokio_rustls::server::TlsStream<IO>;

/// The properties of a site that handshakes need.
#[derive(Debug, Clone, Copy)]
pub struct SiteHosts<'a> {
    /// Its host patterns as in the configuration: `a.example`, `*.example` (any depth) or `*`;
    /// lower case.
    pub hosts: &'a [Arc<str>],
    /// The site's own certificates and policy; `None` if it uses the listener's.
    pub tls: Option<&'a SiteTls>,
}

/// Accepts TLS connections of one listener. Share it in an `Arc`; only its certificates change.
#[derive(Debug)]
pub struct Acceptor {
    certificates: Arc<CertificateTable>,
    default: PolicyConfig,
    /// The policies of hosts that have another policy than the listener.
    own: HostMap<PolicyConfig>,
    client_hello_limit: usize,
    /// The certificates that the proxy obtains itself; `None` if it obtains none.
    automatic: Option<AutomaticTls>,
}

#[derive(Debug, Clone)]
struct PolicyConfig {
    id: PolicyId,
    config: Arc<ServerConfig>,
}

/// A finished handshake.
#[derive(Debug)]
pub struct FinishedHandshake<IO> {
    /// The decrypted connection.
    pub stream: ServerStream<IO>,
    /// The negotiated protocol.
    pub alpn: Alpn,
    /// Further facts.
    pub info: Arc<TlsInfo>,
}

/// The results of a handshake: its parameters, and the client's identity.
#[derive(Debug, Clone)]
pub struct TlsInfo {
    /// The name that the client asked for, lower case, without a dot at its end.
    pub sni: Option<Box<str>>,
    /// The version.
    pub version: TlsVersion,
    /// IANA's name of the cipher suite.
    pub cipher: &'static str,
    /// IANA's name of the key exchange group; `None` if a TLS 1.2 session was resumed.
    pub group: Option<&'static str>,
    /// True if the session was resumed from a ticket.
    pub resumed: bool,
    /// The policy that the handshake satisfied.
    pub policy: PolicyId,
    /// The client's certificate, verified.
    pub client: Option<Arc<ClientIdentity>>,
    /// These facts as TLVs of the PROXY protocol, made when they are first sent to another proxy.
    pub tlvs: OnceLock<Vec<u8>>,
    /// The certificate that the client got from us.
    served: Option<ServedCertificate>,
}

/// Why a handshake failed. Always the client's fault, or the network's.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The first bytes are not TLS.
    #[error("not TLS")]
    NotTls,
    /// The ClientHello is larger than the limit.
    #[error("ClientHello too large")]
    ClientHelloTooLarge,
    /// The client's certificate is missing or does not verify.
    #[error("client certificate: {0}")]
    ClientCertificate(String),
    /// The peers have no version, cipher suite or group in common, or the peer broke the protocol.
    #[error("TLS: {0}")]
    Protocol(String),
    /// The connection failed or ended.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The handshake timed out. Callers return this if they limit the time.
    #[error("it took too long")]
    Timeout,
    /// The handshake was an authority's challenge (RFC 8737). The connection serves nothing else.
    #[error("the challenge of an authority was {}", if *.0 { "answered" } else { "unknown" })]
    Challenge(bool),
}

impl HandshakeError {
    /// A short fixed name, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotTls => "not_tls",
            Self::ClientHelloTooLarge => "client_hello_too_large",
            Self::ClientCertificate(_) => "client_certificate",
            Self::Protocol(_) => "protocol",
            Self::Io(_) => "io",
            Self::Timeout => "timeout",
            Self::Challenge(_) => "challenge",
        }
    }

    fn of(error: io::Error) -> Self {
        let inner = error.get_ref();
        if inner.is_some_and(|inner| inner.is::<HelloTooLarge>()) {
            return Self::ClientHelloTooLarge;
        }
        let Some(tls) = inner.and_then(|inner| inner.downcast_ref::<RustlsError>()) else {
            return Self::Io(error);
        };
        match tls {
            RustlsError::InvalidMessage(
                InvalidMessage::InvalidContentType
                | InvalidMessage::UnknownProtocolVersion
                | InvalidMessage::MessageTooLarge
                | InvalidMessage::InvalidEmptyPayload,
            ) => Self::NotTls,
            RustlsError::InvalidMessage(InvalidMessage::HandshakePayloadTooLarge) => {
                Self::ClientHelloTooLarge
            }
            RustlsError::NoCertificatesPresented | RustlsError::InvalidCertificate(_) => {
                Self::ClientCertificate(tls.to_string())
            }
            _ => Self::Protocol(tls.to_string()),
        }
    }
}

impl Acceptor {
    /// Loads certificates and authorities and builds one configuration per policy.
    ///
    /// `sites` yields all sites of the configuration. A second pass over it is only needed if a site with
    /// a wildcard has a policy of its own.
    ///
    /// # Errors
    ///
    /// A file cannot be read or used; the error names it and how to fix it.
    pub fn new<'a, S>(
        listen: &ListenTls,
        http2: bool,
        sites: S,
        automatic: Option<&Automatic>,
        limits: &Limits,
        store: &CertificateStore,
    ) -> Result<Self, TlsError>
    where
        S: Iterator<Item = SiteHosts<'a>> + Clone,
    {
        let certificates = load_certificates(listen, sites.clone(), automatic, store)?;
        store.follow(&certificates);
        let mut policies = Policies { http2, certificates: &certificates, store, known: HashMap::new() };
        let policy = Policy::load(&listen.policy, None)?;
        let default = policies.config(policy.clone());
        let own = own_policies(sites, &policy, &default, &mut policies)?;
        let automatic = automatic.map(|automatic| {
            let on_demand = automatic.on_demand.is_some() && listen.automatic.is_some();
            AutomaticTls::new(automatic, on_demand, store)
        });
        Ok(Self { certificates, default, own, client_hello_limit: limits.client_hello, automatic })
    }

    /// Performs a handshake. The caller limits its time. `local` is the address that the client has
    /// connected to: a client that names no host gets the certificate of this address, if there is one.
    ///
    /// # Errors
    ///
    /// See [`HandshakeError`]. If the protocol has an alert for the error, the alert has been sent.
    pub async fn accept<IO>(
        &self,
        io: IO,
        local: Option<IpAddr>,
    ) -> Result<FinishedHandshake<IO>, HandshakeError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let (accepted, served) = noting(local, async {
            if self.own.is_empty() && self.client_hello_limit >= HELLO_LIMIT && self.automatic.is_none() {
                let acceptor = TlsAcceptor::from(Arc::clone(&self.default.config));
                let stream = acceptor.accept(io).await.map_err(HandshakeError::of)?;
                return Ok((&self.default, stream));
            }
            self.accept_by_name(io).await
        })
        .await;
        let (policy, stream) = accepted?;
        let connection = stream.get_ref().1;
        let alpn = Alpn::agreed(connection.alpn_protocol());
        let info = Arc::new(TlsInfo::of(connection, policy.id.clone(), served));
        Ok(FinishedHandshake { stream, alpn, info })
    }

    /// Reads the ClientHello before it chooses the policy.
    async fn accept_by_name<IO>(&self, io: IO) -> Result<(&PolicyConfig, ServerStream<IO>), HandshakeError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let limited = LimitedStream { io, left: self.client_hello_limit };
        let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), limited)
            .await
            .map_err(HandshakeError::of)?;
        let hello = start.client_hello();
        let policy = self.policy(asked_name(hello.server_name()).as_bytes());
        if let Some(automatic) = &self.automatic {
            let name = asked_name(hello.server_name()).to_owned();
            if AutomaticTls::is_challenge(&hello) {
                let config = automatic.answer(&name).ok_or(HandshakeError::Challenge(false))?;
                let start = StartHandshake::from_parts(start.accepted, start.io.io);
                let stream = start.into_stream(Arc::new(config)).await.map_err(HandshakeError::of)?;
                farewell(stream).await;
                return Err(HandshakeError::Challenge(true));
            }
            if automatic.on_demand
                && !name.is_empty()
                && !self.certificates.knows(&name)
                && let Some(certificate) = automatic.obtain(&name).await
            {
                self.certificates.add_demanded(&name, certificate);
            }
        }
        let start = StartHandshake::from_parts(start.accepted, start.io.io);
        let config = Arc::clone(&policy.config);
        let stream = start.into_stream(config).await.map_err(HandshakeError::of)?;
        Ok((policy, stream))
    }

    #[cfg(test)]
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.default.config)
    }

    fn policy(&self, host: &[u8]) -> &PolicyConfig {
        self.own.find(host).unwrap_or(&self.default)
    }

    /// Returns true if a request for `host` (lower case, without port) may be served on a
    /// connection that was accepted with `info`; otherwise it gets a 421 (RFC 9110, section
    /// 15.5.20).
    ///
    /// A connection covers `host` if both conditions hold:
    ///
    /// - the connection's handshake satisfies the policy of `host`;
    /// - the handshake named `host` or no host at all, or the certificate that the client got is valid
    ///   for `host` or is one of those that the configuration gives to the site of `host`. A resumed
    ///   session counts as if the client had got the certificate of a full handshake.
    pub fn covers(&self, info: &TlsInfo, host: &[u8]) -> bool {
        if !self.policy(host).is_satisfied_by(info) {
            return false;
        }
        match &info.sni {
            None => true,
            Some(sni) => {
                let is_covered = |served: &ServedCertificate| self.certificates.covers(served, host);
                sni.as_bytes() == host || info.served.as_ref().is_some_and(is_covered)
            }
        }
    }

    /// Returns true if the finished handshake still satisfies the policy for its host name. A reload may
    /// have changed that policy.
    pub fn holds(&self, info: &TlsInfo) -> bool {
        self.policy(info.sni.as_deref().unwrap_or_default().as_bytes()).is_satisfied_by(info)
    }
}

impl PolicyConfig {
    /// Returns true if a handshake satisfies this policy. If this policy or the handshake's policy asks for
    /// client certificates, the two policies must be the same: an identity is valid only under the policy
    /// that asked for it.
    fn is_satisfied_by(&self, info: &TlsInfo) -> bool {
        let asks = |id: &PolicyId| id.policy().client_certificates.is_some();
        let plain = || !asks(&self.id) && !asks(&info.policy);
        self.id == info.policy || plain() && info.version >= self.id.policy().minimum_version
    }
}

/// Closes the connection of a challenge in order, after its handshake.
async fn farewell<IO: AsyncRead + AsyncWrite + Unpin>(mut stream: ServerStream<IO>) {
    // An error is harmless: an authority that has closed the connection has seen the answer.
    let _ = stream.shutdown().await;
}

fn load_certificates<'a>(
    listen: &ListenTls,
    sites: impl Iterator<Item = SiteHosts<'a>>,
    automatic: Option<&Automatic>,
    store: &CertificateStore,
) -> Result<Arc<CertificateTable>, TlsError> {
    let load = |all: &[CertificateFiles]| {
        all.iter().map(|files| store.load(files)).collect::<Result<Vec<_>, TlsError>>()
    };
    let mut own = Vec::new();
    let mut listener = load(&listen.certificates)?;
    for site in sites {
        if let Some(tls) = site.tls.filter(|tls| !tls.certificates.is_empty()) {
            own.push(SiteCertificates { hosts: site.hosts.to_vec(), certificates: load(&tls.certificates)? });
            continue;
        }
        let Some(automatic) = automatic else { continue };
        if site.tls.and_then(|tls| tls.automatic).or(listen.automatic).is_none() {
            continue;
        }
        for host in site.hosts.iter().filter(|host| automatic.names.contains_key(&***host)) {
            let certificates = load(&[automatic.certificate(host)])?;
            if listener.is_empty() {
                // A client that names no host or an unknown one gets the first of these certificates rather
                // than an alert.
                listener.clone_from(&certificates);
            }
            own.push(SiteCertificates { hosts: vec![Arc::clone(host)], certificates });
        }
    }
    Ok(Arc::new(CertificateTable::new(listener, own)))
}

/// The policies of hosts that have another policy than the listener.
fn own_policies<'a>(
    sites: impl Iterator<Item = SiteHosts<'a>> + Clone,
    listener: &Policy,
    default: &PolicyConfig,
    policies: &mut Policies<'_>,
) -> Result<HostMap<PolicyConfig>, TlsError> {
    let mut own = HostMap::default();
    for site in sites.clone() {
        let Some(tls) = site.tls else { continue };
        // A site inherits the settings that it omits from the listener.
        let policy = match &tls.client_certificates {
            None => listener.with_minimum(tls.minimum_version),
            Some(_) => Policy::load(&tls.policy(listener.id.policy()), site.hosts.first())?,
        };
        let policy = policies.config(policy);
        if policy.id != default.id {
            site.hosts.iter().for_each(|host| own.insert(host, policy.clone()));
        }
    }
    if own.has_wildcards() {
        // The wildcard of a site with a policy may match the hosts of a site without one. Such hosts get
        // entries of their own, with the listener's policy.
        for host in sites.filter(|site| is_default(site, default)).flat_map(|site| site.hosts) {
            let below = host.strip_prefix("*.").unwrap_or(host);
            if host.as_ref() != "*" && own.find(below.as_bytes()).is_some_and(|found| found.id != default.id)
            {
                own.insert(host, default.clone());
            }
        }
    }
    Ok(own)
}

fn is_default(site: &SiteHosts<'_>, default: &PolicyConfig) -> bool {
    site.tls.is_none_or(|tls| {
        tls.client_certificates.is_none()
            && tls.minimum_version.is_none_or(|version| version == default.id.policy().minimum_version)
    })
}

/// Builds one configuration per policy.
struct Policies<'a> {
    http2: bool,
    certificates: &'a Arc<CertificateTable>,
    store: &'a CertificateStore,
    known: HashMap<PolicyId, PolicyConfig>,
}

impl Policies<'_> {
    fn config(&mut self, policy: Policy) -> PolicyConfig {
        if let Some(known) = self.known.get(&policy.id) {
            return known.clone();
        }
        let id = policy.id.clone();
        let config = PolicyConfig { id: id.clone(), config: Arc::new(self.build(policy)) };
        self.known.insert(id, config.clone());
        config
    }

    fn build(&self, policy: Policy) -> ServerConfig {
        let versions: &[&SupportedProtocolVersion] = match policy.id.policy().minimum_version {
            TlsVersion::Tls12 => &[&version::TLS13, &version::TLS12],
            TlsVersion::Tls13 => &[&version::TLS13],
        };
        let clock = self.store.clock();
        let mut tickets = self.store.tickets().of(&policy.id);
        let mut verifier = policy.verifier;
        if policy.id.policy().client_certificates.is_some() {
            verifier = expiry::verifier(verifier);
            tickets = tickets.map(|tickets| expiry::tickets(clock, tickets));
        }
        let mut config =
            ServerConfig::builder_with_details(Arc::clone(provider()), Arc::new(CertificateClock(clock)))
                .with_protocol_versions(versions)
                .expect("the provider has cipher suites of both versions")
                .with_client_cert_verifier(verifier)
                .with_cert_resolver(Arc::clone(self.certificates) as _);
        // ALPN has a name for HTTP/1.0 as well (RFC 7301). Without it here, a client that offers only
        // `http/1.0` would be refused.
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"http/1.0".to_vec()];
        if self.http2 {
            config.alpn_protocols.insert(0, b"h2".to_vec());
        }
        config.ignore_client_order = true;
        config.max_early_data_size = 0;
        config.send_tls13_tickets = TICKETS;
        config.max_tls13_tickets = TICKETS_LIMIT;
        // Sessions are resumed from tickets alone, which need no memory here. A client that cannot keep
        // tickets does a full handshake.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        match tickets {
            Some(tickets) => config.ticketer = tickets,
            None => config.send_tls13_tickets = 0,
        }
        config
    }
}

/// The name of a cipher suite in IANA's registry. The library's names of TLS 1.3 suites differ from it.
fn iana_name(suite: CipherSuite) -> Option<&'static str> {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => Some("TLS_AES_128_GCM_SHA256"),
        CipherSuite::TLS13_AES_256_GCM_SHA384 => Some("TLS_AES_256_GCM_SHA384"),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Some("TLS_CHACHA20_POLY1305_SHA256"),
        other => CipherSuite::as_str(&other),
    }
}

impl TlsInfo {
    fn of(connection: &ServerConnection, policy: PolicyId, served: Option<ServedCertificate>) -> Self {
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => TlsVersion::Tls12,
            _ => TlsVersion::Tls13,
        };
        let suite = connection.negotiated_cipher_suite();
        let group = connection.negotiated_key_exchange_group();
        let asked = policy.policy().client_certificates.is_some();
        let certificate = connection.peer_certificates().filter(|_| asked).and_then(<[_]>::first);
        Self {
            sni: connection.server_name().map(|name| asked_name(Some(name)).into()),
            version,
            cipher: suite.and_then(|suite| iana_name(suite.suite())).unwrap_or("unknown"),
            group: group.and_then(|group| NamedGroup::as_str(&group.name())),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            policy,
            client: certificate.and_then(|der| ClientIdentity::read(der)).map(Arc::new),
            tlvs: OnceLock::new(),
            served,
        }
    }
}

/// A stream that fails when more than `left` bytes are read. It limits the ClientHello: until the proxy
/// answers, a client sends nothing else.
struct LimitedStream<IO> {
    io: IO,
    left: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("ClientHello too large")]
struct HelloTooLarge;

impl<IO: AsyncRead + Unpin> AsyncRead for LimitedStream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
        let Some(left) = self.left.checked_sub(buffer.filled().len() - before) else {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, HelloTooLarge)));
        };
        self.left = left;
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for LimitedStream<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

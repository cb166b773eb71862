//! Handshakes with origin servers.

use std::hash::{Hash, Hasher};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, WebPkiServerVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{AlertDescription, DigitallySignedStruct, Error as RustlsError, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::alpn::Alpn;
use super::crypto::{provider, sha256};
use super::policy::read_authorities;
use super::store::TlsError;
use super::store::{read_file, read_pair};
use crate::settings::{UpstreamProtocol, UpstreamTls};

/// A connection to an origin after its handshake.
pub type OriginTlsStream<IO> = tokio_rustls::client::TlsStream<IO>;

/// Performs handshakes with the servers of one upstream. A clone shares its sessions. Two connectors
/// are equal if their connections are interchangeable, even across a reload.
#[derive(Debug, Clone)]
pub struct Connector {
    shared: Arc<ConnectorShared>,
}

#[derive(Debug)]
struct ConnectorShared {
    config: Arc<ClientConfig>,
    /// The configuration for a connection that must not be HTTP/2; `None` if `config` does not offer
    /// HTTP/2 beside HTTP/1.1 anyway.
    http1: Option<Arc<ClientConfig>>,
    server_name: Option<String>,
    http2_only: bool,
    /// Digest of the settings and of the files that they name.
    identity: [u8; 32],
}

impl PartialEq for Connector {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared) || self.shared.identity == other.shared.identity
    }
}

impl Eq for Connector {}

impl Hash for Connector {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.shared.identity.hash(state);
    }
}

/// Why a handshake with an origin failed. No byte of a request has been sent, so a retry is safe.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host is neither a DNS name nor an address.
    #[error("{0:?} is no name that a certificate can carry; set `server-name`")]
    ServerName(String),
    /// The server's certificate does not verify.
    #[error("certificate of {host}: {problem}")]
    Certificate {
        /// The name that was checked.
        host: String,
        /// The error.
        problem: String,
    },
    /// HTTP/2 is required but was not agreed on.
    #[error("the server does not offer HTTP/2 by ALPN")]
    NoHttp2,
    /// Any other error of TLS.
    #[error("TLS: {0}")]
    Protocol(String),
    /// The connection failed or ended.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl ConnectError {
    fn of(error: io::Error, host: &str) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<RustlsError>()) {
            Some(RustlsError::InvalidCertificate(problem)) => {
                // The text is searched because the error's type is not public.
                let problem = match format!("{problem:?}").contains("CaUsedAsEndEntity") {
                    true => CA_AS_SERVER.to_owned(),
                    false => problem.to_string(),
                };
                Self::Certificate { host: host.to_owned(), problem }
            }
            Some(tls) => Self::Protocol(tls.to_string()),
            None => Self::Io(error),
        }
    }
}

impl Connector {
    /// Loads the files that `tls` names; the system's authorities are loaded once per process, when
    /// the first connector needs them. HTTP/1.1, HTTP/2 or both are offered by ALPN, as `protocol`
    /// says.
    ///
    /// # Errors
    ///
    /// A file cannot be read or used; the error names it and how to fix it.
    pub fn new(tls: &UpstreamTls, protocol: UpstreamProtocol) -> Result<Self, TlsError> {
        let mut digest = format!("{tls:?} {protocol:?}").into_bytes();
        let builder = ClientConfig::builder_with_provider(Arc::clone(provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has cipher suites of both versions");
        let builder = if tls.verify {
            let (file, roots) = match &tls.authorities {
                Some(file) => {
                    let (roots, authorities) = read_authorities(file)?;
                    digest.extend_from_slice(&authorities);
                    (file.as_path(), Arc::new(roots))
                }
                None => (Path::new(""), system_roots()),
            };
            if roots.is_empty() {
                return Err(TlsError::new(file, NO_ROOTS, NO_ROOTS_FIX));
            }
            builder.with_webpki_verifier(verifier(roots, file)?)
        } else {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate))
        };
        let mut config = match &tls.certificate {
            None => builder.with_no_client_auth(),
            Some(files) => {
                for file in [&files.certificate, &files.key] {
                    digest.extend_from_slice(&sha256(&read_file(file)?));
                }
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(read_pair(files)?)))
            }
        };
        let offered: &[&[u8]] = match protocol {
            UpstreamProtocol::Http1 => &[b"http/1.1"],
            UpstreamProtocol::Http2 => &[b"h2"],
            UpstreamProtocol::Auto => &[b"h2", b"http/1.1"],
        };
        config.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
        let http1 = (protocol == UpstreamProtocol::Auto).then(|| {
            let mut config = config.clone();
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Arc::new(config)
        });
        let http2_only = protocol == UpstreamProtocol::Http2;
        let server_name = tls.server_name.clone();
        let identity = sha256(&digest);
        let config = Arc::new(config);
        Ok(Self { shared: Arc::new(ConnectorShared { config, http1, server_name, http2_only, identity }) })
    }

    /// Performs a handshake. The certificate is checked for the `server_name` of the settings, else for
    /// `host` (an address without brackets). If `http1` is true, ALPN does not offer HTTP/2 beside
    /// HTTP/1.1. The caller limits the time.
    ///
    /// # Errors
    ///
    /// See [`ConnectError`].
    pub async fn connect<IO>(
        &self,
        host: &str,
        http1: bool,
        io: IO,
    ) -> Result<(OriginTlsStream<IO>, Alpn), ConnectError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.shared.http1.as_ref().filter(|_| http1).unwrap_or(&self.shared.config);
        let host = self.shared.server_name.as_deref().unwrap_or(host);
        let name =
            ServerName::try_from(host).map_err(|_| ConnectError::ServerName(host.to_owned()))?.to_owned();
        let connector = TlsConnector::from(Arc::clone(config));
        let stream = connector.connect(name, io).await.map_err(|error| ConnectError::of(error, host))?;
        let alpn = Alpn::agreed(stream.get_ref().1.alpn_protocol());
        if self.shared.http2_only && alpn != Alpn::Http2 {
            return Err(ConnectError::NoHttp2);
        }
        Ok((stream, alpn))
    }
}

/// The alert of a server that rejected our certificate. With TLS 1.3, a server checks the client's
/// certificate after the handshake has ended for the client, so the alert arrives in a later read.
/// The server has not processed any bytes that we sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server refuses our certificate, or that we show none: {0:?}")]
pub struct Refusal(AlertDescription);

impl Refusal {
    /// The alert in the error of a read.
    pub fn of(error: &io::Error) -> Option<Self> {
        Self::of_tls(error.get_ref()?.downcast_ref()?)
    }

    /// The alert of a connection that has failed.
    pub fn of_stream<IO>(stream: &mut OriginTlsStream<IO>) -> Option<Self> {
        // This returns the error of the failed read again.
        stream.get_mut().1.process_new_packets().err().as_ref().and_then(Self::of_tls)
    }

    fn of_tls(error: &RustlsError) -> Option<Self> {
        use AlertDescription::{
            AccessDenied, BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked,
            CertificateUnknown, DecryptError, HandshakeFailure, UnknownCA, UnsupportedCertificate,
        };
        match error {
            RustlsError::AlertReceived(
                alert @ (AccessDenied
                | BadCertificate
                | CertificateExpired
                | CertificateRequired
                | CertificateRevoked
                | CertificateUnknown
                | DecryptError
                | HandshakeFailure
                | UnknownCA
                | UnsupportedCertificate),
            ) => Some(Self(*alert)),
            _ => None,
        }
    }
}

/// The problem if a server shows the certificate of an authority, as `openssl req -x509` makes one by default.
const CA_AS_SERVER: &str = "it is the certificate of an authority (CA:TRUE), which no server may show: make one with \
     `openssl req -x509 -addext basicConstraints=critical,CA:FALSE ...`, or have the authority sign one for the server";

const NO_ROOTS: &str =
    "the system has no authorities to trust, so that no certificate of a server can be checked";
const NO_ROOTS_FIX: &str =
    "install the package `ca-certificates`, or name who has signed the servers' certificates: `ca \"FILE\"`";

fn verifier(roots: Arc<RootCertStore>, file: &Path) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider()))
        .build()
        .map_err(|error| TlsError::new(file, error, NO_ROOTS_FIX))
}

/// The authorities that the system trusts. Unreadable ones are logged and left out.
fn system_roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    Arc::clone(ROOTS.get_or_init(|| {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "some of the system's authorities cannot be read");
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        Arc::new(roots)
    }))
}

/// Accepts every certificate; the handshake's signature is checked nevertheless.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        verify_tls12_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        verify_tls13_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A verifier that accepts everything, for tests.
#[cfg(test)]
pub(super) fn unverified() -> Arc<dyn ServerCertVerifier> {
    Arc::new(AnyCertificate)
}

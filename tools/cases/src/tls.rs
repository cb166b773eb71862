//! TLS of the scripts: a client that takes any certificate and remembers it, an origin that shows one.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme, version,
};

use crate::case::{ClientTls, Origin};

/// A client's side, before its handshake.
///
/// # Errors
///
/// A file that cannot be read, a name or version that cannot be used.
pub fn client(folder: &Path, wanted: &ClientTls, h2: bool) -> Result<ClientConnection, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let versions = match wanted.version.as_deref() {
        None => vec![&version::TLS13, &version::TLS12],
        Some("1.2") => vec![&version::TLS12],
        Some("1.3") => vec![&version::TLS13],
        Some(other) => return Err(format!("no TLS {other}")),
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(told)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)));
    let mut config = match &wanted.certificate {
        Some(name) => {
            let (chain, key) = identity(folder, name)?;
            builder.with_client_auth_cert(chain, key).map_err(told)?
        }
        None => builder.with_no_client_auth(),
    };
    let usual = vec![if h2 { "h2" } else { "http/1.1" }.to_owned()];
    let protocols = wanted.alpn.as_ref().unwrap_or(&usual);
    config.alpn_protocols =
        protocols.iter().filter(|name| !name.is_empty()).map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(wanted.server_name.clone()).map_err(|error| error.to_string())?;
    ClientConnection::new(Arc::new(config), name).map_err(told)
}

/// An origin's side, before its handshake.
///
/// # Errors
///
/// A file that cannot be read.
pub fn server(folder: &Path, certificate: &str, origin: &Origin) -> Result<ServerConnection, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(told)?;
    let (chain, key) = identity(folder, certificate)?;
    let builder = if origin.wants_certificate {
        let mut roots = RootCertStore::empty();
        roots.add(read_certificate(folder, "ca")?).map_err(told)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        builder.with_client_cert_verifier(verifier.map_err(|error| error.to_string())?)
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder.with_single_cert(chain, key).map_err(told)?;
    let protocols = [(origin.h2, "h2"), (!origin.h2 || origin.either, "http/1.1")];
    let spoken = protocols.iter().filter(|(speaks, _)| *speaks);
    config.alpn_protocols = spoken.map(|(_, name)| name.as_bytes().to_vec()).collect();
    ServerConnection::new(Arc::new(config)).map_err(told)
}

/// The certificate in `NAME.pem`.
///
/// # Errors
///
/// When the file cannot be read.
pub fn read_certificate(folder: &Path, name: &str) -> Result<CertificateDer<'static>, String> {
    let path = folder.join(format!("{name}.pem"));
    CertificateDer::from_pem_file(&path).map_err(|error| format!("{}: {error}", path.display()))
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(folder: &Path, name: &str) -> Result<Identity, String> {
    let path = folder.join(format!("{name}.key"));
    let key = PrivateKeyDer::from_pem_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok((vec![read_certificate(folder, name)?], key))
}

fn told(error: Error) -> String {
    error.to_string()
}

/// Takes every certificate; which one was shown is for the case to say.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

//! No session outlives the certificate that its client has shown.
//!
//! A resumed handshake has no certificates in it, and each gives new tickets: without a bound, one that has expired would do
//! forever. A ticket says until when its client's certificate lasts. After that it resumes nothing, so that the client is asked
//! for a certificate anew.
//!
//! Who verifies and who makes tickets are told nothing of the handshake by `rustls`, and all handshakes of a policy share them. So
//! what one has noted goes along with its task, see [`noted`].

use std::cell::Cell;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ProducesTickets;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate};

tokio::task_local! {
    /// Until when the certificates of the client of the present handshake last, seconds since 1970; without any, forever.
    static EXPIRY: Cell<i64>;
}

/// Bytes of an expiry in a ticket.
const EXPIRY_LENGTH: usize = size_of::<i64>();

/// Performs a handshake, whole, whose verifier and tickets may be those from here.
pub(super) async fn noted<T>(handshake: impl Future<Output = T>) -> T {
    EXPIRY.scope(Cell::new(i64::MAX), handshake).await
}

/// A verifier that notes until when a client's certificates last.
pub(super) fn verifier(inner: Arc<dyn ClientCertVerifier>) -> Arc<dyn ClientCertVerifier> {
    Arc::new(Verifier { inner })
}

/// Tickets that resume nothing behind that time.
pub(super) fn tickets(inner: Arc<dyn ProducesTickets>) -> Arc<dyn ProducesTickets> {
    Arc::new(Tickets { inner })
}

/// Notes until when the client's certificates last. Outside of a handshake nothing is noted, and there are no tickets.
fn note(seconds: i64) {
    let _ = EXPIRY.try_with(|expiry| expiry.set(seconds));
}

#[derive(Debug)]
struct Verifier {
    inner: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for Verifier {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        let all = std::iter::once(end_entity).chain(intermediates);
        note(all.map(not_after).min().unwrap_or(i64::MIN));
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// One that cannot be read lets nothing be resumed.
fn not_after(certificate: &CertificateDer<'_>) -> i64 {
    let read = X509Certificate::from_der(certificate);
    read.map_or(i64::MIN, |(_, certificate)| certificate.validity().not_after.timestamp())
}

/// Tickets that begin with an expiry.
#[derive(Debug)]
struct Tickets {
    inner: Arc<dyn ProducesTickets>,
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        self.inner.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.inner.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let expiry = EXPIRY.try_with(Cell::get).ok()?;
        self.inner.encrypt(&[&expiry.to_be_bytes(), plain].concat())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let mut plain = self.inner.decrypt(cipher)?;
        let expiry = i64::from_be_bytes(*plain.first_chunk::<EXPIRY_LENGTH>()?);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if i64::try_from(now).ok()? > expiry {
            return None;
        }
        // A session that is resumed gives tickets that last no longer.
        note(expiry);
        plain.drain(..EXPIRY_LENGTH);
        Some(plain)
    }
}

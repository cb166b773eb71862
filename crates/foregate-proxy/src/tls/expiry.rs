//! No session outlives the certificate of its client.
//!
//! A resumed handshake contains no certificates, and each handshake issues new tickets. Without a
//! bound, an expired certificate would be accepted forever. A ticket therefore holds the expiry of its
//! client's certificate. After the expiry, the ticket resumes nothing, and the client is asked for a
//! certificate again. The verifier passes the expiry to the tickets by a [note](super::noted).

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ProducesTickets;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::noted::{expiry, note_expiry};
use crate::time::clock::Clock;

/// Bytes of an expiry in a ticket.
const EXPIRY_LENGTH: usize = size_of::<i64>();

/// Wraps a verifier so that it notes the expiry of a client's certificates.
pub(super) fn verifier(inner: Arc<dyn ClientCertVerifier>) -> Arc<dyn ClientCertVerifier> {
    Arc::new(Verifier { inner })
}

/// Wraps a ticketer so that its tickets resume nothing after the noted expiry.
pub(super) fn tickets(clock: Clock, inner: Arc<dyn ProducesTickets>) -> Arc<dyn ProducesTickets> {
    Arc::new(ExpiringTickets { clock, inner })
}

/// The clock by which the expiry of client certificates is checked.
#[derive(Debug)]
pub(super) struct CertificateClock(pub(super) Clock);

impl TimeProvider for CertificateClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.unix())))
    }
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
        note_expiry(all.map(not_after).min().unwrap_or(i64::MIN));
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

/// The expiry of a certificate. For a certificate that cannot be parsed it lies in the past, so that
/// its session is never resumed.
fn not_after(certificate: &CertificateDer<'_>) -> i64 {
    let read = X509Certificate::from_der(certificate);
    read.map_or(i64::MIN, |(_, certificate)| certificate.validity().not_after.timestamp())
}

/// Tickets that begin with an expiry.
#[derive(Debug)]
struct ExpiringTickets {
    clock: Clock,
    inner: Arc<dyn ProducesTickets>,
}

impl ProducesTickets for ExpiringTickets {
    fn enabled(&self) -> bool {
        self.inner.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.inner.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.inner.encrypt(&[&expiry()?.to_be_bytes(), plain].concat())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let mut plain = self.inner.decrypt(cipher)?;
        let expiry = i64::from_be_bytes(*plain.first_chunk::<EXPIRY_LENGTH>()?);
        if i64::try_from(self.clock.unix()).ok()? > expiry {
            return None;
        }
        // The new tickets of a resumed session have the same expiry.
        note_expiry(expiry);
        plain.drain(..EXPIRY_LENGTH);
        Some(plain)
    }
}

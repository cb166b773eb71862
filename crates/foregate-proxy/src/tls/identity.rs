//! The identity of a client, from its verified certificate.

use std::net::IpAddr;

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::crypto::sha256;
use super::names::address;
use super::subject;

/// The most alternative names that are kept of one certificate; further names are left out.
const NAMES_LIMIT: usize = 64;

/// A client's certificate after verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The distinguished name as text, such as `O=Example, CN=alice`. Different names have different
    /// texts.
    pub subject: String,
    /// The subject's alternative names, at most 64, in the certificate's order.
    pub names: Vec<AlternativeName>,
    /// SHA-256 of the DER certificate.
    pub fingerprint: [u8; 32],
}

/// A subject's alternative name (RFC 5280, section 4.2.1.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AlternativeName {
    /// A DNS name.
    Dns(String),
    /// A mail address.
    Email(String),
    /// A URI, such as a SPIFFE identity.
    Uri(String),
    /// An address.
    Ip(IpAddr),
}

impl ClientIdentity {
    /// Reads the identity from a certificate. `None` if it is malformed, although it was verified.
    pub(super) fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let alternatives = certificate.subject_alternative_name().ok()?;
        let names = alternatives.iter().flat_map(|extension| &extension.value.general_names);
        let names = names.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(AlternativeName::Dns((*name).to_owned())),
            GeneralName::RFC822Name(name) => Some(AlternativeName::Email((*name).to_owned())),
            GeneralName::URI(name) => Some(AlternativeName::Uri((*name).to_owned())),
            GeneralName::IPAddress(bytes) => address(bytes).map(AlternativeName::Ip),
            _ => None,
        });
        Some(Self {
            subject: subject::text(certificate.subject()),
            names: names.take(NAMES_LIMIT).collect(),
            fingerprint: sha256(der),
        })
    }
}

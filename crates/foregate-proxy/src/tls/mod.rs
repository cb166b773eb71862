//! TLS towards clients and origins: the only folder that names `rustls`.
//!
//! An [`Acceptor`] per listener performs handshakes with clients. The name that the client asks for (SNI)
//! chooses a certificate, which [`CertificateStore`] reads and keeps fresh, and a policy: the minimum version
//! and whether client certificates are asked for. Each policy has a configuration and ticket keys of its own.
//! A [`Connector`] per upstream performs handshakes with origins.

mod acceptor;
mod alpn;
mod automatic;
mod connector;
mod crypto;
mod der;
mod expiry;
mod identity;
mod keeper;
mod names;
mod noted;
mod pem;
mod policy;
mod sni;
mod staple;
mod store;
pub mod subject;
mod tickets;

#[cfg(test)]
mod measure;
#[cfg(test)]
pub(crate) mod tests;

pub use self::acceptor::{Acceptor, FinishedHandshake, HandshakeError, ServerStream, SiteHosts, TlsInfo};
pub use self::alpn::Alpn;
pub use self::connector::{ConnectError, Connector, OriginTlsStream, Refusal};
pub use self::identity::{AlternativeName, ClientIdentity};
pub use self::keeper::{
    CertificateKeeper, CertificateReport, KeeperCounts, StapleCounts, StapleReport, StapleStanding,
};
pub use self::policy::{PolicyId, check_clients};
pub use self::staple::{
    RESPONSE_MOST, ResponderError, Staple, StapleError, StapleObstacle, StapleSubject, demands_staple,
    staple_in,
};
pub use self::store::{Certificate, CertificateFacts, CertificateStore, TlsError, check_certificate};

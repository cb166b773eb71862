//! Notes on a handshake while it is performed.
//!
//! All handshakes of a policy share their certificate resolver, verifier and ticketer, and `rustls`
//! does not tell these which handshake calls them. The notes of a handshake are therefore stored in
//! its task.

use std::cell::Cell;
use std::net::IpAddr;

use super::sni::ServedCertificate;

tokio::task_local! {
    static NOTED: HandshakeNotes;
}

struct HandshakeNotes {
    /// The address that the client has connected to, if known.
    local: Option<IpAddr>,
    /// The expiry of the client's certificates, seconds since 1970; `i64::MAX` if it has none.
    expiry: Cell<i64>,
    /// The certificate that was last chosen for the handshake.
    served: Cell<Option<ServedCertificate>>,
}

/// Performs a whole handshake, and also returns the certificate that the client got. `local` is the address that
/// the client has connected to.
pub(super) async fn noting<T>(
    local: Option<IpAddr>,
    handshake: impl Future<Output = T>,
) -> (T, Option<ServedCertificate>) {
    let noted = HandshakeNotes { local, expiry: Cell::new(i64::MAX), served: Cell::new(None) };
    let whole = async {
        let done = handshake.await;
        (done, NOTED.with(|noted| noted.served.take()))
    };
    NOTED.scope(noted, whole).await
}

/// Notes the expiry of the client's certificates, seconds since 1970. Does nothing outside of a
/// handshake.
pub(super) fn note_expiry(seconds: i64) {
    let _ = NOTED.try_with(|noted| noted.expiry.set(seconds));
}

/// The noted expiry; `None` outside of a handshake.
pub(super) fn expiry() -> Option<i64> {
    NOTED.try_with(|noted| noted.expiry.get()).ok()
}

/// The address that the client has connected to; `None` outside of a handshake.
pub(super) fn local() -> Option<IpAddr> {
    NOTED.try_with(|noted| noted.local).ok().flatten()
}

/// Notes which certificate the client gets.
pub(super) fn note_served(served: ServedCertificate) {
    let _ = NOTED.try_with(|noted| noted.served.set(Some(served)));
}

//! Notes on a handshake while it is performed.
//!
//! `rustls` calls resolvers of certificates, verifiers and ticketers without telling them the
//! handshake; all handshakes of a policy share them. So the notes of a handshake travel with its
//! task.

use std::cell::Cell;
use std::net::IpAddr;

use super::sni::ServedCertificate;

tokio::task_local! {
    static NOTED: HandshakeNotes;
}

struct HandshakeNotes {
    /// The address that the client has connected to, where it is known.
    local: Option<IpAddr>,
    /// Until when the certificates of the client last, seconds since 1970; without any, forever.
    expiry: Cell<i64>,
    /// The certificate that was chosen for it last.
    served: Cell<Option<ServedCertificate>>,
}

/// Performs a handshake, whole, and says which certificate the client got. `local` is the address that the
/// client has connected to.
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

/// Notes until when the client's certificates last, seconds since 1970. Outside of a handshake
/// nothing is noted.
pub(super) fn note_expiry(seconds: i64) {
    let _ = NOTED.try_with(|noted| noted.expiry.set(seconds));
}

/// The note; `None` outside of a handshake.
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

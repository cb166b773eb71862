//! Notes on a handshake while it is performed.
//!
//! `rustls` calls resolvers of certificates, verifiers and ticketers without telling them the
//! handshake; all handshakes of a policy share them. So the notes of a handshake travel with its
//! task.

use std::cell::Cell;

use super::sni::ServedCertificate;

tokio::task_local! {
    static NOTED: HandshakeNotes;
}

struct HandshakeNotes {
    /// Until when the certificates of the client last, seconds since 1970; without any, forever.
    expiry: Cell<i64>,
    /// The certificate that was chosen for it last.
    served: Cell<Option<ServedCertificate>>,
}

/// Performs a handshake, whole, and says which certificate the client got.
pub(super) async fn noting<T>(handshake: impl Future<Output = T>) -> (T, Option<ServedCertificate>) {
    let noted = HandshakeNotes { expiry: Cell::new(i64::MAX), served: Cell::new(None) };
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

/// Notes which certificate the client gets.
pub(super) fn note_served(served: ServedCertificate) {
    let _ = NOTED.try_with(|noted| noted.served.set(Some(served)));
}

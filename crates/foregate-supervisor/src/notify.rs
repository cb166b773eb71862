//! Messages for the service manager (sd_notify(3)), if there is one.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends assignments such as `READY=1`, one a line. Does nothing without a service manager.
///
/// # Errors
///
/// The message could not be sent to the service manager.
pub fn notify(text: &str) -> io::Result<()> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    }?;
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address)?;
    Ok(())
}

/// Sends assignments as [`notify`] does; a failure is logged alone.
pub(crate) fn tell_manager(text: &str) {
    if let Err(error) = notify(text) {
        tracing::debug!(%error, "the service manager cannot be told");
    }
}

//! Tells the service manager how the process is doing (sd_notify(3)), where there is one.

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The process serves requests.
pub fn ready() {
    notify("READY=1\n");
}

/// The process reads its configuration again.
pub fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1000);
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n"));
}

/// The process is about to end, and takes as long as this at most for it: whatever time the manager gives services
/// otherwise, it does not kill this one before.
pub fn stopping(limit: Duration) {
    notify(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={}\n", limit.as_micros()));
}

fn notify(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.send_to_addr(state.as_bytes(), &address)
    });
    if let Err(error) = sent {
        tracing::debug!(%error, "the service manager cannot be told");
    }
}

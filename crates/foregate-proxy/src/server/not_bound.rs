//! Errors for sockets that could not be bound, with advice.

use std::io;

use super::source::SettingsSource;
use crate::settings::ListenAddress;

/// The error of [`super::run`] if a socket could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {error}{}", place.as_ref().map_or_else(String::new, |place| format!("\n  at {place}")))]
pub struct NotBound {
    /// The address of the listener.
    pub address: ListenAddress,
    /// The name of the socket in messages.
    what: String,
    error: io::Error,
    /// Where the configuration names the address, `FILE:LINE:COLUMN`.
    place: Option<String>,
}

impl NotBound {
    /// An I/O error with a [`NotBound`] in it. `key` is the configuration's for this socket.
    pub(super) fn named(
        error: io::Error,
        key: &str,
        address: &ListenAddress,
        source: &dyn SettingsSource,
    ) -> io::Error {
        let what = match (key, address) {
            ("admin", ListenAddress::Unix(path)) => format!("admin socket {}", path.display()),
            _ => format!("{key} {address}"),
        };
        let place = source.place_of(key, address);
        io::Error::new(error.kind(), Self { address: address.clone(), what, error, place })
    }
}

/// Advice for an error that keeps the proxy from starting.
pub fn advice(error: &io::Error) -> Option<&'static str> {
    let not_bound = error.get_ref().and_then(|inner| inner.downcast_ref::<NotBound>());
    Some(match (not_bound.map(|not_bound| &not_bound.address), error.kind()) {
        (Some(ListenAddress::Tcp(_)), io::ErrorKind::AddrInUse) => {
            "another process listens there, which `ss -ltnp` names; stop it, or take another port"
        }
        (Some(ListenAddress::Unix(_)), io::ErrorKind::AddrInUse) => {
            "another process listens there, which `ss -lxnp` names; stop it, or take another path"
        }
        (Some(ListenAddress::Tcp(_)), io::ErrorKind::AddrNotAvailable) => {
            "the machine does not have this address; `ip address` shows those that it has"
        }
        (Some(ListenAddress::Tcp(_)), io::ErrorKind::PermissionDenied) => {
            "ports below 1024 need CAP_NET_BIND_SERVICE, which the systemd unit in examples/ grants"
        }
        (Some(ListenAddress::Unix(_)), io::ErrorKind::NotFound) => {
            "its folder is not there; make it, and let the user who runs the proxy write there"
        }
        (_, io::ErrorKind::PermissionDenied) => "let the user who runs the proxy write there",
        _ => return None,
    })
}

//! The sockets that a configuration needs: passed to the process, open already, or newly bound.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foregate_supervisor::protocol::Purpose;
use rustix::io::Errno;

use super::{NotBound, RunningServer, named};
use crate::configuration::Settings;
use crate::listener::Listener;
use crate::settings::{Listen, ListenAddress};

/// A socket on which a listener is about to be started.
pub(super) struct Bound {
    pub(super) listen: Arc<Listen>,
    pub(super) listener: Arc<Listener>,
    pub(super) file: Option<SocketFile>,
    /// True if the socket has just been bound.
    pub(super) is_new: bool,
}

/// A socket file that this process has created. It is removed when this value is dropped.
pub(super) struct SocketFile {
    pub(super) path: PathBuf,
    /// Device and inode, to notice if another process has replaced the file.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// The file of a socket that has just been bound.
    pub(super) fn at(path: PathBuf) -> Self {
        Self { identity: identity(&path), path }
    }

    pub(super) fn of(address: &ListenAddress) -> Option<Self> {
        match address {
            ListenAddress::Unix(path) => Some(Self::at(path.clone())),
            ListenAddress::Tcp(_) => None,
        }
    }

    /// Drops this value without removing the file.
    pub(super) fn keep(mut self) {
        self.identity = None;
    }

    pub(super) fn is_there(&self) -> bool {
        self.identity.is_some() && self.identity == identity(&self.path)
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_there() {
            // The file may be gone already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// New sockets other than those for clients, with the files that this process has created for them. The files are removed if
/// the sockets are not used after all.
#[derive(Default)]
pub(super) struct SideSockets {
    pub(super) metrics: Option<Listener>,
    pub(super) admin: Option<(tokio::net::UnixListener, Option<SocketFile>)>,
    pub(super) dashboard: Option<(Listener, Option<SocketFile>)>,
}

impl RunningServer {
    /// Binds the listeners that are not bound yet. If one of them cannot be bound, nothing changes.
    pub(super) fn bind(&self, settings: &Settings) -> io::Result<Vec<Bound>> {
        let mut bound = Vec::new();
        for listen in &settings.listeners {
            let present = self.listening.get(&listen.address);
            if present.is_some_and(|present| present.file.as_ref().is_none_or(SocketFile::is_there)) {
                continue;
            }
            let what = format!("listen {}", listen.address);
            let there = match self.passed(listen, &settings.listeners) {
                Some(listener) => Some((Arc::clone(listener), None)),
                None => self.held(listen)?,
            };
            let (listener, file, is_new) = match there {
                Some((listener, file)) => {
                    listener.set_backlog(listen.backlog).map_err(|error| named(error, &what))?;
                    (listener, file, false)
                }
                None => {
                    let bound_to = Listener::bind(listen);
                    if let Err(error) = &bound_to
                        && can_do_without(listen, error)
                    {
                        let ListenAddress::Tcp(address) = &listen.address else { continue };
                        tracing::warn!(%error, "no IPv6 here: `listen \":{0}\"` takes 0.0.0.0:{0} alone", address.port());
                        continue;
                    }
                    let listener = bound_to.map_err(|error| match self.overlapping(&listen.address) {
                        Some(held) => {
                            let text = format!(
                                "{what}: {error}: this process still holds {held}, which overlaps; that takes a restart"
                            );
                            io::Error::new(error.kind(), text)
                        }
                        None => NotBound::named(error, "listen", &listen.address, &*self.source),
                    })?;
                    (Arc::new(listener), SocketFile::of(&listen.address), true)
                }
            };
            bound.push(Bound { listen: Arc::new(listen.clone()), listener, file, is_new });
        }
        Ok(bound)
    }

    /// The socket that an earlier process has bound for a listener. The file of a Unix socket is removed at
    /// the end of this process only if this process serves.
    fn held(&self, listen: &Listen) -> io::Result<Option<(Arc<Listener>, Option<SocketFile>)>> {
        let held = self.membership.take_held(Purpose::Clients, &listen.address.to_string());
        let Some(descriptor) = held else { return Ok(None) };
        let listener = Arc::new(Listener::adopt(descriptor)?);
        let file = if self.membership.is_candidate { None } else { SocketFile::of(&listen.address) };
        Ok(Some((listener, file)))
    }

    /// The socket that was passed for a listener. A socket for all IPv6 addresses that also accepts IPv4, as
    /// systemd's `ListenStream=8080` makes it, serves both halves of `listen ":8080"`.
    fn passed(&self, listen: &Listen, all: &[Listen]) -> Option<&Arc<Listener>> {
        if let Some(listener) = self.inherited.get(&listen.address) {
            return Some(listener);
        }
        let ListenAddress::Tcp(SocketAddr::V4(address)) = &listen.address else { return None };
        let both = ListenAddress::Tcp((Ipv6Addr::UNSPECIFIED, address.port()).into());
        let other_half = Listen { address: both, ..listen.clone() };
        let is_half = address.ip().is_unspecified() && all.contains(&other_half);
        self.inherited.get(&other_half.address).filter(|listener| is_half && listener.takes_both_families())
    }

    /// An open socket that overlaps with `address`: it has the same port, and one of the two is for all
    /// addresses.
    fn overlapping(&self, address: &ListenAddress) -> Option<&ListenAddress> {
        let ListenAddress::Tcp(wanted) = address else { return None };
        self.listening.keys().find(|held| match held {
            ListenAddress::Tcp(held) => {
                let same = (held.port(), held.is_ipv4()) == (wanted.port(), wanted.is_ipv4());
                same && (held.ip().is_unspecified() || wanted.ip().is_unspecified())
            }
            ListenAddress::Unix(_) => false,
        })
    }

    /// Binds the metrics and admin sockets if they are new.
    pub(super) fn bind_side(&self, settings: &Settings) -> io::Result<SideSockets> {
        let mut side = SideSockets::default();
        let metrics = self.metrics_task.as_ref().map(|(address, _)| *address);
        if let Some(address) = settings.metrics
            && metrics != Some(address)
        {
            let listen = Listen::new(ListenAddress::Tcp(address));
            let bound = match self.membership.take_held(Purpose::Metrics, &address.to_string()) {
                Some(held) => Listener::adopt(held),
                None => Listener::bind(&listen),
            };
            let bound =
                bound.map_err(|error| NotBound::named(error, "metrics", &listen.address, &*self.source))?;
            side.metrics = Some(bound);
        }
        let admin = self.admin_task.as_ref().map(|(file, _)| file).filter(|file| file.is_there());
        if let Some(path) = &settings.admin
            && admin.is_none_or(|file| file.path != *path)
        {
            let address = ListenAddress::Unix(path.clone());
            let bound = match self.membership.take_held(Purpose::Admin, &address.to_string()) {
                Some(held) => unix_listener(Listener::adopt(held)?).map(|listener| (listener, None)),
                None => bind_admin(path).map(|listener| (listener, SocketFile::of(&address))),
            };
            side.admin =
                Some(bound.map_err(|error| NotBound::named(error, "admin", &address, &*self.source))?);
        }
        side.dashboard = self.dashboard.bind(settings, &self.membership, &*self.source)?;
        Ok(side)
    }
}

/// Returns true if a socket cannot be bound because the system has no IPv6, and the IPv4 half of the
/// same listener serves all clients.
fn can_do_without(listen: &Listen, error: &io::Error) -> bool {
    let is_v6 = matches!(listen.address, ListenAddress::Tcp(SocketAddr::V6(_)));
    // The kernel has no IPv6, or is configured not to use it.
    let is_missing = error.raw_os_error().is_some_and(|code| {
        [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL, Errno::PROTONOSUPPORT]
            .iter()
            .any(|missing| missing.raw_os_error() == code)
    });
    listen.of_all_addresses && is_v6 && is_missing
}

fn unix_listener(listener: Listener) -> io::Result<tokio::net::UnixListener> {
    match listener {
        Listener::Unix(listener) => Ok(listener),
        Listener::Tcp(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn bind_admin(path: &Path) -> io::Result<tokio::net::UnixListener> {
    unix_listener(bind_private(path)?)
}

/// Binds a Unix socket that only the user of the process may use.
pub(super) fn bind_private(path: &Path) -> io::Result<Listener> {
    let listener = Listener::bind(&Listen::new(ListenAddress::Unix(path.to_owned())))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_half_of_ipv6_may_be_missing_and_only_where_there_is_none() {
        let of = |address: &str, of_all_addresses| Listen {
            of_all_addresses,
            ..Listen::new(ListenAddress::Tcp(address.parse().unwrap()))
        };
        let errors = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL, Errno::ADDRINUSE, Errno::ACCESS];
        let missing = |listen: Listen| errors.map(|errno| can_do_without(&listen, &errno.into()));
        assert_eq!(missing(of("[::]:80", true)), [true, true, false, false]);
        assert_eq!(missing(of("[::]:80", false)), [false; 4], "it was asked for by its address");
        assert_eq!(missing(of("0.0.0.0:80", true)), [false; 4]);
    }
}

//! The settings of the dashboard.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::ListenAddress;

/// The settings of the dashboard: a web page that shows the state of the proxy.
#[derive(Debug, Clone)]
pub struct DashboardSettings {
    /// The address that serves it.
    pub address: ListenAddress,
    /// The password that viewers must know. It may only be `None` if no other machine can connect to the
    /// address.
    pub password: Option<DashboardPassword>,
    /// Allow viewers to drain servers and to undo that. Default: no.
    pub allow_changes: bool,
}

impl DashboardSettings {
    /// Returns true if other machines can connect to the address.
    pub fn is_public(address: &ListenAddress) -> bool {
        match address {
            ListenAddress::Tcp(SocketAddr::V4(address)) => !address.ip().is_loopback(),
            ListenAddress::Tcp(SocketAddr::V6(address)) => !address.ip().is_loopback(),
            ListenAddress::Unix(_) => false,
        }
    }
}

/// A password, stored as a hash.
#[derive(Clone)]
pub struct DashboardPassword(Arc<PasswordCheck>);

type PasswordCheck = dyn Fn(&[u8]) -> bool + Send + Sync;

impl DashboardPassword {
    /// The password for which `check` returns true. `check` may take long.
    pub fn new(check: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    /// Returns true if `password` is correct. Not to be called on a worker, because a good hash takes long on purpose.
    pub fn fits(&self, password: &[u8]) -> bool {
        (self.0)(password)
    }

    /// Returns true if both come from the same reading of the configuration.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for DashboardPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DashboardPassword")
    }
}

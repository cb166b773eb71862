//! The socket and the task of the dashboard.

use std::io;
use std::sync::Arc;

use foregate_supervisor::protocol::Purpose;
use tokio::task::JoinHandle;

use super::generations::Membership;
use super::not_bound::NotBound;
use super::sockets::{SocketFile, bind_private};
use super::source::SettingsSource;
use crate::admin;
use crate::configuration::Settings;
use crate::listener::Listener;
use crate::proxy::Proxy;
use crate::settings::{Listen, ListenAddress};

/// The dashboard of the process, where the configuration asks for one.
#[derive(Default)]
pub(super) struct DashboardSlot(Option<DashboardTask>);

/// A running dashboard.
struct DashboardTask {
    address: ListenAddress,
    /// The socket file, if this process has created it and removes it again.
    file: Option<SocketFile>,
    task: JoinHandle<()>,
}

impl DashboardSlot {
    /// Stops the dashboard: returns its task, which the caller aborts. `replaced` is true if another process serves the
    /// socket file now, so that it must stay.
    pub(super) fn stop(&mut self, replaced: bool) -> Option<JoinHandle<()>> {
        let DashboardTask { file, task, .. } = self.0.take()?;
        if replaced && let Some(file) = file {
            file.keep();
        }
        Some(task)
    }

    /// Binds the socket of the dashboard, unless it is bound already.
    pub(super) fn bind(
        &self,
        settings: &Settings,
        membership: &Membership,
        source: &dyn SettingsSource,
    ) -> io::Result<Option<(Listener, Option<SocketFile>)>> {
        let Some(dashboard) = &settings.dashboard else { return Ok(None) };
        let address = &dashboard.address;
        let is_there = |present: &DashboardTask| {
            present.address == *address && present.file.as_ref().is_none_or(SocketFile::is_there)
        };
        if self.0.as_ref().is_some_and(is_there) {
            return Ok(None);
        }
        let bound = match (membership.take_held(Purpose::Dashboard, &address.to_string()), address) {
            (Some(held), _) => Listener::adopt(held).map(|listener| (listener, None)),
            (None, ListenAddress::Unix(path)) => {
                bind_private(path).map(|listener| (listener, SocketFile::of(address)))
            }
            (None, ListenAddress::Tcp(_)) => {
                Listener::bind(&Listen::new(address.clone())).map(|listener| (listener, None))
            }
        };
        bound.map(Some).map_err(|error| NotBound::named(error, "dashboard", address, source))
    }

    /// Starts the dashboard on a new socket, and stops one that the settings no longer have.
    pub(super) fn apply(
        &mut self,
        settings: &Settings,
        bound: Option<(Listener, Option<SocketFile>)>,
        membership: &Membership,
        proxy: &Arc<Proxy>,
    ) {
        let wanted = settings.dashboard.as_ref().map(|dashboard| &dashboard.address);
        let stays = |present: &DashboardTask| bound.is_none() && wanted == Some(&present.address);
        if let Some(old) = self.0.take_if(|present| !stays(present)) {
            membership.release(vec![old.address.to_string()]);
            old.task.abort();
        }
        if let (Some((listener, file)), Some(address)) = (bound, wanted) {
            membership.hold(Purpose::Dashboard, address.to_string(), &listener);
            let shown = listener.address().unwrap_or_else(|_| address.clone());
            tracing::info!(address = %shown, "dashboard");
            let file = file.or_else(|| SocketFile::of(address));
            let task = tokio::spawn(admin::serve_dashboard(listener, Arc::clone(proxy)));
            self.0 = Some(DashboardTask { address: address.clone(), file, task });
        }
    }
}

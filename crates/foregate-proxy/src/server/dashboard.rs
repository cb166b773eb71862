//! The socket and the task of the dashboard.

use std::io;

use foregate_supervisor::protocol::Purpose;
use tokio::task::JoinHandle;

use super::RunningServer;
use super::sockets::{SocketFile, bind_private};
use crate::admin;
use crate::configuration::Settings;
use crate::listener::Listener;
use crate::settings::{Listen, ListenAddress};

/// A dashboard at work.
pub(super) struct DashboardTask {
    address: ListenAddress,
    /// The socket file that we have made and remove again.
    file: Option<SocketFile>,
    pub(super) task: JoinHandle<()>,
}

impl DashboardTask {
    /// Its task, to be aborted. The socket file stays where another process serves it now.
    pub(super) fn stop(self, replaced: bool) -> JoinHandle<()> {
        if replaced && let Some(file) = self.file {
            file.keep();
        }
        self.task
    }
}

impl RunningServer {
    /// Binds the socket of the dashboard, unless it is bound already.
    pub(super) fn bind_dashboard(&self, settings: &Settings) -> io::Result<Option<Listener>> {
        let Some(dashboard) = &settings.dashboard else { return Ok(None) };
        let address = &dashboard.address;
        let is_there = |present: &DashboardTask| {
            present.address == *address && present.file.as_ref().is_none_or(SocketFile::is_there)
        };
        if self.dashboard_task.as_ref().is_some_and(is_there) {
            return Ok(None);
        }
        let bound = match (self.membership.take_held(Purpose::Dashboard, &address.to_string()), address) {
            (Some(held), _) => Listener::adopt(held),
            (None, ListenAddress::Unix(path)) => bind_private(path),
            (None, ListenAddress::Tcp(_)) => Listener::bind(&Listen::new(address.clone())),
        };
        bound.map(Some).map_err(|error| self.not_bound(error, "dashboard", address))
    }

    /// Serves the dashboard on a new socket, and ends one that is no more.
    pub(super) fn apply_dashboard(&mut self, settings: &Settings, listener: Option<Listener>) {
        let wanted = settings.dashboard.as_ref().map(|dashboard| &dashboard.address);
        let stays = |present: &DashboardTask| listener.is_none() && wanted == Some(&present.address);
        if self.dashboard_task.as_ref().is_some_and(|present| !stays(present))
            && let Some(old) = self.dashboard_task.take()
        {
            self.membership.release(vec![old.address.to_string()]);
            old.task.abort();
        }
        if let (Some(listener), Some(address)) = (listener, wanted) {
            self.membership.hold(Purpose::Dashboard, address.to_string(), &listener);
            let shown = listener.address().unwrap_or_else(|_| address.clone());
            tracing::info!(address = %shown, "dashboard");
            let file = SocketFile::of(address);
            let task = tokio::spawn(admin::serve_dashboard(listener, std::sync::Arc::clone(&self.proxy)));
            self.dashboard_task = Some(DashboardTask { address: address.clone(), file, task });
        }
    }
}

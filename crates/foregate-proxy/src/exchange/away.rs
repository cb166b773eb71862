//! The state of an exchange that is lent to another thread while a heavy step runs.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::client::Peer;
use super::run::Run;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::proxy::Config;
use crate::routing::HostId;
use crate::settings::Route;

/// The state of an exchange that is lent out while a heavy step runs or waits for a thread.
pub(super) struct Away {
    /// The state. Either the thread takes it to run the step, or the exchange takes it back first: at a timeout, when the
    /// client has gone, or at its own end.
    pub(super) moved: Mutex<Option<HeavyState>>,
    /// The effective client so far.
    pub client: Option<IpAddr>,
}

/// The state that a heavy step takes to another thread.
pub(super) struct HeavyState {
    pub request: Request,
    pub response: Response,
    pub run: Box<Run>,
    pub peer: Peer,
    pub config: Arc<Config>,
    pub site: Option<HostId>,
    pub route: Option<Arc<Route>>,
}

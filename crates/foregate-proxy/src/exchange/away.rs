//! The part of an exchange that is elsewhere while a heavy step runs.

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

/// The part of an exchange that is elsewhere while a heavy step runs or waits for a thread.
pub(super) struct Away {
    /// Owned by the first to take it: the thread, or the exchange at a timeout, when the client has
    /// gone, or at its end.
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

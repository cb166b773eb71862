//! Slim configurations. After an upgrade, the old version still serves tunnels and long bodies. Each of these gets a
//! slim configuration with the few objects that it needs, so that the process can drop the full one with its sites,
//! rules and certificates.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use foregate_module::Plan;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Config;
use crate::routing::HostId;
use crate::settings::Route;
use crate::upstream::Upstream;

/// The parts of a configuration that an exchange still needs once its response has begun: its site and route for the
/// log, the steps that run at its end, and its upstream.
#[derive(Debug, Clone, Copy)]
pub struct RestOfExchange<'a> {
    /// The full configuration.
    pub config: &'a Arc<Config>,
    /// The site of the exchange, if it has one.
    pub site: Option<HostId>,
    /// The route of the exchange, if it has one.
    pub route: Option<&'a Arc<Route>>,
    /// The steps of the route, if any are left to run.
    pub plan: Option<&'a Arc<Plan>>,
    /// The upstream that was asked.
    pub upstream: Option<&'a Arc<Upstream>>,
}

/// A configuration with only the parts that such an exchange needs.
#[derive(Debug)]
pub struct SlimConfig {
    /// A configuration of one site, without its routes.
    pub config: Arc<Config>,
    /// The site in this configuration.
    pub site: Option<HostId>,
    /// The route.
    pub route: Option<Arc<Route>>,
    /// The steps.
    pub plan: Option<Arc<Plan>>,
    /// The upstream.
    pub upstream: Option<Arc<Upstream>>,
}

/// Identifies the parts that exchanges need, so that they can share a slim configuration: the site, and the memory
/// addresses of route, plan and upstream. The slim configuration keeps these objects alive, so no address is reused.
type SlimKey = (Option<HostId>, [usize; 3]);

/// The move of exchanges to slim configurations: whether it has begun, and the slim configurations made so far.
#[derive(Debug, Default)]
pub struct Shedding {
    has_begun: AtomicBool,
    begins: Notify,
    slim: Mutex<HashMap<SlimKey, Arc<SlimConfig>>>,
}

impl Shedding {
    /// Begins the move: tunnels take a slim configuration at once, bodies when their next bytes move.
    pub fn begin(&self) {
        self.has_begun.store(true, Ordering::SeqCst);
        self.begins.notify_waiters();
    }

    /// Returns true once the move has begun.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Completes once the move has begun.
    pub async fn wait(&self) {
        let mut begins = pin!(self.begins.notified());
        // Registered before the check, because a `begin` between the check and the wait would be missed.
        begins.as_mut().enable();
        if !self.has_begun.load(Ordering::SeqCst) {
            begins.await;
        }
    }

    /// The slim configuration for the rest of an exchange. Exchanges with the same needs share one.
    pub fn slim(&self, rest: RestOfExchange<'_>) -> Arc<SlimConfig> {
        let RestOfExchange { config, site, route, plan, upstream } = rest;
        let address = |known: Option<usize>| known.unwrap_or_default();
        let addresses = [
            address(route.map(|route| Arc::as_ptr(route).addr())),
            address(plan.map(|plan| Arc::as_ptr(plan).addr())),
            address(upstream.map(|upstream| Arc::as_ptr(upstream).addr())),
        ];
        let slim = || SlimConfig {
            config: Arc::new(config.slim(site, route, plan.is_some())),
            site: site.map(|_| HostId::FIRST),
            route: route.cloned(),
            plan: plan.cloned(),
            upstream: upstream.cloned(),
        };
        let mut known = self.slim.lock();
        Arc::clone(known.entry((site, addresses)).or_insert_with(|| Arc::new(slim())))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    #[tokio::test]
    async fn a_beginning_is_noticed_before_and_after() {
        let shedding = Shedding::default();
        let mut waits = pin!(shedding.wait());
        let waiting = poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_pending())).await;
        assert!(waiting);
        shedding.begin();
        waits.await;
        shedding.wait().await;
        assert!(shedding.has_begun());
    }
}

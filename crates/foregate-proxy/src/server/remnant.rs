//! A version that has handed over and has only tunnels and long bodies left. It frees everything that only new requests
//! would need.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::RunningServer;
use super::supervised::Message;
use crate::limits::clients::Registry;
use crate::memory;
use crate::proxy::{Config, Proxy};
use crate::sys;

/// The interval at which connections are checked for whether they may still bring a request.
const LOOK: Duration = Duration::from_secs(2);
/// The time for woken idle connections to report whether they may still bring a request.
const ANSWER: Duration = Duration::from_millis(200);

/// Sends [`Message::Remnant`] once the cache has been given away and no connection may bring another request.
pub(super) async fn watch(
    registry: Arc<Registry>,
    giving: Option<watch::Receiver<()>>,
    messages: mpsc::UnboundedSender<Message>,
) {
    if let Some(mut giving) = giving {
        // Nothing is ever sent on this channel; it closes when the cache has been given away.
        let _ = giving.changed().await;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        registry.wake();
        tokio::time::sleep(ANSWER).await;
        if registry.may_ask() == 0 {
            // The server may be stopping.
            let _ = messages.send(Message::Remnant);
            return;
        }
    }
}

/// Sends [`Message::Unused`] once no exchange holds the configuration any more, and no connection may bring
/// another request. A tunnel releases the configuration at once, and a body releases it when the next bytes of
/// the body move. On an HTTP/1 connection that may bring another request, a body releases the configuration at
/// the end of the body.
async fn until_unused(proxy: Weak<Proxy>, messages: mpsc::UnboundedSender<Message>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(proxy) = proxy.upgrade() else { return };
        proxy.registry.wake();
        tokio::time::sleep(ANSWER).await;
        // The second check sees an exchange that begins after the first check, because an exchange takes the
        // configuration before its connection stops waiting for a request.
        if proxy.registry.may_ask() == 0 && is_unused(&proxy.config()) {
            // The server may be stopping.
            let _ = messages.send(Message::Unused);
            return;
        }
    }
}

/// Returns true if nobody but the caller and the proxy holds the configuration.
fn is_unused(config: &Arc<Config>) -> bool {
    Arc::strong_count(config) <= 2
}

impl RunningServer {
    /// Drops stored responses, connections to origins, probes and threads. A body that is being sent keeps its stored
    /// response or connection. A request that arrives nevertheless is served without a cache.
    pub(super) fn shed(&mut self) {
        self.proxy.cache.store.close_memory();
        self.upstreams.rest();
        self.proxy.offload.rest();
        self.files.follow(&[]);
        self.proxy.shedding.begin();
        tokio::spawn(until_unused(Arc::downgrade(&self.proxy), self.membership.sender.clone()));
        // Workers allocated most of this memory, and give it back while they are idle.
        tokio::spawn(memory::give_back_soon(tokio::runtime::Handle::current().metrics().num_workers()));
        let connections = self.proxy.registry.count();
        tracing::info!(
            connections,
            "only tunnels and bodies on their way are left; caches and idle connections to origins are dropped"
        );
    }
    /// Drops the configuration. Tunnels and bodies that are being sent have kept the parts that they need.
    pub(super) fn drop_configuration(&mut self) {
        let config = self.proxy.config();
        if !is_unused(&config) {
            // Another task holds the configuration for a moment: wait again.
            tokio::spawn(until_unused(Arc::downgrade(&self.proxy), self.membership.sender.clone()));
            return;
        }
        drop(config);
        self.proxy.drop_config();
        // This thread allocated most of the configuration.
        sys::collect_memory();
        tokio::spawn(memory::give_back_soon(tokio::runtime::Handle::current().metrics().num_workers()));
        tracing::info!("the configuration is dropped");
    }
}

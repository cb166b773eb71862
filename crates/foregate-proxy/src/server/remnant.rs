//! A version that has handed over and has only tunnels and long bodies left: it lets go of all that only new requests would need.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::RunningServer;
use super::supervised::Message;
use crate::limits::clients::Registry;
use crate::memory;

/// How often it is looked at whether a connection may still bring a request.
const LOOK: Duration = Duration::from_secs(2);
/// How long idle connections may take to say that they are there.
const ANSWER: Duration = Duration::from_millis(200);

/// Sends [`Message::Remnant`] once no connection may bring another request.
pub(super) async fn watch(registry: Arc<Registry>, messages: mpsc::UnboundedSender<Message>) {
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

impl RunningServer {
    /// Drops stored responses, connections to origins, probes and threads. Bodies on their way keep theirs. A request that comes all the
    /// same is served without a cache.
    pub(super) fn shed(&mut self) {
        self.proxy.cache.store.close_memory();
        self.upstreams.rest();
        self.proxy.offload.rest();
        self.files.follow(&[]);
        // Workers have made most of it, and give it back as they rest.
        tokio::spawn(memory::give_back_soon(tokio::runtime::Handle::current().metrics().num_workers()));
        let connections = self.proxy.registry.count();
        tracing::info!(
            connections,
            "only tunnels and bodies on their way are left; caches and idle connections to origins are dropped"
        );
    }
}

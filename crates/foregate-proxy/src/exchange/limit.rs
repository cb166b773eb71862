//! Bounds on the requests in flight of a client, through a listener and to a site. The bound of an upstream is checked
//! when it is asked.

use std::task::Poll;

use super::downstream::Downstream;
use crate::error::Error;
use crate::limits::account::Account;
use crate::limits::gates::{ClientRequest, RequestPass};
use crate::proxy::{Config, Proxy};
use crate::routing::HostId;
use crate::settings::ListenAddress;
use crate::upstream::enter;

/// The request's places among those in flight, until it is over.
#[derive(Debug, Default)]
pub(super) struct RequestPasses {
    _of_client: Option<ClientRequest>,
    passes: Vec<RequestPass>,
}

impl RequestPasses {
    /// Counts the request against the bounds of the client, the listener and the site, in this order.
    ///
    /// # Errors
    ///
    /// A bound is reached, and its queue is full or the wait was too long; or the client has gone.
    pub(super) async fn take(
        proxy: &Proxy,
        config: &Config,
        account: Account,
        (listener, site): (Option<&ListenAddress>, Option<HostId>),
        down: &mut Downstream<'_>,
    ) -> Result<Box<Self>, Error> {
        let mut passes = Self::default();
        if let Some(most) = config.settings.limits.requests_per_client {
            let of_client = ClientRequest::take(&proxy.client_requests, account, most);
            passes._of_client = Some(of_client.ok_or(Error::ClientRequests)?);
        }
        let listener = listener.and_then(|address| config.listener_gate(address));
        let site = site.and_then(|site| config.site_gate(&config.settings.sites.site(site).name));
        for gate in [listener, site].into_iter().flatten() {
            let pass = enter(gate, account, &proxy.metrics, |cx| match down.poll_total(cx) {
                Poll::Pending => down.poll_gone(cx),
                over => over,
            });
            passes.passes.push(pass.await?);
        }
        Ok(Box::new(passes))
    }
}

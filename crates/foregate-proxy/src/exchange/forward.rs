//! The way to the origin.

use foregate_module::{PhaseId, Swept};
use foregate_wire::{NameId, Version, connection};

use super::downstream::ClientAsks;
use super::reply::Reply;
use super::{Exchange, Step};
use crate::error::Error;
use crate::link::copy::Underscores;
use crate::link::start::Kept;
use crate::settings::UpstreamProtocol;
use crate::time::clock;
use crate::upstream::{self, Addresses, Ask, Terms};

/// The fields that decide on framing or routing: they are written from what was understood, never copied.
const FRAMING: [NameId; 3] = [NameId::ContentLength, NameId::TransferEncoding, NameId::Host];

impl Exchange<'_> {
    /// Makes the request what the origin shall see.
    pub(super) fn prepare(&mut self, upstream: usize) -> Step {
        let Some(upstream) = self.config.upstreams.get(upstream) else {
            return Step::Failed(Error::Internal);
        };
        if self.request.goes_in_circles() {
            return Step::Failed(Error::Loop);
        }
        if let Some(hops) = self.request.hops_left() {
            match hops.checked_sub(1) {
                Some(left) => self.request.set_hops_left(left),
                None => return Step::Reply(Reply::last_hop(self.request.head.method.as_bytes())),
            }
        }
        // An origin with HTTP/2 may say that it has not looked at a request, whatever its method.
        let keeps = self.request.is_repeatable() || upstream.settings.protocol != UpstreamProtocol::Http1;
        if keeps && !self.down.upload.is_done() {
            // What steps have looked at already has to be sent first.
            let kept = self.down.upload.kept.take();
            let share = || self.proxy.filter_memory.share(self.account());
            let mut kept = kept.unwrap_or_else(|| Kept::new(0, share()));
            kept.limit = upstream.settings.retry_body.max(kept.len());
            self.down.upload.kept = Some(kept);
        }
        let terms = Terms {
            fresh: false,
            addresses: Addresses { client: self.peer.client, local: self.peer.local },
            behalf: self.client_address(),
            client: self.peer.holdings.as_ref(),
            own: Some(&self.peer.own),
            http1: false,
            authenticates: false,
        };
        self.ask = Some(Ask::new(upstream, terms));
        if upstream.settings.protocol == UpstreamProtocol::Http2 && !self.request.fits_extended_connect() {
            // The request goes on without the offer, which may be ignored (RFC 9110, section 7.8).
            self.request.upgrade = None;
        }
        let underscores = self.site.is_some_and(|site| self.config.settings.sites.allows_underscores(site));
        self.down.upload.underscores = if underscores { Underscores::Own } else { Underscores::None };
        let extended = self.request.head.version == Version::Http2 && self.request.upgrade.is_some();
        if extended {
            self.request.websocket_key = Some(crate::websocket::new_key());
            // Over HTTP/2 there is none (RFC 8441, section 5), and the origin gets ours.
            self.request.head.headers.remove_name(b"sec-websocket-key");
        }
        let headers = &mut self.request.head.headers;
        // Where steps run, that hop has ended before them (`screen`).
        if self.run.is_none() {
            self.down.upload.leave_out(connection::named_options(headers));
        }
        connection::strip_hop_by_hop(headers, true);
        match underscores {
            false => connection::drop_underscore_names_before(headers, self.request.sent),
            true => connection::drop_misspelt_names_before(headers, self.request.sent),
        };
        headers.remove_each(&FRAMING);
        let (secure, version) = (self.request.secure, self.request.head.version);
        match self.run.as_ref().and_then(|run| run.facts.client) {
            Some(client) => self.request.tell_origin(&client.to_string(), secure, version),
            None => self.request.tell_origin(&self.peer.client_text, secure, version),
        }
        if self.run.is_some() { Step::Outgoing } else { Step::Ask }
    }

    /// Runs the steps that see the request as it goes out.
    pub(super) async fn outgoing(&mut self) -> Step {
        if let Err(ended) = self.run_phases(PhaseId::UpstreamRequest).await {
            return ended.into();
        }
        if let Err(error) = self.limit_body().and_then(|()| self.filter_request()) {
            return Step::Failed(error);
        }
        self.renew();
        self.sweep_request();
        Step::Ask
    }

    /// Asks the upstream, until the head of the final response is there.
    pub(super) async fn ask(&mut self) -> Step {
        loop {
            let Some(ask) = &mut self.ask else { return Step::Failed(Error::Internal) };
            let mut asks = ClientAsks {
                down: &mut self.down,
                request: self.request,
                response: self.response,
                has_room: false,
            };
            match ask.answer(&mut asks).await {
                Ok(upstream::Answer::Final(origin, length)) => return Step::Response(origin, length),
                Ok(upstream::Answer::Interim) => {
                    if let Err(error) = self.relay_interim().await {
                        if let Some(ask) = &mut self.ask {
                            ask.end_attempt(&error);
                        }
                        return Step::Failed(error);
                    }
                }
                Err(error) => return Step::Failed(error),
            }
        }
    }

    async fn relay_interim(&mut self) -> Result<(), Error> {
        self.down.room().await?;
        if self.response.status == 100 {
            if !self.request.expect_continue {
                return Ok(());
            }
            self.request.expect_continue = false;
            self.down.progress.restart(clock::now());
        }
        connection::strip_hop_by_hop(&mut self.response.headers, false);
        self.response.headers.remove(NameId::TransferEncoding);
        self.response.headers.remove(NameId::ContentLength);
        if let Some(sweep) = self.sweep() {
            sweep.clean(Swept::Interim, &mut self.response.headers);
        }
        let (status, headers) = (self.response.status, &self.response.headers);
        self.down.client.send_interim(self.request, status, headers).map_err(Error::Client)
    }
}

//! The way to the origin.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Instant;

use foregate_module::{PhaseId, Swept};
use foregate_wire::{NameId, ResponseHead, Version, connection};

use super::progress::Awaited;
use super::respond::Answer;
use super::{Exchange, Step};
use crate::error::Error;
use crate::link::LinkError;
use crate::link::copy::{CopyError, Underscores, Waiting};
use crate::link::start::Kept;
use crate::settings::UpstreamProtocol;
use crate::telemetry::clock;
use crate::upstream::{Addresses, Origin, Terms, Upstream, authentication};

/// The most that is taken of interim responses before the final one, bytes of their heads. Beyond: 502.
const INTERIM_BYTES: usize = 64 * 1024;

/// The fields that decide on framing or routing: they are written from what was understood, never copied.
const FRAMING: [NameId; 3] = [NameId::ContentLength, NameId::TransferEncoding, NameId::Host];

/// How many bytes the interim responses to a request have had, as they would have over HTTP/1.
#[derive(Debug)]
pub(super) struct InterimBytes(usize);

impl InterimBytes {
    /// None have come.
    pub(super) fn new() -> Self {
        Self(0)
    }

    /// Takes note of another one.
    pub(super) fn add(&mut self, head: &ResponseHead) -> Result<(), Error> {
        const LINE: usize = "HTTP/1.1 103 \r\n".len() + "\r\n".len();
        let fields = head.headers.iter().map(|field| field.name.len() + field.value.len() + ": \r\n".len());
        self.0 += LINE + head.reason().len() + fields.sum::<usize>();
        match self.0 <= INTERIM_BYTES {
            true => Ok(()),
            false => Err(Error::Interim("more than 64 KiB of interim responses")),
        }
    }
}

impl Exchange<'_> {
    /// Makes the request what the origin shall see.
    pub(super) fn prepare(&mut self, upstream: usize) -> Step {
        let Some(upstream) = self.config.upstreams.get(upstream) else {
            return Step::Failed(Error::Internal);
        };
        self.active = Some(upstream.enter());
        if self.request.goes_in_circles() {
            return Step::Failed(Error::Loop);
        }
        if let Some(hops) = self.request.hops_left() {
            match hops.checked_sub(1) {
                Some(left) => self.request.set_hops_left(left),
                None => return Step::Answer(Answer::last_hop(self.request.head.method.as_bytes())),
            }
        }
        // An origin with HTTP/2 may say that it has not looked at a request, whatever its method.
        let keeps = self.request.is_repeatable() || upstream.settings.protocol != UpstreamProtocol::Http1;
        if keeps && !self.upload.is_done() {
            // What steps have looked at already has to be sent first.
            let kept = self.upload.kept.take();
            let share = || self.proxy.filter_memory.share(self.account());
            let mut kept = kept.unwrap_or_else(|| Kept::new(0, share()));
            kept.limit = upstream.settings.retry_body.max(kept.len());
            self.upload.kept = Some(kept);
        }
        self.upstream = Some(upstream);
        if upstream.settings.protocol == UpstreamProtocol::Http2 && !self.request.fits_extended_connect() {
            // The request goes on without the offer, which may be ignored (RFC 9110, section 7.8).
            self.request.upgrade = None;
        }
        let underscores = self.site.is_some_and(|site| self.config.settings.sites.allows_underscores(site));
        self.upload.underscores = if underscores { Underscores::Own } else { Underscores::None };
        let extended = self.request.head.version == Version::Http2 && self.request.upgrade.is_some();
        if extended {
            self.request.websocket_key = Some(crate::websocket::new_key());
            // Over HTTP/2 there is none (RFC 8441, section 5), and the origin gets ours.
            self.request.head.headers.remove_name(b"sec-websocket-key");
        }
        let headers = &mut self.request.head.headers;
        // Where steps run, that hop has ended before them (`screen`).
        if self.run.is_none() {
            self.upload.leave_out(connection::named_options(headers));
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
        if self.run.is_some() { Step::Outgoing } else { Step::Connect }
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
        Step::Connect
    }

    /// Chooses a server and gets a connection to it.
    pub(super) async fn connect(&mut self) -> Step {
        let Some(upstream) = self.upstream else { return Step::Failed(Error::Internal) };
        let now = clock::now();
        let bound = upstream.bound_server(self.peer.own.get());
        let Some((server, fresh)) = self.attempts.begin(upstream, bound, now) else {
            return Step::Failed(Error::NoServer);
        };
        self.record.first_byte = None;
        self.upload.resume();
        self.record.attempt = now;
        let terms = Terms {
            fresh,
            addresses: Addresses { client: self.peer.client, local: self.peer.local },
            client: self.peer.holdings.as_ref(),
            own: Some(&self.peer.own),
            http1: self.over_http1,
            authenticates: authentication::has_credentials(&self.request.head.headers),
        };
        let opened = {
            let (client, timer) = (&mut self.client, &mut self.timer);
            let open = upstream.open(server, terms, now);
            tokio::pin!(open);
            poll_fn(|cx| {
                let opened = open.as_mut().poll(cx);
                if let Poll::Ready(Ok(Origin { reused: true, .. }) | Err(_)) = opened {
                    return opened;
                }
                // To connect takes a while, in which a client may have left.
                let Poll::Ready(error) = client.poll_abandoned(cx, timer) else { return opened };
                if let Poll::Ready(Ok(origin)) = opened {
                    upstream.put_back(origin, clock::now());
                }
                Poll::Ready(Err(Error::Client(error)))
            })
            .await
        };
        match opened {
            Ok(origin) => {
                self.record.reused = Some(origin.reused);
                Step::Request(origin)
            }
            Err(error) => {
                // Others need not wait for what comes of a request that nobody waits for any more.
                if let (Error::Client(_), Some(upstream), Some(server)) =
                    (error, self.upstream, self.attempts.last())
                {
                    upstream.failed(server, self.record.attempt, clock::now(), &error);
                }
                Step::Failed(error)
            }
        }
    }

    /// Sends the request, and waits for the head of the final response while the body is on its way.
    pub(super) async fn send_request(&mut self, mut origin: Origin) -> Step {
        match self.attempt(&mut origin).await {
            Ok(()) => Step::Response(origin),
            Err(Error::NoUpgrade) if self.may_use_http1() => {
                // Nothing was sent: it is the same attempt.
                self.over_http1 = true;
                self.attempts.go_on();
                Step::Connect
            }
            Err(error) => self.attempt_failed(&origin, error),
        }
    }

    /// Whether a request that HTTP/2 does not take may go over HTTP/1.1 instead.
    fn may_use_http1(&self) -> bool {
        let is_auto = |upstream: &Upstream| upstream.settings.protocol == UpstreamProtocol::Auto;
        !self.over_http1 && self.upstream.is_some_and(|upstream| is_auto(upstream))
    }

    async fn attempt(&mut self, origin: &mut Origin) -> Result<(), Error> {
        let upstream = self.upstream.ok_or(Error::Internal)?;
        origin.send_head(self.request, &upstream.settings).await?;
        // What steps have looked at, or an earlier attempt has taken, goes first.
        self.upload.start_over();
        self.progress.restart(clock::now());
        let mut interim = InterimBytes::new();
        loop {
            poll_fn(|cx| self.poll_request(cx, origin)).await?;
            if self.record.first_byte.is_none() {
                let since = clock::now().saturating_duration_since(self.record.attempt);
                self.record.first_byte = Some(since);
            }
            if self.response.status >= 200 {
                return Ok(());
            }
            if self.response.status == 101 && self.request.upgrade.is_some() {
                self.agreed_protocol()?;
                // What of the request is still to come would pass for the other protocol (RFC 9110, section 7.8).
                return poll_fn(|cx| self.poll_rest(cx, origin)).await;
            }
            interim.add(self.response)?;
            self.room().await?;
            self.relay_interim()?;
        }
    }

    pub(super) fn attempt_failed(&mut self, origin: &Origin, error: Error) -> Step {
        // A kept connection that turns out to be dead says nothing about the server.
        let is_race = self.attempts.failed_on(origin, &error);
        // What has begun is not repeated.
        let begun = origin.has_begun().then(|| self.record.attempt.elapsed());
        self.record.first_byte = self.record.first_byte.or(begun);
        if let (Some(upstream), Some(server)) = (self.upstream, self.attempts.last()) {
            origin.gave_up(&error, &upstream.settings);
            if !is_race {
                upstream.attempt_failed(server, origin, self.record.attempt, clock::now(), &error);
            }
        }
        Step::Failed(error)
    }

    /// The protocol that the origin switches to must be one that the client offered.
    fn agreed_protocol(&mut self) -> Result<(), Error> {
        let chosen =
            connection::upgrade(&self.response.headers).ok_or(Error::Switch("a switch to no protocol"))?;
        let offered = self.request.upgrade.as_deref().unwrap_or_default();
        if !offered.split(|byte| *byte == b',').any(|offer| offer.trim_ascii().eq_ignore_ascii_case(chosen)) {
            return Err(Error::Switch("a switch to a protocol that was not offered"));
        }
        // A client that has sent a key of its own looks at this itself.
        if let Some(key) = &self.request.websocket_key
            && chosen.eq_ignore_ascii_case(b"websocket")
            && self.response.headers.get_name(b"sec-websocket-accept")
                != Some(crate::websocket::accept(key.as_bytes()).as_bytes())
        {
            return Err(Error::Switch("a WebSocket without the answer to its key"));
        }
        self.request.upgrade = Some(chosen.to_vec());
        Ok(())
    }

    fn relay_interim(&mut self) -> Result<(), Error> {
        if self.response.status == 101 {
            return Err(Error::Switch("a protocol switch that was not asked for"));
        }
        // It has no body, whatever it says; but one that contradicts itself may be read as another message (RFC 9112, section 6.3).
        foregate_wire::response_length(&self.request.head.method, self.response)
            .map_err(Error::ResponseFraming)?;
        if self.response.status == 100 {
            if !self.request.expect_continue {
                return Ok(());
            }
            self.request.expect_continue = false;
            self.progress.restart(clock::now());
        }
        connection::strip_hop_by_hop(&mut self.response.headers, false);
        self.response.headers.remove(NameId::TransferEncoding);
        self.response.headers.remove(NameId::ContentLength);
        if let Some(sweep) = self.sweep() {
            sweep.clean(Swept::Interim, &mut self.response.headers);
        }
        self.client
            .send_interim(self.request, self.response.status, &self.response.headers)
            .map_err(Error::Client)
    }

    fn poll_request(&mut self, cx: &mut Context<'_>, origin: &mut Origin) -> Poll<Result<(), Error>> {
        // Interim responses must not wait for the final one.
        if let Poll::Ready(Err(error)) = self.client.link.poll_flush(cx) {
            return Poll::Ready(Err(Error::Client(error)));
        }
        if !self.upload.is_done() {
            match self.upload.poll(cx, &mut self.client.link, &mut origin.link) {
                Poll::Ready(Err(error)) => self.upload_failed(error)?,
                // The wait for an answer begins with the end of the request, which may come long after its last byte.
                Poll::Ready(Ok(())) => self.progress.uploaded_all(clock::now()),
                Poll::Pending => {}
            }
        } else if let Poll::Ready(Err(_)) = origin.link.poll_flush(cx) {
            // An origin may close its side and still have an answer for us, which comes next.
        }
        let Some(upstream) = self.upstream else { return Poll::Ready(Err(Error::Internal)) };
        // A head that the client's connection has no room for stays where it is.
        let room = self.client.link.poll_room(cx).is_ready();
        if room && let Poll::Ready(result) = origin.poll_head(cx, upstream, self.response) {
            return Poll::Ready(result);
        }
        let now = clock::now();
        if !room {
            // The origin has not been listened to meanwhile.
            self.progress.uploaded_all(now);
        }
        if self.client.unwatched_until(now).is_none()
            && let Poll::Ready(error) = self.client.poll_abandoned(cx, self.timer)
        {
            return Poll::Ready(Err(Error::Client(error)));
        }
        self.progress.observe_given(self.upload.sent, now);
        self.progress.observe(self.upload.moved, 0, now);
        let awaited = match self.upload.waiting {
            _ if !room => Awaited::ClientRead,
            // Whoever waits for a 100 has to send its body all the same once that takes too long, and the origin need not answer before.
            Waiting::Source if self.request.expect_continue && self.upload.moved == 0 => {
                Awaited::ExpectedBody
            }
            Waiting::Source => Awaited::ClientBody,
            Waiting::Sink => Awaited::OriginRead,
            _ => Awaited::FirstByte,
        };
        self.poll_deadline(cx, &[awaited], now)
    }

    /// Moves what is left of the request's body.
    fn poll_rest(&mut self, cx: &mut Context<'_>, origin: &mut Origin) -> Poll<Result<(), Error>> {
        if !self.upload.is_done() {
            match self.upload.poll(cx, &mut self.client.link, &mut origin.link) {
                Poll::Ready(Err(error)) => self.upload_failed(error)?,
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        }
        if self.upload.gave_up() {
            return Poll::Ready(Err(Error::Switch("a switch of protocols before the request was whole")));
        }
        if self.upload.is_done() {
            return Poll::Ready(Ok(()));
        }
        let now = clock::now();
        self.progress.observe_given(self.upload.sent, now);
        self.progress.observe(self.upload.moved, 0, now);
        let awaited = match self.upload.waiting {
            Waiting::Source => Awaited::ClientBody,
            _ => Awaited::OriginRead,
        };
        self.poll_deadline(cx, &[awaited], now)
    }

    /// Judges a body that could not be moved to the origin.
    pub(super) fn upload_failed(&mut self, error: CopyError) -> Result<(), Error> {
        match error {
            CopyError::Source(LinkError::Body(_) | LinkError::Length) => {
                self.client.close = true;
                Err(Error::of_upload(error))
            }
            CopyError::Sink(_) => {
                // The origin does not want the rest; it may have answered already.
                self.upload.give_up();
                Ok(())
            }
            error => Err(Error::of_upload(error)),
        }
    }

    /// Until when `awaited` must have happened. An origin that takes nothing has less time where a window that has grown waits for it.
    fn deadline_of(&mut self, awaited: Awaited, upstream: &Upstream, now: Instant) -> Instant {
        let timeouts = &self.config.settings.timeouts;
        let deadline = self.progress.deadline(awaited, timeouts, &upstream.settings, now);
        let holds = awaited == Awaited::OriginRead && self.client.link.holds_grown_window();
        if holds { deadline.min(self.progress.moved_at() + timeouts.write_stall) } else { deadline }
    }

    pub(super) fn poll_deadline(
        &mut self,
        cx: &mut Context<'_>,
        awaited: &[Awaited],
        now: Instant,
    ) -> Poll<Result<(), Error>> {
        let Some(upstream) = self.upstream else { return Poll::Pending };
        let waits = awaited.contains(&Awaited::ClientRead);
        self.progress.observe_client(self.download.sent, waits, self.client.link.left_at(), now);
        if !awaited.contains(&Awaited::ClientBody) {
            self.progress.excuse_client(now);
        }
        let next = awaited
            .iter()
            .map(|&awaited| (self.deadline_of(awaited, upstream, now), awaited))
            .min_by_key(|(deadline, _)| *deadline);
        let Some((deadline, awaited)) = next else { return Poll::Pending };
        if let Some(watch) = self.client.unwatched_until(now).filter(|watch| *watch < deadline) {
            if self.timer.poll(cx, watch).is_ready() {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        if self.timer.poll(cx, deadline).is_pending() {
            return Poll::Pending;
        }
        // The end of a span in which the client was fast enough is no timeout.
        let still = self.deadline_of(awaited, upstream, Instant::now());
        if still > deadline {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Err(match awaited {
            Awaited::ClientBody | Awaited::ExpectedBody | Awaited::EitherBody => Error::BodyTimeout,
            Awaited::ClientRead => Error::WriteStall,
            Awaited::OriginRead => Error::OriginStall,
            Awaited::FirstByte => Error::FirstByteTimeout,
            Awaited::OriginBody => Error::OriginIdle,
        }))
    }
}

//! The way back from the origin.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use foregate_module::{FetchRequest, Filtered, PhaseId, Source};
use foregate_wire::{BodyLength, Method, NameId, Version, connection};

use super::progress::Awaited;
use super::respond::date;
use super::{Exchange, Step};
use crate::error::Error;
use crate::link::copy::Waiting;
use crate::link::filter::{Filter, chain};
use crate::link::start::Front;
use crate::link::{Link, LinkError};
use crate::telemetry::clock;
use crate::upstream::Origin;

/// How long a response whose filters may be refused their memory waits for the first piece of its body before its head is sent.
const BEGINS_WITHIN: Duration = Duration::from_secs(1);

impl Exchange<'_> {
    /// Makes the response what the client shall see, and sends its head.
    pub(super) fn send_response(&mut self, mut origin: Origin) -> Step {
        let Some(upstream) = self.upstream else { return Step::Failed(Error::Internal) };
        let length = match origin.begin_body(upstream, self.request, self.response) {
            Ok(length) => length,
            Err(error) => return self.attempt_failed(&origin, error),
        };
        upstream.bind(&mut origin, &self.peer.own);
        if let Some(server) = self.attempts.last() {
            upstream.succeeded(server, clock::now());
            upstream.address_answered(server, &origin);
        }
        if let Some(active) = &mut self.active {
            active.answered();
        }
        if length == BodyLength::Tunnel {
            return self.agree_on_tunnel(origin);
        }
        let extended = self.request.upgrade.is_some() && self.client.link.is_h2();
        if extended && (200..300).contains(&self.response.status) {
            // To the client a 2xx would say that the tunnel is open (RFC 8441, section 5).
            return Step::Failed(Error::NoUpgrade);
        }
        self.download.leave_out(connection::named_options(&self.response.headers));
        let required = self.required_upgrade();
        connection::strip_hop_by_hop(&mut self.response.headers, false);
        self.response.headers.remove(NameId::TransferEncoding);
        if let Some(protocols) = required {
            self.response.headers.push_id(NameId::Upgrade, &protocols);
        }
        if self.has_steps(PhaseId::UpstreamResponse, PhaseId::ResponseBody) {
            if self.response.status == 206 && self.needs_whole() {
                return self.ask_whole(origin, length);
            }
            return Step::Shape(origin, length);
        }
        Step::Head(origin, length)
    }

    /// Runs the steps of the response.
    pub(super) async fn shape(&mut self, mut origin: Origin, length: BodyLength) -> Step {
        self.response_is_from(Source::Upstream);
        self.skip_to(PhaseId::UpstreamResponse);
        if let Err(ended) = self.run_phases(PhaseId::ResponseErrorPage).await {
            self.drop_response(origin, length);
            return ended.into();
        }
        if let Err(error) = self.hold_response(&mut origin, length).await {
            self.drop_origin(origin, &error);
            return Step::Failed(error);
        }
        if let Err(ended) = self.run_phases(PhaseId::ResponseBody).await {
            self.drop_response(origin, length);
            return ended.into();
        }
        if let Some(run) = &mut self.run {
            let bytes = std::mem::take(&mut run.facts.response_body);
            self.download.front = Front::new(bytes, run.facts.response_share.take());
        }
        let filters = self.take_response_filters();
        if length == BodyLength::Tunnel {
            // What passes through it is no body.
            return Step::Head(origin, length);
        }
        if filters.is_empty() {
            return Step::Head(origin, length);
        }
        let changes = filters.iter().any(Filtered::changes_length);
        let length = if changes { self.response.body_changes(length) } else { length };
        if !length.is_empty() {
            match self.filter_response(&mut origin, filters, changes).await {
                Ok(filter) => self.download.filter = Some(filter),
                Err(error) => {
                    self.drop_response(origin, length);
                    return Step::Failed(error);
                }
            }
        }
        Step::Head(origin, length)
    }

    /// Puts filters before the response's body, and has them take what is at hand of it: where their memory is refused, which decoders
    /// only know once they have seen how a body begins, the client gets an error instead of the head of a response that breaks off.
    async fn filter_response(
        &mut self,
        origin: &mut Origin,
        filters: Vec<Filtered>,
        changes: bool,
    ) -> Result<Box<Filter>, Error> {
        let (memory, account) = (&self.proxy.filter_memory, self.account());
        let filter = Filter::new(chain(filters), memory.share(account)).map_err(|_| Error::FilterMemory)?;
        let mut filter = Box::new(filter.begins_soon());
        filter.rewrites = changes;
        let until = memory.is_felt(account).then(|| clock::now() + BEGINS_WITHIN);
        poll_fn(|cx| self.poll_begin(cx, origin, &mut filter, until)).await?;
        Ok(filter)
    }

    /// Has filters take the first piece of the response's body, which is waited for at most `until`.
    fn poll_begin(
        &mut self,
        cx: &mut Context<'_>,
        origin: &mut Origin,
        filter: &mut Filter,
        until: Option<Instant>,
    ) -> Poll<Result<(), Error>> {
        match self.download.poll_begin(cx, filter, &mut origin.link) {
            Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
            Poll::Ready(Err(error)) => {
                self.count_filters(filter);
                return Poll::Ready(Err(Error::of_download(error)));
            }
            Poll::Pending => {}
        }
        let Some(until) = until else { return Poll::Ready(Ok(())) };
        self.poll_upload(cx, origin)?;
        if let Poll::Ready(error) = self.client.poll_abandoned(cx, self.timer) {
            return Poll::Ready(Err(Error::Client(error)));
        }
        self.timer.poll(cx, until).map(Ok)
    }

    /// Sends the head of what the client gets from the origin.
    pub(super) async fn head(&mut self, origin: Origin, length: BodyLength) -> Step {
        if let Err(error) = self.room().await {
            return self.give_up(origin, error);
        }
        self.log_first().await;
        match length {
            BodyLength::Tunnel => self.open_tunnel(origin),
            length => self.send_final(origin, length),
        }
    }

    /// Waits until the client's connection has room for a head: without, those of its streams would pile up where it does not read.
    pub(super) async fn room(&mut self) -> Result<(), Error> {
        let since = clock::now();
        poll_fn(|cx| {
            if self.client.link.poll_room(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            if let Poll::Ready(error) = self.client.poll_abandoned(cx, self.timer) {
                return Poll::Ready(Err(Error::Client(error)));
            }
            let stall = self.config.settings.timeouts.write_stall;
            let moved_at = self.client.link.left_at().map_or(since, |at| at.max(since));
            self.timer.poll(cx, moved_at + stall).map(|()| Err(Error::WriteStall))
        })
        .await
    }

    fn send_final(&mut self, origin: Origin, length: BodyLength) -> Step {
        let may_have_trailers = length == BodyLength::Chunked || origin.link.is_h2();
        let sweep = if may_have_trailers { self.sweep() } else { None };
        self.download.sweep(sweep);
        let (head, status) = (self.request.head.method == Method::Head, self.response.status);
        // A 204 has no length, whatever was asked for (RFC 9110, section 8.6).
        let has_length = match status {
            304 => !self.plan().is_some_and(|plan| plan.changes_bodies()),
            _ => head && status != 204,
        };
        let headers = &mut self.response.headers;
        if has_length {
            foregate_wire::collapse_content_length(headers);
        } else {
            headers.remove(NameId::ContentLength);
        }
        if !headers.contains(NameId::Date) {
            // RFC 9110, section 6.6.1.
            headers.push_id(NameId::Date, &date());
        }
        if self.body_may_not_come() {
            self.client.close = true;
            self.upload.give_up();
        }
        if let Err(error) = self.begin_response(length) {
            return self.give_up(origin, Error::Client(error));
        }
        Step::Body(origin)
    }

    /// Whether the client was never told to go on, so that it is not known whether its body will come.
    pub(super) fn body_may_not_come(&self) -> bool {
        self.request.expect_continue && (!self.upload.is_done() || self.upload.gave_up())
    }

    /// Ends an exchange that cannot go on, and the origin's connection with it.
    pub(super) fn give_up(&self, origin: Origin, error: Error) -> Step {
        self.drop_origin(origin, &error);
        Step::Broken(error)
    }

    /// Ends the origin's part in an exchange that has failed.
    pub(super) fn drop_origin(&self, mut origin: Origin, error: &Error) {
        if let Some(upstream) = self.upstream {
            origin.gave_up(error, &upstream.settings);
        }
        origin.link.abort();
    }

    /// To which protocols the client has to switch: the origin must say so with 426 (RFC 9110, section 15.5.22), and the client can only ask
    /// for it over HTTP/1.1.
    fn required_upgrade(&self) -> Option<Vec<u8>> {
        let can_switch =
            matches!(self.client.link, Link::H1(_)) && self.request.head.version == Version::Http11;
        let is_required = self.response.status == 426 && can_switch;
        is_required.then(|| connection::upgrade(&self.response.headers).map(<[u8]>::to_vec)).flatten()
    }

    /// Sends the head of the final response.
    pub(super) fn begin_response(&mut self, length: BodyLength) -> Result<(), LinkError> {
        self.record.status = Some(match (&self.client.link, self.response.status) {
            // What agrees to an upgrade there (RFC 8441, section 5).
            (Link::Client(_), 101) => 200,
            (_, status) => status,
        });
        if self.proxy.is_draining() || self.client.close_soon {
            self.client.close = true;
        }
        self.response.count();
        self.client.send_head(self.request, self.response, length)
    }

    /// Moves the bodies.
    pub(super) async fn transfer(&mut self, mut origin: Origin) -> Step {
        self.progress.restart(clock::now());
        loop {
            let moved = poll_fn(|cx| self.poll_transfer(cx, &mut origin)).await;
            let answered = match moved {
                Ok(None) => break,
                Ok(Some(question)) => Box::pin(self.fetch_for_filter(question)).await,
                Err(error) => Err(error),
            };
            if let Err(error) = answered {
                return self.give_up(origin, error);
            }
            self.progress.restart(clock::now());
        }
        if self.upload.is_done() && !self.upload.gave_up() {
            if let Some(upstream) = self.upstream {
                upstream.recycle(origin, clock::now());
            }
        } else if origin.link.is_h2() {
            origin.link.abort();
        }
        Step::Done
    }

    /// Fetches what a filter of the response needs; the body waits.
    async fn fetch_for_filter(&mut self, question: FetchRequest) -> Result<(), Error> {
        let step = self.download.filter.as_ref().map_or("", |filter| filter.asking());
        let answer = self.fetch_one(step, question).await.map_err(Error::Client)?;
        let Some(filter) = &mut self.download.filter else { return Ok(()) };
        filter.answer(answer).map_err(Error::of_download)
    }

    /// Moves what is left of the request's body while the response is on its way.
    pub(super) fn poll_upload(&mut self, cx: &mut Context<'_>, origin: &mut Origin) -> Result<(), Error> {
        if self.upload.is_done() {
            return Ok(());
        }
        let moved = self.upload.poll(cx, &mut self.client.link, &mut origin.link);
        self.progress.observe_given(self.upload.sent, clock::now());
        let Poll::Ready(Err(error)) = moved else { return Ok(()) };
        self.upload_failed(error).inspect_err(|_| {
            self.client.close = true;
            self.upload.give_up();
        })
    }

    /// Moves bodies, until both have been, or a filter has a question.
    fn poll_transfer(
        &mut self,
        cx: &mut Context<'_>,
        origin: &mut Origin,
    ) -> Poll<Result<Option<FetchRequest>, Error>> {
        let uploaded = self.poll_upload(cx, origin);
        let downloaded = self.download.poll(cx, &mut origin.link, &mut self.client.link);
        if self.download.is_done() && matches!(downloaded, Poll::Ready(Ok(()))) {
            // A response that is there as a whole is the client's, whatever has become of its request.
            return Poll::Ready(Ok(None));
        }
        uploaded?;
        if self.upload.gave_up() {
            self.client.drop_body(cx, self.config.settings.limits.early_response_drain);
        }
        if let Poll::Ready(Err(error)) = downloaded {
            return Poll::Ready(Err(Error::of_download(error)));
        }
        if let Some(question) = self.download.question() {
            return Poll::Ready(Ok(Some(question)));
        }
        let now = clock::now();
        if self.client.unwatched_until(now).is_none()
            && let Poll::Ready(error) = self.client.poll_abandoned(cx, self.timer)
        {
            return Poll::Ready(Err(Error::Client(error)));
        }
        self.progress.observe(self.upload.moved, self.download.progress(), now);
        let down = match self.download.waiting {
            Waiting::Sink => Awaited::ClientRead,
            // While the origin still takes a body it may well have nothing to say, and a client that has its answer (gRPC's streams
            // in both directions) need not either: the least rate is for requests that are not answered yet.
            _ if self.upload.waiting == Waiting::Source => Awaited::EitherBody,
            _ => Awaited::OriginBody,
        };
        match self.upload.waiting {
            Waiting::Sink => self.poll_deadline(cx, &[down, Awaited::OriginRead], now).map_ok(|()| None),
            _ => self.poll_deadline(cx, &[down], now).map_ok(|()| None),
        }
    }
}

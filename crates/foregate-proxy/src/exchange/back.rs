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
use crate::time::clock;
use crate::upstream::Origin;

/// How long a response whose filters may be refused their memory waits for the first piece of its body before its head is sent.
const BEGINS_WITHIN: Duration = Duration::from_secs(1);

impl Exchange<'_> {
    /// Makes the response what the client shall see.
    pub(super) fn take_response(&mut self, origin: Origin, length: BodyLength) -> Step {
        if length == BodyLength::Tunnel {
            return self.agree_on_tunnel(origin);
        }
        let extended = self.request.upgrade.is_some() && self.down.client.link.is_h2();
        if extended && (200..300).contains(&self.response.status) {
            // To the client a 2xx would say that the tunnel is open (RFC 8441, section 5).
            return Step::Failed(Error::NoUpgrade);
        }
        self.down.download.leave_out(connection::named_options(&self.response.headers));
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
            self.down.download.front = Front::new(bytes, run.facts.response_share.take());
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
                Ok(filter) => self.down.download.filter = Some(filter),
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
        match self.down.download.poll_begin(cx, filter, &mut origin.link) {
            Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
            Poll::Ready(Err(error)) => {
                self.count_filters(filter);
                return Poll::Ready(Err(Error::of_download(error)));
            }
            Poll::Pending => {}
        }
        let Some(until) = until else { return Poll::Ready(Ok(())) };
        self.poll_upload(cx, origin)?;
        if let Poll::Ready(error) = self.down.poll_gone(cx) {
            return Poll::Ready(Err(error));
        }
        self.down.timer.poll(cx, until).map(Ok)
    }

    /// Sends the head of what the client gets from the origin.
    pub(super) async fn head(&mut self, origin: Origin, length: BodyLength) -> Step {
        if let Err(error) = self.down.room().await {
            return self.give_up(origin, error);
        }
        self.log_first().await;
        match length {
            BodyLength::Tunnel => self.open_tunnel(origin),
            length => self.send_final(origin, length),
        }
    }

    fn send_final(&mut self, origin: Origin, length: BodyLength) -> Step {
        let may_have_trailers = length == BodyLength::Chunked || origin.link.is_h2();
        let sweep = if may_have_trailers { self.sweep() } else { None };
        self.down.download.sweep(sweep);
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
            self.down.client.close = true;
            self.down.upload.give_up();
        }
        if let Err(error) = self.begin_response(length) {
            return self.give_up(origin, Error::Client(error));
        }
        Step::Body(origin)
    }

    /// Whether the client was never told to go on, so that it is not known whether its body will come.
    pub(super) fn body_may_not_come(&self) -> bool {
        self.request.expect_continue && (!self.down.upload.is_done() || self.down.upload.gave_up())
    }

    /// Ends an exchange that cannot go on, and the origin's connection with it.
    pub(super) fn give_up(&self, origin: Origin, error: Error) -> Step {
        self.drop_origin(origin, &error);
        Step::Broken(error)
    }

    /// Ends the origin's part in an exchange that has failed.
    pub(super) fn drop_origin(&self, mut origin: Origin, error: &Error) {
        if let Some(upstream) = self.upstream() {
            origin.gave_up(error, &upstream.settings);
        }
        origin.link.abort();
    }

    /// To which protocols the client has to switch: the origin must say so with 426 (RFC 9110, section 15.5.22), and the client can only ask
    /// for it over HTTP/1.1.
    fn required_upgrade(&self) -> Option<Vec<u8>> {
        let can_switch =
            matches!(self.down.client.link, Link::H1(_)) && self.request.head.version == Version::Http11;
        let is_required = self.response.status == 426 && can_switch;
        is_required.then(|| connection::upgrade(&self.response.headers).map(<[u8]>::to_vec)).flatten()
    }

    /// Sends the head of the final response.
    pub(super) fn begin_response(&mut self, length: BodyLength) -> Result<(), LinkError> {
        self.record.status = Some(match (&self.down.client.link, self.response.status) {
            // What agrees to an upgrade there (RFC 8441, section 5).
            (Link::Client(_), 101) => 200,
            (_, status) => status,
        });
        if self.proxy.is_draining() || self.down.client.close_soon {
            self.down.client.close = true;
        }
        self.response.count();
        self.down.client.send_head(self.request, self.response, length)
    }

    /// Moves the bodies.
    pub(super) async fn transfer(&mut self, mut origin: Origin) -> Step {
        self.down.progress.restart(clock::now());
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
            self.down.progress.restart(clock::now());
        }
        if self.down.upload.is_done() && !self.down.upload.gave_up() {
            if let Some(upstream) = self.upstream() {
                upstream.recycle(origin, clock::now());
            }
        } else if origin.link.is_h2() {
            origin.link.abort();
        }
        Step::Done
    }

    /// Fetches what a filter of the response needs; the body waits.
    async fn fetch_for_filter(&mut self, question: FetchRequest) -> Result<(), Error> {
        let step = self.down.download.filter.as_ref().map_or("", |filter| filter.asking());
        let answer = self.fetch_one(step, question).await.map_err(Error::Client)?;
        let Some(filter) = &mut self.down.download.filter else { return Ok(()) };
        filter.answer(answer).map_err(Error::of_download)
    }

    /// Moves what is left of the request's body while the response is on its way.
    pub(super) fn poll_upload(&mut self, cx: &mut Context<'_>, origin: &mut Origin) -> Result<(), Error> {
        self.down.poll_upload(cx, &mut origin.link).inspect_err(|_| {
            self.down.client.close = true;
            self.down.upload.give_up();
        })
    }

    /// Moves bodies, until both have been, or a filter has a question.
    fn poll_transfer(
        &mut self,
        cx: &mut Context<'_>,
        origin: &mut Origin,
    ) -> Poll<Result<Option<FetchRequest>, Error>> {
        let uploaded = self.poll_upload(cx, origin);
        let downloaded = self.down.download.poll(cx, &mut origin.link, &mut self.down.client.link);
        if self.down.download.is_done() && matches!(downloaded, Poll::Ready(Ok(()))) {
            // A response that is there as a whole is the client's, whatever has become of its request.
            return Poll::Ready(Ok(None));
        }
        uploaded?;
        if self.down.upload.gave_up() {
            self.down.client.drop_body(cx, self.config.settings.limits.early_response_drain);
        }
        if let Poll::Ready(Err(error)) = downloaded {
            return Poll::Ready(Err(Error::of_download(error)));
        }
        if let Some(question) = self.down.download.question() {
            return Poll::Ready(Ok(Some(question)));
        }
        let now = clock::now();
        if let Poll::Ready(error) = self.down.poll_gone_at(cx, now) {
            return Poll::Ready(Err(error));
        }
        self.down.progress.observe(self.down.upload.moved, self.down.download.progress(), now);
        let down = match self.down.download.waiting {
            Waiting::Sink => Awaited::ClientRead,
            // While the origin still takes a body it may well have nothing to say, and a client that has its answer (gRPC's streams
            // in both directions) need not either: the least rate is for requests that are not answered yet.
            _ if self.down.upload.waiting == Waiting::Source => Awaited::EitherBody,
            _ => Awaited::OriginBody,
        };
        let Some(upstream) = self.upstream() else { return Poll::Pending };
        let awaited = match self.down.upload.waiting {
            Waiting::Sink => &[down, Awaited::OriginRead][..],
            _ => &[down],
        };
        self.down.poll_deadline(cx, &upstream.settings, awaited, now).map_ok(|()| None)
    }
}

//! Sending a reply to the client, whoever has made it.

use std::future::poll_fn;
use std::task::{Context, Poll};

use foregate_module::FetchRequest;
use foregate_wire::{BodyLength, Method, NameId};

use super::progress::Awaited;
use super::reply::{Source, date};
use super::{Exchange, Step};
use crate::error::Error;
use crate::link::copy::{Copy, Waiting};
use crate::link::start::Front;
use crate::link::{Link, LinkError};
use crate::time::clock;
use crate::upstream::Origin;

impl Exchange<'_> {
    /// Sends the head of the response.
    pub(super) async fn send(&mut self, source: Source) -> Step {
        if let Err(error) = self.down.room().await {
            return self.give_up(source.origin(), error);
        }
        self.log_first().await;
        match source {
            Source::Origin(origin, BodyLength::Tunnel) => self.open_tunnel(origin),
            source => self.begin_body(source),
        }
    }

    fn begin_body(&mut self, source: Source) -> Step {
        let (head, status) = (self.request.head.method == Method::Head, self.response.status);
        let (origin, length) = match source {
            Source::Origin(origin, length) => {
                let may_have_trailers = length == BodyLength::Chunked || origin.link.is_h2();
                let sweep = if may_have_trailers { self.sweep() } else { None };
                self.down.download.sweep(sweep);
                (Some(origin), length)
            }
            Source::Bytes(body) => {
                let (length, bodiless) = (body.len() as u64, head || matches!(status, 204 | 304));
                self.response.headers.set(NameId::ContentLength, length.to_string().as_bytes());
                self.down.download = Copy::new();
                self.down.download.front = Front::new(body, None).filter(|_| !bodiless);
                (None, if bodiless { BodyLength::Empty } else { BodyLength::Fixed(length) })
            }
        };
        // A 204 has no length, whatever was asked for (RFC 9110, section 8.6).
        let has_length = match status {
            304 => origin.is_some() && !self.plan().is_some_and(|plan| plan.changes_bodies()),
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
        let may_not_come = self.body_may_not_come();
        self.down.client.close |= may_not_come;
        if may_not_come || origin.is_none() && !self.down.upload.is_done() {
            self.down.upload.give_up();
        }
        match self.send_head(length) {
            Ok(()) => Step::Body(origin),
            Err(error) => self.give_up(origin, Error::Client(error)),
        }
    }

    /// Whether the client was never told to go on, so that it is not known whether its body will come.
    fn body_may_not_come(&self) -> bool {
        self.request.expect_continue && (!self.down.upload.is_done() || self.down.upload.gave_up())
    }

    /// Sends the head of the final response.
    pub(super) fn send_head(&mut self, length: BodyLength) -> Result<(), LinkError> {
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

    /// Ends an exchange that cannot go on, and the origin's connection with it.
    pub(super) fn give_up(&self, origin: Option<Origin>, error: Error) -> Step {
        if let Some(origin) = origin {
            self.drop_origin(origin, &error);
        }
        Step::Broken(error)
    }

    /// Ends the origin's part in an exchange that has failed.
    pub(super) fn drop_origin(&self, mut origin: Origin, error: &Error) {
        if let Some(upstream) = self.upstream() {
            origin.gave_up(error, &upstream.settings);
        }
        origin.link.abort();
    }

    /// Moves the bodies: that of the response from an origin, or what is at hand of it.
    pub(super) async fn transfer(&mut self, mut origin: Option<Origin>) -> Step {
        self.down.progress.restart(clock::now());
        loop {
            let moved = poll_fn(|cx| self.poll_transfer(cx, origin.as_mut())).await;
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
        let Some(mut origin) = origin else { return Step::Done };
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
        mut origin: Option<&mut Origin>,
    ) -> Poll<Result<Option<FetchRequest>, Error>> {
        let uploaded = origin.as_deref_mut().map_or(Ok(()), |origin| self.poll_upload(cx, origin));
        let source = origin.map(|origin| &mut origin.link);
        let downloaded = self.down.download.poll(cx, source, &mut self.down.client.link);
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
        let awaited = match self.down.upload.waiting {
            Waiting::Sink => &[down, Awaited::OriginRead][..],
            _ => &[down],
        };
        let upstream = self.upstream().map(|upstream| &*upstream.settings);
        self.down.poll_deadline(cx, upstream, awaited, now).map_ok(|()| None)
    }
}

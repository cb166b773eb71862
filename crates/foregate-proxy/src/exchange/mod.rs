//! The life of a request: one table of steps and one loop, the same for HTTP/1 and HTTP/2.

mod ask;
mod asked;
mod away;
mod bodies;
mod cached;
pub mod client;
mod compare;
mod downstream;
mod fallback;
pub(crate) mod fetch;
mod files;
mod heavy;
mod inner;
mod inspect;
mod length;
mod limit;
mod log;
mod log_first;
mod mirror;
mod modules;
mod moved;
mod open_spans;
mod outcome;
mod parts;
mod prepare;
mod progress;
mod received;
mod record;
mod refused;
mod replay;
mod reply;
mod route;
mod run;
mod screen;
mod send;
mod shape;
mod shield;
mod shielded;
mod spans;
mod state;
mod tap;
mod transfer;
mod tunnel;
mod view;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use futures_util::FutureExt;

use self::client::Peer;
use self::heavy::call_back;
use self::inner::end_inner;
use self::limit::RequestPasses;
use self::log_first::log_first;
use self::mirror::Mirrored;
pub use self::outcome::Outcome;
use self::refused::show_refused;
use self::reply::Reply;
pub use self::state::ServedRequest;
use self::state::{Exchange, Step};
use crate::error::Error;
use crate::limits::pressure::{self, Shortage};
use crate::link::{Link, LinkError};
use crate::message::request::Request;
use crate::message::scratch::Unserved;
use crate::time::clock;
use crate::upstream::Origin;

/// Logs an exchange if its task is dropped before the exchange ends, which happens when the process ends.
impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if !self.record.logged && !std::thread::panicking() {
            self.record.error = Some(Error::Shutdown);
            // If a step still waits for a thread, its state is taken back for the log.
            call_back(self);
            end_inner(self);
            // If the response is framed by the end of the connection, an ordinary close would make it look complete.
            if let Link::H1(link) = &mut self.down.client.link {
                link.abort();
            }
            // A panic of a step cannot be reported to the client any more.
            let _ = catch_unwind(AssertUnwindSafe(|| log::run(self)));
        }
    }
}

/// Admission control for a request; `understood` is the result of parsing it. From here on its head counts for its
/// client, so that a client that begins many requests at once is checked for each of them.
///
/// # Errors
///
/// The request is refused, and [`serve`] answers the client. A refusal for want of memory has been counted.
pub fn admit(request: &mut Request, peer: &Peer, understood: Result<(), Error>) -> Result<(), Unserved> {
    let client = peer.holdings.as_ref();
    if let Some(client) = client {
        request.belongs_to(client);
    }
    understood.map_err(Unserved::Malformed)?;
    pressure::admit(client).map_err(|Shortage| Unserved::NotAdmitted(Error::Memory))
}

/// Serves a request, or answers it with the reason for its refusal.
///
/// A panic ends only this request: it is counted, and the client gets a 500 if its response has not begun.
pub fn serve(served: ServedRequest<'_>, admitted: Result<(), Unserved>) -> impl Future<Output = Outcome> {
    // Made here and not within the future, which would reserve room for it twice.
    let mut exchange = Exchange::new(served);
    exchange.record.error = match admitted {
        Ok(()) => None,
        Err(Unserved::NotAdmitted(error)) => Some(error),
        Err(Unserved::Malformed(error)) => {
            exchange.record.refused = Some(error);
            Some(error)
        }
    };
    async move {
        let first = exchange.record.error.map_or(Step::Route, Step::Failed);
        let driven = {
            let mut drive = pin!(exchange.drive(first));
            // `FutureExt::catch_unwind` would copy the future.
            poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| drive.as_mut().poll(cx))) {
                Ok(polled) => polled.map(Ok),
                Err(panic) => Poll::Ready(Err(panic)),
            })
            .await
        };
        match driven {
            Ok(outcome) => outcome,
            Err(_) => {
                exchange.proxy.metrics.panics.inc();
                exchange.ask = None;
                exchange.down.client.close = true;
                call_back(&mut exchange);
                end_inner(&mut exchange);
                match AssertUnwindSafe(exchange.drive(Step::Failed(Error::Internal))).catch_unwind().await {
                    Ok(outcome) => outcome,
                    Err(_) => {
                        exchange.proxy.metrics.panics.inc();
                        exchange.down.client.abort();
                        Outcome::Abort
                    }
                }
            }
        }
    }
}

/// Logs a request that got only a reset of its stream, and shows it to the steps that read refused
/// requests.
pub async fn refuse(served: ServedRequest<'_>, error: Error) {
    let mut exchange = Exchange::new(served);
    // On a failed connection there would have been no response, and so no status.
    exchange.record.status = (error != Error::Client(LinkError::H2)).then(|| error.status());
    exchange.record.error = Some(error);
    exchange.record.refused = Some(error);
    if AssertUnwindSafe(show_refused(&mut exchange, error)).catch_unwind().await.is_err() {
        exchange.proxy.metrics.panics.inc();
        exchange.modules.run = None;
    }
    log::run(&mut exchange);
    exchange.shelve_run();
}

impl<'a> Exchange<'a> {
    #[expect(clippy::manual_async_fn, reason = "an async function would hold room for the step twice")]
    fn drive(&mut self, mut step: Step) -> impl Future<Output = Outcome> {
        async move {
            let outcome = loop {
                spans::begin_work(self, &step);
                let next = match step {
                    Step::Route => route::run(self).await,
                    Step::Screen => screen::run(self).await,
                    // In a future of its own, because it is large and most requests do not need it.
                    Step::Files { folder, upstream } => Box::pin(files::run(self, folder, upstream)).await,
                    Step::Prepare(upstream) => prepare::run(self, upstream).await,
                    Step::Cached(upstream) => Box::pin(cached::run(self, upstream)).await,
                    Step::Ask => ask::run(self).await,
                    Step::Reply(reply) => Ok(shape::place_reply(self, *reply)),
                    Step::Shape(source) => shape::run(self, source).await,
                    Step::Send(source) => send::run(self, source).await,
                    Step::Transfer(origin) => transfer::run(self, origin).await,
                    // In a future of its own, too, because a tunnel lasts long and should not hold memory for the other steps.
                    Step::Tunnel(origin) => Ok(Box::pin(tunnel::run(self, origin, None)).await),
                    Step::TunnelOn(begun) => Ok(Box::pin(tunnel::run(self, begun.0, Some(begun.1))).await),
                    Step::Failed(error) => Ok(self.failed(error)),
                    Step::Broken(error) => {
                        self.record.error = Some(error);
                        if error == Error::WriteStall {
                            // Unread output would stay in the system's memory for minutes.
                            self.down.client.link.reset_on_close();
                        }
                        log_first(self).await;
                        self.down.client.abort();
                        break Outcome::Abort;
                    }
                    Step::Done if self.down.client.close => break Outcome::Close,
                    Step::Move(rest) => {
                        moved::move_out(self, *rest);
                        return Outcome::Moved;
                    }
                    Step::Done => break Outcome::Reusable,
                };
                spans::end_work(self);
                step = next.unwrap_or_else(Step::from);
            };
            if self.record.mirrors {
                self.send_copy_when_due(true);
            }
            if let Some(error) = self.record.refused {
                Box::pin(show_refused(self, error)).await;
            }
            if let Some(tapped) = self.rare.watched.as_mut().and_then(|watched| watched.tapped.take()) {
                replay::begin(tapped);
            }
            log::run(self);
            self.shelve_run();
            outcome
        }
    }

    /// Counts the request among the requests in flight, if their number is bounded. A request that goes to an upstream for
    /// the second time is already counted.
    async fn take_passes(&mut self) -> Result<(), Error> {
        if self.config.limits_requests() && self.rare.passes.is_none() && self.down.peer.replay.is_none() {
            let listener = self.down.peer.listen.as_ref().map(|listen| &listen.address);
            let (account, of) = (self.account(), (listener, self.routed.site));
            // Rare, and large: kept out of the future that every request has.
            let take = Box::pin(RequestPasses::take(self.proxy, self.config, account, of, &mut self.down));
            self.rare.passes = Some(take.await?);
        }
        Ok(())
    }

    /// Sends a copy of the request to the mirror of its route, if the whole request was sent to its own origin or the
    /// exchange is over.
    fn send_copy_when_due(&mut self, is_over: bool) {
        let (request, upload) = (&*self.request, &self.down.upload);
        if !self.record.mirrors || !is_over && !mirror::is_due(request, upload) {
            return;
        }
        self.record.mirrors = false;
        let Some(mirror) = self.routed.mirror() else { return };
        let Some(upstream) = self.config.upstreams.get(mirror.upstream) else { return };
        let (addresses, account, memory) =
            (self.down.peer.addresses, self.account(), &self.proxy.filter_memory);
        mirror::begin(&Mirrored { upstream, request, upload, addresses, account, memory }, mirror);
    }

    /// Returns the origin's connection to the pool: the whole response has been received ahead of the client.
    fn origin_is_free(&mut self, origin: Origin, used_file: bool) {
        let metrics = &self.proxy.metrics;
        metrics.responses_buffered.inc();
        if used_file {
            metrics.responses_buffered_in_files.inc();
        }
        if let Some(ask) = &mut self.ask {
            ask.leave();
            ask.upstream.connections.recycle(origin, clock::now());
        }
    }

    /// The reply for `error`.
    fn failed(&mut self, error: Error) -> Step {
        self.record.error = Some(error);
        // The reply comes from this proxy, so the old proxy's bytes are not passed on.
        self.request.verbatim = None;
        if self.down.client.head_sent {
            return Step::Broken(error);
        }
        let client_is_gone = matches!(error, Error::Client(LinkError::Io(_)))
            || matches!(error, Error::Client(LinkError::Reset(_) | LinkError::CutOff))
            || matches!(error, Error::Client(LinkError::Truncated));
        if client_is_gone {
            return Step::Broken(error);
        }
        if error.status() == 400 || error.status() == 408 || matches!(error, Error::RequestFraming(_)) {
            self.down.client.close = true;
        }
        Step::Reply(Box::new(Reply::error(&error)))
    }
}

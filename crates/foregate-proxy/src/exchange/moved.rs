//! Exchanges of a version that has handed over, which go on with a slim configuration.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use foregate_module::PhaseId;
use futures_util::FutureExt;

use super::client::{MovedEnds, MovedRequest};
use super::downstream::Downstream;
use super::inner::end_inner;
use super::limit::RequestPasses;
use super::open_spans::ExchangeSpans;
use super::outcome::Outcome;
use super::progress::Progress;
use super::record::LogRecord;
use super::run::Run;
use super::state::{Exchange, Modules, RoutePlace, Step};
use crate::link::Link;
use crate::link::copy::BodyCopy;
use crate::proxy::Config;
use crate::proxy::slim::{RestOfExchange, SlimConfig};
use crate::settings::RouteTimeouts;
use crate::telemetry::live::LiveTicket;
use crate::time::clock;
use crate::upstream::PausedAsk;

/// The rest of an exchange, which borrows nothing.
struct MovedExchange {
    slim: Arc<SlimConfig>,
    step: Step,
    ask: Option<PausedAsk>,
    run: Option<Box<Run>>,
    passes: Option<Box<RequestPasses>>,
    record: LogRecord,
    spans: Option<Box<ExchangeSpans>>,
    ticket: Option<Box<LiveTicket>>,
    timeouts: Option<RouteTimeouts>,
    total: Option<Instant>,
    upload: BodyCopy,
    download: BodyCopy,
    progress: Progress,
}

impl fmt::Debug for MovedExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MovedExchange").field("record", &self.record).finish_non_exhaustive()
    }
}

impl MovedRequest for MovedExchange {
    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.slim.config)
    }

    fn go_on<'a>(self: Box<Self>, ends: MovedEnds<'a>) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'a>> {
        Box::pin(go_on(self, ends))
    }
}

impl Exchange<'_> {
    /// Returns true if a slim configuration suffices for the rest of the exchange. An HTTP/1 connection that may bring another request needs the full
    /// one.
    pub(super) fn may_move(&self) -> bool {
        let client = &*self.down.client;
        let is_last = !matches!(client.link, Link::H1(_)) || client.close;
        client.may_move
            && is_last
            && self.cached.is_none()
            && self.watched.is_none()
            && self.detour.is_none()
            && self.modules.away.is_none()
            && self.modules.outer.is_none()
            && !self.has_filters()
            && !self.record.mirrors
    }

    /// Hands the rest of the exchange to its client, to be continued with `step`. This exchange ends without a line in the log.
    pub(super) fn move_out(&mut self, step: Step) {
        let now = clock::now();
        let plan = self.plan().filter(|plan| plan.has_any(PhaseId::Log, PhaseId::Log));
        let slim = self.proxy.shedding.slim(RestOfExchange {
            config: self.config,
            site: self.routed.site,
            route: self.routed.route,
            plan,
            upstream: self.upstream(),
        });
        let record = std::mem::replace(&mut self.record, LogRecord::new(now));
        self.record.logged = true;
        let moved = MovedExchange {
            slim,
            step,
            ask: self.ask.take().map(PausedAsk::from),
            run: self.modules.run.take(),
            passes: self.passes.take(),
            record,
            spans: self.spans.take(),
            ticket: self._ticket.take(),
            timeouts: self.down.route_timeouts.copied(),
            total: self.down.total,
            upload: std::mem::replace(&mut self.down.upload, BodyCopy::done()),
            download: std::mem::replace(&mut self.down.download, BodyCopy::done()),
            progress: std::mem::replace(&mut self.down.progress, Progress::new(now)),
        };
        self.down.client.moved = Some(Box::new(Box::new(moved)));
    }
}

/// Serves the rest of an exchange that ended with [`Outcome::Moved`].
async fn go_on(moved: Box<MovedExchange>, ends: MovedEnds<'_>) -> Outcome {
    let MovedEnds { proxy, peer, client, request, response, timer } = ends;
    client.may_move = false;
    let MovedExchange {
        slim,
        step,
        ask,
        run,
        passes,
        record,
        spans,
        ticket,
        timeouts,
        total,
        upload,
        download,
        progress,
    } = *moved;
    let mut exchange = Exchange {
        proxy,
        config: &slim.config,
        peer,
        request,
        response,
        down: Downstream {
            client,
            timer,
            timeouts: &slim.config.settings.timeouts,
            route_timeouts: timeouts.as_ref(),
            total,
            upload,
            download,
            progress,
        },
        routed: RoutePlace { site: slim.site, route: slim.route.as_ref() },
        ask: ask.zip(slim.upstream.as_ref()).map(|(ask, upstream)| ask.resume(upstream, &peer.addresses)),
        cached: None,
        modules: Modules { plan: slim.plan.as_ref(), run, away: None, outer: None },
        passes,
        record,
        watched: None,
        detour: None,
        spans,
        _ticket: ticket,
    };
    match AssertUnwindSafe(exchange.drive(step)).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_) => {
            exchange.proxy.metrics.panics.inc();
            end_inner(&mut exchange);
            exchange.down.client.abort();
            Outcome::Abort
        }
    }
}

//! Exchanges that continue with a slim configuration, after the process has handed over to a new version.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use foregate_module::PhaseId;
use futures_util::FutureExt;

use super::cached::part::CachePart;
use super::client::{MovedEnds, MovedRequest};
use super::downstream::Downstream;
use super::inner::end_inner;
use super::limit::RequestPasses;
use super::open_spans::ExchangeSpans;
use super::outcome::Outcome;
use super::progress::Progress;
use super::record::LogRecord;
use super::run::Run;
use super::state::{Exchange, Modules, RareParts, RoutePlace, Step};
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
    cached: Option<Box<CachePart>>,
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

/// Stores the rest of the exchange in its client, to be continued with `step`. The exchange itself then ends without
/// a log line.
pub(super) fn move_out(exchange: &mut Exchange<'_>, step: Step) {
    let now = clock::now();
    let plan = exchange.plan().filter(|plan| plan.has_any(PhaseId::Log, PhaseId::Log));
    let slim = exchange.proxy.shedding.slim(RestOfExchange {
        config: exchange.config,
        site: exchange.routed.site,
        route: exchange.routed.route,
        plan,
        upstream: exchange.upstream(),
    });
    let record = std::mem::replace(&mut exchange.record, LogRecord::new(now));
    exchange.record.logged = true;
    let moved = MovedExchange {
        slim,
        step,
        ask: exchange.ask.take().map(PausedAsk::from),
        run: exchange.modules.run.take(),
        cached: exchange.rare.cached.take(),
        passes: exchange.rare.passes.take(),
        record,
        spans: exchange.rare.spans.take(),
        ticket: exchange.rare.ticket.take(),
        timeouts: exchange.down.route_timeouts.copied(),
        total: exchange.down.total,
        upload: std::mem::replace(&mut exchange.down.upload, BodyCopy::done()),
        download: std::mem::replace(&mut exchange.down.download, BodyCopy::done()),
        progress: std::mem::replace(&mut exchange.down.progress, Progress::new(now)),
    };
    exchange.down.client.moved = Some(Box::new(Box::new(moved)));
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
        cached,
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
        request,
        response,
        down: Downstream {
            peer,
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
        modules: Modules { plan: slim.plan.as_ref(), run, away: None, outer: None },
        record,
        rare: RareParts { cached, passes, spans, ticket, ..RareParts::default() },
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

//! Routing: which site and which route a request belongs to.

use std::sync::atomic::Ordering;

use foregate_wire::{BodyLength, Method, Slashes};

use super::length::settle_length;
use super::screen::dispatch;
use super::{Exchange, Next, Step};
use crate::error::Error;

/// Finds the site and the route.
pub(super) async fn run(exchange: &mut Exchange<'_>) -> Next {
    let host = exchange.request.host().as_bytes();
    let acceptor =
        exchange.peer.tls.as_ref().map(|(info, listen)| (info, exchange.config.acceptor(&listen.address)));
    let covered = acceptor.is_none_or(|(info, acceptor)| match acceptor {
        Some(acceptor) => acceptor.covers(info, host),
        // The last requests of a listener that is no more in the configuration.
        None => info.sni.as_ref().is_none_or(|sni| sni.as_bytes() == host),
    });
    if !covered {
        if acceptor.is_some_and(|(info, acceptor)| acceptor.is_some_and(|acceptor| !acceptor.holds(info))) {
            exchange.peer.outdated.store(true, Ordering::Relaxed);
            exchange.down.client.close = true;
        }
        return Err(Error::Misdirected.into());
    }
    let sites = &exchange.config.settings.sites;
    let Some(site) = sites.find(host) else {
        return unrouted(exchange, Error::NoRoute);
    };
    if acceptor.is_none_or(|(_, acceptor)| acceptor.is_none()) && sites.requires_certificate(site) {
        return Err(Error::Misdirected.into());
    }
    exchange.routed.site = Some(site);
    if sites.keeps_slashes(site)
        && let Err(error) = exchange.request.normalise(Slashes::Keep)
    {
        return unrouted(exchange, error);
    }
    let path = match exchange.request.path() {
        // A server-wide OPTIONS and CONNECT have no path; they belong to the site as a whole.
        b"*" | b"" => b"/",
        path => path,
    };
    let Ok(readings) = sites.readings(site, path) else {
        return unrouted(exchange, Error::AmbiguousPath);
    };
    let Some(route) = sites.route(site, path) else {
        return unrouted(exchange, Error::NoRoute);
    };
    let (limit, connects) = (route.body_limit, route.allow_connect);
    exchange.routed.route = Some(route);
    exchange.use_plan(route.plan.get());
    if let (Some(run), Some(readings)) = (&mut exchange.modules.run, readings) {
        run.facts.other_paths = Some(readings).into();
    }
    if exchange.request.head.method == Method::Connect && !connects {
        exchange.down.client.close = true;
        return Err(Error::ConnectNotAllowed.into());
    }
    if exchange.request.head.method == Method::Connect && exchange.down.client.link.has_more() {
        // Meant for a tunnel that nobody has agreed to yet.
        exchange.down.client.close = true;
        return Err(Error::EarlyTunnel.into());
    }
    limit_body_to(exchange, limit)?;
    let next = if exchange.modules.run.is_some() { Step::Screen } else { dispatch(exchange)? };
    settle_length(exchange, next).await
}

pub(super) fn limit_body_to(exchange: &mut Exchange<'_>, limit: Option<u64>) -> Result<(), Error> {
    let Some(limit) = limit else { return Ok(()) };
    exchange.down.upload.limit = exchange.down.upload.limit.min(limit);
    match exchange.request.length {
        BodyLength::Fixed(length) if length > exchange.down.upload.limit => Err(Error::BodyTooLarge),
        // Steps may have looked at more than a later one allows.
        _ if exchange.down.upload.moved > exchange.down.upload.limit => Err(Error::BodyTooLarge),
        _ => Ok(()),
    }
}

/// No route takes the request: the answer to it goes through the steps that hold for its site, or for all.
fn unrouted(exchange: &mut Exchange<'_>, error: Error) -> Next {
    let settings = &exchange.config.settings;
    let plan = match exchange.routed.site {
        Some(site) => &settings.sites.site(site).options.unrouted,
        None => &settings.unrouted,
    };
    exchange.use_plan(plan.get());
    Err(error.into())
}

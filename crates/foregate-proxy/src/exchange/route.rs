//! Routing: which site and which route a request belongs to. Conditions of routes are evaluated for
//! the request as the client has sent it.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foregate_wire::{BodyLength, Method, Slashes};

use super::asked::SentFields;
use super::compare::{self, Compared};
use super::fallback;
use super::length::settle_length;
use super::record::LoggedAction;
use super::reply::Reply;
use super::screen::dispatch;
use super::shield;
use super::state::{Detour, Exchange, Step, StepResult};
use super::tap;
use super::view::{Facts, View};
use crate::comparison::ID_FIELD;
use crate::error::Error;
use crate::link::start::KeptStart;
use crate::loops::{self, MARKER, TAP_MARKER};
use crate::routing::HostId;
use crate::settings::automatic::{Automatic, HTTP_CHALLENGE_PREFIX, http_challenge};
use crate::settings::{
    CompareMode, Fallback, FallbackReason, FixedResponse, Route, RouteConditions, UpstreamProtocol,
    share_bucket,
};
use crate::upstream::{Ask, OpeningTerms};

/// The longest answer to a challenge, bytes: a token, a dot and the digest of a key.
const CHALLENGE_MOST: u64 = 1024;

const HTTPS_PORT: u16 = 443;

/// Finds the site and the route.
pub(super) async fn run(exchange: &mut Exchange<'_>) -> StepResult {
    if let Some(automatic) = &exchange.config.settings.automatic
        && let Some(answer) = challenge(automatic, exchange.request.target.path())
    {
        return Ok(Step::Reply(Box::new(Reply::fixed(&answer))));
    }
    if let Some(tap) = exchange.down.peer.listen.as_ref().and_then(|listen| listen.tap.as_ref())
        && exchange.down.peer.replay.is_none()
    {
        // Rare: kept out of the future that every request has.
        return Box::pin(pass_tap(exchange, tap)).await;
    }
    if exchange.down.peer.listen.as_ref().is_some_and(|listen| listen.shield) {
        return Box::pin(shield::arrive(exchange)).await;
    }
    let host = exchange.request.authority.host().as_bytes();
    let peer = exchange.down.peer;
    let acceptor = peer.tls.as_ref().map(|info| {
        let listen = peer.listen.as_ref();
        (info, listen.and_then(|listen| exchange.config.acceptor(&listen.address)))
    });
    let covered = acceptor.is_none_or(|(info, acceptor)| match acceptor {
        Some(acceptor) => acceptor.covers(info, host),
        // The listener has been removed from the configuration, and its connections serve their last requests.
        None => info.sni.as_ref().is_none_or(|sni| sni.as_bytes() == host),
    });
    if !covered {
        if acceptor.is_some_and(|(info, acceptor)| acceptor.is_some_and(|acceptor| !acceptor.holds(info))) {
            exchange.down.peer.outdated.store(true, Ordering::Relaxed);
            exchange.down.client.close = true;
        }
        return Err(Error::Misdirected.into());
    }
    let sites = &exchange.config.settings.sites;
    let Some(site) = find_site(exchange) else {
        if let Some(fallback) = fallback_of_unknown(exchange, None) {
            return fall_back(exchange, fallback, false).await;
        }
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
    let path = match exchange.request.target.path() {
        // A server-wide OPTIONS and CONNECT have no path; they belong to the site as a whole.
        b"*" | b"" => b"/",
        path => path,
    };
    let found = match sites.has_conditions(site) {
        false => match (sites.readings(site, path), sites.route(site, path)) {
            (Err(_), _) => Err(Error::AmbiguousPath),
            (_, None) => Err(Error::NoRoute),
            (Ok(readings), Some(route)) => Ok((readings, route)),
        },
        true => route_by_conditions(exchange, site),
    };
    let (readings, route) = match found {
        Ok(found) => found,
        Err(Error::NoRoute) if exchange.config.settings.falls_back => {
            match fallback_of_unknown(exchange, Some(site)) {
                Some(fallback) => return fall_back(exchange, fallback, false).await,
                None => return unrouted(exchange, Error::NoRoute),
            }
        }
        Err(error) => return unrouted(exchange, error),
    };
    exchange.down.limit_times(&route.timeouts);
    let (limit, connects) = (route.body_limit, route.allow_connect);
    exchange.routed.route = Some(route);
    let replay = exchange.down.peer.replay.as_ref();
    if route.fallback.is_some()
        && replay.is_none()
        && let Some(fallback) = fallback_of_route(exchange, site, route)?
    {
        return fall_back(exchange, fallback, connects).await;
    }
    if let Some(replay) = replay {
        exchange.rare.watched = tap::watch_replay(replay, exchange.account());
    } else if let Some(settings) = &route.compare {
        if settings.mode != CompareMode::Shadow {
            tap::begin(exchange, site, route, settings);
            let to = HandOver {
                upstream: settings.upstream,
                tls_fields: false,
                reason: Some(FallbackReason::Compared),
            };
            return Box::pin(hand_over(exchange, to, connects)).await;
        }
        let sites = &exchange.config.settings.sites;
        let compared = Compared {
            comparisons: &exchange.proxy.comparisons,
            config: exchange.config,
            peer: exchange.down.peer,
            request: exchange.request,
            site: &sites.site(site).name,
            account: exchange.account(),
        };
        exchange.rare.watched = compare::begin(&compared, route, settings);
    }
    // A route without modules needs an (empty) plan only if its cache has expressions.
    let evaluated = || route.cache.get().filter(|cache| cache.has_expressions()).map(|cache| &cache.no_steps);
    exchange.use_plan(route.plan.get().or_else(evaluated));
    if let (Some(run), Some(readings)) = (&mut exchange.modules.run, readings) {
        run.facts.other_paths = Some(readings).into();
    }
    check_connect(exchange, connects)?;
    if exchange.modules.run.is_none()
        && let Some(reply) = redirect_to_https(exchange)
    {
        return Ok(Step::Reply(reply));
    }
    limit_body_to(exchange, limit)?;
    let next = if exchange.modules.run.is_some() { Step::Screen } else { dispatch(exchange)? };
    settle_length(exchange, next).await
}

/// Refuses a CONNECT that is not allowed, or after which the client has sent bytes before the tunnel is accepted.
fn check_connect(exchange: &mut Exchange<'_>, connects: bool) -> Result<(), Error> {
    if exchange.request.head.method != Method::Connect {
        return Ok(());
    }
    if !connects {
        exchange.down.client.close = true;
        return Err(Error::ConnectNotAllowed);
    }
    if exchange.down.client.link.has_more() {
        exchange.down.client.close = true;
        return Err(Error::EarlyTunnel);
    }
    Ok(())
}

/// The destination of a request that is passed on unchanged.
#[derive(Clone, Copy)]
struct HandOver {
    upstream: usize,
    tls_fields: bool,
    /// Why the request falls back; `None` at a tap, through which the old proxy sends its own requests.
    reason: Option<FallbackReason>,
}

/// Sends the request to the proxy that is being replaced.
fn fall_back<'e, 'a>(
    exchange: &'e mut Exchange<'a>,
    (old, reason): (&'a Arc<Fallback>, FallbackReason),
    connects: bool,
) -> impl Future<Output = StepResult> + use<'e, 'a> {
    let to = HandOver { upstream: old.upstream, tls_fields: old.tls_fields, reason: Some(reason) };
    hand_over(exchange, to, connects)
}

async fn hand_over(exchange: &mut Exchange<'_>, to: HandOver, connects: bool) -> StepResult {
    check_connect(exchange, connects)?;
    exchange.take_passes().await?;
    let next = begin_hand_over(exchange, to)?;
    settle_length(exchange, next).await
}

/// Sends a request that the old proxy has sent through a tap to the origin.
async fn pass_tap(exchange: &mut Exchange<'_>, tap: &str) -> StepResult {
    let upstreams = &exchange.config.upstreams;
    let Some(upstream) = upstreams.iter().position(|upstream| *upstream.settings.name == *tap) else {
        // The connection is older than the configuration, which no longer has the tap's upstream.
        exchange.down.client.close = true;
        return Err(Error::NoRoute.into());
    };
    hand_over(exchange, HandOver { upstream, tls_fields: false, reason: None }, false).await
}

/// The fallback for a request that matches no site or no route.
fn fallback_of_unknown<'a>(
    exchange: &Exchange<'a>,
    site: Option<HostId>,
) -> Option<(&'a Arc<Fallback>, FallbackReason)> {
    let settings = &exchange.config.settings;
    let of_site = site.and_then(|site| settings.sites.site(site).options.fallback.as_ref());
    let old = of_site.or(settings.fallback.as_ref())?;
    match site {
        None => old.host.then_some((old, FallbackReason::UnknownHost)),
        Some(_) => old.route.then_some((old, FallbackReason::UnknownRoute)),
    }
}

/// The fallback for a request of this route, if the conditions for it hold.
fn fallback_of_route<'a>(
    exchange: &mut Exchange<'a>,
    site: HostId,
    route: &'a Route,
) -> Result<Option<(&'a Arc<Fallback>, FallbackReason)>, Error> {
    let Some(old) = &route.fallback else { return Ok(None) };
    let (config, peer) = (exchange.config, exchange.down.peer);
    let mut facts = Facts::new(exchange.request.length.is_empty());
    let view = View {
        request: exchange.request,
        response: exchange.response,
        peer,
        config,
        site: Some(site),
        route: None,
        facts: &mut facts,
        asked: &SentFields::default(),
        away: false,
    };
    let reason = old.of_route(
        |conditions| conditions.hold(&view, &config.settings.pipeline, peer.entrance()),
        || share_bucket(peer.addresses.client.map(|client| client.ip().to_canonical())),
    );
    if facts.path_is_in_doubt.load(Ordering::Relaxed) {
        return Err(Error::AmbiguousPath);
    }
    Ok(reason.map(|reason| (old, reason)))
}

/// Sends the request to the old proxy, or a request from a tap to the origin.
fn begin_hand_over(exchange: &mut Exchange<'_>, to: HandOver) -> StepResult {
    let Some(upstream) = exchange.config.upstreams.get(to.upstream) else {
        return Err(Error::Internal.into());
    };
    let is_tap = to.reason.is_none();
    exchange.record.action = Some(if is_tap { LoggedAction::Tap } else { LoggedAction::Fallback });
    exchange.record.fallback = to.reason;
    let marker = if is_tap { TAP_MARKER } else { MARKER };
    if fallback::is_marked_by(exchange.request, marker) {
        return Err(Error::Loop.into());
    }
    let on_its_way = exchange.proxy.under_way.enter(fallback::key_of(exchange.request) ^ u64::from(is_tap));
    let is_suspicious = on_its_way.is_suspicious && fallback::may_come_from(exchange.down.peer, upstream);
    exchange.rare.detour = Some(Box::new(Detour::Fallback { _counted: on_its_way }));
    if is_tap {
        tap::arrive(exchange, upstream);
    }
    if exchange.request.is_repeatable() && !exchange.down.upload.is_done() {
        let share = exchange.proxy.filter_memory.share(exchange.account());
        let mut kept = KeptStart::new(0, share);
        kept.limit = upstream.settings.retry_body;
        exchange.down.upload.kept = Some(kept);
    }
    // A compared request is not passed on verbatim: its contents matter for the comparison, not its framing.
    let is_verbatim = upstream.settings.protocol != UpstreamProtocol::Http2
        && exchange.rare.watched.is_none()
        && fallback::take_bytes(exchange.request, &mut exchange.down.client.link, to.tls_fields);
    let peer = exchange.down.peer;
    let terms = OpeningTerms {
        fresh: false,
        addresses: &peer.addresses,
        behalf: exchange.client_address(),
        client: peer.holdings.as_ref(),
        own: Some(&peer.own),
        http1: is_verbatim,
        authenticates: false,
        handed_over: Some(fallback::tlvs(peer.tls.as_deref())),
    };
    let account = exchange.account();
    exchange.ask.insert(Ask::new(upstream, terms)).set_account(account);
    if !is_verbatim {
        fallback::serialise(exchange.request, &mut exchange.down.upload, upstream);
    }
    if to.tls_fields {
        fallback::tell_about_tls(exchange.request, &mut exchange.down.upload, exchange.down.peer);
    }
    if is_tap {
        fallback::remove_field(exchange.request, ID_FIELD);
    } else if let Some(id) = exchange.rare.watched.as_ref().and_then(|watched| watched.id.clone()) {
        fallback::remove_field(exchange.request, ID_FIELD);
        fallback::set_field(exchange.request, ID_FIELD, id.as_bytes());
    }
    if is_suspicious || !is_tap && !is_verbatim {
        fallback::set_field(exchange.request, marker, loops::marker());
    }
    Ok(Step::Ask)
}

/// The answer to a challenge of a certificate authority (RFC 8555, section 8.3); `None` if the token is unknown.
fn challenge(automatic: &Automatic, path: &[u8]) -> Option<FixedResponse> {
    let token = path.strip_prefix(HTTP_CHALLENGE_PREFIX)?;
    let file = http_challenge(&automatic.challenge_folder(), token)?;
    let mut body = Vec::new();
    File::open(file).and_then(|file| file.take(CHALLENGE_MOST).read_to_end(&mut body)).ok()?;
    Some(FixedResponse { status: 200, body: body.into() })
}

/// The redirect of a request without TLS, if its site demands TLS. If the request has steps, this is checked after the
/// steps, because they may find that another proxy received the request over TLS.
pub(super) fn redirect_to_https(exchange: &Exchange<'_>) -> Option<Box<Reply>> {
    let port = exchange.config.settings.sites.redirects(exchange.routed.site?)?;
    let request = &exchange.request;
    if request.secure || request.head.method == Method::Connect {
        return None;
    }
    let target = match request.target.as_bytes() {
        target if target.starts_with(b"/") => target,
        _ => b"/",
    };
    let port = if port == HTTPS_PORT { String::new() } else { format!(":{port}") };
    let origin = format!("https://{}{port}", request.authority.host());
    Some(Box::new(Reply::permanent_redirect(&[origin.as_bytes(), target].concat())))
}

pub(super) fn limit_body_to(exchange: &mut Exchange<'_>, limit: Option<u64>) -> Result<(), Error> {
    let Some(limit) = limit else { return Ok(()) };
    exchange.down.upload.limit = exchange.down.upload.limit.min(limit);
    match exchange.request.length {
        BodyLength::Fixed(length) if length > exchange.down.upload.limit => Err(Error::BodyTooLarge),
        // Steps may have received more of the body than the limit of a later step allows.
        _ if exchange.down.upload.moved > exchange.down.upload.limit => Err(Error::BodyTooLarge),
        _ => Ok(()),
    }
}

/// The site of the request's host, among the sites of its listener.
fn find_site(exchange: &Exchange<'_>) -> Option<HostId> {
    let (sites, host) = (&exchange.config.settings.sites, exchange.request.authority.host().as_bytes());
    match &exchange.down.peer.listen {
        Some(listen) if sites.depends_on_listener() => {
            sites.explain_on(host, &listen.address).map(|(site, _)| site)
        }
        _ => sites.find(host),
    }
}

/// The other readings of the path, as far as they matter, and the route.
type RouteMatch<'a> = (Option<Vec<Vec<u8>>>, &'a Arc<Route>);

/// Finds the route of the request in a site with conditional routes.
///
/// # Errors
///
/// No route matches, or an origin may read the path in another way that leads to another route.
pub(super) fn route_by_conditions<'a>(
    exchange: &mut Exchange<'a>,
    site: HostId,
) -> Result<RouteMatch<'a>, Error> {
    let (config, peer) = (exchange.config, exchange.down.peer);
    let sites = &config.settings.sites;
    let path = match exchange.request.target.path() {
        b"*" | b"" => b"/".to_vec(),
        path => path.to_vec(),
    };
    let mut facts = Facts::new(exchange.request.length.is_empty());
    let view = View {
        request: exchange.request,
        response: exchange.response,
        peer,
        config,
        site: Some(site),
        route: None,
        facts: &mut facts,
        asked: &SentFields::default(),
        away: false,
    };
    let mut holds =
        |conditions: &RouteConditions| conditions.hold(&view, &config.settings.pipeline, peer.entrance());
    let readings = sites.readings_if(site, &path, &mut holds).map_err(|_| Error::AmbiguousPath)?;
    let route = sites.route_if(site, &path, &mut holds);
    if facts.path_is_in_doubt.load(Ordering::Relaxed) {
        return Err(Error::AmbiguousPath);
    }
    Ok((readings, route.ok_or(Error::NoRoute)?))
}

/// Fails a request that no route matches. The steps of its site for such requests, or those for all sites, run over the
/// answer.
fn unrouted(exchange: &mut Exchange<'_>, error: Error) -> StepResult {
    let settings = &exchange.config.settings;
    let plan = match exchange.routed.site {
        Some(site) => &settings.sites.site(site).options.unrouted,
        None => &settings.unrouted,
    };
    exchange.use_plan(plan.get());
    Err(error.into())
}

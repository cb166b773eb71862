//! The cache in an exchange: looks for a stored response, waits for the fetch of another request, or leads a fetch.

mod fetch;
mod key;
pub(super) mod part;
mod purge;

use std::sync::Arc;

use foregate_cache::{
    Answer, AnsweredRequest, Bypass, CacheStatus, Content, Demands, Failure, Forward, Lookup, MemoryLookup,
    Object, Outage, Response, Reuse, StoredHead, Validate, invalidates, lookup, refresh_by_head, related,
    remove_tags, reuse,
};
use foregate_module::Source as MadeBy;
use foregate_wire::{BodyLength, HeaderList, Method, NameId, Slashes, connection};

use self::fetch::NeededResponse;
use self::key::{RouteValues, StorePlace, evaluate, uri};
use self::part::CachePart;
use super::bodies::renew;
use super::parts::needs_whole;
use super::reply::BodySource;
use super::shape::{shape_or_send, shapes};
use super::shield;
use super::state::ExchangeEnd;
use super::state::{Exchange, Step, StepResult};
use crate::cache::{Hit, Recording, StoreFound};
use crate::counters::cache::CacheOutcome;
use crate::error::Error;
use crate::link::{CachedLink, Link, StoredBody};
use crate::random;
use crate::settings::CacheSettings;
use crate::shelf::Shelf;

/// The result of looking into the store.
enum StoreLookup {
    /// The exchange goes on with this step.
    StepResult(Step),
    /// Something has to be fetched.
    Wanted(Box<NeededResponse>),
    /// The disk may have it.
    Disk(Box<(StorePlace, Demands)>),
    /// The exchange goes on with this step once these purges are written to the disk.
    Recorded(Vec<Recording>, Step),
}

/// Answers the request from the cache, or has it go on to the origin.
pub(super) async fn run(exchange: &mut Exchange<'_>, upstream: usize) -> StepResult {
    let Some(settings) = exchange.routed.route.and_then(|route| route.cache.get()) else {
        return Ok(Step::Prepare(upstream));
    };
    match look(exchange, settings, upstream)? {
        StoreLookup::StepResult(step) => {
            if let Step::Prepare(_) = step {
                strip_prefix(exchange);
            }
            Ok(step)
        }
        // In a future of its own, because it is large and hits in memory do not need it.
        StoreLookup::Disk(looking) => Box::pin(look_on_disk(exchange, settings, upstream, *looking)).await,
        StoreLookup::Recorded(recordings, step) => {
            for recording in recordings {
                // The purge takes effect even if it was not written, and the log reports that.
                recording.await;
            }
            Ok(step)
        }
        StoreLookup::Wanted(wanted) => Box::pin(wanted.fetch(exchange, settings, upstream)).await,
    }
}

/// Strips the route's prefix from the path. The key of the cache keeps the client's path, because another
/// route may send the same stripped path to other origins.
fn strip_prefix(exchange: &mut Exchange<'_>) {
    let prefix = exchange.routed.route.and_then(|route| route.strip_prefix.as_deref());
    if prefix.is_some()
        && let Some(cached) = &mut exchange.rare.cached
    {
        cached.path = Some(exchange.request.target.path().to_vec());
    }
    if exchange.shielded().is_none() {
        exchange.request.target.strip_prefix(prefix);
    }
}

fn look(
    exchange: &mut Exchange<'_>,
    settings: &CacheSettings,
    upstream: usize,
) -> Result<StoreLookup, ExchangeEnd> {
    exchange.rare.cached = Some(CachePart::new(CacheOutcome::Bypass, Forward::Bypass));
    let is_node = exchange.shielded().is_some();
    if settings.shield && !is_node && shield::has_passed(exchange) {
        return Err(Error::Loop.into());
    }
    let pass = |exchange: &mut Exchange<'_>, why: &'static str, forward: Forward| {
        if let Some(cached) = &mut exchange.rare.cached {
            (cached.reason, cached.forward) = (Some(why), forward);
        }
        Ok(StoreLookup::StepResult(Step::Prepare(upstream)))
    };
    if let Some((recordings, step)) = purge::answer(exchange, settings).filter(|_| !is_node) {
        exchange.rare.cached = None;
        return Ok(StoreLookup::Recorded(recordings, step));
    }
    if exchange.request.opens_tunnel() {
        return pass(exchange, "upgrade", Forward::Bypass);
    }
    let evaluated = if is_node { RouteValues::default() } else { evaluate(exchange, settings)? };
    if evaluated.bypass {
        return pass(exchange, "rule", Forward::Bypass);
    }
    let has_body = !exchange.request.length.is_empty();
    if !has_body {
        // The key and the selecting fields use the request as the origin sees it.
        connection::strip_hop_by_hop(&mut exchange.request.head.headers, true);
    }
    let request = foregate_cache::Request {
        method: &exchange.request.head.method,
        headers: &exchange.request.head.headers,
        path: exchange.request.target.path(),
        has_query: exchange.request.target.query().is_some(),
        has_body,
    };
    let mut demands = match demand(exchange, &request, settings) {
        Lookup::Cache(demands) => demands,
        Lookup::Unavailable => return Ok(unavailable(exchange)),
        Lookup::Bypass(Bypass::Method) => return pass(exchange, "method", Forward::Method),
        Lookup::Bypass(Bypass::Body) => return pass(exchange, "body", Forward::Bypass),
        Lookup::Bypass(Bypass::NoStore) => return pass(exchange, "no-store", Forward::Request),
    };
    if exchange.plan().is_some_and(|plan| plan.changes_bodies() || plan.renews()) {
        renew(exchange);
        let request =
            foregate_cache::Request { headers: &exchange.request.head.headers, ..request_of(exchange) };
        if let Lookup::Cache(renewed) = demand(exchange, &request, settings) {
            demands = renewed;
        }
    }
    demands.set_conditions(evaluated.ttl_conditions);
    if settings.shield && !shield::is_current(exchange) {
        if is_node {
            return Err(Error::ShieldDeclined.into());
        }
        return pass(exchange, "shield-behind", Forward::Bypass);
    }
    let given = exchange.shielded().and_then(|shielded| shielded.text());
    let located = match (exchange.shielded(), given) {
        (Some(shielded), Some(text)) => {
            shield::complete(&mut demands, &shielded.call);
            StorePlace::given(exchange, text)
        }
        _ => StorePlace::new(exchange, settings, upstream, evaluated.additions),
    };
    let looked = found(exchange, settings, upstream, located, demands);
    if let StoreLookup::StepResult(Step::Failed(error)) = looked {
        return Err(error.into());
    }
    Ok(looked)
}

/// Reads the demands of a request on the cache. A request counts as one with credentials even if a step has removed
/// them (unless the settings ignore removed ones), or has replaced them by a field with the user.
fn demand(
    exchange: &Exchange<'_>,
    request: &foregate_cache::Request<'_>,
    settings: &CacheSettings,
) -> Lookup {
    let mut looked = lookup(request, &settings.policy);
    if let (Lookup::Cache(demands), Some(plan)) = (&mut looked, exchange.plan()) {
        let counts = !settings.ignores_removed_authorization;
        let had = counts && exchange.modules.run.as_ref().is_some_and(|run| run.facts.had_authorization);
        if had || plan.identity().iter().any(|name| request.headers.get_all_name(name).next().is_some()) {
            demands.add_credentials();
        }
    }
    looked
}

fn request_of<'r>(exchange: &'r Exchange<'_>) -> foregate_cache::Request<'r> {
    foregate_cache::Request {
        method: &exchange.request.head.method,
        headers: &exchange.request.head.headers,
        path: exchange.request.target.path(),
        has_query: exchange.request.target.query().is_some(),
        has_body: false,
    }
}

/// Looks in memory, and decides by the result.
fn found(
    exchange: &mut Exchange<'_>,
    settings: &CacheSettings,
    upstream: usize,
    located: StorePlace,
    demands: Demands,
) -> StoreLookup {
    let cache = &exchange.proxy.cache;
    let found = cache.store.get(located.key, &located.text, &exchange.request.head.headers);
    match found {
        MemoryLookup::Object { object, outdated } => {
            judge(exchange, settings, upstream, located, demands, Hit { object, file: None, outdated })
        }
        MemoryLookup::Nothing { .. } if cache.store.disk_may_have(located.key) => {
            StoreLookup::Disk(Box::new((located, demands)))
        }
        MemoryLookup::Nothing { variant } => missed(exchange, upstream, located, demands, variant),
    }
}

/// Looks on the disk.
async fn look_on_disk(
    exchange: &mut Exchange<'_>,
    settings: &Arc<CacheSettings>,
    upstream: usize,
    (located, demands): (StorePlace, Demands),
) -> StepResult {
    let cache = Arc::clone(&exchange.proxy.cache);
    let fields = &exchange.request.head.headers;
    let found = cache.store.get_from_disk(located.key, &located.text, fields, cache.time()).await;
    let looked = match found {
        StoreFound::Hit(hit) => judge(exchange, settings, upstream, located, demands, hit),
        StoreFound::Nothing(variant) => missed(exchange, upstream, located, demands, variant),
        StoreFound::Unavailable if demands.only_if_cached() => unavailable(exchange),
        StoreFound::Unavailable => {
            let mut cached = CachePart::new(CacheOutcome::Bypass, Forward::Bypass);
            cached.reason = Some("store-slow");
            exchange.rare.cached = Some(cached);
            located.forward_query(exchange);
            StoreLookup::StepResult(Step::Prepare(upstream))
        }
    };
    match looked {
        StoreLookup::StepResult(Step::Failed(error)) => Err(error.into()),
        StoreLookup::StepResult(step) => {
            if let Step::Prepare(_) = step {
                strip_prefix(exchange);
            }
            Ok(step)
        }
        StoreLookup::Wanted(wanted) => Box::pin(wanted.fetch(exchange, settings, upstream)).await,
        StoreLookup::Disk(_) | StoreLookup::Recorded(..) => Err(Error::Internal.into()),
    }
}

/// Decides for a request without a stored response.
fn missed(
    exchange: &mut Exchange<'_>,
    upstream: usize,
    located: StorePlace,
    demands: Demands,
    variant: Option<foregate_cache::Key>,
) -> StoreLookup {
    let forward = if variant.is_some() { Forward::VaryMiss } else { Forward::UriMiss };
    exchange.rare.cached = Some(CachePart::new(CacheOutcome::Miss, forward));
    if demands.only_if_cached() {
        return unavailable(exchange);
    }
    if demands.is_head() {
        located.forward_query(exchange);
        return StoreLookup::StepResult(Step::Prepare(upstream));
    }
    StoreLookup::Wanted(NeededResponse::new(exchange, located, variant, demands, None, None))
}

/// Decides about the use of a stored response.
fn judge(
    exchange: &mut Exchange<'_>,
    settings: &CacheSettings,
    upstream: usize,
    located: StorePlace,
    demands: Demands,
    hit: Hit,
) -> StoreLookup {
    let cache = &exchange.proxy.cache;
    let Hit { object, file, outdated } = hit;
    let verdict = reuse(&object.head, &demands, outdated, cache.time());
    match verdict {
        Reuse::Fresh | Reuse::Stale => {
            let outcome = if verdict == Reuse::Fresh { CacheOutcome::Hit } else { CacheOutcome::Stale };
            exchange.rare.cached = Some(CachePart::new(outcome, Forward::Stale));
            located.put_back();
            let body = file.map_or_else(|| StoredBody::Memory(Arc::clone(&object)), StoredBody::file);
            StoreLookup::StepResult(serve(exchange, settings, (&object, body), &demands, None))
        }
        Reuse::Unavailable => unavailable(exchange),
        // A response in a file is fetched again instead of validated: the file is written only once, so its head cannot be
        // replaced.
        _ if file.is_some() => {
            let variant = variant_of(exchange, &object);
            missed(exchange, upstream, located, demands, variant)
        }
        Reuse::StaleWhileRevalidate => {
            exchange.rare.cached = Some(CachePart::new(CacheOutcome::Stale, Forward::Stale));
            StoreLookup::Wanted(NeededResponse::new(
                exchange,
                located,
                variant_of(exchange, &object),
                demands,
                Some(object),
                Some(CacheOutcome::Stale),
            ))
        }
        Reuse::Validate(why) if why != Validate::Client && serves_outage(exchange, &object) => {
            exchange.rare.cached = Some(CachePart::new(CacheOutcome::StaleError, Forward::Stale));
            let is_due = object.outage(exchange.proxy.cache.time()) == Outage::RetryDue;
            if is_due {
                let variant = variant_of(exchange, &object);
                let meanwhile = Some(CacheOutcome::StaleError);
                return StoreLookup::Wanted(NeededResponse::new(
                    exchange,
                    located,
                    variant,
                    demands,
                    Some(object),
                    meanwhile,
                ));
            }
            located.put_back();
            let body = StoredBody::Memory(Arc::clone(&object));
            StoreLookup::StepResult(serve(exchange, settings, (&object, body), &demands, None))
        }
        Reuse::Validate(why) => {
            let forward = if why == Validate::Client { Forward::Request } else { Forward::Stale };
            let mut cached = CachePart::new(CacheOutcome::Miss, forward);
            if demands.is_head() {
                cached.stale = Some(object);
                exchange.rare.cached = Some(cached);
                located.forward_query(exchange);
                return StoreLookup::StepResult(Step::Prepare(upstream));
            }
            exchange.rare.cached = Some(cached);
            let variant = variant_of(exchange, &object);
            StoreLookup::Wanted(NeededResponse::new(exchange, located, variant, demands, Some(object), None))
        }
    }
}

/// Returns whether the stale response is served because the origin has failed to validate it.
fn serves_outage(exchange: &Exchange<'_>, object: &Object) -> bool {
    let now = exchange.proxy.cache.time();
    object.outage(now) != Outage::None && object.head.covers_failure(Failure::NoResponse, now)
}

/// The key of a stored response as a variant of its address. `None` if the address does not vary.
fn variant_of(exchange: &Exchange<'_>, object: &Object) -> Option<foregate_cache::Key> {
    let vary = object.head.vary.as_ref()?;
    Some(object.key().variant(vary.variant, &exchange.proxy.cache.secret))
}

fn unavailable(exchange: &mut Exchange<'_>) -> StoreLookup {
    if let Some(cached) = &mut exchange.rare.cached {
        cached.outcome = CacheOutcome::Unavailable;
    }
    StoreLookup::StepResult(Step::Failed(Error::NotCached))
}

/// Answers with a stored response. `fields` are the fields of the client's request, if the exchange's request has other
/// fields by now.
fn serve(
    exchange: &mut Exchange<'_>,
    settings: &CacheSettings,
    (object, body): (&Arc<Object>, StoredBody),
    demands: &Demands,
    fields: Option<&mut HeaderList>,
) -> Step {
    let length = body.length();
    let answer = answer(exchange, &object.head, demands, fields, Some(length));
    write_status(exchange, settings, &object.head, answer.status);
    let whole = |body, part| Link::Cached(Box::new(CachedLink::stored(body, part)));
    let (link, length) = match answer.content {
        Content::None => (Link::Cached(Box::new(CachedLink::empty())), BodyLength::Empty),
        Content::Whole => (whole(body, 0..length), BodyLength::Fixed(length)),
        Content::Part(part) => {
            let length = part.end - part.start;
            (whole(body, part), BodyLength::Fixed(length))
        }
        Content::Parts(parts) => {
            let length = parts.length();
            let link = CachedLink::multipart(body, parts);
            (Link::Cached(Box::new(link)), BodyLength::Fixed(length))
        }
    };
    exchange.response_is_from(MadeBy::Upstream);
    shape_or_send(exchange, BodySource::Cached(link, length))
}

/// Writes the head of the answer from a stored head, and returns the part of the body to send: the whole body if a
/// step needs that.
fn answer(
    exchange: &mut Exchange<'_>,
    head: &StoredHead,
    demands: &Demands,
    mut fields: Option<&mut HeaderList>,
    length: Option<u64>,
) -> Answer {
    exchange.response.clear();
    let now = exchange.proxy.cache.now();
    let write = |exchange: &mut Exchange<'_>, fields: Option<&HeaderList>| {
        let request = fields.unwrap_or(&exchange.request.head.headers);
        let boundary = if request.contains(NameId::Range) { random::number() } else { 0 };
        let answer = head.answer(demands, request, length, now, boundary, &mut exchange.response.headers);
        exchange.response.status = answer.status;
        if exchange.shielded().is_some() {
            shield::tell_tags(&head.tags, &mut exchange.response.headers);
        }
        answer
    };
    let answer = write(exchange, fields.as_deref());
    if answer.status == 206 && shapes(exchange) && needs_whole(exchange) {
        exchange.request.ask_for_all();
        if let Some(fields) = &mut fields {
            fields.remove_each(&[NameId::Range, NameId::IfRange]);
        }
        return write(exchange, fields.as_deref());
    }
    answer
}

/// Adds this cache's entry to the field Cache-Status, if the settings ask for it.
fn write_status(exchange: &mut Exchange<'_>, settings: &CacheSettings, head: &StoredHead, status: u16) {
    let Some(name) = &settings.status_name else { return };
    let Some(cached) = &exchange.rare.cached else { return };
    let is_forwarded =
        matches!(cached.outcome, CacheOutcome::Miss | CacheOutcome::Revalidated) || cached.failed;
    let failing = (cached.outcome == CacheOutcome::StaleError).then_some(cached.outcome.as_str());
    let forward_status = match cached.outcome {
        CacheOutcome::Revalidated => Some(304),
        CacheOutcome::Miss if status != head.status => Some(head.status),
        _ => None,
    };
    let told = CacheStatus {
        forward: is_forwarded.then_some(cached.forward),
        forward_status,
        ttl: Some(head.life.remaining(exchange.proxy.cache.time())),
        stored: cached.stored && is_forwarded,
        collapsed: cached.collapsed,
        key: None,
        detail: cached.reason.or(failing),
    };
    told.write(name, &mut exchange.response.headers);
}

/// Handles a response that bypassed the cache on a route with a cache. The response may invalidate stored responses.
/// Its fields for caches are removed.
pub(super) fn answered(exchange: &mut Exchange<'_>) {
    let Some(settings) = exchange.routed.route.and_then(|route| route.cache.get()) else { return };
    invalidate(exchange, settings);
    update_by_head(exchange, settings);
    if !settings.policy.keep_tags {
        remove_tags(&mut exchange.response.headers);
    }
    let (Some(name), Some(cached)) = (&settings.status_name, &exchange.rare.cached) else { return };
    let told = CacheStatus {
        forward: Some(cached.forward),
        collapsed: cached.collapsed,
        detail: cached.reason,
        ..CacheStatus::default()
    };
    told.write(name, &mut exchange.response.headers);
}

/// Invalidates the stored responses for the address of an unsafe request (RFC 9111, section 4.4).
fn invalidate(exchange: &mut Exchange<'_>, settings: &CacheSettings) {
    if !invalidates(&exchange.request.head.method, exchange.response.status) {
        return;
    }
    let cache = &exchange.proxy.cache;
    let keeps = exchange.routed.site.is_some_and(|site| exchange.config.settings.sites.keeps_slashes(site));
    let slashes = if keeps { Slashes::Keep } else { Slashes::Merge };
    let mut query = Vec::new();
    let own = settings.query.apply(exchange.request.target.query(), &mut query);
    let address = uri(exchange.request, own.then_some(&*query));
    let stripped = exchange.rare.cached.as_ref().and_then(|cached| cached.path.as_deref());
    let path = stripped.filter(|_| !exchange.request.target.is_rewritten()).unwrap_or(address.path);
    let address = foregate_cache::Uri { path, ..address };
    cache.invalidate_address(&address);
    for other in related(&exchange.response.headers, &address, slashes) {
        let own = settings.query.apply(other.query.as_deref(), &mut query);
        let other = foregate_cache::Uri {
            path: &other.path,
            query: own.then_some(&*query),
            ..uri(exchange.request, None)
        };
        cache.invalidate_address(&other);
    }
}

/// Updates the stored response after a 200 to a HEAD, or removes it if the 200 shows that it is outdated (RFC 9111,
/// section 4.3.5).
fn update_by_head(exchange: &mut Exchange<'_>, settings: &CacheSettings) {
    let Some(stale) = exchange.rare.cached.as_mut().and_then(|cached| cached.stale.take()) else { return };
    if exchange.response.status != 200 || exchange.request.head.method != Method::Head {
        return;
    }
    let cache = &exchange.proxy.cache;
    let sequence = cache.store.floors().begin();
    let now = cache.now();
    let Lookup::Cache(demands) = demand(exchange, &request_of(exchange), settings) else { return };
    let request = &exchange.request.head.headers;
    let asked = AnsweredRequest { demands: &demands, headers: request, path: exchange.request.target.path() };
    let response = Response { status: 200, headers: &exchange.response.headers, sent: now, received: now };
    let (policy, length) = (&settings.policy, stale.body.len());
    match refresh_by_head(&asked, &stale.head, length, &response, policy, &cache.secret) {
        Some(refreshed) if refreshed.storable.is_ok() && refreshed.stored.vary == stale.head.vary => {
            cache.store.insert(Arc::new(stale.refreshed(refreshed.stored, sequence)), now.cache);
        }
        _ => cache.store.remove(&stale),
    }
}

thread_local! {
    /// The memory of the last key.
    static SCRATCH: Shelf<Box<key::KeyScratch>> = const { Shelf::new(1) };
}

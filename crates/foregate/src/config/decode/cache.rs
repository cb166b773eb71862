//! `cache` of a site or a route, and `cache-store`.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use foregate_cache::{ExtensionRule, Parameters, SetCookie, StatusLifetime, is_never_stored};
use foregate_config::value::{self, Value, Wrong};
use foregate_config::{Decoder, Item, Modules, Place, Problem};
use foregate_module::{Condition, PhaseId};
use foregate_proxy::settings::{
    Action, CacheDisk, CacheReserve, CacheSettings, CacheStore, EngineChoice, RouteCache, io_uring,
};

use super::numbers::set;
use super::shield::ReadShield;
use super::writable;
use crate::config::schema::{CACHE, CACHE_STORE};

const MIB: u64 = 1 << 20;
const ADDRESS_HELP: &str = "write the address of the storage, such as https://s3.eu-central-1.amazonaws.com";
/// The smallest size of the cache on disk.
const SMALLEST_DISK: u64 = 16 * MIB;
/// The range of lifetimes: up to ten years.
const LIFETIMES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(24 * 3650);
/// The name of this cache in Cache-Status.
const NAME: &str = "foregate";
/// The statuses to which a `ttl` applies if it names none.
const USUAL_STATUSES: [RangeInclusive<u16>; 2] = [200..=200, 301..=302];
/// The allowed length of a token for purges, in characters. A shorter one could be guessed.
const TOKEN: RangeInclusive<usize> = 16..=256;

const SET_COOKIE: &[(&str, SetCookie)] =
    &[("refuse", SetCookie::Refuse), ("drop", SetCookie::Drop), ("store", SetCookie::Store)];

const ENGINES: &[(&str, EngineChoice)] =
    &[("auto", EngineChoice::Auto), ("threads", EngineChoice::Threads), ("io-uring", EngineChoice::IoUring)];

/// Reads the engine that reads the cache's files.
pub(super) fn disk_engine(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    inspect: bool,
    engine: &mut EngineChoice,
) {
    set(engine, decoder.choice(item, 0, ENGINES));
    if inspect
        && *engine == EngineChoice::IoUring
        && let Err(error) = io_uring()
    {
        let help = "write \"auto\" for threads where it is refused; `foregate doctor` tells what it needs";
        decoder.push(Problem::new(Some(item.place()), error.to_string()).help(help));
    }
}

pub(super) fn store(decoder: &mut Decoder<'_>, item: Item<'_>, inspect: bool, store: &mut CacheStore) {
    for (key, item) in decoder.block(item, &CACHE_STORE) {
        match key.name {
            "memory" => set(&mut store.memory, decoder.read(item, 0, |v| value::size(v, MIB..=MIB << 24))),
            "disk" => store.disks.extend(disk(decoder, item, inspect, &store.disks)),
            "reserve" => store.reserve = reserve(decoder, item),
            name => debug_assert!(false, "{name} is not read"),
        }
    }
}

fn reserve(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<CacheReserve> {
    let text = |decoder: &mut Decoder<'_>, name, default: &str| {
        decoder.prop(item, name, object_name).unwrap_or_else(|| default.to_owned())
    };
    let time = |decoder: &mut Decoder<'_>, name, range: RangeInclusive<Duration>, default| {
        decoder.prop(item, name, |v| value::duration(v, range)).unwrap_or(default)
    };
    let second = Duration::from_secs(1);
    let reserve = CacheReserve {
        region: text(decoder, "region", "us-east-1"),
        prefix: text(decoder, "prefix", ""),
        credentials: decoder.prop_file(item, "credentials"),
        keep: time(decoder, "keep", second..=*LIFETIMES.end(), Duration::from_hours(24 * 30)),
        least: time(decoder, "least", LIFETIMES, Duration::from_mins(10)),
        timeout: time(decoder, "timeout", Duration::from_millis(1)..=Duration::from_secs(60), second),
        virtual_host: decoder.prop(item, "virtual-host", value::boolean).unwrap_or_default(),
        authorities: decoder.prop_file(item, "authorities"),
        bucket: decoder.prop(item, "bucket", object_name)?,
        endpoint: decoder.read(item, 0, endpoint)?,
    };
    if let Err(wrong) = reserve.bucket() {
        decoder.push(Problem::new(Some(item.place()), format!("`reserve`: {wrong}")).help(ADDRESS_HELP));
        return None;
    }
    Some(reserve)
}

/// Reads the address of an object storage.
fn endpoint(value: &Value<'_>) -> Result<String, Wrong> {
    let text = value::string(value)?;
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let wrong = || Wrong::new("expected an address that begins with https:// or http://").help(ADDRESS_HELP);
    host.filter(|host| !host.is_empty()).map(|_| text.to_string()).ok_or_else(wrong)
}

/// Reads a name that needs no escapes in a URL.
fn object_name(value: &Value<'_>) -> Result<String, Wrong> {
    let text = value::string(value)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let has_dots = text.split('/').any(|part| part == "." || part == "..");
    if text.bytes().all(is_plain) && !has_dots && !text.starts_with('/') && text.len() <= 200 {
        return Ok(text.to_string());
    }
    Err(Wrong::new("expected letters, digits, `-`, `_`, `.` and `/`"))
}

fn disk(decoder: &mut Decoder<'_>, item: Item<'_>, inspect: bool, before: &[CacheDisk]) -> Option<CacheDisk> {
    let size = decoder.prop(item, "size", |v| value::size(v, SMALLEST_DISK..=MIB << 34));
    let folder = decoder.path(item, 0)?;
    if before.iter().any(|disk| disk.folder == folder) {
        let message = format!("{} is there twice", folder.display());
        decoder.push(Problem::new(Some(item.place()), message).help("name each folder once"));
    } else if inspect {
        writable::folder_for_cache(decoder, &folder, item.place());
    }
    Some(CacheDisk { folder, size: size? })
}

/// The things to which a `cache` refers: modules, the shield, and the caches that were read before, to share equal
/// caches.
pub(super) type References<'r, 'm> = (&'r mut Modules<'m>, Option<&'r ReadShield>, &'r mut Vec<RouteCache>);

/// The cache of a site, which its routes inherit.
#[derive(Default)]
pub(super) struct SiteCache {
    place: Option<Place>,
    cache: RouteCache,
}

impl SiteCache {
    /// Reads the site's `cache`.
    pub(super) fn read(&mut self, decoder: &mut Decoder<'_>, item: Item<'_>, refers: References<'_, '_>) {
        let (modules, shield, known) = refers;
        self.place = Some(item.place());
        self.cache = read(decoder, item, modules, shield).of_site().shared(known);
    }

    /// Warns if no route inherits the site's cache.
    pub(super) fn warn(&self, decoder: &mut Decoder<'_>, routes: &[Item<'_>]) {
        let takes = |route: &Item<'_>| {
            let has = |name| route.children().iter().any(|child| child.node.name() == name);
            (has("proxy") || has("fallback")) && !has("files") && !has("cache")
        };
        if self.cache.get().is_some() && !routes.iter().any(takes) {
            let message =
                "`cache` has no effect: no route of this site has a `proxy` and no `cache` of its own";
            decoder.warn(Problem::new(self.place, message));
        }
    }

    /// The cache of a route: its own `cache` at the given place, else that of the site.
    pub(super) fn of_route(
        &self,
        decoder: &mut Decoder<'_>,
        own: Option<(Place, RouteCache)>,
        action: &Action,
    ) -> RouteCache {
        let has_origin = matches!(action, Action::Proxy(_));
        let cache = match own {
            Some((place, own)) => {
                if !has_origin && own.get().is_some() {
                    let message = "`cache` has no effect on a route without `proxy`";
                    decoder.warn(Problem::new(Some(place), message));
                }
                own
            }
            None => self.cache.clone(),
        };
        if has_origin { cache } else { RouteCache::default() }
    }
}

/// The `cache` of a route.
pub(super) fn decode(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    (modules, shield, known): References<'_, '_>,
) -> RouteCache {
    read(decoder, item, modules, shield).shared(known)
}

fn read(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    modules: &mut Modules<'_>,
    shield: Option<&ReadShield>,
) -> RouteCache {
    let is_on = decoder.flag(item);
    let mut cache = CacheSettings::default();
    let policy = &mut cache.policy;
    let nodes = decoder.block(item, &CACHE);
    if !is_on && !nodes.is_empty() {
        let problem = Problem::new(Some(item.place()), "`cache #false` has no block: it turns the cache off");
        decoder.push(problem.help("take `#false` away, or the block"));
    }
    for (key, item) in nodes {
        let phase = PhaseId::CacheKey;
        match key.name {
            "ttl" => {
                let condition = ttl_condition(decoder, item, modules, &mut cache.ttl_conditions);
                policy.lifetimes.extend(ttl(decoder, item, condition));
            }
            "key" => cache.key.extend(modules.expressions(decoder, (item, key), phase)),
            "bypass" => cache.bypass.extend(modules.conditions(decoder, (item, key), phase)),
            "query" => {
                cache.query.parameters = parameters(decoder, item);
                cache.query.sort = decoder.prop(item, "sort", value::boolean).unwrap_or_default();
            }
            "stale-while-revalidate" => {
                set(&mut policy.stale_while_revalidate, decoder.read(item, 0, seconds));
            }
            "stale-if-error" => set(&mut policy.stale_if_error, decoder.read(item, 0, seconds)),
            "extensions" => policy.extensions = Some(extensions(decoder, item)),
            "heuristics" => {
                let heuristics = &mut policy.heuristics;
                set(&mut heuristics.percent, decoder.read(item, 0, |v| value::number(v, 0..=100)));
                set(&mut heuristics.cap, decoder.prop(item, "longest", seconds));
                set(&mut heuristics.errors, decoder.prop(item, "errors", value::boolean));
            }
            "set-cookie" => set(&mut policy.set_cookie, decoder.choice(item, 0, SET_COOKIE)),
            "authorization" => {
                const HANDLING: &[(&str, bool)] = &[("refuse", false), ("removed", true)];
                set(&mut cache.ignores_removed_authorization, decoder.choice(item, 0, HANDLING));
            }
            "client-directives" => policy.client_directives = decoder.flag(item),
            "targeted" => policy.targeted = decoder.read_all(item, field_name),
            "keep-tags" => policy.keep_tags = decoder.flag(item),
            "status-header" => {
                let name = decoder.read(item, 0, cache_name);
                cache.status_name = Some(name.unwrap_or_else(|| NAME.into()));
            }
            "shield" => cache.shield = shield.is_some_and(|shield| shield.named(decoder, item)),
            "purge-token" => cache.purge_token = decoder.read(item, 0, token),
            name => debug_assert!(false, "{name} is not read"),
        }
    }
    if is_on { RouteCache::new(cache) } else { RouteCache::default() }
}

fn seconds(value: &Value<'_>) -> Result<u64, Wrong> {
    Ok(value::duration(value, LIFETIMES)?.as_secs())
}

/// Adds the condition of a `ttl` to the others, and returns its number.
fn ttl_condition(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    modules: &mut Modules<'_>,
    conditions: &mut Vec<Arc<dyn Condition>>,
) -> Option<u8> {
    let when = decoder.argument(item, "when")?;
    let number = u8::try_from(conditions.len()).ok().filter(|number| u32::from(*number) < u64::BITS);
    if number.is_none() {
        let message = "a `cache` has at most 64 `ttl` with `when`";
        decoder.push(Problem::new(Some(item.place()), message));
    }
    conditions.push(modules.condition(decoder, ("ttl", "when"), &when, PhaseId::CacheKey)?);
    number
}

/// Reads a `ttl`: one lifetime, or one for each of the usual statuses if it names no status.
fn ttl(decoder: &mut Decoder<'_>, item: Item<'_>, condition: Option<u8>) -> Vec<StatusLifetime> {
    let arguments = item.node.entries().filter(|entry| entry.key().is_none()).count();
    let statuses = match arguments {
        2 => decoder.read(item, 0, statuses).into_iter().collect(),
        _ => USUAL_STATUSES.to_vec(),
    };
    let seconds = decoder.read(item, usize::from(arguments > 1), seconds);
    let over_origin = decoder.prop(item, "over-origin", value::boolean).unwrap_or_default();
    let Some(seconds) = seconds.and_then(|seconds| u32::try_from(seconds).ok()) else { return Vec::new() };
    statuses
        .into_iter()
        .map(|statuses| StatusLifetime { statuses, seconds, over_origin, condition })
        .collect()
}

/// Reads statuses: `200`, `2xx` or `200-299`.
fn statuses(value: &Value<'_>) -> Result<RangeInclusive<u16>, Wrong> {
    let wrong = || {
        Wrong::new("expected a status from 200 to 599, a class of them, or a range")
            .help("write \"404\", \"4xx\" or \"400-499\"")
    };
    let one = |text: &str| {
        let status = text.parse::<u16>().ok().filter(|_| text.len() == 3);
        status.filter(|status| (200..600).contains(status))
    };
    let text = &*value.text;
    let range = match text.split_once('-') {
        Some((first, last)) => one(first).zip(one(last)).map(|(first, last)| first..=last),
        None => match text.strip_suffix("xx") {
            Some(class) => one(&format!("{class}00")).map(|first| first..=first + 99),
            None => one(text).map(|status| status..=status),
        },
    };
    let range = range.filter(|range| !range.is_empty()).ok_or_else(wrong)?;
    if range.clone().all(is_never_stored) {
        return Err(Wrong::new(format!("responses with the status {text} are never stored"))
            .help("leave out this `ttl`"));
    }
    Ok(range)
}

fn parameters(decoder: &mut Decoder<'_>, item: Item<'_>) -> Parameters {
    let keep = decoder.prop(item, "keep", names);
    let drop = decoder.prop(item, "drop", names);
    match (keep, drop) {
        (Some(_), Some(_)) => {
            let problem = Problem::new(Some(item.place()), "`query` has `keep` or `drop`, not both");
            decoder.push(problem.help("with `keep`, all other parameters are dropped already"));
            Parameters::All
        }
        (Some(keep), None) => Parameters::Keep(keep),
        (None, Some(drop)) => Parameters::Drop(drop),
        (None, None) => Parameters::All,
    }
}

/// Reads names of query parameters, separated by commas.
fn names(value: &Value<'_>) -> Result<Vec<String>, Wrong> {
    let names = value::string(value)?.split(',').map(str::trim).filter(|name| !name.is_empty());
    Ok(names.map(str::to_owned).collect())
}

fn extensions(decoder: &mut Decoder<'_>, item: Item<'_>) -> ExtensionRule {
    let mut rule = ExtensionRule::default();
    let listed = decoder.read_all(item, |value| {
        let text = value::string(value)?;
        let plain =
            !text.is_empty() && text.len() <= 12 && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let wrong = || Wrong::new("expected an extension without its dot").help("write \"css\"");
        plain.then(|| text.to_ascii_lowercase()).ok_or_else(wrong)
    });
    if !listed.iter().any(|extension| extension == "default") {
        rule.extensions.clear();
    }
    rule.extensions.extend(listed.into_iter().filter(|extension| extension != "default"));
    set(&mut rule.seconds, decoder.prop(item, "ttl", seconds));
    rule
}

/// Reads the name of a header field.
fn field_name(value: &Value<'_>) -> Result<String, Wrong> {
    let text = value::string(value)?;
    let is_token =
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let wrong = || Wrong::new("expected the name of a field").help("write \"CDN-Cache-Control\"");
    is_token.then(|| text.to_owned()).ok_or_else(wrong)
}

fn cache_name(value: &Value<'_>) -> Result<Box<str>, Wrong> {
    let text = value::string(value)?;
    let is_plain = !text.is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let wrong = || Wrong::new("expected a name of visible ASCII characters");
    is_plain.then(|| text.into()).ok_or_else(wrong)
}

fn token(value: &Value<'_>) -> Result<Box<str>, Wrong> {
    let text = value::string(value)?;
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_plain || !TOKEN.contains(&text.len()) {
        return Err(Wrong::new("expected a token of 16 to 256 visible ASCII characters")
            .help("make one, such as by `openssl rand -hex 16`"));
    }
    Ok(text.into())
}

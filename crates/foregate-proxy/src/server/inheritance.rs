//! The state for the next generation, in pieces with a tag and a version. The module that owns a state encodes and
//! decodes its piece. Unknown pieces, and pieces of another version, are skipped.

use std::os::fd::OwnedFd;
use std::time::Instant;

use foregate_cache::{CacheTime, Secret};
use foregate_supervisor::channel::{blob, read_blob};
use foregate_supervisor::protocol::Item;

use crate::cache::CacheIdentity;
use crate::names::Resolver;
use crate::proxy::{Config, Proxy};
use crate::random;
use crate::time::steady;
use crate::tls::CertificateStore;
use crate::upstream::Upstreams;
use crate::upstream::inheritance::{self, Moment};

/// Pieces of state, each with its bytes.
pub(super) type StateItems = Vec<(Item, OwnedFd)>;

/// The start of the steady clock in microseconds since the machine was started, as eight bytes.
const CLOCK: (&str, u32) = ("clock", 1);
/// The secret from which the keys of session tickets are derived.
const TICKETS: (&str, u32) = ("tls-tickets", 1);
/// Last good addresses of names, and servers of services.
const NAMES: (&str, u32) = ("names", 1);
/// Health of servers, and orders of operators.
const HEALTH: (&str, u32) = ("health", 1);
/// The observed behaviour of connections to servers.
const ORIGINS: (&str, u32) = ("origins", 1);
/// The secret of the cache's keys in 16 bytes, and the cache's time on the steady clock in 8 bytes. If both
/// processes use the same cache folders, the folders contain both values as well.
const CACHE: (&str, u32) = ("cache", 1);
/// States of modules' steps, each with a name and a version of its own.
const STEPS: (&str, u32) = ("steps", 1);

/// The texts of the configuration in effect, for the process that follows a crash. No bytes if they are too long.
pub(super) const CONFIGURATION: (&str, u32) = ("configuration", 1);

/// The bytes of a piece, if it exists in this version.
pub(super) fn piece(items: &StateItems, (tag, version): (&str, u32)) -> Option<Vec<u8>> {
    let known = |item: &Item| item.tag == tag && item.version == version;
    let (item, descriptor) = items.iter().find(|(item, _)| known(item))?;
    match read_blob(descriptor) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            tracing::warn!(tag = item.tag, %error, "a piece of the former process's state is lost");
            None
        }
    }
}

/// Takes over the parts that have to be known before a configuration is built.
pub(super) fn restore_early(items: &StateItems, upstreams: &Upstreams) {
    let clock = piece(items, CLOCK).and_then(|bytes| bytes.try_into().ok());
    clock.into_iter().for_each(|bytes| steady::go_on(u64::from_le_bytes(bytes)));
    if let Some(names) = piece(items, NAMES) {
        upstreams.resolver().restore(&names, Instant::now());
    }
}

/// The secret and the clock of the previous process's cache.
pub(super) fn cache(items: &StateItems) -> Option<CacheIdentity> {
    let bytes = piece(items, CACHE)?;
    let (secret, behind) = bytes.split_first_chunk()?;
    let behind = u64::from_le_bytes(behind.try_into().ok()?);
    let now = Instant::now();
    let time = steady::millis(now).wrapping_sub(behind);
    Some(CacheIdentity { secret: Secret::new(*secret), start: (now, CacheTime(time)) })
}

/// Encodes the identity of the cache for [`cache`].
fn save_cache(CacheIdentity { secret, start: (moment, time) }: CacheIdentity) -> Vec<u8> {
    // Computed for the present moment, because the steady clock may have started after `moment`.
    let now = Instant::now();
    let since = u64::try_from(now.saturating_duration_since(moment).as_millis()).unwrap_or(u64::MAX);
    let behind = steady::millis(now).wrapping_sub(time.0.saturating_add(since));
    [&secret.to_bytes()[..], &behind.to_le_bytes()].concat()
}

/// Takes over the remaining pieces.
pub(super) fn restore(items: &StateItems, config: &Config, certificates: &CertificateStore, moment: Moment) {
    let now = Instant::now();
    if let Some(keys) = piece(items, TICKETS).filter(|_| moment == Moment::Start) {
        certificates.take_ticket_keys(&keys);
    }
    if let Some(health) = piece(items, HEALTH) {
        inheritance::restore_health(&config.upstreams, &health, moment, now);
    }
    if let Some(origins) = piece(items, ORIGINS) {
        inheritance::restore_origins(&config.upstreams, &origins, moment, now);
    }
    if let Some(steps) = piece(items, STEPS) {
        config.settings.pipeline.restore(&steps, steady::millis(now));
    }
}

/// The state of this process. A piece is left out if the system has no memory for it.
pub(super) fn save(proxy: &Proxy, resolver: &Resolver) -> StateItems {
    let mut items = save_small(proxy, resolver);
    items.extend(save_steps(&proxy.config()));
    items
}

/// The state without that of steps, which may be megabytes.
pub(super) fn save_small(proxy: &Proxy, resolver: &Resolver) -> StateItems {
    let (config, now) = (proxy.config(), Instant::now());
    let mut items = save_health(&config);
    items.extend(item(CACHE, Some(save_cache(proxy.cache.identity()))));
    items.extend(item(TICKETS, config.certificates.ticket_keys()));
    items.extend(item(CLOCK, Some(steady::beginning().to_le_bytes().to_vec())));
    items.extend(item(NAMES, Some(resolver.save(now))));
    items.extend(item(ORIGINS, Some(inheritance::save_origins(&config.upstreams, now))));
    items
}

/// Health of servers, and orders of operators.
pub(super) fn save_health(config: &Config) -> StateItems {
    item(HEALTH, Some(inheritance::save_health(&config.upstreams, Instant::now()))).into_iter().collect()
}

/// States of modules' steps.
pub(super) fn save_steps(config: &Config) -> StateItems {
    let now = steady::millis(Instant::now());
    item(STEPS, Some(config.settings.pipeline.save(now, random::number))).into_iter().collect()
}

fn item((tag, version): (&str, u32), bytes: Option<Vec<u8>>) -> Option<(Item, OwnedFd)> {
    let blob = blob(&bytes?);
    if let Err(error) = &blob {
        tracing::warn!(tag, %error, "a piece of the state cannot be handed over");
    }
    Some((Item { tag: tag.to_owned(), version }, blob.ok()?))
}

//! The resources of the admin interface that concern the cache.

use std::path::PathBuf;
use std::sync::Arc;

use foregate_cache::{KeyParts, KeyText, MemoryLookup, Purge, Strength, Tag, Uri};
use foregate_disk::Stat;
use foregate_wire::{HeaderList, Scheme, Slashes, normalize_path, normalize_query, parse_authority};
use http::StatusCode;
use serde_json::{Value, json};

use super::refusal::ApiError;
use crate::cache::StoreFound;
use crate::counters::cache::{NodeFigures, ReserveFigures, ShieldFigures};
use crate::proxy::Proxy;

/// The address of a response, as an operator writes it.
struct Address {
    scheme: Scheme,
    host: String,
    port: Option<u16>,
    path: Vec<u8>,
    query: Option<Vec<u8>>,
}

impl Address {
    fn read(text: &str, proxy: &Proxy, exact: bool) -> Result<Self, String> {
        let expected = || format!("expected a URL such as https://example.com/path, not {text:?}");
        let without_scheme = || match text.split(['/', '?']).next() {
            Some(host) if host.contains(['.', ':']) || host == "localhost" => format!(
                "{text:?} has no scheme: write https://{text} or http://{text}, whose responses are stored apart"
            ),
            _ => expected(),
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(without_scheme)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(expected()),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let mut host = String::new();
        let port = parse_authority(authority.as_bytes(), &mut host).map_err(|_| expected())?.port;
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let path = if path.is_empty() { "/" } else { path };
        let config = proxy.config();
        let sites = &config.settings.sites;
        let site = sites.find(host.as_bytes());
        let slashes = match site {
            Some(site) if sites.keeps_slashes(site) => Slashes::Keep,
            _ => Slashes::Merge,
        };
        let mut normal = Vec::new();
        normalize_path(path.as_bytes(), slashes, &mut normal).map_err(|_| expected())?;
        let mut query = query.map(|query| {
            let mut normal = Vec::new();
            normalize_query(query.as_bytes(), &mut normal);
            normal
        });
        let route = site.and_then(|site| sites.route(site, &normal));
        if let Some(cache) = route.and_then(|route| route.cache.get()).filter(|_| exact) {
            let mut own = Vec::new();
            query = cache.query.apply(query.as_deref(), &mut own).then_some(own);
        }
        Ok(Self { scheme, host, port, path: normal, query })
    }

    fn uri(&self) -> Uri<'_> {
        let query = self.query.as_deref();
        Uri { scheme: self.scheme, host: &self.host, port: self.port, path: &self.path, query }
    }
}

/// Purges, and reports the number of purged responses.
pub(super) async fn purge(request: &Value, proxy: &Arc<Proxy>) -> Result<Value, String> {
    let text = |name| request.get(name).and_then(Value::as_str);
    if let Some(url) = text("url") {
        purge_counted(&Purge::Address(&Address::read(url, proxy, true)?.uri()), request, proxy).await
    } else if let Some(prefix) = text("prefix") {
        purge_counted(&Purge::Prefix(&Address::read(prefix, proxy, false)?.uri()), request, proxy).await
    } else if let Some(tag) = text("tag") {
        purge_counted(&Purge::Tag(Tag::new(tag.trim().as_bytes())), request, proxy).await
    } else if request.get("all") == Some(&Value::Bool(true)) {
        purge_counted(&Purge::All, request, proxy).await
    } else {
        Err("expected url, prefix, tag or all".to_owned())
    }
}

async fn purge_counted(purge: &Purge<'_>, request: &Value, proxy: &Arc<Proxy>) -> Result<Value, String> {
    let soft = request.get("soft") == Some(&Value::Bool(true));
    let strength = if soft { Strength::Soft } else { Strength::Hard };
    let (cache, store) = (&proxy.cache, &proxy.cache.store);
    let counted = store.count(purge).await;
    let on_disk = store.on_disk();
    if let Some(recording) = cache.purge(purge, strength)
        && !recording.await
    {
        let message = "purged, but a folder or the reserve of the cache did not take the purge: see the log";
        return Err(message.to_owned());
    }
    let folders = match on_disk {
        Some(_) => "used",
        None if store.awaits_folders() => "awaited",
        None => "none",
    };
    Ok(json!({
        "soft": soft,
        "responses": counted.responses,
        "bytes": counted.bytes,
        // The index on disk has no addresses, so the number is known only for a purge of everything.
        "on_disk": on_disk.filter(|_| matches!(purge, Purge::All)),
        "folders": folders,
        "nodes": nodes(&cache.shield.nodes()),
    }))
}

pub(super) fn stat(proxy: &Proxy) -> Value {
    let (figures, counters) = (proxy.cache.figures(), &proxy.metrics.cache);
    let map = |pairs: &mut dyn Iterator<Item = (&'static str, u64)>| -> Value {
        Value::Object(pairs.map(|(name, count)| (name.to_owned(), count.into())).collect())
    };
    json!({
        "memory": {
            "bytes": figures.bytes,
            "limit": figures.limit,
            "entries": figures.entries,
            "evictions": figures.evicted,
            "fetching": figures.fetching,
            "held": figures.held,
        },
        "disks": figures.disks.iter().map(disk).collect::<Vec<_>>(),
        "awaited": figures.awaited.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>(),
        "reserve": figures.reserve.as_ref().map(reserve),
        "shield": figures.shield.as_ref().map(shield),
        "requests": map(&mut counters.requests()),
        "not_stored": map(&mut counters.reasons()),
        "collapsed": counters.collapsed.get(),
        "fetches": counters.fetches.get(),
        "validated": counters.validated.get(),
        "stored": counters.stored.get(),
        "purges": counters.purges.get(),
        "invalidated": counters.invalidated.get(),
    })
}

/// The figures of a folder.
fn disk((folder, stat): &(PathBuf, Stat)) -> Value {
    json!({
        "folder": folder.display().to_string(),
        "bytes": stat.bytes,
        "limit": stat.limit,
        "entries": stat.entries,
        "files": stat.files,
        "memory": stat.memory,
        "hits": stat.hits,
        "misses": stat.misses,
        "stored": stat.stored,
        "written": stat.written,
        "moved": stat.moved,
        "evictions": stat.evicted,
        "dropped": stat.dropped,
        "errors": stat.errors,
        "corrupt": stat.corrupt,
        "busy": stat.busy,
        "engine": stat.engine.name(),
        "longest_wait_us": stat.longest_wait,
        "recovering": stat.recovering,
        "off": stat.off,
    })
}

/// The other nodes of the shield; for each, whether it has all purges of this node.
fn nodes(nodes: &[NodeFigures]) -> Value {
    let others = nodes.iter().filter(|node| !node.own);
    let others = others.map(|node| {
        let state = match (node.current, node.up) {
            (true, true) => "purged",
            (false, true) => "not confirmed",
            (_, false) => "away",
        };
        (node.name.clone(), state.into())
    });
    Value::Object(others.collect())
}

/// The figures of the shield.
fn shield(figures: &ShieldFigures) -> Value {
    let nodes = figures.nodes.iter().map(|node| {
        json!({
            "name": node.name,
            "address": node.address,
            "self": node.own,
            "up": node.up,
            "current": node.current,
        })
    });
    json!({
        "name": figures.name,
        "asked": figures.asked,
        "direct": figures.direct,
        "served": figures.served,
        "refused": figures.refused,
        "behind": figures.behind,
        "purges": figures.purges,
        "nodes": nodes.collect::<Vec<_>>(),
    })
}

/// The figures of the reserve.
fn reserve(figures: &ReserveFigures) -> Value {
    json!({
        "bucket": figures.bucket,
        "hits": figures.hits,
        "misses": figures.misses,
        "stored": figures.stored,
        "read": figures.read,
        "written": figures.written,
        "evictions": figures.evicted,
        "dropped": figures.dropped,
        "errors": figures.errors,
        "corrupt": figures.corrupt,
        "queued": figures.queued,
        "purges": figures.purges,
        "off": figures.off,
        "ready": figures.ready,
    })
}

/// The stored response for a URL and fields such as `Accept-Language: en`, with a key that has no additions from the
/// route's expressions.
pub(super) async fn get<'f>(
    proxy: &Proxy,
    url: &str,
    fields: impl Iterator<Item = &'f str>,
) -> Result<Value, ApiError> {
    let wrong = |error: String| ApiError(StatusCode::UNPROCESSABLE_ENTITY, error);
    let address = Address::read(url, proxy, true).map_err(wrong)?;
    let mut selecting = HeaderList::new();
    for field in fields {
        let expected = || wrong(format!("expected a field such as `Accept-Language: en`, not {field:?}"));
        let (name, value) = field.split_once(':').ok_or_else(expected)?;
        selecting.try_push(name.trim().as_bytes(), value.trim().as_bytes()).map_err(|_| expected())?;
    }
    let mut text = KeyText::new();
    text.write(&address.uri(), &KeyParts::default());
    let cache = &proxy.cache;
    let key = text.key(&cache.secret);
    let (object, outdated, tier, length) = match cache.store.get(key, &text, &selecting) {
        MemoryLookup::Object { object, outdated } => {
            let length = object.body.len();
            (object, outdated, "memory", length)
        }
        MemoryLookup::Nothing { variant } => {
            match cache.store.get_from_disk(key, &text, &selecting, cache.time()).await {
                StoreFound::Hit(hit) => {
                    let length = hit.file.as_ref().map_or_else(|| hit.object.body.len(), |file| file.len());
                    (hit.object, hit.outdated, "disk", length)
                }
                StoreFound::Nothing(on_disk) => {
                    let others = variant.or(on_disk).is_some();
                    return Ok(json!({ "found": false, "other_variants": others }));
                }
                StoreFound::Unavailable => {
                    let help = "the disk is too slow at the moment, or off".to_owned();
                    return Err(ApiError(StatusCode::SERVICE_UNAVAILABLE, help));
                }
            }
        }
    };
    let (head, now) = (&object.head, cache.time());
    let shown = head.headers.iter().map(|field| {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        format!("{}: {}", text(field.name), text(field.value))
    });
    Ok(json!({
        "found": true,
        "tier": tier,
        "status": head.status,
        "age": head.life.age(now),
        "ttl": head.life.remaining(now),
        "outdated": outdated,
        "bytes": length,
        "tags": head.tags.len(),
        "fields": shown.collect::<Vec<_>>(),
    }))
}

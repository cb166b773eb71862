//! The key of a request, and the expressions of its route.

use foregate_cache::{Key, KeyParts, KeyText, Uri};
use foregate_wire::{Scheme, Slashes};

use super::SCRATCH;
use crate::error::Error;
use crate::exchange::state::Exchange;
use crate::exchange::state::ExchangeEnd;
use crate::message::request::Request;
use crate::settings::{Action, CacheSettings};
use crate::shelf;

/// Memory for the parts of a key, reused for the next key.
#[derive(Debug, Default)]
pub(in crate::exchange) struct KeyScratch {
    text: KeyText,
    query: Vec<u8>,
}

/// The place of a response in the store.
#[derive(Debug)]
pub(super) struct StorePlace {
    /// The text of the key.
    pub text: KeyText,
    /// The key.
    pub key: Key,
    /// The query of the key, if it differs from the request's query.
    query: Option<Option<Vec<u8>>>,
    scratch: Box<KeyScratch>,
}

impl StorePlace {
    /// The place of the response to a request.
    pub fn new(
        exchange: &Exchange<'_>,
        settings: &CacheSettings,
        upstream: usize,
        mut additions: Vec<Vec<u8>>,
    ) -> Self {
        let mut scratch = shelf::take(&SCRATCH).unwrap_or_default();
        let request = &*exchange.request;
        let has_query = settings.query.apply(request.target.query(), &mut scratch.query);
        let query = has_query.then_some(&*scratch.query);
        if let Some(conditions) = exchange.routed.route.and_then(|route| route.conditions.as_ref()) {
            // Another route may answer requests for the same path under other conditions.
            additions
                .push(format!("{conditions:?}{:?}{:?}", conditions.port, conditions.listeners).into_bytes());
        }
        if let Some(route) = exchange.routed.route
            && (route.action != Action::Proxy(upstream) || request.target.is_rewritten())
            && let Some(chosen) = exchange.config.upstreams.get(upstream)
        {
            // A step has chosen an upstream or a path that differs from the route's, so the responses differ, too.
            additions.push(chosen.settings.name.as_bytes().to_vec());
        }
        if request.target.is_rewritten() {
            // Other routes, with other conditions for access, may lead to the same path.
            let site = exchange.routed.site.map(|site| &*exchange.config.settings.sites.site(site).name);
            let route = exchange.routed.route.map(|route| &*route.pattern);
            additions.push(format!("{site:?}{route:?}").into_bytes());
            additions.push(request.target.path().to_vec());
        }
        let mut text = std::mem::take(&mut scratch.text);
        let uri = uri(request, query);
        if additions.is_empty() {
            text.write(&uri, &KeyParts::default());
        } else {
            let additions: Vec<&[u8]> = additions.iter().map(|addition| &**addition).collect();
            text.write(&uri, &KeyParts { additions: &additions, ..KeyParts::default() });
        }
        let key = text.key(&exchange.proxy.cache.secret);
        let query = (query != request.target.query()).then(|| query.map(<[u8]>::to_vec));
        Self { text, key, query, scratch }
    }

    /// The place for a key that another node of the shield has computed.
    pub fn given(exchange: &Exchange<'_>, text: KeyText) -> Self {
        let key = text.key(&exchange.proxy.cache.secret);
        Self { text, key, query: None, scratch: shelf::take(&SCRATCH).unwrap_or_default() }
    }

    /// Replaces the query for the origin by the query of the key. If the origin saw parameters that the key leaves out, one
    /// client could choose the response for all.
    pub fn forward_query(&self, exchange: &mut Exchange<'_>) {
        if let Some(query) = &self.query {
            // The path stays the same, and it was parsed before, so this cannot fail.
            let _ = exchange.request.target.rewrite(
                None,
                Some(query.as_deref().unwrap_or_default()),
                Slashes::Keep,
            );
        }
    }

    /// Keeps the memory for the next key.
    pub fn put_back(self) {
        let Self { text, mut scratch, .. } = self;
        scratch.text = text;
        shelf::give(&SCRATCH, scratch);
    }
}

/// The address of a request as its client knows it, with this query.
pub(super) fn uri<'r>(request: &'r Request, query: Option<&'r [u8]>) -> Uri<'r> {
    let host = request.authority.host();
    let port = request.authority.as_str().get(host.len()..).and_then(|rest| rest.strip_prefix(':'));
    Uri {
        scheme: if request.secure { Scheme::Https } else { Scheme::Http },
        host,
        port: port.and_then(|port| port.parse().ok()),
        path: request.target.client_path(),
        query,
    }
}

/// The values of a route's expressions for a request.
#[derive(Debug, Default)]
pub(super) struct RouteValues {
    /// True if the request bypasses the cache.
    pub bypass: bool,
    /// The additions to the key.
    pub additions: Vec<Vec<u8>>,
    /// The conditions for lifetimes: bit `n` is set if condition `n` holds.
    pub ttl_conditions: u64,
}

/// Evaluates the expressions of the route's cache.
pub(super) fn evaluate(
    exchange: &mut Exchange<'_>,
    settings: &CacheSettings,
) -> Result<RouteValues, ExchangeEnd> {
    if !settings.has_expressions() {
        return Ok(RouteValues::default());
    }
    let pipeline = &exchange.config.settings.pipeline;
    let Some((view, state)) = exchange.view() else { return Err(Error::Internal.into()) };
    let seen = foregate_module::View::new(&view, &state.slots, pipeline.values());
    let evaluated = RouteValues {
        bypass: settings.bypass.iter().any(|condition| condition.holds(&seen)),
        additions: settings
            .key
            .iter()
            .map(|expression| addition(expression.evaluate(&seen).as_deref()))
            .collect(),
        ttl_conditions: settings
            .ttl_conditions
            .iter()
            .enumerate()
            .filter(|(number, condition)| *number < 64 && condition.holds(&seen))
            .fold(0, |bits, (number, _)| bits | 1 << number),
    };
    let run = exchange.modules.run.as_ref();
    if run.is_some_and(|run| run.facts.path_is_in_doubt.load(std::sync::atomic::Ordering::Relaxed)) {
        return Err(Error::AmbiguousPath.into());
    }
    Ok(evaluated)
}

/// Encodes a value for the key. An absent value differs from an empty one.
fn addition(value: Option<&[u8]>) -> Vec<u8> {
    let mut addition = vec![u8::from(value.is_some())];
    addition.extend_from_slice(value.unwrap_or_default());
    addition
}

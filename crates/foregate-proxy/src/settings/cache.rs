//! The settings of the cache: those of a route, and those of the store.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use foregate_cache::{Policy, QueryRule};
use foregate_module::{Condition, Expression, Plan};
use rusty_s3::{Bucket, UrlStyle};

use super::MIB;

/// The store that all routes share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheStore {
    /// Memory for stored responses, bytes. Default: 256 MiB.
    pub memory: usize,
    /// Folders for stored responses. Default: none.
    pub disks: Vec<CacheDisk>,
    /// Object storage that is asked if memory and disks do not have a response. Default: none.
    pub reserve: Option<CacheReserve>,
}

/// A folder for stored responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheDisk {
    /// The path of the folder, which must exist.
    pub folder: PathBuf,
    /// The most bytes in it.
    pub size: u64,
}

/// Object storage for stored responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheReserve {
    /// The address of the storage.
    pub endpoint: String,
    /// The bucket.
    pub bucket: String,
    /// The region, which is part of the signature of requests.
    pub region: String,
    /// The beginning of all names in the bucket.
    pub prefix: String,
    /// The file with the credentials; `None` for the environment.
    pub credentials: Option<PathBuf>,
    /// How long a response stays in the storage.
    pub keep: Duration,
    /// The shortest freshness lifetime of a response that is stored.
    pub least: Duration,
    /// How long a client's request waits for the storage.
    pub timeout: Duration,
    /// True if the name of the bucket is part of the host, false if it is part of the path.
    pub virtual_host: bool,
    /// PEM file with the authorities that are trusted for the storage's certificate; `None` for those of the
    /// system.
    pub authorities: Option<PathBuf>,
}

impl CacheReserve {
    /// The bucket with its address.
    ///
    /// # Errors
    /// The address cannot be used; the text says why.
    pub fn bucket(&self) -> Result<Bucket, String> {
        let url = self.endpoint.parse().map_err(|error| format!("{:?}: {error}", self.endpoint))?;
        let style = if self.virtual_host { UrlStyle::VirtualHost } else { UrlStyle::Path };
        Bucket::new(url, style, self.bucket.clone(), self.region.clone()).map_err(|error| error.to_string())
    }
}

impl Default for CacheStore {
    fn default() -> Self {
        Self { memory: 256 * MIB, disks: Vec::new(), reserve: None }
    }
}

/// The cache of a route.
#[derive(Default)]
pub struct CacheSettings {
    /// The policy for storing and reusing responses.
    pub policy: Policy,
    /// The rule for the part of the query that belongs to the cache key. The origin gets only this part.
    pub query: QueryRule,
    /// Expressions with values that belong to the cache key.
    pub key: Vec<Arc<dyn Expression>>,
    /// The conditions under which certain lifetimes apply. `policy` refers to them by index; at most 64.
    pub ttl_conditions: Vec<Arc<dyn Condition>>,
    /// Requests for which one of these conditions holds bypass the cache.
    pub bypass: Vec<Arc<dyn Condition>>,
    /// True if an `Authorization` field that a step removes before the cache does not count as credentials. The
    /// origin does not see such a field.
    pub ignores_removed_authorization: bool,
    /// The name of this cache in `Cache-Status`; with `None`, the field is not sent.
    pub status_name: Option<Box<str>>,
    /// The token with which clients may purge over HTTP; with `None`, no client may.
    pub purge_token: Option<Box<str>>,
    /// True if responses are fetched from the node of the shield that is responsible for their URL.
    pub shield: bool,
    /// A plan without steps, for evaluating expressions on routes that have no plan.
    pub no_steps: Arc<Plan>,
}

impl CacheSettings {
    /// Returns true if both do the same with every request. Expressions and conditions cannot be compared: with any, the result is false.
    fn is_same(&self, other: &Self) -> bool {
        let Self { policy, query, ignores_removed_authorization, status_name, purge_token, shield, .. } =
            self;
        !self.has_expressions()
            && !other.has_expressions()
            && *policy == other.policy
            && *query == other.query
            && *ignores_removed_authorization == other.ignores_removed_authorization
            && *status_name == other.status_name
            && *purge_token == other.purge_token
            && *shield == other.shield
    }

    /// Returns true if expressions or conditions have to be evaluated for each request.
    pub fn has_expressions(&self) -> bool {
        !self.key.is_empty() || !self.bypass.is_empty() || !self.ttl_conditions.is_empty()
    }
}

impl fmt::Debug for CacheSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cache = f.debug_struct("Cache");
        cache.field("policy", &self.policy).field("query", &self.query);
        cache.field("key", &self.key.len()).field("bypass", &self.bypass.len());
        cache.field("ttl_conditions", &self.ttl_conditions.len()).field("shield", &self.shield);
        cache.field("ignores_removed_authorization", &self.ignores_removed_authorization);
        cache.field("status_name", &self.status_name).field("purges", &self.purge_token.is_some()).finish()
    }
}

/// The cache of a route, if it has one. Two values are equal only if they are the same object, so values with
/// the same content should be [shared](Self::shared).
#[derive(Debug, Clone, Default)]
pub struct RouteCache {
    settings: Option<Arc<CacheSettings>>,
    /// True if the cache was configured for the whole site.
    is_of_site: bool,
}

impl RouteCache {
    /// The cache of a route.
    pub fn new(cache: CacheSettings) -> Self {
        Self { settings: Some(Arc::new(cache)), is_of_site: false }
    }

    /// Returns a value of `known` that does the same as this one. If there is none, adds this one to `known`, and
    /// returns it. Only the last values of `known` are compared.
    #[must_use]
    pub fn shared(self, known: &mut Vec<Self>) -> Self {
        const LOOKED_AT: usize = 16;
        let Some(settings) = &self.settings else { return self };
        let is_same = |other: &&Self| {
            other.is_of_site == self.is_of_site
                && other.settings.as_ref().is_some_and(|other| other.is_same(settings))
        };
        if let Some(found) = known.iter().rev().take(LOOKED_AT).find(is_same) {
            return found.clone();
        }
        known.push(self.clone());
        self
    }

    /// Marks the cache as configured for the whole site.
    #[must_use]
    pub fn of_site(self) -> Self {
        Self { is_of_site: true, ..self }
    }

    /// Returns true if the cache was configured for the whole site instead of the route.
    pub fn is_of_site(&self) -> bool {
        self.is_of_site
    }

    /// The settings, if the route caches.
    #[inline]
    pub fn get(&self) -> Option<&Arc<CacheSettings>> {
        self.settings.as_ref()
    }

    fn address(&self) -> Option<*const CacheSettings> {
        self.settings.as_ref().map(Arc::as_ptr)
    }
}

impl PartialEq for RouteCache {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

impl Eq for RouteCache {}

impl Hash for RouteCache {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_that_do_the_same_are_shared() {
        let mut known = Vec::new();
        let cache = |shield| RouteCache::new(CacheSettings { shield, ..CacheSettings::default() });
        let first = cache(false).shared(&mut known);
        assert_eq!(cache(false).shared(&mut known), first);
        assert_ne!(cache(true).shared(&mut known), first);
        // It is shown where the cache of a route stands.
        assert_ne!(cache(false).of_site().shared(&mut known), first);
        assert_eq!(RouteCache::default().shared(&mut known), RouteCache::default());
        assert_eq!(known.len(), 3);
    }
}

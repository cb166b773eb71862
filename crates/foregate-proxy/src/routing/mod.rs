//! Which site and which route a request belongs to.
//!
//! Sites are found by a trie over reversed labels, routes by a compiled matcher; what a lookup costs depends on
//! the length of the host and of the path, not on how many sites or routes there are. Sites whose routes are the
//! same share them, and sites whose patterns are the same share the matcher.

mod host;
mod path;
#[cfg(test)]
mod tests;
mod trie;

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;

pub use self::host::{HostPattern, HostPatternError};
use self::path::PathMatcher;
pub use self::path::{PathPattern, PathPatternError, Unreachable};
use self::trie::{Node, ROOT, Trie};
use crate::settings::{Route, SiteOptions};
use crate::telemetry::metrics::{Metrics, SiteCounters};

/// No site.
const NONE: u32 = u32::MAX;

/// All sites of a configuration, compiled.
#[derive(Debug)]
pub struct SiteTable {
    trie: Trie,
    /// By node of the trie.
    ends: Vec<Ends>,
    sites: Vec<Arc<Site>>,
}

/// What ends at a node: indices into the list of sites.
#[derive(Debug, Clone, Copy)]
struct Ends {
    exact: u32,
    below: u32,
}

const NOTHING: Ends = Ends { exact: NONE, below: NONE };

/// One site.
#[derive(Debug)]
pub struct Site {
    /// Its first host as written, the label of its metrics and log lines.
    pub name: Arc<str>,
    /// What it has besides hosts and routes.
    pub options: SiteOptions,
    /// Its host patterns in their normal form, as handshakes need them.
    pub hosts: Vec<Arc<str>>,
    routes: Arc<RouteSet>,
    counters: OnceLock<Arc<SiteCounters>>,
}

/// The routes of a site, compiled.
#[derive(Debug)]
pub struct RouteSet {
    matcher: Arc<PathMatcher>,
    routes: Box<[Arc<Route>]>,
}

/// What of a host led to its site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostMatch {
    /// The name itself.
    Exact,
    /// A pattern such as `*.example.com`.
    Below,
    /// The pattern `*`.
    Any,
}

impl SiteTable {
    /// The site for a host (lower case, without port or trailing dot; IPv6 in brackets and in its shortest form):
    /// the exact name, else the longest wildcard, else `*`.
    #[inline]
    pub fn find(&self, host: &[u8]) -> Option<&Arc<Site>> {
        self.explain(host).map(|(site, _)| site)
    }

    /// The site for a host, and why.
    pub fn explain(&self, host: &[u8]) -> Option<(&Arc<Site>, HostMatch)> {
        let (index, why) = match host {
            // An address, whose last part may have dots.
            [b'[', ..] => self.walk([host].into_iter()),
            _ => self.walk(host.rsplit(|byte| *byte == b'.')),
        };
        self.sites.get(index as usize).map(|site| (site, why))
    }

    /// All sites, in the order of the file.
    pub fn sites(&self) -> &[Arc<Site>] {
        &self.sites
    }

    fn walk<'h>(&self, labels: impl Iterator<Item = &'h [u8]>) -> (u32, HostMatch) {
        let mut best = (NONE, HostMatch::Any);
        let mut node = ROOT;
        for label in labels {
            let below = self.ends[node as usize].below;
            if below != NONE {
                best = (below, if node == ROOT { HostMatch::Any } else { HostMatch::Below });
            }
            match self.trie.child(node, label) {
                Some(child) => node = child,
                None => return best,
            }
        }
        match self.ends[node as usize].exact {
            NONE => best,
            exact => (exact, HostMatch::Exact),
        }
    }
}

impl Default for SiteTable {
    fn default() -> Self {
        Self { trie: Trie::default(), ends: vec![NOTHING], sites: Vec::new() }
    }
}

impl Site {
    /// Its counters, by its name.
    #[inline]
    pub fn counters(&self, metrics: &Metrics) -> &Arc<SiteCounters> {
        self.counters.get_or_init(|| metrics.site(&self.name))
    }

    /// The route for a normalised path: an exact pattern first, then the first pattern with wildcards of the
    /// file. A path that does not start with a slash (`*`, or the empty one of CONNECT) is taken by `/**` alone.
    #[inline]
    pub fn route(&self, path: &[u8]) -> Option<&Arc<Route>> {
        self.routes.matcher.find(path).and_then(|index| self.routes.routes.get(index))
    }

    /// All routes, in the order of the file.
    pub fn routes(&self) -> &[Arc<Route>] {
        &self.routes.routes
    }
}

/// Two sites with the same host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DuplicateHost {
    /// The index of the site that has it already.
    pub site: usize,
}

/// A set that is equal to others with the same routes.
#[derive(Debug)]
struct ByRoutes(Arc<RouteSet>);

impl Borrow<[Arc<Route>]> for ByRoutes {
    fn borrow(&self) -> &[Arc<Route>] {
        &self.0.routes
    }
}

impl Hash for ByRoutes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.routes.hash(state);
    }
}

impl PartialEq for ByRoutes {
    fn eq(&self, other: &Self) -> bool {
        self.0.routes == other.0.routes
    }
}

impl Eq for ByRoutes {}

/// Builds a [`SiteTable`]; equal routes, route sets and matchers become one in memory.
#[derive(Debug, Default)]
pub struct SiteTableBuilder {
    table: SiteTable,
    patterns: HashSet<PathPattern, RandomState>,
    routes: HashSet<Arc<Route>, RandomState>,
    sets: HashSet<ByRoutes, RandomState>,
    matchers: HashMap<Box<[PathPattern]>, Arc<PathMatcher>, RandomState>,
}

impl SiteTableBuilder {
    /// The pattern that `text` is; its text is shared by all routes that have it.
    pub fn pattern(&mut self, text: &str) -> Result<PathPattern, PathPatternError> {
        if let Some(pattern) = self.patterns.get(text) {
            return Ok(pattern.clone());
        }
        let pattern: PathPattern = text.parse()?;
        self.patterns.insert(pattern.clone());
        Ok(pattern)
    }

    /// `route`, or an equal one that exists already.
    pub fn route(&mut self, route: Route) -> Arc<Route> {
        if let Some(route) = self.routes.get(&route) {
            return route.clone();
        }
        let route = Arc::new(route);
        self.routes.insert(route.clone());
        route
    }

    /// Compiles routes, each with its pattern.
    ///
    /// # Errors
    ///
    /// Every route that an earlier one, or one with the same pattern, makes unreachable.
    pub fn route_set(
        &mut self,
        routes: Vec<(PathPattern, Arc<Route>)>,
    ) -> Result<Arc<RouteSet>, Vec<Unreachable>> {
        let (patterns, routes): (Vec<_>, Vec<_>) = routes.into_iter().unzip();
        if let Some(set) = self.sets.get(&*routes) {
            return Ok(set.0.clone());
        }
        let matcher = match self.matchers.get(&*patterns) {
            Some(matcher) => matcher.clone(),
            None => {
                let mut unreachable = Vec::new();
                let matcher = Arc::new(PathMatcher::compile(&patterns, &mut unreachable));
                if !unreachable.is_empty() {
                    return Err(unreachable);
                }
                self.matchers.insert(patterns.into(), matcher.clone());
                matcher
            }
        };
        let set = Arc::new(RouteSet { matcher, routes: routes.into() });
        self.sets.insert(ByRoutes(set.clone()));
        Ok(set)
    }

    /// Adds a site without hosts and returns its index.
    pub fn site(&mut self, name: Arc<str>, options: SiteOptions, routes: Arc<RouteSet>) -> usize {
        self.table.sites.push(Arc::new(Site {
            name,
            options,
            hosts: Vec::new(),
            routes,
            counters: OnceLock::new(),
        }));
        self.table.sites.len() - 1
    }

    /// Makes a site answer for a host.
    ///
    /// # Errors
    ///
    /// Another site, or this one, has the host already.
    pub fn host(&mut self, site: usize, host: &HostPattern) -> Result<(), DuplicateHost> {
        let node = match host {
            HostPattern::Exact(name) | HostPattern::Below(name) => self.node(name),
            HostPattern::Any => ROOT,
        };
        let ends = &mut self.table.ends[node as usize];
        let end = if matches!(host, HostPattern::Exact(_)) { &mut ends.exact } else { &mut ends.below };
        if *end != NONE {
            return Err(DuplicateHost { site: *end as usize });
        }
        *end = u32::try_from(site).expect("a configuration file has fewer than 4 billion sites");
        let site = self.table.sites.get_mut(site).and_then(Arc::get_mut);
        let site = site.expect("a site is shared only once the table is built");
        let text: Arc<str> = host.to_string().into();
        site.hosts.push(if *text == *site.name { Arc::clone(&site.name) } else { text });
        Ok(())
    }

    /// The finished table.
    pub fn build(mut self) -> SiteTable {
        self.table.trie.shrink();
        self.table.ends.shrink_to_fit();
        self.table.sites.shrink_to_fit();
        self.table
    }

    fn node(&mut self, name: &str) -> Node {
        let mut node = ROOT;
        if name.starts_with('[') {
            node = self.table.trie.child_or_add(node, name.as_bytes());
        } else {
            for label in name.rsplit('.') {
                node = self.table.trie.child_or_add(node, label.as_bytes());
            }
        }
        self.table.ends.resize(self.table.trie.nodes(), NOTHING);
        node
    }
}

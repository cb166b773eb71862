//! Finding the site and the route of a request.
//!
//! Sites are found by a hash table over whole hosts, and by one look for each depth at which there
//! are wildcards; routes by a compiled matcher. The cost of a lookup depends on the length of the
//! host and of the path, not on the number of sites or routes, and it waits for memory as rarely as
//! possible: see `hosts.rs` and `routes.rs`. Equal routes, and equal options, of several sites are
//! stored only once.

mod conditional;
mod host;
mod hosts;
mod path;
mod routes;
mod store;
#[cfg(test)]
mod tests;
mod trie;

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use foldhash::fast::RandomState;
use foregate_wire::{Slashes, other_readings};

pub use self::conditional::{Conditional, ConditionalRoute};
pub use self::host::{HostPattern, HostPatternError};
pub use self::hosts::HostId;
use self::hosts::{EVERYWHERE, HostTable, Owner};
pub use self::path::{PathPattern, PathPatternError, Unreachable};
pub use self::routes::{RouteId, RouteSet};
use self::routes::{RouteTable, RouteTableBuilder};
use crate::counters::metrics::{BETWEEN, Metrics, ROUTES_LIMIT, RouteCounters, SiteCounters};
use crate::settings::{ListenAddress, Route, RouteConditions, SiteOptions};

/// All sites of a configuration, compiled.
#[derive(Debug)]
pub struct SiteTable {
    hosts: HostTable,
    routes: RouteTable,
    sites: Vec<Site>,
    /// The counters to which entries of `hosts` refer by index.
    counters: Vec<Arc<SiteCounters>>,
    durations: RouteDurations,
    /// The listeners that have sites of their own. Entries of `hosts` refer to them by number, from 1.
    listeners: Vec<ListenAddress>,
}

/// The histograms of routes. Each site has its own, although sites share equal routes.
#[derive(Debug, Default)]
struct RouteDurations {
    /// The counters by the index of the site and the memory address of the route.
    own: HashMap<(u32, usize), Arc<RouteCounters>, RandomState>,
    others: Arc<RouteCounters>,
}

/// One site.
#[derive(Debug)]
pub struct Site {
    /// The first host as written, which names the site in metrics and log lines.
    pub name: Arc<str>,
    /// The options other than hosts and routes.
    pub options: Arc<SiteOptions>,
    /// The host patterns in their normal form, for TLS handshakes.
    pub hosts: Vec<Arc<str>>,
    /// The routes with conditions in addition to their paths, in the order in which they are tried.
    pub conditional: Conditional,
    routes: RouteSet,
}

/// The kind of pattern that has matched a host.
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
    /// The pattern for a host (lower case, without port or trailing dot; IPv6 in brackets and in
    /// its shortest form): the exact name, else the longest wildcard, else `*`.
    #[inline]
    pub fn find(&self, host: &[u8]) -> Option<HostId> {
        self.explain(host).map(|(id, _)| id)
    }

    /// The pattern for a host, and the kind of match.
    #[inline]
    pub fn explain(&self, host: &[u8]) -> Option<(HostId, HostMatch)> {
        let fetch = |routes| self.routes.fetch(routes);
        let exact = self.hosts.exact(host, EVERYWHERE, fetch).map(|id| (id, HostMatch::Exact));
        exact
            .or_else(|| self.hosts.below(host, EVERYWHERE).map(|id| (id, HostMatch::Below)))
            .or_else(|| self.hosts.any(EVERYWHERE).map(|id| (id, HostMatch::Any)))
    }

    /// Returns true if some sites are bound to listeners.
    #[inline]
    pub fn depends_on_listener(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Like [`explain`](Self::explain), for a request through this listener. If two sites have the same
    /// pattern, a site bound to the listener has precedence over one on all listeners.
    pub fn explain_on(&self, host: &[u8], listener: &ListenAddress) -> Option<(HostId, HostMatch)> {
        let Some(number) = self.listeners.iter().position(|known| known == listener) else {
            return self.explain(host);
        };
        let number = listener_number(number);
        let exact =
            self.hosts.exact(host, number, |_| {}).or_else(|| self.hosts.exact(host, EVERYWHERE, |_| {}));
        let exact = exact.map(|id| (id, HostMatch::Exact));
        let any = || self.hosts.any(number).or_else(|| self.hosts.any(EVERYWHERE));
        exact
            .or_else(|| self.hosts.below(host, number).map(|id| (id, HostMatch::Below)))
            .or_else(|| any().map(|id| (id, HostMatch::Any)))
    }

    /// The site that a pattern belongs to.
    pub fn site(&self, id: HostId) -> &Site {
        &self.sites[self.hosts.entry(id).site as usize]
    }

    /// The route of a pattern's site for a normalised path. A pattern without wildcards has precedence,
    /// then the first pattern in the file that has wildcards. A path that does not start with a slash
    /// (`*`, or the empty one of CONNECT) is matched only by `/**`.
    #[inline]
    pub fn route(&self, id: HostId, path: &[u8]) -> Option<&Arc<Route>> {
        self.routes.find(self.hosts.entry(id).routes, path)
    }

    /// Returns true if routes of a pattern's site have conditions in addition to their paths.
    #[inline]
    pub fn has_conditions(&self, id: HostId) -> bool {
        self.hosts.entry(id).has_conditions()
    }

    /// Like [`route`](Self::route), for routes with conditions: routes for which `holds` returns
    /// false are skipped.
    pub fn route_if(
        &self,
        id: HostId,
        path: &[u8],
        holds: &mut dyn FnMut(&RouteConditions) -> bool,
    ) -> Option<&Arc<Route>> {
        let (plain, mut conditional) = self.candidates(id, path);
        conditional.find(|(conditions, _)| holds(conditions)).map(|(_, route)| route).or(plain)
    }

    /// The route without conditions for a normalised path, and those with conditions that are tried
    /// before it, in their order.
    pub fn candidates<'s, 'p>(
        &'s self,
        id: HostId,
        path: &'p [u8],
    ) -> (Option<&'s Arc<Route>>, impl Iterator<Item = (&'s RouteConditions, &'s Arc<Route>)> + use<'s, 'p>)
    {
        let plain = self.routes.find_at(self.hosts.entry(id).routes, path);
        let is_before = move |conditional: &&ConditionalRoute| {
            plain.is_none_or(|(place, _)| !conditional.is_behind(place))
        };
        let conditional = self.site(id).conditional.iter().flat_map(|routes| routes.iter());
        let conditional = conditional.take_while(is_before).filter(|route| route.pattern.takes(path));
        let conditional =
            conditional.filter_map(|found| Some((&*found.conditions, self.routes.get(found.route)?)));
        (plain.map(|(_, route)| route), conditional)
    }

    /// Like [`readings`](Self::readings), for routes with conditions.
    ///
    /// # Errors
    ///
    /// See [`readings`](Self::readings).
    pub fn readings_if(
        &self,
        id: HostId,
        path: &[u8],
        holds: &mut dyn FnMut(&RouteConditions) -> bool,
    ) -> Result<Option<Vec<Vec<u8>>>, Ambiguous> {
        let entry = self.hosts.entry(id);
        let slashes = if entry.keeps_slashes() { Slashes::Keep } else { Slashes::Merge };
        if entry.forwards_ambiguous()
            || memchr::memchr2(b'%', b';', path).is_none() && slashes == Slashes::Merge
        {
            return Ok(None);
        }
        let own = self.route_if(id, path, holds).map(Arc::as_ptr);
        let same = |reading: &[u8]| self.route_if(id, reading, holds).map(Arc::as_ptr) == own;
        other_readings(path, slashes, same).map(Some).ok_or(Ambiguous)
    }

    /// The other paths that a server may take a normalised path for, if these could lead to another route:
    /// see [`other_readings`] and [`SiteOptions::forward_ambiguous`].
    ///
    /// # Errors
    ///
    /// The path has to be refused, because some servers may take it for a path of another route.
    #[inline]
    pub fn readings(&self, id: HostId, path: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Ambiguous> {
        let entry = self.hosts.entry(id);
        if entry.forwards_ambiguous() {
            return Ok(None);
        }
        let slashes = if entry.keeps_slashes() { Slashes::Keep } else { Slashes::Merge };
        let plain = memchr::memchr2(b'%', b';', path).is_none() && slashes == Slashes::Merge;
        // If `/**` is the only route, it matches every path, also `*`.
        if plain || self.routes.all(entry.routes).take(2).count() == 1 && self.route(id, b"*").is_some() {
            return Ok(None);
        }
        let route = |path: &[u8]| self.route(id, path).map(Arc::as_ptr);
        let own = route(path);
        other_readings(path, slashes, |reading| route(reading) == own).map(Some).ok_or(Ambiguous)
    }

    /// The [`other_readings`] of a normalised path, for which conditions have to be evaluated as well.
    /// Empty if the site [forwards ambiguous paths](SiteOptions::forward_ambiguous).
    pub fn other_paths(&self, id: HostId, path: &[u8]) -> Option<Vec<Vec<u8>>> {
        let entry = self.hosts.entry(id);
        if entry.forwards_ambiguous() {
            return Some(Vec::new());
        }
        other_readings(path, if entry.keeps_slashes() { Slashes::Keep } else { Slashes::Merge }, |_| true)
    }

    /// [`SiteOptions::requires_certificate`] of a pattern's site.
    pub fn requires_certificate(&self, id: HostId) -> bool {
        self.hosts.entry(id).requires_certificate()
    }

    /// [`SiteOptions::redirect_https`] of a pattern's site.
    pub fn redirects(&self, id: HostId) -> Option<u16> {
        // Most sites do not redirect, and reading a site's options may wait for memory.
        if self.hosts.entry(id).redirects() { self.site(id).options.redirect_https } else { None }
    }

    /// [`SiteOptions::keep_slashes`] of a pattern's site.
    pub fn keeps_slashes(&self, id: HostId) -> bool {
        self.hosts.entry(id).keeps_slashes()
    }

    /// [`SiteOptions::allow_underscores`] of a pattern's site.
    pub fn allows_underscores(&self, id: HostId) -> bool {
        self.hosts.entry(id).allows_underscores()
    }

    /// The counters of a pattern's site.
    pub fn counters(&self, id: HostId) -> &SiteCounters {
        &self.counters[self.hosts.entry(id).counters as usize]
    }

    /// Prepares the table for requests: moves it to its final place in memory, counts the requests of its sites in `metrics`
    /// from now on, and shows no other sites there.
    pub fn count_in(&mut self, metrics: &Metrics) {
        // The table is not moved earlier, while it is built, because the text and the tree of the
        // configuration are in memory at that time as well.
        self.hosts.settle();
        let names = self.sites.iter().map(|site| &site.name);
        let (counters, of_sites) = metrics.set_sites(names);
        for entry in self.hosts.entries_mut() {
            entry.counters = of_sites[entry.site as usize];
        }
        self.counters = counters;
        self.count_routes_in(metrics);
    }

    fn count_routes_in(&mut self, metrics: &Metrics) {
        let (mut keys, mut names) = (Vec::new(), Vec::new());
        for (number, site) in (0..).zip(&self.sites) {
            let conditional =
                site.conditional.iter().flat_map(|routes| routes.iter()).map(|route| route.route);
            let routes = self.routes.all(site.routes).chain(conditional).filter_map(|id| self.routes.get(id));
            for route in routes.take(ROUTES_LIMIT.saturating_sub(keys.len())) {
                keys.push((number, Arc::as_ptr(route).addr()));
                names.push(Arc::from(format!("{}{BETWEEN}{}", site.name, route.pattern)));
            }
            if keys.len() >= ROUTES_LIMIT {
                break;
            }
        }
        let (own, others) = metrics.set_routes(&names);
        self.durations = RouteDurations { own: keys.into_iter().zip(own).collect(), others };
    }

    /// The counters of a route of a pattern's site.
    pub fn route_counters(&self, id: HostId, route: &Arc<Route>) -> &RouteCounters {
        let key = (self.hosts.entry(id).site, Arc::as_ptr(route).addr());
        self.durations.own.get(&key).unwrap_or(&self.durations.others)
    }

    /// A table with only one site, without its routes, for the rest of a request. The site's pattern is [`HostId::FIRST`].
    pub fn only(&self, id: HostId, route: Option<&Arc<Route>>) -> Self {
        let Site { name, options, .. } = self.site(id);
        let site = Site {
            name: Arc::clone(name),
            options: Arc::clone(options),
            hosts: Vec::new(),
            conditional: None,
            routes: RouteSet::EMPTY,
        };
        let entry = self.hosts.entry(id);
        let own = route.and_then(|route| {
            let address = Arc::as_ptr(route).addr();
            let known = self.durations.own.get(&(entry.site, address))?;
            Some(((0, address), Arc::clone(known)))
        });
        Self {
            hosts: HostTable::only(entry),
            sites: vec![site],
            counters: vec![Arc::clone(&self.counters[entry.counters as usize])],
            durations: RouteDurations {
                own: own.into_iter().collect(),
                others: Arc::clone(&self.durations.others),
            },
            ..Self::default()
        }
    }

    /// All sites, in the order of the file.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// All routes; equal ones appear once.
    pub fn routes(&self) -> &[Arc<Route>] {
        self.routes.routes()
    }
}

impl Default for SiteTable {
    fn default() -> Self {
        Self {
            hosts: HostTable::default(),
            routes: RouteTable::default(),
            sites: Vec::new(),
            counters: vec![Arc::default()],
            durations: RouteDurations::default(),
            listeners: Vec::new(),
        }
    }
}

/// The error for a path that servers may read as a path of another route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ambiguous;

/// The error for a host that two sites have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DuplicateHost {
    /// The index of the site that already has the host.
    pub site: usize,
}

/// Builds a [`SiteTable`]. Of equal patterns, routes, route sets and options, it stores only one.
#[derive(Debug, Default)]
pub struct SiteTableBuilder {
    hosts: HostTable,
    routes: RouteTableBuilder,
    sites: Vec<Site>,
    patterns: HashSet<PathPattern, RandomState>,
    /// By their hashes.
    options: HashMap<u64, Arc<SiteOptions>, RandomState>,
    listeners: Vec<ListenAddress>,
}

impl SiteTableBuilder {
    /// A builder for this many sites; there may be more. A table that grows exists twice for a moment.
    pub fn with_room(sites: usize) -> Self {
        Self { hosts: HostTable::with_room(sites), sites: Vec::with_capacity(sites), ..Self::default() }
    }

    /// Parses a pattern. All routes with the same pattern share its text.
    pub fn pattern(&mut self, text: &str) -> Result<PathPattern, PathPatternError> {
        if let Some(pattern) = self.patterns.get(text) {
            return Ok(pattern.clone());
        }
        let pattern: PathPattern = text.parse()?;
        self.patterns.insert(pattern.clone());
        Ok(pattern)
    }

    /// Adds a route, or returns an equal one that exists already.
    pub fn route(&mut self, route: Route) -> RouteId {
        self.routes.route(route)
    }

    /// Compiles routes, each with its pattern.
    ///
    /// # Errors
    ///
    /// Returns every route that is unreachable because of an earlier route or of one with the same pattern.
    pub fn route_set(&mut self, routes: Vec<(PathPattern, RouteId)>) -> Result<Routes, Vec<Unreachable>> {
        self.routes.all_of(routes).map(|(set, conditional)| Routes { set, conditional })
    }

    /// Adds a site without hosts and returns its index.
    pub fn site(&mut self, name: Arc<str>, options: SiteOptions, routes: Routes) -> usize {
        let Routes { set, conditional } = routes;
        let hash = self.options.hasher().hash_one(&options);
        let known = self.options.get(&hash).filter(|known| ***known == options).cloned();
        let options = known.unwrap_or_else(|| {
            let options = Arc::new(options);
            self.options.insert(hash, Arc::clone(&options));
            options
        });
        self.sites.push(Site { name, options, hosts: Vec::new(), conditional, routes: set });
        self.sites.len() - 1
    }

    /// Makes a site answer for a host.
    ///
    /// # Errors
    ///
    /// A site, possibly this one, already has the host.
    pub fn host(&mut self, index: usize, host: &HostPattern) -> Result<(), DuplicateHost> {
        let (name, below) = match host {
            HostPattern::Exact(name) => (&**name, false),
            HostPattern::Below(name) => (&**name, true),
            HostPattern::Any => ("", true),
        };
        let any = *host == HostPattern::Any;
        let numbers = self.listener_numbers(index);
        for number in &numbers {
            let known = if any { self.hosts.any(*number) } else { self.hosts.rival(name, below, *number) };
            if let Some(known) = known {
                return Err(DuplicateHost { site: self.hosts.entry(known).site as usize });
            }
        }
        let site = &mut self.sites[index];
        site.hosts.reserve_exact(1);
        let text = host.text();
        site.hosts.push(if *text == *site.name { Arc::clone(&site.name) } else { text });
        for listener in numbers {
            let of = Owner {
                site: narrow(index),
                routes: site.routes,
                options: &site.options,
                has_conditions: site.conditional.is_some(),
                listener,
            };
            if any {
                self.hosts.add_any(of);
            } else {
                self.hosts.add(name, below, of);
            }
        }
        Ok(())
    }

    /// The numbers of the listeners that a site is on, or the number for all listeners.
    fn listener_numbers(&mut self, site: usize) -> Vec<u16> {
        let Self { sites, listeners, .. } = self;
        let mut number = |listener: &ListenAddress| {
            let known = listeners.iter().position(|known| known == listener);
            listener_number(known.unwrap_or_else(|| {
                listeners.push(listener.clone());
                listeners.len() - 1
            }))
        };
        let mut numbers: Vec<u16> = sites[site].options.listeners.iter().map(&mut number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.is_empty() { vec![EVERYWHERE] } else { numbers }
    }

    /// The finished table.
    pub fn build(self) -> SiteTable {
        let Self { hosts, routes, mut sites, listeners, .. } = self;
        sites.shrink_to_fit();
        SiteTable { hosts, routes: routes.build(), sites, listeners, ..SiteTable::default() }
    }
}

/// The routes of a site, compiled.
#[derive(Debug, Clone)]
pub struct Routes {
    set: RouteSet,
    conditional: Conditional,
}

/// The number of a listener in host patterns; 0 stands for all listeners.
fn listener_number(index: usize) -> u16 {
    u16::try_from(index + 1).expect("a process has fewer than 65,535 listeners: each needs a descriptor")
}

fn narrow(size: usize) -> u32 {
    u32::try_from(size).expect("a configuration file is shorter than 4 GiB")
}

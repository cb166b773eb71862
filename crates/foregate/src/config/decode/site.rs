//! `site` and its routes.

use std::path::PathBuf;
use std::sync::Arc;

use foregate_config::{Decoder, Item, Modules, Place, Problem, Scope, Upstreams as _};
use foregate_module::Plan;
use foregate_proxy::routing::{
    HostPattern, HostPatternError, PathPattern, RouteId, Routes, SiteTable, SiteTableBuilder,
};
use foregate_proxy::settings::automatic::Automatic;
use foregate_proxy::settings::{
    AccessLogSettings, Action, Compare, CompareMode, Fallback, Files, Listen, Mirror, Route, RouteCache,
    RoutePlan, RouteTimeouts, SHARE_WHOLE, SiteOptions, UpstreamProtocol,
};

use super::access_log;
use super::acme::CertifiedSite;
use super::conditions;
use super::idle::{self, Idle};
use super::log_files::PlacedLog;
use super::names::UpstreamNames;
use super::numbers::TIMES;
use super::queueing::Queueing;
use super::retry::RouteRules;
use super::shield::ReadShield;
use super::{cache, compare, fallback, files, respond, tls};
use crate::config::schema::{ROUTE, ROUTE_TIMEOUTS, SITE, SITE_TLS};
use foregate_config::value::{self, Wrong};

/// The error for a route that looks like a regular expression, or like a pattern for the end of a path.
const NO_EXPRESSION: &str = "a route is a path, `/a`, or all paths below one, `/a/**`; there are no regular expressions. \
     By its end a path is told in a rule: rule #\"ends_with(http.request.uri.path, \".php\")\"# { ... }";

/// The values of `ambiguous-paths`, for paths that origins may read differently; true forwards such paths.
const AMBIGUOUS_PATHS: &[(&str, bool)] = &[("refuse", false), ("forward", true)];
/// The treatment of paths with duplicate slashes, which decides about a route that has them in its pattern.
#[derive(Debug, Clone, Copy)]
enum DuplicateSlashes {
    /// The slashes are merged before a path is matched, so such a pattern never matches.
    Merged,
    /// The paths are refused, because a server that merges slashes would take them for another route's paths.
    Refused,
    /// The slashes are kept, and such a pattern matches paths with the same slashes.
    Matched,
}

impl DuplicateSlashes {
    fn of(options: &SiteOptions) -> Self {
        match (options.keep_slashes, options.forward_ambiguous) {
            (false, _) => Self::Merged,
            (true, false) => Self::Refused,
            (true, true) => Self::Matched,
        }
    }
}

/// The values of `slashes`, for duplicate slashes; true keeps them.
const SLASHES: &[(&str, bool)] = &[("merge", false), ("keep", true)];

/// The sites that are being read.
pub(super) struct Sites<'u> {
    builder: SiteTableBuilder,
    upstreams: &'u UpstreamNames,
    modules: Modules<'u>,
    /// The keys of modules at the top of the file.
    top: Scope,
    /// The place of each site, by its index.
    places: Vec<Place>,
    /// The places of `tls` in sites.
    tls: Vec<Place>,
    /// The hosts that no certificate read so far covers, with the places of their sites.
    uncertified: Vec<(HostPattern, Place)>,
    /// The facts about certificates of each site.
    certified: Vec<CertifiedSite>,
    idle: Idle<'u>,
    /// The folders that routes serve.
    folders: Vec<Arc<Files>>,
    /// The access logs of sites.
    access_logs: Vec<PlacedLog>,
    /// True if files and folders must exist and be accessible.
    inspect: bool,
    /// The `fallback` at the top of the file.
    fallback: Option<Arc<Fallback>>,
    /// Set if a site or a route has a `fallback`, or a `compare` in which the old proxy answers.
    falls_back: bool,
    /// Set if a site or a route has a `compare`.
    compares: bool,
    /// The first `compare mode="tap"`.
    tapped: Option<Place>,
    /// The shield that caches may name.
    shield: Option<&'u ReadShield>,
    /// The caches that were read, to share equal ones.
    caches: Vec<RouteCache>,
}

impl<'u> Sites<'u> {
    pub(super) fn new(
        upstreams: &'u UpstreamNames,
        modules: Modules<'u>,
        top: Scope,
        idle: Idle<'u>,
        inspect: bool,
        sites: usize,
    ) -> Self {
        let builder = SiteTableBuilder::with_room(sites);
        let (places, tls, uncertified) = (Vec::new(), Vec::new(), Vec::new());
        let folders = Vec::new();
        Self {
            builder,
            upstreams,
            modules,
            top,
            places,
            tls,
            uncertified,
            certified: Vec::new(),
            idle,
            folders,
            access_logs: Vec::new(),
            inspect,
            fallback: None,
            falls_back: false,
            compares: false,
            tapped: None,
            shield: None,
            caches: Vec::new(),
        }
    }

    /// The `fallback` at the top of the file.
    pub(super) fn fall_back(&mut self, fallback: Option<Arc<Fallback>>) {
        self.fallback = fallback;
    }

    /// The shield that caches may name.
    pub(super) fn shield(&mut self, shield: &'u ReadShield) {
        self.shield = Some(shield);
    }

    /// Returns true if a site or a route has a `fallback`, or a `compare` in which the old proxy answers.
    pub(super) fn falls_back(&self) -> bool {
        self.falls_back
    }

    /// Records the mode of a `compare`. In modes other than `shadow` the old proxy answers, so they count as a `fallback`.
    fn see_mode(&mut self, compare: Option<&Compare>, item: Item<'_>) {
        self.falls_back |= compare.is_some_and(|compare| compare.mode != CompareMode::Shadow);
        if compare.is_some_and(|compare| compare.mode == CompareMode::Tap) {
            self.tapped.get_or_insert(item.place());
        }
    }

    /// The first `compare mode="tap"`.
    pub(super) fn tapped(&self) -> Option<Place> {
        self.tapped
    }

    /// Returns true if a site or a route has a `compare`.
    pub(super) fn compares(&self) -> bool {
        self.compares
    }

    /// The folders that routes serve, by their index.
    pub(super) fn take_folders(&mut self) -> Vec<Arc<Files>> {
        std::mem::take(&mut self.folders)
    }

    /// The access logs of sites.
    pub(super) fn take_access_logs(&mut self) -> Vec<PlacedLog> {
        std::mem::take(&mut self.access_logs)
    }

    /// Warns about settings without effect. `secure` is true if a listener speaks TLS; `lists` has the nodes of lists.
    pub(super) fn warn(
        &mut self,
        decoder: &mut Decoder<'_>,
        secure: bool,
        automatic: Option<&Automatic>,
        lists: &[Item<'_>],
        inspection: &tls::Inspection,
    ) {
        let is_obtained = |host: &HostPattern| {
            automatic.is_some_and(|automatic| automatic.names.contains_key(&*host.to_string()))
        };
        self.uncertified.retain(|(host, _)| secure && inspection.lacks(host) && !is_obtained(host));
        for (host, place) in self.uncertified.drain(..) {
            let problem = Problem::new(Some(place), format!("no certificate carries `{host}`"));
            decoder.warn(
                problem.help("over TLS clients refuse it; `tls` of a `listen` or of the site names another"),
            );
        }
        if !secure {
            for place in self.tls.drain(..) {
                let problem = Problem::new(Some(place), "no listener speaks TLS, so that this has no effect");
                decoder.warn(problem.help("add `tls` to a `listen`"));
            }
        }
        let unused = self.modules.unused_lists();
        for list in lists {
            let name = list.node.entries().find(|entry| entry.key().is_none());
            if let Some(name) = name.filter(|name| unused.contains(&name.text())) {
                let message = format!("no expression looks into this list, `in ${}`", name.text());
                decoder.warn(Problem::new(Some(list.place()), message));
            }
        }
        self.modules.refuse_impossible(decoder);
        let unwritten = self.modules.unwritten();
        std::mem::replace(&mut self.idle, Idle::new(self.modules.pipeline())).tell(decoder, unwritten);
    }

    /// The facts about certificates of each site.
    pub(super) fn certified(&self) -> &[CertifiedSite] {
        &self.certified
    }

    /// Returns the sites, the files that their modules have read, and the modules' log files, each with its first place.
    pub(super) fn build(self) -> (SiteTable, Vec<PathBuf>, Vec<(PathBuf, Place)>) {
        let (files, logs) = self.modules.into_files();
        (self.builder.build(), files.into_watched(), logs)
    }

    pub(super) fn decode(
        &mut self,
        decoder: &mut Decoder<'_>,
        item: Item<'_>,
        inspection: &mut tls::Inspection,
        listeners: &[Listen],
    ) {
        let hosts = decoder.read_all(item, |value| {
            let text = value::string(value)?;
            text.parse::<HostPattern>().map_err(|error| {
                let wrong = Wrong::new(format!("{error}"));
                if text.contains("://") {
                    wrong.help("write it without a scheme, and without a path")
                } else if error == HostPatternError::Underscore {
                    wrong.help("write `site \"*\"` for all hosts that no other site names")
                } else if let Some(name) = text.strip_prefix('.').filter(|name| !name.is_empty()) {
                    wrong
                        .help(format!("write `site \"{name}\" \"*.{name}\"`: a name, and all names below it"))
                } else {
                    wrong
                }
            })
        });
        let mut options = SiteOptions::default();
        let (mut routes, mut queueing) = (Vec::new(), Queueing::default());
        let mut cache = cache::SiteCache::default();
        let (nodes, of_modules) = decoder.open_block(item, &SITE);
        self.idle.see(&of_modules);
        let answering = of_modules.clone();
        let scope = self.modules.scope(decoder, Some(&self.top), of_modules);
        for (key, item) in nodes {
            match key.name {
                "route" => routes.push(item),
                "access-log" => {
                    let log = access_log::decode(decoder, item, &mut self.modules, self.inspect);
                    let site = hosts.first().map(HostPattern::text);
                    self.access_logs
                        .extend(log.map(|(log, place)| (AccessLogSettings { site, ..log }, place)));
                }
                "listeners" => options.listeners = conditions::listeners(decoder, item, listeners),
                "allow-underscores" => options.allow_underscores = decoder.flag(item),
                "requests" => queueing.requests(decoder, item),
                "queue" => queueing.queue(decoder, item),
                "slashes" => options.keep_slashes = decoder.choice(item, 0, SLASHES).unwrap_or_default(),
                "ambiguous-paths" => {
                    options.forward_ambiguous = decoder.choice(item, 0, AMBIGUOUS_PATHS).unwrap_or_default();
                }
                "tls" => {
                    self.tls.push(item.place());
                    options.tls = Some(tls::decode(decoder, item, &SITE_TLS, inspection));
                }
                "fallback" => {
                    options.fallback = fallback::decode(decoder, item, self.upstreams, &mut self.modules);
                    self.falls_back = true;
                }
                "compare" => {
                    options.compare = compare::decode(decoder, item, self.upstreams);
                    self.compares = true;
                    self.see_mode(options.compare.as_deref(), item);
                }
                "cache" => cache.read(decoder, item, (&mut self.modules, self.shield, &mut self.caches)),
                "server-timing" => options.server_timing = decoder.flag(item),
                "redirect-https" => {
                    let port = decoder.prop(item, "port", |v| value::number(v, 1..=65_535));
                    options.redirect_https = Some(port.map_or(443, |port| port as u16));
                }
                name => debug_assert!(false, "{name} is not read"),
            }
        }
        options.requests = queueing.finish(decoder);
        options.unrouted = RoutePlan::new(self.modules.plan(&scope, false));
        let slashes = DuplicateSlashes::of(&options);
        cache.warn(decoder, &routes);
        let (scope, answering, of_options) = (&scope, &*answering, &options);
        let of_site = OfSite { slashes, scope, answering, options: of_options, cache: &cache, listeners };
        let routes = self.routes(decoder, routes, of_site);
        let issuer = options.tls.as_ref().and_then(|tls| tls.automatic);
        let has_files = options.tls.as_ref().is_some_and(|tls| !tls.certificates.is_empty());
        if let Some(host) = hosts.iter().find(|host| issuer.is_none() && inspection.lacks(host)) {
            self.uncertified.push((host.clone(), item.place()));
        }
        if let (Some(routes), Some(first)) = (routes, hosts.first()) {
            let site = self.builder.site(first.text(), options, routes);
            self.places.push(item.place());
            for host in &hosts {
                if let Err(duplicate) = self.builder.host(site, host) {
                    let message = format!("`{host}` belongs to a site already");
                    let problem = Problem::new(Some(item.place()), message);
                    decoder.push(problem.also(self.places[duplicate.site], "this one"));
                }
            }
        }
        // Most configurations have many sites, and none that gets certificates by itself.
        let is_issued = |listen: &Listen| listen.tls.as_ref().is_some_and(|tls| tls.automatic.is_some());
        if !has_files && (issuer.is_some() || listeners.iter().any(is_issued)) {
            self.certified.push(CertifiedSite { hosts, place: item.place(), issuer });
        }
    }

    fn routes(&mut self, decoder: &mut Decoder<'_>, items: Vec<Item<'_>>, of: OfSite<'_>) -> Option<Routes> {
        let mut routes = Vec::with_capacity(items.len());
        let mut places = Vec::with_capacity(items.len());
        let mut whole = true;
        for item in &items {
            match self.route(decoder, *item, of) {
                Some(route) => {
                    routes.push(route);
                    places.push(item.place());
                }
                None => whole = false,
            }
        }
        idle::paths(
            decoder,
            of.answering,
            &routes.iter().map(|(pattern, _)| pattern).collect::<Vec<_>>(),
            "no route of this site takes",
        );
        if whole {
            let patterns: Vec<_> = routes.iter().map(|(pattern, _)| pattern).collect();
            idle::open_below(decoder, &patterns, &items);
        }
        let patterns: Vec<Arc<str>> = routes.iter().map(|(pattern, _)| pattern.text().clone()).collect();
        match self.builder.route_set(routes) {
            Ok(set) => whole.then_some(set),
            Err(unreachable) => {
                for route in unreachable {
                    let by = &patterns[route.by];
                    let place = Some(places[route.index]);
                    let problem = if *by == patterns[route.index] {
                        let problem = Problem::new(place, format!("`{by}` has a route already"));
                        let has_conditions = items.get(route.index).is_some_and(conditions::are_there);
                        let help = "a route with conditions stands before one of the same path without";
                        if has_conditions { problem.help(help) } else { problem }
                    } else {
                        let message = format!(
                            "this route is never reached: `{by}` before it takes all of its requests"
                        );
                        Problem::new(place, message)
                            .help("routes with wildcards are tried in the order of the file")
                    };
                    decoder.push(problem.also(places[route.by], "this one"));
                }
                None
            }
        }
    }

    fn route(
        &mut self,
        decoder: &mut Decoder<'_>,
        item: Item<'_>,
        of: OfSite<'_>,
    ) -> Option<(PathPattern, RouteId)> {
        let OfSite { slashes, scope: site, options, cache: site_cache, listeners, .. } = of;
        let pattern = decoder.read(item, 0, |value| {
            let text = value::string(value)?;
            let pattern = self.builder.pattern(text).map_err(|error| {
                let wrong = Wrong::new(format!("{error}"));
                // These are patterns in the syntax of NGINX and other proxies.
                if text.starts_with(['~', '^', '=', '*', '@', '.']) || text.contains("*.") {
                    wrong.help(NO_EXPRESSION)
                } else if self.builder.pattern(&format!("/{text}")).is_ok() {
                    wrong.help(format!("write \"/{text}\""))
                } else {
                    wrong
                }
            })?;
            match slashes {
                _ if !pattern.has_duplicate_slash() => Ok(pattern),
                DuplicateSlashes::Matched => Ok(pattern),
                DuplicateSlashes::Merged => Err(Wrong::new(
                    "duplicate slashes are merged before a path is matched",
                )
                .help(
                    "write one slash, or `slashes \"keep\"` and `ambiguous-paths \"forward\"` in the site",
                )),
                DuplicateSlashes::Refused => Err(Wrong::new(
                    "no request comes here: a server that merges `//` takes the path for another route's",
                )
                .help("write `ambiguous-paths \"forward\"` in the site if its servers do not")),
            }
        });
        let mut actions: Vec<(Place, Option<Action>)> = Vec::new();
        let mut body_limit = None;
        let mut allow_connect = false;
        let mut server_timing = options.server_timing;
        let (mut strip_prefix, mut buffers, mut ahead, mut mirror) = (None, None, None, None);
        let mut timeouts = RouteTimeouts::default();
        let conditions = conditions::decode(decoder, item, &mut self.modules, (options, listeners));
        let (mut cached, mut old, mut fallback, mut compared) = (None, None, None, None);
        let mut retry = RouteRules::default();
        let (nodes, of_modules) = decoder.open_block(item, &ROUTE);
        self.idle.see(&of_modules);
        idle::paths(decoder, &of_modules, pattern.as_ref().as_slice(), "this route does not take");
        let has = |name| nodes.iter().any(|(key, _)| key.name == name);
        if has("respond") || has("files") && !has("proxy") {
            self.idle.without_upstream(decoder, &of_modules);
        }
        let scope = self.modules.scope(decoder, Some(site), of_modules);
        for (key, item) in nodes {
            match key.name {
                "proxy" => actions.push((item.place(), self.proxy(decoder, item))),
                "respond" => actions.push((item.place(), respond::decode(decoder, item))),
                "files" => actions.push((item.place(), self.files(decoder, item))),
                "body-limit" => body_limit = decoder.read(item, 0, |v| value::size(v, 0..=u64::MAX)),
                "allow-connect" => allow_connect = decoder.flag(item),
                "strip-prefix" => strip_prefix = prefix(decoder, item, pattern.as_ref()),
                "buffer-requests" => buffers = Some(super::upstream::buffer_requests(decoder, item)),
                "buffer-responses" => ahead = Some(super::upstream::buffer_responses(decoder, item)),
                "retry" => retry.read(decoder, item),
                "server-timing" => server_timing = decoder.flag(item),
                "mirror" => mirror = Some((item.place(), self.mirror(decoder, item))),
                "timeouts" => timeouts = route_timeouts(decoder, item),
                "fallback" => {
                    old = Some(item);
                    fallback = fallback::decode(decoder, item, self.upstreams, &mut self.modules);
                    self.falls_back = true;
                }
                "compare" => {
                    compared = compare::decode(decoder, item, self.upstreams);
                    self.compares = true;
                    self.see_mode(compared.as_deref(), item);
                }
                "cache" => {
                    let refers = (&mut self.modules, self.shield, &mut self.caches);
                    cached = Some((item.place(), cache::decode(decoder, item, refers)));
                }
                name => debug_assert!(false, "{name} is not read"),
            }
        }
        let action = match (&fallback, actions.is_empty()) {
            // All requests of the route fall back, so it needs no action of its own.
            (Some(fallback), true) if fallback.share.is_none() && fallback.when.is_none() => {
                Some(Action::Proxy(fallback.upstream))
            }
            // The `fallback` has an error, which has been reported.
            (None, true) if old.is_some() => None,
            _ => self.action(decoder, item, actions),
        };
        let fallback = fallback.or_else(|| self.inherited_fallback(options));
        let (pattern, action, conditions) = (pattern?, action?, conditions?);
        let retry = retry.finish(decoder, self.upstreams, action.upstream());
        let plan = self.modules.plan(&scope, action.upstream().is_some());
        if let Some(upstream) = action.upstream() {
            self.warn_of_streams(decoder, item, &plan, upstream);
        }
        let plan = RoutePlan::new(plan);
        let mirror = mirror.and_then(|(place, mirror)| {
            if action.upstream().is_none() {
                let message = "`mirror` has no effect on a route without `proxy`: only requests that go to an origin are copied";
                decoder.warn(Problem::new(Some(place), message));
            }
            mirror
        });
        let cache = site_cache.of_route(decoder, cached, &action);
        let route = Route {
            body_limit,
            allow_connect,
            conditions: conditions.map(Arc::new),
            strip_prefix,
            buffer_requests: buffers,
            buffer_responses: ahead,
            retry,
            mirror,
            timeouts,
            server_timing,
            plan,
            cache,
            fallback,
            compare: compared.or_else(|| options.compare.clone()),
            ..Route::new(pattern.text().clone(), action)
        };
        Some((pattern, self.builder.route(route)))
    }

    /// The `fallback` of the site, or else of the file, if it selects requests of routes (by a share or a condition).
    fn inherited_fallback(&self, site: &SiteOptions) -> Option<Arc<Fallback>> {
        let fallback = site.fallback.as_ref().or(self.fallback.as_ref())?;
        fallback.is_about_routes().then(|| Arc::clone(fallback))
    }

    /// Warns if a module holds a request's body up to its end and the upstream speaks HTTP/2. Streams such as
    /// those of gRPC are usual over HTTP/2, and such a module would hold a stream up to its end.
    fn warn_of_streams(&self, decoder: &mut Decoder<'_>, item: Item<'_>, plan: &Plan, upstream: usize) {
        let holds = plan.body() > 0 && !plan.body_is_optional() && plan.body_pause().is_none();
        let Some(upstream) = self.upstreams.list.get(upstream) else { return };
        if holds && upstream.protocol == UpstreamProtocol::Http2 {
            let message = format!(
                "bodies of requests are held for a module up to their end, and the upstream `{}` says `http \"2\"`: the client \
                 of a stream, such as one of gRPC, would wait in vain for an answer to its first message",
                upstream.name
            );
            decoder.warn(Problem::new(Some(item.place()), message).help(
                "for streams, give the route a `waf` with `body-limit \"0B\"` or `stream-pause \"20ms\"`; otherwise \
                 leave it as it is",
            ));
        }
    }

    /// The one action of a route.
    fn action(
        &self,
        decoder: &mut Decoder<'_>,
        item: Item<'_>,
        mut actions: Vec<(Place, Option<Action>)>,
    ) -> Option<Action> {
        // With both `files` and `proxy`, files are served, and the upstream answers requests without a file.
        if let [(_, Some(one)), (_, Some(other))] = &*actions {
            let both = match (one, other) {
                (Action::Files { folder, .. }, Action::Proxy(upstream))
                | (Action::Proxy(upstream), Action::Files { folder, .. }) => Some((*folder, *upstream)),
                _ => None,
            };
            if let Some((folder, upstream)) = both {
                return Some(Action::Files { folder, upstream: Some(upstream) });
            }
        }
        match actions.len() {
            1 => actions.pop().and_then(|(_, action)| action),
            // An unknown or refused key was probably meant to be the action, and has been reported.
            0 if decoder.misses_files() => None,
            0 if item.children().iter().any(|child| self.may_answer(child.node.name())) => None,
            0 => {
                let problem = Problem::new(
                    Some(item.place()),
                    "this route has no `proxy`, no `files` and no `respond`",
                );
                let redirects =
                    |child: &Item<'_>| matches!(child.node.name(), "redirect" | "redirects" | "rule");
                decoder.push(problem.help(if item.children().iter().any(redirects) {
                    "add `respond 404`, or `proxy \"UPSTREAM\"`, for requests that it does not end itself"
                } else {
                    "add `proxy \"UPSTREAM\"`, `files \"FOLDER\"` or `respond STATUS \"BODY\"`; for one that only redirects, `redirect \"/**\" \
                     to=\"TARGET\"` and `respond 404`"
                }));
                None
            }
            _ => {
                let problem =
                    Problem::new(Some(actions[1].0), "a route has one answer: `proxy`, `files` or `respond`");
                decoder.push(
                    problem.help("only `files` and `proxy` go together").also(actions[0].0, "the first one"),
                );
                None
            }
        }
    }

    /// Returns true if a key answers requests, or is unknown: an unknown key has been reported, and was probably meant to
    /// answer.
    fn may_answer(&self, name: &str) -> bool {
        let of_module = || self.modules.pipeline().keys().iter().any(|(key, _)| key.name == name);
        matches!(name, "proxy" | "respond" | "files" | "fallback")
            || !(ROUTE.keys.iter().any(|key| key.name == name) || of_module())
    }

    fn files(&mut self, decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<Action> {
        let files = files::decode(decoder, item, self.inspect)?;
        let known = self.folders.iter().position(|known| *known == files);
        let folder = known.unwrap_or_else(|| {
            self.folders.push(files);
            self.folders.len() - 1
        });
        Some(Action::Files { folder, upstream: None })
    }

    fn mirror(&self, decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<Mirror> {
        const BODY: u64 = 64 << 10;
        let upstream =
            decoder.read(item, 0, |value| Ok(self.upstreams.find(value::string(value)?)?.0 as usize));
        let share = decoder.prop(item, "share", |v| fallback::share(v, "share")).unwrap_or(SHARE_WHOLE);
        let body = decoder.prop(item, "body", |v| value::size(v, 0..=16 << 20)).unwrap_or(BODY);
        Some(Mirror { upstream: upstream?, share, body: body as usize })
    }

    fn proxy(&self, decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<Action> {
        decoder
            .read(item, 0, |value| Ok(Action::Proxy(self.upstreams.find(value::string(value)?)?.0 as usize)))
    }
}

/// The parts of a site that its routes need.
#[derive(Clone, Copy)]
struct OfSite<'s> {
    slashes: DuplicateSlashes,
    scope: &'s Scope,
    /// The keys of modules in the site.
    answering: &'s [(usize, Item<'s>)],
    options: &'s SiteOptions,
    cache: &'s cache::SiteCache,
    listeners: &'s [Listen],
}

/// Reads `strip-prefix`: the start of a path. Warns if no path of the route begins with it.
fn prefix(decoder: &mut Decoder<'_>, item: Item<'_>, pattern: Option<&PathPattern>) -> Option<Arc<str>> {
    let prefix = decoder.read(item, 0, |value| {
        let text = value::string(value)?;
        let bare = text.strip_suffix("/**").unwrap_or(text).trim_end_matches('/');
        match text.parse::<PathPattern>() {
            Ok(_) if bare == text && !text.contains('*') && !text.contains("//") => {
                Ok(Arc::<str>::from(text))
            }
            Ok(_) if bare.is_empty() => Err(Wrong::new("every path begins with a slash, which stays")),
            Ok(_) if !bare.contains('*') => {
                Err(Wrong::new("a prefix has no slash and no wildcard at its end")
                    .help(format!("write `strip-prefix \"{bare}\"`")))
            }
            Ok(_) => Err(Wrong::new("a prefix has no wildcards")),
            Err(_) if !text.is_empty() && format!("/{text}").parse::<PathPattern>().is_ok() => {
                Err(Wrong::new("a path begins with a slash")
                    .help(format!("write `strip-prefix \"/{text}\"`")))
            }
            Err(error) => Err(Wrong::new(format!("{error}"))),
        }
    })?;
    if let Some(pattern) = pattern.filter(|pattern| !pattern.meets(&format!("{prefix}/**"))) {
        let message = format!("no path of the route `{}` begins with `{prefix}`", pattern.text());
        decoder.warn(Problem::new(Some(item.place()), message));
    }
    Some(prefix)
}

fn route_timeouts(decoder: &mut Decoder<'_>, item: Item<'_>) -> RouteTimeouts {
    let mut timeouts = RouteTimeouts::default();
    for (key, item) in decoder.block(item, &ROUTE_TIMEOUTS) {
        let time = decoder.read(item, 0, |v| value::duration(v, TIMES));
        match key.name {
            "first-byte" => timeouts.first_byte = time,
            "idle" => timeouts.idle = time,
            "total" => timeouts.total = time,
            name => debug_assert!(false, "{name} is not read"),
        }
    }
    timeouts
}

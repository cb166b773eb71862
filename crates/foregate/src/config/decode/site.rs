//! `site` and its routes.

use std::path::PathBuf;
use std::sync::Arc;

use foregate_config::{Decoder, Item, Modules, Place, Problem, Scope, Upstreams as _};
use foregate_proxy::routing::{HostPattern, PathPattern, RouteId, RouteSet, SiteTable, SiteTableBuilder};
use foregate_proxy::settings::{Action, FixedResponse, Route, RoutePlan, SiteOptions, SiteTls};

use super::Upstreams;
use super::tls;
use crate::config::schema::{ROUTE, SITE, SITE_TLS};
use foregate_config::value::{self, Wrong};

/// What happens to duplicate slashes; true keeps them.
/// Whether they are forwarded.
const AMBIGUOUS_PATHS: &[(&str, bool)] = &[("refuse", false), ("forward", true)];
const SLASHES: &[(&str, bool)] = &[("merge", false), ("keep", true)];

/// All sites as they are read.
pub(super) struct Sites<'u> {
    builder: SiteTableBuilder,
    upstreams: &'u Upstreams,
    modules: Modules<'u>,
    /// What modules are told at the top of the file.
    top: Scope,
    /// By the index of a site.
    places: Vec<Place>,
}

impl<'u> Sites<'u> {
    pub(super) fn new(upstreams: &'u Upstreams, modules: Modules<'u>, top: Scope) -> Self {
        Self { builder: SiteTableBuilder::default(), upstreams, modules, top, places: Vec::new() }
    }

    /// The sites, the files that were read for their modules, and the log files of these.
    pub(super) fn build(self) -> (SiteTable, Vec<PathBuf>, Vec<PathBuf>) {
        let (files, logs) = self.modules.into_files();
        (self.builder.build(), files.into_watched(), logs)
    }

    pub(super) fn decode(
        &mut self,
        decoder: &mut Decoder<'_>,
        item: Item<'_>,
        inspection: &mut tls::Inspection,
    ) {
        let hosts = decoder.read_all(item, |value| {
            value::string(value)?.parse::<HostPattern>().map_err(|error| Wrong::new(format!("{error}")))
        });
        let mut options = SiteOptions::default();
        let mut routes = Vec::new();
        let (nodes, of_modules) = decoder.open_block(item, &SITE);
        let scope = self.modules.scope(decoder, Some(&self.top), of_modules);
        for (key, item) in nodes {
            match key.name {
                "route" => routes.push(item),
                "allow-underscores" => options.allow_underscores = decoder.flag(item),
                "slashes" => options.keep_slashes = decoder.choice(item, 0, SLASHES).unwrap_or_default(),
                "ambiguous-paths" => {
                    options.forward_ambiguous = decoder.choice(item, 0, AMBIGUOUS_PATHS).unwrap_or_default();
                }
                "tls" => {
                    let (certificates, policy) = tls::decode(decoder, item, &SITE_TLS, inspection);
                    options.tls = Some(SiteTls { certificates, policy });
                }
                name => debug_assert!(false, "{name} is not read"),
            }
        }
        options.unrouted = RoutePlan::new(self.modules.plan(&scope, false));
        let routes = self.routes(decoder, routes, options.keep_slashes, &scope);
        let (Some(routes), Some(first)) = (routes, hosts.first()) else { return };
        let site = self.builder.site(first.to_string().into(), options, routes);
        self.places.push(item.place());
        for host in &hosts {
            if let Err(duplicate) = self.builder.host(site, host) {
                let problem = Problem::new(Some(item.place()), format!("`{host}` belongs to a site already"));
                decoder.push(problem.also(self.places[duplicate.site], "this one"));
            }
        }
    }

    fn routes(
        &mut self,
        decoder: &mut Decoder<'_>,
        items: Vec<Item<'_>>,
        keep: bool,
        site: &Scope,
    ) -> Option<RouteSet> {
        let mut routes = Vec::with_capacity(items.len());
        let mut places = Vec::with_capacity(items.len());
        let mut whole = true;
        for item in items {
            match self.route(decoder, item, keep, site) {
                Some(route) => {
                    routes.push(route);
                    places.push(item.place());
                }
                None => whole = false,
            }
        }
        let patterns: Vec<Arc<str>> = routes.iter().map(|(pattern, _)| pattern.text().clone()).collect();
        match self.builder.route_set(routes) {
            Ok(set) => whole.then_some(set),
            Err(unreachable) => {
                for route in unreachable {
                    let by = &patterns[route.by];
                    let place = Some(places[route.index]);
                    let problem = if *by == patterns[route.index] {
                        Problem::new(place, format!("`{by}` has a route already"))
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
        keep: bool,
        site: &Scope,
    ) -> Option<(PathPattern, RouteId)> {
        let pattern = decoder.read(item, 0, |value| {
            let pattern = self.builder.pattern(value::string(value)?);
            let pattern = pattern.map_err(|error| Wrong::new(format!("{error}")))?;
            if pattern.has_duplicate_slash() && !keep {
                return Err(Wrong::new("duplicate slashes are merged before a path is matched")
                    .help("write one slash, or `slashes \"keep\"` in the site"));
            }
            Ok(pattern)
        });
        let mut actions: Vec<(Place, Option<Action>)> = Vec::new();
        let mut body_limit = None;
        let mut allow_connect = false;
        let (nodes, of_modules) = decoder.open_block(item, &ROUTE);
        let scope = self.modules.scope(decoder, Some(site), of_modules);
        for (key, item) in nodes {
            match key.name {
                "proxy" => actions.push((item.place(), self.proxy(decoder, item))),
                "respond" => actions.push((item.place(), respond(decoder, item))),
                "body-limit" => body_limit = decoder.read(item, 0, |v| value::size(v, 0..=u64::MAX)),
                "allow-connect" => allow_connect = decoder.flag(item),
                name => debug_assert!(false, "{name} is not read"),
            }
        }
        let action = match actions.len() {
            1 => actions.pop().and_then(|(_, action)| action),
            // One that was refused was meant to be it.
            0 if item.children().iter().any(|child| matches!(child.node.name(), "proxy" | "respond")) => None,
            0 => {
                let problem = Problem::new(Some(item.place()), "this route does not say what answers");
                decoder.push(problem.help("add `proxy \"UPSTREAM\"` or `respond STATUS \"BODY\"`"));
                None
            }
            _ => {
                let problem =
                    Problem::new(Some(actions[1].0), "a route has one answer: `proxy` or `respond`");
                decoder.push(problem.also(actions[0].0, "the first one"));
                None
            }
        };
        let pattern = pattern?;
        let action = action?;
        let plan = RoutePlan::new(self.modules.plan(&scope, matches!(action, Action::Proxy(_))));
        let route = Route { body_limit, allow_connect, plan, ..Route::new(pattern.text().clone(), action) };
        Some((pattern, self.builder.route(route)))
    }

    fn proxy(&self, decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<Action> {
        decoder
            .read(item, 0, |value| Ok(Action::Proxy(self.upstreams.find(value::string(value)?)?.0 as usize)))
    }
}

fn respond(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<Action> {
    let status = decoder.read(item, 0, |v| value::number(v, 200..=599));
    let body = decoder.read(item, 1, |value| Ok(Arc::<[u8]>::from(value::string(value)?.as_bytes())));
    let status = status? as u16;
    let body = body.unwrap_or_default();
    if !body.is_empty() && matches!(status, 204 | 205 | 304) {
        decoder.push(Problem::new(Some(item.place()), format!("an answer with status {status} has no body")));
        return None;
    }
    Some(Action::Respond(Arc::new(FixedResponse { status, body })))
}

//! `foregate explain`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use crate::config;
use clap::Args;
use foregate_config::{Item, Problems, Tree, turns_off};
use foregate_module::{ChooseUpstream, Decl, Output, PhaseId, Pipeline, Plan};
use foregate_proxy::configuration::Settings;
use foregate_proxy::routing::{HostId, HostMatch, HostPattern};
use foregate_proxy::settings::{Action, Listen, ListenAddress, Route, RouteConditions, UpstreamSettings};
use foregate_wire::{
    Authority, Method, Scheme, Slashes, Target, TargetForm, normalize_path, parse_authority,
};
use serde::Serialize;

use super::arguments::{ConfigFile, Json};
use super::diff::{TrialResult, TriedRequest, try_request};
use super::output::{Outcome, complain, print, print_json, show_refused};
use super::{explain_cache, explain_fallback, explain_servers};

#[derive(Debug, Args)]
pub(super) struct Explain {
    /// Such as example.com/path; the scheme may be left out
    url: String,
    /// Try a request of this method [default: GET]: conditions, rules and other steps are decided
    #[arg(short = 'X', long = "request", value_name = "METHOD")]
    method: Option<String>,
    /// Try a request with this field
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Try a request from this address [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    client: Option<IpAddr>,
    #[command(flatten)]
    file: ConfigFile,
    #[command(flatten)]
    output: Json,
}

/// The treatment of a request, with reasons.
#[derive(Debug, Default, Serialize)]
struct RequestExplanation {
    /// The listeners with the URL's scheme and port.
    listeners: Vec<String>,
    host: String,
    site: Option<String>,
    site_because: String,
    /// True if the site answers only clients with a certificate.
    client_certificate: bool,
    /// The path in the form that is matched with routes.
    path: String,
    /// The trial request with its result, if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    trial: Option<Trial>,
    /// The routes with conditions that the proxy tries before `route`.
    first: Vec<Conditional>,
    route: Option<String>,
    route_because: String,
    answer: Option<String>,
    /// The rules by which requests of the route fall back to the old proxy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fallback: Vec<String>,
    /// The paths at which the proxy looks for a file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<String>,
    upstream: Option<String>,
    servers: Vec<String>,
    /// How a server is chosen.
    choice: Vec<String>,
    /// When the request is sent to another server, and to which.
    retry: Vec<String>,
    /// The upstream that gets copies of requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mirror: Vec<String>,
    /// The limits on requests in flight.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    limits: Vec<String>,
    /// The rules of the route's cache, one per line; empty without a cache.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cache: Vec<String>,
    /// The keys of modules that may choose another upstream than the route's.
    elsewhere: Vec<Lines>,
    /// The keys of modules that may end the request before it reaches the upstream.
    before: Vec<Lines>,
    /// The steps of modules that run for the request, in order.
    steps: Vec<PlannedStep>,
}

/// A trial request and its result.
#[derive(Debug, Serialize)]
struct Trial {
    /// The request's method and client.
    request: String,
    /// The result in words, such as `403 by rules-stop`.
    result: String,
    /// The notes that steps have made, such as the name of the rule.
    notes: Vec<(String, String)>,
    /// The requests that steps would have sent to upstreams. The trial assumes that each is answered with 200.
    assumed: Vec<String>,
}

/// A route that answers if its conditions hold.
#[derive(Debug, Serialize)]
struct Conditional {
    route: String,
    conditions: String,
    answer: String,
    /// True if the conditions hold for the trial request; `None` without a trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<bool>,
}

/// A key of a module that the route uses.
#[derive(Debug, Serialize)]
struct Lines {
    key: &'static str,
    /// The places of the key in the files, as `FILE:LINE:COLUMN`; the outermost block first.
    places: Vec<String>,
    /// The property `name` at each place; an empty text if there is none.
    names: Vec<String>,
}

/// A step of a module as the route uses it.
#[derive(Debug, Serialize)]
struct PlannedStep {
    step: &'static str,
    phase: &'static str,
    /// The key that turns the step on; `None` if it is always on.
    key: Option<&'static str>,
    /// True if the step runs without effect.
    dry_run: bool,
    /// True if the step runs only when a condition holds.
    conditional: bool,
}

impl Explain {
    pub(super) fn run(&self, pipeline: &Arc<Pipeline>) -> Outcome {
        let path = self.file.path();
        let settings = match config::load(&path, pipeline) {
            Ok(settings) => settings,
            Err(refused) => return show_refused(&refused, self.output.json),
        };
        let fields = match fields(&self.headers) {
            Ok(fields) => fields,
            Err(error) => {
                complain(&format!("error: {error}"));
                return Outcome::Usage;
            }
        };
        let is_tried = self.method.is_some() || !fields.is_empty() || self.client.is_some();
        let asked = is_tried.then(|| AskedRequest {
            method: self.method.as_deref().unwrap_or("GET"),
            fields: &fields,
            client: self.client.unwrap_or(Ipv4Addr::LOCALHOST.into()),
        });
        let explanation = match explain(&settings, &self.url, asked.as_ref()) {
            Ok(mut explanation) => {
                find_places(&path, &mut explanation, pipeline);
                explanation
            }
            Err(error) => {
                complain(&format!("{}: {error}", self.url));
                if self.url.starts_with('/') {
                    complain(&format!(
                        "  help: write the host as well, such as `http://www.example.com{}`",
                        self.url
                    ));
                }
                return Outcome::Usage;
            }
        };
        if self.output.json {
            print_json(&explanation);
        } else {
            print(&text(&explanation));
        }
        if explanation.answer.is_some() { Outcome::Fine } else { Outcome::Wrong }
    }
}

/// The options of the command line about the trial request.
struct AskedRequest<'a> {
    method: &'a str,
    fields: &'a [(String, String)],
    client: IpAddr,
}

/// Parses header fields in the form that curl takes: `Name: value`.
fn fields(headers: &[String]) -> Result<Vec<(String, String)>, String> {
    let field = |header: &String| {
        let (name, value) = header
            .split_once(':')
            .ok_or_else(|| format!("`{header}` is no field: it is written `Name: value`"))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    headers.iter().map(field).collect()
}

fn explain(
    settings: &Settings,
    url: &str,
    asked: Option<&AskedRequest<'_>>,
) -> Result<RequestExplanation, String> {
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let url = url.split('#').next().unwrap_or_default();
    let target = Target::parse(&Method::Get, url.as_bytes()).map_err(|error| error.to_string())?;
    let TargetForm::Absolute { scheme, authority } = target.form else {
        return Err("a URL has a host".into());
    };
    let mut host = String::new();
    let authority = parse_authority(authority, &mut host).map_err(|error| error.to_string())?;
    let mut explanation = RequestExplanation {
        listeners: listeners(settings, scheme, &authority),
        host: authority.host.to_owned(),
        ..RequestExplanation::default()
    };
    let listener = settings.listeners.iter().find(fits(scheme, &authority));
    let site = match listener {
        Some(listen) => settings.sites.explain_on(authority.host.as_bytes(), &listen.address),
        None => settings.sites.explain(authority.host.as_bytes()),
    };
    let Some((site, why)) = site else {
        explanation.site_because = "no site has this host, and there is no site \"*\"".into();
        explanation.answer = explain_fallback::unrouted(settings, None);
        return Ok(explanation);
    };
    explanation.site = Some(settings.sites.site(site).name.to_string());
    explanation.site_because = match why {
        HostMatch::Exact => "it has this host",
        HostMatch::Below => "it has the longest wildcard for this host",
        HostMatch::Any => "no other site has this host",
    }
    .into();
    explanation.client_certificate = settings.sites.requires_certificate(site);
    let of_listener = listener.and_then(|listen| listen.requests).map(|limit| ("listener", limit));
    let of_site = settings.sites.site(site).options.requests.map(|limit| ("site", limit));
    let tried = asked.map(|asked| {
        let whole = url.split_once("://").map_or(url, |(_, rest)| rest);
        let (host, rest) = whole.find(['/', '?']).map_or((whole, "/"), |at| whole.split_at(at));
        let target = if rest.starts_with('?') { format!("/{rest}") } else { rest.to_owned() };
        let AskedRequest { method, fields, client } = *asked;
        let secure = scheme == Scheme::Https;
        let request = TriedRequest { method, host, target: &target, secure, fields, client };
        try_request(settings, listener, &request)
    });
    explain_route(settings, site, target.path, tried.as_ref(), &mut explanation)?;
    if let (Some(asked), Some(tried)) = (asked, tried) {
        explanation.trial = Some(Trial {
            request: format!("{} from {}", asked.method, asked.client),
            result: tried.outcome,
            notes: tried.notes,
            assumed: tried.asked,
        });
        // The trial shows whether these keys act on the request, so they need not be listed.
        explanation.before.clear();
        explanation.elsewhere.clear();
    }
    if explanation.upstream.is_some() {
        let before =
            settings.limits.requests_per_client.map(|most| format!("{most} requests in flight for a client"));
        let gates = [of_listener, of_site].into_iter().flatten();
        let limits = before.into_iter().chain(gates.map(|(of, limit)| explain_servers::limit(of, limit)));
        explanation.limits.splice(0..0, limits);
    }
    if explanation.client_certificate && scheme != Scheme::Https {
        let refused =
            "refused with 421: the site asks for client certificates, which there are none of in the clear";
        let reached = std::mem::take(&mut explanation);
        let RequestExplanation { listeners, host, site, site_because, path, client_certificate, .. } =
            reached;
        let route_because = refused.into();
        explanation = RequestExplanation {
            listeners,
            host,
            site,
            site_because,
            path,
            client_certificate,
            route_because,
            ..RequestExplanation::default()
        };
    }
    Ok(explanation)
}

/// Returns true if a listener has the URL's scheme and port.
fn fits(scheme: Scheme, authority: &Authority<'_>) -> impl Fn(&&Listen) -> bool + use<> {
    let secure = scheme == Scheme::Https;
    let port = authority.port.unwrap_or(if secure { 443 } else { 80 });
    move |listen: &&Listen| match &listen.address {
        ListenAddress::Tcp(address) => address.port() == port && listen.tls.is_some() == secure,
        ListenAddress::Unix(_) => false,
    }
}

fn listeners(settings: &Settings, scheme: Scheme, authority: &Authority<'_>) -> Vec<String> {
    let fitting = settings.listeners.iter().filter(fits(scheme, authority));
    fitting.map(|listen| listen.address.to_string()).collect()
}

fn explain_route(
    settings: &Settings,
    site: HostId,
    path: &[u8],
    tried: Option<&TrialResult>,
    explanation: &mut RequestExplanation,
) -> Result<(), String> {
    let slashes = if settings.sites.keeps_slashes(site) { Slashes::Keep } else { Slashes::Merge };
    let mut normal = Vec::new();
    normalize_path(path, slashes, &mut normal).map_err(|error| error.to_string())?;
    explanation.path = String::from_utf8_lossy(&normal).into_owned();
    if settings.sites.readings(site, &normal).is_err() {
        explanation.route_because =
            "refused with 400: where `%2F`, `%5C`, `;` or `//` is read otherwise, it belongs to another route (`ambiguous-paths`)".into();
        return Ok(());
    }
    let (plain, conditional) = settings.sites.candidates(site, &normal);
    let mut taken = None;
    for (conditions, route) in conditional {
        let mut first = conditional_route(settings, conditions, route);
        if let Some(tried) = tried {
            let holds = tried.route.as_deref() == Some(&format!("{} {}", route.pattern, conditions.text));
            first.holds = Some(holds);
            taken = holds.then_some(route);
        }
        explanation.first.push(first);
        if taken.is_some() {
            break;
        }
    }
    let Some(route) = taken.or(plain) else {
        let without = if explanation.first.is_empty() { "" } else { " without conditions" };
        explanation.route_because = format!("no route{without} of the site takes this path");
        explanation.answer = explain_fallback::unrouted(settings, Some(site));
        return Ok(());
    };
    explanation.route = Some(route.pattern.to_string());
    explanation.route_because = if taken.is_some() {
        "its conditions hold"
    } else if route.pattern.contains('*') {
        "the first with wildcards that takes this path, and none is exactly this path"
    } else {
        "it is exactly this path"
    }
    .into();
    explain_action(settings, route, explanation);
    let copies = route.mirror.as_ref().filter(|_| explanation.upstream.is_some());
    let shadow = copies.and_then(|copies| Some((copies, settings.upstreams.get(copies.upstream)?)));
    explanation.mirror.extend(shadow.map(|(copies, shadow)| explain_servers::mirror(copies, &shadow.name)));
    explanation.cache = explain_cache::cache(settings, route);
    if let Some(plan) = route.plan.get() {
        explanation.before = keys(&settings.pipeline, plan, may_end_early);
        if route.action.upstream().is_some() {
            explanation.elsewhere = keys(&settings.pipeline, plan, may_choose);
        }
        explanation.steps = steps(&settings.pipeline, plan);
    }
    Ok(())
}

/// A route that answers if its conditions hold.
fn conditional_route(settings: &Settings, conditions: &RouteConditions, route: &Route) -> Conditional {
    let mut explanation = RequestExplanation::default();
    explain_action(settings, route, &mut explanation);
    Conditional {
        route: route.pattern.to_string(),
        conditions: conditions.text.to_string(),
        answer: explanation.answer.unwrap_or_default(),
        holds: None,
    }
}

fn explain_action(settings: &Settings, route: &Route, explanation: &mut RequestExplanation) {
    explanation.answer = explain_fallback::always(settings, route);
    if explanation.answer.is_some() {
        return;
    }
    explanation.fallback = explain_fallback::sometimes(settings, route);
    match &route.action {
        Action::Respond(response) => explanation.answer = Some(format!("respond {}", response.status)),
        Action::Proxy(index) => {
            let Some(upstream) = settings.upstreams.get(*index) else { return };
            explanation.answer = Some(format!("proxy \"{}\"", upstream.name));
            explain_upstream(upstream, route, explanation);
        }
        Action::Files { folder, upstream } => {
            let Some(files) = settings.folders.get(*folder) else { return };
            let mut answer = format!("files \"{}\"", files.folder.display());
            let prefix = route.strip_prefix.as_deref().unwrap_or_default();
            let path = match explanation.path.strip_prefix(prefix) {
                Some("") => "/",
                Some(path) if path.starts_with('/') => path,
                _ => &explanation.path,
            };
            let candidates = files.rules.candidates(path.as_bytes());
            let names = candidates.iter().map(|candidate| {
                let slash = if candidate.is_folder && !candidate.name.is_empty() { "/" } else { "" };
                format!("{}{slash}", String::from_utf8_lossy(&candidate.name))
            });
            explanation.files = names.map(|name| files.folder.join(name).display().to_string()).collect();
            let upstream = upstream.and_then(|index| settings.upstreams.get(index));
            if let Some(upstream) = upstream {
                answer.push_str(&format!(", then proxy \"{}\"", upstream.name));
                explain_upstream(upstream, route, explanation);
            }
            explanation.answer = Some(answer);
        }
    }
}

fn explain_upstream(upstream: &UpstreamSettings, route: &Route, explanation: &mut RequestExplanation) {
    explanation.upstream = Some(upstream.name.to_string());
    explanation.servers = upstream.servers.iter().map(explain_servers::server).collect();
    explanation.choice = explain_servers::choice(upstream);
    explanation.retry = explain_servers::retry(upstream, route.retry.get());
    explanation.limits.extend(upstream.requests.map(|limit| explain_servers::limit("upstream", limit)));
}

/// The keys with a step for which `does` returns true.
fn keys(pipeline: &Pipeline, plan: &Plan, does: fn(&Decl) -> bool) -> Vec<Lines> {
    let mut keys: Vec<Lines> = Vec::new();
    for planned in plan.steps() {
        let Some(entry) = pipeline.entries().get(usize::from(planned.step)) else { continue };
        let Some(key) = entry.key() else { continue };
        if does(entry.decl()) && !planned.dry_run && !keys.iter().any(|known| known.key == key.name) {
            keys.push(Lines { key: key.name, places: Vec::new(), names: Vec::new() });
        }
    }
    keys
}

/// Returns true if a step may end a request before an upstream has answered.
fn may_end_early(step: &Decl) -> bool {
    !step.stops.is_empty() && step.phase < PhaseId::UpstreamResponse
}

/// Returns true if a step may choose another upstream than the route's.
fn may_choose(step: &Decl) -> bool {
    step.outputs.iter().any(|slot| slot.name == <ChooseUpstream as Output>::SLOT.name)
}

/// Finds the places of the keys in the file. The file is read a second time, because the settings do not hold the
/// places.
fn find_places(path: &Path, explanation: &mut RequestExplanation, pipeline: &Pipeline) {
    let tree = Tree::read(path, &mut Problems::default());
    let first = |item: &Item<'_>| item.node.entries().next().map(|entry| entry.text().to_owned());
    let roots = tree.roots();
    let site = roots.iter().find(|item| {
        let host = first(item).and_then(|host| host.parse::<HostPattern>().ok());
        item.node.name() == "site" && host.map(|host| host.to_string()) == explanation.site
    });
    let site = site.map(|site| site.children()).unwrap_or_default();
    // A route's properties are its conditions, so a plain route has none.
    let is_plain = |item: &&Item<'_>| item.node.entries().all(|entry| entry.key().is_none());
    let mut routes = site.iter().filter(|item| item.node.name() == "route").filter(is_plain);
    let route = routes.find(|item| first(item) == explanation.route);
    let route = route.map(|route| route.children()).unwrap_or_default();
    let many = |name: &str| pipeline.keys().iter().any(|(key, _)| key.name == name && key.many);
    // The actions with which a rule ends a request.
    let ends: &[&str] = &["block", "respond", "redirect", "challenge"];
    for (keys, actions) in [(&mut explanation.before, ends), (&mut explanation.elsewhere, &["upstream"])] {
        let does = |item: &Item<'_>| {
            item.node.name() != "rule"
                || (property(item, "dry-run").is_none_or(|dry| dry == "false")
                    && item.children().iter().any(|action| actions.contains(&action.node.name())))
        };
        for Lines { key, places, names } in &mut *keys {
            for item in [&roots, &site, &route].into_iter().flatten().filter(|item| item.node.name() == *key)
            {
                if turns_off(*item) || !many(key) {
                    places.clear();
                    names.clear();
                }
                if !turns_off(*item) && does(item) {
                    places.push(item.line());
                    names.push(property(item, "name").unwrap_or_default());
                }
            }
        }
        keys.retain(|lines| lines.key != "rule" || !lines.places.is_empty());
    }
}

/// The text of a property.
fn property(item: &Item<'_>, name: &str) -> Option<String> {
    let entry = item.node.entries().find(|entry| entry.key() == Some(name))?;
    Some(entry.text().to_owned())
}

fn steps(pipeline: &Pipeline, plan: &Plan) -> Vec<PlannedStep> {
    let planned = plan.steps().iter();
    let step = |planned: &foregate_module::PlannedStep| {
        let entry = pipeline.entries().get(usize::from(planned.step))?;
        Some(PlannedStep {
            step: entry.decl().name,
            phase: entry.decl().phase.name(),
            key: entry.key().map(|key| key.name),
            dry_run: planned.dry_run,
            conditional: planned.when.is_some(),
        })
    };
    planned.filter_map(step).collect()
}

fn text(explanation: &RequestExplanation) -> String {
    let RequestExplanation {
        listeners,
        host,
        site,
        site_because,
        client_certificate,
        path,
        trial,
        first,
        route,
        route_because,
        answer,
        fallback,
        files,
        servers,
        choice,
        retry,
        mirror,
        limits,
        cache,
        elsewhere,
        before,
        steps,
        ..
    } = explanation;
    let named = |name: &Option<String>, because: &str| match name {
        Some(name) => format!("{name}  ({because})"),
        None => format!("none: {because}"),
    };
    let listeners = match listeners.is_empty() {
        true => {
            "none of this scheme and port; the rest holds where a request comes in another way".to_owned()
        }
        false => listeners.join(", "),
    };
    let mut text =
        format!("listener  {listeners}\nhost      {host}\nsite      {}\n", named(site, site_because));
    if *client_certificate {
        text.push_str("client    must have a certificate that the site asks for\n");
    }
    if site.is_some() {
        text.push_str(&format!("path      {path}\n"));
        add_first(&mut text, trial.as_ref(), first);
        text.push_str(&format!("route     {}\n", named(route, route_because)));
    }
    match answer {
        Some(answer) => text.push_str(&format!("answer    {answer}\n")),
        // There is no route, so the answer is 404, except for a refused request: its answer is in the reason.
        None if !route_because.starts_with("refused") => text.push_str("answer    404\n"),
        None => {}
    }
    for (number, falls_back) in fallback.iter().enumerate() {
        text.push_str(&format!("{:<10}{falls_back}\n", if number == 0 { "before" } else { "" }));
    }
    if !files.is_empty() {
        text.push_str(&format!("looks for {}\n", files.join(", ")));
    }
    if !servers.is_empty() {
        text.push_str(&format!("servers   {}\n", servers.join(", ")));
    }
    for (label, rules) in
        [("choice", choice), ("retry", retry), ("mirror", mirror), ("limits", limits), ("cache", cache)]
    {
        for (at, rule) in rules.iter().enumerate() {
            text.push_str(&format!("{:<10}{rule}\n", if at == 0 { label } else { "" }));
        }
    }
    add_keys(&mut text, "or", elsewhere, "may choose another upstream");
    add_keys(&mut text, "before", before, "may end the request");
    let width = steps.iter().map(|step| step.phase.len()).max().unwrap_or_default();
    for (number, step) in steps.iter().enumerate() {
        let label = if number == 0 { "steps" } else { "" };
        let marks: Vec<_> = [(step.conditional, "when"), (step.dry_run, "dry-run")]
            .into_iter()
            .filter_map(|(marked, mark)| marked.then_some(mark))
            .collect();
        let marks = if marks.is_empty() { String::new() } else { format!("  ({})", marks.join(", ")) };
        text.push_str(&format!("{label:<10}{:width$}  {}{marks}\n", step.phase, step.step));
    }
    if let Some(trial) = trial {
        add_result(&mut text, trial);
    }
    text
}

/// Adds the trial request, and the routes with conditions, which come before the one without conditions.
fn add_first(text: &mut String, trial: Option<&Trial>, first: &[Conditional]) {
    if let Some(trial) = trial {
        text.push_str(&format!("request   {}\n", trial.request));
    }
    for (number, Conditional { route, conditions, answer, holds }) in first.iter().enumerate() {
        let label = if number == 0 { "first" } else { "" };
        let whether = match holds {
            None => "if its conditions hold",
            Some(true) => "its conditions hold",
            Some(false) => "its conditions do not hold",
        };
        text.push_str(&format!("{label:<10}{route} {conditions}  ({whether}): {answer}\n"));
    }
}

/// Adds keys with their effect, and their places in the files.
fn add_keys(text: &mut String, label: &str, keys: &[Lines], what: &str) {
    for (number, Lines { key, places, names }) in keys.iter().enumerate() {
        let label = if number == 0 { label } else { "" };
        let named = |(place, name): (&String, &String)| match &**name {
            "" => place.clone(),
            name => format!("{place} \"{name}\""),
        };
        let places: Vec<_> = places.iter().zip(names).map(named).collect();
        let places = if places.is_empty() { String::new() } else { format!(" ({})", places.join(", ")) };
        text.push_str(&format!("{label:<10}{key}{places} {what}\n"));
    }
}

/// Adds the answer to the tried request, with the notes and assumptions behind it.
fn add_result(text: &mut String, Trial { result, notes, assumed, .. }: &Trial) {
    let notes: Vec<_> = notes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let notes = if notes.is_empty() { String::new() } else { format!("  ({})", notes.join(", ")) };
    text.push_str(&format!("result    {result}{notes}\n"));
    for question in assumed {
        text.push_str(&format!("assumes   {question}, which answers with 200\n"));
    }
}

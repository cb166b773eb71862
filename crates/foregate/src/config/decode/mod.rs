//! Turns the tree into [`Settings`].

mod access_log;
mod acme;
mod cache;
mod compare;
mod conditions;
mod dashboard;
mod dns_update;
mod fallback;
mod files;
mod idle;
mod listen;
mod log_files;
mod names;
mod numbers;
mod queueing;
mod respond;
mod retry;
mod servers;
mod shield;
mod site;
mod sockets;
mod tls;
mod trace_export;
mod upstream;
mod user;
mod writable;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use foregate_config::value::{self, Wrong};
use foregate_config::{Decoder, Files, INCLUDE, Item, Modules, Nodes, Problem, Problems, Tree, lists};
use foregate_module::Pipeline;
use foregate_modules::expressions::Compiler;
use foregate_proxy::configuration::Settings;
use foregate_proxy::settings::RoutePlan;

pub(super) use self::access_log::log_file;
pub(super) use self::acme::{default_storage, storage};
pub(super) use self::files::look as look_at_folder;
pub(super) use self::listen::listen_addresses;
use self::names::UpstreamNames;
use self::sockets::{socket_address, socket_path};
use super::schema::ROOT;

/// Decodes the settings of the tree. Errors are added to `problems`; if there are any, the settings are incomplete.
/// With `inspect`, TLS files are read and output paths are checked.
pub(super) fn decode(
    tree: &Tree,
    pipeline: &Arc<Pipeline>,
    inspect: bool,
    problems: &mut Problems,
) -> Settings {
    // If a module panics, a reload must fail and keep the old configuration.
    catch_unwind(AssertUnwindSafe(|| decode_all(tree, pipeline, inspect, problems))).unwrap_or_else(|_| {
        let message = "the program, or a module of it, panicked while it read the configuration";
        problems.push(
            Problem::new(None, message).help("this is a mistake of the program; its own message tells where"),
        );
        Settings::new(Arc::clone(pipeline))
    })
}

fn decode_upstreams(
    decoder: &mut Decoder<'_>,
    nodes: &Nodes<'_>,
    inspection: &mut tls::Inspection,
) -> UpstreamNames {
    let mut upstreams = UpstreamNames { incomplete: decoder.misses_files(), ..UpstreamNames::default() };
    let zone = nodes.iter().find(|(key, _)| key.name == "zone");
    let zone = zone.and_then(|(_, item)| decoder.read(*item, 0, servers::zone));
    for (_, item) in nodes.iter().filter(|(key, _)| key.name == "upstream") {
        upstream::decode(decoder, *item, &mut upstreams, inspection, zone.as_deref());
    }
    upstreams.ways = retry::check(decoder, &upstreams);
    upstreams
}

fn decode_all(tree: &Tree, pipeline: &Arc<Pipeline>, inspect: bool, problems: &mut Problems) -> Settings {
    let mut inspection = tls::Inspection::new(inspect);
    let keys = pipeline.keys().into_iter().map(|(key, _)| key).collect();
    let mut decoder = Decoder::new(problems, &ROOT, keys);
    let mut settings = Settings::new(Arc::clone(pipeline));
    let (mut nodes, of_modules) = decoder.open_level(tree.roots(), &ROOT, None);
    // Sites depend on listeners, so they are decoded last, wherever they are in the file.
    nodes.sort_by_key(|(key, _)| key.name == "site");
    if nodes.iter().all(|(key, _)| key.name != "site" && key.name != "fallback") {
        warn_without_site(&mut decoder);
    }
    // Routes refer to upstreams by name, so all upstreams are decoded first.
    let mut upstreams = decode_upstreams(&mut decoder, &nodes, &mut inspection);
    let mut files = Files::default();
    let items: Vec<_> = nodes.iter().filter(|(key, _)| key.name == "list").map(|(_, item)| *item).collect();
    let lists = lists::decode(&mut decoder, &items, &mut files);
    let expressions = Compiler::new(pipeline, lists).map_err(|error| {
        // This is a mistake in the program, not in the configuration.
        decoder.push(Problem::new(None, format!("the modules of this program do not fit together: {error}")));
    });
    let Ok(expressions) = expressions else { return settings };
    let mut modules = Modules::new(tree, pipeline, &upstreams, expressions, files);
    let mut idle = idle::Idle::new(pipeline);
    idle.see(&of_modules);
    let top = modules.scope(&mut decoder, None, of_modules);
    let mut access_logs = Vec::new();
    for (_, item) in nodes.iter().filter(|(key, _)| key.name == "access-log") {
        access_logs.extend(access_log::decode(&mut decoder, *item, &mut modules, inspect));
    }
    let export = nodes.iter().find(|(key, _)| key.name == "trace-export").map(|(_, item)| *item);
    let export = export.and_then(|item| read_export(&mut decoder, item, &mut modules, &mut inspection));
    settings.unrouted = RoutePlan::new(modules.plan(&top, false));
    let items_of_fallback: Vec<_> =
        nodes.iter().filter(|(key, _)| key.name == "fallback").map(|(_, item)| *item).collect();
    let (fallback, passed) = fallback::of_all(&mut decoder, &items_of_fallback, &upstreams, &mut modules);
    settings.passed = passed;
    settings.fallback.clone_from(&fallback);
    let count = nodes.iter().filter(|(key, _)| key.name == "site").count();
    let mut sites = site::Sites::new(&upstreams, modules, top, idle, inspect, count);
    sites.fall_back(fallback);
    let shield = nodes.iter().find(|(key, _)| key.name == "shield").map(|(key, item)| (*key, *item));
    let shield = shield::ReadShield::decode(&mut decoder, shield);
    sites.shield(&shield);
    let mut listeners = listen::Listeners::default();
    settings.compare_samples = compare::default_samples();
    let acme = nodes.iter().find(|(key, _)| key.name == "acme").map(|(_, item)| *item);
    let acme = acme::Acme::decode(&mut decoder, acme);
    inspection.store_in(&acme.automatic.storage);
    let admin_item = nodes.iter().find(|(key, _)| key.name == "admin").map(|(_, item)| *item);
    let dashboard_item = nodes.iter().find(|(key, _)| key.name == "dashboard").map(|(_, item)| *item);
    for (key, item) in nodes {
        match key.name {
            "listen" => listeners.decode(&mut decoder, item, (&upstreams, &shield), &mut inspection),
            "metrics" => {
                settings.metrics = decoder.read(item, 0, socket_address);
                listeners.metrics(settings.metrics, item);
            }
            "site" => sites.decode(&mut decoder, item, &mut inspection, listeners.list()),
            name => decode_of_process(&mut decoder, name, item, inspect, &mut settings),
        }
    }
    if let (Some(path), Some(item)) = (settings.admin.clone(), admin_item) {
        listeners.admin(&mut decoder, path, item.place());
    }
    if let (Some(dashboard), Some(item)) = (&settings.dashboard, dashboard_item) {
        listeners.dashboard(&mut decoder, &dashboard.address, settings.admin.as_deref(), item);
    }
    settings.listeners = listeners.finish(&mut decoder, inspect);
    let secure = settings.listeners.iter().any(|listen| listen.tls.is_some());
    let issuer =
        settings.listeners.iter().filter_map(|listen| listen.tls.as_ref()).find_map(|tls| tls.automatic);
    let in_clear = settings.listeners.iter().any(|listen| listen.tls.is_none());
    settings.automatic =
        acme.finish(&mut decoder, (issuer, in_clear), (sites.certified(), inspection.stapled()), inspect);
    sites.warn(&mut decoder, secure, settings.automatic.as_deref(), &items, &inspection);
    upstreams.warn(&mut decoder);
    if !secure && settings.passed.is_empty() {
        warn_of_redirects(&mut decoder, tree);
    }
    warn_of_redirect_ports(&mut decoder, tree, &settings);
    let logs;
    settings.folders = sites.take_folders();
    access_logs.extend(sites.take_access_logs());
    settings.compares = sites.compares();
    settings.falls_back = settings.fallback.is_some() || !settings.passed.is_empty() || sites.falls_back();
    let has_tap = settings.listeners.iter().any(|listen| listen.tap.is_some());
    settings.falls_back |= has_tap;
    if let Some(place) = sites.tapped().filter(|_| !has_tap) {
        let problem = Problem::new(Some(place), "no listener is a tap, so nothing of this route is compared");
        decoder.warn(problem.help("add `listen \"127.0.0.1:9100\" { tap \"app\" }`, and give the old proxy that address in the place of its origin"));
    }
    (settings.sites, settings.watched, logs) = sites.build();
    for (path, place) in logs.iter().filter(|_| inspect) {
        writable::log(&mut decoder, path, *place);
    }
    let logs = logs.into_iter().map(|(path, _)| path).collect();
    settings.logs = log_files::share(&mut decoder, &mut access_logs, logs);
    settings.access_logs.extend(access_logs.into_iter().map(|(log, _)| log));
    settings.watched.extend(inspection.into_watched());
    // Sorted, so that equal configurations have equal lists.
    settings.watched.sort_unstable();
    settings.watched.dedup();
    if let Some(export) = export {
        let namesake = upstreams.by_name.get(trace_export::NAME).map(|(_, place)| *place);
        let number = upstreams.list.len();
        upstreams.list.push(Arc::new(export.receiver.clone()));
        trace_export::finish(&mut decoder, export, (number, namesake), pipeline, &mut settings);
    }
    if let Some((shield, nodes)) = shield.finish(&mut decoder, &settings.listeners) {
        upstreams.list.extend(nodes.into_iter().map(Arc::new));
        settings.shield = Some(Arc::new(shield));
    }
    settings.upstreams = upstreams.list;
    settings
}

/// Warns about redirects to HTTPS without a listener that accepts TLS. There is no warning with `trusted-proxies` or
/// the PROXY protocol, because the proxy in front may accept TLS.
fn warn_of_redirects(decoder: &mut Decoder<'_>, tree: &Tree) {
    let roots = tree.roots();
    let has = |items: &[Item<'_>], name: &str| items.iter().any(|item| item.node.name() == name);
    let is_behind = |items: &[Item<'_>]| has(items, "trusted-proxies");
    let takes_header = |item: &Item<'_>| has(&item.children(), "proxy-protocol");
    if is_behind(&roots) || roots.iter().any(takes_header) {
        return;
    }
    for site in roots.iter().filter(|item| item.node.name() == "site") {
        let block = site.children();
        let redirect = block.iter().find(|item| item.node.name() == "redirect-https");
        if let Some(redirect) = redirect.filter(|_| !is_behind(&block)) {
            let problem = Problem::new(
                Some(redirect.place()),
                "no `listen` accepts TLS, so the redirect leads nowhere",
            );
            decoder.warn(problem.help(
                "add `listen \":443\" { tls \"auto\" }`; if a proxy in front speaks TLS, name it: `trusted-proxies \"10.0.0.0/8\"`",
            ));
        }
    }
}

/// Warns about redirects to HTTPS that name no port, and so lead to port 443, if only other ports accept TLS.
fn warn_of_redirect_ports(decoder: &mut Decoder<'_>, tree: &Tree, settings: &Settings) {
    let ports: Vec<u16> = settings
        .listeners
        .iter()
        .filter(|listen| listen.tls.is_some())
        .filter_map(|listen| match &listen.address {
            foregate_proxy::settings::ListenAddress::Tcp(address) => Some(address.port()),
            foregate_proxy::settings::ListenAddress::Unix(_) => None,
        })
        .collect();
    let Some(first) = ports.first().filter(|_| !ports.contains(&443)) else { return };
    for site in tree.roots().iter().filter(|item| item.node.name() == "site") {
        let redirects = site.children().into_iter().filter(|item| item.node.name() == "redirect-https");
        for redirect in redirects.filter(|item| item.node.entries().all(|entry| entry.key().is_none())) {
            let problem = Problem::new(
                Some(redirect.place()),
                "clients are sent to port 443, where no `listen` accepts TLS",
            );
            decoder.warn(problem.help(format!(
                "write `redirect-https port={first}`, or `port=443` if connections to 443 arrive at {first}"
            )));
        }
    }
}

/// Reads `trace-export`, and inspects the file with the authorities for its receiver.
fn read_export(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    modules: &mut Modules<'_>,
    inspection: &mut tls::Inspection,
) -> Option<trace_export::ReadExport> {
    let export = trace_export::decode(decoder, item, modules)?;
    if let Some(tls) = &export.receiver.tls {
        inspection.upstream(decoder, item, tls, export.authorities.as_slice());
    }
    Some(export)
}

fn warn_without_site(decoder: &mut Decoder<'_>) {
    let problem = Problem::new(None, "there is no `site`: every request is answered with 404");
    decoder.warn(problem.help("add `site \"*\" { route \"/**\" { proxy \"UPSTREAM\" } }`"));
}

/// Reads a key at the top of the file that is about the process and does not depend on other keys.
fn decode_of_process(
    decoder: &mut Decoder<'_>,
    name: &str,
    item: Item<'_>,
    inspect: bool,
    settings: &mut Settings,
) {
    match name {
        "workers" => {
            let workers = decoder.read(item, 0, |v| value::number(v, 1..=1024)).unwrap_or(0);
            settings.workers = std::num::NonZeroUsize::new(workers as usize);
            settings.pin_workers = decoder.prop(item, "pin", value::boolean).unwrap_or(false);
        }
        "offload-threads" => {
            let threads = decoder.read(item, 0, |v| value::number(v, 1..=1024)).unwrap_or(1);
            settings.offload_threads = std::num::NonZeroUsize::new(threads as usize);
        }
        "user" => settings.user = user::decode(decoder, item),
        "admin" => settings.admin = admin(decoder, item, inspect),
        "dashboard" => settings.dashboard = dashboard::decode(decoder, item, inspect),
        "temporary-folder" => {
            settings.temporary_folder = decoder.path(item, 0);
            if let Some(folder) = settings.temporary_folder.as_ref().filter(|_| inspect) {
                writable::in_folder(decoder, folder, item.place());
            }
        }
        "compare-samples" => {
            if let Some(samples) = compare::samples(decoder, item) {
                settings.compare_samples = samples;
            }
        }
        "disk-engine" => cache::disk_engine(decoder, item, inspect, &mut settings.disk_engine),
        "cache-store" => cache::store(decoder, item, inspect, &mut settings.cache_store),
        "limits" => numbers::limits(decoder, item, &mut settings.limits),
        "timeouts" => numbers::timeouts(decoder, item, &mut settings.timeouts),
        _ => debug_assert!(
            matches!(
                name,
                "access-log"
                    | "trace-export"
                    | "upstream"
                    | "zone"
                    | "list"
                    | "acme"
                    | "fallback"
                    | "shield"
                    | INCLUDE
            ),
            "{name} is not read"
        ),
    }
}

/// Reads `admin`. The path may begin with `unix:`, which other keys require to distinguish it from a TCP address.
pub(super) fn admin(decoder: &mut Decoder<'_>, item: Item<'_>, inspect: bool) -> Option<PathBuf> {
    let path = decoder.read(item, 0, |v| {
        let text = value::string(v)?;
        let path = text.strip_prefix("unix:").unwrap_or(text);
        if value::is_off(path) {
            let wrong = Wrong::new("a word does not turn it off, but is the name of a socket");
            return Err(wrong.help("leave it out; for a socket of this name, begin with `./`"));
        }
        let is_port = |(host, port): (&str, &str)| !host.contains('/') && port.parse::<u16>().is_ok();
        if path.is_empty() || path.rsplit_once(':').is_some_and(is_port) {
            let wrong = Wrong::new("the admin socket is a Unix socket, never TCP");
            return Err(wrong.help("write a path, such as `admin \"/run/foregate/admin.sock\"`"));
        }
        socket_path(item.base(), path)
    })?;
    if inspect {
        writable::socket(decoder, &path, item.place());
    }
    Some(path)
}

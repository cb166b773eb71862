//! The conditions of routes in addition to their paths, and the listeners of sites.

use foregate_config::value::{self, Value, Wrong};
use foregate_config::{Decoder, Item, Modules, Problem};
use foregate_module::PhaseId;
use foregate_proxy::settings::{Listen, ListenAddress, RouteConditions, SiteOptions};
use foregate_rules::{Word, nearest, words};

use super::listen::addresses;
use super::upstream::is_token;

/// The properties that are conditions, in the order in which they are shown.
const CONDITIONS: [&str; 7] = ["method", "header", "query", "cookie", "port", "listener", "when"];

/// A function that turns the value of a property into an expression.
type Read = fn(&Value<'_>) -> Result<String, Wrong>;

/// Returns true if a route has conditions.
pub(super) fn are_there(item: &Item<'_>) -> bool {
    item.node.entries().any(|entry| entry.key().is_some_and(|name| CONDITIONS.contains(&name)))
}

/// Reads the conditions of a route, which may be empty; `None` if a problem was found.
pub(super) fn decode(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    modules: &mut Modules<'_>,
    (site, listeners): (&SiteOptions, &[Listen]),
) -> Option<Option<RouteConditions>> {
    if !are_there(&item) {
        return Some(None);
    }
    let has = |name: &str| item.node.entries().any(|entry| entry.key() == Some(name));
    let mut conditions =
        RouteConditions { text: shown(item).into(), port: None, listeners: Vec::new(), all: Vec::new() };
    let mut whole = true;
    let made: [(&str, Read); 4] = [
        ("method", |value| methods(value::string(value)?)),
        ("header", |value| of_map("http.request.headers", &lower_name(value::string(value)?))),
        ("query", |value| of_map("http.request.uri.args", value::string(value)?)),
        ("cookie", |value| of_map("http.request.cookies", value::string(value)?)),
    ];
    if has("method") {
        warn_of_methods(decoder, item);
    }
    for (name, read) in made.iter().filter(|(name, _)| has(name)) {
        let compiled = decoder.prop(item, name, |value| {
            modules.made_condition(&read(value)?, PhaseId::RequestEarly).map_err(Wrong::new)
        });
        whole &= compiled.is_some();
        conditions.all.extend(compiled);
    }
    if has("port") {
        conditions.port =
            decoder.prop(item, "port", |value| value::number(value, 1..=65_535)).map(|port| port as u16);
        whole &= conditions.port.is_some();
        warn_of_port(decoder, item, conditions.port, listeners);
    }
    if has("listener") {
        let found = decoder.prop(item, "listener", |value| known(value, item, listeners));
        whole &= found.is_some();
        conditions.listeners = found.unwrap_or_default();
        if whole && !conditions.listeners.iter().any(|listener| site.is_on(listener)) {
            let problem = Problem::new(Some(item.place()), "the site is not there on this listener");
            decoder.push(problem.help("add it to the `listeners` of the site"));
            whole = false;
        }
    }
    if has("when") {
        let compiled = condition_of(decoder, item, modules, "route");
        whole &= compiled.is_some();
        conditions.all.extend(compiled);
    }
    whole.then_some(Some(conditions))
}

/// The listeners that a site names.
pub(super) fn listeners(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    listeners: &[Listen],
) -> Vec<ListenAddress> {
    decoder.read_all(item, |value| known(value, item, listeners)).into_iter().flatten().collect()
}

/// The conditions as they are written in the file.
fn shown(item: Item<'_>) -> String {
    let text = |name: &&str| {
        let entry = item.node.entries().find(|entry| entry.key() == Some(*name))?;
        Some(format!("{name}={}", item.source_of(entry.span())))
    };
    CONDITIONS.iter().filter_map(text).collect::<Vec<_>>().join(" ")
}

/// The addresses of the listeners for which a text stands: two for `:PORT`.
fn known(value: &Value<'_>, item: Item<'_>, listeners: &[Listen]) -> Result<Vec<ListenAddress>, Wrong> {
    let addresses = addresses(value, item.base())?;
    let has = |address: &ListenAddress| listeners.iter().any(|listen| listen.address == *address);
    if addresses.iter().any(has) {
        return Ok(addresses.into_iter().filter(has).collect());
    }
    let wrong = Wrong::new("there is no `listen` with this address");
    let names: Vec<String> = listeners.iter().map(|listen| listen.address.to_string()).collect();
    Err(match nearest(&value.text, names.iter().map(String::as_str)).or(names.first().map(String::as_str)) {
        Some(near) => wrong.help(format!("did you mean \"{near}\"?")),
        None => wrong.help(format!("add `listen \"{}\"` at the top of the file", value.text)),
    })
}

/// Warns about a method that is probably mistyped. It is no error, because any token is a valid method.
fn warn_of_methods(decoder: &mut Decoder<'_>, item: Item<'_>) {
    /// The known methods: of HTTP, WebDAV and caches.
    const KNOWN: [&str; 20] = [
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "DELETE",
        "OPTIONS",
        "PATCH",
        "CONNECT",
        "TRACE",
        "PROPFIND",
        "PROPPATCH",
        "MKCOL",
        "COPY",
        "MOVE",
        "LOCK",
        "UNLOCK",
        "REPORT",
        "SEARCH",
        "PURGE",
        "QUERY",
    ];
    let Some(entry) = item.node.entries().find(|entry| entry.key() == Some("method")) else { return };
    for method in entry.text().split([' ', ',']).filter(|method| !KNOWN.contains(method)) {
        let upper = method.to_ascii_uppercase();
        if let Some(near) = nearest(&upper, KNOWN.into_iter()).filter(|near| *near != upper) {
            let problem =
                Problem::new(Some(item.place_of(entry.span())), format!("`{method}` is no usual method"));
            decoder.warn(problem.help(format!("did you mean `{near}`?")));
        }
    }
}

fn warn_of_port(decoder: &mut Decoder<'_>, item: Item<'_>, port: Option<u16>, listeners: &[Listen]) {
    let Some(port) = port else { return };
    let may_have = |listen: &Listen| match listen.address {
        // A PROXY header may state any port as the one to which the client connected.
        _ if !listen.proxy_protocol_from.is_empty() => true,
        ListenAddress::Tcp(address) => matches!(address.port(), 0) || address.port() == port,
        ListenAddress::Unix(_) => false,
    };
    if !listeners.iter().any(may_have) {
        let problem = Problem::new(
            Some(item.place()),
            format!("no request comes here: no `listen` has the port {port}"),
        );
        decoder.warn(problem.help(format!("add `listen \":{port}\"` at the top of the file")));
    }
}

/// Reads the `when` of a key that is decided before the route is known. It cannot use the client's address or the
/// values of modules, which are found out later.
pub(super) fn condition_of(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    modules: &mut Modules<'_>,
    key: &'static str,
) -> Option<std::sync::Arc<dyn foregate_module::Condition>> {
    let when = decoder.argument(item, "when")?;
    let text = when.text().unwrap_or_default();
    let of_client =
        |word: &str| word == "ip.src" || word.starts_with("ip.src.") || word.starts_with("ip.geoip.");
    if words(text).any(|(word, _)| matches!(word, Word::Name(name) if of_client(name))) {
        let message = "the client's address is not known before the route: `trusted-proxies` may change it";
        let problem = Problem::new(Some(item.place()), message);
        decoder.push(problem.help(
            "use it in the route: `access { allow \"10.0.0.0/8\" }`, or `rule \"ip.src in {10.0.0.0/8}\" { upstream \"NAME\" }`",
        ));
        return None;
    }
    modules.condition(decoder, (key, "when"), &when, PhaseId::RequestEarly)
}

fn methods(text: &str) -> Result<String, Wrong> {
    let quoted: Vec<String> = method_list(text)?.iter().map(|method| format!("\"{method}\"")).collect();
    Ok(format!("http.request.method in {{{}}}", quoted.join(" ")))
}

/// Splits a list of methods, which are separated by blanks.
pub(super) fn method_list(text: &str) -> Result<Vec<&str>, Wrong> {
    let methods: Vec<&str> = text.split([' ', ',']).filter(|method| !method.is_empty()).collect();
    if methods.is_empty() || !methods.iter().all(|method| is_token(method)) {
        return Err(Wrong::new("expected methods, separated by blanks").help("such as \"GET HEAD\""));
    }
    if let Some(small) = methods.iter().find(|method| method.bytes().all(|byte| byte.is_ascii_lowercase())) {
        let wrong = Wrong::new("methods are compared with their case");
        return Err(wrong.help(format!("write `{}`", small.to_ascii_uppercase())));
    }
    Ok(methods)
}

/// The name in lower case, which expressions use for header fields.
fn lower_name(text: &str) -> String {
    match text.split_once('=') {
        Some((name, value)) => format!("{}={value}", name.to_ascii_lowercase()),
        None => text.to_ascii_lowercase(),
    }
}

/// The expression for `NAME` or `NAME=VALUE`: the map has the name, or has the value under this name.
fn of_map(map: &str, text: &str) -> Result<String, Wrong> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    if map == "http.request.headers" && !is_token(name) {
        let wrong = Wrong::new("expected the name of a field");
        return Err(wrong.help("write `header=\"NAME\"` or `header=\"NAME=VALUE\"`"));
    }
    if name.is_empty() {
        return Err(Wrong::new("expected NAME or NAME=VALUE"));
    }
    let name = quoted(name);
    Ok(match value {
        Some(value) => format!("any({map}[{name}][*] eq {})", quoted(value)),
        None => format!("has_key({map}, {name})"),
    })
}

/// A text as a quoted string of the expression language.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.push_str(&format!("\\x{byte:02x}")),
            b' '..=b'~' => quoted.push(char::from(byte)),
            byte => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    quoted
}

//! `fallback`: requests that go to the proxy that Foregate replaces.

use std::sync::Arc;

use foregate_config::value::{self, Value, Wrong};
use foregate_config::{Decoder, Item, Modules, Place, Problem, Upstreams as _};
use foregate_proxy::routing::HostPattern;
use foregate_proxy::settings::{Fallback, PassedNames, RouteConditions, SHARE_WHOLE, UpstreamProtocol};

use super::conditions::condition_of;
use super::names::UpstreamNames;

/// Reads the `fallback` keys at the top of the file: at most one for requests, and any number for connections.
pub(super) fn of_all(
    decoder: &mut Decoder<'_>,
    items: &[Item<'_>],
    upstreams: &UpstreamNames,
    modules: &mut Modules<'_>,
) -> (Option<Arc<Fallback>>, Vec<PassedNames>) {
    let (mut first, mut fallback, mut passed) = (None, None, Vec::new());
    for item in items {
        if item.node.entries().any(|entry| entry.key() == Some("server-names")) {
            if let Some(names) = of_connections(decoder, *item, upstreams) {
                if let Some((name, first)) = named_before(&names, &passed) {
                    let message = format!("`{name}` belongs to a `fallback` already");
                    decoder.push(Problem::new(Some(item.place()), message).also(first, "this one"));
                }
                passed.push((item.place(), names));
            }
            continue;
        }
        match first {
            None => {
                first = Some(item.place());
                fallback = decode(decoder, *item, upstreams, modules);
            }
            Some(first) => {
                let problem = Problem::new(Some(item.place()), "there is a `fallback` already");
                decoder.push(
                    problem
                        .help("only those with `server-names` stand several times")
                        .also(first, "the first one"),
                );
            }
        }
    }
    (fallback, passed.into_iter().map(|(_, names)| names).collect())
}

/// A name that an earlier `fallback` has as well, and the place of that one.
fn named_before<'n>(names: &'n PassedNames, earlier: &[(Place, PassedNames)]) -> Option<(&'n str, Place)> {
    names.names.iter().find_map(|name| {
        let (place, _) = earlier.iter().find(|(_, earlier)| earlier.names.contains(name))?;
        Some((&**name, *place))
    })
}

/// Reads a `fallback` for TLS connections.
fn of_connections(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    upstreams: &UpstreamNames,
) -> Option<PassedNames> {
    let upstream =
        decoder.prop(item, "upstream", |value| Ok(upstreams.find(value::string(value)?)?.0 as usize));
    let names = decoder.prop(item, "server-names", |value| {
        let names = value::string(value)?.split([' ', ',']).filter(|name| !name.is_empty());
        let names: Result<Vec<_>, _> = names.map(str::parse::<HostPattern>).collect();
        let names = names.map_err(|error| Wrong::new(format!("{error}")))?;
        if names.is_empty() {
            return Err(Wrong::new("expected names, separated by blanks"));
        }
        Ok(names.iter().map(|name| name.to_string().into()).collect())
    });
    for name in ["on", "share", "when", "unconverted", "tls-fields"] {
        if item.node.entries().any(|entry| entry.key() == Some(name)) {
            let message = format!("`{name}` is about requests, and `server-names` about connections");
            let problem = Problem::new(Some(item.place()), message);
            decoder.push(problem.help("write two `fallback` nodes"));
        }
    }
    let (upstream, names) = (upstream?, names?);
    let settings = upstreams.list.get(upstream);
    if settings.is_some_and(|upstream| upstream.tls.is_some() || upstream.protocol != UpstreamProtocol::Http1)
    {
        let message = "connections pass as they are: their upstream has no `tls` and no `http`";
        let problem = Problem::new(Some(item.place()), message);
        decoder.push(problem.help("add another `upstream` with the same server, without `tls` and `http`"));
        return None;
    }
    Some(PassedNames { names, upstream })
}

/// Reads a `fallback`; `None` if a problem was found.
pub(super) fn decode(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    upstreams: &UpstreamNames,
    modules: &mut Modules<'_>,
) -> Option<Arc<Fallback>> {
    let has = |name: &str| item.node.entries().any(|entry| entry.key() == Some(name));
    let upstream =
        decoder.prop(item, "upstream", |value| Ok(upstreams.find(value::string(value)?)?.0 as usize));
    let mut fallback = Fallback::to(upstream.unwrap_or_default());
    let mut whole = upstream.is_some();
    if has("on") {
        let on = decoder.prop(item, "on", on);
        whole &= on.is_some();
        (fallback.host, fallback.route) = on.unwrap_or_default();
    }
    if has("share") {
        fallback.share = decoder.prop(item, "share", |value| share(value, "share"));
        whole &= fallback.share.is_some();
    }
    if has("when") {
        let text = item.node.entries().find(|entry| entry.key() == Some("when"));
        let text = text.map_or(String::new(), |entry| item.source_of(entry.span()).to_owned());
        let when = condition_of(decoder, item, modules, "fallback");
        whole &= when.is_some();
        fallback.when = when.map(|when| {
            Arc::new(RouteConditions {
                text: text.into(),
                port: None,
                listeners: Vec::new(),
                all: vec![when],
            })
        });
    }
    if has("unconverted") {
        fallback.unconverted = decoder.prop(item, "unconverted", |value| Ok(value::string(value)?.into()));
        whole &= fallback.unconverted.is_some();
        if let Some(with) = ["share", "when"].into_iter().find(|name| has(name)) {
            let message = format!("with `unconverted` all requests fall back: `{with}` would have no effect");
            let problem = Problem::new(Some(item.place()), message);
            decoder.push(problem.help(format!("leave out `{with}` or `unconverted`")));
            whole = false;
        }
    }
    let tls_fields = decoder.prop(item, "tls-fields", value::boolean);
    fallback.tls_fields = tls_fields.unwrap_or_default();
    whole.then(|| Arc::new(fallback))
}

/// Reads `on`. The first result is true if the fallback gets requests for unknown hosts, the second if it gets requests
/// for unknown routes.
fn on(value: &Value<'_>) -> Result<(bool, bool), Wrong> {
    let (mut host, mut route) = (false, false);
    for word in value::string(value)?.split([' ', ',']).filter(|word| !word.is_empty()) {
        match word {
            "host" => host = true,
            "route" => route = true,
            _ => return Err(Wrong::new(format!("expected `host` and `route`, not `{word}`"))),
        }
    }
    if !host && !route {
        return Err(Wrong::new("expected `host`, `route` or both").help("write `on=\"host route\"`"));
    }
    Ok((host, route))
}

/// A percentage with up to two digits after the point.
pub(super) fn share(value: &Value<'_>, name: &str) -> Result<u32, Wrong> {
    let wrong = || {
        Wrong::new("expected a percentage from 0% to 100%, with two digits behind the point at most")
            .help(format!("write `{name}=\"10%\"`"))
    };
    let text = value::string(value).map_err(|_| wrong())?;
    let number = text.strip_suffix('%').ok_or_else(wrong)?.trim_end();
    let (units, parts) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if units.is_empty() || units.len() > 3 || parts.len() > 2 || !is_number(units) || !is_number(parts) {
        return Err(wrong());
    }
    let parts = format!("{parts:0<2}");
    let share: u32 = format!("{units}{parts}").parse().map_err(|_| wrong())?;
    if share > SHARE_WHOLE { Err(wrong()) } else { Ok(share) }
}

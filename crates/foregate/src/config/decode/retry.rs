//! `retry` of an upstream or a route.

use std::ops::RangeInclusive;
use std::sync::Arc;

use foregate_config::value::{self, Value, Wrong};
use foregate_config::{Decoder, Item, Place, Problem, Upstreams as _};
use foregate_module::{Edit, Field, Text};
use foregate_proxy::routing::PathPattern;
use foregate_proxy::settings::{Elsewhere, NewPath, Retry, RetryOn, RouteRetry};

use super::conditions::method_list;
use super::names::UpstreamNames;
use super::numbers::TIMES;
use super::upstream::host;
use crate::config::schema::{RETRY, RETRY_HEADERS};

/// Reads a rule. Also returns the other upstream that it names, if any, with the place of the name.
pub(super) fn decode(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
) -> (Option<Retry>, Option<(Arc<str>, Place)>) {
    let has = |name: &str| item.node.entries().any(|entry| entry.key() == Some(name));
    let on = match has("on") {
        true => decoder.prop(item, "on", |value| failures(value::string(value)?)),
        false => Some(RetryOn { connect: true, reset: true, timeout: true, statuses: Vec::new() }),
    };
    let attempts = decoder.prop(item, "attempts", |v| value::number(v, 1..=16)).unwrap_or(1);
    let try_timeout = decoder.prop(item, "try-timeout", |v| value::duration(v, TIMES));
    let methods = decoder.prop(item, "methods", |value| {
        Ok(method_list(value::string(value)?)?.iter().map(|method| method.as_bytes().into()).collect())
    });
    let upstream = decoder.prop(item, "upstream", |value| Ok(Arc::<str>::from(value::string(value)?)));
    let place = item.node.entries().find(|entry| entry.key() == Some("upstream"));
    let place = place.map_or(item.place(), |entry| item.place_of(entry.span()));
    let (mut changes, mut to) = (
        None,
        Elsewhere {
            upstream: upstream.clone().unwrap_or_default(),
            host: None,
            path: None,
            edits: Arc::default(),
        },
    );
    for (key, item) in decoder.block(item, &RETRY) {
        changes.get_or_insert(item.place());
        match key.name {
            "headers" => to.edits = edits(decoder, item).into(),
            "host" => to.host = decoder.read(item, 0, host),
            "path" => to.path = decoder.read(item, 0, path),
            name => debug_assert!(false, "{name} is not read"),
        }
    }
    if let (Some(changes), false) = (changes, has("upstream")) {
        let problem =
            Problem::new(Some(changes), "the next server of the same upstream gets the same request");
        decoder.push(problem.help("name another upstream: `retry upstream=\"NAME\" { ... }`"));
    }
    if let (Some(on), Some(_)) = (&on, try_timeout)
        && !on.timeout
    {
        let problem =
            Problem::new(Some(item.place()), "`try-timeout` needs `timeout` among the failures of `on`");
        decoder.push(problem.help("write `on=\"timeout ...\"`"));
    }
    let rule = on.map(|on| Retry {
        on,
        attempts: attempts as u32,
        try_timeout,
        methods: methods.unwrap_or_default(),
        elsewhere: upstream.as_ref().map(|_| to),
    });
    (rule, upstream.map(|name| (name, place)))
}

/// Checks that the other upstreams which `retry` rules name exist, and that the rules do not form a circle. Returns the
/// graph: pairs of indexes, from an upstream to the one that is asked instead.
pub(super) fn check(decoder: &mut Decoder<'_>, upstreams: &UpstreamNames) -> Vec<(usize, usize)> {
    let mut ways: Vec<(usize, usize)> = Vec::new();
    for (from, name, place) in &upstreams.elsewhere {
        let Some(to) = find(decoder, upstreams, name, *place) else { continue };
        if to == *from {
            let problem = Problem::new(Some(*place), "this is the upstream itself");
            decoder.push(problem.help("leave out `upstream=`: its next server is asked"));
        } else if let Some(way) = way(&ways, to, *from) {
            push_circle(decoder, upstreams, (*from, &way), *place);
        } else {
            ways.push((*from, to));
        }
    }
    ways
}

/// The rules of a route as they are read.
#[derive(Default)]
pub(super) struct RouteRules {
    rules: Vec<Retry>,
    named: Vec<(Arc<str>, Place)>,
    first: Option<Place>,
}

impl RouteRules {
    pub(super) fn read(&mut self, decoder: &mut Decoder<'_>, item: Item<'_>) {
        let (rule, named) = decode(decoder, item);
        self.rules.extend(rule);
        self.named.extend(named);
        self.first.get_or_insert(item.place());
    }

    /// Returns the rules, after a check that the upstreams they name exist and do not lead back to `own`, the route's
    /// upstream.
    pub(super) fn finish(
        self,
        decoder: &mut Decoder<'_>,
        upstreams: &UpstreamNames,
        own: Option<usize>,
    ) -> RouteRetry {
        if let (Some(first), None) = (self.first, own) {
            let problem = Problem::new(Some(first), "`retry` has no effect on a route that asks no upstream");
            decoder.push(problem.help("add `proxy \"UPSTREAM\"`, or leave out `retry`"));
        }
        for (name, place) in &self.named {
            let (Some(to), Some(own)) = (find(decoder, upstreams, name, *place), own) else { continue };
            if to == own {
                let problem = Problem::new(Some(*place), "this is the upstream of the route itself");
                decoder.push(problem.help("leave out `upstream=`: its next server is asked"));
            } else if let Some(way) = way(&upstreams.ways, to, own) {
                push_circle(decoder, upstreams, (own, &way), *place);
            }
        }
        RouteRetry::new(self.rules)
    }
}

fn find(decoder: &mut Decoder<'_>, upstreams: &UpstreamNames, name: &str, place: Place) -> Option<usize> {
    match upstreams.find(name) {
        Ok(to) => Some(to.0 as usize),
        Err(wrong) => {
            let problem = Problem::new(Some(place), format!("`upstream=\"{name}\"`: {}", wrong.message));
            decoder.push(match wrong.help {
                Some(help) => problem.help(help),
                None => problem,
            });
            None
        }
    }
}

fn push_circle(
    decoder: &mut Decoder<'_>,
    upstreams: &UpstreamNames,
    (from, way): (usize, &[usize]),
    place: Place,
) {
    let names = |index: &usize| upstreams.list.get(*index).map_or("", |upstream| &upstream.name).to_owned();
    let way: Vec<String> = [from].iter().chain(way).map(names).collect();
    let problem = Problem::new(Some(place), format!("a circle of upstreams: {}", way.join(", ")));
    decoder.push(
        problem.help("a request comes back to no upstream that it has left: take out one of these `retry`"),
    );
}

/// The upstreams on the path from `from` to `to`; `None` if there is no path.
fn way(ways: &[(usize, usize)], from: usize, to: usize) -> Option<Vec<usize>> {
    if from == to {
        return Some(vec![to]);
    }
    // The graph has no circle, so the recursion ends.
    let mut next = ways.iter().filter(|(start, _)| *start == from);
    next.find_map(|(_, end)| way(ways, *end, to)).map(|rest| [from].into_iter().chain(rest).collect())
}

fn failures(text: &str) -> Result<RetryOn, Wrong> {
    let mut on = RetryOn::default();
    for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
        match word {
            "connect" => on.connect = true,
            "reset" => on.reset = true,
            "timeout" => on.timeout = true,
            _ => on.statuses.push(statuses(word)?),
        }
    }
    if on == RetryOn::default() {
        return Err(Wrong::new("expected failures").help(FAILURES));
    }
    Ok(on)
}

const FAILURES: &str =
    "write `connect`, `reset`, `timeout` and statuses, such as \"connect reset timeout 502-504\"";

/// Reads a status or a range of statuses. For a word from another proxy's syntax, the error says how it is written
/// here.
fn statuses(word: &str) -> Result<RangeInclusive<u16>, Wrong> {
    let instead = match word {
        "error" | "conn-failure" | "empty-response" | "connection-error" => Some("connect reset"),
        "connect-failure" => Some("connect"),
        "refused-stream" => Some("connect"),
        "response-timeout" | "0rtt-rejected" => Some("timeout"),
        "5xx" => Some("connect reset timeout 500-599"),
        "gateway-error" => Some("502-504"),
        "retriable-4xx" => Some("409"),
        _ => word.strip_prefix("http_").filter(|status| status.parse::<u16>().is_ok()),
    };
    if let Some(instead) = instead {
        return Err(Wrong::new(format!("`{word}` has another name here")).help(format!("write `{instead}`")));
    }
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let status = |text: &str| text.parse::<u16>().ok().filter(|status| (300..=599).contains(status));
    match (status(first), status(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => {
            Err(Wrong::new(format!("`{word}` is no failure; statuses are those from 300 to 599"))
                .help(FAILURES))
        }
    }
}

fn path(value: &Value<'_>) -> Result<NewPath, Wrong> {
    let text = value::string(value)?;
    let pattern = text.parse::<PathPattern>().map_err(|error| Wrong::new(format!("{error}")))?;
    let (path, before) = match pattern.as_str().strip_suffix("/**") {
        Some(start) => (start, true),
        None => (pattern.as_str(), false),
    };
    if path.contains('*') {
        return Err(
            Wrong::new("`*` stands for nothing here").help("`/**` at the end is the request's own path")
        );
    }
    Ok(if before { NewPath::Before(path.into()) } else { NewPath::Whole(path.into()) })
}

fn edits(decoder: &mut Decoder<'_>, item: Item<'_>) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (key, item) in decoder.block(item, &RETRY_HEADERS) {
        if key.name == "remove" {
            edits.extend(decoder.read_all(item, |name| Ok(field(value::string(name)?)?.removal())));
            continue;
        }
        let named = decoder.read(item, 0, |name| field(value::string(name)?));
        let Some(named) = named else { continue };
        let field = decoder.read(item, 1, |value| {
            let text = Text::from(value::string(value)?.as_bytes().to_vec());
            named.with_value(text).map_err(|error| Wrong::new(error.to_string()))
        });
        edits.extend(
            field.map(|field| if key.name == "add" { Edit::Append(field) } else { Edit::Set(field) }),
        );
    }
    edits
}

/// Reads the name of a header field that may be changed.
fn field(name: &str) -> Result<Field, Wrong> {
    if name.eq_ignore_ascii_case("host") {
        return Err(Wrong::new("`host` is no field here").help("write `host \"NAME\"` beside `headers`"));
    }
    Field::new(Text::from(name.as_bytes().to_vec()), Text::EMPTY)
        .map_err(|error| Wrong::new(error.to_string()))
}

//! The servers of an upstream: `server`, `health`, `eject` and `sticky`.

use std::ops::RangeInclusive;
use std::time::Duration;

use foregate_config::value::{self, Value, Wrong};
use foregate_config::{Decoder, Item, Place, Problem};
use foregate_proxy::address::ServerAddress;
use foregate_proxy::settings::{
    Balance, Eject, HealthCheck, HttpProbe, Probe, ServerSettings, Statuses, Sticky, UpstreamProtocol,
    UpstreamSettings,
};

use super::numbers::{TIMES, TIMES_AND_NONE, set};
use super::upstream::is_token;
use crate::config::schema::{EJECT, Key};

/// The shortest secret, in bytes.
const SECRET_LEAST: usize = 16;

/// The kinds of probes, by their names.
const KINDS: &[(&str, Kind)] =
    &[("http", Kind::Http), ("tcp", Kind::Tcp), ("tls", Kind::Tls), ("grpc", Kind::Grpc)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Http,
    Tcp,
    Tls,
    Grpc,
}

/// Reads a `server` after its address has been read. The properties are read even if the address is wrong, so that
/// their errors are reported too.
pub(super) fn server(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    address: Option<ServerAddress>,
) -> Option<ServerSettings> {
    let is_whole = address.is_some();
    let mut server = ServerSettings::new(address.unwrap_or(ServerAddress::Unix("/".into())));
    set(&mut server.weight, decoder.prop(item, "weight", |v| value::number(v, 1..=1000)));
    server.backup = decoder.prop(item, "backup", value::boolean).unwrap_or(false);
    server.drain = decoder.prop(item, "drain", value::boolean).unwrap_or(false);
    let mut most = |name| {
        let most = decoder.prop(item, name, |v| value::number(v, 1..=1_000_000));
        most.and_then(|most| u32::try_from(most).ok())
    };
    server.max_connections = most("max-connections");
    server.max_requests = most("max-requests");
    set(&mut server.slow_start, decoder.prop(item, "slow-start", |v| value::duration(v, TIMES_AND_NONE)));
    server.zone = decoder.prop(item, "zone", zone);
    is_whole.then_some(server)
}

/// The name of a zone.
pub(super) fn zone(value: &Value<'_>) -> Result<Box<str>, Wrong> {
    match value::string(value)? {
        "" => Err(Wrong::new("a zone needs a name")),
        name => Ok(name.into()),
    }
}

/// `health`.
pub(super) fn health(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<HealthCheck> {
    let kind = decoder.prop(item, "kind", |v| value::choose(v, KINDS)).unwrap_or(Kind::Http);
    let argument = decoder.read(item, 0, |value| Ok(value::string(value)?.to_owned()));
    let host = decoder.prop(item, "host", |v| Ok(Box::from(&*super::upstream::host(v)?)));
    refuse_foreign(decoder, item, kind);
    let probe = match kind {
        Kind::Tcp => Probe::Tcp,
        Kind::Tls => Probe::Tls,
        Kind::Grpc => Probe::Grpc { service: argument.unwrap_or_default().into(), host },
        Kind::Http => {
            let path = argument.unwrap_or_else(|| "/".to_owned());
            if !path.starts_with('/') || path.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'#') {
                let problem = Problem::new(Some(item.place()), "the path of a health check begins with `/`");
                let help = match &*path {
                    "tcp" | "tls" | "grpc" => format!("write `health kind=\"{path}\"`"),
                    "ssl" => "write `health kind=\"tls\"`".to_owned(),
                    "http" | "https" => "write the path alone: `health \"/healthz\"`; `tls` in the `upstream` holds for probes, too".to_owned(),
                    _ => "write it as a request has it, such as `health \"/healthz\"`".to_owned(),
                };
                decoder.push(problem.help(help));
            }
            let statuses = decoder.prop(item, "expect-status", statuses);
            let method = decoder.prop(item, "method", method);
            let body = decoder.prop(item, "expect-body", |v| Ok(Box::<str>::from(value::string(v)?)));
            Probe::Http(HttpProbe {
                path: path.into(),
                method: method.unwrap_or_else(|| "GET".into()),
                host,
                statuses: statuses.unwrap_or(Statuses([200..=399].into())),
                body: body.filter(|body| !body.is_empty()),
            })
        }
    };
    let port = decoder.prop(item, "port", |v| value::number(v, 1..=65_535));
    let mut check = HealthCheck {
        probe,
        port: port.and_then(|port| u16::try_from(port).ok()),
        every: Duration::from_secs(5),
        timeout: Duration::from_secs(1),
        rise: 2,
        fall: 3,
        jitter: 10,
    };
    let shortest = Duration::from_millis(50);
    set(&mut check.every, decoder.prop(item, "every", |v| value::duration(v, shortest..=*TIMES.end())));
    set(&mut check.timeout, decoder.prop(item, "timeout", |v| value::duration(v, TIMES)));
    set(&mut check.rise, decoder.prop(item, "rise", |v| value::number(v, 1..=100)));
    set(&mut check.fall, decoder.prop(item, "fall", |v| value::number(v, 1..=100)));
    set(&mut check.jitter, decoder.prop(item, "jitter", |v| percent(v, 0..=50)));
    Some(check)
}

/// Refuses properties and arguments that only another kind of probe has.
fn refuse_foreign(decoder: &mut Decoder<'_>, item: Item<'_>, kind: Kind) {
    for entry in item.node.entries() {
        let foreign = match (entry.key(), kind) {
            (Some("expect-status" | "expect-body" | "method"), Kind::Tcp | Kind::Tls | Kind::Grpc)
            | (Some("host"), Kind::Tcp | Kind::Tls) => entry.key(),
            (None, Kind::Tcp | Kind::Tls) => Some("a path"),
            _ => None,
        };
        if let Some(foreign) = foreign {
            let message = format!("a probe of this kind has no request: `{foreign}` means nothing here");
            let message = if kind == Kind::Grpc {
                format!("the answer of the gRPC health service decides: `{foreign}` means nothing here")
            } else {
                message
            };
            let problem = Problem::new(Some(item.place_of(entry.span())), message);
            decoder.push(problem.help("leave it out, or write `kind=\"http\"`"));
        }
    }
}

fn method(value: &Value<'_>) -> Result<Box<str>, Wrong> {
    match value::string(value)? {
        "CONNECT" => Err(Wrong::new("CONNECT opens a tunnel and probes nothing").help("use \"GET\"")),
        method if is_token(method) && !method.bytes().any(|byte| byte.is_ascii_lowercase()) => {
            Ok(method.into())
        }
        _ => Err(Wrong::new("expected a method in capital letters, such as \"GET\" or \"HEAD\"")),
    }
}

/// Reads a percentage: `"50%"` or `50`.
pub(super) fn percent(value: &Value<'_>, range: RangeInclusive<u64>) -> Result<u64, Wrong> {
    let text = value.text.trim_end_matches('%');
    let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        Wrong::new(format!("expected a percentage from {}% to {}%", range.start(), range.end()))
    })
}

/// Reads statuses and ranges, separated by spaces or commas, such as `"200-299 304"`.
pub(super) fn statuses(value: &Value<'_>) -> Result<Statuses, Wrong> {
    let wrong = || {
        let wrong = Wrong::new("expected statuses from 100 to 599");
        match value.text.as_bytes() {
            [class @ b'1'..=b'5', b'x' | b'X', b'x' | b'X'] => {
                let class = char::from(*class);
                wrong.help(format!("write the class as a range: \"{class}00-{class}99\""))
            }
            _ => wrong.help("write single ones and ranges, such as \"502-504\" or \"200-299 304\""),
        }
    };
    let status = |text: &str| text.parse::<u16>().ok().filter(|status| (100..=599).contains(status));
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some(status(first)?..=status(last)?).filter(|range| !range.is_empty())
    };
    let words = value.text.split([' ', ',']).filter(|word| !word.is_empty());
    let ranges = words.map(range).collect::<Option<Vec<_>>>();
    ranges.filter(|ranges| !ranges.is_empty()).map(|ranges| Statuses(ranges.into())).ok_or_else(wrong)
}

/// `eject`.
pub(super) fn eject(decoder: &mut Decoder<'_>, item: Item<'_>, eject: &mut Eject) {
    for (key, item) in decoder.block(item, &EJECT) {
        match key.name {
            "failures" => {
                set(&mut eject.failures, decoder.read(item, 0, |v| value::number(v, 1..=1000)));
                share(decoder, item, eject);
            }
            "statuses" => {
                eject.statuses = decoder.read(item, 0, statuses).unwrap_or_default();
                share(decoder, item, eject);
            }
            "slower-than" => {
                let factor = decoder.read(item, 0, |v| value::number(v, 2..=1000));
                eject.latency = factor.and_then(|factor| u32::try_from(factor).ok());
            }
            "hung" => eject.hung = decoder.flag(item),
            "for" => {
                set(&mut eject.first, decoder.read(item, 0, |v| value::duration(v, TIMES)));
                let most = decoder.prop(item, "at-most", |v| value::duration(v, TIMES));
                eject.longest = most.unwrap_or(eject.longest).max(eject.first);
            }
            "most" => set(&mut eject.most, decoder.read(item, 0, |v| percent(v, 1..=100))),
            name => debug_assert!(false, "{name} is not read"),
        }
    }
}

fn share(decoder: &mut Decoder<'_>, item: Item<'_>, eject: &mut Eject) {
    if let Some(share) = decoder.prop(item, "share", |v| percent(v, 1..=100)) {
        eject.share = u32::try_from(share).ok();
    }
    set(&mut eject.minimum, decoder.prop(item, "minimum", |v| value::number(v, 1..=100_000)));
}

/// `sticky`.
pub(super) fn sticky(decoder: &mut Decoder<'_>, item: Item<'_>, key: &'static Key) -> Option<Sticky> {
    let cookie = decoder.prop(item, "cookie", |value| match value::string(value)? {
        name if is_token(name) => Ok(Box::from(name)),
        _ => Err(Wrong::new("expected the name of a cookie").help("write one such as \"SERVER\"")),
    })?;
    let secret = decoder.prop_secret(item, key, "secret", |value| match value::string(value)?.as_bytes() {
        secret if secret.len() >= SECRET_LEAST => Ok(Box::from(secret)),
        _ => Err(Wrong::new(format!("a secret has at least {SECRET_LEAST} bytes"))
            .help("make one with `openssl rand -hex 32`")),
    });
    let secure = decoder.prop(item, "secure", value::boolean).unwrap_or(false);
    let max_age = decoder.prop(item, "max-age", |v| value::duration(v, TIMES));
    Some(Sticky { cookie, secret, secure, max_age })
}

/// The places of keys that may contradict each other.
#[derive(Default)]
pub(super) struct Places {
    pub balance: Option<Place>,
    pub sticky: Option<Place>,
    pub health: Option<Place>,
    pub hedge: Option<Place>,
    /// The place of the first `server`.
    pub server: Option<Place>,
}

/// Refuses combinations of keys that cannot work.
pub(super) fn check(decoder: &mut Decoder<'_>, upstream: &UpstreamSettings, places: &Places) {
    let servers = &upstream.servers;
    if !servers.is_empty() && servers.iter().all(|server| server.backup) {
        let problem = Problem::new(places.server, "all servers of this upstream are `backup`");
        decoder.push(problem.help("leave `backup` out where a server gets requests in ordinary times"));
    }
    if !servers.is_empty() && servers.iter().all(|server| server.drain) {
        let problem = Problem::new(places.server, "all servers of this upstream drain: requests get 503");
        decoder.warn(problem);
    }
    if let (Balance::Hash(_) | Balance::Maglev(_), Some(place)) = (&upstream.balance, places.sticky) {
        let problem = Problem::new(Some(place), "`sticky` and `balance \"hash\"` both choose the server");
        let problem = problem.help("leave one out, or spread new clients by `balance \"least-requests\"`");
        decoder.push(match places.balance {
            Some(balance) => problem.also(balance, "the other one"),
            None => problem,
        });
    }
    if let (Some(sticky), Some(hedge)) = (places.sticky, places.hedge) {
        let problem = Problem::new(Some(hedge), "`hedge` asks a second server, and `sticky` keeps to one");
        decoder.push(problem.help("leave one of them out").also(sticky, "the other one"));
    }
    if upstream.zone.is_none() && servers.iter().any(|server| server.zone.is_some()) {
        let problem =
            Problem::new(places.server, "`zone` of a server has no effect: the proxy itself has no zone");
        decoder.warn(problem.help("add `zone \"NAME\"` at the top of the file, or leave it out here"));
    }
    let is_alone = servers.len() < 2
        && !servers.iter().any(|server| matches!(server.address, ServerAddress::Service(_)));
    if let Some(hedge) = places.hedge.filter(|_| is_alone) {
        let problem = Problem::new(Some(hedge), "`hedge` has no effect: there is no second server");
        decoder.warn(problem.help("add a `server`, or leave `hedge` out"));
    }
    let Some(check) = &upstream.health else { return };
    let wrong = match &check.probe {
        Probe::Tls if upstream.tls.is_none() => {
            Some(("the servers are not connected to over TLS", "add `tls`, or write `kind=\"tcp\"`"))
        }
        Probe::Grpc { .. } if upstream.protocol == UpstreamProtocol::Http1 => {
            Some(("gRPC needs HTTP/2", "add `http \"2\"` to the upstream"))
        }
        _ => None,
    };
    if let Some((message, help)) = wrong {
        decoder.push(Problem::new(places.health, message).help(help));
    }
    if check.port.is_some() && servers.iter().any(|server| matches!(server.address, ServerAddress::Unix(_))) {
        let problem = Problem::new(places.health, "a server on a Unix socket has no `port`");
        decoder.push(problem.help("leave `port` out"));
    }
}

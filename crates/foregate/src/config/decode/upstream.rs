//! `upstream`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use foregate_config::{Decoder, Item, Place, Problem};
use foregate_modules::expressions::request_expression;
use foregate_proxy::address::{ServerAddress, ServerAddressError, is_host_name, is_numeric};
use foregate_proxy::settings::{
    Balance, BufferResponses, HashBy, HashExpression, HedgeAfter, ProxyProtocolVersion, UpstreamProtocol,
    UpstreamSettings, UpstreamTls,
};

use super::conditions::quoted;
use super::names::UpstreamNames;
use super::numbers::{TIMES, set};
use super::queueing::Queueing;
use super::sockets::socket_path;
use super::{retry, servers, tls};
use crate::config::schema::{UPSTREAM, UPSTREAM_TIMEOUTS, UPSTREAM_TLS};
use foregate_config::value::{self, Value, Wrong, did_you_mean};
use foregate_rules::nearest;

const PROTOCOLS: &[(&str, UpstreamProtocol)] =
    &[("1.1", UpstreamProtocol::Http1), ("2", UpstreamProtocol::Http2), ("auto", UpstreamProtocol::Auto)];

/// The most nameservers of an upstream. It is small because each lookup may ask all of them.
const NAMESERVERS: usize = 8;

const PROXY_VERSIONS: &[(&str, ProxyProtocolVersion)] =
    &[("v1", ProxyProtocolVersion::V1), ("v2", ProxyProtocolVersion::V2)];

pub(super) fn decode(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    upstreams: &mut UpstreamNames,
    inspection: &mut tls::Inspection,
    zone: Option<&str>,
) {
    let name = decoder.read(item, 0, |value| match value::string(value)? {
        "" => Err(Wrong::new("an upstream needs a name")),
        name => Ok(Arc::<str>::from(name)),
    });
    let mut upstream = UpstreamSettings::new(name.as_deref().unwrap_or_default(), Vec::new());
    let (mut resolver, mut retries) = (None, None);
    let index = upstreams.list.len();
    upstream.zone = zone.map(Box::from);
    let mut places = servers::Places::default();
    let mut queueing = Queueing::default();
    for (key, item) in decoder.block(item, &UPSTREAM) {
        match key.name {
            "server" => {
                places.server.get_or_insert(item.place());
                let address = decoder.read(item, 0, |value| address(value, item));
                upstream.servers.extend(servers::server(decoder, item, address));
            }
            "resolver" => {
                let servers = decoder.read_all(item, nameserver);
                if servers.len() > NAMESERVERS {
                    let message = format!("an upstream has at most {NAMESERVERS} nameservers");
                    decoder.push(Problem::new(Some(item.place()), message));
                }
                upstream.resolver = Some(servers.into());
                resolver = Some(item.place());
            }
            "balance" => {
                set(&mut upstream.balance, balance(decoder, item));
                places.balance = Some(item.place());
            }
            "sticky" => {
                upstream.sticky = servers::sticky(decoder, item, key);
                places.sticky = Some(item.place());
            }
            "health" => {
                upstream.health = servers::health(decoder, item);
                places.health = Some(item.place());
            }
            "eject" => servers::eject(decoder, item, &mut upstream.eject),
            "host" => upstream.host = decoder.read(item, 0, host),
            "http" => set(&mut upstream.protocol, decoder.choice(item, 0, PROTOCOLS)),
            "tls" => upstream.tls = Some(upstream_tls(decoder, item, inspection)),
            "timeouts" => timeouts(decoder, item, &mut upstream),
            "keep-alive-connections" => {
                let count = decoder.read(item, 0, |v| value::number(v, 0..=1_000_000));
                set(&mut upstream.keep_alive_connections, count);
            }
            "connection-age" => {
                set(&mut upstream.connection_age, decoder.read(item, 0, |v| value::duration(v, TIMES)));
            }
            "requests" => queueing.requests(decoder, item),
            "queue" => queueing.queue(decoder, item),
            "retries" => {
                set(&mut upstream.retries, decoder.read(item, 0, |v| value::number(v, 0..=16)));
                retries = Some(item.place());
            }
            "retry" => {
                let (rule, named) = retry::decode(decoder, item);
                upstreams.elsewhere.extend(named.map(|(name, place)| (index, name, place)));
                upstream.retry.extend(rule);
            }
            "hedge" => {
                upstream.hedge = decoder.prop(item, "after", hedge_after);
                places.hedge = Some(item.place());
            }
            "retry-body" => {
                set(&mut upstream.retry_body, decoder.read(item, 0, |v| value::size(v, 0..=16 << 20)));
            }
            "retry-budget" => {
                let percent = decoder.prop(item, "percent", |v| value::number(v, 0..=100));
                let minimum = decoder.prop(item, "minimum", |v| value::number(v, 0..=1_000_000));
                set(&mut upstream.retry_budget_percent, percent);
                set(&mut upstream.retry_budget_min, minimum);
            }
            "buffer-requests" => upstream.buffer_requests = buffer_requests(decoder, item),
            "buffer-responses" => upstream.buffer_responses = buffer_responses(decoder, item),
            "send-proxy" => upstream.send_proxy = decoder.choice(item, 0, PROXY_VERSIONS),
            name => debug_assert!(false, "{name} is not read"),
        }
    }
    upstream.requests = queueing.finish(decoder);
    if resolver.is_some() && !upstream.servers.iter().any(|server| server.address.is_name()) {
        decoder.warn(Problem::new(resolver, "no server of this upstream has a name that is to be resolved"));
    }
    if let Some(place) = retries.filter(|_| !upstream.retry.is_empty()) {
        let problem = Problem::new(Some(place), "`retry` says how many attempts there are");
        decoder.push(problem.help("leave out `retries`, and write `attempts=` in `retry`"));
    }
    servers::check(decoder, &upstream, &places);
    let Some(name) = name else { return };
    if let Some((_, first)) = upstreams.by_name.insert(name, (index, item.place())) {
        let problem = Problem::new(Some(item.place()), "another upstream has this name already");
        decoder.push(problem.also(first, "the first one"));
    }
    upstreams.list.push(Arc::new(upstream));
    upstreams.used.push(false.into());
}

/// Reads the `after` of a hedge: a duration, or a percentile.
fn hedge_after(value: &Value<'_>) -> Result<HedgeAfter, Wrong> {
    let percentile = value::string(value).ok().and_then(|text| text.strip_prefix('p'));
    let Some(digits) = percentile else {
        return value::duration(value, TIMES).map(HedgeAfter::Time).map_err(|wrong| {
            match value.text.strip_suffix('%') {
                Some(percent) => wrong.help(format!("write a percentile as \"p{percent}\"")),
                None => wrong,
            }
        });
    };
    match digits.parse() {
        Ok(percent @ 50..=99) => Ok(HedgeAfter::Percentile(percent)),
        _ => Err(Wrong::new("expected a duration, or a percentile from \"p50\" to \"p99\"")),
    }
}

/// Reads the largest request body that is received as a whole before a server is asked; `None` if bodies are not
/// buffered.
pub(super) fn buffer_requests(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<u64> {
    const SIZE: u64 = 10 << 20;
    let size = decoder.prop(item, "size", |v| value::size(v, 1..=u64::MAX));
    decoder.flag_or_prop(item, "size").then(|| size.unwrap_or(SIZE))
}

/// Reads how much of a response is received ahead of the client; `None` if responses are not buffered.
pub(super) fn buffer_responses(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<BufferResponses> {
    const MEMORY: u64 = 128 << 10;
    const SIZE: u64 = 64 << 20;
    let memory = decoder.prop(item, "memory", |v| value::size(v, 4096..=16 << 20)).unwrap_or(MEMORY);
    let size = decoder.prop(item, "size", |v| value::size(v, 0..=u64::MAX)).unwrap_or(SIZE);
    decoder.flag_or_prop(item, "size").then_some(BufferResponses { memory: memory as usize, size })
}

/// Reads a server's address. A relative `unix:` path starts at the configuration file's folder, like all paths.
fn address(value: &Value<'_>, item: Item<'_>) -> Result<ServerAddress, Wrong> {
    let text = value::string(value)?;
    match text.strip_prefix("unix:") {
        Some("") => Err(Wrong::new("expected a path after `unix:`")),
        Some(path) => Ok(ServerAddress::Unix(socket_path(item.base(), path)?)),
        None => text.parse().map_err(|error| {
            let wrong = Wrong::new(format!("{error}"));
            if error == ServerAddressError::Service {
                return wrong.help("write it without a port, which the records give, such as `server \"srv:_http._tcp.app.internal\"`");
            }
            if let ServerAddressError::Ipv4(_) = error {
                return wrong.help("write an address such as `server \"192.0.2.1:80\"`, or a name");
            }
            match text.split_once("://") {
                Some(("https", _)) => wrong.help("write `server \"HOST:443\"`, and `tls` beside it"),
                Some(_) => wrong.help("write it without a scheme, such as `server \"127.0.0.1:3000\"`"),
                None if !text.contains(':') && is_host_name(text) => {
                    wrong.help(format!("add its port, such as `server \"{text}:80\"`"))
                }
                None => match server_form(text) {
                    Some(help) => wrong.help(help),
                    None => wrong,
                },
            }
        }),
    }
}

/// The suggestion for an address of a server that is incomplete or has no valid port.
fn server_form(text: &str) -> Option<String> {
    if text.starts_with('/') || text.starts_with("./") {
        return Some(format!("write `server \"unix:{text}\"`"));
    }
    let (host, port) = text.rsplit_once(':')?;
    if host.is_empty() && port.parse::<u16>().is_ok() {
        return Some(format!("add the host, such as `server \"127.0.0.1:{port}\"`"));
    }
    let host = if host.is_empty() { "HOST" } else { host };
    match port {
        "http" => Some(format!("write the port as a number: `server \"{host}:80\"`")),
        "https" => Some(format!("write the port as a number, and `tls` beside it: `server \"{host}:443\"`")),
        _ if port.parse::<u16>().is_ok_and(|port| port > 0) => None,
        _ => Some("a port is a number from 1 to 65535".to_owned()),
    }
}

/// Reads the address of a nameserver; the port may be left out if it is 53.
fn nameserver(value: &Value<'_>) -> Result<SocketAddr, Wrong> {
    let text = value::string(value)?;
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let address =
        text.parse().or_else(|_| bare.parse::<IpAddr>().map(|address| SocketAddr::new(address, 53)));
    address.ok().filter(|address| address.port() != 0).ok_or_else(|| {
        Wrong::new("expected the address of a nameserver: IP, IP:PORT or [IPV6]:PORT")
            .help("write it without a name, such as `resolver \"127.0.0.53:53\"`")
    })
}

/// Reads a host, with a port if it has one, in normal form.
pub(super) fn host(value: &Value<'_>) -> Result<Arc<str>, Wrong> {
    let text = value::string(value)?;
    let mut host = String::new();
    let authority = foregate_wire::parse_authority(text.as_bytes(), &mut host);
    let port = match authority {
        Ok(authority) => authority.port,
        Err(_) if text.contains("://") => {
            return Err(Wrong::new("expected a host")
                .help("write it without a scheme, such as `host \"app.internal\"`"));
        }
        Err(error) => return Err(Wrong::new(format!("{error}")).help("write NAME or NAME:PORT")),
    };
    if let Some(port) = port {
        host.push_str(&format!(":{port}"));
    }
    Ok(host.into())
}

/// Reads `balance`. The properties `by`, `key` and `maglev` are allowed only with `hash`.
fn balance(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<Balance> {
    let method = decoder.read(item, 0, |value| method(value::string(value)?))?;
    let by = decoder.prop(item, "by", |value| hash_by(value::string(value)?));
    let key = decoder.prop(item, "key", |value| hash_key(value::string(value)?));
    let maglev = decoder.prop(item, "maglev", value::boolean);
    let foreign = match (method, by, key, maglev) {
        (Balance::Hash(_), Some(_), Some(_), _) => {
            let problem = Problem::new(Some(item.place()), "`by` and `key` both say what is hashed");
            decoder.push(problem.help("leave one of them out"));
            return None;
        }
        (Balance::Hash(client), by, key, maglev) => {
            let by = by.or(key).unwrap_or(client);
            return Some(if maglev == Some(true) { Balance::Maglev(by) } else { Balance::Hash(by) });
        }
        (method, None, None, None) => return Some(method),
        (_, Some(_), ..) => ("`by` says what `balance \"hash\"` goes by", "by=..."),
        (_, _, Some(_), _) => ("`key` says what `balance \"hash\"` goes by", "key=..."),
        (_, _, _, Some(_)) => ("`maglev` is a kind of `balance \"hash\"`", "maglev=#true"),
    };
    let problem = Problem::new(Some(item.place()), foreign.0);
    decoder.push(problem.help(format!("leave it out, or write `balance \"hash\" {}`", foreign.1)));
    None
}

fn method(word: &str) -> Result<Balance, Wrong> {
    let instead = match word {
        "round-robin" => return Ok(Balance::RoundRobin),
        "least-requests" => return Ok(Balance::LeastRequests),
        "two-choices" => return Ok(Balance::TwoChoices),
        "random" => return Ok(Balance::Random),
        "peak-ewma" => return Ok(Balance::PeakEwma),
        "hash" => return Ok(Balance::Hash(HashBy::Client)),
        "least-connections" | "least-conn" | "least_conn" | "leastconn" | "least-request" => {
            "use \"least-requests\""
        }
        "p2c" | "two-choice" | "random-two" | "power-of-two" => "use \"two-choices\"",
        "ip-hash" | "ip_hash" | "source" | "client-ip" => "use `balance \"hash\" by=\"client\"`",
        "rr" | "wrr" | "static-rr" | "weighted" | "weighted-round-robin" | "weighted_round_robin" => {
            "use \"round-robin\"; the property `weight=` of a `server` is its share"
        }
        "uri" | "url" | "uri-hash" | "path" => "use `balance \"hash\" by=\"path\"`",
        "consistent-hash" | "consistent" | "ketama" | "ring-hash" | "ring_hash" => "use \"hash\"",
        "ewma" | "peak_ewma" | "least-time" | "least_time" => "use \"peak-ewma\"",
        "maglev" => "use `balance \"hash\" maglev=#true`",
        "sticky" | "cookie" => {
            let wrong = Wrong::new("sessions have a key of their own, beside `balance`");
            return Err(wrong.help("write `sticky cookie=\"NAME\"`"));
        }
        _ => {
            let wrong = Wrong::new(
                "expected \"round-robin\", \"least-requests\", \"two-choices\", \"peak-ewma\", \"random\" or \"hash\"",
            );
            return Err(did_you_mean(wrong, word, METHODS.iter().copied()));
        }
    };
    Err(Wrong::new("this method has another name here").help(instead))
}

const METHODS: &[&str] = &["round-robin", "least-requests", "two-choices", "peak-ewma", "random", "hash"];

/// The parts of a request by which `balance "hash"` may go. A colon stands before a name.
const PARTS: &[&str] = &["client", "path", "target", "header:", "cookie:", "query:"];

fn hash_by(word: &str) -> Result<HashBy, Wrong> {
    match word.split_once(':') {
        None if word == "client" => Ok(HashBy::Client),
        None if word == "path" => Ok(HashBy::Path),
        None if word == "target" => Ok(HashBy::Target),
        Some(("header", name)) if is_token(name) => Ok(HashBy::Header(name.to_ascii_lowercase().into())),
        Some(("cookie", name)) if is_token(name) => Ok(HashBy::Cookie(name.into())),
        Some(("query", name)) if !name.is_empty() => {
            hash_key(&format!("http.request.uri.args[{}][0]", quoted(name)))
        }
        _ => {
            let wrong = Wrong::new(
                "expected \"client\", \"path\", \"target\", \"header:NAME\", \"cookie:NAME\" or \"query:NAME\"",
            );
            Err(match hash_part(word) {
                Some(help) => wrong.help(help),
                None => wrong,
            })
        }
    }
}

/// The suggestion for a part of the request that is not known.
fn hash_part(word: &str) -> Option<String> {
    let name_of = |start: &str| word.strip_prefix(start).filter(|name| is_token(name));
    let quoted = |part: &str| Some(format!("write \"{part}\""));
    // Variables of NGINX, with the names of fields, cookies and arguments behind them.
    for (start, part) in [("$http_", "header:"), ("$cookie_", "cookie:"), ("$arg_", "query:")] {
        if let Some(name) = name_of(start) {
            let name = if part == "header:" { name.replace('_', "-") } else { name.to_owned() };
            return quoted(&format!("{part}{name}"));
        }
    }
    match word {
        "$request_uri" | "uri" | "url" | "request-uri" | "request_uri" => return quoted("target"),
        "$uri" | "url-path" => return quoted("path"),
        "$remote_addr"
        | "$binary_remote_addr"
        | "ip"
        | "client-ip"
        | "client_ip"
        | "client-address"
        | "remote-addr"
        | "remote_addr"
        | "source"
        | "src"
        | "address" => return quoted("client"),
        "$host" | "host" => return Some("write `key=\"http.host\"` in the place of `by`".to_owned()),
        _ if word.contains(['.', '(', '[']) => return Some("an expression is written as `key=`".to_owned()),
        _ => {}
    }
    let (kind, name) =
        word.split_once([':', ' ', '=']).map_or((word, None), |(kind, name)| (kind, Some(name)));
    let kind = kind.to_ascii_lowercase();
    let part = match &*kind {
        "arg" | "args" | "param" | "parameter" => "query:",
        "field" | "headers" => "header:",
        "cookies" => "cookie:",
        kind => {
            let bare = |part: &&'static str| part.trim_end_matches(':') == kind;
            let near = || nearest(kind, PARTS.iter().map(|part| part.trim_end_matches(':')));
            match PARTS.iter().copied().find(bare) {
                Some(part) => part,
                None => {
                    let near = near()?;
                    PARTS.iter().copied().find(|part| part.trim_end_matches(':') == near)?
                }
            }
        }
    };
    let name = name.filter(|name| is_token(name)).unwrap_or("NAME");
    Some(match part.ends_with(':') {
        true => format!("did you mean \"{part}{name}\"?"),
        false => format!("did you mean \"{part}\"?"),
    })
}

/// Reads the expression that `balance "hash"` goes by.
fn hash_key(text: &str) -> Result<HashBy, Wrong> {
    match request_expression(text) {
        Ok(value) => Ok(HashBy::Expression(HashExpression { text: text.into(), value })),
        Err(mistake) => {
            let wrong = Wrong::new(format!("at byte {}: {}", mistake.span.start, mistake.message));
            Err(match mistake.help {
                Some(help) => wrong.help(help),
                None => wrong,
            })
        }
    }
}

/// Returns true if the text is valid as the name of a field or cookie (RFC 9110, section 5.6.2).
pub(super) fn is_token(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_allowed)
}

fn upstream_tls(decoder: &mut Decoder<'_>, of: Item<'_>, inspection: &mut tls::Inspection) -> UpstreamTls {
    let mut settings = UpstreamTls::default();
    let mut places: Vec<(PathBuf, Place)> = Vec::new();
    for (key, item) in decoder.block(of, &UPSTREAM_TLS) {
        match key.name {
            "server-name" => {
                settings.server_name = decoder.read(item, 0, |value| {
                    let name = value::string(value)?.to_ascii_lowercase();
                    let valid =
                        is_host_name(&name) && (!is_numeric(&name) || name.parse::<Ipv4Addr>().is_ok());
                    valid.then_some(name).ok_or_else(|| Wrong::new("expected a host name without a port"))
                });
            }
            "ca" => {
                settings.authorities = decoder.file(item, 0);
                places.extend(settings.authorities.iter().map(|file| (file.clone(), item.place())));
            }
            "verify" => {
                settings.verify = decoder.flag(item);
                if !settings.verify {
                    let message = "the certificate of the servers is not checked: \
                                   whoever sits on the way can read and change everything";
                    let problem = Problem::new(Some(item.place()), message);
                    decoder.warn(problem.help("name the authority that signed it: `ca \"FILE\"`"));
                }
            }
            "certificate" => {
                settings.certificate = tls::certificate(decoder, item);
                let files = settings.certificate.iter();
                let files = files.flat_map(|files| [files.certificate.clone(), files.key.clone()]);
                places.extend(files.map(|file| (file, item.place())));
            }
            name => debug_assert!(false, "{name} is not read"),
        }
    }
    inspection.upstream(decoder, of, &settings, &places);
    settings
}

fn timeouts(decoder: &mut Decoder<'_>, item: Item<'_>, upstream: &mut UpstreamSettings) {
    for (key, item) in decoder.block(item, &UPSTREAM_TIMEOUTS) {
        let time = decoder.read(item, 0, |v| value::duration(v, TIMES));
        match key.name {
            "connect" => set(&mut upstream.connect_timeout, time),
            "first-byte" => set(&mut upstream.first_byte_timeout, time),
            "idle" => set(&mut upstream.idle_timeout, time),
            "tunnel-idle" => set(&mut upstream.tunnel_idle, time),
            "keep-alive" => set(&mut upstream.keep_alive, time),
            name => debug_assert!(false, "{name} is not read"),
        }
    }
}

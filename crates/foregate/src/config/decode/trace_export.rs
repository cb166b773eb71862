//! `trace-export`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use foregate_config::value::{self, Value, Wrong};
use foregate_config::{Decoder, Item, Modules, Place, Problem};
use foregate_module::{Field, PhaseId, Pipeline};
use foregate_proxy::address::ServerAddress;
use foregate_proxy::configuration::Settings;
use foregate_proxy::settings::{ServerSettings, TraceExport, UpstreamSettings, UpstreamTls};

use crate::config::schema::TRACE_EXPORT;

/// The name of the upstream that stands for the receiver.
pub(super) const NAME: &str = "trace-export";
/// The path to which spans are sent, unless the receiver's URL has a path (OTLP, section "OTLP/HTTP").
const TRACES: &str = "/v1/traces";
/// The step that begins or continues traces.
const STEP: &str = "trace";
/// The default time limit for the receiver to accept a batch.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most attributes of the resource, and also the most header fields of the requests.
const MOST: usize = 64;

/// The export, as read from the file.
pub(super) struct ReadExport {
    export: TraceExport,
    /// The receiver, as an upstream.
    pub receiver: UpstreamSettings,
    /// The file with the authorities by which the receiver's certificate is verified, and its place.
    pub authorities: Option<(PathBuf, Place)>,
    place: Place,
}

/// The address of a receiver.
struct Receiver {
    secure: bool,
    address: ServerAddress,
    authority: String,
    path: String,
}

pub(super) fn decode(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    modules: &mut Modules<'_>,
) -> Option<ReadExport> {
    let receiver = decoder.read(item, 0, |value| receiver(value::string(value)?));
    let mut export = TraceExport {
        upstream: 0,
        path: Box::default(),
        fields: Vec::new(),
        resource: vec![
            ("service.name".into(), "foregate".into()),
            ("service.version".into(), env!("CARGO_PKG_VERSION").into()),
        ],
        when: Vec::new(),
        timeout: TIMEOUT,
    };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if !host.trim().is_empty() {
        export.resource.push(("host.name".into(), host.trim().into()));
    }
    let (mut tls, mut ca) = (UpstreamTls::default(), None);
    let place = item.place();
    for (key, item) in decoder.block(item, &TRACE_EXPORT) {
        match key.name {
            "service" => {
                let service = decoder.read(item, 0, |value| text(value, "a service needs a name"));
                set(&mut export.resource, "service.name".into(), service);
            }
            "attribute" => {
                let name = decoder.read(item, 0, |value| text(value, "an attribute needs a name"));
                let value = decoder.read(item, 1, |value| value::string(value).map(Arc::from));
                if let Some(name) = name {
                    set(&mut export.resource, name, value);
                }
            }
            "header" => export.fields.extend(field(decoder, item)),
            "when" => export.when.extend(modules.conditions(decoder, (item, key), PhaseId::Log)),
            "timeout" => {
                let range = Duration::from_millis(100)..=Duration::from_secs(60);
                let timeout = decoder.read(item, 0, |value| value::duration(value, range));
                export.timeout = timeout.unwrap_or(TIMEOUT);
            }
            "ca" => {
                tls.authorities = decoder.file(item, 0);
                ca = tls.authorities.clone().map(|file| (file, item.place()));
            }
            name => debug_assert!(false, "{name} is not read"),
        }
    }
    if export.fields.len() > MOST || export.resource.len() > MOST {
        let message = format!("at most {MOST} attributes and as many headers can be sent");
        decoder.push(Problem::new(Some(place), message));
        return None;
    }
    let receiver = receiver?;
    if let Some((_, place)) = ca.as_ref().filter(|_| !receiver.secure) {
        let problem = Problem::new(Some(*place), "`ca` is about TLS, which an http:// address does not use");
        decoder.push(problem.help("write an https:// address, or leave out `ca`"));
        return None;
    }
    export.path = receiver.path.into();
    let mut upstream = UpstreamSettings::new(NAME, vec![ServerSettings::new(receiver.address)]);
    upstream.host = Some(receiver.authority.into());
    upstream.first_byte_timeout = export.timeout;
    if receiver.secure {
        upstream.tls = Some(tls);
    }
    Some(ReadExport { export, receiver: upstream, authorities: ca, place })
}

/// Adds the export to the settings. Their sites must be complete. `number` is the index of the receiver's upstream;
/// `namesake` is the place of another upstream with the same name, which is an error.
pub(super) fn finish(
    decoder: &mut Decoder<'_>,
    read: ReadExport,
    (number, namesake): (usize, Option<Place>),
    pipeline: &Pipeline,
    settings: &mut Settings,
) {
    let ReadExport { mut export, place, .. } = read;
    if let Some(other) = namesake {
        let problem = Problem::new(Some(other), "this name belongs to the receiver of `trace-export`");
        decoder.push(problem.help("take another name").also(place, "the receiver"));
    }
    let is_trace =
        |step: u16| pipeline.entries().get(usize::from(step)).is_some_and(|entry| entry.decl().name == STEP);
    let mut plans = settings.sites.routes().iter().filter_map(|route| route.plan.get());
    if !plans.any(|plan| plan.phase(PhaseId::RequestEarly).iter().any(|planned| is_trace(planned.step))) {
        let problem = Problem::new(Some(place), "no span is exported: no route has `trace`");
        decoder
            .warn(problem.help("add `trace sample=\"10%\"` at the top of the file, to a site or to a route"));
    }
    export.upstream = number;
    settings.trace_export = Some(Arc::new(export));
}

/// Sets an attribute of the resource, in place of a default if there is one.
fn set(resource: &mut Vec<(Arc<str>, Arc<str>)>, name: Arc<str>, value: Option<Arc<str>>) {
    let Some(value) = value else { return };
    match resource.iter_mut().find(|(known, _)| *known == name) {
        Some((_, present)) => *present = value,
        None => resource.push((name, value)),
    }
}

fn text(value: &Value<'_>, wrong: &'static str) -> Result<Arc<str>, Wrong> {
    match value::string(value)? {
        "" => Err(Wrong::new(wrong)),
        text => Ok(text.into()),
    }
}

/// Reads a header field for the requests that export spans.
fn field(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<Field> {
    let name = decoder.read(item, 0, |value| {
        let name = value::string(value)?.to_ascii_lowercase();
        let known = ["content-type", "content-encoding", "host", "user-agent", "traceparent", "tracestate"];
        match known.contains(&&*name) {
            true => Err(Wrong::new("the export sets this field itself")),
            false => Ok(name),
        }
    })?;
    decoder.read(item, 1, |value| {
        let wrong = |error| Wrong::new(format!("this is no field of a request: {error}"));
        Field::new(name.clone().into_bytes(), value::string(value)?.as_bytes().to_vec()).map_err(wrong)
    })
}

/// Reads the receiver's URL: `http://HOST[:PORT][/PATH]` or `https://...`. Without a path, OTLP's path is used.
fn receiver(text: &str) -> Result<Receiver, Wrong> {
    let wrong = || {
        let wrong = Wrong::new("expected the http:// or https:// address of a receiver of OTLP");
        wrong.help("write \"http://127.0.0.1:4318\"")
    };
    let uri = text.parse::<http::Uri>().map_err(|_| wrong())?;
    let secure = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(wrong()),
    };
    let authority = uri.authority().filter(|authority| !authority.host().is_empty()).ok_or_else(wrong)?;
    if authority.as_str().contains('@') {
        return Err(Wrong::new("credentials do not belong into the address")
            .help("write `header \"authorization\" \"Basic ...\"` in the block"));
    }
    let port = authority.port_u16();
    if port == Some(4317) {
        return Err(Wrong::new("4317 is the port of OTLP over gRPC; spans are sent over HTTP")
            .help("write port 4318, or the port that the receiver has for OTLP over HTTP"));
    }
    let port = port.unwrap_or(if secure { 443 } else { 80 });
    let address = format!("{}:{port}", authority.host()).parse().map_err(|_| wrong())?;
    let base = uri.path().trim_end_matches('/');
    let path = match uri.query() {
        Some(query) => format!("{}?{query}", if base.is_empty() { TRACES } else { base }),
        None if base.is_empty() => TRACES.to_owned(),
        None => base.to_owned(),
    };
    Ok(Receiver { secure, address, authority: authority.as_str().to_owned(), path })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(bool, String, String), Wrong> {
        receiver(text).map(|receiver| (receiver.secure, receiver.address.to_string(), receiver.path))
    }

    #[test]
    fn an_address_has_the_path_of_traces_unless_it_names_one() {
        for (text, secure, address, path) in [
            ("http://127.0.0.1:4318", false, "127.0.0.1:4318", "/v1/traces"),
            ("http://collector", false, "collector:80", "/v1/traces"),
            ("https://api.example.com/", true, "api.example.com:443", "/v1/traces"),
            ("https://otlp.example.com/x/otlp/v1/traces", true, "otlp.example.com:443", "/x/otlp/v1/traces"),
            ("http://[::1]:4318?a=b", false, "[::1]:4318", "/v1/traces?a=b"),
        ] {
            let expected = (secure, address.to_owned(), path.to_owned());
            assert_eq!(read(text).ok(), Some(expected), "{text}");
        }
        for wrong in ["", "127.0.0.1:4318", "grpc://a:1", "http://", "http://u:p@a", "http://a:4317"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}

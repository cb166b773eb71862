//! Active health checks: one task for each server, apart from requests. A probe opens its connection the
//! same way as a request does, but the connection serves the probe alone and ends with it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use foregate_module::Field;
use foregate_wire::{BodyLength, HeaderList, Method, ResponseHead};
use tokio::time::{sleep, timeout};

use super::checked::ProbeSubject;
use super::connect::{Addresses, NewConnection};
use super::members::Upstream;
use super::opening::OpeningTerms;
use super::origin::Origin;
use super::record::ServerRecord;
use super::server::Server;
use crate::error::Error;
use crate::limits::descriptors::DescriptorPlace;
use crate::link::ReceiveOutcome;
use crate::message::request::Request;
use crate::random;
use crate::settings::{HealthCheck, HttpProbe, Probe, UpstreamSettings};
use crate::time::poll_length::WatchedTask;

/// The most bytes of a body that are examined.
const BODY_MOST: usize = 64 * 1024;
/// The time in milliseconds over which the first probes of many servers are spread.
const SPREAD: u64 = 100;

/// The terms of a probe's connection: it is made for no client, and serves the probe alone.
const TERMS: OpeningTerms<'_> = OpeningTerms {
    fresh: true,
    addresses: Addresses::NONE,
    behalf: None,
    client: None,
    own: None,
    http1: false,
    // A connection on which credentials may be sent is never shared.
    authenticates: true,
    handed_over: None,
};

/// The answer to a probe.
struct ProbeAnswer {
    head: ResponseHead,
    body: Vec<u8>,
    trailers: HeaderList,
}

/// Starts probing a server if that is configured. All upstreams that share the server's record use
/// one task.
pub(super) fn attend(upstream: &Arc<Upstream>, server: &Server) {
    if upstream.settings.health.is_none() {
        return;
    }
    let subject: Weak<dyn ProbeSubject> = Arc::<Upstream>::downgrade(upstream);
    if server.record.checked.attend(subject, server.number) {
        let probing = probe_for_ever(Arc::downgrade(&server.record));
        tokio::spawn(WatchedTask::new(probing, Arc::clone(&upstream.metrics)));
    }
}

impl ProbeSubject for Upstream {
    fn probe(&self, server: usize) -> Pin<Box<dyn Future<Output = Option<Duration>> + Send + '_>> {
        Box::pin(async move {
            let (check, server) = (self.settings.health.as_ref()?, self.servers.get(server)?);
            let result = timeout(check.timeout, probe(self, server, check)).await;
            let result = result.unwrap_or_else(|_| Err(format!("no answer within {:?}", check.timeout)));
            self.judge.probed(server, &result, self.clock.now());
            Some(server.record.checked.pause(check, random::number()))
        })
    }
}

/// Probes a server as long as any upstream has it.
async fn probe_for_ever(record: Weak<ServerRecord>) {
    sleep(Duration::from_millis(random::number() % SPREAD)).await;
    loop {
        let pause = {
            let Some(record) = record.upgrade() else { return };
            let Some((upstream, server)) = record.checked.subject() else { return };
            let Some(pause) = upstream.probe(server).await else { return };
            pause
        };
        sleep(pause).await;
    }
}

/// Probes a server once. The error is the reason why the probe failed.
async fn probe(upstream: &Upstream, server: &Server, check: &HealthCheck) -> Result<(), String> {
    let mut server = server.clone();
    if let Some(port) = check.port {
        server.address = server.address.with_port(port);
    }
    let origin = |connected| Origin::new(&server, connected, false, None, None);
    match &check.probe {
        Probe::Tcp => {
            let place = DescriptorPlace::take_for_origin().ok_or_else(|| Error::NoDescriptors.to_string())?;
            upstream
                .connections
                .dialer
                .socket(&server, place, &mut Vec::new())
                .await
                .map_err(|error| error.to_string())?;
            Ok(())
        }
        Probe::Tls => connect_for_probe(upstream, &server).await.map(drop),
        Probe::Http(probe) => {
            let request = http_request(&upstream.settings, &server, probe)?;
            let origin = origin(connect_for_probe(upstream, &server).await?);
            let answer = ask_origin(upstream, origin, request, &[], probe.body.is_some()).await?;
            judge_http(&answer, probe)
        }
        Probe::Grpc { service, host } => {
            let (request, message) = grpc_request(&upstream.settings, &server, service, host.as_deref())?;
            let origin = origin(connect_for_probe(upstream, &server).await?);
            judge_grpc(&ask_origin(upstream, origin, request, &message, true).await?)
        }
    }
}

async fn connect_for_probe(upstream: &Upstream, server: &Server) -> Result<NewConnection, String> {
    let place = DescriptorPlace::take_for_origin().ok_or_else(|| Error::NoDescriptors.to_string())?;
    let connected = upstream.connections.dialer.establish(server, TERMS, place, &mut Vec::new()).await;
    connected.map_err(|error| match (error, server.remembered.tls_failure()) {
        (Error::OriginTls, Some(reason)) => reason,
        (error, _) => error.to_string(),
    })
}

fn authority(settings: &UpstreamSettings, server: &Server, host: Option<&str>) -> String {
    let host = host.or(settings.host.as_deref()).map(str::to_owned);
    host.or_else(|| server.address.authority()).unwrap_or_else(|| "localhost".to_owned())
}

fn http_request(settings: &UpstreamSettings, server: &Server, probe: &HttpProbe) -> Result<Request, String> {
    let method = Method::from_bytes(probe.method.as_bytes()).ok_or("the method is none")?;
    let authority = authority(settings, server, probe.host.as_deref());
    let fields =
        fields(&[("User-Agent", concat!("foregate-health/", env!("CARGO_PKG_VERSION"))), ("Accept", "*/*")]);
    let request = Request::make(method, probe.path.as_bytes(), authority.as_bytes(), &fields, 0);
    request.map_err(|error| error.to_string())
}

fn grpc_request(
    settings: &UpstreamSettings,
    server: &Server,
    service: &str,
    host: Option<&str>,
) -> Result<(Request, Vec<u8>), String> {
    let message = health_request(service).ok_or("the name of the service is too long")?;
    let authority = authority(settings, server, host);
    let fields = fields(&[
        ("Content-Type", "application/grpc"),
        ("TE", "trailers"),
        ("User-Agent", concat!("foregate-health/", env!("CARGO_PKG_VERSION"))),
    ]);
    let path = b"/grpc.health.v1.Health/Check";
    let request = Request::make(Method::Post, path, authority.as_bytes(), &fields, message.len() as u64);
    Ok((request.map_err(|error| error.to_string())?, message))
}

/// Sends a request and receives its response. If `reads_body` is true, this includes the first
/// [`BODY_MOST`] bytes of the body.
async fn ask_origin(
    upstream: &Upstream,
    mut origin: Origin,
    request: Request,
    body: &[u8],
    reads_body: bool,
) -> Result<ProbeAnswer, String> {
    let text = |error: Error| error.to_string();
    let of_link = |error| text(Error::Origin(error));
    origin.send_head(&request, &upstream.settings).await.map_err(text)?;
    let mut left = body;
    while !left.is_empty() {
        let taken = poll_fn(|cx| origin.link.poll_send(cx, left)).await.map_err(of_link)?;
        left = left.get(taken..).unwrap_or_default();
    }
    origin.link.finish(&HeaderList::new()).map_err(of_link)?;
    let mut head = ResponseHead::new();
    loop {
        poll_fn(|cx| {
            // An error in sending is ignored, because the origin may have closed its side after a
            // response.
            let _ = origin.link.poll_flush(cx);
            origin.poll_head(cx, &upstream.connections, &mut head)
        })
        .await
        .map_err(text)?;
        if head.status >= 200 {
            break;
        }
    }
    let mut answer = ProbeAnswer { head, body: Vec::new(), trailers: HeaderList::new() };
    let length = origin.begin_body(&upstream.connections, &request, &answer.head).map_err(text)?;
    if !reads_body || length == BodyLength::Tunnel {
        return Ok(answer);
    }
    while poll_fn(|cx| origin.link.poll_receive(cx)).await.map_err(of_link)? == ReceiveOutcome::Data {
        let data = origin.link.data();
        answer.body.extend_from_slice(data.get(..BODY_MOST - answer.body.len()).unwrap_or(data));
        if answer.body.len() >= BODY_MOST {
            return Ok(answer);
        }
        let count = data.len();
        origin.link.consume(count);
    }
    answer.trailers.clone_from(origin.link.trailers());
    Ok(answer)
}

fn fields(fields: &[(&str, &str)]) -> Vec<Field> {
    let field =
        |(name, value): &(&str, &str)| Field::new(name.as_bytes().to_vec(), value.as_bytes().to_vec());
    fields.iter().filter_map(|pair| field(pair).ok()).collect()
}

fn judge_http(answer: &ProbeAnswer, probe: &HttpProbe) -> Result<(), String> {
    if !probe.statuses.contains(answer.head.status) {
        return Err(format!("status {}", answer.head.status));
    }
    match &probe.body {
        Some(text) if !contains(&answer.body, text.as_bytes()) => {
            Err(format!("the body does not contain {text:?}"))
        }
        _ => Ok(()),
    }
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    text.is_empty() || body.windows(text.len()).any(|part| part == text)
}

/// The message of a `HealthCheckRequest` (grpc.health.v1), in the frame of gRPC.
fn health_request(service: &str) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    if !service.is_empty() {
        // Field 1 of the message is a text. Its length is encoded in one byte.
        message.extend([0x0a, u8::try_from(service.len()).ok().filter(|length| *length < 128)?]);
        message.extend_from_slice(service.as_bytes());
    }
    let mut framed = vec![0];
    framed.extend(u32::try_from(message.len()).ok()?.to_be_bytes());
    framed.extend(message);
    Some(framed)
}

fn judge_grpc(answer: &ProbeAnswer) -> Result<(), String> {
    if answer.head.status != 200 {
        return Err(format!("HTTP status {}", answer.head.status));
    }
    // If there is no message, the status is in the head instead of the trailers.
    let status =
        answer.trailers.get_name(b"grpc-status").or_else(|| answer.head.headers.get_name(b"grpc-status"));
    match status {
        Some(b"0") => {}
        Some(status) => {
            let known = match status {
                b"5" => " (unknown service)",
                b"12" => " (no health service)",
                b"14" => " (unavailable)",
                _ => "",
            };
            return Err(format!("gRPC status {}{known}", String::from_utf8_lossy(status)));
        }
        None => return Err("a response without a gRPC status".to_owned()),
    }
    match serving_status(&answer.body) {
        Some(1) => Ok(()),
        Some(0) => Err("the service says UNKNOWN".to_owned()),
        Some(2) => Err("the service says NOT_SERVING".to_owned()),
        Some(3) => Err("the service says SERVICE_UNKNOWN".to_owned()),
        Some(other) => Err(format!("the service says {other}")),
        None => Err("the response is no HealthCheckResponse".to_owned()),
    }
}

/// Field 1 of a `HealthCheckResponse`, the status. It is 0 if the message leaves it out.
fn serving_status(body: &[u8]) -> Option<u8> {
    let (frame, message) = body.split_at_checked(5)?;
    let [compressed, length @ ..] = frame else { return None };
    let length = u32::from_be_bytes(length.try_into().ok()?);
    let message = message.get(..usize::try_from(length).ok()?)?;
    match (compressed, message) {
        (0, []) => Some(0),
        (0, [0x08, status, ..]) if *status < 128 => Some(*status),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_health_service_are_those_of_its_definition() {
        assert_eq!(health_request("").unwrap(), [0, 0, 0, 0, 0]);
        assert_eq!(health_request("a.B").unwrap(), b"\0\0\0\0\x05\x0a\x03a.B");
        assert_eq!(health_request(&"x".repeat(128)), None);
        assert_eq!(serving_status(b"\0\0\0\0\x02\x08\x01"), Some(1));
        assert_eq!(serving_status(b"\0\0\0\0\0"), Some(0));
        for wrong in [
            &b""[..],
            b"\0\0\0\0",
            b"\0\0\0\0\x02\x08",
            b"\x01\0\0\0\x02\x08\x01",
            b"\0\0\0\0\x01\x08",
            b"\0\xff\xff\xff\xff\x08\x01",
        ] {
            assert_eq!(serving_status(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_text_is_found_wherever_it_stands() {
        assert!(contains(b"is ok now", b"ok") && contains(b"ok", b"ok") && contains(b"", b""));
        assert!(!contains(b"o k", b"ok") && !contains(b"", b"ok"));
    }
}

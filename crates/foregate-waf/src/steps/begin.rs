//! Starts a transaction.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use foregate_module::settings::{Context, Node, Problem};
use foregate_module::{
    Authority, ClientAddress, Doubt, DryRun, Emit, Filter, Never, Now, Path, Query, Random, Received,
    ReceivedRequest, Step, Time, View, phase,
};

use super::engines::Engines;
use super::settings::{WafSettings, excluding};
use super::values::{HeldTransaction, TransactionValue};
use crate::engine::{Engine, Options, Transaction};
use crate::model::EngineMode;

/// The address that is used for a client on a Unix socket, which has none.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The step that starts a transaction with the request's head. The step keeps track of the compiled rules in
/// use, so that a reload compiles only changed rules.
#[derive(Debug, Default)]
pub struct Begin {
    engines: Engines,
}

impl Step for Begin {
    type At = phase::RequestSecurity;
    type Settings = WafSettings;
    type In<'r> = (
        ReceivedRequest<'r>,
        ClientAddress,
        Authority<'r>,
        Path<'r>,
        Query<'r>,
        Time,
        Random,
        View<'r>,
        DryRun,
    );
    type Out = (Emit<TransactionValue>,);
    type Stop = Never;
    const NAME: &'static str = "waf-begin";
    const ABOUT: &'static str = "Shows the firewall the request's head as it was sent.";
    const FILTERS: &'static [Filter] = &[];

    fn decode(&self, nodes: &[Node], context: &mut dyn Context) -> Result<WafSettings, Problem> {
        WafSettings::read(nodes, &self.engines, context)
    }

    fn only_watches(settings: &WafSettings) -> bool {
        settings.only_detects()
    }

    fn run(&self, settings: &WafSettings, input: Self::In<'_>) -> ControlFlow<Never, Self::Out> {
        let (
            ReceivedRequest(received),
            ClientAddress(client),
            Authority(authority),
            Path(path),
            Query(query),
            Time(now),
            Random(random),
            view,
            DryRun(dry_run),
        ) = input;
        if !settings.is_sampled(random) {
            return ControlFlow::Continue((Emit(None),));
        }
        let with = (settings.engine(), settings.mode);
        let mut held = begin(with, &received, client, authority, now, random, dry_run);
        if let Some(transaction) = &mut held.transaction {
            transaction.normal_target(path, query);
            exclude(transaction, settings, &view);
        }
        ControlFlow::Continue((Emit(Some(Box::new(held))),))
    }
}

/// Starts a transaction and adds the head of a request.
pub(super) fn begin(
    (engine, mode): (&Arc<Engine>, EngineMode),
    received: &Received<'_>,
    client: Option<IpAddr>,
    authority: &str,
    now: Now,
    random: u64,
    dry_run: bool,
) -> HeldTransaction {
    let id: Arc<str> = format!("{random:016x}").into();
    let started = Duration::from_millis(now.unix_ms);
    let options = Options { unique_id: Arc::clone(&id), started, mode: Some(mode), dry_run };
    let mut transaction = Transaction::new(engine, options);
    let peer = received.client.unwrap_or(NOBODY);
    let client = client.map_or(peer, |client| SocketAddr::new(client, peer.port()));
    transaction.connection(client, received.server.unwrap_or(NOBODY));
    let mut head = received.method.len() + received.target.len();
    match received.refusal {
        Some(refusal) if !refusal.head.is_empty() => transaction.unreadable(first_line(refusal.head)),
        _ => transaction.request_line(received.method, received.target, received.protocol),
    }
    let says_host = says_host(received) && !authority.is_empty();
    let mut has_host = false;
    for (name, value) in received.fields.iter() {
        let is_host = name.eq_ignore_ascii_case(b"host");
        has_host |= is_host;
        head += name.len() + value.len();
        transaction.request_field(name, if is_host && says_host { authority.as_bytes() } else { value });
    }
    // Rules expect a `Host` field, but in HTTP/2 the host is not in a header field.
    if !has_host && !authority.is_empty() && (says_host || received.protocol.starts_with(b"HTTP/2")) {
        transaction.request_field(b"host", authority.as_bytes());
    }
    transaction.normal_host(authority.as_bytes());
    let values = values_of_head(received);
    HeldTransaction {
        transaction: Some(transaction),
        report: None,
        id,
        began: now.steady_ms,
        head,
        values,
        is_cut: false,
        answered: false,
        holds: false,
        coding: None,
        limit: 0,
        counted: 0,
    }
}

/// Returns true if the target itself contains the host (RFC 9112 section 3.2.2). The field `Host` is then
/// ignored.
fn says_host(received: &Received<'_>) -> bool {
    let is_path = received.target.starts_with(b"/") || received.target == b"*";
    received.refusal.is_none() && received.protocol.starts_with(b"HTTP/1") && !is_path
}

/// Estimates the number of values in a head by counting the separators of arguments, fields and cookies.
fn values_of_head(received: &Received<'_>) -> usize {
    let arguments = memchr::memchr2_iter(b'?', b'&', received.target).count();
    let is_cookie = |name: &[u8]| name.eq_ignore_ascii_case(b"cookie");
    let fields = received.fields.iter().map(|(name, value)| match is_cookie(name) {
        true => 2 + memchr::memchr_iter(b';', value).count(),
        false => 1,
    });
    arguments + fields.sum::<usize>()
}

/// Excludes the rules that do not run for this request. (Rules that never run have been removed already.) If
/// a condition is in doubt, because an origin may read the path differently, the rule runs. The request then
/// cannot evade the rule, and it is not refused because of the doubt. Returns the numbers of the `exclude`
/// keys with a condition that holds.
pub(super) fn exclude(transaction: &mut Transaction, settings: &WafSettings, view: &View<'_>) -> Vec<usize> {
    let view = view.in_doubt(Doubt::Denies);
    let mut holding = Vec::new();
    for (number, _) in settings.excludes.iter().enumerate().filter(|(_, exclude)| exclude.holds_for(&view)) {
        transaction.environment(excluding(number).as_bytes(), b"1");
        holding.push(number);
    }
    holding
}

/// The first line, as received, of a head that cannot be parsed.
fn first_line(head: &[u8]) -> &[u8] {
    let start = head.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let line = head.get(start..).unwrap_or_default().split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line)
}

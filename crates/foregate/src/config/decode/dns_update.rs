//! `acme { dns-update }`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use foregate_config::value::{self, Value, Wrong};
use foregate_config::{Decoder, Item, Problem};
use foregate_proxy::settings::automatic::{DnsUpdate, KeyAlgorithm, TransactionKey};
use foregate_rules::nearest;

use crate::config::schema::Key;

/// The default `wait` of `dns-hook` and `dns-update`.
pub(super) const DNS_WAIT: Duration = Duration::from_secs(10);
/// The upper limit of this `wait`.
pub(super) const HOUR: Duration = Duration::from_secs(3600);
/// The port of nameservers.
const PORT: u16 = 53;
const ALGORITHMS: [KeyAlgorithm; 3] = [KeyAlgorithm::Sha256, KeyAlgorithm::Sha384, KeyAlgorithm::Sha512];

/// Reads a zone with dynamic updates; `None` if a problem was found.
pub(super) fn decode(decoder: &mut Decoder<'_>, item: Item<'_>, table: &'static Key) -> Option<DnsUpdate> {
    let server = decoder.read(item, 0, server);
    let zone = decoder.prop(item, "zone", name);
    let key = decoder.prop(item, "key", name);
    let secret = decoder.prop_secret(item, table, "secret", |value| {
        let decoded = STANDARD.decode(value::string(value)?);
        let wrong = || Wrong::new("expected the secret in base64, as `tsig-keygen` and `keymgr -t` print it");
        decoded.ok().filter(|secret| !secret.is_empty()).ok_or_else(wrong)
    });
    let chosen = decoder.prop(item, "algorithm", algorithm);
    let wait = decoder.prop(item, "wait", |value| value::duration(value, Duration::ZERO..=HOUR));
    let stands = |name: &str| item.node.entries().any(|entry| entry.key() == Some(name));
    let (has_key, has_secret) = (stands("key"), stands("secret"));
    if has_key != has_secret || (stands("algorithm") && !has_key) {
        let problem = Problem::new(Some(item.place()), "`key` and `secret` belong together");
        decoder.push(problem.help("write both, as they stand in the nameserver's configuration"));
        return None;
    }
    let key = match (key, secret) {
        (Some(name), Some(secret)) => {
            Some(TransactionKey { name, algorithm: chosen.unwrap_or(KeyAlgorithm::Sha256), secret })
        }
        _ if has_key => return None,
        _ => None,
    };
    Some(DnsUpdate { server: server?, zone: zone?, key, wait: wait.unwrap_or(DNS_WAIT) })
}

/// Reads a server: `HOST`, `HOST:PORT`, or an address.
fn server(value: &Value<'_>) -> Result<(Box<str>, u16), Wrong> {
    let text = value::string(value)?;
    if let Some(address) = text.parse::<SocketAddr>().ok().filter(|address| address.port() > 0) {
        return Ok((address.ip().to_string().into(), address.port()));
    }
    if let Ok(address) = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return Ok((address.to_string().into(), PORT));
    }
    let wrong = || {
        Wrong::new("expected the address of a nameserver")
            .help("write \"ns1.example.com\" or \"192.0.2.53:53\"")
    };
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?),
        None => (text, PORT),
    };
    is_name(host).then(|| (host.into(), port)).ok_or_else(wrong)
}

/// The name of a zone or of a key, in lower case and without a dot at its end.
fn name(value: &Value<'_>) -> Result<Box<str>, Wrong> {
    let text = value::string(value)?;
    let text = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    match is_name(&text) {
        true => Ok(text.into()),
        false => Err(Wrong::new("expected a domain name")
            .help("write it as in the nameserver's configuration, such as \"example.com\"")),
    }
}

fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    // A name on the wire has at most 255 bytes. 230 leave room for `_acme-challenge.` and the lengths of labels.
    text.len() <= 230 && text.strip_suffix('.').unwrap_or(text).split('.').all(is_label)
}

fn algorithm(value: &Value<'_>) -> Result<KeyAlgorithm, Wrong> {
    let text = value::string(value)?;
    let names = ALGORITHMS.iter().map(|algorithm| algorithm.name());
    let found = ALGORITHMS.iter().find(|algorithm| algorithm.name() == text);
    found.copied().ok_or_else(|| {
        let wrong = Wrong::new("expected hmac-sha256, hmac-sha384 or hmac-sha512");
        match nearest(text, names) {
            Some(near) => wrong.help(format!("did you mean \"{near}\"?")),
            None => wrong.help("make a key by `tsig-keygen -a hmac-sha256 NAME`"),
        }
    })
}

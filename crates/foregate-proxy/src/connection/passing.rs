//! TLS connections that are passed to the proxy that Foregate replaces, without terminating TLS here: only the
//! ClientHello is read, and all bytes are forwarded unchanged.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use foregate_wire::BodyLength;
use foregate_wire::client_hello::{self, ClientHello};
use foregate_wire::proxy_protocol::{TLV_ALPN, TLV_AUTHORITY, write_tlv};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::exchange::client::Peer;
use crate::limits::clients::RegisteredConnection;
use crate::link::{H1Link, Link};
use crate::proxy::{Config, Proxy};
use crate::relay::{Relay, RelayTimes};
use crate::time::clock;
use crate::time::timer::Timer;
use crate::transport::stream::{Socket, Stream};
use crate::upstream::{OpeningTerms, Upstream};

/// The metric label of connections that are passed because of the server name in their ClientHello.
const SERVER_NAME: &str = "server_name";

/// Reads the ClientHello, at most `most` bytes, and puts its bytes back. `None`: the connection begins with something
/// else, or with a longer ClientHello. The handshake refuses both.
///
/// # Errors
///
/// The connection has failed, or ended.
pub(super) async fn peek(socket: &mut Socket, most: usize) -> io::Result<Option<ClientHello>> {
    let mut bytes = Vec::with_capacity(2048);
    let hello = loop {
        if socket.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match client_hello::parse(&bytes) {
            Ok(Some(hello)) => break Some(hello),
            Ok(None) if bytes.len() < most => {}
            Ok(None) | Err(_) => break None,
        }
    };
    socket.unread(bytes);
    Ok(hello)
}

/// The upstream to which the connection passes, if to any: the one whose names fit most closely.
pub(super) fn upstream_of<'c>(config: &'c Config, hello: &ClientHello) -> Option<&'c Arc<Upstream>> {
    let is_known = |name: &str| config.settings.sites.find(name.as_bytes()).is_some();
    let name = hello.server_name.as_deref();
    let fits = config.settings.passed.iter().filter_map(|passed| Some((passed.fit(name, is_known)?, passed)));
    let (_, found) = fits.max_by_key(|(fit, _)| *fit)?;
    config.upstreams.get(found.upstream)
}

/// Moves all bytes of a connection to an upstream and back, until both sides have ended.
pub(super) async fn pass(
    (config, peer): (&Config, &Peer),
    upstream: &Arc<Upstream>,
    hello: &ClientHello,
    socket: Socket,
    registered: &RegisteredConnection,
) {
    let mut tlvs = Vec::new();
    if let Some(name) = &hello.server_name {
        write_tlv(&mut tlvs, TLV_AUTHORITY, name.as_bytes());
    }
    if let Some(protocol) = &hello.protocol {
        write_tlv(&mut tlvs, TLV_ALPN, protocol);
    }
    let terms = OpeningTerms {
        fresh: true,
        addresses: &peer.addresses,
        behalf: peer.addresses.client.map(|client| client.ip()),
        client: registered.holdings(),
        own: None,
        http1: true,
        authenticates: false,
        handed_over: Some(&tlvs),
    };
    let mut origin = match upstream.open_for_bytes(&terms).await {
        Ok(origin) => origin,
        Err(error) => {
            tracing::debug!(client = ?peer.addresses.client, %error, "a connection could not pass to another proxy");
            return;
        }
    };
    let times = RelayTimes {
        idle: upstream.settings.tunnel_idle,
        near_takes: config.settings.timeouts.write_stall,
        far_takes: upstream.settings.idle_timeout,
    };
    let mut near = Link::H1(Box::new(H1Link::new(Stream::Plain(socket))));
    for link in [&mut near, &mut origin.link] {
        if let Link::H1(link) = link {
            link.begin_receive(BodyLength::UntilClose, &config.head_limits);
            link.begin_send(BodyLength::UntilClose);
        }
    }
    let (mut relay, mut timer) = (Relay::new(times, clock::now()), Timer::new(times.idle));
    let relayed = poll_fn(|cx| relay.poll(cx, &mut near, &mut origin.link, &mut timer)).await;
    if relayed.is_err() {
        near.abort();
        origin.link.abort();
    }
}

/// Passes a connection to another proxy if its server name says so. Otherwise returns the socket with all its bytes.
/// `None`: the connection was passed, or has failed, and is done.
///
/// The future is boxed, so that connections that are not passed do not reserve room for it.
pub(super) fn pass_or_keep<'a>(
    (proxy, config, peer): (&'a Proxy, &'a Config, &'a Peer),
    mut socket: Socket,
    registered: &'a RegisteredConnection,
) -> Pin<Box<dyn Future<Output = Option<Socket>> + Send + 'a>> {
    Box::pin(async move {
        let (limit, most) = (config.settings.timeouts.tls_handshake, config.settings.limits.client_hello);
        let hello = match timeout(limit, peek(&mut socket, most)).await {
            Ok(Ok(Some(hello))) => hello,
            Ok(Ok(None)) => return Some(socket),
            Ok(Err(_)) | Err(_) => return None,
        };
        let Some(upstream) = upstream_of(config, &hello) else { return Some(socket) };
        proxy.metrics.fallbacks.count("", "", SERVER_NAME);
        pass((config, peer), upstream, &hello, socket, registered).await;
        None
    })
}

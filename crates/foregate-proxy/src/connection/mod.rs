//! Clients' connections: from the accepted socket to the protocol that it speaks.

mod h1;
mod h2;
mod handshake;
mod passing;
mod proxy_header;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use self::proxy_header::HeaderError;
use crate::counters::metrics::Metrics;
use crate::exchange::client::Peer;
use crate::limits::clients::RegisteredConnection;
use crate::link::H1Link;
use crate::proxy::{ConnectionTerms, Proxy};
use crate::settings::{Listen, any_contains};
use crate::time::clock;
use crate::time::timer::Timer;
use crate::tls::{Alpn, HandshakeError};
use crate::transport::stream::{Socket, Stream};

/// The preface of an HTTP/2 client (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long a connection that ends before its first request still waits for that request: a client
/// connects in order to send one.
const GRACE: Duration = Duration::from_secs(1);

/// A connection that has just been accepted.
#[derive(Debug)]
pub struct AcceptedConnection {
    /// Its socket.
    pub socket: Socket,
    /// The address of the peer; `None` for a Unix socket.
    pub remote: Option<SocketAddr>,
    /// Our own address.
    pub local: Option<SocketAddr>,
    /// Its place among the connections.
    pub registered: RegisteredConnection,
    /// Counts the connection as active.
    pub active: ActiveConnection,
}

/// Counts a connection as active until it is dropped, however its task ends.
#[derive(Debug)]
pub struct ActiveConnection(Arc<Metrics>);

impl ActiveConnection {
    /// Counts one more.
    pub fn new(metrics: &Arc<Metrics>) -> Self {
        metrics.connections_active.add(1);
        Self(Arc::clone(metrics))
    }
}

impl Drop for ActiveConnection {
    fn drop(&mut self) {
        self.0.connections_active.add(-1);
    }
}

/// Serves a connection until it ends.
///
/// No `async fn`: its future would reserve room for the arguments twice.
pub fn serve(
    proxy: Arc<Proxy>,
    listen: Arc<Listen>,
    accepted: AcceptedConnection,
) -> impl Future<Output = ()> {
    let AcceptedConnection { mut socket, remote, local, registered, active } = accepted;
    let (mut client, mut local) = (remote, local);
    async move {
        let _active = active;
        let config = proxy.config_with(&listen);
        let limit = config.settings.timeouts.tls_handshake;
        let proxied = !listen.proxy_protocol_from.is_empty()
            && remote.is_none_or(|remote| any_contains(&listen.proxy_protocol_from, remote.ip()));
        if proxied {
            let read = timeout(limit, Box::pin(proxy_header::read(&mut socket))).await;
            match read.unwrap_or(Err(HeaderError::Timeout)) {
                Ok(Some((source, destination))) => {
                    let most = proxy.connections_per_client.load(Ordering::Relaxed);
                    if !registered.attribute(source.ip(), most) {
                        proxy.metrics.connections_refused.inc();
                        return;
                    }
                    client = Some(source);
                    local = Some(destination);
                }
                Ok(None) => {}
                Err(error) => {
                    proxy.metrics.proxy_header_refused(error.kind());
                    tracing::debug!(peer = ?client, %error, "a PROXY protocol header was refused");
                    return;
                }
            }
        }
        let mut peer = Box::new(Peer::new(client, local));
        peer.holdings = registered.holdings().cloned();
        peer.listen = Some(Arc::clone(&listen));
        if listen.tls.is_some() && !config.settings.passed.is_empty() {
            match passing::pass_or_keep((&proxy, &config, &*peer), socket, &registered).await {
                Some(kept) => socket = kept,
                None => return,
            }
        }
        let (stream, alpn) = if listen.tls.is_some() {
            let Some(acceptor) = config.acceptor(&listen.address) else { return };
            let local = local.map(|local| local.ip());
            let shaken = timeout(limit, Box::pin(handshake::accept(acceptor, socket, local))).await;
            match shaken.unwrap_or(Err(HandshakeError::Timeout)) {
                Ok(accepted) => {
                    proxy.metrics.handshakes_ok.inc();
                    if accepted.info.resumed {
                        proxy.metrics.handshakes_resumed.inc();
                    }
                    peer.tls = Some(accepted.info);
                    (Stream::TlsServer(Box::new(accepted.stream)), Some(accepted.alpn))
                }
                Err(error @ HandshakeError::Challenge(true)) => {
                    tracing::debug!(client = ?client, %error, "TLS handshake");
                    return;
                }
                Err(error) => {
                    proxy.metrics.handshake_failed(error.kind());
                    tracing::debug!(client = ?client, %error, "TLS handshake with a client failed");
                    return;
                }
            }
        } else {
            (Stream::Plain(socket), None)
        };
        let terms = Arc::clone(&config.terms);
        // Each request loads the configuration that is current when the request arrives.
        drop(config);
        let born = clock::now();
        let connection = Connection { proxy, terms, peer, registered, born, half_close: listen.half_close };
        let mut link = Box::new(H1Link::new(stream));
        let mut began = None;
        let is_h2 = match alpn {
            Some(alpn) => alpn == Alpn::Http2,
            None => {
                listen.http2
                    && match connection.sniff(&mut link, &mut began).await {
                        Some(is_h2) => is_h2,
                        None => return,
                    }
            }
        };
        // Idle HTTP/1 connections are many: state that they do not need is kept out of the task's
        // future.
        if is_h2 {
            let (stream, ahead) = link.into_parts();
            Box::pin(h2::serve(connection, stream.read_again(ahead))).await;
        } else {
            h1::serve(connection, link, began).await;
        }
    }
}

/// A connection with a known protocol.
struct Connection {
    proxy: Arc<Proxy>,
    terms: Arc<ConnectionTerms>,
    peer: Box<Peer>,
    registered: RegisteredConnection,
    born: Instant,
    half_close: bool,
}

impl Connection {
    /// Distinguishes HTTP/2 with prior knowledge from HTTP/1 by the first bytes; `None` if no bytes arrive. If the first
    /// byte arrived before the decision, `began` is its time: the time limit of a head starts there. If that limit
    /// passes without a decision, the connection counts as HTTP/1, and its head is too late.
    async fn sniff(&self, link: &mut H1Link, began: &mut Option<Instant>) -> Option<bool> {
        let mut timer = Timer::new(self.terms.timeouts.keep_alive);
        let mut until = clock::now() + self.terms.timeouts.keep_alive;
        let mut told = false;
        poll_fn(move |cx| {
            loop {
                let ahead = link.ahead();
                let shared = ahead.len().min(PREFACE.len());
                if shared == PREFACE.len() || ahead[..shared] != PREFACE[..shared] {
                    return std::task::Poll::Ready(Some(ahead.starts_with(PREFACE)));
                }
                let idle = ahead.is_empty();
                let head = (!idle).then(|| *began.get_or_insert_with(clock::now) + self.terms.timeouts.head);
                match link.poll_ahead(cx) {
                    std::task::Poll::Ready(Ok(true)) => {}
                    std::task::Poll::Ready(Ok(false) | Err(_)) => return std::task::Poll::Ready(None),
                    std::task::Poll::Pending => {
                        if !told && idle && self.registered.poll_told(cx) && !self.registered.has_time() {
                            told = true;
                            until = until.min(clock::now() + GRACE);
                        }
                        if timer.poll(cx, head.unwrap_or(until)).is_pending() || idle && link.has_unread() {
                            return std::task::Poll::Pending;
                        }
                        return std::task::Poll::Ready((!idle).then_some(false));
                    }
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, B, C, F: Future>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    /// The future is most of the cost of an idle connection.
    #[test]
    fn a_connection_holds_little() {
        let size = size(serve);
        assert!(size <= 704, "the future of a connection has {size} bytes, its link {}", size_of::<H1Link>());
    }
}

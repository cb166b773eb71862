//! Makes connections to origin servers.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foregate_wire::{HeadLimits, proxy_protocol};
use h2::client::SendRequest;
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::guarded::{GuardedStream, Signs};
use super::judging::ServerJudge;
use super::opening::OpeningTerms;
use super::pools::Pools;
use super::server::Server;
use super::shared::{Lease, RESETS_PER_CONNECTION, STREAMS_PER_CONNECTION, SharedConnection};
use crate::address::ServerAddress;
use crate::counters::metrics::{Metrics, UpstreamCounters};
use crate::error::Error;
use crate::limits::descriptors::{self, DescriptorPlace};
use crate::link::H1Link;
use crate::link::unread::Unread;
use crate::link::unsent::{Piece, Unsent};
use crate::settings::{ProxyProtocolVersion, UpstreamProtocol, UpstreamSettings};
use crate::time::clock::Clock;
use crate::time::poll_length::WatchedTask;
use crate::tls::{Alpn, ConnectError, Connector};
use crate::transport::socket;
use crate::transport::stream::{Socket, Stream};

/// The flow-control window for an origin on each stream, in bytes.
const STREAM_WINDOW: u32 = 64 * 1024;
/// The flow-control window of a whole connection. It is the sum of the windows of all streams, so that
/// clients that do not read do not hold back others.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS_PER_CONNECTION;
/// The buffer of each stream for output that the origin does not read yet, in bytes.
const SEND_BUFFER: usize = 32 * 1024;
/// The largest frame that origins may send, in bytes: the default of HTTP/2.
const FRAME: usize = 16 * 1024;
/// The time limit for closing an unused connection.
const FAREWELL: Duration = Duration::from_secs(1);
/// The time for which streams that we have reset are remembered, at most [`REMEMBERED_MOST`] streams. The
/// origin may still send frames for such a stream. If the stream is forgotten, each of these frames causes
/// another reset.
const REMEMBERED: Duration = Duration::from_secs(30);
const REMEMBERED_MOST: u32 = RESETS_PER_CONNECTION + STREAMS_PER_CONNECTION;

/// The addresses of a client's connection; `None` on a Unix socket.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// The address of the client.
    pub client: Option<SocketAddr>,
    /// The address that the client connected to.
    pub local: Option<SocketAddr>,
}

impl Addresses {
    /// The addresses for connections that are not made for a client.
    pub const NONE: &Self = &Self { client: None, local: None };
}

/// A connection that has just been made.
pub enum NewConnection {
    /// A connection for one request at a time.
    H1(Box<H1Link>),
    /// An HTTP/2 connection, which several requests share, and a stream on it.
    H2(Lease),
}

impl NewConnection {
    /// Returns true if it is an HTTP/1 connection, for one request at a time.
    pub fn is_http1(&self) -> bool {
        matches!(self, Self::H1(_))
    }
}

/// Makes connections to the servers of an upstream.
#[derive(Debug)]
pub struct Dialer {
    pub(super) settings: Arc<UpstreamSettings>,
    pub(super) clock: Clock,
    pub(super) counters: Arc<UpstreamCounters>,
    pub(super) metrics: Arc<Metrics>,
    /// Hears of connections that could not be made.
    pub(super) judge: Arc<ServerJudge>,
    pub(super) pools: Arc<Pools>,
    pub(super) connector: Option<Connector>,
    /// Limits for the heads of responses.
    pub head_limits: HeadLimits,
}

impl Dialer {
    /// Connects to a server before `deadline`.
    pub(super) async fn connect(
        &self,
        server: &Server,
        terms: OpeningTerms<'_>,
        deadline: Instant,
    ) -> Result<NewConnection, Error> {
        let began = self.clock.now();
        let Some(place) = self.place().await else {
            server.record.health.inconclusive(began, self.clock.now());
            tracing::debug!(server = %server.label, "no descriptor for a connection");
            return Err(Error::NoDescriptors);
        };
        let mut suspects = Vec::new();
        let establish = self.establish(server, terms, place, &mut suspects);
        let connected = match timeout_at(deadline.into(), establish).await {
            Ok(connected) => connected,
            Err(_) => Err(Error::ConnectTimeout),
        };
        match &connected {
            // A connection alone does not count as success for the server's health; a response does.
            Ok(_) => self.counters.opened.inc(),
            Err(Error::NoDescriptors) => server.record.health.inconclusive(began, self.clock.now()),
            Err(error) => {
                tracing::debug!(server = %server.label, %error, "connecting failed");
                let now = self.clock.now();
                self.judge.note_failure(server, now, error);
                self.counters.failed.inc();
                for address in suspects {
                    server.remembered.turns.failed(address, now, false);
                }
            }
        }
        connected
    }

    /// A place for a descriptor. If there is none, the connections of any upstream that have been idle for
    /// longest are closed. HTTP/2 connections close with a delay, so a limited number of connections is
    /// closed for one place.
    async fn place(&self) -> Option<DescriptorPlace> {
        const EVICTED_MOST: usize = 4;
        const FAREWELL: Duration = Duration::from_millis(2);
        if let Some(place) = DescriptorPlace::take_for_origin() {
            return Some(place);
        }
        for _ in 0..EVICTED_MOST {
            if !self.pools.evict() {
                break;
            }
            if let Some(place) = DescriptorPlace::take_for_origin() {
                return Some(place);
            }
        }
        tokio::time::sleep(FAREWELL).await;
        DescriptorPlace::take_for_origin()
    }

    /// Opens a connection to a server, with its PROXY header and handshakes. `suspects` gets the addresses
    /// that may be the cause of a delay: first those being connected to, then the one that accepted.
    pub(super) async fn establish(
        &self,
        server: &Server,
        terms: OpeningTerms<'_>,
        place: DescriptorPlace,
        suspects: &mut Vec<IpAddr>,
    ) -> Result<NewConnection, Error> {
        let mut socket = self.socket(server, place, suspects).await?;
        if let Some(version) = self.settings.send_proxy {
            let mut header = Vec::new();
            match (version, terms.handed_over, terms.addresses.client.zip(terms.addresses.local)) {
                (ProxyProtocolVersion::V2, Some(facts), Some((client, local))) => {
                    proxy_protocol::write_v2_with(&mut header, client, local, facts);
                }
                _ => write_proxy_header(&mut header, version, terms.addresses),
            }
            socket.write_all(&header).await.map_err(|error| Error::Connect(error.kind()))?;
        }
        let (stream, alpn) = match &self.connector {
            None => (Stream::Plain(socket), None),
            Some(connector) => {
                let host = server.address.host().unwrap_or_else(|| "localhost".to_owned());
                let connected = connector.connect(&host, terms.http1, socket).await;
                let (stream, alpn) = connected.map_err(|error| {
                    server.remembered.tls_failed(&error);
                    if server.remembered.handshake.take(self.clock.now()) {
                        tracing::warn!(server = %server.label, %error, "TLS handshake with an origin failed");
                    }
                    match error {
                        ConnectError::Io(error) if error.kind() != io::ErrorKind::InvalidData => {
                            Error::Connect(error.kind())
                        }
                        _ => Error::OriginTls,
                    }
                })?;
                (Stream::TlsClient(Box::new(stream)), Some(alpn))
            }
        };
        stream.close_in_order();
        let http2 = match (self.settings.protocol, alpn) {
            (UpstreamProtocol::Http1, _) => false,
            (UpstreamProtocol::Http2, _) => true,
            (UpstreamProtocol::Auto, alpn) => alpn == Some(Alpn::Http2),
        };
        if http2 {
            self.start_h2(server, stream, terms.authenticates).await
        } else {
            Ok(NewConnection::H1(Box::new(H1Link::new(stream))))
        }
    }

    pub(super) async fn socket(
        &self,
        server: &Server,
        place: DescriptorPlace,
        suspects: &mut Vec<IpAddr>,
    ) -> Result<Socket, Error> {
        let failed = |error: io::Error| match descriptors::are_missing(&error) {
            true => Error::NoDescriptors,
            false => Error::Connect(error.kind()),
        };
        match &server.address {
            ServerAddress::Unix(path) => {
                Ok(Socket::unix(UnixStream::connect(path).await.map_err(failed)?, place))
            }
            ServerAddress::Ip(address) => Ok(Socket::tcp(tcp(*address).await.map_err(failed)?, place)),
            // Cannot happen: a service's entry is replaced by the servers that it resolves to.
            ServerAddress::Service(_) => Err(Error::Internal),
            ServerAddress::Name { port, .. } => {
                let resolved = server.resolved.as_ref().ok_or(Error::Internal)?;
                let found = match resolved.addresses() {
                    Some(found) => Some(found),
                    None => resolved.wait(self.settings.connect_timeout).await,
                };
                let found = found.filter(|found| !found.is_empty()).ok_or(Error::Unresolved)?;
                let (stream, place) =
                    self.first_of(server, &found, *port, place, suspects).await.map_err(failed)?;
                Ok(Socket::tcp(stream, place))
            }
        }
    }

    async fn start_h2(
        &self,
        server: &Server,
        stream: Stream,
        authenticates: bool,
    ) -> Result<NewConnection, Error> {
        let failed = |error: h2::Error| {
            Error::Connect(error.get_io().map_or(io::ErrorKind::ConnectionAborted, io::Error::kind))
        };
        let now = self.clock.now();
        let address = stream.socket().peer_address();
        let signs = Arc::new(Signs::new(now));
        let (unread, unsent) = (Arc::new(Unread::default()), Arc::new(Unsent::default()));
        let told = (Arc::clone(&signs), Arc::clone(&unread), Arc::clone(&unsent));
        let stream = GuardedStream::new(stream, told, self.head_limits, FRAME);
        // One more than the limit, because `h2` drops fields from a list that reaches its limit.
        let list = u32::try_from(self.head_limits.bytes).unwrap_or(u32::MAX).saturating_add(1);
        let streams = server.pool.streams_at_first();
        let (sender, mut connection) = h2::client::Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(list)
            .initial_max_send_streams(streams.0 as usize)
            .max_send_buffer_size(SEND_BUFFER)
            .max_concurrent_reset_streams(REMEMBERED_MOST as usize)
            .reset_stream_duration(REMEMBERED)
            // Frames that wait for slow clients must not end the connection. The flow-control windows
            // bound them anyway.
            .data_frame_budget(usize::MAX)
            .enable_push(false)
            .handshake::<_, Piece>(stream)
            .await
            .map_err(failed)?;
        let mut sender: SendRequest<Piece> = sender;
        let (used, unused) = oneshot::channel();
        let told = (Arc::clone(&signs), unread, unsent);
        let pings = connection.ping_pong();
        let shared =
            Arc::new(SharedConnection::new(sender.clone(), pings, now, address, streams, told, used));
        let lease = SharedConnection::lease(&shared).ok_or(Error::NoServer)?;
        let label = Arc::clone(&server.label);
        let (remembered, clock) = (Arc::clone(&server.remembered), self.clock);
        let open = server.record.open();
        let driven = async move {
            let _open = open;
            drive(connection, &signs, unused).await;
            if signs.is_flooded() && remembered.flood.take(clock.now()) {
                tracing::warn!(server = %label, "an origin has flooded an HTTP/2 connection, which is ended");
            }
        };
        tokio::spawn(WatchedTask::new(driven, Arc::clone(&self.metrics)));
        // A connection that begins with a client's PROXY header, or that carries a client's
        // credentials, serves that client alone.
        if self.settings.send_proxy.is_none() && !authenticates {
            server.pool.share(shared);
        }
        std::future::poll_fn(|cx| sender.poll_ready(cx)).await.map_err(|error| {
            let refusal = lease.signs().refusal();
            refusal.map_or_else(|| failed(error), |refusal| server.tell_of_refusal(refusal, self.clock.now()))
        })?;
        Ok(NewConnection::H2(lease))
    }
}

/// Runs an HTTP/2 connection until it ends, or until it is no longer used. An origin that does not read
/// cannot keep an unused connection open.
async fn drive(
    mut connection: h2::client::Connection<GuardedStream<Stream>, Piece>,
    signs: &Signs,
    unused: oneshot::Receiver<Infallible>,
) {
    let ended = tokio::select! {
        biased;
        ended = &mut connection => Some(ended),
        _ = unused => tokio::time::timeout(FAREWELL, connection).await.ok(),
    };
    signs.close();
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%error, "HTTP/2 connection to an origin ended"),
        None => tracing::debug!("HTTP/2 connection to an origin that takes nothing was dropped"),
    }
}

/// Opens a TCP connection. If it is closed before [`Stream::close_in_order`] is called, such as after a
/// failed handshake, it is reset.
pub(super) async fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // If the future is dropped while it connects, the system may have completed the connection
    // already. Without a reset, it would keep the port for a minute.
    socket::set_reset(&SockRef::from(&socket), true)?;
    socket::prepare(&SockRef::from(&socket), Some(address))?;
    socket.connect(address).await
}

fn write_proxy_header(out: &mut Vec<u8>, version: ProxyProtocolVersion, addresses: &Addresses) {
    match (version, addresses.client.zip(addresses.local)) {
        (ProxyProtocolVersion::V1, Some((client, local))) => proxy_protocol::write_v1(out, client, local),
        (ProxyProtocolVersion::V1, None) => proxy_protocol::write_v1_unknown(out),
        (ProxyProtocolVersion::V2, Some((client, local))) => proxy_protocol::write_v2(out, client, local),
        (ProxyProtocolVersion::V2, None) => proxy_protocol::write_v2_local(out),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::settings;
    use crate::transport::frames::{flag, kind, written};
    use crate::upstream::Upstream;
    use crate::upstream::idle::Ages;
    use crate::upstream::idle::ConnectionStart;
    use crate::upstream::origin::Origin;
    use crate::upstream::registry::Upstreams;

    const TERMS: OpeningTerms<'_> = OpeningTerms {
        fresh: false,
        addresses: Addresses::NONE,
        behalf: None,
        client: None,
        own: None,
        http1: false,
        authenticates: false,
        handed_over: None,
    };

    /// An upstream with one server, with a name that has these addresses.
    fn upstream(upstreams: &mut Upstreams, addresses: &[IpAddr], port: u16) -> Upstream {
        upstreams.resolver = crate::names::tests::fixed(addresses);
        let address = ServerAddress::Name { host: "origin.test".into(), port };
        let server = settings::ServerSettings::new(address);
        let mut settings = UpstreamSettings::new("app", vec![server]);
        settings.connect_timeout = Duration::from_secs(3);
        upstreams.start(&Arc::new(settings), None, HeadLimits::default(), None)
    }

    fn dialer(upstream: &mut Upstream) -> &mut Dialer {
        &mut Arc::get_mut(&mut upstream.connections).unwrap().dialer
    }

    async fn connect(upstream: &Upstream) -> Box<H1Link> {
        let deadline = Instant::now() + Duration::from_secs(3);
        match upstream.connections.dialer.connect(&upstream.servers[0], TERMS, deadline).await {
            Ok(NewConnection::H1(link)) => link,
            _ => panic!("no connection"),
        }
    }

    #[tokio::test]
    async fn an_address_that_refuses_is_tried_once() {
        let [first, second, third] = [2, 3, 4].map(|last| Ipv4Addr::new(127, 0, 0, last));
        let listener = TcpListener::bind((third, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut upstreams = Upstreams::new(Arc::default(), Clock::default());
        let upstream = upstream(&mut upstreams, &[first, second, third].map(IpAddr::from), port);
        for _ in 0..10 {
            let link = connect(&upstream).await;
            assert_eq!(link.stream().socket().peer_address(), Some(third.into()));
        }
        assert_eq!(
            (upstream.connections.counters.opened.get(), upstream.connections.counters.failed.get()),
            (10, 2)
        );
        assert_eq!(upstream.servers[0].record.health.failures(), 0);
    }

    /// A listener with a full queue, so that the kernel does not answer.
    async fn full(address: Ipv4Addr, port: u16) -> (TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((address, port).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let mut queue = Vec::new();
        let limit = Duration::from_millis(200);
        while let Ok(stream) = tokio::time::timeout(limit, TcpStream::connect((address, port))).await {
            queue.push(stream.unwrap());
        }
        (listener, queue)
    }

    #[tokio::test]
    async fn beside_an_address_that_is_slow_the_next_one_is_tried() {
        let [slow, quick] = [21, 22].map(|last| Ipv4Addr::new(127, 0, 0, last));
        let listener = TcpListener::bind((quick, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let _full = full(slow, port).await;
        let mut upstreams = Upstreams::new(Arc::default(), Clock::default());
        let upstream = upstream(&mut upstreams, &[slow, quick].map(IpAddr::from), port);
        let mut took = Vec::new();
        for _ in 0..4 {
            let start = Instant::now();
            let link = connect(&upstream).await;
            assert_eq!(link.stream().socket().peer_address(), Some(quick.into()));
            took.push(start.elapsed());
        }
        assert!((Duration::from_millis(250)..Duration::from_millis(900)).contains(&took[0]), "{took:?}");
        assert!(took[1..].iter().all(|took| *took < Duration::from_millis(250)), "{took:?}");
        assert_eq!(
            (upstream.connections.counters.opened.get(), upstream.connections.counters.failed.get()),
            (4, 1)
        );
        assert_eq!(upstream.servers[0].record.health.failures(), 0);
    }

    #[tokio::test]
    async fn addresses_without_a_route_are_no_failures() {
        let four = Ipv4Addr::new(127, 0, 0, 23);
        let listener = TcpListener::bind((four, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut upstreams = Upstreams::new(Arc::default(), Clock::default());
        // A link-local address without its link: no socket can reach it.
        let six: IpAddr = "fe80::1".parse().unwrap();
        let upstream = upstream(&mut upstreams, &[six, four.into()], port);
        for _ in 0..4 {
            assert_eq!(connect(&upstream).await.stream().socket().peer_address(), Some(four.into()));
        }
        assert_eq!(
            (upstream.connections.counters.opened.get(), upstream.connections.counters.failed.get()),
            (4, 0)
        );
    }

    #[tokio::test]
    async fn addresses_take_turns_and_one_that_fails_beyond_connecting_is_passed_over() {
        let [first, second] = [7, 8].map(|last| Ipv4Addr::new(127, 0, 0, last));
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut upstreams = Upstreams::new(Arc::default(), Clock::default());
        let mut upstream = upstream(&mut upstreams, &[first, second].map(IpAddr::from), port);
        for address in [first, second, first, second] {
            let link = connect(&upstream).await;
            assert_eq!(link.stream().socket().peer_address(), Some(address.into()));
        }
        // The server accepts the connection, and no handshake.
        let tls = settings::UpstreamTls { verify: false, ..settings::UpstreamTls::default() };
        dialer(&mut upstream).connector = Some(Connector::new(&tls, UpstreamProtocol::Http1).unwrap());
        let deadline = Instant::now() + Duration::from_millis(50);
        let failed = upstream.connections.dialer.connect(&upstream.servers[0], TERMS, deadline).await;
        assert!(matches!(failed, Err(Error::ConnectTimeout)));
        dialer(&mut upstream).connector = None;
        for _ in 0..4 {
            let link = connect(&upstream).await;
            assert_eq!(link.stream().socket().peer_address(), Some(second.into()));
        }
    }

    /// An upstream of one server that accepts connections, with its listener.
    async fn taken(protocol: UpstreamProtocol) -> (Arc<Upstream>, TcpListener) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = ServerAddress::Ip(listener.local_addr().unwrap());
        let mut settings = UpstreamSettings::new("app", vec![settings::ServerSettings::new(address)]);
        settings.protocol = protocol;
        let upstream = Upstreams::new(Arc::default(), Clock::default()).start(
            &Arc::new(settings),
            None,
            HeadLimits::default(),
            None,
        );
        (Arc::new(upstream), listener)
    }

    #[tokio::test]
    async fn a_server_that_is_down_gets_a_trial_after_a_second() {
        let clock = Clock::of_a_test();
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
        let server = settings::ServerSettings::new(ServerAddress::Ip(closed));
        let settings = Arc::new(UpstreamSettings::new("app", vec![server]));
        let upstreams = Upstreams::new(Arc::default(), clock);
        let upstream = Arc::new(upstreams.start(&settings, None, HeadLimits::default(), None));
        let health = &upstream.servers[0].record.health;
        while !health.is_down() {
            assert!(matches!(upstream.open_for_bytes(&TERMS).await, Err(Error::Connect(_))));
        }
        assert_eq!((health.failures(), health.is_up(clock.now())), (3, false));
        clock.advance(Duration::from_secs(1));
        assert!(health.is_up(clock.now()));
        assert!(matches!(upstream.open_for_bytes(&TERMS).await, Err(Error::Connect(_))));
        assert!(!health.is_up(clock.now()), "its trial has failed");
    }

    async fn open(upstream: &Arc<Upstream>) -> Origin {
        let opened = upstream.connections.open(0, &TERMS, Instant::now());
        tokio::time::timeout(Duration::from_secs(2), opened).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn who_speaks_http1_is_not_connected_to_one_at_a_time() {
        let (upstream, _listener) = taken(UpstreamProtocol::Auto).await;
        let pool = &upstream.servers[0].pool;
        let making = pool.queue.make_ahead(1).unwrap();
        let (first, ()) = tokio::join!(open(&upstream), async {
            tokio::task::yield_now().await;
            // Another connection becomes available in the meantime.
            let link = connect(&upstream).await;
            pool.put(link, ConnectionStart::new(Instant::now(), None), Instant::now(), 10);
            drop(making);
        });
        assert!(first.reused);
        assert!(!open(&upstream).await.reused, "the first that is known to speak HTTP/1");
        let _making = pool.queue.make_ahead(1).unwrap();
        assert!(!open(&upstream).await.reused);
    }

    #[tokio::test]
    async fn a_connection_for_all_does_not_end_with_who_has_asked_for_it() {
        let (upstream, listener) = taken(UpstreamProtocol::Http2).await;
        let mut upstream = Arc::into_inner(upstream).unwrap();
        // Nobody answers its handshake.
        let tls = settings::UpstreamTls { verify: false, ..settings::UpstreamTls::default() };
        dialer(&mut upstream).connector = Some(Connector::new(&tls, UpstreamProtocol::Http2).unwrap());
        let upstream = Arc::new(upstream);
        let mut peers = Vec::new();
        for _ in 0..5 {
            let opened = upstream.connections.open(0, &TERMS, Instant::now());
            assert!(tokio::time::timeout(Duration::from_millis(20), opened).await.is_err());
            let next = tokio::time::timeout(Duration::from_millis(20), listener.accept()).await;
            peers.extend(next.into_iter().flatten());
        }
        assert_eq!(peers.len(), 1, "the others wait for the connection of the first, which has gone");
        drop(peers);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let opened = upstream.connections.open(0, &TERMS, Instant::now());
        assert!(tokio::time::timeout(Duration::from_millis(50), opened).await.is_err());
        assert!(listener.accept().await.is_ok(), "it has failed, and is made anew");
    }

    #[tokio::test]
    async fn a_connection_gets_few_streams_before_its_origin_has_said_how_many_it_takes() {
        let (upstream, listener) = taken(UpstreamProtocol::Http2).await;
        let mut origins = Vec::new();
        for _ in 0..8 {
            origins.push(open(&upstream).await);
        }
        let said = async {
            let (mut peer, _) = listener.accept().await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            // MAX_CONCURRENT_STREAMS: 10
            let settings = written(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 10]);
            peer.write_all(&settings).await.unwrap();
            let mut bytes = Vec::new();
            // Requests are answered after that.
            loop {
                let ping = written(kind::PING, 0, 0, &[])[3..].to_vec();
                if let Some(at) = bytes.windows(6).position(|part| part == ping)
                    && let Some(asked) = bytes.get(at + 6..at + 14)
                {
                    peer.write_all(&written(kind::PING, flag::ACK, 0, asked)).await.unwrap();
                    return peer;
                }
                peer.read_buf(&mut bytes).await.unwrap();
            }
        };
        let ((ninth, tenth), _peer) =
            tokio::join!(async { (open(&upstream).await, open(&upstream).await) }, said);
        assert!(ninth.reused && tenth.reused, "they have waited");
        assert_eq!(upstream.connections.counters.opened.get(), 1);
        assert!(!open(&upstream).await.reused, "beyond what the origin takes");
        assert_eq!(upstream.servers[0].pool.streams_at_first().0, 10);
        let mut streams = Vec::new();
        for _ in 0..9 {
            streams.push(open(&upstream).await);
        }
        assert!(streams.iter().all(|origin| origin.reused), "the next one is taken to be like it");
    }

    #[tokio::test]
    async fn connections_to_an_address_that_is_gone_are_dropped() {
        let [old, new] = [5, 6].map(|last| Ipv4Addr::new(127, 0, 0, last));
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut upstreams = Upstreams::new(Arc::default(), Clock::default());
        let upstream = upstream(&mut upstreams, &[old.into()], port);
        let server = &upstream.servers[0];
        let made = Instant::now();
        let link = connect(&upstream).await;
        let address = link.stream().socket().peer_address();
        assert_eq!(address, Some(old.into()));
        server.pool.put(link, ConnectionStart::new(made, address), made, 10);
        let later = made + Duration::from_secs(30);
        server.sweep(later, Ages::of(&upstream.settings));
        assert!(server.pool.oldest().is_some(), "the name has it still");
        assert_eq!(
            server.remembered.see(&[new.into()], later + Duration::from_secs(31)),
            Some(later + Duration::from_secs(31))
        );
        server.pool.retire(later, |address| address != IpAddr::from(old));
        assert!(server.pool.oldest().is_some());
        server.pool.retire(later, |address| !server.remembered.has(address));
        assert!(server.pool.oldest().is_none());
    }
}

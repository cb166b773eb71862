//! Listening sockets: binding, inheriting and accepting.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockRef, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc, watch};

use crate::connection::{self, AcceptedConnection, ActiveConnection};
use crate::handover::PassedConnection;
use crate::limits::clients::ConnectionPlace;
use crate::limits::descriptors;
use crate::limits::pressure;
use crate::proxy::Proxy;
use crate::settings::{Listen, ListenAddress, any_contains};
use crate::time::notices::Notices;
use crate::time::poll_length::WatchedTask;
use crate::transport::socket;
use crate::transport::stream::Socket;

/// How long accepting pauses when there are no descriptors or too many connections.
const PAUSE: Duration = Duration::from_millis(50);
/// The number of connections accepted in a row. After them, other tasks run. So under overload,
/// accepted connections are served while further ones still wait in the system's queue.
const IN_A_ROW: u32 = 16;
/// If more than this many tasks wait in the runtime's common queue, accepting pauses: more
/// connections would delay the present work further.
const BEHIND: usize = 16;
/// The most connections in a row that may turn out to be gone when the rest of the queue is accepted.
const LOST_MOST: usize = 1024;

/// A socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// TCP over IPv4 or IPv6.
    Tcp(TcpListener),
    /// A Unix stream socket.
    Unix(UnixListener),
}

impl Listener {
    /// Binds `listen`.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn bind(listen: &Listen) -> io::Result<Self> {
        match &listen.address {
            ListenAddress::Tcp(address) => Self::bind_tcp(*address, listen),
            ListenAddress::Unix(path) => {
                remove_stale(path)?;
                let listener = StdUnixListener::bind(path)?;
                listener.set_nonblocking(true)?;
                let listener = Self::Unix(UnixListener::from_std(listener)?);
                listener.set_backlog(listen.backlog)?;
                Ok(listener)
            }
        }
    }

    fn bind_tcp(address: SocketAddr, listen: &Listen) -> io::Result<Self> {
        let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if listen.reuse_port {
            socket.set_reuse_port(true)?;
        }
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_nonblocking(true)?;
        // Accepted sockets inherit these options, which saves system calls for each connection.
        socket::prepare(&socket, Some(address))?;
        socket.bind(&address.into())?;
        socket.listen(i32::try_from(listen.backlog).unwrap_or(i32::MAX))?;
        Ok(Self::Tcp(TcpListener::from_std(socket.into())?))
    }

    /// Takes over a socket that another process has bound.
    ///
    /// # Errors
    ///
    /// The descriptor is not a listening stream socket.
    pub fn adopt(fd: OwnedFd) -> io::Result<Self> {
        let socket = socket2::Socket::from(fd);
        // The first call fails for a descriptor that is no socket.
        if socket.r#type()? != Type::STREAM || !socket.is_listener()? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a listening stream socket"));
        }
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        if address.is_unix() {
            return Ok(Self::Unix(UnixListener::from_std(socket.into())?));
        }
        socket::prepare(&socket, address.as_socket())?;
        Ok(Self::Tcp(TcpListener::from_std(socket.into())?))
    }

    /// A connection that another process has accepted.
    ///
    /// # Errors
    ///
    /// The descriptor is no connection, or the client has gone.
    pub fn passed(descriptor: OwnedFd) -> io::Result<(Socket, Option<SocketAddr>)> {
        let socket = socket2::Socket::from(descriptor);
        socket.set_nonblocking(true)?;
        if socket.local_addr()?.is_unix() {
            return Ok((UnixStream::from_std(socket.into())?.into(), None));
        }
        let remote = socket.peer_addr()?.as_socket();
        Ok((TcpStream::from_std(socket.into())?.into(), remote))
    }

    /// Changes the length of the kernel's accept queue, at once; queued connections stay.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn set_backlog(&self, backlog: u32) -> io::Result<()> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        match self {
            Self::Tcp(listener) => SockRef::from(listener).listen(backlog),
            Self::Unix(listener) => SockRef::from(listener).listen(backlog),
        }
    }

    /// Returns true if it listens on IPv6 addresses and accepts connections over IPv4 as well.
    pub fn takes_both_families(&self) -> bool {
        let Self::Tcp(listener) = self else { return false };
        let is_v6 = listener.local_addr().is_ok_and(|address| address.is_ipv6());
        is_v6 && SockRef::from(listener).only_v6().is_ok_and(|only| !only)
    }

    /// The address that it listens on, with the port that the system has chosen.
    pub fn address(&self) -> io::Result<ListenAddress> {
        match self {
            Self::Tcp(listener) => Ok(ListenAddress::Tcp(listener.local_addr()?)),
            Self::Unix(listener) => {
                let path = listener.local_addr()?.as_pathname().map(Path::to_path_buf);
                Ok(ListenAddress::Unix(path.unwrap_or_default()))
            }
        }
    }

    /// Accepts one connection.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub async fn accept(&self) -> io::Result<(Socket, Option<SocketAddr>)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, remote) = listener.accept().await?;
                Ok((stream.into(), Some(remote)))
            }
            Self::Unix(listener) => Ok((listener.accept().await?.0.into(), None)),
        }
    }

    /// Accepts a connection that is waiting already.
    fn accept_waiting(&self) -> Option<(Socket, Option<SocketAddr>)> {
        // Asks the system directly, because the runtime may not have noticed the connection yet.
        let accept = || match self {
            Self::Tcp(listener) => SockRef::from(listener).accept(),
            Self::Unix(listener) => SockRef::from(listener).accept(),
        };
        let accepted = (0..LOST_MOST).map(|_| accept());
        let mut accepted = accepted.skip_while(|result| result.as_ref().is_err_and(is_about_one_connection));
        let (socket, remote) = accepted.next()?.ok()?;
        socket.set_nonblocking(true).ok()?;
        match self {
            Self::Tcp(_) => Some((TcpStream::from_std(socket.into()).ok()?.into(), remote.as_socket())),
            Self::Unix(_) => Some((UnixStream::from_std(socket.into()).ok()?.into(), None)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// Removes a socket file without a listener.
fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            std::fs::remove_file(path)
        }
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "exists and is not a socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The controls of a running listener.
#[derive(Debug)]
pub struct ListenerHandles {
    /// The settings of the listener.
    pub settings: watch::Receiver<Arc<Listen>>,
    /// True once the listener is to stop.
    pub stop: watch::Receiver<bool>,
    /// Receives connections that another process has accepted.
    pub arrivals: mpsc::Receiver<PassedConnection>,
}

/// Accepts connections until `stop` is true, and serves each in a task of its own. `id` is the
/// listener's identity in the registry.
pub async fn run(
    proxy: Arc<Proxy>,
    listener: Arc<Listener>,
    ListenerHandles { settings, mut stop, mut arrivals }: ListenerHandles,
    id: usize,
) {
    let name: Arc<str> = settings.borrow().address.to_string().into();
    let mut accepting = proxy.handover.accepting();
    let mut accepts = *accepting.borrow_and_update();
    let local = listener.address().ok().and_then(|address| match address {
        ListenAddress::Tcp(address) if !address.ip().is_unspecified() => Some(address),
        _ => None,
    });
    let runtime = tokio::runtime::Handle::current().metrics();
    let mut accepted_in_a_row = 0;
    let notices = Notices::default();
    let held = Arc::<HeldConnections>::default();
    loop {
        let most = most(&proxy);
        let count = proxy.registry.count();
        if count >= most || descriptors::are_scarce() && !proxy.config().pools.evict() {
            tokio::select! {
                // If descriptors are scarce, this waits until there are fewer connections than now.
                () = proxy.registry.room(most.min(count), PAUSE) => continue,
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        let own_most = settings.borrow().connections.unwrap_or(usize::MAX);
        if held.count() >= own_most {
            tokio::select! {
                () = held.room() => continue,
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        if accepted_in_a_row >= IN_A_ROW || runtime.global_queue_depth() > BEHIND {
            accepted_in_a_row = 0;
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                () = tokio::task::yield_now() => continue,
            }
        }
        let mut accept = pin!(listener.accept());
        let accept = poll_fn(|cx| {
            let accepted = accept.as_mut().poll(cx);
            if accepted.is_pending() {
                accepted_in_a_row = 0;
            }
            accepted
        });
        if *stop.borrow() {
            break;
        }
        // Biased: while connections wait, `stop` is not polled each time.
        let accepted = tokio::select! {
            biased;
            Some(PassedConnection { socket, remote, .. }) = arrivals.recv() => Ok(Some((socket, remote))),
            accepted = accept, if accepts => {
                accepted.map(|(socket, remote)| pass(&proxy, &settings, &name, socket, remote))
            }
            Ok(()) = accepting.changed() => Ok(None),
            _ = stop.wait_for(|stop| *stop) => break,
        };
        accepted_in_a_row += 1;
        match accepted {
            // The connection was passed on, or accepting has been switched on or off.
            Ok(None) => accepts = *accepting.borrow_and_update(),
            Ok(Some((socket, remote))) => {
                let Some(place) = place(&proxy, &mut stop).await else { break };
                let of_listener = HeldConnections::hold(&held);
                spawn(&proxy, &settings, id, place, Arrival { socket, remote, local, of_listener }, &stop);
            }
            Err(error) if is_about_one_connection(&error) => {}
            // Files and other sockets use more descriptors than were reserved for them: close an idle
            // connection to an origin.
            Err(error) if descriptors::are_missing(&error) && proxy.config().pools.evict() => {}
            Err(error) => {
                if notices.take(Instant::now()) {
                    tracing::warn!(%error, "accepting pauses");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    while let Ok(PassedConnection { socket, remote, .. }) = arrivals.try_recv()
        && let Some(place) = proxy.registry.place(most(&proxy))
    {
        let of_listener = HeldConnections::hold(&held);
        spawn(&proxy, &settings, id, place, Arrival { socket, remote, local, of_listener }, &stop);
    }
    if !proxy.handover.accepts() {
        // Another process accepts the connections in the queue.
        return;
    }
    // We must also serve the connections that the system has already accepted; otherwise their
    // requests would be answered by a reset.
    while let Some(place) = proxy.registry.place(most(&proxy))
        && let Some((socket, remote)) = listener.accept_waiting()
    {
        let of_listener = HeldConnections::hold(&held);
        spawn(&proxy, &settings, id, place, Arrival { socket, remote, local, of_listener }, &stop);
    }
}

/// The connections of one listener.
#[derive(Debug, Default)]
struct HeldConnections {
    count: AtomicUsize,
    freed: Notify,
}

/// Counts a connection for its listener.
#[derive(Debug)]
struct ListenerPlace(Arc<HeldConnections>);

impl HeldConnections {
    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn hold(held: &Arc<Self>) -> ListenerPlace {
        held.count.fetch_add(1, Ordering::Relaxed);
        ListenerPlace(Arc::clone(held))
    }

    /// Waits until a connection has ended, but at most for [`PAUSE`], because a reload may allow more
    /// connections.
    async fn room(&self) {
        let _ = tokio::time::timeout(PAUSE, self.freed.notified()).await;
    }
}

impl Drop for ListenerPlace {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
        self.0.freed.notify_one();
    }
}

/// The most client connections of the process.
fn most(proxy: &Proxy) -> usize {
    proxy.connection_limit.load(Ordering::Relaxed).min(descriptors::for_clients())
}

/// Passes a connection on if it is another generation's turn to serve one; otherwise returns it.
fn pass(
    proxy: &Proxy,
    settings: &watch::Receiver<Arc<Listen>>,
    name: &Arc<str>,
    socket: Socket,
    remote: Option<SocketAddr>,
) -> Option<(Socket, Option<SocketAddr>)> {
    let Some(passage) = proxy.handover.passage() else { return Some((socket, remote)) };
    let proxied = |ip| any_contains(&settings.borrow().proxy_protocol_from, ip);
    let speaks_for_many = remote.is_some_and(|remote| remote.ip().is_loopback() || proxied(remote.ip()));
    if !passage.takes(remote, speaks_for_many) {
        return Some((socket, remote));
    }
    let passed = PassedConnection { address: Arc::clone(name), socket, remote };
    passage.pass(passed).map(|PassedConnection { socket, remote, .. }| (socket, remote))
}

/// Waits for a place for a connection that has been accepted, because another listener may have taken
/// the last place in the meantime. Returns `None` if there is none and the listener stops.
async fn place(proxy: &Proxy, stop: &mut watch::Receiver<bool>) -> Option<ConnectionPlace> {
    loop {
        let most = most(proxy);
        if let Some(place) = proxy.registry.place(most) {
            return Some(place);
        }
        tokio::select! {
            () = proxy.registry.room(most, PAUSE) => {}
            _ = stop.wait_for(|stop| *stop) => return proxy.registry.place(most),
        }
    }
}

/// A socket that has been accepted.
struct Arrival {
    socket: Socket,
    remote: Option<SocketAddr>,
    /// Our address, if it is the same for all connections of the listener.
    local: Option<SocketAddr>,
    of_listener: ListenerPlace,
}

fn spawn(
    proxy: &Arc<Proxy>,
    settings: &watch::Receiver<Arc<Listen>>,
    id: usize,
    place: ConnectionPlace,
    Arrival { socket, remote, local, of_listener }: Arrival,
    stop: &watch::Receiver<bool>,
) {
    proxy.metrics.connections_accepted.inc();
    if pressure::refuses_connections() {
        pressure::REFUSED_CONNECTIONS.inc();
        proxy.metrics.connections_refused.inc();
        return;
    }
    let listen = Arc::clone(&settings.borrow());
    let most = proxy.connections_per_client.load(Ordering::Relaxed);
    // A connection from a proxy is counted later, for the client that the proxy names.
    let client =
        remote.map(|remote| remote.ip()).filter(|ip| !any_contains(&listen.proxy_protocol_from, *ip));
    let Some(registered) = place.enter(client, most, id) else {
        proxy.metrics.connections_refused.inc();
        return;
    };
    // Connections end once `stop` is set. This one may have been accepted after all others were
    // notified.
    if *stop.borrow() {
        registered.tell();
    }
    let local = local.or_else(|| socket.local_address());
    let served_by = registered.task();
    let accepted = AcceptedConnection {
        socket,
        remote,
        local,
        registered,
        active: ActiveConnection::new(&proxy.metrics),
    };
    let task = connection::serve(Arc::clone(proxy), listen, accepted);
    let task = async move {
        let _of_listener = of_listener;
        task.await;
    };
    let task = tokio::spawn(WatchedTask::new(task, Arc::clone(&proxy.metrics)));
    served_by.is(task.abort_handle());
}

/// Returns true for an error of `accept` that only concerns the connection that was to be accepted (accept(2)).
fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn what_waits_is_accepted_without_the_reactor() {
        let listener = Listener::bind(&Listen::new(ListenAddress::Tcp(([127, 0, 0, 1], 0).into()))).unwrap();
        let Ok(ListenAddress::Tcp(address)) = listener.address() else { panic!() };
        let clients = [(); 2].map(|()| std::net::TcpStream::connect(address).unwrap());
        for client in &clients {
            let (_, remote) = listener.accept_waiting().expect("one waits");
            assert_eq!(remote, Some(client.local_addr().unwrap()));
        }
        assert!(listener.accept_waiting().is_none());
    }

    /// A client that reads nothing holds the kernel's buffers, and the output here, which is not
    /// megabytes.
    #[tokio::test]
    async fn little_waits_in_the_kernel_for_who_does_not_read() {
        for adopted in [false, true] {
            let mut listener =
                Listener::bind(&Listen::new(ListenAddress::Tcp(([127, 0, 0, 1], 0).into()))).unwrap();
            if adopted {
                listener =
                    Listener::adopt(std::net::TcpListener::bind("127.0.0.1:0").unwrap().into()).unwrap();
            }
            let Ok(ListenAddress::Tcp(address)) = listener.address() else { panic!() };
            let client = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            client.set_recv_buffer_size(16 << 10).unwrap();
            client.connect(&address.into()).unwrap();
            let (mut socket, _) = listener.accept_waiting().expect("one waits");
            let (bytes, mut written) = (vec![0; 1 << 20], 0);
            while let Ok(Ok(count)) =
                tokio::time::timeout(Duration::from_millis(50), socket.write(&bytes)).await
            {
                written += count;
            }
            assert!((64 << 10..512 << 10).contains(&written), "{written} bytes wait");
        }
    }

    #[tokio::test]
    async fn only_listening_stream_sockets_are_adopted() {
        let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(Listener::adopt(listening.into()).is_ok());
        let silent = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for socket in [silent.into(), datagrams.into()] {
            assert_eq!(Listener::adopt(socket).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Listener::adopt(file.into()).is_err());
    }
}

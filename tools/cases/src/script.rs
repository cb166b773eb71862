//! One script at work: a client or one connection's worth of an origin.

use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::case::{Action, Client, CloseKind, Connect, Origin, Step, Time};
use crate::dns::Nameserver;
use crate::http1::{Message, Peer};
use crate::http2::{self, Http2, PREFACE, settings_payload};
use crate::shared::{Failure, Shared};
use crate::text::{Text, show};
use crate::tls;
use crate::wire::{Conn, End, Got};
use crate::words::DEFAULT_WITHIN;
use crate::{expects, proxy_steps, receive};

/// The variable that depends on the request that was received last.
const ACCEPT: &str = "accept";

/// How long a connection may take: without this the kernel tries for minutes.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// The receive buffer of a slow client, in bytes.
const SLOW_BUFFER: usize = 16 * 1024;

/// How long the end of a script waits for bytes that nobody expects.
const LEFT_OVER: Duration = Duration::from_millis(25);

/// Pause between two attempts of `eventually`.
const RETRY_PAUSE: Duration = Duration::from_millis(30);

/// Pause between two looks for a new connection.
const ACCEPT_POLL: Duration = Duration::from_millis(2);

/// Where an origin listens.
pub enum Listener {
    /// On a TCP port.
    Tcp(TcpListener),
    /// On a Unix socket.
    Unix(UnixListener),
    /// On a TCP port with a queue that these connections fill.
    Full(TcpListener, Vec<TcpStream>),
}

/// The side that runs the script.
#[derive(Clone, Copy)]
pub enum Side<'a> {
    /// A client.
    Client(&'a Client),
    /// An origin.
    Origin(&'a Origin, &'a Listener),
}

/// One script at work.
pub struct Script<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) name: String,
    side: Side<'a>,
    pub(crate) conn: Option<Conn>,
    parked: Vec<Conn>,
    pub(crate) http2: Option<Http2>,
    pub(crate) message: Option<Message>,
    ignore: bool,
}

impl<'a> Script<'a> {
    /// A script that has done nothing yet.
    pub fn new(shared: &'a Shared, side: Side<'a>) -> Self {
        let name = match side {
            Side::Client(client) => client.name.clone(),
            Side::Origin(origin, _) => origin.name.clone(),
        };
        Self { shared, name, side, conn: None, parked: Vec::new(), http2: None, message: None, ignore: false }
    }

    /// Runs a client's script to its end.
    pub fn run_client(mut self, client: &Client) {
        if !client.connect.idle
            && let Err(message) = self.connect(&client.connect)
        {
            return self.fail(client.line, "connect", message);
        }
        self.run(&client.steps);
    }

    /// Runs an origin's script to its end, beginning with an `accept`.
    pub fn run_origin(mut self, origin: &Origin) {
        let explicit = matches!(origin.steps.first(), Some(Step { action: Action::Accept(_), .. }));
        if !explicit && let Err(message) = self.accept(Time { after: None, within: DEFAULT_WITHIN }) {
            return self.fail(origin.line, "accept", message);
        }
        self.run(&origin.steps);
    }

    /// Runs an origin's script for every request on one connection that was taken already.
    pub fn run_each(mut self, origin: &Origin, conn: Conn) {
        if let Err(message) = self.begin_origin(conn) {
            // Some cases are about a proxy that rejects our certificate.
            return self.shared.note(&self.name, &message);
        }
        while self.next_request_comes() {
            if let Err(failure) = self.run_steps(&origin.steps) {
                return self.shared.fail(failure);
            }
        }
    }

    fn next_request_comes(&mut self) -> bool {
        let Some(conn) = &mut self.conn else {
            return false;
        };
        let far = Instant::now() + Duration::from_secs(3600);
        match &mut self.http2 {
            None => !conn.inbox.is_empty() || conn.fill(far) == Got::Bytes,
            Some(h2) => matches!(h2.pump(conn, far, |h2| !h2.opened.is_empty()), Ok(Got::Bytes)),
        }
    }

    fn run(mut self, steps: &[Step]) {
        let result = self.run_steps(steps);
        if let Err(failure) = result {
            return self.shared.fail(failure);
        }
        if let Some(message) = self.left_over() {
            let line = steps.last().map_or(0, |step| step.line);
            self.fail(line, "(the end of the script)", message);
        }
        if matches!(self.side, Side::Origin(..)) {
            self.shared.origin_done();
            // The proxy may still hold these connections: they stay open until the case is over.
            while !self.shared.stopped() {
                self.shared.pause(Duration::from_millis(20));
            }
            if let Some(message) = self.left_over().or_else(|| self.unexpected_connection()) {
                let line = steps.last().map_or(0, |step| step.line);
                self.fail_at_end(line, message);
            }
        }
    }

    fn fail(&self, line: usize, step: &str, message: String) {
        self.shared.fail(Failure { line, step: step.to_owned(), message });
    }

    fn fail_at_end(&self, line: usize, message: String) {
        self.shared.fail_late(Failure { line, step: "(the end of the script)".to_owned(), message });
    }

    /// Bytes on the script's connections that no step took.
    fn left_over(&mut self) -> Option<String> {
        if self.ignore {
            return None;
        }
        if let (Some(h2), Some(conn)) = (&mut self.http2, &mut self.conn) {
            drop(h2.pump(conn, Instant::now() + LEFT_OVER, |_| false));
            return (!h2.opened.is_empty()).then(|| "a request that the script does not expect".to_owned());
        }
        let current = self.conn.iter_mut();
        for conn in current.chain(&mut self.parked) {
            if conn.inbox.is_empty() {
                conn.fill(Instant::now() + LEFT_OVER);
            }
            if !conn.inbox.is_empty() {
                return Some(format!("bytes that the script does not expect: {}", show(&conn.inbox)));
            }
        }
        None
    }

    /// A connection that carries bytes and that no `accept` took.
    fn unexpected_connection(&mut self) -> Option<String> {
        let Side::Origin(origin, listener) = self.side else {
            return None;
        };
        while !self.ignore && origin.tls.is_none() {
            let mut conn = listener.accept(&self.shared.stop)?.ok()?;
            conn.fill(Instant::now());
            if !conn.inbox.is_empty() {
                return Some(format!(
                    "a connection that the script does not accept, with {}",
                    show(&conn.inbox)
                ));
            }
        }
        None
    }

    fn run_steps(&mut self, steps: &[Step]) -> Result<(), Failure> {
        for step in steps {
            if let Action::Repeat(times, inner) = &step.action {
                for _ in 0..*times {
                    self.run_steps(inner)?;
                }
                continue;
            }
            if let Action::Eventually(time, inner) = &step.action {
                let deadline = Instant::now() + time.within;
                while let Err(failure) = self.run_steps(inner) {
                    if Instant::now() > deadline || self.shared.stopped() {
                        return Err(failure);
                    }
                    self.shared.pause(RETRY_PAUSE);
                }
                continue;
            }
            self.shared.note(&self.name, &step.source);
            self.step(&step.action).map_err(|message| Failure {
                line: step.line,
                step: format!("{}: {}", self.name, step.source),
                message,
            })?;
        }
        Ok(())
    }

    fn step(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Accept(time) => self.accept(*time),
            Action::Connect(other) => self.connect_again(other.as_deref()),
            Action::Refused(other) => match self.connect_again(other.as_deref()) {
                Ok(()) => self.closed(Time { after: None, within: DEFAULT_WITHIN }, CloseKind::Any),
                Err(message) => {
                    self.shared.note(&self.name, &message);
                    Ok(())
                }
            },
            Action::Send(send) => self.send(send),
            Action::Request(request) => self.request(request),
            Action::Respond(respond) => self.respond(respond),
            Action::Receive(wanted) => receive::run(self, wanted),
            Action::Expect(expect) => expects::check(self, expect),
            Action::Closed(time, kind) => self.closed(*time, *kind),
            Action::Quiet(time) => self.quiet(*time),
            Action::Close => self.take_conn().map(Conn::close),
            Action::Shutdown(goodbye) => self.conn().map(|conn| conn.shutdown(*goodbye)),
            Action::Reset => self.take_conn().map(Conn::reset),
            Action::Leave => self.leave(),
            Action::Pause(time) => {
                self.shared.pause(*time);
                Ok(())
            }
            Action::Mark(name) => {
                self.shared.mark(name);
                Ok(())
            }
            Action::Await(name) if self.shared.wait_for(name, Duration::from_secs(15)) => Ok(()),
            Action::Await(name) => Err(format!("the mark `{name}` was not reached")),
            Action::Repeat(..) | Action::Eventually(..) => Ok(()),
            Action::Proxy(action) => proxy_steps::run(self.shared, action),
            Action::Records(at, record) => {
                self.nameserver(at)?.replace(std::slice::from_ref(record));
                Ok(())
            }
            Action::Asked { at, name, compare, count, time } => self.shared.until(time.within, || {
                let asked = self.nameserver(at)?.asked(name);
                let fits = match compare.as_str() {
                    ">=" => asked >= *count,
                    "<=" => asked <= *count,
                    _ => asked == *count,
                };
                if fits { Ok(()) } else { Err(format!("{:?}", self.nameserver(at)?.all_asked())) }
            }),
            Action::Frames(times, frame) => (0..*times).try_for_each(|_| self.write_frame(frame)),
            Action::Ignore => {
                self.ignore = true;
                Ok(())
            }
        }
    }

    fn nameserver(&self, name: &str) -> Result<&Nameserver, String> {
        let mut all = self.shared.nameservers.iter();
        all.find(|server| server.name == name).ok_or_else(|| format!("there is no block `dns {name}`"))
    }

    /// The bytes of a text.
    pub(crate) fn bytes(&self, text: &Text) -> Result<Vec<u8>, String> {
        if text.variables().any(|name| name == ACCEPT)
            && let Some(accept) = self.message.as_ref().and_then(websocket_accept)
        {
            let mut variables = self.shared.variables.clone();
            variables.insert(ACCEPT.to_owned(), accept);
            return text.bytes(&variables);
        }
        text.bytes(&self.shared.variables)
    }

    pub(crate) fn string(&self, text: &Text) -> Result<String, String> {
        text.string(&self.shared.variables)
    }

    pub(crate) fn conn(&mut self) -> Result<&mut Conn, String> {
        self.conn.as_mut().ok_or_else(|| "there is no connection".to_owned())
    }

    fn take_conn(&mut self) -> Result<Conn, String> {
        self.http2 = None;
        self.conn.take().ok_or_else(|| "there is no connection".to_owned())
    }

    /// The peer of this side.
    pub(crate) fn peer(&self) -> Peer {
        if matches!(self.side, Side::Client(_)) { Peer::Server } else { Peer::Client }
    }

    fn connect_again(&mut self, other: Option<&Connect>) -> Result<(), String> {
        match (other, self.side) {
            (Some(connect), _) => self.connect(&connect.clone()),
            (None, Side::Client(client)) => self.connect(&client.connect),
            (None, Side::Origin(..)) => Err("an origin does not connect".to_owned()),
        }
    }

    fn connect(&mut self, how: &Connect) -> Result<(), String> {
        self.parked.extend(self.conn.take());
        (self.http2, self.message) = (None, None);
        let address = match &how.to {
            Some(to) => self.string(to)?,
            None => self.shared.variables.get("listen").cloned().unwrap_or_default(),
        };
        let stop = Arc::clone(&self.shared.stop);
        let told = |error: std::io::Error| format!("connecting to {address}: {error}");
        let conn = if let Some(path) = address.strip_prefix("unix:") {
            Conn::unix(UnixStream::connect(path).map_err(told)?, stop)
        } else {
            let place = address.parse().map_err(|error| format!("{address}: {error}"))?;
            let stream = connect(how.from, place, how.slow).map_err(told)?;
            match &how.tls {
                None => Conn::tcp(stream, stop),
                Some(wanted) => {
                    Conn::tls_client(stream, tls::client(&self.shared.folder, wanted, how.h2)?, stop)
                }
            }
        };
        let mut conn = conn.map_err(told)?;
        conn.slow = how.slow;
        self.conn = Some(conn);
        if how.h2 {
            let h2 = self.http2.insert(Http2::new(Peer::Server));
            (h2.keep_window, h2.keep_pings) = (how.keep_window, how.keep_pings);
            if !how.bare {
                self.put(PREFACE)?;
                http2::write_frame(self.conn()?, 4, 0, 0, &settings_payload(&[(2, 0)]))?;
            }
        }
        Ok(())
    }

    fn accept(&mut self, time: Time) -> Result<(), String> {
        let Side::Origin(_, listener) = self.side else {
            return Err("a client does not accept".to_owned());
        };
        self.parked.extend(self.conn.take());
        let start = Instant::now();
        loop {
            if let Some(conn) = listener.accept(&self.shared.stop) {
                check_not_early(start, time)?;
                return self.begin_origin(conn.map_err(|error| error.to_string())?);
            }
            if start.elapsed() > time.within || self.shared.stopped() {
                return Err(format!("no connection within {:?}", time.within));
            }
            std::thread::sleep(ACCEPT_POLL);
        }
    }

    /// The kernel refuses connections to a socket that listens once it is shut down.
    fn leave(&self) -> Result<(), String> {
        let Side::Origin(_, Listener::Tcp(listener)) = self.side else {
            return Err("nobody listens on a TCP port here".to_owned());
        };
        socket2::SockRef::from(listener).shutdown(Shutdown::Both).map_err(|error| error.to_string())
    }

    fn begin_origin(&mut self, conn: Conn) -> Result<(), String> {
        let Side::Origin(origin, _) = self.side else {
            return Err("a client does not accept".to_owned());
        };
        (self.http2, self.message) = (None, None);
        self.conn = Some(match &origin.tls {
            None => conn,
            Some(certificate) => {
                let server = tls::server(&self.shared.folder, certificate, origin)?;
                conn.into_tls_server(server).map_err(|error| format!("TLS with the proxy: {error}"))?
            }
        });
        let not_offered = origin.either && self.conn()?.alpn.as_deref() != Some("h2");
        if origin.h2 && !not_offered {
            self.http2 = Some(Http2::new(Peer::Client));
            http2::write_frame(self.conn()?, 4, 0, 0, &[])?;
        }
        Ok(())
    }

    fn closed(&mut self, time: Time, kind: CloseKind) -> Result<(), String> {
        let start = Instant::now();
        let deadline = start + time.within;
        if let (Some(h2), Some(conn)) = (&mut self.http2, &mut self.conn) {
            if h2.pump(conn, deadline, |_| false)? != Got::End {
                return Err(format!("the connection is still open after {:?}", time.within));
            }
            return check_not_early(start, time);
        }
        let ignore = self.ignore;
        let conn = self.conn()?;
        loop {
            if ignore {
                conn.inbox.clear();
            }
            if !conn.inbox.is_empty() {
                return Err(format!("no end, but {}", show(&conn.inbox)));
            }
            match conn.fill(deadline) {
                Got::Bytes => {}
                Got::End => break,
                Got::Timeout => {
                    return Err(format!("the connection is still open after {:?}", time.within));
                }
            }
        }
        match (kind, &conn.end) {
            (CloseKind::Cleanly, Some(End::Broken(error))) => Err(format!("no orderly end, but {error}")),
            (CloseKind::Cleanly, Some(End::Untold)) => Err("an end without close_notify".to_owned()),
            (CloseKind::Reset, Some(End::Closed | End::Untold)) => Err("an orderly end, no reset".to_owned()),
            _ => check_not_early(start, time),
        }
    }

    fn quiet(&mut self, time: Duration) -> Result<(), String> {
        let deadline = Instant::now() + time;
        if let (Some(h2), Some(conn)) = (&mut self.http2, &mut self.conn) {
            let state = |h2: &Http2| {
                h2.streams
                    .get(&h2.current)
                    .map(|stream| (stream.heads.len(), stream.data.len(), stream.reset))
            };
            let before = state(h2);
            let got = h2.pump(conn, deadline, |h2| state(h2) != before)?;
            return match got {
                Got::Timeout => Ok(()),
                Got::Bytes => Err("something came on this stream".to_owned()),
                Got::End => Err("the connection ended".to_owned()),
            };
        }
        let conn = self.conn()?;
        if conn.inbox.is_empty() && conn.fill(deadline) == Got::Timeout {
            return Ok(());
        }
        Err(format!("not quiet: {}, end: {:?}", show(&conn.inbox), conn.end))
    }
}

/// Fails when something came before its time.
pub(crate) fn check_not_early(start: Instant, time: Time) -> Result<(), String> {
    match time.after {
        Some(after) if start.elapsed() < after => {
            Err(format!("too early: after {:?}, not after {after:?}", start.elapsed()))
        }
        _ => Ok(()),
    }
}

impl Listener {
    /// A connection, if one waits.
    pub fn accept(&self, stop: &Arc<std::sync::atomic::AtomicBool>) -> Option<std::io::Result<Conn>> {
        let stop = Arc::clone(stop);
        match self {
            Self::Tcp(listener) => listener.accept().ok().map(|(stream, _)| Conn::tcp(stream, stop)),
            Self::Unix(listener) => listener.accept().ok().map(|(stream, _)| Conn::unix(stream, stop)),
            Self::Full(..) => None,
        }
    }
}

/// The answer of a WebSocket server to the key of this request (RFC 6455, section 4.2.2).
fn websocket_accept(request: &Message) -> Option<String> {
    const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let (_, key) = request.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key"))?;
    Some(STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key.as_slice(), GUID].concat())))
}

/// Connects; with a small receive buffer if it is slow.
fn connect(from: Option<IpAddr>, to: SocketAddr, slow: bool) -> std::io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(to), socket2::Type::STREAM, None)?;
    if slow {
        socket.set_recv_buffer_size(SLOW_BUFFER)?;
    }
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    socket.connect_timeout(&to.into(), CONNECT_LIMIT)?;
    Ok(socket.into())
}

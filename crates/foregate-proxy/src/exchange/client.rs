//! The client's end of an exchange: where heads and bodies of responses go.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use foregate_wire::serialise::{
    end_head, reason_phrase, write_content_length, write_field, write_fields, write_status_line,
};
use foregate_wire::{BodyLength, HeaderList, NameId, ResponseHead, Version, connection};

use super::outcome::Outcome;
use crate::address::write_ip;
use crate::comparison::Replay;
use crate::limits::clients::Holdings;
use crate::link::{Link, LinkError, ReceiveOutcome};
use crate::message::request::{Request, StandIn};
use crate::message::response::Response;
use crate::proxy::{Config, Proxy};
use crate::settings::{Entrance, Listen};
use crate::time::clock;
use crate::time::timer::Timer;
use crate::tls;
use crate::upstream::{Addresses, OwnConnections};

/// For this long after the start of its request, a waiting HTTP/1 client is not watched: if it closes its side, that
/// has no effect yet.
const UNWATCHED: Duration = Duration::from_millis(200);

/// The facts about a client's connection.
#[derive(Debug)]
pub struct Peer {
    /// The addresses of the client and of the destination. A PROXY protocol header replaces those of the socket.
    pub addresses: Addresses,
    /// Its address as text, as in fields for origins; empty for a Unix socket.
    pub client_text: Box<str>,
    /// The resources that all connections of the client hold.
    pub holdings: Option<Arc<Holdings>>,
    /// Connections to origins for this client alone, once there are some.
    pub own: OnceLock<Arc<OwnConnections>>,
    /// The TLS handshake; `None` without TLS. The listener's present acceptor decides which names the handshake covers.
    pub tls: Option<Arc<tls::TlsInfo>>,
    /// The listener that accepted the connection, with its settings at that time.
    pub listen: Option<Arc<Listen>>,
    /// True if the handshake no longer satisfies the settings of its server name: the client has to reconnect.
    pub outdated: AtomicBool,
    /// Set if the client's request is a replay, served again without effect.
    pub replay: Option<Arc<Replay>>,
}

impl Peer {
    /// A client on a cleartext connection.
    pub fn new(client: Option<SocketAddr>, local: Option<SocketAddr>) -> Self {
        let client_text = client.map(|client| text_of(client.ip().to_canonical())).unwrap_or_default();
        Self {
            addresses: Addresses { client, local },
            client_text: client_text.into(),
            holdings: None,
            own: OnceLock::new(),
            tls: None,
            listen: None,
            outdated: AtomicBool::new(false),
            replay: None,
        }
    }

    /// A copy for a task that cannot borrow it.
    pub fn copied(&self) -> Self {
        Self {
            addresses: self.addresses,
            client_text: self.client_text.clone(),
            holdings: self.holdings.clone(),
            own: self.own.clone(),
            tls: self.tls.clone(),
            listen: self.listen.clone(),
            outdated: AtomicBool::new(false),
            replay: self.replay.clone(),
        }
    }

    /// The host for an HTTP/1.0 request without one.
    pub fn stands_in(&self) -> StandIn<'_> {
        StandIn { name: self.tls.as_ref().and_then(|info| info.sni.as_deref()), local: self.addresses.local }
    }

    /// The listener and the port through which requests of this connection come.
    pub fn entrance(&self) -> Entrance<'_> {
        Entrance {
            listener: self.listen.as_ref().map(|listen| &listen.address),
            port: self.addresses.local.map(|local| local.port()),
        }
    }

    /// Returns true if the connection uses TLS.
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }
}

/// An address as text, in no more memory than it needs.
fn text_of(address: IpAddr) -> String {
    let mut length = 0;
    write_ip(address, |part| length += part.len());
    let mut text = String::with_capacity(length);
    write_ip(address, |part| text.push_str(part));
    text
}

/// The client's end of an exchange.
#[derive(Debug)]
pub struct Client {
    /// The connection or stream through which bodies are read and written.
    pub link: Link,
    /// Set once any byte of a final head has been handed over.
    pub head_sent: bool,
    /// Set if the connection ends after this response.
    pub close: bool,
    /// Set if the connection should end after this response because of its age or number of
    /// requests.
    pub close_soon: bool,
    /// Set if an HTTP/1 client that has closed its sending side still gets its response.
    pub half_close: bool,
    /// True if the connection can continue a request after its configuration has been dropped.
    pub may_move: bool,
    /// The rest of a request after its configuration has been dropped. Boxed twice, so that the field takes only one
    /// pointer in each client.
    pub moved: Option<Box<Box<dyn MovedRequest>>>,
    /// The time from which the client is watched during the present request.
    watched_from: Instant,
    /// Bytes of the request's body that were dropped without a reader.
    pub dropped: usize,
}

/// The parts of a request that its connection keeps.
pub struct MovedEnds<'a> {
    /// The shared state of the process.
    pub proxy: &'a Proxy,
    /// The client's connection.
    pub peer: &'a Peer,
    /// The client's end.
    pub client: &'a mut Client,
    /// The request.
    pub request: &'a mut Request,
    /// The response's head.
    pub response: &'a mut Response,
    /// The connection's timer.
    pub timer: &'a mut Timer,
}

/// The rest of a request that ended with [`Outcome::Moved`]. It borrows nothing.
pub trait MovedRequest: std::fmt::Debug + Send {
    /// The slim configuration with which the request continues.
    fn config(&self) -> Arc<Config>;

    /// Serves the rest of the request.
    fn go_on<'a>(self: Box<Self>, ends: MovedEnds<'a>) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;
}

impl Client {
    /// An end on which nothing has been sent yet.
    pub fn new(link: Link) -> Self {
        Self {
            link,
            head_sent: false,
            close: false,
            close_soon: false,
            half_close: true,
            may_move: false,
            moved: None,
            watched_from: clock::now(),
            dropped: 0,
        }
    }

    /// Begins a request; its first byte arrived at `began`.
    pub fn begin(&mut self, began: Instant) {
        self.watched_from = began + UNWATCHED;
    }

    /// The time from which on we check whether the client is still there; `None` if that time has come. Most responses
    /// come so soon that an earlier check would cost more than it saves. HTTP/2 streams are always watched, because
    /// attackers can reset them.
    pub fn unwatched_until(&self, now: Instant) -> Option<Instant> {
        (!self.link.is_h2() && now < self.watched_from).then_some(self.watched_from)
    }

    /// Sends the head of the final response. `length` is the framing of the body at its source;
    /// returns the framing for the client.
    ///
    /// # Errors
    ///
    /// The client's stream is gone.
    pub fn send_head(
        &mut self,
        request: &Request,
        head: &ResponseHead,
        length: BodyLength,
    ) -> Result<(), LinkError> {
        self.head_sent = true;
        match &mut self.link {
            Link::H1(link) if request.verbatim.is_some() => {
                let ends = matches!(length, BodyLength::UntilClose | BodyLength::Tunnel);
                self.close |=
                    ends || !request.keep_alive || !connection::keep_alive(head.version, &head.headers);
                let response = request.verbatim.as_ref().map_or(&[][..], |verbatim| &verbatim.response);
                link.head_out().extend_from_slice(response);
                link.send_verbatim(length);
                Ok(())
            }
            Link::H1(link) => {
                let (framing, close) = h1_framing(request, head.status, length, self.close);
                self.close = close;
                let out = link.head_out();
                let reason = match head.reason() {
                    b"" => reason_phrase(head.status).as_bytes(),
                    reason => reason,
                };
                write_status_line(out, head.status, reason);
                write_fields(out, &head.headers);
                match framing {
                    BodyLength::Fixed(length) => write_content_length(out, length),
                    BodyLength::Chunked => write_field(out, b"Transfer-Encoding", b"chunked"),
                    BodyLength::Tunnel => {
                        if head.status == 101 {
                            write_field(out, b"Connection", b"Upgrade");
                            write_field(out, b"Upgrade", request.upgrade.as_deref().unwrap_or_default());
                        }
                    }
                    BodyLength::Empty | BodyLength::UntilClose => {}
                }
                if framing != BodyLength::Tunnel {
                    // `Upgrade` applies to the next hop only, so `Connection` has to name it (RFC 9110, section 7.8).
                    let requires_upgrade = head.headers.contains(NameId::Upgrade);
                    match (self.close, requires_upgrade) {
                        (true, true) => write_field(out, b"Connection", b"upgrade, close"),
                        (true, false) => write_field(out, b"Connection", b"close"),
                        (false, true) => write_field(out, b"Connection", b"upgrade"),
                        (false, false) if request.head.version == Version::Http10 => {
                            write_field(out, b"Connection", b"keep-alive");
                        }
                        (false, false) => {}
                    }
                }
                end_head(out);
                link.begin_send(if length.is_empty() { BodyLength::Empty } else { framing });
                Ok(())
            }
            Link::Client(link) => {
                let status = if length == BodyLength::Tunnel { 200 } else { head.status };
                // A body from HTTP/2 may have trailers even if its length is known.
                link.send_head(status, &head.headers, length, head.version == Version::Http2)
            }
            Link::H2(_) | Link::Cached(_) | Link::Ahead(_) => Err(LinkError::H2),
        }
    }

    /// Sends an interim response (RFC 9110, section 15.2), except over HTTP/1.0, which has none.
    ///
    /// # Errors
    ///
    /// The client's stream is gone.
    pub fn send_interim(
        &mut self,
        request: &Request,
        status: u16,
        headers: &HeaderList,
    ) -> Result<(), LinkError> {
        match &mut self.link {
            Link::H1(_) if request.head.version == Version::Http10 => Ok(()),
            Link::H1(link) if request.verbatim.is_some() => {
                let response = request.verbatim.as_ref().map_or(&[][..], |verbatim| &verbatim.response);
                link.head_out().extend_from_slice(response);
                Ok(())
            }
            Link::H1(link) => {
                let out = link.head_out();
                write_status_line(out, status, reason_phrase(status).as_bytes());
                write_fields(out, headers);
                end_head(out);
                Ok(())
            }
            Link::Client(link) => link.send_interim(status, headers),
            Link::H2(_) | Link::Cached(_) | Link::Ahead(_) => Err(LinkError::H2),
        }
    }

    /// Reads and drops an unwanted body, at most `most` bytes of the request. Otherwise an HTTP/1 client that writes its
    /// whole body before it reads would not get to the response.
    pub fn drop_body(&mut self, cx: &mut Context<'_>, most: usize) {
        let Link::H1(link) = &mut self.link else { return };
        while self.dropped < most {
            match link.poll_receive(cx) {
                Poll::Ready(Ok(ReceiveOutcome::Data)) => {
                    let count = link.data().len();
                    link.consume(count);
                    self.dropped += count;
                }
                Poll::Ready(Ok(ReceiveOutcome::End)) | Poll::Pending => return,
                Poll::Ready(Err(_)) => {
                    self.close = true;
                    self.dropped = most;
                }
            }
        }
    }

    /// Returns true if the rest of the unwanted body is known to be longer than what [`Self::drop_body`] reads of it, so that the
    /// connection has to end with the response.
    pub fn ends_unread(&self, most: usize) -> bool {
        let Link::H1(link) = &self.link else { return false };
        link.known_rest() > most.saturating_sub(self.dropped) as u64
    }

    /// Ready once the client has given up on the exchange. If an HTTP/1 client has closed its sending side, it counts
    /// as gone only after a while; `timer` waits for that time.
    pub fn poll_abandoned(&mut self, cx: &mut Context<'_>, timer: &mut Timer) -> Poll<LinkError> {
        if let Poll::Ready(error) = self.link.poll_abandoned(cx) {
            return Poll::Ready(error);
        }
        match &self.link {
            Link::H1(link) if link.has_ended() && !self.half_close => {
                timer.poll(cx, self.watched_from).map(|()| LinkError::Io(ErrorKind::ConnectionAborted))
            }
            _ => Poll::Pending,
        }
    }

    /// Breaks the exchange off so that the client cannot mistake the part for a whole response.
    pub fn abort(&mut self) {
        self.close = true;
        self.link.abort();
    }
}

/// How a body is framed for an HTTP/1 client, and whether the connection ends with it (RFC 9112,
/// section 6).
fn h1_framing(request: &Request, status: u16, length: BodyLength, close: bool) -> (BodyLength, bool) {
    let close = close || !request.keep_alive;
    // A safeguard: if a response must not have a body, the client would read bytes after its head as the next response.
    let bodiless =
        request.head.method == foregate_wire::Method::Head || matches!(status, 100..=199 | 204 | 304);
    let length = if bodiless && length != BodyLength::Tunnel { BodyLength::Empty } else { length };
    match length {
        BodyLength::Chunked | BodyLength::UntilClose if request.head.version == Version::Http10 => {
            (BodyLength::UntilClose, true)
        }
        BodyLength::Chunked | BodyLength::UntilClose => (BodyLength::Chunked, close),
        BodyLength::Tunnel => (BodyLength::Tunnel, true),
        // Here `Content-Length` describes the response to a GET, and stays among the other fields.
        BodyLength::Empty if request.head.method == foregate_wire::Method::Head || status == 304 => {
            (BodyLength::Empty, close)
        }
        BodyLength::Empty if status == 204 || status < 200 => (BodyLength::Empty, close),
        BodyLength::Empty => (BodyLength::Fixed(0), close),
        length => (length, close),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_as_the_standard_has_them() {
        let octets =
            (0..=255_u8).map(|octet| [octet, octet.wrapping_add(9), octet.wrapping_mul(7), 255 - octet]);
        for address in octets.map(IpAddr::from).chain(["2001:db8::1".parse().unwrap()]) {
            let text = text_of(address);
            assert_eq!(text, address.to_string());
            assert_eq!(text.capacity(), text.len(), "{text}");
        }
    }
}

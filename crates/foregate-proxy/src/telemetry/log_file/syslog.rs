//! Syslog messages (RFC 5424) over UDP, TCP and Unix sockets.

use std::fs;
use std::io::{self, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use crate::settings::{SyslogFacility, SyslogServer};
use crate::telemetry::access_log::write_time;
use crate::time::clock::Clock;

/// The severity of a line: `info`.
const SEVERITY: u8 = 6;
/// The time limit for connecting.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// If the receiver accepts no bytes for this long, the connection counts as lost.
const STALLED: Duration = Duration::from_secs(5);
/// The pause after a failed attempt to connect. Lines are dropped until the next attempt.
const PAUSE: Duration = Duration::from_secs(1);

/// A receiver, with the connection to it if there is one.
pub(super) struct Syslog {
    server: SyslogServer,
    /// The start of each message: its priority and the version of the protocol.
    start: Vec<u8>,
    link: Option<SyslogLink>,
    /// The earliest time of the next attempt to connect.
    not_before: Option<Instant>,
    /// The text after the time in each message.
    names: Vec<u8>,
    clock: Clock,
}

enum SyslogLink {
    Udp(UdpSocket),
    Tcp(TcpStream),
    Unix(UnixDatagram),
}

impl Syslog {
    pub(super) fn new(server: SyslogServer, facility: SyslogFacility, clock: Clock) -> Self {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host: String = host.chars().filter(char::is_ascii_graphic).take(255).collect();
        let host = if host.is_empty() { "-" } else { &host };
        let names = format!(" {host} foregate {} access - ", std::process::id()).into_bytes();
        let start = format!("<{}>1 ", facility.priority(SEVERITY)).into_bytes();
        Self { server, start, link: None, not_before: None, names, clock }
    }

    /// Drops the connection; the next line opens a new one.
    pub(super) fn disconnect(&mut self) {
        (self.link, self.not_before) = (None, None);
    }

    /// Sends lines. On an error, returns the number of lost lines and the reason.
    pub(super) fn send(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        let all = || {
            lines.split_inclusive(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line))
        };
        let count = all().count() as u64;
        let mut start = self.start.clone();
        write_time(&mut start, self.clock.wall());
        start.extend_from_slice(&self.names);
        let link = self.connected().map_err(|error| (count, error))?;
        let (mut lost, mut failed) = (0, None);
        if let SyslogLink::Tcp(stream) = link {
            let mut framed = Vec::new();
            for line in all() {
                framed.extend_from_slice((start.len() + line.len()).to_string().as_bytes());
                framed.push(b' ');
                framed.extend([&*start, line].concat());
            }
            if let Err(error) = stream.write_all(&framed) {
                (lost, failed) = (count, Some(error));
            }
        } else {
            let (mut message, begun) = (start.clone(), start.len());
            for line in all() {
                message.truncate(begun);
                message.extend_from_slice(line);
                let sent = match &*link {
                    SyslogLink::Udp(socket) => socket.send(&message),
                    SyslogLink::Unix(socket) => socket.send(&message),
                    SyslogLink::Tcp(_) => continue,
                };
                if let Err(error) = sent {
                    lost += 1;
                    failed = Some(error);
                }
            }
        }
        let Some(error) = failed else { return Ok(()) };
        self.link = None;
        self.not_before = self.clock.now().checked_add(PAUSE);
        Err((lost, error))
    }

    fn connected(&mut self) -> io::Result<&mut SyslogLink> {
        if self.link.is_none() {
            if self.not_before.is_some_and(|until| self.clock.now() < until) {
                return Err(io::Error::other("the syslog server is not reached"));
            }
            self.not_before = self.clock.now().checked_add(PAUSE);
            self.link = Some(connect(&self.server)?);
            self.not_before = None;
        }
        self.link.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

fn connect(server: &SyslogServer) -> io::Result<SyslogLink> {
    let unknown = || io::Error::other("the name of the syslog server has no address");
    match server {
        SyslogServer::Udp(name) => {
            let address = name.to_socket_addrs()?.next().ok_or_else(unknown)?;
            let socket = UdpSocket::bind(if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
            socket.connect(address)?;
            Ok(SyslogLink::Udp(socket))
        }
        SyslogServer::Tcp(name) => {
            let mut failed = unknown();
            for address in name.to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
                    Ok(stream) => {
                        stream.set_write_timeout(Some(STALLED))?;
                        return Ok(SyslogLink::Tcp(stream));
                    }
                    Err(error) => failed = error,
                }
            }
            Err(failed)
        }
        SyslogServer::Unix(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            socket.set_write_timeout(Some(STALLED))?;
            Ok(SyslogLink::Unix(socket))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use super::*;

    fn check(message: &[u8], priority: &str, line: &str) {
        let text = std::str::from_utf8(message).unwrap();
        let parts: Vec<_> = text.splitn(8, ' ').collect();
        assert_eq!(
            (parts[0], parts[3], parts[5], parts[6], parts[7]),
            (priority, "foregate", "access", "-", line),
            "{text}"
        );
        assert!(parts[1].len() == 24 && parts[1].ends_with('Z') && !parts[2].is_empty(), "{text}");
    }

    #[test]
    fn datagrams_have_one_message_each() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut log = Syslog::new(
            SyslogServer::Udp(server.local_addr().unwrap().to_string().into()),
            SyslogFacility::default(),
            Clock::default(),
        );
        log.send(b"one\ntwo\n").unwrap();
        let mut buffer = [0; 200];
        for line in ["one", "two"] {
            let length = server.recv(&mut buffer).unwrap();
            check(&buffer[..length], "<190>1", line);
        }
    }

    #[test]
    fn a_stream_counts_octets_and_a_lost_server_costs_counted_lines() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let facility = SyslogFacility::named("local0").unwrap();
        let clock = Clock::of_a_test();
        let mut log = Syslog::new(SyslogServer::Tcp(address.to_string().into()), facility, clock);
        log.send(b"one\n").unwrap();
        let (mut stream, _) = server.accept().unwrap();
        drop(log.link.take());
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (length, message) = text.split_once(' ').unwrap();
        assert_eq!(length.parse::<usize>().unwrap(), message.len());
        check(message.as_bytes(), "<134>1", "one");
        drop(server);
        assert_eq!(log.send(b"two\nthree\n").unwrap_err().0, 2);
        assert_eq!(log.send(b"four\n").unwrap_err().1.to_string(), "the syslog server is not reached");
        clock.advance(PAUSE);
        assert_eq!(log.send(b"five\n").unwrap_err().1.kind(), io::ErrorKind::ConnectionRefused);
    }
}

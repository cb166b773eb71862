//! A client's transport: a TCP connection, with TLS on it or not.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use socket2::{Domain, Socket, Type};

/// The name that the benchmark's certificate is for.
pub const NAME: &str = "bench.example";

/// Source addresses are taken from 127.0.1.1 on.
const SOURCES: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);

/// TLS settings of one client: TLS 1.3 only, X25519 only, one cipher suite only, so
/// that all servers do the same work. With `resume`, the tickets of one connection
/// are used by the next one made with the same settings.
pub fn tls(
    certificate: &Path,
    resume: bool,
    http2: bool,
) -> Result<Arc<ClientConfig>, Box<dyn std::error::Error>> {
    let provider = CryptoProvider {
        kx_groups: vec![aws_lc_rs::kx_group::X25519],
        cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384],
        ..aws_lc_rs::default_provider()
    };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = if resume { Resumption::in_memory_sessions(1) } else { Resumption::disabled() };
    config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(Arc::new(config))
}

/// The result of a read.
pub enum Received {
    /// So many bytes; `last` when the socket is known to hold no more for now.
    Data { bytes: usize, last: bool },
    /// Nothing for now.
    Nothing,
    /// The peer has closed.
    End,
}

/// A transport.
pub struct Link {
    /// The socket, to register it.
    pub socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// Plaintext that the socket has not taken yet (TLS keeps its own).
    unsent: Vec<u8>,
    sent: usize,
    connected: bool,
}

impl Link {
    /// Starts to connect. `source` picks one of the loopback addresses to connect from.
    pub fn open(
        target: SocketAddr,
        source: Option<u32>,
        config: Option<Arc<ClientConfig>>,
    ) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(target), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if let Some(source) = source {
            let address = IpAddr::from(Ipv4Addr::from(u32::from(SOURCES) + source));
            socket.bind(&SocketAddr::new(address, 0).into())?;
        }
        match socket.connect(&target.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let tls = match config {
            None => None,
            Some(config) => {
                let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
                Some(Box::new(ClientConnection::new(config, name).map_err(io::Error::other)?))
            }
        };
        let socket = TcpStream::from_std(socket.into());
        Ok(Self { socket, tls, unsent: Vec::new(), sent: 0, connected: false })
    }

    /// Sends bytes, or keeps those that the socket does not take now.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.writer().write_all(bytes)?;
            return self.flush();
        }
        let mut rest = bytes;
        if self.connected && self.sent == self.unsent.len() {
            match self.socket.write(bytes) {
                Ok(taken) => rest = &bytes[taken..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        self.unsent.extend_from_slice(rest);
        Ok(())
    }

    /// The socket can be written to, perhaps for the first time.
    pub fn writable(&mut self) -> io::Result<()> {
        if !self.connected {
            if let Some(error) = self.socket.take_error()? {
                return Err(error);
            }
            self.connected = true;
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.connected {
            return Ok(());
        }
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                match tls.write_tls(&mut self.socket) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            return Ok(());
        }
        while self.sent < self.unsent.len() {
            match self.socket.write(&self.unsent[self.sent..]) {
                Ok(taken) => self.sent += taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.unsent.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads the available bytes.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let Some(tls) = &mut self.tls else {
            return match self.socket.read(buffer) {
                Ok(0) => Ok(Received::End),
                Ok(bytes) => Ok(Received::Data { bytes, last: bytes < buffer.len() }),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
                Err(error) => Err(error),
            };
        };
        loop {
            match tls.reader().read(buffer) {
                Ok(0) => return Ok(Received::End),
                Ok(bytes) => return Ok(Received::Data { bytes, last: false }),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Received::End),
                Err(error) => return Err(error),
            }
            match tls.read_tls(&mut self.socket) {
                // The reader says on the next turn whether the peer closed in order.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                Err(error) => return Err(error),
            }
            tls.process_new_packets().map_err(io::Error::other)?;
            while tls.wants_write() {
                match tls.write_tls(&mut self.socket) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// The result of the TLS handshake, in words.
    pub fn negotiated(&self) -> Option<String> {
        let tls = self.tls.as_ref()?;
        let suite = tls.negotiated_cipher_suite()?.suite();
        let group = tls.negotiated_key_exchange_group().map(|group| group.name());
        let alpn = tls.alpn_protocol().map(String::from_utf8_lossy);
        Some(format!(
            "{suite:?} {} {:?} ALPN {}",
            group.map_or("no group".to_owned(), |group| format!("{group:?}")),
            tls.handshake_kind()?,
            alpn.as_deref().unwrap_or("none")
        ))
    }
}

/// `connect` goes on in the background (Linux).
const EINPROGRESS: i32 = 115;

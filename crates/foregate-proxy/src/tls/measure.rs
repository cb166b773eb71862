//! Measurements, run by hand: `cargo test --release -p foregate-proxy --lib -- --ignored
//! --nocapture --test-threads 1 tls::measure`.
//!
//! A time covers the server's steps alone, and is the shortest of several rounds, because other work
//! on the machine can only lengthen it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use super::tests::*;
use super::*;

const ROUNDS: usize = 8;
const HANDSHAKES: u32 = 200;

/// Performs one handshake. Returns the server's time, and true if a session was resumed.
fn handshake(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>) -> (Duration, bool) {
    let mut far = ClientConnection::new(Arc::clone(client), ServerName::try_from("a.test").unwrap()).unwrap();
    let mut spent = Duration::ZERO;
    let start = Instant::now();
    let mut near = ServerConnection::new(Arc::clone(server)).unwrap();
    spent += start.elapsed();
    while near.is_handshaking() || far.is_handshaking() || near.wants_write() {
        let mut wire = Vec::new();
        while far.wants_write() {
            far.write_tls(&mut wire).unwrap();
        }
        let start = Instant::now();
        let mut bytes = wire.as_slice();
        while !bytes.is_empty() {
            near.read_tls(&mut bytes).unwrap();
            near.process_new_packets().unwrap();
        }
        let mut wire = Vec::with_capacity(16 * 1024);
        while near.wants_write() {
            near.write_tls(&mut wire).unwrap();
        }
        spent += start.elapsed();
        let mut bytes = wire.as_slice();
        while !bytes.is_empty() {
            far.read_tls(&mut bytes).unwrap();
            far.process_new_packets().unwrap();
        }
    }
    (spent, near.handshake_kind() == Some(rustls::HandshakeKind::Resumed))
}

fn measure(name: &str, server: &Arc<ServerConfig>, client: &ClientConfig, resume: bool) {
    let mut client = client.clone();
    if !resume {
        client.resumption = rustls::client::Resumption::disabled();
    }
    let client = Arc::new(client);
    handshake(server, &client);
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let mut spent = Duration::ZERO;
        for _ in 0..HANDSHAKES {
            let (time, resumed) = handshake(server, &client);
            assert_eq!(resumed, resume);
            spent += time;
        }
        best = best.min(spent.as_secs_f64() * 1e6 / f64::from(HANDSHAKES));
    }
    println!("{name}: {best:.1} us");
}

/// A client that offers one group and puts one suite first.
fn client_of(
    group: &'static dyn rustls::crypto::SupportedKxGroup,
    suite: rustls::SupportedCipherSuite,
) -> ClientConfig {
    let mut suites = vec![suite];
    suites.extend(
        rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES.iter().filter(|other| other.suite() != suite.suite()),
    );
    let provider = CryptoProvider { kx_groups: vec![group], cipher_suites: suites, ..default_provider() };
    ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(connector::unverified())
        .with_no_client_auth()
}

#[test]
#[ignore = "a measurement"]
fn handshakes() {
    let folder = Folder::new();
    let files = folder.certificate("a", &["a.test"]);
    let acceptor = acceptor_of(&listen(vec![files]), &[], &CertificateStore::new());
    let config = acceptor.config();
    let config = {
        // The client's order decides here, so that the suites can be compared.
        let mut config = ServerConfig::clone(&config);
        config.ignore_client_order = false;
        Arc::new(config)
    };
    let with = |change: &dyn Fn(&mut ServerConfig)| {
        let mut config = ServerConfig::clone(&config);
        change(&mut config);
        Arc::new(config)
    };
    let (aes128, aes256) = (cipher_suite::TLS13_AES_128_GCM_SHA256, cipher_suite::TLS13_AES_256_GCM_SHA384);
    for resume in [false, true] {
        let kind = if resume { "resumed" } else { "full" };
        for (group_name, group) in
            [("X25519", kx_group::X25519), ("X25519MLKEM768", kx_group::X25519MLKEM768)]
        {
            for (suite_name, suite) in [("AES-128", aes128), ("AES-256", aes256)] {
                let client = client_of(group, suite);
                measure(&format!("{kind}, {group_name}, {suite_name}"), &config, &client, resume);
            }
        }
        let client = client_of(kx_group::X25519, aes128);
        for tickets in [0, 1, 2] {
            if tickets == 0 && resume {
                continue;
            }
            let server = with(&|config| config.send_tls13_tickets = tickets);
            measure(&format!("{kind}, X25519, AES-128, {tickets} tickets"), &server, &client, resume);
        }
    }
}

/// Measures the cost of reading the ClientHello first, by whole handshakes in memory, both sides included.
#[tokio::test]
#[ignore = "a measurement"]
async fn choosing_by_name() {
    let folder = Folder::new();
    let files = folder.certificate("a", &["a.test"]);
    let store = CertificateStore::new();
    let strict = crate::settings::SiteTls {
        minimum_version: Some(crate::settings::TlsVersion::Tls13),
        ..crate::settings::SiteTls::default()
    };
    let sites = [(hosts(&["b.test"]), Some(strict))];
    let plain = acceptor_of(&listen(vec![files.clone()]), &[], &store);
    let by_name = acceptor_of(&listen(vec![files]), &sites, &store);
    let client = Arc::new(client());
    let mut best = [f64::MAX; 2];
    for _ in 0..ROUNDS {
        for (best, acceptor) in best.iter_mut().zip([&plain, &by_name]) {
            let start = Instant::now();
            for _ in 0..HANDSHAKES {
                shake(acceptor, &client, "a.test").await.unwrap();
            }
            *best = best.min(start.elapsed().as_secs_f64() * 1e6 / f64::from(HANDSHAKES));
        }
    }
    println!("resumed handshake, both ends: plain {:.1} us, by name {:.1} us", best[0], best[1]);
}

/// Measures the memory of an idle connection after one request, apart from its socket and our buffers.
#[tokio::test]
#[ignore = "a measurement"]
async fn memory_of_idle_connections() {
    const CONNECTIONS: usize = 1000;
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let folder = Folder::new();
    let files = folder.certificate("a", &["a.test"]);
    let acceptor = acceptor_of(&listen(vec![files]), &[], &CertificateStore::new());
    let mut kept = Vec::new();
    for (name, client) in [
        ("TLS 1.3", client_with(None, &[&rustls::version::TLS13])),
        ("TLS 1.2", client_with(None, &[&rustls::version::TLS12])),
    ] {
        let client = Arc::new(client);
        let (mut idle, mut before) = (Vec::with_capacity(CONNECTIONS + 100), 0);
        for turn in 0..CONNECTIONS + 100 {
            // The first handshakes fill caches.
            if turn == 100 {
                before = resident();
            }
            let (near, far) = duplex(64);
            let connector = tokio_rustls::TlsConnector::from(Arc::clone(&client));
            let far_end = async {
                let mut stream =
                    connector.connect(ServerName::try_from("a.test").unwrap(), near).await.unwrap();
                stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
                stream.flush().await.unwrap();
                let mut answer = [0; 1024];
                stream.read_exact(&mut answer).await.unwrap();
            };
            let near_end = async {
                let mut accepted = acceptor.accept(far, None).await.unwrap();
                let mut request = [0; 32];
                accepted.stream.read_exact(&mut request).await.unwrap();
                accepted.stream.write_all(&[b'x'; 1024]).await.unwrap();
                accepted.stream.flush().await.unwrap();
                accepted
            };
            idle.push(tokio::join!(far_end, near_end).1);
        }
        let each = (resident() - before) / CONNECTIONS;
        // All connections are kept: memory that is freed and reused would not be counted.
        kept.push(idle);
        println!("{name}: {each} bytes an idle connection, of them in place {}", size_of_val(&kept[0][0]));
    }
}

//! Handshakes over in-memory streams.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio_rustls::TlsConnector;

use super::crypto::{provider, sha256};
use super::store::{read_authority_certificates, read_chain, read_key};
use super::*;
use crate::settings::{
    CertificateFiles, ClientCertificates, Limits, ListenTls, SiteTls, TlsPolicy, TlsVersion,
    UpstreamProtocol, UpstreamTls,
};
use crate::time::clock::Clock;

mod files;
mod resumption;

/// A folder that is removed at the end of its test.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("foregate-tls-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        // Written to another name and renamed, as tools for renewing certificates do.
        let path = self.0.join(name);
        fs::write(self.0.join("new"), text).unwrap();
        fs::rename(self.0.join("new"), &path).unwrap();
        path
    }

    /// A self-signed certificate for `names`, as `stem.pem` and `stem.key`.
    pub(super) fn certificate(&self, stem: &str, names: &[&str]) -> CertificateFiles {
        let made =
            rcgen::generate_simple_self_signed(names.iter().map(ToString::to_string).collect::<Vec<_>>())
                .unwrap();
        CertificateFiles::new(
            self.write(&format!("{stem}.pem"), &made.cert.pem()),
            self.write(&format!("{stem}.key"), &made.signing_key.serialize_pem()),
        )
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A connection to an origin, and the origin's end of it.
pub(crate) async fn to_origin<IO>(near: IO, far: IO) -> (OriginTlsStream<IO>, ServerStream<IO>)
where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let folder = Folder::new();
    let listen = listen(vec![folder.certificate("origin", &["origin.test"])]);
    let acceptor = acceptor_of(&listen, &[], &CertificateStore::new());
    let careless = UpstreamTls { verify: false, ..UpstreamTls::default() };
    let connector = Connector::new(&careless, UpstreamProtocol::Http1).unwrap();
    let (connected, accepted) =
        tokio::join!(connector.connect("origin.test", false, near), acceptor.accept(far, None));
    (connected.unwrap().0, accepted.unwrap().stream)
}

/// An authority, and certificates that it signs.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn issue(&self, common_name: &str, names: Vec<SanType>) -> (rcgen::Certificate, KeyPair) {
        self.issue_with(common_name, |params| params.subject_alt_names = names)
    }

    fn issue_with(
        &self,
        common_name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (rcgen::Certificate, KeyPair) {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }
}

pub(super) fn listen(certificates: Vec<CertificateFiles>) -> ListenTls {
    ListenTls { certificates, automatic: None, policy: TlsPolicy::default() }
}

pub(super) fn acceptor_of(
    listen: &ListenTls,
    sites: &[(Vec<Arc<str>>, Option<SiteTls>)],
    store: &CertificateStore,
) -> Acceptor {
    let sites = sites.iter().map(|(hosts, tls)| SiteHosts { hosts, tls: tls.as_ref() });
    Acceptor::new(listen, true, sites, None, &Limits::default(), store).unwrap()
}

pub(super) fn hosts(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

fn asks(authorities: &Path, required: bool) -> TlsPolicy {
    let clients = ClientCertificates { authorities: authorities.to_owned(), required };
    TlsPolicy { client_certificates: Some(clients), ..TlsPolicy::default() }
}

fn site_asks(authorities: &Path, required: bool) -> SiteTls {
    SiteTls { client_certificates: asks(authorities, required).client_certificates, ..SiteTls::default() }
}

/// A client that accepts every certificate.
pub(super) fn client() -> ClientConfig {
    client_with(None, &[&rustls::version::TLS13, &rustls::version::TLS12])
}

pub(super) fn client_with(
    identity: Option<(&rcgen::Certificate, &KeyPair)>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(connector::unverified());
    match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap(),
    }
}

pub(super) struct Outcome {
    pub(super) info: Arc<TlsInfo>,
    alpn: Alpn,
    certificate: CertificateDer<'static>,
}

pub(super) async fn shake(
    acceptor: &Acceptor,
    client: &Arc<ClientConfig>,
    name: &str,
) -> Result<Outcome, HandshakeError> {
    shake_at(acceptor, client, name, None).await
}

/// One handshake and one byte each way, so that tickets reach the client. `local`: the address that the
/// client has connected to.
async fn shake_at(
    acceptor: &Acceptor,
    client: &Arc<ClientConfig>,
    name: &str,
    local: Option<&str>,
) -> Result<Outcome, HandshakeError> {
    let local = local.map(|local| local.parse().unwrap());
    let (near, far) = duplex(16 * 1024);
    let connector = TlsConnector::from(Arc::clone(client));
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let client = async {
        let mut stream = connector.connect(name, near).await?;
        let certificate = stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
        stream.write_all(b"x").await?;
        stream.read_u8().await?;
        std::io::Result::Ok(certificate)
    };
    let server = async {
        let mut accepted = acceptor.accept(far, local).await?;
        accepted.stream.read_u8().await?;
        accepted.stream.write_all(b"y").await?;
        accepted.stream.flush().await?;
        Ok::<_, HandshakeError>((accepted.info, accepted.alpn))
    };
    let (certificate, accepted) = tokio::join!(client, server);
    let (info, alpn) = accepted?;
    Ok(Outcome { info, alpn, certificate: certificate.map_err(HandshakeError::Io)? })
}

fn der(files: &CertificateFiles) -> CertificateDer<'static> {
    read_chain(&files.certificate).unwrap().remove(0)
}

#[tokio::test]
async fn the_name_chooses_the_certificate() {
    let folder = Folder::new();
    let first = folder.certificate("first", &["first.test"]);
    let exact = folder.certificate("exact", &["a.wild.test"]);
    let wild = folder.certificate("wild", &["*.wild.test"]);
    let own = folder.certificate("own", &["unrelated.test"]);
    let sites = [
        (
            hosts(&["own.test", "*.own.test"]),
            Some(SiteTls { certificates: vec![own.clone()], ..SiteTls::default() }),
        ),
        (hosts(&["*"]), None),
    ];
    let acceptor = acceptor_of(
        &listen(vec![first.clone(), exact.clone(), wild.clone()]),
        &sites,
        &CertificateStore::new(),
    );
    let client = Arc::new(client());
    for (name, expected) in [
        ("first.test", &first),
        ("A.wild.test", &exact),
        ("b.wild.test", &wild),
        ("c.b.wild.test", &first),
        ("own.test", &own),
        ("x.y.own.test", &own),
        ("unrelated.test", &own),
        ("127.0.0.1", &first),
        ("unknown.test", &first),
    ] {
        let outcome = shake(&acceptor, &client, name).await.unwrap();
        assert_eq!(outcome.certificate, der(expected), "{name}");
        let sni = name.parse::<std::net::IpAddr>().is_err().then(|| name.to_ascii_lowercase());
        assert_eq!(outcome.info.sni.as_deref(), sni.as_deref());
    }
    let info = shake(&acceptor, &client, "b.wild.test").await.unwrap().info;
    assert!(acceptor.covers(&info, b"b.wild.test") && acceptor.covers(&info, b"c.wild.test"));
    assert!(!acceptor.covers(&info, b"first.test") && !acceptor.covers(&info, b"own.test"));
    let info = shake(&acceptor, &client, "unrelated.test").await.unwrap().info;
    assert!(acceptor.covers(&info, b"x.own.test"), "the site states the same certificate");
    let info = shake(&acceptor, &client, "unknown.test").await.unwrap().info;
    assert!(acceptor.covers(&info, b"unknown.test") && acceptor.covers(&info, b"first.test"));
    assert!(!acceptor.covers(&info, b"other.test"));
    let info = shake(&acceptor, &client, "127.0.0.1").await.unwrap().info;
    assert!(acceptor.covers(&info, b"other.test"), "the client asked for no name");
}

#[tokio::test]
async fn a_client_that_names_no_host_gets_the_certificate_of_the_address() {
    let folder = Folder::new();
    let first = folder.certificate("first", &["first.test"]);
    let v4 = folder.certificate("v4", &["v4.test", "192.0.2.7"]);
    let v6 = folder.certificate("v6", &["2001:db8::7"]);
    let sites =
        [(hosts(&["[2001:db8::7]"]), Some(SiteTls { certificates: vec![v6.clone()], ..SiteTls::default() }))];
    let acceptor = acceptor_of(&listen(vec![first.clone(), v4.clone()]), &sites, &CertificateStore::new());
    for (name, local, expected) in [
        ("192.0.2.7", Some("192.0.2.7"), &v4),
        ("192.0.2.7", Some("::ffff:192.0.2.7"), &v4),
        ("2001:db8::7", Some("2001:db8::7"), &v6),
        ("192.0.2.8", Some("192.0.2.8"), &first),
        ("192.0.2.7", None, &first),
        // The name counts where there is one, also an unknown one.
        ("unknown.test", Some("192.0.2.7"), &first),
        ("v4.test", Some("2001:db8::7"), &v4),
    ] {
        // A client of its own for each: a resumed session has the certificate of the first handshake.
        let outcome = shake_at(&acceptor, &Arc::new(client()), name, local).await.unwrap();
        assert_eq!(outcome.certificate, der(expected), "{name} at {local:?}");
        assert!(acceptor.covers(&outcome.info, name.as_bytes()), "{name} at {local:?}");
    }
}

/// A client of ours would leave the dot out.
#[test]
fn a_dot_at_the_end_of_the_name_means_nothing() {
    let folder = Folder::new();
    let own = folder.certificate("own", &["unrelated.test"]);
    let sites =
        [(hosts(&["own.test"]), Some(SiteTls { certificates: vec![own.clone()], ..SiteTls::default() }))];
    let acceptor =
        acceptor_of(&listen(vec![folder.certificate("a", &["a.test"])]), &sites, &CertificateStore::new());
    let name = ServerName::try_from("own.testx").unwrap();
    let mut hello = Vec::new();
    rustls::ClientConnection::new(Arc::new(client()), name).unwrap().write_tls(&mut hello).unwrap();
    let at = hello.windows(9).position(|window| window == b"own.testx").unwrap();
    hello[at + 8] = b'.';
    let mut reader = rustls::server::Acceptor::default();
    reader.read_tls(&mut hello.as_slice()).unwrap();
    let accepted = reader.accept().unwrap().unwrap();
    let chosen = acceptor.config().cert_resolver.resolve(accepted.client_hello()).unwrap();
    assert_eq!(chosen.cert[0], der(&own));
    assert_eq!(names::asked_name(accepted.client_hello().server_name()), "own.test");
}

#[tokio::test]
async fn versions_groups_and_protocols_are_agreed_on() {
    let folder = Folder::new();
    let files = folder.certificate("a", &["a.test"]);
    let strict = SiteTls { minimum_version: Some(TlsVersion::Tls13), ..SiteTls::default() };
    let sites = [(hosts(&["strict.test"]), Some(strict))];
    let acceptor = acceptor_of(&listen(vec![files.clone()]), &sites, &CertificateStore::new());

    let mut modern = client();
    modern.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
    let outcome = shake(&acceptor, &Arc::new(modern), "strict.test").await.unwrap();
    assert_eq!((outcome.info.version, outcome.alpn), (TlsVersion::Tls13, Alpn::Http2));
    assert_eq!(outcome.info.group, Some("X25519MLKEM768"));
    assert_eq!(outcome.info.cipher, "TLS_AES_128_GCM_SHA256");
    assert!(acceptor.holds(&outcome.info) && acceptor.covers(&outcome.info, b"a.test"), "it satisfies both");

    let old = Arc::new(client_with(None, &[&rustls::version::TLS12]));
    let outcome = shake(&acceptor, &old, "a.test").await.unwrap();
    assert_eq!((outcome.info.version, outcome.alpn), (TlsVersion::Tls12, Alpn::Http1));
    assert!(!acceptor.covers(&outcome.info, b"strict.test"), "its version is too low");
    assert!(!outcome.info.resumed);
    assert!(shake(&acceptor, &old, "a.test").await.unwrap().info.resumed, "TLS 1.2 has tickets too");
    assert!(matches!(shake(&acceptor, &old, "strict.test").await, Err(HandshakeError::Protocol(_))));

    let mut oldest = client();
    oldest.alpn_protocols = vec![b"http/1.0".to_vec()];
    assert_eq!(shake(&acceptor, &Arc::new(oldest), "a.test").await.unwrap().alpn, Alpn::Http1);

    let only1 = Acceptor::new(
        &listen(vec![files]),
        false,
        std::iter::empty(),
        None,
        &Limits::default(),
        &CertificateStore::new(),
    )
    .unwrap();
    let mut both = client();
    both.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    assert_eq!(shake(&only1, &Arc::new(both), "a.test").await.unwrap().alpn, Alpn::Http1);
    let mut h2 = client();
    h2.alpn_protocols = vec![b"h2".to_vec()];
    assert!(shake(&only1, &Arc::new(h2), "a.test").await.is_err());
}

#[tokio::test]
async fn clients_are_asked_for_certificates() {
    let folder = Folder::new();
    let files = folder.certificate("a", &["a.test"]);
    let authority = Authority::new();
    let authorities = folder.write("authorities.pem", &authority.pem);
    let site = |required| Some(site_asks(&authorities, required));
    let sites = [
        (hosts(&["required.test"]), site(true)),
        (hosts(&["*.optional.test"]), site(false)),
        (hosts(&["open.optional.test"]), None),
    ];
    let acceptor = acceptor_of(&listen(vec![files]), &sites, &CertificateStore::new());

    let (good, good_key) = authority.issue(
        "alice",
        vec![
            SanType::DnsName("alice.test".try_into().unwrap()),
            SanType::URI("spiffe://test/alice".try_into().unwrap()),
            SanType::IpAddress([10, 0, 0, 1].into()),
        ],
    );
    let (bad, bad_key) = Authority::new().issue("mallory", vec![]);
    let versions = &[&rustls::version::TLS13];
    let nobody = Arc::new(client());
    let alice = Arc::new(client_with(Some((&good, &good_key)), versions));
    let mallory = Arc::new(client_with(Some((&bad, &bad_key)), versions));

    for host in ["required.test", "x.optional.test"] {
        let info = shake(&acceptor, &alice, host).await.unwrap().info;
        let identity = info.client.clone().unwrap();
        assert_eq!(identity.subject, "CN=alice");
        assert_eq!(identity.fingerprint, sha256(good.der()));
        assert_eq!(
            identity.names,
            [
                AlternativeName::Dns("alice.test".into()),
                AlternativeName::Uri("spiffe://test/alice".into()),
                AlternativeName::Ip([10, 0, 0, 1].into())
            ]
        );
        let resumed = shake(&acceptor, &alice, host).await.unwrap().info;
        assert!(resumed.resumed && resumed.client.as_deref() == Some(&*identity));
        assert!(matches!(shake(&acceptor, &mallory, host).await, Err(HandshakeError::ClientCertificate(_))));
    }
    assert!(matches!(
        shake(&acceptor, &nobody, "required.test").await,
        Err(HandshakeError::ClientCertificate(_))
    ));
    let info = shake(&acceptor, &nobody, "x.optional.test").await.unwrap().info;
    assert_eq!(info.client, None);
    assert!(acceptor.covers(&info, b"x.optional.test"));
    for other in ["required.test", "open.optional.test", "a.test"] {
        assert!(!acceptor.covers(&info, other.as_bytes()), "{other}");
    }
    let open = shake(&acceptor, &mallory, "open.optional.test").await.unwrap().info;
    assert_eq!(open.client, None);
    let unnamed = shake(&acceptor, &nobody, "127.0.0.1").await.unwrap().info;
    assert!(acceptor.covers(&unnamed, b"a.test") && !acceptor.covers(&unnamed, b"required.test"));
}

#[tokio::test]
async fn what_a_site_does_not_say_is_as_the_listener_has_it() {
    let folder = Folder::new();
    let files = folder.certificate("a", &["*.test"]);
    let authority = Authority::new();
    let authorities = folder.write("authorities.pem", &authority.pem);
    let own = folder.certificate("own", &["own.test"]);
    let older = SiteTls { minimum_version: Some(TlsVersion::Tls12), ..SiteTls::default() };
    let sites = [
        (hosts(&["own.test"]), Some(SiteTls { certificates: vec![own], ..SiteTls::default() })),
        (hosts(&["older.test"]), Some(older)),
        (hosts(&["optional.test"]), Some(site_asks(&authorities, false))),
        (hosts(&["plain.test"]), None),
    ];
    let mut listen = listen(vec![files]);
    listen.policy = TlsPolicy { minimum_version: TlsVersion::Tls13, ..asks(&authorities, true) };
    let acceptor = acceptor_of(&listen, &sites, &CertificateStore::new());
    let (alice, key) = authority.issue("alice", vec![]);
    let known = Arc::new(client_with(Some((&alice, &key)), &[&rustls::version::TLS13]));
    let default = shake(&acceptor, &known, "plain.test").await.unwrap().info.policy.clone();
    for (host, nobody, old) in [
        ("own.test", false, false),
        ("older.test", false, true),
        ("optional.test", true, false),
        ("plain.test", false, false),
    ] {
        let tls12 = &[&rustls::version::TLS12];
        assert_eq!(shake(&acceptor, &Arc::new(client()), host).await.is_ok(), nobody, "{host}");
        let old_alice = Arc::new(client_with(Some((&alice, &key)), tls12));
        assert_eq!(shake(&acceptor, &old_alice, host).await.is_ok(), old, "{host}");
        let info = shake(&acceptor, &known, host).await.unwrap().info;
        assert!(info.client.is_some(), "{host}");
        // A site that states only a certificate has the listener's policy.
        assert_eq!(info.policy == default, matches!(host, "own.test" | "plain.test"), "{host}");
    }
}

#[tokio::test]
async fn what_is_not_tls_or_too_large_ends() {
    let folder = Folder::new();
    let files = folder.certificate("a", &["a.test"]);
    let fails = |limits: Limits, bytes: Vec<u8>| {
        let files = files.clone();
        async move {
            let acceptor = Acceptor::new(
                &listen(vec![files]),
                true,
                std::iter::empty(),
                None,
                &limits,
                &CertificateStore::new(),
            )
            .unwrap();
            let (mut near, far) = duplex(1024 * 1024);
            near.write_all(&bytes).await.unwrap();
            drop(near);
            acceptor.accept(far, None).await.unwrap_err().kind()
        }
    };
    let small = Limits { client_hello: 100, ..Limits::default() };
    // A handshake record of a ClientHello that claims `length` bytes.
    let hello = |length: u32, sent: usize| {
        let mut bytes = Vec::new();
        let mut body = vec![1];
        body.extend_from_slice(&length.to_be_bytes()[1..]);
        body.resize(4 + sent, 0);
        for fragment in body.chunks(16 * 1024) {
            bytes.extend_from_slice(&[22, 3, 1]);
            bytes.extend_from_slice(&(fragment.len() as u16).to_be_bytes());
            bytes.extend_from_slice(fragment);
        }
        bytes
    };
    assert_eq!(fails(Limits::default(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()).await, "not_tls");
    assert_eq!(fails(small.clone(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()).await, "not_tls");
    assert_eq!(fails(Limits::default(), hello(70_000, 70_000)).await, "client_hello_too_large");
    assert_eq!(fails(small.clone(), hello(200, 200)).await, "client_hello_too_large");
    assert_eq!(fails(small, hello(80, 10)).await, "io");
}

/// Both ends of a handshake between a connector and an acceptor.
async fn meet(
    connector: &Connector,
    host: &str,
    acceptor: &Acceptor,
) -> (
    Result<(OriginTlsStream<DuplexStream>, Alpn), ConnectError>,
    Result<FinishedHandshake<DuplexStream>, HandshakeError>,
) {
    let (near, far) = duplex(16 * 1024);
    tokio::join!(connector.connect(host, false, near), acceptor.accept(far, None))
}

#[tokio::test]
async fn origins_are_verified() {
    let folder = Folder::new();
    let authority = Authority::new();
    let authorities = folder.write("authorities.pem", &authority.pem);
    let (certificate, key) =
        authority.issue("origin", vec![SanType::DnsName("origin.test".try_into().unwrap())]);
    let files = CertificateFiles::new(
        folder.write("origin.pem", &certificate.pem()),
        folder.write("origin.key", &key.serialize_pem()),
    );
    let mut listen = listen(vec![files.clone()]);
    listen.policy = asks(&authorities, false);
    let acceptor = acceptor_of(&listen, &[], &CertificateStore::new());
    let trusting = UpstreamTls { authorities: Some(authorities), ..UpstreamTls::default() };

    let connector = Connector::new(&trusting, UpstreamProtocol::Auto).unwrap();
    let (client, server) = meet(&connector, "origin.test", &acceptor).await;
    assert_eq!((client.unwrap().1, server.unwrap().alpn), (Alpn::Http2, Alpn::Http2));
    let (client, _) = meet(&connector, "other.test", &acceptor).await;
    assert!(matches!(client, Err(ConnectError::Certificate { .. })));
    let (client, _) = meet(&connector, "not a name", &acceptor).await;
    assert!(matches!(client, Err(ConnectError::ServerName(_))));

    let named = UpstreamTls { server_name: Some("origin.test".into()), ..trusting.clone() };
    let connector = Connector::new(&named, UpstreamProtocol::Http1).unwrap();
    let (client, server) = meet(&connector, "10.0.0.1", &acceptor).await;
    assert_eq!(client.unwrap().1, Alpn::Http1);
    assert_eq!(server.unwrap().info.client, None);

    let known = UpstreamTls { certificate: Some(files), ..named.clone() };
    let connector = Connector::new(&known, UpstreamProtocol::Http1).unwrap();
    let (client, server) = meet(&connector, "10.0.0.1", &acceptor).await;
    assert!(client.is_ok());
    assert_eq!(server.unwrap().info.client.as_ref().unwrap().subject, "CN=origin");

    let careless = UpstreamTls { verify: false, ..UpstreamTls::default() };
    let connector = Connector::new(&careless, UpstreamProtocol::Http2).unwrap();
    assert!(meet(&connector, "127.0.0.1", &acceptor).await.0.is_ok());
    let without_h2 =
        Acceptor::new(&listen, false, std::iter::empty(), None, &Limits::default(), &CertificateStore::new())
            .unwrap();
    assert!(meet(&connector, "127.0.0.1", &without_h2).await.0.is_err());

    assert_eq!(connector, Connector::new(&careless, UpstreamProtocol::Http2).unwrap());
    assert_ne!(connector, Connector::new(&careless, UpstreamProtocol::Auto).unwrap());
    assert_ne!(
        Connector::new(&named, UpstreamProtocol::Http1).unwrap(),
        Connector::new(&known, UpstreamProtocol::Http1).unwrap()
    );
}

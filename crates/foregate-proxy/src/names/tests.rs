//! Names over scripted lookups and scripted nameservers; over those of others in [`foreign`].

mod foreign;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};

use super::schedule::Absence;
use super::*;

/// Gives the n-th answer to the n-th lookup, and the last one from then on.
struct Script {
    answers: Vec<LookupOutcome>,
    asked: Arc<AtomicUsize>,
}

impl Lookup for Script {
    fn lookup<'a>(&'a self, _: &'a NameKey, _: Duration) -> LookupFuture<'a> {
        let turn = self.asked.fetch_add(1, Ordering::Relaxed).min(self.answers.len() - 1);
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.answers[turn].clone()
        })
    }

    fn services<'a>(&'a self, _: &'a NameKey) -> ServiceFuture<'a> {
        Box::pin(async { ServiceOutcome::Absent(Absence::WithoutServer) })
    }
}

/// Also returns how many lookups there were.
fn scripted(answers: Vec<LookupOutcome>) -> (Resolver, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let script = Box::new(Script { answers, asked: Arc::clone(&asked) });
    (Resolver::with_lookup(script, Arc::default(), Clock::default()), asked)
}

fn answer(last: u8, seconds: u64) -> LookupOutcome {
    found(&[[192, 0, 2, last].into()], seconds)
}

fn found(addresses: &[IpAddr], seconds: u64) -> LookupOutcome {
    let (v4, v6) = addresses.iter().partition(|address| address.is_ipv4());
    LookupOutcome::Found(NameAddresses {
        v4: Some(v4),
        v6: Some(v6),
        valid_for: Duration::from_secs(seconds),
        complete: false,
        doubt: None,
    })
}

/// Names that have these addresses from the beginning.
pub fn fixed(addresses: &[IpAddr]) -> Resolver {
    scripted(vec![found(addresses, 60)]).0
}

const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_name_is_looked_up_once_for_all() {
    let (resolver, asked) = scripted(vec![answer(1, 60)]);
    let name = resolver.resolve("origin.test", None);
    assert_eq!(name.addresses(), None);
    let addresses = name.wait(LONG).await.unwrap();
    assert_eq!(*addresses, [IpAddr::from([192, 0, 2, 1])]);
    assert!(Arc::ptr_eq(&name, &resolver.resolve("origin.test", None)));
    assert!(Arc::ptr_eq(&addresses, &name.addresses().unwrap()));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn expired_records_are_looked_up_again_while_the_name_is_used() {
    let (resolver, asked) = scripted(vec![answer(1, 0), answer(2, 0)]);
    let name = resolver.resolve("origin.test", None);
    name.wait(LONG).await.unwrap();
    let second = [IpAddr::from([192, 0, 2, 2])];
    for _ in 0..500 {
        if *name.addresses().unwrap() == second {
            break;
        }
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(*name.addresses().unwrap(), second);
    drop(name);
    let before = asked.load(Ordering::Relaxed);
    // The name's task, which has a part in the source, ends when it wakes.
    while Arc::strong_count(&resolver.shared.source) > 1 {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(asked.load(Ordering::Relaxed), before);
    resolver.resolve("other.test", None);
    assert_eq!(resolver.shared.names.lock().len(), 1, "unused names are forgotten");
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_told_soon() {
    let (resolver, _) = scripted(vec![LookupOutcome::Absent(Absence::NoName)]);
    let name = resolver.resolve("missing.test", None);
    let start = Instant::now();
    assert_eq!(name.wait(LONG).await, None);
    assert!(start.elapsed() < LONG);
}

#[test]
fn without_a_runtime_the_lookup_waits_for_one() {
    let (resolver, asked) = scripted(vec![answer(1, 60)]);
    let name = resolver.resolve("origin.test", None);
    assert_eq!((name.addresses(), asked.load(Ordering::Relaxed)), (None, 0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(runtime.block_on(name.wait(LONG)).is_some());
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn some_names_need_no_lookup() {
    let (resolver, asked) = scripted(vec![LookupOutcome::Failed("not asked".into())]);
    let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    for host in ["localhost", "app.localhost", "localhost."] {
        assert_eq!(*resolver.resolve(host, None).addresses().unwrap(), loopback);
    }
    assert_eq!(*resolver.resolve("::1", None).wait(LONG).await.unwrap(), loopback[1..]);
    tokio::task::yield_now().await;
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

/// An answer of the scripted nameserver.
#[derive(Clone)]
enum Scripted {
    Addresses(Vec<IpAddr>),
    Alias(&'static str),
    Code(u8),
    Silence,
    /// These addresses, over TCP alone.
    Large(Vec<IpAddr>),
}

/// A nameserver that answers by a function of name and type. It notes the names that it is asked for.
struct Nameserver {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

const A: u16 = 1;

impl Nameserver {
    async fn start(answer: impl Fn(&str, u16) -> Scripted + Send + Sync + 'static) -> Self {
        let (udp, tcp, address) = loop {
            let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let address = udp.local_addr().unwrap();
            // Another process may have the port for TCP.
            if let Ok(tcp) = TcpListener::bind(address).await {
                break (udp, tcp, address);
            }
        };
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (noted, answer) = (Arc::clone(&asked), Arc::new(answer));
        let over_tcp = Arc::clone(&answer);
        tokio::spawn(async move {
            let mut message = [0; 512];
            loop {
                let (length, from) = udp.recv_from(&mut message).await.unwrap();
                let (name, kind) = asked_for(&message[..length]);
                let scripted = answer(&name, kind);
                noted.lock().push(name);
                // One that another answers, and one that nobody has asked for.
                for (byte, changed) in [(0, 0x55), (13, 1)] {
                    let mut wrong = reply(&message[..length], Scripted::Code(3), true).unwrap();
                    wrong[byte] ^= changed;
                    udp.send_to(&wrong, from).await.unwrap();
                }
                if let Some(reply) = reply(&message[..length], scripted, true) {
                    udp.send_to(&reply, from).await.unwrap();
                }
            }
        });
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = tcp.accept().await.unwrap();
                let mut message = vec![0; stream.read_u16().await.unwrap().into()];
                stream.read_exact(&mut message).await.unwrap();
                let (name, kind) = asked_for(&message);
                let reply = reply(&message, over_tcp(&name, kind), false).unwrap();
                stream.write_u16(reply.len() as u16).await.unwrap();
                stream.write_all(&reply).await.unwrap();
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.asked.lock());
        asked.dedup();
        asked
    }
}

fn asked_for(message: &[u8]) -> (String, u16) {
    let (mut labels, mut at) = (Vec::new(), 12);
    while message[at] > 0 {
        let end = at + 1 + usize::from(message[at]);
        labels.push(String::from_utf8(message[at + 1..end].to_vec()).unwrap());
        at = end;
    }
    (labels.join("."), u16::from_be_bytes([message[at + 1], message[at + 2]]))
}

fn reply(question: &[u8], scripted: Scripted, udp: bool) -> Option<Vec<u8>> {
    let (_, kind) = asked_for(question);
    let (flags, code, records) = match scripted {
        Scripted::Silence => return None,
        Scripted::Code(code) => (0x81, code, Vec::new()),
        Scripted::Large(_) if udp => (0x83, 0, Vec::new()),
        Scripted::Addresses(addresses) | Scripted::Large(addresses) => {
            let own = addresses.into_iter().filter(|address| address.is_ipv4() == (kind == A));
            let data = own.map(|address| match address {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            });
            (0x81, 0, data.map(|data| (kind, data)).collect())
        }
        Scripted::Alias(target) => {
            let labels = target.split('.').map(|label| [&[label.len() as u8], label.as_bytes()].concat());
            (0x81, 0, vec![(5, [labels.collect::<Vec<_>>().concat(), vec![0]].concat())])
        }
    };
    let mut message = question.to_vec();
    message[2..4].copy_from_slice(&[flags, 0x80 | code]);
    message[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
    for (kind, data) in records {
        message.extend([0xc0, 12]);
        message.extend([kind, 1].into_iter().flat_map(u16::to_be_bytes));
        message.extend(30_u32.to_be_bytes());
        message.extend((data.len() as u16).to_be_bytes());
        message.extend(data);
    }
    Some(message)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The system's files in a folder, with nameservers on the port of this one.
fn files(folder: &Path, port: u16) -> SystemLookup {
    let paths = Paths { hosts: folder.join("hosts"), resolv_conf: folder.join("resolv.conf"), port };
    SystemLookup { system: System::new(paths), stub: Stub::default() }
}

fn key(host: &str) -> NameKey {
    NameKey { host: host.into(), servers: None }
}

fn addresses(outcome: LookupOutcome) -> Vec<IpAddr> {
    match outcome {
        LookupOutcome::Found(found) => found.v4.into_iter().chain(found.v6).flatten().collect(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_hosts_file_comes_first_whatever_else_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let server = Nameserver::start(|_, _| Scripted::Code(3)).await;
    fs::write(folder.path().join("hosts"), "192.0.2.1 Shop_Web_1\n2001:db8::1 shop_web_1 api.example.com\n")
        .unwrap();
    for text in [None, Some(""), Some("search a.test\n"), Some("nameserver 127.0.0.1\noptions ndots:5\n")] {
        let lookup = files(folder.path(), server.address.port());
        if let Some(text) = text {
            fs::write(folder.path().join("resolv.conf"), text).unwrap();
        }
        let found = addresses(lookup.lookup(&key("shop_web_1"), LONG).await);
        assert_eq!(found, [ip("192.0.2.1"), ip("2001:db8::1")], "{text:?}");
        assert_eq!(addresses(lookup.lookup(&key("api.example.com."), LONG).await), [ip("2001:db8::1")]);
    }
    assert_eq!(server.asked(), [""; 0]);
    // A file without a nameserver means the one on this machine.
    fs::remove_file(folder.path().join("resolv.conf")).unwrap();
    let lookup = files(folder.path(), server.address.port());
    assert_eq!(lookup.lookup(&key("shop_web_2"), LONG).await, LookupOutcome::Absent(Absence::NoName));
    assert_eq!(server.asked(), ["shop_web_2"]);
}

#[tokio::test]
async fn files_that_change_take_effect_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Nameserver::start(|_, _| Scripted::Addresses(vec![ip("192.0.2.53")])).await;
    let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
    write("hosts", "192.0.2.1 app\n");
    let lookup = files(folder.path(), server.address.port());
    let resolver = Resolver::with_lookup(Box::new(lookup), Arc::default(), Clock::default());
    let name = resolver.resolve("app", None);
    assert_eq!(*name.wait(LONG).await.unwrap(), [ip("192.0.2.1")]);
    let changes_to = async |address: &str| {
        let start = Instant::now();
        while *name.addresses().unwrap() != [ip(address)] {
            assert!(start.elapsed() < LONG, "{address}");
            sleep(Duration::from_millis(20)).await;
        }
    };
    write("hosts", "192.0.2.2 app\n");
    changes_to("192.0.2.2").await;
    write("hosts", "");
    changes_to("192.0.2.53").await;
    assert_eq!(server.asked(), ["app"]);
    write("resolv.conf", "search b.test\n");
    let start = Instant::now();
    while !server.asked().contains(&"app.b.test".to_owned()) {
        assert!(start.elapsed() < LONG);
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn names_are_asked_for_in_the_order_of_libc() {
    let folder = tempfile::tempdir().unwrap();
    let server = Nameserver::start(|name, _| match name {
        "api.example.com" | "app.b.test" => Scripted::Addresses(vec![ip("192.0.2.1")]),
        "api.example.com.a.test" => Scripted::Addresses(vec![ip("192.0.2.66")]),
        "other.a.test" => Scripted::Code(2),
        "other.b.test" | "timeout" => Scripted::Addresses(vec![ip("192.0.2.2"), ip("2001:db8::2")]),
        "timeout.a.test" => Scripted::Silence,
        _ => Scripted::Code(3),
    })
    .await;
    let text = "search a.test b.test\noptions ndots:5 timeout:1 attempts:1\n";
    fs::write(folder.path().join("resolv.conf"), text).unwrap();
    let lookup = files(folder.path(), server.address.port());
    let ask = async |host: &str| lookup.lookup(&key(host), LONG).await;
    assert_eq!(addresses(ask("api.example.com.").await), [ip("192.0.2.1")]);
    assert_eq!(server.asked(), ["api.example.com"]);
    assert_eq!(addresses(ask("api.example.com").await), [ip("192.0.2.66")]);
    assert_eq!(server.asked(), ["api.example.com.a.test"]);
    assert_eq!(addresses(ask("app").await), [ip("192.0.2.1")]);
    assert_eq!(server.asked(), ["app.a.test", "app.b.test"]);
    assert_eq!(ask("none").await, LookupOutcome::Absent(Absence::NoName));
    assert_eq!(server.asked(), ["none.a.test", "none.b.test", "none"]);
    let LookupOutcome::Found(found) = ask("other").await else { panic!() };
    assert!(found.doubt.unwrap().contains("SERVFAIL"));
    assert!(
        matches!(ask("timeout").await, LookupOutcome::Failed(reason) if reason.contains("no answer in time"))
    );
}

#[tokio::test]
async fn the_next_nameserver_is_asked_where_one_fails() {
    let good = Nameserver::start(|_, _| Scripted::Addresses(vec![ip("192.0.2.1")])).await;
    let silent = Nameserver::start(|_, _| Scripted::Silence).await;
    let failing = Nameserver::start(|_, _| Scripted::Code(2)).await;
    let closed = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
    let stub = Stub::default();
    let lookup = async |servers: &[SocketAddr]| {
        let start = Instant::now();
        let servers = Nameservers::new(servers.to_vec());
        (addresses(stub.lookup(&servers, &["a.test".into()], LONG).await), start.elapsed())
    };
    let expected = vec![ip("192.0.2.1")];
    assert_eq!(lookup(&[failing.address, closed, good.address]).await.0, expected);
    let (found, took) = lookup(&[silent.address, good.address]).await;
    assert_eq!(found, expected);
    assert!((Duration::from_millis(900)..Duration::from_secs(4)).contains(&took), "{took:?}");
    let all_fail = Nameservers::new(vec![failing.address, closed]);
    let LookupOutcome::Failed(reason) = stub.lookup(&all_fail, &["a.test".into()], LONG).await else {
        panic!()
    };
    assert!(reason.contains("127.0.0.1"), "{reason}");
}

#[tokio::test]
async fn families_aliases_and_large_answers() {
    let many: Vec<IpAddr> = (1..=100).map(|last| [192, 0, 2, last].into()).collect();
    let large = many.clone();
    let server = Nameserver::start(move |name, kind| match (name, kind) {
        ("large.test", _) => Scripted::Large(large.clone()),
        ("www.test", _) => Scripted::Alias("a.test"),
        ("circle.test", _) => Scripted::Alias("circle.test"),
        ("six.test", A) => Scripted::Code(2),
        ("slow.test", A) => Scripted::Addresses(vec![ip("192.0.2.1")]),
        ("slow.test", _) => Scripted::Silence,
        ("none.test", A) => Scripted::Addresses(Vec::new()),
        ("none.test", _) => Scripted::Code(3),
        _ => Scripted::Addresses(vec![ip("192.0.2.1"), ip("2001:db8::1")]),
    })
    .await;
    let (stub, servers) = (Stub::default(), Nameservers::new(vec![server.address]));
    let lookup = async |name: &str| stub.lookup(&servers, &[name.into()], Duration::from_millis(50)).await;
    assert_eq!(addresses(lookup("large.test").await), many);
    assert_eq!(addresses(lookup("www.test").await), [ip("192.0.2.1"), ip("2001:db8::1")]);
    assert!(matches!(lookup("circle.test").await, LookupOutcome::Failed(_)));
    let LookupOutcome::Found(six) = lookup("six.test").await else { panic!() };
    assert_eq!((six.v4, six.v6), (None, Some(vec![ip("2001:db8::1")])));
    let start = Instant::now();
    let LookupOutcome::Found(slow) = lookup("slow.test").await else { panic!() };
    assert_eq!((slow.v4, slow.v6), (Some(vec![ip("192.0.2.1")]), None));
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(lookup("none.test").await, LookupOutcome::Absent(Absence::NoAddress));
    for variant in [
        Nameservers { tcp: true, ..servers.clone() },
        Nameservers { one_at_a_time: true, rotate: true, ..servers.clone() },
    ] {
        assert_eq!(addresses(stub.lookup(&variant, &["a.test".into()], LONG).await).len(), 2);
    }
    let only_v4 = Nameservers { only_v4: true, ..servers };
    assert_eq!(addresses(stub.lookup(&only_v4, &["a.test".into()], LONG).await), [ip("192.0.2.1")]);
}

#[tokio::test]
async fn a_name_without_address_is_soon_asked_for_again_when_it_is_needed() {
    let failed = || LookupOutcome::Failed("SERVFAIL".into());
    let (resolver, asked) = scripted(vec![failed(), failed(), failed(), answer(1, 60)]);
    let name = resolver.resolve("origin.test", None);
    let start = Instant::now();
    // Without the request, the lookups would take 1 + 2 + 4 seconds.
    while name.wait(LONG).await.is_none() {
        assert!(start.elapsed() < Duration::from_secs(6));
        sleep(Duration::from_millis(50)).await;
    }
    assert!(start.elapsed() > Duration::from_secs(2), "but not at every request");
    assert_eq!((asked.load(Ordering::Relaxed), name.counters().addresses.get()), (4, 1));
    assert_eq!(resolver.shared.source.metrics.name_lookups.failed.get(), 3);
}

#[path = "../../../../fuzz/targets/names.rs"]
mod target;

/// The corpus of the fuzz target `name_answers`, cut and with small changes.
#[test]
fn answers_of_the_corpus_are_read_with_any_change() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/name_answers");
    let files = fs::read_dir(corpus).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    let files: Vec<Vec<u8>> = files.collect();
    assert!(files.len() >= 8, "the corpus is there");
    for file in files {
        target::name_answers(&file);
        for at in 0..file.len() {
            target::name_answers(&file[..at]);
            for changed in [0, 1, 0xc0, 0xff] {
                let mut other = file.clone();
                other[at] = changed;
                target::name_answers(&other);
            }
        }
    }
}

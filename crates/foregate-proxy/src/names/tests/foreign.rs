//! Names over nameservers of others: dnsmasq, which answers from a hosts file, and Knot DNS, which serves zones.

use std::process::{Child, Command};

use super::*;

/// A nameserver that reads its records again on SIGHUP.
struct ForeignServer {
    process: Child,
    address: SocketAddr,
}

impl ForeignServer {
    /// dnsmasq with these records, and with those of a hosts file.
    fn dnsmasq(hosts: &Path, records: &[&str]) -> Self {
        let address = free_address();
        let mut command = daemon("dnsmasq");
        command.args(["--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--user="]);
        command.args(["--listen-address=127.0.0.1", "--bind-interfaces", "--no-resolv", "--no-hosts"]);
        command.args([format!("--port={}", address.port()), format!("--addn-hosts={}", hosts.display())]);
        let process = command.args(records).spawn().expect("dnsmasq is installed by `make test-names`");
        Self { process, address }
    }

    /// Knot DNS with the zone `test` of `test.zone` in a folder.
    fn knot(folder: &Path, address: SocketAddr) -> Self {
        let configuration = folder.join("knot.conf");
        let at = folder.display();
        let text = format!(
            "server:\n    listen: 127.0.0.1@{port}\n    rundir: {at}\n    pidfile: {at}/pid\n\
             log:\n  - target: stderr\n    any: error\n\
             database:\n    storage: {at}\n\
             zone:\n  - domain: test\n    storage: {at}\n    file: test.zone\n    zonefile-sync: -1\n    journal-content: none\n",
            port = address.port()
        );
        fs::write(&configuration, text).unwrap();
        let process = daemon("knotd").arg("-c").arg(&configuration).spawn();
        Self { process: process.expect("knotd is installed by `make test-names`"), address }
    }

    fn reload(&self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    }
}

impl Drop for ForeignServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_address() -> SocketAddr {
    std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

fn daemon(program: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// Waits until the name has this many addresses.
async fn expect(name: &Arc<ResolvedName>, count: usize) -> Vec<IpAddr> {
    let start = Instant::now();
    loop {
        let found = name.wait(LONG).await.unwrap_or_default();
        if found.len() == count {
            return found.to_vec();
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{name:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
#[ignore = "needs dnsmasq: `make test-names`"]
async fn a_nameserver_of_others_is_understood() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("records");
    let many: Vec<String> = (1..=100).map(|last| format!("127.1.0.{last} many.test\n")).collect();
    fs::write(&hosts, format!("127.0.0.9 moves.test\n{}", many.concat())).unwrap();
    let records = [
        "--host-record=shop_web_1.test,127.0.0.1,::1",
        "--cname=www.test,alias.test",
        "--cname=alias.test,shop_web_1.test",
        "--local=/test/",
        "--srv-host=_http._tcp.app.test,shop_web_1.test,8080,10,3",
        "--srv-host=_http._tcp.app.test,many.test,8081,20,1",
        "--local-ttl=1",
    ];
    let server = ForeignServer::dnsmasq(&hosts, &records);
    let resolver = Resolver::new(Arc::default(), Clock::default());
    let servers: Arc<[SocketAddr]> = [server.address].into();
    let resolve = |host: &str| resolver.resolve(host, Some(&servers));
    let both = [ip("::1"), ip("127.0.0.1")];
    assert_eq!(expect(&resolve("shop_web_1.test"), 2).await, both);
    assert_eq!(expect(&resolve("www.test."), 2).await, both);
    assert_eq!(expect(&resolve("many.test"), 100).await.len(), 100);
    let service = resolver.service("_http._tcp.app.test", Some(&servers));
    service.looked_up().await;
    let shown = service.servers().unwrap();
    let shown: Vec<_> =
        shown.iter().map(|server| (&*server.host, server.port, server.rank, server.weight)).collect();
    assert_eq!(shown, [("shop_web_1.test.", 8080, 0, 3), ("many.test.", 8081, 1, 1)]);
    let missing = resolver.service("_http._tcp.none.test", Some(&servers));
    missing.looked_up().await;
    assert!(missing.servers().is_none());
    let none = resolve("none.test");
    while !none.is_absent() {
        sleep(Duration::from_millis(50)).await;
    }
    let moves = resolve("moves.test");
    assert_eq!(expect(&moves, 1).await, [ip("127.0.0.9")]);
    fs::write(&hosts, "127.0.0.10 moves.test\n127.0.0.11 moves.test\n").unwrap();
    server.reload();
    expect(&moves, 2).await;
    fs::write(&hosts, "").unwrap();
    server.reload();
    assert!(expect(&moves, 0).await.is_empty() && moves.is_absent());
}

/// The zone `test` with this serial number, the addresses of `moves` and that of `keeps`.
fn write_zone(folder: &Path, serial: u32, moves: &[&str], keeps: &str) {
    let mut zone = format!(
        "$ORIGIN test.\n@ 60 SOA ns admin {serial} 60 60 600 1\n@ 60 NS ns\nns 60 A 127.0.0.1\n\
         shop_web_1 60 A 127.0.0.1\nshop_web_1 60 AAAA ::1\nwww 60 CNAME alias\nalias 60 CNAME shop_web_1\n\
         *.wild 60 A 127.0.0.2\ntext 60 TXT \"no address\"\nkeeps 300 A {keeps}\n\
         _http._tcp.app 60 SRV 10 3 8080 shop_web_1\n_http._tcp.app 60 SRV 20 1 8081 many\n\
         _http._tcp.off 60 SRV 0 0 0 .\n"
    );
    for last in 1..=120 {
        zone.push_str(&format!("many 60 A 127.1.0.{last}\n"));
    }
    for address in moves {
        zone.push_str(&format!("moves 1 A {address}\n"));
    }
    fs::write(folder.join("test.zone"), zone).unwrap();
}

#[tokio::test]
#[ignore = "needs Knot DNS: `make test-names`"]
async fn a_nameserver_of_others_with_zones_is_understood() {
    let folder = tempfile::tempdir().unwrap();
    write_zone(folder.path(), 1, &["127.0.0.9"], "127.0.0.20");
    let address = free_address();
    let server = ForeignServer::knot(folder.path(), address);
    let resolver = Resolver::new(Arc::default(), Clock::default());
    let servers: Arc<[SocketAddr]> = [address].into();
    let resolve = |host: &str| resolver.resolve(host, Some(&servers));
    let both = [ip("::1"), ip("127.0.0.1")];
    assert_eq!(expect(&resolve("shop_web_1.test"), 2).await, both);
    assert_eq!(expect(&resolve("www.test."), 2).await, both);
    assert_eq!(expect(&resolve("any.wild.test"), 1).await, [ip("127.0.0.2")]);
    // The answer has 1,920 bytes of addresses: it is cut off over UDP, and comes over TCP.
    assert_eq!(expect(&resolve("many.test"), 120).await.len(), 120);
    let service = resolver.service("_http._tcp.app.test", Some(&servers));
    service.looked_up().await;
    let shown = service.servers().unwrap();
    let shown: Vec<_> =
        shown.iter().map(|server| (&*server.host, server.port, server.rank, server.weight)).collect();
    assert_eq!(shown, [("shop_web_1.test.", 8080, 0, 3), ("many.test.", 8081, 1, 1)]);
    // A target of "." means that there is no such service (RFC 2782).
    let off = resolver.service("_http._tcp.off.test", Some(&servers));
    off.looked_up().await;
    assert!(off.servers().is_none_or(|servers| servers.is_empty()));
    // NXDOMAIN, and a name that has other records alone.
    for host in ["none.test", "text.test"] {
        let none = resolve(host);
        let start = Instant::now();
        while !none.is_absent() {
            assert!(start.elapsed() < Duration::from_secs(30), "{none:?}");
            sleep(Duration::from_millis(50)).await;
        }
        assert!(none.addresses().is_none_or(|addresses| addresses.is_empty()));
    }
    let (moves, keeps) = (resolve("moves.test"), resolve("keeps.test"));
    assert_eq!(expect(&moves, 1).await, [ip("127.0.0.9")]);
    assert_eq!(expect(&keeps, 1).await, [ip("127.0.0.20")]);
    write_zone(folder.path(), 2, &["127.0.0.10", "127.0.0.11"], "127.0.0.21");
    server.reload();
    expect(&moves, 2).await;
    assert_eq!(expect(&keeps, 1).await, [ip("127.0.0.20")], "its TTL is five minutes");
    // No server answers: the last good answer stays, until the next server's replaces it.
    drop(server);
    let failed = || resolver.shared.source.metrics.name_lookups.failed.get();
    let (before, start) = (failed(), Instant::now());
    while failed() < before + 2 {
        assert!(start.elapsed() < Duration::from_secs(30));
        moves.wait(LONG).await;
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(expect(&moves, 2).await.len(), 2);
    assert!(!moves.is_absent());
    write_zone(folder.path(), 3, &["127.0.0.12", "127.0.0.13", "127.0.0.14"], "127.0.0.21");
    let _server = ForeignServer::knot(folder.path(), address);
    expect(&moves, 3).await;
}

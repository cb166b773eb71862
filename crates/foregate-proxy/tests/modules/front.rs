//! The proxy of the tests, the origins behind it, and their clients.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use foregate_module::PlanBuilder;
use foregate_proxy::configuration::Settings;
use foregate_proxy::routing::{HostPattern, SiteTableBuilder};
use foregate_proxy::server;
use foregate_proxy::settings::{
    AccessLogSettings, Action, Listen, ListenAddress, LogTarget, Route, RoutePlan, ServerSettings,
    SiteOptions, UpstreamSettings,
};

use crate::steps::steps;

/// A proxy in front of an origin that echoes its input, and of a silent one.
pub struct Front {
    pub address: SocketAddr,
    metrics: SocketAddr,
    pub log: std::path::PathBuf,
    /// The log file of the steps.
    pub lines: std::path::PathBuf,
}

/// The proxy of all tests.
pub fn front() -> &'static Front {
    static FRONT: OnceLock<Front> = OnceLock::new();
    FRONT.get_or_init(|| start(1024))
}

pub fn start(queue: usize) -> Front {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_address = silent.local_addr().unwrap();
    thread::spawn(move || {
        // Kept open, never answered.
        let _kept: Vec<_> = silent.incoming().collect();
    });
    let address = free_address();
    let metrics = free_address();
    let log = std::env::temp_dir().join(format!("foregate-modules-{}-{queue}.log", std::process::id()));
    let lines = log.with_extension("lines");
    let pipeline = Arc::new(steps());
    let mut sites = SiteTableBuilder::default();
    let pattern = sites.pattern("/**").unwrap();
    let plan = RoutePlan::new(PlanBuilder::new(&pipeline).build(true));
    let route = Route { plan, ..Route::new(pattern.text().clone(), Action::Proxy(0)) };
    let route = sites.route(route);
    let routes = sites.route_set(vec![(pattern, route)]).unwrap();
    let site = sites.site("*".into(), SiteOptions::default(), routes);
    sites.host(site, &HostPattern::Any).unwrap();
    let upstream = |name, address: SocketAddr| {
        let address = address.to_string().parse().unwrap();
        Arc::new(UpstreamSettings::new(name, vec![ServerSettings::new(address)]))
    };
    let mut settings = Settings::new(pipeline);
    settings.workers = std::num::NonZeroUsize::new(1);
    settings.offload_threads = std::num::NonZeroUsize::new(1);
    settings.limits.offload_queue = queue;
    settings.listeners.push(Listen::new(ListenAddress::Tcp(address)));
    settings.metrics = Some(metrics);
    settings.access_logs.push(AccessLogSettings::json(log.clone()));
    settings.logs = vec![LogTarget::file(&lines)];
    settings.upstreams = vec![upstream("echo", echo()), upstream("silent", silent_address)];
    settings.sites = sites.build();
    // The proxy runs until the process ends.
    thread::spawn(move || {
        server::run(settings, Arc::new(|| Err("this test reloads nothing".to_owned())), None)
    });
    Front { address, metrics, log, lines }
}

/// An origin that answers with the head and the body that it got; with 500 on `/broken`, with 206
/// on `/partly`.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || answer(stream.unwrap()));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    let mut got = Vec::new();
    let mut buffer = [0; 4096];
    while !is_whole(&got) {
        match stream.read(&mut buffer) {
            Ok(read) if read > 0 => got.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
    let asks = |path: &[u8]| got.windows(path.len()).any(|part| part == path);
    let status = match () {
        () if asks(b"/broken") => "500 Oops",
        () if asks(b"/partly") => "206 Partial Content",
        () => "200 OK",
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nETag: \"a\"\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        got.len()
    );
    stream.write_all(&[head.as_bytes(), &got].concat()).unwrap();
}

/// Returns true if a request has arrived with all of its body.
fn is_whole(got: &[u8]) -> bool {
    let text = String::from_utf8_lossy(got).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    match length {
        Some(length) => body.len() >= length.parse().unwrap(),
        None => !head.contains("chunked") || body.ends_with("0\r\n\r\n"),
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => {
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                return stream;
            }
            Err(error) => assert!(Instant::now() < deadline, "the proxy does not listen: {error}"),
        }
        thread::yield_now();
    }
}

pub fn send(front: &Front, method: &str, path: &str, field: &str, body: &str) -> TcpStream {
    let mut stream = connect(front.address);
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: a\r\n{field}: 1\r\n{length}Connection: close\r\n\r\n{body}"
    )
    .unwrap();
    stream
}

pub fn receive(mut stream: TcpStream) -> String {
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    String::from_utf8_lossy(&got).into_owned()
}

pub fn ask(method: &str, path: &str, field: &str, body: &str) -> String {
    receive(send(front(), method, path, field, body))
}

/// A metric of the proxy, 0 where it is not shown.
pub fn metric(front: &Front, name: &str) -> u64 {
    let mut stream = connect(front.metrics);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let text = receive(stream);
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

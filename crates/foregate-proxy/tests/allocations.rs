//! Heap allocations of a proxied HTTP/1 request in steady state, counted.
//!
//! Client and origin are plain sockets on threads that do not count, so that only the proxy's own
//! remain. With `FOREGATE_ALLOCATIONS=trace` in the environment, the stacks of the counted
//! allocations are printed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at what they do not expect")]
#![allow(clippy::print_stdout, reason = "what was counted is told")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foregate_proxy::address::ServerAddress;
use foregate_proxy::configuration::Settings;
use foregate_proxy::routing::{HostPattern, SiteTableBuilder};
use foregate_proxy::server;
use foregate_proxy::settings::{
    AccessLogSettings, Action, Listen, ListenAddress, Route, ServerSettings, SiteOptions, UpstreamSettings,
};
use parking_lot::Mutex;

/// The largest average number of allocations of a request. Two would still be fine, none is needed:
/// the rest is room for occasional work of the process.
const LIMIT: f64 = 0.5;
/// Requests on the connection before counting starts: pools, buffers and tables have their size
/// then.
const WARM_UP: usize = 200;
const REQUESTS: usize = 2_000;
const BODY: usize = 1024;
/// Stacks that are shown at most.
const SHOWN: usize = 12;

const GET: &str = "GET /a/page?of=1 HTTP/1.1\r\nHost: site.test\r\nUser-Agent: allocations\r\nAccept: */*\r\n\
    Accept-Encoding: gzip\r\nCookie: a=b; c=d\r\n\r\n";
const POST: &str = "POST /a/form HTTP/1.1\r\nHost: site.test\r\nContent-Type: text/plain\r\n\
    Content-Length: 1024\r\n\r\n";
const FIXED: &str = "HTTP/1.1 200 OK\r\nServer: origin\r\nContent-Type: text/plain\r\n\
    Date: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Length: 1024\r\n\r\n";
const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n";

static COUNTING: AtomicBool = AtomicBool::new(false);
static TRACING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static STACKS: Mutex<Option<HashMap<String, u64>>> = Mutex::new(None);

thread_local! {
    /// Set if this thread is excluded: those of the test, and any while it records a stack.
    static LEFT_OUT: Cell<bool> = const { Cell::new(false) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The system's allocator, counted.
struct Counting;

// SAFETY: all memory is the system allocator's; what is done besides uses atomics and thread-locals
// without destructors, and notes a stack only where that cannot call itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are those that are asked for here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn count(size: usize) {
    if !COUNTING.load(Ordering::Relaxed) || LEFT_OUT.get() {
        return;
    }
    COUNT.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(size as u64, Ordering::Relaxed);
    if TRACING.load(Ordering::Relaxed) {
        LEFT_OUT.set(true);
        let stack = format!("{size} bytes\n{}", Backtrace::force_capture());
        *STACKS.lock().get_or_insert_default().entry(stack).or_default() += 1;
        LEFT_OUT.set(false);
    }
}

#[test]
fn a_kept_alive_request_allocates_nothing() {
    LEFT_OUT.set(true);
    TRACING.store(std::env::var_os("FOREGATE_ALLOCATIONS").is_some(), Ordering::Relaxed);
    let log = std::env::temp_dir().join(format!("foregate-allocations-{}.log", std::process::id()));
    let mut wrong = Vec::new();
    for (name, request, answer, log) in [
        ("GET, fixed length", GET, FIXED, None),
        ("GET, access log", GET, FIXED, Some(log.clone())),
        ("GET, chunked", GET, CHUNKED, None),
        ("POST of 1 KiB", POST, FIXED, None),
    ] {
        let per_request = measure(name, &Exchange::new(request, answer), log);
        if per_request > LIMIT {
            wrong.push(format!("{name}: {per_request:.2} allocations a request"));
        }
    }
    std::fs::remove_file(&log).unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The bytes of one request and of its answer.
struct Exchange {
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Exchange {
    fn new(request: &str, answer: &str) -> Self {
        let body = vec![b'x'; BODY];
        let mut request = request.as_bytes().to_vec();
        if request.starts_with(b"POST") {
            request.extend_from_slice(&body);
        }
        let mut whole = answer.as_bytes().to_vec();
        whole.extend_from_slice(&body);
        if answer == CHUNKED {
            whole.extend_from_slice(b"\r\n0\r\n\r\n");
        }
        Self { request, answer: whole }
    }
}

/// Starts an origin and a proxy of its own, and gives the allocations per request after warming up.
fn measure(name: &str, exchange: &Exchange, access_log: Option<PathBuf>) -> f64 {
    let origin = origin(exchange);
    let front = free_address();
    let settings = settings(front, origin, access_log);
    // The proxy runs until the process ends.
    thread::spawn(move || {
        server::run(settings, Arc::new(|| Err("this test reloads nothing".to_owned())), None)
    });
    let mut client = connect(front);
    let mut buffer = vec![0; 16 * 1024];
    for _ in 0..WARM_UP {
        ask(&mut client, exchange, &mut buffer);
    }
    COUNT.store(0, Ordering::Relaxed);
    BYTES.store(0, Ordering::Relaxed);
    COUNTING.store(true, Ordering::Relaxed);
    for _ in 0..REQUESTS {
        ask(&mut client, exchange, &mut buffer);
    }
    COUNTING.store(false, Ordering::Relaxed);
    let (count, bytes) = (COUNT.load(Ordering::Relaxed) as f64, BYTES.load(Ordering::Relaxed) as f64);
    let requests = REQUESTS as f64;
    println!("{name}: {:.3} allocations, {:.0} bytes a request", count / requests, bytes / requests);
    show_stacks();
    count / requests
}

/// Sends one request and reads its answer to the end. The proxy passes chunks on as they are or as
/// others, so only the end of a chunked body is looked at.
fn ask(client: &mut TcpStream, exchange: &Exchange, buffer: &mut [u8]) {
    client.write_all(&exchange.request).unwrap();
    let mut filled = 0;
    loop {
        let read = client.read(&mut buffer[filled..]).unwrap();
        assert!(read > 0, "the proxy closed the connection");
        filled += read;
        let got = &buffer[..filled];
        assert!(got.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(got));
        if let Some(head) = got.windows(4).position(|four| four == b"\r\n\r\n") {
            let body = &got[head + 4..];
            let chunked = exchange.answer.ends_with(b"0\r\n\r\n");
            if if chunked { body.ends_with(b"0\r\n\r\n") } else { body.len() == BODY } {
                return;
            }
        }
    }
}

/// An origin that answers each request on each connection alike.
fn origin(exchange: &Exchange) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = exchange.answer.clone();
    let uploads = exchange.request.starts_with(b"POST");
    thread::spawn(move || {
        LEFT_OUT.set(true);
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), answer.clone());
            thread::spawn(move || {
                LEFT_OUT.set(true);
                let mut buffer = vec![0; 16 * 1024];
                let mut filled = 0;
                loop {
                    match stream.read(&mut buffer[filled..]) {
                        Ok(read) if read > 0 => filled += read,
                        _ => return,
                    }
                    let head = buffer[..filled].windows(4).position(|four| four == b"\r\n\r\n");
                    let wanted = head.map(|head| head + 4 + if uploads { BODY } else { 0 });
                    if wanted.is_some_and(|wanted| filled >= wanted) {
                        filled = 0;
                        stream.write_all(&answer).unwrap();
                    }
                }
            });
        }
    });
    address
}

fn settings(front: SocketAddr, origin: SocketAddr, access_log: Option<PathBuf>) -> Settings {
    let address: ServerAddress = origin.to_string().parse().unwrap();
    let mut sites = SiteTableBuilder::default();
    let pattern = sites.pattern("/**").unwrap();
    let route = sites.route(Route::new(pattern.text().clone(), Action::Proxy(0)));
    let routes = sites.route_set(vec![(pattern, route)]).unwrap();
    let site = sites.site("*".into(), SiteOptions::default(), routes);
    sites.host(site, &HostPattern::Any).unwrap();
    let mut settings = Settings::new(Arc::default());
    settings.workers = std::num::NonZeroUsize::new(2);
    settings.listeners.push(Listen::new(ListenAddress::Tcp(front)));
    settings.access_logs.extend(access_log.map(AccessLogSettings::json));
    settings.upstreams.push(Arc::new(UpstreamSettings::new("origin", vec![ServerSettings::new(address)])));
    settings.sites = sites.build();
    settings
}

/// An address that nothing listens on.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn connect(front: SocketAddr) -> TcpStream {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpStream::connect(front) {
            Ok(stream) => {
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                return stream;
            }
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        thread::yield_now();
    }
}

/// Prints where the counted allocations came from, the most frequent first.
fn show_stacks() {
    let Some(stacks) = STACKS.lock().take() else { return };
    let mut stacks: Vec<_> = stacks.into_iter().collect();
    stacks.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (stack, count) in stacks.iter().take(SHOWN) {
        let ours = stack.lines().filter(|line| !line.contains("/rustc/"));
        println!("{count} times {}", ours.collect::<Vec<_>>().join("\n"));
    }
}

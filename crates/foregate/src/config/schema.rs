//! Every key of the configuration: one table that the reader, the documentation, `check --show-defaults` and the
//! tests share.

pub use foregate_config::schema::{
    ANY, Block, GENERIC, INCLUDE_KEY, Key, LIST, LIST_KEY, Path, Prop, walk_keys,
};

/// Whether this is a key of ours at the top of the file, in a site or in a route: where those of modules stand.
pub fn is_key(name: &str) -> bool {
    [&ROOT, &SITE, &ROUTE].iter().any(|block| block.keys.iter().any(|key| key.name == name))
}

/// The outermost level of a file.
pub static ROOT: Block = Block {
    keys: &[
        Key::one("workers", "NUMBER", "workers 4", "Worker threads, 1 to 1024.").otherwise("one for each core"),
        Key::one("offload-threads", "NUMBER", "offload-threads 2", "Threads for the heavy steps of modules, such as the check of a password, 1 to 1024. They start when there is work for them; a change takes effect at the next start.").otherwise("as many as workers"),
        Key::one("listen", "ADDRESS { ... }", "listen \"0.0.0.0:8080\"", "Accepts connections: `IP:PORT`, `[IPV6]:PORT`, `:PORT` for all addresses of the machine, `unix:PATH`. Speaks HTTP/1.1 and HTTP/2 on the same port.")
            .with(&LISTEN)
            .many()
            .required(),
        Key::one("metrics", "ADDRESS", "metrics \"127.0.0.1:9145\"", "Serves Prometheus metrics at `/metrics`.").otherwise("off"),
        Key::one("admin", "PATH", "admin \"/run/foregate/admin.sock\"", "The Unix socket that `foregate reload` talks to; mode 0600.").otherwise("off"),
        Key::one("access-log", "FILE", "access-log \"access.log\"", "Writes one JSON line per request.").otherwise("off"),
        Key::one("temporary-folder", "PATH", "temporary-folder \"/var/tmp\"", "Where bodies are kept that modules look at and that are too long for memory, in files without names; see `limits { filter-files }`. Not one in memory, such as `tmpfs`.").otherwise("`TMPDIR`, or `/tmp`"),
        Key::block("limits", &LIMITS, "limits { head-fields 200 }", "Limits of size and count towards clients."),
        Key::block("timeouts", &TIMEOUTS, "timeouts { head \"5s\" }", "Time limits towards clients."),
        Key::one("upstream", "NAME { ... }", "upstream \"app\" { server \"127.0.0.1:3000\" }", "A group of origin servers that are used alike.")
            .with(&UPSTREAM)
            .many(),
        Key::one("site", "HOST... { ... }", "site \"example.com\" \"*.example.com\" { route \"/**\" { respond 204 } }", "What answers for these hosts: a name or address without a port, `*.NAME` for every name below (at any depth, not the name itself), `*` for every other host.")
            .args(1, ANY)
            .with(&SITE)
            .many(),
        LIST_KEY,
        INCLUDE_KEY,
    ],
    later: &["cache", "module", "modules", "log", "resolver"],
};

/// The block of `listen`.
pub static LISTEN: Block = Block {
    keys: &[
        Key::block("tls", &LISTEN_TLS, "tls { certificate \"site.pem\" key=\"site.key\" }", "Speaks TLS.").otherwise("cleartext"),
        Key::one("proxy-protocol", "BLOCK...", "proxy-protocol \"10.0.0.0/8\"", "Peers in these address blocks must start each connection with a PROXY protocol header (v1, or v2 with at most 4 KiB of addresses and TLVs), and are believed. A listener on a Unix socket that has this key demands it of every peer, whatever the blocks.")
            .args(1, ANY)
            .otherwise("from nobody"),
        Key::flag("reuse-port", "#false", "reuse-port", "Binds with `SO_REUSEPORT`, so that another process may share the port. It has to have its own `metrics` and `admin`, which are never shared."),
        Key::one("backlog", "NUMBER", "backlog 511", "Length of the kernel's accept queue, which the kernel caps at `net.core.somaxconn`.").default("4096"),
        Key::flag("http2", "#true", "http2 #false", "Offers HTTP/2: by ALPN with TLS, by prior knowledge without."),
        Key::flag("half-close", "#true", "half-close #false", "Goes on answering a client over HTTP/1 that has ended its side of the connection. With `#false` it is taken to have gone: its request at the origin ends, and so does the connection."),
    ],
    later: &["http3", "quic"],
};

/// The block of `listen { tls }`.
pub static LISTEN_TLS: Block = Block {
    keys: &[
        CERTIFICATE.required(),
        MINIMUM_VERSION.default("\"1.2\""),
        CLIENT_CERTIFICATES.otherwise("not asked for"),
    ],
    later: &["acme", "ciphers", "ocsp"],
};

/// The block of `site { tls }`.
pub static SITE_TLS: Block = Block {
    keys: &[
        CERTIFICATE,
        MINIMUM_VERSION.otherwise("the listener's"),
        CLIENT_CERTIFICATES.otherwise("as the listener has it"),
    ],
    later: &["acme", "ciphers", "ocsp"],
};

const CERTIFICATE: Key = Key::one("certificate", "FILE key=FILE", "certificate \"site.pem\" key=\"site.key\"", "A certificate chain, leaf first, and its key, both PEM. Chosen by SNI: the exact name, a wildcard, the first one. Changed files are picked up without a restart.")
    .props(&[Prop { name: "key", usage: "FILE", required: true, default: "", about: "The private key: PKCS#8, PKCS#1 or SEC1." }])
    .many();

const MINIMUM_VERSION: Key =
    Key::one("minimum-version", "\"1.2\"|\"1.3\"", "minimum-version \"1.3\"", "The lowest TLS version.");

const CLIENT_CERTIFICATES: Key = Key::one(
    "client-certificates",
    "FILE mode=MODE",
    "client-certificates \"ca.pem\" mode=\"optional\"",
    "Asks clients for a certificate that leads to one of the authorities in a PEM file.",
)
.props(&[Prop {
    name: "mode",
    usage: "\"required\"|\"optional\"",
    required: false,
    default: "\"required\"",
    about: "Whether a client without a certificate is refused. A site that requires one itself answers requests in the clear with 421; what a listener asks for holds for that listener alone.",
}]);

/// The block of `limits`.
pub static LIMITS: Block = Block {
    keys: &[
        Key::one("head-bytes", "SIZE", "head-bytes \"32KiB\"", "Bytes of a request or response head, at most 128 KiB. Beyond: 431, or 502 for an origin.").default("\"64KiB\""),
        Key::one("head-line", "SIZE", "head-line \"8KiB\"", "Bytes of one line of a head. Beyond: 431, or 414 for the request line.").default("\"16KiB\""),
        Key::one("head-fields", "NUMBER", "head-fields 100", "Fields of a head. Beyond: 431.").default("128"),
        Key::one("requests-per-connection", "NUMBER", "requests-per-connection 1000", "Requests on one connection, then it is closed gracefully.").default("10000"),
        Key::one("connections", "NUMBER", "connections 10000", "Client connections. Beyond: accepting pauses.").otherwise("the lesser of 50000 and half the descriptor limit less 64"),
        Key::one("connections-per-client", "NUMBER", "connections-per-client 100", "Connections from one client address; all of an IPv6 network of 64 bits are one client. Beyond: closed at once. What connections to origins its requests may take, see Starting in operations.md.").default("1024"),
        Key::one("early-response-drain", "SIZE", "early-response-drain \"1MiB\"", "Bytes of a request's body that are read and dropped while an early response is sent, and after it. Beyond: the rest stays unread, and the connection closes once the client has had the time for the response. Over HTTP/2 it is read after the response alone, as long as some comes every 200 ms; beyond, the stream is reset (NO_ERROR).").default("\"64KiB\""),
        Key::one("client-hello", "SIZE", "client-hello \"32KiB\"", "Bytes of a TLS ClientHello. Beyond: close.").default("\"64KiB\""),
        Key::one("h2-streams", "NUMBER", "h2-streams 250", "Concurrent HTTP/2 streams of a connection. Beyond: REFUSED_STREAM.").default("100"),
        Key::one("h2-stream-window", "SIZE", "h2-stream-window \"256KiB\"", "HTTP/2 flow-control window of a stream, to begin with.").default("\"64KiB\""),
        Key::one("h2-largest-window", "SIZE", "h2-largest-window \"16MiB\"", "What the window of a stream may grow to while its origin takes a body as fast as it comes: at 100 ms round trip 4 MiB are 40 MB/s. No more than `h2-stream-window`: it never grows. The windows of a connection may grow by twice as much together, those of all connections by an eighth of `memory`, of which one client may have `filter-per-client`, and none while more than a quarter of `memory` is held.").default("\"4MiB\""),
        Key::one("h2-connection-window", "SIZE", "h2-connection-window \"2MiB\"", "HTTP/2 flow-control window of a connection, to begin with. Frames of bodies that nobody has taken yet, and that hold next to nothing, may cost four times as much memory beside. Beyond: GOAWAY.").default("\"1MiB\""),
        Key::one("h2-header-table", "SIZE", "h2-header-table \"8KiB\"", "HPACK dynamic table.").default("\"4KiB\""),
        Key::one("h2-resets-burst", "NUMBER", "h2-resets-burst 200", "Premature stream resets, of either side, and requests whose decoded heads are beyond `head-bytes`, before the rate counts. Beyond both: GOAWAY.").default("100"),
        Key::one("h2-resets-rate", "NUMBER", "h2-resets-rate 20", "Premature stream resets per second after the burst.").default("10"),
        Key::one("h2-resets-total", "NUMBER", "h2-resets-total 2000", "Premature stream resets on one connection in all.").default("1000"),
        Key::one("h2-control-burst", "NUMBER", "h2-control-burst 2000", "Frames without progress (PING, SETTINGS, PRIORITY, empty DATA, CONTINUATION beyond 16 in a head, ...) before the rate counts. Beyond both: GOAWAY. Of origins PING, SETTINGS and unknown frames count, by the defaults.").default("1000"),
        Key::one("h2-control-rate", "NUMBER", "h2-control-rate 40", "Frames without progress per second after the burst.").default("20"),
        Key::one("offload-queue", "NUMBER", "offload-queue 100", "Heavy work of modules' steps that may wait for a thread. Beyond: what the step says, mostly 503.").default("1024"),
        Key::one("memory", "SIZE", "memory \"1GiB\"", "What clients and origins may make the process hold in buffers, heads and bodies, `filter-memory` included; at least 64 MiB. From a half of it on, keep-alive connections of clients with more than eight end, and new requests of a client address get 503 that holds more in heads, untaken bodies and many streams of HTTP/2 than is left until three quarters; from three quarters on, new requests of clients with more than eight connections get 503, and HTTP/2 connections of the clients that hold the most of untaken bodies and streams get GOAWAY; from 85 percent on, keep-alive connections of all end; from nine tenths on, new requests of all get 503; beyond, new connections are closed at once.").otherwise("`filter-memory` and 32 MiB for each worker, of which two at least are counted"),
        Key::one("filter-memory", "SIZE", "filter-memory \"64MiB\"", "What filters of bodies, such as those that compress, and starts of bodies that modules look at may hold together; one body at most a quarter of what is left. Beyond: 503, or the body passes unchanged.").default("\"96MiB\""),
        Key::one("filter-files", "SIZE", "filter-files \"16GiB\"", "What starts of bodies that modules look at may hold together in temporary files; one body at most a quarter of what is left. Beyond: 503.").default("\"4GiB\""),
        Key::one("filter-per-client", "PERCENT", "filter-per-client 10", "The part of `filter-memory`, of `filter-files`, of the descriptors for these files and of the 1,024 places for requests that modules make to one upstream, that the requests of one client address (IPv6: one network of 64 bits) may hold together, 1 to 100. A single body may hold more. Beyond: 503 for this client, or its bodies pass unchanged where a module says so.").default("25"),
    ],
    later: &["requests"],
};

/// The block of `timeouts`.
pub static TIMEOUTS: Block = Block {
    keys: &[
        Key::one("head", "DURATION", "head \"5s\"", "A request's head, from its first byte to its last. Beyond: 408, close.").default("\"10s\""),
        Key::one("body-idle", "DURATION", "body-idle \"1m\"", "Silence in a request's body before the final response begins. Beyond: 408, close.").default("\"30s\""),
        Key::one("body-rate", "SIZE", "body-rate \"1KiB\"", "Least average rate of a request's body before the final response begins, bytes per second; 0 for none. Below: 408, close.").default("256"),
        Key::one("body-rate-window", "DURATION", "body-rate-window \"1m\"", "The spans over which the rate is averaged, one behind the other.").default("\"20s\""),
        Key::one("body-rate-grace", "DURATION", "body-rate-grace \"30s\"", "The start of a body during which its rate is not judged. What comes in it does not count later.").default("\"10s\""),
        Key::one("keep-alive", "DURATION", "keep-alive \"75s\"", "An idle HTTP/1 connection. Beyond: close.").default("\"60s\""),
        Key::one("keep-alive-h2", "DURATION", "keep-alive-h2 \"5m\"", "An HTTP/2 connection without streams. Beyond: GOAWAY.").default("\"120s\""),
        Key::one("write-stall", "DURATION", "write-stall \"1m\"", "No progress, less than 1 KiB of what waits, while writing to a client. Beyond: reset.").default("\"30s\""),
        Key::one("connection-age", "DURATION", "connection-age \"1d\"", "Age of a client's connection, then it takes no more requests, and is closed once those that it has are answered.").default("\"1h\""),
        Key::one("tls-handshake", "DURATION", "tls-handshake \"10s\"", "TLS handshake and PROXY protocol header. Beyond: close.").default("\"5s\""),
        Key::one("early-response-drain", "DURATION", "early-response-drain \"1s\"", "Reading and dropping a request's body after an early response, and the time that its client has to take that. Beyond: close.").default("\"5s\""),
        Key::one("drain", "DURATION", "drain \"1m\"", "Requests in flight at a graceful stop (SIGQUIT, or a listener that a reload removed). Beyond: close.").default("\"30s\""),
        Key::one("drain-term", "DURATION", "drain-term \"10s\"", "The same for SIGTERM.").default("\"5s\""),
    ],
    later: &[],
};

/// The block of `upstream`.
pub static UPSTREAM: Block = Block {
    keys: &[
        Key::one("server", "ADDRESS weight=NUMBER", "server \"127.0.0.1:3001\" weight=2", "An origin server: `IP:PORT`, `[IPV6]:PORT`, `NAME:PORT` or `unix:PATH`. Names are resolved off the request path, by the rules of libc: a dot at the end (`api.example.com.:443`) leaves out the search list.")
            .props(&[Prop { name: "weight", usage: "NUMBER", required: false, default: "1", about: "Its share, 1 to 1000." }])
            .many()
            .required(),
        Key::one("resolver", "ADDRESS...", "resolver \"127.0.0.53:53\"", "The nameservers to ask for the names of the servers, in this order, port 53 where none is given. They get each name as it stands here; neither `/etc/hosts` nor a search list counts.")
            .args(1, ANY)
            .otherwise("`/etc/hosts`, then the nameservers of `/etc/resolv.conf`"),
        Key::one("balance", "\"round-robin\"", "balance \"round-robin\"", "How requests are spread over the servers.").default("\"round-robin\""),
        Key::one("host", "NAME", "host \"app.internal\"", "What the servers get as `Host` (`:authority` of HTTP/2): a name or address, with `:PORT` where it has one.").otherwise("the client's"),
        Key::one("http", "\"1.1\"|\"2\"|\"auto\"", "http \"2\"", "The protocol: HTTP/1.1; HTTP/2, by ALPN over TLS and by prior knowledge on cleartext; or what ALPN gives.").default("\"1.1\""),
        Key::block("tls", &UPSTREAM_TLS, "tls", "Speaks TLS to the servers.").otherwise("cleartext"),
        Key::block("timeouts", &UPSTREAM_TIMEOUTS, "timeouts { connect \"1s\" }", "Time limits towards the servers."),
        Key::one("keep-alive-connections", "NUMBER", "keep-alive-connections 32", "Unused connections kept per server. Beyond: the oldest is closed.").default("256"),
        Key::one("connection-age", "DURATION", "connection-age \"10m\"", "Age of a connection, after which it is not used again.").default("\"1h\""),
        Key::one("retries", "NUMBER", "retries 2", "Further attempts when the first fails before any byte of a response came and the request can be repeated; 0 to 16.").default("1"),
        Key::one("retry-body", "SIZE", "retry-body \"16KiB\"", "Largest request body that is kept in memory for a further attempt, at most 16 MiB. What lies in a file since modules look at it can be sent again, too.").default("\"64KiB\""),
        Key::one("retry-budget", "percent=NUMBER minimum=NUMBER", "retry-budget percent=10 minimum=5", "How many further attempts there may be at a time.")
            .args(0, 0)
            .props(&[
                Prop { name: "percent", usage: "NUMBER", required: false, default: "20", about: "Share of the active requests." },
                Prop { name: "minimum", usage: "NUMBER", required: false, default: "3", about: "Allowed whatever the share says." },
            ])
            .default("percent=20 minimum=3"),
        Key::one("send-proxy", "\"v1\"|\"v2\"", "send-proxy \"v2\"", "Starts each connection with a PROXY protocol header. Such a connection serves one client connection; over HTTP/1.1 it is kept for further requests of that one, at up to 16 servers, and closed with it; over HTTP/2 it is closed after each.").otherwise("none"),
    ],
    later: &["health", "slow-start", "circuit-breaker", "discover", "sticky"],
};

/// The block of `upstream { tls }`.
pub static UPSTREAM_TLS: Block = Block {
    keys: &[
        Key::one(
            "server-name",
            "NAME",
            "server-name \"origin.example\"",
            "The name that is sent as SNI and that the certificate must carry.",
        )
        .otherwise("the server's host"),
        Key::one("ca", "FILE", "ca \"ca.pem\"", "PEM file with the authorities to trust.")
            .otherwise("the system's"),
        Key::flag(
            "verify",
            "#true",
            "verify #false",
            "Checks the server's certificate. Turning it off is for tests.",
        ),
        Key::one(
            "certificate",
            "FILE key=FILE",
            "certificate \"client.pem\" key=\"client.key\"",
            "The certificate to present when a server asks for one.",
        )
        .props(&[Prop { name: "key", usage: "FILE", required: true, default: "", about: "Its private key." }])
        .otherwise("none"),
    ],
    later: &["minimum-version"],
};

/// The block of `upstream { timeouts }`.
pub static UPSTREAM_TIMEOUTS: Block = Block {
    keys: &[
        Key::one(
            "connect",
            "DURATION",
            "connect \"1s\"",
            "Connecting, TLS included. Beyond: the next server, or 504.",
        )
        .default("\"3s\""),
        Key::one(
            "first-byte",
            "DURATION",
            "first-byte \"2m\"",
            "From the last byte of the request to the end of the response's head; interim responses but 100 do not count. Beyond: 504.",
        )
        .default("\"30s\""),
        Key::one("idle", "DURATION", "idle \"5m\"", "Silence in a response, and in the request's body beside it. Beyond: it is broken off.")
            .default("\"60s\""),
        Key::one(
            "tunnel-idle",
            "DURATION",
            "tunnel-idle \"10m\"",
            "Silence in both directions of an upgraded connection, such as a WebSocket. Beyond: it is closed. Once the origin has ended its side, `idle` is the limit.",
        )
        .default("\"1h\""),
        Key::one("keep-alive", "DURATION", "keep-alive \"15s\"", "How long an unused connection is kept.")
            .default("\"55s\""),
    ],
    later: &[],
};

/// The block of `site`.
pub static SITE: Block = Block {
    keys: &[
        Key::one("route", "PATTERN { ... }", "route \"/static/**\" { respond 204 }", "What answers for these paths: `/a/b` for that path; `*` for one segment, `/users/*/posts`; `/**` at the end for the rest, so that `/static/**` takes `/static`, `/static/` and everything below. Patterns without wildcards come first, then the order of the file.")
            .with(&ROUTE)
            .many()
            .required(),
        Key::flag("allow-underscores", "#false", "allow-underscores", "Lets field names with `_` pass, but for those of known fields (`Content_Length`); without it those of clients are dropped from requests."),
        Key::one("ambiguous-paths", "\"refuse\"|\"forward\"", "ambiguous-paths \"forward\"", "What happens to paths that would belong to another route if `%2F` or `%5C` were a slash, what follows `;` in a segment did not count, an encoded letter or sign stood there itself, or kept slashes were merged, as some origins read them, or for which a condition would come to something else. They are answered with 400, or forwarded as what they are here.").default("\"refuse\""),
        Key::one("slashes", "\"merge\"|\"keep\"", "slashes \"keep\"", "What happens to duplicate slashes in paths.").default("\"merge\""),
        Key::block("tls", &SITE_TLS, "tls { minimum-version \"1.3\" }", "Certificates of this site beside the listener's, and its own policy.").otherwise("the listener's"),
    ],
    later: &["cache"],
};

/// The block of `route`.
pub static ROUTE: Block = Block {
    keys: &[
        Key::one("proxy", "UPSTREAM", "proxy \"app\"", "The servers of this upstream answer."),
        Key::one(
            "respond",
            "STATUS [BODY]",
            "respond 404 \"no such page\"",
            "A fixed answer, 200 to 599, as text/plain.",
        )
        .args(1, 2),
        Key::one("body-limit", "SIZE", "body-limit \"10MiB\"", "Largest request body. Beyond: 413.")
            .otherwise("no limit"),
        Key::flag(
            "allow-connect",
            "#false",
            "allow-connect",
            "Lets CONNECT through to the upstream; without it: 405.",
        ),
    ],
    later: &["cache", "retry", "timeouts"],
};

/// Calls `visit` for every key of our own, each before those of its block.
pub fn walk(visit: &mut impl FnMut(&Path, &'static Key)) {
    walk_keys(ROOT.keys, visit);
}

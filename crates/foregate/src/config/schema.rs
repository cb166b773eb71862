//! Every key of the configuration: one table that the reader, the documentation, `check --show-defaults` and the
//! tests share.

mod cache;
mod compare;
mod dashboard;
mod fallback;
mod logs;
mod requests;
mod shield;
mod upstream;

pub use self::cache::{CACHE, CACHE_STORE};
pub use self::dashboard::DASHBOARD;
pub use self::logs::{ACCESS_LOG, TRACE_EXPORT};
use self::requests::{QUEUE, REQUESTS};
pub use self::shield::SHIELD;
use self::upstream::RETRY_PROPS;
pub use self::upstream::{EJECT, RETRY, RETRY_HEADERS, UPSTREAM, UPSTREAM_TIMEOUTS, UPSTREAM_TLS};
pub use foregate_config::schema::{
    ANY, Block, GENERIC, INCLUDE_KEY, Key, LIST, LIST_KEY, Path, Prop, walk_keys,
};

/// Returns true for one of Foregate's own keys at the top of the file, in a site or in a route. A module's key must
/// have another name, because it may be at the same places.
pub fn is_key(name: &str) -> bool {
    [&ROOT, &SITE, &ROUTE].iter().any(|block| block.keys.iter().any(|key| key.name == name))
}

/// The outermost level of a file.
pub static ROOT: Block = Block {
    keys: &[
        Key::one("workers", "[NUMBER] [pin=#true|#false]", "workers 4 pin=#true", "The number of worker threads, 1 to 1024. A change takes effect at the next start.")
            .args(0, 1)
            .props(&[Prop { name: "pin", usage: "#true|#false", required: false, default: "#false", about: "Binds each worker to a core, in ascending order of the cores that the process may use. At an upgrade, the old version releases its cores before the new one binds its workers; until then, the workers of the new version, which is on trial, run on all cores." }])
            .otherwise("one for each core"),
        Key::one("offload-threads", "NUMBER", "offload-threads 2", "The number of threads for heavy steps of modules, such as password checks, 1 to 1024. A thread starts when there is work for it. A change takes effect at the next start.").otherwise("as many as workers"),
        Key::one("user", "NAME [group=NAME]", "user \"nobody\"", "The user, from `/etc/passwd`, that the process changes to when root has started it. It keeps the right to bind ports below 1024, and no other. Keys, logs and sockets are opened as this user, both at the start and at a reload. A change takes effect at the next start.")
            .props(&[Prop { name: "group", usage: "NAME", required: false, default: "", about: "The group, from `/etc/group`. Default: that of the user." }])
            .otherwise("the user that starts it"),
        Key::one("listen", "ADDRESS { ... }", "listen \"0.0.0.0:8080\"", "Accepts connections at `IP:PORT`, `[IPV6]:PORT`, `:PORT` (all addresses of the machine) or `unix:PATH`. HTTP/1.1 and HTTP/2 share the port.")
            .with(&LISTEN)
            .many()
            .required(),
        Key::one("metrics", "ADDRESS", "metrics \"127.0.0.1:9145\"", "Serves Prometheus metrics at `/metrics` of this address.").otherwise("off"),
        Key::one("admin", "PATH", "admin \"/run/foregate/admin.sock\"", "The Unix socket for the commands that talk to the running process, such as `reload`, `upstreams`, `top`, `cache` and `certificates`, with mode 0600. It speaks HTTP.").otherwise("off"),
        dashboard::DASHBOARD_KEY,
        Key::block("acme", &ACME, "acme { email \"you@example.com\" }", "How certificates are obtained for `tls \"auto\"`. By using `tls \"auto\"` you accept the terms of service of the authorities.").otherwise("Let's Encrypt, without a mail address"),
        logs::ACCESS_LOG_KEY,
        logs::TRACE_EXPORT_KEY,
        Key::one("temporary-folder", "PATH", "temporary-folder \"/var/tmp\"", "The folder for long bodies that modules inspect. The files have no names, so a crash leaves none behind; `limits { filter-files }` bounds their size. Do not use a folder in memory, such as a `tmpfs`.").otherwise("`TMPDIR`, or `/tmp`"),
        cache::DISK_ENGINE_KEY,
        cache::CACHE_STORE_KEY,
        shield::SHIELD_KEY,
        Key::block("limits", &LIMITS, "limits { head-fields 200 }", "Limits on sizes and counts for clients."),
        Key::block("timeouts", &TIMEOUTS, "timeouts { head \"5s\" }", "Time limits for clients."),
        Key::one("upstream", "NAME { ... }", "upstream \"app\" { server \"127.0.0.1:3000\" }", "A group of origin servers that serve the same content. Requests are spread over them.")
            .with(&UPSTREAM)
            .many(),
        Key::one("zone", "NAME", "zone \"eu-west-1a\"", "The zone of this proxy, such as a data centre. Servers with the same `zone` get all requests as long as those of them that can take requests have at least half of their total weight.").otherwise("none"),
        Key::one("site", "HOST... { ... }", "site \"example.com\" \"*.example.com\" { route \"/**\" { respond 204 } }", "The configuration for these hosts. A host is a name or an address, without a port. `*.NAME` matches all names below NAME at any depth, but not NAME itself. `*` matches every host that no other site has.")
            .args(1, ANY)
            .with(&SITE)
            .many(),
        fallback::OF_ALL,
        compare::SAMPLES,
        LIST_KEY,
        INCLUDE_KEY,
    ],
    later: &["module", "modules", "log", "resolver"],
};

/// The block of `listen`.
pub static LISTEN: Block = Block {
    keys: &[
        Key::one("tls", "[\"auto\"|\"internal\"] { ... }", "tls { certificate \"site.pem\" key=\"site.key\" }", "Accepts TLS connections. With `\"auto\"`, each site that names no `certificate` gets one from the authorities of `acme`, and is served with a self-signed one until then. With `\"internal\"`, Foregate's own authority, which is kept in the `storage` folder of `acme`, issues the certificates; `foregate certificates root` shows the root that clients must trust.")
            .args(0, 1)
            .with(&LISTEN_TLS)
            .otherwise("cleartext"),
        Key::one("proxy-protocol", "BLOCK...", "proxy-protocol \"10.0.0.0/8\"", "Peers in these address blocks must start each connection with a PROXY protocol header (v1, or v2 with at most 4 KiB of addresses and TLVs). The client address in the header is trusted. On a Unix socket, every peer must send the header, whatever the blocks.")
            .args(1, ANY)
            .otherwise("no peer sends the header"),
        Key::flag("reuse-port", "#false", "reuse-port", "Binds with `SO_REUSEPORT`, so that another process can share the port. That process needs its own `metrics` and `admin`, which are never shared."),
        Key::one("backlog", "NUMBER", "backlog 511", "The length of the kernel's accept queue. The kernel caps it at `net.core.somaxconn`.").default("4096"),
        Key::flag("http2", "#true", "http2 #false", "Offers HTTP/2: by ALPN over TLS, by prior knowledge on cleartext."),
        Key::one("connections", "NUMBER", "connections 5000", "The most client connections of this listener. Beyond: new ones wait in the kernel's accept queue.").otherwise("only `limits { connections }`"),
        REQUESTS,
        QUEUE,
        Key::one("tap", "UPSTREAM", "tap \"app\"", "Makes the listener a tap for `compare mode=\"tap\"`: set the address of this listener as the origin in the old proxy. All requests that arrive here are forwarded to this upstream, whatever their host and path; requests with the id of a comparison are compared on the way. Clients must not be able to reach the listener.").otherwise("no tap"),
        shield::OF_LISTENER,
        Key::flag("half-close", "#true", "half-close #false", "Keeps answering an HTTP/1 client that has closed its sending side. With `#false`, such a client counts as gone: its request at the origin is cancelled and its connection is closed."),
    ],
    later: &["http3", "quic"],
};

/// The block of `listen { tls }`.
pub static LISTEN_TLS: Block = Block {
    keys: &[
        CERTIFICATE,
        MINIMUM_VERSION.default("\"1.2\""),
        CLIENT_CERTIFICATES.otherwise("no certificate is asked for"),
        OCSP,
    ],
    later: &["ciphers"],
};

/// The block of `site { tls }`.
pub static SITE_TLS: Block = Block {
    keys: &[
        CERTIFICATE,
        MINIMUM_VERSION.otherwise("the listener's"),
        CLIENT_CERTIFICATES.otherwise("the listener's"),
        OCSP,
    ],
    later: &["ciphers"],
};

const CERTIFICATE: Key = Key::one("certificate", "FILE key=FILE", "certificate \"site.pem\" key=\"site.key\"", "A certificate chain, leaf first, and its private key, both in PEM. SNI chooses among several certificates: one with the exact name, else one with a wildcard, else the first. A client that sends no SNI, because it asks for an IP address, gets the certificate of the address that it has connected to, else the first. Changed files are loaded without a restart.")
    .props(&[Prop { name: "key", usage: "FILE", required: true, default: "", about: "The private key, as PKCS#8, PKCS#1 or SEC1." }])
    .many();

const OCSP: Key = Key::flag(
    "ocsp",
    "#false",
    "ocsp",
    "Fetches OCSP responses for each `certificate` of this block that names a responder, stores them in the `storage` folder of `acme`, and sends them in handshakes (stapling). Handshakes never wait for a response. Certificates of `\"auto\"` need no key: responses for them are always fetched.",
);

const MINIMUM_VERSION: Key = Key::one(
    "minimum-version",
    "\"1.2\"|\"1.3\"",
    "minimum-version \"1.3\"",
    "The lowest TLS version that clients may use.",
);

const CLIENT_CERTIFICATES: Key = Key::one(
    "client-certificates",
    "FILE mode=MODE",
    "client-certificates \"ca.pem\" mode=\"optional\"",
    "Asks clients for a certificate that is signed by an authority in this PEM file.",
)
.props(&[Prop {
    name: "mode",
    usage: "\"required\"|\"optional\"",
    required: false,
    default: "\"required\"",
    about: "`required`: clients without a certificate are refused. `optional`: they are served. A site that sets `required` itself answers cleartext requests with 421. The setting of a listener applies to that listener alone.",
}]);

/// The block of `acme`.
pub static ACME: Block = Block {
    keys: &[
        Key::one("email", "ADDRESS", "email \"you@example.com\"", "The mail address of the account. Some authorities write to it before certificates expire.").otherwise("none"),
        Key::one("storage", "FOLDER", "storage \"/srv/certificates\"", "The folder for certificates, keys and accounts, with mode 0700. Several processes can share it: one of them orders certificates, and all of them answer challenges and use the certificates.").otherwise("`$STATE_DIRECTORY`, which systemd sets; else `/var/lib/foregate` for root and `~/.local/share/foregate` for other users"),
        Key::one("directory", "URL", "directory \"https://ca.internal/acme/directory\" ca=\"ca.pem\"", "The ACME directory of an authority. If there are several and one fails, the next one is asked.")
            .props(&[
                Prop { name: "ca", usage: "FILE", required: false, default: "", about: "PEM file with the roots that the authority's own server is verified with. Default: the system's." },
                Prop { name: "profile", usage: "NAME", required: false, default: "", about: "The profile of certificates, such as `shortlived`." },
                Prop { name: "account", usage: "ID", required: false, default: "", about: "The key identifier of an external account (RFC 8555, section 7.3.4)." },
                Prop { name: "account-key", usage: "KEY", required: false, default: "", about: "The key of the external account, in base64." },
            ])
            .secrets(&["account-key"])
            .many()
            .otherwise("Let's Encrypt"),
        Key::one("challenges", "NAME...", "challenges \"http-01\"", "The challenges, in the order of preference: `http-01` (needs port 80), `tls-alpn-01` (needs port 443), `dns-01` (needs `dns-update` or `dns-hook`). After a failure, the next one is tried. Wildcards always use `dns-01`.")
            .args(1, 3)
            .otherwise("`http-01`, `tls-alpn-01`, and `dns-01` if there is a `dns-update` or `dns-hook`"),
        Key::one("dns-hook", "COMMAND [ARGUMENT...]", "dns-hook \"/usr/local/bin/dns-record\" wait=\"30s\"", "The command that sets and removes the TXT records for `dns-01`. It is called as `COMMAND present NAME VALUE` and `COMMAND cleanup NAME VALUE`, and must exit with 0 within two minutes.")
            .args(1, ANY)
            .props(&[Prop { name: "wait", usage: "DURATION", required: false, default: "\"10s\"", about: "How long Foregate waits after the command before the authority looks up the record, up to an hour. All nameservers must have the record by then." }]),
        Key::one("dns-update", "SERVER zone=NAME", "dns-update \"192.0.2.53\" zone=\"example.com\" key=\"foregate\" secret=\"Zm9yZWdhdGUgc2VjcmV0IGtleQ==\"", "A DNS zone in which Foregate sets and removes the records for `dns-01` by dynamic updates (RFC 2136) over TCP. BIND, Knot DNS, PowerDNS and Windows accept such updates. SERVER is the primary nameserver of the zone, `HOST` or `HOST:PORT` (default 53). If several zones contain a name, the innermost one is used. Names that are in no zone use `dns-hook`.")
            .props(&[
                Prop { name: "zone", usage: "NAME", required: true, default: "", about: "The name of the zone on the nameserver." },
                Prop { name: "key", usage: "NAME", required: false, default: "no signature", about: "The name of the TSIG key (RFC 8945) that signs updates. An answer that is not signed with this key counts as a failure." },
                Prop { name: "secret", usage: "KEY", required: false, default: "", about: "The key, in base64." },
                Prop { name: "algorithm", usage: "NAME", required: false, default: "\"hmac-sha256\"", about: "The algorithm of the key: `hmac-sha256`, `hmac-sha384` or `hmac-sha512`." },
                Prop { name: "wait", usage: "DURATION", required: false, default: "\"10s\"", about: "How long Foregate waits after the update before the authority looks up the record, up to an hour. All nameservers must have the record by then." },
            ])
            .secrets(&["secret"])
            .many()
            .otherwise("none"),
        Key::block("on-demand", &ON_DEMAND, "on-demand { names \"*.customers.example.com\" }", "Obtains certificates for names that no site lists, on listeners with `tls \"auto\"`: each during the first TLS handshake for its name.").otherwise("off"),
    ],
    later: &["zerossl", "trusted-roots"],
};

/// The block of `acme { on-demand }`.
pub static ON_DEMAND: Block = Block {
    keys: &[
        Key::one("names", "HOST...", "names \"*.customers.example.com\"", "The names for which certificates are obtained; `*.NAME` matches all names below NAME.").args(1, ANY).otherwise("none"),
        Key::one("ask", "URL", "ask \"http://127.0.0.1:3000/allowed\"", "The URL of a service of yours that decides about all other names: Foregate sends `GET URL?domain=NAME`. A status of 2xx allows the certificate. The service is asked again at each renewal.").otherwise("other names get no certificate"),
        Key::one("rate", "NUMBER", "rate 20 per=\"1h\"", "The most orders of certificates for new names within `per`; `ask` gets at most ten times as many requests. Beyond: the handshake gets no certificate for its name, and the next handshake with this name tries again.")
            .props(&[Prop { name: "per", usage: "DURATION", required: false, default: "\"1m\"", about: "The length of this time, up to a day." }])
            .otherwise("10 in a minute"),
    ],
    later: &[],
};

/// The block of `limits`.
pub static LIMITS: Block = Block {
    keys: &[
        Key::one("head-bytes", "SIZE", "head-bytes \"32KiB\"", "The most bytes of a request or response head, up to 128 KiB. Beyond: 431, or 502 for an origin's response.").default("\"64KiB\""),
        Key::one("head-line", "SIZE", "head-line \"8KiB\"", "The most bytes of one line of a head. Beyond: 431, or 414 for the request line.").default("\"16KiB\""),
        Key::one("head-fields", "NUMBER", "head-fields 100", "The most fields of a head. Beyond: 431.").default("128"),
        Key::one("requests-per-connection", "NUMBER", "requests-per-connection 1000", "The most requests on one connection. Then it is closed gracefully.").default("10000"),
        Key::one("connections", "NUMBER", "connections 10000", "The most client connections. Beyond: no more are accepted until some have closed.").otherwise("the smaller of 50000 and half the descriptor limit minus 64"),
        Key::one("connections-per-client", "NUMBER", "connections-per-client 100", "The most connections of one client address; an IPv6 /64 network counts as one client. Beyond: new connections are closed at once. For connections to origins, see the section Starting in operations.md.").default("1024"),
        Key::one("requests-per-client", "NUMBER", "requests-per-client 50", "The most requests of one client address that are in flight to upstreams; an IPv6 /64 network counts as one client. Behind `trusted-proxies`, the address that they state counts. Beyond: 503 with `Retry-After`.").otherwise("no limit"),
        Key::one("early-response-drain", "SIZE", "early-response-drain \"1MiB\"", "The most bytes of a request body that are read and dropped if the response begins before the whole body has arrived. Beyond: the rest stays unread, and the connection is closed after the client has had time to read the response. Over HTTP/2, the rest is dropped only after the response, and only while data arrives at least every 200 ms; then the stream is reset (NO_ERROR).").default("\"64KiB\""),
        Key::one("client-hello", "SIZE", "client-hello \"32KiB\"", "The most bytes of a TLS ClientHello. Beyond: close.").default("\"64KiB\""),
        Key::one("h2-streams", "NUMBER", "h2-streams 250", "The most concurrent HTTP/2 streams of a connection. Beyond: REFUSED_STREAM.").default("100"),
        Key::one("h2-stream-window", "SIZE", "h2-stream-window \"256KiB\"", "The initial HTTP/2 flow-control window of a stream.").default("\"64KiB\""),
        Key::one("h2-largest-window", "SIZE", "h2-largest-window \"16MiB\"", "The largest window of a stream. A window grows while the origin takes the body as fast as it arrives; with a round trip of 100 ms, 4 MiB allow 40 MB/s. If this value is not above `h2-stream-window`, windows never grow. All windows of one connection together grow by at most twice this value, and the windows of all connections by at most an eighth of `memory`; one client gets at most the share `filter-per-client` of that. No window grows while more than a quarter of `memory` is in use.").default("\"4MiB\""),
        Key::one("h2-connection-window", "SIZE", "h2-connection-window \"2MiB\"", "The initial HTTP/2 flow-control window of a connection. Tiny DATA frames that wait to be read can take four times as much memory in addition. Beyond: GOAWAY.").default("\"1MiB\""),
        Key::one("h2-header-table", "SIZE", "h2-header-table \"8KiB\"", "The size of the HPACK dynamic table.").default("\"4KiB\""),
        Key::one("h2-resets-burst", "NUMBER", "h2-resets-burst 200", "The number of premature stream resets that are allowed before `h2-resets-rate` applies. Resets by either side count, and so do requests with a decoded head above `head-bytes`. Beyond both limits: GOAWAY.").default("100"),
        Key::one("h2-resets-rate", "NUMBER", "h2-resets-rate 20", "The premature stream resets per second that are allowed after the burst.").default("10"),
        Key::one("h2-resets-total", "NUMBER", "h2-resets-total 2000", "The most premature stream resets of one connection in all. Beyond: GOAWAY.").default("1000"),
        Key::one("h2-control-burst", "NUMBER", "h2-control-burst 2000", "The number of frames without progress (PING, SETTINGS, PRIORITY, empty DATA, CONTINUATION beyond 16 in a head, ...) that are allowed before `h2-control-rate` applies. Beyond both limits: GOAWAY. In connections to origins, PING, SETTINGS and unknown frames count, always with the default limits.").default("1000"),
        Key::one("h2-control-rate", "NUMBER", "h2-control-rate 40", "The frames without progress per second that are allowed after the burst.").default("20"),
        Key::one("offload-queue", "NUMBER", "offload-queue 100", "The most heavy steps of modules that wait for a thread of `offload-threads`. Beyond: the module decides; most modules answer with 503.").default("1024"),
        Key::one("memory", "SIZE", "memory \"1GiB\"", "The most memory for buffers, heads and bodies of clients and origins, `filter-memory` included; at least 64 MiB. Limits tighten as it fills. From 50 %: keep-alive ends for clients with more than eight connections; a client address gets 503 for new requests while it holds more in heads, unread bodies and HTTP/2 streams than is still free below 75 %. From 75 %: clients with more than eight connections get 503 for new requests, and the clients that hold the most in unread bodies and streams get GOAWAY. From 85 %: keep-alive ends for all clients. From 90 %: all new requests get 503. Beyond: new connections are closed at once.").otherwise("`filter-memory` plus 32 MiB for each worker, counting at least two workers"),
        Key::one("filter-memory", "SIZE", "filter-memory \"64MiB\"", "The most memory for body filters, such as compression, and for the starts of bodies that modules inspect. One body gets at most a quarter of the free part. Beyond: 503, or the body passes unchanged.").default("\"96MiB\""),
        Key::one("filter-files", "SIZE", "filter-files \"16GiB\"", "The most space in temporary files for the starts of bodies that modules inspect. One body gets at most a quarter of the free part. Beyond: 503.").default("\"4GiB\""),
        Key::one("filter-per-client", "PERCENT", "filter-per-client 10", "The share that one client address (IPv6: one /64 network) may take of each of four budgets, 1 to 100 percent: `filter-memory`, `filter-files`, the descriptors for these files, and the 1,024 requests that modules may have in flight to one upstream. A single body may exceed this share. Beyond: this client gets 503, or its bodies pass unchanged if the module allows that.").default("25"),
    ],
    later: &[],
};

/// The block of `timeouts`.
pub static TIMEOUTS: Block = Block {
    keys: &[
        Key::one("head", "DURATION", "head \"5s\"", "The time for a request's head, from its first byte to its last. Beyond: 408, close.").default("\"10s\""),
        Key::one("body-idle", "DURATION", "body-idle \"1m\"", "The longest pause in a request's body before the final response begins. Beyond: 408, close.").default("\"30s\""),
        Key::one("body-rate", "SIZE", "body-rate \"1KiB\"", "The lowest average rate of a request's body before the final response begins, in bytes per second; 0 for no limit. Below: 408, close.").default("256"),
        Key::one("body-rate-window", "DURATION", "body-rate-window \"1m\"", "The length of the intervals, one after the other, over which `body-rate` is averaged.").default("\"20s\""),
        Key::one("body-rate-grace", "DURATION", "body-rate-grace \"30s\"", "The time at the start of a body during which `body-rate` does not apply. Bytes that arrive in this time do not count towards later averages.").default("\"10s\""),
        Key::one("keep-alive", "DURATION", "keep-alive \"75s\"", "How long an HTTP/1 connection may be idle. Beyond: close.").default("\"60s\""),
        Key::one("keep-alive-h2", "DURATION", "keep-alive-h2 \"5m\"", "How long an HTTP/2 connection may be without streams. Beyond: GOAWAY.").default("\"120s\""),
        Key::one("write-stall", "DURATION", "write-stall \"1m\"", "How long a write to a client may make no progress; less than 1 KiB of the waiting data is no progress. Beyond: reset.").default("\"30s\""),
        Key::one("connection-age", "DURATION", "connection-age \"1d\"", "The age at which a client connection accepts no more requests. It is closed after its open requests are answered.").default("\"1h\""),
        Key::one("tls-handshake", "DURATION", "tls-handshake \"10s\"", "The time for the TLS handshake and the PROXY protocol header. Beyond: close.").default("\"5s\""),
        Key::one("early-response-drain", "DURATION", "early-response-drain \"1s\"", "If a response began before the whole request body arrived: how long the rest of the body is read and dropped after the response, and how long the client has to read the response. Beyond: close.").default("\"5s\""),
        Key::one("drain", "DURATION", "drain \"1m\"", "The time for open requests at a graceful stop: after SIGQUIT, or when a reload has removed their listener. Beyond: close.").default("\"30s\""),
        Key::one("drain-term", "DURATION", "drain-term \"10s\"", "The time for open requests after SIGTERM. Beyond: close.").default("\"5s\""),
    ],
    later: &[],
};

/// The block of `site`.
pub static SITE: Block = Block {
    keys: &[
        Key::one("route", "PATTERN { ... }", "route \"/static/**\" { respond 204 }", "The configuration for these paths. `/a/b` matches exactly this path. `*` matches one segment, as in `/users/*/posts`. `/**` at the end matches the rest: `/static/**` matches `/static`, `/static/` and everything below. Patterns without wildcards are tried first, then the others in the order of the file. If a route has conditions, all of them must be true; otherwise the next route that matches is tried.")
            .with(&ROUTE)
            .props(ROUTE_CONDITIONS)
            .many()
            .required(),
        Key::one("listeners", "ADDRESS...", "listeners \"127.0.0.1:8081\"", "The listeners that serve this site, each written as in its `listen`. Requests for its hosts on other listeners go to other sites. If two sites have the same host, the one that names the listener answers there.")
            .args(1, ANY)
            .otherwise("all listeners"),
        logs::SITE_ACCESS_LOG_KEY,
        logs::SERVER_TIMING_KEY.otherwise("off"),
        Key::flag("allow-underscores", "#false", "allow-underscores", "Forwards request fields with `_` in their names, except those that could be taken for a known field (`Content_Length`). Without it, request fields with `_` are dropped."),
        Key::one("ambiguous-paths", "\"refuse\"|\"forward\"", "ambiguous-paths \"forward\"", "Whether requests with an ambiguous path are answered with 400 or forwarded as Foregate reads the path. A path is ambiguous if some origins read it differently, and so as a path of another route, or as a path for which a condition has another result. Such origins take `%2F` or `%5C` for a slash, ignore the part of a segment after `;`, decode other escapes, or merge slashes.").default("\"refuse\""),
        REQUESTS,
        QUEUE,
        Key::one("slashes", "\"merge\"|\"keep\"", "slashes \"keep\"", "Whether duplicate slashes in paths are merged or kept.").default("\"merge\""),
        Key::one("tls", "[\"auto\"|\"internal\"] { ... }", "tls { minimum-version \"1.3\" }", "Certificates and TLS settings of this site, in addition to those of the listener. `\"auto\"` and `\"internal\"` obtain the site's certificates as in `listen`.")
            .args(0, 1)
            .with(&SITE_TLS)
            .otherwise("the listener's"),
        fallback::OF_SITE,
        compare::OF_SITE,
        cache::OF_SITE,
        Key::one("redirect-https", "[port=PORT]", "redirect-https", "Redirects cleartext requests to `https` with 308. Challenges of certificate authorities are still answered over cleartext.")
            .args(0, 0)
            .props(&[Prop { name: "port", usage: "PORT", required: false, default: "443", about: "The port at which clients reach a TLS listener." }]),
    ],
    later: &[],
};

/// The block of `route`.
pub static ROUTE: Block = Block {
    keys: &[
        Key::one("proxy", "UPSTREAM", "proxy \"app\"", "Forwards requests to the servers of this upstream."),
        Key::one(
            "respond",
            "STATUS [BODY]",
            "respond 404 \"no such page\"",
            "Answers with this status, 200 to 599, and this body, as text/plain.",
        )
        .args(1, 2),
        Key::one("files", "FOLDER { ... }", "files \"/srv/www\"", "Serves the files of this folder. A relative folder starts at the folder of the configuration file. The whole path of the request is appended to the folder, as with `root` in NGINX: with `files \"/srv/www\"`, `/docs/a.html` is `/srv/www/docs/a.html`. `strip-prefix` in the route removes the start of the path first. GET and HEAD are answered, including range and conditional requests. For a folder, its index file is served; if the path lacks the slash at the end, the client is redirected to the path with it. Together with `proxy`, files come first: if there is no such file, or the method is another one, the request goes to the upstream. Without `proxy`, it gets 404 or 405. Pipes and devices are not served.")
            .with(&FILES),
        Key::one("body-limit", "SIZE", "body-limit \"10MiB\"", "The largest request body. Beyond: 413.")
            .otherwise("no limit"),
        Key::flag(
            "allow-connect",
            "#false",
            "allow-connect",
            "Forwards CONNECT requests to the upstream. Without it, they get 405.",
        ),
        Key::one("strip-prefix", "PREFIX", "strip-prefix \"/api\"", "Removes this prefix from the path before the request goes to the upstream or to `files`: `/api/users` becomes `/users`, and `/api` and `/api/` become `/`. Modules, conditions and logs see the whole path.")
            .otherwise("the path is not changed"),
        BUFFER_REQUESTS.otherwise("the upstream's"),
        BUFFER_RESPONSES.otherwise("the upstream's"),
        RETRY_RULE.otherwise("the upstream's"),
        Key::one("mirror", "UPSTREAM share=PERCENT body=SIZE", "mirror \"shadow\" share=\"5%\"", "Sends a copy of each request to this upstream as well, once the whole request has been sent to its own origin. The copy has the same fields, path and body. Nothing waits for the copy, and its response is dropped. At most 512 copies are in flight to an upstream, at most half of them for one client; beyond, requests are not copied. Upgrades are not copied.")
            .props(&[
                Prop { name: "share", usage: "PERCENT", required: false, default: "\"100%\"", about: "The share of requests that is copied, with up to two decimals." },
                Prop { name: "body", usage: "SIZE", required: false, default: "\"64KiB\"", about: "The largest request body that is copied, up to 16 MiB. Requests with longer bodies are not copied." },
            ])
            .otherwise("no copies"),
        Key::block("timeouts", &ROUTE_TIMEOUTS, "timeouts { first-byte \"2m\" }", "Time limits for requests of this route."),
        logs::SERVER_TIMING_KEY.otherwise("the site's"),
        fallback::OF_ROUTE,
        compare::OF_ROUTE,
        cache::OF_ROUTE,
    ],
    later: &[],
};

const RETRY_RULE: Key = Key::one("retry", "on=FAILURES attempts=NUMBER upstream=NAME { ... }", "retry on=\"connect reset timeout 502-504\" upstream=\"elsewhere\"", "A rule for retries, which replaces `retries`: after which failures a request is sent again, how often, and to which upstream. Several rules are tried in their order. A request is sent again only if all of this is true: repeating it is safe, because its method is idempotent or listed in `methods`, or because nothing of it can have reached an origin; its body is still stored (`retry-body`, or `buffer-requests`); nothing of a response has been sent to the client; and `retry-budget` allows it. After a response with `Retry-After`, the request is not sent to the same server again; after a 429 with `Retry-After`, not to the same upstream.")
    .args(0, 0)
    .props(RETRY_PROPS)
    .with(&RETRY)
    .many();

const BUFFER_REQUESTS: Key = Key::one("buffer-requests", "size=SIZE", "buffer-requests size=\"50MiB\"", "Receives the whole body of a request before the request is sent to a server: a short body into memory, a longer one into a temporary file. So a slow client does not keep the server busy, and the server gets a `Content-Length` even if the client sent chunks. Trailers of the request reach servers over HTTP/2, but not over HTTP/1.1, where a body with a length has none. A request with a body longer than `size` is answered with 413. `buffer-requests #false` turns this off in a route, which gRPC streams need. `limits { filter-memory }` and `filter-files` bound all bodies together.")
    .args(0, 1)
    .props(&[Prop { name: "size", usage: "SIZE", required: false, default: "\"10MiB\"", about: "The largest body." }]);

const BUFFER_RESPONSES: Key = Key::one("buffer-responses", "memory=SIZE size=SIZE", "buffer-responses size=\"1GiB\"", "Receives a response as fast as the server sends it, even if the client reads more slowly, so that the server and its connection are free early. Bytes are still sent to the client without delay; only bytes that the client does not read yet are stored, in memory first, then in a temporary file. If both are full, the server is read only as fast as the client reads. Exceptions: responses with `X-Accel-Buffering: no`, responses that begin before the whole request was sent, and upgrades are not stored. `buffer-responses #false` turns this off in a route. `limits { filter-memory }` and `filter-files` bound all bodies together.")
    .args(0, 1)
    .props(&[
        Prop { name: "memory", usage: "SIZE", required: false, default: "\"128KiB\"", about: "The most bytes of a response that are stored in memory, up to 16 MiB." },
        Prop { name: "size", usage: "SIZE", required: false, default: "\"64MiB\"", about: "The most bytes of a response that are stored in a file; `0B`: no file is used." },
    ]);

/// The conditions of a `route` in addition to its paths.
const ROUTE_CONDITIONS: &[Prop] = &[
    Prop {
        name: "method",
        usage: "METHODS",
        required: false,
        default: "",
        about: "Only requests with one of these methods, separated by blanks: `method=\"GET HEAD\"`.",
    },
    Prop {
        name: "header",
        usage: "\"NAME\"|\"NAME=VALUE\"",
        required: false,
        default: "",
        about: "Only requests with this field, or with a field of this name and value.",
    },
    Prop {
        name: "query",
        usage: "\"NAME\"|\"NAME=VALUE\"",
        required: false,
        default: "",
        about: "Only requests with this parameter in the query, or with a parameter of this name and value. Both are compared after decoding.",
    },
    Prop {
        name: "cookie",
        usage: "\"NAME\"|\"NAME=VALUE\"",
        required: false,
        default: "",
        about: "Only requests with this cookie, or with a cookie of this name and value.",
    },
    Prop {
        name: "port",
        usage: "NUMBER",
        required: false,
        default: "",
        about: "Only requests on connections to this port. If there is a PROXY protocol header, the port in the header counts.",
    },
    Prop {
        name: "listener",
        usage: "ADDRESS",
        required: false,
        default: "",
        about: "Only requests through this listener, written as in its `listen`.",
    },
    Prop {
        name: "when",
        usage: "EXPRESSION",
        required: false,
        default: "",
        about: "Only requests for which this expression is true. It is evaluated before any module runs, over the request as the client sent it; the client's address cannot be used.",
    },
];

/// The block of `route { timeouts }`.
pub static ROUTE_TIMEOUTS: Block = Block {
    keys: &[
        Key::one("first-byte", "DURATION", "first-byte \"2m\"", "The time from the last byte of the request to the end of the response's head. Beyond: 504.")
            .otherwise("the upstream's"),
        Key::one("idle", "DURATION", "idle \"5m\"", "The longest time without progress of a response; progress of the request's body counts too. Beyond: the exchange is cut off.")
            .otherwise("the upstream's"),
        Key::one("total", "DURATION", "total \"30s\"", "The time from the request's head to the end of the response, over all attempts. Beyond: 504, or, if the response has begun, it is cut off. Upgraded connections are not limited.")
            .otherwise("no limit"),
    ],
    later: &[],
};

/// The block of `files`.
pub static FILES: Block = Block {
    keys: &[
        Key::one("index", "NAME...", "index \"index.html\" \"index.htm\"", "The file names that are tried for a request to a folder; the first file that exists is served.")
            .args(1, ANY)
            .default("\"index.html\""),
        Key::one("try", "PLACE...", "try \"$path\" \"/app.html\"", "The places to look for the file, in this order. `$path` stands for the path of the request: the file, or the index of the folder. There may be text around it, as in `$path.html` and `$path/index.html`. A place without `$path` is the same file for every request, as a single-page application needs it.")
            .args(1, ANY)
            .default("\"$path\""),
        Key::one("precompressed", "CODING...", "precompressed \"br\" \"gzip\"", "The codings for which there are compressed files next to the plain ones: `\"br\"` (`app.js.br`), `\"zstd\"` (`app.js.zst`) and `\"gzip\"` (`app.js.gz`). The client's `Accept-Encoding` decides; if it prefers none, this order does. The plain file must exist, too. Responses have `Vary: Accept-Encoding`.")
            .args(1, 3)
            .otherwise("none"),
        Key::flag("listing", "#false", "listing", "Lists the content of a folder without an index file: as HTML, or as JSON for clients that prefer `application/json`. At most 10,000 names are listed."),
        Key::one("expires", "DURATION on=PATTERN immutable=#true|#false", "expires \"30d\" on=\"*.css *.js\"", "How long browsers and caches may use a file: sends `Cache-Control: max-age=...`, or `no-cache` for `\"0s\"`. If several match a file, the first one counts.")
            .props(&[
                Prop { name: "on", usage: "PATTERN", required: false, default: "all files", about: "The files to which this applies, as patterns separated by spaces. `*` matches any text without a slash, `**` any text, `?` one character. A pattern with a slash is compared with the whole path below the folder, any other pattern with the file name alone." },
                Prop { name: "immutable", usage: "#true|#false", required: false, default: "#false", about: "Adds `immutable`, which says that the file of this name never changes, so that browsers do not ask for it again on a reload." },
            ])
            .many()
            .otherwise("no `Cache-Control`"),
        Key::one("follow-links", "\"inside\"|\"anywhere\"|\"never\"", "follow-links \"never\"", "The symbolic links below the folder that are followed. `\"inside\"`: relative links that stay in the folder; an absolute link is not followed even if it leads back into it. `\"anywhere\"`: all links. `\"never\"`: none. The folder itself can be a link; once a second, Foregate checks where its path leads.")
            .default("\"inside\""),
        Key::flag("dotfiles", "#false", "dotfiles", "Serves files and folders whose names begin with a dot. Without it, they are treated as missing, except the folder `/.well-known`."),
    ],
    later: &[],
};

/// Calls `visit` for each of Foregate's own keys. A key comes before the keys in its block.
pub fn walk(visit: &mut impl FnMut(&Path, &'static Key)) {
    walk_keys(ROOT.keys, visit);
}

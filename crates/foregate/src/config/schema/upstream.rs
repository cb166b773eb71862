//! The keys of upstreams.

use super::requests::{self, QUEUE, UPSTREAM_REQUESTS};
use super::{ANY, BUFFER_REQUESTS, BUFFER_RESPONSES, Block, Key, Prop, RETRY_RULE};

/// The block of `upstream`.
pub static UPSTREAM: Block = Block {
    keys: &[
        Key::one("server", "ADDRESS weight=NUMBER", "server \"127.0.0.1:3001\" weight=2", "An origin server: `IP:PORT`, `[IPV6]:PORT`, `NAME:PORT`, `unix:PATH` or `srv:SERVICE`. Names are resolved in the background, by the rules of libc. A name with a dot at its end (`api.example.com.:443`) is looked up without the search list. `srv:_http._tcp.app.internal` stands for all servers that the SRV records of this service list, with their ports, weights and priorities; when the records change, servers are added and removed.")
            .props(SERVER_PROPS)
            .many()
            .required(),
        Key::one("resolver", "ADDRESS...", "resolver \"127.0.0.53:53\"", "The nameservers that resolve the names of the servers, in this order. The port is 53 if none is given. Names are looked up exactly as they are written; `/etc/hosts` and search lists are not used.")
            .args(1, ANY)
            .otherwise("`/etc/hosts`, then the nameservers of `/etc/resolv.conf`"),
        Key::one("balance", "METHOD by=PART", "balance \"least-requests\"", "How requests are spread over the servers that are up. `\"round-robin\"`: in turns, by weight. `\"least-requests\"`: to the server with the fewest requests in flight for its weight. `\"two-choices\"`: two servers are drawn at random by weight, and the less busy one gets the request. `\"peak-ewma\"`: two servers are drawn likewise, and the one with the lower product of recent latency and requests in flight gets the request. `\"random\"`: at random by weight. `\"hash\"`: requests with the same value of `by` or `key` go to the same server while it is up.")
            .props(&[
                Prop { name: "by", usage: "PART", required: false, default: "\"client\"", about: "The part of the request for `\"hash\"`: `\"client\"` (its address), `\"path\"`, `\"target\"` (path and query), `\"header:NAME\"`, `\"cookie:NAME\"` or `\"query:NAME\"` (the first argument of this name in the query). Requests without this part are spread in turns." },
                Prop { name: "key", usage: "EXPRESSION", required: false, default: "none", about: "Instead of `by`: an expression whose value is hashed. It reads path, query and fields in the form in which the server gets them, and `ip.src`; `http.host` and `http.request.version` are the client's. Requests for which it has no value, or an empty one, are spread in turns." },
                Prop { name: "maglev", usage: "#true|#false", required: false, default: "#false", about: "Whether `\"hash\"` uses a Maglev table instead of a ring. Requests are spread more evenly, but if a server is added or removed, a few requests of the other servers also change their server." },
            ])
            .default("\"round-robin\""),
        Key::one("sticky", "cookie=NAME", "sticky cookie=\"SERVER\"", "Binds each client to one server by a signed cookie. `balance` chooses the server of a new client. While that server is down or full, another one takes over, and the cookie changes. The attributes of the cookie are `Path=/`, `HttpOnly` and `SameSite=Lax`.")
            .args(0, 0)
            .props(&[
                Prop { name: "cookie", usage: "NAME", required: true, default: "", about: "The name of the cookie." },
                Prop { name: "secret", usage: "TEXT", required: false, default: "a random key", about: "The key of the signature, at least 16 bytes. Without it, a restart assigns clients to servers anew. Several proxies for the same clients need the same secret." },
                Prop { name: "secure", usage: "#true|#false", required: false, default: "#false", about: "Whether the cookie has the attribute `Secure`, so that browsers send it over HTTPS only." },
                Prop { name: "max-age", usage: "DURATION", required: false, default: "the browser's session", about: "How long clients keep the cookie." },
            ])
            .secrets(&["secret"])
            .otherwise("none"),
        Key::one("health", "PATH every=DURATION", "health \"/healthz\" every=\"2s\"", "Probes each server, once for the whole process, and sends no requests to servers that fail. The first probe alone decides whether a server is up; after it, `fall` and `rise` apply. Each probe uses a connection of its own, with the TLS, PROXY protocol and HTTP settings of the upstream. While a server stays down, the pause between probes grows to four times `every`. PATH is the path of the request (default `/`), or the service name for `kind=\"grpc\"`. Redirects are not followed.")
            .args(0, 1)
            .props(HEALTH_PROPS)
            .otherwise("no probes; only `eject` takes servers out"),
        Key::block("eject", &EJECT, "eject { statuses \"502-504\" share=\"50%\" }", "Takes a server out for a while after failed requests: it then gets no requests. After that time, single requests test the server, and two answers bring it back."),
        Key::one("host", "NAME", "host \"app.internal\"", "The `Host` (`:authority` in HTTP/2) of requests to the servers: a name or address, with `:PORT` if needed.").otherwise("the client's"),
        Key::one("http", "\"1.1\"|\"2\"|\"auto\"", "http \"2\"", "The protocol to the servers. `\"1.1\"`: HTTP/1.1. `\"2\"`: HTTP/2, by ALPN over TLS and by prior knowledge on cleartext. `\"auto\"`: ALPN decides.").default("\"1.1\""),
        Key::block("tls", &UPSTREAM_TLS, "tls", "Connects to the servers over TLS.").otherwise("cleartext"),
        Key::block("timeouts", &UPSTREAM_TIMEOUTS, "timeouts { connect \"1s\" }", "Time limits for the servers."),
        Key::one("keep-alive-connections", "NUMBER", "keep-alive-connections 32", "The most idle connections that are kept open to each server. Beyond: the oldest is closed.").default("256"),
        Key::one("connection-age", "DURATION", "connection-age \"10m\"", "The age after which a connection is not used for further requests.").default("\"1h\""),
        UPSTREAM_REQUESTS,
        QUEUE,
        Key::one("retries", "NUMBER", "retries 2", "The most retries of a request, 0 to 16. A request is sent again only if no byte of a response has arrived and repeating it is safe. `retry` sets finer rules.").default("1"),
        RETRY_RULE.otherwise("`retries`"),
        requests::HEDGE,
        Key::one("retry-body", "SIZE", "retry-body \"16KiB\"", "The largest request body that is kept in memory for a retry, up to 16 MiB. A body that is in a temporary file because a module inspects it can be sent again, too.").default("\"64KiB\""),
        Key::one("retry-budget", "percent=NUMBER minimum=NUMBER", "retry-budget percent=10 minimum=5", "Limits the retries of all requests of the upstream together. The limit applies twice: to the retries in flight, and to the retries of the last five to ten seconds. It is the larger of `percent` and `minimum`.")
            .args(0, 0)
            .props(&[
                Prop { name: "percent", usage: "NUMBER", required: false, default: "20", about: "The percentage of the requests in flight that may be retries, and the percentage of the requests of the last five to ten seconds that may have been retried." },
                Prop { name: "minimum", usage: "NUMBER", required: false, default: "3", about: "The number of retries that are always allowed: this many in flight, and five times as many within five to ten seconds." },
            ])
            .default("percent=20 minimum=3"),
        BUFFER_REQUESTS.otherwise("bodies are forwarded as they arrive"),
        BUFFER_RESPONSES.otherwise("servers are read only as fast as clients read"),
        Key::one("send-proxy", "\"v1\"|\"v2\"", "send-proxy \"v2\"", "Starts each connection with a PROXY protocol header. Then each connection to a server belongs to one client connection. Over HTTP/1.1, it is kept for further requests of this client connection (up to 16 servers), and closed when the client connection closes. Over HTTP/2, it is closed after each request.").otherwise("none"),
    ],
    later: &["circuit-breaker", "discover"],
};

/// The properties of `server`.
const SERVER_PROPS: &[Prop] = &[
    Prop {
        name: "weight",
        usage: "NUMBER",
        required: false,
        default: "1",
        about: "The relative share of requests that this server gets, 1 to 1000: a server with weight 2 gets twice as many as one with weight 1.",
    },
    Prop {
        name: "backup",
        usage: "#true|#false",
        required: false,
        default: "#false",
        about: "The server gets requests only while no other server can take them.",
    },
    Prop {
        name: "drain",
        usage: "#true|#false",
        required: false,
        default: "#false",
        about: "The server gets no new requests, except those of its own `sticky` clients. Requests in flight go on.",
    },
    Prop {
        name: "max-requests",
        usage: "NUMBER",
        required: false,
        default: "no limit",
        about: "The most requests in flight at this server. Beyond: requests go to the other servers; if none can take them, 503.",
    },
    Prop {
        name: "max-connections",
        usage: "NUMBER",
        required: false,
        default: "no limit",
        about: "The most connections to this server, not counting those of health checks. Beyond: requests go to the other servers; if none can take them, 503. Over HTTP/2, each of these connections may have as many requests in flight as the server allows streams.",
    },
    Prop {
        name: "slow-start",
        usage: "DURATION",
        required: false,
        default: "none",
        about: "After the server comes up, or is added by a reload: the time over which its share of requests grows to its full weight.",
    },
    Prop {
        name: "zone",
        usage: "NAME",
        required: false,
        default: "none",
        about: "The zone of the server; see `zone` at the top of the file.",
    },
];

/// The properties of `health`.
const HEALTH_PROPS: &[Prop] = &[
    Prop {
        name: "kind",
        usage: "KIND",
        required: false,
        default: "\"http\"",
        about: "The kind of probe. `\"http\"`: a request. `\"tcp\"`: a connection. `\"tls\"`: a TLS handshake. `\"grpc\"`: a call of the standard gRPC health service, which must answer SERVING.",
    },
    Prop {
        name: "every",
        usage: "DURATION",
        required: false,
        default: "\"5s\"",
        about: "The pause between two probes of a server, at least 50 ms.",
    },
    Prop {
        name: "timeout",
        usage: "DURATION",
        required: false,
        default: "\"1s\"",
        about: "The time limit for a whole probe, including the connection.",
    },
    Prop {
        name: "rise",
        usage: "NUMBER",
        required: false,
        default: "2",
        about: "The number of successful probes in a row after which a server is up.",
    },
    Prop {
        name: "fall",
        usage: "NUMBER",
        required: false,
        default: "3",
        about: "The number of failed probes in a row after which a server is down.",
    },
    Prop {
        name: "jitter",
        usage: "PERCENT",
        required: false,
        default: "\"10%\"",
        about: "The random variation of each pause, up to 50 %.",
    },
    Prop {
        name: "expect-status",
        usage: "STATUSES",
        required: false,
        default: "\"200-399\"",
        about: "The statuses for which a probe succeeds, such as `\"200-299 304\"`.",
    },
    Prop {
        name: "expect-body",
        usage: "TEXT",
        required: false,
        default: "any",
        about: "A text that the first 64 KiB of the response body must contain.",
    },
    Prop {
        name: "host",
        usage: "NAME",
        required: false,
        default: "the upstream's host, else the server's address",
        about: "The `Host` of the probe.",
    },
    Prop {
        name: "method",
        usage: "METHOD",
        required: false,
        default: "\"GET\"",
        about: "The method of the request.",
    },
    Prop {
        name: "port",
        usage: "NUMBER",
        required: false,
        default: "the server's",
        about: "The port for probes.",
    },
];

const SHARE_PROPS: &[Prop] = &[
    Prop {
        name: "share",
        usage: "PERCENT",
        required: false,
        default: "none",
        about: "Takes the server out if this percentage of the attempts at it within ten seconds has failed. With `share`, responses with one of the `statuses` count towards this percentage, but not as failures in a row. There is one `share` for `failures` and `statuses` together.",
    },
    Prop {
        name: "minimum",
        usage: "NUMBER",
        required: false,
        default: "20",
        about: "The number of attempts from which on `share` applies.",
    },
];

/// The block of `eject`.
pub static EJECT: Block = Block {
    keys: &[
        Key::one("failures", "NUMBER share=PERCENT", "failures 5", "The number of failures in a row that takes a server out.").props(SHARE_PROPS).default("3"),
        Key::one("statuses", "STATUSES share=PERCENT", "statuses \"502-504\" share=\"50%\"", "The statuses of responses that count as failures. The client still gets the response.").props(SHARE_PROPS).otherwise("none"),
        Key::one("slower-than", "NUMBER", "slower-than 10", "Takes a server out when its median latency is this many times that of the other servers, and at least 10 ms more. Both the server and the others need 20 recent answers.").otherwise("latency does not matter"),
        Key::flag("hung", "#true", "hung #false", "Takes a server out that hangs: it has answered none of its requests for some time, while other servers have. The time is three times the upstream's 99th percentile of latency, at least 250 ms; before 20 answers are known, it is two seconds. At least three requests must be waiting at the server, or two for twice the time; requests whose response has begun, such as downloads and WebSockets, do not count, nor do those whose client is still sending the body. Idempotent requests that wait there are sent to another server, within `retries` and `retry-budget`. If fewer requests wait, a request with a safe method (GET, HEAD, OPTIONS) and without a body is sent to another server as well after the same time (while one to 19 answers are known: six times the slowest, at least 500 ms), and the first response counts, unless it is a 5xx or 429 of the other server; if the other server is much quicker and its status below 400, this is a failure of the silent one. If the other server may hang as well, or the attempt there fails without a response, a third server gets the request in place of the second. This does not apply with `sticky` or `balance \"hash\"`, because other servers may not know the client's session. If a request has waited for all of `first-byte`, and the server has answered nobody meanwhile, this one failure takes the server out."),
        Key::one("for", "DURATION at-most=DURATION", "for \"5s\" at-most=\"5m\"", "How long a server is out the first time. The time doubles each time the server fails again at once, or within 30 s after it came back.")
            .props(&[Prop { name: "at-most", usage: "DURATION", required: false, default: "\"10s\"", about: "The longest time that a server is out." }])
            .default("\"500ms\""),
        Key::one("most", "PERCENT", "most \"30%\"", "The largest percentage of the servers that may be out for any reason, including the one that `share` or `slower-than` takes out. Failures in a row have no such limit, because a server that only fails is of no use.").default("\"50%\""),
    ],
    later: &[],
};

/// The properties of `upstream { retry }`.
pub(super) const RETRY_PROPS: &[Prop] = &[
    Prop {
        name: "on",
        usage: "FAILURES",
        required: false,
        default: "\"connect reset timeout\"",
        about: "The failures to which the rule applies, separated by blanks. `connect`: no connection could be made, or the origin refused the request without processing it. `reset`: the connection ended before a response. `timeout`: one of the times `connect`, `first-byte` and `try-timeout` has passed. A status or a range of statuses, such as `502-504`: the response had this status.",
    },
    Prop {
        name: "attempts",
        usage: "NUMBER",
        required: false,
        default: "1",
        about: "The most retries of a request by this rule, 1 to 16.",
    },
    Prop {
        name: "try-timeout",
        usage: "DURATION",
        required: false,
        default: "",
        about: "The time for an attempt, from connecting to the head of the response. For a request with a body, it starts again with each part that the origin gets, and does not run while the client's next part is awaited. It applies if `on` has `timeout` and the rule allows another attempt. The last attempt, and all attempts without this property, have the times of `timeouts`.",
    },
    Prop {
        name: "methods",
        usage: "METHODS",
        required: false,
        default: "",
        about: "Methods of requests that may be sent again even if an origin may have processed them, such as `\"POST PATCH\"`. Requests with idempotent methods may always be sent again.",
    },
    Prop {
        name: "upstream",
        usage: "NAME",
        required: false,
        default: "",
        about: "The upstream that gets the retries; from then on, its own rules apply. If no server of the present upstream takes new requests, because each is down, draining or full, and `on` has `connect`, requests go to the other upstream at once, and do not use up `retry-budget`. Without this property: the next server of the present upstream.",
    },
];

/// The block of `upstream { retry }`.
pub static RETRY: Block = Block {
    keys: &[
        Key::block("headers", &RETRY_HEADERS, "headers { set \"x-origin\" \"dr\" }", "Changes the fields of requests that go to the other upstream.").otherwise("the same fields"),
        Key::one("host", "NAME", "host \"dr.example.com\"", "The `Host` (`:authority`) of requests that go to the other upstream.").otherwise("that upstream's `host`, or the client's"),
        Key::one("path", "PATH", "path \"/backup/**\"", "The path of requests that go to the other upstream; the query is kept. `/**` at the end stands for the request's own path.").otherwise("the same path"),
    ],
    later: &[],
};

/// The block of `upstream { retry { headers } }`.
pub static RETRY_HEADERS: Block = Block {
    keys: &[
        Key::one(
            "set",
            "NAME VALUE",
            "set \"x-origin\" \"dr\"",
            "Sets the field to this value, and removes all other fields of this name.",
        )
        .args(2, 2)
        .many(),
        Key::one(
            "add",
            "NAME VALUE",
            "add \"x-via\" \"edge\"",
            "Adds this field; other fields of this name stay.",
        )
        .args(2, 2)
        .many(),
        Key::one("remove", "NAME...", "remove \"authorization\"", "Removes all fields of these names.")
            .args(1, ANY)
            .many(),
    ],
    later: &[],
};

/// The block of `upstream { tls }`.
pub static UPSTREAM_TLS: Block = Block {
    keys: &[
        Key::one(
            "server-name",
            "NAME",
            "server-name \"origin.example\"",
            "The name for SNI, which the server's certificate must carry.",
        )
        .otherwise("the server's host"),
        Key::one("ca", "FILE", "ca \"ca.pem\"", "A PEM file with the authorities to trust.")
            .otherwise("the system's"),
        Key::flag(
            "verify",
            "#true",
            "verify #false",
            "Verifies the server's certificate. Turn it off for tests only.",
        ),
        Key::one(
            "certificate",
            "FILE key=FILE",
            "certificate \"client.pem\" key=\"client.key\"",
            "The client certificate for servers that ask for one.",
        )
        .props(&[Prop {
            name: "key",
            usage: "FILE",
            required: true,
            default: "",
            about: "The private key of this certificate.",
        }])
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
            "The time for connecting, including the TLS handshake. Beyond: the next server is tried, or the client gets 504.",
        )
        .default("\"3s\""),
        Key::one(
            "first-byte",
            "DURATION",
            "first-byte \"2m\"",
            "The time from the last byte of the request to the end of the response's head. Of the interim responses (1xx), only 100 counts as a response. Beyond: 504.",
        )
        .default("\"30s\""),
        Key::one("idle", "DURATION", "idle \"5m\"", "The longest time without progress of a response; progress of the request's body counts too. Beyond: the exchange is cut off.")
            .default("\"60s\""),
        Key::one(
            "tunnel-idle",
            "DURATION",
            "tunnel-idle \"10m\"",
            "The longest time without data in either direction of an upgraded connection, such as a WebSocket. Beyond: close. After the origin has closed its side, `idle` applies.",
        )
        .default("\"1h\""),
        Key::one("keep-alive", "DURATION", "keep-alive \"15s\"", "How long an unused connection is kept open.")
            .default("\"55s\""),
    ],
    later: &[],
};

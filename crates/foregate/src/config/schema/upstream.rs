//! The keys of upstreams.

use super::requests::{self, QUEUE, UPSTREAM_REQUESTS};
use super::{ANY, BUFFER_REQUESTS, BUFFER_RESPONSES, Block, Key, Prop, RETRY_RULE};

/// The block of `upstream`.
pub static UPSTREAM: Block = Block {
    keys: &[
        Key::one("server", "ADDRESS weight=NUMBER", "server \"127.0.0.1:3001\" weight=2", "An origin server: `IP:PORT`, `[IPV6]:PORT`, `NAME:PORT`, `unix:PATH` or `srv:SERVICE`. Names are resolved in the background, by the rules of libc. With a dot at its end (`api.example.com.:443`) a name is looked up without the search list. `srv:_http._tcp.app.internal` stands for all servers that the SRV records of this service name, with their ports, weights and priorities; they come and go with the records.")
            .props(SERVER_PROPS)
            .many()
            .required(),
        Key::one("resolver", "ADDRESS...", "resolver \"127.0.0.53:53\"", "The nameservers for the names of the servers, in this order. The port is 53 unless it is given. Names are asked for as they are written; `/etc/hosts` and search lists are not used.")
            .args(1, ANY)
            .otherwise("`/etc/hosts`, then the nameservers of `/etc/resolv.conf`"),
        Key::one("balance", "METHOD by=PART", "balance \"least-requests\"", "How requests are spread over the servers that are up. `\"round-robin\"`: in turns, by weight. `\"least-requests\"`: to the server with the fewest requests in flight for its weight. `\"two-choices\"`: to the less busy of two servers drawn at random by weight. `\"peak-ewma\"`: of two servers drawn at random by weight, to the one with the lower product of recent latency and requests in flight. `\"random\"`: at random by weight. `\"hash\"`: requests that agree in `by` go to the same server while it is up.")
            .props(&[
                Prop { name: "by", usage: "PART", required: false, default: "\"client\"", about: "The part of the request for `\"hash\"`: `\"client\"` (its address), `\"path\"`, `\"target\"` (path and query), `\"header:NAME\"` or `\"cookie:NAME\"`. Requests without it are spread in turns." },
                Prop { name: "maglev", usage: "#true|#false", required: false, default: "#false", about: "Whether `\"hash\"` uses a Maglev table: shares are more even than on a ring, and a server that comes or goes moves a few requests of the others." },
            ])
            .default("\"round-robin\""),
        Key::one("sticky", "cookie=NAME", "sticky cookie=\"SERVER\"", "Binds each client to one server by a signed cookie. `balance` chooses the server of a new client. While that server is down or full, another one takes over, and the cookie changes. The attributes of the cookie are `Path=/`, `HttpOnly` and `SameSite=Lax`.")
            .args(0, 0)
            .props(&[
                Prop { name: "cookie", usage: "NAME", required: true, default: "", about: "The name of the cookie." },
                Prop { name: "secret", usage: "TEXT", required: false, default: "a random key", about: "The key of the signature, at least 16 bytes. Without it, a restart assigns servers anew. Proxies side by side need the same secret." },
                Prop { name: "secure", usage: "#true|#false", required: false, default: "#false", about: "Whether the cookie has the attribute `Secure`, so that browsers send it over HTTPS only." },
                Prop { name: "max-age", usage: "DURATION", required: false, default: "the browser's session", about: "How long clients keep the cookie." },
            ])
            .secrets(&["secret"])
            .otherwise("none"),
        Key::one("health", "PATH every=DURATION", "health \"/healthz\" every=\"2s\"", "Probes each server, once for all threads, and skips those that fail. The first probe decides alone; after it, `fall` and `rise` apply. A probe uses a connection of its own with the TLS, PROXY protocol and HTTP settings of the upstream. While a server stays down, the pause between probes grows to four times `every`. PATH is the path of the request (default `/`), or the service name of `kind=\"grpc\"`. Redirects are not followed.")
            .args(0, 1)
            .props(HEALTH_PROPS)
            .otherwise("servers are judged by their requests alone"),
        Key::block("eject", &EJECT, "eject { statuses \"502-504\" share=\"50%\" }", "Which outcomes of requests take a server out for a while. After that time, single requests try the server again, and two answers bring it back."),
        Key::one("host", "NAME", "host \"app.internal\"", "The `Host` (`:authority` of HTTP/2) that the servers get: a name or address, with `:PORT` if there is one.").otherwise("the client's"),
        Key::one("http", "\"1.1\"|\"2\"|\"auto\"", "http \"2\"", "The protocol: `\"1.1\"` is HTTP/1.1; `\"2\"` is HTTP/2, by ALPN over TLS and by prior knowledge on cleartext; `\"auto\"` lets ALPN decide.").default("\"1.1\""),
        Key::block("tls", &UPSTREAM_TLS, "tls", "Connects to the servers over TLS.").otherwise("cleartext"),
        Key::block("timeouts", &UPSTREAM_TIMEOUTS, "timeouts { connect \"1s\" }", "Time limits for the servers."),
        Key::one("keep-alive-connections", "NUMBER", "keep-alive-connections 32", "The most unused connections that are kept per server. Beyond: the oldest is closed.").default("256"),
        Key::one("connection-age", "DURATION", "connection-age \"10m\"", "The age after which a connection is not used again.").default("\"1h\""),
        UPSTREAM_REQUESTS,
        QUEUE,
        Key::one("retries", "NUMBER", "retries 2", "The most further attempts, 0 to 16. A request is tried again only if no byte of a response has arrived and repeating it is safe. `retry` says more.").default("1"),
        RETRY_RULE.otherwise("`retries`"),
        requests::HEDGE,
        Key::one("retry-body", "SIZE", "retry-body \"16KiB\"", "The largest request body that is kept in memory for a further attempt, up to 16 MiB. A body that lies in a file because a module inspects it can be sent again, too.").default("\"64KiB\""),
        Key::one("retry-budget", "percent=NUMBER minimum=NUMBER", "retry-budget percent=10 minimum=5", "The most further attempts: both at a time, and over the last five to ten seconds.")
            .args(0, 0)
            .props(&[
                Prop { name: "percent", usage: "NUMBER", required: false, default: "20", about: "The share of the requests in flight, and of those of the last seconds, that may be further attempts." },
                Prop { name: "minimum", usage: "NUMBER", required: false, default: "3", about: "The number of further attempts at a time, and for each of five seconds, that are allowed whatever the share." },
            ])
            .default("percent=20 minimum=3"),
        BUFFER_REQUESTS.otherwise("bodies pass as they come"),
        BUFFER_RESPONSES.otherwise("servers are read as clients read"),
        Key::one("send-proxy", "\"v1\"|\"v2\"", "send-proxy \"v2\"", "Starts each connection with a PROXY protocol header. Such a connection belongs to one client connection. Over HTTP/1.1 it is kept for further requests of that client connection, for up to 16 servers, and closed with it. Over HTTP/2 it is closed after each request.").otherwise("none"),
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
        about: "The share of requests that this server gets, relative to the others, 1 to 1000.",
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
        about: "The most requests in flight at this server. Beyond: the other servers, or 503.",
    },
    Prop {
        name: "max-connections",
        usage: "NUMBER",
        required: false,
        default: "no limit",
        about: "The most connections to this server, without the one of health checks. Beyond: the other servers, or 503. Over HTTP/2 each connection counts for the streams that the server allows.",
    },
    Prop {
        name: "slow-start",
        usage: "DURATION",
        required: false,
        default: "none",
        about: "The time in which the share of a server that comes up, or is added by a reload, grows to its weight.",
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
        about: "`\"http\"`: a request. `\"tcp\"`: a connection. `\"tls\"`: a handshake. `\"grpc\"`: the standard gRPC health service, which must answer SERVING.",
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
        about: "The time for a whole probe, connecting included.",
    },
    Prop {
        name: "rise",
        usage: "NUMBER",
        required: false,
        default: "2",
        about: "The successes in a row after which a server is up.",
    },
    Prop {
        name: "fall",
        usage: "NUMBER",
        required: false,
        default: "3",
        about: "The failures in a row after which a server is down.",
    },
    Prop {
        name: "jitter",
        usage: "PERCENT",
        required: false,
        default: "\"10%\"",
        about: "How much each pause differs at random, up to 50 %.",
    },
    Prop {
        name: "expect-status",
        usage: "STATUSES",
        required: false,
        default: "\"200-399\"",
        about: "The statuses of a server that is well, such as `\"200-299 304\"`.",
    },
    Prop {
        name: "expect-body",
        usage: "TEXT",
        required: false,
        default: "any",
        about: "A text that the first 64 KiB of the body must contain.",
    },
    Prop {
        name: "host",
        usage: "NAME",
        required: false,
        default: "the upstream's host, else the server's address",
        about: "The host that is asked for.",
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
        about: "Another port for probes.",
    },
];

const SHARE_PROPS: &[Prop] = &[
    Prop {
        name: "share",
        usage: "PERCENT",
        required: false,
        default: "none",
        about: "Takes the server out when this share of its attempts within ten seconds has failed. Statuses then count in this share only. `failures` and `statuses` have one share in common.",
    },
    Prop {
        name: "minimum",
        usage: "NUMBER",
        required: false,
        default: "20",
        about: "The least number of attempts for `share`.",
    },
];

/// The block of `eject`.
pub static EJECT: Block = Block {
    keys: &[
        Key::one("failures", "NUMBER share=PERCENT", "failures 5", "The failures in a row after which a server is out.").props(SHARE_PROPS).default("3"),
        Key::one("statuses", "STATUSES share=PERCENT", "statuses \"502-504\" share=\"50%\"", "Statuses of responses that count as failures. The client gets the response all the same.").props(SHARE_PROPS).otherwise("none"),
        Key::one("slower-than", "NUMBER", "slower-than 10", "Takes a server out when its median latency is this many times that of the other servers, and at least 10 ms more. Both sides need 20 recent answers.").otherwise("latency does not matter"),
        Key::flag("hung", "#true", "hung #false", "Takes a server out that answers none of its requests for three times the upstream's 99th percentile of latency (at least 250 ms), while others answer. Two requests must wait, for twice as long, or three. Before 20 answers are known, the time is two seconds. Idempotent requests that wait there are sent to another server, within `retries` and `retry-budget`."),
        Key::one("for", "DURATION at-most=DURATION", "for \"5s\" at-most=\"5m\"", "How long a server is out at first. The time doubles each time that it fails again at once, or within 30 s after it came back.")
            .props(&[Prop { name: "at-most", usage: "DURATION", required: false, default: "\"10s\"", about: "The longest time." }])
            .default("\"500ms\""),
        Key::one("most", "PERCENT", "most \"30%\"", "The largest share of the servers that `share` and `slower-than` may take out at a time. Failures in a row have no such cap: such a server would fail all requests.").default("\"50%\""),
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
        about: "The failures, separated by blanks. `connect`: no connection could be made, or the origin did not look at the request. `reset`: the connection ended before a response. `timeout`: `connect`, `first-byte` or `try-timeout` has passed. A status or a range of statuses, such as `502-504`: a response with it.",
    },
    Prop {
        name: "attempts",
        usage: "NUMBER",
        required: false,
        default: "1",
        about: "The most further attempts by this rule, 1 to 16.",
    },
    Prop {
        name: "try-timeout",
        usage: "DURATION",
        required: false,
        default: "",
        about: "The time for an attempt, from connecting to the head of the response, while this rule allows another attempt after `timeout`. Without it, or for the last attempt: `timeouts`.",
    },
    Prop {
        name: "methods",
        usage: "METHODS",
        required: false,
        default: "",
        about: "Methods that may be repeated although an origin may have processed the request, such as `\"POST PATCH\"`. Idempotent methods always may.",
    },
    Prop {
        name: "upstream",
        usage: "NAME",
        required: false,
        default: "",
        about: "Another upstream for the attempts, with its own rules. While no server of this one is up, requests whose failed `connect`s the rule covers go there at once, and take nothing from `retry-budget`. Without it: the next server of this upstream.",
    },
];

/// The block of `upstream { retry }`.
pub static RETRY: Block = Block {
    keys: &[
        Key::block("headers", &RETRY_HEADERS, "headers { set \"x-origin\" \"dr\" }", "Changes the fields of the request for the other upstream.").otherwise("the same fields"),
        Key::one("host", "NAME", "host \"dr.example.com\"", "The `Host` (`:authority`) for the other upstream.").otherwise("its own `host`, or the client's"),
        Key::one("path", "PATH", "path \"/backup/**\"", "The path for the other upstream; the query stays. With `/**` at its end, the request's own path follows.").otherwise("the same path"),
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
            "Sets the field to this value and removes other fields of its name.",
        )
        .args(2, 2)
        .many(),
        Key::one("add", "NAME VALUE", "add \"x-via\" \"edge\"", "Adds one more field.").args(2, 2).many(),
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
            "The time for a connection, TLS handshake included. Beyond: the next server is tried, or the client gets 504.",
        )
        .default("\"3s\""),
        Key::one(
            "first-byte",
            "DURATION",
            "first-byte \"2m\"",
            "The time from the last byte of the request to the end of the response's head. Interim responses do not count, except 100. Beyond: 504.",
        )
        .default("\"30s\""),
        Key::one("idle", "DURATION", "idle \"5m\"", "The longest pause in a response while the request's body pauses as well. Beyond: the exchange is cut off.")
            .default("\"60s\""),
        Key::one(
            "tunnel-idle",
            "DURATION",
            "tunnel-idle \"10m\"",
            "The longest pause in both directions of an upgraded connection, such as a WebSocket. Beyond: close. After the origin has closed its side, `idle` is the limit.",
        )
        .default("\"1h\""),
        Key::one("keep-alive", "DURATION", "keep-alive \"15s\"", "How long an unused connection is kept open.")
            .default("\"55s\""),
    ],
    later: &[],
};

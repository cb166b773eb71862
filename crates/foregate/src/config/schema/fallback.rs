//! The key `fallback`.

use foregate_config::schema::{Key, Prop};

const ON: Prop = Prop {
    name: "on",
    usage: "\"host route\"",
    required: false,
    default: "\"host route\"",
    about: "Which unknown requests fall back to the old proxy: `host`: those for a host that no site has. `route`: those for a path that no route of their site matches. `\"host route\"`: both.",
};

const UPSTREAM: Prop =
    Prop { name: "upstream", usage: "NAME", required: true, default: "", about: "The old proxy." };

const SHARE: Prop = Prop {
    name: "share",
    usage: "PERCENT",
    required: false,
    default: "",
    about: "The percentage of clients that Foregate itself serves, such as `\"10%\"` or `\"0.5%\"`; the requests of all other clients fall back. The client's address decides (IPv6: its /64 network), so a client is always served by the same proxy, on every machine, as long as the percentage is not changed. The address is that of the connection, or that in the PROXY protocol header.",
};

const WHEN: Prop = Prop {
    name: "when",
    usage: "EXPRESSION",
    required: false,
    default: "",
    about: "Requests for which this expression is true fall back. It is evaluated before any module runs; the client's address cannot be used.",
};

const UNCONVERTED: Prop = Prop {
    name: "unconverted",
    usage: "TEXT",
    required: false,
    default: "",
    about: "Names a construct of the old configuration that Foregate cannot express. All requests fall back, and are counted with the reason `unconverted`.",
};

const TLS_FIELDS: Prop = Prop {
    name: "tls-fields",
    usage: "#true|#false",
    required: false,
    default: "#false",
    about: "Tells the old proxy about the client's connection in `X-Forwarded-Proto`, `X-SSL-Protocol`, `X-SSL-Cipher`, `X-SSL-Server-Name`, `X-SSL-Client-Verify` (`SUCCESS` or `NONE`), `X-SSL-Client-S-DN` and `X-SSL-Client-Fingerprint` (SHA-256). The client's own fields of these names are removed.",
};

const SERVER_NAMES: Prop = Prop {
    name: "server-names",
    usage: "NAMES",
    required: false,
    default: "",
    about: "TLS connections with one of these names in the ClientHello (SNI), separated by blanks, are forwarded to the old proxy without being decrypted. `*.NAME` matches all names below NAME; `*` matches every name that no site has, and connections without a name. If names of several `fallback` match, the name itself has precedence, then the longest `*.NAME`. The servers of the upstream must speak TLS, but the upstream itself must have neither `tls` nor `http`. With `send-proxy \"v2\"`, the PROXY header has the name and the preferred protocol (ALPN). A `fallback` with `server-names` applies to such connections alone; add a second `fallback` without it for requests.",
};

/// At the top of the file.
pub(super) const OF_ALL: Key = Key::one("fallback", "upstream=NAME", "fallback upstream=\"old\"", "Sends requests that no site or route matches to the old proxy, which is the one that Foregate replaces. Over HTTP/1.1, requests and responses pass byte for byte: heads, framing and trailers. Each connection to the old proxy belongs to one client connection. With `send-proxy` in the upstream, it begins with a PROXY header, which in version 2 also describes the client's TLS connection. `share`, `when` and `unconverted` also send requests that routes do match to the old proxy: those of all routes of all sites that have no `fallback` of their own.")
    .args(0, 0)
    .props(&[UPSTREAM, ON, SHARE, WHEN, UNCONVERTED, TLS_FIELDS, SERVER_NAMES])
    .many()
    .otherwise("404");

/// In a site.
pub(super) const OF_SITE: Key = Key::one("fallback", "upstream=NAME", "fallback upstream=\"old\" share=\"10%\"", "Sends requests that no route of the site matches to the old proxy, which is the one that Foregate replaces. `share`, `when` and `unconverted` apply to all routes of the site that have no `fallback` of their own.")
    .args(0, 0)
    .props(&[UPSTREAM, SHARE, WHEN, UNCONVERTED, TLS_FIELDS])
    .otherwise("that of the top of the file");

/// In a route.
pub(super) const OF_ROUTE: Key = Key::one("fallback", "upstream=NAME", "fallback upstream=\"old\"", "Sends requests of the route to the old proxy, which is the one that Foregate replaces, before any module runs: all requests, or those that `share` and `when` select.")
    .args(0, 0)
    .props(&[UPSTREAM, SHARE, WHEN, UNCONVERTED, TLS_FIELDS])
    .otherwise("the site's");

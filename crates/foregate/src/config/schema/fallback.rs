//! The key `fallback`.

use foregate_config::schema::{Key, Prop};

const ON: Prop = Prop {
    name: "on",
    usage: "\"host route\"",
    required: false,
    default: "\"host route\"",
    about: "Which unknown requests fall back: those for a host that no site has (`host`), those for a path that no route of their site takes (`route`), or both.",
};

const UPSTREAM: Prop =
    Prop { name: "upstream", usage: "NAME", required: true, default: "", about: "The old proxy." };

const SHARE: Prop = Prop {
    name: "share",
    usage: "PERCENT",
    required: false,
    default: "",
    about: "The share of clients that is served here, such as `\"10%\"` or `\"0.5%\"`; the requests of the others fall back. A client stays on its side while the share stays, on every machine: its address decides, of IPv6 its /64 network, as the connection or the PROXY protocol has it.",
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
    about: "Names a construct of the old configuration that has no counterpart here. All requests fall back, and are counted for this reason.",
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
    about: "TLS connections of clients that ask for one of these names, separated by blanks, go to the old proxy as they are, before TLS ends here. `*.NAME` is every name below NAME; `*` is every name that no site has, and no name. The servers of the upstream speak TLS, but the upstream has no `tls`, and no `http`. With `send-proxy \"v2\"` the PROXY header has the name and the preferred protocol. Such a `fallback` is about connections alone; another one may stand beside it.",
};

/// At the top of the file.
pub(super) const OF_ALL: Key = Key::one("fallback", "upstream=NAME", "fallback upstream=\"old\"", "Sends requests that no site or route takes to the proxy that Foregate replaces. Over HTTP/1.1 their bytes go on as they came, and so do those of the answer: heads, framing and trailers. A connection to the old proxy serves one client connection alone; with `send-proxy` in the upstream it begins with a PROXY header, which in version 2 also has the facts about TLS. `share`, `when` and `unconverted` apply to the routes of all sites that have no `fallback` of their own.")
    .args(0, 0)
    .props(&[UPSTREAM, ON, SHARE, WHEN, UNCONVERTED, TLS_FIELDS, SERVER_NAMES])
    .many()
    .otherwise("404");

/// In a site.
pub(super) const OF_SITE: Key = Key::one("fallback", "upstream=NAME", "fallback upstream=\"old\" share=\"10%\"", "Sends requests that no route of the site takes to the proxy that Foregate replaces. `share`, `when` and `unconverted` apply to its routes that have no `fallback` of their own.")
    .args(0, 0)
    .props(&[UPSTREAM, SHARE, WHEN, UNCONVERTED, TLS_FIELDS])
    .otherwise("as the top of the file has it");

/// In a route.
pub(super) const OF_ROUTE: Key = Key::one("fallback", "upstream=NAME", "fallback upstream=\"old\"", "Sends requests of the route to the proxy that Foregate replaces, before any module runs: all of them, or with `share` and `when` those that these single out.")
    .args(0, 0)
    .props(&[UPSTREAM, SHARE, WHEN, UNCONVERTED, TLS_FIELDS])
    .otherwise("as the site has it");

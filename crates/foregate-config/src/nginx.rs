//! Directives of NGINX that have another name here, for those who come from there.

/// What to write in place of a directive, in whichever way it is spelt, in the block of this name; with a block of its own or
/// without.
pub(crate) fn instead_of(directive: &str, within: &str, has_block: bool) -> Option<&'static str> {
    let directive = directive.replace('-', "_");
    // Without one these are keys of ours.
    if matches!(&*directive, "http" | "server") && !has_block {
        return None;
    }
    let instead = INSTEAD.iter().find(|(name, _)| *name == directive).map(|(_, instead)| *instead)?;
    // The block that it stands in is known already.
    let known = within == "rule" && directive == "if" || instead.starts_with(&format!("write `{within}`"));
    (!known).then_some(instead)
}

/// What is meant by a name within a block of ours.
pub(crate) fn key_within(block: &str, name: &str) -> Option<&'static str> {
    let name = name.replace('-', "_");
    WITHIN.iter().find(|row| row.0 == block && row.1 == name).map(|(_, _, help)| *help)
}

const WITHIN: &[(&str, &str, &str)] = &[
    ("forward-auth", "headers", "did you mean `copy`?"),
    ("rule", "deny", "in a rule, write `block`"),
    ("rule", "return", "in a rule, write `respond STATUS \"TEXT\"` or `redirect \"TARGET\"`"),
    ("security-headers", "csp", "did you mean `content-security-policy`?"),
    ("security-headers", "hsts", "did you mean `strict-transport-security`?"),
    ("upstream", "ip_hash", BALANCE),
    ("upstream", "keepalive", "write `keep-alive-connections NUMBER`"),
    ("upstream", "least_conn", BALANCE),
];

const BALANCE: &str = "`balance \"round-robin\"` is the only method; there is no key for another";

/// How a rate is written for a key that has its window apart: `10r/s` is `10 per="1s"`.
pub(crate) fn rate(key: &str, value: &str) -> Option<String> {
    let (number, window) = value.trim_matches('"').split_once('/')?;
    let number: u32 = number.trim_end_matches('r').parse().ok()?;
    let window = matches!(window, "s" | "m" | "h").then_some(window)?;
    (key == "rate-limit").then(|| format!("write `{key} {number} per=\"1{window}\"`"))
}

const STATIC: &str =
    "files are not served here: have an origin do it, named by `proxy`; `respond` gives a fixed text";

const WAF: &str = "write `waf { rules \"FILE\" }`";

const TLS: &str = "write `listen \":443\" { tls { certificate \"FILE\" key=\"FILE\" } }`";

const HEALTH: &str = "servers that fail three times are passed over by themselves; there is no key";

const INSTEAD: &[(&str, &str)] = &[
    ("access_log", "write `access-log \"FILE\"`"),
    ("add_header", "write `headers { response { set \"NAME\" \"VALUE\" } }`"),
    ("alias", STATIC),
    ("allow", "write `access { allow \"10.0.0.0/8\" }`"),
    ("auth_basic", "write `basic-auth`"),
    ("auth_request", "write `forward-auth`"),
    ("client_max_body_size", "write `body-limit \"SIZE\"` in a `route`"),
    ("deny", "write `access { deny \"10.0.0.0/8\" }`"),
    ("error_page", "write `error-pages { page 404 file=\"FILE\" }`"),
    (
        "error_log",
        "leave it out: diagnostics go to the standard error; the variable FOREGATE_LOG says how many",
    ),
    ("events", "leave it out; the number of threads is `workers NUMBER` at the top of the file"),
    ("expires", "write `headers { response { set \"cache-control\" \"max-age=60\" } }`"),
    ("gzip", "write `compress`"),
    ("http", "leave it out: what stands in it stands at the top of the file"),
    ("if", "write `rule \"EXPRESSION\" { ... }`, or `when=\"EXPRESSION\"` at a key"),
    ("index", STATIC),
    ("keepalive_timeout", "write `timeouts { keep-alive \"60s\" }` at the top of the file"),
    ("limit_conn", "write `limits { connections-per-client NUMBER }` at the top of the file"),
    ("limit_req", "write `rate-limit NUMBER per=\"1s\"`"),
    ("location", "write `route \"/path/**\" { ... }` in a `site`"),
    ("map", "write `list`, and expressions that look into it"),
    (
        "proxy_pass",
        "write `upstream \"app\" { server \"HOST:PORT\" }` at the top of the file, and `proxy \"app\"` in a `route`",
    ),
    ("proxy_read_timeout", "write `upstream \"app\" { timeouts { first-byte \"30s\"; idle \"60s\" } }`"),
    (
        "proxy_set_header",
        "write `headers { request { set \"NAME\" \"VALUE\" } }`; for Host, `host \"NAME\"` in the `upstream`",
    ),
    (
        "return",
        "in a `route`, write `respond STATUS \"TEXT\"`; for 301, 302 and the like `redirect \"/**\" to=\"TARGET\"` beside `respond 404`",
    ),
    ("rewrite", "write `redirect`, or a `rule` that rewrites the path"),
    ("root", STATIC),
    (
        "server",
        "write `site \"NAME\" { route \"/**\" { ... } }`, and `listen \"ADDRESS\"` at the top of the file",
    ),
    ("server_name", "the names stand after `site`: `site \"example.com\" { ... }`"),
    ("server_tokens", "leave it out: no `Server` is added; `security-headers` takes away those of origins"),
    ("ssl", TLS),
    ("ssl_certificate", TLS),
    ("ssl_certificate_key", TLS),
    (
        "ssl_ciphers",
        "leave it out: there is no key; `tls { minimum-version \"1.3\" }` leaves only those of TLS 1.3",
    ),
    ("ssl_protocols", "write `listen \":443\" { tls { minimum-version \"1.2\" } }`"),
    ("sub_filter", "write `substitute` or `html-text`"),
    ("try_files", STATIC),
    ("user", "leave it out: it is the user who starts the proxy; names and passwords stand in `basic-auth`"),
    ("worker_processes", "write `workers NUMBER`"),
    ("block", "it stands in a rule: `rule \"EXPRESSION\" { block }`"),
    ("firewall", WAF),
    ("modsecurity", WAF),
    ("modsecurity_rules_file", WAF),
    ("health", HEALTH),
    ("health_check", HEALTH),
    ("healthcheck", HEALTH),
    ("hsts", "write `security-headers`"),
    ("log", "write `access-log \"FILE\"` at the top of the file"),
    (
        "reverse_proxy",
        "write `upstream \"app\" { server \"HOST:PORT\" }` at the top of the file, and `proxy \"app\"` in a `route`",
    ),
    (
        "strip_prefix",
        "write `rule \"true\" { rewrite path=#\"regex_replace(http.request.uri.path, \"^/PREFIX/\", \"/\")\"# expression=#true }`",
    ),
    ("timeout", "write `timeouts`, at the top of the file for clients, in an `upstream` for its servers"),
    ("websocket", "it passes on every `proxy` route; there is no key"),
    ("websockets", "it passes on every `proxy` route; there is no key"),
];

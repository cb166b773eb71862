//! Words of other proxies (Caddy, HAProxy, Envoy, Traefik, and what people write by habit), with the key here that does the same.
//!
//! Directives of NGINX stand in `nginx.rs`. A word that is a key in the block where it stands never comes here.

/// What to write in place of a word, in whichever way it is spelt.
pub(crate) fn instead_of(word: &str) -> Option<&'static str> {
    let word = spelt(word);
    WORDS.iter().find(|(names, _)| names.contains(&&*word)).map(|(_, instead)| *instead)
}

/// In small letters, with `-` between words: `accessLog`, `access_log` and `access.log` are one.
fn spelt(word: &str) -> String {
    let mut out = String::with_capacity(word.len() + 2);
    let mut was_small = false;
    for letter in word.chars() {
        if letter.is_ascii_uppercase() && was_small {
            out.push('-');
        }
        was_small = letter.is_ascii_lowercase() || letter.is_ascii_digit();
        out.push(if matches!(letter, '_' | '.' | ' ') { '-' } else { letter.to_ascii_lowercase() });
    }
    out
}

const ACME: &str = "it is not in this version: certificates come from files, `listen \":443\" { tls { certificate \"FILE\" key=\"FILE\" } }`; a client for ACME renews them, and changed files are noticed";
const HTTP3: &str = "it is not in this version: clients are served over HTTP/1.1 and HTTP/2";
const CACHE: &str = "it is not in this version: nothing is cached";
const TRACING: &str = "it is not in this version: `trace` passes W3C trace context on, and `metrics \"ADDRESS\"` serves Prometheus";
const FILES: &str = "files are not served in this version: have an origin do it, named by `proxy`; `respond` gives a fixed text";
const CHECKS: &str = "servers that fail three times are passed over by themselves; there is no key";
const STICKY: &str = "it is not in this version: servers take turns by their weights";
const STREAM: &str = "it is not in this version: only HTTP is proxied, with WebSocket and CONNECT";
const STRIP: &str = "write `rule \"true\" { rewrite path=#\"regex_replace(http.request.uri.path, \"^/PREFIX/\", \"/\")\"# expression=#true }`";
const LOGS: &str = "leave it out: diagnostics go to the standard error; the variable FOREGATE_LOG says how many, such as `FOREGATE_LOG=debug`";
const ACCESS_LOG: &str = "write `access-log \"FILE\"` at the top of the file";
const SITE: &str = "write `site \"example.com\" { route \"/**\" { ... } }`";
const ROUTE: &str = "write `route \"/path/**\" { ... }` in a `site`";
const UPSTREAM: &str = "write `upstream \"app\" { server \"HOST:PORT\" }` at the top of the file, and `proxy \"app\"` in a `route`";
const LISTEN: &str = "write `listen \":8080\"` at the top of the file";
const TLS: &str = "write `listen \":443\" { tls { certificate \"FILE\" key=\"FILE\" } }`";
const CLIENT_TLS: &str =
    "write `client-certificates \"CA FILE\" mode=\"required\"` in the `tls` of a `listen` or a `site`";
const HEADERS: &str =
    "write `headers { request { set \"NAME\" \"VALUE\" }; response { set \"NAME\" \"VALUE\" } }`";
const REDIRECT: &str = "write `redirect \"/old/**\" to=\"/new\"`";
const LIMIT: &str = "write `rate-limit NUMBER per=\"1s\"`";
const ACCESS: &str = "write `access { allow \"10.0.0.0/8\" }`";
const AUTH: &str = "write `basic-auth { user \"NAME\" \"HASH\" }`";
const FORWARD_AUTH: &str = "write `forward-auth upstream=\"NAME\" path=\"/PATH\"`";
const MIDDLEWARE: &str = "leave it out: the keys of modules stand at the top of the file, in a `site` or in a `route`; `foregate modules` lists them";
const RETRY: &str = "write `retries NUMBER` in the `upstream`";
const BODY: &str = "write `body-limit \"SIZE\"` in a `route`";
const TIMEOUTS: &str =
    "write `timeouts`, at the top of the file for clients, in an `upstream` for its servers";
const MATCHER: &str = "write `rule \"EXPRESSION\" { ... }`, or `when=\"EXPRESSION\"` at a key";
const PROXY_PROTOCOL: &str =
    "write `proxy-protocol` in a `listen`, with the networks that are trusted; `send-proxy` in an `upstream`";
const TRUSTED: &str = "write `trusted-proxies \"10.0.0.0/8\"`";
const METRICS: &str = "write `metrics \"127.0.0.1:9145\"` at the top of the file";
const ADMIN: &str = "write `admin \"SOCKET\"` at the top of the file";
const INCLUDE: &str = "write `include \"FILE\"`";
const ERROR_PAGES: &str = "write `error-pages { page 404 file=\"FILE\" }`";
const COMPRESS: &str = "write `compress`";
const WORKERS: &str = "write `workers NUMBER` at the top of the file";

const WORDS: &[(&[&str], &str)] = &[
    (
        &[
            "acme",
            "acme-ca",
            "acme-dns",
            "auto-https",
            "auto-ssl",
            "cert-resolver",
            "cert-resolvers",
            "certificates-resolvers",
            "certresolver",
            "email",
            "lets-encrypt",
            "letsencrypt",
            "on-demand-tls",
        ],
        ACME,
    ),
    (&["alt-svc", "h3", "http3", "http-3", "quic"], HTTP3),
    (&["cache", "cache-control", "caching", "http-cache", "proxy-cache", "souin"], CACHE),
    (
        &[
            "datadog",
            "jaeger",
            "open-telemetry",
            "opentelemetry",
            "opentracing",
            "otel",
            "otlp",
            "tracing",
            "zipkin",
        ],
        TRACING,
    ),
    (
        &[
            "browse",
            "file-server",
            "fileserver",
            "files",
            "static",
            "static-dir",
            "static-files",
            "serve-static",
            "webroot",
        ],
        FILES,
    ),
    (
        &[
            "active-health-check",
            "check",
            "health-checks",
            "health-interval",
            "health-path",
            "health-uri",
            "httpchk",
            "outlier-detection",
            "passive-health-check",
        ],
        CHECKS,
    ),
    (
        &[
            "affinity",
            "cookie",
            "session-affinity",
            "stick",
            "stick-on",
            "stick-table",
            "sticky",
            "sticky-session",
            "sticky-sessions",
        ],
        STICKY,
    ),
    (&["mode-tcp", "stream", "tcp", "tcp-proxy", "udp", "layer4"], STREAM),
    (
        &[
            "path-prefix-strip",
            "strip",
            "strip-path",
            "strip-path-prefix",
            "strip-prefix",
            "strip-prefix-regex",
            "replace-path",
            "replace-path-regex",
            "handle-path",
            "prefix-rewrite",
            "uri",
            "add-prefix",
        ],
        STRIP,
    ),
    (&["debug", "log-format", "log-level", "loglevel", "logger", "logging", "verbose", "verbosity"], LOGS),
    (&["access-logs", "accesslog", "logs", "option-httplog"], ACCESS_LOG),
    (
        &[
            "domain",
            "domains",
            "host",
            "hosts",
            "server-name",
            "sites",
            "virtual-host",
            "virtual-hosts",
            "virtualhost",
            "vhost",
        ],
        SITE,
    ),
    (
        &["handle", "path", "path-prefix", "paths", "routes", "router", "routers", "prefix", "match-path"],
        ROUTE,
    ),
    (
        &[
            "backend",
            "backends",
            "cluster",
            "clusters",
            "destination",
            "endpoint",
            "endpoints",
            "lb-endpoints",
            "load-assignment",
            "load-balancer",
            "origin",
            "origins",
            "pool",
            "proxy-to",
            "reverse-proxy",
            "service",
            "services",
            "target",
            "targets",
            "to",
            "upstreams",
            "use-backend",
            "default-backend",
        ],
        UPSTREAM,
    ),
    (
        &[
            "address",
            "bind",
            "entry-point",
            "entry-points",
            "entrypoints",
            "frontend",
            "frontends",
            "listener",
            "listeners",
            "port",
            "ports",
        ],
        LISTEN,
    ),
    (
        &[
            "cert",
            "certificates",
            "certs",
            "crt",
            "ssl-cert",
            "tls-certificates",
            "transport-socket",
            "downstream-tls-context",
        ],
        TLS,
    ),
    (&["client-auth", "client-ca", "clientauth", "mtls", "verify-client"], CLIENT_TLS),
    (
        &[
            "custom-request-headers",
            "custom-response-headers",
            "header",
            "header-down",
            "header-up",
            "http-request",
            "http-response",
            "request-header",
            "request-headers",
            "request-headers-to-add",
            "response-header",
            "response-headers",
            "response-headers-to-add",
            "set-header",
            "reqadd",
            "rspadd",
        ],
        HEADERS,
    ),
    (
        &[
            "force-https",
            "http-to-https",
            "https-redirect",
            "redir",
            "redirect-regex",
            "redirect-scheme",
            "redirects",
            "ssl-redirect",
        ],
        REDIRECT,
    ),
    (
        &[
            "average",
            "limit-rate",
            "local-ratelimit",
            "rate-limiting",
            "ratelimit",
            "throttle",
            "token-bucket",
            "inflightreq",
        ],
        LIMIT,
    ),
    (
        &[
            "acl",
            "allow-list",
            "allowlist",
            "black-list",
            "blacklist",
            "block-list",
            "denylist",
            "ip-allow-list",
            "ip-white-list",
            "ipallowlist",
            "ipwhitelist",
            "rbac",
            "remote-ip",
            "white-list",
            "whitelist",
        ],
        ACCESS,
    ),
    (&["auth", "basicauth", "basic-authentication", "http-basic", "users", "userlist"], AUTH),
    (
        &["authelia", "authz", "authorization", "ext-authz", "forwardauth", "oauth2-proxy", "oidc"],
        FORWARD_AUTH,
    ),
    (
        &["filter", "filters", "http-filters", "middleware", "middlewares", "plugin", "plugins", "order"],
        MIDDLEWARE,
    ),
    (&["lb-retries", "lb-try-duration", "redispatch", "retry", "retry-policy", "try-duration"], RETRY),
    (
        &[
            "body-size",
            "buffering",
            "max-body",
            "max-body-size",
            "max-request-body-bytes",
            "request-body",
            "max-size",
        ],
        BODY,
    ),
    (
        &[
            "connect-timeout",
            "dial-timeout",
            "idle-timeout",
            "keepalive-timeout",
            "read-timeout",
            "request-timeout",
            "responding-timeouts",
            "timeout-client",
            "timeout-connect",
            "timeout-server",
            "write-timeout",
        ],
        TIMEOUTS,
    ),
    (&["condition", "expression", "match", "matcher", "matchers", "rules", "unless", "when"], MATCHER),
    (&["accept-proxy", "proxy-protocol-v2", "send-proxy-v2", "proxyprotocol"], PROXY_PROTOCOL),
    (
        &[
            "forward-for",
            "forwarded",
            "forwarded-headers",
            "real-ip",
            "real-ip-header",
            "realip",
            "set-real-ip-from",
            "trusted-ips",
            "use-remote-address",
            "xff-num-trusted-hops",
        ],
        TRUSTED,
    ),
    (&["ping", "prometheus", "stats", "statsd", "telemetry"], METRICS),
    (&["admin-api", "api", "dashboard", "runtime-api"], ADMIN),
    (&["config-file", "conf", "import", "imports", "snippet"], INCLUDE),
    (&["error-file", "errorfile", "errors", "handle-errors"], ERROR_PAGES),
    (&["brotli", "compression", "deflate", "encode", "gz", "zstd"], COMPRESS),
    (&["concurrency", "cpu-map", "nbproc", "nbthread", "processes", "threads", "worker"], WORKERS),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_stands_once_in_the_spelling_that_is_looked_for() {
        let mut seen = std::collections::HashSet::new();
        for word in WORDS.iter().flat_map(|(words, _)| *words) {
            assert_eq!(spelt(word), *word);
            assert!(seen.insert(word), "{word} stands there twice");
        }
        assert!(seen.len() > 200, "{}", seen.len());
    }

    #[test]
    fn words_are_known_in_any_spelling() {
        for word in ["logLevel", "log_level", "log-level", "LOG-LEVEL", "log.level", "LogLevel"] {
            assert_eq!(instead_of(word), Some(LOGS), "{word}");
        }
        for word in [
            "acme",
            "static",
            "strip",
            "otel",
            "http3",
            "HTTP3",
            "entryPoints",
            "stripPrefix",
            "certResolver",
        ] {
            assert!(instead_of(word).is_some(), "{word}");
        }
        assert_eq!(instead_of("cashe"), None);
    }
}

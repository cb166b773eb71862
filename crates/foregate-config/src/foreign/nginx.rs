//! Directives of NGINX that have another name in Foregate. They take precedence over our keys of the same name in
//! another block.

use super::Instead::{self, LeaveOut, Missing, Write};

/// The form of a rate for a key with a separate window: `10r/s` is `10 per="1s"`.
pub(crate) fn rate(key: &str, value: &str) -> Option<String> {
    let (number, window) = value.trim_matches('"').split_once('/')?;
    let number: u32 = number.trim_end_matches('r').parse().ok()?;
    let window = matches!(window, "s" | "m" | "h").then_some(window)?;
    (key == "rate-limit").then(|| format!("write `{key} {number} per=\"1{window}\"`"))
}

const SCRIPTS: Instead =
    Missing("scripts do not run; `rule` has expressions, and `foregate module new` writes a module in Rust");
const ROOT: Instead = Write(
    "write `files \"/FOLDER\"` in a `route`; as with `root`, the whole path of the request names the file",
);
const ALIAS: Instead = Write("write `files \"/FOLDER\"` and `strip-prefix \"/PREFIX\"` in a `route`");
const TRY_FILES: Instead = Write(
    "write `files \"/FOLDER\" { try \"$path\" \"/index.html\" }` in a `route`; for `@backend`, `proxy` beside `files`",
);
const STATIC_GZIP: Instead =
    Write("write `files \"/FOLDER\" { precompressed \"br\" \"gzip\" }` in a `route`");
const WAF: Instead = Write("write `waf { rules \"FILE\" }`; rules in SecLang belong in files of their own");
const TLS: Instead = Write("write `listen \":443\" { tls { certificate \"FILE\" key=\"FILE\" } }`");
const CLIENT_TLS: Instead =
    Write("write `client-certificates \"CA FILE\" mode=\"required\"` in the `tls` of a `listen` or a `site`");
const HEALTH: Instead = Write("write `health \"/PATH\"` in an `upstream`");
const REWRITE: Instead = Write(
    "write `redirect \"/old/**\" to=\"/new\"`, or `rule \"EXPRESSION\" { rewrite path=\"/new\" }` for the request to the origin",
);
const PROXY: Instead = Write(
    "write `upstream \"app\" { server \"HOST:PORT\" }` at the top of the file, and `proxy \"app\"` in a `route`",
);
const UPSTREAM_TIMEOUTS: Instead =
    Write("write `upstream \"app\" { timeouts { connect \"3s\"; first-byte \"30s\"; idle \"60s\" } }`");
const UPSTREAM_TLS: Instead =
    Write("write `tls { ... }` in the `upstream`: `server-name`, `ca`, `verify`, `certificate`");
const LIMIT_REQ: Instead = Write("write `rate-limit NUMBER per=\"1s\"`, which needs no zone");
const LIMIT_CONN: Instead = Write(
    "write `limits { connections-per-client NUMBER }` or `limits { requests-per-client NUMBER }` at the top of the file, or `requests NUMBER` in a `site`",
);
const COMPRESS: Instead = Write("write `compress`; codings, types and the least size stand in its block");
const BUFFERS: Instead =
    LeaveOut("bodies pass as they come, in buffers of bounded size; `limits { memory }` bounds them all");
const TUNING: Instead = LeaveOut("Foregate sets this by itself; there is no key");
const PROCESS: Instead = LeaveOut("set it in `systemd`, or in the program that starts Foregate");
const ERROR_PAGES: Instead = Write("write `error-pages { page 404 file=\"FILE\" }`");
const BASIC: Instead =
    Write("write `basic-auth { user \"NAME\" \"HASH\" }`, or `basic-auth file=\"htpasswd\"`");

pub(super) const INSTEAD: &[(&str, Instead)] = &[
    ("access-log", Write("write `access-log \"FILE\"`")),
    ("add-header", Write("write `headers { response { set \"NAME\" \"VALUE\" } }`")),
    ("alias", ALIAS),
    ("allow", Write("write `access { allow \"10.0.0.0/8\"; deny \"all\" }`")),
    ("auth-basic*", BASIC),
    ("auth-jwt*", Write("write `jwt { jwks upstream=\"NAME\" }`, or `jwt { key \"RS256\" file=\"FILE\" }`")),
    ("auth-request*", Write("write `forward-auth upstream=\"NAME\" path=\"/PATH\"`")),
    ("autoindex*", Write("write `files \"/FOLDER\" { listing }` in a `route`")),
    ("block", Write("it belongs in a rule: `rule \"EXPRESSION\" { block }`")),
    ("break", LeaveOut("a `rule` that answers ends the request, and every other one goes on to the next")),
    ("charset*", Write("write `headers { response { set \"content-type\" \"text/html; charset=utf-8\" } }`")),
    ("client-body-timeout", Write("write `timeouts { body-idle \"30s\" }` at the top of the file")),
    ("client-body-*", BUFFERS),
    ("client-header-buffer-size", Write("write `limits { head-bytes \"64KiB\" }` at the top of the file")),
    ("client-header-timeout", Write("write `timeouts { head \"10s\" }` at the top of the file")),
    ("client-max-body-size", Write("write `limit-request-body \"SIZE\"`, such as `\"5MiB\"`")),
    ("daemon", PROCESS),
    ("dav-*", Missing("files are only read; have an origin do it, named by `proxy`")),
    ("default-server", Write("write `site \"*\" { ... }` for all hosts that no other site names")),
    ("default-type", LeaveOut("a file whose name tells no type is `application/octet-stream`")),
    ("deny", Write("write `access { deny \"10.0.0.0/8\" }`")),
    ("disable-symlinks", Write("write `files \"/FOLDER\" { follow-links \"never\" }` in a `route`")),
    ("env", LeaveOut("`${env:NAME}` in a value is the variable of the environment")),
    ("error-log", LeaveOut("diagnostics go to the standard error; the variable FOREGATE_LOG says how many")),
    ("error-page", ERROR_PAGES),
    ("events", LeaveOut("the number of threads is `workers NUMBER` at the top of the file")),
    (
        "expires",
        Write(
            "write `expires \"30d\" on=\"*.css\"` in `files`, or `headers { response { set \"cache-control\" \"max-age=60\" } }`",
        ),
    ),
    ("firewall", WAF),
    (
        "geo",
        Write(
            "write `list \"office\" \"192.0.2.0/24\" type=\"ip\"`, and `ip.src in $office` in an expression; `geoip` knows countries",
        ),
    ),
    ("geoip-*", Write("write `geoip database=\"FILE\"`, and `ip.src.country` in an expression")),
    ("geoip2*", Write("write `geoip database=\"FILE\"`, and `ip.src.country` in an expression")),
    (
        "grpc-pass",
        Write(
            "write `upstream \"app\" { server \"HOST:PORT\"; http \"2\" }` at the top of the file, and `proxy \"app\"` in a `route`",
        ),
    ),
    ("gzip", COMPRESS),
    ("gzip-*", COMPRESS),
    ("gzip-static", STATIC_GZIP),
    ("gunzip", Write("write `decompress`")),
    ("brotli-*", COMPRESS),
    ("brotli-static", STATIC_GZIP),
    ("health", HEALTH),
    ("health-check*", HEALTH),
    ("hsts", Write("write `security-headers`, which sends `Strict-Transport-Security`")),
    ("http", LeaveOut("its directives belong at the top of the file")),
    ("if", Write("write `rule \"EXPRESSION\" { ... }`, or `when=\"EXPRESSION\"` at a key")),
    ("index", Write("write `files \"/FOLDER\" { index \"index.html\" }` in a `route`")),
    (
        "internal",
        LeaveOut(
            "every route is for clients; a fragment or a page for errors can come from an upstream of its own",
        ),
    ),
    ("js-access", SCRIPTS),
    ("js-content", SCRIPTS),
    ("js-import", SCRIPTS),
    ("js-path", SCRIPTS),
    ("js-set", SCRIPTS),
    ("keepalive-requests", Write("write `limits { requests-per-connection NUMBER }` at the top of the file")),
    ("keepalive-timeout", Write("write `timeouts { keep-alive \"60s\" }` at the top of the file")),
    (
        "large-client-header-buffers",
        Write("write `limits { head-bytes \"64KiB\"; head-line \"16KiB\" }` at the top of the file"),
    ),
    ("limit-conn*", LIMIT_CONN),
    ("limit-except", Write("write `rule #\"not http.request.method in {\"GET\" \"HEAD\"}\"# { block 405 }`")),
    (
        "limit-rate*",
        Missing("the speed of a response is not limited; `rate-limit` limits the number of requests"),
    ),
    ("limit-req*", LIMIT_REQ),
    ("lingering-*", Write("write `limits { early-response-drain \"SIZE\" }` at the top of the file")),
    ("load-module", Missing("modules are compiled in: `foregate module new` writes one in Rust")),
    ("location", Write("write `route \"/path/**\" { ... }` in a `site`")),
    ("log", Write("write `access-log \"FILE\"` at the top of the file")),
    (
        "log-format",
        Write(
            "write `access-log \"access.log\" format=\"combined\"`, or a template with fields in braces: `format=\"{client} {status} {path}\"`",
        ),
    ),
    ("lua-*", SCRIPTS),
    ("mail", Missing("only HTTP is proxied, with WebSocket and CONNECT")),
    ("map", Write("write `list`, and expressions that look into it")),
    ("merge-slashes", Write("write `slashes \"keep\"` in a `site`")),
    ("modsecurity*", WAF),
    ("more-set-headers", Write("write `headers { response { set \"NAME\" \"VALUE\" } }`")),
    ("more-clear-headers", Write("write `headers { response { remove \"NAME\" } }`")),
    ("more-set-input-headers", Write("write `headers { request { set \"NAME\" \"VALUE\" } }`")),
    ("open-file-cache*", TUNING),
    ("pcre-jit", TUNING),
    ("perl-*", SCRIPTS),
    ("pid", PROCESS),
    ("proxy-bind", Missing("the system chooses the local address of connections to origins")),
    (
        "proxy-buffering",
        Write(
            "write `buffer-responses` in a `route` or an `upstream`; without it, servers are read as clients read",
        ),
    ),
    (
        "proxy-max-temp-file-size",
        Write("write `buffer-responses size=\"1GiB\"` in a `route` or an `upstream`"),
    ),
    ("proxy-buffer*", BUFFERS),
    ("proxy-busy-buffers-size", BUFFERS),
    ("proxy-cache", Write("write `cache` in the `route`; `cache-store` at the top sets memory and disk")),
    (
        "proxy-cache-path",
        Write("write `cache-store { disk \"/var/cache/foregate\" size=\"10GiB\" }` at the top"),
    ),
    ("proxy-cache-valid", Write("write `cache { ttl \"200\" \"10m\" }` in the `route`")),
    ("proxy-cache-key", Write("write `cache { key \"EXPRESSION\" }` in the `route`; it adds to the URL")),
    ("proxy-cache-bypass", Write("write `cache { bypass \"EXPRESSION\" }` in the `route`")),
    ("proxy-no-cache", Write("write `cache { bypass \"EXPRESSION\" }` in the `route`")),
    ("proxy-cache-lock*", LeaveOut("simultaneous misses of one URL always share one fetch")),
    ("proxy-cache-use-stale", Write("write `cache { stale-if-error \"10m\" }` in the `route`")),
    ("proxy-cache*", Write("write `cache { ... }` in the `route`")),
    ("proxy-connect-timeout", UPSTREAM_TIMEOUTS),
    ("proxy-cookie-*", Missing("`Set-Cookie` passes as the origin sends it")),
    ("proxy-hide-header", Write("write `headers { response { remove \"NAME\" } }`")),
    (
        "proxy-http-version",
        Write(
            "write `http \"1.1\"`, `http \"2\"` or `http \"auto\"` in the `upstream`; connections are kept without a key",
        ),
    ),
    ("proxy-intercept-errors", Write("write `error-pages of=\"both\" { page 404 file=\"FILE\" }`")),
    (
        "proxy-next-upstream*",
        Write("write `retry on=\"connect reset timeout 502-504\" attempts=2` in the `upstream`"),
    ),
    ("proxy-pass", PROXY),
    ("proxy-pass-header", LeaveOut("all fields of a response pass but those of its connection")),
    ("proxy-pass-request-body", LeaveOut("the body goes to the origin with its request")),
    (
        "proxy-pass-request-headers",
        LeaveOut(
            "fields go to the origin with their request; `headers { request { remove \"NAME\" } }` takes one away",
        ),
    ),
    (
        "proxy-protocol",
        Write(
            "write `proxy-protocol \"10.0.0.0/8\"` in a `listen`, with the networks that are trusted; `send-proxy` in an `upstream`",
        ),
    ),
    ("proxy-read-timeout", UPSTREAM_TIMEOUTS),
    (
        "proxy-redirect",
        Missing(
            "`Location` passes as the origin sends it; `headers { response { set \"location\" \"VALUE\" } }` changes it",
        ),
    ),
    (
        "proxy-request-buffering",
        Write(
            "write `buffer-requests size=\"10MiB\"` in a `route` or an `upstream`; without it, bodies pass as they come",
        ),
    ),
    ("proxy-send-timeout", UPSTREAM_TIMEOUTS),
    ("proxy-set-body", Missing("the body of a request passes unchanged")),
    (
        "proxy-set-header",
        Write(
            "write `headers { request { set \"NAME\" \"VALUE\" } }`; for Host, `host \"NAME\"` in the `upstream`",
        ),
    ),
    ("proxy-socket-keepalive", TUNING),
    ("proxy-ssl*", UPSTREAM_TLS),
    ("proxy-temp-*", BUFFERS),
    ("grpc-connect-timeout", UPSTREAM_TIMEOUTS),
    ("grpc-read-timeout", UPSTREAM_TIMEOUTS),
    ("grpc-send-timeout", UPSTREAM_TIMEOUTS),
    ("grpc-set-header", Write("write `headers { request { set \"NAME\" \"VALUE\" } }`")),
    ("grpc-ssl*", UPSTREAM_TLS),
    ("real-ip-*", Write("write `trusted-proxies \"10.0.0.0/8\" header=\"x-forwarded-for\"`")),
    ("referer-hash-*", TUNING),
    ("reset-timedout-connection", TUNING),
    ("resolver-timeout", TUNING),
    (
        "return",
        Write(
            "in a `route`, write `respond STATUS \"TEXT\"`; for 301, 302 and the like `redirect \"/**\" to=\"TARGET\"` beside `respond 404`",
        ),
    ),
    ("reverse-proxy", PROXY),
    ("rewrite", Write("write `redirect`, or a `rule` that rewrites the path")),
    ("rewrite-*", REWRITE),
    ("root", ROOT),
    ("satisfy", Missing("every module that guards a route has to let a request in")),
    ("secure-link*", Missing("`jwt` checks signed tokens")),
    ("send-timeout", Write("write `timeouts { write-stall \"30s\" }` at the top of the file")),
    ("sendfile*", TUNING),
    (
        "server",
        Write(
            "write `site \"NAME\" { route \"/**\" { ... } }`, and `listen \"ADDRESS\"` at the top of the file",
        ),
    ),
    ("server-name", Write("write the names after `site`: `site \"example.com\" { ... }`")),
    ("server-names-hash-*", TUNING),
    ("server-tokens", LeaveOut("no `Server` is added; `security-headers` takes away those of origins")),
    ("set-real-ip-from", Write("write `trusted-proxies \"10.0.0.0/8\"`")),
    ("ssi*", Write("write `html-include`, which replaces SSI and ESI includes")),
    ("slice", LeaveOut("`cache` stores parts of responses by itself")),
    ("split-clients", Write("write `canary upstream=\"NAME\" share=\"5%\"`")),
    ("ssl", TLS),
    ("ssl-certificate*", TLS),
    (
        "ssl-ciphers",
        LeaveOut("there is no key; `tls { minimum-version \"1.3\" }` leaves only those of TLS 1.3"),
    ),
    ("ssl-client-certificate", CLIENT_TLS),
    ("ssl-protocols", Write("write `listen \":443\" { tls { minimum-version \"1.2\" } }`")),
    (
        "ssl-stapling*",
        Write(
            "write `ocsp` into the `tls` with the `certificate`, or put the response into `CERTIFICATE.ocsp`; with `tls \"auto\"`, leave it out",
        ),
    ),
    ("ssl-trusted-certificate", CLIENT_TLS),
    ("ssl-verify-client", CLIENT_TLS),
    ("ssl-verify-depth", LeaveOut("a chain of usual length is followed; there is no key")),
    ("stub-status", Write("write `metrics \"127.0.0.1:9145\"` at the top of the file")),
    ("sub-filter*", Write("write `substitute` or `html-text`")),
    (
        "timeout",
        Write("write `timeouts`, at the top of the file for clients, in an `upstream` for its servers"),
    ),
    ("try-files", TRY_FILES),
    ("types-hash-*", TUNING),
    ("underscores-in-headers", Write("write `allow-underscores` in a `site`")),
    (
        "valid-referers",
        Write("write `rule #\"not starts_with(http.referer, \"https://example.com/\")\"# { block }`"),
    ),
    ("variables-hash-*", TUNING),
    ("websocket*", LeaveOut("it passes on every `proxy` route; there is no key")),
    ("worker-connections", Write("write `limits { connections NUMBER }` at the top of the file")),
    ("worker-processes", Write("write `workers NUMBER`")),
    ("worker-rlimit-*", PROCESS),
    ("worker-shutdown-timeout", Write("write `timeouts { drain \"30s\" }` at the top of the file")),
    ("zone", LeaveOut("all workers share the state of an upstream")),
];

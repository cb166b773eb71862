//! Words with a meaning that depends on the surrounding block or key. Each row has its words in one text, separated by
//! blanks.

use super::Instead::{self, LeaveOut, Write};
use super::words::{
    ACME, BACKUP, BALANCE, BUFFERS, CHECKS, HASH, RANDOM, REDIRECT_HTTPS, SITE, TLS_SELF, TLS_VERSION,
    UPSTREAM_TLS,
};

/// Words with a meaning that depends on the surrounding block or key.
pub(super) const WITHIN: &[(&str, &str, Instead)] = &[
    (
        "cache",
        "valid validity duration lifetime max-age maxage expire expires default-ttl expiration",
        Write("write `ttl \"200\" \"10m\"`: a status and a lifetime"),
    ),
    (
        "cache",
        "path paths uri url vary-by cache-key keys",
        Write("write `key \"EXPRESSION\"`; scheme, host, path and query belong to the key already"),
    ),
    ("cache", "no-cache skip except exclude unless", Write("write `bypass \"EXPRESSION\"`")),
    ("cache", "use-stale grace", Write("write `stale-if-error \"10m\"` or `stale-while-revalidate \"1m\"`")),
    (
        "cache",
        "memory disk folder size max-size storage store zone zones",
        Write("write `cache-store { memory \"1GiB\" }` at the top of the file"),
    ),
    ("cache-store", "s3 bucket object-storage", Write("write `reserve \"URL\" bucket=\"NAME\"`")),
    (
        "cache-store",
        "folder directory path file",
        Write("write `disk \"/var/cache/foregate\" size=\"10GiB\"`"),
    ),
    ("cache-store", "ram size max-size", Write("write `memory \"1GiB\"`")),
    ("forward-auth", "headers", Write("did you mean `copy`?")),
    ("forward-auth", "auth-response-headers copy-headers", Write("write `copy \"NAME\"`")),
    (
        "forward-auth",
        "address url uri endpoint",
        Write("write `forward-auth upstream=\"NAME\" path=\"/PATH\"`"),
    ),
    ("listen", "address port bind", Write("write the address after `listen`: `listen \":8080\"`")),
    ("health", "interval period frequency inter", Write("write `every=\"5s\"`")),
    ("health", "expect code match", Write("write `expect-status=\"200-299\"`, or `expect-body=\"TEXT\"`")),
    (
        "health",
        "type protocol mode",
        Write("write `kind=\"tcp\"`, `\"tls\"` or `\"grpc\"`; without it, a request is sent"),
    ),
    (
        "acme",
        "ca server url endpoint staging test authority",
        Write(
            "write `directory \"https://HOST/PATH\"` for another authority than Let's Encrypt; its test authority is \"https://acme-staging-v02.api.letsencrypt.org/directory\"",
        ),
    ),
    ("acme", "agree* accept-tos tos terms*", LeaveOut("`tls \"auto\"` agrees to the terms of the authority")),
    (
        "acme",
        "renew*",
        LeaveOut("certificates are renewed well before their end, at the time that the authority suggests"),
    ),
    (
        "acme",
        "key key-* algorithm curve",
        LeaveOut("keys are made for each certificate, for the curve P-256"),
    ),
    (
        "acme",
        "domain domains host hosts",
        LeaveOut("the names are the hosts of the sites that have `tls \"auto\"` or a listener with it"),
    ),
    (
        "acme",
        "provider dns-provider dns-challenge",
        Write("write `dns-update` (RFC 2136), or `dns-hook` with a program of yours"),
    ),
    (
        "dashboard",
        "user users username auth basic-auth login",
        Write("write `password \"HASH\"`; viewers may enter any user name"),
    ),
    ("access-log", "if condition filter unless", Write("write `when \"EXPRESSION\"` in its block")),
    (
        "access-log",
        "buffer buffered flush",
        LeaveOut("lines are collected in memory and written by a thread of their own"),
    ),
    ("access-log", "combined common json", Write("write `format=\"combined\"`, `\"common\"` or `\"json\"`")),
    (
        "balance",
        "client source ip path target uri-hash",
        Write("write `balance \"hash\" by=\"path\"`, `\"client\"` or another part of the request"),
    ),
    (
        "eject",
        "error errors 5xx consecutive* max-fails threshold",
        Write("write `failures 5`: so many failures in a row take a server out"),
    ),
    (
        "retry",
        "status statuses code codes",
        Write("write the statuses into `on`: `retry on=\"connect 502-504\"`"),
    ),
    (
        "timeouts",
        "response response-header read-header",
        Write("in an `upstream`, write `first-byte \"30s\"`: the time until the head of the response"),
    ),
    (
        "timeouts",
        "read send write",
        Write(
            "for servers, `timeouts` in an `upstream` has `first-byte` and `idle`; for clients, those at the top of the file have `head`, `body-idle` and `write-stall`",
        ),
    ),
    (
        "tls",
        "ca-certificate ca-certificates ca-cert ca-file ca-bundle root-ca trusted-ca trusted-certificate",
        Write(
            "in the `tls` of an `upstream`, write `ca \"FILE\"`; for certificates of clients, `client-certificates \"FILE\"` in the `tls` of a `listen` or a `site`",
        ),
    ),
    ("tls", "stapling ocsp-stapling must-staple", Write("write `ocsp`")),
    (
        "upstream",
        "limit limits concurrency",
        Write("write `requests NUMBER`, and `queue NUMBER timeout=\"5s\"` for those beyond"),
    ),
    (
        "upstream",
        "zone",
        LeaveOut(
            "all threads share the state of the servers; `zone=` of a `server` is its place, for `zone` at the top of the file",
        ),
    ),
    ("health", "path uri url", Write("write the path after `health`: `health \"/healthz\"`")),
    ("listen", "host server-name hosts", SITE),
    ("listen", "redirect-* force-https https-redirect", REDIRECT_HTTPS),
    ("listen", "alpn protocols", Write("write `http2 #true` or `http2 #false`; HTTP/1.1 is always spoken")),
    (
        "listen",
        "keepalive* idle-timeout",
        Write("write `timeouts { keep-alive \"60s\" }` at the top of the file"),
    ),
    (
        "route",
        "path paths prefix path-prefix match matcher pattern",
        Write("write the path after `route`: `route \"/path/**\" { ... }`"),
    ),
    (
        "route",
        "handle location routes route handle-path",
        Write("routes cannot be nested: write another `route` in the `site`"),
    ),
    ("route", "host hosts domain server-name", SITE),
    ("rule", "deny drop forbid reject", Write("in a rule, write `block`")),
    (
        "rule",
        "return status static-response direct-response abort",
        Write("in a rule, write `respond STATUS \"TEXT\"` or `redirect \"TARGET\"`"),
    ),
    (
        "rule",
        "allow pass accept",
        Write(
            "in a rule, `skip \"MODULE\"` leaves out a module that would refuse; a request that nothing refuses passes",
        ),
    ),
    (
        "rule",
        "proxy reverse-proxy proxy-pass use-backend backend route",
        Write("in a rule, write `upstream \"NAME\"`"),
    ),
    (
        "rule",
        "header headers request-header header-up set-request-header proxy-set-header",
        Write("in a rule, write `set-header \"NAME\" \"VALUE\"`"),
    ),
    (
        "rule",
        "response-header header-down",
        Write("in a rule, write `set-response-header \"NAME\" \"VALUE\"`"),
    ),
    ("rule", "rewrite-* uri path strip-prefix", Write("in a rule, write `rewrite path=\"/new\"`")),
    (
        "rule",
        "captcha managed-challenge js-challenge interactive-challenge",
        Write("in a rule, write `challenge`"),
    ),
    (
        "rule",
        "expression when match if",
        Write("write the expression after `rule`: `rule \"EXPRESSION\" { ... }`"),
    ),
    (
        "rule",
        "action",
        Write("an action is a key in the block of the rule, such as `block` or `respond 404`"),
    ),
    ("security-headers", "csp", Write("did you mean `content-security-policy`?")),
    ("security-headers", "hsts", Write("did you mean `strict-transport-security`?")),
    (
        "server",
        "down disabled maintenance off",
        Write("write `drain=#true`, or put `//` before the line of a server that gets no requests"),
    ),
    ("server", "max-conns maxconn", Write("did you mean `max-connections`?")),
    (
        "balance",
        "key on header cookie uri url",
        Write(
            "write `balance \"hash\" by=\"header:NAME\"`, `\"cookie:NAME\"`, `\"path\"`, `\"target\"` or `\"client\"`",
        ),
    ),
    ("server", "max-fails fail-timeout check inter rise fall", CHECKS),
    ("server", "ssl tls verify sni ca-file ca", UPSTREAM_TLS),
    ("server", "proto protocol h2 http2", Write("write `http \"2\"` in the `upstream`")),
    ("server", "send-proxy*", Write("write `send-proxy \"v2\"` in the `upstream`")),
    ("server", "share priority", Write("did you mean `weight`?")),
    ("site", "default-server", Write("write `site \"*\" { ... }` for all hosts that no other site names")),
    ("tls", "auto internal on-demand self-signed issuer dns challenge challenges resolver", ACME),
    (
        "tls",
        "key certificate-key private-key key-file",
        Write("write the key beside its certificate: `certificate \"FILE\" key=\"FILE\"`"),
    ),
    ("tls", "cert certificates crt cert-file pem", Write("write `certificate \"FILE\" key=\"FILE\"`")),
    (
        "tls",
        "protocol protocols version versions min-version min-tls-version tls-minimum-protocol-version",
        TLS_VERSION,
    ),
    ("tls", "max-version", LeaveOut("the latest version that both sides know is used")),
    (
        "tls",
        "alpn",
        Write("write `http2 #true` or `http2 #false` in the `listen`; in an `upstream`, `http \"auto\"`"),
    ),
    ("tls", "curves cipher* session-* ecdh* dhparam* prefer-*", TLS_SELF),
    (
        "tls",
        "sni servername",
        Write(
            "in the `tls` of an `upstream`, write `server-name \"NAME\"`; a `listen` chooses the certificate by itself",
        ),
    ),
    (
        "tls",
        "insecure* skip-verify insecure-skip-verify",
        Write("in the `tls` of an `upstream`, write `verify #false`"),
    ),
    (
        "upstream",
        "least-conn* least-time least-request lb-policy lb-* policy algorithm \
         strategy method balancing load-balance load-balancer load-balancing \
         load-balancing-policy round-robin",
        BALANCE,
    ),
    ("upstream", "ip-hash hash consistent-hash*", HASH),
    ("upstream", "random", RANDOM),
    (
        "upstream",
        "keepalive keep-alive pool-size max-idle* keepalive-connections pool connection-pool",
        Write("write `keep-alive-connections NUMBER`"),
    ),
    (
        "upstream",
        "keepalive-timeout idle-timeout",
        Write("write `timeouts { keep-alive \"55s\" }` in the `upstream`"),
    ),
    ("upstream", "keepalive-requests keepalive-time", Write("write `connection-age \"1h\"`")),
    (
        "upstream",
        "max-connections max-conns maxconn",
        Write("write `max-connections=` behind a `server`, or `requests NUMBER` in the `upstream`"),
    ),
    (
        "upstream",
        "max-requests max-pending-requests max-inflight inflight",
        Write("write `requests NUMBER`, and `queue NUMBER timeout=\"5s\"` for those beyond"),
    ),
    ("upstream", "max-fails fail-timeout", CHECKS),
    ("upstream", "slow-start", Write("write `slow-start=\"30s\"` behind a `server`")),
    (
        "upstream",
        "address addresses addr url uri host-port port node nodes target targets endpoint endpoints \
         backend member destination origin to service services cluster clusters load-assignment \
         lb-endpoints forward reverse-proxy proxy-pass",
        Write("write `server \"HOST:PORT\"`"),
    ),
    (
        "upstream",
        "scheme https ssl",
        Write("write `tls` for HTTPS: `upstream \"app\" { server \"HOST:443\"; tls }`"),
    ),
    (
        "upstream",
        "sni insecure* tls-insecure-skip-verify skip-verify root-ca trusted-ca proxy-ssl*",
        UPSTREAM_TLS,
    ),
    (
        "upstream",
        "http2 h2 h2c grpc protocol proto protocols versions http-version",
        Write("write `http \"2\"`, or `http \"auto\"` where ALPN decides"),
    ),
    ("upstream", "backup fallback fallbacks failover", BACKUP),
    ("upstream", "down", Write("put `//` before the line of a server that gets no requests")),
    ("upstream", "resolve resolvers dns nameserver nameservers", Write("write `resolver \"ADDRESS\"`")),
    (
        "upstream",
        "header header-up host-header pass-host-header",
        Write(
            "write `host \"NAME\"` for the `Host` that servers get; for other fields `headers`, in a `site` or a `route`",
        ),
    ),
    (
        "upstream",
        "transport transport-socket",
        Write("write `tls`, `http \"2\"` and `timeouts` in the `upstream`"),
    ),
    ("upstream", "flush-interval", BUFFERS),
];

//! Words of Caddy, HAProxy, Envoy, Traefik and Apache, and other words that people write by habit. If a key of
//! our own in another block has the same name, it takes precedence. Each row has its words in one text,
//! separated by blanks.

use super::Instead::{self, LeaveOut, Missing, Write};

pub(super) const ACME: Instead = Write(
    "write `tls \"auto\"` in the `listen`, which obtains and renews certificates; `acme { email \"you@example.com\" }` at the top of the file says how",
);
pub(super) const REDIRECT_HTTPS: Instead = Write("write `redirect-https` in the `site`");
const HTTP3: Instead = Missing("clients are served over HTTP/1.1 and HTTP/2");
const CACHE: Instead = Write(
    "write `cache` in a `route`; lifetimes are `cache { ttl \"200\" \"10m\" }`, and `cache-store` at the top sets memory and disk",
);
const TRACING: Instead =
    Missing("`trace` passes W3C trace context on, and `metrics \"ADDRESS\"` serves Prometheus");
const FILES: Instead =
    Write("write `files \"/FOLDER\"` in a `route`; its block has `index`, `try`, `listing`, `expires`");
pub(super) const CHECKS: Instead = Write(
    "write `health \"/PATH\" every=\"5s\" rise=2 fall=3` in the `upstream` for probes, `eject { ... }` to judge servers by their requests",
);
const STICKY: Instead = Write("write `sticky cookie=\"NAME\"` in the `upstream`");
const STREAM: Instead = Missing("only HTTP is proxied, with WebSocket and CONNECT");
const ONLY_HTTP: Instead = Missing(
    "origins are spoken to over HTTP: run a server that speaks HTTP before the program, and name it in `upstream`",
);
const STRIP: Instead = Write("write `strip-prefix \"/PREFIX\"` in a `route`");
const REWRITE: Instead = Write(
    "write `redirect \"/old/**\" to=\"/new\"`, or `rule \"EXPRESSION\" { rewrite path=\"/new\" }` for the request to the origin",
);
const LOGS: Instead = LeaveOut(
    "diagnostics go to the standard error; the variable FOREGATE_LOG says how many, such as `FOREGATE_LOG=debug`",
);
const ACCESS_LOG: Instead = Write("write `access-log \"FILE\"` at the top of the file");
pub(super) const SITE: Instead = Write("write `site \"example.com\" { route \"/**\" { ... } }`");
const ROUTE: Instead = Write("write `route \"/path/**\" { ... }` in a `site`");
const UPSTREAM: Instead = Write(
    "write `upstream \"app\" { server \"HOST:PORT\" }` at the top of the file, and `proxy \"app\"` in a `route`",
);
pub(super) const BALANCE: Instead = Write(
    "write `balance \"least-requests\"`, or another of its methods, in the `upstream`; `weight=` of a `server` is its share",
);
pub(super) const HASH: Instead = Write(
    "write `balance \"hash\"` in the `upstream`, with `by=\"client\"`, `\"path\"`, `\"target\"`, `\"header:NAME\"` or `\"cookie:NAME\"`",
);
pub(super) const RANDOM: Instead =
    Write("write `balance \"random\"` or `balance \"two-choices\"` in the `upstream`");
pub(super) const BACKUP: Instead = Write("write `server \"HOST:PORT\" backup=#true` in the `upstream`");
pub(super) const UPSTREAM_TLS: Instead =
    Write("write `tls { ... }` in the `upstream`: `server-name`, `ca`, `verify`, `certificate`");
const MIRROR: Instead =
    Write("write `mirror \"UPSTREAM\" share=\"5%\"` in a `route`; its answers are dropped");
const CANARY: Instead = Write("write `canary upstream=\"NAME\" share=\"5%\"`");
const DISCOVERY: Instead = Missing(
    "upstreams are written in the configuration; `server \"NAME:PORT\"` follows the addresses of its name, and `server \"srv:NAME\"` its SRV records",
);
const BREAKER: Instead = CHECKS;
const LISTEN: Instead = Write("write `listen \":8080\"` at the top of the file");
const TLS: Instead = Write("write `listen \":443\" { tls { certificate \"FILE\" key=\"FILE\" } }`");
pub(super) const TLS_VERSION: Instead = Write("write `minimum-version \"1.2\"` or `\"1.3\"` in `tls`");
pub(super) const TLS_SELF: Instead = LeaveOut(
    "Foregate sets this by itself; `tls` has `certificate`, `minimum-version` and `client-certificates`",
);
const CLIENT_TLS: Instead =
    Write("write `client-certificates \"CA FILE\" mode=\"required\"` in the `tls` of a `listen` or a `site`");
const HEADERS: Instead =
    Write("write `headers { request { set \"NAME\" \"VALUE\" }; response { set \"NAME\" \"VALUE\" } }`");
const SECURITY_HEADERS: Instead = Write("write `security-headers`, which has a key for each of these fields");
const CORS: Instead = Write("write `cors { origins \"https://app.example.com\" }`");
const REDIRECT: Instead = Write("write `redirect \"/old/**\" to=\"/new\"`");
const RESPOND: Instead = Write("write `respond STATUS \"TEXT\"` in a `route`, or in a `rule`");
const LIMIT: Instead = Write("write `rate-limit NUMBER per=\"1s\"`");
const CONNECTIONS: Instead = Write(
    "write `limits { connections NUMBER }` or `limits { connections-per-client NUMBER }` at the top of the file, or `requests NUMBER` in a \
     `listen`, a `site` or an `upstream`",
);
const ACCESS: Instead = Write("write `access { allow \"10.0.0.0/8\" }`");
const AUTH: Instead = Write("write `basic-auth { user \"NAME\" \"HASH\" }`");
const API_KEY: Instead =
    Write("write `rule #\"not any(http.request.headers[\"x-api-key\"][*] eq \"KEY\")\"# { block }`");
const TOKEN: Instead =
    Write("write `jwt { jwks upstream=\"NAME\" }`, or `jwt { key \"RS256\" file=\"FILE\" }`");
const FORWARD_AUTH: Instead = Write("write `forward-auth upstream=\"NAME\" path=\"/PATH\"`");
const CHALLENGE: Instead = Write("write `challenge` in a `rule`");
const WAF: Instead = Write("write `waf { rules \"FILE\" }`; rules in SecLang belong in files of their own");
const MIDDLEWARE: Instead = LeaveOut(
    "the keys of modules belong at the top of the file, in a `site` or in a `route`; `foregate modules` lists them",
);
const SCRIPTS: Instead =
    Missing("scripts do not run; `rule` has expressions, and `foregate module new` writes a module in Rust");
const RETRY: Instead = Write(
    "write `retries NUMBER`, or `retry on=\"connect reset timeout 502-504\" attempts=2`, in the `upstream`",
);
const BODY: Instead = Write("write `body-limit \"SIZE\"` in a `route`");
pub(super) const BUFFERS: Instead =
    LeaveOut("bodies pass as they come, in buffers of bounded size; `limits { memory }` bounds them all");
const BUFFER_REQUESTS: Instead =
    Write("write `buffer-requests size=\"10MiB\"` in a `route` or an `upstream`");
const BUFFER_RESPONSES: Instead = Write(
    "write `buffer-responses` in a `route` or an `upstream`; without it, servers are read as clients read",
);
const TIMEOUTS: Instead =
    Write("write `timeouts`, at the top of the file for clients, in an `upstream` for its servers");
const DRAIN: Instead = Write("write `timeouts { drain \"30s\" }` at the top of the file");
const MATCHER: Instead = Write("write `rule \"EXPRESSION\" { ... }`, or `when=\"EXPRESSION\"` at a key");
const VARIABLES: Instead = Write(
    "write `rule \"EXPRESSION\" { set \"NAME\" \"VALUE\" }`; `${env:NAME}` in a value is the variable of the environment",
);
const ORDER: Instead = LeaveOut("routes with wildcards are tried in the order of the file");
const PROXY_PROTOCOL: Instead = Write(
    "write `proxy-protocol \"10.0.0.0/8\"` in a `listen`, with the networks that are trusted; `send-proxy` in an `upstream`",
);
const TRUSTED: Instead = Write("write `trusted-proxies \"10.0.0.0/8\"`");
const COUNTRY: Instead = Write("write `geoip database=\"FILE\"`, and `ip.src.country` in an expression");
const METRICS: Instead = Write("write `metrics \"127.0.0.1:9145\"` at the top of the file");
const ADMIN: Instead = Write("write `admin \"SOCKET\"` at the top of the file");
const INCLUDE: Instead = Write("write `include \"FILE\"`");
const ERROR_PAGES: Instead = Write("write `error-pages { page 404 file=\"FILE\" }`");
const COMPRESS: Instead = Write("write `compress`");
const WORKERS: Instead = Write("write `workers NUMBER` at the top of the file");
const HEAD: Instead = LeaveOut("its keys belong at the top of the file");
const WEBSOCKET: Instead = LeaveOut("it passes on every `proxy` route; there is no key");
const GRPC: Instead = Write("write `http \"2\"` in the `upstream`, and `proxy \"NAME\"` in a `route`");
const ANSWER: Instead = Write("write `answer \"/robots.txt\" \"TEXT\"`");
const FAULTS: Instead =
    Missing("no key delays responses or makes faults; `rule \"EXPRESSION\" { respond 503 }` gives an error");
const HOST_PASSES: Instead =
    LeaveOut("the origin gets the client's `Host`; `host \"NAME\"` in an `upstream` sends another");
const TUNING: Instead = LeaveOut("Foregate sets this by itself; there is no key");
const MINIFY: Instead =
    Missing("`compress` makes responses smaller, and modules such as `html-remove` rewrite HTML");

pub(super) const WORDS: &[(&str, Instead)] = &[
    (
        "acme* auto-https auto-ssl auto-tls automatic-https automatic-tls cert-issuer cert-resolver \
         cert-resolvers certificate-resolvers certificates-resolvers certbot email lets-encrypt \
         local-certs md-* on-demand-tls skip-install-trust tls-auto tls-automatic ssl-auto zerossl",
        ACME,
    ),
    ("alt-svc h3 http-3 http3-* quic*", HTTP3),
    (
        "cache cache-* caching http-cache max-size-cache no-cache proxy-store purge souin \
         stale-if-error stale-while-revalidate ttl varnish",
        CACHE,
    ),
    ("datadog jaeger open-telemetry* opentracing* otel* otlp* traces tracing zipkin*", TRACING),
    (
        "browse directory directory-index document-root etag file-server fileserver* \
         serve-static static static-* webroot",
        FILES,
    ),
    (
        "active-health-check* check fail-duration health-checks health-interval health-path \
         health-status health-timeout health-uri http-check httpchk max-fails fail-timeout \
         option-httpchk outlier-detection passive-health-check* tcp-check unhealthy-*",
        CHECKS,
    ),
    ("circuit-breaker*", BREAKER),
    ("affinity cookie session-affinity session-cookie stick stick-* sticky sticky-*", STICKY),
    ("mode-tcp sni-proxy stream streams tcp tcp-proxy tcp-services udp* layer4 l4", STREAM),
    ("ajp cgi fastcgi* fcgi* memcached-* php php-fastcgi php-fpm scgi* uwsgi* wsgi", ONLY_HTTP),
    (
        "path-prefix-strip strip strip-path* strip-prefix-regex replace-path replace-path-regex \
         handle-path prefix-rewrite uri add-prefix base-path",
        STRIP,
    ),
    (
        "path-rewrite proxy-rewrite regex-rewrite reqrep rewrite-cond rewrite-engine rewrite-rule \
         rewrites set-path url-rewrite*",
        REWRITE,
    ),
    ("debug log-level logger logging verbose verbosity", LOGS),
    ("access-logs custom-log log-skip logs option-httplog transfer-log", ACCESS_LOG),
    (
        "domain domains host hostname hostnames hosts server-alias server-blocks servers sites \
         virtual-host* vhost vhosts",
        SITE,
    ),
    ("handle location-match match-path path path-* paths prefix route-config router routers routes", ROUTE),
    (
        "backend backends balancer-member cluster clusters default-backend destination destinations \
         endpoint endpoints forward lb-endpoints load-assignment load-balancer* origin origins pool \
         pools proxy-to service services target targets to upstreams use-backend url",
        UPSTREAM,
    ),
    (
        "algorithm balancing lb-method lb-policy least-conn* \
         least-request least-time load-balance load-balancing load-balancing-policy proxy-set \
         round-robin strategy",
        BALANCE,
    ),
    ("consistent-hash* hash ip-hash", HASH),
    ("random", RANDOM),
    ("backup fallback fallback-upstream failover", BACKUP),
    (
        "insecure-skip-verify servers-transport* sni ssl-proxy* upstream-tls* tls-insecure* \
         backend-tls*",
        UPSTREAM_TLS,
    ),
    (
        "copy-traffic http-mirror mirror mirror-* mirroring request-mirror* shadow tee \
         traffic-mirror*",
        MIRROR,
    ),
    ("ab-test* a-b-test blue-green split split-* traffic-split* weighted*", CANARY),
    (
        "ads-config aws cds-config consul* discover discovery docker dynamic \
         dynamic-resources etcd* eureka kubernetes* lds-config nacos nomad provider providers \
         service-discovery swarm xds* zookeeper",
        DISCOVERY,
    ),
    (
        "address bind bind-* default-bind entry-point entry-points frontend frontends http-port \
         https-port listener listeners port ports",
        LISTEN,
    ),
    (
        "cert certificates certs crt crt-list downstream-tls-context https ssl-cert sslengine \
         tls-certificates tls-options transport-socket",
        TLS,
    ),
    ("min-version min-tls-version tls-version* protocols ssl-min-ver", TLS_VERSION),
    ("cipher* curves dhparam* ecdh* session-tickets strict-sni*", TLS_SELF),
    ("ca-file client-auth client-ca* mtls mutual-tls verify-client", CLIENT_TLS),
    (
        "add-headers add-request-header* add-response-header* append-header custom-headers \
         custom-request-headers custom-response-headers del-header header header-down header-up \
         headers-more* http-request http-response remove-header remove-headers reqadd request-header \
         request-headers* response-header response-headers* response-rewrite rspadd set-header \
         set-headers set-request-header* set-response-header*",
        HEADERS,
    ),
    (
        "browser-xss-filter content-security-policy content-type-nosniff csp \
         custom-frame-options-value frame-deny frame-options helmet permissions-policy \
         referrer-policy secure-headers strict-transport-security sts-* x-content-type-options \
         x-frame-options x-xss-protection",
        SECURITY_HEADERS,
    ),
    (
        "access-control access-control-* allow-credentials allow-headers allow-methods allow-origin \
         allow-origins allowed-origins cors-* cross-origin",
        CORS,
    ),
    ("permanent-redirect redir redirect-match redirect-permanent redirect-regex redirect-temp", REDIRECT),
    (
        "force-https force-ssl http-to-https https-only https-redirect redirect-scheme redirect-to-https \
         ssl-redirect",
        REDIRECT_HTTPS,
    ),
    ("abort direct-response errorloc* http-error monitor-uri response static-response status", RESPOND),
    (
        "average burst in-flight-req local-ratelimit quota rate-limit-* rate-limiter rate-limiting \
         ratelimits throttle throttling token-bucket",
        LIMIT,
    ),
    (
        "connection-limit* max-clients max-connections max-conns max-request-workers maxconn \
         server-limit",
        CONNECTIONS,
    ),
    (
        "acl acls ip allow-list black-list block-list deny-list ip-allow-list ip-deny-list ip-filter \
         ip-restriction ip-white-list order-allow rbac remote-ip require require-all require-any \
         white-list",
        ACCESS,
    ),
    (
        "auth auth-name auth-type auth-user-file basic basic-authentication http-basic htpasswd \
         password userlist users",
        AUTH,
    ),
    ("api-key api-keys key-auth", API_KEY),
    ("jwks* jwt-* token tokens bearer*", TOKEN),
    (
        "auth-url authelia authentik authorization authorize authz ext-authz external-auth ldap* \
         oauth* oidc* openid* saml* sso",
        FORWARD_AUTH,
    ),
    ("anti-bot bot bot-* bots captcha challenge hcaptcha managed-challenge recaptcha turnstile", CHALLENGE),
    (
        "coraza* crs owasp* secaction secaudit* secdefaultaction secmarker secrequestbody* \
         secresponsebody* secrule* web-application-firewall",
        WAF,
    ),
    (
        "filter filters filter-chain* handler handlers http-filters middleware middlewares order \
         plugin plugins snippets pipeline",
        MIDDLEWARE,
    ),
    ("ext-proc javascript lua njs script scripts wasm*", SCRIPTS),
    ("lb-retries lb-try-* option-redispatch redispatch retry retry-* try-duration", RETRY),
    (
        "body-size client-max-body max-body* max-request-body* max-request-size max-size max-upload* \
         request-body request-size* upload-limit",
        BODY,
    ),
    (
        "buffer-request buffer-request-body buffered-requests max-request-body-bytes option-http-buffer-request request-buffering request-buffers",
        BUFFER_REQUESTS,
    ),
    ("buffer-response buffered-responses response-buffering response-buffers", BUFFER_RESPONSES),
    ("buffer buffer-* buffering buffers flush-interval tune-bufsize", BUFFERS),
    (
        "connect-timeout dial-timeout forwarding-timeouts idle-timeout read-header-timeout \
         read-timeout request-timeout responding-timeouts response-header-timeout route-timeout \
         timeout-* write-timeout",
        TIMEOUTS,
    ),
    ("grace-period graceful-* hard-stop-after shutdown-* stop-timeout", DRAIN),
    (
        "condition conditions expression filter-by match matcher matchers methods method query rules \
         set-env-if* unless when",
        MATCHER,
    ),
    ("env-var set-env set-var var variable variables vars", VARIABLES),
    ("priority route-priority", ORDER),
    ("accept-proxy proxy-protocol-* send-proxy-*", PROXY_PROTOCOL),
    (
        "client-ip client-ip-headers forward-for forwarded forwarded-headers ip-strategy \
         option-forwardfor real-ip remote-ip-* trust-proxy trusted-ips use-remote-address xff*",
        TRUSTED,
    ),
    ("country countries geo-ip geoip-filter maxmind*", COUNTRY),
    ("ping prometheus* server-status stats stats-* statsd telemetry", METRICS),
    ("admin-* api control-socket dashboard runtime-api", ADMIN),
    ("config-file conf import imports include-optional snippet", INCLUDE),
    ("custom-errors error-document error-file errors handle-errors", ERROR_PAGES),
    ("br brotli compression compression-* compressor deflate encode encoding gz zstd zstd-*", COMPRESS),
    ("concurrency cpu-map nbproc nbthread processes threads threads-per-child worker", WORKERS),
    ("defaults global globals main options settings static-resources", HEAD),
    ("upgrade upgrade-configs upgrades ws wss", WEBSOCKET),
    ("grpc grpc-web h2c", GRPC),
    ("favicon* robots*", ANSWER),
    ("delay fault fault-injection faults inject tarpit", FAULTS),
    ("host-header pass-host pass-host-header preserve-host proxy-preserve-host", HOST_PASSES),
    ("proxy-pass-match", UPSTREAM),
    (
        "proxy-pass-reverse*",
        Missing(
            "`Location` passes as the origin sends it; `headers { response { set \"location\" \"VALUE\" } }` changes it",
        ),
    ),
    (
        "deferred fastopen keep-alive max-keep-alive-requests nodelay option so-keepalive \
         tcp-keepalive",
        TUNING,
    ),
    ("tcp-* worker-*", TUNING),
    ("ssl-*", TLS_SELF),
    ("grpc-* proxy-*", Missing("`upstream` has the keys for origins, and `headers` those for fields")),
    ("minification minify pagespeed", MINIFY),
    (
        "csrf session sessions",
        Missing("sessions are for the origin, or for the server that `forward-auth` asks"),
    ),
    ("server-admin server-signature", LeaveOut("no response carries it")),
    ("server-header", LeaveOut("no `Server` is added; `security-headers` takes away those of origins")),
    (
        "storage storage-* persist-config",
        LeaveOut("Foregate keeps no state in files but those that the configuration names"),
    ),
    (
        "ocsp*",
        LeaveOut(
            "OCSP responses for certificates of `tls \"auto\"` are fetched and sent by themselves; for `certificate`s, write `ocsp` into their `tls`",
        ),
    ),
    ("push", Missing("responses are not sent before they are asked for; a `Link` field passes")),
    (
        "invoke named-routes",
        Missing(
            "routes cannot be named and used again; `include \"FILE\"` puts the same lines into several places",
        ),
    ),
    (
        "capture",
        Write(
            "write `rule \"EXPRESSION\" { log \"NAME\" \"VALUE\" }`, which adds to the line of `access-log`",
        ),
    ),
    ("peers", Missing("each process counts for itself")),
    ("dns-srv srv", Write("write `server \"srv:_http._tcp.NAME\"` in the `upstream`")),
    ("nameserver* resolvers", Write("write `resolver \"ADDRESS\"` in the `upstream`")),
    ("templates", Missing("`html-include` puts fragments into pages")),
    ("user-agent block-user-agent", Write("write `rule #\"http.user_agent contains \"NAME\"\"# { block }`")),
    (
        "hotlink* referer referrer",
        Write("write `rule #\"not http.referer contains \"example.com\"\"# { block }`"),
    ),
    (
        "digest-auth auth-digest* hmac-auth kerberos ntlm",
        Missing("`basic-auth`, `jwt`, `forward-auth` and clients' certificates let clients in"),
    ),
];

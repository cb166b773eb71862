//! Keys of access logs.

use super::{ANY, Block, Key, Prop};

const PROPS: &[Prop] = &[Prop {
    name: "format",
    usage: "FORMAT",
    required: false,
    default: "\"json\"",
    about: "`json`, `combined` or `common` as in NGINX and Apache, or a template with fields in braces: `\"{client} {status} {path}\"`. Outside JSON, a value that does not apply is `-`, and quotes, backslashes and bytes that are not printable ASCII are written as `\\xHH`.",
}];

pub(super) const ACCESS_LOG_KEY: Key = Key::one("access-log", "TARGET [format=FORMAT] { ... }", "access-log \"access.log\" format=\"combined\"", "Writes one line per request: to a file, to `stdout` or `stderr`, or to a syslog server (RFC 5424) at `syslog+udp://HOST:PORT`, `syslog+tcp://HOST:PORT` or `syslog+unix:PATH`. Beyond a backlog of 4 MiB, lines are dropped and counted.")
    .props(PROPS)
    .with(&ACCESS_LOG)
    .many()
    .otherwise("off");

pub(super) const SITE_ACCESS_LOG_KEY: Key = Key::one(
    "access-log",
    "TARGET [format=FORMAT] { ... }",
    "access-log \"site.log\"",
    "Writes one line for each request of this site, in addition to the logs at the top of the file.",
)
.props(PROPS)
.with(&ACCESS_LOG)
.many()
.otherwise("only the logs at the top of the file");

pub(super) const SERVER_TIMING_KEY: Key = Key::flag(
    "server-timing",
    "",
    "server-timing",
    "Adds a `Server-Timing` field to responses, which browsers show in their developer tools. `total`: the milliseconds from the first byte of the request to the head of the response. `upstream`: the milliseconds from the start of the last attempt at a server to the head of its response. `cache`: how the cache handled the request, on routes with `cache`. `traceparent`: on routes with `trace`. A `Server-Timing` of the origin is kept. `server-timing #false` turns this off in a route.",
);

/// The block of `access-log`.
pub static ACCESS_LOG: Block = Block {
    keys: &[
        Key::one("when", "EXPRESSION", "when \"http.response.code ge 400\"", "Logs only requests for which this expression is true at the end of the response. If there are several, all must be true.").many().otherwise("all requests"),
        Key::one("sample", "SHARE", "sample \"10%\"", "Logs only a random share of the requests that `when` selects.").default("\"100%\""),
        Key::one("field", "NAME EXPRESSION", "field \"language\" \"http.request.cookies[\\\"lang\\\"][0]\"", "Adds the value of an expression to each line: in `json` as a member of the object, in `common` and `combined` in quotes at the end of the line, in a template at `{NAME}`.").args(2, 2).many().otherwise("none"),
        Key::one("fields", "NAME...", "fields \"time\" \"status\" \"path\"", "The fields of the JSON object, in this order.").args(1, ANY).otherwise("all that apply"),
        Key::one("rotate", "[size=SIZE] [age=DURATION] [keep=NUMBER]", "rotate size=\"100MiB\" age=\"1d\" keep=7", "Renames the file to `FILE.1` (and an earlier `FILE.1` to `FILE.2`, and so on), and begins a new file.")
            .args(0, 0)
            .props(&[
                Prop { name: "size", usage: "SIZE", required: false, default: "", about: "Rotates before the file exceeds this size, at least 1 KiB." },
                Prop { name: "age", usage: "DURATION", required: false, default: "", about: "Rotates at the first line after the file has reached this age." },
                Prop { name: "keep", usage: "NUMBER", required: false, default: "7", about: "The number of renamed files that are kept, 1 to 1000." },
            ])
            .otherwise("never"),
        Key::one("facility", "NAME", "facility \"local3\"", "The facility of messages to a syslog server, by which the server sorts them: `user`, `daemon`, `local0` to `local7`, or another name of syslog(3). The severity is always `info`.").default("\"local7\""),
    ],
    later: &["severity", "buffer", "compress"],
};

pub(super) const TRACE_EXPORT_KEY: Key = Key::one("trace-export", "URL { ... }", "trace-export \"http://127.0.0.1:4318\" { service \"edge\"; }", "Sends the spans of recorded traces to a receiver of OTLP over HTTP, such as the OpenTelemetry Collector: a span for each request, each of its phases, each attempt at a server and each fetch of a module. `trace` selects the traces that are recorded. If the URL has no path, `/v1/traces` is used. Requests never wait for the receiver: beyond a backlog of 4 MiB, spans are dropped and counted.")
    .with(&TRACE_EXPORT)
    .otherwise("off");

/// The block of `trace-export`.
pub static TRACE_EXPORT: Block = Block {
    keys: &[
        Key::one("service", "NAME", "service \"edge\"", "The attribute `service.name` of the resource.").default("\"foregate\""),
        Key::one("attribute", "NAME VALUE", "attribute \"deployment.environment.name\" \"production\"", "Another attribute of the resource, up to 64.").args(2, 2).many().otherwise("`service.version` and `host.name`"),
        Key::one("header", "NAME VALUE", "header \"x-scope\" \"edge\"", "A field of the requests to the receiver, such as `authorization`, up to 64.").args(2, 2).secrets(&[""]).many().otherwise("none"),
        Key::one("when", "EXPRESSION", "when \"http.response.code ge 500\"", "Exports only the spans of requests for which this expression is true at the end of the response. If there are several, all must be true.").many().otherwise("all requests whose trace is recorded"),
        Key::one("timeout", "DURATION", "timeout \"3s\"", "How long the receiver may take for a batch, 100 ms to 1 min. A batch that fails is retried for up to a minute.").default("\"10s\""),
        Key::one("ca", "FILE", "ca \"collector-ca.pem\"", "PEM file with the authorities that an https:// receiver is verified with.").otherwise("the system's"),
    ],
    later: &["protocol", "grpc", "compression"],
};

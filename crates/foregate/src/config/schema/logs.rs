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
    "Adds a `Server-Timing` field to responses, which browsers show beside them: `total`, the milliseconds from the first byte of the request to the head of the response; `upstream`, those from the start of the last attempt at a server to the head of its response; `cache`, on routes that cache, how the cache handled the request; `traceparent`, where `trace` is on. An origin's own field stays. `server-timing #false` turns it off in a route.",
);

/// The block of `access-log`.
pub static ACCESS_LOG: Block = Block {
    keys: &[
        Key::one("when", "EXPRESSION", "when \"http.response.code ge 400\"", "Logs only requests for which this expression is true once the response has ended. Of several, all must be.").many().otherwise("all requests"),
        Key::one("sample", "SHARE", "sample \"10%\"", "Logs a random share of these requests.").default("\"100%\""),
        Key::one("field", "NAME EXPRESSION", "field \"language\" \"http.request.cookies[\\\"lang\\\"][0]\"", "Adds the value of an expression: to the object in JSON, in quotes at the end of a common or combined line, and as `{NAME}` in a template.").args(2, 2).many().otherwise("none"),
        Key::one("fields", "NAME...", "fields \"time\" \"status\" \"path\"", "The fields of the JSON object, in this order.").args(1, ANY).otherwise("all that apply"),
        Key::one("rotate", "[size=SIZE] [age=DURATION] [keep=NUMBER]", "rotate size=\"100MiB\" age=\"1d\" keep=7", "Renames the file to `FILE.1` (and an earlier `FILE.1` to `FILE.2`, and so on), and begins another one.")
            .args(0, 0)
            .props(&[
                Prop { name: "size", usage: "SIZE", required: false, default: "", about: "Before the file has more bytes than these, at least 1 KiB." },
                Prop { name: "age", usage: "DURATION", required: false, default: "", about: "With the first line after this time." },
                Prop { name: "keep", usage: "NUMBER", required: false, default: "7", about: "The number of renamed files that are kept, 1 to 1000." },
            ])
            .otherwise("never"),
        Key::one("facility", "NAME", "facility \"local3\"", "The facility of messages to a syslog server, by which it sorts them: `user`, `daemon`, `local0` to `local7`, or another name of syslog(3). Their severity is `info`.").default("\"local7\""),
    ],
    later: &["severity", "buffer", "compress"],
};

pub(super) const TRACE_EXPORT_KEY: Key = Key::one("trace-export", "URL { ... }", "trace-export \"http://127.0.0.1:4318\" { service \"edge\"; }", "Sends the spans of recorded traces to a receiver of OTLP over HTTP, such as the OpenTelemetry Collector: one for each request, for its phases, its attempts at servers and the fetches of its steps. `trace` says which traces are recorded. Without a path in the URL, they go to `/v1/traces`. Requests never wait for the receiver: beyond a backlog of 4 MiB, spans are dropped and counted.")
    .with(&TRACE_EXPORT)
    .otherwise("off");

/// The block of `trace-export`.
pub static TRACE_EXPORT: Block = Block {
    keys: &[
        Key::one("service", "NAME", "service \"edge\"", "The attribute `service.name` of the resource.").default("\"foregate\""),
        Key::one("attribute", "NAME VALUE", "attribute \"deployment.environment.name\" \"production\"", "Another attribute of the resource, up to 64.").args(2, 2).many().otherwise("`service.version` and `host.name`"),
        Key::one("header", "NAME VALUE", "header \"x-scope\" \"edge\"", "A field of the requests to the receiver, such as `authorization`, up to 64.").args(2, 2).secrets(&[""]).many().otherwise("none"),
        Key::one("when", "EXPRESSION", "when \"http.response.code ge 500\"", "Exports only the spans of requests for which this expression is true once the response has ended. Of several, all must be.").many().otherwise("all requests whose trace is recorded"),
        Key::one("timeout", "DURATION", "timeout \"3s\"", "How long the receiver may take for a batch, 100 ms to 1 min. A batch that fails is sent again for a minute.").default("\"10s\""),
        Key::one("ca", "FILE", "ca \"collector-ca.pem\"", "PEM file with the authorities that an https:// receiver is verified with.").otherwise("the system's"),
    ],
    later: &["protocol", "grpc", "compression"],
};

//! The key of the configuration.

use foregate_module::settings::{ANY, Block, Key, Prop};

/// `waf`.
pub(super) const WAF: Key = Key {
    args: (0, 1),
    props: &PROPS,
    ..Key::block(
        "waf",
        &BLOCK,
        "waf mode=\"block\" { rules \"crs/recommended.conf\" \"crs/crs-setup.conf\" \"crs/rules/*.conf\" }",
        "The web application firewall. It checks requests and responses with rules in SecLang, such as the OWASP Core Rule Set.",
    )
};

const PROPS: [Prop; 4] = [
    prop(
        "mode",
        "WORD",
        "detect",
        "`detect`: matches are logged, and no request is stopped. `block`: rules stop requests and replace responses. `SecRuleEngine` is ignored.",
    ),
    prop(
        "log",
        "FILE",
        "",
        "A log with one line per match, in the format of ModSecurity's error log. It is reopened on `USR1`.",
    ),
    prop(
        "audit",
        "FILE",
        "",
        "An audit log with one JSON object per line. It has the transactions that `SecAuditEngine` selects; if that is off, those with a match.",
    ),
    prop(
        "log-sync",
        "[#true|#false]",
        "#false",
        "`#true`: the lines of a request are written to `log` and `audit` before its response begins, for tools that read them right after it, such as go-ftw. A response waits for the files for at most 100 ms.",
    ),
];

const BLOCK: Block = Block { keys: &KEYS, later: &[] };

static KEYS: [Key; 13] = [
    Key {
        args: (1, ANY),
        many: true,
        required: true,
        ..Key::one(
            "rules",
            "FILE ...",
            "rules \"crs/recommended.conf\" \"crs/crs-setup.conf\" \"crs/rules/*.conf\"",
            "Files of rules, in this order; `*` and `?` stand for parts of names. They are watched.",
        )
    },
    Key {
        args: (0, 0),
        many: true,
        props: &EXCLUDE,
        ..Key::one(
            "exclude",
            "id=NUMBER",
            "exclude id=942100 when=\"http.request.uri.path eq \\\"/search\\\"\"",
            "Rules that do not run here, or not for some requests.",
        )
    },
    Key::one("sample", "PERCENT", "sample \"10%\"", "The part of requests that is looked at, such as `0.5%`.")
        .default("100%"),
    Key {
        props: &BODY,
        ..Key::one(
            "body-limit",
            "SIZE",
            "body-limit \"64KiB\"",
            "The most bytes of a request body that rules see, up to 64 MiB. The body is held until rules have seen it. With 0, or with `SecRequestBodyAccess Off`, they see nothing of it. Without this key: the value of `SecRequestBodyLimit`, otherwise 12,800 KiB.",
        )
        .otherwise("as `SecRequestBodyLimit` says, or `12800KiB`")
    },
    Key::one(
        "unclear-files",
        "WORD",
        "unclear-files \"both\"",
        "How parts of a form count that some servers take for a file and others for an argument: parts without `Content-Type`, or with a `filename` without a space before it or without double quotes (`requests` for Python and .NET send such parts). `files`: as files. `both`: as files whose content is an argument as well.",
    )
    .default("files"),
    Key::one(
        "unreadable",
        "WORD",
        "unreadable \"pass\"",
        "The treatment of a request with an unreadable or ambiguous body, if no rule checks `REQBODY_ERROR` or `MULTIPART_STRICT_ERROR`. `refuse`: it is answered with 400 if rules may stop it. `pass`: it passes.",
    )
    .default("refuse"),
    Key::one(
        "stream-pause",
        "DURATION",
        "stream-pause \"20ms\"",
        "For streams, such as those of gRPC, where rules may stop requests. After a pause of this length, at most 10s, in a body of unknown length, rules see the part that has arrived; the rest passes unseen, which is counted and logged. Without it, such a body is held until its end. With `mode=\"detect\"` it is always 5 ms.",
    )
    .otherwise("rules wait for the end of the body"),
    Key::one(
        "trailers",
        "WORD",
        "trailers \"pass\"",
        "The treatment of request trailers, which no rule sees, where rules may stop requests: `remove` or `pass`.",
    )
    .default("remove"),
    Key {
        props: &RESPONSE,
        ..Key::one(
            "response-body",
            "SIZE",
            "response-body \"256KiB\"",
            "The most that rules see of a response's body, which is held until they have, for ten seconds at most; at most \
             1 MiB, and 0 for nothing. Compressed bodies are decoded for them.",
        )
        .otherwise("as `SecResponseBodyAccess` and `SecResponseBodyLimit` say")
    },
    Key {
        props: &BUDGET,
        ..Key::one(
            "budget",
            "SIZE",
            "budget \"16MiB\"",
            "The most work of rules for one request, in bytes that patterns scan; bytes that are scanned twice count twice.",
        )
        .default("64MiB")
    },
    Key::one(
        "heavy",
        "SIZE",
        "heavy \"8KiB\"",
        "From this size on, heads and bodies are looked at on the threads for heavy work; values weigh 64 bytes each. 0 for \
         all.",
    )
    .default("4KiB"),
    Key::one(
        "when-full",
        "WORD",
        "when-full \"shed\"",
        "The choice when no such thread is free in time. `inline`: the worker thread runs the rules, which delays its other requests. `shed`: the request passes unchecked. `error`: it is answered with 503. With `inline`, bodies from 64 KiB on wait for up to 30 seconds, and then get 503.",
    )
    .default("inline"),
    Key::one("deadline", "DURATION", "deadline \"200ms\"", "How long a request waits for such a thread, at most 5s.")
        .default("1s"),
];

const EXCLUDE: [Prop; 3] = [
    prop("id", "NUMBER", "", "The rule of this number."),
    prop("tag", "TEXT", "", "All rules with this tag."),
    prop("when", "EXPRESSION", "", "For which requests; without it for all."),
];

const BODY: [Prop; 2] = [
    prop(
        "beyond",
        "WORD",
        "refuse",
        "The treatment of a longer body. `refuse`: the request is answered with 413 if rules may stop it. `start`: rules see its start; the rest passes unseen, which is counted and logged. Without it: `start` only if the rules say `SecRequestBodyLimitAction ProcessPartial`.",
    ),
    prop(
        "memory",
        "SIZE",
        "",
        "The most bytes of the body that are held in memory. A longer body lies in a temporary file until the origin has it; so does one beyond 128 KiB while half of `filter-memory` is in use. Without it: 1 MiB, or the value of `SecRequestBodyInMemoryLimit` if that is larger.",
    ),
];

const RESPONSE: [Prop; 1] = [prop(
    "types",
    "TEXT",
    "",
    "The media types that are looked at, divided by blanks. Without it: as `SecResponseBodyMimeType` says.",
)];

const BUDGET: [Prop; 1] = [prop(
    "beyond",
    "WORD",
    "refuse",
    "The treatment of a request that needs more. `refuse`: it is answered with 413 if rules may stop it. `pass`: the remaining rules do not run. Both are counted.",
)];

const fn prop(name: &'static str, usage: &'static str, default: &'static str, about: &'static str) -> Prop {
    Prop { name, usage, required: false, default, about }
}

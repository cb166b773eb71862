//! The key `waf` of the configuration.

use foregate_module::settings::{ANY, Block, Key, Prop};

/// The key `waf`.
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
        "The effect of rules. `detect`: matches are logged, and no request is stopped. `block`: rules can stop requests and replace responses. `SecRuleEngine` in the rules is ignored.",
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
        "An audit log with one JSON object per line. It contains the transactions that `SecAuditEngine` selects; if `SecAuditEngine` is off, the transactions with a match.",
    ),
    prop(
        "log-sync",
        "[#true|#false]",
        "#false",
        "Whether the lines of a request are written to `log` and `audit` before its response begins, for tools such as go-ftw that read the lines right after the response. A response waits for the files for at most 100 ms.",
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
            "Files of rules, in this order; `*` and `?` match parts of names. When a file changes, the configuration is loaded again.",
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
            "Rules that do not run, for all requests or for some.",
        )
    },
    Key::one("sample", "PERCENT", "sample \"10%\"", "The share of requests that is checked, such as `0.5%`. The other requests pass unchecked.")
        .default("100%"),
    Key {
        props: &BODY,
        ..Key::one(
            "body-limit",
            "SIZE",
            "body-limit \"64KiB\"",
            "The most bytes of a request body that rules see, up to 64 MiB. The body is held back from the origin until the rules have seen it. With 0, or with `SecRequestBodyAccess Off` in the rules, rules see no bodies. Without this key: the value of `SecRequestBodyLimit`, otherwise 12,800 KiB.",
        )
        .otherwise("the value of `SecRequestBodyLimit`, or `12800KiB`")
    },
    Key::one(
        "unclear-files",
        "WORD",
        "unclear-files \"both\"",
        "The treatment of those parts of a multipart form that some servers read as a file and others as an argument: parts without `Content-Type`, and parts with a `filename` that has no space before it or no double quotes, as `requests` for Python and .NET send them. `files`: they count as files. `both`: they count as files, and rules also check their content as an argument.",
    )
    .default("files"),
    Key::one(
        "unreadable",
        "WORD",
        "unreadable \"pass\"",
        "The treatment of a request with an unreadable or ambiguous body, if no rule checks `REQBODY_ERROR` or `MULTIPART_STRICT_ERROR`. `refuse`: it gets 400 if rules may stop it. `pass`: it passes.",
    )
    .default("refuse"),
    Key::one(
        "stream-pause",
        "DURATION",
        "stream-pause \"20ms\"",
        "For streams such as those of gRPC, with `mode=\"block\"`. If a request body of unknown length pauses for this time (at most 10s), rules check the part that has arrived; the rest passes unchecked, which is counted and logged. Without this key, such a body is held back until its end. With `mode=\"detect\"`, the time is always 5 ms.",
    )
    .otherwise("bodies are held until their end"),
    Key::one(
        "trailers",
        "WORD",
        "trailers \"pass\"",
        "The treatment of request trailers, which rules do not see, if rules may stop the request: `remove` or `pass`.",
    )
    .default("remove"),
    Key {
        props: &RESPONSE,
        ..Key::one(
            "response-body",
            "SIZE",
            "response-body \"256KiB\"",
            "The most bytes of a response body that rules see, up to 1 MiB; with 0, they see no bodies. The body is held back \
             from the client until the rules have seen it, for at most ten seconds. Compressed bodies are decompressed for the rules.",
        )
        .otherwise("the values of `SecResponseBodyAccess` and `SecResponseBodyLimit`")
    },
    Key {
        props: &BUDGET,
        ..Key::one(
            "budget",
            "SIZE",
            "budget \"16MiB\"",
            "The most work of rules for one request, measured in bytes that patterns scan; bytes that are scanned twice count twice.",
        )
        .default("64MiB")
    },
    Key::one(
        "heavy",
        "SIZE",
        "heavy \"8KiB\"",
        "Heads and bodies of this size or more are checked on the threads for heavy work (`offload-threads`), not on the \
         workers. Each value, such as a field or an argument, counts as 64 additional bytes. With 0, all heads and bodies are checked there.",
    )
    .default("4KiB"),
    Key::one(
        "when-full",
        "WORD",
        "when-full \"shed\"",
        "The treatment of such a large head or body if no thread for heavy work becomes free within `deadline`. `inline`: the worker runs the rules, which delays its other requests; but bodies of 64 KiB or more wait for up to 30 seconds, and then get 503. `shed`: the request passes unchecked. `error`: it gets 503.",
    )
    .default("inline"),
    Key::one("deadline", "DURATION", "deadline \"200ms\"", "How long a request waits for a thread for heavy work, at most 5s.")
        .default("1s"),
];

const EXCLUDE: [Prop; 3] = [
    prop("id", "NUMBER", "", "Excludes the rule with this number."),
    prop("tag", "TEXT", "", "Excludes all rules with this tag."),
    prop(
        "when",
        "EXPRESSION",
        "",
        "Excludes them only for requests for which this expression is true. Without it: for all requests.",
    ),
];

const BODY: [Prop; 2] = [
    prop(
        "beyond",
        "WORD",
        "refuse",
        "The treatment of a longer body. `refuse`: the request gets 413 if rules may stop it. `start`: rules check the start of the body; the rest passes unchecked, which is counted and logged. Without it: `start` if the rules have `SecRequestBodyLimitAction ProcessPartial`, else `refuse`.",
    ),
    prop(
        "memory",
        "SIZE",
        "",
        "The longest body that is held in memory. A longer body is kept in a temporary file until the origin has received it; while half of `limits { filter-memory }` is in use, so is every body above 128 KiB. Without it: 1 MiB, or the value of `SecRequestBodyInMemoryLimit` if that is larger.",
    ),
];

const RESPONSE: [Prop; 1] = [prop(
    "types",
    "TEXT",
    "",
    "The media types of responses with bodies that are checked, separated by blanks. Without it: those of `SecResponseBodyMimeType`.",
)];

const BUDGET: [Prop; 1] = [prop(
    "beyond",
    "WORD",
    "refuse",
    "The treatment of a request that needs more work. `refuse`: it gets 413 if rules may stop it. `pass`: the remaining rules do not run. Both are counted.",
)];

const fn prop(name: &'static str, usage: &'static str, default: &'static str, about: &'static str) -> Prop {
    Prop { name, usage, required: false, default, about }
}

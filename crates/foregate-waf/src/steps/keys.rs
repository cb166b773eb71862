//! The key of the configuration.

use foregate_module::settings::{ANY, Block, Key, Prop};

/// `waf`.
pub(super) const WAF: Key = Key {
    args: (0, 1),
    props: &PROPS,
    ..Key::block(
        "waf",
        &BLOCK,
        "waf mode=\"block\" log=\"waf.log\" { rules \"recommended.conf\" \"crs/crs-setup.conf\" \"crs/rules/*.conf\" }",
        "Looks at requests and responses with rules in SecLang, such as the OWASP Core Rule Set.",
    )
};

const PROPS: [Prop; 4] = [
    prop(
        "mode",
        "WORD",
        "detect",
        "`detect`: what rules find is logged, and no request is stopped. `block`: rules stop requests and replace \
         responses. What `SecRuleEngine` says does not count.",
    ),
    prop(
        "log",
        "FILE",
        "",
        "Where each match is a line, in the form that tools for ModSecurity read. Opened anew with `USR1`.",
    ),
    prop(
        "audit",
        "FILE",
        "",
        "Where transactions are JSON objects, one on a line: those that `SecAuditEngine` says; where it is off, those in \
         which a rule matched.",
    ),
    prop(
        "log-sync",
        "[#true|#false]",
        "#false",
        "`#true`: the lines of a request are in `log` and `audit` before its response begins, for programs that read them right after \
         it, such as go-ftw. A response waits for the files for at most 100 ms, and then goes on.",
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
            "rules \"recommended.conf\" \"crs/crs-setup.conf\" \"crs/rules/*.conf\"",
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
            "The most that rules see of a request's body; it is held until they have. 0 for nothing, at most 64 MiB. Nothing \
             either where `SecRequestBodyAccess` is off. Without it: what `SecRequestBodyLimit` says, otherwise 12,800 KiB.",
        )
        .otherwise("as `SecRequestBodyLimit` says, or `12800KiB`")
    },
    Key::one(
        "unclear-files",
        "WORD",
        "unclear-files \"both\"",
        "What files of a form are whose part has no `Content-Type`, or whose name stands behind no space or in no double quotes, as \
         `requests` for Python and .NET send them: `files`, or `both`, files whose content is an argument as well, since it is \
         one to some programs, such as formidable for Node.",
    )
    .default("files"),
    Key::one(
        "unreadable",
        "WORD",
        "unreadable \"pass\"",
        "What happens to a request whose body rules cannot read, or of which two programs may read different things, where no rule \
         looks at `REQBODY_ERROR` or `MULTIPART_STRICT_ERROR`: `refuse`, it is answered with 400 if rules may stop it; `pass`.",
    )
    .default("refuse"),
    Key::one(
        "stream-pause",
        "DURATION",
        "stream-pause \"20ms\"",
        "Where rules may stop requests: the pause, at most 10s, in a request's body of unknown length after which they see what has \
         come so far; the rest passes unseen, which is counted and logged. For streams, such as those of gRPC. Without it such a \
         body is held up to its end. Where rules only detect it is 5 ms.",
    )
    .otherwise("no pause ends what rules wait for"),
    Key::one(
        "trailers",
        "WORD",
        "trailers \"pass\"",
        "What happens to the trailers of requests, which no rule sees, where rules may stop requests: `remove`, or `pass`.",
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
            "The work that rules may do for one request: bytes that patterns look at, those looked at twice counted twice.",
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
        "What happens when no such thread is free in time: `inline`, the thread of the request does it, which others of that \
         thread feel; `shed`, the request passes without; `error`, it is answered with 503. With `inline`, bodies from 64 KiB on \
         wait for 30 seconds, and are answered with 503 after that.",
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
        "What happens to a body that is longer: `refuse`, the request is answered with 413 if rules may stop it; `start`, rules \
         see its start, and the rest passes unseen, which is counted and logged. Without it `start` only if the rules say \
         `SecRequestBodyLimitAction ProcessPartial`.",
    ),
    prop(
        "memory",
        "SIZE",
        "",
        "How much of it is held in memory; longer bodies lie in a temporary file until rules have seen them and the origin \
         has them, and shorter ones beyond 128 KiB too while half of `filter-memory` is held. Without it: 1 MiB, or what \
         `SecRequestBodyInMemoryLimit` says if that is more.",
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
    "What happens to a request that needs more: `refuse`, it is answered with 413 if rules may stop it; `pass`, the rules \
     that are left do not run. Both are counted.",
)];

const fn prop(name: &'static str, usage: &'static str, default: &'static str, about: &'static str) -> Prop {
    Prop { name, usage, required: false, default, about }
}

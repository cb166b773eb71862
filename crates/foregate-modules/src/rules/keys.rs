//! The tables of the key `rule`.

use foregate_module::settings::{ANY, Block, Key, Prop};

const EXPRESSION: Prop = Prop {
    name: "expression",
    usage: "#true|#false",
    required: false,
    default: "#false",
    about: "Whether the value is an expression, evaluated for each request; a text in it stands in quotes of its own. Where it \
            has no value, the action does nothing; `set-header` and `set-response-header` remove the field then, also where it \
            is empty, and a body is empty.",
};

const TYPE: Prop = Prop {
    name: "type",
    usage: "MEDIA-TYPE",
    required: false,
    default: "text/plain; charset=utf-8",
    about: "The type of the body.",
};

/// The key.
pub(super) const RULE: Key = Key {
    block: Some(&ACTIONS),
    ..Key::one(
        "rule",
        "EXPRESSION { ACTION ... }",
        "rule #\"http.request.uri.path eq \"/admin\"\"# { block }",
        "Takes actions on requests for which an expression is true. Rules are evaluated in order, those at the top of the \
         file before those of the site before those of the route, until one ends the request. `skip \"rules\"` leaves out \
         those that are left.",
    )
}
.props(&[
    Prop {
        name: "name",
        usage: "TEXT",
        required: false,
        default: "",
        about: "What the access log calls it; without, it is called by its number, as `rule 3`.",
    },
    Prop {
        name: "phase",
        usage: "\"request\"|\"rewrite\"|\"response\"",
        required: false,
        default: "request",
        about: "When it is evaluated: in `request-security`, before it is known whether the client may ask this; in \
                `request-rewrite`, when that and the start of the body are known; in `response-headers`.",
    },
    Prop {
        name: "dry-run",
        usage: "#true|#false",
        required: false,
        default: "#false",
        about: "Whether nothing is done but a note in the access log, `rule-dry-run`.",
    },
])
.many();

const fn field(name: &'static str, example: &'static str, about: &'static str) -> Key {
    Key::one(name, "NAME VALUE", example, about).args(2, 2).props(&[EXPRESSION]).many()
}

/// The actions.
static ACTIONS: Block = Block {
    keys: &[
        Key::one("block", "[STATUS] [BODY]", "block 410 \"gone\\n\"", "Refuses the request. Nothing runs behind it.")
            .args(0, 2)
            .default("403")
            .props(&[TYPE, EXPRESSION]),
        Key::one("respond", "STATUS [BODY]", "respond 200 \"ok\\n\"", "Answers the request. Nothing runs behind it.")
            .args(1, 2)
            .props(&[TYPE, EXPRESSION]),
        Key::one(
            "redirect",
            "TARGET",
            "redirect \"https://example.com/\" status=301",
            "Sends the client elsewhere, unless it is there already. Nothing runs behind it.",
        )
        .props(&[
            Prop {
                name: "status",
                usage: "301|302|303|307|308",
                required: false,
                default: "302",
                about: "The status.",
            },
            EXPRESSION,
        ]),
        Key::one(
            "rewrite",
            "[path=PATH] [query=QUERY]",
            "rewrite path=\"/index.html\" query=\"\"",
            "Changes path, query or both as the origin gets them. The route stays; an empty query goes.",
        )
        .args(0, 0)
        .props(&[
            Prop { name: "path", usage: "PATH", required: false, default: "", about: "The path." },
            Prop { name: "query", usage: "QUERY", required: false, default: "", about: "The query, without `?`." },
            EXPRESSION,
        ])
        .many(),
        field("set-header", "set-header \"x-tier\" \"gold\"", "Gives a field of the request exactly this value."),
        field("add-header", "add-header \"x-tag\" \"a\"", "Adds a field to the request."),
        Key::one("remove-header", "NAME", "remove-header \"x-debug\"", "Removes the request's fields of this name.")
            .many(),
        field("set-response-header", "set-response-header \"x-a\" \"b\"", "Gives a field of the response exactly this value."),
        field("add-response-header", "add-response-header \"x-a\" \"b\"", "Adds a field to the response."),
        Key::one(
            "remove-response-header",
            "NAME",
            "remove-response-header \"server\"",
            "Removes the response's fields of this name.",
        )
        .many(),
        field("set", "set \"tier\" \"gold\"", "Keeps a text for the request: `vars[\"tier\"][0]` in what comes behind."),
        Key::one("upstream", "NAME", "upstream \"app\"", "Asks another upstream than the route's."),
        Key::one(
            "skip",
            "MODULE...",
            "skip \"redirect\"",
            "Leaves out modules, by the names of their keys, as far as they have not run; `rules`: the rules behind this one.",
        )
        .args(1, ANY)
        .many(),
        field("log", "log \"why\" \"too fast\"", "Adds a note to the line of the access log."),
        CHALLENGE,
    ],
    later: &[],
};

const CHALLENGE: Key = Key::one(
    "challenge",
    "[FILE]",
    "challenge \"challenge.html\" key=\"${file:challenge.key}\" difficulty=16",
    "Answers with a page whose script solves a task and sets a cookie; a request with such a cookie passes. The page of \
     the file holds `{{token}}`, `{{difficulty}}`, `{{cookie}}` and `{{max-age}}`; without, it is a simple one.",
)
.args(0, 1)
.secrets(&["key"])
.props(&[
    Prop {
        name: "key",
        usage: "TEXT",
        required: true,
        default: "",
        about: "The secret by which cookies are signed, at least 16 bytes.",
    },
    Prop { name: "status", usage: "401|403|429|503", required: false, default: "403", about: "The status of the page." },
    Prop {
        name: "cookie",
        usage: "NAME",
        required: false,
        default: "foregate-pass",
        about: "The name of the cookie.",
    },
    Prop { name: "valid", usage: "DURATION", required: false, default: "1h", about: "How long a cookie lets pass." },
    Prop {
        name: "difficulty",
        usage: "BITS",
        required: false,
        default: "12",
        about: "How many bits the hash of an answer begins with that are zero; each doubles the client's work. 0 to 24.",
    },
]);

//! The tables of the key `rule`.

use foregate_module::settings::{ANY, Block, Key, Prop};

const EXPRESSION: Prop = Prop {
    name: "expression",
    usage: "#true|#false",
    required: false,
    default: "#false",
    about: "Whether the value is an expression that is evaluated for each request; texts in the expression need their own quotes. If it has no value, the action has no effect, with two exceptions: a body is empty, and `set-header` and `set-response-header` remove the field, as they do for an empty value.",
};

const TYPE: Prop = Prop {
    name: "type",
    usage: "MEDIA-TYPE",
    required: false,
    default: "text/plain; charset=utf-8",
    about: "The content type of the body.",
};

/// The key `rule`.
pub(super) const RULE: Key = Key {
    block: Some(&ACTIONS),
    ..Key::one(
        "rule",
        "EXPRESSION { ACTION ... }",
        "rule #\"http.request.uri.path eq \"/admin\"\"# { block }",
        "Takes actions on requests for which the expression is true. Rules run in order (top of the file, site, route) until one ends the request. `skip \"rules\"` skips the remaining rules.",
    )
}
.props(&[
    Prop {
        name: "name",
        usage: "TEXT",
        required: false,
        default: "",
        about: "The name of the rule in the access log. Without it, the rule's number is the name, such as `rule 3`.",
    },
    Prop {
        name: "phase",
        usage: "\"request\"|\"rewrite\"|\"response\"",
        required: false,
        default: "request",
        about: "The time of evaluation. `request`: before authentication. `rewrite`: after authentication, when the start of the body is known. `response`: when the response's head is known.",
    },
    Prop {
        name: "dry-run",
        usage: "#true|#false",
        required: false,
        default: "#false",
        about: "Whether the rule takes no action, and only writes the note `rule-dry-run` to the access log.",
    },
])
.many();

const fn field(name: &'static str, example: &'static str, about: &'static str) -> Key {
    Key::one(name, "NAME VALUE", example, about).args(2, 2).props(&[EXPRESSION]).many()
}

/// The actions.
static ACTIONS: Block = Block {
    keys: &[
        Key::one("block", "[STATUS] [BODY]", "block 410 \"gone\\n\"", "Refuses the request and ends its processing.")
            .args(0, 2)
            .default("403")
            .props(&[TYPE, EXPRESSION]),
        Key::one("respond", "STATUS [BODY]", "respond 200 \"ok\\n\"", "Answers the request and ends its processing.")
            .args(1, 2)
            .props(&[TYPE, EXPRESSION]),
        Key::one(
            "redirect",
            "TARGET",
            "redirect \"https://example.com/\" status=301",
            "Redirects the client and ends the processing, unless the client already asks for this target.",
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
            "Changes the path, the query or both in the request to the origin. The route stays the same; an empty query is removed.",
        )
        .args(0, 0)
        .props(&[
            Prop { name: "path", usage: "PATH", required: false, default: "", about: "The new path." },
            Prop { name: "query", usage: "QUERY", required: false, default: "", about: "The new query, without `?`." },
            EXPRESSION,
        ])
        .many(),
        field("set-header", "set-header \"x-tier\" \"gold\"", "Sets a field of the request to this value."),
        field("add-header", "add-header \"x-tag\" \"a\"", "Adds a field to the request."),
        Key::one("remove-header", "NAME", "remove-header \"x-debug\"", "Removes the request's fields of this name.")
            .many(),
        field("set-response-header", "set-response-header \"x-a\" \"b\"", "Sets a field of the response to this value."),
        field("add-response-header", "add-response-header \"x-a\" \"b\"", "Adds a field to the response."),
        Key::one(
            "remove-response-header",
            "NAME",
            "remove-response-header \"server\"",
            "Removes the response's fields of this name.",
        )
        .many(),
        field("set", "set \"tier\" \"gold\"", "Stores a text under this name for the rest of the request. Later expressions read it: the text of `set \"tier\" \"gold\"` is `vars[\"tier\"][0]`."),
        Key::one("upstream", "NAME", "upstream \"app\"", "Sends the request to this upstream instead of the route's."),
        Key::one(
            "skip",
            "MODULE...",
            "skip \"redirect\"",
            "Skips these modules, named by their keys, unless they have run already. `rules` stands for the rules after this one.",
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
    "Answers with a page whose script solves a task and sets a cookie; requests with a valid cookie pass. The page in FILE must contain `{{token}}`, `{{difficulty}}`, `{{cookie}}` and `{{max-age}}`. Without FILE, a simple page is sent.",
)
.args(0, 1)
.secrets(&["key"])
.props(&[
    Prop {
        name: "key",
        usage: "TEXT",
        required: true,
        default: "",
        about: "The secret that signs the cookies, at least 16 bytes.",
    },
    Prop { name: "status", usage: "401|403|429|503", required: false, default: "403", about: "The status of the page." },
    Prop {
        name: "cookie",
        usage: "NAME",
        required: false,
        default: "foregate-pass",
        about: "The name of the cookie.",
    },
    Prop { name: "valid", usage: "DURATION", required: false, default: "1h", about: "How long a cookie is valid." },
    Prop {
        name: "difficulty",
        usage: "BITS",
        required: false,
        default: "12",
        about: "The number of zero bits with which the hash of the solution must begin, 0 to 24. Each bit doubles the client's work.",
    },
]);

//! The keys `compare` and `compare-samples`.

use foregate_config::schema::{Key, Prop};

const fn prop(name: &'static str, usage: &'static str, default: &'static str, about: &'static str) -> Prop {
    Prop { name, usage, required: false, default, about }
}

const PROPS: &[Prop] = &[
    Prop { name: "upstream", usage: "NAME", required: true, default: "", about: "The old proxy." },
    prop(
        "mode",
        "\"shadow\"|\"tap\"|\"dry-run\"",
        "\"shadow\"",
        "`shadow` sends requests with safe methods and without a body to the old proxy as well, as the client has sent them. Their origin gets them twice. With `tap`, the old proxy answers the clients of the route, and asks its origin through a listener with `tap`: requests to the origin and responses to the client are compared, with any method, and the origin gets them once. With `dry-run`, the old proxy answers as well, and the steps of the route run without effect over the request and over the old proxy's response.",
    ),
    prop("share", "PERCENT", "\"100%\"", "The share of requests that are compared."),
    prop(
        "learn",
        "PERCENT",
        "\"10%\"",
        "The share of compared requests for which the old proxy is asked twice, to learn how it differs from itself. The first 20 of each route are always asked twice.",
    ),
    prop("order", "#true|#false", "#false", "Compares the order of fields."),
    prop(
        "ignore",
        "PARTS",
        "",
        "Parts of the responses that are left out, separated by commas: the name of a field, `cookie NAME`, `$.PATH` of a JSON body, `body`, `status`. `Date`, `Age`, `Server`, `Via` and ids of requests are left out always.",
    ),
    prop(
        "body",
        "SIZE",
        "\"1MiB\"",
        "The part of a body that is compared by its contents, at most 16 MiB. Longer bodies are compared by a hash of all their bytes if their content coding is the same.",
    ),
];

const ABOUT: &str = "Compares the responses to clients with those of the proxy that Foregate replaces. The client never waits for a comparison. `foregate compare report` shows the differences.";

/// In a site.
pub(super) const OF_SITE: Key =
    Key::one("compare", "upstream=NAME", "compare upstream=\"old\" share=\"10%\"", ABOUT)
        .args(0, 0)
        .props(PROPS)
        .otherwise("off");

/// In a route.
pub(super) const OF_ROUTE: Key =
    Key::one("compare", "upstream=NAME", "compare upstream=\"old\" mode=\"shadow\" share=\"100%\"", ABOUT)
        .args(0, 0)
        .props(PROPS)
        .otherwise("as the site has it");

/// At the top of the file.
pub(super) const SAMPLES: Key = Key::one("compare-samples", "FOLDER", "compare-samples \"/var/lib/foregate/compare\" keep=\"1d\"", "The folder for samples of differences that `compare` finds, with mode 0700; samples have mode 0600. `foregate compare show ID` shows one. If a sample cannot be written, comparisons pause for 30 seconds.")
    .props(&[
        prop("size", "SIZE", "\"64MiB\"", "Bytes of all samples together. Beyond, the oldest go."),
        prop("each", "NUMBER", "20", "Samples of one route and class, 1 to 10000. Beyond, the oldest of them go."),
        prop("keep", "DURATION", "\"7d\"", "How long a sample is kept."),
        prop("raw", "#true|#false", "#false", "Keeps values as they are. Without it, credentials, cookies, values of queries and bodies are hashes under a key of the folder, in samples and in the report."),
    ])
    .otherwise("`compare` in `$STATE_DIRECTORY`, which systemd sets; else in `/var/lib/foregate` for root and `~/.local/share/foregate` for other users");

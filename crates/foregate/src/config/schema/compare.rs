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
        "`shadow`: Foregate answers the clients, and also sends a copy of each request with a safe method and without a body to the old proxy, so the origin gets these requests twice. `tap`: the old proxy answers the clients of the route, and its origin is a listener of Foregate with `tap`. The requests to the origin and the responses to the client are compared, whatever the method, and the origin gets each request once. `dry-run`: the old proxy answers the clients of the route, and the modules of the route process the request and the old proxy's response without effect.",
    ),
    prop("share", "PERCENT", "\"100%\"", "The share of requests that is compared."),
    prop(
        "learn",
        "PERCENT",
        "\"10%\"",
        "The share of compared requests that are sent to the old proxy twice, to learn in which parts its own responses differ from each other. The first 20 requests of each route are always sent twice.",
    ),
    prop("order", "#true|#false", "#false", "Compares the order of the header fields, too."),
    prop(
        "ignore",
        "PARTS",
        "",
        "Parts of the responses that are not compared, separated by commas: the name of a field, `cookie NAME`, `$.PATH` of a JSON body, `body`, `status`. `Date`, `Age`, `Server`, `Via` and ids of requests are never compared.",
    ),
    prop(
        "body",
        "SIZE",
        "\"1MiB\"",
        "The longest body that is compared by its content, at most 16 MiB. Longer bodies are compared by a hash of all their bytes, if their content coding is the same.",
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
        .otherwise("the site's");

/// At the top of the file.
pub(super) const SAMPLES: Key = Key::one("compare-samples", "FOLDER", "compare-samples \"/var/lib/foregate/compare\" keep=\"1d\"", "The folder (mode 0700) in which `compare` stores samples of the differences that it finds (mode 0600). `foregate compare show ID` shows a sample. If a sample cannot be written, comparisons pause for 30 seconds.")
    .props(&[
        prop("size", "SIZE", "\"64MiB\"", "The most bytes of all samples together. Beyond: the oldest samples are removed."),
        prop("each", "NUMBER", "20", "The most samples of one route and one class of difference, 1 to 10000. Beyond: the oldest of these are removed."),
        prop("keep", "DURATION", "\"7d\"", "How long a sample is kept."),
        prop("raw", "#true|#false", "#false", "Stores values in plain text. Without it, samples and the report have hashes in place of credentials, cookies, values of queries and bodies; the key of these hashes is in the folder."),
    ])
    .otherwise("`compare` in `$STATE_DIRECTORY`, which systemd sets; else in `/var/lib/foregate` for root and `~/.local/share/foregate` for other users");

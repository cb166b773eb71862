//! `cache` in a site or a route, and `cache-store`.

use super::{ANY, Block, Key, Prop};

/// The key `cache` of a site.
pub(super) const OF_SITE: Key = Key::one(
    "cache",
    "[#true|#false] { ... }",
    "cache { stale-if-error \"1d\" }",
    "The cache of all routes of the site that have a `proxy` and no `cache` of their own.",
)
.args(0, 1)
.with(&CACHE)
.otherwise("no cache");

/// The key `cache` of a route.
pub(super) const OF_ROUTE: Key = Key::one(
    "cache",
    "[#true|#false] { ... }",
    "cache { stale-if-error \"1d\" }",
    "Stores responses and answers further requests from the store, as RFC 9111 says. `cache` alone is enough: the origin's `Cache-Control` decides. It replaces the `cache` of the site as a whole; `cache #false` turns that off in the route. The page Caching a site in the guide has recipes.",
)
.args(0, 1)
.with(&CACHE)
.otherwise("as the site has it");

/// The key `disk-engine` at the top of a file.
pub(super) const DISK_ENGINE_KEY: Key = Key::one(
    "disk-engine",
    "\"auto\"|\"threads\"|\"io-uring\"",
    "disk-engine \"threads\"",
    "How files that are not in memory are read, in the folders of `cache-store` and of `files`. `io-uring` has the kernel read them (Linux 6.1), which costs less processor time; `threads` has a pool of threads for each folder; `auto` takes `io-uring` where the kernel permits it, which containers often do not. With `io-uring`, the proxy does not start where it is refused. Folders that are open keep theirs until the next start.",
)
.default("\"auto\"");

/// The key `cache-store` at the top of a file.
pub(super) const CACHE_STORE_KEY: Key = Key::block(
    "cache-store",
    &CACHE_STORE,
    "cache-store { memory \"1GiB\" }",
    "The store that all routes with `cache` share.",
);

/// The block of `cache-store`.
pub static CACHE_STORE: Block = Block {
    keys: &[Key::one("memory", "SIZE", "memory \"1GiB\"", "The memory for stored responses, in addition to `limits { memory }`; at least 1 MiB. Beyond: those go that are used least. One response may have a sixteenth of it, at most 8 MiB; larger ones are not stored.")
        .default("\"256MiB\""),
        Key::one("disk", "FOLDER size=SIZE", "disk \"/var/cache/foregate\" size=\"100GiB\"", "A folder for stored responses, which outlive the process there. Responses that memory does not have are looked for here, and go to memory when found. The folder exists, belongs to the user of the proxy, and is for one process alone. With several, each response lies in one of them. A reload changes sizes; other folders need a restart.")
            .props(&[Prop { name: "size", usage: "SIZE", required: true, default: "", about: "The most bytes in the folder; at least 16 MiB. Beyond: those go that are used least." }])
            .otherwise("memory alone")
            .many(),
        Key::one("reserve", "URL bucket=NAME", "reserve \"https://s3.eu-central-1.amazonaws.com\" bucket=\"edge-cache\" region=\"eu-central-1\"", "Object storage that speaks S3, behind memory and disk. A response that the nearer tiers do not have is looked for there before the origin is asked, and goes to the nearer tiers. Responses of up to 64 MiB that were in memory are written in the background. The bucket, or the part of it under `prefix`, is for one proxy alone. Changes need a restart.")
            .props(&[
                Prop { name: "bucket", usage: "NAME", required: true, default: "", about: "The bucket, which exists." },
                Prop { name: "region", usage: "NAME", required: false, default: "\"us-east-1\"", about: "The region, which belongs to the signature." },
                Prop { name: "prefix", usage: "TEXT", required: false, default: "\"\"", about: "The beginning of all names in the bucket, such as `edge-1/`." },
                Prop { name: "credentials", usage: "FILE", required: false, default: "", about: "A file with `aws_access_key_id = ...` and `aws_secret_access_key = ...`, as the command line of AWS has it; read again each minute. Without it: the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN." },
                Prop { name: "keep", usage: "DURATION", required: false, default: "\"30d\"", about: "How long a response stays. Older ones are removed." },
                Prop { name: "least", usage: "DURATION", required: false, default: "\"10m\"", about: "Responses that stay fresh for less are not written." },
                Prop { name: "timeout", usage: "DURATION", required: false, default: "\"1s\"", about: "How long a request waits for the storage before it goes to the origin." },
                Prop { name: "virtual-host", usage: "#true|#false", required: false, default: "#false", about: "The name of the bucket is part of the host, rather than of the path." },
                Prop { name: "authorities", usage: "FILE", required: false, default: "", about: "The authorities of the storage's certificate, in PEM, instead of the system's." },
            ])
            .otherwise("no reserve")],
    later: &[],
};

/// The block of `cache`.
pub static CACHE: Block = Block {
    keys: &[
        Key::one("ttl", "[STATUS] DURATION", "ttl \"404\" \"1m\"", "The lifetime of responses with this status for which the origin states none. STATUS is `200`, a class such as `2xx`, or a range such as `200-299`; without it, 200, 301 and 302 are meant. The first `ttl` that fits counts.")
            .args(1, 2)
            .props(&[
                Prop { name: "when", usage: "EXPRESSION", required: false, default: "", about: "This lifetime is for responses to requests for which this expression is true. The request counts that is sent to the origin: others get the stored response. At most 64 of them in a `cache`." },
                Prop { name: "over-origin", usage: "#true|#false", required: false, default: "#false", about: "This lifetime replaces the one that the origin states, but never `no-store` and `private`." },
            ])
            .many(),
        Key::one("key", "EXPRESSION...", "key \"http.cookie.lang\"", "Expressions with values that belong to the key, beside scheme, host, path and query: responses are stored apart for each value. Another upstream than the route's, chosen by a module, belongs to it by itself.")
            .args(1, ANY)
            .many(),
        Key::one("bypass", "EXPRESSION...", "bypass #\"starts_with(http.request.uri.path, \"/wp-admin\")\"#", "Requests for which one of these expressions is true go past the cache: they are neither answered from it nor stored.")
            .args(1, ANY)
            .many(),
        Key::one("query", "keep=NAMES drop=NAMES", "query keep=\"page\"", "The parameters of the query that belong to the key. The origin gets these alone. NAMES are separated by commas; a name that ends in `*` stands for all that begin with it.")
            .args(0, 0)
            .props(&[
                Prop { name: "keep", usage: "NAMES", required: false, default: "", about: "These parameters, and no others; `\"\"` for none." },
                Prop { name: "drop", usage: "NAMES", required: false, default: "", about: "All parameters but these." },
                Prop { name: "sort", usage: "#true|#false", required: false, default: "#false", about: "The order of different parameters does not count." },
            ])
            .otherwise("all of it, as it comes"),
        Key::one("stale-while-revalidate", "DURATION", "stale-while-revalidate \"1m\"", "How long after its end a response is still served while the origin is asked in the background, where the origin states no time of its own.")
            .default("\"0s\""),
        Key::one("stale-if-error", "DURATION", "stale-if-error \"1d\"", "How long after its end a response is served if the origin fails or answers with 500, 502, 503 or 504, where the origin states no time of its own and does not forbid it.")
            .default("\"10m\""),
        Key::one("extensions", "\"default\"|EXTENSION...", "extensions \"css\" \"js\" ttl=\"1h\"", "Stores responses by the extension of the path, where the origin states no lifetime. `default` stands for the extensions of static content. The extension must fit `Content-Type`, so that a private page under such a path is not stored.")
            .args(1, ANY)
            .props(&[Prop { name: "ttl", usage: "DURATION", required: false, default: "\"2h\"", about: "Their lifetime." }])
            .otherwise("the extension does not matter"),
        Key::one("heuristics", "PERCENT", "heuristics 20 longest=\"1h\"", "The lifetime of responses for which nobody states one, in percent of the time since `Last-Modified`; 0 for none. It is for requests without query, cookie and credentials.")
            .props(&[
                Prop { name: "longest", usage: "DURATION", required: false, default: "\"1d\"", about: "The longest of such lifetimes." },
                Prop { name: "errors", usage: "#true|#false", required: false, default: "#false", about: "Errors such as 404 get such a lifetime, too." },
            ])
            .default("10"),
        Key::one("set-cookie", "\"refuse\"|\"drop\"|\"store\"", "set-cookie \"drop\"", "The handling of responses with `Set-Cookie`: not stored; stored without the cookie, which only the first client gets; or stored with it, so that all clients get it.")
            .default("\"refuse\""),
        Key::one("authorization", "\"refuse\"|\"removed\"", "authorization \"removed\"", "The handling of requests with `Authorization`. `refuse`: their responses are stored only if the origin says that they are for others too (RFC 9111, section 3.5). `removed`: the same, but credentials that a step has removed before the cache, as `basic-auth` with `strip-authorization=#true` does, do not count: the origin cannot see them. Then all clients that the steps let in share responses. A field with the name of the user (`user-field`) still counts as credentials.")
            .default("\"refuse\""),
        Key::flag("client-directives", "#false", "client-directives", "Heeds `no-cache`, `no-store`, `max-age`, `min-fresh` and `Pragma` of clients. Without it, no client can have the origin asked on each request; `only-if-cached` and `max-stale` count always."),
        Key::one("targeted", "NAME...", "targeted \"Edge-Cache-Control\" \"CDN-Cache-Control\"", "Fields for caches like this one (RFC 9213): the first that a response has replaces its `Cache-Control` and `Expires`.")
            .args(1, 8)
            .default("\"CDN-Cache-Control\""),
        Key::flag("keep-tags", "#false", "keep-tags", "Sends `Cache-Tag` and `Surrogate-Key` of the origin to clients. Without it, they are removed."),
        Key::one("status-header", "[NAME]", "status-header \"edge-1\"", "Adds `Cache-Status` (RFC 9211) to responses, with this name for the cache. Without NAME: `foregate`.")
            .args(0, 1)
            .otherwise("no such field"),
        super::shield::OF_CACHE,
        Key::one("purge-token", "TOKEN", "purge-token \"${env:PURGE_TOKEN}\"", "Lets applications purge over HTTP: `PURGE` with the address of a response and `Authorization: Bearer TOKEN`. At least 16 characters. Without this key, `PURGE` goes to the origin as any other method.")
            .secrets(&[""])
            .otherwise("nobody purges over HTTP"),
    ],
    later: &[],
};

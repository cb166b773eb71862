//! `cache` in a site or a route, and `cache-store`.

use super::{ANY, Block, Key, Prop};

/// The key `cache` of a site.
pub(super) const OF_SITE: Key = Key::one(
    "cache",
    "[#true|#false] { ... }",
    "cache { stale-if-error \"1d\" }",
    "The cache settings of all routes of the site that have a `proxy` and no `cache` of their own.",
)
.args(0, 1)
.with(&CACHE)
.otherwise("no cache");

/// The key `cache` of a route.
pub(super) const OF_ROUTE: Key = Key::one(
    "cache",
    "[#true|#false] { ... }",
    "cache { stale-if-error \"1d\" }",
    "Stores responses and answers further requests from the store, as RFC 9111 says. The name alone is enough: then the origin's `Cache-Control` decides. A `cache` in a route replaces the whole `cache` of the site; `cache #false` turns the site's `cache` off in the route. The page Caching a site in the guide has recipes.",
)
.args(0, 1)
.with(&CACHE)
.otherwise("the site's");

/// The key `disk-engine` at the top of a file.
pub(super) const DISK_ENGINE_KEY: Key = Key::one(
    "disk-engine",
    "\"auto\"|\"threads\"|\"io-uring\"",
    "disk-engine \"threads\"",
    "How the files of `cache-store` and of `files` are read if they are not in the system's page cache. `io-uring`: by the kernel's io_uring (Linux 6.1), which costs less processor time. If the kernel refuses it, the proxy does not start. `threads`: by a pool of threads for each folder. `auto`: by io_uring if the kernel permits it, which it often does not in containers, else by threads. A change takes effect for new folders; folders in use keep their engine until the next start.",
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
    keys: &[Key::one("memory", "SIZE", "memory \"1GiB\"", "The memory for stored responses, in addition to `limits { memory }`; at least 1 MiB. Beyond: the least used responses are removed. One response may take a sixteenth of this memory, at most 8 MiB; larger responses are not stored in memory.")
        .default("\"256MiB\""),
        Key::one("disk", "FOLDER size=SIZE", "disk \"/var/cache/foregate\" size=\"100GiB\"", "A folder for stored responses, which survive a restart there. A response that is not in memory is looked up in the folder, and copied to memory if it is found. The folder must exist and belong to the user of the proxy, and no other process may use it. If there are several folders, each response is stored in one of them. A reload can change sizes; to add or remove folders, restart.")
            .props(&[Prop { name: "size", usage: "SIZE", required: true, default: "", about: "The most bytes in the folder; at least 16 MiB. Beyond: the least used responses are removed." }])
            .otherwise("only memory")
            .many(),
        Key::one("reserve", "URL bucket=NAME", "reserve \"https://s3.eu-central-1.amazonaws.com\" bucket=\"edge-cache\" region=\"eu-central-1\"", "Object storage that speaks S3, as a third tier after memory and disk. A response that is neither in memory nor on disk is looked up there before the origin is asked, and copied to memory and disk if it is found. Responses of up to 64 MiB that were in memory are written to the bucket in the background. Only one proxy may use the bucket, or the part of it under `prefix`. Changes need a restart.")
            .props(&[
                Prop { name: "bucket", usage: "NAME", required: true, default: "", about: "The bucket, which must exist." },
                Prop { name: "region", usage: "NAME", required: false, default: "\"us-east-1\"", about: "The region, which is part of the request signature." },
                Prop { name: "prefix", usage: "TEXT", required: false, default: "\"\"", about: "The text at the start of all object names in the bucket, such as `edge-1/`." },
                Prop { name: "credentials", usage: "FILE", required: false, default: "", about: "A file with `aws_access_key_id = ...` and `aws_secret_access_key = ...`, in the format of the AWS command line. It is read again each minute. Without it: the environment variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN." },
                Prop { name: "keep", usage: "DURATION", required: false, default: "\"30d\"", about: "How long a response is kept in the bucket." },
                Prop { name: "least", usage: "DURATION", required: false, default: "\"10m\"", about: "Responses that stay fresh for a shorter time are not written to the bucket." },
                Prop { name: "timeout", usage: "DURATION", required: false, default: "\"1s\"", about: "How long a request waits for the storage before it goes to the origin." },
                Prop { name: "virtual-host", usage: "#true|#false", required: false, default: "#false", about: "Puts the name of the bucket into the host of the URL instead of into its path." },
                Prop { name: "authorities", usage: "FILE", required: false, default: "", about: "A PEM file with the authorities that verify the storage's certificate. Without it: the system's." },
            ])
            .otherwise("no third tier")],
    later: &[],
};

/// The block of `cache`.
pub static CACHE: Block = Block {
    keys: &[
        Key::one("ttl", "[STATUS] DURATION", "ttl \"404\" \"1m\"", "The lifetime of responses with this status if the origin states no lifetime. STATUS is `200`, a class such as `2xx`, or a range such as `200-299`; without STATUS, the lifetime applies to 200, 301 and 302. The first `ttl` that matches a response counts.")
            .args(1, 2)
            .props(&[
                Prop { name: "when", usage: "EXPRESSION", required: false, default: "", about: "Applies this lifetime only to responses to requests for which this expression is true. It is evaluated for the request that goes to the origin; later requests get the stored response, whatever the expression says for them. A `cache` may have at most 64 `when`." },
                Prop { name: "over-origin", usage: "#true|#false", required: false, default: "#false", about: "Applies this lifetime even if the origin states another one. Responses with `no-store` or `private` are still not stored." },
            ])
            .many(),
        Key::one("key", "EXPRESSION...", "key \"http.cookie.lang\"", "Expressions whose values are part of the cache key, in addition to scheme, host, path and query: for each value, a response of its own is stored. If a module chooses another upstream than the route's, that upstream is part of the key as well.")
            .args(1, ANY)
            .many(),
        Key::one("bypass", "EXPRESSION...", "bypass #\"starts_with(http.request.uri.path, \"/wp-admin\")\"#", "Requests for which one of these expressions is true bypass the cache: they are not answered from it, and their responses are not stored.")
            .args(1, ANY)
            .many(),
        Key::one("query", "keep=NAMES drop=NAMES", "query keep=\"page\"", "The parameters of the query that are part of the cache key. The origin gets only these parameters, too. NAMES are separated by commas; a name that ends in `*` stands for all names with this beginning.")
            .args(0, 0)
            .props(&[
                Prop { name: "keep", usage: "NAMES", required: false, default: "", about: "Only these parameters are part of the key; `\"\"`: none." },
                Prop { name: "drop", usage: "NAMES", required: false, default: "", about: "All parameters except these are part of the key." },
                Prop { name: "sort", usage: "#true|#false", required: false, default: "#false", about: "Ignores the order of parameters with different names." },
            ])
            .otherwise("the whole query, as the client sends it"),
        Key::one("stale-while-revalidate", "DURATION", "stale-while-revalidate \"1m\"", "How long after the end of its lifetime a response is still served, while Foregate fetches a new one in the background. A `stale-while-revalidate` of the origin takes precedence.")
            .default("\"0s\""),
        Key::one("stale-if-error", "DURATION", "stale-if-error \"1d\"", "How long after the end of its lifetime a response is still served if the origin fails or answers with 500, 502, 503 or 504. A `stale-if-error` of the origin takes precedence, and the origin can forbid stale responses.")
            .default("\"10m\""),
        Key::one("extensions", "\"default\"|EXTENSION...", "extensions \"css\" \"js\" ttl=\"1h\"", "Stores responses at paths with one of these extensions, if the origin states no lifetime. `default` stands for the extensions of static content. The `Content-Type` of the response must fit the extension, so that a private page under such a path is not stored.")
            .args(1, ANY)
            .props(&[Prop { name: "ttl", usage: "DURATION", required: false, default: "\"2h\"", about: "The lifetime of these responses." }])
            .otherwise("the extension does not matter"),
        Key::one("heuristics", "PERCENT", "heuristics 20 longest=\"1h\"", "The lifetime of responses for which neither the origin nor this configuration states one: a percentage of the time since `Last-Modified`; 0 for none. It applies only to requests without a query, cookies and credentials.")
            .props(&[
                Prop { name: "longest", usage: "DURATION", required: false, default: "\"1d\"", about: "The longest lifetime that is computed in this way." },
                Prop { name: "errors", usage: "#true|#false", required: false, default: "#false", about: "Computes a lifetime for errors such as 404, too." },
            ])
            .default("10"),
        Key::one("set-cookie", "\"refuse\"|\"drop\"|\"store\"", "set-cookie \"drop\"", "The handling of responses with `Set-Cookie`. `refuse`: they are not stored. `drop`: they are stored without the cookie, which only the first client gets. `store`: they are stored with the cookie, so that all clients get it.")
            .default("\"refuse\""),
        Key::one("authorization", "\"refuse\"|\"removed\"", "authorization \"removed\"", "The handling of requests with `Authorization`. `refuse`: their responses are stored only if the origin permits that, for example with `public` (RFC 9111, section 3.5). `removed`: as `refuse`, but if a module has removed the credentials from the request, as `basic-auth` does with `strip-authorization=#true`, the request counts as one without credentials, because the origin does not see them. Then all clients that the module admits share the stored responses. A field with the name of the user (`user-field`) still counts as credentials.")
            .default("\"refuse\""),
        Key::flag("client-directives", "#false", "client-directives", "Obeys `no-cache`, `no-store`, `max-age`, `min-fresh` and `Pragma` of clients. Without it, these are ignored, so that a client cannot cause a request to the origin each time; `only-if-cached` and `max-stale` are always obeyed."),
        Key::one("targeted", "NAME...", "targeted \"Edge-Cache-Control\" \"CDN-Cache-Control\"", "Response fields that the origin sends for caches like Foregate alone (RFC 9213). Foregate obeys the first of them that a response has, instead of its `Cache-Control` and `Expires`.")
            .args(1, 8)
            .default("\"CDN-Cache-Control\""),
        Key::flag("keep-tags", "#false", "keep-tags", "Sends `Cache-Tag` and `Surrogate-Key` of the origin to clients. Without it, they are removed."),
        Key::one("status-header", "[NAME]", "status-header \"edge-1\"", "Adds `Cache-Status` (RFC 9211) to responses, with this name for the cache. Without NAME: `foregate`.")
            .args(0, 1)
            .otherwise("no such field"),
        super::shield::OF_CACHE,
        Key::one("purge-token", "TOKEN", "purge-token \"${env:PURGE_TOKEN}\"", "Lets applications purge over HTTP: with the method `PURGE`, the URL of the response and `Authorization: Bearer TOKEN`. TOKEN has at least 16 characters. Without this key, `PURGE` goes to the origin like any other method.")
            .secrets(&[""])
            .otherwise("no purges over HTTP"),
    ],
    later: &[],
};

//! The keys for requests in flight.

use super::{Key, Prop};

const LIMIT: &str = "The most requests in flight to upstreams. A request counts from the time when it leaves the `queue`, if it had to wait there, to the end of its response or tunnel. Beyond: requests wait in the `queue`; without a `queue`, they get 503 with `Retry-After`.";

/// `requests` of a listener and of a site.
pub(super) const REQUESTS: Key = Key::one("requests", "NUMBER", "requests 200", LIMIT).otherwise("no limit");

/// `requests` of an upstream.
pub(super) const UPSTREAM_REQUESTS: Key = Key::one("requests", "NUMBER adaptive=BOOL", "requests 200", LIMIT)
    .props(&[
        Prop { name: "adaptive", usage: "BOOL", required: false, default: "#false", about: "With `#true`, the limit follows the latency of the upstream, and NUMBER is its maximum: the limit falls while responses take longer than without load or attempts fail, and otherwise grows again." },
        Prop { name: "minimum", usage: "NUMBER", required: false, default: "4", about: "The lowest value of the limit with `adaptive=#true`." },
    ])
    .otherwise("no limit");

/// `queue` of a listener, a site and an upstream: the requests beyond the limit that may wait.
pub(super) const QUEUE: Key = Key::one("queue", "NUMBER timeout=DURATION", "queue 100 timeout=\"5s\"", "The most requests that wait while `requests` is reached. Clients take turns; requests of one client are served in the order of their arrival. Beyond: 503 with `Retry-After`.")
    .props(&[Prop { name: "timeout", usage: "DURATION", required: false, default: "\"5s\"", about: "How long a request waits. Beyond: 503 with `Retry-After`." }])
    .otherwise("none");

/// `hedge` of an upstream.
pub(super) const HEDGE: Key = Key::one("hedge", "after=TIME", "hedge after=\"p95\"", "If a server has not answered an idempotent request without a body within this time, sends the request to a second server as well. The first response is used, and the other attempt is cancelled. `retry-budget` bounds these attempts.")
    .args(0, 0)
    .props(&[Prop { name: "after", usage: "TIME", required: true, default: "", about: "A duration such as `\"50ms\"`, or a percentile of the recent latencies of the upstream, `\"p50\"` to `\"p99\"`. Before 20 responses are known, there is no percentile, and nothing is sent twice." }])
    .otherwise("off");

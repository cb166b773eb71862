//! The keys for requests in flight.

use super::{Key, Prop};

const LIMIT: &str = "The most requests in flight that go to upstreams, counted from their turn to the end of their responses, tunnels included. Beyond: the `queue`, or 503 with `Retry-After` if there is none.";

/// `requests` of a listener and of a site.
pub(super) const REQUESTS: Key = Key::one("requests", "NUMBER", "requests 200", LIMIT).otherwise("no limit");

/// `requests` of an upstream.
pub(super) const UPSTREAM_REQUESTS: Key = Key::one("requests", "NUMBER adaptive=BOOL", "requests 200", LIMIT)
    .props(&[
        Prop { name: "adaptive", usage: "BOOL", required: false, default: "#false", about: "With `#true` the limit follows the latency of the upstream, up to NUMBER: it falls while responses take longer than without load, or attempts fail, and grows again when they do not." },
        Prop { name: "minimum", usage: "NUMBER", required: false, default: "4", about: "The least limit with `adaptive=#true`." },
    ])
    .otherwise("no limit");

/// The queue of those beyond.
pub(super) const QUEUE: Key = Key::one("queue", "NUMBER timeout=DURATION", "queue 100 timeout=\"5s\"", "The most requests that wait beyond `requests`, first come, first served, with clients in turns. Beyond: 503 with `Retry-After`.")
    .props(&[Prop { name: "timeout", usage: "DURATION", required: false, default: "\"5s\"", about: "How long a request waits. Beyond: 503 with `Retry-After`." }])
    .otherwise("none");

/// `hedge` of an upstream.
pub(super) const HEDGE: Key = Key::one("hedge", "after=TIME", "hedge after=\"p95\"", "Sends an idempotent request without a body to a second server as well, once the first one has brought no response for this time. The first response counts, and the other attempt is cancelled. `retry-budget` bounds these attempts.")
    .args(0, 0)
    .props(&[Prop { name: "after", usage: "TIME", required: true, default: "", about: "A duration such as `\"50ms\"`, or a percentile of the recent latencies of the upstream, `\"p50\"` to `\"p99\"`; before 20 responses there is none." }])
    .otherwise("off");

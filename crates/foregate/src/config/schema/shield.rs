//! The keys of a shield.

use super::{Block, Key, Prop};

/// The key `shield` at the top of a file.
pub(super) const SHIELD_KEY: Key = Key::one(
    "shield",
    "NAME self=NODE secret=TEXT { ... }",
    "shield \"eu\" self=\"edge1\" secret=\"${env:SHIELD_SECRET}\" { node \"edge1\" \"10.0.0.1:7070\"; node \"edge2\" \"10.0.0.2:7070\"; }",
    "A group of proxies, called nodes, with the same sites and upstreams. On routes with `cache { shield NAME }`, each URL belongs to one of the nodes, its owner. The other nodes fetch the response from the owner instead of from the origin, and store it. While the owner cannot be reached, they ask the origin. A purge at one node applies to all nodes; a node that was stopped or cut off learns of the purges that it missed before it serves from its store. A file has at most one shield.",
)
.with(&SHIELD)
.props(&[
    Prop { name: "self", usage: "NODE", required: true, default: "", about: "The name of the node that this proxy is." },
    Prop { name: "secret", usage: "TEXT", required: true, default: "", about: "The secret that all nodes share, 16 to 256 characters. It signs the requests between them, but does not encrypt them. The clocks of the nodes may differ by at most five minutes." },
])
.secrets(&["secret"])
.otherwise("no shield");

/// The block of `shield`.
pub static SHIELD: Block = Block {
    keys: &[Key::one(
        "node",
        "NAME HOST:PORT",
        "node \"edge1\" \"10.0.0.1:7070\"",
        "A proxy of the group, and the address at which the other nodes reach its `listen { shield }`. All nodes must have the same list, with at most 32 nodes. A reload can change the list.",
    )
    .args(2, 2)
    .many()
    .required()],
    later: &[],
};

/// The key `shield` of a listener.
pub(super) const OF_LISTENER: Key = Key::one(
    "shield",
    "NAME",
    "shield \"eu\"",
    "Makes this a listener for the other nodes of the shield. Requests that none of them has signed are answered with 403.",
)
.otherwise("the listener serves clients");

/// The key `shield` of a cache.
pub(super) const OF_CACHE: Key = Key::one(
    "shield",
    "NAME",
    "shield \"eu\"",
    "Fetches a response that is not stored here from the node of the shield that owns its URL, instead of from the origin. Requests get `CDN-Loop` (RFC 8586); a request that has already passed through the group is answered with 508.",
)
.otherwise("each miss goes to the origin");

//! The keys of a shield.

use super::{Block, Key, Prop};

/// The key `shield` at the top of a file.
pub(super) const SHIELD_KEY: Key = Key::one(
    "shield",
    "NAME self=NODE secret=TEXT { ... }",
    "shield \"eu\" self=\"edge1\" secret=\"${env:SHIELD_SECRET}\" { node \"edge1\" \"10.0.0.1:7070\"; node \"edge2\" \"10.0.0.2:7070\"; }",
    "A group of proxies with the same sites and upstreams. On routes with `cache { shield NAME }` one of the nodes owns each address: the other ones ask it in the place of the origin, and store its answer. While the owner is away, they ask the origin. Purges at one node count at all of them; one that was away catches up before it serves. A file has one shield at most.",
)
.with(&SHIELD)
.props(&[
    Prop { name: "self", usage: "NODE", required: true, default: "", about: "The name of this proxy among the nodes." },
    Prop { name: "secret", usage: "TEXT", required: true, default: "", about: "The secret that all nodes share, 16 to 256 characters. It signs the requests between them; it does not encrypt them. Clocks of nodes may differ by five minutes." },
])
.secrets(&["secret"])
.otherwise("no shield");

/// The block of `shield`.
pub static SHIELD: Block = Block {
    keys: &[Key::one(
        "node",
        "NAME HOST:PORT",
        "node \"edge1\" \"10.0.0.1:7070\"",
        "A proxy of the group, and the address at which the others reach its `listen { shield }`. The list is the same in all nodes; at most 32. A reload changes it.",
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
    "The listener is for the other nodes of the shield. Requests that none of them has signed are answered with 403.",
)
.otherwise("it serves clients");

/// The key `shield` of a cache.
pub(super) const OF_CACHE: Key = Key::one(
    "shield",
    "NAME",
    "shield \"eu\"",
    "Responses that are not stored here come from the node of the shield that owns their address, rather than from the origin. Requests get `CDN-Loop` (RFC 8586), and one that has passed the group already is answered with 508.",
)
.otherwise("each miss goes to the origin");

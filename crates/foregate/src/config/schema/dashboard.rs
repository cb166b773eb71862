//! Keys of the dashboard.

use super::{Block, Key};

pub(super) const DASHBOARD_KEY: Key = Key::one("dashboard", "ADDRESS { ... }", "dashboard \"127.0.0.1:9146\"", "Serves a page that shows the proxy at work, at `IP:PORT`, `[IPV6]:PORT` or `unix:PATH` (mode 0600). An address that other machines can reach needs a `password`. It costs nothing while nobody views it.")
    .with(&DASHBOARD)
    .otherwise("off");

/// The block of `dashboard`.
pub static DASHBOARD: Block = Block {
    keys: &[
        Key::one("password", "HASH", "password \"$2y$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy\"", "The hash of the password that viewers must enter, with any user name: bcrypt, Argon2 or SHA-512-crypt, or `plain:` and the password itself, as in `\"plain:${env:DASHBOARD_PASSWORD}\"`.")
            .secrets(&[""])
            .otherwise("no password; only this machine has access, by IP address or as `localhost`"),
        Key::flag("allow-changes", "#false", "allow-changes", "Lets viewers drain servers of upstreams, take them out of service, and put them back into service."),
    ],
    later: &["user", "tls"],
};

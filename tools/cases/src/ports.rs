//! Free ports, each given out once.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the range that the kernel takes for outgoing connections, so that none of those is in the way.
const FIRST: u32 = 12_000;
const COUNT: u32 = 18_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port on 127.0.0.1 that nobody listens on and that no other case of this run gets.
///
/// # Errors
///
/// When none is free.
pub fn free_port() -> Result<u16, String> {
    // Two runs at a time begin at different places.
    let offset = std::process::id().wrapping_mul(997);
    for _ in 0..COUNT {
        let number = FIRST + NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(offset) % COUNT;
        let port = u16::try_from(number).map_err(|_| "a port beyond 65535".to_owned())?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err("no free port".to_owned())
}

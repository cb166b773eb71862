//! The signals that the process follows.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub(super) struct Signals {
    pub(super) hangup: Signal,
    pub(super) reopen: Signal,
    pub(super) upgrade: Signal,
    pub(super) quit: Signal,
    pub(super) terminate: Signal,
    pub(super) interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
            upgrade: signal(SignalKind::user_defined2())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

/// Prevents the signals HUP, USR1 and USR2 from ending the process, from before the configuration
/// is read, which may take long, while log rotation may already send them. [`super::run`] handles
/// the signals that arrived.
///
/// # Errors
///
/// The system's refusal.
pub fn catch_early() -> io::Result<()> {
    // Signal handlers stay when their runtime is gone.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    for kind in [SignalKind::hangup(), SignalKind::user_defined1(), SignalKind::user_defined2()] {
        drop(signal(kind)?);
    }
    Ok(())
}

/// To NGINX this signal is the start of an upgrade, so that people send it; by default it would
/// kill the process.
pub(super) fn say_no_upgrade(draining: bool) {
    if draining {
        tracing::warn!("USR2: this process is draining, so that a new one can be started now");
    } else {
        tracing::warn!(
            "USR2: this process has no supervisor (--single), and nothing has changed; send QUIT to this process and start the \
             new one at once: the sockets are free as soon as this one drains, and requests in flight end here"
        );
    }
}

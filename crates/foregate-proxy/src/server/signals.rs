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

/// Prevents the signals HUP, USR1 and USR2 from ending the process. To be called before the
/// configuration is read: reading may take long, and log rotation may already send signals. [`super::run`]
/// handles the signals that arrived in the meantime.
///
/// # Errors
///
/// The system's refusal.
pub fn catch_early() -> io::Result<()> {
    // The signal handlers stay installed after this runtime has ended.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    for kind in [SignalKind::hangup(), SignalKind::user_defined1(), SignalKind::user_defined2()] {
        drop(signal(kind)?);
    }
    Ok(())
}

/// Logs that USR2 starts no upgrade. It does for NGINX, so operators send it, and by default it would
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

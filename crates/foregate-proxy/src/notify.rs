//! Reports the state of the process to the service manager (sd_notify(3)), if there is one.

use std::time::Duration;

use parking_lot::Mutex;

/// Sends a message on its way.
type Send = Box<dyn Fn(String) + std::marker::Send + Sync>;

/// The channel for messages, if this process is not the main process of the service: the service manager only accepts
/// messages from the main process.
static THROUGH: Mutex<Option<Send>> = Mutex::new(None);

/// Makes messages go to `send` from now on, which passes them on to the service manager.
pub fn through(send: impl Fn(String) + std::marker::Send + Sync + 'static) {
    *THROUGH.lock() = Some(Box::new(send));
}

/// Reports that the process serves requests.
pub fn ready() {
    notify("READY=1\n".to_owned());
}

/// Reports that the process reads its configuration again.
pub fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1000);
    notify(format!("RELOADING=1\nMONOTONIC_USEC={micros}\n"));
}

/// Reports that the process ends within `limit`. The service manager does not kill it earlier, even if its usual limit
/// is shorter.
pub fn stopping(limit: Duration) {
    notify(format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={}\n", limit.as_micros()));
}

fn notify(state: String) {
    if let Some(send) = &*THROUGH.lock() {
        send(state);
    } else if let Err(error) = foregate_supervisor::notify(&state) {
        tracing::debug!(%error, "the service manager cannot be told");
    }
}

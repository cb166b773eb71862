//! The change to an ordinary user: the process keeps the right to bind ports below 1024, and no other.

use std::io;

use foregate_proxy::settings::ProcessUser;
use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set, set_capabilities,
    set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// Changes the process to this user permanently. Listeners, keys and logs are opened after the change, so that a
/// reload, which opens them again, does not need more rights.
///
/// # Errors
///
/// The process is not allowed to change its user, or it already has other threads, which would keep the old rights.
pub(super) fn change_to(user: &ProcessUser) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    if geteuid() == uid && getegid() == gid {
        return Ok(());
    }
    let before = capabilities(None)?;
    if !before.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        let message = format!(
            "only root can change to the user `{}` (`user` in the configuration): start as root, or as this user, or remove `user`",
            user.name
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    // The calls below change only the calling thread. Threads that it starts later inherit its rights.
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the user has to be changed before there are threads"));
    }
    let ports = before.permitted & CapabilitySet::NET_BIND_SERVICE;
    set_keep_capabilities(true)?;
    let groups: Vec<Gid> = user.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    set_capabilities(None, CapabilitySets { effective: ports, permitted: ports, inheritable: ports })?;
    set_keep_capabilities(false)?;
    if !ports.is_empty() {
        // If the supervisor is killed, this process starts a new one, which needs the capability to bind new listeners.
        // If the system forbids passing the capability on, only this ability of a new supervisor is lost.
        if let Err(error) = configure_capability_in_ambient_set(ports, true) {
            tracing::warn!(%error, "programs that this process starts cannot bind ports below 1024");
        }
    }
    let now = capabilities(None)?;
    if geteuid() != uid || now.permitted != ports {
        return Err(io::Error::other("the rights of root could not be given up"));
    }
    tracing::info!(user = &*user.name, uid = user.uid, gid = user.gid, "runs as an ordinary user");
    Ok(())
}

/// Runs `judge` in a thread with the rights of this user, to find files that the user cannot read or write. `None` if
/// this process may not become the user, or is the user already.
pub(super) fn with_rights_of<T: Send>(user: &ProcessUser, judge: impl FnOnce() -> T + Send) -> Option<T> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    if !geteuid().is_root() || uid.is_root() {
        return None;
    }
    let groups: Vec<Gid> = user.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let judged = move || {
        // These calls change only the calling thread, which loses its capabilities with them.
        set_thread_groups(&groups).ok()?;
        set_thread_res_gid(gid, gid, gid).ok()?;
        set_thread_res_uid(uid, uid, uid).ok()?;
        Some(judge())
    };
    std::thread::scope(|scope| scope.spawn(judged).join().ok().flatten())
}

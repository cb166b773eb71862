//! The coordination socket. It accepts commands from the user that runs the supervisor; each command is a
//! line of JSON.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_local;
use tokio::time::timeout;

use crate::rendezvous;
use crate::supervisor::Supervisor;
use crate::trial::Plan;

/// The longest command, bytes.
const LONGEST_COMMAND: u64 = 8 * 1024;
/// The time limit for a client to send its command.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most commands that are served at the same time.
const CLIENTS: usize = 16;

/// The socket and its file. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: Rc<UnixListener>,
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl Socket {
    /// Creates the socket of this configuration. If that fails, the supervisor serves no commands, but still
    /// handles signals.
    pub(crate) fn bind(configuration: Option<&Path>) -> Option<Self> {
        let mut last = None;
        for path in rendezvous::candidates(configuration?) {
            match bind(&path) {
                Ok(listener) => {
                    let identity = identity(&path);
                    return Some(Self { listener: Rc::new(listener), path, identity });
                }
                Err(error) => {
                    let in_use = error.kind() == io::ErrorKind::AddrInUse;
                    last = Some((path, error));
                    if in_use {
                        break;
                    }
                }
            }
        }
        if let Some((path, error)) = last {
            tracing::warn!(path = %path.display(), %error, "no coordination socket: `foregate upgrade` and `status` do not reach this process");
        }
        None
    }

    /// Takes over the socket of the previous program.
    ///
    /// # Errors
    ///
    /// The descriptor is not such a socket.
    pub(crate) fn adopt(path: PathBuf, socket: OwnedFd) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixListener::from(socket);
        socket.set_nonblocking(true)?;
        let identity = identity(&path);
        Ok(Self { listener: Rc::new(UnixListener::from_std(socket)?), path, identity })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn listener(&self) -> Rc<UnixListener> {
        Rc::clone(&self.listener)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // The file may be gone already.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent().filter(|folder| folder.starts_with("/tmp")) {
        // Every user may write to /tmp, so the socket gets a folder of its own for this user alone.
        match fs::DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let found = fs::symlink_metadata(folder)?;
        if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0
        {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the folder is not ours alone"));
        }
    }
    if path.exists() {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another supervisor has this configuration",
            ));
        }
        fs::remove_file(path)?;
    }
    // A client that connects before the mode is set gains nothing: the credentials of each peer are checked as
    // well.
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Takes commands until the process ends.
pub(crate) async fn serve(listener: Rc<UnixListener>, supervisor: Rc<Supervisor>) {
    let clients = Arc::new(Semaphore::new(CLIENTS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&clients).try_acquire_owned() else { continue };
        let supervisor = Rc::clone(&supervisor);
        let busy = supervisor.busy();
        spawn_local(async move {
            let _places = (place, busy);
            if let Err(error) = answer(stream, &supervisor).await {
                tracing::debug!(%error, "a command");
            }
        });
    }
}

async fn answer(stream: UnixStream, supervisor: &Rc<Supervisor>) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    let own = rustix::process::geteuid().as_raw();
    let mut stream = BufReader::new(stream);
    if peer != own && peer != 0 {
        return write(&mut stream, &refusal("only the user that runs the supervisor may ask")).await;
    }
    let mut line = Vec::new();
    timeout(PATIENCE, (&mut stream).take(LONGEST_COMMAND).read_until(b'\n', &mut line)).await??;
    let Ok(command) = serde_json::from_slice::<Value>(&line) else {
        return write(&mut stream, &refusal("expected one line such as {\"verb\":\"status\"}")).await;
    };
    if has_gone(stream.get_ref()) {
        tracing::info!(%command, "a command is dropped: its client has gone");
        return Ok(());
    }
    let answer = match command.get("verb").and_then(Value::as_str) {
        Some("status") => supervisor.status().await,
        Some("upgrade-status") => {
            let mut status = supervisor.state.borrow().upgrade_status();
            status["ok"] = true.into();
            status
        }
        Some("abort") => abort(supervisor),
        Some("upgrade") => match Plan::of(&command) {
            Ok(plan) => upgrade(&mut stream, supervisor, plan).await?,
            Err(error) => refusal(&error),
        },
        Some("rollback") => roll_back(&mut stream, supervisor).await?,
        _ => refusal("known verbs are: status, upgrade, upgrade-status, abort, rollback"),
    };
    write(&mut stream, &answer).await
}

/// Returns true if the client has closed its connection. A client that only sends no more still waits for its answer.
fn has_gone(stream: &UnixStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::empty())];
    let is_polled = poll(&mut polled, Some(&Timespec::default())).is_ok();
    is_polled && polled.iter().any(|polled| polled.revents().contains(PollFlags::HUP))
}

fn abort(supervisor: &Rc<Supervisor>) -> Value {
    if supervisor.state.borrow().trial.is_none() {
        return refusal("no upgrade is under way");
    }
    supervisor.abort.send_replace(Some("aborted by command".to_owned()));
    json!({ "ok": true })
}

/// Runs an upgrade and reports its progress. If the client leaves, the upgrade continues.
async fn upgrade(
    stream: &mut BufReader<UnixStream>,
    supervisor: &Rc<Supervisor>,
    plan: Plan,
) -> io::Result<Value> {
    let (progress, mut told) = mpsc::unbounded_channel();
    let task = spawn_local(Rc::clone(supervisor).upgrade(plan, progress));
    while let Some(line) = told.recv().await {
        write(stream, &line).await?;
    }
    Ok(match task.await {
        Ok(Ok(done)) => done,
        Ok(Err(reason)) => refusal(&reason.0),
        Err(_) => refusal("the supervisor is stopping"),
    })
}

async fn roll_back(stream: &mut BufReader<UnixStream>, supervisor: &Rc<Supervisor>) -> io::Result<Value> {
    if supervisor.state.borrow().trial.is_some() {
        return Ok(abort(supervisor));
    }
    let back = Plan::back(&supervisor.state.borrow());
    match back {
        Some(plan) => upgrade(stream, supervisor, plan).await,
        None => Ok(refusal("there was no other version before this one")),
    }
}

/// Does the work of `foregate upgrade` without arguments.
pub(crate) async fn upgrade_by_signal(supervisor: Rc<Supervisor>) {
    let (progress, mut told) = mpsc::unbounded_channel();
    let task = spawn_local(Rc::clone(&supervisor).upgrade(Plan::default(), progress));
    while told.recv().await.is_some() {}
    // The upgrade itself has logged its outcome.
    drop(task.await);
}

async fn write(stream: &mut BufReader<UnixStream>, line: &Value) -> io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes()).await
}

fn refusal(error: &str) -> Value {
    json!({ "ok": false, "error": error })
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    #[tokio::test]
    async fn a_client_that_sends_no_more_has_not_gone() {
        let (client, served) = std::os::unix::net::UnixStream::pair().unwrap();
        served.set_nonblocking(true).unwrap();
        let served = UnixStream::from_std(served).unwrap();
        assert!(!has_gone(&served));
        client.shutdown(Shutdown::Write).unwrap();
        assert!(!has_gone(&served));
        drop(client);
        assert!(has_gone(&served));
    }
}

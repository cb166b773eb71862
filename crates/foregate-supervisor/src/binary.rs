//! A program file: holding the exact file for later starts, and checks before it is started.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::channel::{blob, read_blob, readiness};
use crate::gate::Reason;

/// The time limit for `check` on the configuration. A configuration with 100,000 sites needs about a second.
const CHECK_PATIENCE: Duration = Duration::from_secs(60);
/// The most bytes of a program's error output that are shown after it has refused the configuration.
const REFUSAL_SHOWN: usize = 2000;
/// The bytes of an ELF file that hold the machine type.
const ELF_MACHINE: std::ops::Range<usize> = 18..20;

/// Opens a file that should be a program. A pipe is opened without a wait for its writer, which may never come.
///
/// # Errors
///
/// As [`File::open`].
fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

/// A program file that the supervisor starts processes from.
#[derive(Debug)]
pub(crate) struct Binary {
    /// Its path.
    pub(crate) path: PathBuf,
    /// The file that had this path when the program was named; kept open, because a package may replace the file
    /// at the path. `None` for scripts, which are started by their path.
    file: Option<File>,
}

impl Binary {
    /// The program at `path`.
    pub(crate) fn at(path: &Path) -> Self {
        // Scripts are started by their path: the interpreter opens the script itself and does not have our descriptor.
        let file = open(path).ok().filter(|file| start_of(file).starts_with(b"\x7fELF"));
        Self { path: path.to_owned(), file }
    }

    /// The program that runs now. Its file may have been replaced.
    ///
    /// # Errors
    ///
    /// The system does not report the path.
    pub(crate) fn running() -> io::Result<Self> {
        let path = std::env::current_exe()?;
        let shown = path.to_string_lossy();
        let path = shown.strip_suffix(" (deleted)").map_or_else(|| path.clone(), PathBuf::from);
        Ok(Self { path, file: File::open("/proc/self/exe").ok() })
    }

    /// A program that an earlier supervisor has used, with the file that it held open.
    pub(crate) fn kept(path: PathBuf, file: Option<OwnedFd>) -> Self {
        Self { path, file: file.map(File::from) }
    }

    /// The open file, if processes are started from exactly this file rather than from the path.
    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Returns true if this process must not be replaced by the program, because the process already runs this program
    /// or because the program is a script.
    pub(crate) fn runs_here(&self) -> bool {
        let own = File::open("/proc/self/exe").ok();
        self.file.is_none() || self.identity() == own.as_ref().and_then(identity_of)
    }

    /// Returns true if both are the same file under the same path.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.identity().is_some() && self.identity() == other.identity() && self.path == other.path
    }

    fn identity(&self) -> Option<(u64, u64)> {
        self.file.as_ref().and_then(identity_of)
    }

    /// The path to pass to the system when a process is started: that of the open file, if there is one.
    pub(crate) fn program(&self) -> OsString {
        match &self.file {
            Some(file) => format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
            None => self.path.clone().into(),
        }
    }

    /// Checks that the program can be started on this machine.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be started.
    pub(crate) fn examine(&self) -> Result<(), Reason> {
        let path = self.path.display();
        let metadata =
            fs::metadata(&self.path).map_err(|error| Reason(format!("cannot start {path}: {error}")))?;
        if !metadata.is_file() {
            return Err(Reason(format!("cannot start {path}: it is not a file")));
        }
        if metadata.permissions().mode() & 0o111 == 0 {
            return Err(Reason(format!("cannot start {path}: nobody may execute it (chmod +x)")));
        }
        let file = open(&self.path).map_err(|error| Reason(format!("cannot read {path}: {error}")))?;
        let start = start_of(&file);
        if start.starts_with(b"#!") {
            return Ok(());
        }
        if !start.starts_with(b"\x7fELF") {
            return Err(Reason(format!(
                "cannot start {path}: it is no program for Linux, but a text or something else"
            )));
        }
        let own = File::open("/proc/self/exe").map(|file| start_of(&file)).unwrap_or_default();
        let machine = |start: &[u8]| start.get(ELF_MACHINE).map(<[u8]>::to_vec);
        if !own.is_empty() && (machine(&start), start.get(4)) != (machine(&own), own.get(4)) {
            let name = machine(&start).map_or("another machine", |machine| machine_name(&machine));
            return Err(Reason(format!("cannot start {path}: it is for another architecture ({name})")));
        }
        Ok(())
    }

    /// Runs `check` on the configuration.
    ///
    /// # Errors
    ///
    /// The program refuses the configuration, or does not run.
    pub(crate) async fn check(&self, configuration: &Path) -> Result<(), Reason> {
        let path = self.path.display();
        let failed = |error: io::Error| Reason(format!("cannot start {path}: {error}"));
        let output = blob(&[]).map_err(failed)?;
        let mut command = Command::new(self.program());
        command.arg0(&self.path).args([OsStr::new("check"), OsStr::new("-c"), configuration.as_os_str()]);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::from(output.try_clone().map_err(failed)?))
            .spawn()
            .map_err(failed)?;
        let process = Pid::from_child(&child);
        let process = pidfd_open(process, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
        let process = readiness(process).map_err(failed)?;
        if tokio::time::timeout(CHECK_PATIENCE, process.readable()).await.is_err() {
            // The process may have ended in the meantime, so an error is ignored.
            let _ = pidfd_send_signal(process.get_ref(), Signal::KILL);
            let _ = child.wait();
            return Err(Reason(format!("hangs: `{path} check` did not end within {CHECK_PATIENCE:?}")));
        }
        let status = child.wait().map_err(failed)?;
        if status.success() {
            return Ok(());
        }
        let mut said = read_blob(&output).unwrap_or_default();
        said.truncate(REFUSAL_SHOWN);
        let said = String::from_utf8_lossy(&said);
        if said.trim().is_empty() {
            return Err(Reason(format!(
                "{path} seems to be another program: `{path} check` ended with {status} without a word (`{path} version` prints `foregate VERSION`)"
            )));
        }
        let said = said.trim();
        Err(Reason(format!("refuses the configuration (`check` ended with {status}): {said}")))
    }
}

fn identity_of(file: &File) -> Option<(u64, u64)> {
    file.metadata().ok().map(|file| (file.dev(), file.ino()))
}

fn start_of(file: &File) -> Vec<u8> {
    let mut start = Vec::new();
    let _ = file.take(32).read_to_end(&mut start);
    start
}

/// The name of the machine type of an ELF file, in either byte order (elf.h).
fn machine_name(machine: &[u8]) -> &'static str {
    let number = machine.iter().copied().find(|byte| *byte != 0);
    match number {
        Some(62) => "x86-64",
        Some(183) => "AArch64",
        Some(243) => "RISC-V",
        Some(40) => "ARM",
        Some(3) => "x86",
        Some(21) => "PowerPC 64",
        Some(22) => "S/390",
        _ => "an unknown machine",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(folder: &Path, bytes: &[u8], mode: u32) -> Binary {
        let path = folder.join("program");
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Binary::at(&path)
    }

    #[test]
    fn what_cannot_be_started_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |bytes: &[u8], mode| program(folder.path(), bytes, mode).examine().unwrap_err().0;
        assert!(refused(b"hello, world", 0o755).contains("a text"), "a text");
        assert!(refused(b"#!/bin/sh\n", 0o644).contains("chmod +x"));
        let mut other = start_of(&File::open("/proc/self/exe").unwrap());
        let machine: u8 = if other[18] == 183 { 62 } else { 183 };
        other[18] = machine;
        let name = machine_name(&[machine, 0]);
        assert!(refused(&other, 0o755).ends_with(&format!("another architecture ({name})")));
        assert!(Binary::at(folder.path()).examine().unwrap_err().0.contains("not a file"));
        assert!(Binary::at(&folder.path().join("none")).examine().unwrap_err().0.contains("No such file"));
        program(folder.path(), b"#!/bin/sh\n", 0o755).examine().unwrap();
        let running = Binary::running().unwrap();
        running.examine().unwrap();
        assert!(running.runs_here());
        let copy = program(folder.path(), &fs::read("/proc/self/exe").unwrap(), 0o755);
        assert!(!copy.runs_here());
    }

    #[tokio::test]
    async fn a_refusal_of_the_configuration_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let script = b"#!/bin/sh\necho \"$1 $2 $3: unknown key\" >&2\nexit 1\n";
        let reason = program(folder.path(), script, 0o755).check(Path::new("a.kdl")).await.unwrap_err().0;
        assert!(reason.contains("refuses the configuration"), "{reason}");
        assert!(reason.ends_with("check -c a.kdl: unknown key"), "{reason}");
        program(folder.path(), b"#!/bin/sh\nexit 0\n", 0o755).check(Path::new("a.kdl")).await.unwrap();
    }
}

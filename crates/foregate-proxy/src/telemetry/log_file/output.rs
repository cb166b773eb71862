//! The destination of a log: a file, or a syslog server.

use std::fs::File;
use std::io;
use std::mem;
use std::path::PathBuf;

use super::rotation::Rotating;
use super::syslog::Syslog;
use super::writer::Torn;
use crate::files;
use crate::settings::LogTarget;
use crate::time::clock::Clock;

/// The destination of a log.
pub(super) enum LogOutput {
    File { path: PathBuf, file: File, torn: Torn },
    Rotating(Rotating),
    Syslog(Syslog),
}

impl LogOutput {
    /// Opens a file. The connection to a server is made for the first line.
    pub(super) fn open(target: &LogTarget, clock: Clock) -> io::Result<Self> {
        Ok(match target {
            LogTarget::File { path, rotation: None } => {
                Self::File { path: path.clone(), file: files::open_to_append(path)?, torn: Torn::default() }
            }
            LogTarget::File { path, rotation: Some(rotation) } => {
                Self::Rotating(Rotating::open(path, *rotation, clock)?)
            }
            LogTarget::Syslog { server, facility } => {
                Self::Syslog(Syslog::new(server.clone(), *facility, clock))
            }
        })
    }

    /// Writes lines, and blocks as long as this takes. On an error, returns the number of lost
    /// lines and the reason.
    pub(super) fn send(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        match self {
            Self::File { file, torn, .. } => torn.write(file, lines),
            Self::Rotating(rotating) => rotating.send(lines),
            Self::Syslog(syslog) => syslog.send(lines),
        }
    }

    /// Opens the path of a file again, or connects to a server again. Returns the number of lost lines:
    /// 1 if a line was partly written to the old file.
    pub(super) fn reopen(&mut self) -> io::Result<u64> {
        match self {
            Self::File { path, file, torn } => {
                *file = files::open_to_append(path)?;
                // The start of a partly written line is in the old file, so the line is lost.
                Ok(u64::from(mem::take(torn).is_some()))
            }
            Self::Rotating(rotating) => rotating.reopen(),
            Self::Syslog(syslog) => {
                syslog.disconnect();
                Ok(0)
            }
        }
    }
}

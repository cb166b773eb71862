//! Files whose contents become settings, and which are watched for changes.

use std::collections::{BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use foregate_module::settings::value::show_size;
use foregate_rules::nearest;

use crate::value::Wrong;

/// The files read so far; each file is read once.
#[derive(Default)]
pub struct Files {
    contents: HashMap<PathBuf, Arc<[u8]>>,
    /// The files to watch, in the order of their paths, so that equal configurations have equal lists.
    watched: BTreeSet<PathBuf>,
}

impl Files {
    /// The content of a file, of at most `limit` bytes.
    pub fn read(&mut self, path: &Path, limit: usize) -> Result<Arc<[u8]>, Wrong> {
        let too_long =
            || Wrong::new(format!("{} is longer than {}", path.display(), show_size(limit as u64)));
        if let Some(content) = self.contents.get(path) {
            return if content.len() > limit { Err(too_long()) } else { Ok(Arc::clone(content)) };
        }
        let read = read(path, limit);
        let content = read.map_err(|error| cannot_read(path, &error))?;
        if content.len() > limit {
            return Err(too_long());
        }
        let content: Arc<[u8]> = content.into();
        self.watched.insert(path.to_owned());
        self.contents.insert(path.to_owned(), Arc::clone(&content));
        Ok(content)
    }

    /// All files that were read.
    pub fn into_watched(self) -> Vec<PathBuf> {
        self.watched.into_iter().collect()
    }
}

/// The error, with advice, for a file that a value names and that cannot be read.
pub(crate) fn cannot_read(path: &Path, error: &io::Error) -> Wrong {
    let wrong = Wrong::new(format!("cannot read {}: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            match near_file(folder.unwrap_or(Path::new(".")), path) {
                Some(near) => wrong.help(format!("did you mean `{near}`?")),
                None if path.is_relative() => {
                    wrong.help("a relative path starts at the folder of the configuration file")
                }
                None => wrong,
            }
        }
        io::ErrorKind::PermissionDenied => wrong.help("let the user who runs this read it"),
        _ => wrong,
    }
}

/// The file in `folder` with the name most similar to that of `path`.
fn near_file(folder: &Path, path: &Path) -> Option<String> {
    /// The most files of a folder that are looked at, since a folder may have any number.
    const MOST: usize = 1_000;
    let wanted = path.file_name()?.to_str()?;
    let names = std::fs::read_dir(folder).ok()?.take(MOST).flatten();
    let names: Vec<_> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    nearest(wanted, names.iter().map(|name| &**name)).map(str::to_owned)
}

/// Reads one byte more than the limit, so that the caller can detect a longer file.
fn read(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The time within which a process must open a named pipe for writing, if a configuration is read from the pipe.
const PIPE_WAIT: Duration = Duration::from_secs(3);

/// Opens a configuration file, which may also be a pipe, as a shell makes it for `<(...)`.
///
/// # Errors
///
/// It cannot be opened, or is a named pipe that no process opens for writing within three seconds. The system would wait for
/// this process without a limit.
pub fn open_first(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.file_type().is_fifo() {
        return File::open(path);
    }
    let (tell, told) = mpsc::channel();
    let name = path.to_owned();
    thread::Builder::new().name("pipe".to_owned()).spawn(move || tell.send(File::open(name)))?;
    if let Ok(opened) = told.recv_timeout(PIPE_WAIT) {
        return opened;
    }
    // With both directions, this never waits; it counts as a writer, so that the thread ends. It is waited for, because it would
    // take the bytes of the next writer.
    if let Ok(_both) = OpenOptions::new().read(true).write(true).open(path) {
        drop(told.recv());
    }
    Err(io::Error::other(
        "it is a named pipe that no process writes to; start the process that writes before this command",
    ))
}

/// Opens a file of the configuration.
///
/// # Errors
///
/// It cannot be opened, or is no regular file: reading a pipe or a device may block for ever, and a reload with
/// it.
pub fn open(path: &Path) -> io::Result<File> {
    // Check before opening, since opening a pipe waits for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    File::open(path)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_pipe_needs_a_writer() {
        let path = std::env::temp_dir().join(format!("foregate-pipe-{}", std::process::id()));
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = open_first(&path).unwrap_err();
        assert!(error.to_string().contains("no process writes to"), "{error}");
        let writer = {
            let path = path.clone();
            thread::spawn(move || {
                OpenOptions::new().write(true).open(path).unwrap().write_all(b"listen").unwrap();
            })
        };
        let mut text = String::new();
        open_first(&path).unwrap().read_to_string(&mut text).unwrap();
        writer.join().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, "listen");
    }
}

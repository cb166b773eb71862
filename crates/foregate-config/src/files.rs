//! Files whose contents become settings, and which are watched for changes.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

//! Checks that the proxy's output files can be written or created, without changing anything.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use foregate_acme::storage::{Storage, StorageFault};
use foregate_config::{Decoder, Place, Problem};
use rustix::fs::{Access, access};

const HELP: &str = "create the folder, and let the user of the proxy write there";

/// Tells where a log file cannot be opened for writing.
pub(super) fn log(decoder: &mut Decoder<'_>, path: &Path, place: Place) {
    let found = match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => {
            let message = format!("cannot write {}: it is a folder", path.display());
            return decoder.push(Problem::new(Some(place), message).help("write the name of a file in it"));
        }
        Ok(_) => allowed(path, Access::WRITE_OK),
        Err(_) => folder(path),
    };
    tell(decoder, "write", path, place, found);
}

/// The folders in which the service manager makes a service's folder when it starts.
const RUNNING: [&str; 2] = ["/run", "/var/run"];

/// Checks that a socket can be created in its folder.
pub(super) fn socket(decoder: &mut Decoder<'_>, path: &Path, place: Place) {
    if no_socket(decoder, path, place) {
        return;
    }
    let found = folder(path);
    match path.parent() {
        Some(missing)
            if !missing.exists()
                && RUNNING.iter().any(|folder| missing.parent() == Some(Path::new(folder))) =>
        {
            let message =
                format!("{} is not there: without it, the socket cannot be made", missing.display());
            let help = "systemd makes it when the service starts (`RuntimeDirectory`), and removes it when the service stops";
            decoder.warn(Problem::new(Some(place), message).help(help));
        }
        _ => tell(decoder, "make", path, place, found),
    }
}

/// Reports a file at a socket's path that is no socket. Returns true if there is one.
pub(super) fn no_socket(decoder: &mut Decoder<'_>, path: &Path, place: Place) -> bool {
    let other = std::fs::symlink_metadata(path).is_ok_and(|meta| !meta.file_type().is_socket());
    if other {
        let message = format!("cannot make {}: it is there, and is not a socket", path.display());
        decoder.push(Problem::new(Some(place), message).help("take another path, or move it away"));
    }
    other
}

/// Warns if a folder does not exist, or if no file can be made in it. It is no error, because the proxy works without
/// these files.
pub(super) fn in_folder(decoder: &mut Decoder<'_>, path: &Path, place: Place) {
    // Any name will do.
    if let Err((at, error)) = folder(&path.join("file")) {
        let message = format!("no file can be made in {}: {error}", at.display());
        decoder.warn(Problem::new(Some(place), message).help(HELP));
    }
}

/// Reports a folder in which certificates cannot be stored: the proxy would not start. Only warns if this user may not
/// write there, because the proxy may run as another one.
pub(super) fn storage(decoder: &mut Decoder<'_>, path: &Path, place: Option<Place>) {
    let Some(fault) = Storage::new(path).fault() else { return };
    let message = format!("certificates cannot be stored in {}: {fault}", path.display());
    let problem = Problem::new(place, message).help(fault.help());
    match fault {
        StorageFault::Denied { .. } => decoder.warn(problem),
        StorageFault::NotFolder(_) | StorageFault::Dangling(_) => decoder.push(problem),
    }
}

/// Reports a folder of the cache that does not exist or cannot be written.
pub(super) fn folder_for_cache(decoder: &mut Decoder<'_>, path: &Path, place: Place) {
    let found = match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => Err(io::Error::from(io::ErrorKind::NotADirectory)),
        Ok(_) => access(path, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from),
        Err(error) => Err(error),
    };
    if let Err(error) = found {
        let message = format!("the cache cannot use {}: {error}", path.display());
        decoder.push(Problem::new(Some(place), message).help(HELP));
    }
}

fn tell(
    decoder: &mut Decoder<'_>,
    what: &str,
    path: &Path,
    place: Place,
    found: Result<(), (PathBuf, io::Error)>,
) {
    if let Err((at, error)) = found {
        let at = match at.to_str() {
            Some(".") => "the present folder: ".to_owned(),
            _ if at == path => String::new(),
            _ => format!("{}: ", at.display()),
        };
        let message = format!("cannot {what} {}: {at}{error}", path.display());
        decoder.push(Problem::new(Some(place), message).help(HELP));
    }
}

/// Checks that a file can be created in the folder of `path`.
fn folder(path: &Path) -> Result<(), (PathBuf, io::Error)> {
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return Ok(()),
    };
    match std::fs::metadata(folder) {
        Ok(meta) if !meta.is_dir() => Err((folder.to_owned(), io::ErrorKind::NotADirectory.into())),
        Ok(_) => allowed(folder, Access::WRITE_OK | Access::EXEC_OK),
        Err(error) => Err((folder.to_owned(), error)),
    }
}

fn allowed(path: &Path, what: Access) -> Result<(), (PathBuf, io::Error)> {
    access(path, what).map_err(|error| (path.to_owned(), error.into()))
}

//! Whether what the proxy will write, or make, can be: told with its place, and without a change of anything.

use std::io;
use std::path::{Path, PathBuf};

use foregate_config::{Decoder, Place, Problem};
use rustix::fs::{Access, access};

const HELP: &str = "make the folder, and let the user who runs the proxy write there";

/// Tells where a log file cannot be opened for writing.
pub(super) fn log(decoder: &mut Decoder<'_>, path: &Path, place: Place) {
    let found = match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Err((path.to_owned(), io::ErrorKind::IsADirectory.into())),
        Ok(_) => allowed(path, Access::WRITE_OK),
        Err(_) => folder(path),
    };
    tell(decoder, "write", path, place, found);
}

/// The same for a socket, which is made in its folder.
pub(super) fn socket(decoder: &mut Decoder<'_>, path: &Path, place: Place) {
    tell(decoder, "make", path, place, folder(path));
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

/// Whether a file can be made in the folder of `path`.
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

//! Logs that share a file: they rotate it alike.

use std::path::{Path, PathBuf};

use foregate_config::{Decoder, Place, Problem};
use foregate_proxy::settings::{AccessLogSettings, LogTarget, Rotation};

/// An access log, and the place of its `rotate`, or of the log itself if it has none.
pub(super) type PlacedLog = (AccessLogSettings, Place);

/// One file, and how it is rotated.
struct SharedFile {
    /// The path without symbolic links, by which logs are known to share the file.
    real: PathBuf,
    /// The path of the first log that rotates the file, or of the first log.
    path: PathBuf,
    rotation: Option<(Rotation, Place)>,
}

/// Gives the logs of one file the same path and the same rotation, so that no log goes on writing to a file
/// that another log has renamed. Refuses rotations that contradict each other. Returns the targets of `logs`,
/// the files of modules.
pub(super) fn share(
    decoder: &mut Decoder<'_>,
    access_logs: &mut [PlacedLog],
    logs: Vec<PathBuf>,
) -> Vec<LogTarget> {
    let mut logs: Vec<_> = logs.iter().map(|path| LogTarget::file(path)).collect();
    let mut files: Vec<SharedFile> = Vec::new();
    for (log, place) in access_logs.iter() {
        see(decoder, &mut files, &log.target, *place);
    }
    // Without a rotation, writers that share a file do not disturb each other.
    files.retain(|file| file.rotation.is_some());
    let targets = access_logs.iter_mut().map(|(log, _)| &mut log.target).chain(&mut logs);
    for target in targets.filter(|_| !files.is_empty()) {
        let LogTarget::File { path, rotation } = target else { continue };
        let real = real(path);
        if let Some(file) = files.iter().find(|file| file.real == real) {
            path.clone_from(&file.path);
            *rotation = file.rotation.map(|(rotation, _)| rotation);
        }
    }
    logs
}

fn see(decoder: &mut Decoder<'_>, files: &mut Vec<SharedFile>, target: &LogTarget, place: Place) {
    let LogTarget::File { path, rotation } = target else { return };
    let real = real(path);
    let own = rotation.map(|rotation| (rotation, place));
    let Some(file) = files.iter_mut().find(|file| file.real == real) else {
        files.push(SharedFile { real, path: path.clone(), rotation: own });
        return;
    };
    match (file.rotation, own) {
        (Some((first, first_place)), Some((second, _))) if first != second => {
            let message = format!("another log rotates {} in another way", path.display());
            let problem = Problem::new(Some(place), message).also(first_place, "the other one");
            decoder.push(problem.help("write one `rotate` for the file, or give each log its own file"));
        }
        (None, Some(_)) => (file.path, file.rotation) = (path.clone(), own),
        _ => {}
    }
}

/// The path without symbolic links. The file, or its folder, may be missing.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| {
        let folder = path.parent().map(|folder| {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
        });
        match (folder, path.file_name()) {
            (Some(folder), Some(name)) => folder.join(name),
            _ => path.to_owned(),
        }
    })
}

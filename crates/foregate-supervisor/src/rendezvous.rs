//! The path of the coordination socket of a configuration.
//!
//! The supervisor and the commands both know the path of the configuration file, and the supervisor does not parse that
//! file. The name of the socket is therefore a hash of the configuration's path. Several folders are possible; the
//! socket is in the first one to which the supervisor may write.

use std::env;
use std::ffi::OsStr;
use std::hash::Hasher;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher13;

/// The folder of the packaged service, where commands look for a service's socket.
const SERVICE_FOLDER: &str = "/run/foregate";

/// The possible paths of the socket of this configuration, the most likely first. The supervisor uses the
/// first path with a folder that it may write to.
pub fn candidates(configuration: &Path) -> Vec<PathBuf> {
    let absolute = configuration.canonicalize().or_else(|_| std::path::absolute(configuration));
    let absolute = absolute.unwrap_or_else(|_| configuration.to_owned());
    let mut hasher = SipHasher13::new();
    hasher.write(absolute.as_os_str().as_bytes());
    let name = format!("foregate-{:016x}.sock", hasher.finish());
    let folder = |name: &str| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    // systemd may name several folders, separated by colons.
    let first = |path: PathBuf| {
        let bytes = path.as_os_str().as_bytes();
        PathBuf::from(OsStr::from_bytes(bytes.split(|byte| *byte == b':').next().unwrap_or_default()))
    };
    let own = format!("/tmp/foregate-{}", rustix::process::geteuid().as_raw());
    let folders = [
        folder("RUNTIME_DIRECTORY").map(first),
        Some(SERVICE_FOLDER.into()),
        folder("XDG_RUNTIME_DIR"),
        Some("/run".into()),
        Some(own.into()),
    ];
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in folders.into_iter().flatten().map(|folder| folder.join(&name)) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_file_has_the_same_paths_however_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("foregate.kdl");
        std::fs::write(&file, "").unwrap();
        let round_about = folder.path().join(".").join("foregate.kdl");
        assert_eq!(candidates(&file), candidates(&round_about));
        assert_ne!(candidates(&file), candidates(&folder.path().join("other.kdl")));
    }
}

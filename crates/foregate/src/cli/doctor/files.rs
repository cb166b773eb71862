//! The access rights of files, and the free space of their folders.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use foregate_proxy::configuration::Settings;

use super::Finding;

/// The free space below which a folder for logs or temporary files gets a warning, in bytes.
const LITTLE_ROOM: u64 = 256 << 20;

/// Checks the rights of other users on the files, and the free space. The command has already run `check`, which tests
/// this user's rights on logs, certificates and sockets.
pub(super) fn look(path: &Path, settings: &Settings) -> Vec<Finding> {
    let mut findings = rights(path, settings);
    findings.extend(room(path, settings));
    findings
}

fn rights(path: &Path, settings: &Settings) -> Vec<Finding> {
    const SUBJECT: &str = "files";
    let mode = |path: &Path| fs::metadata(path).map(|found| found.permissions().mode() & 0o777);
    let mut keys = BTreeSet::new();
    for listen in &settings.listeners {
        keys.extend(listen.tls.iter().flat_map(|tls| &tls.certificates).map(|files| files.key.clone()));
    }
    let mut findings = Vec::new();
    for key in &keys {
        if mode(key).is_ok_and(|mode| mode & 0o007 != 0) {
            findings.push(Finding::warning(
                SUBJECT,
                format!("{}: every user of this machine can read the private key", key.display()),
                format!("`chmod o= {}`", key.display()),
            ));
        }
    }
    if mode(path).is_ok_and(|mode| mode & 0o002 != 0) {
        findings.push(Finding::wrong(
            SUBJECT,
            format!("{}: every user of this machine can change the configuration", path.display()),
            format!("`chmod o-w {}`", path.display()),
        ));
    }
    if let Some(automatic) = &settings.automatic
        && mode(&automatic.storage).is_ok_and(|mode| mode & 0o077 != 0)
    {
        findings.push(Finding::warning(
            SUBJECT,
            format!("{}: other users can look into the folder of keys", automatic.storage.display()),
            format!("`chmod 700 {}`", automatic.storage.display()),
        ));
    }
    if findings.is_empty() {
        let count = keys.len();
        let keys = if count == 0 { String::new() } else { format!(", and {count} private keys") };
        findings.push(Finding::ok(
            SUBJECT,
            format!("the configuration{keys}: other users cannot write it, or read a private key"),
        ));
    }
    findings
}

/// Checks the free space in the folders to which the proxy writes.
fn room(path: &Path, settings: &Settings) -> Vec<Finding> {
    const SUBJECT: &str = "disk";
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut wanted: Vec<(PathBuf, u64)> = vec![(folder.to_owned(), LITTLE_ROOM)];
    wanted.extend(settings.temporary_folder.iter().map(|folder| (folder.clone(), LITTLE_ROOM)));
    let disks = settings.cache_store.disks.iter();
    wanted.extend(disks.map(|disk| {
        let used = used(&disk.folder);
        (disk.folder.clone(), disk.size.saturating_sub(used))
    }));
    let mut findings = Vec::new();
    for (folder, wanted) in wanted {
        let Ok(found) = rustix::fs::statvfs(&folder) else { continue };
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        let (name, mib) = (folder.display(), free >> 20);
        findings.push(match free < wanted {
            true => Finding::warning(
                SUBJECT,
                format!("{name}: {mib} MiB are free, {} MiB may be needed", wanted >> 20),
                format!("free some (`du -xh {name} | sort -h | tail`), or lower the size of the cache"),
            ),
            false => Finding::ok(SUBJECT, format!("{name}: {mib} MiB are free")),
        });
    }
    findings
}

/// The total size of the files that a folder has already, in bytes.
fn used(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).filter(fs::Metadata::is_file).map(|file| file.len()).sum()
}

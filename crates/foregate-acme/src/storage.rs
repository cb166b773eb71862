//! The storage: certificates, accounts, challenges and locks in one folder, which several processes
//! may share.
//!
//! Files are replaced by renaming, so that a reader sees either the old or the new file. Files are
//! created with mode 0600.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foregate_proxy::settings::automatic::{Automatic, file_name};
use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};

use crate::certificate::Facts;

/// The most bytes of a file in the storage. A longer file is refused.
const FILE_MOST: u64 = 1024 * 1024;

/// The folders in the storage.
const FOLDERS: [&str; 6] = ["certificates", "challenges", "accounts", "locks", "internal", "ocsp"];

/// The storage folder of a configuration.
#[derive(Debug, Clone)]
pub struct Storage {
    folder: PathBuf,
}

/// The data that is stored next to a certificate.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Record {
    /// The directory of the authority that issued the certificate. Empty if no authority did.
    pub(crate) issuer: String,
    /// The time to renew the certificate, seconds since 1970. 0 if no time is chosen.
    pub(crate) renew_at: i64,
    /// The number of failed attempts since the last successful one.
    pub(crate) failures: u32,
    /// The time of the last attempt, seconds since 1970.
    pub(crate) attempted: i64,
    /// The earliest time of the next attempt after a failure, seconds since 1970.
    pub(crate) next_attempt: i64,
    /// The last failure.
    pub(crate) error: Option<String>,
}

/// A lock of the storage. It is released when the value is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "held for its lock")] File);

impl Storage {
    /// The storage in a folder.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Makes the folders.
    ///
    /// # Errors
    ///
    /// A folder cannot be made.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        for folder in FOLDERS {
            DirBuilder::new().recursive(true).mode(0o700).create(self.folder.join(folder))?;
        }
        Ok(())
    }

    /// The message about folders that cannot be made. The check of a configuration words their faults alike; another
    /// error has no better wording than the system's.
    pub(crate) fn refusal(&self, error: &io::Error) -> String {
        let (why, help) = match self.fault() {
            Some(fault) => (fault.to_string(), fault.help()),
            None => (error.to_string(), "see to it, or name another folder: `acme { storage \"FOLDER\" }`"),
        };
        format!("certificates cannot be stored in {}: {why}\n  help: {help}", self.folder.display())
    }

    /// Finds the reason why the folders cannot be made, or not be written, without changing anything.
    pub fn fault(&self) -> Option<StorageFault> {
        FOLDERS.iter().find_map(|folder| fault_of(&self.folder.join(folder)))
    }

    /// Removes answers to challenges that an earlier process did not remove before its end.
    pub(crate) fn clean(challenges: &Path) {
        const OLD: Duration = Duration::from_secs(24 * 3600);
        for entry in fs::read_dir(challenges).into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|meta| meta.modified());
            if modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > OLD)) {
                // A file that cannot be removed does no harm.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Reads the stored certificate of a name. `None` if there is no certificate, or if it cannot be read.
    pub(crate) fn certificate(&self, automatic: &Automatic, name: &str) -> Option<Facts> {
        Facts::read(&read(&automatic.certificate(name).certificate).ok()?)
    }

    /// Stores a certificate with its key.
    pub(crate) fn put_certificate(&self, automatic: &Automatic, name: &str, pem: &str) -> io::Result<()> {
        let files = automatic.certificate(name);
        // The response for the old certificate is not for the new one. Most certificates have none.
        let _ = fs::remove_file(files.staple_file());
        replace(&files.certificate, pem.as_bytes())
    }

    /// Reads the record of a name: the data that is stored next to its certificate.
    pub(crate) fn record(&self, name: &str) -> Record {
        // A record that cannot be read counts as an empty one: the certificate alone decides.
        read(&self.record_file(name))
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    }

    pub(crate) fn put_record(&self, name: &str, record: &Record) -> io::Result<()> {
        replace(&self.record_file(name), serde_json::to_string_pretty(record)?.as_bytes())
    }

    fn record_file(&self, name: &str) -> PathBuf {
        self.folder.join("certificates").join(file_name(name, "json"))
    }

    /// The account at an authority. `key` distinguishes several accounts at one authority.
    pub(crate) fn account(&self, key: &str) -> Option<Vec<u8>> {
        read(&self.account_file(key)).ok()
    }

    pub(crate) fn put_account(&self, key: &str, account: &[u8]) -> io::Result<()> {
        replace(&self.account_file(key), account)
    }

    pub(crate) fn forget_account(&self, key: &str) {
        // A failure does no harm: the authority refuses the account again, and we try to remove the file again.
        let _ = fs::remove_file(self.account_file(key));
    }

    fn account_file(&self, key: &str) -> PathBuf {
        self.folder.join("accounts").join(format!("{key}.json"))
    }

    /// A file of the internal authority.
    pub(crate) fn internal(&self, name: &str) -> PathBuf {
        self.folder.join("internal").join(name)
    }

    /// Takes a lock that all processes with this storage respect. `None` if another process holds the lock.
    pub(crate) fn lock(&self, name: &str) -> io::Result<Option<Lock>> {
        let file = self.lock_file(name)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Takes the lock of a name, and waits while another process holds it. For locks that are held briefly.
    pub(crate) fn lock_and_wait(&self, name: &str) -> io::Result<Lock> {
        let file = self.lock_file(name)?;
        file.lock()?;
        Ok(Lock(file))
    }

    fn lock_file(&self, name: &str) -> io::Result<File> {
        let file = self.folder.join("locks").join(file_name(name, "lock"));
        OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(file)
    }
}

/// The reason why certificates cannot be stored.
#[derive(Debug, thiserror::Error)]
pub enum StorageFault {
    /// A file is where a folder has to be.
    #[error("{} is not a folder", .0.display())]
    NotFolder(PathBuf),
    /// A symbolic link points to nothing, so a folder can neither be found nor made there.
    #[error("{} is a symbolic link to a folder that does not exist", .0.display())]
    Dangling(PathBuf),
    /// The user of this process may not search or write this folder.
    #[error("{}: {error}", folder.display())]
    Denied {
        /// The folder.
        folder: PathBuf,
        /// The system's refusal.
        error: io::Error,
    },
}

impl StorageFault {
    /// The advice for the operator.
    pub fn help(&self) -> &'static str {
        match self {
            Self::NotFolder(_) => "name a folder: `--storage FOLDER`, or `acme { storage \"FOLDER\" }`",
            Self::Dangling(_) => {
                "make the folder that it points to, or name another one: `--storage FOLDER`, or `acme { storage \"FOLDER\" }`"
            }
            Self::Denied { .. } => {
                "let the user who runs the proxy write there, or name another folder: `--storage FOLDER`, or `acme { storage \"FOLDER\" }`"
            }
        }
    }
}

/// The fault of a folder, or of its nearest parent that is there: the missing folders would be made in that one.
fn fault_of(folder: &Path) -> Option<StorageFault> {
    for nearest in folder.ancestors() {
        let nearest = if nearest.as_os_str().is_empty() { Path::new(".") } else { nearest };
        let own = fs::symlink_metadata(nearest);
        let found = fs::metadata(nearest);
        return match (own, found) {
            (Ok(own), Err(error)) if own.is_symlink() && error.kind() == io::ErrorKind::NotFound => {
                Some(StorageFault::Dangling(nearest.to_owned()))
            }
            (Ok(_), Ok(found)) if !found.is_dir() => Some(StorageFault::NotFolder(nearest.to_owned())),
            (Ok(_), Ok(_)) => {
                let denied = access(nearest, Access::WRITE_OK | Access::EXEC_OK).err()?;
                Some(StorageFault::Denied { folder: nearest.to_owned(), error: denied.into() })
            }
            (Err(error), _)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                continue;
            }
            (_, Err(error)) | (Err(error), _) => {
                Some(StorageFault::Denied { folder: nearest.to_owned(), error })
            }
        };
    }
    None
}

pub(crate) fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(FILE_MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MOST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "longer than 1 MiB"));
    }
    Ok(bytes)
}

/// Replaces a file as a whole.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}-{number}.new", std::process::id()));
    let new = file.with_file_name(name);
    let write = || {
        let mut opened = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        opened.write_all(bytes)?;
        opened.sync_all()?;
        fs::rename(&new, file)
    };
    let written = write();
    if written.is_err() {
        // The old file is still in place, and the incomplete new one is of no use.
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn faults_are_found_without_a_change() {
        let top = std::env::temp_dir().join(format!("foregate-storage-fault-{}", std::process::id()));
        fs::create_dir_all(&top).unwrap();
        let told = |folder: &Path| Storage::new(folder).fault().map(|fault| fault.to_string());
        let is = |path: &Path, what: &str| Some(format!("{} {what}", path.display()));
        const NOT_FOLDER: &str = "is not a folder";
        const DANGLING: &str = "is a symbolic link to a folder that does not exist";

        assert_eq!(told(&top.join("new/folder")), None);
        let file = top.join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(told(&file), is(&file, NOT_FOLDER));
        assert_eq!(told(&file.join("below")), is(&file, NOT_FOLDER));
        let link = top.join("link");
        std::os::unix::fs::symlink(top.join("none"), &link).unwrap();
        assert_eq!(told(&link), is(&link, DANGLING));
        assert_eq!(told(&link.join("below")), is(&link, DANGLING));
        let storage = top.join("storage");
        fs::create_dir(&storage).unwrap();
        std::os::unix::fs::symlink(top.join("none"), storage.join("accounts")).unwrap();
        assert_eq!(told(&storage), is(&storage.join("accounts"), DANGLING));
        // The folders can neither be found nor made: the start fails, too.
        for folder in [&file, &file.join("below"), &link, &link.join("below"), &storage] {
            Storage::new(folder).prepare().unwrap_err();
        }
        fs::create_dir(top.join("none")).unwrap();
        assert_eq!((told(&link), told(&storage)), (None, None));
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn files_are_private_and_locks_are_exclusive() {
        let folder = std::env::temp_dir().join(format!("foregate-storage-{}", std::process::id()));
        let storage = Storage::new(&folder);
        storage.prepare().unwrap();
        let automatic = Automatic::new(folder.clone());
        let pem = crate::certificate::temporary("*.a.example").unwrap();
        storage.put_certificate(&automatic, "*.a.example", &pem).unwrap();
        let file = folder.join("certificates/_.a.example.pem");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(storage.certificate(&automatic, "*.a.example").unwrap().is_temporary);
        assert!(storage.certificate(&automatic, "a.example").is_none());

        let held = storage.lock("a.example").unwrap();
        assert!(held.is_some());
        assert!(storage.lock("a.example").unwrap().is_none());
        drop(held);
        assert!(storage.lock("a.example").unwrap().is_some());

        let record = Record { failures: 3, ..Record::default() };
        storage.put_record("a.example", &record).unwrap();
        assert_eq!(storage.record("a.example").failures, 3);
        assert_eq!(storage.record("b.example").failures, 0);
        assert_eq!(fs::read_dir(folder.join("certificates")).unwrap().count(), 2);
        fs::remove_dir_all(folder).unwrap();
    }
}

//! The files `/etc/hosts` and `/etc/resolv.conf` of the system, which are read again when they have
//! changed.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::hosts::Hosts;
use super::resolv_conf::ResolvConf;

/// The most bytes that are read of a file; lines after them are ignored.
const FILE_LIMIT: u64 = 16 << 20;

/// The location of the system's configuration.
#[derive(Debug)]
pub struct Paths {
    /// Addresses of names.
    pub hosts: PathBuf,
    /// Nameservers and search list.
    pub resolv_conf: PathBuf,
    /// The port of the nameservers.
    pub port: u16,
}

impl Default for Paths {
    fn default() -> Self {
        Self { hosts: "/etc/hosts".into(), resolv_conf: "/etc/resolv.conf".into(), port: 53 }
    }
}

/// The contents of the files.
#[derive(Debug, PartialEq, Eq)]
pub struct Contents {
    /// Addresses of names.
    pub hosts: Hosts,
    /// Nameservers and search list.
    pub resolv_conf: ResolvConf,
}

/// The system's files.
#[derive(Debug)]
pub struct System {
    paths: Paths,
    current: Mutex<Option<(SystemStamps, Arc<Contents>)>>,
}

/// Identifies the content of a file: device, inode, size, and the times of the last modification and
/// change, each in seconds and nanoseconds.
type SystemStamp = [i128; 7];
type SystemStamps = [Option<SystemStamp>; 2];

impl System {
    /// Nothing is read yet.
    pub fn new(paths: Paths) -> Self {
        Self { paths, current: Mutex::default() }
    }

    /// The contents as of the last check.
    pub fn contents(&self) -> Arc<Contents> {
        if let Some((_, contents)) = &*self.current.lock() {
            return Arc::clone(contents);
        }
        self.look().0
    }

    /// Reads the files if they have changed. Also returns true if their parsed contents differ.
    pub fn look(&self) -> (Arc<Contents>, bool) {
        let mut current = self.current.lock();
        // Taken before the files are read, so that a change in between is noticed the next time.
        let stamps = [&self.paths.hosts, &self.paths.resolv_conf].map(|path| stamp(path));
        if let Some((known, contents)) = &*current
            && *known == stamps
        {
            return (Arc::clone(contents), false);
        }
        let hostname = read(Path::new("/proc/sys/kernel/hostname"));
        let text = read(&self.paths.resolv_conf);
        let read = Arc::new(Contents {
            hosts: Hosts::parse(&read(&self.paths.hosts)),
            resolv_conf: ResolvConf::parse(&text, self.paths.port, &hostname, interface),
        });
        let before = current.take().map(|(_, contents)| contents);
        let contents = before.filter(|before| *before == read).unwrap_or_else(|| Arc::clone(&read));
        let changed = Arc::ptr_eq(&contents, &read);
        *current = Some((stamps, Arc::clone(&contents)));
        (contents, changed)
    }
}

fn stamp(path: &Path) -> Option<SystemStamp> {
    let file = fs::metadata(path).ok()?;
    let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()].map(i128::from);
    let [dev, ino, size] = [file.dev(), file.ino(), file.size()].map(i128::from);
    Some([dev, ino, size, times[0], times[1], times[2], times[3]])
}

/// A file that is not there, or cannot be read, is empty.
fn read(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path)
        && let Err(error) = file.take(FILE_LIMIT).read_to_end(&mut bytes)
    {
        tracing::warn!(file = %path.display(), %error, "the file cannot be read");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The number of a network interface.
fn interface(name: &str) -> Option<u32> {
    let is_name = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    let number = is_name.then(|| fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok())??;
    number.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_noticed_however_they_are_made() {
        let folder = tempfile::tempdir().unwrap();
        let [hosts, resolv_conf] = ["hosts", "resolv.conf"].map(|name| folder.path().join(name));
        let paths = Paths { hosts: hosts.clone(), resolv_conf: resolv_conf.clone(), port: 53 };
        let system = System::new(paths);
        let first = system.contents();
        assert!(first.hosts.get("a").is_empty());
        assert_eq!(first.resolv_conf.nameservers.servers, [([127, 0, 0, 1], 53).into()]);
        assert!(!system.look().1);
        fs::write(&hosts, "192.0.2.1 a\n").unwrap();
        let (contents, changed) = system.look();
        assert!(changed);
        assert_eq!(contents.hosts.get("a"), [std::net::IpAddr::from([192, 0, 2, 1])]);
        // Another file of the same size in its place.
        let beside = folder.path().join("new");
        fs::write(&beside, "192.0.2.2 a\n").unwrap();
        fs::rename(&beside, &hosts).unwrap();
        assert!(system.look().1);
        // A file of the same length, written in place.
        fs::write(&hosts, "192.0.2.2  a\n").unwrap();
        assert!(!system.look().1);
        fs::write(&resolv_conf, "nameserver 192.0.2.53\nsearch a.test\n").unwrap();
        let (contents, changed) = system.look();
        assert!(changed);
        assert_eq!(contents.resolv_conf.search, ["a.test"]);
        fs::remove_file(&resolv_conf).unwrap();
        assert!(system.look().1);
    }
}

//! Files of rules on this machine.

use std::io::Read;
use std::path::Path;

use foregate_waf::seclang::Files;

/// Access to the files of this machine.
pub(super) struct Disk;

impl Files for Disk {
    fn read(&mut self, path: &str, limit: usize) -> Result<Vec<u8>, String> {
        read(Path::new(path), limit)
    }

    fn glob(&mut self, pattern: &str) -> Result<Vec<String>, String> {
        let paths = foregate_config::expand(Path::new(pattern)).map_err(|error| error.to_string())?;
        paths
            .into_iter()
            .map(|path| {
                path.into_os_string().into_string().map_err(|path| format!("{} is not UTF-8", path.display()))
            })
            .collect()
    }
}

/// The content of a file. A file with more than `limit` bytes is an error.
pub(super) fn read(path: &Path, limit: usize) -> Result<Vec<u8>, String> {
    let file = foregate_config::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let beyond = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    file.take(beyond).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() > limit { Err(format!("it is larger than {limit} bytes")) } else { Ok(bytes) }
}

//! Files for tests: in memory, or those of a folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;

use foregate_waf::seclang::Files;

/// Files by path.
#[derive(Default)]
pub(crate) struct Memory(pub(crate) BTreeMap<String, Vec<u8>>);

impl Memory {
    pub(crate) fn with(mut self, path: &str, text: impl Into<Vec<u8>>) -> Self {
        self.0.insert(path.into(), text.into());
        self
    }
}

impl Files for Memory {
    fn read(&mut self, path: &str, _: usize) -> Result<Vec<u8>, String> {
        self.0.get(path).cloned().ok_or_else(|| "there is no such file".into())
    }

    /// One `*` stands for any part of a name.
    fn glob(&mut self, pattern: &str) -> Result<Vec<String>, String> {
        let Some((start, end)) = pattern.split_once('*') else { return Ok(Vec::new()) };
        let stands_for =
            |path: &str| path.strip_prefix(start)?.strip_suffix(end).map(|middle| !middle.contains('/'));
        Ok(self.0.keys().filter(|path| stands_for(path) == Some(true)).cloned().collect())
    }
}

/// The files of this machine.
pub(crate) struct Disk;

impl Files for Disk {
    fn read(&mut self, path: &str, limit: usize) -> Result<Vec<u8>, String> {
        let file = fs::File::open(path).map_err(|error| error.to_string())?;
        let mut text = Vec::new();
        file.take(limit as u64 + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
        if text.len() > limit { Err("it is too large".into()) } else { Ok(text) }
    }

    fn glob(&mut self, pattern: &str) -> Result<Vec<String>, String> {
        let (folder, name) = pattern.rsplit_once('/').unwrap();
        let end = name.strip_prefix('*').unwrap();
        let mut paths: Vec<String> = fs::read_dir(folder)
            .map_err(|error| error.to_string())?
            .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
            .filter(|path| path.ends_with(end))
            .collect();
        paths.sort();
        Ok(paths)
    }
}

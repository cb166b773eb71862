//! Reads files of rules, and the data files that rules name.

use std::collections::HashMap;
use std::sync::Arc;

use super::findings::Findings;
use super::limits::{MAX_BYTES, MAX_DATA_FILE};
use super::line::{Line, Part};
use crate::model::{Network, NetworkError, Phrases, Place};

/// The source of the text of rules and of their data.
pub trait Files {
    /// Reads the whole file at `path`. The error tells in a few words why the file cannot be read, or that it is
    /// larger than `limit` bytes.
    fn read(&mut self, path: &str, limit: usize) -> Result<Vec<u8>, String>;

    /// The files with paths that match `pattern`, sorted. `*` and `?` stand for parts of names. It is no error if
    /// there are no such files.
    fn glob(&mut self, pattern: &str) -> Result<Vec<String>, String>;
}

/// A source without files: rules that name files are refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&mut self, _: &str, _: usize) -> Result<Vec<u8>, String> {
        Err("files are not read here".into())
    }

    fn glob(&mut self, _: &str) -> Result<Vec<String>, String> {
        Err("files are not read here".into())
    }
}

/// The files read so far, with their parsed contents.
pub(super) struct Shelf<'f> {
    files: &'f mut dyn Files,
    data: Data,
    /// Bytes read so far.
    bytes: usize,
}

impl<'f> Shelf<'f> {
    /// Makes a shelf from which nothing has been read yet.
    pub(super) fn new(files: &'f mut dyn Files) -> Self {
        Self { files, data: Data::default(), bytes: 0 }
    }

    /// The files with paths that match a pattern.
    pub(super) fn glob(&mut self, pattern: &str) -> Result<Vec<String>, String> {
        self.files.glob(pattern)
    }

    /// The path of the file that the file `from` refers to as `name`.
    pub(super) fn path(&self, from: &str, name: &str) -> String {
        match from.rsplit_once('/') {
            Some((folder, _)) if !name.starts_with('/') => format!("{folder}/{name}"),
            _ => name.to_owned(),
        }
    }

    /// The content of a data file; `None` after an error, which is recorded.
    pub(super) fn read_data(&mut self, path: &str, at: usize, findings: &mut Findings) -> Option<Vec<u8>> {
        self.read(path, MAX_DATA_FILE, at, findings)
    }

    pub(super) fn read(
        &mut self,
        path: &str,
        limit: usize,
        at: usize,
        findings: &mut Findings,
    ) -> Option<Vec<u8>> {
        let limit = limit.min(MAX_BYTES - self.bytes);
        let text = self.files.read(path, limit).and_then(|text| match text.len() {
            len if len > limit => Err(format!("it is larger than {limit} bytes")),
            _ => Ok(text),
        });
        match text {
            Ok(text) => {
                self.bytes += text.len();
                Some(text)
            }
            Err(reason) => {
                findings.error(at, format!("the file `{path}` cannot be read: {reason}"), None);
                None
            }
        }
    }
}

/// Phrases and networks of files that were read, by path.
#[derive(Default)]
struct Data {
    phrases: HashMap<String, Phrases>,
    networks: HashMap<String, Arc<[Network]>>,
}

impl Shelf<'_> {
    /// The phrases in the files that this argument names, one on each line. Empty lines and lines that start with
    /// `#` are ignored.
    pub(super) fn phrases(&mut self, part: Part<'_>, findings: &mut Findings) -> Option<Phrases> {
        let mut all = Vec::new();
        for name in part.split_all(char::is_whitespace) {
            let path = self.path(findings.file(), &name.text());
            if !self.data.phrases.contains_key(&path) {
                let text = self.read_data(&path, name.at, findings)?;
                let phrases = Phrases::new(entries(&text).map(|(_, line)| line.into()));
                self.data.phrases.insert(path.clone(), phrases);
            }
            all.extend(self.data.phrases.get(&path).cloned());
        }
        match all.len() {
            1 => all.pop(),
            _ => Some(Phrases::new(all.iter().flat_map(Phrases::iter).map(Into::into))),
        }
    }

    /// The addresses in the files that this argument names, one on each line.
    pub(super) fn networks(&mut self, part: Part<'_>, findings: &mut Findings) -> Option<Arc<[Network]>> {
        let mut all: Vec<Arc<[Network]>> = Vec::new();
        for name in part.split_all(char::is_whitespace) {
            let path = self.path(findings.file(), &name.text());
            if !self.data.networks.contains_key(&path) {
                let text = self.read_data(&path, name.at, findings)?;
                let networks = read_networks(&path, &text, findings)?;
                self.data.networks.insert(path.clone(), networks);
            }
            all.extend(self.data.networks.get(&path).cloned());
        }
        match all.len() {
            1 => all.pop(),
            _ => Some(all.iter().flat_map(|networks| networks.iter().copied()).collect()),
        }
    }
}

/// The lines of a data file that are neither empty nor comments, with their numbers.
fn entries(text: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let lines =
        (1..).zip(text.split(|byte| *byte == b'\n')).map(|(number, line)| (number, line.trim_ascii()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"))
}

fn read_networks(path: &str, text: &[u8], findings: &mut Findings) -> Option<Arc<[Network]>> {
    let mut networks = Vec::new();
    let mut right = true;
    let file: Arc<str> = path.into();
    for (number, line) in entries(text) {
        // A comment may follow the address.
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default().trim_ascii();
        let line = String::from_utf8_lossy(line);
        match Network::parse(&line) {
            Ok(network) => networks.push(network),
            Err(error) => {
                right = false;
                let place: Place = Line::at(number, 1).place(&file, 0);
                findings.error_at(place, not_a_network(&line, error), None);
            }
        }
    }
    right.then(|| networks.into())
}

pub(super) fn not_a_network(text: &str, error: NetworkError) -> String {
    match error {
        NetworkError::Address => format!("`{text}` is not an address"),
        NetworkError::Prefix => format!("`{text}` is not a network: the number of bits is wrong"),
    }
}

//! The texts of a configuration that was read, and their form in bytes for another process.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::load::FILES_LIMIT;

/// The texts from which a configuration was read. The same configuration can be read from them again, even if
/// the files have changed.
#[derive(Debug, PartialEq, Eq)]
pub struct Texts {
    /// The files with their texts, in the order in which they were read.
    files: Vec<(PathBuf, String)>,
    /// The files that stand for each `include`, by the number of its file and its ordinal among the `include` nodes of this
    /// file. Indexes of nodes depend on the parser, and so on the version of the program.
    includes: HashMap<(u32, u32), Vec<u32>>,
}

impl Texts {
    pub(crate) fn new(files: Vec<(PathBuf, String)>, includes: HashMap<(u32, u32), Vec<u32>>) -> Self {
        Self { files, includes }
    }

    /// The files with their texts, the main one first.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.files.iter().map(|(path, text)| (&**path, &**text))
    }

    pub(crate) fn included(&self, ordinal: (u32, u32)) -> Option<&[u32]> {
        self.includes.get(&ordinal).map(|files| &**files)
    }

    /// The texts as bytes, for [`Self::decode`]. `None` if there are more than `limit` bytes in the files.
    pub fn encode(&self, limit: usize) -> Option<Vec<u8>> {
        let length: usize = self.files().map(|(path, text)| path.as_os_str().len() + text.len()).sum();
        if length > limit {
            return None;
        }
        let mut bytes = Vec::with_capacity(length + 8 * (self.files.len() + 1) + 16 * self.includes.len());
        put(&mut bytes, self.files.len() as u32);
        for (path, text) in self.files() {
            for part in [path.as_os_str().as_bytes(), text.as_bytes()] {
                put(&mut bytes, part.len() as u32);
                bytes.extend_from_slice(part);
            }
        }
        put(&mut bytes, self.includes.len() as u32);
        for ((file, ordinal), included) in &self.includes {
            [*file, *ordinal, included.len() as u32].into_iter().for_each(|number| put(&mut bytes, number));
            included.iter().for_each(|number| put(&mut bytes, *number));
        }
        Some(bytes)
    }

    /// The texts in these bytes. `None` if the bytes are damaged.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let count = take(&mut bytes)? as usize;
        if count == 0 || count > FILES_LIMIT {
            return None;
        }
        let mut files = Vec::with_capacity(count);
        for _ in 0..count {
            let path = Path::new(OsStr::from_bytes(take_part(&mut bytes)?)).to_owned();
            files.push((path, String::from_utf8(take_part(&mut bytes)?.to_owned()).ok()?));
        }
        let mut includes = HashMap::new();
        let mut is_included = vec![false; count];
        for _ in 0..take(&mut bytes)? {
            let (file, ordinal, many) = (take(&mut bytes)?, take(&mut bytes)?, take(&mut bytes)?);
            let mut included = Vec::new();
            for _ in 0..many {
                let number = take(&mut bytes)?;
                // A file is read after the file that includes it, and has one number for each time. Otherwise, files could
                // include each other without end.
                let is_known = is_included.get_mut(number as usize)?;
                if number <= file || std::mem::replace(is_known, true) {
                    return None;
                }
                included.push(number);
            }
            includes.insert((file, ordinal), included);
        }
        bytes.is_empty().then_some(Self { files, includes })
    }
}

/// Lengths fit: a file has at most 256 MiB, and a configuration at most 10,000 files.
fn put(bytes: &mut Vec<u8>, number: u32) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn take(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*number))
}

fn take_part<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = take(bytes)? as usize;
    let (part, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(included: &[((u32, u32), Vec<u32>)]) -> Texts {
        let file = |name: &str, text: &str| (PathBuf::from(name), text.to_owned());
        let files = vec![file("/etc/a.kdl", "include \"b.kdl\""), file("/etc/b.kdl", ""), file("c", "x")];
        Texts::new(files, included.iter().cloned().collect())
    }

    #[test]
    fn texts_come_back_from_their_bytes() {
        let texts = texts(&[((0, 0), vec![1, 2]), ((1, 3), vec![])]);
        let bytes = texts.encode(1000).unwrap();
        assert_eq!(Texts::decode(&bytes), Some(texts));
        for length in 0..bytes.len() {
            assert_eq!(Texts::decode(&bytes[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn long_texts_are_not_encoded() {
        let texts = texts(&[]);
        let length = "/etc/a.kdl/etc/b.kdlcx".len() + "include \"b.kdl\"".len();
        assert!(texts.encode(length).is_some() && texts.encode(length - 1).is_none());
    }

    #[test]
    fn files_without_end_are_refused() {
        for wrong in [
            &[((0, 0), vec![0])][..],
            &[((1, 0), vec![1])],
            &[((2, 0), vec![1])],
            &[((0, 0), vec![1, 1])],
            &[((0, 0), vec![3])],
            &[((0, 0), vec![2]), ((1, 0), vec![2])],
        ] {
            assert_eq!(Texts::decode(&texts(wrong).encode(1000).unwrap()), None, "{wrong:?}");
        }
    }
}

//! `foregate version`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::output::{Outcome, print, print_json};

/// The most bytes of notes that are looked through.
const NOTES_LIMIT: u64 = 64 << 10;
/// The type of a segment with notes (elf(5), `PT_NOTE`).
const NOTE_SEGMENT: u32 = 4;
/// The type of the note with the build's id (`NT_GNU_BUILD_ID`).
const BUILD_ID: u32 = 3;

pub(super) fn run(json: bool) -> Outcome {
    let version = env!("CARGO_PKG_VERSION");
    if json {
        print_json(&serde_json::json!({
            "version": version,
            // The variable is set for the build of a release. A build from a source archive does not know its revision.
            "revision": option_env!("FOREGATE_REVISION"),
            "build_id": build_id(),
        }));
    } else {
        print(&format!("foregate {version}\n"));
    }
    Outcome::Fine
}

/// The build id that the linker has put into the running program; `None` if it has put none.
fn build_id() -> Option<String> {
    let file = File::open("/proc/self/exe").ok()?;
    let header = read(&file, 0, 64).ok()?;
    // All supported platforms have 64-bit little-endian files.
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (number(&header, 32, 8)?, number(&header, 54, 2)?, number(&header, 56, 2)?);
    (0..count).find_map(|entry| {
        let segment = read(&file, table.checked_add(entry * size)?, 56).ok()?;
        if number(&segment, 0, 4)? != u64::from(NOTE_SEGMENT) {
            return None;
        }
        let (offset, length) = (number(&segment, 8, 8)?, number(&segment, 32, 8)?);
        id_in(&read(&file, offset, length.min(NOTES_LIMIT)).ok()?)
    })
}

/// Finds the build id in a segment of notes. Each note has a name and a content, both padded to four bytes.
fn id_in(mut notes: &[u8]) -> Option<String> {
    loop {
        let length = |at: usize| usize::try_from(number(notes, at, 4)?).ok();
        let (name, content, kind) = (length(0)?, length(4)?, number(notes, 8, 4)?);
        let begin = 12_usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let found = notes.get(begin..begin.checked_add(content)?)?;
        if kind == u64::from(BUILD_ID) && notes.get(12..12 + name)? == b"GNU\0" {
            return Some(found.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = notes.get(begin.checked_add(content.checked_next_multiple_of(4)?)?..)?;
    }
}

fn read(file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Reads a little-endian number.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_behind_other_notes() {
        let note = |name: &[u8], kind: u8, content: &[u8]| {
            let mut bytes = vec![name.len() as u8, 0, 0, 0, content.len() as u8, 0, 0, 0, kind, 0, 0, 0];
            for part in [name, content] {
                bytes.extend_from_slice(part);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let notes =
            [note(b"GNU\0", 5, b"abcde"), note(b"Go\0", 3, b"x"), note(b"GNU\0", 3, b"\x01\xfe")].concat();
        assert_eq!(id_in(&notes).as_deref(), Some("01fe"));
        for end in 0..notes.len() - 2 {
            assert_eq!(id_in(&notes[..end]), None, "{end}");
        }
    }
}

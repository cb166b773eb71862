//! Files, and positions in them, in the form that editors use.

use std::path::{Path, PathBuf};

use foregate_config::Span;
use lsp_types::{PositionEncodingKind, Uri};
use serde_json::{Value, json};

/// The units in which an editor counts the characters of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    Utf16,
}

impl Encoding {
    /// Bytes if the editor can count in bytes, else UTF-16 units, which every editor can.
    pub(super) fn of(offered: Option<&Vec<PositionEncodingKind>>) -> Self {
        match offered.is_some_and(|offered| offered.contains(&PositionEncodingKind::UTF8)) {
            true => Self::Utf8,
            false => Self::Utf16,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Utf16 => "utf-16",
        }
    }

    fn length(self, text: &str) -> usize {
        match self {
            Self::Utf8 => text.len(),
            Self::Utf16 => text.chars().map(char::len_utf16).sum(),
        }
    }
}

/// A text, and the offsets at which its lines start.
pub(super) struct LineStarts<'t> {
    text: &'t str,
    starts: Vec<usize>,
    encoding: Encoding,
}

impl<'t> LineStarts<'t> {
    pub(super) fn new(text: &'t str, encoding: Encoding) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(breaks).collect(), encoding }
    }

    /// The position of a byte.
    pub(super) fn position(&self, at: usize) -> Value {
        let line = self.starts.partition_point(|start| *start <= at).saturating_sub(1);
        let before = self.text.get(self.starts[line]..at).unwrap_or_default();
        json!({ "line": line, "character": self.encoding.length(before) })
    }

    pub(super) fn range(&self, span: Span) -> Value {
        json!({ "start": self.position(span.start as usize), "end": self.position(span.end()) })
    }

    /// The byte offset of a position. A position beyond the end of a line means the line's end.
    pub(super) fn offset(&self, position: &Value) -> Option<usize> {
        let number = |name: &str| position.get(name)?.as_u64().map(|number| number as usize);
        let (line, character) = (number("line")?, number("character")?);
        let Some(start) = self.starts.get(line) else { return Some(self.text.len()) };
        let line = self.text[*start..].split(['\n', '\r']).next().unwrap_or_default();
        let mut count = 0;
        for (at, c) in line.char_indices() {
            if count >= character {
                return Some(start + at);
            }
            count += self.encoding.length(c.encode_utf8(&mut [0; 4]));
        }
        Some(start + line.len())
    }
}

/// The canonical path of a file, or the path itself if the file does not exist.
pub(super) fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The path of a `file:` URI.
pub(super) fn path_of(uri: &Uri) -> Option<PathBuf> {
    let is_file = uri.scheme().is_some_and(|scheme| scheme.as_str().eq_ignore_ascii_case("file"));
    let path = uri.path().as_str();
    let decoded = is_file.then(|| decoded(path))??;
    Some(canonical(Path::new(&decoded)))
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).ok()
}

/// The URI of a file.
pub(super) fn uri_of(path: &Path) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.to_string_lossy().bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(char::from(byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_the_units_of_the_editor() {
        let text = "a\r\nbü😀c\n";
        for (encoding, characters) in [(Encoding::Utf8, 7), (Encoding::Utf16, 4)] {
            let lines = LineStarts::new(text, encoding);
            let at = text.find('c').unwrap();
            let position = lines.position(at);
            assert_eq!(position, json!({ "line": 1, "character": characters }));
            assert_eq!(lines.offset(&position), Some(at));
            assert_eq!(lines.offset(&json!({ "line": 0, "character": 9 })), Some(1));
            assert_eq!(lines.offset(&json!({ "line": 9, "character": 0 })), Some(text.len()));
        }
    }

    #[test]
    fn uris_and_paths_are_the_same() {
        let path = Path::new("/no such/ü%.kdl");
        let uri = uri_of(path);
        assert_eq!(uri, "file:///no%20such/%C3%BC%25.kdl");
        assert_eq!(path_of(&uri.parse().unwrap()).as_deref(), Some(path));
        assert_eq!(path_of(&"https://a/b".parse().unwrap()), None);
        assert_eq!(path_of(&"untitled:Untitled-1".parse().unwrap()), None);
    }
}

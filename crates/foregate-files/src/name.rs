//! The name of a file, read from the path of a request.

/// The only folder with a leading dot that is served (RFC 8615).
const WELL_KNOWN: &[u8] = b".well-known";

/// The longest name that file systems allow, bytes.
const LONGEST: usize = 255;

/// The name of a file or folder below the served folder, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The segments of the name, separated by single slashes, without a slash at either end. Empty for the served folder
    /// itself.
    pub bytes: Vec<u8>,
    /// True if the path ended with a slash, and thus asks for a folder.
    pub is_folder: bool,
}

impl Name {
    /// Reads a name from the normal form of a path. `None`: no file can have this name.
    ///
    /// A path with an escaped slash, backslash or NUL, with an empty segment or with a dot segment names no file, so that
    /// each path has only one interpretation. Names that begin with a dot are served only if `dotfiles` is set, or below
    /// `/.well-known`.
    pub fn read(path: &[u8], dotfiles: bool) -> Option<Self> {
        let path = path.strip_prefix(b"/")?;
        if path.is_empty() {
            return Some(Self { bytes: Vec::new(), is_folder: true });
        }
        let is_folder = path.last() == Some(&b'/');
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let mut bytes = Vec::with_capacity(path.len());
        for (number, segment) in path.split(|&byte| byte == b'/').enumerate() {
            if number > 0 {
                bytes.push(b'/');
            }
            let start = bytes.len();
            decode(segment, &mut bytes)?;
            let name = bytes.get(start..)?;
            let is_allowed = dotfiles || number == 0 && name == WELL_KNOWN;
            match name {
                b"" | b"." | b".." => return None,
                name if name.len() > LONGEST => return None,
                [b'.', ..] if !is_allowed => return None,
                _ => {}
            }
        }
        Some(Self { bytes, is_folder })
    }
}

/// Decodes the escapes of a segment.
fn decode(segment: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = segment;
    while let [byte, after @ ..] = rest {
        rest = after;
        let byte = match (byte, after) {
            (b'%', [high, low, after @ ..]) => {
                rest = after;
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                (digit(high)? << 4 | digit(low)?) as u8
            }
            (b'%', _) => return None,
            (byte, _) => *byte,
        };
        if matches!(byte, b'/' | b'\\' | 0) {
            return None;
        }
        out.push(byte);
    }
    Some(())
}

/// Appends a name to a path or a link. All characters except unreserved ones are escaped.
pub fn encode(name: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in name {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(byte);
        } else {
            let digit = |value: u8| HEX.get(usize::from(value)).copied().unwrap_or_default();
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

/// Returns true if a name in the configuration is relative to a folder: it has no slash at its start and no dot
/// segments.
pub fn relative(name: &str) -> bool {
    let is_name = |segment: &str| !matches!(segment, "" | "." | "..");
    name.split('/').all(is_name) && !name.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> Option<(String, bool)> {
        let name = Name::read(path.as_bytes(), false)?;
        Some((String::from_utf8_lossy(&name.bytes).into_owned(), name.is_folder))
    }

    #[test]
    fn paths_are_names_of_files_and_folders() {
        let rows = [
            ("/", Some(("", true))),
            ("/a", Some(("a", false))),
            ("/a/", Some(("a", true))),
            ("/a/b.css", Some(("a/b.css", false))),
            ("/a%20b/%C3%A4.txt", Some(("a b/ä.txt", false))),
            ("/a;v=1/b", Some(("a;v=1/b", false))),
            ("/a.", Some(("a.", false))),
        ];
        for (path, expected) in rows {
            assert_eq!(read(path), expected.map(|(name, is)| (name.to_owned(), is)), "{path}");
        }
    }

    #[test]
    fn odd_readings_name_no_file() {
        for path in [
            "",
            "a",
            "/a%2Fb",
            "/a%2fb",
            "/..%2Fetc",
            "/a%5Cb",
            "/a\\b",
            "/a%00",
            "/a//b",
            "//a",
            "/a//",
            "/..",
            "/a/../b",
            "/%2E%2E/a",
            "/%2e%2e",
            "/.",
            "/a/./b",
            "/a%",
            "/a%2",
            "/a%zz",
            "*",
        ] {
            assert_eq!(read(path), None, "{path}");
        }
    }

    #[test]
    fn names_are_no_longer_than_file_systems_have_them() {
        assert!(read(&format!("/a/{}", "x".repeat(255))).is_some());
        assert!(read(&format!("/a/{}", "%78".repeat(255))).is_some());
        assert!(read(&format!("/{}/a", "x".repeat(256))).is_none());
    }

    #[test]
    fn names_with_a_dot_are_hidden() {
        for path in [
            "/.git/config",
            "/a/.htaccess",
            "/.env",
            "/%2Egit/x",
            "/a/.well-known/x",
            "/.well-known/.env",
            "/...",
            "/.well-knownx",
        ] {
            assert_eq!(read(path), None, "{path}");
        }
        assert!(read("/.well-known/acme-challenge/x").is_some());
        assert!(Name::read(b"/.git/config", true).is_some());
        assert!(Name::read(b"/..", true).is_none());
    }

    #[test]
    fn names_are_escaped_and_read_back() {
        let all: Vec<u8> = (1..=255).filter(|byte| !b"/\\".contains(byte)).collect();
        let mut path = b"/x".to_vec();
        encode(&all, &mut path);
        assert!(path.is_ascii() && !path.contains(&b'"') && !path.contains(&b'<'));
        let name = Name::read(&path, false).unwrap();
        assert_eq!(name.bytes.get(1..), Some(&all[..]));
    }

    #[test]
    fn configured_names_stay_below_their_folder() {
        assert!(relative("index.html") && relative("a/b.html"));
        for name in ["", "/a", "../a", "a/../b", "a//b", "a/", "."] {
            assert!(!relative(name), "{name}");
        }
    }
}

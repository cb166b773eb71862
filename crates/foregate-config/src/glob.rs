//! Paths with `*` and `?`, for `include`.

use std::io;
use std::path::{Component, Path, PathBuf};

/// The files that `pattern` matches, in the order of their names. A path without wildcards is returned as it
/// is. A pattern with wildcards may match no file. `*` and `?` do not match a dot at the start of a name.
///
/// # Errors
///
/// A folder could not be listed.
pub fn expand(pattern: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = vec![PathBuf::new()];
    for component in pattern.components() {
        let name = match component {
            Component::Normal(name) => name.to_str().filter(|name| has_wildcard(name)),
            _ => None,
        };
        match name {
            None => paths.iter_mut().for_each(|path| path.push(component)),
            Some(name) => {
                let mut found = Vec::new();
                for folder in &paths {
                    list(folder, name, &mut found)?;
                }
                paths = found;
            }
        }
    }
    // A name that was found in its folder exists. A name after a wildcard need not be in every folder.
    let is_listed = pattern.file_name().and_then(|name| name.to_str()).is_some_and(has_wildcard);
    paths.retain(|path| path == pattern || may_be_file(path, is_listed));
    Ok(paths)
}

fn has_wildcard(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// Returns false for a folder or another thing that is no file, and for a path that does not exist. An entry whose kind
/// cannot be found out, such as a link to a missing file or an entry of a folder that the user may not search, counts
/// as a file: reading it reports the reason, while leaving it out would silently remove settings.
fn may_be_file(path: &Path, is_listed: bool) -> bool {
    match std::fs::metadata(path) {
        Ok(found) => found.is_file(),
        // A file that was removed after its folder was listed is no error.
        Err(error) => path.symlink_metadata().is_ok() || is_listed && error.kind() != io::ErrorKind::NotFound,
    }
}

fn list(folder: &Path, pattern: &str, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let shown = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = match std::fs::read_dir(shown) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        // A name that is not UTF-8 matches as well, so that its file is not left out without a word.
        if matches(pattern, &name.to_string_lossy()) {
            names.push(name);
        }
    }
    names.sort();
    found.extend(names.into_iter().map(|name| folder.join(name)));
    Ok(())
}

/// Returns true if `name` matches `pattern`.
fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // The position after the last `*`, for backtracking without recursion.
    let (mut p, mut n, mut again) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                again = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match again {
                Some((star, from)) => {
                    again = Some((star, from + 1));
                    p = star + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_their_patterns() {
        for (pattern, name) in [
            ("*.kdl", "a.kdl"),
            ("*", "x"),
            ("a*b*c", "aXbXbc"),
            ("?.kdl", "é.kdl"),
            (".*", ".a"),
            ("a", "a"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("*.kdl", "a.kd"), ("*", ".x"), ("a*b", "ac"), ("?", ""), ("?", "ab")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}

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
            Component::Normal(name) => name.to_str().filter(|name| name.contains(['*', '?'])),
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
    let named = |path: &PathBuf| path != pattern;
    paths.retain(|path| !named(path) || path.is_file());
    Ok(paths)
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
        if name.to_str().is_some_and(|name| matches(pattern, name)) {
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

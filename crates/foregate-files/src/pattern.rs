//! Patterns of names, as in `on="*.css"`.

/// Patterns for names of files; a name matches if it matches one of the patterns. `*` matches any characters within a
/// segment, `**` also matches slashes, and `?` matches one character. A pattern with a slash is compared with the whole
/// name, a pattern without a slash only with the last segment of the name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    any_of: Vec<Box<[u8]>>,
}

/// The error for a text that contains no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternError;

impl Pattern {
    /// Reads patterns that are separated by spaces.
    ///
    /// # Errors
    ///
    /// The text contains no pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let any_of: Vec<Box<[u8]>> = text.split_ascii_whitespace().map(|one| one.as_bytes().into()).collect();
        if any_of.is_empty() { Err(PatternError) } else { Ok(Self { any_of }) }
    }

    /// Returns true if a name matches. The name has no slash at its start.
    pub fn matches(&self, name: &[u8]) -> bool {
        let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
        self.any_of.iter().any(|pattern| match &**pattern {
            [b'/', pattern @ ..] => matches(pattern, name),
            pattern if pattern.contains(&b'/') => matches(pattern, name),
            pattern => matches(pattern, last),
        })
    }
}

/// Matches a name against one pattern without recursion: if the rest of the name does not match, the last star takes
/// one byte more. The last `*`, which matches within a segment, and the last `**` are remembered separately.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let (mut within, mut across) = (None, None);
    while let Some(&byte) = name.get(n) {
        match pattern.get(p) {
            Some(b'*') if pattern.get(p + 1) == Some(&b'*') => {
                p += 2;
                across = Some((p, n));
                within = None;
                continue;
            }
            Some(b'*') => {
                p += 1;
                within = Some((p, n));
                continue;
            }
            Some(&expected) if expected == byte || expected == b'?' && byte != b'/' => {
                p += 1;
                n += 1;
                continue;
            }
            _ => {}
        }
        match (&mut within, &mut across) {
            (Some((star, from)), _) if name.get(*from).is_some_and(|byte| *byte != b'/') => {
                *from += 1;
                (p, n) = (*star, *from);
            }
            (_, Some((star, from))) => {
                *from += 1;
                (p, n) = (*star, *from);
                within = None;
            }
            _ => return false,
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_their_patterns() {
        let rows = [
            ("*.css", "a.css", true),
            ("*.css", "x/y/a.css", true),
            ("*.css", "a.csss", false),
            ("*.css *.js", "a.js", true),
            ("/*.css", "a.css", true),
            ("/*.css", "x/a.css", false),
            ("/assets/**", "assets/a/b", true),
            ("/assets/**", "other/a", false),
            ("assets/*/b", "assets/a/b", true),
            ("assets/*/b", "assets/a/c/b", false),
            ("assets/**/b.*", "assets/a/c/b.js", true),
            ("**/*.min.js", "a/b/c.min.js", true),
            ("a?c", "abc", true),
            ("/a?c", "a/c", false),
            ("*-????????.*", "app-1234abcd.js", true),
            ("*a*b*c", "xaxbxbxc", true),
            ("*", "", true),
        ];
        for (pattern, name, expected) in rows {
            assert_eq!(
                Pattern::parse(pattern).unwrap().matches(name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
        assert_eq!(Pattern::parse("  "), Err(PatternError));
    }

    #[test]
    fn many_stars_take_no_time() {
        let name = [&b"a".repeat(4000)[..], b"b"].concat();
        for stars in ["*a", "**a", "**/*a"] {
            assert!(!Pattern::parse(&stars.repeat(200)).unwrap().matches(&name), "{stars}");
        }
    }
}

//! Checked sources and targets of redirects.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The longest host of a source, bytes (RFC 1035, section 2.3.4).
const HOST_LIMIT: usize = 253;

/// The longest path of a source and the longest target, bytes.
pub(super) const ADDRESS_LIMIT: usize = 8 * 1024;

/// The most wildcards of a pattern.
pub(super) const WILDCARDS_LIMIT: usize = 9;

/// The source of a redirect: a path, with or without a host, both normalised as in requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source<'t> {
    /// The host in lower case; empty for any host.
    pub(super) host: Cow<'t, str>,
    pub(super) path: &'t str,
}

impl<'t> Source<'t> {
    /// Reads `/path` or `host/path`.
    ///
    /// # Errors
    ///
    /// Returns the error as a sentence.
    pub(super) fn parse(text: &'t str) -> Result<Self, &'static str> {
        if text.contains("://") {
            return Err("a source has no scheme: write the host and the path, `example.com/old`");
        }
        let Some(slash) = text.find('/') else {
            return Err("a source is a path, `/old`, or a host and a path, `example.com/old`");
        };
        let (host, path) = text.split_at(slash);
        if host.contains(':') && !host.starts_with('[') || host.contains("]:") {
            return Err("a source has no port");
        }
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
        if !host.bytes().all(fits) || host.len() > HOST_LIMIT {
            return Err("this is not a host");
        }
        check_path(path)?;
        let upper = host.bytes().any(|byte| byte.is_ascii_uppercase());
        let host = if upper { Cow::Owned(host.to_ascii_lowercase()) } else { Cow::Borrowed(host) };
        Ok(Self { host, path })
    }
}

/// Checks that a path is in its normal form: only such paths are looked up.
pub(crate) fn check_path(path: &str) -> Result<(), &'static str> {
    const ENCODED: &str = "a path has this byte percent-encoded, with upper-case digits, as in `/a%20b`";
    if path.len() > ADDRESS_LIMIT {
        return Err("a source has at most 8 KiB");
    }
    if path.contains(['?', '#']) {
        return Err("a source has no query and no fragment: it takes the path, whatever the query is");
    }
    if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err("paths are compared after their dot segments have been resolved; no path has one then");
    }
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digit = |byte: Option<u8>| match byte? {
                    digit @ b'0'..=b'9' => Some(digit - b'0'),
                    digit @ b'A'..=b'F' => Some(digit - b'A' + 10),
                    _ => None,
                };
                let (Some(high), Some(low)) = (digit(bytes.next()), digit(bytes.next())) else {
                    return Err(ENCODED);
                };
                match high << 4 | low {
                    0 => return Err("no path has `%00`"),
                    byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                        return Err("paths are compared with letters, digits, `-`, `.`, `_` and `~` decoded");
                    }
                    _ => {}
                }
            }
            byte if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte) => {}
            _ => return Err(ENCODED),
        }
    }
    Ok(())
}

/// The normal form of a target's path, as in a request for it (RFC 3986, section 6.2.2): dot segments resolved, slashes
/// merged, letters, digits, `-`, `.`, `_` and `~` decoded, hexadecimal digits in upper case.
pub(super) fn normal_path(path: &[u8]) -> Cow<'_, [u8]> {
    if !path.contains(&b'%') && !path.windows(2).any(|pair| pair == b"/." || pair == b"//") {
        return Cow::Borrowed(path);
    }
    let mut normal = Vec::with_capacity(path.len());
    let mut segments = path.split(|byte| *byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let begin = normal.len();
        normal.push(b'/');
        decode_unreserved(segment, &mut normal);
        let last = segments.peek().is_none();
        let up = match normal.get(begin..) {
            Some(b"/") if !last => 0,
            Some(b"/.") => 0,
            Some(b"/..") => 1,
            _ => continue,
        };
        normal.truncate(begin);
        for _ in 0..up {
            normal.truncate(normal.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
        }
        if last {
            normal.push(b'/');
        }
    }
    Cow::Owned(normal)
}

fn decode_unreserved(segment: &[u8], into: &mut Vec<u8>) {
    let mut rest = segment;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        let digit = |at: usize| behind.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        let (b'%', Some(high), Some(low)) = (*first, digit(0), digit(1)) else {
            into.push(*first);
            continue;
        };
        let byte = (high << 4 | low) as u8;
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            into.push(byte);
        } else {
            into.push(b'%');
            into.extend(behind.iter().take(2).map(u8::to_ascii_uppercase));
        }
        rest = behind.get(2..).unwrap_or_default();
    }
}

/// The error for a `$` that names no wildcard.
pub(super) const REFERENCE: &str =
    "`$` stands before a number in braces: `${1}`; write `%24` for the character";

/// The error for a `$` in a host.
pub(super) const HOST: &str = "a host has no `$`; variables have no place in a target";

/// The error for a `$` that seems to begin a variable, if the source has no wildcard.
pub(super) const VARIABLE: &str = "variables have no place in a target; write `%24` for the character `$`";

/// The suggestion in place of variables.
pub(super) const INSTEAD: &str = "`keep-query=#true` appends the query, and `/**` at the end of the source takes a rest, which is `${1}`: \
     redirect \"/old/**\" to=\"https://new.example/${1}\" keep-query=#true";

/// Returns true if a text seems to name a variable of another server.
pub(super) fn names_variable(text: &str) -> bool {
    let begins = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'{' | b'_');
    text.split('$').skip(1).any(|behind| behind.as_bytes().first().is_some_and(begins))
}

/// The target of a redirect: a path of the same site, or an address with scheme and host. It is a valid field value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target<'t>(&'t str);

impl<'t> Target<'t> {
    /// Reads `/path` or `https://host/path`, either with query and fragment.
    ///
    /// # Errors
    ///
    /// Returns the error as a sentence.
    pub(super) fn parse(text: &'t str) -> Result<Self, &'static str> {
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err("a target has no control bytes, so no line breaks either");
        }
        if text.contains(['{', '}']) {
            return Err(
                "a target has no braces but in `${1}`, what the first wildcard stands for; they are written `%7B` and `%7D`",
            );
        }
        let fits = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`|".contains(&byte);
        if !text.bytes().all(fits) {
            return Err(
                "a target has blanks, quotes, `<`, `>`, `\\`, `^`, `|` and what is no ASCII percent-encoded, as in `/a%20b`",
            );
        }
        if text.len() > ADDRESS_LIMIT {
            return Err("a target has at most 8 KiB");
        }
        if text.starts_with("//") {
            return Err("a target that begins with `//` names another host; write its scheme too");
        }
        if !text.starts_with('/') {
            let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
            let Some(rest) = rest else {
                return Err("a target is a path, `/new`, or begins with `http://` or `https://`");
            };
            let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
            if host.is_empty() || host.contains('@') {
                return Err("a target with a scheme has a host behind it, and no user");
            }
            if host.contains('$') {
                return Err(HOST);
            }
        }
        Ok(Self(text))
    }

    pub(super) fn as_bytes(&self) -> &'t [u8] {
        self.0.as_bytes()
    }
}

/// A source with wildcards, as in the paths of routes: `*` stands for one whole segment, `/**` at the end for the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SourcePattern {
    host: Box<str>,
    /// The segments, `None` for `*`.
    segments: Box<[Option<Box<[u8]>>]>,
    rest: bool,
}

/// The text of a pattern's wildcards in a path, in their order.
pub(super) type Captures<'p> = [&'p [u8]; WILDCARDS_LIMIT];

impl SourcePattern {
    /// The pattern, if there is a wildcard in the source.
    ///
    /// # Errors
    ///
    /// Returns the error as a sentence.
    pub(super) fn parse(source: &Source<'_>) -> Result<Option<Self>, &'static str> {
        if !source.path.contains('*') {
            return Ok(None);
        }
        let (path, rest) = match source.path.strip_suffix("/**") {
            Some(path) => (path, true),
            None => (source.path, false),
        };
        let mut segments = Vec::new();
        for segment in path.split('/').skip(1) {
            segments.push(match segment {
                "*" => None,
                _ if segment.contains("**") => {
                    return Err("`**` stands at the end, after a slash: `/blog/**`");
                }
                _ if segment.contains('*') => {
                    return Err("`*` stands for one whole segment: `/users/*/posts`");
                }
                text => Some(text.as_bytes().into()),
            });
        }
        let pattern = Self { host: source.host.as_ref().into(), segments: segments.into(), rest };
        if pattern.wildcards() > WILDCARDS_LIMIT {
            return Err("a pattern has at most 9 wildcards");
        }
        Ok(Some(pattern))
    }

    /// A path that the pattern matches, with `sample` in place of each wildcard.
    pub(super) fn sample(&self, sample: &[u8]) -> Vec<u8> {
        let rest = self.rest.then_some(sample);
        let segments = self.segments.iter().map(|segment| segment.as_deref().unwrap_or(sample));
        segments.chain(rest).flat_map(|segment| [b"/", segment].concat()).collect()
    }

    /// The host of the pattern; empty for any host.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns true if the pattern matches this path. The host is not compared.
    pub(super) fn takes(&self, path: &[u8]) -> bool {
        self.captures(&self.host, path).is_some()
    }

    /// The number of the pattern's wildcards.
    pub(super) fn wildcards(&self) -> usize {
        self.segments.iter().filter(|segment| segment.is_none()).count() + usize::from(self.rest)
    }

    /// The text of each wildcard, if the pattern matches this request.
    pub(super) fn captures<'p>(&self, host: &str, path: &'p [u8]) -> Option<Captures<'p>> {
        if !self.host.is_empty() && *self.host != *host {
            return None;
        }
        let mut captures = Captures::default();
        let mut free = captures.iter_mut();
        let mut rest = path;
        for segment in &self.segments {
            rest = rest.strip_prefix(b"/")?;
            let length = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let (found, behind) = rest.split_at(length);
            match segment {
                Some(text) if **text == *found => {}
                None if !found.is_empty() => *free.next()? = found,
                _ => return None,
            }
            rest = behind;
        }
        match (self.rest, rest) {
            (false, []) | (true, []) => {}
            (true, [b'/', behind @ ..]) => *free.next()? = behind,
            _ => return None,
        }
        Some(captures)
    }
}

/// A target that refers to the wildcards of a pattern: `*` and `**` in their order, or `${1}` by their number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TargetTemplate(Box<[TargetPart]>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TargetPart {
    Text(Box<[u8]>),
    /// The capture with this number, from 0.
    Capture(usize),
    /// A capture within a query, by its number. It is one value there: characters that would end the value are
    /// percent-encoded.
    Value(usize),
}

impl TargetTemplate {
    /// Reads a target for a pattern with this many wildcards.
    ///
    /// # Errors
    ///
    /// Returns the error as a sentence.
    pub(super) fn parse(text: &str, wildcards: usize) -> Result<Self, &'static str> {
        let mut parts = Vec::new();
        // The target with the same text for every wildcard.
        let mut sample = alloc::string::String::new();
        let (mut rest, mut stars) = (text, 0);
        while let Some(at) = rest.find(['*', '$']) {
            let (before, behind) = rest.split_at(at);
            sample.push_str(before);
            let (capture, length) = match reference(behind) {
                Some((number, length)) => (number.checked_sub(1), length),
                None if behind.starts_with('*') => {
                    stars += 1;
                    (Some(stars - 1), if behind.starts_with("**") { 2 } else { 1 })
                }
                None => {
                    return Err(REFERENCE);
                }
            };
            let Some(capture) = capture.filter(|capture| *capture < wildcards) else {
                return Err("the source has fewer wildcards than the target names");
            };
            if is_authority(&sample) {
                return Err("a part of the request's path cannot stand in the host that a redirect leads to");
            }
            parts.push(TargetPart::Text(before.as_bytes().into()));
            let in_query = sample.contains('?') && !sample.contains('#');
            parts.push(if in_query { TargetPart::Value(capture) } else { TargetPart::Capture(capture) });
            sample.push('x');
            rest = behind.get(length..).unwrap_or_default();
        }
        sample.push_str(rest);
        parts.push(TargetPart::Text(rest.as_bytes().into()));
        Target::parse(&sample)?;
        Ok(Self(parts.into()))
    }

    /// Returns true if the target refers to a wildcard.
    pub(super) fn varies(&self) -> bool {
        self.0.iter().any(|part| matches!(part, TargetPart::Capture(_) | TargetPart::Value(_)))
    }

    /// The target for a path.
    pub(super) fn expand(&self, captures: &Captures<'_>) -> Vec<u8> {
        let mut target = Vec::new();
        let capture = |number: &usize| captures.get(*number).copied().unwrap_or_default();
        for part in &self.0 {
            match part {
                TargetPart::Text(text) => target.extend_from_slice(text),
                TargetPart::Capture(number) => target.extend_from_slice(capture(number)),
                TargetPart::Value(number) => {
                    for byte in capture(number) {
                        match byte {
                            b'&' => target.extend_from_slice(b"%26"),
                            b'=' => target.extend_from_slice(b"%3D"),
                            // Form parsers read a `+` as a blank.
                            b'+' => target.extend_from_slice(b"%2B"),
                            other => target.push(*other),
                        }
                    }
                }
            }
        }
        // If a site keeps repeated slashes, the captured text may begin with a slash. Two slashes at the start of a target
        // would begin a host.
        let slashes = target.iter().take_while(|byte| **byte == b'/').count();
        if slashes > 1 {
            target.drain(1..slashes);
        }
        target
    }
}

/// Parses `${N}` at the start of a text: the number, and the length of the whole reference.
fn reference(text: &str) -> Option<(usize, usize)> {
    let (number, _) = text.strip_prefix("${")?.split_once('}')?;
    Some((number.parse().ok()?, number.len() + 3))
}

/// Returns true if text that follows `before` would belong to the scheme or the host.
fn is_authority(before: &str) -> bool {
    match before.split_once("://") {
        Some((_, rest)) => !rest.contains(['/', '?', '#']),
        None => !before.starts_with('/'),
    }
}

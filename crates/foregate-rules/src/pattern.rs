//! Regular expressions, wildcards, and replacements for their matches.

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use memchr::memmem::Finder;
use regex_automata::meta;
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::util::syntax;

use crate::cost;
use crate::limits::{
    MAX_COMPILED_PATTERN, MAX_PATTERN, MAX_PATTERN_CACHE, MAX_PATTERN_DEPTH, MAX_POSITIONS, MAX_REFERENCES,
    MAX_REPLACED,
};
use crate::literals::Needs;

/// A regular expression over bytes, matched in linear time.
#[derive(Debug)]
pub(crate) struct Regex {
    regex: meta::Regex,
    /// The literals of which every matching text contains one; `None` if there are no useful ones.
    pub(crate) needs: Option<Needs>,
}

impl Regex {
    /// Compiles a pattern. The error is one sentence.
    pub(crate) fn new(pattern: &[u8]) -> Result<Self, String> {
        Self::build(pattern, WhichCaptures::Implicit)
    }

    fn build(pattern: &[u8], captures: WhichCaptures) -> Result<Self, String> {
        if pattern.len() > MAX_PATTERN {
            return Err(format!("the regular expression is longer than {MAX_PATTERN} bytes"));
        }
        let pattern = std::str::from_utf8(pattern).map_err(|_| {
            "a regular expression is written in UTF-8; write other bytes as `\\xHH` in it".to_owned()
        })?;
        let config = meta::Config::new()
            .utf8_empty(false)
            .which_captures(captures)
            .nfa_size_limit(Some(MAX_COMPILED_PATTERN))
            .hybrid_cache_capacity(MAX_PATTERN_CACHE);
        // Expressions match bytes, not characters, because header fields and paths have no reliable encoding.
        let syntax = syntax::Config::new().unicode(false).utf8(false).nest_limit(MAX_PATTERN_DEPTH);
        match meta::Regex::builder().configure(config).syntax(syntax).build(pattern) {
            // The limit in `config` applies to only one of several automata, so the total is checked here.
            Ok(regex) if regex.memory_usage() > MAX_COMPILED_PATTERN => Err(too_large()),
            Ok(regex) => match syntax::parse_with(pattern, &syntax) {
                Ok(parsed) if cost::is_bounded(&parsed) => Ok(Self { regex, needs: Needs::of(&parsed) }),
                Ok(_) => Err(too_slow()),
                Err(error) => Err(format!("this is no regular expression: {error}")),
            },
            Err(error) => Err(explain(&error)),
        }
    }

    pub(crate) fn is_match(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }

    /// The memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.regex.memory_usage()
    }
}

fn too_large() -> String {
    format!("the regular expression takes more than {MAX_COMPILED_PATTERN} bytes when it is compiled")
}

fn too_slow() -> String {
    format!(
        "the regular expression is slow on texts made for it: more than {MAX_POSITIONS} of its positions may be active at \
         once, with its repetitions written out; smaller counts help, `*` and `+` in the place of counts, and for long lists of \
         words `lower()` in the place of `(?i)`"
    )
}

/// Makes one sentence of the parser's message, which has several lines.
fn explain(error: &meta::BuildError) -> String {
    if error.size_limit().is_some() {
        return too_large();
    }
    match error.syntax_error() {
        Some(syntax) => {
            let text = syntax.to_string();
            let last = text.lines().last().unwrap_or_default();
            let last = last.trim_start_matches("error: ");
            if last.starts_with("Unicode not allowed") {
                return "a regular expression is about bytes; `(?u)` at its beginning makes it about characters".to_owned();
            }
            format!("this is no regular expression: {last}")
        }
        None => format!("this regular expression cannot be used: {error}"),
    }
}

/// The length in bytes above which no deterministic automaton is built to search for a text, because the time to
/// build one grows with the square of the length.
pub(crate) const LONG_TEXT: usize = 1024;

/// A wildcard pattern, which must match a whole text. `*` stands for any bytes.
#[derive(Debug)]
pub(crate) struct Wildcard {
    pub(crate) strict: bool,
    /// The text before the first `*`; the whole pattern if there is no `*`.
    pub(crate) prefix: Box<[u8]>,
    /// The texts between two neighbouring `*`.
    middle: Box<[Middle]>,
    /// The text after the last `*`, if there is one.
    pub(crate) suffix: Option<Box<[u8]>>,
}

#[derive(Debug)]
enum Middle {
    Exact(Box<Finder<'static>>),
    Folded(AhoCorasick, usize),
}

/// The parts of a wildcard pattern between its `*`.
fn parts(pattern: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    if pattern.len() > MAX_PATTERN {
        return Err(format!("the pattern is longer than {MAX_PATTERN} bytes"));
    }
    let mut parts = vec![Vec::new()];
    let mut bytes = pattern.iter().copied();
    let mut after_star = false;
    while let Some(byte) = bytes.next() {
        if byte == b'*' {
            if after_star {
                return Err(
                    "`**` stands in the pattern: one `*` stands for any text, `\\*` for itself".to_owned()
                );
            }
            after_star = true;
            parts.push(Vec::new());
            continue;
        }
        after_star = false;
        let byte = match byte {
            b'\\' => bytes.next().filter(|next| matches!(next, b'*' | b'\\')).ok_or_else(|| {
                "in a pattern, a backslash stands before `*` or another backslash only".to_owned()
            })?,
            other => other,
        };
        if let Some(part) = parts.last_mut() {
            part.push(byte);
        }
    }
    Ok(parts)
}

impl Wildcard {
    /// Compiles a pattern. The error is one sentence.
    pub(crate) fn new(pattern: &[u8], strict: bool) -> Result<Self, String> {
        let mut parts = parts(pattern)?;
        if !strict {
            parts.iter_mut().for_each(|part| part.make_ascii_lowercase());
        }
        let suffix = if parts.len() > 1 { parts.pop() } else { None };
        let prefix = parts.remove(0);
        let finder = |part: Vec<u8>| match strict {
            true => Ok(Middle::Exact(Box::new(Finder::new(&part).into_owned()))),
            // For long texts, a kind of automaton that is built in linear time.
            false => AhoCorasick::builder()
                .ascii_case_insensitive(true)
                .kind((part.len() > LONG_TEXT).then_some(AhoCorasickKind::ContiguousNFA))
                .build([&part])
                .map(|finder| Middle::Folded(finder, part.len()))
                .map_err(|error| format!("this pattern cannot be used: {error}")),
        };
        let middle = parts.into_iter().map(finder).collect::<Result<_, _>>()?;
        Ok(Self { strict, prefix: prefix.into(), middle, suffix: suffix.map(Into::into) })
    }

    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        let equal = |left: &[u8], right: &[u8]| match self.strict {
            true => left == right,
            false => left.eq_ignore_ascii_case(right),
        };
        let Some(suffix) = &self.suffix else {
            return equal(text, &self.prefix);
        };
        let Some((start, rest)) = text.split_at_checked(self.prefix.len()) else {
            return false;
        };
        let Some(split) = rest.len().checked_sub(suffix.len()) else {
            return false;
        };
        let (mut rest, end) = rest.split_at(split);
        if !equal(start, &self.prefix) || !equal(end, suffix) {
            return false;
        }
        // Taking each middle text at its earliest position leaves the most room for the rest.
        for middle in &self.middle {
            let end = match middle {
                Middle::Exact(finder) => finder.find(rest).map(|at| at + finder.needle().len()),
                Middle::Folded(finder, len) => finder.find(rest).map(|found| found.start() + len),
            };
            match end.and_then(|end| rest.get(end..)) {
                Some(behind) => rest = behind,
                None => return false,
            }
        }
        true
    }

    /// The approximate memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        let middle = self.middle.iter().map(|middle| match middle {
            Middle::Exact(finder) => finder.needle().len(),
            Middle::Folded(finder, _) => finder.memory_usage(),
        });
        self.prefix.len() + middle.sum::<usize>()
    }
}

/// A pattern, and the replacement for its matches.
#[derive(Debug)]
pub(crate) struct Replacement {
    regex: Regex,
    template: Box<[Part]>,
}

#[derive(Debug)]
enum Part {
    Literal(Box<[u8]>),
    Group(usize),
}

impl Replacement {
    /// Replaces the first match of a regular expression.
    pub(crate) fn regex(pattern: &[u8], template: &[u8]) -> Result<Self, String> {
        let regex = Regex::build(pattern, WhichCaptures::All)?;
        let groups = regex.regex.captures_len() - 1;
        Ok(Self { template: parse_template(template, groups, "group")?, regex })
    }

    /// Replaces a text that matches a wildcard pattern as a whole. Each `*` matches as few bytes as possible.
    pub(crate) fn wildcard(pattern: &[u8], template: &[u8], strict: bool) -> Result<Self, String> {
        let parts = parts(pattern)?;
        let mut regex = String::from(if strict { r"(?s)\A" } else { r"(?si)\A" });
        for (number, part) in parts.iter().enumerate() {
            if number > 0 {
                regex.push_str("(.*?)");
            }
            for byte in part {
                regex.push_str(&format!(r"\x{byte:02x}"));
            }
        }
        regex.push_str(r"\z");
        let regex = Regex::build(regex.as_bytes(), WhichCaptures::All)?;
        Ok(Self { template: parse_template(template, parts.len() - 1, "`*`")?, regex })
    }

    /// Replaces the match in `text`. `None` if the result would be too long.
    pub(crate) fn apply<'t>(&self, text: Cow<'t, [u8]>) -> Option<Cow<'t, [u8]>> {
        let mut captures = self.regex.regex.create_captures();
        self.regex.regex.captures(&*text, &mut captures);
        let Some(whole) = captures.get_match() else {
            return Some(text);
        };
        let mut out = text[..whole.start()].to_vec();
        for part in &self.template {
            let more = match part {
                Part::Literal(literal) => literal,
                Part::Group(group) => captures.get_group(*group).map_or(&[][..], |span| &text[span]),
            };
            if out.len() + more.len() > MAX_REPLACED {
                return None;
            }
            out.extend_from_slice(more);
        }
        out.extend_from_slice(&text[whole.end()..]);
        (out.len() <= MAX_REPLACED).then_some(Cow::Owned(out))
    }

    /// The memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.regex.memory()
    }
}

fn parse_template(template: &[u8], groups: usize, what: &str) -> Result<Box<[Part]>, String> {
    let mut parts = Vec::new();
    let mut literal = Vec::new();
    let mut references = 0;
    let mut rest = template;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'$' {
            literal.push(byte);
            continue;
        }
        if let Some(behind) = rest.strip_prefix(b"$") {
            literal.push(b'$');
            rest = behind;
            continue;
        }
        let (number, behind) = reference(rest).ok_or_else(|| {
            "in a replacement, `$` stands before a number, as in `${1}`, or before another `$`".to_owned()
        })?;
        rest = behind;
        if number > groups {
            return Err(format!("the replacement asks for {what} {number}, and the pattern has {groups}"));
        }
        references += 1;
        if references > MAX_REFERENCES {
            return Err(format!("the replacement has more than {MAX_REFERENCES} references"));
        }
        parts.push(Part::Literal(std::mem::take(&mut literal).into()));
        parts.push(Part::Group(number));
    }
    parts.push(Part::Literal(literal.into()));
    Ok(parts.into())
}

/// The number after a `$`, with or without braces, and the rest.
fn reference(rest: &[u8]) -> Option<(usize, &[u8])> {
    let braced = rest.strip_prefix(b"{");
    let digits = braced.unwrap_or(rest);
    let len = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, behind) = digits.split_at(len);
    let number = std::str::from_utf8(number).ok()?.parse().ok()?;
    let behind = if braced.is_some() { behind.strip_prefix(b"}")? } else { behind };
    Some((number, behind))
}

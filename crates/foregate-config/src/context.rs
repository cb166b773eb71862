//! The services that modules use while they read their settings.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use foregate_module::settings::{Argument, Context, LogId, Place, Problem, UpstreamId, Wrong};
use foregate_module::{Condition, Conditions, Expression, PhaseId, Pipeline, Steps};
use foregate_modules::expressions::{Compiler, Mistake, field_of_variable};

use super::files::Files;
use super::modules::Upstreams;
use crate::document::Span;
use crate::load::Tree;
use crate::{glob, problem};
use foregate_rules::{Entries, Word, nearest, words};

/// Everything that settings may depend on besides their nodes.
pub(super) struct Reading<'a> {
    pub tree: &'a Tree,
    pub pipeline: &'a Pipeline,
    pub upstreams: &'a dyn Upstreams,
    /// `true` if a step of the key chooses the upstream of a request.
    pub chooses: bool,
    pub expressions: &'a Compiler,
    pub files: &'a mut Files,
    pub logs: &'a mut Vec<(PathBuf, problem::Place)>,
    /// Warnings of modules.
    pub warnings: Vec<problem::Problem>,
}

impl Reading<'_> {
    /// A path, relative to the folder of the file that names it.
    fn path(&self, path: &Argument) -> Result<PathBuf, Problem> {
        let text = path.text()?;
        if text.is_empty() {
            return Err(path.wrong("expected a path"));
        }
        Ok(self.tree.base(path.place().file).unwrap_or(Path::new("")).join(text))
    }

    /// Warns of a comparison with a host that no request can have: hosts of requests are in lower case, without a
    /// port and a trailing dot.
    fn look_at_hosts(&mut self, argument: &Argument, text: &str) {
        let Some((span, message, written)) = strange_host(text) else { return };
        let help = format!("no request has this one; write `{}`", written.escape_ascii());
        let problem = self.mistake(argument, text, Mistake::new(span, message, Some(help)));
        self.warn(problem);
    }

    fn mistake(&self, argument: &Argument, text: &str, mistake: Mistake) -> Problem {
        let place = argument.place();
        let literal = self.tree.source_at(place.file, place.start, place.length);
        let place = inside(literal, text, &mistake.span).map_or(place, |inside| Place {
            start: place.start + inside.start as u32,
            length: inside.len() as u32,
            ..place
        });
        // If the condition is in the language of another proxy, a translation helps more than the first character that
        // does not fit.
        let language = language(text, |text, sign| text.starts_with(sign));
        let help = language.or(mistake.help.clone()).or_else(|| advice(text, &mistake));
        Problem { help, ..Problem::new(place, mistake.message) }
    }
}

impl Context for Reading<'_> {
    fn upstream(&mut self, name: &Argument) -> Result<UpstreamId, Problem> {
        let text = name.text()?;
        let found = if self.chooses { self.upstreams.choose(text) } else { self.upstreams.find(text) };
        found.map_err(|wrong| name.problem(wrong))
    }

    fn file(&mut self, path: &Argument, limit: usize) -> Result<Arc<[u8]>, Problem> {
        self.files.read(&self.path(path)?, limit).map_err(|wrong| path.problem(wrong))
    }

    fn glob(&mut self, pattern: &Argument) -> Result<Vec<String>, Problem> {
        let full = self.path(pattern)?;
        let wrong = |error| pattern.wrong(format!("cannot list {}: {error}", full.display()));
        let found = glob::expand(&full).map_err(wrong)?;
        // Paths are relative to the same folder as the pattern.
        let base = self.tree.base(pattern.place().file).unwrap_or(Path::new(""));
        let text = |path: PathBuf| match path.strip_prefix(base).unwrap_or(&path).to_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(pattern.wrong(format!("the name of {} is not UTF-8", path.display()))),
        };
        found.into_iter().map(text).collect()
    }

    fn log(&mut self, argument: &Argument) -> Result<LogId, Problem> {
        let path = self.path(argument)?;
        let known = self.logs.iter().position(|(known, _)| *known == path);
        let number = known.unwrap_or(self.logs.len());
        if known.is_none() {
            self.logs.push((path, host_place(argument.place())));
        }
        Ok(LogId(number as u32))
    }

    fn warn(&mut self, warning: Problem) {
        let Problem { place, message, help, .. } = warning;
        self.warnings
            .push(problem::Problem { help, ..problem::Problem::new(Some(host_place(place)), message) });
    }

    fn unix_seconds(&self) -> Option<u64> {
        SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
    }

    fn condition(&mut self, argument: &Argument, phase: PhaseId) -> Result<Arc<dyn Condition>, Problem> {
        let text = argument.text()?;
        self.look_at_hosts(argument, text);
        self.expressions.condition(text, phase).map_err(|mistake| self.mistake(argument, text, mistake))
    }

    fn expression(&mut self, argument: &Argument, phase: PhaseId) -> Result<Arc<dyn Expression>, Problem> {
        let text = argument.text()?;
        self.expressions.expression(text, phase).map_err(|mistake| self.mistake(argument, text, mistake))
    }

    fn conditions(&mut self, arguments: &[Argument], phase: PhaseId) -> Result<Arc<dyn Conditions>, Problem> {
        let texts = arguments.iter().map(Argument::text).collect::<Result<Vec<_>, _>>()?;
        arguments.iter().zip(&texts).for_each(|(argument, text)| self.look_at_hosts(argument, text));
        self.expressions.conditions(&texts, phase).map_err(|(number, mistake)| match arguments.get(number) {
            Some(argument) => self.mistake(argument, texts.get(number).unwrap_or(&""), mistake),
            None => Problem { help: mistake.help, ..Problem::new(Place::default(), mistake.message) },
        })
    }

    fn steps_after(&mut self, name: &Argument, after: &str) -> Result<Steps, Problem> {
        self.steps(name)?;
        let text = name.text()?;
        self.pipeline.named_after(text, after).map_err(|late| {
            let (skips, phase) = late.after;
            let wrong = Wrong::new(format!(
                "this comes too late for `{text}`: its step {} runs in {}, before {skips} in {phase}",
                late.step, late.phase
            ));
            let later: Vec<_> = late.later.iter().map(|step| format!("\"{step}\"")).collect();
            name.problem(match later.is_empty() {
                true => wrong.help("`foregate modules` shows the order, which is the same for every request"),
                false => wrong.help(format!("steps that run later can be named: {}", later.join(", "))),
            })
        })
    }

    fn steps(&mut self, name: &Argument) -> Result<Steps, Problem> {
        let text = name.text()?;
        let steps = self.pipeline.named(text);
        if !steps.is_empty() {
            return Ok(steps);
        }
        let keys = self.pipeline.keys();
        let known = keys.iter().map(|(key, _)| key.name).chain(self.pipeline.steps().map(|step| step.name));
        let wrong = Wrong::new("there is no module or step of this name");
        Err(name.problem(match nearest(text, known) {
            Some(near) => wrong.help(format!("did you mean \"{near}\"?")),
            None => wrong.help("`foregate modules` lists them"),
        }))
    }
}

pub(super) fn host_place(place: Place) -> problem::Place {
    problem::Place { file: place.file, span: Span { start: place.start, len: place.length } }
}

/// Converts the range of a part of a text to a range in the literal of the text in the file. `None` if that is
/// not possible, for example after a reference.
fn inside(literal: &str, text: &str, part: &Range<usize>) -> Option<Range<usize>> {
    if literal.is_empty() {
        return None;
    }
    let hashes = literal.bytes().take_while(|byte| *byte == b'#').count();
    let mut indent = None;
    let open = match literal.as_bytes().get(hashes..)? {
        [b'"', b'"', b'"', ..] => {
            indent = Some(literal.rsplit_once('\n')?.1.split_once('"')?.0);
            literal.find('\n')? + 1
        }
        [b'"', ..] => hashes + 1,
        _ if hashes == 0 => 0,
        _ => return None,
    };
    let has_escapes = hashes == 0 && open > 0;
    // The length of the indentation at the start of a line, which does not belong to the text.
    let indented = |at: usize| {
        let (Some(indent), Some(rest)) = (indent, literal.get(at..)) else { return 0 };
        match rest.lines().next().is_some_and(|line| line.trim_ascii().is_empty()) {
            true => rest.len() - rest.trim_start_matches([' ', '\t']).len(),
            false if rest.starts_with(indent) => indent.len(),
            false => 0,
        }
    };
    // The position in the literal of the byte with this number, counted from 0.
    let written = |byte: usize| {
        let (mut at, mut read) = (open + indented(open), 0);
        while read < byte {
            let rest = literal.get(at..)?;
            let first = rest.chars().next()?;
            let (length, says) = match first {
                '\\' if has_escapes => escape(rest)?,
                '\r' if rest.starts_with("\r\n") => (2 + indented(at + 2), Some('\n')),
                '\n' => (1 + indented(at + 1), Some('\n')),
                _ => (first.len_utf8(), Some(first)),
            };
            at += length;
            if let Some(says) = says {
                text.get(read..).filter(|text| text.starts_with(says))?;
                read += says.len_utf8();
            }
        }
        (read == byte).then_some(at)
    };
    let start = written(part.start)?;
    let end = written(part.end).unwrap_or(start);
    // The range must not be empty, since messages mark it.
    Some(start..end.max(start + 1))
}

/// The length of the escape at the start of a text, in KDL or JSON, and its character. An escape before white
/// space has no character.
fn escape(text: &str) -> Option<(usize, Option<char>)> {
    let code = |digits: &str| u32::from_str_radix(digits, 16).ok();
    let said = match text.chars().nth(1)? {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'b' => '\u{8}',
        'f' => '\u{c}',
        's' => ' ',
        'u' => {
            let digits = text.get(2..)?;
            return match digits.strip_prefix('{') {
                Some(digits) => {
                    let digits = digits.split_once('}')?.0;
                    Some((digits.len() + 4, Some(char::from_u32(code(digits)?)?)))
                }
                // JSON writes characters beyond U+FFFF as two escapes. They are not supported here, since expressions hardly
                // have such characters.
                None => Some((6, Some(char::from_u32(code(digits.get(..4)?)?)?))),
            };
        }
        blank if blank.is_whitespace() => {
            let rest = text.get(1..)?;
            return Some((1 + rest.len() - rest.trim_start().len(), None));
        }
        other => other,
    };
    Some((2, Some(said)))
}

/// A suggestion that the expression language itself cannot make.
fn advice(text: &str, mistake: &Mistake) -> Option<String> {
    let is_variable = |text: &&str| text.strip_prefix('$').is_some_and(|name| name.bytes().all(in_name));
    let variable = variable_at(text, mistake.span.start);
    if let Some(field) = [text.trim(), variable].into_iter().filter(is_variable).find_map(field_of_variable) {
        return Some(format!("write `{field}`"));
    }
    if let Some(instead) = language(text, |text, sign| text.contains(sign)) {
        return Some(instead);
    }
    let list = missing_list(&mistake.message)?;
    let entries = match mistake.missing_list? {
        Entries::Ips => "\"192.0.2.0/24\" type=\"ip\"",
        Entries::Hosts => "\"example.com\" \"*.example.org\" type=\"host\"",
        Entries::Strings => "\"a text\" \"another\" type=\"string\"",
    };
    Some(format!("add one at the top of the file, such as `list \"{list}\" {entries}`"))
}

fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The `$` at this position, with the name after it.
fn variable_at(text: &str, start: usize) -> &str {
    let rest = text.get(start..).unwrap_or_default();
    let length = rest.bytes().skip(1).take_while(|byte| in_name(*byte)).count() + 1;
    rest.get(..length).unwrap_or_default()
}

/// The advice for a condition that is written for another proxy. `has` searches the text for a word that is
/// typical of conditions of another proxy.
fn language(text: &str, has: impl Fn(&str, &str) -> bool) -> Option<String> {
    let text = text.trim_start();
    let (_, instead) = LANGUAGES.iter().find(|(signs, _)| signs.iter().any(|sign| has(text, sign)))?;
    Some((*instead).to_owned())
}

/// Words that are typical of conditions of other proxies, each with the way to write the condition here.
const LANGUAGES: &[(&[&str], &str)] = &[
    (
        &["Host(", "HostSNI(", "HostRegexp("],
        "the hosts of a request stand after `site`; in an expression, write `http.host eq \"example.com\"`",
    ),
    (
        &["PathPrefix(", "PathRegexp(", "Path("],
        "write `starts_with(http.request.uri.path, \"/path/\")`, or a `route \"/path/**\"`",
    ),
    (&["Method("], "write `http.request.method eq \"GET\"`"),
    (
        &["Headers(", "Header(", "header(", "HeaderRegexp(", "hdr(", "req.hdr(", "hdr_beg(", "hdr_end("],
        "write `any(http.request.headers[\"name\"][*] eq \"VALUE\")`",
    ),
    (&["Query(", "url_param(", "urlp("], "write `any(http.request.uri.args[\"name\"][*] eq \"VALUE\")`"),
    (&["ClientIP("], "write `ip.src in {192.0.2.0/24}`"),
    (
        &["path_beg", "path_dir", "startsWith", "startswith", "StartsWith", "beginsWith"],
        "write `starts_with(http.request.uri.path, \"/path/\")`",
    ),
    (&["path_end", "endsWith", "endswith"], "write `ends_with(http.request.uri.path, \".php\")`"),
    (&["path_reg", "path_sub"], "write `http.request.uri.path matches \"PATTERN\"`, or `contains`"),
    (&["ssl_fc"], "write `ssl`"),
    (&["%{", "%["], "fields are named without `%`: `http.request.uri.path`, `http.host`, `ip.src`"),
    (
        &["{http.", "{host", "{path", "{method", "{remote", "{uri", "{query"],
        "fields are named without braces: `http.request.uri.path`, `http.host`, `ip.src`",
    ),
];

/// The name of the list, if a message about an expression says that a list does not exist.
pub(super) fn missing_list(message: &str) -> Option<&str> {
    message.strip_prefix("there is no list `$")?.strip_suffix('`')
}

/// The first text that an expression compares with the host although no host can equal it: the text's place,
/// the reason, and the correct spelling.
fn strange_host(text: &str) -> Option<(Range<usize>, &'static str, Vec<u8>)> {
    let mut words = words(text).peekable();
    while let Some((word, _)) = words.next() {
        if word != Word::Name("http.host") {
            continue;
        }
        let whole = match words.next()?.0 {
            Word::Name("eq" | "ne" | "in") | Word::Symbol("==" | "!=") => true,
            Word::Name("contains") => false,
            _ => continue,
        };
        words.next_if(|(word, _)| *word == Word::Symbol("{"));
        while let Some((Word::Text(host), span)) = words.next_if(|(word, _)| matches!(word, Word::Text(_))) {
            if let Some((message, written)) = strangeness(&host, whole) {
                return Some((span, message, written));
            }
        }
    }
    None
}

/// The reason why a host never matches, and the correct spelling. `whole` is false if the text is only a part
/// of a host.
fn strangeness(host: &[u8], whole: bool) -> Option<(&'static str, Vec<u8>)> {
    if host.iter().any(u8::is_ascii_uppercase) {
        return Some(("a host is in small letters here", host.to_ascii_lowercase()));
    }
    if !whole {
        return None;
    }
    let colon = host.iter().rposition(|byte| *byte == b':');
    if let Some((name, [b':', port @ ..])) = colon.map(|at| host.split_at(at))
        && port.iter().all(u8::is_ascii_digit)
        && (name.ends_with(b"]") || !name.contains(&b':'))
    {
        return Some(("a host has no port here", name.to_vec()));
    }
    host.strip_suffix(b".").map(|name| ("a host has no dot at its end here", name.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_no_request_has_are_found() {
        for (text, strange, message, written) in [
            (
                "ssl and http.host eq \"A.example\" or ssl",
                "A.example",
                "a host is in small letters here",
                "a.example",
            ),
            ("http.host in {\"a\" \"B\"}", "B", "a host is in small letters here", "b"),
            ("http.host contains \"A.\"", "A.", "a host is in small letters here", "a."),
            ("http.host==r#\"a.example.\"#", "a.example.", "a host has no dot at its end here", "a.example"),
            ("ssl or http.host != \"a:8080\"", "a:8080", "a host has no port here", "a"),
            ("http.host in {\"a\" \"[::1]:8080\"}", "[::1]:8080", "a host has no port here", "[::1]"),
        ] {
            let (span, found, fits) = strange_host(text).expect(text);
            assert_eq!(text[span].trim_matches(['r', '#', '"']), strange, "{text}");
            assert_eq!((found, &*fits), (message, written.as_bytes()), "{text}");
        }
        for fine in [
            "http.host eq \"a\" and http.cookie eq \"A\"",
            "http.host wildcard \"*.A\"",
            "upper(http.host) eq \"A\"",
            "http.host in $A",
            "http.host eq \"",
            "http.host contains \"a.\" or http.host contains \":80\"",
            "http.host eq \"[2001:db8::1]\" or http.host eq \"a\"",
            "http.referer eq \"http.host eq 'A.'\"",
            "http.host",
        ] {
            assert_eq!(strange_host(fine), None, "{fine}");
        }
    }

    #[test]
    fn parts_of_a_text_are_found_in_its_literal() {
        assert_eq!(inside("\"ab cd\"", "ab cd", &(3..5)), Some(4..6));
        assert_eq!(inside("##\"ab \"cd\"##", "ab \"cd", &(3..6)), Some(6..9));
        assert_eq!(inside("word", "word", &(1..2)), Some(1..2));
        assert_eq!(inside("\"a b\"", "a b", &(3..3)), Some(4..5), "the end");
        assert_eq!(inside("\"a\\\"b\"", "a\"b", &(0..1)), Some(1..2), "before an escape");
        assert_eq!(inside("\"a\\\"b\"", "a\"b", &(2..3)), Some(4..5), "behind an escape");
        assert_eq!(inside("\"a\\u0022bc\"", "a\"bc", &(2..4)), Some(8..10), "one of JSON");
        assert_eq!(inside("\"\\u{e9}\\n\\  b\"", "é\nb", &(3..4)), Some(9..13), "several of KDL");
        assert_eq!(inside("#\"a\\nb\"#", "a\\nb", &(3..4)), Some(5..6), "none in a raw string");
        assert_eq!(inside("\"${env:X} b\"", "value b", &(6..7)), None, "behind a reference");
        let lines = "\"\"\"\n  ab\n    c\r\n\n  d\\te\n  \"\"\"";
        for (part, start, length) in
            [(0..2, 6, 2), (3..6, 11, 3), (5..6, 13, 1), (8..9, 19, 1), (9..10, 20, 2)]
        {
            let expected = Some(start..start + length);
            assert_eq!(inside(lines, "ab\n  c\n\nd\te", &part), expected, "{part:?}");
        }
        let raw = "#\"\"\"\n\t\"a\" \\\n\tb\n\t\"\"\"#";
        assert_eq!(inside(raw, "\"a\" \\\nb", &(6..7)), Some(13..14));
        assert_eq!(inside("", "a", &(0..1)), None);
    }
}

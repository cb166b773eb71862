//! Reading files of cases.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::line::Line;
use super::{Assert, Capture, Case, CaseError, Predicate, Query, nearest, predicate};

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY"];
const REQUEST_SECTIONS: [&str; 4] = ["Query", "Form", "Cookies", "BasicAuth"];
const ANSWER_SECTIONS: [&str; 2] = ["Captures", "Asserts"];
/// The most entries of a file.
const CASES_MOST: usize = 100_000;

/// Reads the cases of a file.
///
/// # Errors
///
/// The first error, with its place.
pub fn read(text: &str) -> Result<Vec<Case>, CaseError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader =
        Reader { lines: text.lines().enumerate().map(|(at, text)| (at + 1, text)).collect(), at: 0 };
    let mut cases = Vec::new();
    while reader.skip_empty() {
        if cases.len() == CASES_MOST {
            return Err(reader.here().error(format!("more than {CASES_MOST} entries in a file")));
        }
        cases.push(reader.case()?);
    }
    Ok(cases)
}

struct Reader<'t> {
    lines: Vec<(usize, &'t str)>,
    at: usize,
}

/// Returns true if a line begins with a known method, or with another word in capital letters before a space.
fn begins_request(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default();
    METHODS.contains(&word)
        || word.len() >= 3
            && word.bytes().all(|byte| byte.is_ascii_uppercase())
            && !word.starts_with("HTTP")
            && text.contains(' ')
}

fn begins_answer(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default();
    word == "HTTP" || word.starts_with("HTTP/")
}

impl<'t> Reader<'t> {
    fn here(&self) -> Line<'t> {
        let (number, text) = self.lines.get(self.at).copied().unwrap_or((self.lines.len() + 1, ""));
        Line::new(number, text)
    }

    /// Skips comments and empty lines; `false` at the end.
    fn skip_empty(&mut self) -> bool {
        while let Some((_, text)) = self.lines.get(self.at) {
            let text = text.trim();
            if !text.is_empty() && !text.starts_with('#') {
                return true;
            }
            self.at += 1;
        }
        false
    }

    fn case(&mut self) -> Result<Case, CaseError> {
        let mut line = self.here();
        let number = line.number;
        line.skip_spaces();
        let start = line;
        let method = line.word();
        if begins_answer(start.rest()) {
            return Err(start
                .error("an answer without a request")
                .help("a request stands before it: GET http://host/path"));
        }
        let is_misspelt = !METHODS.contains(&method)
            && METHODS.iter().any(|known| strsim::damerau_levenshtein(known, method) == 1);
        let is_method = !is_misspelt && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
        if !is_method || method.is_empty() {
            let error = start.error(format!("`{method}` begins no request"));
            return Err(error.help(nearest(method, &METHODS)));
        }
        line.skip_spaces();
        let at = line;
        let url = line.word().to_owned();
        if !(url.starts_with("http://")
            || url.starts_with("https://")
            || url.starts_with('/')
            || url.starts_with("{{"))
        {
            let error = at.error(if url.is_empty() {
                "a URL is missing".to_owned()
            } else {
                format!("`{url}` is no URL")
            });
            return Err(error.help("write http://host/path, or /path for the host of the system"));
        }
        line.end()?;
        self.at += 1;
        let mut case = Case {
            line: number,
            method: method.to_owned(),
            url,
            fields: Vec::new(),
            body: Vec::new(),
            body_is_text: true,
            status: None,
            asserts: Vec::new(),
            captures: Vec::new(),
        };
        case.fields = self.fields()?;
        self.request_sections(&mut case)?;
        if let Some((body, is_text)) = self.body()? {
            (case.body, case.body_is_text) = (body, is_text);
        }
        if self.skip_empty() && begins_answer(self.here().rest().trim_start()) {
            self.answer(&mut case)?;
        }
        Ok(case)
    }

    /// Reads lines of the form `Name: value` up to the first other line.
    fn fields(&mut self) -> Result<Vec<(String, String)>, CaseError> {
        let mut fields = Vec::new();
        while self.skip_empty() {
            let line = self.here();
            let text = line.rest().trim();
            if text.starts_with(['[', '{', '"', '`', '<']) || begins_answer(text) || begins_request(text) {
                break;
            }
            let Some((name, value)) = text.split_once(':') else {
                if text.starts_with("base64,") || text.starts_with("hex,") || text.starts_with("file,") {
                    break;
                }
                let error = line.error(format!("`{text}` is neither a field nor anything else of an entry"));
                return Err(error.help("a field is written `Name: value`"));
            };
            let name = name.trim();
            let is_token = !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(&byte));
            if !is_token {
                if name.contains("{{") {
                    break;
                }
                return Err(line.error(format!("`{name}` is no name of a field")));
            }
            fields.push((name.to_owned(), value.trim().to_owned()));
            self.at += 1;
        }
        Ok(fields)
    }

    /// The name of the section that begins here.
    fn section(&mut self) -> Option<(&'t str, Line<'t>)> {
        if !self.skip_empty() {
            return None;
        }
        let mut line = self.here();
        line.skip_spaces();
        let text = line.rest().trim_end();
        // Other lines in brackets may be a body: a JSON array.
        let name = text.strip_prefix('[')?.strip_suffix(']')?;
        (!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic())).then_some((name, line))
    }

    fn request_sections(&mut self, case: &mut Case) -> Result<(), CaseError> {
        while let Some((name, line)) = self.section() {
            self.at += 1;
            match name {
                "Query" | "QueryStringParams" => {
                    let mark = if case.url.contains('?') { '&' } else { '?' };
                    case.url.push(mark);
                    let pairs = self.pairs()?;
                    case.url.push_str(&encoded(&pairs));
                }
                "Form" | "FormParams" => {
                    let pairs = self.pairs()?;
                    case.body = encoded(&pairs).into_bytes();
                    case.fields.push(("Content-Type".into(), "application/x-www-form-urlencoded".into()));
                }
                "Cookies" => {
                    let pairs = self.pairs()?;
                    let pairs: Vec<_> =
                        pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
                    case.fields.push(("Cookie".into(), pairs.join("; ")));
                }
                "BasicAuth" => {
                    let pairs = self.pairs()?;
                    let (user, password) =
                        pairs.first().ok_or_else(|| line.error("`user: password` is missing"))?;
                    let token = BASE64_STANDARD.encode(format!("{user}:{password}"));
                    case.fields.push(("Authorization".into(), format!("Basic {token}")));
                }
                "Options" => {
                    let error = line.error("`[Options]` is not supported");
                    return Err(error
                        .help("redirects are not followed; an address is given by --to, --old and --new"));
                }
                other => {
                    let error = line.error(format!("unknown section `[{other}]` of a request"));
                    return Err(error.help(nearest(other, &REQUEST_SECTIONS)));
                }
            }
        }
        Ok(())
    }

    fn pairs(&mut self) -> Result<Vec<(String, String)>, CaseError> {
        let mut pairs = Vec::new();
        while self.skip_empty() {
            let text = self.here().rest().trim();
            if text.starts_with(['[', '{', '"', '`', '<']) || begins_answer(text) || begins_request(text) {
                break;
            }
            let (name, value) =
                text.split_once(':').ok_or_else(|| self.here().error("expected `name: value`"))?;
            pairs.push((name.trim().to_owned(), value.trim().to_owned()));
            self.at += 1;
        }
        Ok(pairs)
    }

    /// Reads a body. The second value is true if templates are replaced in it.
    fn body(&mut self) -> Result<Option<(Vec<u8>, bool)>, CaseError> {
        if !self.skip_empty() {
            return Ok(None);
        }
        let line = self.here();
        let text = line.rest().trim();
        if text.starts_with("```") {
            return self.block().map(Some);
        }
        if let Some(inner) = text.strip_prefix('`').and_then(|text| text.strip_suffix('`')) {
            self.at += 1;
            return Ok(Some((inner.as_bytes().to_vec(), true)));
        }
        for (start, is_hex) in [("base64,", false), ("hex,", true)] {
            let Some(inner) = text.strip_prefix(start) else { continue };
            let Some(inner) = inner.strip_suffix(';') else {
                return Err(line.error("`;` is missing at its end"));
            };
            let bytes = if is_hex { from_hex(inner) } else { BASE64_STANDARD.decode(inner.trim()).ok() };
            self.at += 1;
            return bytes
                .map(|bytes| Some((bytes, false)))
                .ok_or_else(|| line.error(format!("not in the form of `{start}`")));
        }
        if text.starts_with("file,") {
            return Err(line
                .error("bodies in files are not supported")
                .help("write the body itself, or base64,...;"));
        }
        if text.starts_with(['{', '[', '"']) {
            return self.json().map(|body| Some((body, true)));
        }
        Ok(None)
    }

    /// Reads a body that stands between two lines of three backticks.
    fn block(&mut self) -> Result<(Vec<u8>, bool), CaseError> {
        let start = self.here();
        self.at += 1;
        let mut body = String::new();
        while let Some((_, text)) = self.lines.get(self.at) {
            self.at += 1;
            if text.trim_end() == "```" {
                return Ok((body.into_bytes(), true));
            }
            body.push_str(text);
            body.push('\n');
        }
        Err(start.error("the body does not end").help("close it with a line of three backticks"))
    }

    /// Reads a JSON value of one or more lines. Its syntax is not checked if it has templates.
    fn json(&mut self) -> Result<Vec<u8>, CaseError> {
        let start = self.here();
        let mut body = String::new();
        let mut depth = 0i64;
        let (mut quoted, mut escaped) = (false, false);
        while let Some((_, text)) = self.lines.get(self.at) {
            if !body.is_empty() {
                body.push('\n');
            }
            body.push_str(text.trim_end());
            self.at += 1;
            for c in text.chars() {
                match c {
                    _ if escaped => escaped = false,
                    '\\' if quoted => escaped = true,
                    '"' => quoted = !quoted,
                    '{' | '[' if !quoted => depth += 1,
                    '}' | ']' if !quoted => depth -= 1,
                    _ => {}
                }
            }
            if depth <= 0 && !quoted {
                let has_templates = body.contains("{{");
                if !has_templates
                    && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(body.trim())
                {
                    let (line, column) = (start.number + error.line().max(1) - 1, error.column().max(1));
                    return Err(CaseError::new(line, column, format!("the body is no JSON: {error}")));
                }
                return Ok(body.trim().as_bytes().to_vec());
            }
        }
        Err(start.error("the body does not end").help("a bracket or a quote of its JSON is not closed"))
    }

    fn answer(&mut self, case: &mut Case) -> Result<(), CaseError> {
        let mut line = self.here();
        line.word();
        line.skip_spaces();
        let at = line;
        let word = line.word();
        case.status = match word {
            "*" | "" => None,
            word => Some(word.parse::<u16>().ok().filter(|status| (100..1000).contains(status)).ok_or_else(
                || {
                    at.error(format!("`{word}` is no status"))
                        .help("write a number such as 200, or `*` for any")
                },
            )?),
        };
        line.end()?;
        self.at += 1;
        let number = line.number;
        for (at, (name, value)) in self.fields()?.into_iter().enumerate() {
            case.asserts.push(Assert {
                line: number + 1 + at,
                query: Query::Header(name),
                count: false,
                not: false,
                predicate: Predicate::Equal(value.into()),
            });
        }
        while let Some((name, line)) = self.section() {
            self.at += 1;
            match name {
                "Asserts" => {
                    self.entries(|line| predicate::assert(line).map(|assert| case.asserts.push(assert)))?;
                }
                "Captures" => {
                    self.entries(|line| capture(line).map(|capture| case.captures.push(capture)))?;
                }
                other => {
                    let error = line.error(format!("unknown section `[{other}]` of an answer"));
                    return Err(error.help(nearest(other, &ANSWER_SECTIONS)));
                }
            }
        }
        if let Some((body, _)) = self.body()? {
            let text = String::from_utf8(body).map_err(|_| line.error("the expected body is no text"))?;
            let (query, predicate) = (Query::Body, Predicate::Equal(text.into()));
            case.asserts.push(Assert { line: number, query, count: false, not: false, predicate });
        }
        Ok(())
    }

    /// Passes the lines of a section to `entry`, up to the first other line.
    fn entries(&mut self, mut entry: impl FnMut(Line<'t>) -> Result<(), CaseError>) -> Result<(), CaseError> {
        while self.skip_empty() {
            let text = self.here().rest().trim();
            if text.starts_with(['[', '{', '"', '`', '<'])
                || begins_request(text)
                || text.starts_with("base64,")
                || text.starts_with("hex,")
            {
                break;
            }
            entry(self.here())?;
            self.at += 1;
        }
        Ok(())
    }
}

fn capture(mut line: Line<'_>) -> Result<Capture, CaseError> {
    line.skip_spaces();
    let start = line;
    let word = line.word();
    let name = word.strip_suffix(':').ok_or_else(|| start.error("expected `name: query`"))?;
    if name.is_empty()
        || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    {
        return Err(start.error(format!("`{name}` is no name of a variable")));
    }
    let query = predicate::query(&mut line)?;
    line.end()?;
    Ok(Capture { line: line.number, name: name.to_owned(), query })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let text = text.trim();
    if !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len() / 2).map(|at| u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()).collect()
}

/// Encodes the pairs of a form. Texts with templates stay as they are.
fn encoded(pairs: &[(String, String)]) -> String {
    let encode = |text: &str| -> String {
        if text.contains("{{") {
            return text.to_owned();
        }
        let bytes = text.bytes().map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        });
        bytes.collect()
    };
    let pairs: Vec<_> =
        pairs.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    pairs.join("&")
}

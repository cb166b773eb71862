//! The regression files: YAML to cases.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use saphyr::{LoadableYamlNode, Scalar, Yaml};

/// The largest number of deviations that may be committed.
const OVERRIDES: usize = 10;

/// One case: requests one after the other, each judged for itself.
#[derive(Debug)]
pub struct Case {
    /// The rule and the case's number: `920100-1`.
    pub name: String,
    /// Its requests.
    pub stages: Vec<Stage>,
}

/// A request, and what is expected of it.
#[derive(Debug)]
pub struct Stage {
    /// The bytes to send.
    pub request: Vec<u8>,
    /// What is to come of it.
    pub expected: Expected,
}

/// What is expected of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    /// The status; `None` where any is fine.
    pub status: Option<u16>,
    /// No response that an ordinary client could read.
    pub error: bool,
    /// Rules that match.
    pub ids: Vec<u64>,
    /// Rules that do not.
    pub no_ids: Vec<u64>,
    /// A pattern that a line of the log matches.
    pub log: Option<String>,
    /// A pattern that none does.
    pub no_log: Option<String>,
}

/// A deviation: what is expected instead, and why.
#[derive(Debug)]
pub struct Override {
    /// The name of the case.
    pub case: String,
    /// Why.
    pub reason: String,
    /// What is expected of each of its requests instead.
    pub expected: Expected,
}

/// Reads all files under a folder, in the order of their paths.
///
/// # Errors
///
/// A folder or file that cannot be read, or that is not what it should be.
pub fn read(folder: &Path) -> Result<Vec<Case>, String> {
    let mut files = Vec::new();
    list(folder, &mut files)?;
    files.sort();
    let mut cases = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        cases_of(&text, &mut cases).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(cases)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    Ok(())
}

fn cases_of(text: &str, cases: &mut Vec<Case>) -> Result<(), String> {
    // Some files only say in a comment why a rule has no cases.
    if text.lines().all(|line| line.trim().is_empty() || line.starts_with(['#', '-'])) {
        return Ok(());
    }
    let document = document(text)?;
    let rule = required(&document, "rule_id")?;
    for test in items(&document, "tests") {
        let name = format!("{rule}-{}", required(test, "test_id")?);
        let stages = items(test, "stages").map(stage).collect::<Result<Vec<_>, _>>();
        let stages = stages.map_err(|error| format!("{name}: {error}"))?;
        if stages.is_empty() {
            return Err(format!("{name} has no stages"));
        }
        cases.push(Case { name, stages });
    }
    Ok(())
}

fn stage(stage: &Yaml<'_>) -> Result<Stage, String> {
    let input = get(stage, "input").ok_or("a stage without `input`")?;
    let output = get(stage, "output").ok_or("a stage without `output`")?;
    Ok(Stage { request: request(input)?, expected: expected(output)? })
}

/// The deviations of a file: a list of `case`, `reason`, `output`.
///
/// # Errors
///
/// The file cannot be read, or has an entry without a reason, or too many.
pub fn overrides(file: &Path) -> Result<Vec<Override>, String> {
    let named = |error: String| format!("{}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
    let document = document(&text).map_err(named)?;
    let mut overrides = Vec::new();
    for entry in items(&document, "overrides") {
        let case = required(entry, "case").map_err(named)?;
        let reason = required(entry, "reason").map_err(named)?;
        let output = get(entry, "output").ok_or_else(|| named(format!("{case} has no `output`")))?;
        overrides.push(Override { case, reason, expected: expected(output).map_err(named)? });
    }
    if overrides.len() > OVERRIDES {
        return Err(named(format!("{} deviations, and at most {OVERRIDES} are allowed", overrides.len())));
    }
    Ok(overrides)
}

fn expected(output: &Yaml<'_>) -> Result<Expected, String> {
    let mut expected = Expected::default();
    let Yaml::Mapping(map) = output else { return Ok(expected) };
    for (key, value) in map {
        match text(key)?.as_str() {
            "status" => expected.status = Some(number(value)?),
            "expect_error" => expected.error = text(value)? == "true",
            // Nothing is judged before the log is complete.
            "retry_once" => {}
            "log" => expected_log(value, &mut expected)?,
            other => return Err(format!("`{other}` in an output is not understood")),
        }
    }
    Ok(expected)
}

fn expected_log(log: &Yaml<'_>, expected: &mut Expected) -> Result<(), String> {
    let Yaml::Mapping(map) = log else { return Err("`log` has no keys".into()) };
    for (key, value) in map {
        let numbers = || match value {
            Yaml::Sequence(list) => list.iter().map(number).collect(),
            one => Ok(vec![number(one)?]),
        };
        match text(key)?.as_str() {
            "expect_ids" => expected.ids = numbers()?,
            "no_expect_ids" => expected.no_ids = numbers()?,
            "match_regex" => expected.log = Some(text(value)?),
            "no_match_regex" => expected.no_log = Some(text(value)?),
            other => return Err(format!("`{other}` in a log is not understood")),
        }
    }
    Ok(())
}

/// What an input describes, as the bytes that a client sends. What it leaves out is filled in as the official runner does.
fn request(input: &Yaml<'_>) -> Result<Vec<u8>, String> {
    let optional = |key: &str| get(input, key).map(text).transpose();
    for key in keys(input) {
        let known = [
            "dest_addr",
            "port",
            "protocol",
            "method",
            "uri",
            "version",
            "headers",
            "data",
            "encoded_request",
            "autocomplete_headers",
        ];
        if !known.contains(&key.as_str()) {
            return Err(format!("`{key}` in an input is not understood"));
        }
    }
    if let Some(encoded) = optional("encoded_request")? {
        let encoded: String = encoded.chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
        return STANDARD.decode(encoded).map_err(|error| format!("encoded_request: {error}"));
    }
    let method = optional("method")?.unwrap_or_else(|| "GET".into());
    let uri = optional("uri")?.unwrap_or_else(|| "/".into());
    let version = optional("version")?.unwrap_or_else(|| "HTTP/1.1".into());
    let mut data = optional("data")?.unwrap_or_default().into_bytes();
    let complete = optional("autocomplete_headers")?.is_none_or(|complete| complete != "false");
    let mut headers = Vec::new();
    if let Some(Yaml::Mapping(map)) = get(input, "headers") {
        for (name, value) in map {
            headers.push((text(name)?, text(value)?));
        }
    }
    let has = |headers: &[(String, String)], name: &str, part: &str| {
        let fits = |(found, value): &(String, String)| {
            found.eq_ignore_ascii_case(name) && value.to_ascii_lowercase().contains(part)
        };
        headers.iter().any(fits)
    };
    if complete && !data.is_empty() {
        if !has(&headers, "content-type", "") {
            headers.push(("Content-Type".into(), "application/x-www-form-urlencoded".into()));
        }
        let form = |(name, value): &(String, String)| {
            name.eq_ignore_ascii_case("content-type")
                && value.eq_ignore_ascii_case("application/x-www-form-urlencoded")
        };
        if headers.iter().any(form) && unescape(&data).as_deref() == Some(&data) {
            data = escape_form(&data);
        }
    }
    if has(&headers, "content-type", "multipart/form-data;") {
        data = String::from_utf8_lossy(&data).replace('\n', "\r\n").into_bytes();
    }
    if complete {
        if !has(&headers, "connection", "") {
            headers.push(("Connection".into(), "close".into()));
        }
        // The official runner looks for these anywhere in the method but for the first and the last.
        let bodied = method.starts_with("POST")
            || method.contains("PUT")
            || method.contains("PATCH")
            || method.ends_with("DELETE");
        if (bodied || !data.is_empty()) && !has(&headers, "content-length", "") {
            headers.push(("Content-Length".into(), data.len().to_string()));
        }
    }
    let mut request = format!("{method} {uri} {version}\r\n").into_bytes();
    for (name, value) in headers {
        request.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(&data);
    Ok(request)
}

/// A query without its escapes; `None` where one is broken.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match first {
            b'+' => plain.push(b' '),
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                plain.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &rest[2..];
            }
            other => plain.push(*other),
        }
    }
    Some(plain)
}

/// A form with the names and values of this one, escaped.
fn escape_form(data: &[u8]) -> Vec<u8> {
    let mut form = Vec::new();
    // One separator at the end stands for none.
    let data = data.strip_suffix(b"&").unwrap_or(data);
    for (number, pair) in data.split(|byte| *byte == b'&').enumerate() {
        if number > 0 {
            form.push(b'&');
        }
        let mut parts = pair.splitn(2, |byte| *byte == b'=');
        escape(parts.next().unwrap_or_default(), &mut form);
        if let Some(value) = parts.next() {
            form.push(b'=');
            escape(value, &mut form);
        }
    }
    form
}

fn escape(text: &[u8], into: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b' ' => into.push(b'+'),
            b'-' | b'_' | b'.' | b'~' => into.push(*byte),
            byte if byte.is_ascii_alphanumeric() => into.push(*byte),
            byte => into.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
}

fn document(text: &str) -> Result<Yaml<'_>, String> {
    let documents = Yaml::load_from_str(text).map_err(|error| error.to_string())?;
    documents.into_iter().next().ok_or_else(|| "it is empty".into())
}

fn get<'y>(yaml: &'y Yaml<'y>, key: &str) -> Option<&'y Yaml<'y>> {
    let Yaml::Mapping(map) = yaml else { return None };
    map.iter().find(|(found, _)| text(found).is_ok_and(|found| found == key)).map(|(_, value)| value)
}

fn keys(yaml: &Yaml<'_>) -> Vec<String> {
    let Yaml::Mapping(map) = yaml else { return Vec::new() };
    map.iter().filter_map(|(key, _)| text(key).ok()).collect()
}

fn items<'y>(yaml: &'y Yaml<'y>, key: &str) -> impl Iterator<Item = &'y Yaml<'y>> {
    match get(yaml, key) {
        Some(Yaml::Sequence(list)) => list.iter(),
        _ => [].iter(),
    }
}

fn required(yaml: &Yaml<'_>, key: &str) -> Result<String, String> {
    text(get(yaml, key).ok_or_else(|| format!("`{key}` is missing"))?)
}

fn text(yaml: &Yaml<'_>) -> Result<String, String> {
    match yaml {
        Yaml::Value(Scalar::String(text)) => Ok(text.to_string()),
        Yaml::Value(Scalar::Integer(number)) => Ok(number.to_string()),
        Yaml::Value(Scalar::Boolean(flag)) => Ok(flag.to_string()),
        Yaml::Value(Scalar::Null) => Ok(String::new()),
        other => Err(format!("a text was expected, not {other:?}")),
    }
}

fn number<N: std::str::FromStr>(yaml: &Yaml<'_>) -> Result<N, String> {
    let text = text(yaml)?;
    text.parse().map_err(|_| format!("a number was expected, not {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request_of(input: &str) -> String {
        let text = format!("input:\n{input}\n");
        let document = document(&text).unwrap();
        String::from_utf8(request(get(&document, "input").unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn what_a_case_leaves_out_is_filled_in() {
        assert_eq!(request_of("  uri: /a"), "GET /a HTTP/1.1\r\nConnection: close\r\n\r\n");
        assert_eq!(
            request_of("  method: POST\n  headers:\n    Host: h\n  data: a=b c&d"),
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-www-form-urlencoded\r\nConnection: close\r\n\
             Content-Length: 7\r\n\r\na=b+c&d"
        );
        // What is escaped already stays.
        assert!(request_of("  data: a=%41 b").ends_with("\r\n\r\na=%41 b"));
        let bare = request_of("  autocomplete_headers: false\n  version: ''\n  data: a=b c");
        assert_eq!(bare, "GET / \r\n\r\na=b c");
        assert_eq!(request_of("  encoded_request: R0VU\n"), "GET");
    }

    #[test]
    fn keys_that_are_not_understood_are_told() {
        let text = "input:\n  urI: /a\n";
        let document = document(text).unwrap();
        assert_eq!(
            request(get(&document, "input").unwrap()).unwrap_err(),
            "`urI` in an input is not understood"
        );
    }
}

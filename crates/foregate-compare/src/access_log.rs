//! Requests of access logs: our JSON, and the format `combined` of NGINX.

use serde::Deserialize;

use crate::case::Case;

/// A line of our access log.
#[derive(Debug, Deserialize)]
struct LogLine {
    method: String,
    #[serde(default)]
    scheme: Option<String>,
    #[serde(default)]
    host: Option<String>,
    path: String,
    #[serde(default)]
    user_agent: Option<String>,
    #[serde(default)]
    referer: Option<String>,
}

/// Reads a line. `None` if it is empty.
///
/// # Errors
///
/// The line is in neither format.
pub fn read(text: &str, number: usize) -> Result<Option<Case>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    if text.starts_with('{') {
        let line: LogLine =
            serde_json::from_str(text).map_err(|error| format!("no line of our access log: {error}"))?;
        let host = line.host.filter(|host| !host.is_empty());
        let url = match host {
            Some(host) if line.path.starts_with('/') => {
                format!("{}://{host}{}", line.scheme.as_deref().unwrap_or("http"), line.path)
            }
            _ => line.path,
        };
        return Ok(Some(case(number, line.method, url, line.user_agent, line.referer)));
    }
    combined(text, number)
        .map(Some)
        .ok_or_else(|| "neither a line of our access log nor one of NGINX's combined format".to_owned())
}

/// `client - user [time] "GET /path HTTP/1.1" 200 123 "referer" "agent"`
fn combined(text: &str, number: usize) -> Option<Case> {
    let (_, behind) = text.split_once("] \"")?;
    let (request, behind) = behind.split_once("\" ")?;
    let mut words = request.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    if !is_method || !target.starts_with('/') && !target.starts_with("http") {
        return None;
    }
    behind.split(' ').next()?.parse::<u16>().ok()?;
    let mut quoted =
        behind.split('"').skip(1).step_by(2).map(|value| (value != "-").then(|| unescaped(value)));
    let (referer, agent) = (quoted.next().flatten(), quoted.next().flatten());
    Some(case(number, method.to_owned(), unescaped(target), agent, referer))
}

/// Resolves `\xHH`, which NGINX writes for bytes that could end a value.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        match behind.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.extend_from_slice(b"\\x");
                rest = behind;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

fn case(line: usize, method: String, url: String, agent: Option<String>, referer: Option<String>) -> Case {
    let fields = [("User-Agent", agent), ("Referer", referer)];
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Case {
        line,
        method,
        url,
        fields: fields.collect(),
        body: Vec::new(),
        body_is_text: false,
        status: None,
        asserts: Vec::new(),
        captures: Vec::new(),
    }
}

//! Requests read from the lines of an access log.

use std::borrow::Cow;
use std::net::IpAddr;

use foregate_wire::date::CalendarDay;
use serde::Deserialize;

/// The longest line in bytes; a longer one counts as no request.
pub(super) const LINE_LIMIT: usize = 256 * 1024;

/// The parts of requests that a log does not name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Assumed<'a> {
    pub host: Option<&'a str>,
    pub secure: bool,
}

/// A request with the parts that its log line has.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct LoggedRequest {
    pub client: Option<IpAddr>,
    pub method: String,
    pub secure: bool,
    pub host: String,
    pub target: String,
    pub protocol: String,
    pub body: u64,
    pub tls: Option<String>,
    pub user_agent: Option<String>,
    pub referer: Option<String>,
    /// Further header fields; empty for a request from a log.
    pub fields: Vec<(String, String)>,
    /// Milliseconds since the start of 1970, UTC; 0 if the line has no time.
    pub unix_ms: u64,
}

/// The reason why no request can be read from a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRequest {
    /// The line has another format, or it is about bytes that were no valid request.
    Other,
    /// The line names no host, and the command line gives none.
    NoHost,
}

/// The JSON of our own access log; other fields are skipped.
#[derive(Debug, Deserialize)]
struct JsonLine<'a> {
    #[serde(borrow, default)]
    time: Cow<'a, str>,
    client: Option<IpAddr>,
    #[serde(borrow, default)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    scheme: Option<Cow<'a, str>>,
    #[serde(borrow)]
    host: Option<Cow<'a, str>>,
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(borrow, default)]
    protocol: Cow<'a, str>,
    #[serde(default)]
    bytes_in: u64,
    #[serde(borrow)]
    tls: Option<Cow<'a, str>>,
    #[serde(borrow)]
    user_agent: Option<Cow<'a, str>>,
    #[serde(borrow)]
    referer: Option<Cow<'a, str>>,
}

/// Reads a line of either format.
///
/// # Errors
///
/// The line has no request.
pub(super) fn read(line: &[u8], assumed: &Assumed<'_>) -> Result<LoggedRequest, NoRequest> {
    let line = String::from_utf8_lossy(line.trim_ascii());
    let request = if line.starts_with('{') { json(&line, assumed) } else { combined(&line, assumed) }?;
    if request.method.is_empty() || request.target.is_empty() {
        return Err(NoRequest::Other);
    }
    Ok(request)
}

fn json(line: &str, assumed: &Assumed<'_>) -> Result<LoggedRequest, NoRequest> {
    let line: JsonLine<'_> = serde_json::from_str(line).map_err(|_| NoRequest::Other)?;
    let host = line.host.as_deref().filter(|host| !host.is_empty()).or(assumed.host);
    Ok(LoggedRequest {
        client: line.client,
        secure: line.scheme.as_deref().map_or(assumed.secure, |scheme| scheme == "https"),
        host: host.ok_or(NoRequest::NoHost)?.to_owned(),
        target: line.path.into_owned(),
        method: line.method.into_owned(),
        protocol: if line.protocol.is_empty() { "HTTP/1.1".into() } else { line.protocol.into_owned() },
        body: line.bytes_in,
        tls: line.tls.map(Cow::into_owned),
        user_agent: line.user_agent.map(Cow::into_owned),
        referer: line.referer.map(Cow::into_owned),
        fields: Vec::new(),
        unix_ms: rfc3339(&line.time).unwrap_or_default(),
    })
}

/// Reads a line in NGINX's format `combined`:
/// `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`.
/// The last two may be missing; further text is skipped.
fn combined(line: &str, assumed: &Assumed<'_>) -> Result<LoggedRequest, NoRequest> {
    let (client, rest) = line.split_once(' ').ok_or(NoRequest::Other)?;
    let (_, rest) = rest.split_once('[').ok_or(NoRequest::Other)?;
    let (time, rest) = rest.split_once(']').ok_or(NoRequest::Other)?;
    let mut quoted = rest.split('"').skip(1).step_by(2);
    let request = unescape(quoted.next().ok_or(NoRequest::Other)?);
    let referer = quoted.next().map(unescape).filter(|value| value != "-");
    let user_agent = quoted.next().map(unescape).filter(|value| value != "-");
    let mut words = request.split(' ');
    let (Some(method), Some(target), Some(protocol), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(NoRequest::Other);
    };
    if !protocol.starts_with("HTTP/") {
        return Err(NoRequest::Other);
    }
    let absolute =
        ["http://", "https://"].iter().find_map(|scheme| Some((*scheme, target.strip_prefix(scheme)?)));
    let (secure, host, target) = match absolute {
        Some((scheme, rest)) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            let path = if rest[end..].starts_with('/') {
                rest[end..].to_owned()
            } else {
                format!("/{}", &rest[end..])
            };
            (scheme == "https://", Some(&rest[..end]), path)
        }
        None => (assumed.secure, assumed.host, target.to_owned()),
    };
    Ok(LoggedRequest {
        client: client.parse().ok(),
        method: method.to_owned(),
        secure,
        host: host.ok_or(NoRequest::NoHost)?.to_owned(),
        target,
        protocol: if protocol == "HTTP/2.0" { "HTTP/2".to_owned() } else { protocol.to_owned() },
        body: 0,
        tls: secure.then(|| "TLSv1.3".to_owned()),
        user_agent,
        referer,
        fields: Vec::new(),
        unix_ms: common_time(time).unwrap_or_default(),
    })
}

/// Decodes `\xHH`, by which NGINX writes bytes that could break its format.
fn unescape(text: &str) -> String {
    if !text.contains("\\x") {
        return text.to_owned();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let byte = rest
            .strip_prefix(b"\\x")
            .and_then(|hex| hex.get(..2))
            .and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &rest[4..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Parses a time such as `2026-01-02T03:04:05.678Z`.
fn rfc3339(text: &str) -> Option<u64> {
    let part = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let ms = part(20, 23).unwrap_or_default();
    let seconds =
        seconds(part(0, 4)?, part(5, 7)?, part(8, 10)?, [part(11, 13)?, part(14, 16)?, part(17, 19)?])?;
    Some(seconds * 1000 + ms)
}

/// Parses a time such as `02/Jan/2026:03:04:05 +0100`.
fn common_time(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let part = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let month = MONTHS.iter().position(|month| text.get(3..6) == Some(*month))? as u64 + 1;
    let seconds = seconds(part(7, 11)?, month, part(0, 2)?, [part(12, 14)?, part(15, 17)?, part(18, 20)?])?;
    let offset = part(22, 24).unwrap_or_default() * 3600 + part(24, 26).unwrap_or_default() * 60;
    let utc =
        if text.get(21..22) == Some("-") { seconds.checked_add(offset) } else { seconds.checked_sub(offset) };
    Some(utc? * 1000)
}

/// Seconds since the start of 1970 of a date in the Gregorian calendar.
fn seconds(year: u64, month: u64, day: u64, [hour, minute, second]: [u64; 3]) -> Option<u64> {
    let days = CalendarDay { year, month, day }.days()?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Assumed<'_> = Assumed { host: None, secure: false };

    #[test]
    fn our_own_lines_are_read() {
        let line = r#"{"time":"2026-01-02T03:04:05.678Z","client":"192.0.2.7","method":"POST","scheme":"https","host":"a.example","path":"/x?y=\"1\"","protocol":"HTTP/2","status":200,"bytes_in":7,"notes":{"a":["b"]},"user_agent":"curl"}"#;
        let request = read(line.as_bytes(), &NOTHING).unwrap();
        assert_eq!((&*request.host, &*request.target, request.secure), ("a.example", "/x?y=\"1\"", true));
        assert_eq!((request.body, request.user_agent.as_deref()), (7, Some("curl")));
        assert_eq!(request.unix_ms, 1_767_323_045_678);
    }

    #[test]
    fn combined_lines_are_read() {
        let line = br#"192.0.2.7 - bob [02/Jan/2026:04:04:05 +0100] "GET /a\x22b?c HTTP/2.0" 200 12 "-" "a \x22quoted\x22 agent" extra"#;
        assert_eq!(read(line, &NOTHING), Err(NoRequest::NoHost));
        let request = read(line, &Assumed { host: Some("a.example"), secure: true }).unwrap();
        assert_eq!(
            (&*request.target, &*request.protocol, &*request.host),
            ("/a\"b?c", "HTTP/2", "a.example")
        );
        assert_eq!((request.referer, request.user_agent.as_deref()), (None, Some("a \"quoted\" agent")));
        assert_eq!(request.unix_ms, 1_767_323_045_000);
        let line = br#"- - - [x] "GET http://b.example?q HTTP/1.1" 200 12"#;
        let request = read(line, &NOTHING).unwrap();
        assert_eq!((&*request.host, &*request.target, request.client), ("b.example", "/?q", None));
    }

    #[test]
    fn other_lines_are_no_requests() {
        for line in [
            "",
            "x",
            "{",
            "{}",
            r#"1.1.1.1 - - [x] "\x16\x03\x01" 400 0 "-" "-""#,
            "a [",
            "a [b] \"",
            "{\"path\":1}",
        ] {
            assert!(read(line.as_bytes(), &NOTHING).is_err(), "{line}");
        }
    }
}

//! The request on which `foregate waf explain` runs the rules.

use std::path::Path;

use foregate_wire::{Method, Slashes, Target, normalize_path};

use super::super::files;

/// The largest file with a request, in bytes.
const MAX_REQUEST: usize = 64 << 20;

/// A request that need not be valid, because attacks often are not.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: Vec<u8>,
    pub(super) target: Vec<u8>,
    pub(super) protocol: Vec<u8>,
    pub(super) fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) body: Vec<u8>,
    /// True if the URL's scheme is `https`.
    pub(super) secure: bool,
}

impl Request {
    /// Reads the request in a file.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = files::read(path, MAX_REQUEST).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text).ok_or_else(|| format!("{}: it does not begin with a request line", path.display()))
    }

    /// The path and the query in the form that an origin would get; `None` if the target is invalid.
    pub(super) fn normal_target(&self) -> Option<(Vec<u8>, Option<&[u8]>)> {
        let method = Method::from_bytes(&self.method)?;
        let target = Target::parse(&method, &self.target).ok()?;
        let mut path = Vec::new();
        normalize_path(target.path, Slashes::Merge, &mut path).ok()?;
        Some((path, target.query))
    }

    /// Parses a request line, fields and a body. Lines may end in CRLF or in LF.
    fn parse(text: &[u8]) -> Option<Self> {
        let (line, mut rest) = cut(text);
        let mut parts = line.splitn(2, |byte| *byte == b' ');
        let method = parts.next().filter(|method| !method.is_empty())?.to_vec();
        let after = parts.next()?;
        // The target of an attack may contain spaces, so the protocol is after the last one.
        let space = after.iter().rposition(|byte| *byte == b' ');
        let (target, protocol) = match space.map(|at| after.split_at(at)) {
            Some((target, protocol)) if protocol.starts_with(b" HTTP/") => (target, &protocol[1..]),
            _ => (after, &b"HTTP/0.9"[..]),
        };
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let (line, after) = cut(rest);
            rest = after;
            if line.is_empty() {
                break;
            }
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
            let value = line.get(colon + 1..).unwrap_or_default().trim_ascii();
            fields.push((line[..colon].to_vec(), value.to_vec()));
        }
        let (target, protocol, body) = (target.to_vec(), protocol.to_vec(), rest.to_vec());
        Some(Self { method, target, protocol, fields, body, secure: false })
    }

    /// A request as a simple client would send it, with these fields and this body.
    pub(super) fn of(
        method: &str,
        url: &str,
        headers: &[String],
        data: Option<&str>,
    ) -> Result<Self, String> {
        let plain = url.split_once("://").map_or(url, |(_, plain)| plain);
        let (host, target) = plain.find(['/', '?']).map_or((plain, "/"), |at| plain.split_at(at));
        let target = if target.starts_with('?') { format!("/{target}") } else { target.to_owned() };
        let target = target.split('#').next().unwrap_or_default().as_bytes().to_vec();
        let body = match data.map(|data| (data, data.strip_prefix('@'))) {
            None => Vec::new(),
            Some((_, Some(file))) => {
                files::read(Path::new(file), MAX_REQUEST).map_err(|error| format!("{file}: {error}"))?
            }
            Some((data, None)) => data.as_bytes().to_vec(),
        };
        let mut fields = Vec::new();
        for header in headers {
            let Some((name, value)) = header.split_once(':') else {
                return Err(format!("`{header}` is no field: it is written `Name: value`"));
            };
            fields.push((name.trim().as_bytes().to_vec(), value.trim().as_bytes().to_vec()));
        }
        let length = body.len().to_string();
        let agent = concat!("foregate/", env!("CARGO_PKG_VERSION"));
        let mut defaults = vec![("Host", host), ("User-Agent", agent), ("Accept", "*/*")];
        if data.is_some() {
            defaults.push(("Content-Type", "application/x-www-form-urlencoded"));
            defaults.push(("Content-Length", &length));
        }
        for (name, value) in defaults {
            let said = |(known, _): &(Vec<u8>, Vec<u8>)| known.eq_ignore_ascii_case(name.as_bytes());
            if !fields.iter().any(said) {
                fields.push((name.into(), value.into()));
            }
        }
        let secure = url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
        Ok(Self { method: method.into(), target, protocol: b"HTTP/1.1".to_vec(), fields, body, secure })
    }
}

/// The first line without its end, and the rest.
fn cut(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| *byte == b'\n') {
        Some(end) => (text[..end].strip_suffix(b"\r").unwrap_or(&text[..end]), &text[end + 1..]),
        None => (text, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(request: &Request) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields: String =
            request.fields.iter().map(|(name, value)| format!("{}={};", text(name), text(value))).collect();
        format!(
            "{}|{}|{}|{fields}|{}",
            text(&request.method),
            text(&request.target),
            text(&request.protocol),
            text(&request.body)
        )
    }

    #[test]
    fn files_hold_requests() {
        let parsed = |text: &str| Request::parse(text.as_bytes()).map(|request| shown(&request));
        let whole = "POST /a?b HTTP/1.1\r\nHost: x\r\nA:  b c \r\nbroken\r\n\r\none\r\ntwo";
        assert_eq!(parsed(whole).as_deref(), Some("POST|/a?b|HTTP/1.1|Host=x;A=b c;broken=;|one\r\ntwo"));
        assert_eq!(parsed("GET /a b HTTP/1.0\n\n").as_deref(), Some("GET|/a b|HTTP/1.0||"));
        assert_eq!(parsed("GET /a b").as_deref(), Some("GET|/a b|HTTP/0.9||"));
        assert_eq!((parsed(""), parsed("GET"), parsed(" /a")), (None, None, None));
    }

    #[test]
    fn requests_are_made_of_a_url() {
        let made = |url: &str, headers: &[&str], data| {
            let headers: Vec<_> = headers.iter().map(|&header| header.to_owned()).collect();
            Request::of("GET", url, &headers, data).map(|request| shown(&request))
        };
        let agent = concat!("User-Agent=foregate/", env!("CARGO_PKG_VERSION"));
        assert_eq!(
            made("http://a:1/b?c#d", &[], None),
            Ok(format!("GET|/b?c|HTTP/1.1|Host=a:1;{agent};Accept=*/*;|"))
        );
        assert_eq!(
            made("a?c", &["host: b", "user-agent:", "Accept: x:y"], Some("d=e")),
            Ok("GET|/?c|HTTP/1.1|host=b;user-agent=;Accept=x:y;Content-Type=application/x-www-form-urlencoded;\
                Content-Length=3;|d=e"
                .to_owned())
        );
        assert!(made("a", &["b"], None).unwrap_err().contains("is no field"));
        assert!(made("a", &[], Some("@/none")).unwrap_err().contains("/none"));
    }
}

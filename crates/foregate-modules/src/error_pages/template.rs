//! Templates: texts with tokens in braces.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;

use foregate_module::Text;
use foregate_rules::Value as Shown;

/// The assumed length of a token's value, bytes.
const TOKEN_LENGTH: usize = 32;

/// How long the short form of a request id is, bytes.
const RAY: usize = 16;

/// The values of tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts<'r> {
    pub status: u16,
    /// The kind of an error of the proxy; empty for any other error.
    pub error: &'r str,
    pub host: &'r [u8],
    pub path: &'r [u8],
    pub client: Option<IpAddr>,
    pub request_id: &'r [u8],
    pub trace_id: &'r [u8],
}

/// The escaping of values, so that no value can become markup or code of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escape {
    /// Values are escaped for text and for attributes of HTML.
    Html,
    /// Values are inserted into a JSON string.
    Json,
    /// Values are inserted unchanged.
    Plain,
}

/// The bytes that have to be escaped or left out in HTML.
static SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] =
            (byte as u8).is_ascii_control() || matches!(byte as u8, b'&' | b'<' | b'>' | b'"' | b'\'');
        byte += 1;
    }
    table
};

impl Escape {
    /// The escaping for a content type. Unknown types count as HTML: browsers guess.
    pub(super) fn for_type(content_type: &[u8]) -> Self {
        let name = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
        let name = name.trim_ascii().to_ascii_lowercase();
        match &*name {
            b"application/json" => Self::Json,
            name if name.ends_with(b"+json") => Self::Json,
            b"text/plain" => Self::Plain,
            _ => Self::Html,
        }
    }

    fn write(self, value: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Plain => out.extend(value.iter().filter(|byte| !byte.is_ascii_control())),
            Self::Html => {
                let mut rest = value;
                while let Some(at) = rest.iter().position(|byte| SPECIAL[usize::from(*byte)]) {
                    let (plain, special) = rest.split_at(at);
                    out.extend_from_slice(plain);
                    match special.first() {
                        Some(b'&') => out.extend_from_slice(b"&amp;"),
                        Some(b'<') => out.extend_from_slice(b"&lt;"),
                        Some(b'>') => out.extend_from_slice(b"&gt;"),
                        Some(b'"') => out.extend_from_slice(b"&quot;"),
                        Some(b'\'') => out.extend_from_slice(b"&#39;"),
                        // Control characters are left out.
                        _ => {}
                    }
                    rest = special.get(1..).unwrap_or_default();
                }
                out.extend_from_slice(rest);
            }
            Self::Json => {
                // JSON is UTF-8; a path may hold other bytes.
                for part in value.utf8_chunks() {
                    for byte in part.valid().bytes().filter(|byte| !byte.is_ascii_control()) {
                        if matches!(byte, b'"' | b'\\') {
                            out.push(b'\\');
                        }
                        out.push(byte);
                    }
                    if !part.invalid().is_empty() {
                        out.extend("\u{fffd}".bytes());
                    }
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Status,
    Reason,
    Error,
    RequestId,
    Ray,
    TraceId,
    ClientIp,
    Host,
    Path,
}

const TOKENS: [(&[u8], Token); 9] = [
    (b"status", Token::Status),
    (b"reason", Token::Reason),
    (b"error", Token::Error),
    (b"request-id", Token::RequestId),
    (b"ray", Token::Ray),
    (b"trace-id", Token::TraceId),
    (b"client-ip", Token::ClientIp),
    (b"host", Token::Host),
    (b"path", Token::Path),
];

#[derive(Debug)]
enum TemplatePart {
    Literal(Text),
    Token(Token),
}

/// A text, split at its tokens. Braces around anything else stay unchanged, because styles and scripts contain many.
#[derive(Debug)]
pub(super) struct PageTemplate {
    parts: Vec<TemplatePart>,
    escape: Escape,
    /// The expected length of the filled text: the bytes of all literals, and some for each token.
    length: usize,
}

impl PageTemplate {
    pub(super) fn new(text: &[u8], escape: Escape) -> Self {
        let mut parts = Vec::new();
        let mut literal = 0;
        for at in text.iter().enumerate().filter(|(_, byte)| **byte == b'{').map(|(at, _)| at) {
            let rest = &text[at + 1..];
            let found = TOKENS.iter().find(|(name, _)| {
                rest.strip_prefix(*name).is_some_and(|behind| behind.first() == Some(&b'}'))
            });
            let Some((name, token)) = found else { continue };
            if literal < at {
                parts.push(TemplatePart::Literal(Text::Shared(text[literal..at].into())));
            }
            parts.push(TemplatePart::Token(*token));
            literal = at + name.len() + 2;
        }
        if literal < text.len() {
            parts.push(TemplatePart::Literal(Text::Shared(text[literal..].into())));
        }
        let length = parts.iter().map(|part| match part {
            TemplatePart::Literal(text) => text.len(),
            TemplatePart::Token(_) => TOKEN_LENGTH,
        });
        Self { length: length.sum(), parts, escape }
    }

    /// Returns true if the template has tokens with values that identify a client or a request.
    pub(super) fn is_personal(&self) -> bool {
        let personal = [Token::RequestId, Token::Ray, Token::TraceId, Token::ClientIp];
        self.parts.iter().any(|part| matches!(part, TemplatePart::Token(token) if personal.contains(token)))
    }

    /// The text with the tokens replaced. A text without tokens is shared, not copied.
    pub(super) fn fill(&self, facts: &Facts<'_>) -> Text {
        match &*self.parts {
            [] => return Text::EMPTY,
            [TemplatePart::Literal(text)] => return text.clone(),
            _ => {}
        }
        let mut out = Vec::with_capacity(self.length);
        for part in &self.parts {
            match part {
                TemplatePart::Literal(text) => out.extend_from_slice(text),
                TemplatePart::Token(token) => self.write(*token, facts, &mut out),
            }
        }
        out.into()
    }

    fn write(&self, token: Token, facts: &Facts<'_>, out: &mut Vec<u8>) {
        let mut value = |value: &[u8]| self.escape.write(value, out);
        match token {
            Token::Status => value(&Shown::Int(facts.status.into()).to_text()),
            Token::Reason => value(reason(facts.status).as_bytes()),
            Token::Error => value(facts.error.as_bytes()),
            Token::RequestId => value(facts.request_id),
            Token::Ray => value(&facts.request_id[facts.request_id.len().saturating_sub(RAY)..]),
            Token::TraceId => value(facts.trace_id),
            Token::ClientIp => {
                if let Some(client) = facts.client {
                    value(&Shown::Ip(client).to_text());
                }
            }
            Token::Host => value(facts.host),
            Token::Path => value(facts.path),
        }
    }
}

/// The first misspelt token of a text (with `_` for `-`, or in another case), and its right spelling. A misspelt token
/// is not replaced.
pub(super) fn misspelt(text: &[u8]) -> Option<(String, &'static str)> {
    let inner = text.split(|byte| *byte == b'{').skip(1);
    let mut names = inner.filter_map(|rest| {
        let end = rest.iter().take(TOKEN_LENGTH).position(|byte| *byte == b'}')?;
        core::str::from_utf8(rest.get(..end)?).ok()
    });
    let token = |name: &str| {
        let plain = name.replace('_', "-").to_ascii_lowercase();
        let (token, _) =
            TOKENS.iter().find(|(token, _)| *token == plain.as_bytes() && *token != name.as_bytes())?;
        Some((name.to_string(), core::str::from_utf8(token).ok()?))
    };
    names.find_map(token)
}

/// The name of a status (RFC 9110, section 15, and its registry). A status without a name gets the name of its class.
fn reason(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        511 => "Network Authentication Required",
        _ => match status / 100 {
            3 => "Redirection",
            4 => "Client Error",
            5 => "Server Error",
            _ => "Error",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const FACTS: Facts<'_> = Facts {
        status: 404,
        error: "",
        host: b"example.com",
        path: b"/<script>\"'&\\\n\xff",
        client: None,
        request_id: b"01234567-89ab-7fff-bfff-334455667788",
        trace_id: b"",
    };

    fn filled(text: &str, escape: Escape) -> String {
        String::from_utf8_lossy(&PageTemplate::new(text.as_bytes(), escape).fill(&FACTS)).into_owned()
    }

    #[test]
    fn only_known_tokens_are_replaced() {
        assert_eq!(
            filled("{status} {reason}|{ray}|{client-ip}|", Escape::Html),
            "404 Not Found|ff-334455667788|".to_string().replace("ff-", "fff-") + "|"
        );
        assert_eq!(
            filled("body { color: red } {{status}} {unknown} {status", Escape::Html),
            "body { color: red } {404} {unknown} {status"
        );
        assert_eq!(filled("", Escape::Html), "");
        assert_eq!(filled("{host}", Escape::Html), "example.com");
    }

    #[test]
    fn values_cannot_become_a_part_of_the_page() {
        assert_eq!(filled("{path}", Escape::Html), "/&lt;script&gt;&quot;&#39;&amp;\\\u{fffd}");
        assert_eq!(filled("\"{path}\"", Escape::Json), "\"/<script>\\\"'&\\\\\u{fffd}\"");
        assert_eq!(filled("{path}", Escape::Plain), "/<script>\"'&\\\u{fffd}");
    }

    #[test]
    fn types_say_how_values_are_written() {
        for (name, escape) in [
            ("text/html", Escape::Html),
            ("Application/JSON; charset=utf-8", Escape::Json),
            ("application/problem+json", Escape::Json),
            ("text/plain;charset=utf-8", Escape::Plain),
            ("image/svg+xml", Escape::Html),
            ("", Escape::Html),
        ] {
            assert_eq!(Escape::for_type(name.as_bytes()), escape, "{name}");
        }
    }
}

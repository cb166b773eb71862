//! Media types, and patterns of them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use foregate_module::settings::each;
use foregate_module::{Argument, Problem};

use crate::token::{is_token, is_token_byte};

/// The longest pattern, bytes (RFC 6838, section 4.2: two names of at most 127).
const PATTERN_LIMIT: usize = 255;

/// A pattern of media types: `text/html`, `text/*`, `application/*+json`, `*/*`. In lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MediaPattern {
    /// The part before the slash; `None` for any.
    main: Option<Box<[u8]>>,
    sub: Sub,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Sub {
    Any,
    Exactly(Box<[u8]>),
    EndsWith(Box<[u8]>),
}

impl MediaPattern {
    /// Reads a pattern.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (main, sub) = text.split_once('/').filter(|_| text.len() <= PATTERN_LIMIT)?;
        let token = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
        };
        let sub = match sub.strip_prefix('*') {
            Some("") => Sub::Any,
            Some(suffix) if suffix.starts_with('+') && token(suffix) && main != "*" => {
                Sub::EndsWith(suffix.as_bytes().into())
            }
            None if token(sub) && main != "*" => Sub::Exactly(sub.as_bytes().into()),
            _ => return None,
        };
        let main = match main {
            "*" => None,
            main if token(main) => Some(main.as_bytes().into()),
            _ => return None,
        };
        Some(Self { main, sub })
    }

    /// Reads the arguments of a node.
    pub(crate) fn all(arguments: &[Argument]) -> Result<Vec<Self>, Problem> {
        let pattern = |argument: &Argument| {
            Self::parse(argument.text()?).ok_or_else(|| {
                argument
                    .wrong("this is not a media type")
                    .help("write one such as \"text/html\", or a pattern: \"text/*\", \"application/*+json\"")
            })
        };
        each(arguments.iter().map(pattern))
    }

    /// Returns true if a value of `content-type` matches the pattern. The parameters of the value are ignored.
    pub(crate) fn fits(&self, content_type: &[u8]) -> bool {
        let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let mut parts = essence.splitn(2, |byte| *byte == b'/');
        let (Some(main), Some(sub)) = (parts.next(), parts.next()) else { return false };
        // An invalid character, such as a comma, may separate a second type, and the origin may use the second one.
        if !is_token(main) || !is_token(sub) {
            return false;
        }
        self.main.as_ref().is_none_or(|wanted| main.eq_ignore_ascii_case(wanted))
            && match &self.sub {
                Sub::Any => true,
                Sub::Exactly(wanted) => sub.eq_ignore_ascii_case(wanted),
                Sub::EndsWith(suffix) => {
                    let tail = sub.len().checked_sub(suffix.len()).and_then(|at| sub.get(at..));
                    tail.is_some_and(|tail| tail.eq_ignore_ascii_case(suffix))
                }
            }
    }
}

/// Returns true if a value of `content-type` is a media type, followed only by parameters (RFC 9110, section 8.3.1):
/// all parsers read such a value in the same way. `*` is valid only in `Accept`.
pub(crate) fn is_media_type(content_type: &[u8]) -> bool {
    let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
    let (essence, parameters) = content_type.split_at(end);
    let mut names = essence.trim_ascii().splitn(2, |byte| *byte == b'/');
    let mut is_name = || names.next().is_some_and(|name| is_token(name) && !name.contains(&b'*'));
    is_name() && is_name() && are_parameters(parameters)
}

/// Returns true if the text consists of parameters, each with a semicolon before it (RFC 9110, section 5.6.6).
fn are_parameters(mut rest: &[u8]) -> bool {
    loop {
        rest = rest.trim_ascii_start();
        let Some((b';', parameter)) = rest.split_first() else { return rest.is_empty() };
        rest = parameter.trim_ascii_start();
        // A parameter may be empty.
        if rest.is_empty() || rest.starts_with(b";") {
            continue;
        }
        let Some(equals) = rest.iter().position(|byte| *byte == b'=').filter(|at| is_token(&rest[..*at]))
        else {
            return false;
        };
        let value = &rest[equals + 1..];
        let Some(length) = (match value.first() {
            Some(b'"') => quoted(value),
            _ => Some(value.iter().take_while(|byte| is_token_byte(**byte)).count())
                .filter(|length| *length > 0),
        }) else {
            return false;
        };
        rest = &value[length..];
    }
}

/// The length of the quoted string at the start of a text (RFC 9110, section 5.6.4).
fn quoted(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' if matches!(text.get(at + 1)?, b'\t' | b' '..=b'~' | 0x80..) => at += 2,
            b'\t' | b' '..=b'[' | b']'..=b'~' | 0x80.. => at += 1,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_types_without_their_parameters() {
        let fits = |pattern: &str, value: &str| MediaPattern::parse(pattern).unwrap().fits(value.as_bytes());
        assert!(fits("text/*", "Text/HTML; charset=utf-8"));
        assert!(fits("text/html", "text/html ;charset=utf-8"));
        assert!(fits("application/*+json", "application/problem+JSON"));
        assert!(fits("*/*", "image/png"));
        assert!(!fits("text/*", "texty/html"));
        assert!(!fits("text/html", "text/html2"));
        assert!(!fits("application/*+json", "application/json"));
        assert!(!fits("text/*", "text"));
        assert!(!fits("*/*", ""));
        for (pattern, value) in [
            ("image/*", "image/png, text/html"),
            ("application/*+json", "application/xml,x+json"),
            ("image/*", "image/"),
            ("image/*", "image/a b"),
            ("*/*", "text,a/html"),
            ("*/*", "/html"),
            ("image/*", "image/png/x"),
        ] {
            assert!(!fits(pattern, value), "{pattern} {value}");
        }
    }

    #[test]
    fn a_media_type_has_nothing_but_parameters_behind_it() {
        for value in [
            "image",
            "image/",
            "image/png/x",
            "image/*",
            "*/*",
            "image/x;q=1,text/xml",
            "image/x;q=\"1\", text/xml",
            "image/x;q=1 text/xml",
            "image/x;a, text/xml",
            "image/x text/xml",
            "image/x; charset",
            "image/x; =a",
            "image/x; a=",
            "image/x; a =b",
            "image/x; a=\"b",
            "image/x; a=\"b\\",
            "image/x; a=\"b\"c",
        ] {
            assert!(!is_media_type(value.as_bytes()), "{value}");
        }
        for value in [
            "image/svg+xml",
            "image/x;",
            "image/x ; ;a=b;c=d ;",
            "image/x; a=\"b, text/xml; \\\" c\"; d=e",
            "image/x; a=\"\"",
            "image/x;\ta=*",
        ] {
            assert!(is_media_type(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for bad in [
            "",
            "text",
            "text/",
            "/html",
            "*",
            "*/html",
            "*/*+json",
            "text/*html",
            "te xt/html",
            "text/html; q=1",
        ] {
            assert_eq!(MediaPattern::parse(bad), None, "{bad}");
        }
    }
}

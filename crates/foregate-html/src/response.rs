//! Facts about a body from the head of its response.

use foregate_module::{Argument, Edit, Edits, Field, Fields, Problem, versioned, versioned_validators};

/// Returns true if a list field contains an element, ignoring case (RFC 9110, section 5.6.1).
pub(crate) fn has_element(fields: &dyn Fields, name: &str, wanted: &[u8]) -> bool {
    let mut elements = fields.all(name).flat_map(|value| value.split(|byte| *byte == b','));
    elements.any(|element| element.trim_ascii().eq_ignore_ascii_case(wanted))
}

/// Returns true if `If-None-Match` is `*` or contains this validator, strong or weak (RFC 9110, section 13.1.2).
pub(crate) fn is_known(request: &dyn Fields, tag: &str) -> bool {
    let mut elements = request.all("if-none-match").flat_map(|value| value.split(|byte| *byte == b','));
    elements.any(|element| {
        let element = element.trim_ascii();
        element == b"*" || element.strip_prefix(b"W/").unwrap_or(element) == tag.as_bytes()
    })
}

/// Returns true if the response has a whole body that may be transformed (RFC 9110, section 7.7).
pub(crate) fn is_whole(status: u16, response: &dyn Fields) -> bool {
    const WITHOUT_OR_IN_PARTS: [u16; 4] = [204, 205, 206, 304];
    status >= 200
        && !WITHOUT_OR_IN_PARTS.contains(&status)
        && response.get("content-range").is_none()
        && !has_element(response, "cache-control", b"no-transform")
}

/// Returns true if the body has a content coding.
pub(crate) fn is_encoded(response: &dyn Fields) -> bool {
    response.all("content-encoding").any(|coding| {
        !coding.trim_ascii().is_empty() && !coding.trim_ascii().eq_ignore_ascii_case(b"identity")
    })
}

/// Adjusts the ETag of a 304 response. A client that has the changed body has a weak validator with the version of the
/// plan, so the 304 gets this one too (RFC 9110, section 15.4.5), and no time. A client with the strong validator has the origin's body, and the ETag
/// stays. A client that revalidates only by time gets the weak validator, so that no cache combines parts of the
/// origin's body with the changed body.
pub(crate) fn revalidated(request: &dyn Fields, response: &dyn Fields, version: u32) -> Edits {
    let mut edits = Edits::new();
    let Some(tag) = response.get("etag") else { return edits };
    if versioned(tag, version).is_some_and(|tag| has_element(request, "if-none-match", &tag)) {
        return versioned_validators(response, version);
    }
    let Some(strong) = Some(tag).filter(|tag| tag.starts_with(b"\"")) else { return edits };
    let weak = [b"W/", strong].concat();
    let names_none = request.get("if-none-match").is_none();
    if (names_none || has_element(request, "if-none-match", &weak))
        && let Ok(field) = Field::new("ETag", weak)
    {
        edits.push(Edit::Set(field));
    }
    edits
}

/// The media types of a response. There are several if the response has several `content-type` fields, or if a
/// recipient on the way has combined them into a list.
pub(crate) fn types(response: &dyn Fields) -> impl Iterator<Item = &[u8]> {
    response.all("content-type").flat_map(|value| {
        let (mut quoted, mut escaped) = (false, false);
        value.split(move |byte| {
            let ends = *byte == b',' && !quoted;
            quoted ^= *byte == b'"' && !escaped;
            escaped = quoted && !escaped && *byte == b'\\';
            ends
        })
    })
}

/// The media type in a value of `content-type`, without its parameters.
fn essence(content_type: &[u8]) -> &[u8] {
    content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

/// Returns true if browsers read the type as XML (MIME Sniffing, section 4.6, and also `text/xsl`).
pub(crate) fn is_xml(content_type: &[u8]) -> bool {
    let essence = essence(content_type).to_ascii_lowercase();
    essence.ends_with(b"+xml") || essence.ends_with(b"/xml") || essence == b"text/xsl"
}

/// A media type, or a range of types: `text/html`, `text/*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MediaType {
    main: String,
    /// The subtype; `None` for any.
    sub: Option<String>,
}

impl MediaType {
    pub fn new(main: &str, sub: Option<&str>) -> Self {
        Self { main: main.to_ascii_lowercase(), sub: sub.map(str::to_ascii_lowercase) }
    }

    /// Reads a media type of the configuration.
    pub fn from_argument(argument: &Argument) -> Result<Self, Problem> {
        let token = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
        };
        match argument.text()?.split_once('/') {
            Some((main, "*")) if token(main) => Ok(Self::new(main, None)),
            Some((main, sub)) if token(main) && token(sub) => Ok(Self::new(main, Some(sub))),
            _ => Err(argument
                .wrong("this is not a media type")
                .help("write one such as \"text/html\", or all of a kind: \"text/*\"")),
        }
    }

    /// Returns true if a value of `content-type` matches.
    pub fn fits(&self, content_type: &[u8]) -> bool {
        let mut parts = essence(content_type).splitn(2, |byte| *byte == b'/');
        let (Some(main), Some(sub)) = (parts.next(), parts.next()) else { return false };
        main.eq_ignore_ascii_case(self.main.as_bytes())
            && self.sub.as_ref().is_none_or(|wanted| sub.eq_ignore_ascii_case(wanted.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_changed_body_is_told_its_validator() {
        let told = |asked: &[(&str, &str)], tag: &str| {
            let sample = foregate_module::testing::Sample::get("/").response(304).response_field("etag", tag);
            let sample = asked.iter().fold(sample, |sample, (name, value)| sample.field(name, value));
            let edits = revalidated(&sample.request, &sample.response, 1);
            let mut head = sample.response;
            edits.apply(&mut head);
            String::from_utf8(head.get("etag").unwrap().into()).unwrap()
        };
        assert_eq!(told(&[("if-none-match", "\"y\", W/\"x\"")], "\"x\""), "W/\"x\"");
        assert_eq!(told(&[("if-none-match", "\"x\"")], "\"x\""), "\"x\"");
        assert_eq!(told(&[("if-modified-since", "Mon, 01 Jan 2024 00:00:00 GMT")], "\"x\""), "W/\"x\"");
        assert_eq!(told(&[("if-none-match", "W/\"x\"")], "W/\"x\""), "W/\"x\"");
        assert_eq!(told(&[("if-none-match", "W/\"x~00000001\"")], "\"x\""), "W/\"x~00000001\"");
        assert_eq!(told(&[("if-none-match", "W/\"x~00000001\"")], "W/\"x\""), "W/\"x~00000001\"");
    }

    #[test]
    fn media_types_are_compared_without_their_parameters() {
        let html = MediaType::new("text", Some("html"));
        assert!(html.fits(b"Text/HTML ; charset=utf-8") && html.fits(b"text/html"));
        assert!(!html.fits(b"text/html2") && !html.fits(b"text") && !html.fits(b""));
        assert!(
            MediaType::new("text", None).fits(b"text/css") && !MediaType::new("text", None).fits(b"a/css")
        );
        for good in ["text/html", "text/*", "application/xhtml+xml"] {
            assert!(MediaType::from_argument(&good.into()).is_ok(), "{good}");
        }
        for bad in ["", "*", "*/*", "text", "text/", "text/html; a=b", "te xt/*"] {
            assert!(MediaType::from_argument(&bad.into()).is_err(), "{bad}");
        }
    }
}

//! The steps that run the chosen features.
//!
//! Steps choose features by [adding](foregate_module::Add) them to [`Features`]. The steps of this crate do this in the
//! phase `response-body`, so that their conditions can refer to the request and the response. Steps of other crates may
//! do it in any phase. Then [`Choose`] decides whether the response can be rewritten, a step of another crate removes
//! the content coding, and [`Html`] adds the pass as a filter of the body.

use std::ops::ControlFlow;
use std::sync::Arc;

use foregate_module::settings::{Argument, Block, Context, FromNode, Key, Node, Problem, each, together};
use foregate_module::{
    Add, Added, AskWhole, Count, DecodedBody, Edit, EditResponse, Edits, Emit, Fields, Filter,
    FilterResponseBody, Method, Never, PART_PASSED, Path, PlainBody, PlanVersion, Random, Read,
    RequestFields, ResponseFields, Status, Step, Value, Wish, phase, versioned_validators,
};

use crate::feature::Features;
use crate::nonce;
use crate::pass::{BUDGET, Pass, STEP, Terms};
use crate::response::{MediaType, has_element, is_encoded, is_whole, is_xml, revalidated, types};

/// The bounds of `memory`, bytes.
const MEMORY: (u64, u64) = (16 << 10, 64 << 20);

/// The fields that validate a document.
const VALIDATORS: [&str; 2] = ["etag", "last-modified"];

static KEY: Key = Key::block(
    "html",
    &BLOCK,
    "html { types \"text/html\" }",
    "Common settings of all HTML features, whose keys begin with `html-`.",
)
.otherwise("only `text/html` is rewritten");

static BLOCK: Block = Block {
    keys: &[
        Key::one(
            "types",
            "TYPE...",
            "types \"text/html\" \"text/x-server-parsed-html\"",
            "The media types of the responses that are rewritten, such as `text/html`, or `text/*` for all types that begin with `text/`.",
        )
        .args(1, 16)
        .default("\"text/html\""),
        Key::one(
            "memory",
            "SIZE",
            "memory \"1MiB\"",
            "The most memory for the parts of a document that the rewriter holds: one tag or comment, and the elements that are open. Beyond: the rest of the document passes unchanged.",
        )
        .default("\"512KiB\""),
    ],
    later: &[],
};

/// The settings of `html`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewriting {
    types: Vec<MediaType>,
    memory: usize,
}

impl Default for Rewriting {
    fn default() -> Self {
        Self { types: vec![MediaType::new("text", Some("html"))], memory: BUDGET }
    }
}

impl Rewriting {
    fn fits(&self, content_type: &[u8]) -> bool {
        self.types.iter().any(|kind| kind.fits(content_type)) && !is_xml(content_type)
    }

    /// Returns true if a partial response is, or may be, part of a document, so that the whole document is needed. The type
    /// of a response with several parts does not tell the type of the document, and a response to `If-Range` need not have
    /// a type (RFC 9110, section 15.3.7).
    fn needs_whole(&self, request: &dyn Fields, response: &dyn Fields) -> bool {
        if has_element(response, "cache-control", b"no-transform") {
            return false;
        }
        let parts = MediaType::new("multipart", Some("byteranges"));
        let mut values = types(response);
        match (values.next(), values.next()) {
            (Some(value), None) => parts.fits(value) || self.fits(value),
            (None, _) => request.get("if-range").is_some(),
            // A whole response with several types would not be rewritten either.
            (Some(_), Some(_)) => false,
        }
    }

    /// Returns true if a partial response has several types, and one of them is the type of a document or
    /// `multipart/byteranges`.
    fn is_unclear(&self, response: &dyn Fields) -> bool {
        let parts = MediaType::new("multipart", Some("byteranges"));
        !has_element(response, "cache-control", b"no-transform")
            && types(response).nth(1).is_some()
            && types(response).any(|value| parts.fits(value) || self.fits(value))
    }
}

impl FromNode for Rewriting {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        let mut settings = Self::default();
        let Some(node) = nodes.last() else { return Ok(settings) };
        let types = node.child("types").map(|types| each(types.args().iter().map(html_type)));
        let memory = node.child("memory").map(|memory| memory.arg(0)?.size(MEMORY.0..=MEMORY.1));
        let (types, memory) = together((types.transpose(), memory.transpose()))?;
        settings.types = types.unwrap_or(settings.types);
        settings.memory = memory.map_or(settings.memory, |size| usize::try_from(size).unwrap_or(BUDGET));
        Ok(settings)
    }
}

/// Reads a media type of documents, which has to be one that browsers read as HTML.
fn html_type(argument: &Argument) -> Result<MediaType, Problem> {
    let kind = MediaType::from_argument(argument)?;
    if is_xml(argument.text()?.as_bytes()) {
        return Err(argument.wrong("documents of this type are XML, which is not rewritten").help(
            "what is inserted is HTML, with which a browser would show an error instead of the document",
        ));
    }
    Ok(kind)
}

/// The settings for documents.
#[derive(Debug)]
pub struct DocumentSettings;

impl Value for DocumentSettings {
    type Data = Rewriting;
    const NAME: &'static str = "html.settings";
    const ABOUT: &'static str = "How documents are rewritten.";
}

/// Passes the settings to later steps.
#[derive(Debug, Default)]
pub struct Adjust;

impl Step for Adjust {
    type At = phase::ResponseBody;
    type Settings = Rewriting;
    type In<'r> = ();
    type Out = (Emit<DocumentSettings>,);
    type Stop = Never;
    const NAME: &'static str = "html-settings";
    const ABOUT: &'static str = "Says which documents are rewritten, and how much may be held of them.";
    const TRIES_PARTS: bool = true;
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, settings: &Rewriting, (): ()) -> ControlFlow<Never, Self::Out> {
        ControlFlow::Continue((Emit(Some(settings.clone())),))
    }
}

/// How the document of a response is going to be rewritten.
#[derive(Debug)]
pub struct Document;

impl Value for Document {
    type Data = Terms;
    const NAME: &'static str = "html.document";
    const ABOUT: &'static str = "That the response is going to be rewritten as HTML, and how.";
}

/// Decides whether the response can be rewritten.
#[derive(Debug, Default)]
pub struct Choose;

impl Step for Choose {
    type At = phase::ResponseBody;
    type Settings = ();
    type In<'r> = (
        Added<'r, Features>,
        Read<'r, DocumentSettings>,
        RequestFields<'r>,
        ResponseFields<'r>,
        PlanVersion,
        Method<'r>,
        Path<'r>,
        Status,
        Random,
        Random,
    );
    type Out = (Emit<Document>, Add<PlainBody>, EditResponse, AskWhole, Count);
    type Stop = Never;
    const NAME: &'static str = "html-choose";
    const ABOUT: &'static str = "Decides whether the response is rewritten as HTML.";
    const TRIES_PARTS: bool = true;
    const FILTERS: &'static [Filter] = &[Filter::Written(Features::NAME), Filter::Status(200, 599)];

    fn run(
        &self,
        (): &(),
        (
            features,
            Read(adjusted),
            RequestFields(request),
            ResponseFields(response),
            PlanVersion(version),
            Method(method),
            Path(path),
            Status(status),
            one,
            other,
        ): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let says = |edits, asks, event| {
            ControlFlow::Continue((Emit(None), Add(None), EditResponse(edits), AskWhole(asks), Count(event)))
        };
        let nothing = |edits| says(edits, false, None);
        if features.is_empty() {
            return nothing(Edits::new());
        }
        let dry = features.is_dry();
        let wants_nonce = features.iter().any(|(chosen, dry)| !dry && chosen.feature.wants_nonce());
        if status == 304 {
            let mut edits = if dry { Edits::new() } else { revalidated(request, response, version) };
            // A cache updates its stored fields from this response. The origin's policy would replace the stored policy, which
            // allows the nonce in the stored body. So the origin's policy is removed.
            if wants_nonce && [&b"GET"[..], b"HEAD"].contains(&method) {
                remove(&nonce::FIELDS, response, &mut edits);
            }
            return nothing(edits);
        }
        let standard;
        let settings = match adjusted {
            Some(settings) => settings,
            None => {
                standard = Rewriting::default();
                &standard
            }
        };
        if status == 206 {
            let asks = !dry && settings.needs_whole(request, response);
            // The event is counted here and not in the trial run of the steps, which records no events.
            let event = match settings.is_unclear(response) {
                true => Some("content-type-ambiguous"),
                false => asks.then_some(PART_PASSED),
            };
            return says(Edits::new(), asks, event);
        }
        let content_type = response.get("content-type");
        let is_empty = method != b"HEAD" && response.get("content-length") == Some(b"0");
        if !types(response).any(|value| settings.fits(value)) || !is_whole(status, response) || is_empty {
            return nothing(Edits::new());
        }
        // If there are several types, recipients disagree about the one that applies.
        if types(response).nth(1).is_some() {
            return says(Edits::new(), false, Some("content-type-ambiguous"));
        }
        let nonce: Option<Arc<str>> = wants_nonce.then(|| nonce::of([one.0, other.0]).into());
        let mut edits = Edits::new();
        if features.iter().any(|(chosen, dry)| !dry && chosen.feature.renews()) {
            remove(&VALIDATORS, response, &mut edits);
        }
        let path = std::str::from_utf8(path).ok().map(Arc::from);
        let content_type = content_type.map(<[u8]>::to_vec);
        let terms = Terms { content_type, nonce, path, budget: settings.memory };
        let wish = Wish { step: STEP, dry };
        let (terms, wish) = (Emit(Some(terms)), Add(Some(wish)));
        ControlFlow::Continue((terms, wish, EditResponse(edits), AskWhole(false), Count(None)))
    }
}

/// Removes the fields of these names.
fn remove(names: &[&'static str], response: &dyn Fields, edits: &mut Edits) {
    let there = names.iter().filter(|name| response.get(name).is_some());
    there.for_each(|name| edits.push(Edit::Remove((*name).into())));
}

/// Adds the pass as a filter of the body.
#[derive(Debug, Default)]
pub struct Html;

impl Step for Html {
    type At = phase::ResponseBody;
    type Settings = ();
    type In<'r> =
        (Added<'r, Features>, Read<'r, Document>, Added<'r, DecodedBody>, ResponseFields<'r>, PlanVersion);
    type Out = (FilterResponseBody, EditResponse, Count);
    type Stop = Never;
    const NAME: &'static str = STEP;
    const ABOUT: &'static str = "Rewrites documents with all features that were chosen, in one pass.";
    const FILTERS: &'static [Filter] = &[Filter::Written(Document::NAME)];

    fn run(
        &self,
        (): &(),
        (features, Read(terms), decoded, ResponseFields(response), PlanVersion(version)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let passes = |event| {
            ControlFlow::Continue((FilterResponseBody(None), EditResponse(Edits::new()), Count(event)))
        };
        let Some(terms) = terms else { return passes(None) };
        if is_encoded(response) && decoded.is_empty() {
            return passes(Some("coding-not-supported"));
        }
        // The policy is changed only here, when it is certain that the document is rewritten. Until then it stays as strict as
        // it was.
        let mut edits = terms.nonce.as_deref().map_or(Edits::new(), |nonce| nonce::allow(response, nonce));
        if !features.is_dry() {
            edits.extend(&versioned_validators(response, version));
        }
        let chosen = features.iter().map(|(chosen, dry)| (chosen.clone(), dry)).collect();
        let filter = FilterResponseBody(Some(Pass::filter(chosen, terms.clone())));
        ControlFlow::Continue((filter, EditResponse(edits), Count(None)))
    }
}

#[cfg(test)]
mod tests {
    use foregate_module::testing::Sample;

    use super::*;
    use crate::ChosenFeature;
    use crate::features::insert::{Insert, Place};

    fn chosen(markup: &str, sample: Sample) -> Sample {
        let mut sample = sample;
        let mut insert = Insert::default();
        insert.edge(Place::HeadEnd, markup);
        sample.add::<Features>(ChosenFeature { step: "test", feature: Arc::new(insert) }, false);
        sample.run(&Choose, &());
        sample
    }

    #[test]
    fn a_304_has_no_policy_where_the_page_has_a_nonce() {
        let policy = |markup: &str, method: &str, status: u16| {
            let sample = Sample::get("/").method(method).response(status);
            let sample = sample.response_field("content-security-policy", "script-src 'self'");
            let sample = chosen(markup, sample);
            sample.response.get("content-security-policy").map(<[u8]>::to_vec)
        };
        let own = Some(b"script-src 'self'".to_vec());
        assert_eq!(policy("<script nonce={nonce}>", "GET", 304), None);
        assert_eq!(policy("<script nonce={nonce}>", "HEAD", 304), None);
        assert_eq!(policy("<script nonce={nonce}>", "POST", 304), own);
        assert_eq!(policy("<script>", "GET", 304), own);
    }

    #[test]
    fn of_a_document_the_whole_is_asked_for() {
        let asks = |sample: Sample| chosen("<p>", sample).state.asks_whole;
        let part = |kind: &str| Sample::get("/").response(206).response_field("content-type", kind);
        assert!(asks(part("Text/HTML; charset=utf-8")) && asks(part("multipart/byteranges; boundary=x")));
        assert!(!asks(part("video/mp4")) && !asks(part("text/plain")));
        assert!(!asks(part("text/html").response_field("cache-control", "no-transform")));
        assert!(!asks(part("text/html").response_field("content-type", "text/html")));
        assert!(!asks(Sample::get("/").response(206)));
        assert!(asks(Sample::get("/").field("if-range", "\"x\"").response(206)));
        assert!(!asks(Sample::get("/").response(200).response_field("content-type", "text/html")));
    }

    #[test]
    fn a_part_that_passes_is_counted() {
        let events = |types: &[&str]| {
            let sample = Sample::get("/").response(206);
            let sample =
                types.iter().fold(sample, |sample, kind| sample.response_field("content-type", kind));
            chosen("<p>", sample).state.events.clone()
        };
        assert_eq!(events(&["text/html"]), ["part-passed"]);
        assert_eq!(events(&["multipart/byteranges; boundary=x"]), ["part-passed"]);
        assert_eq!(events(&["text/html", "text/plain"]), ["content-type-ambiguous"]);
        assert_eq!(events(&["image/png", "multipart/byteranges"]), ["content-type-ambiguous"]);
        assert!(events(&["video/mp4"]).is_empty() && events(&["video/mp4", "image/png"]).is_empty());
    }

    #[test]
    fn documents_that_are_xml_are_not_rewritten() {
        for bad in ["application/xhtml+xml", "Application/XHTML+XML", "text/xml", "text/xsl"] {
            assert!(html_type(&bad.into()).is_err(), "{bad}");
        }
        let types = vec![html_type(&"text/*".into()).unwrap()];
        let settings = Rewriting { types, memory: BUDGET };
        assert!(settings.fits(b"text/html") && settings.fits(b"text/x-xml; a=b+xml"));
        for bad in ["text/xml", "Text/XML ; charset=utf-8", "text/xsl", "text/svg+xml"] {
            assert!(!settings.fits(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn a_policy_allows_a_nonce_only_where_the_document_is_rewritten() {
        let policy = |coding: Option<&str>| {
            let sample = Sample::get("/").response(200).response_field("content-type", "text/html");
            let sample = sample.response_field("content-security-policy", "script-src 'self'");
            let sample = match coding {
                Some(coding) => sample.response_field("content-encoding", coding),
                None => sample,
            };
            let mut sample = chosen("<script nonce={nonce}>", sample);
            // A rule may skip the step that rewrites.
            assert_eq!(sample.response.get("content-security-policy"), Some(&b"script-src 'self'"[..]));
            sample.run(&Html, &());
            sample.response.get("content-security-policy").unwrap() != b"script-src 'self'"
        };
        assert!(policy(None) && !policy(Some("x-unknown")));
    }

    #[test]
    fn a_response_with_two_types_passes_and_is_counted() {
        let run = |types: &[&str]| {
            let sample = Sample::get("/").response(200);
            let sample =
                types.iter().fold(sample, |sample, kind| sample.response_field("content-type", kind));
            let sample = chosen("<p>", sample);
            (sample.value::<Document>().is_some(), sample.state.events.clone())
        };
        assert_eq!(run(&["text/html"]), (true, Vec::new()));
        assert_eq!(run(&["image/png"]), (false, Vec::new()));
        assert_eq!(run(&["text/html; a=\"b\\\",c\""]), (true, Vec::new()));
        for types in [["text/html", "image/png"], ["image/png", "text/html"], ["text/html", "text/html"]] {
            assert_eq!(run(&types), (false, vec!["content-type-ambiguous"]), "{types:?}");
            assert_eq!(run(&[&types.join(", ")]), (false, vec!["content-type-ambiguous"]), "{types:?}");
        }
    }
}

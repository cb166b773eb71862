//! Limits on bodies: their length, and the types that requests may upload.
//!
//! ```kdl
//! limit-response-body "100MiB"
//! limit-request-body "1MiB" when="http.request.uri.path ne \"/upload\""
//! upload-types "application/json" "multipart/form-data"
//! ```
//!
//! A route's own `body-limit` applies as well; the least of all limits counts.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use foregate_module::{
    Bail, BodyFilter, Context, DryRun, Filter, FilterResponseBody, Filtered, FromNode, Key, LimitRequestBody,
    Method, Never, Node, Problem, Replace, RequestFields, RequestLength, Respond, Response, ResponseFields,
    Sink, Status, Step, Text, phase,
};

use crate::media_type::{MediaPattern, is_media_type};

/// The largest limit, bytes.
const LIMIT_MOST: u64 = 1 << 50;
/// How many media types may be named.
const TYPES_LIMIT: u8 = 64;

const RESPONSE_KEY: Key = Key::one(
    "limit-response-body",
    "SIZE",
    "limit-response-body \"100MiB\"",
    "The largest response body of an origin. A response with a larger `Content-Length` is answered with 502; one without \
     `Content-Length` is broken off at this size.",
)
.otherwise("no limit");

const REQUEST_KEY: Key = Key::one(
    "limit-request-body",
    "SIZE",
    "limit-request-body \"1MiB\" when=\"http.request.method eq \\\"PUT\\\"\"",
    "The largest request body. Beyond: 413. The `body-limit` of a route applies as well.",
)
.otherwise("no limit");

const TYPES_KEY: Key = Key::one(
    "upload-types",
    "TYPE...",
    "upload-types \"application/json\" \"image/*\"",
    "The media types that request bodies may have. A request whose body has another type, or no type, gets 415.",
)
.args(1, TYPES_LIMIT)
.otherwise("any");

/// The settings of `limit-response-body`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseLimit(u64);

/// The settings of `limit-request-body`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimit(u64);

/// The settings of `upload-types`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadTypes {
    patterns: Vec<MediaPattern>,
    /// The patterns as a value of `Accept`, which tells the client of a refused request the allowed types.
    accept: Arc<[u8]>,
}

fn one<'n>(nodes: &'n [Node], key: &Key) -> Result<&'n Node, Problem> {
    let missing = || Problem::new(Default::default(), alloc::format!("`{}` is not there", key.name));
    nodes.last().ok_or_else(missing)
}

impl FromNode for ResponseLimit {
    const KEY: Option<&'static Key> = Some(&RESPONSE_KEY);

    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        Ok(Self(one(nodes, &RESPONSE_KEY)?.arg(0)?.size(0..=LIMIT_MOST)?))
    }
}

impl FromNode for RequestLimit {
    const KEY: Option<&'static Key> = Some(&REQUEST_KEY);

    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        Ok(Self(one(nodes, &REQUEST_KEY)?.arg(0)?.size(0..=LIMIT_MOST)?))
    }
}

impl FromNode for UploadTypes {
    const KEY: Option<&'static Key> = Some(&TYPES_KEY);

    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        let node = one(nodes, &TYPES_KEY)?;
        let patterns = MediaPattern::all(node.args())?;
        let texts = node.args().iter().map(|argument| argument.text()).collect::<Result<Vec<_>, _>>()?;
        let accept: String = texts.join(", ");
        Ok(Self { patterns, accept: accept.into_bytes().into() })
    }
}

/// Limits the body of a request.
#[derive(Debug, Default)]
pub struct LimitRequest;

impl Step for LimitRequest {
    type At = phase::RequestSecurity;
    type Settings = RequestLimit;
    type In<'r> = (RequestLength, DryRun);
    type Out = (LimitRequestBody,);
    type Stop = Never;
    const NAME: &'static str = "limit-request-body";
    const ABOUT: &'static str = "Limits the length of a request's body.";
    const FILTERS: &'static [Filter] = &[];

    fn run(
        &self,
        settings: &RequestLimit,
        (RequestLength(length), DryRun(dry)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        // A dry run does not report a limit if the known length of the body is within it.
        let fits = dry && length.is_some_and(|length| length <= settings.0);
        ControlFlow::Continue((LimitRequestBody(Some(settings.0).filter(|_| !fits)),))
    }
}

/// Refuses bodies of other types.
#[derive(Debug, Default)]
pub struct CheckUpload;

impl Step for CheckUpload {
    type At = phase::RequestSecurity;
    type Settings = UploadTypes;
    type In<'r> = (RequestFields<'r>, RequestLength);
    type Out = ();
    type Stop = Respond;
    const NAME: &'static str = "upload-types";
    const ABOUT: &'static str = "Refuses requests whose bodies have a type that is not listed.";
    const FILTERS: &'static [Filter] = &[];

    fn run(
        &self,
        settings: &UploadTypes,
        (RequestFields(request), RequestLength(length)): Self::In<'_>,
    ) -> ControlFlow<Respond, ()> {
        if length == Some(0) {
            return ControlFlow::Continue(());
        }
        let mut types = request.all("content-type");
        let fits = |value: &[u8]| {
            is_media_type(value) && settings.patterns.iter().any(|pattern| pattern.fits(value))
        };
        // If the request states two types, the origin may use either of them, so neither can be trusted.
        if types.next().is_some_and(fits) && types.next().is_none() {
            return ControlFlow::Continue(());
        }
        let response = Response::new(415)
            .body("text/plain; charset=utf-8", "415: this type of body is not taken here\n")
            .field("Accept", Text::Shared(Arc::clone(&settings.accept)));
        ControlFlow::Break(Respond(response))
    }
}

/// Limits the body of a response, as the origin sends it.
#[derive(Debug, Default)]
pub struct LimitResponse;

impl Step for LimitResponse {
    type At = phase::UpstreamResponse;
    type Settings = ResponseLimit;
    type In<'r> = (Method<'r>, Status, ResponseFields<'r>);
    type Out = (FilterResponseBody,);
    type Stop = Replace;
    const NAME: &'static str = "limit-response-body";
    const ABOUT: &'static str = "Limits the length of an origin's response.";
    const FILTERS: &'static [Filter] = &[Filter::Proxied];

    fn run(
        &self,
        settings: &ResponseLimit,
        (Method(method), Status(status), ResponseFields(response)): Self::In<'_>,
    ) -> ControlFlow<Replace, Self::Out> {
        // The `content-length` of a 304 describes a body that the client already has.
        if matches!(status, 204 | 304) {
            return ControlFlow::Continue((FilterResponseBody(None),));
        }
        let length = response.get("content-length").and_then(|value| core::str::from_utf8(value).ok());
        let length: Option<u64> = length.and_then(|value| value.trim().parse().ok());
        match length {
            Some(length) if length > settings.0 => ControlFlow::Break(Replace(Response::too_long())),
            Some(_) => ControlFlow::Continue((FilterResponseBody(None),)),
            None if method == b"HEAD" => ControlFlow::Continue((FilterResponseBody(None),)),
            None => {
                let countdown = Filtered::new(Self::NAME, Countdown(settings.0));
                let filtered = Filtered { keeps_length: true, ..countdown };
                ControlFlow::Continue((FilterResponseBody(Some(filtered)),))
            }
        }
    }
}

/// Lets this many bytes pass.
struct Countdown(u64);

impl BodyFilter for Countdown {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        match self.0.checked_sub(piece.len() as u64) {
            Some(left) => {
                self.0 = left;
                out.write(piece);
                Ok(())
            }
            None => Err(Bail::TooLarge),
        }
    }

    fn end(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        // The filter holds no data that would be lost, but without it, the rest of the body would pass without a limit.
        Err(Bail::Break)
    }

    fn held(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use foregate_module::testing::{Sample, filtered, filtered_at_every_split, node, settings};
    use foregate_module::{Action, FieldsMut, Verdict};

    use super::*;

    fn status(verdict: Verdict) -> Option<u16> {
        match verdict {
            Verdict::Stop(Action::Respond(response)) => Some(response.status),
            _ => None,
        }
    }

    fn response_limit(bytes: u64) -> ResponseLimit {
        settings(&[node("limit-response-body").arg_literal(bytes)]).unwrap()
    }

    #[test]
    fn a_response_that_says_that_it_is_too_long_is_502() {
        let run = |mut sample: Sample| {
            let verdict = sample.run(&LimitResponse, &response_limit(10));
            assert!(!matches!(&verdict, Verdict::Stop(Action::Respond(response)) if !response.too_long));
            (status(verdict), sample.state.response_filters.len())
        };
        let sample = || Sample::get("/").response(200);
        assert_eq!(run(sample().response_field("Content-Length", "11")), (Some(502), 0));
        assert_eq!(run(sample().response_field("Content-Length", "10")), (None, 0));
        assert_eq!(run(sample()), (None, 1));
        // HEAD is answered as GET is.
        assert_eq!(run(sample().method("HEAD").response_field("Content-Length", "11")), (Some(502), 0));
        assert_eq!(run(sample().method("HEAD")), (None, 0));
        // The length of a body that does not come.
        assert_eq!(run(sample().response(304).response_field("Content-Length", "11")), (None, 0));
    }

    #[test]
    fn a_response_that_turns_out_too_long_is_broken_off() {
        let passes = |body: &[u8]| filtered_at_every_split(|| Countdown(5), body);
        assert_eq!(passes(b"12345").as_deref(), Some(&b"12345"[..]));
        assert_eq!(passes(b"").as_deref(), Some(&b""[..]));
        assert_eq!(passes(b"123456"), None);
        assert_eq!(filtered(Countdown(5), &[b"123", b"", b"45"]).as_deref(), Some(&b"12345"[..]));
        let mut sample = Sample::get("/").response(200);
        sample.run(&LimitResponse, &response_limit(5));
        let filter = sample.state.response_filters.pop().unwrap();
        assert!(filter.keeps_length);
        let mut chain = foregate_module::Chain::new(Vec::from([filter]));
        let mut out = Vec::new();
        chain.write(b"12345", &mut out).unwrap();
        assert_eq!(chain.write(b"6", &mut out), Err((Bail::TooLarge, "limit-response-body")));
        assert_eq!(out, b"12345");
    }

    #[test]
    fn the_limit_of_requests_is_the_platforms_to_keep() {
        let limit: RequestLimit = settings(&[node("limit-request-body").arg_literal("1KiB")]).unwrap();
        let mut sample = Sample::get("/").method("POST");
        sample.run(&LimitRequest, &limit);
        assert_eq!(sample.body_limit, Some(1024));
    }

    #[test]
    fn uploads_have_one_of_the_types() {
        let node = node("upload-types").arg_literal("application/json").arg_literal("image/*");
        let types: UploadTypes = settings(&[node]).unwrap();
        let upload = |content_types: &[&str]| {
            let mut sample = Sample::get("/").method("POST");
            sample.body = (b"body".to_vec(), true);
            for value in content_types {
                sample.request.append(b"Content-Type", value.as_bytes());
            }
            sample.run(&CheckUpload, &types)
        };
        assert_eq!(status(upload(&["application/json; charset=utf-8"])), None);
        assert_eq!(status(upload(&["IMAGE/png"])), None);
        assert_eq!(status(upload(&["text/html"])), Some(415));
        assert_eq!(status(upload(&["image/x;q=1,text/xml"])), Some(415));
        assert_eq!(status(upload(&["image/*"])), Some(415));
        assert_eq!(status(upload(&[])), Some(415));
        assert_eq!(status(upload(&["image/png", "text/html"])), Some(415));
        let Verdict::Stop(Action::Respond(response)) = upload(&[]) else { panic!("passed") };
        assert_eq!(response.fields[1].value(), b"application/json, image/*");
        // Without a body, there is nothing to have a type.
        assert_eq!(Sample::get("/").run(&CheckUpload, &types), Verdict::Continue);
        // A body of unknown length counts as a body.
        let mut chunked = Sample::get("/").method("POST");
        chunked.body = (Vec::new(), false);
        assert_eq!(status(chunked.run(&CheckUpload, &types)), Some(415));
    }

    #[test]
    fn wrong_settings_are_refused_with_a_reason() {
        let size = settings::<ResponseLimit>(&[node("limit-response-body").arg_literal("10X")]);
        assert_eq!(size.unwrap_err().message, "this is not a size");
        let size = settings::<RequestLimit>(&[node("limit-request-body").arg_literal("2000TiB")]);
        assert_eq!(size.unwrap_err().message, "expected a size from 0 to 1024TiB");
        let types = settings::<UploadTypes>(&[node("upload-types").arg_literal("json")]);
        assert_eq!(types.unwrap_err().message, "this is not a media type");
    }
}

//! Decompression of bodies, for origins and clients that cannot do it.
//!
//! ```kdl
//! decompress {
//!     responses "unless-accepted"
//!     requests
//!     limit "64MiB"
//!     ratio 100
//!     request-ratio 20
//! }
//! ```
//!
//! Responses are decoded for clients that do not accept their coding (as with NGINX's `gunzip`), or always, so that
//! `compress` can encode them with the client's preferred coding. Requests are decoded for origins that cannot decode
//! them; a request with an unknown coding is answered with 415.

use core::ops::ControlFlow;

use foregate_module::settings::{Block, together};
use foregate_module::{
    Add, Added, AskWhole, Context, Decoded, DecodedBody, DryRun, EditRequest, EditResponse, Edits, Emit,
    Fields, Filter, FilterRequestBody, FilterResponseBody, Filtered, FromNode, Key, Never, Node, PlainBody,
    Problem, RequestFields, Respond, Response, ResponseFields, Status, Step, Value, phase,
};

use crate::coding::{self, AcceptEncoding, Limits};
use crate::compression::{VARY, forbids_changes, is_whole, known_validator};
use crate::lists::vary;

/// Digest fields. The origin could not verify them in a decoded request, because they cover the encoded body (RFC 9530,
/// sections 2 and 3).
const DIGESTS: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];
/// The bounds of `limit`, bytes.
const LIMIT: (u64, u64) = (1024, 1 << 40);
/// The bounds of `ratio`.
const RATIO: (u64, u64) = (2, 100_000);

const KEY: Key = Key {
    usage: "[{ ... }]",
    ..Key::block(
        "decompress",
        &BLOCK,
        "decompress",
        "Decompresses `gzip`, `deflate`, `br` and `zstd` bodies, for clients or origins that cannot do so.",
    )
}
.args(0, 1)
.otherwise("bodies stay compressed");

static BLOCK: Block = Block {
    keys: &[
        Key::one(
            "responses",
            "MODE",
            "responses \"always\"",
            "The responses that are decompressed. `unless-accepted`: those in a coding that the client does not accept. `always`: all. `never`: none. A request for a part of a decompressed response gets the whole.",
        )
        .default("\"unless-accepted\""),
        Key::flag(
            "requests",
            "#false",
            "requests",
            "Whether request bodies are decompressed before the origin gets them. A request with an unsupported coding gets 415.",
        ),
        Key::one(
            "limit",
            "SIZE",
            "limit \"64MiB\"",
            "The largest size of a decompressed body. Beyond: a request gets 413, and a response is broken off.",
        )
        .default("\"1GiB\""),
        Key::one(
            "ratio",
            "NUMBER",
            "ratio 100",
            "The largest ratio of decompressed to compressed bytes of a response. It applies once more than 1 MiB has been decompressed. Beyond: the response is broken off.",
        )
        .default("200"),
        Key::one(
            "request-ratio",
            "NUMBER",
            "request-ratio 20",
            "The largest ratio of decompressed to compressed bytes of a request. It applies once more than `request-free` has been decompressed. Beyond: 413.",
        )
        .default("100"),
        Key::one(
            "request-free",
            "SIZE",
            "request-free \"1MiB\"",
            "The decompressed size up to which `request-ratio` does not apply. A client can make the origin receive this much by sending about forty bytes.",
        )
        .default("\"4KiB\""),
    ],
    later: &[],
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Responses {
    UnlessAccepted,
    Always,
    Never,
}

/// The settings of `decompress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decompression {
    responses: Responses,
    requests: bool,
    limits: Limits,
    request_limits: Limits,
}

/// The default limits for requests: for each byte that a client sends, the origin must not receive more than a hundred
/// bytes.
const REQUESTS: Limits = Limits { total: Limits::TOTAL, ratio: 100, free: 4 << 10 };
/// The bounds of `request-free`, bytes.
const FREE: (u64, u64) = (0, 1 << 40);

impl FromNode for Decompression {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        const MODES: [(&str, Responses); 3] = [
            ("unless-accepted", Responses::UnlessAccepted),
            ("always", Responses::Always),
            ("never", Responses::Never),
        ];
        let limits = Limits::default();
        let Some(node) = nodes.last() else {
            let request_limits = REQUESTS;
            return Ok(Self {
                responses: Responses::UnlessAccepted,
                requests: false,
                limits,
                request_limits,
            });
        };
        let first = |name| node.child(name).map(|child| child.arg(0)).transpose();
        let requests = node.child("requests").map(|child| child.args().first());
        let ((), responses, requests, total, ratio, request_ratio, free) = together((
            node.only_flag(),
            first("responses")
                .and_then(|word| word.map_or(Ok(Responses::UnlessAccepted), |word| word.choice(&MODES))),
            requests.map_or(Ok(false), |flag| flag.map_or(Ok(true), |flag| flag.flag())),
            first("limit")
                .and_then(|size| size.map_or(Ok(limits.total), |size| size.size(LIMIT.0..=LIMIT.1))),
            first("ratio")
                .and_then(|ratio| ratio.map_or(Ok(limits.ratio), |ratio| ratio.number(RATIO.0..=RATIO.1))),
            first("request-ratio")
                .and_then(|ratio| ratio.map_or(Ok(REQUESTS.ratio), |ratio| ratio.number(RATIO.0..=RATIO.1))),
            first("request-free")
                .and_then(|size| size.map_or(Ok(REQUESTS.free), |size| size.size(FREE.0..=FREE.1))),
        ))?;
        if responses == Responses::Never && !requests {
            return Err(node.wrong("this decompresses nothing").help("add `requests`, or take it out"));
        }
        let limits = Limits { total, ratio, ..limits };
        let request_limits = Limits { total, ratio: request_ratio, free };
        Ok(Self { responses, requests, limits, request_limits })
    }
}

/// Decodes bodies of requests, before any other filter, so that all filters see the plain body.
#[derive(Debug, Default)]
pub struct DecompressRequest;

impl Step for DecompressRequest {
    type At = phase::RequestEarly;
    type Settings = Decompression;
    type In<'r> = (RequestFields<'r>,);
    type Out = (EditRequest, FilterRequestBody);
    type Stop = Respond;
    const NAME: &'static str = "decompress-request";
    const ABOUT: &'static str = "Takes the content coding off bodies of requests.";
    const FILTERS: &'static [Filter] = &[Filter::RequestField("content-encoding")];

    fn guards(settings: &Decompression) -> bool {
        settings.requests
    }

    fn run(
        &self,
        settings: &Decompression,
        (RequestFields(request),): Self::In<'_>,
    ) -> ControlFlow<Respond, Self::Out> {
        let mut values = request.all("content-encoding");
        let (value, several) = (values.next().unwrap_or_default().trim_ascii(), values.next().is_some());
        if !settings.requests || (!several && (value.is_empty() || value.eq_ignore_ascii_case(b"identity"))) {
            return ControlFlow::Continue((EditRequest(Edits::new()), FilterRequestBody(None)));
        }
        match coding::coding_of(value).filter(|_| !several) {
            Some(coding) => ControlFlow::Continue((
                EditRequest(
                    DIGESTS
                        .iter()
                        .fold(Edits::new().remove("content-encoding"), |edits, name| edits.remove(*name)),
                ),
                FilterRequestBody(Some(coding::decoder(Self::NAME, coding, settings.request_limits))),
            )),
            None => {
                // RFC 9110, section 15.5.16: the acceptable codings.
                let response = Response::new(415)
                    .body("text/plain; charset=utf-8", "415: this content coding is not supported\n")
                    .field("Accept-Encoding", "gzip, deflate, br, zstd");
                ControlFlow::Break(Respond(response))
            }
        }
    }
}

/// Set if the body of a response is decoded: its length then differs from the `content-length` in the head.
#[derive(Debug)]
pub struct Decompressed;

impl Value for Decompressed {
    type Data = ();
    const NAME: &'static str = "decompress.decoded";
    const ABOUT: &'static str = "That the content coding was taken off the response.";
}

/// Decodes responses before any other filter sees their bodies.
#[derive(Debug, Default)]
pub struct DecompressResponse;

impl Step for DecompressResponse {
    type At = phase::ResponseBody;
    type Settings = Decompression;
    type In<'r> = (RequestFields<'r>, ResponseFields<'r>, Status);
    type Out = (EditResponse, FilterResponseBody, Emit<Decompressed>);
    type Stop = Never;
    const NAME: &'static str = "decompress-response";
    const ABOUT: &'static str = "Takes the content coding off responses.";
    const FILTERS: &'static [Filter] = &[Filter::Status(200, 599)];

    fn run(
        &self,
        settings: &Decompression,
        (RequestFields(request), ResponseFields(response), Status(status)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let as_it_is =
            |edits| ControlFlow::Continue((EditResponse(edits), FilterResponseBody(None), Emit(None)));
        if status == 304 {
            return as_it_is(settings.revalidated(request, response));
        }
        let Some(coding) = only_coding(response).filter(|_| is_whole(status, response)) else {
            return as_it_is(Edits::new());
        };
        let edits = match settings.responses {
            Responses::Never => return as_it_is(Edits::new()),
            Responses::Always => Edits::new(),
            Responses::UnlessAccepted => {
                let edits = vary(Edits::new(), response, VARY);
                if AcceptEncoding::new(request).quality(coding) > 0 {
                    return as_it_is(edits);
                }
                edits
            }
        };
        let filter = coding::response_decoder(Self::NAME, coding, settings.limits);
        let edits = edits.remove("content-encoding");
        ControlFlow::Continue((EditResponse(edits), FilterResponseBody(Some(filter)), Emit(Some(()))))
    }
}

impl Decompression {
    /// The changes that a 304 needs to match the response that it stands for (RFC 9110, section 15.4.5), because that
    /// response may have been decoded.
    fn revalidated(&self, request: &dyn Fields, response: &dyn Fields) -> Edits {
        let mut edits = Edits::new();
        if self.responses == Responses::Never {
            return edits;
        }
        if let Some(validator) = known_validator(request, response) {
            edits.push(validator);
        }
        if self.responses == Responses::UnlessAccepted { vary(edits, response, VARY) } else { edits }
    }
}

/// Asks for all of a response of which the origin, or the cache, has sent a part in a coding that has to be taken off. A
/// part cannot be decoded, and its offsets are those of the encoded body: a client that continues an interrupted download
/// would append encoded bytes to decoded ones.
#[derive(Debug, Default)]
pub struct DecompressPart;

impl Step for DecompressPart {
    type At = phase::ResponseBody;
    type Settings = Decompression;
    type In<'r> = (RequestFields<'r>, ResponseFields<'r>, Status, DryRun);
    type Out = (AskWhole,);
    type Stop = Never;
    const NAME: &'static str = "decompress-part";
    const ABOUT: &'static str =
        "Asks for all of a response of which a part came in a coding to be taken off.";
    const FILTERS: &'static [Filter] = &[Filter::Status(206, 206), Filter::ResponseField("content-encoding")];
    const TRIES_PARTS: bool = true;

    fn is_idle(settings: &Decompression) -> bool {
        settings.responses == Responses::Never
    }

    fn run(
        &self,
        settings: &Decompression,
        (RequestFields(request), ResponseFields(response), Status(status), DryRun(dry_run)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let is_decoded = |coding| match settings.responses {
            Responses::Never => false,
            Responses::Always => true,
            Responses::UnlessAccepted => AcceptEncoding::new(request).quality(coding) == 0,
        };
        let asks = status == 206
            && !dry_run
            && !forbids_changes(response)
            && only_coding(response).is_some_and(is_decoded);
        ControlFlow::Continue((AskWhole(asks),))
    }
}

/// The coding of a response that has exactly one coding, and one that can be taken off.
fn only_coding(response: &dyn Fields) -> Option<coding::ContentCoding> {
    let mut values = response.all("content-encoding");
    values.next().and_then(coding::coding_of).filter(|_| values.next().is_none())
}

/// Decodes responses for later filters that need the plain body. Afterwards, the body is encoded again for the
/// client: see [`EncodeAgain`](crate::compression::EncodeAgain).
#[derive(Debug, Default)]
pub struct DecodeForFilters;

impl Step for DecodeForFilters {
    type At = phase::ResponseBody;
    type Settings = ();
    type In<'r> = (Added<'r, PlainBody>, ResponseFields<'r>, Status);
    type Out = (EditResponse, FilterResponseBody, Add<DecodedBody>);
    type Stop = Never;
    const NAME: &'static str = "decode-for-filters";
    const ABOUT: &'static str =
        "Takes the content coding off responses that other steps are going to change.";
    const FILTERS: &'static [Filter] = &[
        Filter::Written(PlainBody::NAME),
        Filter::Status(200, 599),
        Filter::ResponseField("content-encoding"),
    ];

    fn run(
        &self,
        (): &(),
        (wishes, ResponseFields(response), Status(status)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let nothing = (EditResponse(Edits::new()), FilterResponseBody(None), Add(None));
        let coding = only_coding(response);
        let wanted = wishes.iter().next().is_some() && is_whole(status, response);
        let Some(coding) = coding.filter(|_| wanted) else { return ControlFlow::Continue(nothing) };
        let dry = wishes.iter().all(|(wish, dry)| dry || wish.dry);
        let edits = if dry { Edits::new() } else { Edits::new().remove("content-encoding") };
        let filter = Filtered { dry, ..coding::response_decoder(Self::NAME, coding, Limits::default()) };
        let decoded = Decoded { coding: coding.token(), dry };
        ControlFlow::Continue((EditResponse(edits), FilterResponseBody(Some(filter)), Add(Some(decoded))))
    }
}

#[cfg(test)]
mod tests;

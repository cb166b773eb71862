//! Compression of responses, as clients ask for it.
//!
//! ```kdl
//! compress {
//!     codings "zstd" "br" "gzip"
//!     types "text/*" "application/json"
//!     minimum "1KiB"
//!     level "br" 5
//! }
//! ```
//!
//! The coding is negotiated by `Accept-Encoding`: the coding with the highest quality is used, among equals the first
//! of `codings`. A response is not compressed if it is already encoded, is partial, has the cache directive
//! `no-transform`, or is of another type. `Vary: Accept-Encoding` is added to each response that another client might
//! get in another coding.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use foregate_module::settings::{ANY, Argument, Block, each, together};
use foregate_module::{
    Added, Context, DecodedBody, Edit, EditResponse, Edits, Field, Fields, Filter, FilterResponseBody,
    FromNode, Key, MemoryIsShort, Never, Node, Problem, Read, RequestFields, ResponseFields, Status, Step,
    Value, phase,
};

use crate::coding::{self, AcceptEncoding, ContentCoding};
use crate::decompression::Decompressed;
use crate::lists::{has_element, vary};
use crate::media_type::MediaPattern;

/// The media types that are compressed by default: text, in a wide sense.
const TYPES: [&str; 7] = [
    "text/*",
    "application/json",
    "application/javascript",
    "application/xml",
    "application/*+json",
    "application/*+xml",
    "image/svg+xml",
];
/// The default of `minimum`, bytes: compressing a shorter body is not worth the time.
const MINIMUM: u64 = 256;
/// The largest value of `minimum`, bytes.
const MINIMUM_LIMIT: u64 = 1 << 30;
/// The most types that may be named.
const TYPES_LIMIT: u8 = 64;

/// The `Vary` of a response with several possible codings.
pub(crate) const VARY: &str = "Accept-Encoding";

/// The names of codings, for settings.
pub(crate) const CODINGS: [(&str, ContentCoding); 4] = [
    ("zstd", ContentCoding::Zstd),
    ("br", ContentCoding::Brotli),
    ("gzip", ContentCoding::Gzip),
    ("deflate", ContentCoding::Deflate),
];

const KEY: Key = Key {
    usage: "[{ ... }]",
    ..Key::block(
        "compress",
        &BLOCK,
        "compress",
        "Compresses responses for clients that accept it (`Accept-Encoding`).",
    )
}
.args(0, 1)
.otherwise("nothing is compressed");

static BLOCK: Block = Block {
    keys: &[
        Key::one(
            "codings",
            "CODING...",
            "codings \"br\" \"gzip\"",
            "The codings that are used: `zstd`, `br`, `gzip` or `deflate`, the preferred one first.",
        )
        .args(1, 4)
        .default("\"zstd\" \"br\" \"gzip\""),
        Key::one(
            "types",
            "TYPE...",
            "types \"text/*\" \"application/*+json\"",
            "The media types that are compressed. `*` stands for any text, also before a suffix, as in `application/*+json`.",
        )
        .args(1, TYPES_LIMIT)
        .otherwise(
            "`text/*`, `application/json`, `application/javascript`, `application/xml`, `application/*+json`, \
             `application/*+xml`, `image/svg+xml`",
        ),
        Key::one(
            "minimum",
            "SIZE",
            "minimum \"1KiB\"",
            "The smallest body that is compressed. Bodies of unknown length are always compressed.",
        )
        .default("256"),
        Key::one(
            "level",
            "CODING NUMBER",
            "level \"br\" 6",
            "The level of a coding: `gzip` and `deflate` 1 to 9, `br` 0 to 6, `zstd` 1 to 9. A higher level makes bodies smaller and takes longer.",
        )
        .args(2, 2)
        .many()
        .otherwise("`zstd` 3, `br` 4, `gzip` and `deflate` 5"),
    ],
    later: &[],
};

const _: () = assert!(TYPES_LIMIT < ANY);

/// The settings of `compress`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compression {
    /// The codings with their levels, the preferred one first.
    codings: Vec<(ContentCoding, u32)>,
    types: Vec<MediaPattern>,
    minimum: u64,
}

impl FromNode for Compression {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        let empty = Node::new("compress", Default::default());
        let node = nodes.last().unwrap_or(&empty);
        let turned_on = node.only_flag().map_err(|problem| match problem.help {
            None => problem.help("codings stand in its block: compress { codings \"gzip\" }"),
            Some(_) => problem,
        });
        let minimum = node.child("minimum").map_or(Ok(MINIMUM), |node| node.arg(0)?.size(0..=MINIMUM_LIMIT));
        let types = match node.child("types") {
            Some(node) => MediaPattern::all(node.args()),
            None => Ok(TYPES.iter().filter_map(|pattern| MediaPattern::parse(pattern)).collect()),
        };
        let levels = each::<_, Vec<_>>(node.children_named("level").map(read_level));
        let ((), mut codings, types, minimum, levels) =
            together((turned_on, read_codings(node.child("codings")), types, minimum, levels))?;
        let mut said = Vec::new();
        each::<_, ()>(levels.into_iter().map(|(argument, coding, number)| {
            if said.contains(&coding) {
                return Err(argument.wrong("this coding has a level already"));
            }
            said.push(coding);
            let found = codings.iter_mut().find(|(named, _)| *named == coding);
            let (_, level) = found.ok_or_else(|| argument.wrong("this coding is not among `codings`"))?;
            *level = number;
            Ok(())
        }))?;
        Ok(Self { codings, types, minimum })
    }
}

/// The codings of the settings, each with its default level.
fn read_codings(node: Option<&Node>) -> Result<Vec<(ContentCoding, u32)>, Problem> {
    let standard = [ContentCoding::Zstd, ContentCoding::Brotli, ContentCoding::Gzip];
    let mut codings = Vec::from(standard);
    if let Some(node) = node {
        codings.clear();
        each::<_, ()>(node.args().iter().map(|argument| {
            let coding = argument.choice(&CODINGS)?;
            if codings.contains(&coding) {
                return Err(argument.wrong("this coding is named twice"));
            }
            codings.push(coding);
            Ok(())
        }))?;
    }
    Ok(codings.into_iter().map(|coding| (coding, coding.default_level())).collect())
}

fn read_level(node: &Node) -> Result<(&Argument, ContentCoding, u32), Problem> {
    let argument = node.arg(0)?;
    let coding = argument.choice(&CODINGS)?;
    let (least, most) = coding.levels();
    let number = node.arg(1)?.number(u64::from(least)..=u64::from(most))?;
    Ok((argument, coding, number as u32))
}

/// Compresses responses.
#[derive(Debug, Default)]
pub struct Compress;

impl Step for Compress {
    type At = phase::ResponseBody;
    type Settings = Compression;
    type In<'r> = (
        RequestFields<'r>,
        ResponseFields<'r>,
        Status,
        MemoryIsShort,
        Read<'r, Decompressed>,
        Added<'r, DecodedBody>,
    );
    type Out = (EditResponse, FilterResponseBody);
    type Stop = Never;
    const NAME: &'static str = "compress";
    const ABOUT: &'static str = "Compresses responses as clients ask for it.";
    const FILTERS: &'static [Filter] = &[Filter::Status(200, 599)];
    // The filter must come after all filters that need the plain body, including those of third-party modules.
    const LAST: bool = true;

    fn run(
        &self,
        settings: &Compression,
        (
            RequestFields(request),
            ResponseFields(response),
            Status(status),
            MemoryIsShort(short),
            plain,
            decoded,
        ): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        // The head still has the length of the origin's body, not of the decoded one.
        let is_decoded = plain.0.is_some() || decoded.iter().any(|(decoded, _)| !decoded.dry);
        let length = if is_decoded { None } else { length(response) };
        if status == 304 {
            let edits = settings.revalidated(request, response);
            return ControlFlow::Continue((EditResponse(edits), FilterResponseBody(None)));
        }
        if status == 206
            && settings.is_worth_it(response, None)
            && !has_element(response, "cache-control", b"no-transform")
        {
            // This client gets a part; other clients may get the whole response, compressed.
            let edits = vary(Edits::new(), response, VARY);
            return ControlFlow::Continue((EditResponse(edits), FilterResponseBody(None)));
        }
        if !is_whole(status, response) || !settings.is_worth_it(response, length) {
            return ControlFlow::Continue((EditResponse(Edits::new()), FilterResponseBody(None)));
        }
        let edits = vary(Edits::new(), response, VARY);
        let Some((coding, level)) = AcceptEncoding::new(request).choose(&settings.codings) else {
            return ControlFlow::Continue((EditResponse(edits), FilterResponseBody(None)));
        };
        if short {
            // Memory is short. Compression can be left out, because the client also accepts the body as it is; other filters need
            // the memory more.
            return ControlFlow::Continue((EditResponse(edits), FilterResponseBody(None)));
        }
        let filter = coding::encoder(Self::NAME, coding, level, length);
        let edits = edits.set("content-encoding", coding.token());
        ControlFlow::Continue((EditResponse(edits), FilterResponseBody(Some(filter))))
    }
}

/// Restores the origin's coding of responses that were decoded for a filter: see
/// [`DecodeForFilters`](crate::decompression::DecodeForFilters). If `compress` has already encoded the response with
/// the client's preferred coding, this step does nothing.
#[derive(Debug, Default)]
pub struct EncodeAgain;

impl Step for EncodeAgain {
    type At = phase::ResponseBody;
    type Settings = ();
    type In<'r> = (Added<'r, DecodedBody>, RequestFields<'r>, ResponseFields<'r>);
    type Out = (EditResponse, FilterResponseBody);
    type Stop = Never;
    const NAME: &'static str = "encode-again";
    const ABOUT: &'static str = "Compresses responses again that were decoded for other steps.";
    const FILTERS: &'static [Filter] = &[Filter::Written(DecodedBody::NAME)];
    const LAST: bool = true;

    fn run(
        &self,
        (): &(),
        (decoded, RequestFields(request), ResponseFields(response)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let mut had = decoded.iter().map(|(decoded, _)| decoded).filter(|decoded| !decoded.dry);
        let coding = had.next().and_then(|decoded| ContentCoding::from_token(decoded.coding.as_bytes()));
        let Some(coding) = coding.filter(|_| response.get("content-encoding").is_none()) else {
            return ControlFlow::Continue((EditResponse(Edits::new()), FilterResponseBody(None)));
        };
        let edits = vary(Edits::new(), response, VARY);
        if AcceptEncoding::new(request).quality(coding) == 0 {
            return ControlFlow::Continue((EditResponse(edits), FilterResponseBody(None)));
        }
        let filter = coding::encoder(Self::NAME, coding, coding.default_level(), None);
        let edits = edits.set("content-encoding", coding.token());
        ControlFlow::Continue((EditResponse(edits), FilterResponseBody(Some(filter))))
    }
}

impl Compression {
    fn is_worth_it(&self, response: &dyn Fields, length: Option<u64>) -> bool {
        let plain = response.get("content-encoding").is_none();
        plain
            && response.get("content-type").is_some_and(|value| self.fits(value))
            && length.is_none_or(|length| length > 0 && length >= self.minimum)
    }

    fn fits(&self, content_type: &[u8]) -> bool {
        self.types.iter().any(|pattern| pattern.fits(content_type))
    }

    /// The changes that a 304 needs to match the response that it stands for (RFC 9110, section 15.4.5). `Vary` is added,
    /// unless the head shows that this response would not have been compressed. For a client with the compressed response,
    /// the validator gets its weak form, which is the one that the client knows.
    fn revalidated(&self, request: &dyn Fields, response: &dyn Fields) -> Edits {
        let mut edits = Edits::new();
        if response.get("content-encoding").is_some()
            || response.get("content-type").is_some_and(|value| !self.fits(value))
            || has_element(response, "cache-control", b"no-transform")
        {
            return edits;
        }
        if let Some(validator) = known_validator(request, response) {
            edits.push(validator);
        }
        vary(edits, response, VARY)
    }
}

/// The weak form of a 304's validator, if the client has sent this weak form: its copy was then changed by a filter.
pub(crate) fn known_validator(request: &dyn Fields, response: &dyn Fields) -> Option<Edit> {
    let strong = response.get("etag").filter(|tag| tag.starts_with(b"\""))?;
    let weak = [b"W/", strong].concat();
    let is_known = has_element(request, "if-none-match", &weak);
    Field::new("ETag", weak).ok().filter(|_| is_known).map(Edit::Set)
}

/// Returns true if the response has a whole body that may be transformed.
pub(crate) fn is_whole(status: u16, response: &dyn Fields) -> bool {
    const WITHOUT_OR_IN_PARTS: [u16; 4] = [204, 205, 206, 304];
    status >= 200
        && !WITHOUT_OR_IN_PARTS.contains(&status)
        && response.get("content-range").is_none()
        && !forbids_changes(response)
}

/// Returns true if the origin forbids changes of the body (RFC 9111, section 5.2.2.6).
pub(crate) fn forbids_changes(response: &dyn Fields) -> bool {
    has_element(response, "cache-control", b"no-transform")
}

/// The length of the body, if the head states it.
fn length(response: &dyn Fields) -> Option<u64> {
    core::str::from_utf8(response.get("content-length")?).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests;

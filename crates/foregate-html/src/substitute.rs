//! Replacement of texts in bodies of any type.
//!
//! ```kdl
//! substitute {
//!     types "text/css" "application/json"
//!     replace "http://old.example" "https://new.example"
//! }
//! ```
//!
//! The equivalent of NGINX's `sub_filter`: it searches bytes, not markup. For HTML, `html-text` and `html-links` respect the syntax.

use std::ops::ControlFlow;
use std::sync::Arc;

use foregate_module::settings::{Block, Context, FromNode, Key, Node, Problem, each, together};
use foregate_module::{
    Add, Added, Bail, BodyFilter, Count, DecodedBody, DryRun, EditResponse, Edits, Filter,
    FilterResponseBody, Filtered, Finding, Never, PlainBody, PlanVersion, RequestFields, ResponseFields,
    Sink, Status, Step, Wish, phase, versioned_validators,
};

use crate::features::flag;
use crate::features::replace_text::pairs_of;
use crate::needles::Needles;
use crate::response::{MediaType, is_encoded, is_whole, revalidated};

/// The step of this filter.
const STEP: &str = "substitute";
/// The amount of output after which the filter pauses, bytes.
const ROUND: usize = 16 * 1024;

static KEY: Key = Key::block(
    STEP,
    &BLOCK,
    "substitute { replace \"http://old.example\" \"https://new.example\" }",
    "Replaces texts in response bodies while they stream, as `sub_filter` in NGINX does. It compares bytes and does not parse markup.",
);

static BLOCK: Block = Block {
    keys: &[
        Key::one(
            "types",
            "TYPE...",
            "types \"text/css\"",
            "The media types of the responses in which texts are replaced, such as `text/css`, or `text/*` for all types that begin with `text/`.",
        )
        .args(1, 16)
        .otherwise("`text/*`, `application/javascript`, `application/json`, `application/xml`"),
        Key::one(
            "replace",
            "FROM TO",
            "replace \"http://a.example\" \"https://b.example\"",
            "A text and its replacement. If several texts match at the same place, the longest is replaced.",
        )
        .args(2, 2)
        .many()
        .required(),
        Key::flag("ignore-case", "#false", "ignore-case", "Whether upper and lower case of ASCII letters are equal."),
    ],
    later: &[],
};

/// The settings of `substitute`.
#[derive(Debug, Clone)]
pub struct ReplaceSettings {
    types: Vec<MediaType>,
    substitutes: Option<Arc<Substitutes>>,
}

#[derive(Debug)]
struct Substitutes {
    needles: Needles,
    instead: Vec<String>,
}

impl FromNode for ReplaceSettings {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        let application = |sub| MediaType::new("application", Some(sub));
        let types = vec![
            MediaType::new("text", None),
            application("javascript"),
            application("json"),
            application("xml"),
        ];
        let Some(node) = nodes.last() else { return Ok(Self { types, substitutes: None }) };
        let given = node.child("types").map(|node| each(node.args().iter().map(MediaType::from_argument)));
        let (types, ignore_case, pairs) =
            together((given.unwrap_or(Ok(types)), flag(node, "ignore-case"), pairs_of(node)))?;
        let (from, instead): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let needles = Needles::new(&from, ignore_case);
        let needles = needles.ok_or_else(|| node.wrong("these are too many texts to search for"))?;
        Ok(Self { types, substitutes: Some(Arc::new(Substitutes { needles, instead })) })
    }
}

impl ReplaceSettings {
    /// The replacements for this response, if there are any.
    fn of(&self, status: u16, response: &dyn foregate_module::Fields) -> Option<&Arc<Substitutes>> {
        let fits = |value: &[u8]| self.types.iter().any(|kind| kind.fits(value));
        let wanted = is_whole(status, response) && response.get("content-type").is_some_and(fits);
        self.substitutes.as_ref().filter(|_| wanted)
    }
}

/// Asks for a body without content coding.
#[derive(Debug, Default)]
pub struct AskForPlain;

impl Step for AskForPlain {
    type At = phase::ResponseBody;
    type Settings = ReplaceSettings;
    type In<'r> = (RequestFields<'r>, ResponseFields<'r>, PlanVersion, Status);
    type Out = (Add<PlainBody>, EditResponse);
    type Stop = Never;
    const NAME: &'static str = "substitute-ask";
    const ABOUT: &'static str =
        "Asks for the response without content coding where texts of it are replaced.";
    const FILTERS: &'static [Filter] = &[Filter::Status(200, 599)];

    fn run(
        &self,
        settings: &ReplaceSettings,
        (RequestFields(request), ResponseFields(response), PlanVersion(version), Status(status)): Self::In<
            '_,
        >,
    ) -> ControlFlow<Never, Self::Out> {
        if status == 304 {
            return ControlFlow::Continue((Add(None), EditResponse(revalidated(request, response, version))));
        }
        let wish = settings.of(status, response).map(|_| Wish { step: STEP, dry: false });
        ControlFlow::Continue((Add(wish), EditResponse(Edits::new())))
    }
}

/// Replaces texts of the body.
#[derive(Debug, Default)]
pub struct Substitute;

impl Step for Substitute {
    type At = phase::ResponseBody;
    type Settings = ReplaceSettings;
    type In<'r> = (Added<'r, DecodedBody>, ResponseFields<'r>, PlanVersion, Status, DryRun);
    type Out = (FilterResponseBody, EditResponse, Count);
    type Stop = Never;
    const NAME: &'static str = STEP;
    const ABOUT: &'static str = "Replaces texts of responses by others.";
    const FILTERS: &'static [Filter] = &[Filter::Status(200, 599)];

    fn run(
        &self,
        settings: &ReplaceSettings,
        (decoded, ResponseFields(response), PlanVersion(version), Status(status), DryRun(dry)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let passes = |event| {
            ControlFlow::Continue((FilterResponseBody(None), EditResponse(Edits::new()), Count(event)))
        };
        let Some(substitutes) = settings.of(status, response) else { return passes(None) };
        if is_encoded(response) && decoded.is_empty() {
            return passes(Some("coding-not-supported"));
        }
        let filter = Substituting { dry, ..Substituting::new(substitutes) };
        let filtered = Filtered { budget: usize::MAX, ..Filtered::new(STEP, filter) };
        let edits = versioned_validators(response, version);
        ControlFlow::Continue((FilterResponseBody(Some(filtered)), EditResponse(edits), Count(None)))
    }
}

/// The filter. It holds less input than one piece and the longest text together.
struct Substituting {
    substitutes: Arc<Substitutes>,
    /// Input that was not processed yet.
    held: Vec<u8>,
    /// True if the filter has paused, and can write more without further input.
    pending: bool,
    count: u64,
    /// True in a dry run, where the output is dropped.
    dry: bool,
}

impl Substituting {
    fn new(substitutes: &Arc<Substitutes>) -> Self {
        Self { substitutes: Arc::clone(substitutes), held: Vec::new(), pending: false, count: 0, dry: false }
    }

    fn work(&mut self, last: bool, out: &mut dyn Sink) {
        let (mut written, mut enough, count) = (0, false, &mut self.count);
        let Substitutes { needles, instead } = &*self.substitutes;
        let told = needles.search(&self.held, last, &mut |bytes, found| {
            let bytes = match found.and_then(|number| instead.get(number)) {
                Some(instead) => {
                    *count += 1;
                    instead.as_bytes()
                }
                None => bytes,
            };
            out.write(bytes);
            written += bytes.len();
            enough = written >= ROUND;
            !enough
        });
        self.held.drain(..told);
        self.pending = enough && !self.held.is_empty();
    }
}

impl BodyFilter for Substituting {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        self.held.extend_from_slice(piece);
        self.work(false, out);
        Ok(())
    }

    fn pending(&self) -> bool {
        self.pending
    }

    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        self.work(true, out);
        while !self.held.is_empty() {
            self.work(true, out);
        }
        Ok(())
    }

    fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        out.write(&std::mem::take(&mut self.held));
        self.pending = false;
        Ok(())
    }

    fn held(&self) -> usize {
        self.held.len()
    }

    fn report(&mut self, tell: &mut dyn FnMut(Finding)) {
        if self.count > 0 {
            let event = if self.dry { "dry-run-matches" } else { "matches" };
            tell(Finding { step: STEP, event, count: self.count });
        }
    }
}

#[cfg(test)]
mod tests {
    use foregate_module::testing::{Sample, filtered_at_every_split, node, settings};
    use foregate_module::{Chain, Fields};

    use super::*;
    use crate::tests::Boxed;

    fn of(pairs: &[(&str, &str)]) -> ReplaceSettings {
        let replace = |(from, to): &(&str, &str)| node("replace").arg_literal(*from).arg_literal(*to);
        let node = pairs.iter().map(replace).fold(node(STEP), |node, child| node.with_child(child));
        settings(&[node]).unwrap()
    }

    #[test]
    fn texts_are_replaced_wherever_the_body_is_split() {
        let settings = of(&[("http://a", "https://b"), ("http://a.b", "c"), ("x", "")]);
        let make = || Boxed(Box::new(Substituting::new(settings.substitutes.as_ref().unwrap())));
        let out =
            filtered_at_every_split(make, b"{\"http://a\":\"http://a.b/x\",\"h\":\"http://\xff\"}http://a")
                .unwrap();
        assert_eq!(out, b"{\"https://b\":\"c/\",\"h\":\"http://\xff\"}https://b");
    }

    #[test]
    fn a_text_is_replaced_by_one_other() {
        let replace = |from: &str, to: &str| node("replace").arg_literal(from).arg_literal(to);
        let twice = node(STEP).with_child(replace("a", "b")).with_child(replace("a", "c"));
        let problem = settings::<ReplaceSettings>(&[twice]).unwrap_err();
        assert_eq!(problem.message, "this text is replaced by an earlier line already");
    }

    #[test]
    fn a_dry_run_counts_what_it_would_replace() {
        let settings = of(&[("a", "b")]);
        let substitutes = settings.substitutes.as_ref().unwrap();
        for (dry, event) in [(false, "matches"), (true, "dry-run-matches")] {
            let mut filter = Substituting { dry, ..Substituting::new(substitutes) };
            let mut told = Vec::new();
            filter.write(b"a a", &mut Vec::new()).unwrap();
            filter.end(&mut Vec::new()).unwrap();
            filter.report(&mut |finding| told.push((finding.event, finding.count)));
            assert_eq!(told, [(event, 2)]);
        }
    }

    #[test]
    fn a_byte_that_becomes_many_is_written_a_little_at_a_time() {
        let settings = of(&[("a", &"b".repeat(3000))]);
        let filter = Substituting::new(settings.substitutes.as_ref().unwrap());
        let mut chain = Chain::new(vec![Filtered::new(STEP, filter)]);
        let (mut out, mut total) = (Vec::new(), 0);
        chain.write(&b"a".repeat(4096), &mut out).unwrap();
        while chain.is_pending() {
            assert!(out.len() <= ROUND + 3000);
            total += out.len();
            out.clear();
            chain.resume(&mut out).unwrap();
        }
        chain.end(&mut out).unwrap();
        assert_eq!(total + out.len(), 4096 * 3000);
    }

    #[test]
    fn only_whole_bodies_of_its_types_are_asked_for() {
        let asks = |status: u16, fields: &[(&str, &str)]| {
            let mut sample =
                fields.iter().fold(Sample::get("/").response(status), |sample, (name, value)| {
                    sample.response_field(name, value)
                });
            sample.run(&AskForPlain, &of(&[("a", "b")]));
            sample.run(&Substitute, &of(&[("a", "b")]));
            (sample.added::<PlainBody>().len(), sample.state.response_filters.len())
        };
        assert_eq!(asks(200, &[("content-type", "text/css")]), (1, 1));
        assert_eq!(asks(200, &[("content-type", "image/png")]), (0, 0));
        assert_eq!(asks(206, &[("content-type", "text/css")]), (0, 0));
        assert_eq!(asks(200, &[("content-type", "text/css"), ("cache-control", "no-transform")]), (0, 0));
        assert_eq!(asks(200, &[("content-type", "text/css"), ("content-encoding", "gzip")]), (1, 0));
        let mut sample =
            Sample::get("/").field("if-none-match", "W/\"x\"").response(304).response_field("etag", "\"x\"");
        sample.run(&AskForPlain, &of(&[("a", "b")]));
        assert_eq!(sample.response.get("etag"), Some(&b"W/\"x\""[..]));
    }

    #[test]
    fn what_cannot_be_searched_for_is_refused() {
        for child in [
            node("replace").arg_literal("").arg_literal("b"),
            node("replace").arg_literal("a").arg_literal(&*"b".repeat(70_000)),
        ] {
            assert!(settings::<ReplaceSettings>(&[node(STEP).with_child(child)]).is_err());
        }
    }
}

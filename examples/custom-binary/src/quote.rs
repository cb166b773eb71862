//! `quote`: puts what a server says in place of `{{quote}}` in HTML.
//!
//! ```kdl
//! upstream "quotes" { server "127.0.0.1:9001"; }
//! quote upstream="quotes" path="/today"
//! ```

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use foregate_module::settings::{Context, FromNode, Key, Node, Problem, Prop, UpstreamId};
use foregate_module::{
    Add, AskWhole, Bail, BodyFilter, EditResponse, Edits, Emit, Fetch, FetchKey, FetchRequest, Fetched,
    Fields, Filter, FilterResponseBody, Filtered, Kind, Never, PlainBody, Read, ResponseFields, Shown, Sink,
    Status, Step, Value, Wish, phase,
};

/// Whom to ask, and for what.
#[derive(Debug)]
pub struct Source {
    upstream: UpstreamId,
    path: Arc<[u8]>,
}

static KEY: Key = Key::one(
    "quote",
    "upstream=NAME path=PATH",
    "quote upstream=\"quotes\" path=\"/today\"",
    "Puts what the upstream says in place of `{{quote}}` in HTML.",
)
.args(0, 0)
.props(&[
    Prop { name: "upstream", usage: "NAME", required: true, default: "", about: "Whom to ask." },
    Prop { name: "path", usage: "PATH", required: true, default: "", about: "For what." },
]);

impl FromNode for Source {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let node =
            nodes.first().ok_or_else(|| Problem::new(Default::default(), "`quote` has no settings"))?;
        let property =
            |name: &str| node.prop(name).ok_or_else(|| node.wrong(format!("`quote` needs `{name}`")));
        let (upstream, path) = (property("upstream")?, property("path")?);
        let text = path.text()?;
        if !text.starts_with('/') {
            return Err(path.wrong("a path begins with `/`"));
        }
        Ok(Self { upstream: context.upstream(upstream)?, path: text.as_bytes().into() })
    }
}

/// The name of the question.
pub struct Today;

impl FetchKey for Today {
    const NAME: &'static str = "quote.question";
    const ANSWER: &'static str = "quote.answer";
}

/// Asks for the quote.
#[derive(Debug, Default)]
pub struct Ask;

impl Step for Ask {
    type At = phase::RequestRewrite;
    type Settings = Source;
    type In<'r> = ();
    type Out = (Emit<Fetch<Today>>,);
    type Stop = Never;
    const NAME: &'static str = "quote-ask";
    const ABOUT: &'static str = "Asks for the quote of the day.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, source: &Source, (): ()) -> ControlFlow<Never, Self::Out> {
        let question = FetchRequest {
            timeout: Duration::from_millis(300),
            limit: 1024,
            // Requests of the next minute are not asked for.
            keep: Duration::from_secs(60),
            ..FetchRequest::get(source.upstream, Arc::clone(&source.path))
        };
        ControlFlow::Continue((Emit(Some(question)),))
    }
}

/// The quote that a page gets.
pub struct Text;

impl Value for Text {
    type Data = Arc<[u8]>;
    const NAME: &'static str = "quote.text";
    const ABOUT: &'static str = "The quote of the day.";
    const SHOWS: Option<Kind> = Some(Kind::Bytes);

    fn show(text: &Arc<[u8]>) -> Option<Shown<'_>> {
        Some(Shown::Bytes(text))
    }
}

/// Takes the answer, and wants the page without its content coding and without what says whether it is still the same.
#[derive(Debug, Default)]
pub struct Take;

impl Step for Take {
    type At = phase::ResponseHeaders;
    type Settings = Source;
    type In<'r> = (Read<'r, Fetched<Today>>, ResponseFields<'r>);
    type Out = (Emit<Text>, Add<PlainBody>, EditResponse);
    type Stop = Never;
    const NAME: &'static str = "quote-take";
    const ABOUT: &'static str = "Takes the answer for a page that is HTML.";
    const FILTERS: &'static [Filter] = &[Filter::Status(200, 299)];
    const RENEWS: bool = true;

    fn run(
        &self,
        _: &Source,
        (Read(answer), ResponseFields(fields)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        if !is_html(fields) {
            return ControlFlow::Continue((Emit(None), Add(None), EditResponse(Edits::default())));
        }
        // Without an answer there is a page without a quote.
        let text = match answer {
            Some(Ok(answer)) if answer.status == 200 => answer.body.trim_ascii(),
            _ => b"",
        };
        let wish = Wish { step: Write::NAME, dry: false };
        // The page changes with the quote, and the origin does not know.
        let edits = Edits::default().remove("etag").remove("last-modified");
        ControlFlow::Continue((Emit(Some(text.into())), Add(Some(wish)), EditResponse(edits)))
    }
}

fn is_html(fields: &dyn Fields) -> bool {
    fields.get("content-type").is_some_and(|kind| kind.starts_with(b"text/html"))
}

/// Puts the quote into the page.
#[derive(Debug, Default)]
pub struct Write;

impl Step for Write {
    type At = phase::ResponseBody;
    type Settings = Source;
    type In<'r> = (Read<'r, Text>, Status, ResponseFields<'r>);
    type Out = (FilterResponseBody, AskWhole);
    type Stop = Never;
    const NAME: &'static str = "quote-write";
    const ABOUT: &'static str = "Puts the quote into the page.";
    const FILTERS: &'static [Filter] = &[];
    const TRIES_PARTS: bool = true;

    fn run(
        &self,
        _: &Source,
        (Read(text), Status(status), ResponseFields(fields)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let filter = text.map(|text| Filtered::new(Self::NAME, Replace::new(text)));
        // In a part of a page, half of the place may be missing. Of a film, parts are parts.
        ControlFlow::Continue((FilterResponseBody(filter), AskWhole(status == 206 && is_html(fields))))
    }
}

/// What stands for the quote.
const PLACE: &[u8] = b"{{quote}}";

/// Replaces [`PLACE`].
struct Replace {
    text: Arc<[u8]>,
    /// What may be the start of a place.
    held: Vec<u8>,
}

impl Replace {
    fn new(text: &Arc<[u8]>) -> Self {
        Self { text: Arc::clone(text), held: Vec::new() }
    }
}

impl BodyFilter for Replace {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        self.held.extend_from_slice(piece);
        let mut rest = &*self.held;
        while let Some(at) = rest.windows(PLACE.len()).position(|bytes| bytes == PLACE) {
            out.write(&rest[..at]);
            out.write(&self.text);
            rest = &rest[at + PLACE.len()..];
        }
        let begun = (0..PLACE.len()).rev().find(|length| rest.ends_with(&PLACE[..*length])).unwrap_or(0);
        let (passes, kept) = rest.split_at(rest.len() - begun);
        out.write(passes);
        self.held = kept.to_vec();
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        self.bail(out)
    }

    fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        out.write(&self.held);
        self.held.clear();
        Ok(())
    }

    fn held(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use foregate_module::testing::{Sample, filtered_at_every_split};
    use foregate_module::{FetchError, FetchResponse, Verdict};

    use super::*;

    fn source() -> Source {
        Source { upstream: UpstreamId(0), path: (*b"/today").into() }
    }

    #[test]
    fn a_page_gets_the_answer() {
        let said = |answer: Result<FetchResponse, FetchError>, kind: &str| {
            let mut sample = Sample::get("/").response(200).response_field("content-type", kind);
            sample.put::<Fetched<Today>>(answer);
            assert_eq!(sample.run(&Take, &source()), Verdict::Continue);
            sample.value::<Text>().map(|text| text.to_vec())
        };
        let answer = || FetchResponse { status: 200, fields: Vec::new(), body: "carpe diem\n".into() };
        assert_eq!(said(Ok(answer()), "text/html"), Some(b"carpe diem".to_vec()));
        assert_eq!(said(Err(FetchError::Timeout), "text/html"), Some(Vec::new()));
        assert_eq!(said(Ok(answer()), "image/png"), None);
    }

    #[test]
    fn a_page_with_a_quote_cannot_be_asked_whether_it_is_the_same() {
        let mut sample = Sample::get("/").response(200);
        for (name, value) in [("content-type", "text/html"), ("etag", "\"a\""), ("last-modified", "then")] {
            sample = sample.response_field(name, value);
        }
        sample.run(&Take, &source());
        assert_eq!(["etag", "last-modified"].map(|name| sample.response.get(name)), [None, None]);
    }

    #[test]
    fn a_part_of_a_page_is_asked_for_as_a_whole() {
        let asks = |kind: &str| {
            let mut sample = Sample::get("/").response(206).response_field("content-type", kind);
            sample.run(&Write, &source());
            sample.state.asks_whole
        };
        assert_eq!([asks("text/html"), asks("video/mp4")], [true, false]);
    }

    #[test]
    fn the_question_goes_to_the_upstream() {
        let mut sample = Sample::get("/");
        sample.run(&Ask, &source());
        let question = sample.value::<Fetch<Today>>().unwrap();
        assert_eq!(&*question.path, b"/today");
    }

    #[test]
    fn the_place_is_found_however_the_page_is_cut() {
        let made =
            filtered_at_every_split(|| Replace::new(&(*b"Q").into()), b"<p>{{quote}}{{{quote}} {{quot");
        assert_eq!(made, Some(b"<p>Q{Q {{quot".to_vec()));
    }
}

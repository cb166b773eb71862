//! Custom error pages, in place of those of the proxy or of an origin.
//!
//! ```kdl
//! error-pages {
//!     page 404 file="404.html"
//!     page 502 503 504 upstream="pages" path="/errors/{status}.html" keep="5m"
//!     page "4xx" "5xx" "520-530" text="<h1>{status} {reason}</h1><p>{request-id}"
//!     json "{\"status\": {status}, \"id\": \"{request-id}\"}"
//! }
//! ```
//!
//! The first `page` with the response's status is used. Its text is in the configuration or in a file, or it is
//! fetched from an upstream and cached; if the fetch fails, the original response is sent. Tokens in braces are
//! replaced. The page keeps the fields of the original response (such as `retry-after`, `www-authenticate`,
//! `set-cookie`), except those that describe its body.
//!
//! The value `error-page.source`, which is a note of the access log as well, tells where the page came from: `text`,
//! `file`, `fetched`, `json`, or `original` when fetching failed. The metric
//! `foregate_step_events_total{step="error-pages-make",event="..."}` counts by the same names.

mod template;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::{ControlFlow, RangeInclusive};
use core::time::Duration;

use foregate_module::settings::{ANY, Argument, Block, Mistakes, Prop, together};
use foregate_module::{
    ClientAddress, Context, Count, EditResponse, Edits, Emit, Fetch, FetchKey, FetchRequest, FetchResponse,
    FetchResult, Fetched, Field, Fields, Filter, FromNode, Host, Key, Kind, Never, Node, Note, Notes, Path,
    Problem, Read, Replace, RequestFields, Response, ResponseFields, ResponseSource, Shown, Source, Status,
    Step, Text, UpstreamId, Value, phase,
};

use self::template::{Escape, Facts, PageTemplate, misspelt};
use crate::coding::{FULL, quality};
use crate::lists::{OF_SHARED_CACHES, vary};
use crate::request_id::RequestId;
use crate::trace::Trace;

/// Statuses that only occur before the site of a request is known.
const BEFORE_SITES: [usize; 2] = [414, 431];

/// The largest page, bytes.
const PAGE_LIMIT: usize = 1 << 20;

/// The most pages.
const PAGES_LIMIT: usize = 250;

/// Statuses that can have a page. An origin may use statuses above 599 for errors of its own; such a response passes
/// unchanged if there is no page for it.
const STATUSES: RangeInclusive<u64> = 300..=999;

/// The default media type of a page.
const HTML: &str = "text/html; charset=utf-8";

/// Fields that describe the replaced body, and are removed with it. All other fields are kept.
const OF_THE_BODY: [&str; 14] = [
    "content-type",
    "content-length",
    "content-encoding",
    "content-language",
    "content-location",
    "content-range",
    "content-disposition",
    "content-md5",
    "content-digest",
    "digest",
    "repr-digest",
    "etag",
    "last-modified",
    "accept-ranges",
];

const PAGE: Key = Key {
    usage: "STATUS... text=TEXT | file=FILE | upstream=NAME path=PATH",
    ..Key::one(
        "page",
        "",
        "page 404 \"5xx\" text=\"<h1>{status} {reason}</h1>\"",
        "The page for these statuses, such as 404, \"4xx\" or \"520-530\". If several pages list a status, the first one is used.",
    )
}
.args(1, ANY)
.many()
.props(&[
    Prop { name: "text", usage: "TEXT", required: false, default: "", about: "The content of the page." },
    Prop { name: "file", usage: "FILE", required: false, default: "", about: "A file with the page." },
    Prop {
        name: "upstream",
        usage: "NAME",
        required: false,
        default: "",
        about: "The upstream that serves the page. Its answer is used if it has status 200.",
    },
    Prop {
        name: "path",
        usage: "PATH",
        required: false,
        default: "\"/{status}.html\"",
        about: "The path of the page at the upstream; `{status}` is replaced.",
    },
    Prop {
        name: "keep",
        usage: "DURATION",
        required: false,
        default: "\"1m\"",
        about: "How long a fetched page is used. If it cannot be fetched again after that, it is used for the same time once more.",
    },
    Prop {
        name: "timeout",
        usage: "DURATION",
        required: false,
        default: "\"2s\"",
        about: "The time for the fetch. Beyond: the original response is sent.",
    },
    Prop {
        name: "type",
        usage: "TYPE",
        required: false,
        default: "\"text/html; charset=utf-8\"",
        about: "The content type of the page. A fetched page keeps its own type if it has one.",
    },
    Prop {
        name: "status",
        usage: "STATUS",
        required: false,
        default: "the original's",
        about: "The status that is sent with the page.",
    },
]);

const BLOCK: Block = Block {
    keys: &[
        PAGE,
        Key::one(
            "json",
            "TEXT",
            "json \"{\\\"status\\\": {status}}\"",
            "The body for clients that prefer `application/json`. It replaces the page of every status that has a page.",
        ),
    ],
    later: &[],
};

const KEY: Key = Key {
    usage: "of=\"proxy\"|\"origin\"|\"both\" { page ...; json TEXT }",
    ..Key::one(
        "error-pages",
        "",
        "error-pages { page \"5xx\" file=\"5xx.html\" }",
        "Replaces error responses with your own pages. These placeholders in a page are replaced by their values: `{status}`, `{reason}`, `{error}`, `{request-id}`, `{ray}`, \
         `{trace-id}`, `{client-ip}`, `{host}`, `{path}`.",
    )
}
.args(0, 1)
.with(&BLOCK)
.otherwise("errors of Foregate have a line of text as their body; those of origins pass unchanged")
.props(&[Prop {
    name: "of",
    usage: "\"proxy\"|\"origin\"|\"both\"",
    required: false,
    default: "\"proxy\"",
    about: "The errors that get a page. `proxy`: those of Foregate and its modules. `origin`: those of origins. `both`: all.",
}]);

/// The sources of errors that get a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Proxy,
    Origin,
    Both,
}

impl Of {
    fn holds(self, source: Source<'_>) -> bool {
        match source {
            Source::Upstream => self != Self::Proxy,
            // These responses already have a text from the configuration, such as that of `respond`.
            Source::Route | Source::Nobody | Source::Step { meant: true, .. } => false,
            Source::Error(_) | Source::Step { meant: false, .. } => self != Self::Origin,
        }
    }
}

/// One page.
#[derive(Debug)]
struct Page {
    body: Body,
    content_type: Text,
    status: Option<u16>,
}

#[derive(Debug)]
enum Body {
    Text(PageTemplate),
    File(PageTemplate),
    Fetched { upstream: UpstreamId, path: String, keep: Duration, timeout: Duration },
}

/// The settings.
#[derive(Debug)]
pub struct ErrorPages {
    of: Of,
    pages: Vec<Page>,
    /// For each status, the number of its page.
    by_status: Box<[u8]>,
    json: Option<PageTemplate>,
}

/// The entry of a status without a page.
const NONE: u8 = u8::MAX;

impl FromNode for ErrorPages {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        const WORDS: [(&str, Of); 3] = [("proxy", Of::Proxy), ("origin", Of::Origin), ("both", Of::Both)];
        let statuses = *STATUSES.end() as usize + 1;
        let mut settings = Self {
            of: Of::Proxy,
            pages: Vec::new(),
            by_status: alloc::vec![NONE; statuses].into(),
            json: None,
        };
        let [node] = nodes else { return Ok(settings) };
        if let Some(argument) = node.args().first() {
            return Err(argument
                .wrong("`error-pages` takes a block")
                .help("write error-pages { page 404 ... }"));
        }
        let mut mistakes = Mistakes::default();
        let of = mistakes.kept(node.prop("of").map_or(Ok(Of::Proxy), |of| of.choice(&WORDS)));
        for (number, page) in node.children_named("page").enumerate() {
            if number == PAGES_LIMIT {
                mistakes.add(page.wrong(format!("more than {PAGES_LIMIT} pages")));
                break;
            }
            for status in page.args() {
                let Some(range) = mistakes.kept(statuses_of(status)) else { continue };
                if of == Some(Of::Proxy) && range.clone().all(|status| BEFORE_SITES.contains(&status)) {
                    let warning =
                        status.wrong("the proxy never asks for this page: such a request is refused");
                    context.warn(warning.help("it has no site yet, and modules do not see the answer"));
                }
                let places = &mut settings.by_status[range];
                if places.iter().all(|place| ![NONE, number as u8].contains(place)) {
                    let problem =
                        status.wrong("there is a page for this before it, so that it is never sent");
                    mistakes.add(problem.help(
                        "the first page that has a status is taken: put those for single statuses first",
                    ));
                }
                places.iter_mut().filter(|place| **place == NONE).for_each(|place| *place = number as u8);
            }
            settings.pages.extend(mistakes.kept(read_page(page, context)));
        }
        if node.child("page").is_none() {
            mistakes.add(node.wrong("`error-pages` needs a page"));
        }
        let json = node.child("json").map(|json| {
            let json = json.arg(0)?;
            Ok(read_template(json, json.text()?.as_bytes(), Escape::Json, context))
        });
        settings.json = mistakes.kept(json.transpose()).flatten();
        settings.of = of.unwrap_or(settings.of);
        mistakes.none().map(|()| settings)
    }
}

/// `404`, `"404"`, `"4xx"`, `"520-530"`.
fn statuses_of(argument: &Argument) -> Result<RangeInclusive<usize>, Problem> {
    let wrong = || argument.wrong("expected a status from 300 to 999, such as 404, \"4xx\" or \"520-530\"");
    let within = |number: u64| STATUSES.contains(&number).then_some(number as usize);
    let Ok(text) = argument.text() else {
        let number = argument.number(0..=u64::MAX).ok().and_then(within).ok_or_else(wrong)?;
        return Ok(number..=number);
    };
    let number = |text: &str| {
        let digits = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| digits).and_then(within)
    };
    let range = match (text.strip_suffix("xx"), text.split_once('-')) {
        (Some(class), _) => number(&format!("{class}00")).map(|first| first..=first + 99),
        (None, Some((first, last))) => number(first).zip(number(last)).map(|(first, last)| first..=last),
        (None, None) => number(text).map(|number| number..=number),
    };
    range.filter(|range| !range.is_empty()).ok_or_else(wrong)
}

fn read_page(node: &Node, context: &mut dyn Context) -> Result<Page, Problem> {
    let content_type = node.prop("type").map_or(Ok(HTML.into()), read_type);
    let status = node.prop("status").map(read_status).transpose();
    let escape = content_type.as_ref().map_or(Escape::Json, |content_type| Escape::for_type(content_type));
    let (body, content_type, status) = together((read_body(node, escape, context), content_type, status))?;
    Ok(Page { body, content_type, status })
}

fn read_status(argument: &Argument) -> Result<u16, Problem> {
    match argument.number(200..=999)? {
        204 | 205 | 304 => {
            Err(argument.wrong("a response with this status has no body (RFC 9110, section 6.4.1)"))
        }
        status => Ok(status as u16),
    }
}

fn read_type(argument: &Argument) -> Result<Text, Problem> {
    let text = argument.text()?;
    Field::new("content-type", text.to_string()).map_err(|error| argument.wrong(error.to_string()))?;
    Ok(Text::Shared(text.as_bytes().into()))
}

fn read_body(node: &Node, escape: Escape, context: &mut dyn Context) -> Result<Body, Problem> {
    let only_fetched = ["path", "keep", "timeout"].iter().find_map(|name| node.prop(name));
    Ok(match (node.prop("text"), node.prop("file"), node.prop("upstream")) {
        (Some(_), None, None) | (None, Some(_), None) if only_fetched.is_some() => {
            let argument = only_fetched.map_or_else(|| node.place(), Argument::place);
            return Err(Problem::new(argument, "this belongs to pages that are fetched with upstream=NAME"));
        }
        (Some(text), None, None) => Body::Text(read_template(text, text.text()?.as_bytes(), escape, context)),
        (None, Some(file), None) => {
            let text = context.file(file, PAGE_LIMIT)?;
            Body::File(read_template(file, &text, escape, context))
        }
        (None, None, Some(upstream)) => {
            let (upstream, path, keep, timeout) = together((
                context.upstream(upstream),
                read_path(node.prop("path")),
                duration(node, "keep", Duration::from_secs(60)),
                duration(node, "timeout", Duration::from_secs(2)),
            ))?;
            Body::Fetched { upstream, path, keep, timeout }
        }
        _ => {
            return Err(node.wrong("a page needs exactly one of text=TEXT, file=FILE and upstream=NAME"));
        }
    })
}

/// The template of a text: `argument` contains the text or names its file.
fn read_template(
    argument: &Argument,
    text: &[u8],
    escape: Escape,
    context: &mut dyn Context,
) -> PageTemplate {
    if let Some((written, token)) = misspelt(text) {
        let warning =
            argument.wrong(format!("`{{{written}}}` is nothing that is replaced: it is sent as it stands"));
        context.warn(warning.help(format!("did you mean `{{{token}}}`?")));
    }
    PageTemplate::new(text, escape)
}

fn read_path(path: Option<&Argument>) -> Result<String, Problem> {
    let Some(path) = path else { return Ok("/{status}.html".into()) };
    let text = path.text()?;
    if !text.starts_with('/') || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(path.wrong("expected a path that starts with `/`"));
    }
    Ok(text.into())
}

fn duration(node: &Node, name: &str, default: Duration) -> Result<Duration, Problem> {
    const LONGEST: Duration = Duration::from_secs(86_400);
    node.prop(name).map_or(Ok(default), |value| value.duration(Duration::from_millis(1)..=LONGEST))
}

impl ErrorPages {
    fn page(&self, status: u16, source: Source<'_>) -> Option<&Page> {
        // A 304 stands for a response that the client already has, and repeats its fields (RFC 9110, section 15.4.5).
        if status == 304 {
            return None;
        }
        let number = *self.by_status.get(usize::from(status))?;
        self.pages.get(usize::from(number)).filter(|_| self.of.holds(source))
    }
}

/// The fetch of a page, and its answer.
#[derive(Debug)]
pub enum PageFetch {}

impl FetchKey for PageFetch {
    const NAME: &'static str = "error-page.request";
    const ANSWER: &'static str = "error-page.answer";
}

/// The source of the chosen page.
#[derive(Debug)]
pub enum Chosen {}

/// The value of [`Chosen`] after a failed fetch.
const ORIGINAL: &str = "original";

/// The value of [`Chosen`] for clients that prefer JSON.
const JSON: &str = "json";

impl Value for Chosen {
    type Data = &'static str;
    const NAME: &'static str = "error-page.source";
    const ABOUT: &'static str =
        "Where the page for an error came from: text, file, fetched, json, or original when fetching failed.";
    const SHOWS: Option<Kind> = Some(Kind::Bytes);
    fn show(source: &Self::Data) -> Option<Shown<'_>> {
        Some(Shown::Bytes(source.as_bytes()))
    }
}

/// Returns true if a client prefers `application/json`, or another type of JSON, to HTML (RFC 9110, section 12.5.1).
fn prefers_json(fields: &dyn Fields) -> bool {
    // For each type: specificity and weight of the media range that matches it. The most specific range counts.
    let (mut json, mut html) = ((0, 0), (0, 0));
    for range in fields.all("accept").flat_map(|value| value.split(|byte| *byte == b',')) {
        let mut parts = range.split(|byte| *byte == b';');
        let name = parts.next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        let weight = parts.map(<[u8]>::trim_ascii).find_map(quality).unwrap_or(FULL);
        match &*name {
            b"application/json" => json = json.max((3, weight)),
            name if name.starts_with(b"application/") && name.ends_with(b"+json") => {
                json = json.max((3, weight));
            }
            b"application/*" => json = json.max((2, weight)),
            b"text/html" | b"application/xhtml+xml" => html = html.max((3, weight)),
            b"text/*" => html = html.max((2, weight)),
            b"*/*" => (json, html) = (json.max((1, weight)), html.max((1, weight))),
            _ => {}
        }
    }
    json.1 > html.1
}

/// Fetches the page from an upstream, if it has to be fetched.
#[derive(Debug, Default)]
pub struct AskForPage;

impl Step for AskForPage {
    type At = phase::ResponseHeaders;
    type Settings = ErrorPages;
    type In<'r> = (Status, ResponseSource<'r>, RequestFields<'r>);
    type Out = (Emit<Fetch<PageFetch>>,);
    type Stop = Never;
    const NAME: &'static str = "error-pages-fetch";
    const ABOUT: &'static str = "Asks an upstream for the page for an error.";
    const FILTERS: &'static [Filter] = &[Filter::Status(*STATUSES.start() as u16, *STATUSES.end() as u16)];

    fn is_idle(settings: &ErrorPages) -> bool {
        !settings.pages.iter().any(|page| matches!(page.body, Body::Fetched { .. }))
    }

    fn run(
        &self,
        settings: &ErrorPages,
        (Status(status), ResponseSource(source), RequestFields(fields)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let request = match settings.page(status, source).map(|page| &page.body) {
            Some(Body::Fetched { upstream, path, keep, timeout })
                if settings.json.is_none() || !prefers_json(fields) =>
            {
                let path = path.replace("{status}", &status.to_string());
                Some(FetchRequest {
                    fields: Field::new("accept-encoding", "identity").into_iter().collect(),
                    timeout: *timeout,
                    limit: PAGE_LIMIT,
                    keep: *keep,
                    ..FetchRequest::get(*upstream, path)
                })
            }
            _ => None,
        };
        ControlFlow::Continue((Emit(request),))
    }
}

/// Chooses the source of the page.
#[derive(Debug, Default)]
pub struct Make;

impl Step for Make {
    type At = phase::ResponseErrorPage;
    type Settings = ErrorPages;
    type In<'r> = (Status, ResponseSource<'r>, RequestFields<'r>, Read<'r, Fetched<PageFetch>>);
    type Out = (Emit<Chosen>, Notes, Count);
    type Stop = Never;
    const NAME: &'static str = "error-pages-make";
    const ABOUT: &'static str = "Chooses the page for an error.";
    const FILTERS: &'static [Filter] = AskForPage::FILTERS;

    fn run(&self, settings: &ErrorPages, input: Self::In<'_>) -> ControlFlow<Never, Self::Out> {
        let (Status(status), ResponseSource(source), RequestFields(request), Read(fetched)) = input;
        let Some(page) = settings.page(status, source) else {
            return ControlFlow::Continue((Emit(None), Notes(Vec::new()), Count(None)));
        };
        let name = match settings.json {
            Some(_) if prefers_json(request) => JSON,
            _ => page.source(fetched),
        };
        let note = Note { name: "error-page".into(), value: name.into() };
        ControlFlow::Continue((Emit(Some(name)), Notes(Vec::from([note])), Count(Some(name))))
    }
}

impl Page {
    /// The source of the page.
    fn source(&self, fetched: Option<&FetchResult>) -> &'static str {
        match &self.body {
            Body::Text(_) => "text",
            Body::File(_) => "file",
            Body::Fetched { .. } if usable(fetched).is_some() => "fetched",
            Body::Fetched { .. } => ORIGINAL,
        }
    }

    /// The finished page.
    fn make(&self, facts: &Facts<'_>, fetched: Option<&FetchResult>) -> Option<ReadyPage> {
        match &self.body {
            Body::Text(template) | Body::File(template) => {
                Some(ReadyPage::of(self.content_type.clone(), template, facts))
            }
            Body::Fetched { .. } => {
                let answer = usable(fetched)?;
                let content_type = match answer.field("content-type") {
                    Some(content_type) => content_type.to_vec().into(),
                    None => self.content_type.clone(),
                };
                let template = PageTemplate::new(&answer.body, Escape::for_type(&content_type));
                Some(ReadyPage::of(content_type, &template, facts))
            }
        }
    }
}

/// A page as it is sent.
struct ReadyPage {
    content_type: Text,
    body: Text,
    /// Set if only this client may see the page, so that no cache may store it.
    personal: bool,
}

impl ReadyPage {
    fn of(content_type: Text, template: &PageTemplate, facts: &Facts<'_>) -> Self {
        Self { content_type, body: template.fill(facts), personal: template.is_personal() }
    }
}

/// The fetched response, if it can be used as a page.
fn usable(fetched: Option<&FetchResult>) -> Option<&FetchResponse> {
    let Some(Ok(answer)) = fetched else { return None };
    // Tokens cannot be found in a compressed body, and the client may not accept the coding.
    let coded = answer.field("content-encoding").is_some_and(|coding| coding != b"identity");
    (answer.status == 200 && !coded).then_some(answer)
}

/// The fields that are kept: all except those that describe the body or the framing. A 416 keeps its `content-range`,
/// which states the length of the resource (RFC 9110, section 15.5.17). A `personal` page loses the caching fields.
fn kept(fields: &dyn Fields, status: u16, personal: bool) -> Vec<Field> {
    let is_in =
        |names: &[&str], name: &[u8]| names.iter().any(|field| name.eq_ignore_ascii_case(field.as_bytes()));
    let of_the_body = |name: &[u8]| {
        is_in(&OF_THE_BODY, name) && !(status == 416 && name.eq_ignore_ascii_case(b"content-range"))
    };
    let of_caches = |name: &[u8]| {
        personal && (is_in(&["cache-control", "expires"], name) || is_in(&OF_SHARED_CACHES, name))
    };
    let stays = fields.iter().filter(|(name, _)| !of_the_body(name) && !of_caches(name));
    // Has room for the three fields that are added later.
    let mut kept = Vec::with_capacity(fields.count() + 3);
    kept.extend(stays.filter_map(|(name, value)| Field::new(name.to_vec(), value.to_vec()).ok()));
    kept
}

/// Makes the page and sends it.
#[derive(Debug, Default)]
pub struct Serve;

impl Step for Serve {
    type At = phase::ResponseErrorPage;
    type Settings = ErrorPages;
    type In<'r> = (
        Status,
        ResponseSource<'r>,
        ResponseFields<'r>,
        Host<'r>,
        Path<'r>,
        ClientAddress,
        Read<'r, RequestId>,
        Read<'r, Trace>,
        Read<'r, Fetched<PageFetch>>,
        Read<'r, Chosen>,
    );
    type Out = (EditResponse,);
    type Stop = Replace;
    const NAME: &'static str = "error-pages";
    const ABOUT: &'static str = "Sends the page for an error.";
    const FILTERS: &'static [Filter] = AskForPage::FILTERS;

    fn run(&self, settings: &ErrorPages, input: Self::In<'_>) -> ControlFlow<Replace, (EditResponse,)> {
        let (Status(status), ResponseSource(source), ResponseFields(response), ..) = input;
        let (
            ..,
            Host(host),
            Path(path),
            ClientAddress(client),
            Read(id),
            Read(trace),
            Read(fetched),
            Read(chosen),
        ) = input;
        let (Some(page), Some(chosen)) = (settings.page(status, source), chosen) else {
            return ControlFlow::Continue((EditResponse(Edits::new()),));
        };
        let varies = settings.json.is_some();
        // Other clients may get a page of another type, so the original response needs `Vary`, too.
        let original = || {
            let edits = Edits::new();
            (EditResponse(if varies { vary(edits, response, "accept") } else { edits }),)
        };
        if *chosen == ORIGINAL {
            return ControlFlow::Continue(original());
        }
        let facts = Facts {
            status,
            error: match source {
                Source::Error(kind) => kind,
                _ => "",
            },
            host: host.as_bytes(),
            path,
            client,
            request_id: id.map_or(&[], |id| id),
            trace_id: trace.map_or(&[], |hop| hop.trace()),
        };
        let made = match &settings.json {
            Some(json) if *chosen == JSON => Some(ReadyPage::of("application/json".into(), json, &facts)),
            _ => page.make(&facts, fetched),
        };
        let Some(ReadyPage { content_type, body, personal }) = made else {
            return ControlFlow::Continue(original());
        };
        let mut replaced = Response::new(page.status.unwrap_or(status));
        replaced.fields = kept(response, replaced.status, personal);
        if personal {
            replaced = replaced.field("cache-control", "no-store");
        }
        let replaced = replaced.body(content_type, body);
        ControlFlow::Break(Replace(if varies { replaced.field("vary", "accept") } else { replaced }))
    }
}

#[cfg(test)]
mod tests;

//! Cross-origin resource sharing (the CORS protocol of the Fetch standard), answered at the edge.
//!
//! ```kdl
//! cors {
//!     origins "https://app.example.com" "https://*.example.org"
//!     methods "GET" "POST" "PUT"
//!     headers "Content-Type" "X-Token"
//!     expose "X-Total"
//!     credentials
//!     max-age "10m"
//! }
//! ```
//!
//! Preflight requests are answered here with 204, and no origin server sees them. CORS fields of the origin server
//! are replaced. A page of an origin that is not allowed gets the response without CORS fields and without an error:
//! its browser then does not let the page read the response.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use core::time::Duration;

use foregate_module::settings::{Block, Mistakes, each, together};
use foregate_module::{
    Argument, Condition, Context, EditResponse, Edits, Emit, Field, Filter, FromNode, Key, Kind, Never, Node,
    PhaseId, Problem, RequestFields, Respond, Response, ResponseFields, ResponseSource, Shown, Source, Step,
    Swept, Text, Value, View, phase,
};

use crate::lists::vary;
use crate::token::is_token;

/// How many origins, methods or names may be listed.
const LIST_LIMIT: u8 = 200;
/// The longest `max-age`: no browser keeps a preflight for longer.
const MAX_AGE_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);
/// The default of `max-age`.
const MAX_AGE: Duration = Duration::from_secs(600);
/// The longest list of requested names that is granted by sending it back, bytes.
const ECHO_LIMIT: usize = 4096;

/// The CORS fields, which are removed from the origin server's responses.
const FIELDS: [&str; 7] = [
    "access-control-allow-origin",
    "access-control-allow-credentials",
    "access-control-expose-headers",
    "access-control-allow-methods",
    "access-control-allow-headers",
    "access-control-max-age",
    "access-control-allow-private-network",
];

const KEY: Key = Key::block(
    "cors",
    &BLOCK,
    "cors { origins \"https://app.example.com\" }",
    "Allows pages of other web origins to use the responses (CORS). Foregate answers preflight requests itself.",
)
.args(0, 1)
.otherwise("the origin's own CORS fields pass");

static BLOCK: Block = Block {
    keys: &[
        Key::one(
            "origins",
            "ORIGIN...",
            "origins \"https://app.example.com\" \"https://*.example.org\"",
            "The web origins that are allowed: scheme, host, and the port unless it is the default one. `*.` stands for any subdomain, `*` for every origin.",
        )
        .args(1, LIST_LIMIT),
        Key::one(
            "origins-if",
            "EXPRESSION",
            "origins-if \"ip.src in {192.0.2.0/24}\"",
            "Also allows the web origin of a request if this expression is true for the request.",
        ),
        Key::one(
            "methods",
            "METHOD...",
            "methods \"GET\" \"PUT\" \"DELETE\"",
            "The methods that pages may use; `*` for all.",
        )
        .args(1, LIST_LIMIT)
        .default("\"GET\" \"HEAD\" \"POST\""),
        Key::one(
            "headers",
            "NAME...",
            "headers \"Content-Type\" \"X-Token\"",
            "The request fields that pages may send in addition to those that need no permission; `*` for all.",
        )
        .args(1, LIST_LIMIT)
        .otherwise("none besides those that need no permission"),
        Key::one(
            "expose",
            "NAME...",
            "expose \"X-Total\"",
            "The response fields that pages may read in addition to those that need no permission; `*` for all, which needs `credentials` to be off.",
        )
        .args(1, LIST_LIMIT)
        .otherwise("none besides those that need no permission"),
        Key::flag(
            "credentials",
            "#false",
            "credentials",
            "Whether pages may send cookies and other credentials. It cannot be combined with `origins \"*\"`.",
        ),
        Key::one("max-age", "DURATION", "max-age \"1h\"", "How long browsers may keep the answer to a preflight.")
            .default("\"10m\""),
        Key::flag(
            "private-network",
            "#false",
            "private-network",
            "Whether pages from public networks may send requests to this server in a private network.",
        ),
    ],
    later: &[],
};

/// The settings of `cors`.
pub struct Cors {
    origins: Origins,
    methods: Grant,
    headers: Grant,
    expose: Option<Text>,
    credentials: bool,
    max_age: Text,
    private_network: bool,
}

/// The allowed origins.
struct Origins {
    everybody: bool,
    patterns: Vec<OriginPattern>,
    condition: Option<Arc<dyn Condition>>,
}

/// An origin, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
enum OriginPattern {
    Exactly(Vec<u8>),
    /// Any subdomain: the text before and after the host's variable part, such as `https://` and `.example.com:8443`.
    Subdomains(Vec<u8>, Vec<u8>),
}

/// The methods or headers that a preflight request may be granted.
enum Grant {
    /// All names that the request asks for.
    All,
    /// These names, as they are written; `None` for no names.
    These(Option<Text>),
}

impl FromNode for Cors {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let node = nodes.last().ok_or_else(|| Problem::new(Default::default(), "`cors` is not there"))?;
        let flag = |name| match node.child(name) {
            Some(child) => child.args().first().map_or(Ok(true), Argument::flag),
            None => Ok(false),
        };
        let credentials = flag("credentials");
        let with_credentials = credentials == Ok(true);
        let max_age = node
            .child("max-age")
            .map_or(Ok(MAX_AGE), |child| child.arg(0)?.duration(Duration::ZERO..=MAX_AGE_LIMIT));
        let methods = match node.child("methods") {
            Some(child) => each::<_, ()>(child.args().iter().map(check_method))
                .and_then(|()| Grant::from_args(child.args())),
            None => Ok(Grant::These(Some("GET, HEAD, POST".into()))),
        };
        let ((), credentials, max_age, origins, methods, headers, expose, private_network) = together((
            node.only_flag(),
            credentials,
            max_age,
            Origins::from_node(node, with_credentials, context),
            methods,
            Grant::from_args(node.child("headers").map_or(&[], Node::args)),
            expose(node.child("expose").map_or(&[], Node::args), with_credentials),
            flag("private-network"),
        ))?;
        let max_age = shared(&alloc::format!("{}", max_age.as_secs()));
        Ok(Self { origins, methods, headers, expose, credentials, max_age, private_network })
    }
}

/// Checks that browsers let pages use a method, and that browsers send it in this spelling (Fetch, section 2.2.1).
fn check_method(argument: &Argument) -> Result<(), Problem> {
    const FORBIDDEN: [&str; 3] = ["CONNECT", "TRACE", "TRACK"];
    const IN_UPPER_CASE: [&str; 6] = ["DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];
    let text = argument.text()?;
    let like = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(text));
    if like(&FORBIDDEN) {
        return Err(argument.wrong("no page may use this method"));
    }
    let upper = text.to_ascii_uppercase();
    if like(&IN_UPPER_CASE) && text != upper {
        let problem =
            argument.wrong("methods are told apart by their case, and browsers send this one in upper case");
        return Err(problem.help(alloc::format!("write \"{upper}\"")));
    }
    Ok(())
}

impl Origins {
    fn from_node(node: &Node, credentials: bool, context: &mut dyn Context) -> Result<Self, Problem> {
        let mut origins = Self { everybody: false, patterns: Vec::new(), condition: None };
        let mut mistakes = Mistakes::default();
        for argument in node.child("origins").map_or(&[][..], Node::args) {
            mistakes.kept(origins.add(argument, credentials));
        }
        if let Some(child) = node.child("origins-if") {
            let condition = child.arg(0).and_then(|text| context.condition(text, PhaseId::RequestSecurity));
            origins.condition = mistakes.kept(condition);
        }
        mistakes.none()?;
        if !origins.everybody && origins.patterns.is_empty() && origins.condition.is_none() {
            return Err(node.wrong("nobody may").help("add `origins` or `origins-if`"));
        }
        Ok(origins)
    }

    fn add(&mut self, argument: &Argument, credentials: bool) -> Result<(), Problem> {
        let text = argument.text()?;
        if credentials && matches!(text, "*" | "null") {
            let message =
                "with `credentials`, origins have to be named: anybody's page could act for the visitor";
            return Err(argument.wrong(message));
        }
        match text {
            "*" => self.everybody = true,
            "null" => self.patterns.push(OriginPattern::Exactly(b"null".to_vec())),
            text => self.patterns.push(OriginPattern::parse(text).ok_or_else(|| {
                argument.wrong("this is not an origin").help(
                    "write scheme and host, and the port unless it is the scheme's own, without a path: \
                     \"https://example.com\", \"https://*.example.com\", \"http://localhost:3000\"",
                )
            })?),
        }
        Ok(())
    }

    fn contain(&self, origin: &[u8], view: &View<'_>) -> bool {
        self.everybody
            || self.patterns.iter().any(|pattern| pattern.fits(origin))
            || self.condition.as_ref().is_some_and(|condition| condition.holds(view))
    }
}

impl OriginPattern {
    fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (scheme, host) = text.split_once("://")?;
        let (name, port) = match host.rsplit_once(':') {
            // An IPv6 address contains colons, but it stands in brackets.
            Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
            _ => (host, None),
        };
        let own = matches!((scheme, port), ("https", Some("443")) | ("http", Some("80")));
        let port_fits = port.is_none_or(|port| !port.starts_with('0') && port.parse::<u16>().is_ok());
        let scheme_fits = scheme.starts_with(|first: char| first.is_ascii_lowercase())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        let (wildcard, rest) = match name.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, name),
        };
        let host_fits = !rest.is_empty() && (rest.bytes().all(is_host) || (!wildcard && is_ipv6(rest)));
        if own || !port_fits || !scheme_fits || !host_fits {
            return None;
        }
        Some(match host.strip_prefix('*') {
            Some(tail) => Self::Subdomains(alloc::format!("{scheme}://").into_bytes(), tail.into()),
            None => Self::Exactly(text.into_bytes()),
        })
    }

    fn fits(&self, origin: &[u8]) -> bool {
        match self {
            Self::Exactly(wanted) => origin.eq_ignore_ascii_case(wanted),
            Self::Subdomains(head, tail) => {
                let fits = |part: Option<&[u8]>, wanted: &[u8]| {
                    part.is_some_and(|part| part.eq_ignore_ascii_case(wanted))
                };
                let end = origin.len().checked_sub(tail.len());
                fits(origin.get(..head.len()), head)
                    && fits(end.and_then(|end| origin.get(end..)), tail)
                    && end
                        .and_then(|end| origin.get(head.len()..end))
                        .is_some_and(|middle| !middle.is_empty() && middle.iter().copied().all(is_host))
            }
        }
    }
}

fn is_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._".contains(&byte)
}

fn is_ipv6(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.is_some_and(|inner| inner.parse::<core::net::Ipv6Addr>().is_ok())
}

impl Grant {
    fn from_args(arguments: &[Argument]) -> Result<Self, Problem> {
        Ok(match list(arguments)? {
            Some(list) if list == "*" => Self::All,
            list => Self::These(list.map(|list| shared(&list))),
        })
    }

    /// The grant for a preflight that asks for `asked`.
    fn say(&self, asked: Option<&[u8]>) -> Option<Text> {
        match self {
            Self::These(these) => these.clone(),
            // With credentials, `*` is no wildcard for browsers, so the requested names are sent back.
            Self::All => asked.filter(|asked| is_list(asked)).map(|asked| asked.to_vec().into()),
        }
    }
}

/// Returns true for a list of names that are separated by commas, and that is not too long.
fn is_list(asked: &[u8]) -> bool {
    let names = |element: &[u8]| is_token(element.trim_ascii());
    asked.len() <= ECHO_LIMIT && asked.split(|byte| *byte == b',').all(names)
}

/// The names, separated by commas.
fn list(arguments: &[Argument]) -> Result<Option<String>, Problem> {
    let names: Vec<&str> = each(arguments.iter().map(|argument| {
        let name = argument.text()?;
        if !is_token(name.as_bytes()) {
            return Err(argument.wrong("this is neither a name nor `*`"));
        }
        if name == "*" && arguments.len() > 1 {
            return Err(argument.wrong("`*` stands for all, and stands alone"));
        }
        Ok(name)
    }))?;
    Ok((!names.is_empty()).then(|| names.join(", ")))
}

fn expose(arguments: &[Argument], credentials: bool) -> Result<Option<Text>, Problem> {
    let list = list(arguments)?;
    match arguments.first() {
        Some(first) if credentials && list.as_deref() == Some("*") => {
            Err(first.wrong("with `credentials`, browsers take `*` for a name: list the fields"))
        }
        _ => Ok(list.map(|list| shared(&list))),
    }
}

/// A text of settings.
fn shared(text: &str) -> Text {
    Text::Shared(text.as_bytes().into())
}

impl Cors {
    /// The allowed origin for a request: the origin itself, `*`, or nothing.
    fn allowed(&self, origin: Option<&[u8]>, view: &View<'_>) -> Option<Text> {
        if self.origins.everybody {
            return Some("*".into());
        }
        let origin = origin.filter(|origin| self.origins.contain(origin, view))?;
        // If the value is no valid field value, it is dropped when the field is made.
        Some(origin.to_vec().into())
    }

    /// Returns true if the response depends on the request's origin.
    fn varies(&self) -> bool {
        !self.origins.everybody
    }
}

/// True if the request is a preflight, which will be answered here.
#[derive(Debug)]
pub struct Preflight;

impl Value for Preflight {
    type Data = bool;
    const NAME: &'static str = "cors.preflight";
    const ABOUT: &'static str = "Whether the request is a preflight, which `cors` answers.";
    const SHOWS: Option<Kind> = Some(Kind::Bool);
    fn show(preflight: &bool) -> Option<Shown<'_>> {
        Some(Shown::Bool(*preflight))
    }
}

/// The filters that match a preflight request.
const PREFLIGHT: &[Filter] = &[
    Filter::Method("OPTIONS"),
    Filter::RequestField("origin"),
    Filter::RequestField("access-control-request-method"),
];

/// Recognises preflight requests before authentication: browsers send them without credentials.
#[derive(Debug, Default)]
pub struct RecognisePreflight;

impl Step for RecognisePreflight {
    type At = phase::RequestIdentity;
    type Settings = Cors;
    type In<'r> = ();
    type Out = (Emit<Preflight>,);
    type Stop = Never;
    const NAME: &'static str = "cors-recognise";
    const ABOUT: &'static str = "Recognises preflight requests of browsers (CORS).";
    const FILTERS: &'static [Filter] = PREFLIGHT;

    fn run(&self, _: &Cors, (): ()) -> ControlFlow<Never, Self::Out> {
        ControlFlow::Continue((Emit(Some(true)),))
    }
}

/// Answers preflight requests.
#[derive(Debug, Default)]
pub struct CorsPreflight;

impl Step for CorsPreflight {
    type At = phase::RequestSecurity;
    type Settings = Cors;
    type In<'r> = (RequestFields<'r>, View<'r>);
    type Out = ();
    type Stop = Respond;
    const NAME: &'static str = "cors-preflight";
    const ABOUT: &'static str = "Answers preflight requests of browsers (CORS).";
    const FILTERS: &'static [Filter] = PREFLIGHT;

    fn run(&self, settings: &Cors, (RequestFields(request), view): Self::In<'_>) -> ControlFlow<Respond, ()> {
        let mut response = Response::new(204)
            .field("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers");
        if let Some(origin) = settings.allowed(request.get("origin"), &view) {
            let methods = settings.methods.say(request.get("access-control-request-method"));
            let headers = settings.headers.say(request.get("access-control-request-headers"));
            let yes = |said: bool| said.then_some(Text::from("true"));
            let private = settings.private_network
                && request.get("access-control-request-private-network") == Some(b"true");
            let said = [
                ("Access-Control-Allow-Origin", Some(origin)),
                ("Access-Control-Allow-Methods", methods),
                ("Access-Control-Allow-Headers", headers),
                ("Access-Control-Allow-Credentials", yes(settings.credentials)),
                ("Access-Control-Allow-Private-Network", yes(private)),
                ("Access-Control-Max-Age", Some(settings.max_age.clone())),
            ];
            let fields = said.into_iter().filter_map(|(name, value)| Field::new(name, value?).ok());
            response.fields.extend(fields);
        }
        ControlFlow::Break(Respond(response))
    }
}

/// Replaces the origin server's CORS fields by the ones of the settings: they state which pages may read a response.
#[derive(Debug, Default)]
pub struct CorsResponse;

impl Step for CorsResponse {
    type At = phase::ResponseHeaders;
    type Settings = Cors;
    type In<'r> = (RequestFields<'r>, ResponseFields<'r>, ResponseSource<'r>, View<'r>);
    type Out = (EditResponse,);
    type Stop = Never;
    const NAME: &'static str = "cors-response";
    const ABOUT: &'static str = "Says which pages of other origins may use a response (CORS).";
    const FILTERS: &'static [Filter] = &[];

    fn sweeps(_: &Cors) -> bool {
        true
    }

    fn keeps(&self, _: &Cors, _: Swept, name: &[u8]) -> bool {
        !FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field.as_bytes()))
    }

    fn run(
        &self,
        settings: &Cors,
        (RequestFields(request), ResponseFields(response), ResponseSource(source), view): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        if matches!(source, Source::Step { name: CorsPreflight::NAME, .. }) {
            return ControlFlow::Continue((EditResponse(Edits::new()),));
        }
        let present = |name: &&&str| response.get(name).is_some();
        let mut edits = FIELDS.iter().filter(present).fold(Edits::new(), |edits, name| edits.remove(*name));
        if settings.varies() {
            edits = vary(edits, response, "Origin");
        }
        if let Some(origin) = settings.allowed(request.get("origin"), &view) {
            edits = edits.append("Access-Control-Allow-Origin", origin);
            if settings.credentials {
                edits = edits.append("Access-Control-Allow-Credentials", "true");
            }
            if let Some(expose) = &settings.expose {
                edits = edits.append("Access-Control-Expose-Headers", expose.clone());
            }
        }
        ControlFlow::Continue((EditResponse(edits),))
    }
}

#[cfg(test)]
mod tests;

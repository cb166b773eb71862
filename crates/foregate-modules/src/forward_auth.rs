//! Forward authentication: another server decides about access.
//!
//! ```kdl
//! forward-auth upstream="auth" path="/verify" {
//!     copy "x-user" "x-groups"
//! }
//! ```
//!
//! One step asks before any other check. A second step asks about the other ways in which an origin may read the path.
//! A third step evaluates the answers: with 2xx the request is allowed, any other answer is sent to the client
//! unchanged, and without an answer no request is allowed.

mod readings;
#[cfg(test)]
mod tests;

pub use self::readings::{AskOthers, Other};

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow::{self, Break};
use core::ops::RangeInclusive;
use core::time::Duration;

use crate::cors::Preflight;
use foregate_module::settings::{
    ANY, Argument, Block, Context, FromNode, Key, Mistakes, Node, Problem, Prop, together,
};
use foregate_module::{
    Authority, ClientAddress, Edit, EditRequest, EditResponse, Edits, Emit, Fetch, FetchKey, FetchRequest,
    FetchResponse, FetchResult, FetchTarget, Fetched, Field, Filter, Method, Never, Note, Noted, OtherPaths,
    Path, Query, Read, RequestFields, Respond, Response, Scheme, Step, Text, UpstreamId, Value, phase,
};

/// Fields that are always passed to the authentication server if the client has sent them.
const SENT: [&str; 2] = ["authorization", "cookie"];
/// The fields by which we describe the client's request to the authentication server.
const SAID: [&str; 5] =
    ["x-forwarded-method", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-uri", "x-forwarded-for"];
/// Fields of a refusal that are sent to the client, together with the status and the body of the refusal.
const RELAYED: [&str; 8] = [
    "location",
    "set-cookie",
    "www-authenticate",
    "content-type",
    "content-language",
    "content-encoding",
    "cache-control",
    "retry-after",
];
/// The most fields in a list of the settings.
const FIELDS_MOST: usize = 64;
/// The most bytes of a refusal's body.
const BODY_MOST: usize = 64 * 1024;
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(5);

static KEY: Key = Key {
    args: (0, 1),
    props: &PROPS,
    block: Some(&Block { keys: &CHILDREN, later: &[] }),
    otherwise: "no server is asked",
    ..Key::one(
        "forward-auth",
        "[#false] upstream=NAME path=PATH { ... }",
        "forward-auth upstream=\"app\" path=\"/verify\"",
        "Asks another server whether a request may pass. If the answer has a 2xx status, the request passes; any other answer is sent to the client.",
    )
};

static PROPS: [Prop; 5] = [
    Prop {
        name: "upstream",
        usage: "NAME",
        required: true,
        default: "",
        about: "The upstream that is asked.",
    },
    Prop {
        name: "path",
        usage: "PATH",
        required: true,
        default: "",
        about: "The path of the GET request that asks, with a query if needed.",
    },
    Prop {
        name: "host",
        usage: "HOST",
        required: false,
        default: "",
        about: "The `Host` of the request that asks. Without it: that of the client's request.",
    },
    Prop {
        name: "timeout",
        usage: "DURATION",
        required: false,
        default: "\"5s\"",
        about: "The time limit for the answer, 10ms to 1m.",
    },
    Prop {
        name: "failure-status",
        usage: "STATUS",
        required: false,
        default: "503",
        about: "The status that the client gets if there is no answer, 500 to 599.",
    },
];

static CHILDREN: [Key; 3] = [
    Key::one(
        "send",
        "NAME ...",
        "send \"x-api-key\"",
        "The fields of the client's request that are sent to the asked server, in addition to `authorization`, `cookie` and the `x-forwarded` fields.",
    )
    .args(1, ANY)
    .many(),
    Key::one(
        "copy",
        "NAME ...",
        "copy \"x-user\" \"x-groups\"",
        "The fields of a 2xx answer that are added to the request to the origin. Fields of these names from the client are removed.",
    )
    .args(1, ANY)
    .many(),
    Key::one(
        "copy-to-response",
        "NAME ...",
        "copy-to-response \"set-cookie\"",
        "The fields of a 2xx answer that are added to the response to the client.",
    )
    .args(1, ANY)
    .many(),
];

/// The server to ask, and the evaluation of its answer.
pub struct ForwardAuthSettings {
    upstream: UpstreamId,
    path: Text,
    host: Option<Text>,
    timeout: Duration,
    failure_status: u16,
    send: Box<[String]>,
    copy: Box<[String]>,
    to_response: Box<[String]>,
    /// Removals of the copied fields from the request.
    clear: Arc<[Edit]>,
}

impl FromNode for ForwardAuthSettings {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let Some(node) = nodes.first() else {
            return Err(Problem::new(Default::default(), "`forward-auth` has no settings"));
        };
        if let Some(argument) = node.args().first() {
            return Err(argument.wrong("`forward-auth` takes no value but #false"));
        }
        let (Some(upstream), Some(path)) = (node.prop("upstream"), node.prop("path")) else {
            return Err(node.wrong("`forward-auth` needs `upstream` and `path`"));
        };
        let (upstream, path, host, timeout, failure, send, copy, to_response) = together((
            context.upstream(upstream),
            crate::target(path),
            node.prop("host").map(crate::host).transpose(),
            node.prop("timeout").map_or(Ok(TIMEOUT), |timeout| timeout.duration(TIMEOUTS)),
            node.prop("failure-status").map_or(Ok(503), |status| status.number(500..=599)),
            read_names(node, "send", &SAID),
            read_names(node, "copy", &["host"]),
            read_names(node, "copy-to-response", &[]),
        ))?;
        refuse_sent(node, &copy)?;
        let clear = copy.iter().map(|name| Edit::Remove(Text::from(name.clone())));
        Ok(Self {
            upstream,
            path,
            host,
            timeout,
            failure_status: failure as u16,
            clear: clear.collect(),
            send: send.into(),
            copy: copy.into(),
            to_response: to_response.into(),
        })
    }
}

fn read_names(node: &Node, key: &str, refused: &[&str]) -> Result<Vec<String>, Problem> {
    let mut names: Vec<String> = Vec::new();
    let mut mistakes = Mistakes::default();
    for argument in node.children_named(key).flat_map(|child| child.args()) {
        let name = mistakes.kept(read_name(argument, refused));
        names.extend(name.filter(|name| !names.contains(name)));
        if names.len() > FIELDS_MOST {
            mistakes.add(argument.wrong(alloc::format!("there are more than {FIELDS_MOST} fields")));
            break;
        }
    }
    mistakes.none().map(|()| names)
}

/// Refuses settings that both send and copy a field. The client's own fields under the names of `copy` are removed
/// before the server is asked, except credentials, which the server verifies.
fn refuse_sent(node: &Node, copy: &[String]) -> Result<(), Problem> {
    let gone = |name: &str| {
        // `_` counts as `-`, as it does for many origins.
        let name = name.replace('_', "-");
        let mut removed = copy.iter().filter(|copied| !SENT.contains(&&***copied));
        removed.any(|copied| copied.replace('_', "-").eq_ignore_ascii_case(&name))
    };
    let mut sent = node.children_named("send").flat_map(|child| child.args());
    match sent.find(|argument| argument.text().is_ok_and(gone)) {
        Some(argument) => Err(argument
            .wrong("this field is in `copy`, so that the client's own is removed before the server is asked")
            .help("copy the answer under another name, or do not send it")),
        None => Ok(()),
    }
}

fn read_name(argument: &Argument, refused: &[&str]) -> Result<String, Problem> {
    crate::field_name(argument)?;
    let name = argument.text()?.to_ascii_lowercase();
    if refused.contains(&&*name) {
        return Err(argument.wrong("this field is set by Foregate itself"));
    }
    Ok(name)
}

/// The question to the authentication server, and its answer.
#[derive(Debug)]
pub struct Question;

impl FetchKey for Question {
    const NAME: &'static str = "forward-auth.question";
    const ANSWER: &'static str = "forward-auth.answer";
}

/// Set if a request has several `Authorization` fields: the authentication server and the origin could use different
/// ones.
#[derive(Debug)]
pub struct SeveralCredentials;

impl Value for SeveralCredentials {
    type Data = ();
    const NAME: &'static str = "forward-auth.several-credentials";
    const ABOUT: &'static str =
        "That the request has several `Authorization` fields, so that the server is not asked.";
}

/// Asks the authentication server about the request.
#[derive(Debug, Default)]
pub struct AskForAccess;

type AccessRequest<'r> =
    (Method<'r>, Scheme<'r>, Authority<'r>, Path<'r>, Query<'r>, ClientAddress, RequestFields<'r>);

impl Step for AskForAccess {
    type At = phase::RequestIdentity;
    type Settings = ForwardAuthSettings;
    type In<'r> = (
        Method<'r>,
        Scheme<'r>,
        Authority<'r>,
        Path<'r>,
        Query<'r>,
        ClientAddress,
        RequestFields<'r>,
        Read<'r, Preflight>,
    );
    type Out = (Emit<Fetch<Question>>, Emit<SeveralCredentials>, EditRequest);
    type Stop = Never;
    const NAME: &'static str = "forward-auth-ask";
    const ABOUT: &'static str = "Asks another server whether the request may pass.";
    const FILTERS: &'static [Filter] = &[];

    fn run(
        &self,
        settings: &ForwardAuthSettings,
        (method, scheme, authority, path, query, client, fields, Read(preflight)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let clear = EditRequest(Edits::shared(&settings.clear));
        // A preflight request is answered before the server's answer would be read.
        if preflight == Some(&true) {
            return ControlFlow::Continue((Emit(None), Emit(None), clear));
        }
        if fields.0.all("authorization").nth(1).is_some() {
            return ControlFlow::Continue((Emit(None), Emit(Some(())), clear));
        }
        let input = (method, scheme, authority, path, query, client, fields);
        ControlFlow::Continue((Emit(question(settings, input)), Emit(None), clear))
    }
}

/// The request to the server. `None` if a part of the client's request is no valid field value: the server could allow
/// an incomplete request by mistake.
fn question(settings: &ForwardAuthSettings, request: AccessRequest<'_>) -> Option<FetchRequest> {
    fields(settings, request).map(|fields| FetchRequest {
        target: FetchTarget::Upstream(settings.upstream),
        authority: settings.host.clone(),
        fields,
        timeout: settings.timeout,
        limit: BODY_MOST,
        ..FetchRequest::get(settings.upstream, settings.path.clone())
    })
}

/// The fields for the server; `None` if a part of the client's request is no valid field value.
fn fields(settings: &ForwardAuthSettings, request: AccessRequest<'_>) -> Option<Vec<Field>> {
    let (Method(method), Scheme(scheme), Authority(authority), Path(path), Query(query), client, fields) =
        request;
    let (ClientAddress(client), RequestFields(fields)) = (client, fields);
    let mut uri = path.to_vec();
    if let Some(query) = query {
        uri.push(b'?');
        uri.extend_from_slice(query);
    }
    let said: [Option<Vec<u8>>; 5] = [
        Some(method.to_vec()),
        Some(scheme.into()),
        Some(authority.into()),
        Some(uri),
        client.map(|client| client.to_string().into_bytes()),
    ];
    let mut sent = Vec::new();
    for (name, value) in SAID.into_iter().zip(said) {
        if let Some(value) = value {
            sent.push(Field::new(name, value).ok()?);
        }
    }
    if let Some(value) = fields.get("authorization") {
        sent.push(Field::new("authorization", value.to_vec()).ok()?);
    }
    // Joined as in RFC 9113, section 8.2.3. Empty values are left out: an empty last value would leave a blank at the end,
    // which is not valid in a field.
    let cookies: Vec<_> = fields.all("cookie").filter(|value| !value.is_empty()).collect();
    if !cookies.is_empty() {
        sent.push(Field::new("cookie", cookies.join(&b"; "[..])).ok()?);
    }
    for name in settings.send.iter().filter(|name| !SENT.contains(&&***name)) {
        for value in fields.all(name) {
            sent.push(Field::new(name.clone(), value.to_vec()).ok()?);
        }
    }
    Some(sent)
}

fn let_in(answer: &FetchResponse) -> bool {
    (200..300).contains(&answer.status)
}

fn fields_of<'a>(answer: &'a FetchResponse, name: &'a str) -> impl Iterator<Item = &'a Field> {
    answer.fields.iter().filter(move |field| field.name().eq_ignore_ascii_case(name.as_bytes()))
}

/// Reads the answer.
#[derive(Debug, Default)]
pub struct ForwardAuth;

impl Step for ForwardAuth {
    type At = phase::RequestSecurity;
    type Settings = ForwardAuthSettings;
    type In<'r> = (
        Read<'r, Fetched<Question>>,
        Read<'r, SeveralCredentials>,
        OtherPaths<'r>,
        Read<'r, Fetched<Other<0>>>,
        Read<'r, Fetched<Other<1>>>,
        Read<'r, Fetched<Other<2>>>,
        Read<'r, Fetched<Other<3>>>,
        Read<'r, Fetched<Other<4>>>,
    );
    type Out = (EditRequest,);
    type Stop = Noted<Respond>;
    const NAME: &'static str = "forward-auth";
    const ABOUT: &'static str = "Lets in whom the authentication server lets in.";
    const FILTERS: &'static [Filter] = &[];

    fn identity(settings: &ForwardAuthSettings) -> Vec<Text> {
        // Credentials are not included, so that they are not removed from the request: the server has to get them.
        let told = settings.copy.iter().filter(|name| !SENT.contains(&&***name));
        told.map(|name| Text::from(name.clone())).collect()
    }

    fn run(
        &self,
        settings: &ForwardAuthSettings,
        (Read(answer), Read(several), paths, a, b, c, d, e): Self::In<'_>,
    ) -> ControlFlow<Self::Stop, Self::Out> {
        let refuse = |response: Response, why: String| {
            let notes = Vec::from([Note { name: "forward-auth".into(), value: why.into() }]);
            Noted { stop: Respond(response), notes }
        };
        let fail = |why: String| {
            let response = Response::new(settings.failure_status);
            refuse(response.body("text/plain; charset=utf-8", "Authentication is not available\n"), why)
        };
        let bad_request = |text: &'static str, why: &str| {
            refuse(Response::new(400).body("text/plain; charset=utf-8", text), why.into())
        };
        let refusal = |answer: Option<&FetchResult>, of: &str| match answer {
            Some(Ok(answer)) if let_in(answer) => None,
            Some(Ok(answer)) => Some({
                let relayed = RELAYED.iter().flat_map(|name| fields_of(answer, name)).cloned().collect();
                // A refusal without a body may be replaced by an error page.
                let meant = !answer.body.is_empty();
                let response = Response { fields: relayed, meant, ..answer.clone().into_response() };
                refuse(response, alloc::format!("refused with {}{of}", answer.status))
            }),
            Some(Err(error)) => Some(fail(alloc::format!("{error}{of}"))),
            None => Some(fail(alloc::format!("the server was not asked{of}"))),
        };
        if several.is_some() {
            return Break(bad_request("There may be one `Authorization` field\n", "several credentials"));
        }
        if let Some(refusal) = refusal(answer, "") {
            return Break(refusal);
        }
        let Some(others) = readings::each((paths, a, b, c, d, e)) else {
            return Break(bad_request(
                "The path can be read in too many ways\n",
                "too many readings of the path",
            ));
        };
        for (path, answer) in others {
            let of = alloc::format!(" for {}, as which an origin may read the path", path.escape_ascii());
            if let Some(refusal) = refusal(answer, &of) {
                return Break(refusal);
            }
        }
        let mut edits = Edits::shared(&settings.clear);
        if let Some(Ok(answer)) = answer {
            for field in settings.copy.iter().flat_map(|name| fields_of(answer, name)) {
                edits.push(Edit::Append(field.clone()));
            }
        }
        ControlFlow::Continue((EditRequest(edits),))
    }
}

/// Copies fields of the answer to the response for the client.
#[derive(Debug, Default)]
pub struct ToClient;

impl Step for ToClient {
    type At = phase::ResponseHeaders;
    type Settings = ForwardAuthSettings;
    type In<'r> = (Read<'r, Fetched<Question>>,);
    type Out = (EditResponse,);
    type Stop = Never;
    const NAME: &'static str = "forward-auth-to-client";
    const ABOUT: &'static str = "Adds fields of the authentication server's answer to the response.";
    const FILTERS: &'static [Filter] = &[];

    fn run(
        &self,
        settings: &ForwardAuthSettings,
        (Read(answer),): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let mut edits = Edits::new();
        // A refusal already contains all of these fields.
        if let Some(Ok(answer)) = answer.filter(|answer| answer.as_ref().is_ok_and(let_in)) {
            for field in settings.to_response.iter().flat_map(|name| fields_of(answer, name)) {
                edits.push(Edit::Append(field.clone()));
            }
        }
        ControlFlow::Continue((EditResponse(edits),))
    }
}

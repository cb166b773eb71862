//! JSON Web Tokens (RFC 7519): requires a signed and valid token.
//!
//! ```kdl
//! jwt {
//!     jwks upstream="idp" path="/.well-known/jwks.json"
//!     issuer "https://idp.example"
//!     audience "shop"
//!     claim "sub" field="x-user"
//! }
//! ```
//!
//! Keys come from the configuration, from files, or from a server that the platform asks. Each key is for one algorithm:
//! the algorithm in a token only chooses among the keys.
//!
//! Verifying a signature takes 10 to 100 microseconds. This is at most a hundredth of the work of a TLS handshake, and
//! about as much as handing the work to another thread, so it runs on the thread of the request.

mod keys;
#[cfg(test)]
mod tests;
mod token;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{ControlFlow, RangeInclusive};
use core::time::Duration;

use arc_swap::ArcSwapOption;
use foregate_module::settings::{
    ANY, Argument, Block, Context, FromNode, Key as ConfigKey, Mistakes, Node, Problem, Prop, each, together,
};
use foregate_module::{
    Edit, EditRequest, Edits, Emit, Fetch, FetchKey, FetchRequest, FetchResult, Fetched, Field, Fields,
    Filter, Kind, Never, Note, Noted, Read, RequestFields, Respond, Response, Shown, Step, Text, Time,
    Usable, Value, phase,
};
use serde_json::{Map, Value as Json};

use self::keys::{ALGORITHMS, Key, Keys};
use self::token::{Demands, Fault, verify};
use crate::pairs::like_cookie;

/// The largest file with keys, and the largest answer of a server with keys, bytes.
const KEYS_FILE_MOST: usize = 256 * 1024;
/// The most cookies that may hold the token.
const COOKIES_MOST: usize = 16;
/// The most nodes of a block.
const NODES_MOST: usize = 64;
const LEEWAYS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(300);
/// If the cached answer does not have a token's key, the key may be new. The server is asked again if the answer is at
/// least this old.
const RENEWED: Duration = Duration::from_secs(10);
const KEEPS: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(86_400);
/// Authentication schemes with credentials that origins may read as a token.
const TOKEN_SCHEMES: [&[u8]; 3] = [b"bearer", b"dpop", b"jwt"];

static KEY: ConfigKey = ConfigKey {
    args: (0, 1),
    props: &PROPS,
    block: Some(&Block { keys: &CHILDREN, later: &[] }),
    otherwise: "no token is needed",
    ..ConfigKey::one(
        "jwt",
        "[#false] { ... }",
        "jwt { secret \"HS256\" \"an example of 32 bytes or more...\" }",
        "Requires a valid, signed JSON Web Token. Otherwise the answer is 401.",
    )
};

static PROPS: [Prop; 7] = [
    prop(
        "cookie",
        "NAME",
        "",
        "The cookie that holds the token when there is no `authorization: bearer`. A request with several different tokens is refused.",
    ),
    prop("realm", "TEXT", "\"restricted\"", "The realm in the `WWW-Authenticate` field."),
    prop("leeway", "DURATION", "\"30s\"", "The tolerated difference between clocks, at most 5m."),
    prop("require-expiry", "#true|#false", "#true", "Whether a token must have an expiry time."),
    prop(
        "optional",
        "#true|#false",
        "#false",
        "Whether requests without a token pass, including those with credentials of another scheme. Invalid tokens, and tokens with the scheme `dpop` or `jwt`, are refused all the same.",
    ),
    prop(
        "strip-authorization",
        "#true|#false",
        "#false",
        "Whether `authorization` is removed before the request goes to the origin.",
    ),
    prop("failure-status", "STATUS", "503", "The status when the keys are not available, 500 to 599."),
];

static JWKS_PROPS: [Prop; 5] = [
    prop("file", "FILE", "", "A file with the key set."),
    prop("upstream", "NAME", "", "The upstream that serves the key set."),
    prop("path", "PATH", "\"/.well-known/jwks.json\"", "The path of the key set at the upstream."),
    prop(
        "host",
        "HOST",
        "",
        "The `Host` of the request for the key set. Without it: the upstream's `host`, or the address of its first server.",
    ),
    prop(
        "keep",
        "DURATION",
        "\"5m\"",
        "How long a fetched key set is used, 10s to 1d; twice as long if the server does not answer. If a token has an unknown `kid` and the key set is older than 10s, it is fetched again.",
    ),
];

static KEY_PROPS: [Prop; 2] = [
    prop("file", "FILE", "", "A file with the public key in PEM."),
    prop("id", "TEXT", "", "The key verifies only tokens with this `kid`. Without it: all tokens."),
];

const fn prop(name: &'static str, usage: &'static str, default: &'static str, about: &'static str) -> Prop {
    Prop { name, usage, required: false, default, about }
}

static CHILDREN: [ConfigKey; 8] = [
    ConfigKey::one("key", "ALGORITHM file=FILE", "key \"ES256\" file=\"token.pub\"", "A public key and its algorithm.")
        .props(&KEY_PROPS)
        .many(),
    ConfigKey::one(
        "secret",
        "ALGORITHM TEXT",
        "secret \"HS256\" \"an example of 32 bytes or more...\"",
        "A shared secret for HS256, HS384 or HS512, at least as long as the digest: 32, 48 or 64 bytes.",
    )
    .args(2, 2)
    .secrets(&[""])
    .props(&[prop("id", "TEXT", "", "The secret verifies only tokens with this `kid`. Without it: all tokens.")])
    .many(),
    ConfigKey::one("jwks", "file=FILE | upstream=NAME", "jwks upstream=\"app\" keep=\"1h\"", "A key set in JSON (JWKS, RFC 7517).")
        .args(0, 0)
        .props(&JWKS_PROPS),
    ConfigKey::one("issuer", "TEXT ...", "issuer \"https://idp.example\"", "The accepted issuers of tokens (`iss`).")
        .args(1, ANY),
    ConfigKey::one("audience", "TEXT ...", "audience \"shop\"", "The accepted audiences of tokens (`aud`).").args(1, ANY),
    ConfigKey::one(
        "type",
        "TEXT ...",
        "type \"at+jwt\"",
        "The accepted types of tokens (`typ`). A token with another type or none, which was made for another purpose, is \
         refused. `application/` at the start of a type may be left out.",
    )
    .args(1, ANY),
    ConfigKey::one(
        "require",
        "CLAIM [VALUE ...]",
        "require \"role\" \"admin\" \"editor\"",
        "A claim that a token must have, with one of these values if any are given. The value of `scope` is read as a list of \
         words. Other tokens get 403.",
    )
    .args(1, ANY)
    .many(),
    ConfigKey::one(
        "claim",
        "NAME field=NAME",
        "claim \"sub\" field=\"x-user\"",
        "A claim that is sent to the origin in a request field. Fields of this name from the client are removed.",
    )
    .props(&[Prop { name: "field", usage: "NAME", required: true, default: "", about: "The name of the field." }])
    .many(),
];

/// The requirements for a token, and the use of its claims.
pub struct JwtSettings {
    keys: Keys,
    remote: Option<Remote>,
    cookie: Option<String>,
    realm: String,
    demands: Demands,
    optional: bool,
    strip: bool,
    failure_status: u16,
    claims: Box<[(String, Text)]>,
    /// Removals of the copied fields from the request.
    clear: Arc<[Edit]>,
}

/// The keys of a server.
struct Remote {
    request: FetchRequest,
    /// The last answer that was parsed, and its keys. Thousands of requests get the same cached answer.
    parsed: ArcSwapOption<(Text, Keys)>,
}

impl FromNode for JwtSettings {
    const KEY: Option<&'static ConfigKey> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let Some(node) = nodes.first() else {
            return Err(Problem::new(Default::default(), "`jwt` has no settings"));
        };
        if let Some(argument) = node.args().first() {
            return Err(argument.wrong("`jwt` takes no value but #false"));
        }
        if let Some(child) = node.children().get(NODES_MOST) {
            return Err(child.wrong(format!("there are more than {NODES_MOST} nodes in the block")));
        }
        let ((keys, remote), cookie, realm, demands, optional, strip, failure, claims) = together((
            read_keys(node, context),
            node.prop("cookie").map(crate::cookie_name).transpose(),
            crate::quotable(node.prop("realm"), "restricted"),
            read_demands(node),
            flag(node, "optional", false),
            flag(node, "strip-authorization", false),
            node.prop("failure-status").map_or(Ok(503), |status| status.number(500..=599)),
            each::<_, Vec<_>>(node.children_named("claim").map(read_claim)),
        ))?;
        Ok(Self {
            keys,
            remote,
            cookie,
            realm: realm.into(),
            demands,
            optional,
            strip,
            failure_status: failure as u16,
            clear: claims.iter().map(|(_, field)| Edit::Remove(field.clone())).collect(),
            claims: claims.into(),
        })
    }
}

fn flag(node: &Node, name: &str, otherwise: bool) -> Result<bool, Problem> {
    node.prop(name).map_or(Ok(otherwise), Argument::flag)
}

fn read_keys(node: &Node, context: &mut dyn Context) -> Result<(Keys, Option<Remote>), Problem> {
    let (mut keys, mut remote) = (Keys::default(), None);
    let mut mistakes = Mistakes::default();
    for child in node.children() {
        let read = match child.name() {
            "key" => read_key(child, context).map(|key| keys.push(key)),
            "secret" => read_secret(child).map(|key| keys.push(key)),
            "jwks" => match (child.prop("file"), child.prop("upstream")) {
                (Some(file), None) => read_set(file, context).map(|set| keys.append(set)),
                (None, Some(upstream)) => {
                    read_remote(child, upstream, context).map(|read| remote = Some(read))
                }
                _ => Err(child.wrong("`jwks` needs either `file` or `upstream`")),
            },
            _ => Ok(()),
        };
        mistakes.kept(read);
    }
    mistakes.none()?;
    if keys.is_empty() && remote.is_none() {
        let problem = node.wrong("`jwt` has no keys, so nobody could come in");
        return Err(problem.help("add `key`, `secret` or `jwks` to its block"));
    }
    Ok((keys, remote))
}

fn read_id(node: &Node) -> Result<Option<String>, Problem> {
    node.prop("id").map(|id| id.text().map(String::from)).transpose()
}

fn read_key(node: &Node, context: &mut dyn Context) -> Result<Key, Problem> {
    let file = node.prop("file").ok_or_else(|| node.wrong("`key` needs `file`"))?;
    let algorithm = node.arg(0)?.choice(&ALGORITHMS);
    let (algorithm, pem, id) = together((algorithm, context.file(file, KEYS_FILE_MOST), read_id(node)))?;
    Key::pem(algorithm, &pem, id).map_err(|message| file.wrong(message))
}

fn read_secret(node: &Node) -> Result<Key, Problem> {
    let secret = node.arg(1)?;
    let (algorithm, text, id) = together((node.arg(0)?.choice(&ALGORITHMS), secret.text(), read_id(node)))?;
    Key::secret(algorithm, text.as_bytes(), id).map_err(|message| secret.wrong(message))
}

fn read_set(file: &Argument, context: &mut dyn Context) -> Result<Keys, Problem> {
    let set = Keys::of_set(&context.file(file, KEYS_FILE_MOST)?, true);
    let set = set.map_err(|message| file.wrong(message))?;
    if set.is_empty() {
        return Err(file.wrong("there is no key in this set that can be used"));
    }
    Ok(set)
}

/// Returns true if a response is a set of keys: an error page with status 200 must not replace a cached set.
fn usable(body: &[u8]) -> bool {
    Keys::of_set(body, false).is_ok_and(|keys| !keys.is_empty())
}

fn read_remote(node: &Node, upstream: &Argument, context: &mut dyn Context) -> Result<Remote, Problem> {
    let (upstream, path, keep, authority) = together((
        context.upstream(upstream),
        node.prop("path").map_or(Ok("/.well-known/jwks.json".into()), crate::target),
        node.prop("keep").map_or(Ok(Duration::from_secs(300)), |keep| keep.duration(KEEPS)),
        node.prop("host").map(crate::host).transpose(),
    ))?;
    let usable = Usable(usable);
    let request =
        FetchRequest { authority, limit: KEYS_FILE_MOST, keep, usable, ..FetchRequest::get(upstream, path) };
    Ok(Remote { request, parsed: ArcSwapOption::empty() })
}

fn read_demands(node: &Node) -> Result<Demands, Problem> {
    let texts = |arguments: &[Argument]| -> Result<Vec<String>, Problem> {
        each(arguments.iter().map(|argument| argument.text().map(String::from)))
    };
    let list = |name: &str| node.child(name).map_or(Ok(Vec::new()), |child| texts(child.args()));
    let required = node.children_named("require").map(|child| {
        let (name, values) = (child.arg(0)?.text(), child.args().get(1..).unwrap_or_default());
        together((name.map(String::from), texts(values)))
    });
    let leeway = node.prop("leeway").map_or(Ok(Duration::from_secs(30)), |leeway| leeway.duration(LEEWAYS));
    let (types, issuers, audiences, required, expiry, leeway) = together((
        list("type"),
        list("issuer"),
        list("audience"),
        each(required),
        flag(node, "require-expiry", true),
        leeway,
    ))?;
    let types = types.iter().map(|text| token::type_name(text).into()).collect();
    Ok(Demands { types, issuers, audiences, required, expiry, leeway })
}

fn read_claim(node: &Node) -> Result<(String, Text), Problem> {
    let field = node.prop("field").ok_or_else(|| node.wrong("`claim` needs `field`"))?;
    together((node.arg(0)?.text().map(String::from), crate::told_in(field)))
}

/// The question for keys, and its answer.
#[derive(Debug)]
pub struct KeySet;

impl FetchKey for KeySet {
    const NAME: &'static str = "jwt.keys-question";
    const ANSWER: &'static str = "jwt.keys";
}

/// The claims of a verified token. Expressions see them as JSON.
#[derive(Debug)]
pub struct Claims;

impl Value for Claims {
    type Data = String;
    const NAME: &'static str = "jwt.claims";
    const ABOUT: &'static str = "The claims of the token, as JSON.";
    const SHOWS: Option<Kind> = Some(Kind::Bytes);
    fn show(claims: &String) -> Option<Shown<'_>> {
        Some(Shown::Bytes(claims.as_bytes()))
    }
}

/// The subject of the token.
#[derive(Debug)]
pub struct Subject;

impl Value for Subject {
    type Data = String;
    const NAME: &'static str = "jwt.subject";
    const ABOUT: &'static str = "The subject of the token (`sub`).";
    const SHOWS: Option<Kind> = Some(Kind::Bytes);
    fn show(subject: &String) -> Option<Shown<'_>> {
        Some(Shown::Bytes(subject.as_bytes()))
    }
}

/// The token of a request.
enum Brought<'r> {
    Nothing,
    /// It is not clear which token counts, or the token is unreadable, for this reason.
    Unclear(&'static str),
    Token(&'r [u8]),
}

fn brought<'r>(settings: &JwtSettings, fields: &'r dyn Fields) -> Brought<'r> {
    const NO_BEARER: &str = "`authorization` is not one bearer token";
    let mut values = fields.all("authorization");
    let mut of_others: &[u8] = b"";
    let bearer = match (values.next(), values.next()) {
        (Some(_), Some(_)) => return Brought::Unclear(NO_BEARER),
        (Some(value), None) => match scheme_of(value) {
            // RFC 9110, section 11.1: schemes are compared without regard to case.
            scheme if scheme.eq_ignore_ascii_case(b"bearer") => match value.get(scheme.len()..) {
                Some([b' ', token @ ..]) => Some(token.trim_ascii_start()),
                _ => return Brought::Unclear(NO_BEARER),
            },
            b"" => return Brought::Unclear(NO_BEARER),
            // Credentials of another authentication scheme.
            _ => {
                of_others = value;
                None
            }
        },
        (None, _) => None,
    };
    let cookies =
        settings.cookie.as_ref().map_or(Vec::new(), |name| crate::cookies(fields, name, COOKIES_MOST));
    let token = bearer.or(cookies.first().copied());
    // The origin gets all tokens and may use any of them, so no unverified token may pass.
    let is_other = |other: &[u8]| !other.is_empty() && token != Some(other);
    if cookies.len() == COOKIES_MOST || cookies.iter().any(|other| is_other(other)) {
        return Brought::Unclear("there are several tokens");
    }
    if of_others.split(|byte| *byte == b',').filter_map(token_in).any(is_other) {
        return Brought::Unclear("`authorization` has a token of another scheme, or behind one");
    }
    let name = settings.cookie.as_deref().map(str::as_bytes);
    let like = |name| fields.all("cookie").flat_map(move |text| like_cookie(text, name));
    if name.is_some_and(|name| like(name).any(is_other)) {
        return Brought::Unclear("there is a cookie that may be taken for the one with the token");
    }
    token.map_or(Brought::Nothing, Brought::Token)
}

/// The part of an `authorization` element in which some origin looks for a token.
fn token_in(element: &[u8]) -> Option<&[u8]> {
    let element = element.trim_ascii();
    let scheme = scheme_of(element);
    let is_known = TOKEN_SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known));
    is_known.then(|| element.get(scheme.len()..).unwrap_or_default().trim_ascii_start())
}

/// The scheme at the start of credentials.
fn scheme_of(value: &[u8]) -> &[u8] {
    let in_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    value.split(|byte| !in_token(byte)).next().unwrap_or_default()
}

/// Requests the keys from the platform.
#[derive(Debug, Default)]
pub struct AskForKeys;

impl Step for AskForKeys {
    type At = phase::RequestIdentity;
    type Settings = JwtSettings;
    type In<'r> = (RequestFields<'r>,);
    type Out = (Emit<Fetch<KeySet>>, EditRequest);
    type Stop = Never;
    const NAME: &'static str = "jwt-keys";
    const ABOUT: &'static str =
        "Asks a server for the keys of tokens, and removes what a client may not say.";
    const FILTERS: &'static [Filter] = &[];

    fn run(
        &self,
        settings: &JwtSettings,
        (RequestFields(fields),): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        // Without a server, no keys have to be fetched: only the verifying step parses the request.
        let question = settings.remote.as_ref().and_then(|remote| match brought(settings, fields) {
            Brought::Token(token) => Some(remote.question(token, &settings.keys)),
            Brought::Nothing | Brought::Unclear(_) => None,
        });
        ControlFlow::Continue((Emit(question), EditRequest(Edits::shared(&settings.clear))))
    }
}

impl Remote {
    /// The fetch of keys for a token; `own` are the keys of the configuration.
    fn question(&self, token: &[u8], own: &Keys) -> FetchRequest {
        let mut request = self.request.clone();
        if let Some(parsed) = &*self.parsed.load()
            && let Some(id) = token::key_id(token)
            && !parsed.1.has(&id)
            && !own.has(&id)
        {
            request.renew_after = Some(RENEWED);
        }
        request
    }

    /// The keys in the server's answer.
    fn keys(&self, answer: Option<&FetchResult>) -> Result<Arc<(Text, Keys)>, String> {
        let answer = match answer {
            Some(Ok(answer)) if answer.status == 200 => answer,
            Some(Ok(answer)) => return Err(format!("the keys were answered with {}", answer.status)),
            Some(Err(error)) => return Err(format!("the keys: {error}")),
            None => return Err("the keys were not asked for".into()),
        };
        if let Some(parsed) = self.parsed.load_full().filter(|parsed| parsed.0 == answer.body) {
            return Ok(parsed);
        }
        // A server cannot supply shared secrets.
        let parsed = Arc::new((answer.body.clone(), Keys::of_set(&answer.body, false)?));
        self.parsed.store(Some(Arc::clone(&parsed)));
        Ok(parsed)
    }
}

/// Verifies tokens.
#[derive(Debug, Default)]
pub struct Jwt;

type Outcome = ControlFlow<Noted<Respond>, (Emit<Subject>, Emit<Claims>, EditRequest)>;

impl Step for Jwt {
    type At = phase::RequestSecurity;
    type Settings = JwtSettings;
    type In<'r> = (RequestFields<'r>, Read<'r, Fetched<KeySet>>, Time);
    type Out = (Emit<Subject>, Emit<Claims>, EditRequest);
    type Stop = Noted<Respond>;
    const NAME: &'static str = "jwt";
    const ABOUT: &'static str = "Lets in who has a token that is signed and valid.";
    const FILTERS: &'static [Filter] = &[];

    fn identity(settings: &JwtSettings) -> Vec<Text> {
        settings.claims.iter().map(|(_, field)| field.clone()).collect()
    }

    fn run(&self, settings: &JwtSettings, input: Self::In<'_>) -> Outcome {
        let (RequestFields(fields), Read(answer), Time(now)) = input;
        let token = match brought(settings, fields) {
            Brought::Token(token) => token,
            Brought::Nothing if settings.optional => {
                return ControlFlow::Continue((
                    Emit(None),
                    Emit(None),
                    EditRequest(Edits::shared(&settings.clear)),
                ));
            }
            Brought::Nothing => return settings.refuse(401, "", "there is no token"),
            Brought::Unclear(why) => return settings.refuse(401, "invalid_token", why),
        };
        let own = verify(token, &[&settings.keys], &settings.demands, now);
        let verified = match (own, &settings.remote) {
            (Err(Fault::Signature), Some(remote)) => match remote.keys(answer) {
                Ok(parsed) => verify(token, &[&parsed.1], &settings.demands, now),
                Err(why) => return settings.fail(why),
            },
            (verified, _) => verified,
        };
        match verified.and_then(|claims| settings.let_in(&claims)) {
            Ok(outputs) => ControlFlow::Continue(outputs),
            Err(fault @ Fault::Required) => settings.refuse(403, "insufficient_scope", fault.reason()),
            Err(fault) => settings.refuse(401, "invalid_token", fault.reason()),
        }
    }
}

impl JwtSettings {
    fn let_in(&self, claims: &Map<String, Json>) -> Result<<Jwt as Step>::Out, Fault> {
        let mut edits = Edits::shared(&self.clear);
        for (name, field) in &self.claims {
            let Some(claim) = claims.get(name).filter(|claim| !claim.is_null()) else { continue };
            let value = token::shown(claim).into_owned();
            edits.push(Edit::Set(Field::new(field.clone(), value).map_err(|_| Fault::Unprintable)?));
        }
        if self.strip {
            edits = edits.remove("authorization");
        }
        let subject = claims.get("sub").and_then(Json::as_str).map(String::from);
        let claims = serde_json::to_string(claims).ok();
        Ok((Emit(subject), Emit(claims), EditRequest(edits)))
    }

    /// A refusal (RFC 6750, section 3). The client is told the kind of the error; the reason is only logged.
    fn refuse(&self, status: u16, error: &str, why: &'static str) -> Outcome {
        let error = if error.is_empty() { String::new() } else { format!(", error=\"{error}\"") };
        let response = Response::new(status)
            .body("text/plain; charset=utf-8", "A valid token is needed\n")
            .field("www-authenticate", format!("Bearer realm=\"{}\"{error}", self.realm));
        noted(response, why.into())
    }

    fn fail(&self, why: String) -> Outcome {
        let response = Response::new(self.failure_status);
        noted(response.body("text/plain; charset=utf-8", "Authentication is not available\n"), why.into())
    }
}

fn noted(response: Response, why: Text) -> Outcome {
    let notes = Vec::from([Note { name: "jwt".into(), value: why }]);
    ControlFlow::Break(Noted { stop: Respond(response), notes })
}

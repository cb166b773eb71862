//! Basic authentication (RFC 7617): users with passwords.
//!
//! ```kdl
//! basic-auth realm="staff" file="htpasswd" user-field="x-user"
//! basic-auth realm="staff" {
//!     user "ada" "$2y$10$..."
//! }
//! ```
//!
//! Verifying a password takes milliseconds on purpose. So it is done on the threads for heavy work, and only for
//! credentials that were not verified recently. There are three steps: the first looks the credentials up in a cache,
//! the second verifies them if they are not there, the third decides about the request.

mod cache;
mod hashes;
#[cfg(test)]
mod tests;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use foregate_module::settings::value::{ScalarKind, text_of_file};
use foregate_module::settings::{
    Argument, Block, Context, FromNode, Key, Mistakes, Node, Problem, Prop, Scalar, together,
};
use foregate_module::{
    EditRequest, Edits, Emit, Field, Fields, Filter, Kind, Never, Note, Noted, Notes, Random, Read,
    RequestFields, Respond, Response, Shown, Skip, Step, Steps, Text, Value, Weight, WhenFull, phase,
};

use self::cache::Cache;
pub use self::hashes::Hash;

/// The most users.
const USERS_MOST: usize = 100_000;
/// The largest file of users, bytes.
const FILE_MOST: usize = 16 << 20;
/// The most bytes of user and password together. Longer credentials count as wrong.
const CREDENTIALS_MOST: usize = 1024;
/// The longest user name, bytes.
const NAME_MOST: usize = 255;

static KEY: Key = Key {
    args: (0, 1),
    props: &PROPS,
    block: Some(&Block { keys: &[USER], later: &[] }),
    otherwise: "no password is needed",
    ..Key::one(
        "basic-auth",
        "[#false] { user NAME HASH ... }",
        "basic-auth realm=\"staff\" { user \"ada\" \"$2y$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy\" }",
        "Requires HTTP Basic authentication. Without a valid user name and password, the answer is 401.",
    )
};

const USER: Key = Key::one(
    "user",
    "NAME HASH",
    "user \"ada\" \"$2y$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy\"",
    "A user, and the hash of the password: bcrypt, Argon2 or SHA-512-crypt, or `plain:` and the password itself.",
)
.args(2, 2)
.secrets(&[""])
.many();

const PROPS: [Prop; 4] = [
    Prop {
        name: "realm",
        usage: "TEXT",
        required: false,
        default: "\"restricted\"",
        about: "The text that browsers may show when they ask for the password.",
    },
    Prop {
        name: "file",
        usage: "FILE",
        required: false,
        default: "",
        about: "A file with more users, one NAME:HASH per line, as `htpasswd -B` writes it.",
    },
    Prop {
        name: "user-field",
        usage: "NAME",
        required: false,
        default: "",
        about: "The request field that carries the user name to the origin. It replaces a field of this name from the client.",
    },
    Prop {
        name: "strip-authorization",
        usage: "#true|#false",
        required: false,
        default: "#false",
        about: "Whether `authorization` is removed before the request goes to the origin.",
    },
];

/// The known users.
pub struct Users {
    users: BTreeMap<Box<str>, Hash>,
    /// `www-authenticate`.
    challenge: Arc<[u8]>,
    user_field: Option<Text>,
    strip: bool,
    cache: Cache,
    /// The step that verifies credentials. It is skipped if nothing has to be verified.
    verify: Steps,
}

impl FromNode for Users {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let Some(node) = nodes.first() else {
            return Err(Problem::new(Default::default(), "`basic-auth` has no settings"));
        };
        if let Some(argument) = node.args().first() {
            return Err(argument.wrong("`basic-auth` takes no value but #false").help("give it users"));
        }
        let (users, challenge, user_field, strip) = together((
            read_users(node, context),
            read_realm(node),
            node.prop("user-field").map(crate::told_in).transpose(),
            node.prop("strip-authorization").map_or(Ok(false), Argument::flag),
        ))?;
        let name = Scalar { kind: ScalarKind::String, text: Cow::Borrowed(Verify::NAME) };
        Ok(Self {
            users,
            challenge,
            user_field,
            strip,
            cache: Cache::default(),
            verify: context.steps(&Argument::new(name, node.place()))?,
        })
    }
}

fn read_realm(node: &Node) -> Result<Arc<[u8]>, Problem> {
    let realm = crate::quotable(node.prop("realm"), "restricted")?;
    Ok(format!("Basic realm=\"{realm}\", charset=\"UTF-8\"").into_bytes().into())
}

fn read_users(node: &Node, context: &mut dyn Context) -> Result<BTreeMap<Box<str>, Hash>, Problem> {
    let mut users = BTreeMap::new();
    let mut mistakes = Mistakes::default();
    for user in node.children_named("user") {
        mistakes.kept(read_user(&mut users, user));
    }
    if let Some(file) = node.prop("file") {
        let bytes = context.file(file, FILE_MOST);
        mistakes.kept(bytes.and_then(|bytes| read_file(&mut users, file, &bytes)));
    }
    mistakes.none()?;
    if users.is_empty() {
        let problem = node.wrong("`basic-auth` has no users, so nobody could come in");
        return Err(problem.help("add `user \"NAME\" \"HASH\"` to its block, or file=\"htpasswd\""));
    }
    Ok(users)
}

fn read_user(users: &mut BTreeMap<Box<str>, Hash>, user: &Node) -> Result<(), Problem> {
    let (name, hash) = (user.arg(0)?, user.arg(1)?);
    let read = Hash::read(hash.text()?).map_err(|message| match message.strip_prefix("this is") {
        Some(rest) => hash.wrong(format!("the second value is{rest}")),
        None => hash.wrong(message),
    });
    let named = name.text().and_then(|text| check_name(text).map(|()| text).map_err(|why| name.wrong(why)));
    let (text, hash) = together((named, read))?;
    add(users, text, hash).map_err(|message| name.wrong(message))
}

fn check_name(name: &str) -> Result<(), &'static str> {
    let well_formed = !name.is_empty() && name.len() <= NAME_MOST && !name.contains(':');
    if well_formed && Field::new("x-user", String::from(name)).is_ok() {
        return Ok(());
    }
    Err(
        "this cannot be the name of a user: it is empty, too long, or has a colon, a control character or a blank at an \
         end",
    )
}

fn add(users: &mut BTreeMap<Box<str>, Hash>, name: &str, hash: Hash) -> Result<(), String> {
    if users.len() == USERS_MOST {
        return Err(format!("there are more than {USERS_MOST} users"));
    }
    match users.insert(name.into(), hash) {
        None => Ok(()),
        Some(_) => Err(format!("the user `{name}` is there twice")),
    }
}

fn read_file(users: &mut BTreeMap<Box<str>, Hash>, file: &Argument, bytes: &[u8]) -> Result<(), Problem> {
    let text = text_of_file(bytes).map_err(|_| file.wrong("the file is not UTF-8"))?;
    let mut mistakes = Mistakes::default();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end_matches('\r');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let is_full = users.len() == USERS_MOST;
        let read = read_line(users, line).map_err(|why: String| file.wrong(format!("line {number}: {why}")));
        mistakes.kept::<()>(read);
        if is_full {
            break;
        }
    }
    mistakes.none()
}

fn read_line(users: &mut BTreeMap<Box<str>, Hash>, line: &str) -> Result<(), String> {
    let (name, hash) = line.split_once(':').ok_or("there is no colon")?;
    let hash = Hash::read(hash)?;
    check_name(name)?;
    add(users, name, hash)
}

/// The credentials of a client: `user:password`.
struct Credentials {
    text: Vec<u8>,
    colon: usize,
}

impl Credentials {
    fn user(&self) -> &[u8] {
        &self.text[..self.colon]
    }

    fn password(&self) -> &[u8] {
        &self.text[self.colon + 1..]
    }

    /// The credentials of a request; `None` if there are none, or none that can be parsed.
    fn of(fields: &dyn Fields) -> Option<Self> {
        let mut values = fields.all("authorization");
        let (Some(value), None) = (values.next(), values.next()) else { return None };
        let (scheme, rest) = value.split_at_checked(6)?;
        let rest = rest.trim_ascii_start();
        // Base64 needs four bytes for three.
        if !scheme.eq_ignore_ascii_case(b"basic ") || rest.len() > CREDENTIALS_MOST.div_ceil(3) * 4 {
            return None;
        }
        let text = STANDARD.decode(rest).ok()?;
        let colon = text.iter().position(|byte| *byte == b':')?;
        (text.len() <= CREDENTIALS_MOST).then_some(Self { text, colon })
    }
}

impl Users {
    /// The user, if the password is correct.
    fn verify(&self, credentials: &Credentials) -> Option<&str> {
        let user = core::str::from_utf8(credentials.user()).ok();
        let known = user.and_then(|user| self.users.get_key_value(user));
        // The check takes as long for an unknown user as for a known one.
        let hash = known.map(|(_, hash)| hash).or_else(|| self.users.values().find(|hash| !hash.is_light()));
        let fits = hash.is_some_and(|hash| hash.fits(credentials.password()));
        known.filter(|_| fits).map(|(user, _)| &**user)
    }

    fn is_light(&self, user: &[u8]) -> bool {
        let known = core::str::from_utf8(user).ok().and_then(|user| self.users.get(user));
        known.map_or_else(|| self.users.values().all(Hash::is_light), Hash::is_light)
    }
}

/// The credentials before they are verified.
#[derive(Debug)]
pub struct Presented;

/// See [`Presented`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialState {
    /// The request has no credentials, or none that can be parsed.
    Nothing,
    /// The credentials are wrong.
    Wrong,
    /// The credentials are right, for this user.
    Fits(String),
    /// The credentials have to be verified.
    Open,
}

impl Value for Presented {
    type Data = CredentialState;
    const NAME: &'static str = "basic-auth.presented";
    const ABOUT: &'static str = "The credentials before they are verified.";
}

/// The user with verified credentials.
#[derive(Debug)]
pub struct Verified;

impl Value for Verified {
    type Data = String;
    const NAME: &'static str = "basic-auth.verified";
    const ABOUT: &'static str = "The user whose credentials were verified for this request.";
}

/// The user.
#[derive(Debug)]
pub struct AuthUser;

impl Value for AuthUser {
    type Data = String;
    const NAME: &'static str = "auth.user";
    const ABOUT: &'static str = "The user who has given the right password.";
    const SHOWS: Option<Kind> = Some(Kind::Bytes);
    fn show(user: &String) -> Option<Shown<'_>> {
        Some(Shown::Bytes(user.as_bytes()))
    }
}

/// Looks up the request's credentials in the cache of recently verified credentials.
#[derive(Debug, Default)]
pub struct LookUp;

impl Step for LookUp {
    type At = phase::RequestSecurity;
    type Settings = Users;
    type In<'r> = (RequestFields<'r>, Random);
    type Out = (Emit<Presented>, Skip);
    type Stop = Never;
    const NAME: &'static str = "basic-auth-look-up";
    const ABOUT: &'static str = "Looks credentials up among those that were verified lately.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, users: &Users, input: Self::In<'_>) -> ControlFlow<Never, Self::Out> {
        let (RequestFields(fields), Random(random)) = input;
        let found = match Credentials::of(fields) {
            None => CredentialState::Nothing,
            Some(credentials) if users.is_light(credentials.user()) => users
                .verify(&credentials)
                .map_or(CredentialState::Wrong, |user| CredentialState::Fits(user.into())),
            Some(credentials) if users.cache.holds(&credentials, random) => {
                CredentialState::Fits(String::from_utf8_lossy(credentials.user()).into_owned())
            }
            Some(_) => CredentialState::Open,
        };
        let skip = if found == CredentialState::Open { Steps::NONE } else { users.verify };
        ControlFlow::Continue((Emit(Some(found)), Skip(skip)))
    }
}

/// Verifies credentials.
#[derive(Debug, Default)]
pub struct Verify;

impl Step for Verify {
    type At = phase::RequestSecurity;
    type Settings = Users;
    type In<'r> = (Read<'r, Presented>, RequestFields<'r>, Random);
    type Out = (Emit<Verified>,);
    type Stop = Never;
    const NAME: &'static str = "basic-auth-verify";
    const ABOUT: &'static str = "Verifies credentials, which takes milliseconds.";
    const FILTERS: &'static [Filter] = &[];
    // Without a result, no client may pass. If the queue is full, the request is refused at once: verifying on its own
    // thread would only help an attacker.
    const WEIGHT: Weight = Weight::Heavy(WhenFull::Error);

    fn run(&self, users: &Users, input: Self::In<'_>) -> ControlFlow<Never, Self::Out> {
        let (Read(found), RequestFields(fields), Random(random)) = input;
        let open = found == Some(&CredentialState::Open);
        let credentials = if open { Credentials::of(fields) } else { None };
        let user = credentials.and_then(|credentials| {
            let user = users.verify(&credentials)?;
            users.cache.insert(&credentials, random);
            Some(user.into())
        });
        ControlFlow::Continue((Emit(user),))
    }
}

/// Lets the request pass, or asks for a password (401).
#[derive(Debug, Default)]
pub struct BasicAuth;

impl Step for BasicAuth {
    type At = phase::RequestSecurity;
    type Settings = Users;
    type In<'r> = (Read<'r, Presented>, Read<'r, Verified>);
    type Out = (Emit<AuthUser>, EditRequest, Notes);
    type Stop = Noted<Respond>;
    const NAME: &'static str = "basic-auth";
    const ABOUT: &'static str = "Lets in who has given the right password, and asks others for one.";
    const FILTERS: &'static [Filter] = &[];

    fn identity(users: &Users) -> Vec<Text> {
        users.user_field.iter().cloned().collect()
    }

    fn run(&self, users: &Users, input: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        let (Read(found), Read(verified)) = input;
        let user = match (found, verified) {
            (Some(CredentialState::Fits(user)), _) | (_, Some(user)) => user,
            (found, None) => {
                let missing = matches!(found, None | Some(CredentialState::Nothing));
                let why = if missing { "no credentials" } else { "wrong credentials" };
                let notes = Vec::from([Note { name: "basic-auth".into(), value: why.into() }]);
                let response = Response::new(401)
                    .body("text/plain; charset=utf-8", "A user name and a password are needed\n")
                    .field("www-authenticate", Arc::clone(&users.challenge));
                return ControlFlow::Break(Noted { stop: Respond(response), notes });
            }
        };
        let mut edits = Edits::new();
        if let Some(name) = &users.user_field {
            edits = edits.set(name.clone(), user.clone());
        }
        if users.strip {
            edits = edits.remove("authorization");
        }
        let note = Note { name: "user".into(), value: user.clone().into() };
        ControlFlow::Continue((Emit(Some(user.clone())), EditRequest(edits), Notes(Vec::from([note]))))
    }
}

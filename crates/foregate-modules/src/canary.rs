//! Canaries: a part of the requests goes to another upstream.
//!
//! ```kdl
//! canary upstream="app-v2" share="5%" cookie="canary"
//! ```
//!
//! Every client draws a number below 10,000 and keeps it: in a cookie, or as the hash of an expression. The canary gets
//! the clients with numbers below its share. So a greater share adds clients, and no client moves back.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::hash::Hasher;
use core::ops::{ControlFlow, RangeInclusive};
use core::time::Duration;

use foregate_module::settings::{Argument, Context, FromNode, Key, Node, Problem, Prop, together};
use foregate_module::{
    ChooseUpstream, EditResponse, Edits, Emit, Expression, Fields, Filter, Kind, Never, PhaseId, Random,
    Read, RequestFields, ResponseFields, Scheme, Shown, Step, Text, UpstreamId, Value, View, phase,
};
use siphasher::sip::SipHasher13;

use crate::lists::{OF_SHARED_CACHES, vary};

/// The numbers that clients draw are below this: a hundredth of a percent each.
const DRAWS: u32 = 10_000;
/// How long a client keeps its drawn number by default.
const MAX_AGE: Duration = Duration::from_secs(30 * 86_400);
const AGES: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(365 * 86_400);

static KEY: Key = Key {
    args: (0, 1),
    props: &PROPS,
    otherwise: "all requests go to the route's upstream",
    ..Key::one(
        "canary",
        "[#false] upstream=NAME share=\"N%\"",
        "canary upstream=\"app\" share=\"5%\" cookie=\"canary\"",
        "Sends a share of the requests to another upstream, the canary.",
    )
};

static PROPS: [Prop; 6] = [
    Prop { name: "upstream", usage: "NAME", required: true, default: "", about: "The other upstream." },
    Prop {
        name: "share",
        usage: "\"N%\"",
        required: false,
        default: "\"0%\"",
        about: "The share of the clients that go to the canary, with up to two decimals.",
    },
    Prop {
        name: "cookie",
        usage: "NAME",
        required: false,
        default: "",
        about: "The name of a cookie that keeps each client at its upstream. The value `always` sends a client to the canary, and `never` to the route's upstream.",
    },
    Prop {
        name: "max-age",
        usage: "DURATION",
        required: false,
        default: "\"30d\"",
        about: "The lifetime of the cookie, 1m to 365d.",
    },
    Prop {
        name: "key",
        usage: "EXPRESSION",
        required: false,
        default: "",
        about: "An expression, instead of a cookie: requests with the same value go to the same upstream. If it has no value, or an empty one, the upstream is chosen at random for each request.",
    },
    Prop {
        name: "header",
        usage: "NAME",
        required: false,
        default: "",
        about: "A request field that takes precedence over everything else: `always` sends the request to the canary, `never` to the route's upstream. Other values have no effect.",
    },
];

/// The selection of clients for the canary.
pub struct CanarySettings {
    upstream: UpstreamId,
    /// Clients with numbers below this one go to the canary.
    share: u32,
    cookie: Option<String>,
    max_age: Duration,
    key: Option<Arc<dyn Expression>>,
    /// Makes the hashes of each canary different.
    salt: Box<str>,
    header: Option<Text>,
}

impl FromNode for CanarySettings {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let Some(node) = nodes.first() else {
            return Err(Problem::new(Default::default(), "`canary` has no settings"));
        };
        if let Some(argument) = node.args().first() {
            return Err(argument.wrong("`canary` takes no value but #false"));
        }
        let name = node.prop("upstream").ok_or_else(|| node.wrong("`canary` needs `upstream`"));
        let key = node.prop("key").map(|key| context.expression(key, PhaseId::RequestRewrite)).transpose();
        let max_age = node.prop("max-age").map_or(Ok(MAX_AGE), |age| age.duration(AGES));
        let (upstream, share, cookie, max_age, key, header, ()) = together((
            name.and_then(|name| Ok((context.upstream(name)?, name.text()?.into()))),
            node.prop("share").map_or(Ok(0), read_share),
            node.prop("cookie").map(crate::cookie_name).transpose(),
            max_age,
            key,
            node.prop("header").map(read_header).transpose(),
            fit_together(node),
        ))?;
        if share == 0 && cookie.is_none() && header.is_none() {
            let problem = node.wrong("nothing would ever go to this canary");
            return Err(problem.help("add share=\"5%\", or `header`"));
        }
        let (upstream, salt) = upstream;
        Ok(Self { upstream, share, cookie, max_age, key, salt, header })
    }
}

/// Checks combinations of properties, regardless of their values.
fn fit_together(node: &Node) -> Result<(), Problem> {
    match (node.prop("cookie"), node.prop("key"), node.prop("max-age")) {
        (Some(_), Some(key), _) => {
            Err(key.wrong("a canary keeps clients together by `cookie` or by `key`, not by both"))
        }
        (None, _, Some(age)) => Err(age.wrong("`max-age` belongs to `cookie`")),
        _ => Ok(()),
    }
}

fn read_header(argument: &Argument) -> Result<Text, Problem> {
    crate::field_name(argument)?;
    Ok(Text::Shared(argument.text()?.as_bytes().into()))
}

/// A percentage with up to two decimals, in hundredths.
fn read_share(argument: &Argument) -> Result<u32, Problem> {
    let wrong =
        || argument.wrong("expected a share from \"0%\" to \"100%\"").help("write something like \"2.5%\"");
    let text = argument.text().map_err(|_| wrong())?.strip_suffix('%').ok_or_else(wrong)?;
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str, most: usize| {
        let fits = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        fits.then(|| text.parse::<u32>().ok()).flatten()
    };
    let (Some(whole), Some(parts)) = (digits(whole, 3), digits(decimals, 2)) else { return Err(wrong()) };
    let parts = if decimals.len() == 1 { parts * 10 } else { parts };
    Some(whole * 100 + parts).filter(|share| *share <= DRAWS).ok_or_else(wrong)
}

/// The group of a request.
#[derive(Debug)]
pub struct CanaryGroup;

/// See [`CanaryGroup`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The canary's upstream.
    Canary,
    /// The route's own upstream.
    Stable,
}

impl Value for CanaryGroup {
    type Data = Side;
    const NAME: &'static str = "canary.group";
    const ABOUT: &'static str = "Where a request goes: `canary` or `stable`.";
    const SHOWS: Option<Kind> = Some(Kind::Bytes);
    fn show(side: &Side) -> Option<Shown<'_>> {
        Some(Shown::Bytes(match side {
            Side::Canary => b"canary",
            Side::Stable => b"stable",
        }))
    }
}

/// The number that a client has drawn, and is to keep.
#[derive(Debug)]
pub struct Drawn;

impl Value for Drawn {
    type Data = u32;
    const NAME: &'static str = "canary.drawn";
    const ABOUT: &'static str = "The number that a client has drawn with this request.";
}

fn word(value: &[u8]) -> Option<Side> {
    match value {
        b"always" => Some(Side::Canary),
        b"never" => Some(Side::Stable),
        _ => None,
    }
}

fn number(value: &[u8]) -> Option<u32> {
    let text = core::str::from_utf8(value).ok()?;
    let plain = text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

impl CanarySettings {
    fn side(&self, draw: u32) -> Side {
        if draw < self.share { Side::Canary } else { Side::Stable }
    }

    /// The group of a request, and the drawn number if the client has to store it.
    fn decide(&self, view: &View<'_>, fields: &dyn Fields, random: u64) -> (Side, Option<u32>) {
        if let Some(side) = self.header.as_ref().and_then(|name| word(fields.named(name).next()?)) {
            return (side, None);
        }
        let cookie = self.cookie.as_ref().and_then(|name| crate::cookie(fields, name));
        if let Some(side) = cookie.and_then(word) {
            return (side, None);
        }
        if let Some(draw) = cookie.and_then(number) {
            return (self.side(draw), None);
        }
        let value = self.key.as_ref().and_then(|key| key.evaluate(view));
        // All requests without a value would share the hash of the empty value, and go to the same group.
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            // Stable across processes: a fixed key; guessing the hash gains nothing.
            let mut hasher = SipHasher13::new_with_keys(0, 0);
            hasher.write(self.salt.as_bytes());
            hasher.write_u8(0xff);
            hasher.write(&value);
            return (self.side((hasher.finish() % u64::from(DRAWS)) as u32), None);
        }
        let draw = (random % u64::from(DRAWS)) as u32;
        (self.side(draw), self.cookie.is_some().then_some(draw))
    }
}

/// Chooses the group of a request.
#[derive(Debug, Default)]
pub struct Canary;

impl Step for Canary {
    type At = phase::RequestRewrite;
    type Settings = CanarySettings;
    type In<'r> = (View<'r>, RequestFields<'r>, Random);
    type Out = (Emit<CanaryGroup>, Emit<Drawn>);
    type Stop = Never;
    const NAME: &'static str = "canary";
    const ABOUT: &'static str = "Decides which requests go to another upstream.";
    const FILTERS: &'static [Filter] = &[Filter::Proxied];

    fn run(&self, settings: &CanarySettings, input: Self::In<'_>) -> ControlFlow<Never, Self::Out> {
        let (view, RequestFields(fields), Random(random)) = input;
        let (side, draw) = settings.decide(&view, fields, random);
        ControlFlow::Continue((Emit(Some(side)), Emit(draw)))
    }
}

/// Chooses the upstream.
#[derive(Debug, Default)]
pub struct CanaryUpstream;

impl Step for CanaryUpstream {
    type At = phase::UpstreamSelect;
    type Settings = CanarySettings;
    type In<'r> = (Read<'r, CanaryGroup>,);
    type Out = (ChooseUpstream,);
    type Stop = Never;
    const NAME: &'static str = "canary-upstream";
    const ABOUT: &'static str = "Chooses the other upstream for a canary's requests.";
    const FILTERS: &'static [Filter] = &[Filter::Proxied];

    fn run(&self, settings: &CanarySettings, (Read(side),): Self::In<'_>) -> ControlFlow<Never, Self::Out> {
        let canary = side == Some(&Side::Canary);
        ControlFlow::Continue((ChooseUpstream(canary.then_some(settings.upstream)),))
    }
}

/// Stores the drawn number in a cookie of the client, and lists in `Vary` the fields that the choice depends on.
#[derive(Debug, Default)]
pub struct CanaryCookie;

impl Step for CanaryCookie {
    type At = phase::ResponseHeaders;
    type Settings = CanarySettings;
    type In<'r> = (Read<'r, Drawn>, Scheme<'r>, ResponseFields<'r>);
    type Out = (EditResponse,);
    type Stop = Never;
    const NAME: &'static str = "canary-cookie";
    const ABOUT: &'static str = "Sets the cookie that keeps a client where it is, and Vary.";
    const FILTERS: &'static [Filter] = &[Filter::Proxied];

    fn run(&self, settings: &CanarySettings, input: Self::In<'_>) -> ControlFlow<Never, Self::Out> {
        let (Read(draw), Scheme(scheme), ResponseFields(response)) = input;
        let mut edits = Edits::new();
        // A cache must not send the response of one group to clients of the other (RFC 9110, section 12.5.5).
        if let Some(header) = &settings.header {
            edits = vary(edits, response, header.clone());
        }
        let by_header = settings.header.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(b"cookie"));
        if settings.cookie.is_some() && !by_header {
            edits = vary(edits, response, "cookie");
        }
        if let (Some(draw), Some(name)) = (draw, &settings.cookie) {
            let age = settings.max_age.as_secs();
            let secure = if scheme == "https" { "; Secure" } else { "" };
            let cookie = format!("{name}={draw}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{secure}");
            // Otherwise all clients of a shared cache would get the same number.
            edits = edits.append("set-cookie", cookie).append("cache-control", "private");
            edits = OF_SHARED_CACHES.iter().fold(edits, |edits, name| edits.remove(*name));
        }
        ControlFlow::Continue((EditResponse(edits),))
    }
}

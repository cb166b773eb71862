//! Rate limits: a number of requests per time for each key.
//!
//! ```kdl
//! rate-limit 100 per="1m"
//! rate-limit 5 per="1m" name="login" algorithm="sliding-window" when="http.request.uri.path eq \"/login\""
//! rate-limit 50 per="1s" burst=200 algorithm="token-bucket" key="http.request.headers[\"x-api-key\"][0]"
//! ```
//!
//! A limit runs in the first of the phases `request-identity`, `request-security` and `request-body` in which its
//! expressions are known: a limit by address runs before authentication, a limit by user name after it. The steps
//! hold the state of keys, in one [`table`] for each phase, so that it survives reloads. The state of a key is found
//! by the limit's definition, its name (without a name: the site), and the key. At an upgrade, it is passed to the
//! next process.

mod algorithm;
mod table;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::Hasher;
use core::marker::PhantomData;
use core::net::IpAddr;
use core::ops::ControlFlow;
use core::time::Duration;

use foregate_module::settings::{Argument, Context, FromNode, Key, Node, Problem, Prop, each, together};
use foregate_module::{
    ClientAddress, Condition, Doubt, EditResponse, Edits, Emit, Expression, Filter, Kind, Note, Noted, Notes,
    Phase, PhaseId, Random, Read, Respond, Response, Shown, SiteName, Step, StopAt, Text, Time, Value, View,
    phase,
};
use once_cell::race::OnceBox;
use siphasher::sip::SipHasher13;

pub use self::algorithm::{LimitAlgorithm, RateRule, Standing};
use self::table::{KeyTable, SETS, UNTIL_MOST};

/// The most limits that one route may have.
const LIMITS_MOST: usize = 64;
/// The largest limit and burst, requests.
const REQUESTS_MOST: u64 = 10_000_000;
/// The longest name, bytes.
const NAME_MOST: usize = 64;
/// The longest window.
const WINDOW_MOST: Duration = Duration::from_secs(30 * 86_400);
/// The longest time that an empty bucket may take to fill, milliseconds. The times in the table are this time plus the
/// uptime of the process, so each of the two may take half of the range of times. If a time exceeded the range, the
/// bucket would count as full too early.
const FILLS_WITHIN: u64 = UNTIL_MOST / 2;
/// The most bytes of a refusal's body.
const BODY_MOST: usize = 64 * 1024;

/// `rate-limit`
static KEY: Key = Key {
    args: (1, 1),
    props: &PROPS,
    ..Key::one(
        "rate-limit",
        "REQUESTS per=\"DURATION\"",
        "rate-limit 100 per=\"1m\"",
        "Allows this many requests per `key` within the time `per`; further requests get 429. Several limits apply together: those at the top of the file first, then those of the site and of the route. A request that passes one limit counts there even if a later limit refuses it.",
    )
    .many()
};

static PROPS: [Prop; 12] = [
    prop("per", "DURATION", true, "", "The time window of the limit, 1s to 30d."),
    prop(
        "algorithm",
        "\"fixed-window\"|\"sliding-window\"|\"token-bucket\"",
        false,
        "\"sliding-window\"",
        "The algorithm that counts requests.",
    ),
    prop(
        "key",
        "EXPRESSION",
        false,
        "\"ip.src\"",
        "The expression by which requests are grouped: each value has its own count. `ip.src` is the client's address, with IPv6 addresses cut to `ipv6-prefix`. A request without a value, or with an empty one, counts by its client's address.",
    ),
    prop(
        "ipv6-prefix",
        "N",
        false,
        "64",
        "The number of bits of an IPv6 address that identify a client, 1 to 128.",
    ),
    prop("burst", "REQUESTS", false, "", "The size of the token bucket. Without it: the limit."),
    prop(
        "when",
        "EXPRESSION",
        false,
        "",
        "Only requests for which this expression is true count. Without it: all.",
    ),
    prop(
        "name",
        "TEXT",
        false,
        "",
        "The name of the limit in fields and logs. Limits with the same name and definition count together, wherever they \
         are in the file; without a name, each site counts separately.",
    ),
    prop("status", "STATUS", false, "429", "The status of the refusal, 400 to 599."),
    prop("body", "TEXT", false, "\"Too many requests\\n\"", "The body of the refusal."),
    prop("type", "TEXT", false, "\"text/plain; charset=utf-8\"", "The content type of the refusal."),
    prop(
        "fields",
        "#true|#false",
        false,
        "#true",
        "Whether responses have `RateLimit` and `RateLimit-Policy` for this limit.",
    ),
    prop(
        "dry-run",
        "#true|#false",
        false,
        "#false",
        "Counts requests and notes refusals in the log, but refuses nothing.",
    ),
];

const fn prop(
    name: &'static str,
    usage: &'static str,
    required: bool,
    default: &'static str,
    about: &'static str,
) -> Prop {
    Prop { name, usage, required, default, about }
}

/// The key of a limit's requests.
enum By {
    /// The client's address.
    Client,
    /// An expression.
    Expression(Arc<dyn Expression>),
}

/// One limit of a route.
struct Limit {
    rule: RateRule,
    by: By,
    ipv6_prefix: u8,
    when: Option<Arc<dyn Condition>>,
    /// The phase in which the limit runs.
    phase: PhaseId,
    /// The identity of the limit's definition.
    id: u64,
    /// Set if sites count separately.
    of_site: bool,
    name: Arc<str>,
    /// The member of the field `RateLimit-Policy` for this limit.
    policy: Arc<[u8]>,
    refusal: Refusal,
    fields: bool,
    dry_run: bool,
}

struct Refusal {
    status: u16,
    body: Arc<[u8]>,
    content_type: Arc<[u8]>,
    /// Set if the body comes from the configuration.
    meant: bool,
}

/// The limits of a route.
pub struct RateLimits {
    limits: Box<[Limit]>,
}

impl FromNode for RateLimits {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        if let Some(node) = nodes.get(LIMITS_MOST) {
            return Err(node.wrong(format!("a route may have {LIMITS_MOST} rate limits at most")));
        }
        let limits = nodes.iter().enumerate().map(|(number, node)| Limit::read(number, node, context));
        Ok(Self { limits: each(limits)? })
    }
}

impl Limit {
    fn read(number: usize, node: &Node, context: &mut dyn Context) -> Result<Self, Problem> {
        let name = match node.prop("name") {
            Some(name) => read_name(name),
            None if number == 0 => Ok("default".to_string()),
            None => Ok(format!("default-{}", number + 1)),
        };
        let flag = |name: &str, otherwise| node.prop(name).map_or(Ok(otherwise), Argument::flag);
        let (rule, name, (by, when, phase), ipv6_prefix, refusal, fields, dry_run) = together((
            read_rule(node),
            name,
            read_expressions(node, context),
            node.prop("ipv6-prefix").map_or(Ok(64), |prefix| prefix.number(1..=128)),
            Refusal::read(node),
            flag("fields", true),
            flag("dry-run", false),
        ))?;
        let ipv6_prefix = ipv6_prefix as u8;
        let key = node.prop("key").map_or(Ok("ip.src"), Argument::text)?;
        let condition = node.prop("when").map_or(Ok(""), Argument::text)?;
        let named = node.prop("name").map(|_| &*name);
        let policy = format!("\"{name}\";q={};w={}", rule.limit, rule.window.div_ceil(1000));
        Ok(Self {
            id: definition(&rule, &[key, condition], ipv6_prefix, named),
            rule,
            by,
            ipv6_prefix,
            when,
            phase,
            of_site: named.is_none(),
            policy: policy.into_bytes().into(),
            name: name.into(),
            refusal,
            fields,
            dry_run,
        })
    }

    /// The hash that identifies a request's counter: of the key, and of everything else that distinguishes counters.
    fn hash(&self, seed: u64, request: &LimitInputs<'_>) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(seed, self.id);
        if self.of_site {
            hasher.write(request.site.as_bytes());
        }
        // Marks the end of the site: no host contains this byte.
        hasher.write_u8(0xff);
        // This holds for any kind of key: otherwise a client with a whole network would have one key per address.
        let client = request.client.map(|client| network(client, self.ipv6_prefix));
        let view = client.map_or(request.view, |client| request.view.with_client(client));
        let expression = match &self.by {
            By::Client => None,
            By::Expression(expression) => expression.evaluate(&view).filter(|key| !key.is_empty()),
        };
        match (expression, client) {
            (Some(key), _) => {
                hasher.write_u8(0);
                hasher.write(&key);
            }
            (None, None) => hasher.write_u8(1),
            (None, Some(IpAddr::V4(client))) => {
                hasher.write_u8(4);
                hasher.write(&client.octets());
            }
            (None, Some(IpAddr::V6(client))) => {
                hasher.write_u8(6);
                hasher.write(&client.octets());
            }
        }
        hasher.finish()
    }

    fn response(&self, standing: Standing) -> Response {
        let seconds = standing.retry.div_ceil(1000).max(1);
        let refusal = &self.refusal;
        let response = Response::new(refusal.status)
            .body(Arc::clone(&refusal.content_type), Arc::clone(&refusal.body))
            .field("retry-after", seconds.to_string());
        let response = if refusal.meant { response.meant() } else { response };
        if !self.fields {
            return response;
        }
        response
            .field("ratelimit-policy", Arc::clone(&self.policy))
            .field("ratelimit", member(&self.name, standing))
    }
}

/// The part of an address that identifies a client: an IPv4 address, or the first `ipv6_prefix` bits of an IPv6
/// address.
fn network(client: IpAddr, ipv6_prefix: u8) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(client) => {
            let host_bits = 128_u32.saturating_sub(ipv6_prefix.into());
            let prefix = u128::MAX.checked_shl(host_bits).unwrap_or_default();
            IpAddr::V6((client.to_bits() & prefix).into())
        }
        client => client,
    }
}

/// The member of the field `RateLimit` for one limit.
fn member(name: &str, standing: Standing) -> String {
    format!("\"{name}\";r={};t={}", standing.remaining, standing.reset.div_ceil(1000))
}

fn read_rule(node: &Node) -> Result<RateRule, Problem> {
    const WORDS: [(&str, LimitAlgorithm); 3] = [
        ("fixed-window", LimitAlgorithm::FixedWindow),
        ("sliding-window", LimitAlgorithm::SlidingWindow),
        ("token-bucket", LimitAlgorithm::TokenBucket),
    ];
    let requests = |argument: &Argument| argument.number(1..=REQUESTS_MOST).map(|number| number as u32);
    let per = node.prop("per").ok_or_else(|| node.wrong("`rate-limit` needs `per`, such as per=\"1m\""));
    let algorithm =
        node.prop("algorithm").map_or(Ok(LimitAlgorithm::SlidingWindow), |word| word.choice(&WORDS));
    let burst = match node.prop("burst") {
        Some(burst)
            if algorithm.as_ref().is_ok_and(|algorithm| *algorithm != LimitAlgorithm::TokenBucket) =>
        {
            let problem = burst.wrong("only a token bucket has a burst");
            Err(problem.help("add algorithm=\"token-bucket\", or leave `burst` out"))
        }
        burst => burst.map(requests).transpose(),
    };
    let (limit, window, algorithm, burst) = together((
        node.arg(0).and_then(requests),
        per.and_then(|per| per.duration(Duration::from_secs(1)..=WINDOW_MOST)),
        algorithm,
        burst,
    ))?;
    let window = window.as_millis() as u64;
    // A bucket of `limit` tokens fills in one window; a larger one takes longer in proportion.
    let most = FILLS_WITHIN * u64::from(limit) / window;
    if let (Some(argument), Some(size)) = (node.prop("burst"), burst)
        && u64::from(size) > most
    {
        let problem = argument.wrong(format!("with this limit, a bucket holds {most} requests at most"));
        return Err(problem.help("a larger one would take more than 17 years to fill"));
    }
    Ok(RateRule { algorithm, limit, window, burst: burst.unwrap_or(limit) })
}

/// Reads a name that needs no escapes in a structured field (RFC 9651).
fn read_name(name: &Argument) -> Result<String, Problem> {
    let text = name.text()?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    if text.is_empty() || text.len() > NAME_MOST || !text.bytes().all(fits) {
        let problem = name.wrong("this cannot be the name of a limit");
        return Err(problem.help(format!("use 1 to {NAME_MOST} letters, digits, and any of - _ . : /")));
    }
    Ok(text.into())
}

type Expressions = (By, Option<Arc<dyn Condition>>, PhaseId);

/// Key and condition, in the first phase that knows the inputs of both.
fn read_expressions(node: &Node, context: &mut dyn Context) -> Result<Expressions, Problem> {
    let key = match node.prop("key") {
        // An explicit default is treated as no key, because limits of the same name must share their counters.
        Some(key) if key.text()?.trim() != "ip.src" => Some(key),
        _ => None,
    };
    let when = node.prop("when");
    let mut compile = |phase| -> Result<Expressions, Problem> {
        let by = match key {
            None => Ok(By::Client),
            Some(key) => context.expression(key, phase).map(By::Expression),
        };
        let when = when.map(|when| context.condition(when, phase)).transpose();
        together((by, when)).map(|(by, when)| (by, when, phase))
    };
    let early = [Identity::ID, Security::ID].into_iter().find_map(|phase| compile(phase).ok());
    match early {
        Some(expressions) => Ok(expressions),
        None => compile(Late::ID),
    }
}

/// The identity of a limit. If its definition changes, the limit gets another identity, and its counters start at zero.
fn definition(rule: &RateRule, texts: &[&str], ipv6_prefix: u8, name: Option<&str>) -> u64 {
    // No secret is needed here: definitions do not come from clients.
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    hasher.write_u8(match rule.algorithm {
        LimitAlgorithm::FixedWindow => 0,
        LimitAlgorithm::SlidingWindow => 1,
        LimitAlgorithm::TokenBucket => 2,
    });
    hasher.write_u32(rule.limit);
    hasher.write_u64(rule.window);
    hasher.write_u32(rule.burst);
    hasher.write_u8(ipv6_prefix);
    for text in texts {
        hasher.write_usize(text.len());
        hasher.write(text.as_bytes());
    }
    hasher.write_u8(u8::from(name.is_some()));
    hasher.write(name.unwrap_or_default().as_bytes());
    hasher.finish()
}

fn read_body(argument: &Argument) -> Result<&str, Problem> {
    let text = argument.text()?;
    if text.len() > BODY_MOST {
        return Err(argument.wrong(format!("the body has more than {BODY_MOST} bytes")));
    }
    Ok(text)
}

impl Refusal {
    fn read(node: &Node) -> Result<Self, Problem> {
        let (status, body, content_type) = together((
            node.prop("status").map_or(Ok(429), |status| status.number(400..=599)),
            node.prop("body").map_or(Ok("Too many requests\n"), read_body),
            node.prop("type").map_or(Ok("text/plain; charset=utf-8"), crate::content_type),
        ))?;
        Ok(Self {
            status: status as u16,
            body: body.as_bytes().into(),
            content_type: content_type.as_bytes().into(),
            meant: node.prop("body").is_some(),
        })
    }
}

/// A phase in which limits run.
pub trait Stage: Default + Send + Sync + 'static {
    /// The phase.
    type At: Phase;
    /// The step's name.
    const NAME: &'static str;
    /// The value's name.
    const VALUE: &'static str;
    /// The phase, as a value.
    const ID: PhaseId = <Self::At as Phase>::ID;
}

/// Limits with expressions over the request and its client.
#[derive(Debug, Default)]
pub struct Identity;
/// Limits with expressions over results of `request-identity`.
#[derive(Debug, Default)]
pub struct Security;
/// Limits with expressions over results of `request-security`, such as the user.
#[derive(Debug, Default)]
pub struct Late;

impl Stage for Identity {
    type At = phase::RequestIdentity;
    const NAME: &'static str = "rate-limit";
    const VALUE: &'static str = "rate-limit.remaining";
}

impl Stage for Security {
    type At = phase::RequestSecurity;
    const NAME: &'static str = "rate-limit-security";
    const VALUE: &'static str = "rate-limit-security.remaining";
}

impl Stage for Late {
    type At = phase::RequestBody;
    const NAME: &'static str = "rate-limit-late";
    const VALUE: &'static str = "rate-limit-late.remaining";
}

/// The state of the limits of one phase, after a request that they have admitted. Expressions see the smallest number
/// of remaining requests.
#[derive(Debug)]
pub struct Remaining<S>(PhantomData<S>);

/// One limit that a request passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    name: Arc<str>,
    policy: Arc<[u8]>,
    standing: Standing,
    fields: bool,
}

impl<S: Stage> Value for Remaining<S> {
    type Data = Vec<Passed>;
    const NAME: &'static str = S::VALUE;
    const ABOUT: &'static str = "How many more requests the tightest limit of this phase would let pass now.";
    const SHOWS: Option<Kind> = Some(Kind::Int);
    fn show(passed: &Vec<Passed>) -> Option<Shown<'_>> {
        let least = passed.iter().map(|passed| passed.standing.remaining).min()?;
        Some(Shown::Int(least.into()))
    }
}

/// The inputs of a limit.
struct LimitInputs<'r> {
    view: View<'r>,
    client: Option<IpAddr>,
    site: &'r str,
}

/// Counts requests and refuses those beyond a limit.
#[derive(Default)]
pub struct RateLimit<S> {
    /// Made on first use, so that a process without limits pays nothing.
    table: OnceBox<KeyTable>,
    /// The secret by which keys are hashed, here and in the processes that take over.
    seed: OnceBox<u64>,
    stage: PhantomData<S>,
}

impl<S: Stage> RateLimit<S> {
    /// The state of keys. If the process has no secret yet, `random` becomes its secret.
    fn table(&self, random: u64) -> &KeyTable {
        self.table.get_or_init(|| {
            let seed = self.seed.get_or_init(|| Box::new(random));
            Box::new(KeyTable::new(SETS, *seed))
        })
    }
}

impl<S: Stage> Step for RateLimit<S>
where
    Noted<Respond>: StopAt<S::At>,
    (Emit<Remaining<S>>, Notes): foregate_module::Outputs<S::At>,
{
    type At = S::At;
    type Settings = RateLimits;
    type In<'r> = (View<'r>, Time, Random, ClientAddress, SiteName<'r>);
    type Out = (Emit<Remaining<S>>, Notes);
    type Stop = Noted<Respond>;
    const NAME: &'static str = S::NAME;
    const ABOUT: &'static str = "Counts requests by key and refuses those beyond a limit.";
    const FILTERS: &'static [Filter] = &[];

    fn is_idle(settings: &RateLimits) -> bool {
        !settings.limits.iter().any(|limit| limit.phase == S::ID)
    }

    /// The secret, and the live entries of the table. The secret is needed even if there are no entries: the next process
    /// has to hash keys with the same one.
    fn save(&self, now: u64, random: u64) -> Option<Vec<u8>> {
        let mut state = self.seed.get_or_init(|| Box::new(random)).to_le_bytes().to_vec();
        if let Some(table) = self.table.get() {
            table.save(now, &mut state);
        }
        Some(state)
    }

    fn restore(&self, state: &[u8], now: u64) {
        let Some((seed, entries)) = state.split_first_chunk() else { return };
        let seed = u64::from_le_bytes(*seed);
        // Entries that were hashed under another secret match no key.
        if *self.seed.get_or_init(|| Box::new(seed)) == seed && !entries.is_empty() {
            self.table(seed).restore(entries, now, now + FILLS_WITHIN);
        }
    }

    fn run(&self, settings: &RateLimits, input: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        let (view, Time(now), Random(random), ClientAddress(client), SiteName(site)) = input;
        let asked = LimitInputs { view, client, site };
        let (mut passed, mut notes) = (Vec::new(), Vec::new());
        // Several limits may share a counter, such as one of a site and one of its route. Only the first counts the request.
        let mut counted: Vec<(u64, Standing)> = Vec::new();
        for limit in settings.limits.iter().filter(|limit| limit.phase == S::ID) {
            let view = if limit.dry_run { asked.view.in_doubt(Doubt::Ignored) } else { asked.view };
            if limit.when.as_ref().is_some_and(|when| !when.holds(&view)) {
                continue;
            }
            let table = self.table(random);
            let hash = limit.hash(table.seed(), &asked);
            let standing = match counted.iter().find(|(before, _)| *before == hash) {
                Some((_, standing)) => *standing,
                None => table.update(hash, now.steady_ms, |known| limit.rule.take(known, now.steady_ms)),
            };
            if settings.limits.len() > 1 {
                counted.push((hash, standing));
            }
            let named = |name: &'static str| Note {
                name: name.into(),
                value: Text::Owned(limit.name.as_bytes().into()),
            };
            match (standing.admitted, limit.dry_run) {
                (true, false) => passed.push(Passed {
                    name: Arc::clone(&limit.name),
                    policy: Arc::clone(&limit.policy),
                    standing,
                    fields: limit.fields,
                }),
                (true, true) => {}
                (false, true) => notes.push(named("rate-limit-dry-run")),
                (false, false) => {
                    notes.push(named("rate-limit"));
                    let stop = Respond(limit.response(standing));
                    return ControlFlow::Break(Noted { stop, notes });
                }
            }
        }
        let passed = if passed.is_empty() { None } else { Some(passed) };
        ControlFlow::Continue((Emit(passed), Notes(notes)))
    }
}

/// Sends clients their limits (draft-ietf-httpapi-ratelimit-headers).
#[derive(Debug, Default)]
pub struct RateLimitFields;

impl Step for RateLimitFields {
    type At = phase::ResponseHeaders;
    type Settings = RateLimits;
    type In<'r> = (Read<'r, Remaining<Identity>>, Read<'r, Remaining<Security>>, Read<'r, Remaining<Late>>);
    type Out = (EditResponse,);
    type Stop = foregate_module::Never;
    const NAME: &'static str = "rate-limit-fields";
    const ABOUT: &'static str = "Adds `RateLimit` and `RateLimit-Policy` to responses.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, _: &RateLimits, input: Self::In<'_>) -> ControlFlow<Self::Stop, Self::Out> {
        let (Read(identity), Read(security), Read(late)) = input;
        let mut edits = Edits::new();
        // Both fields are lists, so a field line for each limit means the same as one line for all limits.
        for passed in
            [identity, security, late].into_iter().flatten().flatten().filter(|passed| passed.fields)
        {
            edits = edits.append("ratelimit-policy", Arc::clone(&passed.policy));
            edits = edits.append("ratelimit", member(&passed.name, passed.standing));
        }
        ControlFlow::Continue((EditResponse(edits),))
    }
}

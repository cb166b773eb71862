//! Fields of responses by which browsers protect a site and its visitors.
//!
//! ```kdl
//! security-headers {
//!     strict-transport-security "365d" subdomains=#true
//!     frame-options "DENY"
//!     content-security-policy "default-src 'self'"
//!     permissions-policy "camera=(), microphone=()"
//!     force
//! }
//! ```
//!
//! `security-headers` alone adds the fields that break no page. Each field can be given another value, or be turned
//! off by `#false`. Fields of the origin server take precedence, unless `force` is given.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use core::time::Duration;

use foregate_module::settings::{Block, Mistakes, Prop, each, together};
use foregate_module::{
    Argument, Context, Edit, EditResponse, Edits, Field, Filter, FromNode, Key, Never, Node, Problem,
    ResponseFields, ResponseSource, Scheme, Source, Step, Swept, Text, phase,
};

/// The default time for which browsers have to use TLS only.
const TRANSPORT_AGE: Duration = Duration::from_secs(180 * DAY);
/// The longest time for which browsers can be told to use TLS only.
const TRANSPORT_AGE_LIMIT: Duration = Duration::from_secs(3650 * DAY);
/// The shortest such time with which browsers add a site to their preload lists.
const PRELOAD_AGE: Duration = Duration::from_secs(365 * DAY);
const DAY: u64 = 24 * 60 * 60;
/// The most fields to remove, and the most sources that may frame a page.
const LIST_LIMIT: u8 = 100;
/// The longest policy, bytes: all fields of a head have to fit into the limits of clients.
const POLICY_LIMIT: usize = 8 * 1024;

/// Fields that reveal the installed software.
const TELLING: [&str; 5] =
    ["Server", "X-Powered-By", "X-AspNet-Version", "X-AspNetMvc-Version", "X-Generator"];

const TRANSPORT: &str = "Strict-Transport-Security";
const FRAME_OPTIONS: &str = "X-Frame-Options";
const CONTENT_POLICY: &str = "Content-Security-Policy";

/// A field that has one of a few values: the key, the field, the values, and the default.
struct Choice {
    key: &'static str,
    field: &'static str,
    values: &'static [(&'static str, &'static str)],
    default: Option<&'static str>,
}

/// Pairs of a word with itself.
macro_rules! words {
    ($($word:literal),*) => { &[$(($word, $word)),*] };
}

const CHOICES: [Choice; 5] = [
    Choice {
        key: "frame-options",
        field: FRAME_OPTIONS,
        values: words!("SAMEORIGIN", "DENY"),
        default: Some("SAMEORIGIN"),
    },
    Choice {
        key: "referrer-policy",
        field: "Referrer-Policy",
        values: words!(
            "no-referrer",
            "no-referrer-when-downgrade",
            "origin",
            "origin-when-cross-origin",
            "same-origin",
            "strict-origin",
            "strict-origin-when-cross-origin",
            "unsafe-url"
        ),
        default: Some("strict-origin-when-cross-origin"),
    },
    Choice {
        key: "cross-origin-opener-policy",
        field: "Cross-Origin-Opener-Policy",
        values: words!("same-origin", "same-origin-allow-popups", "noopener-allow-popups", "unsafe-none"),
        default: None,
    },
    Choice {
        key: "cross-origin-embedder-policy",
        field: "Cross-Origin-Embedder-Policy",
        values: words!("require-corp", "credentialless", "unsafe-none"),
        default: None,
    },
    Choice {
        key: "cross-origin-resource-policy",
        field: "Cross-Origin-Resource-Policy",
        values: words!("same-origin", "same-site", "cross-origin"),
        default: None,
    },
];

const KEY: Key = Key {
    usage: "[{ ... }]",
    ..Key::block(
        "security-headers",
        &BLOCK,
        "security-headers",
        "Adds the response fields that make browsers protect a site and its visitors, and removes fields that reveal installed software.",
    )
}
.args(0, 1)
.otherwise("no field is added or removed");

static BLOCK: Block = Block {
    keys: &[
        Key::one(
            "strict-transport-security",
            "DURATION|#false",
            "strict-transport-security \"365d\" subdomains=#true",
            "How long browsers must use only TLS for the site (`Strict-Transport-Security`). The field is sent over TLS only.",
        )
        .props(&[
            Prop {
                name: "subdomains",
                usage: "#true|#false",
                required: false,
                default: "#false",
                about: "Whether this applies to all subdomains, too (`includeSubDomains`).",
            },
            Prop {
                name: "preload",
                usage: "#true|#false",
                required: false,
                default: "#false",
                about: "Whether browsers may include the site in the list of TLS-only sites with which they are shipped (`preload`). It needs `subdomains` and a duration of at least a year, and is hard to undo.",
            },
        ])
        .default("\"180d\""),
        Key::flag(
            "content-type-options",
            "#true",
            "content-type-options #false",
            "Whether browsers must use the `Content-Type` as it is, without guessing (`X-Content-Type-Options: nosniff`).",
        ),
        Key::one(
            "frame-options",
            "SAMEORIGIN|DENY|#false",
            "frame-options \"DENY\"",
            "Whether pages may be shown in frames of their own web origin only, or in no frames (`X-Frame-Options`).",
        )
        .default("\"SAMEORIGIN\""),
        Key::one(
            "frame-ancestors",
            "SOURCE...|#false",
            "frame-ancestors \"'self'\" \"https://partner.example\"",
            "The web origins that may show pages in frames. They are sent in an additional content security policy, instead of `X-Frame-Options`.",
        )
        .args(1, LIST_LIMIT)
        .otherwise("as `frame-options`"),
        Key::one(
            "referrer-policy",
            "POLICY|#false",
            "referrer-policy \"no-referrer\"",
            "How much of the URL of a page browsers send to other sites (`Referrer-Policy`).",
        )
        .default("\"strict-origin-when-cross-origin\""),
        Key::one(
            "permissions-policy",
            "POLICY|#false",
            "permissions-policy \"camera=(), microphone=()\"",
            "The browser features that pages may use, such as the camera (`Permissions-Policy`).",
        )
        .otherwise("not sent"),
        Key::one(
            "content-security-policy",
            "POLICY|#false",
            "content-security-policy \"default-src 'self'\"",
            "The sources from which pages may load content and scripts (`Content-Security-Policy`).",
        )
        .props(&[Prop {
            name: "report-only",
            usage: "#true|#false",
            required: false,
            default: "#false",
            about: "Whether violations are only reported, not prevented (`Content-Security-Policy-Report-Only`).",
        }])
        .otherwise("not sent"),
        Key::one(
            "cross-origin-opener-policy",
            "POLICY|#false",
            "cross-origin-opener-policy \"same-origin\"",
            "Whether pages share a browsing context group with pages that opened them (`Cross-Origin-Opener-Policy`).",
        )
        .otherwise("not sent"),
        Key::one(
            "cross-origin-embedder-policy",
            "POLICY|#false",
            "cross-origin-embedder-policy \"require-corp\"",
            "Whether pages may load resources of other origins that do not permit it (`Cross-Origin-Embedder-Policy`).",
        )
        .otherwise("not sent"),
        Key::one(
            "cross-origin-resource-policy",
            "POLICY|#false",
            "cross-origin-resource-policy \"same-site\"",
            "The sites with pages that may load the responses (`Cross-Origin-Resource-Policy`).",
        )
        .otherwise("not sent"),
        Key::one(
            "remove",
            "NAME...|#false",
            "remove \"Server\" \"X-Runtime\"",
            "The response fields of origin servers that are removed.",
        )
        .args(1, LIST_LIMIT)
        .default("\"Server\" \"X-Powered-By\" \"X-AspNet-Version\" \"X-AspNetMvc-Version\" \"X-Generator\""),
        Key::flag(
            "force",
            "#false",
            "force",
            "Whether the values of this block replace those that the origin sends.",
        ),
    ],
    later: &[],
};

/// The settings of `security-headers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityHeaderSettings {
    cleartext: Arc<[Edit]>,
    tls: Arc<[Edit]>,
}

impl FromNode for SecurityHeaderSettings {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        let empty = Node::new("security-headers", Default::default());
        let node = nodes.last().unwrap_or(&empty);
        let mut mistakes = Mistakes::default();
        mistakes.kept(node.only_flag());
        let force = mistakes.kept(flag(node.child("force"), false)) == Some(true);
        let edit = |field| if force { Edit::Set(field) } else { Edit::Default(field) };
        let mut edits = mistakes.kept(removals(node.child("remove"))).unwrap_or_default();
        let mut say = |mistakes: &mut Mistakes, name, value: String, place: Option<&Argument>| {
            edits.extend(mistakes.kept(field(name, value, place)).map(edit));
        };
        if mistakes.kept(flag(node.child("content-type-options"), true)) == Some(true) {
            say(&mut mistakes, "X-Content-Type-Options", "nosniff".to_string(), None);
        }
        let ancestors = node.child("frame-ancestors").filter(|child| !child.turns_off());
        for choice in &CHOICES {
            let framed_otherwise = choice.field == FRAME_OPTIONS && ancestors.is_some();
            if let Some(child) = node.child(choice.key).filter(|_| framed_otherwise) {
                mistakes.add(child.wrong("`frame-ancestors` says that already"));
                continue;
            }
            let chosen = mistakes.kept(chosen(choice, node.child(choice.key))).flatten();
            if let Some(value) = chosen.filter(|_| !framed_otherwise) {
                say(&mut mistakes, choice.field, value.to_string(), None);
            }
        }
        if let Some((policy, place)) = mistakes.kept(policy(node.child("permissions-policy"))).flatten() {
            say(&mut mistakes, "Permissions-Policy", policy, Some(place));
        }
        if let Some(child) = node.child("content-security-policy") {
            let report_only = child.prop("report-only").map_or(Ok(false), Argument::flag);
            if let Some((report_only, Some((policy, place)))) =
                mistakes.kept(together((report_only, policy(Some(child)))))
            {
                let name = if report_only { "Content-Security-Policy-Report-Only" } else { CONTENT_POLICY };
                say(&mut mistakes, name, policy, Some(place));
            }
        }
        if let Some(child) = ancestors {
            edits.extend(mistakes.kept(frame_ancestors(child)).map(Edit::Append));
        }
        let cleartext = edits.clone().into();
        if let Some(value) =
            mistakes.kept(transport_security(node.child("strict-transport-security"))).flatten()
        {
            edits.extend(mistakes.kept(field(TRANSPORT, value, None)).map(edit));
        }
        mistakes.none().map(|()| Self { cleartext, tls: edits.into() })
    }
}

/// A field of settings.
fn field(name: &'static str, value: String, place: Option<&Argument>) -> Result<Field, Problem> {
    Field::new(name, Text::Shared(value.into_bytes().into())).map_err(|error| match place {
        Some(argument) => argument.wrong(error.to_string()),
        None => Problem::new(Default::default(), error.to_string()),
    })
}

fn flag(child: Option<&Node>, default: bool) -> Result<bool, Problem> {
    match child {
        Some(child) => child.args().first().map_or(Ok(true), Argument::flag),
        None => Ok(default),
    }
}

/// The value of a key; `None` if the key is off.
fn chosen(choice: &Choice, child: Option<&Node>) -> Result<Option<&'static str>, Problem> {
    match child {
        None => Ok(choice.default),
        Some(child) if child.turns_off() => Ok(None),
        Some(child) => child.arg(0)?.choice(choice.values).map(Some),
    }
}

/// A policy, with its place.
fn policy(child: Option<&Node>) -> Result<Option<(String, &Argument)>, Problem> {
    let Some(child) = child.filter(|child| !child.turns_off()) else { return Ok(None) };
    let argument = child.arg(0)?;
    not_off(argument)?;
    // Long policies are written in several lines.
    let words: Vec<&str> = argument.text()?.split_ascii_whitespace().collect();
    let text = words.join(" ");
    if text.is_empty() {
        return Err(argument.wrong("this policy is empty").help("write `#false` to say none"));
    }
    if text.len() > POLICY_LIMIT {
        return Err(argument.wrong(format!("this policy is longer than {POLICY_LIMIT} bytes")));
    }
    Ok(Some((text, argument)))
}

/// Checks that a key has not been turned off, because its properties would have no effect.
fn not_off(argument: &Argument) -> Result<(), Problem> {
    match argument.flag() {
        Ok(false) => Err(argument.wrong("`#false` stands alone: what it turns off has no properties")),
        _ => Ok(()),
    }
}

fn frame_ancestors(child: &Node) -> Result<Field, Problem> {
    let sources: Vec<&str> = each(child.args().iter().map(|argument| {
        let source = argument.text()?;
        if let "self" | "none" = source {
            let help = format!("write \"'{source}'\" for the word");
            return Err(argument.wrong(format!("`{source}` without quotes of its own is a host")).help(help));
        }
        if source == "'none'" && child.args().len() > 1 {
            return Err(argument.wrong("`'none'` stands alone"));
        }
        if source.is_empty() || source.bytes().any(|byte| byte.is_ascii_whitespace() || b";,".contains(&byte))
        {
            return Err(argument.wrong("this is not one source").help("write each in quotes of its own"));
        }
        Ok(source)
    }))?;
    field(CONTENT_POLICY, format!("frame-ancestors {}", sources.join(" ")), child.args().first())
}

fn removals(child: Option<&Node>) -> Result<Vec<Edit>, Problem> {
    let Some(child) = child else {
        return Ok(TELLING.iter().map(|name| Edit::Remove((*name).into())).collect());
    };
    if child.turns_off() {
        return Ok(Vec::new());
    }
    let remove = |argument: &Argument| {
        // A name is valid if a field of this name could be set.
        let field = Field::new(argument.text()?.to_string(), "")
            .map_err(|error| argument.wrong(error.to_string()))?;
        Ok(Edit::Remove(Text::Shared(field.name().into())))
    };
    each(child.args().iter().map(remove))
}

fn transport_security(child: Option<&Node>) -> Result<Option<String>, Problem> {
    let Some(child) = child else { return Ok(Some(format!("max-age={}", TRANSPORT_AGE.as_secs()))) };
    if child.turns_off() {
        return Ok(None);
    }
    not_off(child.arg(0)?)?;
    let age = child.arg(0)?.duration(Duration::ZERO..=TRANSPORT_AGE_LIMIT);
    let property = |name| child.prop(name).map_or(Ok(false), Argument::flag);
    let (age, subdomains, preload) = together((age, property("subdomains"), property("preload")))?;
    if preload && (!subdomains || age < PRELOAD_AGE) {
        let message = "browsers take only what holds for subdomains and for a year into their lists";
        return Err(child.wrong(message).help("write at least \"365d\" and subdomains=#true"));
    }
    let subdomains = if subdomains { "; includeSubDomains" } else { "" };
    let preload = if preload { "; preload" } else { "" };
    Ok(Some(format!("max-age={}{subdomains}{preload}", age.as_secs())))
}

/// Adds and removes the fields.
#[derive(Debug, Default)]
pub struct SecurityHeaders;

impl Step for SecurityHeaders {
    type At = phase::ResponseHeaders;
    type Settings = SecurityHeaderSettings;
    type In<'r> = (Scheme<'r>, ResponseSource<'r>, ResponseFields<'r>);
    type Out = (EditResponse,);
    type Stop = Never;
    const NAME: &'static str = "security-headers";
    const ABOUT: &'static str =
        "Adds fields by which browsers protect a site, and removes those that tell too much.";
    // Not for 101 (switching protocols), which has no document.
    const FILTERS: &'static [Filter] = &[Filter::Status(200, 999)];

    fn sweeps(settings: &SecurityHeaderSettings) -> bool {
        settings.cleartext.iter().any(|edit| matches!(edit, Edit::Remove(_)))
    }

    fn keeps(&self, settings: &SecurityHeaderSettings, _: Swept, name: &[u8]) -> bool {
        !settings
            .cleartext
            .iter()
            .any(|edit| matches!(edit, Edit::Remove(removed) if removed.eq_ignore_ascii_case(name)))
    }

    fn run(
        &self,
        settings: &SecurityHeaderSettings,
        (Scheme(scheme), ResponseSource(source), ResponseFields(response)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let edits = if scheme == "https" { &settings.tls } else { &settings.cleartext };
        let is_policy =
            |edit: &Edit| matches!(edit, Edit::Set(field) if field.name() == CONTENT_POLICY.as_bytes());
        // A page of a module may need its own policy; only origins' policies are replaced.
        let has_own = matches!(source, Source::Step { .. }) && response.get(CONTENT_POLICY).is_some();
        let edits = match has_own && edits.iter().any(is_policy) {
            true => {
                edits.iter().filter(|edit| !is_policy(edit)).cloned().fold(Edits::new(), |mut edits, edit| {
                    edits.push(edit);
                    edits
                })
            }
            false => Edits::shared(edits),
        };
        ControlFlow::Continue((EditResponse(edits),))
    }
}

#[cfg(test)]
mod tests;

//! Responses from the configuration: `security.txt`, and texts for exact paths.
//!
//! ```kdl
//! security-txt {
//!     contact "mailto:security@example.com"
//!     expires "2027-01-01T00:00:00Z"
//! }
//! answer "/robots.txt" "User-agent: *\nDisallow:\n"
//! ```

mod document;
mod expiry;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{ControlFlow, RangeInclusive};
use core::time::Duration;

use foregate_module::settings::{
    ANY, Argument, Block, Context, FromNode, Key, Mistakes, Node, Problem, Prop, each, together,
};
use foregate_module::{Filter, Method, Note, Noted, Path, RequestFields, Respond, Step, Time, phase};

use self::document::Document;
use crate::redirects::address::check_path;

/// The path by RFC 9116.
const SECURITY_TXT: &[u8] = b"/.well-known/security.txt";
/// The largest answer, bytes.
const ANSWER_MOST: usize = 1 << 20;
/// The most answers of a route.
const ANSWERS_MOST: usize = 1000;
/// The most bytes of a `security.txt`.
const SECURITY_TXT_MOST: usize = 32 * 1024;
const AGES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(365 * 86_400);

static SECURITY_KEY: Key = Key {
    args: (0, 1),
    block: Some(&Block { keys: &SECURITY_CHILDREN, later: &[] }),
    otherwise: "requests go to the origin",
    ..Key::one(
        "security-txt",
        "[#false] { contact URI; expires TIME ... }",
        "security-txt { contact \"mailto:security@example.com\"; expires \"2030-01-01T00:00:00Z\" }",
        "Answers `/.well-known/security.txt`, which lists contacts for reports of vulnerabilities (RFC 9116).",
    )
};

static SECURITY_CHILDREN: [Key; 8] = [
    uris(
        "contact",
        "contact \"mailto:security@example.com\"",
        "A contact, as a URI. Write the preferred contact first.",
    )
    .required(),
    Key::one(
        "expires",
        "TIME",
        "expires \"2030-01-01T00:00:00Z\"",
        "The time until which the information is valid (RFC 3339).",
    )
    .required(),
    uris(
        "encryption",
        "encryption \"https://example.com/key.txt\"",
        "The URI of a key for the encryption of reports.",
    ),
    uris(
        "acknowledgments",
        "acknowledgments \"https://example.com/thanks\"",
        "The URI of a page that thanks reporters.",
    ),
    Key::one(
        "preferred-languages",
        "TAG ...",
        "preferred-languages \"en\" \"fi\"",
        "The languages in which reports may be written.",
    )
    .args(1, ANY),
    uris(
        "canonical",
        "canonical \"https://example.com/.well-known/security.txt\"",
        "The URI of this file itself.",
    ),
    uris("policy", "policy \"https://example.com/policy\"", "The URI of the policy for reports."),
    uris(
        "hiring",
        "hiring \"https://example.com/jobs\"",
        "The URI of a page with open positions in security.",
    ),
];

const fn uris(name: &'static str, example: &'static str, about: &'static str) -> Key {
    Key::one(name, "URI", example, about).many()
}

/// A `security.txt`.
pub struct SecurityTxtSettings {
    document: Document,
    /// Seconds since the start of 1970.
    expires: u64,
}

impl FromNode for SecurityTxtSettings {
    const KEY: Option<&'static Key> = Some(&SECURITY_KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let Some(node) = nodes.first() else {
            return Err(Problem::new(Default::default(), "`security-txt` has no settings"));
        };
        if let Some(argument) = node.args().first() {
            return Err(argument.wrong("`security-txt` takes no value but #false"));
        }
        let mut text = String::new();
        let mut mistakes = Mistakes::default();
        for (key, field) in [
            ("contact", "Contact"),
            ("encryption", "Encryption"),
            ("acknowledgments", "Acknowledgments"),
            ("canonical", "Canonical"),
            ("policy", "Policy"),
            ("hiring", "Hiring"),
        ] {
            for child in node.children_named(key) {
                if let Some(uri) = mistakes.kept(child.arg(0).and_then(read_uri)) {
                    text += &format!("{field}: {uri}\n");
                }
            }
        }
        if node.child("contact").is_none() {
            mistakes.add(node.wrong("`security-txt` needs `contact`"));
        }
        if let Some(languages) = node.child("preferred-languages") {
            let tags = each::<_, Vec<_>>(languages.args().iter().map(read_language));
            text += &format!("Preferred-Languages: {}\n", mistakes.kept(tags).unwrap_or_default().join(", "));
        }
        let expires = mistakes.kept(read_expiry(node, context));
        mistakes.none()?;
        let (time, expires) = expires.unwrap_or_default();
        text += &format!("Expires: {time}\n");
        if text.len() > SECURITY_TXT_MOST {
            return Err(node.wrong(format!("the text has more than {SECURITY_TXT_MOST} bytes")));
        }
        let document = Document::new(text.into_bytes().into(), "text/plain; charset=utf-8", None);
        Ok(Self { document, expires })
    }
}

/// The expiry of the text: as it is written, and in seconds since 1970.
fn read_expiry<'n>(node: &'n Node, context: &mut dyn Context) -> Result<(&'n str, u64), Problem> {
    let child = node.child("expires").ok_or_else(|| node.wrong("`security-txt` needs `expires`"))?;
    let argument = child.arg(0)?;
    let text = argument.text()?;
    let expires = expiry::read(text).ok_or_else(|| {
        argument.wrong("this is not a time").help("write something like \"2030-01-01T00:00:00Z\" (RFC 3339)")
    })?;
    if context.unix_seconds().is_some_and(|now| now >= expires) {
        let past = argument.wrong("this is in the past: readers are told not to trust the text");
        context.warn(
            past.help("write a time to come, at best less than a year ahead (RFC 9116, section 2.5.5)"),
        );
    }
    Ok((text, expires))
}

/// Reads a URI. RFC 9116 requires `https` for web addresses.
fn read_uri(argument: &Argument) -> Result<&str, Problem> {
    let text = argument.text()?;
    let scheme = text.split_once(':').map(|(scheme, rest)| (scheme, rest.is_empty()));
    let help = "write something like \"mailto:security@example.com\" or \"https://example.com/security\"";
    match scheme {
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("http") => {
            Err(argument.wrong("RFC 9116 wants `https` here"))
        }
        Some((scheme, false))
            if scheme.starts_with(|first: char| first.is_ascii_alphabetic())
                && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
                && text.bytes().all(|byte| byte.is_ascii_graphic()) =>
        {
            Ok(text)
        }
        _ => Err(argument.wrong("this is not a URI").help(help)),
    }
}

fn read_language(argument: &Argument) -> Result<&str, Problem> {
    let text = argument.text()?;
    let part =
        |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if text.split('-').all(part) {
        Ok(text)
    } else {
        Err(argument.wrong("this is not a language, such as \"en\""))
    }
}

fn reads(method: &[u8]) -> bool {
    matches!(method, b"GET" | b"HEAD")
}

/// Answers `/.well-known/security.txt`.
#[derive(Debug, Default)]
pub struct SecurityTxt;

impl Step for SecurityTxt {
    // The file is public, so it is served before any access control.
    type At = phase::RequestIdentity;
    type Settings = SecurityTxtSettings;
    type In<'r> = (Method<'r>, Path<'r>, RequestFields<'r>, Time);
    type Out = ();
    type Stop = Noted<Respond>;
    const NAME: &'static str = "security-txt";
    const ABOUT: &'static str = "Says whom to tell of a vulnerability.";
    const FILTERS: &'static [Filter] = &[];

    fn guards(_: &SecurityTxtSettings) -> bool {
        false
    }

    fn run(&self, settings: &SecurityTxtSettings, input: Self::In<'_>) -> ControlFlow<Self::Stop, ()> {
        let (Method(method), Path(path), RequestFields(fields), Time(now)) = input;
        if path != SECURITY_TXT || !reads(method) {
            return ControlFlow::Continue(());
        }
        let mut notes = Vec::new();
        // An expired text is still served, because readers see the date. The note tells the operator.
        if now.unix_seconds() >= settings.expires {
            notes.push(Note { name: "security-txt".into(), value: "expired".into() });
        }
        ControlFlow::Break(Noted { stop: Respond(settings.document.answer(fields)), notes })
    }
}

static ANSWER_KEY: Key = Key {
    args: (1, 2),
    props: &ANSWER_PROPS,
    ..Key::one(
        "answer",
        "PATH [TEXT]",
        "answer \"/robots.txt\" \"User-agent: *\\nDisallow:\\n\"",
        "Answers GET and HEAD requests for exactly this path with this text. If several have the same path, the innermost applies: that of the route, else that of the site.",
    )
    .many()
};

static ANSWER_PROPS: [Prop; 3] = [
    Prop {
        name: "file",
        usage: "FILE",
        required: false,
        default: "",
        about: "A file with the text, at most 1 MiB.",
    },
    Prop {
        name: "type",
        usage: "TEXT",
        required: false,
        default: "\"text/plain; charset=utf-8\"",
        about: "The type of the text.",
    },
    Prop {
        name: "max-age",
        usage: "DURATION",
        required: false,
        default: "",
        about: "How long browsers and caches may use the text, at most 365d. Without it, no lifetime is sent, and they ask by `ETag` whether the text has changed.",
    },
];

/// Answers by path.
pub struct StaticAnswers {
    documents: BTreeMap<Box<[u8]>, Document>,
}

impl FromNode for StaticAnswers {
    const KEY: Option<&'static Key> = Some(&ANSWER_KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        if let Some(node) = nodes.get(ANSWERS_MOST) {
            return Err(node.wrong(format!("a route may have {ANSWERS_MOST} answers at most")));
        }
        // The outermost nodes come first, so that the innermost node of a path wins.
        let documents = nodes
            .iter()
            .map(|node| together((node.arg(0).and_then(read_path), read_document(node, context))));
        Ok(Self { documents: each(documents)? })
    }
}

fn read_path(argument: &Argument) -> Result<Box<[u8]>, Problem> {
    let text = argument.text()?;
    if !text.starts_with('/') || !text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte)) {
        return Err(argument.wrong("this is not a path").help("write something like \"/robots.txt\""));
    }
    if text.contains("//") || text.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err(argument.wrong("no request has this path: it is not in its normal form"));
    }
    check_path(text).map_err(|why| argument.wrong(format!("no request has this path: {why}")))?;
    Ok(text.as_bytes().into())
}

fn read_body(node: &Node, context: &mut dyn Context) -> Result<Arc<[u8]>, Problem> {
    let body: Arc<[u8]> = match (node.args().get(1), node.prop("file")) {
        (Some(text), None) => text.text()?.as_bytes().into(),
        (None, Some(file)) => context.file(file, ANSWER_MOST)?,
        _ => return Err(node.wrong("`answer` needs either a text or `file`")),
    };
    if body.len() > ANSWER_MOST {
        return Err(node.wrong(format!("the text has more than {ANSWER_MOST} bytes")));
    }
    Ok(body)
}

fn read_document(node: &Node, context: &mut dyn Context) -> Result<Document, Problem> {
    let (body, content_type, max_age) = together((
        read_body(node, context),
        node.prop("type").map_or(Ok("text/plain; charset=utf-8"), crate::content_type),
        node.prop("max-age").map(|age| age.duration(AGES)).transpose(),
    ))?;
    Ok(Document::new(body, content_type, max_age.map(|age| age.as_secs())))
}

/// Answers with texts of the configuration.
#[derive(Debug, Default)]
pub struct Answer;

impl Step for Answer {
    // The step runs after all access control, so that the files of a closed site stay closed.
    type At = phase::RequestRewrite;
    type Settings = StaticAnswers;
    type In<'r> = (Method<'r>, Path<'r>, RequestFields<'r>);
    type Out = ();
    type Stop = Respond;
    const NAME: &'static str = "answer";
    const ABOUT: &'static str = "Answers paths with texts of the configuration.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, settings: &StaticAnswers, input: Self::In<'_>) -> ControlFlow<Respond, ()> {
        let (Method(method), Path(path), RequestFields(fields)) = input;
        match settings.documents.get(path).filter(|_| reads(method)) {
            Some(document) => ControlFlow::Break(Respond(document.answer(fields))),
            None => ControlFlow::Continue(()),
        }
    }
}

//! Hides e-mail addresses from programs that harvest them.
//!
//! ```kdl
//! html-emails
//! ```
//!
//! Addresses in text and in `mailto:` links are replaced by a placeholder that carries them encoded; a small script puts
//! them back. Without JavaScript the placeholder stays.

use std::ops::ControlFlow;
use std::sync::Arc;

use foregate_module::settings::{Argument, Context, FromNode, Key, Node, Problem, Prop, each, together};
use foregate_module::{Filter, Method, Path, RequestFields, Respond, Response, Step, phase};

use super::{Configured, Settings, chooses};
use crate::carry::stands_in;
use crate::references::resolve_all;
use crate::response::is_known;
use crate::{Charset, Comment, Element, EndTag, Feature, Page, Reads, Rewrite, Selector, TextOut, escape};

/// The path of the script.
pub const SCRIPT_PATH: &str = "/.foregate/email-decode.min.js";
/// The source of the script, for browsers of the last ten years.
const SCRIPT: &str = include_str!("email-decode.min.js");
/// The ETag of the script. It has to change whenever the script does.
const SCRIPT_TAG: &str = "\"1\"";
/// The step that chooses the feature.
const STEP: &str = "html-emails";
/// The longest local part of an address, bytes (RFC 5321, section 4.5.3.1).
const LOCAL: usize = 64;
/// The longest domain, bytes.
const DOMAIN: usize = 253;
/// The growth for each byte of the document. The worst case is an address of six bytes.
const GROWTH: usize = 24;
/// The longest placeholder, bytes.
const PLACEHOLDER_LIMIT: usize = 200;
/// The text in place of an address.
const PLACEHOLDER: &str = "[email protected]";
/// The extensions of file names that look like addresses, such as `logo@2x.png`.
const FILES: [&str; 10] = ["png", "jpg", "jpeg", "gif", "webp", "avif", "svg", "ico", "css", "js"];

static KEY: Key = Key::flag(
    "html-emails",
    "#false",
    "html-emails placeholder=\"(address hidden)\"",
    "Hides the e-mail addresses in HTML from programs that collect them. In browsers, a script from `/.foregate/email-decode.min.js` shows them again.",
)
.props(&[Prop {
    name: "placeholder",
    usage: "TEXT",
    required: false,
    default: "\"[email protected]\"",
    about: "The text that browsers without JavaScript show in place of an address.",
}]);

static SCRIPT_KEY: Key = Key::flag(
    "html-email-script",
    "#false",
    "html-email-script",
    "Serves the script of `html-emails`. It is needed if a site has `html-emails` in some routes only, or with a `when`.",
);

impl Configured for Emails {
    const STEP: &'static str = STEP;
    const KEY: &'static Key = &KEY;

    fn from_node(node: &Node, _: &mut dyn Context) -> Result<Self, Problem> {
        let placeholder = node.prop("placeholder").map_or(Ok(PLACEHOLDER), read_placeholder);
        let ((), placeholder) = together((node.only_flag(), placeholder))?;
        Ok(Self::new(placeholder))
    }
}

fn read_placeholder(argument: &Argument) -> Result<&str, Problem> {
    let text = argument.text()?;
    if text.is_empty() || text.len() > PLACEHOLDER_LIMIT {
        return Err(argument.wrong(format!("a placeholder has 1 to {PLACEHOLDER_LIMIT} bytes")));
    }
    Ok(text)
}

/// The settings of `html-email-script`: none.
#[derive(Debug, Clone, Copy)]
pub struct ScriptSettings;

impl FromNode for ScriptSettings {
    const KEY: Option<&'static Key> = Some(&SCRIPT_KEY);

    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        each::<_, ()>(nodes.iter().map(Node::only_flag)).map(|()| Self)
    }
}

chooses! {
    /// Chooses the feature.
    ChooseEmails, Emails, "Hides e-mail addresses of documents from programs."
}

macro_rules! serves {
    ($(#[$doc:meta])* $step:ident, $settings:ty, $name:literal) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub struct $step;

        impl Step for $step {
            type At = phase::RequestIdentity;
            type Settings = $settings;
            type In<'r> = (Path<'r>, Method<'r>, RequestFields<'r>);
            type Out = ();
            type Stop = Respond;
            const NAME: &'static str = $name;
            const ABOUT: &'static str = "Serves the script that puts hidden e-mail addresses back.";
            const FILTERS: &'static [Filter] = &[];

            fn guards(_: &$settings) -> bool {
                false
            }

            fn run(
                &self,
                _: &$settings,
                (Path(path), Method(method), RequestFields(request)): Self::In<'_>,
            ) -> ControlFlow<Respond, ()> {
                if path != SCRIPT_PATH.as_bytes() || !matches!(method, b"GET" | b"HEAD") {
                    return ControlFlow::Continue(());
                }
                let response = match is_known(request, SCRIPT_TAG) {
                    true => Response::new(304),
                    false => Response::new(200).body("text/javascript; charset=utf-8", SCRIPT),
                };
                ControlFlow::Break(Respond(
                    response
                        .field("cache-control", "public, max-age=2592000")
                        .field("etag", SCRIPT_TAG)
                        .field("x-content-type-options", "nosniff"),
                ))
            }
        }
    };
}

serves! {
    /// Serves the script on routes with `html-emails`.
    Script, Settings<Emails>, "html-emails-script"
}
serves! {
    /// Serves the script on routes with `html-email-script`.
    ScriptAlone, ScriptSettings, "html-email-script"
}

/// The feature.
#[derive(Debug)]
pub struct Emails {
    selectors: Vec<Selector>,
    placeholder: String,
}

/// The number of link selectors at the start of [`Emails::selectors`]; the rest are elements that cannot contain markup.
const LINKS: usize = 2;
/// The number of the selector of templates. The script does not search their content, because it is not part of the
/// document until another script adds it.
const TEMPLATE: usize = 2;

impl Default for Emails {
    fn default() -> Self {
        Self::new(PLACEHOLDER)
    }
}

impl Emails {
    /// Creates the feature with this text as the placeholder.
    pub fn new(placeholder: &str) -> Self {
        let selectors = ["a[href]", "area[href]", "template", "svg", "math", "select", "datalist"];
        let mut escaped = String::new();
        escape(placeholder, &mut escaped);
        Self {
            selectors: selectors.map(Selector::constant).into(),
            placeholder: escaped.replace(' ', "&#160;"),
        }
    }
}

impl Feature for Emails {
    fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    fn reads(&self) -> Reads {
        Reads { text: true, comments: true, ..Reads::default() }
    }

    fn growth(&self) -> usize {
        GROWTH + self.placeholder.len() / 6
    }

    fn begin(self: Arc<Self>, page: &Page) -> Box<dyn Rewrite> {
        // The inserted markup has no quotes. So if a browser reads the markup as a part of an attribute, the attribute does
        // not end within it.
        let nonce = page.nonce().map_or(String::new(), |nonce| format!(" nonce={nonce}"));
        Box::new(Hiding {
            placeholder: page.text(&self.placeholder).into_owned(),
            script: format!("<script src={SCRIPT_PATH}{nonce} defer></script>"),
            charset: page.charset(),
            candidate: Candidate::default(),
            outside: 0,
            templates: 0,
            off: false,
        })
    }
}

struct Hiding {
    placeholder: String,
    /// The `script` element, which is inserted with the first address, so that later errors cannot prevent it. Empty once
    /// it has been inserted.
    script: String,
    charset: Charset,
    candidate: Candidate,
    /// The number of open elements that cannot contain markup, and of open templates.
    outside: usize,
    /// The number of open templates.
    templates: usize,
    /// True between `<!--email_off-->` and `<!--/email_off-->`.
    off: bool,
}

impl Rewrite for Hiding {
    fn element(&mut self, selector: usize, element: &mut Element<'_, '_, '_>) {
        match selector {
            ..LINKS => self.link(element),
            _ if element.has_content() => {
                self.outside += 1;
                self.templates += usize::from(selector == TEMPLATE);
                element.watch_end();
            }
            _ => {}
        }
    }

    fn end_tag(&mut self, selector: usize, _: &mut EndTag<'_, '_>) {
        self.outside = self.outside.saturating_sub(1);
        self.templates = self.templates.saturating_sub(usize::from(selector == TEMPLATE));
    }

    fn text(&mut self, text: &str, last: bool, out: &mut TextOut<'_>) {
        if self.off || self.outside > 0 || !out.allows_markup() {
            return out.keep(text);
        }
        let (placeholder, script) = (&self.placeholder, &mut self.script);
        self.candidate.read(text, last, &mut |found| match found {
            TextPiece::Text(text) => out.keep(text),
            TextPiece::Address(address) => {
                out.matched();
                let code = encoded(address.as_bytes());
                out.markup(&format!("<span data-fg-email={code}>{placeholder}</span>"));
                if !script.is_empty() {
                    out.matched();
                    out.markup(&std::mem::take(script));
                }
            }
        });
    }

    fn comment(&mut self, comment: &mut Comment<'_, '_>) {
        match comment.text().trim() {
            "email_off" => self.off = true,
            "/email_off" => self.off = false,
            _ => {}
        }
    }
}

impl Hiding {
    fn link(&mut self, element: &mut Element<'_, '_, '_>) {
        let Some(href) =
            element.attribute("href").filter(|_| !self.off && self.templates == 0 && element.is_html())
        else {
            return;
        };
        // The script can only decode valid UTF-8.
        let is_readable = |text: &str| text.is_ascii() || self.charset.is_utf8() && !stands_in(text);
        let Some(mut href) = Some(href).filter(|href| is_readable(href)).and_then(|href| resolve_all(&href))
        else {
            return;
        };
        // Browsers drop these characters from addresses (URL Standard, section 4.4).
        href.retain(|character| !matches!(character, '\t' | '\n' | '\r'));
        let address = href.trim_start_matches(|first| first <= ' ');
        let Some((scheme, rest)) = address.split_at_checked("mailto:".len()) else { return };
        let has_address = rest.contains('@') || rest.contains("%40");
        if !scheme.eq_ignore_ascii_case("mailto:") || !has_address {
            return;
        }
        if !self.script.is_empty() {
            element.before(&std::mem::take(&mut self.script));
        }
        element.set_attribute("href", "#");
        element.set_attribute("data-fg-email", &encoded(rest.as_bytes()));
    }
}

/// Encodes bytes for the script: the first two digits are the key for the others. The key is derived from the address,
/// so that a document gets the same output each time.
fn encoded(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(0x5a_u8, |sum, byte| sum.rotate_left(3) ^ byte);
    let key = if sum == 0 { 0x5a } else { sum };
    let codes = std::iter::once(key).chain(bytes.iter().map(|byte| byte ^ key));
    codes
        .flat_map(|code| [code >> 4, code & 15])
        .filter_map(|digit| char::from_digit(u32::from(digit), 16))
        .collect()
}

/// A piece of a text.
enum TextPiece<'t> {
    Text(&'t str),
    Address(&'t str),
}

/// The possible start of an address at the end of the text read so far.
#[derive(Default)]
struct Candidate {
    /// The local part, and after an `@` the domain as far as it has been read.
    held: String,
    /// The position of the `@` in `held`.
    at: Option<usize>,
    /// True if the local part is longer than allowed.
    long: bool,
}

fn is_local(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._%+-".contains(&byte)
}

fn is_domain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-".contains(&byte)
}

impl Candidate {
    /// Reads a piece of the document's text, which may be split anywhere. Passes addresses and the text between them to
    /// `tell`, in order.
    fn read(&mut self, text: &str, last: bool, tell: &mut dyn FnMut(TextPiece<'_>)) {
        let mut rest = text;
        loop {
            rest = match self.at {
                None => match self.read_local(rest, tell) {
                    Some(rest) => rest,
                    None => break,
                },
                Some(at) => {
                    let room = (at + 1 + DOMAIN + 1).saturating_sub(self.held.len());
                    let run = rest.bytes().take(room).take_while(|byte| is_domain(*byte)).count();
                    let (domain, after) = rest.split_at(run);
                    self.held.push_str(domain);
                    if after.is_empty() && run < room && !last {
                        break;
                    }
                    self.judge(at, run == room, tell);
                    after
                }
            };
        }
        if last {
            if !self.held.is_empty() {
                tell(TextPiece::Text(&self.held));
            }
            // Keep the memory for the next text.
            self.held.clear();
            (self.at, self.long) = (None, false);
        }
    }

    /// Reads up to the next `@` and returns the rest; `None` at the end of the text.
    fn read_local<'t>(&mut self, text: &'t str, tell: &mut dyn FnMut(TextPiece<'_>)) -> Option<&'t str> {
        let at = memchr::memchr(b'@', text.as_bytes());
        let before = at.and_then(|at| text.get(..at)).unwrap_or(text);
        let run = before.bytes().rev().take_while(|byte| is_local(*byte)).count();
        let (other, local) = before.split_at(before.len() - run);
        if !other.is_empty() {
            self.let_go(tell);
            tell(TextPiece::Text(other));
        }
        self.held.push_str(local);
        self.shorten(tell);
        let at = at?;
        let fits =
            !self.long && !self.held.is_empty() && !self.held.starts_with('.') && !self.held.ends_with('.');
        self.held.push('@');
        if fits {
            self.at = Some(self.held.len() - 1);
        } else {
            self.let_go(tell);
        }
        text.get(at + 1..)
    }

    /// Releases held text from the start, so that no more than the longest local part stays held.
    fn shorten(&mut self, tell: &mut dyn FnMut(TextPiece<'_>)) {
        let over = self.held.len().saturating_sub(LOCAL);
        if over > 0 {
            tell(TextPiece::Text(self.held.get(..over).unwrap_or_default()));
            self.held.drain(..over);
            self.long = true;
        }
    }

    fn let_go(&mut self, tell: &mut dyn FnMut(TextPiece<'_>)) {
        if !self.held.is_empty() {
            tell(TextPiece::Text(&self.held));
        }
        self.held.clear();
        self.long = false;
    }

    /// Handles the end of a domain, or a domain of the maximum length: passes the held text on as an address or as text.
    /// Its end may be the start of another address.
    fn judge(&mut self, at: usize, too_long: bool, tell: &mut dyn FnMut(TextPiece<'_>)) {
        self.at = None;
        let domain = self.held.get(at + 1..).unwrap_or_default();
        let length = if too_long { 0 } else { domain_length(domain) };
        let end = if length == 0 { at + 1 } else { at + 1 + length };
        let found = self.held.get(..end).unwrap_or_default();
        tell(if length == 0 { TextPiece::Text(found) } else { TextPiece::Address(found) });
        self.long = too_long;
        self.held.drain(..end);
        self.shorten(tell);
    }
}

/// The length of the domain at the start of the text, which needs two labels or more; 0 if there is none.
fn domain_length(text: &str) -> usize {
    let domain = text.split("..").next().unwrap_or_default().trim_end_matches(['.', '-']);
    let Some((front, top)) = domain.rsplit_once('.') else { return 0 };
    let is_top =
        top.len() >= 2 && (top.bytes().all(|byte| byte.is_ascii_alphabetic()) || top.starts_with("xn--"));
    let is_file = FILES.iter().any(|file| top.eq_ignore_ascii_case(file));
    let labels =
        front.split('.').all(|label| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-'));
    if is_top && labels && !is_file { domain.len() } else { 0 }
}

#[cfg(test)]
mod tests;

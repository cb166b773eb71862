//! Maps addresses in attributes to others.
//!
//! ```kdl
//! html-links {
//!     prefix "/static/" "https://static.example.com/"
//!     host "app.internal" "www.example.com"
//!     https
//!     attribute "data-src"
//! }
//! ```
//!
//! The first `prefix` that matches applies. If none matches, the first `host` that matches applies. After that, `https`
//! replaces `http:`.

use std::sync::Arc;

use foregate_module::settings::{Argument, Block, Context, Key, Node, Problem, each, together};

use super::{Configured, chooses, flag};
use crate::carry::UNUSED;
use crate::references::resolve_but;
use crate::{Element, Feature, Page, Rewrite, Selector};

/// The step that chooses the feature.
const STEP: &str = "html-links";
/// The most mappings.
const MAPPINGS: usize = 256;
/// The most attributes that the configuration may name in addition to the built-in ones.
const ATTRIBUTES: usize = 16;
/// The longest text of a mapping, bytes.
const PART: usize = 2048;

/// The attributes of HTML that hold an address which browsers use. Each costs time at every tag, so the `cite` of `ins`
/// and `del`, which no browser follows, is left out.
const PLAIN: [(&str, &str); 24] = [
    ("a[href]", "href"),
    ("area[href]", "href"),
    ("link[href]", "href"),
    ("base[href]", "href"),
    ("img[src]", "src"),
    ("script[src]", "src"),
    ("iframe[src]", "src"),
    ("frame[src]", "src"),
    ("source[src]", "src"),
    ("video[src]", "src"),
    ("audio[src]", "src"),
    ("track[src]", "src"),
    ("embed[src]", "src"),
    ("input[src]", "src"),
    ("video[poster]", "poster"),
    ("object[data]", "data"),
    ("form[action]", "action"),
    ("button[formaction]", "formaction"),
    ("input[formaction]", "formaction"),
    ("blockquote[cite]", "cite"),
    ("q[cite]", "cite"),
    ("body[background]", "background"),
    ("image[href]", "href"),
    ("use[href]", "href"),
];
/// Attributes with several addresses and descriptors.
const SETS: [(&str, &str); 3] =
    [("img[srcset]", "srcset"), ("source[srcset]", "srcset"), ("link[imagesrcset]", "imagesrcset")];
/// Attributes with several addresses, separated by blanks.
const LISTS: [(&str, &str); 2] = [("a[ping]", "ping"), ("area[ping]", "ping")];
/// The `meta` element with an attribute that has an address after a number of seconds.
const REFRESH: &str = "meta[http-equiv=\"refresh\" i]";

/// The number of pairs of element and attribute that are built in.
const STANDARD: usize = PLAIN.len() + SETS.len() + LISTS.len() + 1;

static KEY: Key = Key::block(
    STEP,
    &BLOCK,
    "html-links { https }",
    "Changes the URLs in attributes of HTML: of links, images, scripts, forms, `srcset` and `meta` refreshes.",
);

static BLOCK: Block = Block {
    keys: &[
        Key::one(
            "prefix",
            "FROM TO",
            "prefix \"/static/\" \"https://static.example.com/\"",
            "Replaces FROM at the start of a URL by TO. The first `prefix` that matches a URL counts.",
        )
        .args(2, 2)
        .many(),
        Key::one(
            "host",
            "FROM TO",
            "host \"app.internal\" \"www.example.com\"",
            "Replaces the host FROM of a URL by TO, if no `prefix` matches the URL. A port other than the default one is part of FROM or TO.",
        )
        .args(2, 2)
        .many(),
        Key::flag("https", "#false", "https", "Replaces `http:` at the start of a URL by `https:`."),
        Key::one(
            "attribute",
            "NAME...",
            "attribute \"data-src\"",
            "Names of further attributes that hold a URL, on any element.",
        )
        .args(1, 16),
    ],
    later: &[],
};

impl Configured for Links {
    const STEP: &'static str = STEP;
    const KEY: &'static Key = &KEY;

    fn from_node(node: &Node, _: &mut dyn Context) -> Result<Self, Problem> {
        let mut links = Links::default();
        let pair = |node: &Node| -> Result<(String, String), Problem> {
            let (from, to) = (node.arg(0)?, node.arg(1)?);
            for argument in [from, to] {
                let text = argument.text()?;
                if text.len() > PART || text.contains(['"', '<', '>', ' ']) {
                    return Err(argument.wrong("this cannot be a part of an address"));
                }
            }
            if from.text()?.is_empty() {
                return Err(from.wrong("an empty text fits everything"));
            }
            // Browsers drop some control characters from addresses, and so does the search. A text with a control character
            // would never match.
            if from.text()?.contains(|character: char| character.is_ascii_control()) {
                return Err(from.wrong("no address has such a character, so that this never fits"));
            }
            if node.name() == "host" && from.text()?.contains(['/', '\\', '?', '#']) {
                return Err(from
                    .wrong("this is not a host, and never fits one")
                    .help("write a host, with a port where there is one: \"app.internal:8080\"; `prefix` maps paths"));
            }
            if node.name() == "host" && to.text()?.is_empty() {
                return Err(to.wrong("an address of no host would be one of the next part of its path"));
            }
            Ok((from.text()?.into(), to.text()?.into()))
        };
        let attributes = node.child("attribute").map_or(&[][..], Node::args).iter().take(ATTRIBUTES);
        let (prefixes, hosts, https, attributes) = together((
            each(node.children_named("prefix").map(pair)),
            each(node.children_named("host").map(pair)),
            flag(node, "https"),
            each::<_, Vec<_>>(attributes.map(read_attribute)),
        ))?;
        (links.prefixes, links.hosts, links.https) = (prefixes, hosts, https);
        attributes.into_iter().for_each(|name| links.attribute(name));
        if links.prefixes.len() + links.hosts.len() > MAPPINGS {
            return Err(node.wrong(format!("at most {MAPPINGS} mappings")));
        }
        if links.prefixes.is_empty() && links.hosts.is_empty() && !links.https {
            return Err(node.wrong("this maps nothing").help("add `prefix`, `host` or `https`"));
        }
        Ok(links)
    }
}

fn read_attribute(argument: &Argument) -> Result<&str, Problem> {
    let name = argument.text()?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.is_empty() || !name.bytes().all(fits) {
        return Err(argument.wrong("this is not the name of an attribute"));
    }
    Ok(name)
}

chooses! {
    /// Chooses the feature.
    ChooseLinks, Links, "Maps addresses in attributes of documents to others."
}

/// The feature.
#[derive(Debug)]
pub struct Links {
    selectors: Vec<Selector>,
    /// The attribute of each selector. The last built-in selector, `meta[http-equiv=refresh]`, has no entry here.
    attributes: Vec<String>,
    prefixes: Vec<(String, String)>,
    hosts: Vec<(String, String)>,
    https: bool,
}

impl Default for Links {
    fn default() -> Self {
        let all =
            PLAIN.iter().chain(&SETS).chain(&LISTS).map(|(selector, attribute)| (*selector, *attribute));
        let all: Vec<_> = all.chain([(REFRESH, "content")]).collect();
        Self {
            selectors: all.iter().map(|(selector, _)| Selector::constant(selector)).collect(),
            attributes: all.iter().map(|(_, attribute)| (*attribute).to_owned()).collect(),
            prefixes: Vec::new(),
            hosts: Vec::new(),
            https: false,
        }
    }
}

impl Links {
    /// Maps addresses in this attribute too, on elements for which the attribute is not built in.
    pub fn attribute(&mut self, name: &str) {
        let name = name.to_ascii_lowercase();
        if self.attributes.iter().skip(STANDARD).any(|known| *known == name) {
            return;
        }
        let known = PLAIN.iter().chain(&SETS).chain(&LISTS).filter(|(_, attribute)| *attribute == name);
        let elements = known.filter_map(|(selector, _)| selector.split('[').next());
        let others: String = elements.map(|element| format!(":not({element})")).collect();
        if let Ok(selector) = Selector::parse(&format!("[{name}]{others}")) {
            self.selectors.push(selector);
            self.attributes.push(name);
        }
    }

    /// Replaces `from` by `to` at the start of addresses.
    #[must_use]
    pub fn prefix(mut self, from: &str, to: &str) -> Self {
        self.prefixes.push((from.into(), to.into()));
        self
    }

    /// Maps addresses of one host to another.
    #[must_use]
    pub fn host(mut self, from: &str, to: &str) -> Self {
        self.hosts.push((from.into(), to.into()));
        self
    }

    /// Replaces `http:` by `https:`.
    #[must_use]
    pub fn https(self) -> Self {
        Self { https: true, ..self }
    }
}

impl Feature for Links {
    fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    fn growth(&self) -> usize {
        let pairs = self.prefixes.iter().chain(&self.hosts);
        1 + pairs.map(|(from, to)| to.len() / (from.len() + 1)).max().unwrap_or(0)
    }

    fn begin(self: Arc<Self>, page: &Page) -> Box<dyn Rewrite> {
        let ready = |pairs: &[(String, String)]| -> Arc<[(String, String)]> {
            pairs.iter().map(|(from, to)| (form(from, page), form(to, page))).collect()
        };
        let (prefixes, hosts) = (ready(&self.prefixes), ready(&self.hosts));
        Box::new(Mapping { links: self, prefixes, hosts })
    }
}

struct Mapping {
    links: Arc<Links>,
    prefixes: Arc<[(String, String)]>,
    hosts: Arc<[(String, String)]>,
}

impl Rewrite for Mapping {
    fn element(&mut self, selector: usize, element: &mut Element<'_, '_, '_>) {
        let Some(name) = self.links.attributes.get(selector) else { return };
        let Some(value) = element.attribute(name) else { return };
        let value = resolve_but(&value, KEPT);
        let sets = PLAIN.len()..PLAIN.len() + SETS.len();
        let lists = sets.end..sets.end + LISTS.len();
        let mapped = if sets.contains(&selector) {
            self.set(&value)
        } else if lists.contains(&selector) {
            self.list(&value)
        } else if selector == lists.end {
            self.refresh(&value)
        } else {
            self.address(&value)
        };
        if let Some(mapped) = mapped {
            element.set_attribute(name, &mapped.replace('&', "&amp;").replace(KEPT, "&"));
        }
    }
}

impl Mapping {
    /// Maps an address; `None` if it stays unchanged.
    fn address(&self, address: &str) -> Option<String> {
        // Browsers drop these characters from addresses (URL Standard, section 4.4).
        let dropped = |character| matches!(character, '\t' | '\n' | '\r');
        let start = address.len() - address.trim_start_matches(|first| first <= ' ').len();
        let (blank, address) = address.split_at(start);
        let without = address.contains(dropped).then(|| address.replace(dropped, ""));
        let address = without.as_deref().unwrap_or(address);
        let mut mapped = self
            .prefixes
            .iter()
            .filter(|(from, _)| leading_slashes(address) < 2 || leading_slashes(from) != 1)
            .find_map(|(from, to)| address.strip_prefix(&**from).map(|rest| (from, to, rest)))
            .and_then(|(from, to, rest)| joined(from, to, rest))
            .or_else(|| self.hosts.iter().find_map(|(from, to)| of_host(address, from, to)));
        if self.links.https {
            let found = mapped.as_deref().unwrap_or(address);
            if let Some(rest) = strip_scheme(found, "http:").filter(|rest| rest.starts_with("//")) {
                mapped = Some(format!("https:{}", without_default_port(rest)));
            }
        }
        mapped.filter(|mapped| mapped != address).map(|mapped| format!("{blank}{mapped}"))
    }

    /// Maps the addresses in a `srcset` (HTML, section 4.8.4.2.1), where descriptors follow each address.
    fn set(&self, value: &str) -> Option<String> {
        let blank = |byte: u8| byte.is_ascii_whitespace();
        let (mut mapped, mut changed, mut rest) = (String::with_capacity(value.len()), false, value);
        while !rest.is_empty() {
            let gap = rest.bytes().take_while(|byte| blank(*byte) || *byte == b',').count();
            let (between, after) = rest.split_at(gap);
            mapped.push_str(between);
            let (word, after) = after.split_at(after.bytes().take_while(|byte| !blank(*byte)).count());
            let address = word.trim_end_matches(',');
            match self.address(address) {
                Some(other) => {
                    changed = true;
                    mapped.push_str(&other);
                }
                None => mapped.push_str(address),
            }
            let (commas, descriptors) = match word.len() == address.len() {
                // Commas within brackets do not end a candidate.
                true => ("", descriptors(after)),
                false => (word.get(address.len()..).unwrap_or_default(), 0),
            };
            mapped.push_str(commas);
            let (own, others) = after.split_at(descriptors);
            mapped.push_str(own);
            rest = others;
        }
        changed.then_some(mapped)
    }

    /// Maps addresses that are separated by blanks.
    fn list(&self, value: &str) -> Option<String> {
        let mut changed = false;
        let mut mapped = String::with_capacity(value.len());
        for part in value.split_inclusive(|character: char| character.is_ascii_whitespace()) {
            let address = part.trim_end_matches(|character: char| character.is_ascii_whitespace());
            let other = self.address(address);
            changed |= other.is_some();
            mapped.push_str(other.as_deref().unwrap_or(address));
            mapped.push_str(part.get(address.len()..).unwrap_or_default());
        }
        changed.then_some(mapped)
    }

    /// Maps the address in a refresh such as `5; url=ADDRESS`.
    fn refresh(&self, value: &str) -> Option<String> {
        let (front, address) = value.split_at(refreshed(value)?);
        let end = match address.chars().next().filter(|first| "'\"".contains(*first)) {
            Some(quote) => {
                let (quote, address) = address.split_at(quote.len_utf8());
                let end = address.find(quote).unwrap_or(address.len());
                let (address, rest) = address.split_at(end);
                return Some(format!("{front}{quote}{}{rest}", self.address(address)?));
            }
            None => address.trim_end().len(),
        };
        let (address, rest) = address.split_at(end);
        Some(format!("{front}{}{rest}", self.address(address)?))
    }
}

/// The position of the address in a refresh, at its opening quote if it has one (HTML, section 4.2.5.3, shared
/// declarative refresh steps).
fn refreshed(value: &str) -> Option<usize> {
    let blanks =
        |text: &str| text.len() - text.trim_start_matches(|next: char| next.is_ascii_whitespace()).len();
    let skipped = |at: usize| value.get(at..).map_or(at, |rest| at + blanks(rest));
    let rest = |at: usize| value.get(at..).unwrap_or_default();
    let start = skipped(0);
    let number = rest(start).bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let end = start + number;
    let behind = skipped(end);
    let separates = rest(behind).starts_with([';', ',']);
    if number == 0 || end == value.len() || behind == end && !separates {
        return None;
    }
    let address = skipped(behind + usize::from(separates));
    let is_named = rest(address).get(..3).is_some_and(|name| name.eq_ignore_ascii_case("url"));
    let equals = skipped(address + 3);
    Some(if is_named && rest(equals).starts_with('=') { skipped(equals + 1) } else { address })
}

/// Stands for the ampersand of a reference that is not resolved, while an address is mapped.
const KEPT: char = UNUSED[1];

/// Converts a text of the configuration to the form that addresses of the document have. Characters that the encoding
/// lacks become references.
fn form(text: &str, page: &Page) -> String {
    let mut formed = String::with_capacity(text.len());
    for character in text.chars() {
        let mut bytes = [0; 4];
        match page.found(character.encode_utf8(&mut bytes)).strip_prefix('&') {
            Some(reference) if !character.is_ascii() => formed.extend([&*String::from(KEPT), reference]),
            _ => formed.push_str(&page.found(character.encode_utf8(&mut [0; 4]))),
        }
    }
    formed
}

/// The end of the descriptors of a `srcset` candidate: after the first comma outside of brackets.
fn descriptors(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn strip_scheme<'a>(address: &'a str, scheme: &str) -> Option<&'a str> {
    let (front, rest) = address.split_at_checked(scheme.len())?;
    front.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// The number of slashes at the start of an address: an address with two begins with a host, one with a single slash
/// begins with a path.
fn leading_slashes(address: &str) -> usize {
    address.bytes().take_while(|byte| matches!(byte, b'/' | b'\\')).count()
}

/// Removes the port 80 from an address without its scheme `http:`, because that port serves no TLS.
fn without_default_port(rest: &str) -> String {
    let host = rest.get(2..).unwrap_or_default();
    let end = host.find(['/', '\\', '?', '#']).unwrap_or(host.len());
    let (authority, path) = host.split_at(end);
    let authority = authority.trim_end_matches(|last: char| last <= ' ');
    let is_default = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse() == Ok(80);
    let without = authority.rsplit_once(':').filter(|(_, port)| is_default(port)).map(|(host, _)| host);
    format!("//{}{path}", without.unwrap_or(authority))
}

/// The address with `from` replaced by `to` at its start; `None` if the rest would become a scheme or
/// name a host.
fn joined(from: &str, to: &str, rest: &str) -> Option<String> {
    let joined = format!("{to}{rest}");
    let start = joined.trim_start_matches(|first| first <= ' ');
    // If `from` ends with `:`, only a scheme is replaced, so the host in the rest was a host before.
    let names_host = leading_slashes(start) >= 2 && leading_slashes(to) < 2 && !from.ends_with(':');
    let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let scheme = start.bytes().take_while(|byte| is_scheme(*byte)).count();
    let brings_scheme = start.as_bytes().get(scheme) == Some(&b':')
        && start.starts_with(|first: char| first.is_ascii_alphabetic())
        && !to.contains(':');
    (!names_host && !brings_scheme).then_some(joined)
}

/// Changes the host of an address. A default port in the address is dropped, unless `from` has a port.
fn of_host(address: &str, from: &str, to: &str) -> Option<String> {
    let rest = strip_scheme(address, "https:").or_else(|| strip_scheme(address, "http:")).unwrap_or(address);
    let authority = rest.strip_prefix("//")?;
    let (host, path) = authority.split_at_checked(from.len())?;
    let scheme = address.strip_suffix(rest).unwrap_or_default();
    let (https, http) = (scheme.eq_ignore_ascii_case("https:"), scheme.eq_ignore_ascii_case("http:"));
    // An address without a scheme gets the scheme of the document, which is unknown here. So the default port of either
    // scheme is dropped.
    let ports = [":80", ":443", ":"].into_iter().zip([!https, !http, true]).filter(|(_, fits)| *fits);
    let ends = |path: &str| path.is_empty() || path.starts_with(['/', '?', '#']);
    let without = ports.filter_map(|(port, _)| path.strip_prefix(port)).find(|path| ends(path));
    let path = without.unwrap_or(path);
    if !host.eq_ignore_ascii_case(from) || !ends(path) {
        return None;
    }
    Some(format!("{scheme}//{to}{path}"))
}

#[cfg(test)]
mod tests {
    use foregate_module::testing::filtered_at_every_split;

    use super::*;
    use crate::tests::{Boxed, of};

    fn rewritten(make: impl Fn() -> Links, html: &str) -> String {
        let make = || Boxed(of(vec![Arc::new(make())], "text/html; charset=utf-8").filter);
        String::from_utf8(filtered_at_every_split(make, html.as_bytes()).unwrap()).unwrap()
    }

    fn links() -> Links {
        let mut links = Links::default()
            .prefix("/static/", "https://s.example/")
            .host("app.internal:8080", "www.example")
            .https();
        links.attribute("data-src");
        links
    }

    #[test]
    fn addresses_are_mapped_by_prefix_host_and_scheme() {
        for (html, expected) in [
            ("<a href=/static/x>", "<a href=\"https://s.example/x\">"),
            ("<img src=' http://a/b'>", "<img src=\" https://a/b\">"),
            ("<a href='HTTP://APP.internal:8080?x=1&amp;y'>", "<a href=\"https://www.example?x=1&amp;y\">"),
            ("<a href=//app.internal:8080/p>", "<a href=\"//www.example/p\">"),
            ("<a href=//app.internal:80801/p>", "<a href=//app.internal:80801/p>"),
            ("<form action=http://a>", "<form action=\"https://a\">"),
            ("<a href=http://a:80/b:80>", "<a href=\"https://a/b:80\">"),
            ("<a href='http://a:080 '>", "<a href=\"https://a\">"),
            ("<a href=http://[::80]:8080>", "<a href=\"https://[::80]:8080\">"),
            ("<b data-src=/static/y>", "<b data-src=\"https://s.example/y\">"),
            ("<b title=/static/y href=/static/x>", "<b title=/static/y href=/static/x>"),
            ("<a href=https://a/static/>", "<a href=https://a/static/>"),
            ("<a href=http:x>", "<a href=http:x>"),
            (
                "<meta http-equiv=Refresh content='3; URL=/static/x'>",
                "<meta http-equiv=Refresh content=\"3; URL=https://s.example/x\">",
            ),
            (
                "<meta http-equiv=refresh content=\"0;url='http://a' \">",
                "<meta http-equiv=refresh content=\"0;url='https://a' \">",
            ),
            (
                "<meta http-equiv=refresh content='0; http://a'>",
                "<meta http-equiv=refresh content=\"0; https://a\">",
            ),
            (
                "<meta http-equiv=refresh content=' .5 , URL = http://a '>",
                "<meta http-equiv=refresh content=\" .5 , URL = https://a \">",
            ),
            (
                "<meta http-equiv=refresh content='0 \"http://a'>",
                "<meta http-equiv=refresh content=\"0 &quot;https://a\">",
            ),
            ("<meta http-equiv=refresh content='http://a'>", "<meta http-equiv=refresh content='http://a'>"),
            ("<meta http-equiv=refresh content=0>", "<meta http-equiv=refresh content=0>"),
            (
                "<meta http-equiv=refresh content='0x; url=/static/'>",
                "<meta http-equiv=refresh content='0x; url=/static/'>",
            ),
        ] {
            assert_eq!(rewritten(links, html), expected, "{html}");
        }
    }

    #[test]
    fn citations_of_changes_are_mapped_where_they_are_named() {
        let html = "<ins cite=/static/a><q cite=/static/b>";
        assert_eq!(rewritten(links, html), "<ins cite=/static/a><q cite=\"https://s.example/b\">");
        let named = || {
            let mut links = links();
            links.attribute("cite");
            links
        };
        let expected = "<ins cite=\"https://s.example/a\"><q cite=\"https://s.example/b\">";
        assert_eq!(rewritten(named, html), expected);
    }

    #[test]
    fn what_can_never_fit_is_refused() {
        use foregate_module::testing::{node, settings};
        let reads = |key: &str, from: &str| {
            let child = node(key).arg_literal(from).arg_literal("x");
            settings::<crate::features::Settings<Links>>(&[node(STEP).with_child(child)]).is_ok()
        };
        for bad in ["a/b", "//a", "http://a", "a?b", "a#b", "a\\b", "a\tb"] {
            assert!(!reads("host", bad), "{bad}");
        }
        assert!(reads("host", "a:80") && reads("host", "[::1]:80") && reads("prefix", "a/b?c#d"));
        assert!(!reads("prefix", "/a\nb"));
    }

    #[test]
    fn addresses_are_found_however_they_are_written() {
        let make = || Links::default().host("old.example", "new.example").prefix("/ü", "/é&").https();
        for (html, expected) in [
            ("<a href='htt&#112;://old.example/?a&amp;b'>", "<a href=\"https://new.example/?a&amp;b\">"),
            ("<a href='http&colon;//x/?a&b&eacute;'>", "<a href=\"https://x/?a&amp;b&eacute;\">"),
            ("<a href='&#104;ttp://x/&quot;&amp;lt;'>", "<a href=\"https://x/&quot;&amp;lt;\">"),
            ("<a href='ht\ntp://old.\texample'>", "<a href=\"https://new.example\">"),
            ("<a href=//old.example:80/>", "<a href=\"//new.example/\">"),
            ("<a href=https://old.example:443>", "<a href=\"https://new.example\">"),
            ("<a href=https://old.example:80/>", "<a href=https://old.example:80/>"),
            ("<a href=//old.example:8080/>", "<a href=//old.example:8080/>"),
            ("<a href=/ü>", "<a href=\"/é&amp;\">"),
            ("<a ping='http://x  /y //old.example/'>", "<a ping=\"https://x  /y //new.example/\">"),
            ("<a href='/x?a&b&amp;c'>", "<a href='/x?a&b&amp;c'>"),
        ] {
            assert_eq!(rewritten(make, html), expected, "{html}");
        }
    }

    #[test]
    fn what_is_left_of_an_address_is_no_scheme_and_no_host() {
        let make = || {
            let links = Links::default().prefix("http://old.example/", "").prefix("/a/", "/");
            links.prefix("/b", "java").prefix("/c/", "https://c.example/").prefix("ftp:", "")
        };
        for address in [
            "http://old.example/javascript:alert(1)",
            "http://old.example/ javascript:alert(1)",
            "http://old.example///evil.example/x.js",
            "http://old.example/\\\\evil.example/",
            "http://old.example//\\evil.example/",
            "/a//evil.example/",
            "/a/\\evil.example/",
            "/bscript:alert(1)",
        ] {
            let html = format!("<a href='{address}'>");
            assert_eq!(rewritten(make, &html), html);
        }
        for (address, expected) in [
            ("http://old.example/x/y:z", "x/y:z"),
            ("http://old.example//x", "/x"),
            ("http://old.example/", ""),
            ("http://old.example/1:2", "1:2"),
            ("/a/b//c", "/b//c"),
            ("/c//d", "https://c.example//d"),
            ("/c/javascript:x", "https://c.example/javascript:x"),
            ("ftp://x/y", "//x/y"),
        ] {
            let expected = format!("<a href=\"{expected}\">");
            assert_eq!(rewritten(make, &format!("<a href='{address}'>")), expected);
        }
    }

    #[test]
    fn an_attribute_that_goes_without_saying_is_mapped_once() {
        let make = || {
            let mut links = Links::default()
                .prefix("/", "/app/")
                .host("a.example", "b.example")
                .host("b.example", "c.example");
            for name in ["href", "SRC", "src", "data-src", "Data-Src", "ping", "srcset", "content"] {
                links.attribute(name);
            }
            links
        };
        for (html, expected) in [
            ("<a href=/x>", "<a href=\"/app/x\">"),
            ("<a href=//a.example/>", "<a href=\"//b.example/\">"),
            ("<a href=//c.de/>", "<a href=//c.de/>"),
            ("<a href='/\\c.de/'>", "<a href='/\\c.de/'>"),
            ("<a href=http://a.example/>", "<a href=\"http://b.example/\">"),
            ("<img src=/x data-src=/y>", "<img src=\"/app/x\" data-src=\"/app/y\">"),
            ("<img srcset='/x 1x, /y 2x'>", "<img srcset=\"/app/x 1x, /app/y 2x\">"),
            ("<a ping='/x /y'>", "<a ping=\"/app/x /app/y\">"),
            ("<x-a href=/x src=/y>", "<x-a href=\"/app/x\" src=\"/app/y\">"),
            ("<use href=/x>", "<use href=\"/app/x\">"),
            (
                "<meta http-equiv=refresh content='0; url=/x'>",
                "<meta http-equiv=refresh content=\"0; url=/app/x\">",
            ),
        ] {
            assert_eq!(rewritten(make, html), expected, "{html}");
        }
    }

    #[test]
    fn each_address_of_a_set_is_mapped() {
        for (set, expected) in [
            (
                "/static/a.png 1x, /static/b,c.png 2x",
                Some("https://s.example/a.png 1x, https://s.example/b,c.png 2x"),
            ),
            ("/static/a.png, http://b", Some("https://s.example/a.png, https://b")),
            ("/x 1x,/static/y 2x", Some("/x 1x,https://s.example/y 2x")),
            (" , /static/a (1,2) 3w , ", Some(" , https://s.example/a (1,2) 3w , ")),
            ("data:image/png;base64,/static/ 1x", None),
            ("", None),
        ] {
            let html = format!("<img srcset=\"{set}\">");
            let expected = expected.map_or(html.clone(), |expected| format!("<img srcset=\"{expected}\">"));
            assert_eq!(rewritten(links, &html), expected);
        }
    }
}

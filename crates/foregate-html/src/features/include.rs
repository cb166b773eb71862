//! Fragments of other documents, put into a document while it streams.
//!
//! ```kdl
//! html-include upstream="fragments" {
//!     timeout "2s"
//!     fallback "<p>Not available</p>"
//! }
//! ```
//!
//! Supported are `<esi:include src="/path" alt="/path" onerror="continue"/>`, `<esi:remove>`, `<esi:comment/>` and
//! `<!--esi -->` (ESI 1.0), and `<!--#include virtual="/path" -->` (server-side includes). The tags of other ESI
//! elements are removed. If such an element contains alternatives, the content of all but one is removed too: see
//! [`BLOCKS`].

use std::sync::Arc;
use std::time::Duration;

use foregate_module::FetchTarget;
use foregate_module::settings::{Block, Context, Key, Node, Problem, Prop, together};

use super::{Configured, chooses};
use crate::charset::Charset;
use crate::references;
use crate::ssi::{self, Directive};
use crate::{Comment, Element, Feature, Fragment, FragmentRules, Page, Reads, Removes, Rewrite, Selector};

/// The step that chooses the feature.
const STEP: &str = "html-include";
/// The bounds of `timeout`.
const TIMEOUT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(60));
/// The bounds of `size`, bytes.
const SIZE: (u64, u64) = (1, 1 << 20);
/// The longest fallback, bytes.
const FALLBACK: usize = 64 * 1024;

static KEY: Key = Key {
    usage: "[{ ... }]",
    ..Key::block(
        STEP,
        &BLOCK,
        "html-include upstream=\"app\"",
        "Replaces `<esi:include src=\"/path\"/>` and `<!--#include virtual=\"/path\" -->` in HTML by the document at this path, called a fragment.",
    )
}
.args(0, 1)
.props(&[Prop {
    name: "upstream",
    usage: "NAME",
    required: false,
    default: "",
    about: "The upstream that serves fragments. Without it, the site's route for the fragment's path serves the fragment if the route admits the client; the modules of that route for responses do not run.",
}]);

static BLOCK: Block = Block {
    keys: &[
        Key::one("timeout", "DURATION", "timeout \"2s\"", "The time limit for a fragment.").default("\"5s\""),
        Key::one("size", "SIZE", "size \"256KiB\"", "The largest size of a fragment.").default("\"64KiB\""),
        Key::one("count", "NUMBER", "count 8", "The most fragments in a document, including fragments in fragments.")
            .default("32"),
        Key::one("depth", "NUMBER", "depth 1", "The deepest nesting of fragments. With 1, a fragment cannot contain fragments; with 2, it can, but those cannot.").default("3"),
        Key::one("fallback", "HTML", "fallback \"<p>Not available</p>\"", "The markup that is inserted in place of a fragment that cannot be fetched, unless the document says `onerror=\"continue\"`.")
            .default("\"\""),
    ],
    later: &[],
};

impl Configured for Include {
    const STEP: &'static str = STEP;
    const KEY: &'static Key = &KEY;

    fn from_node(node: &Node, context: &mut dyn Context) -> Result<Self, Problem> {
        let mut rules = standard();
        let number = |name: &str, standard: usize, most: u64| -> Result<usize, Problem> {
            let Some(child) = node.child(name) else { return Ok(standard) };
            Ok(usize::try_from(child.arg(0)?.number(1..=most)?).unwrap_or(standard))
        };
        let target = node.prop("upstream").map(|name| context.upstream(name).map(FetchTarget::Upstream));
        let timeout = node.child("timeout").map(|child| child.arg(0)?.duration(TIMEOUT.0..=TIMEOUT.1));
        let size = node.child("size").map(|child| child.arg(0)?.size(SIZE.0..=SIZE.1));
        let ((), target, count, depth, timeout, size, fallback) = together((
            node.only_flag(),
            target.transpose(),
            number("count", rules.count, 1000),
            number("depth", rules.depth, 10),
            timeout.transpose(),
            size.transpose(),
            node.child("fallback").map(read_fallback).transpose(),
        ))?;
        rules.target = target.unwrap_or(rules.target);
        (rules.count, rules.depth) = (count, depth);
        rules.timeout = timeout.unwrap_or(rules.timeout);
        rules.size = size.and_then(|size| usize::try_from(size).ok()).unwrap_or(rules.size);
        rules.fallback = fallback.map_or(rules.fallback, str::to_owned);
        Ok(Self::new(rules))
    }
}

fn read_fallback(node: &Node) -> Result<&str, Problem> {
    let text = node.arg(0)?.text()?;
    if text.len() > FALLBACK {
        return Err(node.wrong(format!("a fallback has at most {FALLBACK} bytes")));
    }
    // A byte-order mark is only valid at the start of a whole document.
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

chooses! {
    /// Chooses the feature.
    ChooseInclude, Include, "Puts fragments into documents.", asks: true, renews: true
}

/// The treatment of an ESI element with content that browsers would show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// A fragment replaces the element.
    Include,
    /// The element is removed with its content.
    Goes,
    /// The element is removed with its content, and counts as unsupported.
    Lost,
    /// The tags are removed; the content stays.
    Content,
    /// The tags are removed, and the element counts as unsupported, because its variables or conditions are not evaluated.
    Plain,
}

/// The elements of ESI. The content of `attempt` stays and that of `except` is removed, because each include has a
/// fallback of its own. Conditions are not evaluated: `when` is removed, and the content of `otherwise` stays.
const BLOCKS: [(&str, Fate); 11] = [
    ("esi\\:include", Fate::Include),
    ("esi\\:remove", Fate::Goes),
    ("esi\\:comment", Fate::Goes),
    ("esi\\:except", Fate::Goes),
    ("esi\\:when", Fate::Goes),
    ("esi\\:inline", Fate::Lost),
    ("esi\\:try", Fate::Content),
    ("esi\\:attempt", Fate::Content),
    ("esi\\:otherwise", Fate::Content),
    ("esi\\:choose", Fate::Plain),
    ("esi\\:vars", Fate::Plain),
];

/// The feature.
#[derive(Debug)]
pub struct Include {
    selectors: [Selector; BLOCKS.len()],
    rules: Arc<FragmentRules>,
}

/// The default rules for fetching fragments.
fn standard() -> FragmentRules {
    FragmentRules {
        target: FetchTarget::Site,
        timeout: Duration::from_secs(5),
        size: 64 * 1024,
        count: 32,
        depth: 3,
        fallback: String::new(),
    }
}

impl Default for Include {
    fn default() -> Self {
        Self::new(standard())
    }
}

impl Include {
    /// Creates the feature with these rules for fetching fragments.
    pub fn new(rules: FragmentRules) -> Self {
        let selectors = BLOCKS.map(|(selector, _)| Selector::constant(selector));
        Self { selectors, rules: Arc::new(rules) }
    }
}

impl Feature for Include {
    fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    fn reads(&self) -> Reads {
        Reads { comments: true, ..Reads::default() }
    }

    fn growth(&self) -> usize {
        0
    }

    fn adds_once(&self) -> usize {
        self.rules.size
    }

    fn removes(&self) -> Removes {
        Removes::Closed
    }

    fn takes(&self, selector: usize) -> bool {
        selector > 0
    }

    fn renews(&self) -> bool {
        true
    }

    fn in_fragments(&self) -> bool {
        true
    }

    fn begin(self: Arc<Self>, page: &Page) -> Box<dyn Rewrite> {
        Box::new(Including {
            rules: Arc::clone(&self.rules),
            document: page.path.clone(),
            charset: page.charset(),
        })
    }
}

struct Including {
    rules: Arc<FragmentRules>,
    /// The path of the document.
    document: Option<Arc<str>>,
    charset: Charset,
}

impl Including {
    fn fragment(&self, path: &str) -> Fragment {
        let path = ssi::absolute(references::resolve(path), self.document.as_deref());
        let rules = Arc::clone(&self.rules);
        Fragment { path, literal: None, alternative: None, optional: false, rules }
    }
}

impl Rewrite for Including {
    fn element(&mut self, selector: usize, element: &mut Element<'_, '_, '_>) {
        match BLOCKS.get(selector).map(|(_, fate)| *fate) {
            Some(Fate::Include) | None => {}
            Some(Fate::Goes) => return element.remove(),
            Some(Fate::Content) => return element.unwrap(),
            Some(Fate::Lost) => {
                element.leave();
                return element.remove();
            }
            Some(Fate::Plain) => {
                element.leave();
                return element.unwrap();
            }
        }
        let Some(source) = element.attribute("src") else { return };
        let fragment = Fragment {
            alternative: element.attribute("alt").map(|path| self.fragment(&path).path),
            optional: element.attribute("onerror").as_deref() == Some("continue"),
            ..self.fragment(&source)
        };
        element.include(fragment);
    }

    fn comment(&mut self, comment: &mut Comment<'_, '_>) {
        let text = comment.text();
        if let Some(markup) = text.strip_prefix("esi").filter(|rest| rest.starts_with(is_blank)) {
            // `<!--esi -->` hides this markup from servers without ESI. The markup may contain fragments.
            let literal = Some(self.charset.bytes_of(markup).into_owned());
            let path = self.document.as_deref().unwrap_or_default().to_owned();
            return comment.include(Fragment { literal, path, ..self.fragment("") });
        }
        match ssi::directive(&text) {
            Some(Directive::Include(path)) => comment.include(self.fragment(&path)),
            Some(Directive::Unsupported) => comment.leave(),
            None => {}
        }
    }
}

fn is_blank(character: char) -> bool {
    character.is_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    use foregate_module::{Chain, FetchError, FetchResponse};

    use foregate_module::BodyFilter;

    use super::*;
    use crate::tests::of;
    use crate::{ChosenFeature, Pass, Terms};

    fn rules() -> FragmentRules {
        FragmentRules {
            target: FetchTarget::Site,
            timeout: Duration::from_secs(1),
            size: 1000,
            count: 6,
            depth: 2,
            fallback: "<p>ü</p>".into(),
        }
    }

    /// The output for a document with these fragments, for every split.
    fn included(html: &str, fragments: &[(&str, &str)]) -> String {
        let run = |pieces: &[&[u8]]| {
            let mut chain =
                Chain::new(vec![of(vec![Arc::new(Include::new(rules()))], "text/html; charset=utf-8")]);
            let mut out = Vec::new();
            let settle = |chain: &mut Chain, out: &mut Vec<u8>| {
                while chain.is_waiting() || chain.is_pending() {
                    let Some(question) = chain.question() else {
                        chain.resume(out).unwrap();
                        continue;
                    };
                    let path = std::str::from_utf8(&question.path).unwrap();
                    let found = fragments.iter().find(|(known, _)| *known == path);
                    let body = |(_, body): &(&str, &str)| FetchResponse {
                        status: 200,
                        fields: vec![],
                        body: body.to_string().into(),
                    };
                    chain.answer(found.map(body).ok_or(FetchError::Timeout), out).unwrap();
                }
            };
            for piece in pieces {
                chain.write(piece, &mut out).unwrap();
                settle(&mut chain, &mut out);
            }
            chain.end(&mut out).unwrap();
            settle(&mut chain, &mut out);
            String::from_utf8(out).unwrap()
        };
        let whole = run(&[html.as_bytes()]);
        for at in 1..html.len() {
            let (head, tail) = html.as_bytes().split_at(at);
            assert_eq!(run(&[head, tail]), whole, "split at {at}");
        }
        whole
    }

    #[test]
    fn fragments_take_their_places_in_order() {
        let fragments = [("/a?x=1&y", "<b>A</b>"), ("/c", "C<!--#include virtual='/d'-->C"), ("/d", "D")];
        assert_eq!(
            included(
                "1<esi:include src='/a?x=1&amp;y'/>2<!--#include virtual=\"/c\" -->3<!-- #include virtual='/d' -->4<!--# include file='/d' wait='yes' -->",
                &fragments
            ),
            "1<b>A</b>2CDC3<!-- #include virtual='/d' -->4D"
        );
        assert_eq!(included("<p><esi:include src=/c></p>", &fragments), "<p>CDC</p>");
        for (html, expected) in [
            (
                "<svg><text>n: <esi:include src=/d> of <tspan>x</tspan></text></svg>",
                "<svg><text>n: D of <tspan>x</tspan></text></svg>",
            ),
            ("<svg><esi:include src=/d><p>all the rest", "<svg>D<p>all the rest"),
            ("<svg><esi:include src=/d>x</esi:include><g/></svg>", "<svg>Dx<g/></svg>"),
            ("<div><a><svg class=i/></a> <esi:include src=/d> rest", "<div><a><svg class=i/></a> D rest"),
        ] {
            assert_eq!(included(html, &fragments), expected);
        }
    }

    #[test]
    fn markup_for_servers_goes_and_what_they_hide_comes() {
        let fragments =
            [("/d", "\u{feff}D"), ("/e", "<esi:remove>x</esi:remove>E<!--esi <p>-->"), ("/u", "\u{feff}")];
        for (html, expected) in [
            ("1<esi:remove><a href=/x>x</a></esi:remove>2<esi:comment text='x'/>3", "123"),
            ("1<!--esi <p>a<esi:include src=/d />b</p>-->2", "1 <p>aDb</p>2"),
            ("1<!--esi-->2<!--esix <p>-->", "1<!--esi-->2<!--esix <p>-->"),
            (
                "1<esi:try> <esi:attempt><esi:include src=/d /></esi:attempt><esi:except>x</esi:except></esi:try>2",
                "1 D2",
            ),
            (
                "<esi:choose><esi:when test='x'><b>a</b></esi:when><esi:otherwise>b</esi:otherwise></esi:choose>",
                "b",
            ),
            (
                "1<esi:vars>a<i>$(HTTP_HOST)</i></esi:vars>2<esi:inline name=/x>y</esi:inline>3",
                "1a<i>$(HTTP_HOST)</i>23",
            ),
            ("1<esi:include src=/e />2", "1E <p>2"),
            ("1<esi:include src=/u />2<!-- # echo -->", "12<!-- # echo -->"),
        ] {
            assert_eq!(included(html, &fragments), expected, "{html}");
        }
    }

    #[test]
    fn relative_paths_are_those_of_the_document() {
        let terms = Terms {
            content_type: Some(b"text/html; charset=utf-8".to_vec()),
            path: Some("/shop/index.html".into()),
            ..Terms::default()
        };
        let feature: Arc<dyn Feature> = Arc::new(Include::new(rules()));
        let mut pass = Pass::filter(vec![(ChosenFeature { step: "test", feature }, false)], terms).filter;
        let asked = |pass: &mut dyn BodyFilter, body: &'static str| {
            let question = pass.question().unwrap();
            let body = body.as_bytes().to_vec().into();
            pass.answer(Ok(FetchResponse { status: 200, fields: vec![], body }), &mut Vec::new()).unwrap();
            std::str::from_utf8(&question.path).unwrap().to_owned()
        };
        pass.write(
            b"<p><!--# include file='foot.html' --><!--# echo var=x --><esi:include src=b/c><!--esi <esi:include src=x>-->",
            &mut Vec::new(),
        )
        .unwrap();
        assert_eq!(asked(&mut *pass, "A"), "/shop/foot.html");
        assert_eq!(asked(&mut *pass, "<esi:include src='d?x=1'><!--#set var='a' value='b' -->"), "/shop/b/c");
        assert_eq!(asked(&mut *pass, ""), "/shop/b/d?x=1");
        assert_eq!(asked(&mut *pass, ""), "/shop/x");
        let mut events = Vec::new();
        pass.report(&mut |finding| events.push((finding.event, finding.count)));
        assert!(events.contains(&("directives-unsupported", 2)), "{events:?}");
    }

    #[test]
    fn what_cannot_be_had_is_replaced() {
        let fragments = [("/a", "A"), ("/deep", "(<esi:include src=/deep>)")];
        assert_eq!(included("1<esi:include src=/x alt=/a>2", &fragments), "1A2");
        assert_eq!(included("1<esi:include src=/x alt=/y onerror=continue>2", &fragments), "12");
        assert_eq!(included("1<!--#include virtual='/x'-->2", &fragments), "1<p>ü</p>2");
        let empty = [("/empty", ""), ("/open", "a <")];
        assert_eq!(included("<p><<esi:include src=/empty />img src=x>", &empty), "<p>&lt;img src=x>");
        assert_eq!(included("<<!--#include virtual='/empty'-->/p><", &empty), "&lt;/p><");
        assert_eq!(included("<<esi:include src=/x onerror=continue>p><", &empty), "&lt;p><");
        assert_eq!(included("<esi:include src=/open>p><<p>", &empty), "a &lt;p><<p>");
        assert_eq!(
            included("<esi:include src=//host/x>|<esi:include src=http://x>", &fragments),
            "<p>ü</p>|<p>ü</p>"
        );
        assert_eq!(
            included("<esi:include src=/deep>", &fragments),
            "((<p>ü</p>))",
            "fragments of fragments end"
        );
        assert_eq!(
            included(&"<esi:include src=/a>".repeat(7), &fragments),
            "AAAAAA<p>ü</p>",
            "and are counted"
        );
    }

    /// A document that passes from a point on, by its markup or its names, after a fragment that is awaited.
    #[test]
    fn fragments_come_though_the_rest_of_the_document_passes() {
        let names = format!("<{}>", "n".repeat(1_000)).repeat(600);
        for rest in ["<svg/><style><esi:include src=/a></style>", &names] {
            let html = format!("1<esi:include src=/a>2<esi:include src=/x>3{rest}<esi:include src=/a>");
            for piece in [7, 4096, usize::MAX] {
                let mut chain =
                    Chain::new(vec![of(vec![Arc::new(Include::new(rules()))], "text/html; charset=utf-8")]);
                let mut out = Vec::new();
                let settle = |chain: &mut Chain, out: &mut Vec<u8>| {
                    while chain.is_waiting() || chain.is_pending() {
                        match chain.question() {
                            None => drop(chain.resume(out).unwrap()),
                            Some(question) if &*question.path == b"/a" => {
                                let body = b"A".to_vec().into();
                                chain
                                    .answer(Ok(FetchResponse { status: 200, fields: vec![], body }), out)
                                    .unwrap();
                            }
                            Some(_) => drop(chain.answer(Err(FetchError::Timeout), out).unwrap()),
                        }
                    }
                };
                for piece in html.as_bytes().chunks(piece) {
                    chain.write(piece, &mut out).unwrap();
                    settle(&mut chain, &mut out);
                }
                chain.end(&mut out).unwrap();
                settle(&mut chain, &mut out);
                let expected = format!("1A2<p>ü</p>3{rest}<esi:include src=/a>");
                assert_eq!(String::from_utf8(out).unwrap(), expected, "pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_filter_that_is_told_to_give_up_has_something_for_each_fragment() {
        let mut pass = of(vec![Arc::new(Include::new(rules()))], "text/html; charset=utf-8").filter;
        let mut out = Vec::new();
        pass.write(
            b"1<esi:include src=/a>2<esi:include src=/b onerror=continue>3<esi:include src=/c>4",
            &mut out,
        )
        .unwrap();
        pass.bail(&mut out).unwrap();
        pass.write(b"5<esi:include src=/d>", &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "1<p>ü</p>23<p>ü</p>45<esi:include src=/d>");
        let mut missing = 0;
        pass.report(&mut |finding| {
            missing += if finding.event == "fragments-missing" { finding.count } else { 0 }
        });
        assert_eq!(missing, 3);
    }
}

//! Checks markup in the configuration. The markup has to close the elements that it opens, and no others.

use std::collections::HashMap;

use crate::scan::names::EMPTY;
use crate::splice::may_lack_its_end;
use crate::tree::{BODY, Content, Event, Facts, Id, MATH, SVG, Space, TEMPLATE, Token, Tokens, Tree};

/// The reason why markup cannot be inserted at an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Partial {
    /// It opens this element without closing it.
    Opens(String),
    /// It closes this element without opening it.
    Closes(String),
    /// It ends within a tag or a comment, or with a `<`.
    Unfinished,
}

/// Names of HTML elements. Within SVG or MathML, tags with these names are read as elements of SVG or MathML. `/>`
/// closes such an element, but does not close an HTML element.
const HTML_ONLY: &str = "a abbr acronym address article aside audio bdi bdo button canvas cite data datalist del details dfn dialog \
    fieldset figcaption figure font footer form header hgroup iframe ins kbd label legend main map meter nav noembed noscript object \
    optgroup option output picture progress q samp script search section select slot style summary td textarea th time title tr \
    var video";

/// The reason why markup cannot be inserted at an element; `None` if it can be.
///
/// The place decides how markup is read: in a `template` or another HTML element, `<path/>` opens an element; in SVG it
/// is a complete element.
pub(crate) fn partial(html: &str) -> Option<Partial> {
    let first = read(html, None)?;
    let foreign = [(SVG, Space::Svg), (MATH, Space::Math)];
    foreign.into_iter().all(|around| read(html, Some(around)).is_some()).then_some(first)
}

fn read(html: &str, around: Option<(u128, Space)>) -> Option<Partial> {
    let mut tree = Tree::new();
    tree.take(Token::Start(BODY, Facts::default()));
    tree.take(Token::Start(around.map_or(TEMPLATE, |(name, _)| name), Facts::default()));
    let from = tree.next_id();
    let mut tokens = Tokens::new();
    tokens.go_on(Content::Markup, EMPTY, tree.open.has_cdata());
    // For each name, the number of start tags without an end tag so far.
    let mut balance: HashMap<String, usize> = HashMap::new();
    let mut opened: HashMap<Id, String> = HashMap::new();
    while let Some(found) = tokens.next(html.as_bytes(), true) {
        let name = name_of(html.get(found.start..found.end).unwrap_or_default());
        let next = tree.next_id();
        tree.take(found.token);
        let closed = |event: &Event, fits: fn(Id, Id) -> bool, id| matches!(event, Event::Closed(node) if fits(node.id, id));
        match found.token {
            Token::Start(..) => {
                let events = &tree.open.events;
                let is_empty = events.iter().any(|event| closed(event, |one, two| one >= two, next));
                let is_html =
                    || name.contains('-') || HTML_ONLY.split_ascii_whitespace().any(|known| known == name);
                if around.is_some() && is_empty && is_html() {
                    return Some(Partial::Opens(name));
                }
                for event in events {
                    if let Event::Opened { node, .. } = event {
                        opened.insert(node.id, name.clone());
                    }
                }
                *balance.entry(name).or_default() += 1;
            }
            Token::End(_) => {
                let own =
                    |event: &Event| matches!(event, Event::Closed(node) if node.id >= from && node.id < next);
                let open = balance.get_mut(&name).filter(|count| **count > 0);
                let is_own = tree.open.events.iter().any(own) || open.is_some();
                open.into_iter().for_each(|count| *count -= 1);
                if !is_own {
                    return Some(Partial::Closes(name));
                }
            }
            _ => {}
        }
        if around.is_some() && tree.open.events.iter().any(|event| closed(event, |one, two| one < two, from))
        {
            return Some(Partial::Unfinished);
        }
        match found.token {
            Token::Start(name, _) => tokens.go_on(tree.content, name, tree.open.has_cdata()),
            _ => tokens.go_on(Content::Markup, EMPTY, tree.open.has_cdata()),
        }
    }
    let open = tree.open_since(from).find(|node| !may_lack_its_end(node) || node.space != Space::Html);
    if let Some(node) = open {
        return Some(Partial::Opens(opened.remove(&node.id).unwrap_or_default()));
    }
    (!tokens.is_between() || tokens.passed() != html.len()).then_some(Partial::Unfinished)
}

/// The name in a tag, in lower case.
fn name_of(tag: &str) -> String {
    let name = tag.trim_start_matches(['<', '/']);
    let ends = |byte: char| byte.is_ascii_whitespace() || matches!(byte, '/' | '>');
    name.split(ends).next().unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_markup_may_be_inserted() {
        for html in [
            "",
            "text &amp; more",
            "<hr>",
            "<div><p>a<p>b</div>",
            "<li>a<li>b",
            "<tr><td>a<td>b",
            "<td>a</td><td>b",
            "<col><col>",
            "<option>a<option>b",
            "<dt>a<dd>b",
            "<p><div>a</div></p>",
            "<b><p>a</b></p>",
            "<h1>a</h2>",
            "<path d=x /><circle/>",
            "<mi>x</mi><mspace/>",
            "<svg><path/><title>a</title></svg>",
            "<script>'</div>'</script>",
            "<style>a > b {}</style><!-- c --><img src=a>",
            "<my-element-with-a-name>a</my-element-with-a-name>",
            "<template><tr></template>",
            "<frameset><frame></frameset>",
            "<input><br/><img/>",
        ] {
            assert_eq!(partial(html), None, "{html}");
        }
    }

    #[test]
    fn parts_of_elements_are_told() {
        let opens = |name: &str| Some(Partial::Opens(name.into()));
        let closes = |name: &str| Some(Partial::Closes(name.into()));
        for (html, expected) in [
            ("<div>", opens("div")),
            ("<DIV class=a>text", opens("div")),
            ("<ul><li>a", opens("ul")),
            ("<p><b>a</p>", opens("b")),
            ("<a href=/>", opens("a")),
            ("<div/>", opens("div")),
            ("<script src=a />", opens("script")),
            ("<iframe src=a />", opens("iframe")),
            ("<my-element-with-a-name/>", opens("my-element-with-a-name")),
            ("<textarea>a</div>", opens("textarea")),
            ("<plaintext>", opens("plaintext")),
            ("<svg>", opens("svg")),
            ("<svg><path>", opens("svg")),
            ("</div>", closes("div")),
            ("<p>a</p></section>", closes("section")),
            ("</p>", closes("p")),
            ("</b>", closes("b")),
            ("</li>", closes("li")),
            ("</body>", closes("body")),
            ("</svg>", closes("svg")),
            ("</my-element-with-a-name>", closes("my-element-with-a-name")),
            ("<div></div></div>", closes("div")),
            ("a <", Some(Partial::Unfinished)),
            ("<hr", Some(Partial::Unfinished)),
            ("<a href='x>b</a>", Some(Partial::Unfinished)),
            ("<!-- a", Some(Partial::Unfinished)),
        ] {
            assert_eq!(partial(html), expected, "{html}");
        }
    }
}

//! Removes elements, attributes and comments from documents.
//!
//! ```kdl
//! html-remove {
//!     element "script[src*='tracker']"
//!     element "font" keep-content=#true
//!     attribute "[onclick]" "onclick"
//!     comments
//! }
//! ```

use std::sync::Arc;

use foregate_module::settings::{Argument, Block, Context, Key, Mistakes, Node, Problem, Prop, together};

use super::{Configured, chooses, flag};
use crate::{Act, Comment, Element, Feature, Page, Reads, Removes, Rewrite, Rule, Selector};

/// The step that chooses the feature.
const STEP: &str = "html-remove";
/// The most selectors.
const SELECTORS: usize = 128;

static KEY: Key = Key::block(
    STEP,
    &BLOCK,
    "html-remove { element \"script[src*='tracker']\" }",
    "Removes elements, attributes and comments from HTML.",
);

static BLOCK: Block = Block {
    keys: &[
        Key::one(
            "element",
            "SELECTOR",
            "element \"script[src*='tracker']\"",
            "Removes the elements that match the selector, with their content.",
        )
        .props(&[Prop {
            name: "keep-content",
            usage: "#true",
            required: false,
            default: "#false",
            about: "Removes only the tags of the elements, and keeps their content.",
        }])
        .many(),
        Key::one(
            "attribute",
            "SELECTOR NAME",
            "attribute \"[onclick]\" \"onclick\"",
            "Removes the attribute NAME from the elements that match the selector.",
        )
        .args(2, 2)
        .many(),
        Key::flag(
            "comments",
            "#false",
            "comments",
            "Removes comments, except conditional comments for old browsers (`<!--[if`).",
        ),
    ],
    later: &[],
};

impl Configured for Remove {
    const STEP: &'static str = STEP;
    const KEY: &'static Key = &KEY;

    fn from_node(node: &Node, _: &mut dyn Context) -> Result<Self, Problem> {
        let mut remove = Remove::default();
        let mut mistakes = Mistakes::default();
        let selector = |child: &Node| child.arg(0).and_then(Selector::from_argument);
        for child in node.children_named("element") {
            let keep = child.prop("keep-content").map_or(Ok(false), Argument::flag);
            if let Some((selector, keep)) = mistakes.kept(together((selector(child), keep))) {
                remove.add(selector, if keep { What::Tags } else { What::Element });
            }
        }
        for child in node.children_named("attribute") {
            let name = child.arg(1).and_then(read_name);
            if let Some((selector, name)) = mistakes.kept(together((selector(child), name))) {
                remove.add(selector, What::Attribute(name));
            }
        }
        remove.comments = mistakes.kept(flag(node, "comments")) == Some(true);
        mistakes.none()?;
        if remove.selectors.len() + remove.elements.len() > SELECTORS {
            return Err(node.wrong(format!("at most {SELECTORS} selectors")));
        }
        if remove.selectors.is_empty() && remove.elements.is_empty() && !remove.comments {
            return Err(node.wrong("this removes nothing").help("add `element`, `attribute` or `comments`"));
        }
        Ok(remove)
    }
}

/// Reads the name of an attribute.
fn read_name(argument: &Argument) -> Result<String, Problem> {
    let name = argument.text()?.to_ascii_lowercase();
    if name.is_empty() || name.contains(|each: char| each.is_ascii_whitespace() || "\"'>/=".contains(each)) {
        return Err(argument.wrong("this is not the name of an attribute"));
    }
    Ok(name)
}

chooses! {
    /// Chooses the feature.
    ChooseRemove, Remove, "Takes elements, attributes and comments out of documents."
}

/// The part of an element to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The element with its content.
    Element,
    /// The tags alone; the content stays.
    Tags,
    /// An attribute.
    Attribute(String),
}

/// The feature.
#[derive(Debug, Default)]
pub struct Remove {
    /// The selectors of elements that are removed with their content.
    elements: Vec<Selector>,
    /// The selectors of elements that lose only their tags or an attribute.
    selectors: Vec<Selector>,
    what: Vec<What>,
    comments: bool,
}

impl Remove {
    /// Adds a removal: of this part of the elements that a selector matches.
    pub fn add(&mut self, selector: Selector, what: What) {
        if what == What::Element {
            return self.elements.push(selector);
        }
        self.selectors.push(selector);
        self.what.push(what);
    }

    /// Removes comments.
    pub fn comments(&mut self) {
        self.comments = true;
    }
}

impl Feature for Remove {
    fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    fn reads(&self) -> Reads {
        Reads { comments: self.comments, ..Reads::default() }
    }

    fn growth(&self) -> usize {
        0
    }

    fn removes(&self) -> Removes {
        match self.selectors.is_empty() && self.elements.is_empty() {
            true => Removes::Nothing,
            false => Removes::Closed,
        }
    }

    fn rules(&self, _: &Page) -> Vec<Rule> {
        let rule = |(selector, act): (&Selector, Act)| Rule { selector: selector.clone(), act, limit: None };
        let told = self.selectors.iter().enumerate().map(|(number, selector)| (selector, Act::Tell(number)));
        let all = self.elements.iter().map(|selector| (selector, Act::Remove)).chain(told);
        all.map(rule).collect()
    }

    fn follows(&self, _: usize) -> bool {
        true
    }

    fn takes(&self, selector: usize) -> bool {
        !matches!(self.what.get(selector), Some(What::Attribute(_)))
    }

    fn begin(self: Arc<Self>, _: &Page) -> Box<dyn Rewrite> {
        Box::new(RemovingFeature(self))
    }
}

struct RemovingFeature(Arc<Remove>);

impl Rewrite for RemovingFeature {
    fn element(&mut self, selector: usize, element: &mut Element<'_, '_, '_>) {
        match self.0.what.get(selector) {
            Some(What::Tags) => element.unwrap(),
            Some(What::Attribute(name)) => element.remove_attribute(name),
            Some(What::Element) | None => {}
        }
    }

    fn comment(&mut self, comment: &mut Comment<'_, '_>) {
        let text = comment.text();
        if self.0.comments && !text.starts_with("[if") && !text.starts_with("<![endif]") {
            comment.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use foregate_module::testing::filtered_at_every_split;

    use super::*;
    use crate::features::images::Images;
    use crate::tests::{Boxed, of};

    #[test]
    fn elements_attributes_and_comments_go() {
        let make = || {
            let mut remove = Remove::default();
            remove.add(Selector::constant("script[src*=tracker]"), What::Element);
            remove.add(Selector::constant("font"), What::Tags);
            remove.add(Selector::constant("[onclick]"), What::Attribute("onclick".into()));
            remove.comments();
            Boxed(of(vec![Arc::new(remove)], "text/html; charset=utf-8").filter)
        };
        let html = "<script src=/tracker.js>x</script><script>y</script><font size=1>a<b ONCLICK='x' id=z>b</b></font>\
                    <!-- c --><!--[if IE]>d<![endif]--><div><script src=tracker><!-- </script></div>";
        let out = String::from_utf8(filtered_at_every_split(make, html.as_bytes()).unwrap()).unwrap();
        assert_eq!(out, "<script>y</script>a<b id=z>b</b><!--[if IE]>d<![endif]--><div></div>");
    }

    #[test]
    fn what_goes_lets_nothing_become_markup() {
        let make = || {
            let mut remove = Remove::default();
            remove.add(Selector::constant("b"), What::Element);
            remove.add(Selector::constant("font"), What::Tags);
            remove.comments();
            Boxed(of(vec![Arc::new(remove)], "text/html; charset=utf-8").filter)
        };
        for (html, expected) in [
            ("<p><<!-- x -->img src=x onerror=alert(1)></p>", "<p>&lt;img src=x onerror=alert(1)></p>"),
            ("<<b>x</b>img a=b>", "&lt;img a=b>"),
            ("<<font>/p><</font>!-- c", "&lt;/p>&lt;!-- c"),
            ("<<!-- 1 --><b><</b><font>img></font>", "&lt;img>"),
            ("a<</p><<!--[if IE]>x<![endif]--><", "a<</p><<!--[if IE]>x<![endif]--><"),
            ("<</<!-- x -->img>", "&lt;img>"),
            ("<font><p><</p><</font>", "<p><</p>&lt;"),
            ("<script>a<</script><!-- x -->b", "<script>a<</script>b"),
        ] {
            let out = filtered_at_every_split(make, html.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{html}");
        }
    }

    #[test]
    fn a_tag_whose_attributes_cannot_be_written_anew_stays() {
        let make = || {
            let mut remove = Remove::default();
            remove.add(Selector::constant("[t]"), What::Attribute("t".into()));
            let images = Images::default().lazy(0);
            of(vec![Arc::new(remove), Arc::new(images)], "text/html; charset=utf-8")
        };
        for (html, expected) in [
            ("<b x t=1 =\"q=\"onmouseover=alert(1) \">", None),
            ("<b t=1 x/=\"b=\"onclick=alert(1) \"c>", None),
            ("<img src=a x/='b='onerror=alert(1) 'c>", None),
            ("<img src='a'='b'>", None),
            ("<img src=a ==b>", Some("<img src=a ==b loading=\"lazy\">")),
            ("<p T=2 k x/='>b<i>", None),
            ("<b t = 1>x = y<img src=b alt= 'c'>", Some("<b>x = y<img src=b alt= 'c' loading=\"lazy\">")),
        ] {
            for piece in 1..html.len() {
                let (out, told, _) = crate::tests::bailed(make(), html.as_bytes(), piece);
                assert_eq!(String::from_utf8(out).unwrap(), expected.unwrap_or(html), "in pieces of {piece}");
                let left = told.iter().any(|(event, _)| *event == "elements-left");
                assert_eq!(left, expected.is_none(), "{html}");
            }
        }
    }

    #[test]
    fn attributes_go_before_others_are_set() {
        let make = || {
            let mut remove = Remove::default();
            remove.add(Selector::constant("img"), What::Attribute("loading".into()));
            let images = Images::default().lazy(0);
            Boxed(of(vec![Arc::new(remove), Arc::new(images)], "text/html; charset=utf-8").filter)
        };
        let out = filtered_at_every_split(make, b"<img loading=eager src=a>").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "<img src=a loading=\"lazy\">");
    }

    /// The output for a document without these elements, and without the tags of those, for every split.
    fn without(elements: &[&str], tags: &[&str], attribute: Option<(&str, &str)>, html: &str) -> String {
        let make = || {
            let mut remove = Remove::default();
            elements.iter().for_each(|text| remove.add(Selector::parse(text).unwrap(), What::Element));
            tags.iter().for_each(|text| remove.add(Selector::parse(text).unwrap(), What::Tags));
            if let Some((selector, name)) = attribute {
                remove.add(Selector::parse(selector).unwrap(), What::Attribute(name.into()));
            }
            of(vec![Arc::new(remove)], "text/html; charset=utf-8")
        };
        let whole = crate::tests::bailed(make(), html.as_bytes(), html.len());
        for piece in 1..html.len() {
            assert_eq!(
                crate::tests::bailed(make(), html.as_bytes(), piece),
                whole,
                "{html} in pieces of {piece}"
            );
        }
        String::from_utf8(whole.0).unwrap()
    }

    #[test]
    fn what_an_end_tag_that_goes_would_have_closed_is_closed() {
        for (html, expected) in [
            ("<b><svg></b><title><img src=y></title>", "<svg></svg><title><img src=y></title>"),
            ("<b><p><math><mi>a</mi></b><xmp><img></xmp>", "<p><math><mi>a</mi></math><xmp><img></xmp>"),
            ("<b><svg><g><path/></g></svg></b><p>", "<svg><g><path/></g></svg><p>"),
            ("<b><svg><desc></b></desc></svg><p>", "<svg><desc></desc></svg><p>"),
            (
                "<b><i><svg></b>1</b>2<style><img src=y></style>",
                "<i><svg></svg>1</b>2<style><img src=y></style>",
            ),
        ] {
            assert_eq!(without(&[], &["b"], None, html), expected, "{html}");
        }
    }

    #[test]
    fn a_part_of_a_table_that_is_in_none_stays() {
        let template = "<template><tr class=ad><td>1</tr><tr></template>";
        let stays = "<td class=ad><select><col><img src=y>";
        for (html, expected) in [
            (stays, stays),
            ("<table><tr><td class=ad>1<td>2</table>", "<table><tr><td>2</table>"),
            // After it the content of the template would be read as the document's.
            (template, template),
            ("<table></table><tr class=ad>1</tr>", "<table></table><tr class=ad>1</tr>"),
        ] {
            assert_eq!(without(&[".ad"], &[], None, html), expected, "{html}");
        }
    }

    #[test]
    fn an_element_ends_where_it_does_for_a_browser() {
        for (html, expected) in [
            ("<div id=main><p class=ad>ad</div><div>article</div>", "<div id=main></div><div>article</div>"),
            ("<p class=ad>ad<b>x</b><div>article<p>a</div>", "<div>article<p>a</div>"),
            ("<p class=ad>ad<button><div>x</div></button>y<p>z", "<p>z"),
            ("<ul><li class=ad>1<li>2<li>3</ul><p>rest", "<ul><li>2<li>3</ul><p>rest"),
            ("<ul><li class=ad>1<ul><li>a<li>b</ul>c<div><li>2</div></ul>", "<ul><li>2</div></ul>"),
            ("<ul><li>1<li class=ad>2</ul>x<ol><li class=ad>3</li></ol>", "<ul><li>1</ul>x<ol></ol>"),
            ("<table><tr><td class=ad>1<td>2<tr><td>3</table>rest", "<table><tr><td>2<tr><td>3</table>rest"),
            (
                "<table><tr class=ad><td>1<table><tr><td>x</table><tr><td>3</table>",
                "<table><tr><td>3</table>",
            ),
            ("<dl><dt class=ad>1<dd>2</dl>", "<dl><dd>2</dl>"),
            ("<select><option class=ad>1<option>2</select>", "<select><option>2</select>"),
            ("<head class=ad><title>t</title><body>x", "<body>x"),
            ("a<p class=ad>b", "a"),
            ("a<div class=ad>b", "a<div class=ad>b"),
            (
                "<a class=ad href=1>x<p>y<a href=2>z</a><p>rest",
                "<a class=ad href=1>x<p>y<a href=2>z</a><p>rest",
            ),
            ("<h1 class=ad>x</h2>y<p>rest", "y<p>rest"),
            ("<svg><g class=ad></svg><style><img></style>", "<svg></svg><style><img></style>"),
            ("<math><mrow class=ad></math><style><img></style>", "<math></math><style><img></style>"),
            // Browsers disagree about the ends of these elements.
            ("<p><span><div class=ad>x</span>y</div>z</p>", "<p><span></span></p>z</p>"),
            ("<i><b class=ad>1</i>2</b><b class=ad>3</b>4", "<i><b class=ad>1</i>2</b>4"),
        ] {
            assert_eq!(without(&[".ad"], &[], None, html), expected, "{html}");
        }
        for (html, expected) in [
            ("<b><i class=ad>1</b>rest", "<b>1</b>rest"),
            ("<div><p class=ad>1</div>2", "<div>1</div>2"),
            ("<svg><g class=ad></svg><style><img></style>", "<svg></svg><style><img></style>"),
            ("<p><i class=ad>1</i>2", "<p>12"),
        ] {
            assert_eq!(without(&[], &[".ad"], None, html), expected, "{html}");
        }
    }

    #[test]
    fn an_element_amid_which_the_rewriter_gives_up_stays_whole() {
        for html in [
            "<p>1<div class=ad><button><svg class=\"i\"/></button><script>if(a<b){x(\"<img onerror=x>\")}</script></div><p>2",
            "<div class=ad><svg/><textarea><img onerror=x></textarea></div>",
            "<div class=ad>x<b>y</b><template><svg/><style></style><img onerror=x></template></div>z",
            "<select class=ad><option>1<svg/><style><img onerror=x></style></select>",
        ] {
            assert_eq!(without(&[".ad"], &[], None, html), html);
        }
        let long =
            format!("<b class=ad>x</b><i>1</i><div class=ad><b class=ad>{}</b></div>", "y ".repeat(10 << 10));
        let make = || {
            let mut remove = Remove::default();
            remove.add(Selector::constant(".ad"), What::Element);
            let terms = crate::Terms {
                content_type: Some(b"text/html; charset=utf-8".to_vec()),
                budget: 16 << 10,
                ..crate::Terms::default()
            };
            crate::Pass::filter(
                vec![(crate::ChosenFeature { step: "test", feature: Arc::new(remove) }, false)],
                terms,
            )
        };
        for piece in [7, 1000, usize::MAX] {
            let (out, found, _) = crate::tests::bailed(make(), long.as_bytes(), piece);
            assert_eq!(String::from_utf8(out).unwrap(), long.replacen("<b class=ad>x</b>", "", 1));
            assert_eq!(found, [("matches", 2), ("memory-exceeded", 1)]);
        }
    }

    #[test]
    fn nothing_goes_that_decides_what_is_text() {
        const LIVE: &str = "<style><img src=x onerror=alert(1)></style>";
        for html in [
            "<svg><font color=red></font>",
            "<svg><p class=ad>x</p>",
            "<math><div class=ad>x</div>",
            "<select><input class=ad>",
            "<select><textarea class=ad></textarea>",
        ] {
            let html = format!("{html}{LIVE}");
            assert_eq!(without(&[".ad"], &["font"], None, &html), html);
            assert_eq!(without(&[], &[], Some(("font, .ad", "color")), &html), html);
        }
        for html in [
            "<textarea class=ad><img></textarea>",
            "<svg class=ad><![CDATA[><img>]]></svg>",
            "<style class=ad><b></style>",
        ] {
            assert_eq!(without(&[], &[".ad"], None, html), html);
            assert_eq!(without(&[".ad"], &[], None, html), "");
        }
        assert_eq!(without(&[], &["font"], None, "<p><font color=red>x</font>"), "<p>x");
    }

    #[test]
    fn what_goes_takes_nothing_along() {
        let make = || {
            let mut remove = Remove::default();
            remove.add(Selector::constant(".ad"), What::Element);
            let mut insert = crate::features::insert::Insert::default();
            use crate::features::insert::Place;
            insert.at(Place::Before, Selector::constant(".ad"), "[", Some(2));
            insert.at(Place::After, Selector::constant(".ad"), "]", None);
            insert.at(Place::Append, Selector::constant(".ad, i"), "?", None);
            let emails = crate::features::emails::Emails::new("-");
            Boxed(
                of(vec![Arc::new(remove), Arc::new(insert), Arc::new(emails)], "text/html; charset=utf-8")
                    .filter,
            )
        };
        for (html, expected) in [
            ("<div class=ad>ad@x.de<i class=ad>x</i></div><p>a@x.de</p>", "[]<p>{1}</p>"),
            (
                "<p class=ad><a href=mailto:ad@x.de>x</a></p><a class=ad href=mailto:b@x.de>x</a><p>a@x.de</p>",
                "[][]<p>{2}",
            ),
        ] {
            let out = String::from_utf8(filtered_at_every_split(make, html.as_bytes()).unwrap()).unwrap();
            let scripts = out.matches("<script").count();
            assert_eq!(scripts, 1, "{out}");
            let at = expected.find('{').unwrap();
            assert!(
                out.starts_with(&expected[..at]) && !out.contains("ad@") && !out.contains("a@x"),
                "{out}"
            );
        }
    }
}

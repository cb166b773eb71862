//! Elements, attributes and comments that are taken out of documents.
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

use foregate_module::settings::{Block, Context, Key, Node, Problem, Prop};

use super::{Configured, chooses, flag};
use crate::{Comment, Element, Feature, Page, Reads, Rewrite, Selector};

/// The step that chooses the feature.
const STEP: &str = "html-remove";
/// How many selectors there may be.
const SELECTORS: usize = 128;

static KEY: Key = Key::block(
    STEP,
    &BLOCK,
    "html-remove { element \"script[src*='tracker']\" }",
    "Takes elements, attributes and comments out of HTML.",
);

static BLOCK: Block = Block {
    keys: &[
        Key::one(
            "element",
            "SELECTOR",
            "element \"script[src*='tracker']\"",
            "Elements that go, with their content.",
        )
        .props(&[Prop {
            name: "keep-content",
            usage: "#true",
            required: false,
            default: "#false",
            about: "Only their tags go.",
        }])
        .many(),
        Key::one(
            "attribute",
            "SELECTOR NAME",
            "attribute \"[onclick]\" \"onclick\"",
            "An attribute that goes from elements.",
        )
        .args(2, 2)
        .many(),
        Key::flag(
            "comments",
            "#false",
            "comments",
            "Whether comments go, but for those that old browsers take for conditions (`<!--[if`).",
        ),
    ],
    later: &[],
};

impl Configured for Remove {
    const STEP: &'static str = STEP;
    const KEY: &'static Key = &KEY;

    fn from_node(node: &Node, _: &mut dyn Context) -> Result<Self, Problem> {
        let mut remove = Remove::default();
        for child in node.children_named("element") {
            let keep = child.prop("keep-content").map_or(Ok(false), |argument| argument.flag())?;
            let what = if keep { What::Tags } else { What::Element };
            remove.add(Selector::from_argument(child.arg(0)?)?, what);
        }
        for child in node.children_named("attribute") {
            let name = child.arg(1)?.text()?.to_ascii_lowercase();
            remove.add(Selector::from_argument(child.arg(0)?)?, What::Attribute(name));
        }
        remove.comments = flag(node, "comments")?;
        if remove.selectors.len() > SELECTORS {
            return Err(node.wrong(format!("at most {SELECTORS} selectors")));
        }
        if remove.selectors.is_empty() && !remove.comments {
            return Err(node.wrong("this removes nothing").help("add `element`, `attribute` or `comments`"));
        }
        Ok(remove)
    }
}

chooses! {
    /// Chooses the feature.
    ChooseRemove, Remove, "Takes elements, attributes and comments out of documents."
}

/// What of an element goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// All of it.
    Element,
    /// Its tags; its content stays.
    Tags,
    /// An attribute.
    Attribute(String),
}

/// The feature.
#[derive(Debug, Default)]
pub struct Remove {
    selectors: Vec<Selector>,
    what: Vec<What>,
    comments: bool,
}

impl Remove {
    /// Removes something of the elements that a selector fits.
    pub fn add(&mut self, selector: Selector, what: What) {
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

    fn begin(self: Arc<Self>, _: &Page) -> Box<dyn Rewrite> {
        Box::new(Removing(self))
    }
}

struct Removing(Arc<Remove>);

impl Rewrite for Removing {
    fn element(&mut self, selector: usize, element: &mut Element<'_, '_, '_>) {
        match self.0.what.get(selector) {
            Some(What::Element) => element.remove(),
            Some(What::Tags) => element.unwrap(),
            Some(What::Attribute(name)) => element.remove_attribute(name),
            None => {}
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
}

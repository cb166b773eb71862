//! Words of documents, replaced by others.
//!
//! ```kdl
//! html-text {
//!     replace "Example Ltd" "Example & Sons"
//!     ignore-case
//! }
//! ```
//!
//! Only text is looked at, titles included: no tags, scripts, styles, comments, nor what forms hold. What is searched may be
//! written with references (`&amp;`) in the document; what takes its place means what it says there.

use std::sync::Arc;

use foregate_module::settings::{Block, Context, FromNode, Key, Node, Problem};

use super::chooses;
use crate::needles::Needles;
use crate::{Chosen, Feature, Page, Reads, Rewrite, TextOut, escape};

/// The step that chooses the feature.
const STEP: &str = "html-text";

static KEY: Key = Key::block(
    STEP,
    &BLOCK,
    "html-text { replace \"Example Ltd\" \"Example & Sons\"; }",
    "Replaces texts of HTML, not in tags, scripts, styles or comments.",
);

static BLOCK: Block = Block {
    keys: &[
        Key::one(
            "replace",
            "FROM TO",
            "replace \"colour\" \"color\"",
            "A text, and what takes its place: as text, not as markup. Where several fit, the longest.",
        )
        .args(2, 2)
        .many()
        .required(),
        Key::flag("ignore-case", "#false", "ignore-case", "Whether letters of ASCII fit in either case."),
    ],
    later: &[],
};

/// The settings of `html-text`.
#[derive(Debug, Clone)]
pub struct Settings(Arc<ReplaceText>);

impl Settings {
    fn chosen(&self) -> Chosen {
        Chosen { step: STEP, feature: Arc::clone(&self.0) as Arc<dyn Feature> }
    }
}

impl FromNode for Settings {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        let mut pairs = Vec::new();
        let mut ignore_case = false;
        if let Some(node) = nodes.last() {
            pairs = pairs_of(node)?;
            if let Some(child) = node.child("ignore-case") {
                ignore_case = child.args().first().map_or(Ok(true), |argument| argument.flag())?;
            }
        }
        Ok(Self(Arc::new(ReplaceText::new(pairs, ignore_case))))
    }
}

/// The pairs of `replace` in a block.
pub(crate) fn pairs_of(node: &Node) -> Result<Vec<(String, String)>, Problem> {
    let mut pairs = Vec::new();
    let mut length = 0;
    for child in node.children_named("replace") {
        let (from, to) = (child.arg(0)?, child.arg(1)?);
        if from.text()?.is_empty() {
            return Err(from.wrong("an empty text is everywhere"));
        }
        length += from.text()?.len() + to.text()?.len();
        if length > Needles::LIMIT {
            return Err(child.wrong(format!("the texts have more than {} bytes together", Needles::LIMIT)));
        }
        pairs.push((from.text()?.to_owned(), to.text()?.to_owned()));
    }
    Ok(pairs)
}

chooses! {
    /// Chooses the feature.
    ChooseText, Settings, "html-text", "Replaces texts of documents."
}

/// The feature.
#[derive(Debug)]
pub struct ReplaceText {
    pairs: Vec<(String, String)>,
    ignore_case: bool,
}

impl ReplaceText {
    /// Replaces the first of each pair by the second.
    pub fn new(pairs: Vec<(String, String)>, ignore_case: bool) -> Self {
        Self { pairs, ignore_case }
    }
}

impl Feature for ReplaceText {
    fn reads(&self) -> Reads {
        Reads { text: true, ..Reads::default() }
    }

    fn growth(&self) -> usize {
        self.pairs.iter().map(|(from, to)| 6 * to.len() / from.len().max(1)).max().unwrap_or(0)
    }

    fn begin(self: Arc<Self>, page: &Page) -> Box<dyn Rewrite> {
        let (mut needles, mut instead) = (Vec::new(), Vec::new());
        for (from, to) in &self.pairs {
            let mut escaped = String::new();
            escape(to, &mut escaped);
            let escaped = page.reading(&escaped.replace("&#39;", "'").replace("&quot;", "\""));
            for from in spellings(from) {
                let from = page.reading(&from);
                if !needles.contains(&from) {
                    needles.push(from);
                    instead.push(escaped.clone());
                }
            }
        }
        match Needles::new(&needles, self.ignore_case) {
            Some(needles) => Box::new(Replacing { needles, instead, held: String::new() }),
            None => Box::new(Nothing),
        }
    }
}

/// A text as it may stand in a document.
fn spellings(text: &str) -> Vec<String> {
    let xml = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let quotes = xml.replace('"', "&quot;");
    let numbered = quotes.replace('\'', "&#39;");
    let apostrophe = quotes.replace('\'', "&#039;");
    let sparing = text.replace('&', "&amp;").replace('<', "&lt;");
    let mut all = vec![text.to_owned(), sparing, xml, quotes, numbered, apostrophe];
    all.dedup();
    all
}

/// Texts that no search can be made of are not replaced; the limit of their length sees to it that there are none.
struct Nothing;

impl Rewrite for Nothing {}

struct Replacing {
    needles: Needles,
    instead: Vec<String>,
    held: String,
}

impl Rewrite for Replacing {
    fn text(&mut self, text: &str, last: bool, out: &mut TextOut<'_>) {
        self.held.push_str(text);
        let told = self.needles.search(self.held.as_bytes(), last, &mut |_, _| true);
        // What is told must end between characters, which are several bytes in this form.
        let mut told = told;
        while !self.held.is_char_boundary(told) {
            told -= 1;
        }
        let instead = &self.instead;
        let ready = self.held.get(..told).unwrap_or_default();
        self.needles.search(ready.as_bytes(), true, &mut |bytes, found| {
            match found {
                Some(number) => {
                    out.matched();
                    out.keep(instead.get(number).map_or("", |instead| instead));
                }
                None => out.keep(std::str::from_utf8(bytes).unwrap_or_default()),
            }
            true
        });
        self.held.drain(..told);
    }
}

#[cfg(test)]
mod tests {
    use foregate_module::testing::filtered_at_every_split;

    use super::*;
    use crate::tests::{Boxed, of};

    fn rewritten(pairs: &[(&str, &str)], content_type: &str, html: &[u8]) -> Vec<u8> {
        let pairs: Vec<_> = pairs.iter().map(|(from, to)| ((*from).into(), (*to).into())).collect();
        let make = || Boxed(of(vec![Arc::new(ReplaceText::new(pairs.clone(), false))], content_type).filter);
        filtered_at_every_split(make, html).unwrap()
    }

    #[test]
    fn texts_are_replaced_in_text_alone() {
        let pairs = [("AT&T", "<T&A>"), ("one", "two"), ("one more", "three"), ("grün", "größer")];
        let html = "<title>one</title><p title=one>AT&T AT&amp;T one more one grün</p><!--one--><script>one</script>\
                    <textarea>one</textarea>on<b>e</b>";
        let out = rewritten(&pairs, "text/html; charset=utf-8", html.as_bytes());
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "<title>two</title><p title=one>&lt;T&amp;A&gt; &lt;T&amp;A&gt; three two größer</p><!--one--><script>one</script>\
             <textarea>one</textarea>on<b>e</b>"
        );
    }

    #[test]
    fn texts_are_found_in_the_encoding_of_the_document() {
        let out = rewritten(&[("grün", "€")], "text/html; charset=iso-8859-1", b"<p>gr\xfcn \xff");
        assert_eq!(out, b"<p>\x80 \xff");
        let out = rewritten(&[("ソ", "ソソ"), ("\\", "!")], "text/html; charset=shift_jis", b"\x83\x5c\\");
        assert_eq!(out, b"\x83\x5c\x83\x5c!");
    }
}

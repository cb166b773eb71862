//! Text on its way through the features of a pass.

use crate::rewriter::Running;

/// Where a feature writes a text: what it keeps goes to the next feature, markup goes into the document.
pub struct TextOut<'a> {
    pub(crate) rest: &'a mut [Running],
    pub(crate) out: &'a mut String,
    pub(crate) matches: u64,
    pub(crate) in_title: bool,
}

impl TextOut<'_> {
    /// Whether markup means something here: not in a `title`.
    pub fn allows_markup(&self) -> bool {
        !self.in_title
    }

    /// Writes text, in which `<` and `&` stand for themselves: what came, or what was made of it.
    pub fn keep(&mut self, text: &str) {
        if !text.is_empty() {
            pass(self.rest, text, false, self.in_title, self.out);
        }
    }

    /// Writes markup, which no other feature looks into.
    pub fn markup(&mut self, html: &str) {
        pass(self.rest, "", true, self.in_title, self.out);
        self.out.push_str(html);
    }

    /// Counts something that the feature has changed.
    pub fn matched(&mut self) {
        self.matches += 1;
    }
}

/// Gives a text to the first of the features that reads any, and what that leaves to the next.
pub(crate) fn pass(features: &mut [Running], text: &str, last: bool, in_title: bool, out: &mut String) {
    let Some(at) = features.iter().position(|running| running.reads.text) else {
        out.push_str(text);
        return;
    };
    let Some((running, rest)) = features.get_mut(at..).and_then(<[Running]>::split_first_mut) else { return };
    if running.dry {
        let mut dropped = String::new();
        let mut aside = TextOut { rest: &mut [], out: &mut dropped, matches: 0, in_title };
        running.rewrite.text(text, last, &mut aside);
        running.matches += aside.matches;
        return pass(rest, text, last, in_title, out);
    }
    let mut next = TextOut { rest, out, matches: 0, in_title };
    running.rewrite.text(text, last, &mut next);
    let matches = next.matches;
    if last {
        pass(next.rest, "", true, in_title, next.out);
    }
    running.matches += matches;
}

/// Adds a text to markup, so that it means itself there.
pub fn escape(text: &str, html: &mut String) {
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            character => html.push(character),
        }
    }
}

//! Text on its way through the features of a pass.

use crate::rewriter::Running;

/// What features make of a text. Most leave most of it as it is, so nothing is copied before something changes.
pub(crate) struct Made<'t> {
    original: &'t str,
    /// How much of the original has been written as it was.
    same: usize,
    /// What has been written, once that differs.
    changed: Option<String>,
}

impl<'t> Made<'t> {
    /// Of this text nothing has been written yet.
    pub fn of(original: &'t str) -> Self {
        Self { original, same: 0, changed: None }
    }

    /// What has been written, if it differs from the original.
    pub fn changed(self) -> Option<String> {
        let cut =
            || (self.same < self.original.len()).then(|| self.original.get(..self.same).unwrap_or_default());
        self.changed.or_else(|| cut().map(str::to_owned))
    }
}

/// Takes what features leave of a text. (By itself, since a mutable reference to [`Made`] would tie the lifetime of the
/// original to that of the features.)
pub(crate) trait Push {
    fn push_str(&mut self, text: &str);
}

impl Push for Made<'_> {
    fn push_str(&mut self, text: &str) {
        if let Some(changed) = &mut self.changed {
            return changed.push_str(text);
        }
        let (before, rest) = self.original.split_at_checked(self.same).unwrap_or((self.original, ""));
        // Mostly it is a part of the original itself, and need not be compared.
        let is_itself = text.as_ptr() == rest.as_ptr() && text.len() <= rest.len();
        if is_itself || rest.starts_with(text) {
            self.same += text.len();
            return;
        }
        let mut changed = String::with_capacity(self.original.len() + text.len());
        changed.push_str(before);
        changed.push_str(text);
        self.changed = Some(changed);
    }
}

/// Where a feature writes a text: what it keeps goes to the next feature, markup goes into the document.
pub struct TextOut<'a> {
    pub(crate) rest: &'a mut [Running],
    pub(crate) out: &'a mut dyn Push,
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

/// Gives a text to the first of these features, which reads texts, and what that leaves to the next that does.
pub(crate) fn pass(features: &mut [Running], text: &str, last: bool, in_title: bool, out: &mut dyn Push) {
    let Some((running, rest)) = features.split_first_mut() else {
        if !text.is_empty() {
            out.push_str(text);
        }
        return;
    };
    let rest = rest.get_mut(running.deaf..).unwrap_or_default();
    if running.dry {
        let mut dropped = Made::of("");
        let mut aside = TextOut { rest: &mut [], out: &mut dropped, matches: 0, in_title };
        running.rewrite.text(text, last, &mut aside);
        running.matches += aside.matches;
        return pass(rest, text, last, in_title, out);
    }
    let mut next = TextOut { rest, out, matches: 0, in_title };
    running.rewrite.text(text, last, &mut next);
    running.matches += next.matches;
    if last && !next.rest.is_empty() {
        pass(next.rest, "", true, in_title, next.out);
    }
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

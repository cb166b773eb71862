//! Passing text through the features of a pass.

use crate::rewriter::Running;

/// The capacity that a text buffer keeps, bytes.
const MEMORY_KEPT: usize = 4096;

/// The output of features for a text. Most features change little, so nothing is copied before the first change.
///
/// Each call gets the original text as an argument, which has to be the same each time. The text is not stored here,
/// because its lifetime would then be tied to the lifetime of the features.
#[derive(Default)]
pub(crate) struct TextOutput {
    /// The length of the start of the original that has been written unchanged.
    same: usize,
    /// The output, once it differs from the input.
    other: String,
    differs: bool,
}

impl TextOutput {
    /// Starts the output for another text, in the same memory.
    #[inline]
    pub fn begin(&mut self) {
        (self.same, self.differs) = (0, false);
        if self.other.capacity() > MEMORY_KEPT {
            self.other = String::new();
        }
    }

    /// The output, if it differs from the original.
    #[inline]
    pub fn changed<'t>(&'t self, original: &'t str) -> Option<&'t str> {
        if self.differs {
            return Some(&self.other);
        }
        (self.same < original.len()).then(|| original.get(..self.same).unwrap_or_default())
    }

    #[inline]
    fn push_str(&mut self, original: &str, text: &str) {
        // The text is mostly a slice of the original itself, so comparing the addresses is enough.
        let follows = text.as_ptr() == original.as_ptr().wrapping_add(self.same);
        let rest = original.len().saturating_sub(self.same);
        if follows && text.len() <= rest && !self.differs {
            self.same += text.len();
            return;
        }
        self.push_other(original, text);
    }

    /// Appends a text that differs from the original.
    #[inline(never)]
    fn push_other(&mut self, original: &str, text: &str) {
        if self.differs {
            return self.other.push_str(text);
        }
        let (before, rest) = original.split_at_checked(self.same).unwrap_or((original, ""));
        if rest.starts_with(text) {
            self.same += text.len();
            return;
        }
        self.differs = true;
        self.other.clear();
        self.other.reserve(original.len() + text.len());
        self.other.push_str(before);
        self.other.push_str(text);
    }
}

/// The output for a feature: kept text goes to the next feature, markup goes into the document.
pub struct TextOut<'a> {
    pub(crate) rest: &'a mut [Running],
    pub(crate) original: &'a str,
    pub(crate) made: &'a mut TextOutput,
    pub(crate) matches: u64,
    pub(crate) in_title: bool,
}

impl TextOut<'_> {
    /// Returns true if markup can be written here, which is not the case in a `title`.
    pub fn allows_markup(&self) -> bool {
        !self.in_title
    }

    /// Writes text, which the next feature reads: the input, or a changed form of it. `<` and `&` are not escaped.
    pub fn keep(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match &mut *self.rest {
            [] => self.made.push_str(self.original, text),
            rest => pass(rest, text, false, self.in_title, self.original, self.made),
        }
    }

    /// Writes markup into the document. No other feature sees it.
    pub fn markup(&mut self, html: &str) {
        pass(self.rest, "", true, self.in_title, self.original, self.made);
        self.made.push_str(self.original, html);
    }

    /// Counts something that the feature has changed.
    pub fn matched(&mut self) {
        self.matches += 1;
    }
}

/// Passes a text through the features that read texts, in order.
pub(crate) fn pass(
    features: &mut [Running],
    text: &str,
    last: bool,
    in_title: bool,
    original: &str,
    made: &mut TextOutput,
) {
    first(features, text, last, in_title, original, made);
}

/// Like [`pass`], but inlined. It is used for the first feature, because most texts are read by one feature only.
#[inline(always)]
pub(crate) fn first(
    features: &mut [Running],
    text: &str,
    last: bool,
    in_title: bool,
    original: &str,
    made: &mut TextOutput,
) {
    let Some((running, rest)) = features.split_first_mut() else {
        if !text.is_empty() {
            made.push_str(original, text);
        }
        return;
    };
    let rest = rest.get_mut(running.deaf..).unwrap_or_default();
    if running.dry {
        dry(running, text, last, in_title);
        return pass(rest, text, last, in_title, original, made);
    }
    let mut next = TextOut { rest, original, made, matches: 0, in_title };
    running.rewrite.text(text, last, &mut next);
    running.matches += next.matches;
    if last && !next.rest.is_empty() {
        pass(next.rest, "", true, in_title, original, next.made);
    }
}

/// Lets a feature read a text, and drops its output.
#[cold]
#[inline(never)]
fn dry(running: &mut Running, text: &str, last: bool, in_title: bool) {
    let mut dropped = TextOutput::default();
    let mut aside = TextOut { rest: &mut [], original: text, made: &mut dropped, matches: 0, in_title };
    running.rewrite.text(text, last, &mut aside);
    running.matches += aside.matches;
}

/// Appends a text to markup, escaped so that it stays text.
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

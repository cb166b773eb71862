//! Values of `${env:NAME}` and `${file:PATH}`, which no message shows: the reference stands in their place.
//!
//! Every value that is expanded is noted here before anything reads it, and every problem goes through here before it is kept. So a
//! message may be made of the value, or of a part of it, without showing it.

use std::collections::HashSet;

/// Values of fewer bytes stand in words by chance, and are only found as a word of their own.
const SHORT: usize = 4;
/// Bytes of a value's part that is found in a message, by the length of the value: a long one has many of the short parts.
const PARTS: [(usize, usize); 3] = [(16, 4), (1024, 6), (usize::MAX, 12)];
/// Parts of values that are kept, bytes: beyond, messages show no text at all that is not fixed.
const KEPT: usize = 1024 * 1024;

#[derive(Debug, Default)]
pub(crate) struct References {
    all: Vec<Reference>,
    known: HashSet<(String, String)>,
    kept: usize,
}

#[derive(Debug)]
struct Reference {
    /// As it stands in the file.
    text: String,
    /// The value in small letters, where it is short.
    short: Option<String>,
    /// All parts of this length in small letters.
    parts: HashSet<Box<[u8]>>,
    length: usize,
}

impl References {
    /// Notes the value of a reference.
    pub fn add(&mut self, reference: &str, value: &str) {
        let value = value.trim().to_ascii_lowercase();
        // The same name may be another file in another folder.
        if value.is_empty() || !self.known.insert((reference.to_owned(), value.clone())) {
            return;
        }
        let length = PARTS.iter().find(|(most, _)| value.len() <= *most).map_or(SHORT, |(_, length)| *length);
        let is_short = value.len() < SHORT;
        self.kept += value.len();
        let mut parts = HashSet::new();
        if !is_short && self.kept <= KEPT {
            parts = value.as_bytes().windows(length.min(value.len())).map(Box::from).collect();
        }
        let short = is_short.then_some(value);
        self.all.push(Reference { text: reference.to_owned(), short, parts, length });
    }

    /// A text with references in place of their values, and of parts of these.
    pub fn in_place_of_values(&self, mut text: String) -> String {
        if self.kept > KEPT {
            return "there is something wrong with this value; it is not shown, as the file refers to too much".to_owned();
        }
        for reference in &self.all {
            if let Some(hidden) = reference.covered(&text) {
                text = replace(&text, &hidden, &reference.text);
            }
        }
        text
    }
}

impl Reference {
    /// Which bytes of a text are of the value; `None` where none are.
    fn covered(&self, text: &str) -> Option<Vec<bool>> {
        let lower = text.to_ascii_lowercase();
        let bytes = lower.as_bytes();
        let mut covered = vec![false; bytes.len()];
        if let Some(short) = &self.short {
            for (at, _) in lower.match_indices(short.as_str()) {
                let end = at + short.len();
                let is_word = |at: Option<usize>| {
                    at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_alphanumeric)
                };
                if !is_word(at.checked_sub(1)) && !is_word(Some(end)) {
                    covered[at..end].fill(true);
                }
            }
        } else {
            for (at, part) in bytes.windows(self.length).enumerate() {
                if self.parts.contains(part) {
                    covered[at..at + self.length].fill(true);
                }
            }
        }
        covered.contains(&true).then_some(covered)
    }
}

/// A text with something in place of each run of hidden bytes.
fn replace(text: &str, hidden: &[bool], with: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut was_hidden = false;
    for (at, letter) in text.char_indices() {
        let is_hidden = hidden.get(at..at + letter.len_utf8()).is_some_and(|bytes| bytes.contains(&true));
        match (is_hidden, was_hidden) {
            (false, _) => out.push(letter),
            (true, false) => out.push_str(with),
            (true, true) => {}
        }
        was_hidden = is_hidden;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_their_parts_are_not_shown() {
        let mut references = References::default();
        references.add("${env:A}", "Hunter2-Hunter3");
        references.add("${file:b}", "x9");
        references.add("${env:C}", "p\u{e4}ssw\u{f6}rt f\u{fc}r alle und noch etwas l\u{e4}nger");
        for (text, shown) in [
            ("`Hunter2-Hunter3` is no number", "`${env:A}` is no number"),
            ("expected an upstream, not hunter2", "expected an upstream, not ${env:A}"),
            ("\"HUNTER3\" is wrong", "\"${env:A}\" is wrong"),
            ("x9 is no fox9", "${file:b} is no fox9"),
            ("there is no `p\u{e4}ssw\u{f6}rt f`", "there is no `${env:C}`"),
            ("nothing of them", "nothing of them"),
        ] {
            assert_eq!(references.in_place_of_values(text.to_owned()), shown);
        }
    }

    #[test]
    fn too_much_to_keep_hides_all() {
        let mut references = References::default();
        for number in 0..20 {
            references.add(&format!("${{file:{number}}}"), &"a b c d ".repeat(8 * 1024));
        }
        assert!(!references.in_place_of_values("a b c".to_owned()).contains("a b c"));
    }
}

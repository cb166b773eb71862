//! Hides the values of `${env:NAME}` and `${file:PATH}` in messages: the reference appears in place of its
//! value.
//!
//! Every expanded value is recorded here before it is used, and every error passes through here before it is
//! kept. So code may build a message from the value, or from a part of it, without showing it.
//!
//! This hides the whole value, also in the forms that it has in a URL or in quotes, and the parts of it that
//! ordinary text does not contain by chance. A part that is a word of letters is never hidden, wherever it
//! stands in the value.

use std::collections::HashSet;
use std::ops::Range;

/// A value of fewer bytes than this may stand within other words by chance. It is only hidden if it stands
/// alone.
const SHORT: usize = 4;
/// From this length on, an occurrence in a message is no coincidence: a value that is a word of letters is
/// hidden, and a part of a value is hidden regardless of its surroundings.
const LONG: usize = 8;
/// The shortest part of a value that is searched in messages, by the length of the value, both in bytes. A long
/// value has so many short parts that they occur in ordinary text.
const PARTS: [(usize, usize); 3] = [(16, 4), (1024, 6), (usize::MAX, 12)];
/// The most bytes of values whose parts are kept. If there are more, messages show a fixed text only.
const KEPT: usize = 1024 * 1024;

#[derive(Debug, Default)]
pub(crate) struct References {
    all: Vec<Reference>,
    known: HashSet<(String, String)>,
    kept: usize,
}

#[derive(Debug)]
struct Reference {
    /// The reference as it stands in the file.
    text: String,
    /// The value in its own spelling.
    value: String,
    /// The value in lower case.
    lower: String,
    /// The forms of the value in a URL and within quotes, in lower case, if they differ from the value.
    encoded: Vec<String>,
    /// All parts of the value that have `length` bytes, in lower case.
    parts: HashSet<Box<[u8]>>,
    length: usize,
}

impl References {
    /// Notes the value of a reference.
    pub fn add(&mut self, reference: &str, value: &str) {
        let value = value.trim();
        let lower = value.to_ascii_lowercase();
        // A known reference with another value is added, too: a relative path means another file in another folder.
        if value.is_empty() || !self.known.insert((reference.to_owned(), value.to_owned())) {
            return;
        }
        let length = PARTS.iter().find(|(most, _)| value.len() <= *most).map_or(SHORT, |(_, length)| *length);
        self.kept += value.len();
        let mut parts = HashSet::new();
        let mut encoded = Vec::new();
        if value.len() >= SHORT && self.kept <= KEPT {
            parts = lower.as_bytes().windows(length.min(value.len())).map(Box::from).collect();
            encoded = [in_url(&lower), lower.escape_default().to_string()].to_vec();
            encoded.retain(|form| *form != lower);
        }
        self.all.push(Reference {
            text: reference.to_owned(),
            value: value.to_owned(),
            lower,
            encoded,
            parts,
            length,
        });
    }

    /// Replaces values, and parts of values, in a text by their references.
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
    /// Marks the bytes of a text that belong to the value. `None` if there are none.
    fn covered(&self, text: &str) -> Option<Vec<bool>> {
        let lower = text.to_ascii_lowercase();
        let mut covered = vec![false; lower.len()];
        let mut hide = |part: Range<usize>| covered.get_mut(part).unwrap_or_default().fill(true);
        for (at, _) in lower.match_indices(&self.lower) {
            let part = at..at + self.lower.len();
            if self.is_meant(text, &part) {
                hide(part);
            }
        }
        for form in &self.encoded {
            lower.match_indices(form.as_str()).for_each(|(at, _)| hide(at..at + form.len()));
        }
        for part in self.parts_in(lower.as_bytes()) {
            if self.is_part(&lower, &part) {
                hide(part);
            }
        }
        covered.contains(&true).then_some(covered)
    }

    /// Returns true if an occurrence of the value in a text, regardless of case, is no coincidence. If the value is
    /// shorter than [`SHORT`], or is a word of letters shorter than [`LONG`], the occurrence must stand alone. For
    /// such a word of letters, the case has to match, too.
    fn is_meant(&self, text: &str, part: &Range<usize>) -> bool {
        let is_word = is_letters(&self.lower);
        if self.lower.len() >= LONG || self.lower.len() >= SHORT && !is_word {
            return true;
        }
        stands_alone(text, part) && (!is_word || text.get(part.clone()) == Some(&self.value))
    }

    /// The ranges of a text that consist of parts of the value.
    fn parts_in(&self, lower: &[u8]) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        if self.parts.is_empty() {
            return found;
        }
        for (at, part) in
            lower.windows(self.length).enumerate().filter(|(_, part)| self.parts.contains(*part))
        {
            match found.last_mut() {
                Some(last) if last.end >= at => last.end = at + part.len(),
                _ => found.push(at..at + part.len()),
            }
        }
        found
    }

    /// Returns true if a range of a text reveals a part of the value. A word of letters reveals nothing. Other text
    /// reveals a part in these cases:
    /// - It is at least half as long as the value.
    /// - It has a digit and at least [`LONG`] bytes.
    /// - It has a digit and stands alone both in the text and in the value.
    fn is_part(&self, lower: &str, part: &Range<usize>) -> bool {
        // A range that begins or ends within a letter of several bytes counts as revealing.
        let Some(run) = lower.get(part.clone()) else { return true };
        let core = run.trim_matches(|letter: char| !letter.is_alphanumeric());
        if core.is_empty() || is_letters(core) {
            return false;
        }
        if core.len() * 2 >= self.lower.len() {
            return true;
        }
        if !core.bytes().any(|byte| byte.is_ascii_digit() || !byte.is_ascii()) {
            return false;
        }
        let alone = |text: &str, at: usize| stands_alone(text, &(at..at + core.len()));
        let here = run.find(core).map_or(part.start, |at| part.start + at);
        let is_word =
            || alone(lower, here) && self.lower.match_indices(core).any(|(at, _)| alone(&self.lower, at));
        core.len() >= LONG || is_word()
    }
}

/// Returns true if a text is a word of ASCII letters.
fn is_letters(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Returns true if there is no letter or digit on either side of a part of a text.
fn stands_alone(text: &str, part: &Range<usize>) -> bool {
    let is_word = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    let before = text.get(..part.start).and_then(|before| before.chars().next_back());
    let behind = text.get(part.end..).and_then(|behind| behind.chars().next());
    !is_word(before) && !is_word(behind)
}

/// The form of a text in a URL, in lower case.
fn in_url(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02x}")),
        }
    }
    out
}

/// Replaces each run of hidden bytes in a text by `with`.
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

    /// The fixed text of messages is shown, regardless of values.
    #[test]
    fn ordinary_words_are_shown() {
        for (value, text, shown) in [
            ("S3cr3tVALUE", "this value is wrong", "this value is wrong"),
            ("S3cr3tVALUE", "`S3cr3tVALUE` is a wrong value", "`${env:X}` is a wrong value"),
            ("S3cr3tVALUE", "`s3cr3tvalue` and \"S3cr3tVA\"", "`${env:X}` and \"${env:X}\""),
            ("my-number-1", "expected a number, not 12", "expected a number, not 12"),
            ("anexpectednumber", "expected a number", "expected a number"),
            ("10000000-secret", "at most 1000 of them", "at most 1000 of them"),
            ("http://a1.internal/", "write http://host/ there", "write http://host/ there"),
            ("on", "text on a line, not `on`, nor `On`", "text ${env:X} a line, not `${env:X}`, nor `On`"),
            ("ab", "about `ab`", "about `${env:X}`"),
            ("Size", "this size is no `Size`", "this size is no `${env:X}`"),
            ("a b\"c/1", "x=a%20b%22c%2f1 or \"a b\\\"c/1\"", "x=${env:X} or \"${env:X}\""),
        ] {
            let mut references = References::default();
            references.add("${env:X}", value);
            assert_eq!(references.in_place_of_values(text.to_owned()), shown, "{value}");
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

//! Relations between two texts.

use memchr::memmem;

/// The relation that a value must have to the argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextTest {
    /// The value contains the text.
    Contains,
    /// The value contains the text, with no ASCII letter directly before or after it.
    ContainsWord,
    /// The value begins with the text.
    BeginsWith,
    /// The value ends with the text.
    EndsWith,
    /// The value equals the text.
    Equals,
    /// The value occurs in the text.
    Within,
}

impl TextTest {
    /// Returns true if the value has this relation to the text.
    pub(crate) fn passes(self, value: &[u8], text: &[u8]) -> bool {
        match self {
            Self::Contains => memmem::find(value, text).is_some(),
            Self::ContainsWord => contains_word(value, text),
            Self::BeginsWith => value.starts_with(text),
            Self::EndsWith => value.ends_with(text),
            Self::Equals => value == text,
            Self::Within => memmem::find(text, value).is_some(),
        }
    }

    /// Returns true if every value with this relation contains the whole text.
    pub(crate) fn requires_text(self) -> bool {
        self != Self::Within
    }
}

fn contains_word(value: &[u8], text: &[u8]) -> bool {
    // As in ModSecurity, digits and `_` are not part of a word: `1select` contains the word `select`.
    let is_word = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphabetic);
    if text.is_empty() {
        return true;
    }
    // Occurrences may overlap, so each position is tried as a start.
    let mut from = 0;
    while let Some(found) = value.get(from..).and_then(|rest| memmem::find(rest, text)) {
        let start = from + found;
        let before = start.checked_sub(1).and_then(|at| value.get(at));
        if !is_word(before) && !is_word(value.get(start + text.len())) {
            return true;
        }
        from = start + 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_alone() {
        for (value, text, holds) in [
            ("a cat sat", "cat", true),
            ("concat", "cat", false),
            ("cat", "cat", true),
            ("cats cat", "cat", true),
            ("cat_", "cat", true),
            ("1cat2", "cat", true),
            ("cat2s", "cat", true),
            ("x", "", true),
            ("", "x", false),
        ] {
            assert_eq!(
                TextTest::ContainsWord.passes(value.as_bytes(), text.as_bytes()),
                holds,
                "{value:?} {text:?}"
            );
        }
    }

    #[test]
    fn empty_values_and_texts() {
        assert!(TextTest::Within.passes(b"", b"abc"));
        assert!(TextTest::Within.passes(b"bc", b"abc"));
        assert!(!TextTest::Within.passes(b"abcd", b"abc"));
        assert!(TextTest::Contains.passes(b"abc", b""));
        assert!(TextTest::BeginsWith.passes(b"abc", b"a"));
        assert!(TextTest::EndsWith.passes(b"abc", b"bc"));
        assert!(!TextTest::Equals.passes(b"ABC", b"abc"));
    }
}

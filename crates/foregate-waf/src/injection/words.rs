//! The tables of known words and of fingerprints.

use std::sync::LazyLock;

use foldhash::{HashMap, HashSet};

use super::token::{MAX_TEXT, TokenKind};

const WORDS: &str = include_str!("words.txt");
const FINGERPRINTS: &str = include_str!("fingerprints.txt");

/// The tables, built when the first input is judged.
static TABLES: LazyLock<Tables> = LazyLock::new(Tables::new);

struct Tables {
    words: HashMap<&'static [u8], TokenKind>,
    fingerprints: HashSet<[u8; 5]>,
}

impl Tables {
    fn new() -> Self {
        let lines = |text: &'static str| text.lines().filter(|line| !line.starts_with('#'));
        let word =
            |line: &'static str| line.split_once(' ').map(|(kind, word)| (word.as_bytes(), kind.as_bytes()));
        let words = lines(WORDS).filter_map(word);
        let fingerprints = lines(FINGERPRINTS).flat_map(str::split_whitespace);
        Self {
            words: words.map(|(word, kind)| (word, TokenKind::of_letter(kind[0]))).collect(),
            fingerprints: fingerprints.map(|letters| padded(letters.as_bytes())).collect(),
        }
    }
}

fn padded(letters: &[u8]) -> [u8; 5] {
    let mut padded = [0; 5];
    padded.iter_mut().zip(letters).for_each(|(to, letter)| *to = letter.to_ascii_uppercase());
    padded
}

/// The kind of a word, in any case; [`TokenKind::None`] for an unknown word.
pub(super) fn kind_of(word: &[u8]) -> TokenKind {
    let mut capitals = [0; MAX_TEXT];
    let Some(capitals) = capitals.get_mut(..word.len()) else { return TokenKind::None };
    capitals.copy_from_slice(word);
    capitals.make_ascii_uppercase();
    TABLES.words.get(&*capitals).copied().unwrap_or_default()
}

/// Returns true if these letters, one for each token, are the fingerprint of an injection.
pub(super) fn is_injection(letters: &[u8]) -> bool {
    TABLES.fingerprints.contains(&padded(letters))
}

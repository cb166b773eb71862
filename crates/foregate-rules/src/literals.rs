//! Literals that a text has to contain for a regular expression to match.
//!
//! Many expressions are just lists of words, such as `\.(php|aspx?)$` or `(?i)(sqlmap|nikto)`. For these, finding one
//! of the literals decides the match.

use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// The most literal texts that are derived from one expression.
const MAX_TEXTS: usize = 64;
/// The most alternative bytes at one position.
const MAX_CHOICE: usize = 4;
/// The shortest useful literal. A shorter one occurs in too many texts, and is only searched for if it is the whole
/// expression.
const MIN_TEXT: usize = 3;

/// The literals of an expression: each matching text contains at least one of them. None is empty.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) texts: Vec<Box<[u8]>>,
    pub(crate) place: Place,
    /// True if the literals are in lower case, and must be searched for in lower-cased text.
    pub(crate) fold: bool,
    /// True if a text that contains a literal is certain to match the expression.
    pub(crate) decides: bool,
}

/// The position that a literal must have in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Anywhere,
    Start,
    End,
    /// The literal is the whole text.
    Whole,
}

impl Needs {
    /// The literals of an expression; `None` if no useful ones exist.
    pub(crate) fn of(hir: &Hir) -> Option<Self> {
        let parts = parts_of(hir);
        let (begins, parts) = match parts.split_first() {
            Some((first, rest)) if is_look(first, Look::Start) => (true, rest),
            _ => (false, &*parts),
        };
        let (ends, parts) = match parts.split_last() {
            Some((last, rest)) if is_look(last, Look::End) => (true, rest),
            _ => (false, parts),
        };
        let mut best: Option<Self> = None;
        let mut from = 0;
        while from < parts.len() {
            let (run, length) = run_from(&parts[from..]);
            let place = match (begins && from == 0, ends && from + length == parts.len()) {
                (true, true) => Place::Whole,
                (true, false) => Place::Start,
                (false, true) => Place::End,
                (false, false) => Place::Anywhere,
            };
            let needs = Self::new(run, place, length == parts.len());
            // Longer literals are preferred, because they are rarer.
            if needs.shortest() > best.as_ref().map_or(0, Self::shortest) {
                best = Some(needs);
            }
            from += length.max(1);
        }
        best.filter(|needs| needs.decides || needs.shortest() >= MIN_TEXT)
    }

    fn new(run: Vec<Vec<Byte>>, place: Place, whole: bool) -> Self {
        let mut bytes = run.iter().flatten();
        let fold = bytes.any(|byte| byte.either);
        // True if some letters have a fixed case and others do not. The search ignores the case of all letters, so a
        // hit does not prove a match then.
        let mixed = fold && run.iter().flatten().any(|byte| !byte.either && byte.byte.is_ascii_alphabetic());
        let text = |text: &Vec<Byte>| -> Box<[u8]> {
            let bytes = text.iter().map(|byte| if fold { byte.byte.to_ascii_lowercase() } else { byte.byte });
            bytes.collect()
        };
        let mut texts: Vec<_> = run.iter().map(text).collect();
        texts.sort_unstable();
        texts.dedup();
        Self { texts, place, fold, decides: whole && !mixed }
    }

    /// The length of the shortest text; 0 if there is none.
    fn shortest(&self) -> usize {
        self.texts.iter().map(|text| text.len()).min().unwrap_or(0)
    }
}

/// A byte of a text.
#[derive(Clone, Copy, Debug)]
struct Byte {
    byte: u8,
    /// True for a letter that may be in either case; `byte` is the lower-case one.
    either: bool,
}

/// The consecutive parts of an expression, without the groups around them.
fn parts_of(hir: &Hir) -> Vec<&Hir> {
    match hir.kind() {
        HirKind::Capture(capture) => parts_of(&capture.sub),
        HirKind::Concat(parts) => parts.iter().flat_map(parts_of).collect(),
        _ => vec![hir],
    }
}

fn is_look(hir: &Hir, look: Look) -> bool {
    matches!(hir.kind(), HirKind::Look(found) if *found == look)
}

/// Finds the longest run of parts from the start that matches only a limited list of texts. Returns these texts and the
/// number of parts in the run.
fn run_from(parts: &[&Hir]) -> (Vec<Vec<Byte>>, usize) {
    let mut run = vec![Vec::new()];
    for (length, part) in parts.iter().enumerate() {
        match texts_of(part).and_then(|texts| join(&run, &texts)) {
            Some(longer) => run = longer,
            None => return (run, length),
        }
    }
    (run, parts.len())
}

/// All texts that an expression matches; `None` if there are too many, or if it is not a list of texts.
fn texts_of(hir: &Hir) -> Option<Vec<Vec<Byte>>> {
    match hir.kind() {
        HirKind::Empty => Some(vec![Vec::new()]),
        HirKind::Literal(literal) => {
            Some(vec![literal.0.iter().map(|byte| Byte { byte: *byte, either: false }).collect()])
        }
        HirKind::Class(class) => one_of(class),
        HirKind::Capture(capture) => texts_of(&capture.sub),
        HirKind::Repetition(repetition) if (repetition.min, repetition.max) == (0, Some(1)) => {
            let mut texts = texts_of(&repetition.sub)?;
            texts.push(Vec::new());
            Some(texts)
        }
        HirKind::Concat(parts) => {
            parts.iter().try_fold(vec![Vec::new()], |texts, part| join(&texts, &texts_of(part)?))
        }
        HirKind::Alternation(parts) => {
            let mut texts = Vec::new();
            for part in parts {
                texts.extend(texts_of(part)?);
                if texts.len() > MAX_TEXTS {
                    return None;
                }
            }
            Some(texts)
        }
        HirKind::Look(_) | HirKind::Repetition(_) => None,
    }
}

/// All texts that consist of one of `first` and one of `second`; `None` if there are too many.
fn join(first: &[Vec<Byte>], second: &[Vec<Byte>]) -> Option<Vec<Vec<Byte>>> {
    if first.len() * second.len() > MAX_TEXTS {
        return None;
    }
    let all = first.iter().flat_map(|first| second.iter().map(|second| [&first[..], second].concat()));
    Some(all.collect())
}

/// The texts that a class of bytes matches, if it is a few bytes or a letter in either case.
fn one_of(class: &Class) -> Option<Vec<Vec<Byte>>> {
    let Class::Bytes(class) = class else { return None };
    let mut bytes: Vec<u8> = Vec::new();
    for range in class.ranges() {
        if usize::from(range.end() - range.start()) + bytes.len() >= MAX_CHOICE {
            return None;
        }
        bytes.extend(range.start()..=range.end());
    }
    match &*bytes {
        [upper, lower] if upper.is_ascii_uppercase() && upper.to_ascii_lowercase() == *lower => {
            Some(vec![vec![Byte { byte: *lower, either: true }]])
        }
        _ => Some(bytes.into_iter().map(|byte| vec![Byte { byte, either: false }]).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex_automata::meta;
    use regex_automata::util::syntax;

    fn syntax() -> syntax::Config {
        syntax::Config::new().unicode(false).utf8(false)
    }

    fn needs(pattern: &str) -> Option<Needs> {
        Needs::of(&syntax::parse_with(pattern, &syntax()).unwrap())
    }

    /// Place, fold, whether they decide, and the texts.
    fn told(pattern: &str) -> String {
        needs(pattern).map_or_else(String::new, |needs| {
            let texts: Vec<_> = needs.texts.iter().map(|text| text.escape_ascii().to_string()).collect();
            format!("{:?} {} {} {}", needs.place, needs.fold, needs.decides, texts.join(" "))
        })
    }

    #[test]
    fn lists_of_words_are_found() {
        assert_eq!(told(r"\.(php|aspx?|jsp|cgi)$"), "End false true .asp .aspx .cgi .jsp .php");
        assert_eq!(told("(?i)(sqlmap|nikto)"), "Anywhere true true nikto sqlmap");
        assert_eq!(told("^/admin/"), "Start false true /admin/");
        assert_eq!(told("^(a|bc)$"), "Whole false true a bc");
        assert_eq!(told("(?i)^/wp-(login|admin)"), "Start true true /wp-admin /wp-login");
        assert_eq!(told("[ab]c"), "Anywhere false true ac bc");
        assert_eq!(told("a"), "Anywhere false true a");
    }

    #[test]
    fn of_the_rest_the_longest_is_taken() {
        assert_eq!(told("/user/[0-9]+/settings"), "Anywhere false false /settings");
        assert_eq!(told("^/user/[0-9]+/set$"), "Start false false /user/");
        assert_eq!(told("^/[0-9]+/picture$"), "End false false /picture");
        assert_eq!(told("a(?i:bcd)"), "Anywhere true false abcd");
    }

    #[test]
    fn what_is_no_list_of_texts_needs_nothing() {
        for pattern in
            ["", "a*", "^$", ".", "[a-z]+", "ab+", r"\bab\b", "(?m)^abc$|x", "a?", "(a|)b?", "[^a]"]
        {
            assert_eq!(told(pattern), "", "{pattern}");
        }
        assert!(needs(r"(?m:^)word").is_some_and(|needs| !needs.decides));
        assert!(needs(r"\bword\b").is_some_and(|needs| !needs.decides));
        assert_eq!(needs("(a|b|c|d)(a|b|c|d)(a|b|c|d)(a|b|c|d)"), None);
    }

    fn holds(needs: &Needs, text: &[u8]) -> bool {
        let text = if needs.fold { text.to_ascii_lowercase() } else { text.to_vec() };
        needs.texts.iter().any(|needed| match needs.place {
            Place::Anywhere => text.windows(needed.len()).any(|part| *part == **needed),
            Place::Start => text.starts_with(needed),
            Place::End => text.ends_with(needed),
            Place::Whole => *text == **needed,
        })
    }

    proptest::proptest! {
        #[test]
        fn it_says_what_the_expression_says(
            pattern in r"(\(\?i\))?\^?([abC]{1,3}|\(a\|bc\|cab\)|\[aC\]|c\?|\.|\(\?i:ab\)|\[a-c\]\+){1,4}\$?",
            texts in proptest::collection::vec("[abcABC]{0,8}", 1..20),
        ) {
            let regex = meta::Regex::builder().syntax(syntax()).build(&pattern).unwrap();
            let Some(needs) = needs(&pattern) else { return Ok(()) };
            for text in texts {
                let (matches, holds) = (regex.is_match(&text), holds(&needs, text.as_bytes()));
                proptest::prop_assert!(!matches || holds, "{text} matches {pattern} without what it needs");
                proptest::prop_assert!(!needs.decides || matches == holds, "{text} {pattern}");
            }
        }
    }
}

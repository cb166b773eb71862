//! Finds the literals of a pattern: a set of texts of which every match contains at least one.

use foldhash::HashSet;
use std::rc::Rc;

use regex_syntax::hir::{Class, Hir, HirKind, Repetition};

/// The longest literal, bytes. Longer ones are cut: they would hardly be rarer, and take more memory.
const MAX_LEN: usize = 8;
/// The most texts that the concatenation of two sets may have. If there would be more, one of the two sets is
/// used alone.
const MAX_PRODUCT: usize = 256;
/// The most texts in a set. A pattern that needs more has no set of literals.
const MAX_TEXTS: usize = 4096;
/// The highest expected frequency of the texts per byte of a value. Above it, a search for them is useless.
const MAX_FREQUENCY: f64 = 0.25;

/// A class of more bytes than this is used only if its expected frequency is at most [`MAX_FREQUENCY`].
const MAX_CLASS: usize = 16;

/// A set of texts in small letters. Every match of a pattern contains at least one of them, in any case.
#[derive(Clone, Debug, PartialEq)]
pub struct Literals {
    texts: Vec<Vec<u8>>,
    frequency: f64,
}

impl Literals {
    /// The literals for a list of words; `None` if there are no words, or if they are too many or too common for
    /// a search to be useful.
    pub fn of_words<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        Self::new(words.into_iter().map(<[u8]>::to_ascii_lowercase).collect()).useful()
    }

    fn new(mut texts: Vec<Vec<u8>>) -> Self {
        texts.sort_unstable();
        texts.dedup();
        let frequency = texts.iter().map(|text| frequency(text)).sum();
        Self { texts, frequency }
    }

    /// The texts. None is empty, and none contains another one.
    pub fn texts(&self) -> &[Vec<u8>] {
        &self.texts
    }

    /// The estimated frequency of the texts per byte of an ordinary value.
    pub fn frequency(&self) -> f64 {
        self.frequency
    }

    fn useful(mut self) -> Option<Self> {
        // An empty text would be found in every value.
        if self.texts.is_empty() || self.frequency > MAX_FREQUENCY {
            return None;
        }
        self.remove_longer();
        Some(self)
    }

    /// Removes texts that contain another text of the set: it is enough to search for the shorter one.
    fn remove_longer(&mut self) {
        let all: HashSet<Vec<u8>> = self.texts.iter().cloned().collect();
        let shortest = self.texts.iter().map(Vec::len).min().unwrap_or(0);
        let contains_other = |text: &Vec<u8>| {
            let len = text.len();
            (shortest..len).any(|part| text.windows(part).any(|part| all.contains(part)))
        };
        self.texts.retain(|text| !contains_other(text));
    }

    fn is_empty_text(&self) -> bool {
        self.texts.len() == 1 && self.texts[0].is_empty()
    }

    fn is_short(&self) -> bool {
        self.texts.iter().all(|text| text.len() <= MAX_LEN)
    }
}

/// The rarest set of literals for a pattern; `None` if no set is rare enough to be useful.
pub fn required(pattern: &Hir) -> Option<Literals> {
    Rc::unwrap_or_clone(facts(pattern).best()?).useful()
}

type Set = Option<Rc<Literals>>;

/// Sets of texts for a part of a pattern. Each set covers every match of the part; `None` if the set is not known.
#[derive(Clone, Default)]
struct Facts {
    /// The match is one of these texts.
    exact: Set,
    /// The match begins with one of these texts. Known if `exact` is.
    prefix: Set,
    /// The match ends with one of these texts. Known if `exact` is.
    suffix: Set,
    /// The match contains one of these texts.
    inner: Set,
}

impl Facts {
    fn exact(literals: Literals) -> Self {
        let literals = Rc::new(literals);
        Self {
            exact: literals.is_short().then(|| Rc::clone(&literals)),
            prefix: starts(Some(Rc::clone(&literals))),
            suffix: ends(Some(literals)),
            inner: None,
        }
    }

    fn nothing() -> Self {
        Self::exact(Literals::new(vec![Vec::new()]))
    }

    /// The rarest of the known sets.
    fn best(self) -> Set {
        rarest([self.exact, self.prefix, self.suffix, self.inner])
    }
}

fn facts(hir: &Hir) -> Facts {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Facts::nothing(),
        HirKind::Literal(literal) => Facts::exact(Literals::new(vec![literal.0.to_ascii_lowercase()])),
        HirKind::Class(class) => of_class(class).map(Facts::exact).unwrap_or_default(),
        HirKind::Repetition(repetition) => repeated(repetition),
        HirKind::Capture(capture) => facts(&capture.sub),
        HirKind::Concat(parts) => parts.iter().map(facts).fold(Facts::nothing(), behind),
        HirKind::Alternation(branches) => {
            let branches: Vec<_> = branches.iter().map(facts).collect();
            Facts {
                exact: union(branches.iter().map(|branch| branch.exact.clone())),
                prefix: union(branches.iter().map(|branch| branch.prefix.clone())),
                suffix: union(branches.iter().map(|branch| branch.suffix.clone())),
                inner: union(branches.into_iter().map(Facts::best)),
            }
        }
    }
}

fn repeated(repetition: &Repetition) -> Facts {
    let once = facts(&repetition.sub);
    match (repetition.min, repetition.max) {
        (0, Some(1)) => {
            let or_nothing = |exact: Rc<Literals>| {
                let mut texts = exact.texts.clone();
                texts.push(Vec::new());
                Facts::exact(Literals::new(texts))
            };
            once.exact.map(or_nothing).unwrap_or_default()
        }
        (0, _) => Facts::default(),
        (least, most) => {
            let copies = least.min(MAX_LEN as u32);
            let all = (1..copies).fold(once.clone(), |all, _| behind(all, once.clone()));
            let is_all = most == Some(least) && copies == least;
            Facts { exact: all.exact.filter(|_| is_all), ..all }
        }
    }
}

/// The facts about the concatenation of two parts.
fn behind(first: Facts, second: Facts) -> Facts {
    let joint = product(&first.suffix, &second.prefix);
    let inner = rarest([joint, first.inner, second.inner, first.suffix.clone(), second.prefix.clone()]);
    let exact = product(&first.exact, &second.exact).filter(|literals| literals.is_short());
    let prefix = match first.exact {
        Some(_) => starts(product(&first.exact, &second.prefix)).or(first.exact),
        None => first.prefix,
    };
    let suffix = match second.exact {
        Some(_) => ends(product(&first.suffix, &second.exact)).or(second.exact),
        None => second.suffix,
    };
    Facts { exact, prefix, suffix, inner }
}

fn starts(set: Set) -> Set {
    cut(set, |text| &text[..text.len().min(MAX_LEN)])
}

fn ends(set: Set) -> Set {
    cut(set, |text| &text[text.len().saturating_sub(MAX_LEN)..])
}

fn cut(set: Set, end: fn(&[u8]) -> &[u8]) -> Set {
    let literals = set?;
    if literals.is_short() {
        return Some(literals);
    }
    Some(Rc::new(Literals::new(literals.texts.iter().map(|text| end(text).to_vec()).collect())))
}

/// Each text of the first set followed by each text of the second; `None` if these would be too many.
fn product(first: &Set, second: &Set) -> Set {
    let (first, second) = (first.as_ref()?, second.as_ref()?);
    if first.is_empty_text() {
        return Some(Rc::clone(second));
    }
    if second.is_empty_text() {
        return Some(Rc::clone(first));
    }
    if first.texts.len() * second.texts.len() > MAX_PRODUCT {
        return None;
    }
    let behind =
        |start: &Vec<u8>| second.texts.iter().map(|end| [&start[..], end].concat()).collect::<Vec<_>>();
    Some(Rc::new(Literals::new(first.texts.iter().flat_map(behind).collect())))
}

fn union(sets: impl Iterator<Item = Set>) -> Set {
    let mut texts = Vec::new();
    for set in sets {
        texts.extend_from_slice(&set?.texts);
        if texts.len() > 2 * MAX_TEXTS {
            return None;
        }
    }
    let literals = Literals::new(texts);
    (literals.texts.len() <= MAX_TEXTS).then(|| Rc::new(literals))
}

fn rarest<const N: usize>(sets: [Set; N]) -> Set {
    let known = sets.into_iter().flatten();
    known.min_by(|first, second| first.frequency.total_cmp(&second.frequency))
}

/// The bytes of a class as texts. `None` if it is a class of characters rather than bytes, or if its bytes
/// are too common.
fn of_class(class: &Class) -> Option<Literals> {
    let Class::Bytes(class) = class else { return None };
    let bytes = || class.iter().flat_map(|range| range.start()..=range.end());
    let few = bytes().count() <= MAX_CLASS;
    if !few && bytes().map(|byte| byte_frequency(byte.to_ascii_lowercase())).sum::<f64>() > MAX_FREQUENCY {
        return None;
    }
    Some(Literals::new(bytes().map(|byte| vec![byte.to_ascii_lowercase()]).collect()))
}

/// The probability that a text begins at a given position of an ordinary value.
fn frequency(text: &[u8]) -> f64 {
    text.iter().map(|byte| byte_frequency(*byte)).product()
}

/// The estimated frequency of a byte in parameters, paths and fields of requests.
fn byte_frequency(byte: u8) -> f64 {
    const LETTERS: [f64; 26] = [
        0.06, 0.012, 0.03, 0.03, 0.09, 0.015, 0.015, 0.03, 0.055, 0.003, 0.006, 0.03, 0.02, 0.05, 0.055,
        0.02, 0.002, 0.045, 0.05, 0.06, 0.02, 0.008, 0.012, 0.004, 0.012, 0.003,
    ];
    match byte {
        b'a'..=b'z' => LETTERS[usize::from(byte - b'a')],
        b'0'..=b'9' => 0.015,
        b' ' => 0.03,
        b'/' | b'.' => 0.02,
        b'-' | b'=' => 0.012,
        b'_' | b',' => 0.008,
        b':' | b';' | b'"' | b'&' | b'%' => 0.004,
        b'(' | b')' | b'\'' | b'?' | b'*' | b'+' | b'@' | b'\n' => 0.002,
        0x80.. => 0.001,
        b'!'..=b'~' => 0.0008,
        _ => 0.0003,
    }
}

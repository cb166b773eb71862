//! A set of field names, exact and by prefix, that answers for a whole head in the time of a few comparisons.
//!
//! Exact names stand in one trie per length. A node does not walk the name byte by byte: it looks at the one position that
//! tells its names apart best, and skips the rest. Five bits of that byte (which are the same for `A` and `a`) select a
//! bit of a mask; a name whose bit is not set is no member, which is where most fields end, after one load. What arrives
//! at a leaf is compared once, eight bytes at a time, each word with a mask of the bits in which letters may differ in
//! case. Nothing is allocated and nothing is copied.
//!
//! Prefixes stand in an ordinary trie with compressed paths, behind a mask of their first bytes.

use alloc::vec::Vec;

/// The longest name or prefix that can be a member, bytes.
pub const LENGTH_LIMIT: usize = 255;

/// The most names and prefixes that a set can have.
pub const NAMES_LIMIT: usize = 8192;

/// A set of names and prefixes, without regard to case.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// For each length, where its trie begins.
    lengths: Vec<Link>,
    nodes: Vec<Node>,
    links: Vec<Link>,
    /// The words of all names, those of one name behind each other.
    words: Vec<Word>,
    /// How many names end in a leaf beyond the first; nearly always none.
    more: Vec<u16>,
    prefixes: Prefixes,
}

/// Where a trie goes on: nowhere, at a node, or at a leaf, which is the number of its first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Nowhere,
    Node(u16),
    Leaf { word: u32, more: bool },
}

/// Looks at one byte.
#[derive(Debug, Clone, Copy)]
struct Node {
    /// For each value of the byte's lower five bits, whether there is a link.
    mask: u32,
    /// The first of its links; they stand in the order of the bits.
    first: u16,
    /// Which byte.
    at: u8,
}

/// Eight bytes of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word {
    /// The bytes, in lower case.
    bytes: u64,
    /// 0x20 in every byte that is a letter.
    letters: u64,
}

impl Names {
    /// A set of exact names and of prefixes. Empty ones, and those beyond [`LENGTH_LIMIT`], are no members.
    ///
    /// Returns `None` if there are more than [`NAMES_LIMIT`].
    pub fn new<'n>(
        names: impl IntoIterator<Item = &'n [u8]>,
        prefixes: impl IntoIterator<Item = &'n [u8]>,
    ) -> Option<Self> {
        let lower = |names: Vec<&[u8]>| {
            let mut names: Vec<Vec<u8>> = names.into_iter().map(<[u8]>::to_ascii_lowercase).collect();
            names.retain(|name| (1..=LENGTH_LIMIT).contains(&name.len()));
            names.sort();
            names.dedup();
            names
        };
        let names = lower(names.into_iter().collect());
        let prefixes = lower(prefixes.into_iter().collect());
        if names.len() + prefixes.len() > NAMES_LIMIT {
            return None;
        }
        let mut set = Self { prefixes: Prefixes::new(&prefixes), ..Self::default() };
        let longest = names.iter().map(Vec::len).max().unwrap_or_default();
        set.lengths = (0..=longest)
            .map(|length| {
                let names: Vec<&[u8]> =
                    names.iter().filter(|name| name.len() == length).map(Vec::as_slice).collect();
                set.grow(&names)
            })
            .collect();
        Some(set)
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty() && self.prefixes.nodes.is_empty()
    }

    /// Whether a name is a member, or begins with a prefix that is one.
    #[inline]
    pub fn contains(&self, name: &[u8]) -> bool {
        self.contains_exact(name) || self.prefixes.begin(name)
    }

    #[inline]
    fn contains_exact(&self, name: &[u8]) -> bool {
        let mut link = match self.lengths.get(name.len()) {
            Some(link) => *link,
            None => return false,
        };
        loop {
            match link {
                Link::Nowhere => return false,
                Link::Leaf { word, more: false } => {
                    return self.words.get(word as usize..).is_some_and(|words| same(name, words));
                }
                Link::Leaf { word, more: true } => return self.any_of(name, word as usize),
                Link::Node(node) => {
                    let Some(node) = self.nodes.get(usize::from(node)) else { return false };
                    let Some(byte) = name.get(usize::from(node.at)) else { return false };
                    let bit = 1_u32 << (byte & 31);
                    if node.mask & bit == 0 {
                        return false;
                    }
                    let number = usize::from(node.first) + (node.mask & (bit - 1)).count_ones() as usize;
                    let Some(next) = self.links.get(number) else { return false };
                    link = *next;
                }
            }
        }
    }

    /// Names that differ in no position's lower five bits, such as `a-b` and `amb`.
    #[cold]
    fn any_of(&self, name: &[u8], word: usize) -> bool {
        let each = name.len().div_ceil(8);
        let more = self.more.get(word).copied().unwrap_or_default();
        (0..=usize::from(more))
            .any(|number| self.words.get(word + number * each..).is_some_and(|words| same(name, words)))
    }

    /// Adds the trie of names of one length.
    fn grow(&mut self, names: &[&[u8]]) -> Link {
        let Some(first) = names.first() else { return Link::Nowhere };
        let best = (0..first.len())
            .map(|at| (at, signature(names, at)))
            .max_by_key(|(at, mask)| (mask.count_ones(), usize::MAX - at));
        match best {
            Some((at, mask)) if names.len() > 1 && mask.count_ones() > 1 => self.grow_node(names, at, mask),
            _ => self.grow_leaf(names),
        }
    }

    fn grow_node(&mut self, names: &[&[u8]], at: usize, mask: u32) -> Link {
        let first = self.links.len();
        self.links.resize(first + mask.count_ones() as usize, Link::Nowhere);
        let node = self.nodes.len() as u16;
        self.nodes.push(Node { mask, first: first as u16, at: at as u8 });
        let bits = (0..32_u8).filter(|bit| mask >> bit & 1 == 1);
        for (number, bit) in bits.enumerate() {
            let below: Vec<&[u8]> = names.iter().copied().filter(|name| name[at] & 31 == bit).collect();
            self.links[first + number] = self.grow(&below);
        }
        Link::Node(node)
    }

    fn grow_leaf(&mut self, names: &[&[u8]]) -> Link {
        let word = self.words.len();
        for name in names {
            let letters: Vec<u8> =
                name.iter().map(|byte| if byte.is_ascii_alphabetic() { 0x20 } else { 0 }).collect();
            let pairs = words(name).zip(words(&letters));
            self.words.extend(pairs.map(|(bytes, letters)| Word { bytes, letters }));
        }
        self.more.resize(self.words.len(), 0);
        self.more[word] = (names.len() - 1) as u16;
        Link::Leaf { word: word as u32, more: names.len() > 1 }
    }
}

/// Which lower five bits the names have at a position.
fn signature(names: &[&[u8]], at: usize) -> u32 {
    names.iter().fold(0, |mask, name| mask | 1 << (name[at] & 31))
}

/// The words of a name: eight bytes each, the last one overlapping the one before it; a name of less than eight bytes has
/// one word, in which bytes may stand twice.
fn words(name: &[u8]) -> impl Iterator<Item = u64> {
    let (chunks, rest) = name.as_chunks::<8>();
    let last = match (rest.is_empty(), name.last_chunk::<8>()) {
        (true, _) => None,
        (false, Some(last)) => Some(u64::from_le_bytes(*last)),
        (false, None) => Some(short_word(name)),
    };
    chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).chain(last)
}

/// The word of a name of one to seven bytes.
#[inline]
fn short_word(name: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        return u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32;
    }
    match name {
        [a] => u64::from(*a),
        [a, b] => u64::from(u16::from_le_bytes([*a, *b])),
        [a, b, c] => u64::from(u32::from_le_bytes([*a, *b, *c, 0])),
        _ => 0,
    }
}

/// Whether a name is the one whose words begin here; it is known to have its length.
#[inline]
fn same(name: &[u8], words: &[Word]) -> bool {
    let Some(last) = name.last_chunk::<8>() else {
        let Some(word) = words.first() else { return false };
        return short_word(name) | word.letters == word.bytes;
    };
    let mut differ = 0;
    let mut words = words.iter();
    for (chunk, word) in name.as_chunks::<8>().0.iter().zip(&mut words) {
        differ |= (u64::from_le_bytes(*chunk) | word.letters) ^ word.bytes;
    }
    if !name.len().is_multiple_of(8)
        && let Some(word) = words.next()
    {
        differ |= (u64::from_le_bytes(*last) | word.letters) ^ word.bytes;
    }
    differ == 0
}

/// A trie of prefixes.
#[derive(Debug, Clone, Default)]
struct Prefixes {
    /// The lower five bits of their first bytes.
    firsts: u32,
    /// The length of the shortest.
    shortest: usize,
    nodes: Vec<PrefixNode>,
    /// The bytes of all labels, in lower case.
    labels: Vec<u8>,
    /// For each node, where its children go on: their first byte, and their number; sorted.
    children: Vec<(u8, u16)>,
}

/// A path that does not fork, and what comes behind it.
#[derive(Debug, Clone, Copy)]
struct PrefixNode {
    /// Where its label begins, and its length.
    label: (u32, u8),
    /// Where its children begin, and how many they are. None: a prefix ends here.
    children: (u16, u16),
}

impl Prefixes {
    /// `prefixes` are sorted, in lower case, and not empty.
    fn new(prefixes: &[Vec<u8>]) -> Self {
        // One that begins with another one says nothing new.
        let mut kept: Vec<&[u8]> = Vec::new();
        for prefix in prefixes {
            if !kept.last().is_some_and(|last| prefix.starts_with(last)) {
                kept.push(prefix);
            }
        }
        let mut set = Self {
            firsts: if kept.is_empty() { 0 } else { signature(&kept, 0) },
            shortest: kept.iter().map(|prefix| prefix.len()).min().unwrap_or_default(),
            ..Self::default()
        };
        if !kept.is_empty() {
            set.grow(&kept);
        }
        set
    }

    fn grow(&mut self, prefixes: &[&[u8]]) -> u16 {
        let (Some(first), Some(last)) = (prefixes.first(), prefixes.last()) else { return 0 };
        // Sorted: what the first and the last have in common all have.
        let common = first.iter().zip(*last).take_while(|(a, b)| a == b).count();
        let number = self.nodes.len();
        let label = (self.labels.len() as u32, common as u8);
        self.labels.extend(&first[..common]);
        self.nodes.push(PrefixNode { label, children: (0, 0) });
        let rests: Vec<&[u8]> = prefixes.iter().map(|prefix| &prefix[common..]).collect();
        if rests.iter().any(|rest| rest.is_empty()) {
            return number as u16;
        }
        let forks: Vec<&[&[u8]]> = rests.chunk_by(|a, b| a[0] == b[0]).collect();
        let start = self.children.len();
        self.children.extend(forks.iter().map(|fork| (fork[0][0], 0)));
        for (at, fork) in forks.iter().enumerate() {
            let child = self.grow(fork);
            self.children[start + at].1 = child;
        }
        self.nodes[number].children = (start as u16, forks.len() as u16);
        number as u16
    }

    /// Whether one of them begins a name.
    #[inline]
    fn begin(&self, name: &[u8]) -> bool {
        match name.first() {
            Some(first) if self.firsts >> (first & 31) & 1 == 1 && name.len() >= self.shortest => {
                self.walk(name)
            }
            _ => false,
        }
    }

    fn walk(&self, mut name: &[u8]) -> bool {
        let mut number = 0;
        loop {
            let Some(node) = self.nodes.get(usize::from(number)) else { return false };
            let (start, length) = (node.label.0 as usize, usize::from(node.label.1));
            let (Some(label), Some((head, rest))) =
                (self.labels.get(start..start + length), name.split_at_checked(length))
            else {
                return false;
            };
            if !head.eq_ignore_ascii_case(label) {
                return false;
            }
            name = rest;
            let (start, count) = (usize::from(node.children.0), usize::from(node.children.1));
            if count == 0 {
                return true;
            }
            let (Some(next), Some(children)) = (name.first(), self.children.get(start..start + count)) else {
                return false;
            };
            let next = next.to_ascii_lowercase();
            match children.binary_search_by_key(&next, |(byte, _)| *byte) {
                Ok(found) => number = children[found].1,
                Err(_) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use proptest::prelude::*;

    fn names(exact: &[&str], prefixes: &[&str]) -> Names {
        Names::new(exact.iter().map(|name| name.as_bytes()), prefixes.iter().map(|name| name.as_bytes()))
            .expect("few")
    }

    #[test]
    fn every_length_is_compared_in_whole() {
        let longest = "n".repeat(LENGTH_LIMIT);
        for length in 1..=LENGTH_LIMIT {
            let name = &longest[..length];
            let set = names(&[name], &[]);
            assert!(set.contains(name.as_bytes()), "{length}");
            assert!(set.contains(name.to_ascii_uppercase().as_bytes()), "{length}");
            for at in 0..length {
                let mut other = name.as_bytes().to_vec();
                other[at] = b'm';
                assert!(!set.contains(&other), "{length} bytes, another one at {at}");
            }
            assert!(!set.contains(&name.as_bytes()[1..]));
        }
        assert!(!names(&[&longest], &[]).contains("n".repeat(LENGTH_LIMIT + 1).as_bytes()));
        assert!(names(&["n".repeat(LENGTH_LIMIT + 1).as_str(), ""], &[""]).is_empty());
    }

    #[test]
    fn only_letters_have_two_cases() {
        let set = names(&["a^b", "x-1"], &["p_"]);
        assert!(set.contains(b"A^B"));
        assert!(!set.contains(b"a~b"));
        assert!(!set.contains(b"x-\x11"));
        assert!(set.contains(b"P_q") && set.contains(b"p_"));
        assert!(!set.contains(b"p\x7fq"));
    }

    #[test]
    fn names_that_no_node_tells_apart_share_a_leaf() {
        let set = names(&["a-b", "amb", "aMb"], &[]);
        assert!(set.contains(b"a-b") && set.contains(b"AMB"));
        assert!(!set.contains(b"a\x0db"));
    }

    #[test]
    fn prefixes_fork_and_swallow_longer_ones() {
        let set = names(&["x-in"], &["x-internal-", "x-inner-", "x-internal-deep-", "cf-"]);
        for member in ["x-in", "X-Internal-", "x-internal-a", "x-inner-b", "cf-ray", "CF-"] {
            assert!(set.contains(member.as_bytes()), "{member}");
        }
        for other in ["x-inn", "x-interna", "x-internal", "cf", "c", "", "x-inner"] {
            assert!(!set.contains(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_set_is_bounded() {
        let many: Vec<String> = (0..=NAMES_LIMIT).map(|number| alloc::format!("x-{number}")).collect();
        assert!(Names::new(many.iter().map(|name| name.as_bytes()), []).is_none());
        let set = Names::new(many[1..].iter().map(|name| name.as_bytes()), []).expect("at the limit");
        assert!(many[1..].iter().all(|name| set.contains(name.as_bytes())));
        assert!(!set.contains(b"x-0"));
        let set = Names::new([], many[1..].iter().map(|name| name.as_bytes())).expect("at the limit");
        assert!(many[1..].iter().all(|name| set.contains(name.as_bytes())));
    }

    /// Names made of few letters, so that they share beginnings and ends.
    fn name() -> impl Strategy<Value = String> {
        "[aAb\\-mM1^~_]{0,12}"
    }

    proptest! {
        #[test]
        fn it_says_what_a_naive_set_says(
            exact in prop::collection::vec(name(), 0..40),
            prefixes in prop::collection::vec(name(), 0..6),
            others in prop::collection::vec(name(), 0..40),
        ) {
            let set = Names::new(
                exact.iter().map(|name| name.as_bytes()),
                prefixes.iter().map(|name| name.as_bytes()),
            ).expect("few");
            let naive = |asked: &str| {
                let begins = |prefix: &String| !prefix.is_empty()
                    && asked.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix));
                exact.iter().any(|name| !name.is_empty() && name.eq_ignore_ascii_case(asked))
                    || prefixes.iter().any(begins)
            };
            for asked in exact.iter().chain(&prefixes).chain(&others) {
                prop_assert_eq!(set.contains(asked.as_bytes()), naive(asked), "{}", asked);
            }
        }

        #[test]
        fn any_bytes_can_be_asked_for(
            exact in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..20),
            asked in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let set = Names::new(exact.iter().map(Vec::as_slice), []).expect("few");
            let naive = |asked: &[u8]| exact.iter().any(|name| name.eq_ignore_ascii_case(asked));
            prop_assert_eq!(set.contains(&asked), naive(&asked));
            for name in &exact {
                prop_assert!(set.contains(name));
                prop_assert!(set.contains(&name.to_ascii_uppercase()));
            }
        }
    }
}

//! A set of field names, exact and by prefix, that answers for a whole head in the time of a few comparisons.
//!
//! An exact name of 8 to 32 bytes has its own slot in a small hash table, and is compared once. The hash is
//! computed from its first and last eight bytes. Names of other lengths, and names with colliding hashes, are in
//! one trie per length. A lookup in a trie does not walk the name byte by byte: a node reads only the two positions
//! that distinguish its names best, so the first node decides about nearly all names. Five bits, computed from
//! these two bytes, select one of 32 links; they are the same for `A` and `a`. The entry behind the link is
//! compared once, eight bytes at a time, with a mask of the bits in which upper and lower case letters differ. A
//! lookup allocates nothing and copies nothing.
//!
//! Prefixes are in an ordinary trie with compressed paths. Before a name is looked up there, a mask of the first
//! bytes of all prefixes excludes most names.
//!
//! `_` counts as `-`, because CGI programs do not distinguish them. Members are stored with `-`; a name with `_`,
//! which is rare, is respelt with `-` and looked up again.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// The longest name or prefix that can be a member, bytes.
pub const LENGTH_LIMIT: usize = 255;

/// The most names and prefixes that a set can have.
pub const NAMES_LIMIT: usize = 8192;

/// A set of names and prefixes, without regard to case; `_` counts as `-`.
#[derive(Debug, Clone, Default)]
pub struct NameSet {
    /// For each length of a name, the root of the trie; 0 is a node without links.
    lengths: Vec<u16>,
    nodes: Vec<Node>,
    /// The words of all names; the words of one name are adjacent.
    words: Vec<Word>,
    /// For the first word of a leaf, the number of further names in that leaf; nearly always 0.
    more: Vec<u16>,
    /// Maps the hash of a name of 8 to 32 bytes to the first word of the member with this hash. [`ASK`] if several members
    /// have the hash.
    direct: Direct,
    /// The multiplier of the hash function of `direct`.
    times: u64,
    prefixes: Prefixes,
}

/// For each hash, the length of a name, and the number of its leaf in the lower 16 bits.
#[derive(Debug, Clone)]
struct Direct(Box<[u32; 1 << DIRECT_BITS]>);

impl Default for Direct {
    fn default() -> Self {
        Self(Box::new([ASK; 1 << DIRECT_BITS]))
    }
}

/// The size of the direct table as a power of two: 2048 entries, 8 KiB.
const DIRECT_BITS: u32 = 11;
/// How many hash functions are tried to find one without collisions.
const TRIES: u64 = 512;
/// An entry of the direct table: the trie has to be searched.
const ASK: u32 = u32::MAX;

/// The index in the direct table for a name of 8 to 32 bytes, from its first and its last eight bytes. The case of
/// letters does not matter.
#[inline(always)]
fn place(first: u64, last: u64, times: u64) -> usize {
    const CASE: u64 = 0x2020_2020_2020_2020;
    let mixed = (first | CASE) ^ (last | CASE).rotate_left(23);
    (mixed.wrapping_mul(times) >> (64 - DIRECT_BITS)) as usize
}

/// A link of a trie: the number of a node, or the number of a leaf's first word. A missing link is
/// [`Link::NOWHERE`], a leaf that equals no name: comparing with it costs less than a mispredicted
/// branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Link(u32);

impl Link {
    const NOWHERE: Self = Self(0);
    const NODE: u32 = 1 << 31;
    /// The flag of a link to a leaf that has more than one name.
    const SHARED: u32 = 1 << 30;

    fn leaf(word: usize, names: usize) -> Self {
        Self(if names > 1 { Self::SHARED } else { 0 } | word as u32)
    }
}

/// A node reads two bytes of a name; five bits of their sum select the child to continue with. These bits are the
/// same for upper and lower case.
#[derive(Debug, Clone, Copy)]
struct Node {
    links: [Link; 32],
    look: Look,
}

/// The positions of the two bytes, and the factor of the second byte in their sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Look {
    first: u8,
    second: u8,
    times: u8,
}

impl Look {
    #[inline(always)]
    fn at(self, name: &[u8]) -> Option<usize> {
        let (first, second) = (name.get(usize::from(self.first))?, name.get(usize::from(self.second))?);
        Some(usize::from(first.wrapping_add(second.wrapping_mul(self.times)) & 31))
    }

    /// The number of links that these names would use.
    fn spread(self, names: &[&[u8]]) -> u32 {
        names.iter().filter_map(|name| self.at(name)).fold(0_u32, |mask, at| mask | 1 << at).count_ones()
    }

    /// The position that distinguishes names of one length best.
    fn best(names: &[&[u8]]) -> Self {
        /// The number of positions from which pairs are tried. These are the positions that distinguish the names best alone.
        const POSITIONS: usize = 12;
        let length = names.first().map_or(0, |name| name.len());
        let mut single: Vec<Self> =
            (0..length).map(|at| Self { first: at as u8, second: 0, times: 0 }).collect();
        single.sort_by_key(|look| 32 - look.spread(names));
        let mut best = single.first().copied().unwrap_or_default();
        let mut most = best.spread(names);
        single.truncate(POSITIONS);
        for (first, second) in
            single.iter().flat_map(|first| single.iter().map(move |second| (first, second)))
        {
            for times in [1, 2, 3, 5, 7, 11, 13] {
                let look = Self { first: first.first, second: second.first, times };
                if most as usize == names.len().min(32) {
                    return best;
                }
                if look.spread(names) > most {
                    (best, most) = (look, look.spread(names));
                }
            }
        }
        best
    }
}

/// Eight bytes of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word {
    /// The bytes, in lower case.
    bytes: u64,
    /// 0x20 in every byte that is a letter.
    letters: u64,
}

impl NameSet {
    /// A set of exact names and of prefixes. Empty ones, and those longer than [`LENGTH_LIMIT`], are left out.
    ///
    /// Returns `None` if there are more than [`NAMES_LIMIT`].
    pub fn new<'n>(
        names: impl IntoIterator<Item = &'n [u8]>,
        prefixes: impl IntoIterator<Item = &'n [u8]>,
    ) -> Option<Self> {
        let lower = |names: Vec<&[u8]>| {
            let spell = |name: &[u8]| name.iter().map(|byte| respelt(byte.to_ascii_lowercase())).collect();
            let mut names: Vec<Vec<u8>> = names.into_iter().map(spell).collect();
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
        // This word equals none: a byte that has the bit 0x20 set is never zero.
        let nowhere = Word { bytes: 0, letters: 0x2020_2020_2020_2020 };
        let mut set = Self {
            prefixes: Prefixes::new(&prefixes),
            nodes: Vec::from([Node { links: [Link::NOWHERE; 32], look: Look::default() }]),
            words: Vec::from([nowhere; 4]),
            ..Self::default()
        };
        let longest = names.iter().map(Vec::len).max().unwrap_or_default();
        set.lengths = (0..=longest)
            .map(|length| {
                let names: Vec<&[u8]> =
                    names.iter().filter(|name| name.len() == length).map(Vec::as_slice).collect();
                if names.is_empty() { 0 } else { set.grow(&names) }
            })
            .collect();
        set.place_all(&names);
        Some(set)
    }

    /// Returns true if there are no members.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() < 2 && self.prefixes.nodes.is_empty()
    }

    /// Returns true if a name is a member, or begins with a prefix of the set.
    #[inline(always)]
    pub fn contains(&self, name: &[u8]) -> bool {
        if may_have_underscore(name) {
            return self.contains_respelt(name);
        }
        self.contains_exact(name) || self.prefixes.begin(name)
    }

    /// The lookup for a name in which `_` has to count as `-`.
    #[cold]
    #[inline(never)]
    fn contains_respelt(&self, name: &[u8]) -> bool {
        let mut spelt = [0; LENGTH_LIMIT];
        for (to, from) in spelt.iter_mut().zip(name) {
            *to = respelt(*from);
        }
        // A name that is longer than any member can still begin with a prefix of the set.
        let start = spelt.get(..name.len()).unwrap_or(&spelt);
        (start.len() == name.len() && self.contains_exact(start)) || self.prefixes.begin(start)
    }

    #[inline(always)]
    fn contains_exact(&self, name: &[u8]) -> bool {
        if let Some(found) = four_words(name) {
            let entry = self.direct.0[place(found[0], found[3], self.times)];
            if entry != ASK {
                let word = (entry & 0xffff) as usize;
                let words = self.words.get(word..).and_then(|words| words.first_chunk::<4>());
                // Names of different lengths can have the same words, so the lengths are compared, too.
                return words.is_some_and(|words| are(found, words) & (entry >> 16 == name.len() as u32));
            }
        }
        self.contains_slowly(name)
    }

    /// The lookup in the trie.
    #[inline(never)]
    fn contains_slowly(&self, name: &[u8]) -> bool {
        let mut number = usize::from(self.lengths.get(name.len()).copied().unwrap_or_default());
        loop {
            let Some(node) = self.nodes.get(number) else { return false };
            let Some(at) = node.look.at(name) else { return false };
            let link = node.links[at & 31].0;
            if link & (Link::NODE | Link::SHARED) == 0 {
                return self.words.get(link as usize..).is_some_and(|words| same(name, words));
            }
            if link & Link::SHARED != 0 {
                return self.any_of(name, (link & !Link::SHARED) as usize);
            }
            number = (link & !Link::NODE) as usize;
        }
    }

    /// Looks a name up in a leaf with several names that no node can distinguish, such as `a-b` and `amb`.
    #[cold]
    fn any_of(&self, name: &[u8], word: usize) -> bool {
        let each = words(name).len();
        let more = self.more.get(word).copied().unwrap_or_default();
        (0..=usize::from(more))
            .any(|number| self.words.get(word + number * each..).is_some_and(|words| same(name, words)))
    }

    /// Gives each name of 8 to 32 bytes its slot in the direct table. Several hash functions are tried, and the one with
    /// the fewest collisions is used.
    fn place_all(&mut self, names: &[Vec<u8>]) {
        let ends: Vec<(u64, u64, u32)> = names
            .iter()
            .filter_map(|name| {
                let [first, _, _, last] = four_words(name)?;
                let word = self.leaf_of(name).and_then(|word| u16::try_from(word).ok());
                let word = word.map_or(ASK, |word| (name.len() as u32) << 16 | u32::from(word));
                Some((first, last, word))
            })
            .collect();
        let mut best = usize::MAX;
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..TRIES {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let times = seed | 1;
            let mut direct = Direct(Box::new([0; 1 << DIRECT_BITS]));
            let mut shared = 0;
            for (first, last, word) in &ends {
                let at = &mut direct.0[place(*first, *last, times)];
                shared += usize::from(*at != 0);
                *at = if *at == 0 { *word } else { ASK };
            }
            if shared < best {
                (best, self.direct, self.times) = (shared, direct, times);
            }
            // With so many names, every hash function has collisions: do not try more of them.
            if best == 0 || ends.len() > 1 << (DIRECT_BITS - 2) {
                return;
            }
        }
    }

    /// The first word of a member of 8 to 32 bytes; `None` if the member shares its leaf with another.
    fn leaf_of(&self, name: &[u8]) -> Option<usize> {
        let mut number = usize::from(*self.lengths.get(name.len())?);
        loop {
            let node = self.nodes.get(number)?;
            let link = node.links[node.look.at(name)? & 31].0;
            match link & (Link::NODE | Link::SHARED) {
                0 => return Some(link as usize),
                Link::NODE => number = (link & !Link::NODE) as usize,
                _ => return None,
            }
        }
    }

    /// Adds the trie of names of one length, and returns its root.
    fn grow(&mut self, names: &[&[u8]]) -> u16 {
        let look = Look::best(names);
        let number = self.nodes.len();
        self.nodes.push(Node { links: [Link::NOWHERE; 32], look });
        for at in 0..32 {
            let below: Vec<&[u8]> = names.iter().copied().filter(|name| look.at(name) == Some(at)).collect();
            self.nodes[number].links[at] = match below.len() {
                0 => Link::NOWHERE,
                // Some names differ only in bits that no [`Look`] reads; they share a leaf.
                count if count == 1 || Look::best(&below).spread(&below) < 2 => self.grow_leaf(&below),
                _ => Link(Link::NODE | u32::from(self.grow(&below))),
            };
        }
        number as u16
    }

    fn grow_leaf(&mut self, names: &[&[u8]]) -> Link {
        let word = self.words.len();
        for name in names {
            let letters: Vec<u8> =
                name.iter().map(|byte| if byte.is_ascii_alphabetic() { 0x20 } else { 0 }).collect();
            let pairs = words(name).into_iter().zip(words(&letters));
            self.words.extend(pairs.map(|(bytes, letters)| Word { bytes, letters }));
        }
        self.more.resize(self.words.len(), 0);
        self.more[word] = (names.len() - 1) as u16;
        Link::leaf(word, names.len())
    }
}

/// The words of a name, each of eight bytes. A name of 8 to 32 bytes always has four words, which overlap, so that the
/// comparison has no loop with an unpredictable end. A longer name has as many words as it needs. A name of less than
/// eight bytes has one word, in which bytes may occur twice.
fn words(name: &[u8]) -> Vec<u64> {
    if name.len() < 8 {
        return Vec::from([short_word(name)]);
    }
    match four_words(name) {
        Some(words) => words.into(),
        None => name
            .as_chunks::<8>()
            .0
            .iter()
            .chain(name.last_chunk())
            .map(|chunk| u64::from_le_bytes(*chunk))
            .collect(),
    }
}

/// The words of a name of 8 to 32 bytes.
#[inline(always)]
fn four_words(name: &[u8]) -> Option<[u64; 4]> {
    let (first, last) = (name.first_chunk::<8>()?, name.last_chunk::<8>()?);
    let end = name.len() - 8;
    if end > 24 {
        return None;
    }
    let (second, third) = (end.min(8), end.min(16));
    let (second, third) = (name.get(second..second + 8)?, name.get(third..third + 8)?);
    let word = |chunk: &[u8]| chunk.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk));
    Some([u64::from_le_bytes(*first), word(second), word(third), u64::from_le_bytes(*last)])
}

/// A byte of a name; `_` becomes `-`.
fn respelt(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte }
}

/// Returns true if a name contains a `_`, or certain bytes that cannot occur in a name. The test adds one to the lower
/// five bits of each byte. Of the bytes that can occur in a name, only `_` has all five bits set, so only `_` carries.
#[inline(always)]
fn may_have_underscore(name: &[u8]) -> bool {
    const LOWER: u64 = 0x1f1f_1f1f_1f1f_1f1f;
    const ONES: u64 = 0x0101_0101_0101_0101;
    const CARRIED: u64 = 0x2020_2020_2020_2020;
    let carried = |word: u64| (word & LOWER) + ONES;
    match four_words(name) {
        Some([a, b, c, d]) => (carried(a) | carried(b) | carried(c) | carried(d)) & CARRIED != 0,
        None if name.len() < 8 => carried(short_word(name)) & CARRIED != 0,
        None => name.contains(&b'_'),
    }
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

/// Returns true if a name equals the member with words that start at this index. The lengths must be equal.
#[inline(always)]
fn same(name: &[u8], words: &[Word]) -> bool {
    match (four_words(name), words.first_chunk()) {
        (Some(found), Some(words)) => are(found, words),
        (Some(_), None) => false,
        (None, _) => same_odd(name, words),
    }
}

/// Returns true if these are the words of a name.
#[inline(always)]
fn are(found: [u64; 4], words: &[Word; 4]) -> bool {
    let differ = |at: usize| (found[at] | words[at].letters) ^ words[at].bytes;
    differ(0) | differ(1) | differ(2) | differ(3) == 0
}

/// The comparison for names of less than 8 or more than 32 bytes.
#[inline(never)]
fn same_odd(name: &[u8], words: &[Word]) -> bool {
    if name.len() < 8 {
        return words.first().is_some_and(|word| short_word(name) | word.letters == word.bytes);
    }
    let chunks = name.as_chunks::<8>().0.iter().chain(name.last_chunk());
    chunks
        .zip(words)
        .fold(0, |differ, (chunk, word)| differ | ((u64::from_le_bytes(*chunk) | word.letters) ^ word.bytes))
        == 0
}

/// A trie of prefixes.
#[derive(Debug, Clone, Default)]
struct Prefixes {
    /// A mask with one bit for each value of the lower five bits of the prefixes' first bytes.
    firsts: u32,
    nodes: Vec<PrefixNode>,
    /// The bytes of all labels, in lower case.
    labels: Vec<u8>,
    /// For each node, the first bytes of its children with their numbers, sorted.
    children: Vec<(u8, u16)>,
}

/// A node of the trie of prefixes: a path without a fork, and the children after it.
#[derive(Debug, Clone, Copy)]
struct PrefixNode {
    /// The start of its label, and the length.
    label: (u32, u8),
    /// The start of its children, and their count. Without children, a prefix ends here.
    children: (u16, u16),
}

impl Prefixes {
    /// Builds the trie. The prefixes must be sorted, in lower case, and not empty.
    fn new(prefixes: &[Vec<u8>]) -> Self {
        // A prefix that begins with another prefix is redundant.
        let mut kept: Vec<&[u8]> = Vec::new();
        for prefix in prefixes {
            if !kept.last().is_some_and(|last| prefix.starts_with(last)) {
                kept.push(prefix);
            }
        }
        let mut set = Self {
            firsts: kept.iter().fold(0, |mask, prefix| mask | 1 << (prefix[0] & 31)),
            ..Self::default()
        };
        if !kept.is_empty() {
            set.grow(&kept);
        }
        set
    }

    fn grow(&mut self, prefixes: &[&[u8]]) -> u16 {
        let (Some(first), Some(last)) = (prefixes.first(), prefixes.last()) else { return 0 };
        // The prefixes are sorted, so the first bytes that the first and the last have in common are common to all.
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

    /// Returns true if a name begins with one of the prefixes.
    #[inline(always)]
    fn begin(&self, name: &[u8]) -> bool {
        let first = name.first().copied().unwrap_or_default();
        self.firsts >> (first & 31) & 1 == 1 && self.walk(name)
    }

    #[inline(never)]
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
    use alloc::format;
    use alloc::string::String;
    use proptest::prelude::*;

    fn names(exact: &[&str], prefixes: &[&str]) -> NameSet {
        NameSet::new(exact.iter().map(|name| name.as_bytes()), prefixes.iter().map(|name| name.as_bytes()))
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
    fn underscores_count_as_hyphens() {
        for length in 1..=LENGTH_LIMIT {
            let name = "n".repeat(length);
            for at in 0..length {
                let spelt = |byte: &str| [&name[..at], byte, &name[at + 1..]].concat();
                assert!(!may_have_underscore(spelt("-").as_bytes()));
                assert!(may_have_underscore(spelt("_").as_bytes()), "{length} bytes, at {at}");
                if at % 16 == 0 {
                    assert!(names(&[&spelt("-")], &[]).contains(spelt("_").as_bytes()));
                    assert!(names(&[], &[&spelt("_")]).contains(format!("{}x", spelt("-")).as_bytes()));
                }
            }
        }
        let set = names(&["x-internal-user", "x_remote_user"], &["x-team-"]);
        for member in ["X_Internal_User", "X-Internal_User", "X-Remote-User", "x-remote_user", "X_Team_Blue"]
        {
            assert!(set.contains(member.as_bytes()), "{member}");
        }
        for other in ["X_Internal_Users", "XInternal_User", "x_team", "_"] {
            assert!(!set.contains(other.as_bytes()), "{other}");
        }
        assert!(set.contains(format!("x_team_{}", "n".repeat(LENGTH_LIMIT)).as_bytes()));
        assert!(names(&[], &["x-"]).contains(b"x_") && !names(&[], &["x-"]).contains(b""));
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
        assert!(NameSet::new(many.iter().map(|name| name.as_bytes()), []).is_none());
        let set = NameSet::new(many[1..].iter().map(|name| name.as_bytes()), []).expect("at the limit");
        assert!(many[1..].iter().all(|name| set.contains(name.as_bytes())));
        assert!(!set.contains(b"x-0"));
        let set = NameSet::new([], many[1..].iter().map(|name| name.as_bytes())).expect("at the limit");
        assert!(many[1..].iter().all(|name| set.contains(name.as_bytes())));
    }

    /// NameSet made of few letters, so that they share beginnings and ends.
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
            let set = NameSet::new(
                exact.iter().map(|name| name.as_bytes()),
                prefixes.iter().map(|name| name.as_bytes()),
            ).expect("few");
            let naive = |asked: &str| {
                let asked = asked.replace('_', "-");
                let begins = |prefix: &String| !prefix.is_empty()
                    && asked.get(..prefix.len())
                        .is_some_and(|head| head.eq_ignore_ascii_case(&prefix.replace('_', "-")));
                let is = |name: &String| name.replace('_', "-").eq_ignore_ascii_case(&asked);
                exact.iter().any(|name| !name.is_empty() && is(name)) || prefixes.iter().any(begins)
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
            let set = NameSet::new(exact.iter().map(Vec::as_slice), []).expect("few");
            let spelt = |name: &[u8]| -> Vec<u8> { name.iter().map(|byte| respelt(*byte)).collect() };
            let naive = |asked: &[u8]| {
                exact.iter().any(|name| spelt(name).eq_ignore_ascii_case(&spelt(asked)))
            };
            prop_assert_eq!(set.contains(&asked), naive(&asked));
            for name in &exact {
                prop_assert!(set.contains(name));
                prop_assert!(set.contains(&name.to_ascii_uppercase()));
            }
        }
    }
}

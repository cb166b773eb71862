//! One pass over one field that finds the rules that may match.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::ControlFlow;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::Candidates;
use super::anchor::{Anchor, Frequencies, Input, Member, Test, Texts, Which, anchor};
use super::contains::Literals;
use super::tables::{Affixes, Ranges, Rules};
use crate::facts::{Facts, Value};
use crate::predicate::Predicate;
use crate::program::Cond;
use crate::scheme::FieldId;

/// The most bytes of literals in all automata together; an automaton takes several times as much memory. Rules with
/// literals that exceed this are evaluated one by one.
const MAX_AUTOMATON: usize = 4 * 1024 * 1024;

/// A rule with a lower [`Cond::cost`] is evaluated directly, unless other rules share its scan.
const DIRECT: u32 = 50;

/// A pass over one field.
#[derive(Debug)]
pub(super) struct Scan {
    first: u32,
    reader: Reader,
}

#[derive(Debug)]
enum Reader {
    Text(Box<TextScan>),
    Address(FieldId, Box<AddressScan>),
    Number(FieldId, HashMap<i64, Rules, RandomState>),
}

/// All tests of the same texts, so that the texts are read only once.
#[derive(Debug)]
struct TextScan {
    of: Texts,
    /// The tests of the texts as they are.
    plain: Option<Tests>,
    /// The tests of the texts in lower case.
    folded: Option<Tests>,
}

/// The tests of a text.
#[derive(Debug, Default)]
struct Tests {
    present: Rules,
    whole: HashMap<Box<[u8]>, Rules, RandomState>,
    /// The lengths that occur among the whole texts, as a bit mask. The last bit stands for all lengths from 63 on.
    lengths: u64,
    starts: Option<Affixes>,
    ends: Option<Affixes>,
    contains: Option<Literals>,
    members: Vec<(Member, Rules)>,
}

#[derive(Debug)]
struct AddressScan {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
    members: Vec<(Member, Rules)>,
}

/// The scans and single rules of a set, in the order of their execution.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Scans and single rules, sorted by the first rule that each concerns. If two have the same first rule, scans come
    /// before single rules.
    pub(super) turns: Box<[Turn]>,
    /// For each rule, the meaning of a hit by a scan.
    pub(super) meaning: Box<[Meaning]>,
}

#[derive(Debug)]
pub(super) enum Turn {
    Scan(Scan),
    /// A rule that is visited even if no scan names it.
    Rule(u32),
}

impl Turn {
    pub(super) fn rule(&self) -> u32 {
        match self {
            Self::Scan(scan) => scan.first,
            Self::Rule(rule) => *rule,
        }
    }
}

/// The meaning of a hit for a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The rule may match.
    Maybe,
    /// The rule matches.
    Matches,
    /// The rule does not match. Without a hit, it matches.
    Fails,
}

/// A rule with the tests for which a scan searches.
struct SearchedRule<'a> {
    rule: u32,
    tests: Vec<(&'a Input, &'a Test)>,
    meaning: Meaning,
}

pub(super) fn plan(rules: &[Predicate]) -> Plan {
    let anchors: Vec<Option<(Anchor, Meaning)>> = rules.iter().map(anchored).collect();
    let mut frequencies = Frequencies::default();
    anchors.iter().flatten().for_each(|(anchor, _)| frequencies.count(anchor));
    let mut scanned = Vec::new();
    let mut always = Vec::new();
    let mut automaton = 0;
    for (rule, anchor) in (0..).zip(&anchors) {
        let Some((anchor, meaning)) = anchor else {
            always.push(rule);
            continue;
        };
        let (_, tests) = frequencies.rarest(anchor);
        let literals =
            tests.iter().map(|(_, test)| if let Test::Contains(text) = test { text.len() } else { 0 });
        let more: usize = literals.sum();
        if more > 0 && automaton + more > MAX_AUTOMATON {
            always.push(rule);
            continue;
        }
        automaton += more;
        scanned.push(SearchedRule { rule, tests, meaning: *meaning });
    }
    let mut sharers: HashMap<&Input, usize> = HashMap::new();
    for anchored in &scanned {
        let inputs: BTreeSet<&Input> = anchored.tests.iter().map(|(input, _)| *input).collect();
        inputs.into_iter().for_each(|input| *sharers.entry(input).or_default() += 1);
    }
    let mut inputs: BTreeMap<&Input, Vec<(&Test, u32)>> = BTreeMap::new();
    let mut meanings = vec![Meaning::Maybe; rules.len()];
    for SearchedRule { rule, tests, meaning } in scanned {
        let shares = tests.iter().any(|(input, _)| sharers.get(input).is_some_and(|count| *count > 1));
        let cost = rules.get(rule as usize).map_or(0, |rule| rule.root().cost());
        // A scan that no other rule shares is worth its cost only for an expensive rule.
        if !shares && !tests.is_empty() && cost < DIRECT {
            always.push(rule);
            continue;
        }
        if let Some(known) = meanings.get_mut(rule as usize) {
            *known = meaning;
        }
        if meaning == Meaning::Fails {
            always.push(rule);
        }
        for (input, test) in tests {
            inputs.entry(input).or_default().push((test, rule));
        }
    }
    finish(inputs, always, meanings)
}

/// Makes a scan for each input, and sorts scans and single rules by the first rule that each concerns.
fn finish(
    inputs: BTreeMap<&Input, Vec<(&Test, u32)>>,
    mut always: Vec<u32>,
    mut meanings: Vec<Meaning>,
) -> Plan {
    let mut scans: Vec<Scan> = Vec::with_capacity(inputs.len());
    for (input, tests) in inputs {
        if Scan::add(&mut scans, input, &tests).is_none() {
            for (_, rule) in tests {
                always.push(rule);
                if let Some(meaning) = meanings.get_mut(rule as usize) {
                    *meaning = Meaning::Maybe;
                }
            }
        }
    }
    always.sort_unstable();
    always.dedup();
    let rules = always.into_iter().map(Turn::Rule);
    let mut turns: Vec<Turn> = scans.into_iter().map(Turn::Scan).chain(rules).collect();
    turns.sort_by_key(Turn::rule);
    Plan { turns: turns.into(), meaning: meanings.into() }
}

/// The anchor of a rule, and the meaning of a hit.
fn anchored(rule: &Predicate) -> Option<(Anchor, Meaning)> {
    if let Cond::Not(inner) = rule.root() {
        return anchor(inner, None).filter(Anchor::decides).map(|anchor| (anchor, Meaning::Fails));
    }
    let anchor = anchor(rule.root(), None)?;
    let meaning = if anchor.decides() { Meaning::Matches } else { Meaning::Maybe };
    Some((anchor, meaning))
}

impl Scan {
    /// Adds a scan. If the last scan reads the same texts in the other form (as they are, or in lower case), that scan
    /// is extended instead. `None` if the automaton would be too large.
    fn add(scans: &mut Vec<Self>, input: &Input, tests: &[(&Test, u32)]) -> Option<()> {
        let first = tests.iter().map(|(_, rule)| *rule).min()?;
        let reader = match input {
            Input::Text { of, fold } => {
                let tests = Some(Tests::new(tests)?);
                // Inputs are sorted, so the plain and the lower-case tests of the same texts come one after the other.
                if let Some(Self { first: known, reader: Reader::Text(scan) }) = scans.last_mut()
                    && scan.of == *of
                {
                    *if *fold { &mut scan.folded } else { &mut scan.plain } = tests;
                    *known = first.min(*known);
                    return Some(());
                }
                let (plain, folded) = if *fold { (None, tests) } else { (tests, None) };
                Reader::Text(Box::new(TextScan { of: of.clone(), plain, folded }))
            }
            Input::Address(field) => Reader::Address(*field, Box::new(AddressScan::new(tests))),
            Input::Number(field) => {
                let mut numbers: HashMap<i64, Rules, _> = HashMap::default();
                for (test, rule) in tests {
                    if let Test::Number(number) = test {
                        numbers.entry(*number).or_default().push(*rule);
                    }
                }
                Reader::Number(*field, numbers)
            }
        };
        scans.push(Self { first, reader });
        Some(())
    }

    /// Adds the rules with tests that hold. They may be in any order and occur several times.
    pub(super) fn run(&self, facts: &dyn Facts, found: &mut Candidates) {
        match &self.reader {
            Reader::Text(scan) => scan.run(facts, found),
            Reader::Address(field, scan) => {
                if let Some(address) = facts.ip(*field) {
                    scan.find(address, found);
                }
            }
            Reader::Number(field, numbers) => {
                if let Some(rules) = facts.int(*field).and_then(|number| numbers.get(&number)) {
                    name(rules, found);
                }
            }
        }
    }
}

fn member(members: &mut Vec<(Member, Rules)>, member: &Member, rule: u32) {
    match members.iter_mut().find(|(known, _)| known == member) {
        Some((_, rules)) => rules.push(rule),
        None => members.push((member.clone(), Rules::from_slice(&[rule]))),
    }
}

impl TextScan {
    fn run(&self, facts: &dyn Facts, found: &mut Candidates) {
        let Texts { field, name, which } = &self.of;
        if let (Which::At(0), Some(name)) = (which, name) {
            if let Some(Value::Bytes(text)) = facts.first(*field, name) {
                self.find(&text, found);
            }
            return;
        }
        let mut skip = match which {
            Which::Only => {
                if let Some(text) = facts.bytes(*field) {
                    self.find(&text, found);
                }
                return;
            }
            Which::At(at) => Some(*at),
            // All values are tested, because each may name other rules.
            Which::Each => None,
        };
        let _ = facts.each(*field, name.as_deref(), &mut |value| {
            match &mut skip {
                Some(at @ 1..) => *at -= 1,
                skip => {
                    if let Value::Bytes(text) = value {
                        self.find(&text, found);
                    }
                    if skip.is_some() {
                        return ControlFlow::Break(());
                    }
                }
            }
            ControlFlow::Continue(())
        });
    }

    fn find(&self, text: &[u8], found: &mut Candidates) {
        if let Some(tests) = &self.plain {
            tests.find(text, found);
        }
        if let Some(tests) = &self.folded {
            if text.iter().any(u8::is_ascii_uppercase) {
                let mut folded: SmallVec<[u8; 256]> = SmallVec::from_slice(text);
                folded.make_ascii_lowercase();
                return tests.find(&folded, found);
            }
            tests.find(text, found);
        }
    }
}

/// Adds rules to `found`. There is nearly always at most one rule.
#[inline]
pub(super) fn name(rules: &[u32], found: &mut Candidates) {
    rules.iter().for_each(|rule| found.push(*rule));
}

/// The bit of a length.
fn length_bit(text: &[u8]) -> u64 {
    1 << text.len().min(63)
}

impl Tests {
    /// Compiles tests. `None` if the automaton would be too large.
    fn new(tests: &[(&Test, u32)]) -> Option<Self> {
        let mut made = Self::default();
        let (mut starts, mut ends, mut contains) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let add = |texts: &mut BTreeMap<Box<[u8]>, Rules>, text: &[u8], rule| match texts.get_mut(text) {
            Some(rules) => rules.push(rule),
            None => {
                texts.insert(text.into(), Rules::from_slice(&[rule]));
            }
        };
        for (test, rule) in tests {
            match test {
                Test::Present => made.present.push(*rule),
                Test::Is(text) => {
                    made.lengths |= length_bit(text);
                    made.whole.entry(text.clone()).or_default().push(*rule);
                }
                Test::StartsWith(text) => add(&mut starts, text, *rule),
                Test::EndsWith(text) => add(&mut ends, text, *rule),
                Test::Contains(text) => add(&mut contains, text, *rule),
                Test::Member(set) => member(&mut made.members, set, *rule),
                Test::Within(_) | Test::Number(_) => {}
            }
        }
        if !contains.is_empty() {
            made.contains = Some(Literals::new(contains)?);
        }
        made.starts = (!starts.is_empty()).then(|| Affixes::new(starts, false));
        made.ends = (!ends.is_empty()).then(|| Affixes::new(ends, true));
        Some(made)
    }

    fn find(&self, text: &[u8], found: &mut Candidates) {
        name(&self.present, found);
        if self.lengths & length_bit(text) != 0
            && let Some(rules) = self.whole.get(text)
        {
            name(rules, found);
        }
        if let Some(starts) = &self.starts {
            starts.find(text, found);
        }
        if let Some(ends) = &self.ends {
            ends.find(text, found);
        }
        for (set, rules) in &self.members {
            let holds = match set {
                Member::Texts(texts) => texts.contains(text),
                Member::List(list) => list.contains_text(text),
            };
            if holds {
                name(rules, found);
            }
        }
        if let Some(literals) = &self.contains {
            literals.find(text, found);
        }
    }
}

impl AddressScan {
    fn new(tests: &[(&Test, u32)]) -> Self {
        let (mut members, mut v4, mut v6) = (Vec::new(), Vec::new(), Vec::new());
        let narrow = |bits: u128| u32::try_from(bits).unwrap_or(u32::MAX);
        for (test, rule) in tests {
            match test {
                Test::Within(range) if range.v4 => {
                    v4.push((narrow(range.first), narrow(range.last), *rule));
                }
                Test::Within(range) => v6.push((range.first, range.last, *rule)),
                Test::Member(set) => member(&mut members, set, *rule),
                _ => {}
            }
        }
        Self { v4: Ranges::new(v4), v6: Ranges::new(v6), members }
    }

    fn find(&self, address: IpAddr, found: &mut Candidates) {
        match address.to_canonical() {
            IpAddr::V4(address) => self.v4.find(address.to_bits(), found),
            IpAddr::V6(address) => self.v6.find(address.to_bits(), found),
        }
        for (set, rules) in &self.members {
            if let Member::List(list) = set
                && list.contains_ip(address)
            {
                name(rules, found);
            }
        }
    }
}

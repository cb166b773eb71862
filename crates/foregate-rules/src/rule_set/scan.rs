//! One pass over one field that finds the rules that may match.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::ops::ControlFlow;

use aho_corasick::{AhoCorasick, AhoCorasickKind, packed};
use foldhash::fast::RandomState;

use super::Candidates;
use super::anchor::{Anchor, Frequencies, Input, Member, Test, anchor};
use super::tables::{Affixes, Networks, Rules};
use crate::facts::{Facts, Value};
use crate::predicate::Predicate;
use crate::scheme::FieldId;
use crate::sets::IpRange;

/// The most bytes of literals in one automaton, which takes several times as much. Rules with literals beyond it are
/// evaluated one by one.
const MAX_AUTOMATON: usize = 4 * 1024 * 1024;

/// Found rules are sorted and counted once each whenever they have become twice as many and more than this.
const COMPACT_FROM: usize = 4096;

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

#[derive(Debug)]
struct TextScan {
    field: FieldId,
    name: Option<Box<[u8]>>,
    many: bool,
    fold: bool,
    whole: HashMap<Box<[u8]>, Rules, RandomState>,
    starts: Option<Affixes>,
    ends: Option<Affixes>,
    contains: Option<Literals>,
    members: Vec<(Member, Rules)>,
}

/// What a text may contain.
#[derive(Debug)]
struct Literals {
    /// Says whether there is any of them, many bytes at a time; most texts have none. Only for a few dozen.
    any: Option<packed::Searcher>,
    automaton: AhoCorasick,
    rules: Vec<Rules>,
}

#[derive(Debug)]
struct AddressScan {
    v4: Networks<u32>,
    v6: Networks<u128>,
    members: Vec<(Member, Rules)>,
}

/// How rules are found.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// By the first rule that they may name.
    pub(super) scans: Box<[Scan]>,
    /// Those that no scan is for, in order.
    pub(super) always: Box<[u32]>,
    /// For each rule, whether it matches if a scan names it.
    pub(super) decided: Box<[bool]>,
}

pub(super) fn plan(rules: &[Predicate]) -> Plan {
    let anchors: Vec<Option<Anchor>> = rules.iter().map(|rule| anchor(rule.root(), None)).collect();
    let mut frequencies = Frequencies::default();
    anchors.iter().flatten().for_each(|anchor| frequencies.count(anchor));
    let mut inputs: BTreeMap<&Input, Vec<(&Test, u32)>> = BTreeMap::new();
    let mut always = Vec::new();
    let mut automaton = 0;
    for (rule, anchor) in (0..).zip(&anchors) {
        let Some(anchor) = anchor else {
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
        for (input, test) in tests {
            inputs.entry(input).or_default().push((test, rule));
        }
    }
    let mut scans = Vec::with_capacity(inputs.len());
    for (input, tests) in inputs {
        match Scan::new(input, &tests) {
            Some(scan) => scans.push(scan),
            None => always.extend(tests.iter().map(|(_, rule)| *rule)),
        }
    }
    always.sort_unstable();
    always.dedup();
    scans.sort_by_key(|scan| scan.first);
    let mut decided: Box<[bool]> =
        anchors.iter().map(|anchor| anchor.as_ref().is_some_and(Anchor::decides)).collect();
    for rule in &always {
        if let Some(decided) = decided.get_mut(*rule as usize) {
            *decided = false;
        }
    }
    Plan { scans: scans.into(), always: always.into(), decided }
}

impl Scan {
    /// `None` if there cannot be one: the automaton would be too large.
    fn new(input: &Input, tests: &[(&Test, u32)]) -> Option<Self> {
        let first = tests.iter().map(|(_, rule)| *rule).min()?;
        let reader = match input {
            Input::Text { field, name, many, fold } => {
                let mut scan = TextScan::new(tests)?;
                (scan.field, scan.name, scan.many, scan.fold) = (*field, name.clone(), *many, *fold);
                Reader::Text(Box::new(scan))
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
        Some(Self { first, reader })
    }

    /// The first rule that it may name.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Adds the rules that may match, in any order and perhaps several times.
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
                    found.extend_from_slice(rules);
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
    fn new(tests: &[(&Test, u32)]) -> Option<Self> {
        let mut whole: HashMap<Box<[u8]>, Rules, _> = HashMap::default();
        let (mut starts, mut ends, mut contains) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut members = Vec::new();
        let add = |texts: &mut BTreeMap<Box<[u8]>, Rules>, text: &[u8], rule| match texts.get_mut(text) {
            Some(rules) => rules.push(rule),
            None => {
                texts.insert(text.into(), Rules::from_slice(&[rule]));
            }
        };
        for (test, rule) in tests {
            match test {
                Test::Is(text) => whole.entry(text.clone()).or_default().push(*rule),
                Test::StartsWith(text) => add(&mut starts, text, *rule),
                Test::EndsWith(text) => add(&mut ends, text, *rule),
                Test::Contains(text) => add(&mut contains, text, *rule),
                Test::Member(set) => member(&mut members, set, *rule),
                Test::Within(_) | Test::Number(_) => {}
            }
        }
        let contains = match contains.is_empty() {
            true => None,
            false => Some(Literals::new(contains)?),
        };
        Some(Self {
            field: FieldId(0),
            name: None,
            many: false,
            fold: false,
            starts: (!starts.is_empty()).then(|| Affixes::new(starts, false)),
            ends: (!ends.is_empty()).then(|| Affixes::new(ends, true)),
            whole,
            contains,
            members,
        })
    }

    fn run(&self, facts: &dyn Facts, found: &mut Candidates) {
        if !self.many {
            if let Some(text) = facts.bytes(self.field) {
                self.find(&text, found);
            }
            return;
        }
        // Does not break: every value may name other rules.
        let _ = facts.each(self.field, self.name.as_deref(), &mut |value| {
            if let Value::Bytes(text) = value {
                self.find(&text, found);
            }
            ControlFlow::Continue(())
        });
    }

    fn find(&self, text: &[u8], found: &mut Candidates) {
        if self.fold && text.iter().any(u8::is_ascii_uppercase) {
            return self.find_folded(&text.to_ascii_lowercase(), found);
        }
        self.find_folded(text, found);
    }

    fn find_folded(&self, text: &[u8], found: &mut Candidates) {
        if let Some(rules) = self.whole.get(text) {
            found.extend_from_slice(rules);
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
                found.extend_from_slice(rules);
            }
        }
        if let Some(literals) = &self.contains {
            literals.find(text, found);
        }
    }
}

impl Literals {
    /// `None` if the automaton would be too large.
    fn new(texts: BTreeMap<Box<[u8]>, Rules>) -> Option<Self> {
        // Several texts at one place are all wanted, which excludes the kinds of match that find one.
        let kind = (texts.len() > 100).then_some(AhoCorasickKind::ContiguousNFA);
        let automaton = AhoCorasick::builder().kind(kind).build(texts.keys()).ok()?;
        let any = packed::Searcher::new(texts.keys());
        Some(Self { any, automaton, rules: texts.into_values().collect() })
    }

    fn find(&self, text: &[u8], found: &mut Candidates) {
        if self.any.as_ref().is_some_and(|any| any.find(text).is_none()) {
            return;
        }
        // A text that repeats itself names the same rules again and again.
        let mut compact_at = COMPACT_FROM.max(found.len() * 2);
        for hit in self.automaton.find_overlapping_iter(text) {
            if let Some(rules) = self.rules.get(hit.pattern().as_usize()) {
                found.extend_from_slice(rules);
            }
            if found.len() > compact_at {
                found.sort_unstable();
                found.dedup();
                compact_at = COMPACT_FROM.max(found.len() * 2);
            }
        }
    }
}

impl AddressScan {
    fn new(tests: &[(&Test, u32)]) -> Self {
        let mut members = Vec::new();
        let (mut v4, mut v6): (Vec<(IpRange, u32)>, Vec<_>) = (Vec::new(), Vec::new());
        for (test, rule) in tests {
            match test {
                Test::Within(range) if range.v4 => v4.push((*range, *rule)),
                Test::Within(range) => v6.push((*range, *rule)),
                Test::Member(set) => member(&mut members, set, *rule),
                _ => {}
            }
        }
        let narrow = |bits: u128| u32::try_from(bits).unwrap_or(u32::MAX);
        Self { v4: Networks::new(&v4, 32, narrow), v6: Networks::new(&v6, 128, |bits| bits), members }
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
                found.extend_from_slice(rules);
            }
        }
    }
}

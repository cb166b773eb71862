//! Evaluates many rules over one request, and shares the work between them.
//!
//! Most rules require something rare, such as a certain host or network. One such condition of a rule is chosen as its
//! *anchor*. The anchors of all rules over one field form one *scan*: a hash table for whole texts, sorted tables for
//! prefixes and suffixes, a tree for ranges of addresses, and an automaton for substrings. A scan names the rules whose
//! anchors hold. Only these rules are evaluated, in their order, together with the rules without an anchor, and with
//! cheap rules that would be the only users of a scan. If the anchor is the whole rule or its negation, the scan alone
//! decides. The cost of a request depends on the number of scans, not on the number of rules.

mod anchor;
mod contains;
mod scan;
mod tables;

use std::ops::ControlFlow;

use smallvec::SmallVec;

use crate::facts::Facts;
use crate::limits::{MAX_COMPILED_PATTERNS, MAX_RULES};
use crate::predicate::Predicate;
use scan::{Meaning, Plan, Turn};

/// The rules to evaluate. There are rarely more than a few in one request. If there are many, they are on the heap.
type Candidates = SmallVec<[u32; 64]>;

/// Removes the next rule if `is_next` returns true for it.
#[inline]
fn pop_if(named: &mut Candidates, is_next: impl Fn(u32) -> bool) -> Option<u32> {
    let next = *named.last()?;
    if is_next(next) { named.pop() } else { None }
}

/// The reason why rules cannot form a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleSetError {
    /// More than [`MAX_RULES`].
    #[error("there are more than {MAX_RULES} rules")]
    TooMany,
    /// The patterns of the rules up to this one take more than [`MAX_COMPILED_PATTERNS`]. The position counts from 0,
    /// but the message counts from 1.
    #[error("up to rule {} the patterns of the rules take more than {MAX_COMPILED_PATTERNS} bytes", .0 + 1)]
    Patterns(usize),
}

/// An ordered set of rules.
///
/// ```
/// use std::ops::ControlFlow;
/// use foregate_rules::{FactTable, Lists, RuleSet, Scheme, Stage};
///
/// let scheme = Scheme::standard();
/// let texts = [r#"http.host eq "a.example""#, "ssl", r#"http.host in {"a.example" "b.example"}"#];
/// let rules = texts.map(|text| scheme.compile(text, Stage::Request, &Lists::new()).unwrap());
/// let rules = RuleSet::new(rules)?;
///
/// let mut facts = FactTable::new(&scheme);
/// facts.set("http.host", "a.example");
/// let mut matched = Vec::new();
/// let flow = rules.each_match(&facts, |index| {
///     matched.push(index);
///     ControlFlow::<()>::Continue(())
/// });
/// assert_eq!((flow, matched), (ControlFlow::Continue(()), vec![0, 2]));
/// # Ok::<(), foregate_rules::RuleSetError>(())
/// ```
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Box<[Predicate]>,
    plan: Plan,
}

impl RuleSet {
    /// Compiles rules, in their order.
    ///
    /// # Errors
    ///
    /// There are too many rules, or their patterns take too much memory.
    pub fn new(rules: impl IntoIterator<Item = Predicate>) -> Result<Self, RuleSetError> {
        let rules: Box<[Predicate]> = rules.into_iter().take(MAX_RULES + 1).collect();
        if rules.len() > MAX_RULES {
            return Err(RuleSetError::TooMany);
        }
        let mut memory = 0_usize;
        for (index, rule) in rules.iter().enumerate() {
            memory = memory.saturating_add(rule.pattern_memory());
            if memory > MAX_COMPILED_PATTERNS {
                return Err(RuleSetError::Patterns(index));
            }
        }
        let plan = scan::plan(&rules);
        Ok(Self { plan, rules })
    }

    /// Calls `visit` for each rule that matches, in order, with the rule's position from 0. Stops when `visit` breaks;
    /// further rules are not evaluated. Returns the last result of `visit`.
    pub fn each_match<B>(
        &self,
        facts: &dyn Facts,
        mut visit: impl FnMut(usize) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        // Sorted in reverse order, so that the next rule is the last entry.
        let mut named = Candidates::new();
        for turn in &self.plan.turns {
            let rule = turn.rule();
            while let Some(before) = pop_if(&mut named, |named| named < rule) {
                self.visit_named(before, facts, &mut visit)?;
            }
            match turn {
                Turn::Scan(scan) => {
                    let before = named.len();
                    scan.run(facts, &mut named);
                    if named.len() > before {
                        named.sort_unstable_by(|left, right| right.cmp(left));
                        named.dedup();
                    }
                }
                Turn::Rule(rule) => {
                    let is_named = pop_if(&mut named, |named| named == *rule).is_some();
                    let matches = match self.meaning(*rule) {
                        Meaning::Fails => !is_named,
                        Meaning::Matches if is_named => true,
                        Meaning::Maybe | Meaning::Matches => self.matches(*rule, facts),
                    };
                    if matches {
                        visit(*rule as usize)?;
                    }
                }
            }
        }
        while let Some(rule) = named.pop() {
            self.visit_named(rule, facts, &mut visit)?;
        }
        ControlFlow::Continue(())
    }

    /// Visits a rule that scans have named, if it matches.
    #[inline]
    fn visit_named<B>(
        &self,
        rule: u32,
        facts: &dyn Facts,
        visit: &mut impl FnMut(usize) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let matches = match self.meaning(rule) {
            Meaning::Matches => true,
            Meaning::Maybe => self.matches(rule, facts),
            Meaning::Fails => false,
        };
        if matches { visit(rule as usize) } else { ControlFlow::Continue(()) }
    }

    fn meaning(&self, rule: u32) -> Meaning {
        self.plan.meaning.get(rule as usize).copied().unwrap_or(Meaning::Maybe)
    }

    fn matches(&self, rule: u32, facts: &dyn Facts) -> bool {
        self.rules.get(rule as usize).is_some_and(|rule| rule.matches(facts))
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[Predicate] {
        &self.rules
    }

    /// The number of rules that have to be evaluated for every request, because no scan can exclude them.
    #[must_use]
    pub fn unscanned(&self) -> usize {
        let each = self.plan.turns.iter();
        each.filter(|turn| matches!(turn, Turn::Rule(rule) if self.meaning(*rule) != Meaning::Fails)).count()
    }
}

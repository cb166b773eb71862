//! Tells if a rule that only sets variables of `TX` reports an attack or exempts the request, by the rules
//! that read these variables.

use super::compile_pattern;
use crate::engine::tx::leading_number;
use crate::model::{
    Action, Change, Disruptive, Link, Number, Operator, Phase, Problem, Rule, RuleSet, Selector, SetVar,
    Target, Template, Variable, WritableCollection,
};
use crate::operator::TextTest;
use crate::scan::{Pattern, PatternOptions};
use crate::transform::UnicodeMap;

/// All tests of variables of `TX`. The first kind is in rules that stop a request or add to a score, the second kind in
/// rules that exempt a request. A rule that sets a variable to a value for which a test of the first kind holds may
/// report an attack. Other assignments may exempt the request.
#[derive(Debug)]
pub(super) struct Marks<'a>(Vec<VariableTest<'a>>);

/// A test of variables of `TX` in a rule.
#[derive(Debug)]
struct VariableTest<'a> {
    /// The time of the test: the phase and the position of the rule.
    when: (Phase, usize),
    /// The consequence of a match.
    then: AfterMark,
    link: &'a Link,
    target: &'a Target,
    /// The pattern of the target's selector, if it has one.
    names: Option<Pattern>,
    /// The pattern of the operator, if it has one.
    pattern: Option<Pattern>,
    /// The map of `%uXXXX` codes to characters.
    map: Option<&'a UnicodeMap>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterMark {
    /// The rule stops the request; it has no other conditions.
    Stops,
    /// The rule brings the request closer to being stopped: it adds to a score, or stops the request under
    /// further conditions.
    Nears,
    /// The rule exempts the request from other rules.
    Lets,
}

impl AfterMark {
    /// The consequence of a rule, if it has one of these.
    fn of(rule: &Rule) -> Option<Self> {
        let mut actions = rule.links.iter().flat_map(|link| &link.actions);
        match rule.disruptive {
            _ if rule.phase == Phase::Logging => None,
            Disruptive::Allow(_) => Some(Self::Lets),
            Disruptive::Pass if rule.skip_to.is_some() => Some(Self::Lets),
            Disruptive::Pass if adds(rule) => Some(Self::Nears),
            Disruptive::Pass => actions.any(|action| matches!(action, Action::Ctl(_))).then_some(Self::Lets),
            _ if rule.links.len() == 1 => Some(Self::Stops),
            _ => Some(Self::Nears),
        }
    }
}

impl<'a> Marks<'a> {
    /// The marks of all rules of a set.
    pub(super) fn of(set: &'a RuleSet) -> Result<Self, Problem> {
        let mut looks = Vec::new();
        for (at, rule) in set.rules.iter().enumerate() {
            let Some(then) = AfterMark::of(rule) else { continue };
            for link in &rule.links {
                for target in link.targets.iter().filter(|target| target.variable == Variable::Tx) {
                    let without_case = PatternOptions { ignore_case: true, ..PatternOptions::default() };
                    looks.push(VariableTest {
                        when: (rule.phase, at),
                        then,
                        link,
                        target,
                        names: match &target.selector {
                            Some(Selector::Regex(regex)) => {
                                Some(compile_pattern(regex, without_case, &link.place)?)
                            }
                            _ => None,
                        },
                        pattern: match &link.operator {
                            Operator::Rx(regex) => {
                                Some(compile_pattern(regex, PatternOptions::default(), &link.place)?)
                            }
                            _ => None,
                        },
                        map: set.settings.unicode_map.as_deref(),
                    });
                }
            }
        }
        Ok(Self(looks))
    }

    /// Returns true if the assignments of a rule can only bring a request closer to being stopped. A test with an
    /// unknown outcome counts as an exemption.
    pub(super) fn are_set_by(&self, at: usize, rule: &Rule) -> bool {
        let (mut stops, mut some, mut all) = (false, false, true);
        for action in rule.links.iter().flat_map(|link| &link.actions) {
            let Action::SetVar(SetVar { collection: WritableCollection::Tx, name, change }) = action else {
                continue;
            };
            let value = match change {
                Change::Set(value) => value.literal().map(Some),
                Change::Unset => Some(None),
                Change::Add(_) | Change::Subtract(_) => None,
            };
            let (Some(name), Some(value)) = (name.literal(), value) else {
                all = false;
                continue;
            };
            for look in self.0.iter().filter(|look| look.when > (rule.phase, at) && look.sees(name)) {
                let holds = look.holds(value);
                match look.then {
                    AfterMark::Lets if holds != Some(false) => return false,
                    AfterMark::Lets => continue,
                    AfterMark::Stops => stops |= holds == Some(true),
                    AfterMark::Nears => {}
                }
                some |= holds == Some(true);
                all &= holds == Some(true);
            }
        }
        stops || some && all
    }
}

/// Returns true if a rule adds to a variable of `TX`.
fn adds(rule: &Rule) -> bool {
    let mut actions = rule.links.iter().flat_map(|link| &link.actions);
    actions.any(|action| {
        matches!(
            action,
            Action::SetVar(SetVar { collection: WritableCollection::Tx, change: Change::Add(_), .. })
        )
    })
}

impl VariableTest<'_> {
    /// Returns true if the test reads the variable with this name.
    fn sees(&self, name: &str) -> bool {
        let is_left_out = self.link.exclusions.iter().any(|out| {
            out.variable == Variable::Tx
                && match &out.selector {
                    Some(Selector::Name(other)) => other.eq_ignore_ascii_case(name),
                    // An exclusion by a pattern is ignored: the test counts as reading the variable.
                    Some(_) => false,
                    None => true,
                }
        });
        !is_left_out
            && match &self.target.selector {
                Some(Selector::Name(other)) => other.eq_ignore_ascii_case(name),
                _ => self.names.as_ref().is_none_or(|names| names.is_match(name.as_bytes())),
            }
    }

    /// Evaluates the link for this value of the variable; `None` if the result is unknown.
    fn holds(&self, value: Option<&str>) -> Option<bool> {
        let is_one = matches!(self.target.selector, Some(Selector::Name(_)));
        match value {
            _ if self.link.multi_match => None,
            Some(_) if self.target.count && is_one => self.passes("1"),
            None if self.target.count && is_one => self.passes("0"),
            // The target may have further values. The outcome is known if it is the same for one value as for very many
            // values.
            Some(_) if self.target.count => {
                let few = self.passes("1");
                few.filter(|few| self.passes("1000000") == Some(*few))
            }
            None if self.target.count => None,
            Some(value) => self.passes(value),
            None => Some(false),
        }
    }

    /// Evaluates the operator with its negation; `None` if the outcome depends on the request.
    fn passes(&self, value: &str) -> Option<bool> {
        let mut value = value.as_bytes().to_vec();
        for transformation in &self.link.transformations {
            value = transformation.apply_with(&value, self.map).into_owned();
        }
        let text = |test: TextTest, text: &Template| Some(test.passes(&value, text.literal()?.as_bytes()));
        let passes = match &self.link.operator {
            Operator::Unconditional => true,
            Operator::Never => false,
            Operator::Rx(_) => self.pattern.as_ref()?.is_match(&value),
            Operator::Contains(other) | Operator::StrMatch(other) => text(TextTest::Contains, other)?,
            Operator::ContainsWord(other) => text(TextTest::ContainsWord, other)?,
            Operator::BeginsWith(other) => text(TextTest::BeginsWith, other)?,
            Operator::EndsWith(other) => text(TextTest::EndsWith, other)?,
            Operator::StrEq(other) => text(TextTest::Equals, other)?,
            Operator::Within(other) => text(TextTest::Within, other)?,
            Operator::Compare(comparison, Number::Fixed(number)) => {
                comparison.holds(leading_number(&value), *number)
            }
            _ => return None,
        };
        Some(passes != self.link.negated)
    }
}

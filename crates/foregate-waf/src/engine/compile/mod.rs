//! Compiles the model to a plan.

mod effects;
mod fold;
mod interests;
mod marks;
mod targets;

use std::cell::OnceCell;
use std::sync::Arc;

use super::bits::Bits;
use super::chains::{Chains, Node, RAW};
use super::expression::{Expression, ExpressionPiece};
use super::limits::TransactionLimits;
use super::plan::{Amount, NameTable, PhasePlan, Pick, Plan, PlanLink, PlanRule, ValueSource};
use super::store::Store;
use super::tx::Names;
use super::values::FAMILIES;
use crate::model::{
    self, Disruptive, Index, Macro, Number, Operator, Phase, Place, Problem, RuleSet, Template,
};
use crate::operator::{Checksum, Test, TextTest, table};
use crate::scan::{Pattern, PatternOptions, Words};

/// The error for too many candidates of a phase, names, nodes and the like: the plan numbers them with 16 bits.
const TOO_MANY: &str = "the rules use more names or chains of transformations than a plan can hold (65,534)";

/// Compiles a set of rules. If `prefilter` is false, every rule looks at every value of its targets. The
/// results are the same, which tests check.
pub(super) fn compile(
    set: RuleSet,
    limits: TransactionLimits,
    store: Arc<Store>,
    prefilter: bool,
) -> Result<Plan, Problem> {
    let mut compiler = Compiler {
        names: Names::default(),
        tables: std::array::from_fn(|_| NameTable::default()),
        chains: Chains::default(),
        used: Bits::new(model::Variable::ALL.len()),
        set: &set,
        marks: marks::Marks::of(&set)?,
        index: OnceCell::new(),
    };
    // The captures `TX.0` to `TX.9` are added first, so that the number of a capture is also its slot.
    for digit in b'0'..=b'9' {
        compiler.names.intern(&[digit]);
    }
    let mut rules = Vec::with_capacity(set.rules.len());
    for (at, rule) in set.rules.iter().enumerate() {
        rules.push(compiler.rule(at, rule)?);
    }
    compiler.resolve_patterns(&mut rules);
    let Compiler { names, tables, chains, used, .. } = compiler;
    let mut plan = Plan {
        rules,
        plain: <[PhasePlan; 5]>::default(),
        folded: <[PhasePlan; 5]>::default(),
        chains,
        names,
        tables,
        used,
        settings: set.settings,
        store,
        limits,
    };
    fold::plan(&mut plan);
    interests::add(&mut plan, prefilter)?;
    Ok(plan)
}

/// State of the compilation.
struct Compiler<'a> {
    names: Names,
    tables: [NameTable; FAMILIES],
    chains: Chains,
    used: Bits,
    set: &'a RuleSet,
    marks: marks::Marks<'a>,
    /// An index of the rule set, made for the first rule that refers to others.
    index: OnceCell<Index>,
}

impl Compiler<'_> {
    fn rule(&mut self, at: usize, rule: &model::Rule) -> Result<PlanRule, Problem> {
        let links = rule.links.iter().map(|link| self.link(link)).collect::<Result<Box<[PlanLink]>, _>>()?;
        let lets_through = effects::lets_through(at, rule, &links, &self.marks);
        let mut text = |template: &Template| self.expression(template, &rule.place);
        let message = rule.message.as_ref().map(&mut text).transpose()?;
        let data = rule.data.as_ref().map(&mut text).transpose()?;
        let tags = rule.tags.iter().map(&mut text).collect::<Result<_, _>>()?;
        let redirect = match &rule.disruptive {
            Disruptive::Redirect { to, .. } => Some(text(to)?),
            _ => None,
        };
        Ok(PlanRule { about: rule.clone(), links, message, data, tags, lets_through, redirect })
    }

    fn link(&mut self, link: &model::Link) -> Result<PlanLink, Problem> {
        let node = self.node(&link.transformations, &link.place)?;
        let steps: Box<[Node]> = if link.multi_match {
            std::iter::once(RAW).chain(self.chains.path(node)).collect()
        } else {
            Box::default()
        };
        Ok(PlanLink {
            targets: self.targets(link)?,
            test: self.test(link)?,
            negated: link.negated,
            node,
            steps,
            capture: link.capture,
            effects: link
                .actions
                .iter()
                .filter_map(|action| self.effect(action, &link.place).transpose())
                .collect::<Result<_, _>>()?,
        })
    }

    fn node(&mut self, chain: &[model::Transformation], place: &Place) -> Result<Node, Problem> {
        self.chains.intern(chain).ok_or_else(|| problem(place, TOO_MANY))
    }

    fn test(&mut self, link: &model::Link) -> Result<Test, Problem> {
        let place = &link.place;
        let options = PatternOptions { captures: link.capture, ..PatternOptions::default() };
        let pattern = |regex: &model::Regex| compile_pattern(regex, options, place).map(Box::new);
        Ok(match &link.operator {
            Operator::Unconditional => Test::Always,
            Operator::Never => Test::Never,
            Operator::Rx(regex) => Test::Rx(pattern(regex)?),
            Operator::RxGlobal(regex) => Test::RxGlobal(pattern(regex)?),
            Operator::VerifyCreditCard(regex) => Test::Checked(Checksum::CreditCard, pattern(regex)?),
            Operator::VerifyCpf(regex) => Test::Checked(Checksum::Cpf, pattern(regex)?),
            Operator::VerifySsn(regex) => Test::Checked(Checksum::Ssn, pattern(regex)?),
            Operator::VerifySvnr(regex) => Test::Checked(Checksum::Svnr, pattern(regex)?),
            Operator::Pm(phrases) => Test::Phrases(Box::new(search(phrases, place)?)),
            Operator::Contains(text) | Operator::StrMatch(text) => {
                self.text(TextTest::Contains, text, place)?
            }
            Operator::ContainsWord(text) => self.text(TextTest::ContainsWord, text, place)?,
            Operator::BeginsWith(text) => self.text(TextTest::BeginsWith, text, place)?,
            Operator::EndsWith(text) => self.text(TextTest::EndsWith, text, place)?,
            Operator::StrEq(text) => self.text(TextTest::Equals, text, place)?,
            Operator::Within(text) => self.text(TextTest::Within, text, place)?,
            Operator::Compare(comparison, number) => Test::Compare(*comparison, self.amount(number, place)?),
            Operator::IpMatch(networks) => Test::Networks(Arc::clone(networks)),
            Operator::DetectSqli => Test::Sqli,
            Operator::DetectXss => Test::Xss,
            Operator::ValidateByteRange(bytes) => Test::Bytes(table(bytes)),
            Operator::ValidateUrlEncoding => Test::UrlEncoding,
            Operator::ValidateUtf8Encoding => Test::Utf8,
        })
    }

    fn text(&mut self, test: TextTest, text: &Template, place: &Place) -> Result<Test, Problem> {
        Ok(Test::Text(test, self.expression(text, place)?))
    }

    fn amount(&mut self, number: &Number, place: &Place) -> Result<Amount, Problem> {
        Ok(match number {
            Number::Fixed(number) => Amount::Fixed(*number),
            Number::Computed(text) => {
                let text = self.expression(text, place)?;
                match text.slot() {
                    Some(slot) => Amount::Slot(slot),
                    None => Amount::Made(text),
                }
            }
        })
    }

    fn expression(&mut self, template: &Template, place: &Place) -> Result<Expression, Problem> {
        if let Some(text) = template.literal() {
            return Ok(Expression::Fixed(text.as_bytes().into()));
        }
        let pieces = template.pieces().iter().map(|piece| match piece {
            model::Piece::Text(text) => Ok(ExpressionPiece::Text(text.as_bytes().into())),
            model::Piece::Macro(Macro { variable, name }) => {
                let source = targets::source(*variable, None);
                self.mark_used(*variable);
                match (source, name) {
                    (ValueSource::Tx, Some(name)) => {
                        Ok(ExpressionPiece::Tx(self.slot(name.as_bytes(), place)?))
                    }
                    (_, Some(name)) => {
                        Ok(ExpressionPiece::Value(source, self.named(source, name.as_bytes(), place)?))
                    }
                    (_, None) => Ok(ExpressionPiece::Value(source, Pick::All)),
                }
            }
        });
        Ok(Expression::Pieces(pieces.collect::<Result<_, Problem>>()?))
    }

    fn slot(&mut self, name: &[u8], place: &Place) -> Result<u16, Problem> {
        self.names.intern(name).ok_or_else(|| problem(place, TOO_MANY))
    }

    fn mark_used(&mut self, variable: model::Variable) {
        self.used.insert(targets::canonical(variable) as usize);
    }
}

fn compile_pattern(regex: &model::Regex, options: PatternOptions, place: &Place) -> Result<Pattern, Problem> {
    Pattern::new(regex.text().as_bytes(), options)
        .map_err(|error| problem(place, &format!("the pattern cannot be used: {error}")))
}

fn search(phrases: &model::Phrases, place: &Place) -> Result<Words, Problem> {
    Words::new(phrases.iter())
        .map_err(|error| problem(place, &format!("the phrases cannot be searched for: {error}")))
}

fn problem(place: &Place, message: &str) -> Problem {
    Problem { place: place.clone(), message: message.to_owned(), suggestion: None }
}

/// The positions of a phase's rules in the set.
fn of_phase(plan: &Plan, phase: Phase) -> impl Iterator<Item = usize> + '_ {
    plan.rules.iter().enumerate().filter(move |(_, rule)| rule.about.phase == phase).map(|(at, _)| at)
}

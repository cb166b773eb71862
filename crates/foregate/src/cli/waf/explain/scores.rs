//! The amounts that matching rules add to variables, such as the anomaly score.

use std::collections::BTreeMap;

use foregate_waf::engine::Transaction;
use foregate_waf::model::{
    Action, Change, Macro, Number, Rule, RuleSet, SetVar, Variable, WritableCollection,
};
use serde::Serialize;

/// The variables of a transaction to which rules add, with the amounts.
pub(super) struct Scores {
    /// The values of the macros in amounts. Rules set them before any rule scores.
    amounts: BTreeMap<String, i64>,
    /// The final values of the variables.
    totals: BTreeMap<String, String>,
    sums: BTreeMap<String, i64>,
}

/// One addition to a variable.
#[derive(Debug, Serialize)]
pub(super) struct ScoreAddition {
    pub(super) variable: String,
    pub(super) by: i64,
    /// The sum of the additions so far.
    pub(super) comes_to: i64,
}

impl Scores {
    /// Collects the values from a transaction after all phases except the last.
    pub(super) fn new(set: &RuleSet, transaction: &Transaction) -> Self {
        let (mut amounts, mut totals) = (BTreeMap::new(), BTreeMap::new());
        for (name, amount) in set.rules.iter().flat_map(additions) {
            let variable = |name: &str| {
                transaction.variable(name).map(|text| String::from_utf8_lossy(&text).into_owned())
            };
            if let Some(source) = source(amount) {
                let number = variable(source).and_then(|text| text.trim().parse().ok()).unwrap_or(0);
                amounts.insert(source.to_ascii_lowercase(), number);
            }
            if let Some(text) = variable(name) {
                totals.insert(name.to_ascii_lowercase(), text);
            }
        }
        Self { amounts, totals, sums: BTreeMap::new() }
    }

    /// Returns the additions that one match of this rule makes, and adds them to the sums.
    pub(super) fn add(&mut self, rule: &Rule) -> Vec<ScoreAddition> {
        let mut steps = Vec::new();
        for (name, amount) in additions(rule) {
            let by = match (amount, source(amount)) {
                (Number::Fixed(number), _) => *number,
                (_, Some(source)) => self.amounts.get(&source.to_ascii_lowercase()).copied().unwrap_or(0),
                (_, None) => continue,
            };
            if by == 0 {
                continue;
            }
            let name = name.to_ascii_lowercase();
            let sum = self.sums.entry(name.clone()).or_insert(0);
            *sum = sum.saturating_add(by);
            steps.push(ScoreAddition { variable: format!("tx.{name}"), by, comes_to: *sum });
        }
        steps
    }

    /// The variables to which matches added, with their final values.
    pub(super) fn totals(&self) -> Vec<(String, String)> {
        let added = |(name, _): &(&String, &String)| self.sums.contains_key(*name);
        let totals = self.totals.iter().filter(added);
        totals.map(|(name, value)| (format!("tx.{name}"), value.clone())).collect()
    }
}

/// The variables of the transaction that a rule adds to, with the amounts.
fn additions(rule: &Rule) -> impl Iterator<Item = (&str, &Number)> {
    let actions = rule.links.iter().flat_map(|link| &link.actions);
    actions.filter_map(|action| match action {
        Action::SetVar(SetVar { collection: WritableCollection::Tx, name, change: Change::Add(amount) }) => {
            Some((name.literal()?, amount))
        }
        _ => None,
    })
}

/// The variable from which the amount is taken; `None` if the amount is a constant or a longer text.
fn source(amount: &Number) -> Option<&str> {
    let Number::Computed(text) = amount else { return None };
    match text.macros().next() {
        Some(Macro { variable: Variable::Tx, name: Some(name) }) if text.pieces().len() == 1 => Some(name),
        _ => None,
    }
}

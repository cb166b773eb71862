//! `foregate waf check`.

use std::collections::BTreeMap;

use clap::Args;
use foregate_waf::model::{EngineMode, RuleSet, Template};
use foregate_waf::seclang::needs;
use serde::Serialize;

use super::super::arguments::Json;
use super::super::output::{Outcome, print, print_json};
use super::{ProblemReport, line, rules};

#[derive(Debug, Args)]
pub(in super::super) struct WafCheck {
    /// Files of rules, in the order in which they hold; `*` and `?` stand for parts of names
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    output: Json,
}

/// The counts of rules.
#[derive(Debug, Serialize)]
struct RuleCounts<'s> {
    ok: bool,
    /// The value of `SecRuleEngine`; `None` if no directive sets it.
    engine: Option<&'static str>,
    /// The values of `SecComponentSignature`.
    components: &'s [Box<str>],
    rules: usize,
    /// The number of rules that are chained to another rule.
    chained: usize,
    /// The number of rules for each phase.
    by_phase: BTreeMap<u8, usize>,
    /// The number of rules for each paranoia level, which a rule's tag states.
    by_paranoia: BTreeMap<String, usize>,
    /// The number of rules without a paranoia level.
    without_paranoia: usize,
    warnings: Vec<ProblemReport<'s>>,
}

impl WafCheck {
    pub(super) fn run(&self) -> Outcome {
        let mut set = match rules(&self.files, self.output.json) {
            Ok(set) => set,
            Err(outcome) => return outcome,
        };
        set.warnings.extend(needs(&set, true));
        let counts = count(&set);
        if self.output.json {
            print_json(&counts);
        } else {
            let warnings: String =
                set.warnings.iter().map(|warning| line("warning", warning) + "\n").collect();
            print(&(warnings + &text(&counts)));
        }
        Outcome::Fine
    }
}

fn count(set: &RuleSet) -> RuleCounts<'_> {
    let (mut by_phase, mut by_paranoia) = (BTreeMap::new(), BTreeMap::new());
    let mut without_paranoia = 0;
    for rule in &set.rules {
        *by_phase.entry(rule.phase.number()).or_insert(0) += 1;
        let tags = rule.tags.iter().filter_map(Template::literal);
        match tags.filter_map(|tag| tag.strip_prefix("paranoia-level/")).next() {
            Some(level) => *by_paranoia.entry(level.to_owned()).or_insert(0) += 1,
            None => without_paranoia += 1,
        }
    }
    RuleCounts {
        ok: true,
        engine: set.settings.engine.map(|mode| match mode {
            EngineMode::On => "On",
            EngineMode::Off => "Off",
            EngineMode::DetectionOnly => "DetectionOnly",
        }),
        components: &set.settings.components,
        rules: set.rules.len(),
        chained: set.rules.iter().map(|rule| rule.links.len() - 1).sum(),
        by_phase,
        by_paranoia,
        without_paranoia,
        warnings: set.warnings.iter().map(ProblemReport::from).collect(),
    }
}

fn text(counts: &RuleCounts<'_>) -> String {
    let RuleCounts { rules, chained, warnings, .. } = counts;
    let mut text = format!("{rules} rules, {chained} more chained to them, {} warnings\n", warnings.len());
    let listed = |counted: Vec<String>| counted.join(", ");
    if !counts.components.is_empty() {
        text += &format!("components: {}\n", counts.components.join(", "));
    }
    if let Some(engine) = counts.engine {
        text += &format!("engine: {engine}\n");
    }
    let phases = counts.by_phase.iter().map(|(phase, count)| format!("{count} in phase {phase}"));
    text += &format!("by phase: {}\n", listed(phases.collect()));
    if !counts.by_paranoia.is_empty() {
        let levels = counts.by_paranoia.iter().map(|(level, count)| format!("{count} at level {level}"));
        let without = format!("{} at every level", counts.without_paranoia);
        text += &format!("by paranoia level: {}\n", listed(levels.chain([without]).collect()));
    }
    text
}

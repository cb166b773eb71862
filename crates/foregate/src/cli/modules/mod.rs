//! `foregate modules`.

mod affects;
mod graph;
mod reference;

use clap::Args;
use foregate_module::{Access, Decl, Entry, Filter, PhaseId, Pipeline, Slot, Weight, WhenFull};
use serde::Serialize;

use super::arguments::Json;
use super::output::{Outcome, complain, print, print_json};
use foregate_rules::nearest;

#[derive(Debug, Args)]
pub(super) struct Modules {
    /// Show one module: its key, or the name of a step
    name: Option<String>,
    /// Print a graph for Graphviz: steps by phase, values as arrows
    #[arg(long, conflicts_with_all = ["json", "name", "affects"])]
    graph: bool,
    /// Show the steps that can change X, and the parts that X can change: a step, a module's key, a value, or a part of the exchange such as
    /// `path` or `response fields`
    #[arg(long, value_name = "X", conflicts_with = "name")]
    affects: Option<String>,
    #[command(flatten)]
    output: Json,
}

impl Modules {
    pub(super) fn run(&self, pipeline: &Pipeline) -> Outcome {
        let json = self.output.json;
        if self.graph {
            print(&graph::dot(pipeline));
            return Outcome::Fine;
        }
        if let Some(subject) = &self.affects {
            return affects::run(pipeline, subject, json);
        }
        if let Some(name) = &self.name {
            return one(pipeline, name, json);
        }
        let steps: Vec<_> = pipeline.entries().iter().map(step).collect();
        if json {
            let values: Vec<_> = pipeline.values().iter().map(value).collect();
            let keys: Vec<_> = pipeline.keys().iter().map(|(key, _)| reference::key(key)).collect();
            print_json(&serde_json::json!({ "steps": steps, "values": values, "keys": keys }));
        } else {
            print(&text(&steps));
        }
        Outcome::Fine
    }
}

/// The description of a step, for the output in JSON.
#[derive(Debug, Serialize)]
struct StepDescription {
    name: &'static str,
    phase: &'static str,
    about: &'static str,
    /// The key that turns the step on; `None` if it is always on.
    key: Option<&'static str>,
    reads: Vec<Part>,
    /// The values that the step takes away, so that later steps do not have them.
    takes: Vec<Part>,
    writes: Vec<Part>,
    /// The ways in which the step may end a request.
    stops: &'static [&'static str],
    /// The conditions under which the step runs; all must hold.
    only: Vec<String>,
    /// For a heavy step, its treatment when the offload queue is full, or `varies`; `None` for a light step.
    heavy: Option<&'static str>,
    /// True if a request continues after the step has panicked.
    optional: bool,
}

/// An input or output of a step.
#[derive(Debug, Serialize)]
struct Part {
    name: &'static str,
    /// True for a value of a module, false for a part of the exchange.
    value: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    about: &'static str,
}

fn step(entry: &Entry) -> StepDescription {
    let decl = entry.decl();
    let part = |slot: &Slot| Part { name: slot.name, value: slot.is_kept(), about: slot.about };
    StepDescription {
        name: decl.name,
        phase: decl.phase.name(),
        about: decl.about,
        key: entry.key().map(|key| key.name),
        reads: decl.inputs.iter().filter(|slot| slot.access != Access::Moved).map(part).collect(),
        takes: decl.inputs.iter().filter(|slot| slot.access == Access::Moved).map(part).collect(),
        writes: decl.writes().map(part).collect(),
        stops: decl.stops,
        only: decl.filters.iter().map(filter).collect(),
        heavy: match decl.weight {
            Weight::Light => None,
            Weight::Heavy(WhenFull::Inline) => Some("inline"),
            Weight::Heavy(WhenFull::Shed) => Some("shed"),
            Weight::Heavy(WhenFull::Error) => Some("error"),
            Weight::Varies => Some("varies"),
        },
        optional: decl.optional,
    }
}

fn filter(filter: &Filter) -> String {
    match filter {
        Filter::Proxied => "routes that ask an upstream".into(),
        Filter::Answered => "routes that ask no upstream".into(),
        Filter::Written(value) => format!("routes with a step that writes {value}"),
        Filter::Method(method) => format!("method {method}"),
        Filter::RequestField(name) => format!("requests with the field {name}"),
        Filter::Status(from, to) if from == to => format!("status {from}"),
        Filter::Status(from, to) => format!("status {from} to {to}"),
        Filter::ResponseField(name) => format!("responses with the field {name}"),
    }
}

/// The description of a value, for the output in JSON.
#[derive(Debug, Serialize)]
struct Value {
    name: &'static str,
    about: &'static str,
    /// The phase in which the value is written.
    phase: &'static str,
    /// The value's type in the expressions of later phases; `None` if they cannot read it.
    expressions: Option<&'static str>,
}

fn value(value: &foregate_module::ValueInfo) -> Value {
    use foregate_module::Kind;
    let expressions = value.shows.map(|kind| match kind {
        Kind::Bool => "bool",
        Kind::Int => "int",
        Kind::Bytes => "text",
        Kind::Ip => "address",
        Kind::Map => "map",
        Kind::Ints => "numbers",
    });
    Value { name: value.name, about: value.about, phase: value.phase.name(), expressions }
}

fn text(steps: &[StepDescription]) -> String {
    let mut text = String::new();
    for phase in PhaseId::ALL {
        text.push_str(&format!("{phase}\n"));
        for step in steps.iter().filter(|step| step.phase == phase.name()) {
            show(step, &mut text);
        }
    }
    if steps.is_empty() {
        text.push_str("There are no modules.\n");
    }
    text
}

fn show(step: &StepDescription, text: &mut String) {
    let StepDescription { name, about, .. } = step;
    text.push_str(&format!("  {name}  {about}\n"));
    let mut line = |label: &str, what: String| {
        if !what.is_empty() {
            text.push_str(&format!("    {label:<7}{what}\n"));
        }
    };
    let parts = |parts: &[Part]| {
        // A step may read several random numbers, which have the same name.
        let mut names: Vec<&str> = Vec::new();
        parts.iter().map(|part| part.name).for_each(|name| {
            if !names.contains(&name) {
                names.push(name);
            }
        });
        names.join(", ")
    };
    line("key", step.key.map_or("none: always on".into(), str::to_owned));
    line("takes", parts(&step.takes));
    line("reads", parts(&step.reads));
    line("writes", parts(&step.writes));
    line("ends", step.stops.join(", "));
    line("only", step.only.join(", "));
    let heavy = step.heavy.map(|full| match full {
        "varies" => "where a request gives it much to do".to_owned(),
        full => format!("when the queue is full: {full}"),
    });
    line("heavy", heavy.unwrap_or_default());
    line("panic", if step.optional { "the request goes on without it".into() } else { String::new() });
}

/// The entries with this name: all steps of a key, or one step.
fn named<'p>(pipeline: &'p Pipeline, name: &str) -> Vec<(usize, &'p Entry)> {
    let steps = pipeline.named(name);
    pipeline.entries().iter().enumerate().filter(|(number, _)| steps.contains(*number)).collect()
}

/// All names that `foregate modules NAME` takes.
fn names(pipeline: &Pipeline) -> Vec<&'static str> {
    let keys = pipeline.keys();
    keys.iter().map(|(key, _)| key.name).chain(pipeline.steps().map(|decl| decl.name)).collect()
}

fn one(pipeline: &Pipeline, name: &str, json: bool) -> Outcome {
    let entries = named(pipeline, name);
    let Some((_, first)) = entries.first() else {
        return unknown("module or step", name, &names(pipeline));
    };
    let steps: Vec<_> = entries.iter().map(|(_, entry)| step(entry)).collect();
    let key = first.key();
    if json {
        print_json(&serde_json::json!({ "key": key.map(reference::key), "steps": steps }));
        return Outcome::Fine;
    }
    let mut shown = match key {
        Some(key) => reference::text(key),
        None => format!("{name} has no key: it is always on.\n"),
    };
    shown.push_str("\nsteps\n");
    for step in &steps {
        show(step, &mut shown);
    }
    print(&shown);
    Outcome::Fine
}

fn unknown(what: &str, name: &str, known: &[&'static str]) -> Outcome {
    let advice = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`foregate modules` lists them".into(),
    };
    complain(&format!("there is no {what} `{name}`; {advice}"));
    Outcome::Wrong
}

/// The declarations of all steps, in the order in which they run.
fn decls(pipeline: &Pipeline) -> Vec<&'static Decl> {
    pipeline.steps().collect()
}

//! The steps that can change something: `foregate modules --affects X`.

use foregate_module::{Decl, PhaseId, Pipeline};
use serde::Serialize;

use super::{decls, named, names, unknown};
use crate::cli::output::{Outcome, print, print_json};

/// The input by which a step reads everything that expressions see.
const EVERYTHING: &str = "everything";

/// The output by which a step keeps others from running.
const STEPS: &str = "steps";

/// The parts of the exchange that change if a step answers the request itself.
const OF_A_RESPONSE: &[&str] = &["status", "response fields", "response source", "error"];

/// Parts of the exchange that have other names as inputs than as an output.
const READ_AS: &[(&str, &[&str])] = &[("target", &["path", "query"])];

/// Parts of the exchange with the first phase in which they can be read.
const KNOWN_FROM: &[(&str, PhaseId)] = &[
    ("request body", PhaseId::RequestBody),
    ("status", PhaseId::UpstreamResponse),
    ("response fields", PhaseId::UpstreamResponse),
    ("response source", PhaseId::UpstreamResponse),
    ("error", PhaseId::UpstreamResponse),
    ("outcome", PhaseId::UpstreamResponse),
    ("response body", PhaseId::ResponseBody),
];

/// The steps and parts that one subject depends on or affects.
#[derive(Debug, Serialize)]
struct Report<'x> {
    /// The subject of the question.
    subject: &'x str,
    /// The steps of the subject; for a value or a part, the steps that write it.
    steps: Vec<&'static str>,
    /// The steps that can change the subject.
    changed_by: Vec<Link>,
    /// The steps that the subject can affect.
    changes: Vec<Link>,
}

/// A step at the other end of a chain.
#[derive(Debug, Serialize)]
struct Link {
    step: &'static str,
    phase: &'static str,
    /// The values or parts of the exchange that carry the change.
    by: Vec<&'static str>,
    /// The next step of the chain towards the subject; `None` if the subject comes next.
    via: Option<&'static str>,
}

pub(super) fn run(pipeline: &Pipeline, subject: &str, json: bool) -> Outcome {
    let decls = decls(pipeline);
    let report = match of_steps(pipeline, &decls, subject).or_else(|| of_part(&decls, subject)) {
        Some(report) => report,
        None => {
            let mut known = names(pipeline);
            known.extend(parts(&decls));
            return unknown("step, module, value or part", subject, &known);
        }
    };
    if json {
        print_json(&report);
    } else {
        print(&text(&report));
    }
    Outcome::Fine
}

fn of_steps<'x>(pipeline: &Pipeline, decls: &[&'static Decl], subject: &'x str) -> Option<Report<'x>> {
    let own: Vec<usize> = named(pipeline, subject).into_iter().map(|(number, _)| number).collect();
    (!own.is_empty()).then(|| Report {
        subject,
        steps: own.iter().map(|number| decls[*number].name).collect(),
        changed_by: reach(decls, &own, true, Vec::new()),
        changes: reach(decls, &own, false, Vec::new()),
    })
}

fn of_part<'x>(decls: &[&'static Decl], subject: &'x str) -> Option<Report<'x>> {
    let part = parts(decls).into_iter().find(|part| *part == subject)?;
    let numbers = |fits: &dyn Fn(&Decl) -> bool| -> Vec<usize> {
        let all = decls.iter().enumerate().filter(|(_, decl)| fits(decl));
        all.map(|(number, _)| number).collect()
    };
    let writers = numbers(&|decl| writes(decl).contains(&part));
    // A value cannot be read before the first step that writes it.
    let is_kept = |decl: &Decl| decl.outputs.iter().any(|slot| slot.is_kept() && slot.name == part);
    let first = decls.iter().position(|decl| is_kept(decl));
    let mut readers = numbers(&|decl| reads(decl, part, is_shown(decls, part)));
    readers.retain(|number| first.is_none_or(|first| first < *number));
    let links = |numbers: &[usize]| -> Vec<Link> {
        let link = |number: &usize| Link {
            step: decls[*number].name,
            phase: decls[*number].phase.name(),
            by: vec![part],
            via: None,
        };
        numbers.iter().map(link).collect()
    };
    Some(Report {
        subject,
        steps: writers.iter().map(|number| decls[*number].name).collect(),
        changed_by: reach(decls, &writers, true, links(&writers)),
        changes: reach(decls, &readers, false, links(&readers)),
    })
}

/// All names of values and of parts of the exchange that steps read or write.
fn parts(decls: &[&'static Decl]) -> Vec<&'static str> {
    let inputs = decls.iter().flat_map(|decl| decl.inputs).map(|slot| slot.name);
    let mut parts: Vec<_> = inputs.chain(decls.iter().flat_map(|decl| writes(decl))).collect();
    parts.retain(|part| *part != EVERYTHING);
    parts.sort_unstable();
    parts.dedup();
    parts
}

/// The parts that a step may change, by their names as inputs.
fn writes(decl: &Decl) -> Vec<&'static str> {
    let mut parts = Vec::new();
    for slot in decl.writes() {
        match READ_AS.iter().find(|(name, _)| *name == slot.name) {
            Some((_, names)) if !slot.is_kept() => parts.extend(*names),
            _ => parts.push(slot.name),
        }
        parts.extend(slot.answer);
    }
    if decl.stops.iter().any(|stop| *stop != "abort") {
        parts.extend(OF_A_RESPONSE);
    }
    parts
}

/// Returns true if expressions can read the part. Expressions can read all parts except values that only steps read.
fn is_shown(decls: &[&'static Decl], part: &str) -> bool {
    let mut outputs = decls.iter().flat_map(|decl| decl.outputs);
    let hidden = |slot: &foregate_module::Slot| {
        slot.answer == Some(part) || slot.name == part && slot.is_kept() && slot.shows.is_none()
    };
    !outputs.any(hidden)
}

fn reads(decl: &Decl, part: &str, shown: bool) -> bool {
    let known = KNOWN_FROM.iter().find(|(known, _)| *known == part);
    let shown = shown && known.is_none_or(|(_, from)| *from <= decl.phase);
    part == STEPS || decl.inputs.iter().any(|slot| slot.name == part || slot.name == EVERYTHING && shown)
}

/// The parts by which the earlier step `from` can affect the later step `to`; empty if it cannot.
fn carriers(decls: &[&'static Decl], from: usize, to: usize) -> Vec<&'static str> {
    let mut parts = if from < to { writes(decls[from]) } else { Vec::new() };
    parts.retain(|part| reads(decls[to], part, is_shown(decls, part)));
    parts.sort_unstable();
    parts.dedup();
    parts
}

/// The steps that affect the steps in `start` if `backwards` is true, otherwise the steps that these affect. The
/// nearest come first. Each comes with its neighbour in the chain from `start`. The result begins with `links`, which
/// the caller has found.
fn reach(decls: &[&'static Decl], start: &[usize], backwards: bool, mut links: Vec<Link>) -> Vec<Link> {
    let of_part = !links.is_empty();
    let mut seen = vec![false; decls.len()];
    start.iter().for_each(|number| seen[*number] = true);
    let mut next = start.to_vec();
    while !next.is_empty() {
        let mut found = Vec::new();
        for other in 0..decls.len() {
            if seen[other] {
                continue;
            }
            let by = |at: &usize| {
                let (from, to) = if backwards { (other, *at) } else { (*at, other) };
                Some((carriers(decls, from, to), *at)).filter(|(by, _)| !by.is_empty())
            };
            if let Some((by, at)) = next.iter().find_map(by) {
                // If the chains start at a value or a part, the steps that write or read it are links too, so a chain
                // can go through them.
                let via = (of_part || !start.contains(&at)).then_some(decls[at].name);
                let decl = decls[other];
                found.push((other, Link { step: decl.name, phase: decl.phase.name(), by, via }));
            }
        }
        next = found.iter().map(|(number, _)| *number).collect();
        next.iter().for_each(|number| seen[*number] = true);
        links.extend(found.into_iter().map(|(_, link)| link));
    }
    links
}

fn text(report: &Report<'_>) -> String {
    let mut text = format!("{}\n", report.subject);
    let sections = [("can be changed by", &report.changed_by), ("can change", &report.changes)];
    for (label, links) in sections {
        text.push_str(&format!("\n{label}\n"));
        if links.is_empty() {
            text.push_str("  no step\n");
        }
        let width = links.iter().map(|link| link.step.len()).max().unwrap_or_default();
        for Link { step, phase, by, via } in links {
            let via = via.map(|via| format!(", through {via}")).unwrap_or_default();
            let by = by.join("`, `");
            text.push_str(&format!("  {step:width$}  ({phase})  by `{by}`{via}\n"));
        }
    }
    text
}

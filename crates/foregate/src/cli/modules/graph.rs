//! The steps as a graph in the language of Graphviz.

use std::fmt::Write;

use foregate_module::{PhaseId, Pipeline};

use super::decls;

/// The graph: a cluster of steps for each phase, and an arrow from a step that writes a value to each step that reads
/// it.
pub(super) fn dot(pipeline: &Pipeline) -> String {
    let mut dot = String::from("digraph foregate {\n  rankdir=LR;\n  node [shape=box];\n");
    let decls = decls(pipeline);
    for phase in PhaseId::ALL {
        let steps: Vec<_> = decls.iter().enumerate().filter(|(_, decl)| decl.phase == phase).collect();
        if steps.is_empty() {
            continue;
        }
        let _ = writeln!(dot, "  subgraph cluster_{} {{\n    label={:?};", phase.order(), phase.name());
        for (number, decl) in steps {
            let _ = writeln!(dot, "    s{number} [label={:?}, tooltip={:?}];", decl.name, decl.about);
        }
        dot.push_str("  }\n");
    }
    for (writer, decl) in decls.iter().enumerate() {
        for output in decl.outputs.iter().filter(|slot| slot.is_kept()) {
            for value in [Some(output.name), output.answer].into_iter().flatten() {
                for (reader, decl) in decls.iter().enumerate() {
                    if decl.inputs.iter().any(|slot| slot.is_kept() && slot.name == value) {
                        let _ = writeln!(dot, "  s{writer} -> s{reader} [label={value:?}];");
                    }
                }
            }
        }
    }
    dot.push_str("}\n");
    dot
}

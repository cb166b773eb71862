//! Compile-time checks of the values that steps write, read and take.

use super::{Access, Cursor, Decl, Sentence, Slot, same};

/// Checks that a step which emits a value when it ends a request also emits the value when the request continues.
#[allow(clippy::panic, reason = "only evaluated by the compiler, whose error it becomes")]
pub(super) const fn check_stop(step: &Decl, slot: &Slot) {
    if !emits(step, slot.name) {
        let mut text = Sentence::new();
        text.say("step `").say(step.name).say("` emits `").say(slot.name);
        text.say("` where it ends a request, but not where that goes on; name it in `Out` as well");
        panic!("{}", text.as_str());
    }
}

/// Returns true if a step writes a value.
const fn emits(step: &Decl, value: &str) -> bool {
    has(step.outputs, Access::Value, value)
}

/// Returns true if a step takes a value.
const fn takes(step: &Decl, value: &str) -> bool {
    has(step.inputs, Access::Moved, value)
}

const fn has(slots: &[Slot], access: Access, name: &str) -> bool {
    let mut number = 0;
    while number < slots.len() {
        if slots[number].access as u8 == access as u8 && same(slots[number].name, name) {
            return true;
        }
        number += 1;
    }
    false
}

/// Checks that no step reads a value that another step has taken and not emitted again.
#[allow(clippy::panic, reason = "only evaluated by the compiler, whose error it becomes")]
const fn check_taken(groups: &[&[Decl]], here: &Cursor, step: &Decl, slot: &Slot) {
    let mut cursor = Cursor::new();
    let mut taken: Option<&Decl> = None;
    while let Some(other) = cursor.next(groups) {
        if cursor.is(here) {
            break;
        }
        if takes(other, slot.name) {
            taken = Some(other);
        }
        if emits(other, slot.name) {
            taken = None;
        }
    }
    let Some(other) = taken else { return };
    let mut text = Sentence::new();
    text.say("`").say(slot.name).say(if matches!(slot.access, Access::Moved) {
        "` is taken by step `"
    } else {
        "` is read by step `"
    });
    text.say(step.name).say("` (phase ").say(step.phase.name()).say("), but step `").say(other.name);
    text.say("` (phase ").say(other.phase.name());
    text.say(") has taken it and does not emit it again");
    panic!("{}", text.as_str());
}

/// Checks that a value has only one writer, and is not one that the platform writes.
#[allow(clippy::panic, reason = "only evaluated by the compiler, whose error it becomes")]
pub(super) const fn check_writer(groups: &[&[Decl]], here: &Cursor, step: &Decl, slot: &Slot) {
    if matches!(slot.access, Access::Platform) {
        return;
    }
    let mut cursor = Cursor::new();
    while let Some(other) = cursor.next(groups) {
        if cursor.is(here) {
            return;
        }
        let mut number = 0;
        while number < other.outputs.len() {
            let output = &other.outputs[number];
            let both_add = matches!(output.access, Access::List) && matches!(slot.access, Access::List);
            // The step that took the value may emit it again.
            let again = matches!(slot.access, Access::Value) && takes(step, slot.name);
            let written = !matches!(output.access, Access::Platform)
                && same(output.name, slot.name)
                && !both_add
                && !again;
            let answered = match output.answer {
                Some(answer) => same(answer, slot.name),
                None => false,
            };
            if written || answered {
                let mut text = Sentence::new();
                text.say("`").say(slot.name).say("` is written by step `").say(step.name).say("` (phase ");
                text.say(step.phase.name()).say(") and already by step `").say(other.name);
                text.say("` (phase ").say(other.phase.name()).say("); a value has one writer");
                panic!("{}", text.as_str());
            }
            number += 1;
        }
    }
}

/// Checks that a value is written before it is read. The answer to a fetch is available from the next phase on.
#[allow(clippy::panic, reason = "only evaluated by the compiler, whose error it becomes")]
pub(super) const fn check_reader(groups: &[&[Decl]], here: &Cursor, step: &Decl, slot: &Slot) {
    let mut cursor = Cursor::new();
    let mut before = true;
    let mut later: Option<&Decl> = None;
    let mut answered = false;
    let is_moved = matches!(slot.access, Access::Moved);
    while let Some(other) = cursor.next(groups) {
        if cursor.is(here) {
            before = false;
        }
        let mut number = 0;
        while number < other.outputs.len() {
            let output = &other.outputs[number];
            let answers = match output.answer {
                Some(answer) => same(answer, slot.name),
                None => false,
            };
            let written = matches!(output.access, Access::Value) && same(output.name, slot.name);
            if matches!(output.access, Access::List) && same(output.name, slot.name) {
                let reads = if is_moved { "`Take`" } else { "`Read`" };
                refuse_kind(step, other, slot, reads, "adds to it", "`Added`");
            }
            if written && !same(output.about, slot.about) {
                let mut text = Sentence::new();
                text.say("two values have the name `")
                    .say(slot.name)
                    .say("`: the one that step `")
                    .say(step.name);
                text.say("` reads is not the one that step `").say(other.name).say("` writes");
                panic!("{}", text.as_str());
            }
            if (written && before) || (answers && other.phase.order() < step.phase.order()) {
                return check_taken(groups, here, step, slot);
            }
            if written || answers {
                later = Some(other);
                answered = answers && other.phase.order() == step.phase.order();
            }
            number += 1;
        }
    }
    let mut text = Sentence::new();
    text.say("`").say(slot.name).say(if is_moved { "` is taken by step `" } else { "` is read by step `" });
    text.say(step.name).say("` (phase ").say(step.phase.name());
    match later {
        Some(writer) if answered => {
            text.say("), but the platform writes it at the end of the phase in which step `");
            text.say(writer.name).say("` asks for it; read it in a later phase");
        }
        Some(writer) => {
            text.say("), but only written later, by step `").say(writer.name).say("` (phase ");
            text.say(writer.phase.name()).say(")");
        }
        None => {
            text.say("), but no step of the pipeline writes it");
        }
    }
    panic!("{}", text.as_str());
}

/// Checks that no step adds to a list after the list is read. The list may be empty.
#[allow(clippy::panic, reason = "only evaluated by the compiler, whose error it becomes")]
pub(super) const fn check_list(groups: &[&[Decl]], here: &Cursor, step: &Decl, slot: &Slot) {
    let mut cursor = Cursor::new();
    let mut before = true;
    while let Some(other) = cursor.next(groups) {
        if cursor.is(here) {
            before = false;
        }
        let mut number = 0;
        while number < other.outputs.len() {
            let output = &other.outputs[number];
            if matches!(output.access, Access::Value) && same(output.name, slot.name) {
                refuse_kind(step, other, slot, "`Added`", "writes it by `Emit`", "`Read`");
            }
            if !before && matches!(output.access, Access::List) && same(output.name, slot.name) {
                let mut text = Sentence::new();
                text.say("step `").say(other.name).say("` (phase ").say(other.phase.name());
                text.say(") adds to `").say(slot.name).say("` after step `").say(step.name);
                text.say("` (phase ").say(step.phase.name()).say(") has read it");
                panic!("{}", text.as_str());
            }
            number += 1;
        }
    }
}

/// Refuses a step that reads a list as a value, or a value as a list.
#[allow(clippy::panic, reason = "only evaluated by the compiler, whose error it becomes")]
const fn refuse_kind(step: &Decl, writer: &Decl, slot: &Slot, reads: &str, writes: &str, instead: &str) {
    let mut text = Sentence::new();
    text.say("`").say(slot.name).say("` is read as ").say(reads).say(" by step `").say(step.name);
    text.say("` (phase ").say(step.phase.name()).say("), but step `").say(writer.name).say("` (phase ");
    text.say(writer.phase.name()).say(") ").say(writes).say("; read it as ").say(instead);
    panic!("{}", text.as_str());
}

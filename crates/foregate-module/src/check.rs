//! Compile-time checks of a pipeline.

mod values;

use self::values::{check_list, check_reader, check_stop, check_writer};
use crate::output::{Notes, Output};
use crate::phase_id::{Phase, PhaseId};
use crate::settings::{FromNode, Key};
use crate::slot::{Access, Slot};
use crate::step::{Filter, Step, Weight};
use crate::steps::Steps;
use crate::{Inputs, Outputs, Terminal};

/// The declaration of a step.
#[derive(Debug, Clone, Copy)]
pub struct Decl {
    /// Its name.
    pub name: &'static str,
    /// Its description, a sentence.
    pub about: &'static str,
    /// The phase in which the step runs.
    pub phase: PhaseId,
    /// Its inputs.
    pub inputs: &'static [Slot],
    /// Its outputs.
    pub outputs: &'static [Slot],
    /// The names of its ways to end a request.
    pub stops: &'static [&'static str],
    /// True if it may add notes to the access log when it ends a request.
    pub stop_notes: bool,
    /// The values that it emits when it ends a request.
    pub stop_emits: &'static [Slot],
    /// The filters that decide whether it runs at all.
    pub filters: &'static [Filter],
    /// The thread on which it runs.
    pub weight: Weight,
    /// True if the request continues when the step panics.
    pub optional: bool,
    /// True if its filter fetches other documents.
    pub asks: bool,
    /// True if it runs after the other steps of its phase.
    pub last: bool,
    /// The key of the configuration that turns it on.
    pub key: Option<&'static Key>,
}

impl Decl {
    /// Its outputs, including the notes that it adds when it ends a request.
    pub fn writes(&self) -> impl Iterator<Item = &'static Slot> {
        let notes = &const { Notes::SLOT };
        let is_said = self.outputs.iter().any(|slot| slot.name == notes.name);
        self.outputs.iter().chain((self.stop_notes && !is_said).then_some(notes))
    }

    /// The rank of the step by its phase. Within a phase, steps with [`last`](Self::last) come after the others.
    pub(crate) const fn turn(&self) -> usize {
        self.phase.order() * 2 + self.last as usize
    }
}

/// The declaration of `S`.
pub const fn decl<S: Step>() -> Decl {
    Decl {
        name: S::NAME,
        about: S::ABOUT,
        phase: <S::At as Phase>::ID,
        inputs: <S::In<'static> as Inputs<'static, S::At>>::SLOTS,
        outputs: <S::Out as Outputs<S::At>>::SLOTS,
        stops: <S::Stop as Terminal>::NAMES,
        stop_notes: <S::Stop as Terminal>::NOTES,
        stop_emits: <S::Stop as Terminal>::EMITS,
        filters: S::FILTERS,
        weight: S::WEIGHT,
        optional: S::OPTIONAL,
        asks: S::ASKS,
        last: S::LAST,
        key: <S::Settings as FromNode>::KEY,
    }
}

/// Refuses a pipeline that cannot work, by a panic during compilation. `groups` are merged phase by phase: the steps of
/// an earlier group come first, and steps with [`LAST`](Step::LAST) come after all others.
///
/// # Panics
///
/// Fails the build with a sentence that names the value, its reader, its writer and their phases.
#[allow(clippy::panic, reason = "only evaluated by the compiler, whose error it becomes")]
pub const fn check(groups: &[&[Decl]]) {
    let mut group = 0;
    while group < groups.len() {
        let steps = groups[group];
        let mut at = 1;
        while at < steps.len() {
            let (before, step) = (&steps[at - 1], &steps[at]);
            if step.phase.order() < before.phase.order() {
                let mut text = Sentence::new();
                text.say("step `").say(step.name).say("` of phase ").say(step.phase.name());
                text.say(" is listed after step `").say(before.name).say("` of the later phase ");
                text.say(before.phase.name()).say("; list steps in the order of their phases");
                panic!("{}", text.as_str());
            }
            at += 1;
        }
        group += 1;
    }
    let mut cursor = Cursor::new();
    let mut count = 0;
    while let Some(step) = cursor.next(groups) {
        count += 1;
        assert!(count <= Steps::LIMIT, "a pipeline has at most 256 steps");
        check_name(groups, &cursor, step);
        check_key(groups, &cursor, step);
        let mut number = 0;
        while number < step.filters.len() {
            check_filter(groups, &cursor, step, step.filters[number]);
            number += 1;
        }
        number = 0;
        while number < step.outputs.len() {
            check_writer(groups, &cursor, step, &step.outputs[number]);
            number += 1;
        }
        number = 0;
        while number < step.stop_emits.len() {
            check_stop(step, &step.stop_emits[number]);
            number += 1;
        }
        number = 0;
        while number < step.inputs.len() {
            match step.inputs[number].access {
                Access::Value | Access::Moved => check_reader(groups, &cursor, step, &step.inputs[number]),
                Access::List => check_list(groups, &cursor, step, &step.inputs[number]),
                Access::Platform | Access::Only => {}
            }
            number += 1;
        }
    }
}

/// The steps of all groups in the order in which they run.
#[doc(hidden)]
pub const fn merged<const N: usize>(groups: &[&[Decl]]) -> [Decl; N] {
    const NONE: Decl = Decl {
        name: "",
        about: "",
        phase: PhaseId::Log,
        inputs: &[],
        outputs: &[],
        stops: &[],
        stop_notes: false,
        stop_emits: &[],
        filters: &[],
        weight: Weight::Light,
        optional: false,
        asks: false,
        last: false,
        key: None,
    };
    let mut all = [NONE; N];
    let (mut cursor, mut at) = (Cursor::new(), 0);
    while let Some(step) = cursor.next(groups) {
        all[at] = *step;
        at += 1;
    }
    all
}

/// An iterator over the steps of all groups, in the order in which they run.
#[derive(Clone, Copy)]
struct Cursor {
    turn: usize,
    group: usize,
    at: usize,
}

impl Cursor {
    const fn new() -> Self {
        Self { turn: 0, group: 0, at: 0 }
    }

    const fn next<'g>(&mut self, groups: &[&'g [Decl]]) -> Option<&'g Decl> {
        while self.turn < PhaseId::COUNT * 2 {
            while self.group < groups.len() {
                let steps = groups[self.group];
                while self.at < steps.len() {
                    self.at += 1;
                    if steps[self.at - 1].turn() == self.turn {
                        return Some(&steps[self.at - 1]);
                    }
                }
                self.group += 1;
                self.at = 0;
            }
            self.turn += 1;
            self.group = 0;
        }
        None
    }

    const fn is(&self, other: &Self) -> bool {
        self.turn == other.turn && self.group == other.group && self.at == other.at
    }
}

#[allow(clippy::panic, reason = "only evaluated by the compiler, whose error it becomes")]
const fn check_name(groups: &[&[Decl]], here: &Cursor, step: &Decl) {
    if !is_name(step.name) {
        let mut text = Sentence::new();
        text.say("`").say(step.name).say("` is no name of a step: write letters, digits and `-`");
        panic!("{}", text.as_str());
    }
    let mut cursor = Cursor::new();
    while let Some(other) = cursor.next(groups) {
        if cursor.is(here) {
            return;
        }
        if same(other.name, step.name) {
            let mut text = Sentence::new();
            text.say("two steps have the name `").say(step.name).say("`, one of phase ");
            text.say(other.phase.name()).say(", one of phase ").say(step.phase.name());
            text.say("; a step is listed once");
            panic!("{}", text.as_str());
        }
    }
}

/// Returns true for a valid name of a step. Names are used as labels of metrics and as words in configurations and
/// command lines.
const fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !(bytes[at].is_ascii_alphanumeric() || bytes[at] == b'-') {
            return false;
        }
        at += 1;
    }
    !bytes.is_empty()
}

/// Checks that all steps with the same key belong to one module, so that they have the same settings.
#[allow(clippy::panic, reason = "only evaluated by the compiler, whose error it becomes")]
const fn check_key(groups: &[&[Decl]], here: &Cursor, step: &Decl) {
    let Some(key) = step.key else { return };
    let mut cursor = Cursor::new();
    while let Some(other) = cursor.next(groups) {
        if cursor.is(here) {
            return;
        }
        if let Some(known) = other.key
            && same(known.name, key.name)
            && !(same(known.about, key.about)
                && same(known.usage, key.usage)
                && same(known.example, key.example))
        {
            let mut text = Sentence::new();
            text.say("steps `")
                .say(other.name)
                .say("` and `")
                .say(step.name)
                .say("` have two keys of the name `");
            text.say(key.name)
                .say("`; steps of one module share the type of their settings, others need another name");
            panic!("{}", text.as_str());
        }
    }
}

/// Refuses a step with a filter that never holds, because the step would never run. Filters are checked one by one: two
/// filters that exclude each other are not found.
#[allow(clippy::panic, reason = "only evaluated by the compiler, whose error it becomes")]
const fn check_filter(groups: &[&[Decl]], here: &Cursor, step: &Decl, filter: Filter) {
    let mut text = Sentence::new();
    text.say("step `").say(step.name).say("` (phase ").say(step.phase.name()).say(") would never run: ");
    match filter {
        Filter::Status(..) | Filter::ResponseField(_)
            if step.phase.order() < PhaseId::UpstreamResponse.order() =>
        {
            text.say("its filter is about the response, and there is none yet");
        }
        Filter::Status(first, last) if first > last => {
            text.say("its filter is about statuses of which the first is greater than the last");
        }
        Filter::Method(method) if is_misspelt(method) => {
            text.say("methods are compared with their case, and its filter says `").say(method).say("`");
        }
        Filter::Written(value) if !is_written(groups, here, step, value) => {
            text.say("its filter asks for `")
                .say(value)
                .say("`, which no earlier step of the pipeline writes");
        }
        _ => return,
    }
    panic!("{}", text.as_str());
}

/// Returns true for the name of a well-known method in the wrong case, such as `get`.
const fn is_misspelt(method: &str) -> bool {
    const METHODS: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    let mut at = 0;
    while at < METHODS.len() {
        if METHODS[at].eq_ignore_ascii_case(method) {
            return !same(METHODS[at], method);
        }
        at += 1;
    }
    false
}

/// Returns true if a step before this one writes the value of this name, or adds to the list of this name. A list that
/// the step itself reads counts too, because it may be empty.
const fn is_written(groups: &[&[Decl]], here: &Cursor, step: &Decl, value: &str) -> bool {
    let mut number = 0;
    while number < step.inputs.len() {
        let input = &step.inputs[number];
        if matches!(input.access, Access::List) && same(input.name, value) {
            return true;
        }
        number += 1;
    }
    let mut cursor = Cursor::new();
    while let Some(other) = cursor.next(groups) {
        if cursor.is(here) {
            return false;
        }
        let mut number = 0;
        while number < other.outputs.len() {
            if other.outputs[number].is_kept() && same(other.outputs[number].name, value) {
                return true;
            }
            number += 1;
        }
    }
    false
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// A sentence that is built during compilation.
struct Sentence {
    bytes: [u8; 512],
    length: usize,
}

impl Sentence {
    const fn new() -> Self {
        Self { bytes: [0; 512], length: 0 }
    }

    const fn say(&mut self, text: &str) -> &mut Self {
        let text = text.as_bytes();
        let mut at = 0;
        while at < text.len() && self.length < self.bytes.len() {
            self.bytes[self.length] = text[at];
            self.length += 1;
            at += 1;
        }
        self
    }

    const fn as_str(&self) -> &str {
        let (text, _) = self.bytes.split_at(self.length);
        match core::str::from_utf8(text) {
            Ok(text) => text,
            Err(_) => "the pipeline cannot work",
        }
    }
}

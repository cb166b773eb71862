//! The start of a phase. Each value is transformed into the forms that the phase's rules need. One scan of
//! each distinct form then finds the rules that have to look at the value.

use std::borrow::Cow;

use super::bits;
use super::limits::LOOK;
use super::plan::{Interest, PhasePlan};
use super::state::State;
use super::values::{FAMILIES, Family, Span, Text, UNCHANGED, UNFED, UNNAMED, Unit};
use crate::scan::{Scan, ScanHits};
use crate::transform::{Bytes, Transformation, UnicodeMap};

/// [`Scratch::forms`](super::state::Scratch::forms): no scan yet.
const UNSCANNED: u32 = u32::MAX;

/// Families in the order of their numbers.
const ALL: [Family; FAMILIES] = [
    Family::Args,
    Family::ArgNames,
    Family::Headers,
    Family::HeaderNames,
    Family::Cookies,
    Family::CookieNames,
    Family::Files,
    Family::FileNames,
    Family::FileSizes,
    Family::FileContents,
    Family::PartFileNames,
    Family::PartNames,
    Family::PartHeaders,
    Family::XmlText,
    Family::XmlAttributes,
    Family::ResponseHeaders,
    Family::ResponseHeaderNames,
    Family::Scalars,
];

/// Prepares all values for the rules of a phase.
pub(crate) fn feed(state: &mut State, map: Option<&UnicodeMap>, phase: &PhasePlan) {
    state.forms.clear();
    state.words.clear();
    state.words.resize(phase.words, 0);
    state.live.copy_from(&phase.always);
    for family in ALL {
        let interests = &phase.families[family as usize];
        for at in 0..state.values.units(family).len() {
            let unit = &mut state.values.units_mut(family)[at];
            let number = interests.known.get(usize::from(unit.known)).copied();
            debug_assert!(number.is_some() || unit.known == UNNAMED);
            unit.interest = number.unwrap_or(interests.others);
            unit.forms = UNFED;
            unit.candidates = UNFED;
            let Some(interest) =
                phase.interests.get(usize::from(unit.interest)).filter(|interest| interest.wanted)
            else {
                continue;
            };
            let mut fed = *unit;
            if !state.budget.is_exhausted() {
                feed_unit(state, map, phase, interest, &mut fed);
            }
            state.values.units_mut(family)[at] = fed;
        }
    }
}

fn feed_unit(
    state: &mut State,
    map: Option<&UnicodeMap>,
    phase: &PhasePlan,
    interest: &Interest,
    unit: &mut Unit,
) {
    let value = state.values.text.get(unit.value);
    let bytes = Bytes::of(value);
    if interest.program.iter().all(|next| next.transformation.leaves(bytes)) {
        unit.forms = UNCHANGED;
        unit.candidates = match &interest.all {
            Some(wanted) => scan_alone(state, phase, unit.value, wanted.words()),
            None => 0,
        };
        return;
    }
    transform_all(state, map, interest, unit, bytes);
    unit.candidates = if interest.all.is_some() { scan_forms(state, phase, interest, unit) } else { 0 };
}

/// Finds the candidates for a value that no transformation changes. Returns their row; row 0 is empty.
fn scan_alone(state: &mut State, phase: &PhasePlan, value: Span, wanted: &[u64]) -> u32 {
    let Some(scan) = &phase.scan else { return UNFED };
    state.budget.spend(value.len() as u64);
    let row = state.words.len();
    state.words.resize(row + phase.words, 0);
    let hits = &mut state.words[row..];
    look(scan, state.values.text.get(value), &mut state.scratch.found, hits);
    hits.iter_mut().zip(wanted).for_each(|(hit, wanted)| *hit &= wanted);
    keep_row(state, phase, row)
}

/// Activates the steps of the candidates in a row and returns the row. If the row is empty, removes it and returns 0.
fn keep_row(state: &mut State, phase: &PhasePlan, row: usize) -> u32 {
    if state.words[row..].iter().all(|word| *word == 0) {
        state.words.truncate(row);
        return 0;
    }
    for candidate in bits::ones(&state.words[row..]) {
        state.live.insert(phase.candidates[candidate] as usize);
    }
    row as u32
}

/// Computes all forms of a value.
fn transform_all(
    state: &mut State,
    map: Option<&UnicodeMap>,
    interest: &Interest,
    unit: &mut Unit,
    bytes: Bytes,
) {
    let base = state.forms.len();
    unit.forms = base as u32;
    state.scratch.forms.clear();
    for next in &interest.program {
        let parent = usize::from(next.parent);
        let (from, kinds) = match parent.checked_sub(1) {
            Some(at) => (state.forms[base + at], state.scratch.forms[at].0),
            None => (unit.value, bytes),
        };
        let form = if next.transformation.leaves(kinds) || !state.has_room(from.len()) {
            from
        } else {
            state.budget.charge(from.len() as u64);
            transform(&mut state.values.text, from, next.transformation, map)
        };
        let kinds = if form == from { kinds } else { Bytes::of(state.values.text.get(form)) };
        state.scratch.forms.push((kinds, UNSCANNED));
        state.forms.push(form);
    }
}

/// Finds the candidates for a value, with one scan of each distinct form. Returns their row.
fn scan_forms(state: &mut State, phase: &PhasePlan, interest: &Interest, unit: &Unit) -> u32 {
    let Some(scan) = &phase.scan else { return UNFED };
    let words = phase.words;
    let base = unit.forms as usize;
    let row = state.words.len();
    state.words.resize(row + words, 0);
    state.scratch.hits.clear();
    // The hits of the value itself, if a candidate needs them. Forms that are equal to the value share these hits.
    let mut own = UNSCANNED;
    let mut work = 0;
    let found = &mut state.scratch.found;
    let mut look = |hits: &mut Vec<u64>, text: &Text, form: Span| {
        let at = hits.len();
        hits.resize(at + words, 0);
        look(scan, text.get(form), found, &mut hits[at..]);
        work += form.len() as u64 + LOOK;
        at as u32
    };
    if let Some(wanted) = &interest.raw {
        own = look(&mut state.scratch.hits, &state.values.text, unit.value);
        join(&mut state.words[row..], &state.scratch.hits[own as usize..][..words], wanted.words());
    }
    for (at, next) in interest.program.iter().enumerate() {
        let form = state.forms[base + at];
        let (from, shared) = match usize::from(next.parent).checked_sub(1) {
            Some(parent) => (state.forms[base + parent], state.scratch.forms[parent].1),
            None => (unit.value, own),
        };
        let mut hits = if form == from || next.same_to_scan { shared } else { UNSCANNED };
        if let Some(wanted) = &next.candidates {
            if hits == UNSCANNED {
                // Another chain may have produced the same bytes, which need no second scan.
                let text = &state.values.text;
                let same = state.scratch.forms[..at].iter().zip(&state.forms[base..]);
                let same = same.filter(|((_, hits), _)| *hits != UNSCANNED);
                let same = same.filter(|(_, other)| other.len() == form.len());
                let same = same.filter(|(_, other)| **other == form || text.get(**other) == text.get(form));
                hits = same.map(|((_, hits), _)| *hits).next().unwrap_or(UNSCANNED);
            }
            if hits == UNSCANNED {
                hits = look(&mut state.scratch.hits, &state.values.text, form);
            }
            join(&mut state.words[row..], &state.scratch.hits[hits as usize..][..words], wanted.words());
        }
        state.scratch.forms[at].1 = hits;
    }
    state.budget.spend(work);
    keep_row(state, phase, row)
}

/// Scans a value and stores the hits in a row of words.
fn look(scan: &Scan, value: &[u8], found: &mut ScanHits, hits: &mut [u64]) {
    found.clear();
    scan.scan(value, found);
    hits.iter_mut().zip(found.words()).for_each(|(hit, word)| *hit = *word);
}

/// Adds the hits that are wanted to a row.
fn join(row: &mut [u64], hits: &[u64], wanted: &[u64]) {
    for ((row, hit), wanted) in row.iter_mut().zip(hits).zip(wanted) {
        *row |= hit & wanted;
    }
}

/// Transforms a piece of the text. Returns the same piece or a part of it if possible, and otherwise a new
/// piece.
pub(crate) fn transform(
    text: &mut Text,
    from: Span,
    transformation: Transformation,
    map: Option<&UnicodeMap>,
) -> Span {
    piece(text, from, |input| transformation.apply_with(input, map))
}

/// Like [`transform`], for any function from text to text. A borrowed result has to be a part of the input.
pub(crate) fn piece(text: &mut Text, from: Span, change: impl FnOnce(&[u8]) -> Cow<'_, [u8]>) -> Span {
    let input = text.get(from);
    match change(input) {
        Cow::Borrowed(output) => {
            // The output is a part of the input, so its position is the difference of the addresses.
            let start = (output.as_ptr() as usize).saturating_sub(input.as_ptr() as usize);
            if output.is_empty() { from.part(0, 0) } else { from.part(start, start + output.len()) }
        }
        Cow::Owned(output) => text.push(&output),
    }
}

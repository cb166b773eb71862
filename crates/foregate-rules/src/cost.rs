//! What a regular expression may cost where a text is made to be slow.
//!
//! Matching takes time in proportion to the length of the text, whatever the expression, but with a factor: how many places
//! of the expression are open at once. An automaton of bytes takes one step whatever that number is, so what has one that
//! is small is fast, and so is what has few places. `a[ab]{5000}c` has neither, and takes 39 us for each byte.

use regex_automata::dfa::dense;
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_syntax::hir::{Hir, HirKind};

use crate::limits::MAX_PLACES;

/// How large the automaton of an expression with more places may be, in bytes.
const MAX_AUTOMATON: usize = 4 * 1024 * 1024;

/// How much memory there is for the sets of places that are its states, in bytes.
const MAX_STATES: usize = 1024 * 1024;

/// Whether each byte of any text takes little time.
pub(crate) fn is_bounded(hir: &Hir) -> bool {
    places(hir) <= MAX_PLACES || hir.properties().is_alternation_literal() || has_automaton(hir)
}

/// How many bytes an expression stands for, alternatives added up and repetitions written out.
fn places(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(_) => 1,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.saturating_add(1));
            // Even of nothing, each repetition is a place.
            places(&repetition.sub).max(1).saturating_mul(times as usize)
        }
        HirKind::Capture(capture) => places(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(places).fold(0, usize::saturating_add)
        }
    }
}

fn has_automaton(hir: &Hir) -> bool {
    let config = thompson::Config::new().utf8(false).which_captures(WhichCaptures::None);
    let Ok(nfa) = thompson::NFA::compiler().configure(config).build_from_hir(hir) else {
        return false;
    };
    let config = dense::Config::new()
        .dfa_size_limit(Some(MAX_AUTOMATON))
        .determinize_size_limit(Some(MAX_STATES))
        .unicode_word_boundary(true);
    dense::Builder::new().configure(config).build_from_nfa(&nfa).is_ok()
}

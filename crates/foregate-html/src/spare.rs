//! Rewriters that are made in advance, before a document needs them.
//!
//! Making a rewriter compiles the selectors of all features. This costs more than all other work until the first byte
//! of a document is written. So a thread that has rewritten two documents with the same features makes a rewriter for
//! the next such document as soon as a document has ended.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use lol_html::send::HtmlRewriter;

use crate::charset::Charset;
use crate::feature::{ChosenFeature, Feature};
use crate::rewriter::{Output, rewriter};

/// The number of plans that a thread remembers, each with a rewriter of a few tens of KiB at most. If documents of more
/// plans alternate, each document has to wait for its rewriter.
const KEPT: usize = 8;

thread_local! {
    static SPARES: RefCell<VecDeque<Spare>> = const { RefCell::new(VecDeque::new()) };
}

struct Spare {
    plan: Plan,
    rewriter: Option<Box<HtmlRewriter<'static, Output>>>,
}

/// The features and encoding for which a rewriter is made.
pub(crate) struct Plan {
    /// The features. The references are weak, because the rewriter may never be needed.
    features: Vec<Weak<dyn Feature>>,
    charset: Charset,
    budget: usize,
}

impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        // Comparing addresses is safe: a weak pointer keeps the address from being reused.
        let same = |(one, other): (&Weak<_>, &Weak<_>)| std::ptr::addr_eq(one.as_ptr(), other.as_ptr());
        (self.charset, self.budget, self.features.len())
            == (other.charset, other.budget, other.features.len())
            && self.features.iter().zip(&other.features).all(same)
    }
}

impl Plan {
    /// The plan for documents in this encoding with these features.
    pub fn new(features: &[(ChosenFeature, bool)], charset: Charset, budget: usize) -> Self {
        let features = features.iter().map(|(chosen, _)| Arc::downgrade(&chosen.feature)).collect();
        Self { features, charset, budget }
    }

    /// Takes the rewriter that was made in advance, if there is one.
    pub fn take(&self) -> Option<Box<HtmlRewriter<'static, Output>>> {
        SPARES.with_borrow_mut(|spares| spares.iter_mut().find(|spare| spare.plan == *self)?.rewriter.take())
    }

    /// Called after a document: makes a rewriter for the next document with this plan, unless this was the first.
    pub fn prepare(self) {
        SPARES.with_borrow_mut(|spares| {
            let at = spares.iter().position(|spare| spare.plan == self);
            let mut spare =
                at.and_then(|at| spares.remove(at)).unwrap_or(Spare { plan: self, rewriter: None });
            if at.is_some() && spare.rewriter.is_none() {
                spare.rewriter = spare.plan.rewriter();
            }
            spares.retain(|spare| spare.plan.features.iter().all(|feature| feature.strong_count() > 0));
            spares.truncate(KEPT - 1);
            spares.push_front(spare);
        });
    }

    fn rewriter(&self) -> Option<Box<HtmlRewriter<'static, Output>>> {
        let features: Vec<_> = self.features.iter().map(Weak::upgrade).collect::<Option<_>>()?;
        let features = features.iter().map(|feature| &**feature);
        Some(Box::new(rewriter(features, self.charset, self.budget)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::emails::Emails;

    #[test]
    fn a_rewriter_is_made_for_what_comes_again() {
        let chosen = |number: usize| {
            let feature: Arc<dyn Feature> = Arc::new(Emails::new(&number.to_string()));
            vec![(ChosenFeature { step: "test", feature }, false)]
        };
        let all: Vec<_> = (0..2 * KEPT).map(chosen).collect();
        let plan = |number: usize| Plan::new(&all[number], Charset::UTF_8, 1 << 16);
        assert!(plan(0).take().is_none());
        plan(0).prepare();
        assert!(plan(0).take().is_none());
        plan(0).prepare();
        assert!(Plan::new(&all[0], Charset::UTF_8, 1 << 17).take().is_none());
        assert!(plan(1).take().is_none() && plan(0).take().is_some() && plan(0).take().is_none());
        plan(0).prepare();
        for number in 1..KEPT {
            plan(number).prepare();
        }
        assert!(plan(0).take().is_some());
        plan(0).prepare();
        for number in 1..=KEPT {
            plan(number).prepare();
        }
        assert!(plan(0).take().is_none());
        SPARES.with_borrow(|spares| assert_eq!(spares.len(), KEPT));
        let held = Arc::downgrade(&all[3][0].0.feature);
        plan(3).prepare();
        drop(all);
        assert_eq!(held.strong_count(), 0);
    }
}

//! HTML that is rewritten while it streams.
//!
//! A [`Feature`] is a small type: it names selectors, and has handlers with a separate state for each response. Steps
//! choose features and add them to the list [`Features`]. The last step, [`steps::Html`], runs all of them in one
//! [`Pass`] over the document, which is a body filter. The memory of a pass is bounded, regardless of input and output.
//! If the pass cannot continue, the rest of the document passes unchanged.
//!
//! ```
//! use std::sync::Arc;
//! use foregate_html::{ChosenFeature, Element, Feature, Page, Pass, Rewrite, Selector, Terms};
//!
//! /// Opens links in a window of their own.
//! struct NewWindow([Selector; 1]);
//!
//! impl Feature for NewWindow {
//!     fn selectors(&self) -> &[Selector] {
//!         &self.0
//!     }
//!     fn growth(&self) -> usize {
//!         6
//!     }
//!     fn begin(self: Arc<Self>, _: &Page) -> Box<dyn Rewrite> {
//!         Box::new(Links)
//!     }
//! }
//!
//! struct Links;
//!
//! impl Rewrite for Links {
//!     fn element(&mut self, _: usize, element: &mut Element<'_, '_, '_>) {
//!         element.set_attribute("target", "_blank");
//!     }
//! }
//!
//! let feature = Arc::new(NewWindow([Selector::parse("a[href]").unwrap()]));
//! let chosen = ChosenFeature { step: "new-window", feature };
//! let filtered = Pass::filter(vec![(chosen, false)], Terms::default());
//! let mut chain = foregate_module::Chain::new(vec![filtered]);
//! let mut out = Vec::new();
//! chain.write(b"<a hre", &mut out).unwrap();
//! chain.write(b"f=/>x</a>", &mut out).unwrap();
//! chain.end(&mut out).unwrap();
//! assert_eq!(out, b"<a href=/ target=\"_blank\">x</a>");
//! ```

#![forbid(unsafe_code)]

mod carry;
mod charset;
mod declaration;
mod edges;
mod feature;
pub mod features;
mod follow;
mod fragments;
mod guard;
mod holding;
mod insertion;
mod kind;
mod markup;
mod needles;
mod nonce;
mod pass;
mod references;
mod removal;
mod response;
mod rewriter;
mod scan;
mod selector;
mod spare;
mod splice;
mod ssi;
pub mod steps;
pub mod substitute;
mod tail;
#[cfg(test)]
mod tests;
mod text;
mod tree;

pub use charset::{Charset, PRESCAN};
pub use edges::{Edge, Edges};
pub use feature::{
    ChosenFeature, Comment, Element, End, EndTag, Feature, Features, Page, Reads, Removes, Rewrite,
};
pub use follow::{Act, Rule};
pub use fragments::{Fragment, FragmentRules};
pub use pass::{BUDGET, Pass, STEP, Terms};
pub use selector::Selector;
pub use text::{TextOut, escape};

foregate_module::group! {
    /// The steps that choose features, up to the step that decides whether the response can be rewritten. Pipelines list them
    /// before the steps that remove content codings.
    pub enum choosing {
        features::include::ChooseInclude,
        features::remove::ChooseRemove,
        features::links::ChooseLinks,
        features::images::ChooseImages,
        features::replace_text::ChooseText,
        features::emails::ChooseEmails,
        features::insert::ChooseInsert,
        steps::Adjust,
        steps::Choose,
        substitute::AskForPlain,
    }
}

foregate_module::group! {
    /// The steps that rewrite. Pipelines list them before the steps that apply content codings.
    pub enum rewriting {
        features::emails::Script,
        features::emails::ScriptAlone,
        steps::Html,
        substitute::Substitute,
    }
}

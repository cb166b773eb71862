//! The features that are part of Foregate.

pub mod emails;
pub mod images;
pub mod include;
pub mod insert;
pub mod links;
pub mod remove;
pub mod replace_text;

use std::sync::Arc;

use foregate_module::Problem;
use foregate_module::settings::{Context, FromNode, Key, Node};

use crate::{ChosenFeature, Feature};

/// A feature that a key of the configuration enables.
pub trait Configured: Feature + Default {
    /// The step that chooses the feature on routes with the key.
    const STEP: &'static str;
    /// The key, which may appear once in a block.
    const KEY: &'static Key;

    /// Reads the settings of the key.
    ///
    /// # Errors
    ///
    /// The error, with its place in the configuration.
    fn from_node(node: &Node, context: &mut dyn Context) -> Result<Self, Problem>;
}

/// The settings of a feature's key: the feature, which all responses of a route share.
#[derive(Debug)]
pub struct Settings<F>(Arc<F>);

impl<F> Clone for Settings<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: Configured> Settings<F> {
    fn chosen(&self) -> ChosenFeature {
        ChosenFeature { step: F::STEP, feature: Arc::clone(&self.0) as Arc<dyn Feature> }
    }
}

impl<F: Configured> FromNode for Settings<F> {
    const KEY: Option<&'static Key> = Some(F::KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let feature = nodes.last().map_or_else(|| Ok(F::default()), |node| F::from_node(node, context));
        feature.map(|feature| Self(Arc::new(feature)))
    }
}

/// Reads a flag: a child with this name and without an argument sets the flag.
pub(crate) fn flag(node: &Node, name: &str) -> Result<bool, Problem> {
    let Some(child) = node.child(name) else { return Ok(false) };
    child.args().first().map_or(Ok(true), |argument| argument.flag())
}

/// Defines the step that chooses a feature on routes with its key.
macro_rules! chooses {
    ($(#[$doc:meta])* $step:ident, $feature:ty, $about:literal $(, asks: $asks:literal, renews: $renews:literal)?) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub struct $step;

        impl foregate_module::Step for $step {
            type At = foregate_module::phase::ResponseBody;
            type Settings = $crate::features::Settings<$feature>;
            type In<'r> = ();
            type Out = (foregate_module::Add<$crate::Features>,);
            type Stop = foregate_module::Never;
            const NAME: &'static str = <$feature as $crate::features::Configured>::STEP;
            const ABOUT: &'static str = $about;
            const TRIES_PARTS: bool = true;
            $(const ASKS: bool = $asks;
            const RENEWS: bool = $renews;)?
            const FILTERS: &'static [foregate_module::Filter] = &[foregate_module::Filter::Status(200, 599)];

            fn run(
                &self,
                settings: &Self::Settings,
                (): (),
            ) -> core::ops::ControlFlow<foregate_module::Never, Self::Out> {
                let chosen = settings.chosen();
                core::ops::ControlFlow::Continue((foregate_module::Add(Some(chosen)),))
            }
        }
    };
}
use chooses;

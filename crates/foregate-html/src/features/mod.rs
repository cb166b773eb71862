//! The features that ship.

pub mod emails;
pub mod images;
pub mod include;
pub mod insert;
pub mod links;
pub mod remove;
pub mod replace_text;

/// Makes the step that chooses a feature where its key stands.
macro_rules! chooses {
    ($(#[$doc:meta])* $step:ident, $settings:ty, $name:literal, $about:literal $(, asks: $asks:literal)?) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub struct $step;

        impl foregate_module::Step for $step {
            type At = foregate_module::phase::ResponseBody;
            type Settings = $settings;
            type In<'r> = ();
            type Out = (foregate_module::Add<$crate::Features>,);
            type Stop = foregate_module::Never;
            const NAME: &'static str = $name;
            const ABOUT: &'static str = $about;
            $(const ASKS: bool = $asks;)?
            const FILTERS: &'static [foregate_module::Filter] = &[foregate_module::Filter::Status(200, 599)];

            fn run(
                &self,
                settings: &$settings,
                (): (),
            ) -> core::ops::ControlFlow<foregate_module::Never, Self::Out> {
                let chosen = settings.chosen();
                core::ops::ControlFlow::Continue((foregate_module::Add(Some(chosen)),))
            }
        }
    };
}
use chooses;
